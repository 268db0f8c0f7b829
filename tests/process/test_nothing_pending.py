"""What waits says why, and "nothing pending" is said only when it is true."""

from __future__ import annotations

import json

import pytest

from tests.rigs.fake_openai import Answer, FakeOpenAI, error
from tests.rigs.program import STUDY, N, Program
from tests.rigs.swept import some

WAITS = f"{N} requests of study small (1 batch) wait for"


def make_live(program: Program) -> None:
    study = program.folder / "study.toml"
    study.write_text(study.read_text().replace("max_output_tokens", 'mode = "live"\nmax_output_tokens'))
    assert program.run("plan", "study.toml").returncode == 0


def fail_four(account: FakeOpenAI, program: Program, n_absent: int) -> None:
    """Answer all but four requests: `n_absent` have no line, the rest of the four an error."""
    account.is_held = True
    assert program.submit().returncode == 0
    account.finish(account.batches[0])
    rows = [json.loads(line) for line in account.lines_of(account.batches[0])]
    for row in rows[:4]:
        row |= {"response": None, "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    account.bodies = [b"".join(json.dumps(row).encode() + b"\n" for row in rows[n_absent:])] * 4
    program.sync()
    account.is_held = False


def last_line(stderr: str) -> str:
    """Return the last note, without its hint."""
    return [line for line in stderr.splitlines() if line.startswith("note: ")][-1].removeprefix("note: ")


def stood(program: Program) -> dict[str, int]:
    """Return every file of the lake with its time of change."""
    files = (program.folder / "lake").rglob("*")
    return {str(path): path.stat().st_mtime_ns for path in files if path.is_file()}


def test_what_nobody_approved_is_not_nothing_pending(program: Program) -> None:
    """A planned study that nobody submitted waits for that, and says so, at every pass and in `status`."""
    for _ in range(2):
        assert last_line(program.sync().stderr) == f"nothing new; {N} planned requests not approved"
    assert f"{N} requests of study small wait for an approval: `batchpond submit small`" in program.run("status").stderr


def test_the_rest_of_a_part_waits_for_an_approval(program: Program) -> None:
    """What `--limit` left out is told until it is approved."""
    assert program.run("submit", STUDY, "--yes", "--limit", "5").returncode == 0
    program.sync()
    for _ in range(2):
        assert last_line(program.sync().stderr) == "nothing new; 7 planned requests not approved"
    said = "7 requests of study small wait for an approval of more than was approved"
    assert said in program.run("status").stderr
    assert program.submit().returncode == 0
    program.sync()
    assert last_line(program.sync().stderr) == "nothing new; nothing pending"


@pytest.mark.parametrize("is_refused", some(False, swept=[True]))
def test_what_was_planned_anew_waits_for_an_approval(is_refused: bool, account: FakeOpenAI, program: Program) -> None:
    """A study that changed after it was approved, and of which something was never sent, is not done."""
    program.more = {} if is_refused else {"OPENAI_API_KEY": ""}
    account.refusals = [error(429, "insufficient_quota")] * 3
    program.submit()
    program.prepare(n_items=5)
    assert last_line(program.sync().stderr) == "nothing new; 20 planned requests not approved"
    assert "wait for an approval of the new plan" in program.run("status").stderr


def test_a_study_whose_questions_are_all_answered_waits_for_nothing(program: Program) -> None:
    """Planned anew without a new question, a study is done: what was answered is not counted as waiting."""
    program.submit()
    program.sync()
    study = program.folder / "study.toml"
    study.write_text(study.read_text().replace("max_requests = 1000", "max_requests = 7"))
    assert program.run("plan", "study.toml").returncode == 0
    assert last_line(program.sync().stderr) == "nothing new; nothing pending"


def test_live_requests_that_are_due_are_not_nothing_pending(program: Program) -> None:
    """Neither a pass that may not send nor one after the approval's end forgets what `live` has to ask."""
    make_live(program)
    assert program.submit().returncode == 0
    told = program.run("sync", "--no-submit").stderr
    assert last_line(told) == f"nothing new; {N} live requests due"
    assert f"{N} live requests of study small wait for `batchpond live small`" in program.run("status").stderr
    program.wait(40 * 86_400)
    assert last_line(program.sync().stderr) == f"nothing new; {N} live requests due"
    assert "wait for a new approval, the last ended on" in program.run("status").stderr


def test_no_key_is_a_reason_in_sync_and_status(account: FakeOpenAI, program: Program) -> None:
    """What waits for a key says so: to people in `sync` and `status`, to programs in `status --json`."""
    program.more = {"OPENAI_API_KEY": ""}
    program.submit()
    for command in ("sync", "status"):
        assert f"{WAITS} a key that openai accepts" in program.run(command).stderr
    (wait,) = json.loads(program.run("status", "--json").stdout)["waits"]
    assert (wait["study"], wait["n_requests"], wait["reason"]) == (STUDY, N, "a key that openai accepts")
    assert account.batches == []


def test_a_full_queue_is_a_reason_in_sync_and_status(account: FakeOpenAI, program: Program) -> None:
    """The same words stand in `sync`, which tried, and in `status`, which only looks."""
    program.prepare(max_requests=3)
    (program.folder / "lake" / "config.toml").write_text("[limits.openai]\nopen_batches = 1\n")
    account.is_held = True
    assert program.submit().returncode == 0
    said = "9 requests of study small (3 batches) wait for room among the 1 open openai batches"
    for command in ("sync", "status"):
        assert said in program.run(command).stderr


def test_spent_money_is_a_reason_in_sync_and_status(account: FakeOpenAI, program: Program) -> None:
    """An approval that is reserved or spent is what the rest waits for, wherever one looks."""
    program.prepare(max_requests=3)
    account.is_held = True
    assert program.run("submit", STUDY, "--yes", "--max-cost", "0.0025").returncode == 0
    said = "wait for money: the approved cost is reserved or spent"
    for command in ("sync", "status"):
        assert said in program.run(command).stderr


def test_what_a_person_must_mend_is_exit_3_in_status_too(account: FakeOpenAI, program: Program) -> None:
    """A batch that was refused for good waits for a person: `status` says so as `sync` does."""
    account.refusals = [error(400, "bad")]
    program.submit()
    for command in ("sync", "status"):
        done = program.run(command)
        assert done.returncode == 3
        assert f"{WAITS} a person: openai refused them" in done.stderr


@pytest.mark.parametrize("n_absent", some(4, swept=[0]))
def test_what_is_asked_again_and_waits_is_neither_missing_nor_failed(
    n_absent: int, account: FakeOpenAI, program: Program
) -> None:
    """A retry that cannot go waits, with its reason, in every view: it is no failure any more, and not missing."""
    fail_four(account, program, n_absent)
    (before,) = program.rows("select n_failed, n_missing, n_unsent from report_status")
    assert before == {"n_failed": 4 - n_absent, "n_missing": n_absent, "n_unsent": 0}
    program.more = {"OPENAI_API_KEY": ""}
    assert program.run("retry", STUDY, "--yes").returncode == 4
    (after,) = program.rows("select n_failed, n_missing, n_unsent from report_status")
    assert after == {"n_failed": 0, "n_missing": 0, "n_unsent": 4}
    for command in ("sync", "status"):
        told = program.run(command).stderr
        assert "4 requests of study small (1 batch) wait for a key that openai accepts" in told
        assert "missing" not in told
        assert "failed" not in told
    assert program.outcomes() == {"decided": N - 4, None: 4}
    program.more = {}
    account.bodies = []
    for _ in range(2):
        program.sync()
    assert program.outcomes() == {"decided": N}


@pytest.mark.parametrize("n_absent", some(0, swept=[4]))
def test_what_failed_stays_in_the_last_line_until_it_is_asked_again(
    n_absent: int, account: FakeOpenAI, program: Program
) -> None:
    """A pass with nothing new says so, writes nothing, and is silent about it once the answers are there."""
    fail_four(account, program, n_absent)
    program.sync()
    before = stood(program)
    for _ in range(2):
        told = program.sync().stderr
        assert last_line(told).startswith("nothing new; 4 requests failed")
        assert "`batchpond status` says how they failed" in told
        assert stood(program) == before
    account.bodies = []
    assert program.run("retry", STUDY, "--yes").returncode == 0
    for _ in range(2):
        told = program.sync().stderr
    assert "failed" not in told


def test_what_waits_to_be_sent_is_counted_once(account: FakeOpenAI, program: Program) -> None:
    """A pass says how many requests wait, and not that their batches are pending as well."""
    program.prepare(max_requests=3)
    (program.folder / "lake" / "config.toml").write_text("[limits.openai]\nopen_batches = 1\n")
    account.is_held = True
    assert "1 batch created; 9 requests not sent yet" in program.submit().stderr
    assert "; 1 batch pending, 9 approved requests not sent yet" in program.sync().stderr


def test_a_batch_in_doubt_is_not_everything_sent(account: FakeOpenAI, program: Program) -> None:
    """Neither `submit` nor `status` calls a study settled of which a batch may or may not exist."""
    program.settle_s = "600"
    account.refusals = [Answer(500)] * 9
    assert "0 batches created, 1 unclear" in program.submit().stderr
    done = program.submit()
    assert "what is to be sent is in batches, which may be open, in doubt or settled" in done.stderr
    assert "everything planned was sent" not in done.stderr
    for _ in range(2):
        assert last_line(program.sync().stderr).startswith("nothing new; 1 batch pending, 1 batch unclear")
    assert program.run("status").returncode == 3


def test_run_says_what_waits(account: FakeOpenAI, program: Program) -> None:
    """`run` that ends with requests that wait for money is not done, and says what for."""
    program.prepare(max_requests=3)
    account.is_held = True
    done = program.run("run", "--yes", "--max-cost", "0.0025", "--timeout", "2", "--interval", "1")
    assert "wait for money" in done.stderr
    assert "approved requests not sent yet" in last_line(done.stderr)


def test_an_idle_pass_of_a_lake_with_an_unapproved_plan_writes_nothing(program: Program) -> None:
    """What is not approved is counted once, and again only when something has happened."""
    program.sync()
    before = stood(program)
    program.sync()
    assert stood(program) == before
