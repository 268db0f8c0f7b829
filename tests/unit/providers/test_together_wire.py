"""Together's Batch API on the wire: what is sent, what odd answers come to, and a whole life."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import AccessError, ProviderError
from batchpond.model import (
    BatchState,
    Created,
    CreateSpec,
    Download,
    ErrorClass,
    FileRole,
    Rejected,
    RemoteBatch,
    Unclear,
)
from batchpond.providers.base import BatchProvider, ProviderModule
from batchpond.providers.registry import module
from batchpond.providers.together.batch import DESCRIPTOR, Together
from batchpond.run.find.unknowns import list_since
from tests.rigs.simulator import START
from tests.rigs.together import KEY, SPEC, Script, job, payload, together

JOB = job()["id"]
RAY = {"cf-ray": "8f00-SIM"}
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ok(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body, headers=RAY)


def refusal(status: int, error: Any = "no", headers: Any = None, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": error, **more}, headers=RAY if headers is None else headers)


def test_the_class_and_the_module_are_what_the_rest_expects() -> None:
    """The protocols of providers/base.py, member by member."""
    for protocol, thing in ((BatchProvider, Together), (ProviderModule, module("together"))):
        wanted = {name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")}
        assert {name for name in wanted if not hasattr(thing, name)} == set()


def test_a_batch_is_known_by_its_file_alone() -> None:
    """No token travels, but nothing is opaque either: the input file is ours, and every job names it."""
    assert (DESCRIPTOR.has_token, DESCRIPTOR.takes_files, DESCRIPTOR.is_opaque) == (False, True, False)


@pytest.mark.parametrize("url", ["https://api.together.ai", "https://api.together.ai/v1", "https://api.together.ai/"])
def test_the_base_url_may_end_in_the_version(url: str) -> None:
    script = Script(ok([]), TOGETHER_BASE_URL=url)
    script.wire.check()
    assert str(script.requests[0].url) == "https://api.together.ai/v1/batches"
    assert script.requests[0].headers["user-agent"].startswith("batchpond")


# --- creating -------------------------------------------------------------------------------------


def test_create_sends_one_post_with_the_file_and_keeps_the_scope() -> None:
    script = Script(ok({"job": job(), "warning": "mind"}, 201))
    answer = script.wire.create(SPEC)
    assert isinstance(answer, Created)
    assert answer.scope == "together/api.together.ai/org-1/proj-1"
    assert (answer.batch.batch_id, answer.batch.token, answer.batch.input_file_id) == (JOB, None, "file-1")
    (request,) = script.requests
    assert (request.method, request.url.path) == ("POST", "/v1/batches")
    sent = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    assert json.loads(request.content) == sent


def test_without_a_file_nothing_is_sent() -> None:
    script = Script(ok({}))
    with pytest.raises(ProviderError, match="uploaded file"):
        script.wire.create(CreateSpec("t", SPEC.endpoint, SPEC.request_model, None, Path("x"), 1, ()))
    assert script.requests == []


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (refusal(400, "Invalid endpoint"), ErrorClass.PERMANENT),
        (refusal(400, "Invalid endpoint", {}, request_id="r-1"), ErrorClass.PERMANENT),
        (refusal(401, {"message": "Invalid API key provided.", "code": "invalid_api_key"}), ErrorClass.ACCESS),
        (refusal(402, "Insufficient credits"), ErrorClass.BILLING),
        (refusal(400, "Invalid model ID: Unable to access non-serverless model x"), ErrorClass.MODEL_GONE),
        (refusal(400, "Failed to download input file"), ErrorClass.TRANSIENT),
        (refusal(429, "Too many requests", RAY | {"retry-after": "30"}), ErrorClass.TRANSIENT),
    ],
)
def test_a_definite_no_to_create_is_a_rejection_with_its_class(answer: httpx.Response, error_class: ErrorClass) -> None:
    """An error as text or as an object, and a sign that Together itself said it."""
    script = Script(answer)
    got = script.wire.create(SPEC)
    assert isinstance(got, Rejected)
    assert (got.error_class, got.status_code) == (error_class, answer.status_code)
    assert got.retry_after_s == (30 if "retry-after" in answer.headers else None)
    assert got.message in answer.text
    assert not got.message.startswith("{")
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ReadTimeout("x"),
        httpx.ConnectError("x"),
        ConnectionResetError("x"),
        refusal(400, "a proxy says so", {}),
        refusal(409),
        refusal(500),
        refusal(503, "overloaded"),
        ok({"job": {"status": "VALIDATING"}}, 201),
        ok([job()], 201),
        httpx.Response(403, text="error code: 1010", headers=RAY),
        httpx.Response(200, html="<html>"),
    ],
)
def test_any_doubt_about_create_is_unclear_after_one_post(answer: Any) -> None:
    """Also a 503, which Together gives for an overloaded model: no document says that nothing was made."""
    script = Script(answer, ok({"job": job()}, 201))
    assert isinstance(script.wire.create(SPEC), Unclear)
    assert len(script.requests) == 1


# --- looking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("VALIDATING", BatchState.QUEUED),
        ("IN_PROGRESS", BatchState.RUNNING),
        ("CANCELING", BatchState.CANCELLING),
        ("COMPLETED", BatchState.COMPLETED),
        ("FAILED", BatchState.FAILED),
        ("EXPIRED", BatchState.EXPIRED),
        ("CANCELLED", BatchState.CANCELLED),
        ("completed", BatchState.COMPLETED),
        ("ARCHIVING", BatchState.RUNNING),
        (None, BatchState.RUNNING),
        (7, BatchState.RUNNING),
    ],
)
def test_status_words_become_states_and_unknown_ones_never_end_a_batch(status: Any, state: BatchState) -> None:
    got = Script(ok(job(status=status))).wire.get(JOB)
    assert got is not None
    assert got.state is state
    assert got.provider_status == ("" if status is None else str(status))


def test_a_job_is_read_bare_or_wrapped_and_counts_nothing() -> None:
    ended = job(status="COMPLETED", output_file_id="file-o", error_file_id="", completed_at="2026-11-21T11:00:00.5Z")
    for body in (ended, {"job": ended}):
        script = Script(ok(body))
        got = script.wire.get(JOB)
        assert got is not None
        assert script.wire.result_files(got) == ((FileRole.OUTPUT, "file-o"),)
        assert (got.n_total, got.n_completed, got.n_failed) == (None, None, None)
        assert got.created_at == datetime(2026, 11, 21, 10, tzinfo=UTC)
        assert got.expires_at == datetime(2026, 11, 22, 10, tzinfo=UTC)
        assert got.ended_at == datetime(2026, 11, 21, 11, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, []),
        ("", []),
        ("Failed to calculate tokens: input format error", [None]),
        ("Invalid model ID: Unable to access non-serverless model x", ["model_not_available"]),
        ("Failed to download input file: 404", ["input_file_unavailable"]),
        ({"message": "m"}, [None]),
    ],
)
def test_a_failed_job_says_why_in_a_bare_text(error: Any, expected: list[str | None]) -> None:
    """A code only where the text is known to mean one: an unread file is uploaded and sent again."""
    got = Script(ok(job(status="FAILED", error=error))).wire.get(JOB)
    assert got is not None
    assert [found.code for found in got.errors] == expected


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(
        {"id": st.just("b1")},
        optional={
            name: st.none() | st.integers() | st.text(max_size=5) | st.lists(st.none(), max_size=2) | st.just({})
            for name in ("status", "created_at", "job_deadline", "error", "output_file_id", "completed_at", "job")
        },
    )
)
def test_any_object_with_the_right_id_is_a_batch(value: dict[str, Any]) -> None:
    got = Script(httpx.Response(200, content=json.dumps(value).encode())).wire.get("b1")
    assert isinstance(got, RemoteBatch)


def test_a_missing_batch_is_none_and_another_one_is_an_error() -> None:
    assert Script(refusal(404, "Job not found", request_id="r")).wire.get(JOB) is None
    others: tuple[Any, ...] = (job(id="other"), {"error": "gone"}, {}, [])
    for body in others:
        with pytest.raises(ProviderError):
            Script(ok(body)).wire.get(JOB)


@pytest.mark.parametrize("status", [404, 409])
def test_cancel_that_comes_too_late_is_none(status: int) -> None:
    assert Script(refusal(status, "Cannot cancel job - already in terminal state")).wire.cancel(JOB) is None
    got = Script(httpx.ReadTimeout("x"), ok(job(status="CANCELING"))).wire.cancel(JOB)
    assert got is not None
    assert got.state is BatchState.CANCELLING


# --- listing --------------------------------------------------------------------------------------


def jobs(n: int, newest: datetime = NOON) -> list[dict[str, Any]]:
    """Return jobs made an hour apart, the oldest first."""
    made = (newest - timedelta(hours=n - 1 - i) for i in range(n))
    return [job(id=f"b{i}", created_at=f"{moment:%Y-%m-%dT%H:%M:%SZ}") for i, moment in enumerate(made)]


def test_the_list_is_one_array_and_comes_newest_first() -> None:
    page = Script(ok(jobs(7))).wire.list_page(None)
    assert [batch.batch_id for batch in page.batches] == [f"b{i}" for i in reversed(range(7))]
    assert page.next_cursor is None
    assert Script(ok([])).wire.list_page(None).batches == ()


@pytest.mark.parametrize("body", [{"data": []}, {"data": [job()], "has_more": False}, {}, None, [{"status": "X"}], [7]])
def test_a_list_that_is_no_array_of_jobs_is_an_error_and_never_looks_complete(body: Any) -> None:
    with pytest.raises(ProviderError):
        Script(ok(body)).wire.list_page(None)


def test_a_cut_array_is_an_error(tmp_path: Path) -> None:
    """JSON that ends early cannot be read: nothing of it is used."""
    whole = json.dumps(jobs(3)).encode()
    with pytest.raises(ProviderError):
        Script(httpx.Response(200, content=whole[:-20])).wire.list_page(None)


@pytest.mark.parametrize(
    ("n", "since", "is_complete"),
    [
        (99, NOON - timedelta(days=30), True),  # no server cuts a list there
        (100, NOON - timedelta(days=30), False),  # what was looked for may stand behind it
        (100, NOON - timedelta(hours=3), True),  # it goes back past what is looked for
    ],
)
def test_a_list_that_may_be_cut_off_is_complete_only_for_what_is_younger(
    n: int, since: datetime, is_complete: bool
) -> None:
    script = Script(ok(jobs(n)), ok(jobs(n)[0]))
    listing = list_since(script.wire, since)
    assert (len(listing.batches), listing.is_complete) == (n, is_complete)
    assert len(script.requests) == 1 + (n == 100), "the oldest is looked at once more; there is no second page"


def test_the_scope_is_told_only_where_all_batches_agree() -> None:
    assert Script(ok([job(), job(id="b")])).wire.check() == "together/api.together.ai/org-1/proj-1"
    assert Script(ok([job(), job(id="b", project_id="p2")])).wire.check() == "together/api.together.ai/-/-"
    assert Script(ok([])).wire.check() == "together/api.together.ai/-/-"
    with pytest.raises(AccessError, match="TOGETHER_API_KEY"):
        Script(refusal(401, {"message": "Invalid API key", "code": "invalid_api_key"})).wire.check()


# --- files ----------------------------------------------------------------------------------------


def test_an_upload_is_one_form_to_the_api_itself(tmp_path: Path) -> None:
    """Not the announced way, whose bytes go to a storage host: the key and the content stay with one host."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"a":1}\n')
    script = Script(ok({"id": "file-1", "bytes": 8, "filename": "t.jsonl", "created_at": 1795200000}))
    got = script.wire.upload(path, "t.jsonl")
    assert (got.file_id, got.size_bytes, got.filename) == ("file-1", 8, "t.jsonl")
    (request,) = script.requests
    assert request.url.path == "/v1/files/upload"
    for name, value in (("purpose", "batch-api"), ("file_name", "t.jsonl"), ("file_type", "jsonl")):
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in request.content
    with pytest.raises(ProviderError, match="without a file id"):
        Script(ok({"bytes": 8})).wire.upload(path, "x")
    with pytest.raises(ProviderError, match="redirect"):
        Script(httpx.Response(302, headers={"location": "https://elsewhere.test/x"})).wire.upload(path, "x")


def test_content_that_is_there_already_is_the_same_file(tmp_path: Path) -> None:
    """After a lost answer the second upload is told so, 409, and the file is looked at: its size is what counts."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x")
    there = {"id": "file-9", "bytes": 1, "filename": "t.jsonl", "created_at": 1795200000}
    script = Script(refusal(409, "File already exists", file_id="file-9"), ok(there))
    assert script.wire.upload(path, "t.jsonl").file_id == "file-9"
    assert [request.url.path for request in script.requests] == ["/v1/files/upload", "/v1/files/file-9"]
    with pytest.raises(ProviderError, match="without a file id"):
        Script(refusal(409, "conflict")).wire.upload(path, "t.jsonl")


def test_uploads_are_found_by_name() -> None:
    now = int(NOON.timestamp())
    names = (("a", "mine", 60), ("b", "other", 50), ("c", "mine", 10), ("d", "mine", 90_000))
    rows = [{"id": i, "filename": name, "created_at": now - age_s, "bytes": 1} for i, name, age_s in names]
    found = Script(ok({"data": rows})).wire.find_uploads("mine", NOON - timedelta(minutes=5))
    assert [file.file_id for file in found] == ["c", "a"]
    for body in ({}, {"data": None}, {"error": "no"}):
        with pytest.raises(ProviderError):
            Script(ok(body)).wire.find_uploads("mine", NOON)


@pytest.mark.parametrize(
    ("location", "is_followed"),
    [
        ("https://account.r2.cloudflarestorage.com/x?X-Amz-Signature=1", True),
        ("https://r2.cloudflarestorage.com.evil.test/x", False),
        ("https://evilr2.cloudflarestorage.com/x", False),
        ("https://me@account.r2.cloudflarestorage.com/x", False),
        ("http://account.r2.cloudflarestorage.com/x", False),
        ("https://api.together.ai.evil.test/x", False),
    ],
)
def test_content_may_come_from_its_storage_which_never_sees_the_key(
    tmp_path: Path, location: str, is_followed: bool
) -> None:
    moved = httpx.Response(302, headers={"location": location})
    script = Script(moved, httpx.Response(200, content=b"row\n"), moved, httpx.Response(200, content=b"row\n"))
    if not is_followed:
        with pytest.raises(ProviderError, match="redirect"):
            script.wire.download("file-1", tmp_path / "out")
        assert len(script.requests) == 1
        return
    assert script.wire.download("file-1", tmp_path / "out") == Download(4, hashlib.sha256(b"row\n").hexdigest())
    assert script.wire.peek("file-1", 2) == b"ro"
    for request in (script.requests[1], script.requests[3]):
        assert request.url.host == "account.r2.cloudflarestorage.com"
        assert "authorization" not in request.headers
        assert KEY not in str(request.headers)


def test_a_whole_life_against_the_simulator(tmp_path: Path) -> None:
    """Upload, create, find again by file, poll, download, cancel."""
    with together(tmp_path / "world") as sim:
        url = "http://127.0.0.1:1/together"
        wire = Together.connect(sim.clock, transport=sim.transport, environ={"TOGETHER_API_KEY": KEY}, base_url=url)
        path = tmp_path / "in.jsonl"
        path.write_bytes(payload(5))
        remote = wire.upload(path, "token-1.jsonl")
        assert wire.upload(path, "token-1.jsonl") == remote, "the same content is the same file"
        assert wire.find_uploads("token-1.jsonl", START) == [remote]
        made = wire.create(CreateSpec("token-1", SPEC.endpoint, SPEC.request_model, remote.file_id, path, 5, ()))
        assert isinstance(made, Created)
        (listed,) = wire.list_page(None).batches
        assert (listed.batch_id, listed.input_file_id) == (made.batch.batch_id, remote.file_id)
        sim.clock.advance(100)
        batch = wire.get(listed.batch_id)
        assert batch is not None
        assert batch.state is BatchState.COMPLETED
        ((role, file_id),) = wire.result_files(batch)
        assert role is FileRole.OUTPUT
        assert wire.download(file_id, tmp_path / "out") is not None
        assert len((tmp_path / "out").read_bytes().splitlines()) == 5
        assert wire.cancel(batch.batch_id) is None
        assert wire.download("file-none", tmp_path / "no") is None
        assert wire.get("no-such-job") is None
