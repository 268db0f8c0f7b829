"""Each provider's batch API as the contract of wires needs it: what its answers look like, good, bad and odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from hypothesis import strategies as st

from batchpond import ids
from batchpond.model import BatchState, CreateSpec, ErrorClass
from batchpond.providers import registry
from tests.rigs import gemini_script, together, vertex_script, wire_script
from tests.rigs.simulator import CHAT
from tests.rigs.wire_script import Answer

TOKEN = ids.token("lake", "attempt", b"secret", "0" * 64)
KEY = "canary-wire-0123456789"
EVIL = "https://evil.example/x"
ODD = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.none() | st.just({}), max_size=2) | st.just({})
HARD: tuple[type[Exception], ...] = (
    httpx.ReadTimeout,
    httpx.ConnectError,
    httpx.ReadError,
    httpx.RemoteProtocolError,
    ConnectionResetError,
)

No = tuple[httpx.Response, ErrorClass, str | None, float | None]
"""A definite no to a create: the answer, its class, its code, and the wait that it asks for."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One provider of batches.

    `batch` makes its object, `own` the headers by which its answers are known, `refusal` an error in its words.
    `doubts` are answers to a create that are neither yes nor no, beside those that no provider gives; `lies` are
    listings that do not go on as they say after `cursor`. `path` is where a GET of a batch with an odd id leads, None
    where such an id is refused. `never` are what an odd object is never read to say.
    `cancelling` are the answers to a cancel that is taken, and its end.
    """

    name: str
    key_name: str
    environ: dict[str, str]
    model: str
    endpoint: str
    batch_id: str
    batch: Callable[..., Any]
    own: dict[str, str]
    refusal: Callable[[int], httpx.Response]
    nos: tuple[No, ...]
    doubts: tuple[Any, ...]
    gone: tuple[httpx.Response, ...]
    others: tuple[Any, ...]
    odd: st.SearchStrategy[Any]
    path: bytes | None
    late: tuple[httpx.Response, ...]
    cancelling: tuple[tuple[Any, ...], BatchState]
    lies: tuple[Any, ...]
    cursor: str | None
    scope: tuple[Any, str]
    refused: httpx.Response
    never: tuple[str, ...] = ("n_total",)
    input_file_id: str | None = "file-1"
    result_id: str = "file-1"

    def ok(self, body: Any) -> httpx.Response:
        return httpx.Response(200, json=body, headers=self.own)

    def spec(self, payload: Path) -> CreateSpec:
        named = (("study", "s"), ("batchpond", TOKEN))
        return CreateSpec(TOKEN, self.endpoint, self.model, self.input_file_id, payload, 2, named)

    def script(self, *answers: Answer) -> wire_script.Script:
        """Return a scripted server with the provider's wire to it."""
        script = wire_script.Script(*answers)
        script.wire = registry.connect(self.name, script.clock, transport=script.transport, environ=self.environ)
        return script


def has_id(batch_id: str, *members: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"id": st.just(batch_id)}, optional={name: ODD for name in members})


def said(status: int, error: Any, own: dict[str, str], **more: str) -> httpx.Response:
    return httpx.Response(status, json={"error": error}, headers=own | more)


# --- OpenAI ---------------------------------------------------------------------------------------

X = {"x-request-id": "req_1"}
_INVALID = "invalid_request_error"


def openai_no(status: int, message: str = "no", code: str | None = None, **headers: str) -> httpx.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return said(status, error, X, **{name.replace("_", "-"): value for name, value in headers.items()})


def openai_batch(**more: Any) -> dict[str, Any]:
    return {
        "id": "batch_1",
        "object": "batch",
        "status": "validating",
        "created_at": 1795200000,
        "input_file_id": "file-1",
        "endpoint": CHAT,
        "metadata": {"batchpond": TOKEN, "study": "s"},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
    } | more


def last_id_lies(batch: Callable[..., Any]) -> tuple[Any, ...]:
    """Return listings of `{data, has_more, last_id}` that stand still after "batch_9", or have no rows."""

    def page(*names: str, **more: Any) -> dict[str, Any]:
        return {"data": [batch(id=name) for name in names], "has_more": True, **more}

    no_rows: tuple[Any, ...] = (
        {"object": "list"},
        {"data": None},
        {"data": [{"object": "batch"}]},
        {"data": [None]},
        [],
    )
    return (page("batch_1", last_id="batch_9"), page("batch_9"), page(), *no_rows)


OPENAI = Wire(
    name="openai",
    key_name="OPENAI_API_KEY",
    environ={"OPENAI_API_KEY": KEY},
    model="gpt-5-mini",
    endpoint=CHAT,
    batch_id="batch_1",
    batch=openai_batch,
    own=X,
    refusal=openai_no,
    nos=(
        (openai_no(400, "bad endpoint"), ErrorClass.PERMANENT, _INVALID, None),
        (openai_no(401, code="invalid_api_key"), ErrorClass.ACCESS, "invalid_api_key", None),
        (openai_no(402), ErrorClass.BILLING, _INVALID, None),
        (openai_no(400, code="billing_hard_limit_reached"), ErrorClass.BILLING, "billing_hard_limit_reached", None),
        (openai_no(404, code="model_not_found"), ErrorClass.MODEL_GONE, "model_not_found", None),
        (openai_no(404, "No such File object: file-1"), ErrorClass.TRANSIENT, _INVALID, None),
        (openai_no(429, retry_after="30"), ErrorClass.TRANSIENT, _INVALID, 30),
        (openai_no(429, code="insufficient_quota"), ErrorClass.BILLING, "insufficient_quota", None),
    ),
    doubts=({"object": "batch"},),
    gone=(openai_no(404, "No batch found with id 'batch_1'."),),
    others=(openai_batch(id="batch_2"), {"error": {"message": "gone"}}, {}),
    odd=has_id(
        "batch_1", "status", "created_at", "expires_at", "request_counts", "errors", "metadata", "output_file_id"
    ),
    path=b"/v1/batches/..%2Ffiles%3Fx%3D1%23y",
    late=tuple(map(openai_no, (400, 404, 409))),
    cancelling=((openai_batch(status="cancelling"),), BatchState.CANCELLING),
    lies=last_id_lies(openai_batch),
    cursor="batch_9",
    scope=({"object": "list", "data": [], "has_more": False}, "openai/api.openai.com/-/-"),
    refused=openai_no(401, code="invalid_api_key"),
)

# --- Groq: the same words, and lists without pages --------------------------------------------------

GROQ = replace(
    OPENAI,
    name="groq",
    key_name="GROQ_API_KEY",
    environ={"GROQ_API_KEY": KEY},
    model="openai/gpt-oss-20b",
    nos=tuple(row for row in OPENAI.nos if row[1] is not ErrorClass.TRANSIENT or row[3] is not None),
    path=b"/openai/v1/batches/..%2Ffiles%3Fx%3D1%23y",
    lies=({"object": "list"}, {"data": None}, {"data": [{"object": "batch"}]}, {"data": [None]}, []),
    cursor=None,
    scope=({"object": "list", "data": []}, "groq/api.groq.com"),
)

# --- Mistral --------------------------------------------------------------------------------------

CORRELATION = {"mistral-correlation-id": "c-1"}
JOB_ID = "5d1f8a52-0000-4000-8000-000000000001"


def mistral_no(status: int, message: str = "no", code: str | None = None, **headers: str) -> httpx.Response:
    body = {"object": "error", "message": message, "type": "invalid_request_error", "param": None, "code": code}
    return httpx.Response(status, json=body, headers=CORRELATION | {k.replace("_", "-"): v for k, v in headers.items()})


def mistral_job(**more: Any) -> dict[str, Any]:
    return {
        "id": JOB_ID,
        "object": "batch",
        "status": "QUEUED",
        "created_at": 1795200000,
        "input_files": ["file-1"],
        "endpoint": CHAT,
        "model": "mistral-small-2603",
        "metadata": {"batchpond": TOKEN, "study": "s"},
        "errors": [],
        **dict.fromkeys(("total_requests", "completed_requests", "succeeded_requests", "failed_requests"), 0),
    } | more


def mistral_detail(status: int, detail: Any) -> httpx.Response:
    return httpx.Response(status, json={"detail": detail}, headers=CORRELATION)


def jobs_page(total: int, *rows: Any) -> dict[str, Any]:
    return {"object": "list", "data": list(rows), "total": total}


MISTRAL = Wire(
    name="mistral",
    key_name="MISTRAL_API_KEY",
    environ={"MISTRAL_API_KEY": KEY},
    model="mistral-small-2603",
    endpoint=CHAT,
    batch_id=JOB_ID,
    batch=mistral_job,
    own=CORRELATION,
    refusal=mistral_no,
    nos=(
        (mistral_no(400, "Invalid model: x", "1500"), ErrorClass.PERMANENT, "1500", None),
        (mistral_no(404, "File x not found", "3310"), ErrorClass.PERMANENT, "3310", None),
        (mistral_detail(401, "Invalid API Key"), ErrorClass.ACCESS, None, None),
        (mistral_detail(422, [{"type": "x", "loc": ["body"], "msg": "bad UUID"}]), ErrorClass.PERMANENT, None, None),
        (mistral_no(402, "Insufficient credits"), ErrorClass.BILLING, _INVALID, None),
        (mistral_no(429, "Rate limit exceeded", retry_after="30"), ErrorClass.TRANSIENT, _INVALID, 30),
    ),
    doubts=({"object": "batch"}, httpx.Response(422, json={"detail": "a proxy's"}),
            httpx.Response(400, json={"message": "a gateway's"}, headers=CORRELATION)),
    gone=(mistral_detail(404, "Not Found"),),
    others=(mistral_job(id="other"), {"error": {"message": "gone"}}, {}),
    odd=has_id(
        JOB_ID, "status", "created_at", "started_at", "completed_at", "errors", "metadata", "input_files", "output_file"
    ),
    path=b"/v1/batch/jobs/..%2Ffiles%3Fx%3D1%23y",
    late=tuple(map(mistral_no, (400, 404, 409))),
    cancelling=((mistral_job(status="CANCELLATION_REQUESTED"),), BatchState.CANCELLING),
    lies=(
        jobs_page(101),
        jobs_page(101, mistral_job(), mistral_job(id="other")),
        jobs_page(100),  # a job was deleted, and another one moved to the page before
        jobs_page(101, None),
        jobs_page(101, {"object": "batch"}),
        {"total": 101},
        {"data": [mistral_job()]},
        {"data": {}, "total": 101},
        [],
    ),
    cursor="1:101",
    scope=(jobs_page(0), "mistral/api.mistral.ai"),
    refused=mistral_detail(401, "Invalid API Key"),
)  # fmt: skip

# --- xAI ------------------------------------------------------------------------------------------

RETENTION = {"x-zero-data-retention": "false"}
_ARGUMENT = "Client specified an invalid argument"


def xai_no(status: int, message: str = "no", code: str = _ARGUMENT, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"code": code, "error": message}, headers=RETENTION | named)


def xai_batch(**more: Any) -> dict[str, Any]:
    """Return a batch as REST was recorded to have it: no status, dates without a time."""
    return {
        "batch_id": "batch_1",
        "name": TOKEN,
        "create_time": "2026-11-21",
        "expire_time": "2026-12-21",
        "create_api_key_id": "k1",
        "cancel_time": None,
        "cancel_by_xai_message": None,
        "state": xai_counts(0),
        "input_file_id": "file-1",
    } | more


def xai_counts(total: int, pending: int = 0, success: int = 0, error: int = 0, cancelled: int = 0) -> dict[str, int]:
    return {
        "num_requests": total, "num_pending": pending, "num_success": success, "num_error": error,
        "num_cancelled": cancelled,
    }  # fmt: skip


_CANCELLING = xai_batch(cancel_time="2026-11-21", state=xai_counts(2, pending=2))
BAD_XAI_KEY = xai_no(400, "Incorrect API key provided: xa***56. You can obtain an API key from the console.")
XAI = Wire(
    name="xai",
    key_name="XAI_API_KEY",
    environ={"XAI_API_KEY": KEY},
    model="grok-4.3",
    endpoint=CHAT,
    batch_id="batch_1",
    batch=xai_batch,
    own=RETENTION,
    refusal=xai_no,
    nos=(
        (xai_no(400, "name is required"), ErrorClass.PERMANENT, _ARGUMENT, None),
        (xai_no(400, "Model grok-4.5 is not supported for batch processing."), ErrorClass.MODEL_GONE, _ARGUMENT, None),
        (BAD_XAI_KEY, ErrorClass.ACCESS, _ARGUMENT, None),
        (xai_no(402, "out of credits", "x"), ErrorClass.BILLING, "x", None),
        (xai_no(429, "rate limit", "x", retry_after="30"), ErrorClass.TRANSIENT, "x", 30),
    ),
    doubts=({"name": TOKEN}, {"id": "batch_1"}, xai_no(412), httpx.Response(400, json={"error": "a proxy's"})),
    gone=(xai_no(404, "The batch does not exist"),),
    others=(xai_batch(batch_id="batch_2"), {"error": "gone"}, {}),
    odd=st.fixed_dictionaries({"batch_id": st.just("batch_1")}, optional={name: ODD for name in (
        "name", "create_time", "expire_time", "cancel_time", "cancel_by_xai_message", "state", "input_file_id")}),
    path=b"/v1/batches/..%2Ffiles%3Fx%3D1%23y",
    late=tuple(map(xai_no, (400, 404, 409))),
    cancelling=((_CANCELLING,), BatchState.CANCELLING),
    lies=(
        {"batches": {}},
        {"batches": [{"name": TOKEN}]},
        {"batches": [None]},
        {"batches": [xai_batch()], "pagination_token": "same"},
        {"batches": [xai_batch()], "pagination_token": 3},
        {"error": "no"},
        [],
    ),
    cursor="same",
    scope=({}, "xai/api.x.ai"),
    refused=BAD_XAI_KEY,
    result_id="batch_1",
)  # fmt: skip

# --- Together -------------------------------------------------------------------------------------

RAY = {"cf-ray": "8f00-SIM"}


def together_no(status: int, error: Any = "no", headers: Any = None, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": error, **more}, headers=RAY if headers is None else headers)


BAD_KEY = {"message": "Invalid API key provided.", "code": "invalid_api_key"}
JOB = together.job()
TOGETHER = Wire(
    name="together",
    key_name="TOGETHER_API_KEY",
    environ={"TOGETHER_API_KEY": KEY},
    model=together.MODEL,
    endpoint=CHAT,
    batch_id=JOB["id"],
    batch=together.job,
    own=RAY,
    refusal=together_no,
    nos=(
        (together_no(400, "Invalid endpoint"), ErrorClass.PERMANENT, None, None),
        (together_no(400, "Invalid endpoint", {}, request_id="r-1"), ErrorClass.PERMANENT, None, None),
        (together_no(401, BAD_KEY), ErrorClass.ACCESS, "invalid_api_key", None),
        (together_no(402, "Insufficient credits"), ErrorClass.BILLING, None, None),
        (
            together_no(400, "Invalid model ID: Unable to access non-serverless model x"),
            ErrorClass.MODEL_GONE,
            None,
            None,
        ),
        (together_no(400, "Failed to download input file"), ErrorClass.TRANSIENT, None, None),
        (together_no(429, "Too many requests", RAY | {"retry-after": "30"}), ErrorClass.TRANSIENT, None, 30),
    ),
    # A 503 is what Together gives for an overloaded model: no document says that nothing was made.
    doubts=(
        together_no(400, "a proxy says so", {}),
        together_no(503, "overloaded"),
        {"job": {"status": "VALIDATING"}},
        [JOB],
        httpx.Response(403, text="error code: 1010", headers=RAY),
    ),
    gone=(together_no(404, "Job not found", request_id="r"),),
    others=(together.job(id="other"), {"error": "gone"}, {}, []),
    odd=has_id(
        JOB["id"], "status", "created_at", "job_deadline", "error", "output_file_id", "completed_at", "job", "metadata"
    ),
    path=b"/v1/batches/..%2Ffiles%3Fx%3D1%23y",
    late=tuple(together_no(status, "Cannot cancel job - already in terminal state") for status in (400, 404, 409)),
    cancelling=((together.job(status="CANCELING"),), BatchState.CANCELLING),
    lies=({"data": []}, {"data": [JOB], "has_more": False}, {}, None, [{"status": "X"}], [7]),
    cursor=None,
    scope=([JOB, together.job(id="b")], "together/api.together.ai/org-1/proj-1"),
    refused=together_no(401, BAD_KEY),
)

# --- Anthropic ------------------------------------------------------------------------------------

REQ = {"request-id": "req_1"}


def anthropic_no(
    status: int, kind: str = "invalid_request_error", message: str = "no", headers: Any = None, **more: Any
) -> httpx.Response:
    body = {"type": "error", "error": {"type": kind, "message": message} | more, "request_id": "req_1"}
    return httpx.Response(status, json=body, headers=REQ | (headers or {}))


def anthropic_batch(**more: Any) -> dict[str, Any]:
    counts = {"processing": 2, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    return {
        "id": "msgbatch_1",
        "type": "message_batch",
        "processing_status": "in_progress",
        "request_counts": counts,
        "created_at": "2026-11-21T10:00:00.123456+00:00",
        "expires_at": "2026-11-22T10:00:00.123456+00:00",
        "ended_at": None,
        "cancel_initiated_at": None,
        "archived_at": None,
        "results_url": None,
    } | more


def limited(code: str) -> httpx.Response:
    return anthropic_no(429, "rate_limit_error", details={"error_code": code})


_TOO_LONG = "requests.0.custom_id: String should have at most 64 characters"
ANTHROPIC = Wire(
    name="anthropic",
    key_name="ANTHROPIC_API_KEY",
    environ={"ANTHROPIC_API_KEY": KEY},
    model="claude-haiku-4-5",
    endpoint=registry.module("anthropic").DESCRIPTOR.endpoints[0],
    batch_id="msgbatch_1",
    batch=anthropic_batch,
    own=REQ,
    refusal=anthropic_no,
    nos=(
        (anthropic_no(400, message=_TOO_LONG), ErrorClass.PERMANENT, _INVALID, None),
        (anthropic_no(400, message="Your credit balance is too low to access the API"),
         ErrorClass.BILLING, _INVALID, None),
        (anthropic_no(400, message="You have reached your specified API usage limits."),
         ErrorClass.BILLING, _INVALID, None),
        (anthropic_no(400, message="You have reached your specified workspace API usage limits"),
         ErrorClass.BILLING, _INVALID, None),
        (anthropic_no(400, details={"error_code": "organization_on_hold"}),
         ErrorClass.ACCESS, "organization_on_hold", None),
        (anthropic_no(401, "authentication_error"), ErrorClass.ACCESS, "authentication_error", None),
        (anthropic_no(402, "billing_error"), ErrorClass.BILLING, "billing_error", None),
        (anthropic_no(403, "permission_error"), ErrorClass.ACCESS, "permission_error", None),
        (anthropic_no(413, "request_too_large"), ErrorClass.PERMANENT, "request_too_large", None),
        (anthropic_no(429, "rate_limit_error", headers={"retry-after": "30"}),
         ErrorClass.TRANSIENT, "rate_limit_error", 30),
        (limited("enforced_spend_limit_reached"), ErrorClass.BILLING, "enforced_spend_limit_reached", None),
        (limited("contract_spend_limit_reached"), ErrorClass.BILLING, "contract_spend_limit_reached", None),
        (limited("ramp_limit_exceeded"), ErrorClass.TRANSIENT, "ramp_limit_exceeded", None),
        (anthropic_no(529, "overloaded_error"), ErrorClass.TRANSIENT, "overloaded_error", None),
    ),
    doubts=({"type": "message_batch"},),
    gone=(anthropic_no(404, "not_found_error", "Message Batch msgbatch_1 not found."),),
    others=(anthropic_batch(id="msgbatch_2"), {"error": {"message": "gone"}}, {}),
    odd=has_id(
        "msgbatch_1", "processing_status", "created_at", "ended_at", "archived_at", "request_counts", "results_url"
    ),
    path=b"/v1/messages/batches/..%2Ffiles%3Fx%3D1%23y",
    late=tuple(map(anthropic_no, (400, 404, 409))),
    cancelling=((anthropic_batch(processing_status="canceling"),), BatchState.CANCELLING),
    lies=last_id_lies(anthropic_batch),
    cursor="batch_9",
    scope=({"data": [], "has_more": False}, "anthropic/api.anthropic.com/-/-"),
    refused=anthropic_no(401, "authentication_error", "API key is invalid."),
    never=("n_total", "input_file_id", "output_file_id"),
    input_file_id=None,
    result_id="msgbatch_1",
)  # fmt: skip

# --- Google ---------------------------------------------------------------------------------------

WORDS = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 408: "X", 409: "ABORTED",
         499: "CANCELLED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}  # fmt: skip


def google_no(status: int) -> httpx.Response:
    return gemini_script.refusal(status, WORDS[status])


_gno, _g = gemini_script.refusal, gemini_script
_FAILED = "FAILED_PRECONDITION"
_MANY = "RESOURCE_EXHAUSTED"
GOOGLE_DOUBTS: tuple[Any, ...] = (
    *map(google_no, (408, 499, 503)),
    _gno(400, "INVALID_ARGUMENT", http=502),
    _gno(400, "INVALID_ARGUMENT", http=401),
    _gno(429, _MANY, http=400),
    httpx.Response(403, json={"error": {"message": "blocked by the proxy", "code": 403}}),
    httpx.Response(404, html="<html>"),
    {"metadata": {}},
    {"displayName": TOKEN},
    {"name": ""},
    [],
)


def operations(*names: str, **more: Any) -> dict[str, Any]:
    return {"operations": [_g.operation(name=f"batches/{name}") for name in names], **more}


GEMINI = Wire(
    name="gemini",
    key_name="GEMINI_API_KEY",
    environ={"GEMINI_API_KEY": KEY},
    model="gemini-2.5-flash",
    endpoint="generateContent",
    batch_id="batches/b1",
    batch=_g.operation,
    own={},
    refusal=google_no,
    nos=(
        (_gno(400, "INVALID_ARGUMENT", "line 3 is malformed"), ErrorClass.PERMANENT, "INVALID_ARGUMENT", None),
        (_gno(400, _FAILED, _g.LOCATION), ErrorClass.ACCESS, _FAILED, None),
        (_gno(400, _FAILED, _g.FREE_TIER), ErrorClass.BILLING, _FAILED, None),
        (_g.BAD_KEY, ErrorClass.ACCESS, "INVALID_ARGUMENT", None),
        (_gno(401, "UNAUTHENTICATED"), ErrorClass.ACCESS, "UNAUTHENTICATED", None),
        (_gno(403, "PERMISSION_DENIED"), ErrorClass.ACCESS, "PERMISSION_DENIED", None),
        (_gno(403, "PERMISSION_DENIED", _g.NOT_THERE), ErrorClass.PERMANENT, "PERMISSION_DENIED", None),
        (_gno(400, _FAILED, _g.NOT_READY), ErrorClass.TRANSIENT, _FAILED, None),
        (_gno(404, "NOT_FOUND", _g.NO_MODEL), ErrorClass.MODEL_GONE, "NOT_FOUND", None),
        (_gno(404, "NOT_FOUND"), ErrorClass.MODEL_GONE, "NOT_FOUND", None),
        (_gno(404, "NOT_FOUND", "File files/in1 was not found"), ErrorClass.PERMANENT, "NOT_FOUND", None),
        (_gno(429, _MANY, _g.QUOTA, _g.RETRY), ErrorClass.TRANSIENT, _MANY, 34.0),
        (_gno(429, _MANY, _g.PREPAID), ErrorClass.BILLING, _MANY, None),
    ),
    doubts=GOOGLE_DOUBTS,
    gone=(google_no(404), _gno(403, "PERMISSION_DENIED", _g.NOT_THERE)),
    others=(_g.operation(name="batches/b2"), {"error": {"message": "gone"}}, {}),
    odd=st.builds(
        lambda metadata, more: {"name": "batches/b1", "metadata": metadata} | more,
        st.fixed_dictionaries({}, optional={name: ODD for name in (
            "state", "createTime", "endTime", "batchStats", "inputConfig", "displayName", "output")}),
        st.fixed_dictionaries({}, optional={name: ODD for name in ("done", "error", "response")}),
    ),
    path=b"/v1beta/batches/..%2Ffiles%3Fx%3D1%23y",
    late=(_gno(400, _FAILED), *map(google_no, (404, 409))),
    cancelling=(({}, _g.operation("BATCH_STATE_CANCELLED")), BatchState.CANCELLED),
    lies=(
        operations("b1", nextPageToken="t9"),
        operations("b1", nextPageToken=7),
        {"operations": None},
        {"operations": {}},
        {"operations": [{"metadata": {}}]},
        {"operations": [None]},
        {"error": {"message": "m"}},
        [],
    ),
    cursor="t9",
    scope=({}, "gemini/generativelanguage.googleapis.com/-"),
    refused=_g.BAD_KEY,
    never=("output_file_id",),
    input_file_id="files/in1",
    result_id="files/in1",
)  # fmt: skip

_v = vertex_script
_NO_ROLE = "Permission 'aiplatform.batchPredictionJobs.create' denied on resource '//aiplatform.googleapis.com/x'"
VERTEX = Wire(
    name="vertex",
    key_name=_v.TOKEN_ENV,
    environ=_v.ENVIRON | {_v.TOKEN_ENV: KEY},
    model="gemini-2.5-flash",
    endpoint="generateContent",
    batch_id=_v.NAME,
    batch=_v.job,
    own={},
    refusal=google_no,
    nos=(
        (_gno(403, "PERMISSION_DENIED", f"{_NO_ROLE} (or it may not exist)."),
         ErrorClass.ACCESS, "PERMISSION_DENIED", None),
        (_gno(404, "NOT_FOUND", "The PublisherModel x does not exist."), ErrorClass.MODEL_GONE, "NOT_FOUND", None),
        (_gno(429, _MANY, "Resource exhausted. Please try again later."), ErrorClass.TRANSIENT, _MANY, None),
        (_gno(400, "INVALID_ARGUMENT", "bad label"), ErrorClass.PERMANENT, "INVALID_ARGUMENT", None),
        (_gno(401, "UNAUTHENTICATED", "token"), ErrorClass.ACCESS, "UNAUTHENTICATED", None),
    ),
    doubts=GOOGLE_DOUBTS,
    gone=(google_no(404),),
    others=(_v.job(name=_v.NAME.replace("7890", "1")), {"error": {"message": "gone"}}, {}),
    odd=st.fixed_dictionaries({"name": st.just(_v.NAME)}, optional={name: ODD for name in (
        "state", "createTime", "endTime", "completionStats", "inputConfig", "outputInfo", "labels", "error")}),
    path=None,
    late=(_gno(400, _FAILED), *map(google_no, (404, 409))),
    cancelling=(({}, _v.job("CANCELLING")), BatchState.CANCELLING),
    lies=(
        {"batchPredictionJobs": {}},
        {"error": {"message": "no"}},
        {"batchPredictionJobs": [{"displayName": "x"}]},
        {"nextPageToken": "same"},
        {"batchPredictionJobs": [_v.job()], "nextPageToken": 3},
        [],
    ),
    cursor="same",
    scope=({}, "vertex/us-central1-aiplatform.googleapis.com/my-project/us-central1"),
    refused=_gno(401, "UNAUTHENTICATED", "token"),
    never=(),
    input_file_id=_v.INPUT,
    result_id=_v.INPUT,
)  # fmt: skip

WIRES = (OPENAI, ANTHROPIC, GEMINI, VERTEX, TOGETHER, GROQ, MISTRAL, XAI)


def hurdle(wire: Wire) -> list[Any]:
    """Return every answer to a create that is neither a clear yes nor a clear no."""
    words = [kind("x") for kind in HARD]
    foreign = [
        httpx.Response(200, html="<html>"),
        httpx.Response(307, headers={"location": EVIL}),
        httpx.Response(400, json={"error": {"message": "no", "type": "invalid_request_error"}}),
        httpx.Response(403, text="a proxy"),
        httpx.Response(429, text="slow down"),
        httpx.Response(200, content=json.dumps(wire.batch()).encode()[:-9]),
    ]
    bodies = [each if isinstance(each, httpx.Response) else wire.ok(each) for each in wire.doubts]
    return [*words, *foreign, *map(wire.refusal, (409, 500, 504)), *bodies]
