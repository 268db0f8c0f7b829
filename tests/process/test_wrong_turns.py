"""A wrong turn can be undone, and what is not done is not called done."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from tests.golden import doors
from tests.rigs.fake_openai import FakeOpenAI, error, fake_openai
from tests.rigs.program import STUDY, N, Program


def test_an_attempt_that_was_never_sent_is_bound_to_no_address(account: FakeOpenAI, program: Program) -> None:
    """Defect 1 of people: after a submit to a wrong address, the next one to the right address sends the study."""
    program.base_url = "http://127.0.0.1:9/v1"
    program.submit()
    program.base_url = account.url
    done = program.submit()
    assert done.returncode == 0, done.stderr
    program.sync()
    assert program.outcomes() == {"decided": N}
    assert program.rows("select host from batches") == [{"host": f"127.0.0.1:{account.port}"}]


def test_an_attempt_that_was_uploaded_elsewhere_is_uploaded_here(program: Program, account: FakeOpenAI) -> None:
    """Defect 1 of people: what a wrong address took in is of no use at the right one."""
    with fake_openai() as wrong:
        program.more = {"BATCHPOND_FAILPOINT": "S6:kill"}
        program.base_url = wrong.url
        program.submit()
        assert len(wrong.files) == 1
    program.more, program.base_url = {}, account.url
    assert program.submit().returncode == 0
    assert (len(account.files), len(account.batches)) == (1, 1)


def test_an_address_that_no_connection_comes_about_to_is_asked_once_a_pass(program: Program) -> None:
    """Every shard waits for the address to be reached; the first listing alone tries it."""
    program.prepare(max_requests=3)
    program.base_url = "http://127.0.0.1:9/v1"
    done = program.submit()
    assert done.returncode == 1
    assert done.stderr.count("could not connect") == 1
    assert "12 requests of study small (4 batches) wait for openai to be reached" in done.stderr


def test_a_watch_ends_where_no_waiting_helps(account: FakeOpenAI, program: Program) -> None:
    """Mission defect D12: `sync --watch` at another address than that of the batches ends at once, and says which."""
    account.is_held = True
    program.submit()
    with fake_openai() as other:
        program.base_url = other.url
        done = program.run("sync", "--watch", "--interval", "1", "--timeout", "60")
    assert done.returncode == ExitCode.ACCESS
    assert done.stderr.count("batches of this lake live at") == 1
    assert "1 batch pending" in done.stderr


def test_an_idle_pass_leaves_no_trace_on_the_disk(account: FakeOpenAI, program: Program) -> None:
    """Defect 4.9: with nothing new, no file of the lake changes, neither in its bytes nor in when it was changed."""
    program.submit()
    program.sync()
    program.sync()
    stood = {path: path.stat().st_mtime_ns for path in (program.folder / "lake").rglob("*") if path.is_file()}
    assert program.sync().returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (program.folder / "lake").rglob("*") if path.is_file()} == stood


def test_requests_that_are_not_sent_are_pending(account: FakeOpenAI, program: Program) -> None:
    """Defect 9 of people: approved requests without a key are not "nothing pending"."""
    program.more = {"OPENAI_API_KEY": ""}
    program.submit()
    told = program.sync().stderr
    assert "nothing pending" not in told
    assert f"{N} approved requests not sent yet" in told
    assert account.batches == []


@pytest.mark.parametrize(
    "arguments",
    [("retry", "smal"), ("submit", "smal"), ("live", "smal"), ("cancel", "batch_00000O")],
    ids=["retry", "submit", "live", "cancel"],
)
def test_what_does_not_exist_is_an_error_that_names_the_nearest(
    account: FakeOpenAI, program: Program, arguments: tuple[str, str]
) -> None:
    """Defect 10 of people: an unknown study or batch is told before any question, with the nearest that exists."""
    assert program.submit().returncode == 0
    done = program.run(*arguments)
    assert done.returncode == 2
    nearest = account.batches[0]["id"] if arguments[0] == "cancel" else STUDY
    assert f"did you mean {nearest}" in done.stderr.replace("'", "")
    assert "--yes" not in done.stderr


@pytest.mark.parametrize(
    ("given", "meant"), [(STUDY, "that of study small is study.toml"), ("stdy.toml", "study.toml")]
)
def test_who_names_a_study_where_a_file_is_asked_for_is_told_the_file(program: Program, given: str, meant: str) -> None:
    """`run`, `plan` and `recover` take files, all others a study's name: either mistake names what was meant."""
    for command in ("run", "plan", "recover"):
        done = program.run(command, given)
        assert (done.returncode, meant in done.stderr) == (2, True), done.stderr
    assert "`batchpond init` writes an example" in program.run("run", "nothing-like-it").stderr


@pytest.mark.parametrize("n", [2_000_000_000, 4_000_000_000])
def test_a_query_ends_whatever_its_expression(program: Program, n: int) -> None:
    """Defect 1 (`query`): what the engine works out before it runs ends by time or memory, and is told."""
    done = program.run("query", "--timeout", "1", f"select length(repeat('a', {n}))")
    assert done.returncode == 2
    assert "narrow it with WHERE" in done.stderr


def test_a_long_wait_is_not_slept_on_with_the_lock_held(account: FakeOpenAI, program: Program) -> None:
    """Defect 4.5: a listing that asks to wait 35 minutes ends the step, says so, and holds for later passes."""
    account.is_held = True
    assert program.submit().returncode == 0
    account.list_answers = [error(429, "rate_limit", Retry_After="2099")] * 3
    told = program.sync()
    assert "wait" in told.stderr
    assert len(account.list_answers) == 2
    account.list_answers = []
    account.finish(account.batches[0])
    n_asked = len(account.asked)
    again = program.sync()
    assert again.returncode == 0
    assert "openai asked not to be called before 20" in again.stderr
    assert len(account.asked) == n_asked, "the next pass respects what the provider asked for"


@pytest.mark.parametrize("verb", ["plan", "run", "recover"])
def test_a_bad_study_file_makes_no_lake(tmp_path: Path, verb: str) -> None:
    """Nothing half done: the error is the file's, and the folder is not there afterwards."""
    (tmp_path / "bad.toml").write_text("nonsense = 1\n")
    done = doors.run("--lake", str(tmp_path / "lake"), verb, str(tmp_path / "bad.toml"))
    assert (done.returncode, "nonsense" in done.stderr) == (2, True)
    assert not (tmp_path / "lake").exists()
