"""Every fault that makes sense for Gemini does there what its help says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.rigs.gemini import Gemini, gemini, payload

ENDS = {"fail=quota": "FAILED", "expire": "EXPIRED", "expire_bare": "EXPIRED", "empty_output": "SUCCEEDED"}


def _ended(sim: Gemini, n: int = 6) -> dict[str, Any]:
    return sim.finished(payload(n))


def _listed(sim: Gemini, query: str = "") -> list[str]:
    rows = sim.call("GET", f"/batches{query}").json().get("operations", [])
    return [row["name"] for row in rows]


# -- creation and life ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reset_after", "hang_after=1", "status_after=503", "html_after=200", "delay_exec=20"])
def test_a_create_without_an_answer_has_been_executed_once(tmp_path: Path, kind: str) -> None:
    with gemini(tmp_path, f"batches.create@1:{kind}") as sim:
        file = sim.upload(payload(1))
        try:
            assert "name" not in sim.post_batch({"fileName": file}).text
        except httpx.TransportError:
            sim.clock.advance(0)
        sim.clock.advance(30)
        (name,) = _listed(sim)
        assert sim.get(name)["metadata"]["displayName"] == "tok-1"
        assert len(sim.world.snapshot()["batches"]) == 1


@pytest.mark.parametrize(
    ("kind", "status", "word"),
    [
        ("status=500", 500, "INTERNAL"),
        ("status=503", 503, "UNAVAILABLE"),
        ("billing", 429, "RESOURCE_EXHAUSTED"),
        ("billing=403", 403, "PERMISSION_DENIED"),
        ("enqueued", 429, "RESOURCE_EXHAUSTED"),
        ("file_not_ready", 400, "FAILED_PRECONDITION"),
        ("retry_after=7", 429, "RESOURCE_EXHAUSTED"),
    ],
)
def test_a_refused_create_creates_nothing(tmp_path: Path, kind: str, status: int, word: str) -> None:
    with gemini(tmp_path, f"batches.create@1:{kind}") as sim:
        file = sim.upload(payload(1))
        answer = sim.post_batch({"fileName": file})
        assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["status"]) == (
            status, status, word,
        )  # fmt: skip
        assert _listed(sim) == []
        assert sim.post_batch({"fileName": file}).status_code == 200


@pytest.mark.parametrize(("kind", "state"), ENDS.items())
def test_batches_end_as_asked_without_output(tmp_path: Path, kind: str, state: str) -> None:
    with gemini(tmp_path, f"batches.create@1:{kind}") as sim:
        ended = _ended(sim)
        assert ended["metadata"]["state"] == f"BATCH_STATE_{state}"
        assert ended["done"] is True
        assert "output" not in ended["metadata"]
        assert "responsesFile" not in ended.get("response", {})
        assert ("error" in ended) == (state != "SUCCEEDED")
        assert "responsesFile" in _ended(sim)["response"]


@pytest.mark.parametrize(("word", "state"), [("pending", "PENDING"), ("validating", "PENDING"), ("running", "RUNNING")])
def test_a_stuck_batch_expires_after_48_hours(tmp_path: Path, word: str, state: str) -> None:
    with gemini(tmp_path, f"batches.create@1:stuck={word}") as sim:
        name = sim.create(payload(2))
        sim.clock.advance(30 * 3600)
        assert sim.state(name) == f"BATCH_STATE_{state}"
        sim.clock.advance(18 * 3600)
        assert sim.state(name) == "BATCH_STATE_EXPIRED"


@pytest.mark.parametrize(("race", "state"), [("lost", "CANCELLED"), ("full", "SUCCEEDED"), ("conflict", "SUCCEEDED")])
def test_a_cancel_can_come_too_late(tmp_path: Path, race: str, state: str) -> None:
    with gemini(tmp_path, f"batches.cancel@1:cancel_race={race}") as sim:
        name = sim.create(payload(4))
        sim.clock.advance(50)
        status = sim.call("POST", f"/{name}:cancel").status_code
        assert status == (409 if race == "conflict" else 200)
        sim.clock.advance(60)
        ended = sim.get(name)
        assert ended["metadata"]["state"] == f"BATCH_STATE_{state}"
        assert ("response" in ended) == (state == "SUCCEEDED")


def test_a_batch_and_its_result_can_be_missing_at_first(tmp_path: Path) -> None:
    with gemini(tmp_path, "batches.create@1:notfound_after_create=2", "batches.create@1:results_404=1") as sim:
        name = sim.create(payload(1))
        statuses = [sim.call("GET", f"/{name}").status_code for _ in range(3)]
        assert statuses == [404, 404, 200]
        sim.clock.advance(100)
        path = f"/download/v1beta/{sim.get(name)['response']['responsesFile']}:download?alt=media"
        assert [sim.http.get(path).status_code for _ in range(2)] == [404, 200]


# -- how objects look ------------------------------------------------------------------------------


def test_states_come_in_other_words(tmp_path: Path) -> None:
    with gemini(tmp_path, "batches.get@1:job_state", "batches.get@2:status_word=archiving", "batches.get@3:regress",
                "batches.get@4:status_word=STATE_OF_GRACE_STATE_X") as sim:  # fmt: skip
        name = sim.create(payload(1))
        sim.clock.advance(100)
        assert sim.state(name) == "JOB_STATE_SUCCEEDED"
        assert sim.state(name) == "BATCH_STATE_ARCHIVING"
        regressed = sim.get(name)
        assert (regressed["metadata"]["state"], "done" in regressed) == ("BATCH_STATE_RUNNING", False)
        assert sim.state(name) == "STATE_OF_GRACE_STATE_X"
        assert sim.state(name) == "BATCH_STATE_SUCCEEDED"


def test_counts_come_in_other_ways(tmp_path: Path) -> None:
    kinds = ("counts_null", "counts_text", "counts_wrong", "counts_late")
    with gemini(tmp_path, *(f"batches.get@{i + 1}:{kind}" for i, kind in enumerate(kinds))) as sim:
        name = sim.create(payload(4))
        sim.clock.advance(70)
        seen = [sim.get(name)["metadata"].get("batchStats") for _ in kinds]
        assert seen[0] is None
        assert seen[1] == {"requestCount": 4, "successfulRequestCount": 3, "pendingRequestCount": 1}
        assert seen[2] == {"requestCount": "4", "successfulRequestCount": "1", "pendingRequestCount": "3"}
        assert seen[3] == {"requestCount": "4", "pendingRequestCount": "4"}


@pytest.mark.parametrize(("word", "places"), [("response", (True, False)), ("metadata", (False, True))])
def test_the_output_can_stand_in_one_place_only(tmp_path: Path, word: str, places: tuple[bool, bool]) -> None:
    with gemini(tmp_path, f"batches.get@*:output_at={word}") as sim:
        ended = _ended(sim)
        assert ("responsesFile" in ended["response"], "output" in ended["metadata"]) == places


def test_names_and_times_can_be_hidden_empty_or_shifted(tmp_path: Path) -> None:
    with gemini(tmp_path, "batches.get@1:no_input_config", "batches.get@2:error_file_empty_string",
                "batches.create@2:clock_skew=60") as sim:  # fmt: skip
        name = sim.create(payload(1))
        assert "inputConfig" not in sim.get(name)["metadata"]
        assert sim.get(name)["metadata"]["output"] == {"responsesFile": ""}
        assert sim.get(sim.create(payload(1)))["metadata"]["createTime"] == "2026-11-21T00:01:00Z"


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("in_order", [f"attempt-{i:04d}" for i in range(4)]),
        ("reordered", [f"attempt-{i:04d}" for i in (3, 2, 1, 0)]),
        ("no_metadata", [None] * 4),
        ("reordered+no_metadata", [None] * 4),
    ],
)
def test_a_file_batch_can_answer_inline(tmp_path: Path, words: str, keys: list[str | None]) -> None:
    with gemini(tmp_path, f"batches.create@1:inline_results={words}") as sim:
        ended = _ended(sim, 4)
        answers = ended["response"]["inlinedResponses"]["inlinedResponses"]
        assert ended["metadata"]["output"]["inlinedResponses"]["inlinedResponses"] == answers
        assert [row.get("metadata", {}).get("key") for row in answers] == keys
        assert all(row["response"]["candidates"] for row in answers)
        assert "responsesFile" not in json.dumps(ended)
        (listed,) = sim.call("GET", "/batches").json()["operations"]
        assert "inlinedResponses" not in json.dumps(listed)
        assert listed["done"] is True


# -- listings --------------------------------------------------------------------------------------


def test_listings_lag_loop_lie_and_break(tmp_path: Path) -> None:
    specs = [
        "batches.create@1:stale_list=30", "batches.list@2:cursor_loop", "batches.list@3:has_more_lies=false",
        "batches.list@4:has_more_lies=true", "batches.list@5:empty_page", "batches.list@6:list_error_page=1",
    ]  # fmt: skip
    with gemini(tmp_path, *specs) as sim:
        sim.create(payload(1))
        assert _listed(sim) == []
        sim.clock.advance(30)
        sim.create(payload(1))
        looping = sim.call("GET", "/batches?pageSize=1&pageToken=anything").json()
        assert looping["nextPageToken"]
        assert "nextPageToken" not in sim.call("GET", "/batches?pageSize=1").json()
        assert "nextPageToken" in sim.call("GET", "/batches").json()
        empty = sim.call("GET", "/batches").json()
        assert list(empty) == ["nextPageToken"]
        assert sim.call("GET", "/batches").status_code == 500
        both = sim.call("GET", "/batches", params={"pageToken": empty["nextPageToken"]}).json()
        assert len(both["operations"]) == 2


# -- downloads and rows ------------------------------------------------------------------------------


def test_downloads_break_as_everywhere(tmp_path: Path) -> None:
    with gemini(
        tmp_path, "files.content@2:truncate=0.5", "files.content@3:changed", "files.content@4:status=503"
    ) as sim:
        ended = _ended(sim)
        whole = sim.content(ended)
        half = sim.content(ended)
        assert whole.startswith(half)
        assert half.endswith(b"\n")
        assert 0 < len(half) < len(whole)
        changed = sim.content(ended)
        assert changed != whole
        assert json.loads(changed.split(b"\n")[0])["key"] == "attempt-0000"
        name = ended["response"]["responsesFile"]
        assert sim.http.get(f"/download/v1beta/{name}:download").status_code == 503


def _ids(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row.get("key") for row in rows]


def test_rows_are_lost_doubled_strange_or_in_another_order(tmp_path: Path) -> None:
    keys = [f"attempt-{i:04d}" for i in range(6)]
    specs = ["lines@1:drop=2", "lines@2:duplicate=1", "lines@3:unknown_id=1", "lines@4:missing_id=1",
             "lines@5:reorder", "lines@6:swapped_bodies", "lines@7:both_files=1"]  # fmt: skip
    with gemini(tmp_path, *specs) as sim:
        assert _ids(sim.rows(_ended(sim))) == keys[2:]
        assert _ids(sim.rows(_ended(sim))) == [*keys, keys[0]]
        assert len(set(_ids(sim.rows(_ended(sim)))) - set(keys)) == 1
        assert _ids(sim.rows(_ended(sim))) == [None, *keys[1:]]
        assert _ids(sim.rows(_ended(sim))) == keys[::-1]
        assert _ids(sim.rows(_ended(sim))) == [keys[i] for i in (1, 0, 3, 2, 5, 4)]
        twice = sim.rows(_ended(sim))
        assert _ids(twice) == [keys[0], keys[0], *keys[1:]]
        assert "error" in twice[1]


def test_rows_are_spoiled(tmp_path: Path) -> None:
    specs = ["lines@1:malformed=1", "lines@1:no_usage=1", "lines@1:lone_surrogate=1", "lines@1:u2028=1"]
    with gemini(tmp_path, *specs) as sim:
        lines = sim.content(_ended(sim)).split(b"\n")
        with pytest.raises(json.JSONDecodeError):
            json.loads(lines[0])
        assert b"\\ud83d" in lines[2]
        assert "\u2028".encode() in lines[1]
        assert "usageMetadata" not in json.loads(lines[3])["response"]


def test_requests_end_in_errors_blocks_and_other_finish_reasons(tmp_path: Path) -> None:
    specs = ["error_rows=3", "billing_rows=1", "blocked=PROHIBITED_CONTENT", "finish=SAFETY", "finish=CONTINUATION",
             "refusal=1", "empty_text=1", "truncated_text=1"]  # fmt: skip
    with gemini(tmp_path, *(f"lines@1:{spec}" for spec in specs), "lines@2:error_rows=1", "lines@2:status_rows") as sim:
        ended = sim.finished(payload(12))
        rows = sim.rows(ended)
        assert [row["error"]["code"] for row in rows[:4]] == [429, 500, 400, 429]
        assert "credits" in rows[3]["error"]["message"]
        stats = {"requestCount": "12", "successfulRequestCount": "8", "failedRequestCount": "4"}
        assert ended["metadata"]["batchStats"] == stats
        blocked, safety, continued, refusal, empty, cut, *_ = (row["response"] for row in rows[4:])
        assert blocked["promptFeedback"] == {"blockReason": "PROHIBITED_CONTENT"}
        assert "candidates" not in blocked
        assert "candidatesTokenCount" not in blocked["usageMetadata"]
        assert safety["candidates"][0]["finishReason"] == "SAFETY"
        assert "content" not in safety["candidates"][0]
        assert continued["candidates"][0]["finishReason"] == "CONTINUATION"
        assert continued["candidates"][0]["continuationToken"]
        assert refusal["candidates"][0]["finishReason"] == "STOP"
        assert empty["candidates"][0]["content"]["parts"] == [{"text": ""}]
        assert cut["candidates"][0]["finishReason"] == "MAX_TOKENS"
        status_row = sim.rows(_ended(sim))[0]
        assert status_row["status"] == {"code": 8, "message": "Resource has been exhausted (e.g. check quota)."}
