"""What failed is said, with what to do about it, by the pass that sees it and by `status` for as long as it lasts."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.rigs.fake_openai import Answer, FakeOpenAI, error
from tests.rigs.program import STUDY, N, Program


def refused(line: bytes, code: str, message: str) -> bytes:
    found: dict[str, Any] = json.loads(line)
    error = {"error": {"message": message, "type": code, "code": code}}
    return json.dumps(found | {"response": {"status_code": 429, "request_id": "r", "body": error}}).encode()


def test_a_batch_that_failed_whole_is_said_with_what_to_do(account: FakeOpenAI, program: Program) -> None:
    """Defect D5 of wires: `sync` names provider, class, message and the way out; so does `status`."""
    account.is_held = True
    assert program.submit().returncode == 0
    problem = {"code": "billing_hard_limit_reached", "message": "Billing hard limit has been reached.", "line": None}
    account.batches[0] |= {"status": "failed", "errors": {"object": "list", "data": [problem]}}
    told = program.sync().stderr
    for words in (f"{N} requests", "openai", "billing_hard_limit_reached", "Billing hard limit", "add credit"):
        assert words in told
    assert f"batchpond retry {STUDY} --only billing" in told
    for again in (program.sync(), program.run("status"), program.run("doctor", "--format", "table")):
        assert again.returncode == 3, "no pass mends it"
        assert "add credit" in again.stderr + again.stdout
    assert program.run("status").stderr.count("Billing hard limit") == 1


def test_errored_rows_are_said_by_class_with_the_commonest_message(account: FakeOpenAI, program: Program) -> None:
    """Defect D5 of wires: rows of a batch that ended are counted by class; answers that came beside them are not."""
    assert program.submit().returncode == 0
    whole = account.lines_of(account.batches[0])
    bad = [refused(line, "insufficient_quota", "no money") for line in whole[:2]]
    bad += [refused(line, "insufficient_quota", "no credit at all") for line in whole[2:5]]
    account.bodies = [b"\n".join([*bad, *whole[5:]]) + b"\n"]
    told = program.sync().stderr
    assert "5 requests of study small failed at openai (billing, insufficient_quota): no credit at all" in told
    assert "5 requests of study small failed" in program.run("status").stderr
    for name in ("sync", "status"):
        assert [program.run(name, *options).returncode for options in ((), ("--exit-code",))] == [0, 3]


def test_what_waits_for_money_is_not_all_in(program: Program) -> None:
    """Nothing is pending, and no pass sends the rest: `sync --exit-code` was 0, as where all is answered."""
    program.prepare(max_requests=6)
    worst_usd = json.loads(program.run("submit", STUDY, "--dry-run", "--json").stdout)["cost_max_usd"]
    assert program.run("submit", STUDY, "--yes", "--max-cost", f"{worst_usd / 2:.9f}").returncode == 0
    assert "1 verified; 6 approved requests not sent yet" in program.sync().stderr
    assert [program.run("sync", *options).returncode for options in ((), ("--exit-code",))] == [0, 3]


def test_a_batch_past_its_window_is_for_a_person(account: FakeOpenAI, program: Program) -> None:
    """Defect D1 of wires: a batch that should have ended hours ago is exit 3 at `sync` and `status`, with ways out."""
    account.is_held = True
    assert program.submit().returncode == 0
    account.batches[0] |= {"expires_at": int(time.time()) - 7_200, "status": "finalizing"}
    for done in (program.sync(), program.run("status")):
        assert done.returncode == 3
        assert "should have ended by" in done.stderr
        assert f"batchpond cancel {account.batches[0]['id']}" in done.stderr


def test_results_that_are_about_to_be_deleted_count_down(account: FakeOpenAI, program: Program) -> None:
    """An ended batch whose file does not come is counted down from the provider's retention."""
    account.is_held, account.age_s = True, 25 * 86_400
    assert program.submit().returncode == 0
    account.finish(account.batches[0])
    account.batches[0]["output_file_id"] = "file-gone"
    for done in (program.sync(), program.run("status")):
        assert done.returncode == 3
        assert "may be deleted in 4 days" in done.stderr
    account.batches[0]["output_file_id"] = f"file-out-{account.batches[0]['id']}"
    assert program.sync().returncode == 0
    assert "deleted" not in program.run("status").stderr


def test_results_that_are_deleted_have_a_way_out(account: FakeOpenAI, program: Program) -> None:
    """No pass ever brings them: what is said of them, once a watch, names the commands that end it."""
    account.is_held, account.age_s = True, 31 * 86_400
    assert program.submit().returncode == 0
    account.finish(account.batches[0])
    account.batches[0]["output_file_id"] = "file-gone"
    out = f"`batchpond resolve {account.batches[0]['id']} --lost` gives up what is gone for good"
    watched = program.run("sync", "--watch", "--interval", "1", "--timeout", "2")
    assert (watched.returncode, watched.stderr.count("404s come and go"), watched.stderr.count(out)) == (3, 1, 2)
    status = program.run("status")
    assert (status.returncode, "may be deleted by now" in status.stderr, out in status.stderr) == (3, True, True)
    assert program.run("resolve", account.batches[0]["id"], "--lost", "--yes").returncode == 0
    account.is_held = False
    assert program.run("retry", STUDY, "--only", "lost", "--yes").returncode == 0
    assert program.sync().returncode == 0
    assert (program.outcomes(), len(account.batches)) == ({"decided": N}, 2)


def test_an_empty_account_waits_for_a_person_and_not_for_time(account: FakeOpenAI, program: Program) -> None:
    """A 429 for want of credit is asked about once: later passes send nothing of the account and say why, exit 3."""
    program.prepare(max_requests=4)
    account.refusals = [error(429, "insufficient_quota")] * 9
    told = program.submit()
    assert told.returncode == 3
    assert "add credit" in told.stderr
    assert told.stderr.splitlines()[-1] == "hint: what keeps them is said above"
    for _ in range(2):
        done = program.sync()
        assert done.returncode == 3
        assert f"{N} requests of study small (3 batches) wait for credit at openai" in done.stderr
    assert f"{N} requests of study small (3 batches) wait for credit at openai" in program.run("status").stderr
    assert account.count("POST", "/batches") == 1
    account.refusals = []
    assert program.submit().returncode == 0
    assert len(account.batches) == 3
    for wish in ("--dry-run", "--yes"):
        assert "note: nothing is asked again" in program.run("retry", STUDY, wish).stderr.splitlines()


def test_results_that_do_not_come_are_said_by_status_too(account: FakeOpenAI, program: Program) -> None:
    """A batch that shows as completed while each download fails is for a person after an hour, not when it perishes."""
    account.is_held = True
    assert program.submit().returncode == 0
    account.finish(account.batches[0])
    account.batches[0]["output_file_id"] = "file-gone"
    assert program.sync().returncode == 3
    assert program.run("status").returncode == 0
    program.wait(4_000)
    done = program.run("status")
    assert done.returncode == 3
    assert "are not all here, though it had ended by 20" in done.stderr


def test_what_a_person_gave_up_is_settled_and_its_requests_have_failed(account: FakeOpenAI, program: Program) -> None:
    """No later pass ends with 3 for it, so that the next trouble is seen; what it did not answer is told of."""
    account.is_held = True
    assert program.submit().returncode == 0
    assert program.run("resolve", account.batches[0]["id"], "--lost", "--yes").returncode == 0
    for done in (program.sync(), program.run("status")):
        assert done.returncode == 0, done.stderr
        assert f"{N} requests failed" in done.stderr
    assert f"`batchpond retry {STUDY} --only lost`" in program.run("status").stderr
    assert {"outcome": "lost", "n": 1} in program.rows("select outcome, n from report_errors where level = 'batch'")


ONE_AT_A_TIME = "[limits.openai]\nopen_batches = 1\n"


def test_money_that_was_seen_by_one_batch_is_there_for_the_rest(account: FakeOpenAI, program: Program) -> None:
    """Of two studies that were refused for credit, one is submitted again: passes send all of both by themselves."""
    program.prepare(max_requests=6)
    for name, what in (("study.toml", f'"{STUDY}"'), ("samples.csv", "sample number")):
        file = program.folder / name
        file.write_text(file.read_text().replace(what, '"other"' if STUDY in what else "another one"))
    program.run("plan", "study.toml")
    (program.folder / "lake" / "config.toml").write_text(ONE_AT_A_TIME)
    account.refusals, account.is_held = [error(429, "insufficient_quota")] * 2, True
    assert [program.submit().returncode, program.run("submit", "other", "--yes").returncode] == [3, 3]
    assert program.submit().returncode == 0
    for n in range(1, 5):
        assert len(account.batches) == n
        account.finish(account.batches[-1])
        done = program.sync()
        assert (done.returncode, "credit" in done.stderr) == (0, False)
    assert program.outcomes() == {"decided": 2 * N}


def test_what_a_person_submitted_while_the_queue_was_full_goes_with_a_later_pass(
    account: FakeOpenAI, program: Program
) -> None:
    """A refused batch waits for `submit`; said while there is no room, it is sent by the pass that finds some."""
    program.prepare(max_requests=4)
    (program.folder / "lake" / "config.toml").write_text(ONE_AT_A_TIME)
    account.refusals = [error(400, "invalid_request_error")]
    assert program.submit().returncode == 1
    account.is_held = True
    told = program.sync()
    assert (told.returncode, len(account.batches)) == (3, 1)
    assert "wait for a person" in told.stderr
    assert "room among the 1 open openai batches" in program.submit().stderr
    assert "wait for a person" not in program.run("status").stderr
    account.is_held = False
    account.finish(account.batches[0])
    assert program.sync().returncode == 0
    assert program.sync().returncode == 0
    assert len(account.batches) == 3


def test_what_is_put_off_says_until_when_and_is_not_missing(account: FakeOpenAI, program: Program) -> None:
    """Defect D6 of wires: a full queue is a wait with an end, in `sync`, `status` and the views."""
    account.is_held = True
    assert program.submit().returncode == 0
    full = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}
    account.batches[0] |= {"status": "failed", "errors": {"object": "list", "data": [full]}}
    for _ in range(2):
        told = program.sync().stderr
        assert f"{N} requests of study small (1 batch) wait for openai to be asked again: back-off until 20" in told
        assert "nothing pending" not in told
    assert "back-off until 20" in program.run("status").stderr
    assert program.rows("select request_state, count(*) as n from results group by all") == [
        {"request_state": "planned", "n": N}
    ]
    assert "missing" not in program.run("status").stderr


def test_a_batch_that_was_found_again_was_created(account: FakeOpenAI, program: Program) -> None:
    """Defect 4.2: a submit whose answer was lost, and that found its batch at once, says that one was created."""
    account.create_answers = [Answer(None)]
    told = program.submit()
    assert "1 batch created, 1 of them found again" in told.stderr


@pytest.mark.parametrize("wait_s", [30, 7_200])
def test_who_asks_to_wait_is_not_waited_for_with_the_lock_held(
    wait_s: int, account: FakeOpenAI, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retry-After of any size: the pass asks once, records when to come back, and later passes say so until then."""
    account.is_held = True
    assert program.submit().returncode == 0
    account.finish(account.batches[0])
    answered = account.answer

    def answer(method: str, path: str, body: bytes, kind: str) -> Answer:
        if method == "GET" and path.startswith("/v1/batches"):
            limited.append(path)
            return error(429, "rate_limit_exceeded", retry_after=str(wait_s))
        return answered(method, path, body, kind)

    monkeypatch.setattr(account, "answer", answer)
    limited: list[str] = []
    assert f"it asks to wait {wait_s:,} s" in program.sync().stderr
    assert len(limited) == 1
    if wait_s > 60:
        assert "asked not to be called before 20" in program.sync().stderr
        assert len(limited) == 1


def test_a_refused_batch_says_when_it_is_asked_for_again(account: FakeOpenAI, program: Program) -> None:
    """The pass that was refused says until when it waits: by the provider's word, of whatever size, or the back-off."""
    account.refusals = [error(429, "rate_limit_exceeded", retry_after="7200")]
    told = re.search(r"wait for openai to be asked again: back-off until (.{16}) UTC", program.submit().stderr)
    assert told is not None
    at = datetime.fromisoformat(told[1]).replace(tzinfo=UTC)
    assert timedelta(seconds=7_000) < at - datetime.now(UTC) <= timedelta(seconds=7_200)
