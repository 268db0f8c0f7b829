"""What was bought twice stays visible, with its money and its answers, until somebody says that it is known."""

from __future__ import annotations

import json
import time

import pytest

from tests.rigs.fake_openai import Answer, FakeOpenAI
from tests.rigs.program import STUDY, N, Program


def test_a_second_batch_is_a_state_until_it_is_known(account: FakeOpenAI, program: Program) -> None:
    """Defect 3.1: a known second batch is in every view, counted, collected, and exit 3 at each pass until settled."""
    account.is_held = True
    assert program.submit().returncode == 0
    (first,) = account.batches
    second = account.create({name: first[name] for name in ("input_file_id", "endpoint", "metadata")})
    assert program.sync().returncode == 3
    for batch in (first, second):
        account.finish(batch)
    told = program.sync()
    assert told.returncode == 3
    assert "both have ended" in told.stderr
    again = program.sync()
    assert again.returncode == 3
    assert second["id"] in again.stderr
    batches = program.rows("select batch_id, attempt_state, needs_attention from batches order by batch_id")
    assert batches == [
        {"batch_id": first["id"], "attempt_state": "verified", "needs_attention": False},
        {"batch_id": second["id"], "attempt_state": "verified", "needs_attention": True},
    ]
    assert program.rows("select is_balanced from audit") == [{"is_balanced": True}] * 2
    (cost,) = program.rows("select n_batches, n_responses from costs")
    assert cost == {"n_batches": 2, "n_responses": 2 * N}
    assert program.outcomes() == {"decided": N}
    assert program.run("status", STUDY).returncode == 3
    assert "a second batch" in program.run("doctor").stdout + program.run("doctor").stderr
    assert program.run("resolve", second["id"], "--known").returncode == 0
    assert program.sync().returncode == 0


def test_the_advice_names_the_later_batch_that_still_runs(account: FakeOpenAI, program: Program) -> None:
    """Defect 3.1: what `cancel` is advised for is the later batch, and one that has not ended."""
    account.is_held = True
    assert program.submit().returncode == 0
    (first,) = account.batches
    second = account.create({name: first[name] for name in ("input_file_id", "endpoint", "metadata")})
    second["created_at"] += 10
    assert f"`batchpond cancel {second['id']}`" in program.sync().stderr
    account.finish(second)
    program.sync()
    assert f"`batchpond cancel {first['id']}`" in program.sync().stderr
    assert program.run("cancel", first["id"], "--yes").returncode == 0
    assert account.count("POST", f"/batches/{first['id']}/cancel") == 1


def test_a_copy_that_was_quicker_is_seen_right_before_the_create(
    account: FakeOpenAI, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 3.3: after an upload of 5 s what the account has is looked at anew, which shows the other's batch.

    A copy that sends is told, so that somebody stops it.
    """
    answered = account.answer

    def answer(method: str, path: str, body: bytes, kind: str) -> Answer:
        result = answered(method, path, body, kind)
        if (method, path) == ("POST", "/v1/files"):
            made = json.loads(result.body)
            time.sleep(5.2)
            token = {"batchpond": made["filename"].removesuffix(".jsonl"), "study": STUDY}
            account.create({"input_file_id": made["id"], "endpoint": "/v1/chat/completions", "metadata": token})
        return result

    monkeypatch.setattr(account, "answer", answer)
    done = program.submit()
    assert done.returncode == 3, done.stderr
    assert "a copy of this lake sent it" in done.stderr
    assert (account.count("POST", "/batches"), account.count("GET", "/batches"), len(account.batches)) == (0, 2, 1)
    assert program.sync().returncode == 0
    assert program.outcomes() == {"decided": N}
