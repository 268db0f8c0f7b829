"""Answers are judged by what they answer: whatever a download holds, what was ever answered stays answered."""

from __future__ import annotations

import json
import time

import pytest

from tests.rigs.fake_openai import SECOND, FakeOpenAI
from tests.rigs.program import N, Program
from tests.rigs.swept import some

GARBAGE = b'{\n "error": {\n' + b'  "message": "try again",\n' * 20 + b'  "code": 500\n }\n}\n'


def body(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_a_plain_study_is_sent_and_read(account: FakeOpenAI, program: Program) -> None:
    """The control of the recipes: without a misfortune, versions of before did this as well."""
    assert program.submit().returncode == 0
    assert program.sync().returncode == 0
    assert (len(account.batches), program.outcomes()) == (1, {"decided": N})


def test_garbage_of_many_lines_never_stands_for_answers(account: FakeOpenAI, program: Program) -> None:
    """Defect 2.1: an error of more lines than requests, then the right file: the right file counts."""
    assert program.submit().returncode == 0
    account.bodies = [GARBAGE]
    program.sync()
    program.sync()
    assert program.outcomes() == {"decided": N}
    assert program.sync().returncode == 0


def test_garbage_after_answers_takes_none_away(account: FakeOpenAI, program: Program) -> None:
    """Defect 2.1, the other order: nine answers, then garbage of more lines: the nine stay, the rest come."""
    program.settle_s = "600"
    assert program.submit().returncode == 0
    whole = account.lines_of(account.batches[0])
    account.bodies = [body(whole[:9]), GARBAGE, GARBAGE]
    program.sync()
    assert program.outcomes()["decided"] == 9
    program.sync()
    assert program.outcomes() == {"decided": N}


def test_two_cut_downloads_make_one_whole(account: FakeOpenAI, program: Program) -> None:
    """Defect 2.2: lines 0 to 6, then lines 5 to 11: every request is answered."""
    assert program.submit().returncode == 0
    whole = account.lines_of(account.batches[0])
    account.bodies = [body(whole[:7]), body(whole[5:]), body(whole[5:])]
    program.sync()
    assert program.outcomes() == {"decided": N}
    (row,) = program.rows("select is_balanced, n_missing, attempt_state from audit")
    assert row == {"is_balanced": True, "n_missing": 0, "attempt_state": "verified"}


def test_an_answer_that_differs_later_is_a_conflict_until_somebody_takes_one(
    account: FakeOpenAI, program: Program
) -> None:
    """Defect 2.3: a second download says otherwise: the first stands, marked, exit 3 until it is settled."""
    assert program.submit().returncode == 0
    batch = account.batches[0]
    account.bodies = [body(account.lines_of(batch)[:9]), body(account.lines_of(batch, SECOND))]
    assert program.sync().returncode == 3
    verdicts = "select verdict, count(*) as n from results group by verdict order by verdict"
    assert [row["n"] for row in program.rows(verdicts)] == [9, 3]
    assert program.rows("select n_conflict, is_balanced from audit") == [{"n_conflict": 9, "is_balanced": False}]
    assert program.sync().returncode == 3
    assert "--take first|second|none" in program.run("audit").stderr
    done = program.run("resolve", batch["id"], "--take", "second", "--yes")
    assert done.returncode == 0, done.stderr
    assert [row["n"] for row in program.rows(verdicts)] == [N]
    assert program.rows("select n_conflict, is_balanced from audit") == [{"n_conflict": 0, "is_balanced": True}]
    assert program.sync().returncode == 0


def test_an_answer_that_a_cut_file_of_an_expired_batch_lacks_is_waited_for(
    account: FakeOpenAI, program: Program
) -> None:
    """Four were answered and eight expired; two answers are cut off: the errors beside them do not make up for them."""
    program.settle_s = "600"
    account.is_held = True
    assert program.submit().returncode == 0
    batch = account.batches[0]
    lines = account.lines_of(batch)
    ended = {"output_file_id": f"file-out-{batch['id']}", "error_file_id": "file-err", "expired_at": int(time.time())}
    counts = {"total": N, "completed": 4, "failed": N - 4}
    batch |= {"status": "expired", "request_counts": counts} | ended
    errors = body([expired(line) for line in lines[4:]])
    account.bodies = [body(lines[:2]), errors] * 3
    assert "answer 10 of 12 requests so far" in program.sync().stderr
    assert program.rows("select attempt_state from batches") == [{"attempt_state": "ended"}]
    account.bodies = [body(lines[:4]), errors]
    assert program.sync().returncode == 0
    assert program.outcomes() == {"decided": 4, "expired": N - 4}


def test_an_answer_that_never_comes_is_a_batch_that_does_not_add_up(account: FakeOpenAI, program: Program) -> None:
    """The same file, again and again, until the settle time is over."""
    account.is_held = True
    assert program.submit().returncode == 0
    batch = account.batches[0]
    lines = account.lines_of(batch)
    ended = {"output_file_id": f"file-out-{batch['id']}", "error_file_id": "file-err", "expired_at": int(time.time())}
    batch |= {"status": "expired", "request_counts": {"total": N, "completed": 4, "failed": N - 4}} | ended
    account.bodies = [body(lines[:2]), body([expired(line) for line in lines[4:]])] * 4
    done = program.sync()
    assert "the provider counts 4 answers, its files hold 2" in done.stderr
    assert done.returncode == 3


def expired(line: bytes) -> bytes:
    """Return the line of a request that was not run any more."""
    error = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
    row = {"id": "b", "custom_id": json.loads(line)["custom_id"], "response": None, "error": error}
    return json.dumps(row).encode()


@pytest.mark.parametrize("take", some("second", "none", swept=["first"]))
def test_whichever_answer_is_taken_the_conflict_is_settled(take: str, account: FakeOpenAI, program: Program) -> None:
    """No later pass ends with exit 3, and with none of the two that request has no answer."""
    assert program.submit().returncode == 0
    batch = account.batches[0]
    whole = account.lines_of(batch)
    account.bodies = [body(whole[:9]), body([whole[0].replace(b"SAMPLE_1", b"SAMPLE_2"), *whole[1:]])]
    account.bodies += account.bodies[1:]
    assert program.sync().returncode == 3
    assert program.run("resolve", batch["id"], "--take", take, "--yes").returncode == 0
    assert program.sync().returncode == 0
    assert program.run("status").returncode == 0
    assert program.outcomes().get("decided") == (N if take != "none" else N - 1)


def test_refetch_heals_a_batch_that_ended_wrong(account: FakeOpenAI, program: Program) -> None:
    """Defect 2.1, the way out: given up as it is after garbage, then fetched again, every request is answered."""
    assert program.submit().returncode == 0
    account.bodies = [GARBAGE] * 20
    for _ in range(6):
        if program.sync().returncode == 3:
            break
    assert program.rows("select attempt_state from audit") == [{"attempt_state": "mismatch"}]
    account.bodies = []
    done = program.run("resolve", account.batches[0]["id"], "--refetch", "--yes")
    assert done.returncode == 0, done.stderr
    assert program.sync().returncode == 0
    assert program.outcomes() == {"decided": N}
    assert len(account.batches) == 1
