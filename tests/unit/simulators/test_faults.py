"""Every fault does what its one line of help says, and nothing else."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond_sim import SimulatorError
from batchpond_sim.world.faults import KINDS, Op, describe_faults, parse_fault
from tests.rigs.simulator import FIRST, SECOND, Api, api, line, payload, prompt

# -- the language ------------------------------------------------------------------------------


def test_a_fault_text_is_parsed_into_operation_calls_kind_and_argument() -> None:
    fault = parse_fault("files.content@2-3:status=503")
    assert (fault.op, fault.first, fault.last, fault.kind, fault.value) == (Op.FILES_CONTENT, 2, 3, "status", 503)
    assert [fault.hits(Op.FILES_CONTENT, n, 99) for n in (1, 2, 3, 4)] == [False, True, True, False]
    assert parse_fault("batches.list:stale_list=2.5").last is None
    assert parse_fault("batches.get@3-:status").hits(Op.BATCHES_GET, 1000, 1)
    assert parse_fault("*@2:redirect=http://evil.test/a:b=c").value == "http://evil.test/a:b=c"
    assert parse_fault("*@2:reset_before").hits(Op.FILES_GET, 1, 2)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("batches.create@1", "cannot be read"),
        ("batches.crate@1:reset_after", "did you mean 'batches.create'"),
        ("batches.create@1:reset_afer", "did you mean 'reset_after'"),
        ("batches.create@0:reset_after", "counted from 1"),
        ("batches.create@3-2:reset_after", "counted from 1"),
        ("files.get:drop=1", "cannot be aimed at files.get"),
        ("lines@1:drop=-1", "is not a count"),
        ("files.content:truncate=2", "is not a fraction"),
        ("batches.create:delay_exec", "needs an argument"),
        ("batches.create:delay_exec=nan", "is not a seconds"),
        ("batches.create:reset_after=3", "takes no argument"),
    ],
)
def test_a_bad_fault_text_says_what_is_wrong(spec: str, says: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        parse_fault(spec)
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert spec in caught.value.message


@given(st.text(max_size=40))
def test_any_text_is_a_fault_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(SimulatorError):
        assert parse_fault(text).kind in KINDS


def test_the_help_lists_every_kind() -> None:
    assert [row[0] for row in describe_faults()] == list(KINDS)
    assert all(row[3] for row in describe_faults())


# -- on the wire -------------------------------------------------------------------------------


def _batches(sim: Api) -> int:
    return len(sim.world.ledger.batches)


@pytest.mark.parametrize(
    ("kind", "error", "created"),
    [
        ("reset_before", httpx.ReadError, 0),
        ("refuse", httpx.ConnectError, 0),
        ("hang_before", httpx.ReadTimeout, 0),
        ("hang_before=5", httpx.ReadError, 0),
        ("reset_after", httpx.ReadError, 1),
        ("hang_after", httpx.ReadTimeout, 1),
        ("hang_after=5", httpx.ReadError, 1),
    ],
)
def test_broken_connections_execute_or_not(tmp_path: Path, kind: str, error: type[Exception], created: int) -> None:
    with api(tmp_path, f"batches.create@1:{kind}") as sim:
        file_id = sim.upload(payload(1))
        with pytest.raises(error):
            sim.post_batch(file_id)
        assert _batches(sim) == created
        assert sim.post_batch(file_id).status_code == 200
        assert sim.world.ledger.calls["openai.batches.create"] == 2


@pytest.mark.parametrize(
    ("kind", "status", "created", "says"),
    [
        ("status=503", 503, 0, "overloaded"),
        ("status=404", 404, 0, "not found"),
        ("status=401", 401, 0, "invalid_api_key"),
        ("status", 500, 0, "server_error"),
        ("status_after=500", 500, 1, "server_error"),
        ("html", 502, 0, "<html>"),
        ("html=200", 200, 0, "<html>"),
        ("html_after=502", 502, 1, "<html>"),
        ("billing", 429, 0, "insufficient_quota"),
        ("file_not_ready", 400, 0, "No such File object"),
        ("retry_after=Wed, 21 Oct 2026 07:28:00 GMT", 429, 0, "rate_limit_exceeded"),
    ],
)
def test_wrong_answers_execute_or_not(tmp_path: Path, kind: str, status: int, created: int, says: str) -> None:
    with api(tmp_path, f"batches.create@1:{kind}") as sim:
        answer = sim.post_batch(sim.upload(payload(1)))
        assert answer.status_code == status
        assert says in answer.text
        assert _batches(sim) == created
        if kind.startswith("retry_after"):
            assert answer.headers["retry-after"] == "Wed, 21 Oct 2026 07:28:00 GMT"


def test_a_redirect_names_another_host(tmp_path: Path) -> None:
    with api(tmp_path, "*@1:redirect=http://elsewhere.test/x") as sim:
        answer = sim.call("GET", "/models")
        assert (answer.status_code, answer.headers["location"]) == (307, "http://elsewhere.test/x")


def test_a_late_batch_appears_only_after_its_delay(tmp_path: Path) -> None:
    with api(tmp_path, "batches.create@1:delay_exec=30") as sim:
        with pytest.raises(httpx.ReadError):
            sim.post_batch(sim.upload(payload(1)))
        assert sim.call("GET", "/batches").json()["data"] == []
        sim.clock.advance(31)
        (batch,) = sim.call("GET", "/batches").json()["data"]
        assert batch["status"] == "validating"
        assert _batches(sim) == 1


@pytest.mark.parametrize("spec", ["batches.create@1:stale_list=20", "batches.list:stale_list=20"])
def test_a_stale_list_hides_young_batches_that_can_be_got(tmp_path: Path, spec: str) -> None:
    with api(tmp_path, spec) as sim:
        batch_id = sim.create(payload(1))
        assert sim.call("GET", "/batches").json()["data"] == []
        assert sim.get(batch_id)["id"] == batch_id
        sim.clock.advance(20)
        assert len(sim.call("GET", "/batches").json()["data"]) == 1


def test_an_upload_can_be_stored_in_part_and_listed_late(tmp_path: Path) -> None:
    with api(tmp_path, "files.create@1:store=0.5", "files.create@2:stale_list=9") as sim:
        first = sim.upload(b"x" * 100)
        assert sim.call("GET", f"/files/{first}").json()["bytes"] == 50
        assert sim.content(first) == b"x" * 50
        sim.upload(b"y")
        assert len(sim.call("GET", "/files").json()["data"]) == 1
        sim.clock.advance(9)
        assert len(sim.call("GET", "/files").json()["data"]) == 2


def _walk(sim: Api, limit: int, most: int = 6) -> tuple[list[str], int]:
    """Walk a listing; return ids and the last status."""
    ids: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    for _ in range(most):
        answer = sim.call("GET", "/batches", params=query)
        if answer.status_code != 200:
            return ids, answer.status_code
        page = answer.json()
        ids += [batch["id"] for batch in page["data"]]
        if not page["has_more"] or not page["last_id"]:
            return ids, 200
        query["after"] = page["last_id"]
    return ids, 0


@pytest.mark.parametrize(
    ("kind", "n_seen", "status"),
    [("list_error_page=2", 2, 500), ("cursor_loop", 12, 0), ("has_more_lies", 2, 200), ("empty_page", 0, 200)],
)
def test_listings_go_wrong(tmp_path: Path, kind: str, n_seen: int, status: int) -> None:
    with api(tmp_path) as sim:
        for _ in range(5):
            sim.create(payload(1))
        assert len(set(_walk(sim, 2)[0])) == 5
        sim.world.add_fault(f"batches.list:{kind}")
        ids, last = _walk(sim, 2)
        assert (len(ids), last) == (n_seen, status)


# -- on a batch --------------------------------------------------------------------------------


def _finished(tmp_path: Path, *faults: str, n: int = 10) -> dict[str, Any]:
    with api(tmp_path, *faults) as sim:
        return sim.finished(payload(n))


def test_fresh_batches_and_results_are_404_for_a_while(tmp_path: Path) -> None:
    with api(tmp_path, "batches.create@1:notfound_after_create=2", "batches.create@1:results_404=1") as sim:
        batch_id = sim.create(payload(2))
        sim.clock.advance(200)
        codes = [sim.call("GET", f"/batches/{batch_id}").status_code for _ in range(3)]
        assert codes == [404, 404, 200]
        output = sim.get(batch_id)["output_file_id"]
        codes = [sim.call("GET", f"/files/{output}/content").status_code for _ in range(2)]
        assert codes == [404, 200]


def test_results_can_be_withheld_or_named_by_an_empty_string(tmp_path: Path) -> None:
    batch = _finished(tmp_path / "a", "batches.create@1:empty_output")
    assert (batch["status"], batch["output_file_id"]) == ("completed", None)
    batch = _finished(tmp_path / "b", "batches.create@1:error_file_empty_string")
    assert batch["error_file_id"] == ""
    assert batch["output_file_id"].startswith("file-")


def test_expired_batches_keep_an_exact_share(tmp_path: Path) -> None:
    with api(tmp_path / "a", "batches.create@1:expire=0.4") as sim:
        batch = sim.finished(payload(10))
        assert batch["status"] == "expired"
        assert (len(sim.rows(batch["output_file_id"])), len(sim.rows(batch["error_file_id"]))) == (4, 6)
        assert batch["request_counts"] == {"total": 10, "completed": 4, "failed": 0}
        assert sim.world.ledger.summary()["billed"]["n_requests"] == 4
    batch = _finished(tmp_path / "b", "batches.create@1:expire_bare")
    assert (batch["status"], batch["output_file_id"], batch["error_file_id"]) == ("expired", None, None)


@pytest.mark.parametrize("code", ["invalid_request", "token_limit_exceeded", "empty_file", "some_code"])
def test_a_batch_fails_with_the_wanted_code(tmp_path: Path, code: str) -> None:
    batch = _finished(tmp_path, f"batches.create@1:fail={code}")
    assert batch["status"] == "failed"
    assert batch["errors"]["data"][0]["code"] == code
    assert _finished(tmp_path / "b", "batches.create@1:enqueued")["errors"]["data"][0]["code"] == "token_limit_exceeded"


@pytest.mark.parametrize("state", ["validating", "in_progress", "finalizing"])
def test_a_stuck_batch_stays_until_it_is_cancelled(tmp_path: Path, state: str) -> None:
    with api(tmp_path, f"batches.create@1:stuck={state}") as sim:
        batch_id = sim.create(payload(3))
        sim.clock.advance(200_000)
        assert sim.get(batch_id)["status"] == state
        sim.call("POST", f"/batches/{batch_id}/cancel")
        sim.clock.advance(1)
        assert sim.get(batch_id)["status"] == "cancelled"


@pytest.mark.parametrize("spec", ["batches.cancel@1:cancel_race=", "batches.create@1:cancel_race="])
def test_the_three_cancel_races(tmp_path: Path, spec: str) -> None:
    for race in ("lost", "full", "conflict"):
        with api(tmp_path / race, spec + race) as sim:
            batch_id = sim.create(payload(10))
            sim.clock.advance(50)
            assert sim.get(batch_id)["request_counts"]["completed"] > 0
            answer = sim.call("POST", f"/batches/{batch_id}/cancel")
            sim.clock.advance(100)
            batch = sim.get(batch_id)
            if race == "lost":
                assert (batch["status"], batch["output_file_id"]) == ("cancelled", None)
                assert batch["request_counts"] == {"total": 10, "completed": 0, "failed": 0}
                assert len(sim.rows(batch["error_file_id"])) == 5
            else:
                assert (batch["status"], batch["request_counts"]["completed"]) == ("completed", 10)
                assert answer.status_code == (409 if race == "conflict" else 200)


@pytest.mark.parametrize("op", ["batches.create@1", "batches.get", "batches.list"])
def test_what_a_batch_shows_can_be_wrong(tmp_path: Path, op: str) -> None:
    wanted: dict[str, Any] = {
        "counts_wrong": {"total": 10, "completed": 1, "failed": 0},
        "counts_null": None,
        "counts_text": {"total": "10", "completed": "10", "failed": "0"},
    }
    for kind, counts in wanted.items():
        with api(tmp_path / kind, f"{op}:{kind}", f"{op}:status_word=archiving") as sim:
            batch = sim.finished(payload(10))
            if op == "batches.list":
                assert batch["status"] == "completed"
                (batch,) = sim.call("GET", "/batches").json()["data"]
            assert (batch["request_counts"], batch["status"]) == (counts, "archiving")


def test_counts_can_stand_still_until_the_end(tmp_path: Path) -> None:
    with api(tmp_path, "batches.create@1:counts_late") as sim:
        batch_id = sim.create(payload(10))
        sim.clock.advance(60)
        assert sim.get(batch_id)["request_counts"] == {"total": 10, "completed": 0, "failed": 0}
        sim.clock.advance(60)
        assert sim.get(batch_id)["request_counts"]["completed"] == 10


def test_a_batch_can_fall_back_and_clocks_can_differ(tmp_path: Path) -> None:
    with api(tmp_path, "batches.get@2:regress", "batches.create@1:clock_skew=-300") as sim:
        batch_id = sim.create(payload(1))
        sim.clock.advance(200)
        shown = [sim.get(batch_id) for _ in range(3)]
        assert [batch["status"] for batch in shown] == ["completed", "in_progress", "completed"]
        assert shown[0]["created_at"] == shown[0]["in_progress_at"] - 10 - 300


# -- on a download -----------------------------------------------------------------------------


def _download(tmp_path: Path, kind: str) -> tuple[bytes, bytes | None, Api]:
    """Return the whole file and what the faulty download gave, None for a broken one."""
    with api(tmp_path, f"files.content@1:{kind}") as sim:
        output = sim.finished(payload(10))["output_file_id"]
        try:
            got = sim.content(output)
        except httpx.TransportError:
            got = None
        return sim.content(output), got, sim


def test_a_download_can_end_early_without_a_trace(tmp_path: Path) -> None:
    whole, got, _ = _download(tmp_path / "a", "truncate=0.5")
    assert got is not None
    assert whole.startswith(got)
    assert got.endswith(b"\n")
    assert 0 < got.count(b"\n") < 10
    whole, got, _ = _download(tmp_path / "b", "truncate_mid=0.5")
    assert got is not None
    assert whole.startswith(got)
    assert not got.endswith(b"\n")


def test_a_download_can_break_crawl_or_change(tmp_path: Path) -> None:
    assert _download(tmp_path / "a", "reset_at=100")[1] is None
    whole, got, sim = _download(tmp_path / "b", "slow=100")
    assert got == whole
    assert sim.world.now_s() > len(whole) / 100
    whole, got, _ = _download(tmp_path / "c", "changed")
    assert got is not None
    assert got != whole
    assert [json.loads(row)["custom_id"] for row in got.splitlines()] == [
        json.loads(row)["custom_id"] for row in whole.splitlines()
    ]


def test_a_download_can_be_garbage_of_as_many_lines(tmp_path: Path) -> None:
    whole, got, _ = _download(tmp_path, "garbage")
    assert got is not None
    assert got.count(b"\n") == whole.count(b"\n")
    assert b"custom_id" not in got


def test_a_download_can_be_packed_with_or_without_saying_so(tmp_path: Path) -> None:
    whole, got, _ = _download(tmp_path / "a", "gzip")
    assert got == whole
    whole, got, _ = _download(tmp_path / "b", "gzip=unmarked")
    assert got is not None
    assert gzip.decompress(got) == whole


@pytest.mark.parametrize(("kind", "told"), [("content_type", None), ("content_type=text/html", "text/html")])
def test_a_download_can_tell_any_content_type_or_none(tmp_path: Path, kind: str, told: str | None) -> None:
    with api(tmp_path, f"files.content@1:{kind}") as sim:
        output = sim.finished(payload(1))["output_file_id"]
        answer = sim.call("GET", f"/files/{output}/content")
        assert answer.headers.get("content-type") == told
        assert len(answer.content.splitlines()) == 1


# -- on result rows ----------------------------------------------------------------------------


def _files(tmp_path: Path, *kinds: str, n: int = 10) -> tuple[bytes, bytes]:
    with api(tmp_path, *(f"lines@1:{kind}" for kind in kinds)) as sim:
        batch = sim.finished(payload(n))
        output, errors = batch["output_file_id"], batch["error_file_id"]
        return sim.content(output) if output else b"", sim.content(errors) if errors else b""


def _ids(data: bytes) -> list[str]:
    return [json.loads(row)["custom_id"] for row in data.split(b"\n") if row.strip()]


ALL = [f"attempt-{i:04d}" for i in range(10)]


def test_the_order_of_rows_is_shuffled_by_seed_and_can_be_changed(tmp_path: Path) -> None:
    plain = _ids(_files(tmp_path / "a")[0])
    assert sorted(plain) == ALL
    assert plain != ALL
    assert _ids(_files(tmp_path / "b")[0]) == plain
    assert _ids(_files(tmp_path / "c", "in_order")[0]) == ALL
    assert _ids(_files(tmp_path / "d", "reorder")[0]) == plain[::-1]


def test_rows_can_be_missing_doubled_or_foreign(tmp_path: Path) -> None:
    assert len(_ids(_files(tmp_path / "a", "drop=3")[0])) == 7
    data = _files(tmp_path / "b", "duplicate=2")[0]
    assert len(data.splitlines()) == 12
    assert len(set(data.splitlines())) == 10
    data = _files(tmp_path / "c", "duplicate_differs=2")[0]
    assert (len(set(data.splitlines())), len(set(_ids(data)))) == (12, 10)
    ids = _ids(_files(tmp_path / "d", "unknown_id=2")[0])
    assert len(set(ids) - set(ALL)) == 2
    ids = _ids(_files(tmp_path / "e", "missing_id=1")[0])
    assert ids.count(None) == 1  # type: ignore[arg-type]
    output, errors = _files(tmp_path / "f", "both_files=2")
    assert len(_ids(output)) == 10
    assert set(_ids(errors)) < set(_ids(output))
    output = _files(tmp_path / "g", "duplicate_key=1")[0]
    assert sum(row.count(b'"custom_id"') == 2 for row in output.splitlines()) == 1


def test_answers_can_stand_under_each_others_ids(tmp_path: Path) -> None:
    plain = {
        row["custom_id"]: row["response"]["body"]["id"]
        for row in map(json.loads, _files(tmp_path / "a")[0].splitlines())
    }
    swapped = {
        row["custom_id"]: row["response"]["body"]["id"]
        for row in map(json.loads, _files(tmp_path / "b", "swapped_bodies")[0].splitlines())
    }
    assert set(plain.values()) == set(swapped.values())
    assert all(plain[name] != swapped[name] for name in plain)


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        ("bom", lambda data: data.startswith(b"\xef\xbb\xbf{")),
        ("crlf", lambda data: data.count(b"\r\n") == 10),
        ("blank_lines=2", lambda data: data.count(b"\n\n") == 3 and data.count(b"\n") == 13),
        ("no_final_lf", lambda data: data.count(b"\n") == 9 and data.endswith(b"}")),
        ("u2028=2", lambda data: data.count("\u2028\u2029\u0085".encode()) == 2),
        ("lone_surrogate=1", lambda data: data.count(b"\\ud83d") == 1),
        ("nan=1", lambda data: data.count(b":NaN") == 1),
        ("no_usage=2", lambda data: data.count(b'"usage"') == 8),
        ("status_code_0=2", lambda data: data.count(b'"status_code":0') == 2),
        ("status_in_output=2", lambda data: data.count(b'"status_code":500') == 2),
        ("empty_text=2", lambda data: data.count(b'"content":""') == 2),
        ("truncated_text=2", lambda data: data.count(b'"finish_reason":"length"') == 2),
        ("refusal=2", lambda data: data.count(b'"content":null') == 2),
        ("malformed=2", lambda data: sum(not row.endswith(b"}") for row in data.splitlines()) == 2),
    ],
)
def test_the_bytes_of_rows_can_be_spoiled(tmp_path: Path, kind: str, has: Any) -> None:
    output, errors = _files(tmp_path, kind)
    assert has(output), output
    assert errors == b""


def test_requests_can_end_as_error_rows(tmp_path: Path) -> None:
    output, errors = _files(tmp_path / "a", "error_rows=4")
    rows = [json.loads(row) for row in errors.splitlines()]
    assert sorted(row["response"]["status_code"] for row in rows) == [400, 429, 429, 500]
    assert len(_ids(output)) == 6
    errors = _files(tmp_path / "b", "billing_rows=10")[1]
    assert errors.count(b"insufficient_quota") == 20
    errors = _files(tmp_path / "c", "filtered_rows=3")[1]
    assert errors.count(b'"code":"content_filter"') == 3


def test_line_faults_hit_the_batch_they_name(tmp_path: Path) -> None:
    with api(tmp_path, "lines@2:drop=1") as sim:
        sizes = [len(sim.rows(sim.finished(payload(10))["output_file_id"])) for _ in range(3)]
        assert sizes == [10, 9, 10]
        sim.world.add_fault("lines@1:drop=2")
        assert len(sim.rows(sim.finished(payload(10))["output_file_id"])) == 8


def test_faults_added_later_count_from_then_on(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        sim.call("GET", "/models")
        sim.world.add_fault("models.list@1:status=500")
        assert [sim.call("GET", "/models").status_code for _ in range(2)] == [500, 200]
        sim.world.clear_faults()
        assert sim.call("GET", "/models").status_code == 200


def test_every_kind_is_tried_here() -> None:
    text = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [kind for kind in KINDS if text.count(kind) == 0] == []


def test_answers_name_the_planted_winner(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        flipped = {"role": "user", "content": prompt("[[quality=0]] a", "[[quality=1]] b")}
        data = f"{line('a-1')}\n{line('a-2', {'model': 'gpt-5.4-mini', 'messages': [flipped]})}\n".encode()
        rows = sim.rows(sim.finished(data)["output_file_id"])
        said = {row["custom_id"]: row["response"]["body"]["choices"][0]["message"]["content"] for row in rows}
        assert FIRST in said["a-1"]
        assert SECOND in said["a-2"]
