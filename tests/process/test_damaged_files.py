"""A file that is gone, or cut short, is said by every command, and nothing is bought for want of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchpond.api import Lake
from batchpond.errors import ExitCode, LakeWarning
from tests.rigs.fake_openai import FakeOpenAI, fake_openai
from tests.rigs.program import STUDY, Program
from tests.rigs.swept import some

COMMANDS = (
    ("submit", STUDY, "--yes"),
    ("submit", STUDY, "--dry-run"),
    ("retry", STUDY, "--dry-run"),
    ("sync",),
    ("plan", "study.toml"),
)
READERS = (
    ("results",),
    ("query", "select count(*) from results"),
    ("rank", STUDY),
    ("report", STUDY, "--format", "md", "-o", "report.md"),
    ("export", "all.parquet"),
    ("export", "folder", "--layout", "pairwisellm"),
)


@pytest.fixture(scope="module")
def account() -> Iterator[FakeOpenAI]:
    with fake_openai() as found:
        yield found


@pytest.fixture(scope="module")
def settled(account: FakeOpenAI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was answered, and then planned, asked and answered once more with a further item."""
    program = Program(tmp_path_factory.mktemp("settled"), account.url)
    program.prepare(max_requests=6)
    assert [program.submit().returncode, program.sync().returncode] == [0, 0]
    samples = program.folder / "samples.csv"
    samples.write_text(samples.read_text() + "a0,sample number zero\n")
    assert [program.run("plan", "study.toml").returncode, program.submit().returncode] == [0, 0]
    assert program.sync().returncode == 0
    return program.folder


@pytest.mark.parametrize("damage", ["deleted", "cut"])
@pytest.mark.parametrize("table", some("plan", swept=["requests", "shard_requests"]))
def test_no_command_decides_by_what_is_left(
    table: str, damage: str, account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.4: each says so, with an exit code of its own; the provider has as many batches as before.

    With shards cut otherwise than before, what no shard holds any more was bought again.
    """
    program, n_batches = damaged(settled, tmp_path, table, damage, account), len(account.batches)
    all_say(program, (*COMMANDS, *READERS) if table == "plan" else COMMANDS, table)
    for name in ("all.parquet", "folder"):
        assert not (program.folder / name).exists(), "a file outlives the warning that something is not in it"
    assert len(account.batches) == n_batches
    if damage == "deleted":
        with pytest.warns(LakeWarning, match="it was published and is not there"):
            Lake(program.folder / "lake").scan(table)


@pytest.mark.parametrize("damage", some("cut", swept=["deleted"]))
def test_what_is_derived_is_made_again_before_anything_is_asked_again(
    damage: str, account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.4: the next `sync` makes derived files again by itself, and the numbers are those of before.

    A retry without the readings of answers that are here bought every request again.
    """
    program, n_batches = damaged(settled, tmp_path, "responses", damage, account), len(account.batches)
    all_say(program, READERS, "responses")
    retried = program.run("retry", STUDY, "--yes")
    assert (retried.returncode, len(account.batches)) == (ExitCode.LAKE, n_batches), retried.stderr
    done = program.sync()
    assert (done.returncode, "read again" in done.stderr) == (0, True), done.stderr
    assert results_of(program) == results_of(Program(settled, account.url))
    assert program.run("retry", STUDY, "--yes").returncode == 0
    assert len(account.batches) == n_batches


@pytest.mark.parametrize("table", some("judgments", swept=["responses", "plan"]))
def test_a_bit_that_flips_changes_no_number_in_silence(
    table: str, account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.5: with one bit of a page flipped, readers say so; a derived file is made again by the next sync."""
    program = copied(settled, tmp_path, account)
    flip(program, table)
    all_say(program, (*READERS, ("status",), ("audit",)), table)
    if table == "plan":
        return
    done = program.sync()
    assert (done.returncode, "made again" in done.stderr) == (0, True), done.stderr
    assert results_of(program) == results_of(Program(settled, account.url))
    assert program.run("doctor", "--deep").returncode == 0


def test_what_rots_unseen_is_found_by_a_deep_doctor_and_mended_as_it_says(
    account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.5: a bit that flips without a trace on the disk: `doctor --deep` names it, with `--fix` it is healed."""
    program = copied(settled, tmp_path, account)
    flip(program, "responses", is_seen=False)
    found = program.run("doctor", "--deep")
    assert (found.returncode, "`batchpond doctor --fix` drops it" in found.stdout) == (ExitCode.LAKE, True)
    program.run("doctor", "--fix")
    assert program.sync().returncode == 0
    assert program.run("doctor", "--deep").returncode == 0
    assert results_of(program) == results_of(Program(settled, account.url))


def test_no_reader_is_silent_about_an_event_file_that_is_cut(
    account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.5: `audit` does not say that all adds up while an event cannot be read."""
    program = damaged(settled, tmp_path, "events", "cut", account)
    all_say(program, (("audit",), ("status",), ("results",)), "events")


def copied(settled: Path, tmp_path: Path, account: FakeOpenAI) -> Program:
    """Return a copy of the settled study."""
    shutil.copytree(settled, tmp_path / "study")
    return Program(tmp_path / "study", account.url)


def results_of(program: Program) -> str:
    """Return the results as CSV, which takes a whole lake."""
    done = program.run("results", "--format", "csv")
    assert done.returncode == 0, done.stderr
    return done.stdout


def flip(program: Program, table: str, *, is_seen: bool = True) -> None:
    """Flip one bit in a data page of the first of a table's files; `is_seen` where the disk says that it changed."""
    path = min((program.folder / "lake" / table).rglob("*.parquet"))
    stood = path.stat()
    content = bytearray(path.read_bytes())
    with pq.ParquetFile(path) as file:
        last = file.metadata.row_group(0).column(file.schema_arrow.names.index("request_id"))
    content[last.data_page_offset + last.total_compressed_size - 3] ^= 1
    path.write_bytes(bytes(content))
    if not is_seen:
        os.utime(path, ns=(stood.st_atime_ns, stood.st_mtime_ns))


def damaged(settled: Path, tmp_path: Path, table: str, damage: str, account: FakeOpenAI) -> Program:
    """Return a copy of the settled study, with every file of a table damaged."""
    program = copied(settled, tmp_path, account)
    for path in (tmp_path / "study" / "lake" / table).rglob("*.parquet"):
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-200])
    return program


def all_say(program: Program, commands: Sequence[tuple[str, ...]], table: str) -> None:
    """Assert that each command names the table on stderr and ends with the exit code of a damaged lake."""
    for command in commands:
        done = program.run(*command)
        assert done.returncode == ExitCode.LAKE, (command, done.stderr)
        assert table in done.stderr, (command, done.stderr)
        assert "unexpected" not in done.stderr, (command, done.stderr)
