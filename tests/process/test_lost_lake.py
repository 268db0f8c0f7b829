"""A dead disk, by the program and HTTP alone: what the account has is not bought again, but taken in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from batchpond import Lake
from batchpond.errors import ExitCode
from tests.rigs.fake_openai import fake_openai
from tests.rigs.program import STUDY, N, Program

RESULTS = "select custom_id, request_id, text, outcome, cost_usd from results order by all"


def test_a_lost_lake_is_not_bought_again_but_made_again(tmp_path: Path) -> None:
    """Defect D2: a new lake bought all batches a second time, and neither `adopt` nor anything else rebuilt it."""
    with fake_openai() as account:
        program = Program(tmp_path, account.url)
        program.prepare(max_requests=6)
        program.submit()
        program.sync()
        before = program.rows(RESULTS)
        assert len(before) == N
        shutil.rmtree(tmp_path / "lake")
        assert program.run("plan", "study.toml").returncode == 0
        stopped = program.submit()
        assert (stopped.returncode, stopped.stdout, len(account.batches)) == (3, "", 2)
        assert f"`batchpond adopt --all --study {STUDY}`" in stopped.stderr
        done = program.run("recover", "study.toml", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert [found["fate"] for found in report["batches"]] == ["taken_in"] * 2
        assert (report["n_requests"], report["n_answered"]) == (N, N)
        assert program.rows(RESULTS) == before
        assert len(account.batches) == 2


def test_a_study_is_bought_anew_in_one_go_or_made_again_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run --fresh` says what `submit --fresh` says; `Lake.recover` is the command."""
    with fake_openai() as account:
        program = Program(tmp_path, account.url)
        program.prepare()
        program.submit()
        program.sync()
        shutil.rmtree(tmp_path / "lake")
        assert program.run("run", "study.toml", "--yes").returncode == ExitCode.ATTENTION
        assert len(account.batches) == 1
        for name, value in program.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        report = Lake("other").recover("study.toml")
        assert (report.n_requests, report.n_answered, len(account.batches)) == (N, N, 1)
        assert program.run("run", "study.toml", "--yes", "--fresh", "--interval", "1").returncode == 0
        assert len(account.batches) == 2


def test_adopt_all_takes_in_what_a_new_lake_stopped_at(tmp_path: Path) -> None:
    """The command that `submit` names: both batches come in with their answers, and nothing is left to buy."""
    with fake_openai() as account:
        program = Program(tmp_path, account.url)
        program.prepare(max_requests=6)
        program.submit()
        program.sync()
        before = program.rows(RESULTS)
        shutil.rmtree(tmp_path / "lake")
        assert program.run("plan", "study.toml").returncode == 0
        assert program.submit().returncode == ExitCode.ATTENTION
        done = program.run("adopt", "--all", "--study", STUDY)
        assert done.returncode == 0, done.stderr
        assert program.rows(RESULTS) == before
        assert program.submit().returncode == program.sync().returncode == 0
        assert len(account.batches) == 2
