"""The fault language does to a simulated Anthropic what its help says, wherever that makes sense there."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from batchpond_sim.host.server import running
from batchpond_sim.world.world import Settings
from tests.rigs.anthropic import BATCHES, Messages, params, requests
from tests.rigs.simulator import api

ALL = [f"shard1-{i:04d}" for i in range(10)]


# -- on the wire -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "error", "created"),
    [
        ("status=529", 529, "overloaded_error", 0),
        ("status=500", 500, "api_error", 0),
        ("status_after=504", 504, "timeout_error", 1),
        ("status=413", 413, "request_too_large", 0),
        ("status=403", 403, "permission_error", 0),
        ("retry_after=7", 429, "rate_limit_error", 0),
        ("billing", 429, "rate_limit_error", 0),
        ("billing=402", 402, "billing_error", 0),
        ("billing=400", 400, "invalid_request_error", 0),
        ("enqueued", 429, "rate_limit_error", 0),
        ("html_after", 502, None, 1),
    ],
)
def test_creates_are_refused_in_the_words_of_the_api(
    tmp_path: Path, kind: str, status: int, error: str | None, created: int
) -> None:
    with api(tmp_path, f"batches.create@1:{kind}") as sim:
        answer = Messages(sim).call("POST", json={"requests": requests(1)})
        assert answer.status_code == status
        assert len(sim.world.ledger.batches) == created
        if error is not None:
            body = answer.json()
            assert (body["type"], body["error"]["type"]) == ("error", error)
            assert body["request_id"] == answer.headers["request-id"]
        if kind == "billing":
            assert body["error"]["details"] == {"error_code": "enforced_spend_limit_reached"}
            assert "retry-after" not in answer.headers


@pytest.mark.parametrize(
    ("kind", "error", "created"),
    [
        ("reset_before", anthropic.APIConnectionError, 0),
        ("reset_after", anthropic.APIConnectionError, 1),
        ("hang_after", anthropic.APITimeoutError, 1),
        ("status=529", anthropic.OverloadedError, 0),
        ("billing", anthropic.EnforcedSpendLimitReachedError, 0),
        ("billing=402", anthropic.PaymentRequiredError, 0),
    ],
)
def test_the_official_sdk_meets_them_on_real_sockets(kind: str, error: type[Exception], created: int) -> None:
    with (
        running(Settings(faults=(f"batches.create@1:{kind}",))) as sim,
        anthropic.Anthropic(
            api_key="sk-test", base_url=sim.base_url_of("anthropic"), max_retries=0, timeout=0.5
        ) as client,
    ):
        with pytest.raises(error):
            client.messages.batches.create(requests=requests(1))
        assert len(sim.world.ledger.batches) == created
        assert client.messages.batches.create(requests=requests(1)).processing_status == "in_progress"


def test_a_delayed_create_comes_to_be_after_its_connection_was_lost(tmp_path: Path) -> None:
    with api(tmp_path, "batches.create@1:delay_exec=30") as sim:
        messages = Messages(sim)
        with pytest.raises(httpx.ReadError):
            messages.create(requests(2))
        assert messages.call("GET").json()["data"] == []
        sim.clock.advance(30)
        (batch,) = messages.call("GET").json()["data"]
        assert batch["request_counts"]["processing"] == 2


def test_a_stale_list_hides_young_batches_that_can_be_got(tmp_path: Path) -> None:
    with api(tmp_path, "batches.create@1:stale_list=20") as sim:
        messages = Messages(sim)
        batch_id = messages.create(requests(1))
        assert messages.call("GET").json()["data"] == []
        assert messages.get(batch_id)["id"] == batch_id
        sim.clock.advance(20)
        assert len(messages.call("GET").json()["data"]) == 1


def test_valid_ids_are_404_now_and_then(tmp_path: Path) -> None:
    faults = ("notfound_after_create=2", "results_404=2")
    with api(tmp_path, *(f"batches.create@1:{fault}" for fault in faults), "batches.get@5:status=404") as sim:
        messages = Messages(sim)
        batch_id = messages.create(requests(2))
        sim.clock.advance(100)
        codes = [messages.call("GET", f"/{batch_id}").status_code for _ in range(6)]
        assert codes == [404, 404, 200, 200, 404, 200]
        codes = [messages.call("GET", f"/{batch_id}/results").status_code for _ in range(3)]
        assert codes == [404, 404, 200]


@pytest.mark.parametrize(
    ("kind", "n_seen", "status"),
    [("list_error_page=2", 2, 500), ("cursor_loop", 12, 0), ("has_more_lies", 2, 200), ("empty_page", 0, 200)],
)
def test_listings_go_wrong(tmp_path: Path, kind: str, n_seen: int, status: int) -> None:
    with api(tmp_path) as sim:
        messages = Messages(sim)
        for _ in range(5):
            messages.create(requests(1))
        sim.world.add_fault(f"batches.list:{kind}")
        ids: list[str] = []
        query: dict[str, Any] = {"limit": 2}
        last = 0
        for _ in range(6):
            answer = messages.call("GET", params=query)
            if answer.status_code != 200:
                last = answer.status_code
                break
            page = answer.json()
            ids += [batch["id"] for batch in page["data"]]
            if not page["has_more"] or not page["last_id"]:
                last = 200
                break
            query["after_id"] = page["last_id"]
        assert (len(ids), last) == (n_seen, status)


# -- on a batch --------------------------------------------------------------------------------


def _ended(tmp_path: Path, *kinds: str) -> dict[str, Any]:
    with api(tmp_path, *(f"batches.create@1:{kind}" for kind in kinds)) as sim:
        return Messages(sim).ended(requests(10))


def test_counts_move_or_stand_still_while_a_batch_runs(tmp_path: Path) -> None:
    for name, faults, n_seen in (("moving", (), 5), ("still", ("batches.create@1:counts_late",), 0)):
        with api(tmp_path / name, *faults) as sim:
            messages = Messages(sim)
            batch_id = messages.create(requests(10))
            sim.clock.advance(55)
            counts = messages.get(batch_id)["request_counts"]
            assert (counts["succeeded"], counts["processing"]) == (n_seen, 10 - n_seen)
            sim.clock.advance(55)
            assert messages.get(batch_id)["request_counts"]["succeeded"] == 10


def test_what_a_batch_shows_can_be_wrong(tmp_path: Path) -> None:
    whole = {"processing": 0, "succeeded": 10, "errored": 0, "canceled": 0, "expired": 0}
    assert _ended(tmp_path / "a")["request_counts"] == whole
    assert _ended(tmp_path / "b", "counts_null")["request_counts"] is None
    assert _ended(tmp_path / "c", "counts_wrong")["request_counts"] == whole | {"succeeded": 1}
    text = _ended(tmp_path / "d", "counts_text")["request_counts"]
    assert text == {name: str(n) for name, n in whole.items()}
    assert _ended(tmp_path / "e", "status_word=archiving")["processing_status"] == "archiving"
    skewed = _ended(tmp_path / "f", "clock_skew=-300")
    assert skewed["created_at"] == "2026-11-20T23:55:00.000000+00:00"


def test_a_batch_can_fall_back_or_stay_open(tmp_path: Path) -> None:
    with api(tmp_path / "a", "batches.get@2:regress") as sim:
        messages = Messages(sim)
        batch_id = messages.create(requests(1))
        sim.clock.advance(100)
        shown = [messages.get(batch_id) for _ in range(3)]
        assert [batch["processing_status"] for batch in shown] == ["ended", "in_progress", "ended"]
        assert [batch["results_url"] is None for batch in shown] == [False, True, False]
    for state in ("validating", "in_progress", "finalizing"):
        with api(tmp_path / state, f"batches.create@1:stuck={state}") as sim:
            messages = Messages(sim)
            batch_id = messages.create(requests(3))
            sim.clock.advance(500_000)
            assert messages.get(batch_id)["processing_status"] == "in_progress"
            messages.call("POST", f"/{batch_id}/cancel")
            sim.clock.advance(1)
            assert messages.get(batch_id)["processing_status"] == "ended"


def test_batches_end_with_rows_expired_failed_or_withheld(tmp_path: Path) -> None:
    batch = _ended(tmp_path / "a", "expire=0.4")
    assert (batch["request_counts"]["succeeded"], batch["request_counts"]["expired"]) == (4, 6)
    bare = _ended(tmp_path / "b", "expire_bare")
    assert (bare["request_counts"]["expired"], bare["results_url"]) == (10, None)
    withheld = _ended(tmp_path / "c", "empty_output")
    assert (withheld["request_counts"]["succeeded"], withheld["results_url"]) == (10, None)
    assert _ended(tmp_path / "d", "empty_output", "error_file_empty_string")["results_url"] == ""
    with api(tmp_path / "e", "batches.create@1:fail=api_error") as sim:
        messages = Messages(sim)
        batch = messages.ended(requests(10))
        assert (batch["processing_status"], batch["request_counts"]["errored"]) == ("ended", 10)
        errors = {row["result"]["error"]["error"]["type"] for row in messages.rows(batch["id"])}
        assert errors == {"api_error"}


def test_the_three_cancel_races(tmp_path: Path) -> None:
    for race in ("lost", "full", "conflict"):
        with api(tmp_path / race, f"batches.cancel@1:cancel_race={race}") as sim:
            messages = Messages(sim)
            batch_id = messages.create(requests(10))
            sim.clock.advance(50)
            assert messages.get(batch_id)["request_counts"]["succeeded"] > 0
            answer = messages.call("POST", f"/{batch_id}/cancel")
            sim.clock.advance(100)
            counts = messages.get(batch_id)["request_counts"]
            n_rows = len(messages.rows(batch_id))
            if race == "lost":
                assert (counts["succeeded"], counts["canceled"], n_rows) == (0, 10, 5)
            else:
                assert (counts["succeeded"], n_rows) == (10, 10)
                assert answer.status_code == (409 if race == "conflict" else 200)


# -- on a download and its rows ----------------------------------------------------------------


def _stream(tmp_path: Path, *faults: str) -> tuple[bytes, bytes | None]:
    """Return the whole result stream of ten requests and what a faulty first download gave."""
    with api(tmp_path, *faults) as sim:
        messages = Messages(sim)
        url = f"/{messages.ended(requests(10))['id']}/results"
        got: bytes | None = None
        with contextlib.suppress(httpx.TransportError):
            got = messages.call("GET", url).content
        return messages.call("GET", url).content, got


def test_downloads_are_cut_packed_or_changed(tmp_path: Path) -> None:
    whole, got = _stream(tmp_path / "a", "files.content@1:truncate=0.5")
    assert got is not None
    assert whole.startswith(got)
    assert 0 < got.count(b"\n") < 10
    assert _stream(tmp_path / "b", "files.content@1:reset_at=100")[1] is None
    whole, got = _stream(tmp_path / "c", "files.content@1:gzip=unmarked")
    assert got is not None
    assert gzip.decompress(got) == whole
    whole, got = _stream(tmp_path / "d", "files.content@1:changed")
    assert got is not None
    changed = [
        (json.loads(one), json.loads(two)) for one, two in zip(whole.splitlines(), got.splitlines(), strict=True)
    ]
    assert all(one["custom_id"] == two["custom_id"] and one != two for one, two in changed)


@pytest.mark.parametrize(("kind", "told"), [("content_type", None), ("content_type=text/html", "text/html")])
def test_results_come_with_any_content_type_or_none(tmp_path: Path, kind: str, told: str | None) -> None:
    with api(tmp_path, f"files.content@1:{kind}") as sim:
        messages = Messages(sim)
        answer = messages.call("GET", f"/{messages.ended(requests(1))['id']}/results")
        assert answer.headers.get("content-type") == told
        assert answer.content.count(b"\n") == 1


def _ids(data: bytes) -> list[Any]:
    return [json.loads(row)["custom_id"] for row in data.split(b"\n") if row.strip()]


def _types(data: bytes) -> list[str]:
    return [json.loads(row)["result"]["type"] for row in data.splitlines()]


def _errors(data: bytes) -> list[str]:
    results = [json.loads(row)["result"] for row in data.splitlines()]
    return sorted(result["error"]["error"]["type"] for result in results if result["type"] == "errored")


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        ("in_order", lambda data: _ids(data) == ALL),
        ("drop=3", lambda data: len(_ids(data)) == 7),
        ("duplicate=2", lambda data: len(data.splitlines()) == 12 and len(set(data.splitlines())) == 10),
        ("duplicate_differs=2", lambda data: len(set(data.splitlines())) == 12 and len(set(_ids(data))) == 10),
        ("malformed=2", lambda data: sum(not row.endswith(b"}") for row in data.splitlines()) == 2),
        ("unknown_id=2", lambda data: len(set(_ids(data)) - set(ALL)) == 2),
        ("missing_id", lambda data: _ids(data).count(None) == 1),
        ("duplicate_key", lambda data: data.count(b'{"custom_id":"another-id') == 1),
        ("both_files=2", lambda data: sorted(_types(data)) == ["expired"] * 2 + ["succeeded"] * 10),
        ("bom", lambda data: data.startswith(b"\xef\xbb\xbf{")),
        ("crlf", lambda data: data.count(b"\r\n") == 10),
        ("blank_lines=2", lambda data: data.count(b"\n\n") == 3),
        ("no_final_lf", lambda data: data.endswith(b"}")),
        ("u2028=2", lambda data: data.count("\u2028\u2029\u0085".encode()) == 2),
        ("lone_surrogate", lambda data: data.count(b'"text":"\\ud83d') == 1),
        ("nan", lambda data: data.count(b":NaN") == 1),
        ("no_usage=2", lambda data: data.count(b'"usage"') == 8),
        ("empty_text=2", lambda data: data.count(b'"content":[]') == 2),
        ("truncated_text=2", lambda data: data.count(b'"stop_reason":"max_tokens"') == 2),
        ("refusal=2", lambda data: data.count(b'"stop_details":{"type":"refusal"') == 2),
        ("error_rows=3", lambda data: _errors(data) == ["api_error", "invalid_request_error", "rate_limit_error"]),
        ("billing_rows=2", lambda data: _errors(data) == ["billing_error"] * 2),
        ("filtered_rows=2", lambda data: data.count(b"Output blocked by content filtering policy") == 2),
        ("status_in_output=2", lambda data: _errors(data) == ["api_error"] * 2),
    ],
)
def test_the_rows_of_the_result_stream_can_be_spoiled(tmp_path: Path, kind: str, has: Callable[[bytes], bool]) -> None:
    data = _stream(tmp_path, f"lines@1:{kind}")[0]
    assert has(data), data


def test_answers_can_stand_under_each_others_ids(tmp_path: Path) -> None:
    plain, swapped = (
        {row["custom_id"]: row["result"]["message"]["id"] for row in map(json.loads, data.splitlines())}
        for data in (_stream(tmp_path / "a")[0], _stream(tmp_path / "b", "lines@1:swapped_bodies")[0])
    )
    assert set(plain.values()) == set(swapped.values())
    assert all(plain[name] != swapped[name] for name in plain)


def test_a_body_that_is_too_large_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchpond_sim.anthropic.api.BODY_MAX_BYTES", 2000)
    with api(tmp_path) as sim:
        messages = Messages(sim)
        assert messages.call("POST", json={"requests": requests(50)}).json()["error"]["type"] == "request_too_large"
        packed = gzip.compress(json.dumps({"requests": requests(50)}).encode())
        assert len(packed) < 2000
        answer = messages.call("POST", content=packed, headers={"content-encoding": "gzip"})
        assert answer.status_code == 413
        assert list(sim.world.folder("anthropic", "blobs").iterdir()) == []
        small = gzip.compress(json.dumps({"requests": [{"custom_id": "a", "params": params()}]}).encode())
        for content, encoding, code in ((small, "gzip", 200), (small[:-9], "gzip", 400), (small, "br", 400)):
            answer = messages.call("POST", content=content, headers={"content-encoding": encoding})
            assert answer.status_code == code
            if code == 400:
                assert answer.json()["error"]["details"]["error_code"].startswith("request_body_encoding_")
        assert sim.http.get(BATCHES).json()["data"][0]["request_counts"]["processing"] == 1
