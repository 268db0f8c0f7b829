"""xAI's Batch API on the wire: names for tokens, counters for states, pages for results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchpond.errors import ProviderError
from batchpond.model import EPOCH, BatchState, Created, FileRole
from batchpond.providers import registry
from batchpond.run.find import list_since
from tests.rigs.batch_wires import TOKEN, XAI, xai_batch, xai_counts, xai_no

CUT = b'{"results":[{"batch_requ'


def result(name: str, **more: Any) -> dict[str, Any]:
    return {"batch_request_id": name, "batch_result": {"error": "no"}} | more


def page(token: str | None, *names: str) -> httpx.Response:
    return XAI.ok({"results": [result(name) for name in names], "pagination_token": token})


def asked(script: Any) -> list[tuple[str, dict[str, str]]]:
    return [(request.url.path, dict(request.url.params)) for request in script.requests]


def test_one_post_names_the_batch_by_its_token() -> None:
    """With the file, so that nothing can be added later."""
    script = XAI.script(XAI.ok(xai_batch()))
    answer = script.wire.create(XAI.spec(Path("unused")))
    assert isinstance(answer, Created)
    assert (answer.batch.batch_id, answer.batch.token, answer.scope) == ("batch_1", TOKEN, "xai/api.x.ai")
    (request,) = script.requests
    assert (request.url.path, json.loads(request.content)) == (
        "/v1/batches", {"name": TOKEN, "input_file_id": "file-1"},
    )  # fmt: skip


CANCELLED = {"cancel_time": "2026-11-21"}


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, BatchState.QUEUED),
        ({"state": None}, BatchState.QUEUED),
        ({"state": xai_counts(5, pending=5)}, BatchState.RUNNING),
        ({"state": xai_counts(5, pending=1, success=4)}, BatchState.RUNNING),
        ({"state": xai_counts(5, success=4)}, BatchState.RUNNING),
        ({"state": xai_counts(5, success=4, error=1)}, BatchState.COMPLETED),
        ({"state": {name: str(n) for name, n in xai_counts(5, success=5).items()}}, BatchState.COMPLETED),
        ({"state": {"num_requests": 5, "num_success": 5}}, BatchState.COMPLETED),
        (CANCELLED, BatchState.CANCELLING),
        (CANCELLED | {"state": xai_counts(5, pending=2, success=3)}, BatchState.CANCELLING),
        (CANCELLED | {"state": xai_counts(5, success=3, cancelled=2)}, BatchState.CANCELLED),
        (CANCELLED | {"state": xai_counts(5, success=5)}, BatchState.COMPLETED),
        ({"cancel_by_xai_message": "JSONL file validation failed: line 2"}, BatchState.FAILED),
    ],
)
def test_counters_become_states(more: dict[str, Any], state: BatchState) -> None:
    """There is no status; what is left out is zero, and sums must be whole before a batch counts as done."""
    got = XAI.script(XAI.ok(xai_batch(**more))).wire.get("batch_1")
    assert got is not None
    assert (got.state, got.provider_status) == (state, str(state))


def test_a_batch_that_waits_past_its_last_day_expired_with_what_it_has() -> None:
    """A date without a time means any moment of that day."""
    for day, state in (("2026-11-19", BatchState.EXPIRED), ("2999-12-21", BatchState.RUNNING)):
        script = XAI.script(XAI.ok(xai_batch(expire_time=day, state=xai_counts(5, pending=1, success=4))))
        got = script.wire.get("batch_1")
        assert got is not None
        assert got.state is state
        assert script.wire.result_files(got) == (((FileRole.OUTPUT, "batch_1"),) if state.is_terminal else ())


def test_a_clock_that_is_ahead_lets_no_batch_expire() -> None:
    """The server dates its answers: a batch that still runs by that is not given up, nor its requests asked again."""
    running = XAI.ok(xai_batch(expire_time="2026-11-19", state=xai_counts(5, pending=1, success=4)))
    running.headers["Date"] = "Thu, 19 Nov 2026 12:00:00 GMT"
    got = XAI.script(running).wire.get("batch_1")
    assert got is not None
    assert got.state is BatchState.RUNNING


def test_a_batch_that_xai_gives_up_says_why_and_has_no_results() -> None:
    script = XAI.script(XAI.ok(xai_batch(cancel_by_xai_message="line 2: invalid JSON")))
    got = script.wire.get("batch_1")
    assert got is not None
    assert [error.message for error in got.errors] == ["line 2: invalid JSON"]
    assert script.wire.result_files(got) == ()


def test_a_listing_goes_on_by_tokens_and_asks_for_ours_that_do_not_say_how_they_stand() -> None:
    """Counters are not always beside a listed batch; those of others are left as they are."""
    first = {"batches": [xai_batch(state=None), xai_batch(batch_id="theirs", name="x", state=None)]}
    script = XAI.script(
        XAI.ok(first | {"pagination_token": "t/1"}),
        XAI.ok(xai_batch(state=xai_counts(1, success=1))),
        XAI.ok({"batches": [xai_batch(batch_id="b-2")], "pagination_token": ""}),
    )
    listing = list_since(script.wire, EPOCH)
    assert listing.is_complete
    assert [(batch.batch_id, batch.state) for batch in listing.batches] == [
        ("batch_1", BatchState.COMPLETED), ("theirs", BatchState.QUEUED), ("b-2", BatchState.QUEUED),
    ]  # fmt: skip
    assert asked(script) == [
        ("/v1/batches", {"limit": "100"}), ("/v1/batches/batch_1", {}),
        ("/v1/batches", {"limit": "100", "pagination_token": "t/1"}),
    ]  # fmt: skip


def test_results_are_written_page_by_page_a_result_a_line(tmp_path: Path) -> None:
    """The same results are the same bytes, whatever the order of their members."""
    script = XAI.script(page("t/1", "a", "b"), page(None, "c"))
    got = script.wire.download("batch_1", tmp_path / "out")
    assert got is not None
    data = (tmp_path / "out").read_bytes()
    assert [json.loads(line) for line in data.splitlines()] == [result(name) for name in "abc"]
    assert got.size_bytes == len(data)
    assert data.startswith(b'{"batch_request_id":"a","batch_result"')
    path = "/v1/batches/batch_1/results"
    assert asked(script) == [(path, {"limit": "1000"}), (path, {"limit": "1000", "pagination_token": "t/1"})]
    assert XAI.script(page("t", "a")).wire.peek("batch_1", 30) == data[:30]


@pytest.mark.parametrize(
    "last",
    [
        (page("t", "b"),),
        (XAI.ok({"results": None}),),
        (XAI.ok({"results": [], "pagination_token": 3}),),
        (XAI.ok({"error": "x"}),),
        (XAI.ok([]),) * 4,
        (httpx.Response(200, content=CUT),) * 4,
        (xai_no(404),),
    ],
)
def test_results_that_do_not_go_on_leave_nothing_behind(tmp_path: Path, last: tuple[httpx.Response, ...]) -> None:
    """A page that is none, or the one before: part of the results must not look like all of them."""
    script = XAI.script(page("t", "a"), *last)
    with pytest.raises(ProviderError):
        script.wire.download("batch_1", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(script.requests) == 1 + len(last)


def test_a_page_that_is_cut_off_is_asked_for_with_fewer_results(tmp_path: Path) -> None:
    """Long answers must not stay unread because a thousand of them are too large, or too slow, for one call."""
    cut = httpx.Response(200, content=CUT)
    script = XAI.script(cut, cut, page("t/1", "a"), cut, page(None, "b"))
    assert script.wire.download("batch_1", tmp_path / "out") is not None
    lines = (tmp_path / "out").read_bytes().splitlines()
    assert [json.loads(line)["batch_request_id"] for line in lines] == ["a", "b"]
    assert [params["limit"] for _, params in asked(script)] == ["1000", "100", "10", "1000", "100"]
    assert [params.get("pagination_token") for _, params in asked(script)] == [None] * 3 + ["t/1"] * 2
    script = XAI.script(cut, page(None, "a"))
    assert script.wire.peek("batch_1", 20) == lines[0][:20]
    assert [params["limit"] for _, params in asked(script)] == ["20", "2"]


def test_odd_text_in_a_page_loses_no_row(tmp_path: Path) -> None:
    """Half a surrogate pair and NaN are no JSON, and stand in one row of many."""
    body = b'{"results":[{"batch_request_id":"a","batch_result":{"error":"\\ud83d"},"x":NaN}],"pagination_token":null}'
    script = XAI.script(httpx.Response(200, content=body))
    assert script.wire.download("batch_1", tmp_path / "out") is not None
    row = registry.module("xai").read_line((tmp_path / "out").read_bytes())
    assert (row.custom_id, row.error_message) == ("a", "\ufffd")


def test_a_cancel_is_a_verb_after_a_colon() -> None:
    script = XAI.script(XAI.ok(xai_batch(**CANCELLED)))
    script.wire.cancel("batch_1")
    assert asked(script) == [("/v1/batches/batch_1:cancel", {})]


def test_files_are_listed_by_tokens_too() -> None:
    """A size under either of its names."""
    row = {"id": "file_1", "filename": "t.jsonl", "created_at": 1795200000}
    script = XAI.script(
        XAI.ok({"data": [row | {"bytes": 8}], "pagination_token": "t"}), XAI.ok({"data": [row | {"size": 9}]})
    )
    assert [file.size_bytes for file in script.wire.find_uploads("t.jsonl", EPOCH)] == [8, 9]
