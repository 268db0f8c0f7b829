"""The program where little is allowed, where files went bad or away, and where others forge what is the lake's."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.fake_openai import Answer, FakeOpenAI, fake_openai
from tests.rigs.program import STUDY, N, Program
from tests.rigs.small_disk import make_read_only, mounted
from tests.rigs.swept import some, sweep

DISK_BYTES = 16 << 20
# Answers that a pass cannot hold in as much address space, which fails at a place of its own in each.
LONG_ANSWER_BYTES = 4_000_000
TOO_LITTLE_MB = (500, 800, 900, 1200)
# What only reads.
READERS = (
    ("status",), ("audit",), ("results", "--json"), ("query", "select count(*) from raw"), ("doctor",), ("views",),
    ("rank", STUDY), ("report", STUDY, "--format", "md"),
)  # fmt: skip


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A study whose answers are all there, and whose provider is gone."""
    with fake_openai() as account:
        program = Program(tmp_path_factory.mktemp("finished"), account.url)
        program.prepare()
        assert program.submit().returncode == 0
        assert program.sync().returncode == 0
    assert program.outcomes() == {"decided": N}
    return program


@pytest.fixture
def finished(finished_study: Program, tmp_path: Path) -> Program:
    """A copy of the finished study, whose views were made where it is."""
    shutil.copytree(finished_study.folder, tmp_path / "copy")
    program = Program(tmp_path / "copy", finished_study.base_url)
    assert program.run("doctor", "--fix").returncode == 0
    return program


def limited(program: Program, limit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command under a shell's limit."""
    return subprocess.run(
        ["/bin/bash", "-c", f'ulimit {limit}; exec "$@"', "bash", sys.executable, "-m", "batchpond", *arguments],
        capture_output=True, text=True, cwd=program.folder, env=program.environment, timeout=120, check=False,
    )  # fmt: skip


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -- limits ----------------------------------------------------------------------------------------


def test_a_study_goes_through_with_few_open_files(account: FakeOpenAI, tmp_path: Path) -> None:
    """More batches and files than descriptors: none is held for longer than it is used."""
    program = Program(tmp_path, account.url)
    program.prepare(n_items=5, max_requests=1)
    for arguments in (("submit", STUDY, "--yes"), ("sync",)):
        done = limited(program, "-n 32", *arguments)
        assert done.returncode == 0, done.stderr
    assert len(account.batches) == 20
    assert len(list((program.folder / "lake").rglob("*.parquet"))) > 40
    assert program.outcomes() == {"decided": 20}


def test_too_few_open_files_are_one_clear_error_and_lose_nothing(account: FakeOpenAI, program: Program) -> None:
    done = limited(program, "-n 8", "submit", STUDY, "--yes")
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stderr
    assert program.submit().returncode == 0
    program.sync()
    assert (len(account.batches), program.outcomes()) == (1, {"decided": N})


@pytest.mark.parametrize("n_blocks", some(1, swept=[0, 4]))
def test_files_that_may_not_grow_are_one_clear_error_and_lose_nothing(
    account: FakeOpenAI, program: Program, n_blocks: int
) -> None:
    """As a full disk: what is missing is done once it can be, and nothing is bought twice."""
    done = limited(program, f"-f {n_blocks}", "submit", STUDY, "--yes")
    assert done.returncode == 5, done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    program.submit()
    program.sync()
    assert (len(account.batches), program.outcomes()) == (1, {"decided": N})


@sweep
def test_a_pass_that_runs_out_of_memory_says_so_and_loses_nothing(account: FakeOpenAI, program: Program) -> None:
    """At whatever point it does, in whichever library: the answers come in once there is room."""
    assert program.submit().returncode == 0
    account.text = "x" * LONG_ANSWER_BYTES + account.text
    told = set()
    for size_mb in TOO_LITTLE_MB:
        done = limited(program, f"-v {size_mb << 10}", "sync")
        told |= {line for line in done.stderr.splitlines() if line.startswith("error:")}
    assert told == {"error: the machine has no memory left for this"}
    program.sync()
    assert (len(account.batches), program.outcomes()) == (1, {"decided": N})
    assert program.run("doctor", "--deep").returncode == 0


def test_a_lake_that_cannot_be_written_is_said_before_anything_is_asked(account: FakeOpenAI, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", DISK_BYTES) as disk:
        program = Program(tmp_path, account.url, lake=str(disk / "lake"))
        program.prepare()
        make_read_only(disk)
        for done in (program.submit(), program.sync()):
            assert done.returncode == 5, done.stderr
            assert "Read-only" in done.stderr
        assert account.asked == []
        make_read_only(disk, is_so=False)
        assert program.submit().returncode == 0
        program.sync()
        assert program.outcomes() == {"decided": N}


# -- reading ---------------------------------------------------------------------------------------


def test_what_only_reads_changes_no_byte_of_the_lake(finished: Program) -> None:
    """So none of it can leave anything half done, wherever it is killed."""
    before = tree(finished.folder / "lake")
    for arguments in READERS:
        done = finished.run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert tree(finished.folder / "lake") == before, arguments


def test_the_zone_of_the_machine_moves_no_time(finished: Program) -> None:
    """In the hour that comes twice as well: what is printed is UTC and says so."""
    sql = (
        "select min(occurred_at) as first, timestamptz '2026-10-25 00:30:00+00' + interval 1 hour as twice from events"
    )
    found = set()
    for zone in ("UTC", "Europe/Berlin", "Pacific/Chatham"):
        finished.more = {"TZ": zone}
        found.add(json.dumps(finished.rows(sql)))
    assert len(found) == 1
    (row,) = json.loads(found.pop())
    assert row["twice"].replace(" ", "T").startswith("2026-10-25T01:30:00")
    assert row["twice"].endswith(("Z", "+00:00", "+00"))


# -- files that went bad ---------------------------------------------------------------------------


def test_a_deleted_file_of_raw_lines_is_named_and_costs_no_answer(finished: Program) -> None:
    """Defect 2.5: each command says what is not there, until it is back, and how to get it; what was read stays."""
    (path,) = (finished.folder / "lake" / "raw").rglob("*.parquet")
    kept = path.read_bytes()
    path.unlink()
    for command in ("doctor", "audit"):
        told = finished.run(command)
        assert told.returncode == 5
        assert path.name in told.stdout + told.stderr
    for arguments in (("sync",), ("doctor", "--fix"), ("audit",), ("results",)):
        told = finished.run(*arguments)
        assert told.returncode == 5
        assert path.name in told.stdout + told.stderr
        assert "--refetch" in told.stdout + told.stderr
        assert "unexpected" not in told.stderr
    path.write_bytes(kept)
    assert finished.run("sync").returncode == 0
    assert finished.run("doctor").returncode == 0
    assert finished.outcomes() == {"decided": N}


def test_a_file_of_raw_lines_that_is_lost_for_good_is_settled_by_whoever_says_so(finished: Program) -> None:
    """Only what is missing, and only raw lines; what was read from them stays, and nothing is missed any more."""
    (path,) = (finished.folder / "lake" / "raw").rglob("*.parquet")
    name = path.relative_to(finished.folder / "lake").as_posix()
    there = finished.run("doctor", "--lost", name)
    assert (there.returncode, "is there" in there.stderr) == (2, True)
    path.unlink()
    (plan,) = (finished.folder / "lake" / "plan").rglob("*.parquet")
    kept = plan.read_bytes()
    plan.unlink()
    needed = finished.run("doctor", "--lost", plan.relative_to(finished.folder / "lake").as_posix())
    assert (needed.returncode, "cannot be given up" in needed.stderr) == (2, True)
    plan.write_bytes(kept)
    unknown = finished.run("doctor", "--lost", "raw/none.parquet")
    assert (unknown.returncode, name in unknown.stderr) == (2, True)
    assert finished.run("sync").returncode == 5
    settled = finished.run("doctor", "--lost", name)
    assert settled.returncode == 0, settled.stdout
    assert finished.run("sync").returncode == finished.run("results").returncode == 0
    assert finished.outcomes() == {"decided": N}


# -- what others forge -----------------------------------------------------------------------------


def test_a_token_that_only_looks_like_the_lakes_is_not_believed(account: FakeOpenAI, program: Program) -> None:
    """Everybody in the account can read a lake's id and an attempt's; what goes with them takes the lake's secret."""
    program.settle_s = "600"
    account.refusals = [Answer(None)]
    program.submit()
    ((name, data, _),) = account.files.values()
    token = name.removesuffix(".jsonl")
    forged = token[:-1] + ("b" if token[-1] == "a" else "a")
    other = account.upload(f"{forged}.jsonl", data)
    theirs = account.create(
        {"input_file_id": other, "endpoint": "/v1/chat/completions", "metadata": {"batchpond": forged}}
    )
    assert program.sync().returncode == 3
    assert theirs["id"] not in {row["batch_id"] for row in program.rows("select batch_id from batches")}
    assert program.outcomes() != {"decided": N}
    program.settle_s = "0"
    program.sync()
    program.sync()
    assert program.outcomes() == {"decided": N}
    own = {row["batch_id"] for row in program.rows("select batch_id from batches where batch_id is not null")}
    assert own == {account.batches[1]["id"]}
