"""Together's Batch API on the wire: what is sent, what odd answers come to, and a whole life."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchpond.errors import AccessError, ProviderError
from batchpond.model import (
    BatchState,
    Created,
    Download,
    FileRole,
)
from batchpond.providers import registry
from batchpond.providers.together.dialect import DIALECT
from batchpond.run.find import list_since
from tests.rigs.simulator import START
from tests.rigs.together import KEY, SPEC, Script, job, payload, together

DESCRIPTOR = DIALECT.DESCRIPTOR
JOB = job()["id"]
RAY = {"cf-ray": "8f00-SIM"}
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ok(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body, headers=RAY)


def refusal(status: int, error: Any = "no", headers: Any = None, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": error, **more}, headers=RAY if headers is None else headers)


def test_a_batch_is_known_by_its_file_alone() -> None:
    """No token travels, but nothing is opaque either: the input file is ours, and every job names it."""
    assert (DESCRIPTOR.has_token, DESCRIPTOR.takes_files, DESCRIPTOR.is_opaque) == (
        False,
        True,
        False,
    )


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


def test_the_same_content_is_the_same_file(tmp_path: Path) -> None:
    """The simulator stores it once, as Together does."""
    with together(tmp_path / "world") as sim:
        environ = {"TOGETHER_API_KEY": KEY, "TOGETHER_BASE_URL": "http://127.0.0.1:1/together"}
        wire = registry.connect("together", sim.clock, transport=sim.transport, environ=environ)
        path = tmp_path / "in.jsonl"
        path.write_bytes(payload(5))
        remote = wire.upload(path, "token-1.jsonl")
        assert wire.upload(path, "token-1.jsonl") == remote
        assert wire.find_uploads("token-1.jsonl", START) == [remote]
