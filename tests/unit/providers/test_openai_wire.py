"""OpenAI's Batch API on the wire: what is sent, what odd answers come to, and a whole life."""

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

from batchpond import ids
from batchpond.clock import ManualClock
from batchpond.errors import AccessError, ProviderError
from batchpond.model import (
    BatchState,
    Created,
    CreateSpec,
    ErrorClass,
    FileRole,
    Rejected,
    RemoteBatch,
    ResponseStatus,
    Unclear,
)
from batchpond.providers.base import BatchProvider, ProviderModule
from batchpond.providers.openai.batch import DESCRIPTOR, OpenAI, build_body, payload_line, read_line
from batchpond.providers.registry import module
from tests.rigs import simulator

START = datetime(2026, 11, 21, tzinfo=UTC)
KEY = "sk-canary-wire-0123456789"
TOKEN = ids.token("lake", "attempt", b"secret", "0" * 64)
SPEC = CreateSpec(
    TOKEN, "/v1/chat/completions", "gpt-5-mini", "file-1", Path("unused"), 2, (("study", "s"), ("batchpond", TOKEN))
)


class Script:
    """An in-process server: one answer after the other, the last for ever."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.clock = ManualClock(START)
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj_1"}
        self.wire = OpenAI.connect(self.clock, transport=httpx.MockTransport(self._answer), environ=environ)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def ok(body: Any, **headers: str) -> httpx.Response:
    return httpx.Response(200, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def refusal(status: int, message: str = "no", code: str | None = None, **headers: str) -> httpx.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    named = {"x-request-id": "req_1"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"error": error}, headers=named)


def batch(**more: Any) -> dict[str, Any]:
    return {
        "id": "batch_1",
        "object": "batch",
        "status": "validating",
        "created_at": 1795200000,
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "metadata": {"batchpond": TOKEN, "study": "s"},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
    } | more


def test_the_class_and_the_module_are_what_the_rest_expects() -> None:
    """The protocols of providers/base.py, member by member."""
    for protocol, thing in ((BatchProvider, OpenAI), (ProviderModule, module("openai"))):
        wanted = {name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")}
        assert {name for name in wanted if not hasattr(thing, name)} == set()


def test_create_sends_one_post_with_the_token_and_keeps_the_scope() -> None:
    """The documented body, and an acknowledgement with what the answer's headers say."""
    script = Script(ok(batch(), openai_organization="org-7", openai_project="proj_7"))
    answer = script.wire.create(SPEC)
    assert isinstance(answer, Created)
    assert answer.scope == "openai/api.openai.com/org-7/proj_7"
    assert (answer.batch.batch_id, answer.batch.token, answer.batch.state) == ("batch_1", TOKEN, BatchState.QUEUED)
    assert len(script.requests) == 1
    request = script.requests[0]
    assert (request.method, request.url.path) == ("POST", "/v1/batches")
    assert (request.headers["openai-organization"], request.headers["openai-project"]) == ("org-1", "proj_1")
    assert json.loads(request.content) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"batchpond": TOKEN, "study": "s"},
    }


def test_metadata_stays_within_the_providers_bounds_and_keeps_the_token() -> None:
    """16 pairs, keys of 64, values of 512: the token is never what is cut."""
    pairs = (*((f"{number:03d}" + "k" * 90, "v" * 900) for number in range(40)), ("batchpond", TOKEN))
    script = Script(ok(batch()))
    script.wire.create(CreateSpec(TOKEN, "/v1/responses", "o3", "file-1", Path("unused"), 1, pairs))
    metadata = json.loads(script.requests[0].content)["metadata"]
    assert len(metadata) == 16
    assert metadata["batchpond"] == TOKEN
    assert max(map(len, metadata)) <= 64
    assert max(map(len, metadata.values())) <= 512


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (refusal(400, "bad endpoint"), ErrorClass.PERMANENT),
        (refusal(401, code="invalid_api_key"), ErrorClass.ACCESS),
        (refusal(402), ErrorClass.BILLING),
        (refusal(400, code="billing_hard_limit_reached"), ErrorClass.BILLING),
        (refusal(404, code="model_not_found"), ErrorClass.MODEL_GONE),
        (refusal(404, "No such File object: file-1"), ErrorClass.TRANSIENT),
        (refusal(429, retry_after="30"), ErrorClass.TRANSIENT),
        (refusal(429, code="insufficient_quota"), ErrorClass.BILLING),
    ],
)
def test_a_definite_no_to_create_is_a_rejection_with_its_class(answer: httpx.Response, error_class: ErrorClass) -> None:
    """One POST, and what the caller may do next."""
    script = Script(answer)
    got = script.wire.create(SPEC)
    assert isinstance(got, Rejected)
    assert (got.error_class, got.status_code) == (error_class, answer.status_code)
    assert got.retry_after_s == (30 if "retry-after" in answer.headers else None)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ReadTimeout("x"),
        httpx.ConnectError("x"),
        httpx.RemoteProtocolError("x"),
        ConnectionResetError("x"),
        refusal(409),
        refusal(500),
        ok({"object": "batch"}),
        httpx.Response(200, html="<html>"),
    ],
)
def test_any_doubt_about_create_is_unclear_after_one_post(answer: Any) -> None:
    """Timeouts, resets and foreign answers raise nothing and are never repeated."""
    script = Script(answer, ok(batch()))
    assert isinstance(script.wire.create(SPEC), Unclear)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("validating", BatchState.QUEUED),
        ("in_progress", BatchState.RUNNING),
        ("finalizing", BatchState.RUNNING),
        ("cancelling", BatchState.CANCELLING),
        ("completed", BatchState.COMPLETED),
        ("failed", BatchState.FAILED),
        ("expired", BatchState.EXPIRED),
        ("cancelled", BatchState.CANCELLED),
        ("Completed", BatchState.COMPLETED),
        ("CANCELED", BatchState.CANCELLED),
        ("archiving", BatchState.RUNNING),
        (None, BatchState.RUNNING),
        (7, BatchState.RUNNING),
    ],
)
def test_status_words_become_states_and_unknown_ones_never_end_a_batch(status: Any, state: BatchState) -> None:
    """The provider's own word is kept beside."""
    got = Script(ok(batch(status=status))).wire.get("batch_1")
    assert got is not None
    assert got.state is state
    assert got.provider_status == ("" if status is None else str(status))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1795200000, datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        (1795200000000, datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        (1795200000.0, datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        ("1795200000", datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        ("2026-11-20T18:40:00Z", datetime(2026, 11, 20, 18, 40, tzinfo=UTC)),
        ("2026-11-20T19:40:00.123456789+01:00", datetime(2026, 11, 20, 18, 40, 0, 123456, tzinfo=UTC)),
        (0, None),
        (None, None),
        (-5, None),
        (10**30, None),
        ("", None),
        ("soon", None),
        ("9999-12-31T23:59:59-23:00", None),
        (True, None),
        ([], None),
    ],
)
def test_times_come_in_many_forms(value: Any, expected: datetime | None) -> None:
    """Seconds, milliseconds, ISO 8601; zero and nonsense are unknown."""
    got = Script(ok(batch(expires_at=value))).wire.get("batch_1")
    assert got is not None
    assert got.expires_at == expected


def test_odd_batch_objects_are_read_without_complaint() -> None:
    """Empty ids are none, counts as text are numbers, unknown fields are kept in raw."""
    odd = batch(
        status="completed",
        output_file_id="",
        error_file_id="file-e",
        request_counts={"total": "10", "completed": None, "failed": -1},
        errors={"data": [{"code": "invalid_json_line", "message": "m", "line": 7}, None, 3]},
        new_field={"x": [1]},
        metadata=None,
    )
    script = Script(ok(odd))
    got = script.wire.get("batch_1")
    assert got is not None
    assert script.wire.result_files(got) == ((FileRole.ERROR, "file-e"),)
    assert (got.n_total, got.n_completed, got.n_failed, got.token) == (10, None, None, None)
    assert [(error.code, error.line) for error in got.errors] == [("invalid_json_line", 7)]
    assert got.seen["new_field"] == {"x": [1]}


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(
        {"id": st.just("batch_1")},
        optional={
            name: st.none() | st.integers() | st.text(max_size=5) | st.lists(st.none() | st.just({}), max_size=2)
            for name in ("status", "created_at", "expires_at", "request_counts", "errors", "metadata", "output_file_id")
        },
    )
)
def test_any_object_with_the_right_id_is_a_batch(value: dict[str, Any]) -> None:
    """Wrong types everywhere still give a RemoteBatch."""
    got = Script(httpx.Response(200, content=json.dumps(value).encode())).wire.get("batch_1")
    assert isinstance(got, RemoteBatch)
    assert got.n_total is None


def test_a_missing_batch_is_none_and_another_one_is_an_error() -> None:
    """404 is no proof of loss; an answer about something else is no answer."""
    assert Script(refusal(404, "No batch found with id 'batch_1'.")).wire.get("batch_1") is None
    for body in (batch(id="batch_2"), {"error": {"message": "gone"}}, {}):
        with pytest.raises(ProviderError):
            Script(ok(body)).wire.get("batch_1")


def test_ids_cannot_leave_their_place_in_the_path() -> None:
    """An id from a provider is data: slashes, dots and queries do not address anything else."""
    script = Script(refusal(404))
    script.wire.get("../files?x=1#y")
    assert script.requests[0].url.raw_path == b"/v1/batches/..%2Ffiles%3Fx%3D1%23y"
    for bad in ("", ".", ".."):
        with pytest.raises(ProviderError):
            script.wire.get(bad)


@pytest.mark.parametrize("status", [400, 404, 409])
def test_cancel_that_comes_too_late_is_none(status: int) -> None:
    """The final state is for the next look to tell."""
    assert Script(refusal(status)).wire.cancel("batch_1") is None


def test_cancel_is_repeated_safely_and_returns_the_batch() -> None:
    """Cancelling twice is cancelling once."""
    script = Script(httpx.ReadTimeout("x"), ok(batch(status="cancelling")))
    got = script.wire.cancel("batch_1")
    assert got is not None
    assert got.state is BatchState.CANCELLING
    assert [request.method for request in script.requests] == ["POST", "POST"]


def page(*numbers: int, more: Any = False, **extra: Any) -> dict[str, Any]:
    return {"object": "list", "data": [batch(id=f"batch_{n}") for n in numbers], "has_more": more} | extra


def test_a_listing_goes_on_by_its_cursor() -> None:
    """100 a page, `after` the last; none on the last page."""
    script = Script(ok(page(2, 1, more=True, last_id="batch_1")), ok(page(0)))
    first = script.wire.list_page(None)
    assert first.next_cursor == "batch_1"
    assert script.wire.list_page("batch_1").next_cursor is None
    assert [dict(request.url.params) for request in script.requests] == [
        {"limit": "100"},
        {"limit": "100", "after": "batch_1"},
    ]


@pytest.mark.parametrize(
    "body",
    [
        page(1, more=True, last_id="batch_9"),
        page(9, more=True),
        page(more=True),
        {"object": "list"},
        {"data": None},
        {"data": [{"object": "batch"}]},
        {"data": [None]},
        [],
    ],
)
def test_a_listing_that_lies_is_an_error_and_never_looks_complete(body: Any) -> None:
    """A cursor that stands still, an empty page with more, a row without an id: no proof of absence."""
    with pytest.raises(ProviderError):
        Script(ok(body)).wire.list_page("batch_9")


def test_an_upload_is_named_and_its_size_is_told(tmp_path: Path) -> None:
    """The file object carries what the provider stored, for the caller to compare."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"a":1}\n')
    script = Script(ok({"id": "file-1", "bytes": 8, "filename": f"{TOKEN}.jsonl", "created_at": 1795200000}))
    got = script.wire.upload(path, f"{TOKEN}.jsonl")
    assert (got.file_id, got.size_bytes, got.filename) == ("file-1", 8, f"{TOKEN}.jsonl")
    assert b'name="purpose"\r\n\r\nbatch\r\n' in script.requests[0].content
    with pytest.raises(ProviderError, match="without a file id"):
        Script(ok({"bytes": 8})).wire.upload(path, "x")


def test_uploads_are_found_by_name_until_the_list_is_older_than_the_search() -> None:
    """Paging stops at files made before; a foreign name or an old namesake does not count."""
    now = int(START.timestamp())

    def file(number: int, name: str, age_s: int) -> dict[str, Any]:
        return {"id": f"file-{number}", "filename": name, "created_at": now - age_s, "bytes": 1}

    pages = [
        ok({"data": [file(5, "mine", 10), file(4, "other", 20)], "has_more": True, "last_id": "file-4"}),
        ok({"data": [file(3, "mine", 60), file(2, "mine", 90_000)], "has_more": True, "last_id": "file-2"}),
        ok({"data": [file(1, "mine", 99_000)], "has_more": True, "last_id": "file-1"}),
    ]
    script = Script(*pages)
    found = script.wire.find_uploads("mine", START - timedelta(minutes=5))
    assert [each.file_id for each in found] == ["file-5", "file-3"]
    assert len(script.requests) == 3
    assert script.requests[0].url.params["purpose"] == "batch"


def test_check_names_the_scope_or_the_variable() -> None:
    """One free GET; a refusal names OPENAI_API_KEY; headers that are absent are dashes."""
    script = Script(ok(page()))
    assert script.wire.check() == "openai/api.openai.com/-/-"
    assert len(script.requests) == 1
    with pytest.raises(AccessError, match="OPENAI_API_KEY"):
        Script(refusal(401, code="invalid_api_key")).wire.check()


def test_the_key_is_in_no_public_representation() -> None:
    """Nothing that a debugger or log prints of the wire shows the key."""
    wire = Script(ok({})).wire
    assert KEY not in repr(wire) + repr(vars(wire)) + repr(vars(vars(wire._http)["_auth"]))


# --- a whole life over the simulator --------------------------------------------------------------


def payload(path: Path, n: int, endpoint: str, **more: Any) -> list[str]:
    from batchpond.providers.base import ModelSettings  # noqa: PLC0415

    custom_ids = [ids.custom_id("attempt234", ids.digest("request", number)) for number in range(n)]
    case = ModelSettings("gpt-5.4-mini", endpoint, max_output_tokens=200, **more)
    prompt = "SAMPLE 1:\n[[quality=0.9]] a\n\nSAMPLE 2:\n[[quality=0.1]] b\n"
    body = json.dumps(build_body(prompt, case).body).encode()
    path.write_bytes(b"".join(payload_line(each, endpoint, body) + b"\n" for each in custom_ids))
    return custom_ids


@pytest.mark.parametrize(
    ("endpoint", "more"),
    [("/v1/chat/completions", {"thinking": "low"}), ("/v1/responses", {"thinking": "low", "include_thoughts": True})],
)
def test_a_batch_lives_its_whole_life_over_the_simulators_transport(tmp_path: Path, endpoint: str, more: Any) -> None:
    """Upload, find, create, list, get, download, read: every request answered once, by its own id."""
    with simulator.api(tmp_path / "world") as api:
        environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/openai/v1", "OPENAI_API_KEY": KEY}
        wire = OpenAI.connect(api.clock, transport=api.transport, environ=environ)
        assert wire.is_loopback
        assert wire.check().startswith("openai/127.0.0.1:1/")
        custom_ids = payload(tmp_path / "p.jsonl", 12, endpoint, **more)
        remote = wire.upload(tmp_path / "p.jsonl", f"{TOKEN}.jsonl")
        assert remote.size_bytes == (tmp_path / "p.jsonl").stat().st_size
        assert [each.file_id for each in wire.find_uploads(f"{TOKEN}.jsonl", START)] == [remote.file_id]
        metadata = (("batchpond", TOKEN),)
        created = wire.create(CreateSpec(TOKEN, endpoint, "gpt-5.4-mini", remote.file_id, Path("unused"), 12, metadata))
        assert isinstance(created, Created)
        assert created.scope == wire.check()
        api.clock.advance(3600)
        listed = wire.list_page(None).batches
        assert [(each.batch_id, each.token) for each in listed] == [(created.batch.batch_id, TOKEN)]
        done = wire.get(created.batch.batch_id)
        assert done is not None
        assert (done.state, done.n_total) == (BatchState.COMPLETED, 12)
        seen = []
        for role, file_id in wire.result_files(done):
            got = wire.download(file_id, tmp_path / "out")
            data = (tmp_path / "out").read_bytes()
            assert got is not None
            assert got.sha256 == hashlib.sha256(data).hexdigest()
            seen += [read_line(each, role) for each in data.split(b"\n") if each]
        assert sorted(each.custom_id or "" for each in seen) == sorted(custom_ids)
        answered = [each for each in seen if each.status is ResponseStatus.SUCCEEDED]
        assert answered
        assert all(each.text and each.input_tokens for each in answered)
        assert wire.cancel(created.batch.batch_id) is None
        assert wire.download("file-none", tmp_path / "none") is None
    assert DESCRIPTOR.create_deadline_s * 2 + 300 <= DESCRIPTOR.settle_s
