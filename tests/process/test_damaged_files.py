"""A file that is gone, or cut short, is said by every command, and nothing is bought for want of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batchpond.api import Lake
from batchpond.errors import ExitCode, LakeWarning
from tests.rigs.fake_openai import FakeOpenAI, fake_openai
from tests.rigs.program import STUDY, Program

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
@pytest.mark.parametrize("table", ["plan", "requests", "shard_requests"])
def test_no_command_decides_by_what_is_left(
    table: str, damage: str, account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.4: each says so, with an exit code of its own; the provider has as many batches as before.

    With shards cut otherwise than before, what no shard holds any more was bought again.
    """
    program, n_batches = damaged(settled, tmp_path, table, damage, account), len(account.batches)
    all_say(program, (*COMMANDS, *READERS) if table == "plan" else COMMANDS, table)
    assert len(account.batches) == n_batches
    if damage == "deleted":
        with pytest.warns(LakeWarning, match="it was published and is not there"):
            Lake(program.folder / "lake").scan(table)


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_what_is_derived_is_made_again_before_anything_is_asked_again(
    damage: str, account: FakeOpenAI, settled: Path, tmp_path: Path
) -> None:
    """Defect 2.4: an unreadable file of what is derived is told by all that read it, and its numbers come back.

    A retry without the readings of answers that are here bought every request again.
    """
    program, n_batches = damaged(settled, tmp_path, "responses", damage, account), len(account.batches)
    all_say(program, READERS, "responses")
    retried = program.run("retry", STUDY, "--yes")
    assert (retried.returncode, len(account.batches)) == (ExitCode.LAKE, n_batches), retried.stderr
    if damage == "cut":
        assert "responses" in program.run("doctor").stdout
        program.run("doctor", "--fix")
    assert program.sync().returncode == 0
    whole = program.run("results", "--format", "csv")
    assert (whole.returncode, whole.stdout) == (
        0,
        Program(settled, account.url).run("results", "--format", "csv").stdout,
    )
    assert program.run("retry", STUDY, "--yes").returncode == 0
    assert len(account.batches) == n_batches


def damaged(settled: Path, tmp_path: Path, table: str, damage: str, account: FakeOpenAI) -> Program:
    """Return a copy of the settled study, with every file of a table damaged."""
    shutil.copytree(settled, tmp_path / "study")
    for path in (tmp_path / "study" / "lake" / table).rglob("*.parquet"):
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-200])
    return Program(tmp_path / "study", account.url)


def all_say(program: Program, commands: Sequence[tuple[str, ...]], table: str) -> None:
    """Assert that each command names the table on stderr and ends with the exit code of a damaged lake."""
    for command in commands:
        done = program.run(*command)
        assert done.returncode == ExitCode.LAKE, (command, done.stderr)
        assert table in done.stderr, (command, done.stderr)
        assert "unexpected" not in done.stderr, (command, done.stderr)
