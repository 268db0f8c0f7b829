"""A create that was refused is looked for before it is sent again, and what carries our token is not all ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rigs.fake_openai import Answer, FakeOpenAI, error, page
from tests.rigs.program import N, Program
from tests.rigs.swept import some


@pytest.mark.parametrize("refusal", [page(413), error(400, "invalid_request")], ids=["413 page", "400"])
def test_what_was_refused_and_made_all_the_same_is_found(
    account: FakeOpenAI, program: Program, refusal: Answer
) -> None:
    """Defect 3.2: the batch was made, the answer said no: the next submit finds it and sends nothing."""
    account.create_answers = [refusal]
    assert f"0 batches created, 1 refused; {N} requests not sent yet" in program.submit().stderr
    assert len(account.batches) == 1
    program.submit()
    program.sync()
    assert len(account.batches) == 1
    assert program.outcomes() == {"decided": N}


def test_what_was_limited_and_made_all_the_same_is_found(account: FakeOpenAI, program: Program) -> None:
    """Defect 3.2, 429: the batch was made, the answer asked to come again: who comes again finds it."""
    account.create_answers = [error(429, "rate_limit_exceeded", Retry_After="1")]
    program.submit()
    assert len(account.batches) == 1
    program.wait(35)  # no answer shortens the back-off
    program.sync()
    program.sync()
    assert len(account.batches) == 1
    assert program.outcomes() == {"decided": N}


@pytest.mark.parametrize("is_held", [False, True], ids=["ended", "under way"])
@pytest.mark.parametrize(
    "refusal", some(page(413), swept=[error(400, "invalid_request"), error(429, "rate_limit_exceeded")]), ids=str
)
def test_what_was_refused_and_made_is_found_before_a_changed_study_gives_it_up(
    account: FakeOpenAI, program: Program, refusal: Answer, is_held: bool
) -> None:
    """Defect 3.2, planned anew: the batch that was made counts, and only what the change adds is asked."""
    account.is_held = is_held
    account.create_answers = [refusal]
    program.submit()
    program.prepare(n_items=5)
    assert program.submit().returncode == 0
    assert [batch["request_counts"]["total"] for batch in account.batches] == [N, 8]
    for batch in account.batches:
        account.finish(batch)
    assert program.sync().returncode == 0
    assert program.outcomes() == {"decided": N + 8}
    assert [row["n_requests"] for row in program.rows("select n_requests from batches order by 1")] == [8, N]


def test_nothing_refused_is_given_up_before_it_was_looked_for(account: FakeOpenAI, tmp_path: Path) -> None:
    """Defect 3.2, planned anew: until the settle time is over, or where no listing is to be had, all of it waits."""
    program = Program(tmp_path, account.url, settle_s="600")
    program.prepare()
    account.create_answers = [error(429, "rate_limit_exceeded")]
    program.submit()
    program.prepare(max_requests=6)
    assert "asked for again after" in program.submit().stderr
    assert "1 batch pending" in program.sync().stderr
    program.settle_s, account.list_answers = "0", [error(500)] * 20
    program.sync()
    assert len(account.batches) == 1
    account.list_answers = []
    program.sync()
    assert program.sync().returncode == 0
    assert (len(account.batches), program.outcomes()) == (1, {"decided": N})


def test_what_was_refused_and_made_is_no_second_batch_when_a_listing_shows_it_first(
    account: FakeOpenAI, tmp_path: Path
) -> None:
    """A pass that polls another batch meets it before its settle time is over: it is the attempt's only one."""
    program = Program(tmp_path, account.url, settle_s="600")
    program.prepare(max_requests=6)
    account.is_held = True
    account.create_answers = [None, error(429, "rate_limit_exceeded")]
    program.submit()
    assert len(account.batches) == 2
    done = program.sync()
    assert (done.returncode, "second" in done.stderr) == (0, False)
    for batch in account.batches:
        account.finish(batch)
    assert program.sync().returncode == 0
    assert (len(account.batches), program.outcomes()) == (2, {"decided": N})


@pytest.mark.parametrize("is_held", [False, True], ids=["ended", "under way"])
def test_a_foreign_batch_with_our_token_is_not_ours(is_held: bool, account: FakeOpenAI, program: Program) -> None:
    """Defect 3.5: after a lost answer, an earlier batch with our token and another input file is left alone.

    Whether ours has ended or is polled on: taken for a second batch of ours, it had the advice to cancel our own.
    """
    account.is_held = is_held

    def make_foreign(asked: dict[str, Any]) -> None:
        other = account.upload("theirs.jsonl", account.files[asked["input_file_id"]][1].replace(b"sample", b"simple!"))
        foreign = account.create({**asked, "input_file_id": other})
        foreign["created_at"] -= 60

    account.on_create = make_foreign
    account.create_answers = [Answer(None)]
    program.submit()
    program.sync()
    foreign, own = account.batches
    assert foreign["metadata"] == own["metadata"]
    assert [row["batch_id"] for row in program.rows("select batch_id from batches")] == [own["id"]]
    told = program.sync().stderr
    assert "cancel" not in told
    if is_held:
        assert f"batch {foreign['id']} carries the token of attempt" in told
    else:
        assert program.outcomes() == {"decided": N}
    assert [row["batch_id"] for row in program.rows("select batch_id from batches")] == [own["id"]]


def test_creates_without_a_clear_answer_are_bounded(account: FakeOpenAI, program: Program) -> None:
    """Defect 3.4: a create that always fails unclearly is not tried for ever."""
    account.refusals = [error(500)] * 100
    program.submit()
    for _ in range(8):
        program.sync()
    assert account.count("POST", "/batches") <= 3


def test_looks_cost_one_listing_and_little_more(account: FakeOpenAI, tmp_path: Path) -> None:
    """At most one listing per create, and 1 + creates/20 where nothing was refused."""
    program = Program(tmp_path / "many", account.url)
    program.folder.mkdir()
    program.prepare(n_items=7, max_requests=2)
    assert program.submit().returncode == 0
    n_creates = account.count("POST", "/batches")
    assert n_creates == 21
    assert account.count("GET", "/batches") <= 1 + n_creates // 20


def test_a_server_that_lists_no_files_takes_them_all_the_same(
    account: FakeOpenAI, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect D2 of wires: a refused listing of files is no reason never to send; each batch is known by its token."""
    answered = account.answer

    def answer(method: str, path: str, body: bytes, kind: str) -> Answer:
        if method == "GET" and path.startswith("/v1/files?"):
            return error(405)
        return answered(method, path, body, kind)

    monkeypatch.setattr(account, "answer", answer)
    assert program.submit().returncode == 0
    assert program.sync().returncode == 0
    assert (len(account.batches), program.outcomes()) == (1, {"decided": N})
