"""What was uploaded for a batch is deleted once the batch is read, and nothing else is; what is forgotten is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rigs.fake_openai import FakeOpenAI
from tests.rigs.program import N, Program
from tests.rigs.swept import some


@pytest.fixture
def program(account: FakeOpenAI, tmp_path: Path) -> Program:
    program = Program(tmp_path, account.url)
    program.prepare(max_requests=6)
    return program


@pytest.mark.parametrize("failpoint", some("", "T0:kill", swept=["T1:kill"]))
def test_tidy_deletes_what_was_uploaded_once_and_wherever_it_dies(
    account: FakeOpenAI, program: Program, failpoint: str
) -> None:
    """The files of read batches go, those of open ones and of others stay; a second run asks for nothing."""
    theirs = account.upload("theirs.jsonl", b"{}")
    account.is_held = True
    assert program.submit().returncode == 0
    first, second = account.batches
    lines = account.lines_of(first)
    account.finish(first)
    account.bodies = [b"".join(line + b"\n" for line in lines)]
    assert program.sync().returncode == 0
    if failpoint:
        program.more = {"BATCHPOND_FAILPOINT": failpoint}
        assert program.run("tidy", "--yes").returncode < 0
        program.more = {}
    done = program.run("tidy", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["n_deleted"] == (0 if failpoint else 1)
    assert set(account.files) == {theirs, second["input_file_id"]}
    n_asked = len(account.asked)
    assert program.run("tidy", "--yes").returncode == 0
    assert len(account.asked) == n_asked
    assert program.outcomes()["decided"] == N // 2


def test_forget_asks_first_and_a_study_that_is_open_is_not_touched(account: FakeOpenAI, program: Program) -> None:
    """A wrong name is told, what is open is refused; then nothing of the study is here or there but what it was."""
    theirs = account.upload("theirs.jsonl", b"{}")
    account.is_held = True
    assert program.submit().returncode == 0
    refused = program.run("forget", "--study", "small", "--yes")
    assert (refused.returncode, "is still being asked" in refused.stderr) == (2, True)
    for batch in account.batches:
        account.finish(batch)
    assert program.sync().returncode == 0
    unknown = program.run("forget", "--study", "smal", "--yes")
    assert (unknown.returncode, "small" in unknown.stderr) == (2, True)
    unasked = program.run("forget", "--study", "small")
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert program.outcomes()["decided"] == N
    done = program.run("forget", "--study", "small", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_requests"] == json.loads(done.stdout)["n_lines"] == N
    assert set(account.files) == {theirs}
    assert program.rows("select * from results") == []
    assert program.run("audit").returncode == program.run("doctor", "--deep").returncode == 0
    assert program.run("plan", "study.toml").returncode == 0
