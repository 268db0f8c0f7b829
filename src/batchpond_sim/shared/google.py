"""What all APIs of Google's kind share: errors of google.rpc, times, and listings by page token.

`pageSize` and `pageToken` go in, `nextPageToken` comes out; members are left out when empty.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from batchpond_sim.host.messages import Reply, Request
from batchpond_sim.shared.api import Page, PageError, is_looping, page_at
from batchpond_sim.shared.rows import dump_row
from batchpond_sim.world.faults import Call

_FIRST = "-"
RPC = "type.googleapis.com/google.rpc"
_CONTENT_TYPE = "application/json; charset=UTF-8"
_STATUS_WORDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
BILLING_TEXT = "Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing."
_QUOTA_TEXT = (
    "You exceeded your current quota, please check your plan and billing details. "
    "For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)
_TEXTS: Mapping[int, str] = {
    400: "Request contains an invalid argument.",
    401: "Request had invalid authentication credentials.",
    403: "The caller does not have permission",
    404: "Requested entity was not found.",
    409: "The operation was aborted.",
    429: "Resource has been exhausted (e.g. check quota).",
    500: "An internal error has occurred. Please retry or report the problem.",
    503: "The model is overloaded. Please try again later.",
    504: "The request timed out. Please try again.",
}


@dataclass(frozen=True, slots=True)
class Paging:
    """How long a listing's pages are, and what the parameter is called that says so."""

    size_name: str
    size_default: int
    size_max: int


def page_of(ids: Sequence[str], request: Request, call: Call, paging: Paging) -> Page:
    """Return the page that a request asks for; raises PageError for a wrong size or token."""
    text = request.query.get(paging.size_name) or str(paging.size_default)
    if not text.isdigit():
        raise PageError(400, "page_size must not be negative", paging.size_name)
    start = 0
    token = request.query.get("pageToken")
    if token and not is_looping(call):
        start = _start_of(token, ids)
    return page_at(ids, start, min(int(text) or paging.size_default, paging.size_max), call)


def _start_of(token: str, ids: Sequence[str]) -> int:
    try:
        after = base64.urlsafe_b64decode(token.encode("ascii")).decode("utf-8")
    except (binascii.Error, UnicodeError):
        after = ""
    if after == _FIRST:
        return 0
    if after not in ids:
        raise PageError(400, "page_token is invalid", "pageToken")
    return ids.index(after) + 1


def listing_of(name: str, page: Page, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the body that shows a page."""
    body: dict[str, Any] = {name: rows} if rows else {}
    if page.has_more:
        last = page.ids[-1] if page.ids else _FIRST
        body["nextPageToken"] = base64.urlsafe_b64encode(last.encode("utf-8")).decode("ascii")
    return body


def rpc_error(status: int, message: str, details: list[dict[str, Any]] | None = None, word: str = "") -> dict[str, Any]:
    """Return Google's error object: code, message, status word and details."""
    error: dict[str, Any] = {"code": status, "message": message, "status": word or _STATUS_WORDS.get(status, "UNKNOWN")}
    return {**error, "details": details} if details else error


def reply(status: int, body: dict[str, Any], *headers: tuple[str, str]) -> Reply:
    """Return a JSON answer."""
    return Reply(status, (("content-type", _CONTENT_TYPE), *headers), dump_row(body))


def error_reply(status: int, message: str = "", word: str = "", details: list[dict[str, Any]] | None = None) -> Reply:
    """Return an API error; the message and the status word are the usual ones of the HTTP status unless given."""
    return reply(status, {"error": rpc_error(status, message or _TEXTS.get(status, "Unknown error."), details, word)})


def fault_reply(status: int, kind: str) -> Reply:
    """Return the API error that a fault of `kind` asks for."""
    match kind:
        case "billing":
            return error_reply(status, BILLING_TEXT)
        case "retry_after":
            return quota_reply("models", 34)
        case "file_not_ready":
            text = "The File is not in an ACTIVE state and usage is not allowed."
            return error_reply(400, text, "FAILED_PRECONDITION")
        case _:
            return error_reply(status)


def quota_reply(
    model: str,
    retry_s: float,
    metric: str = "batch_enqueued_tokens",
    quota_id: str = "BatchEnqueuedTokensPerModelPerProject",
    more: Mapping[str, str] | None = None,
) -> Reply:
    """Return the 429 of a full queue, or of another quota; `more` is what else its violation tells."""
    violation = {
        "quotaMetric": f"generativelanguage.googleapis.com/{metric}",
        "quotaId": quota_id,
        "quotaDimensions": {"model": model, "location": "global"},
        **(more or {}),
    }
    details: list[dict[str, Any]] = [
        {"@type": f"{RPC}.QuotaFailure", "violations": [violation]},
        {"@type": f"{RPC}.RetryInfo", "retryDelay": f"{retry_s:.9g}s"},
    ]
    return error_reply(429, _QUOTA_TEXT, details=details)


def timestamp(seconds: float) -> str:
    """Return a time as proto3 JSON has it: RFC 3339 with 0, 3, 6 or 9 digits after the second."""
    whole, nanos = divmod(int(seconds * 1e9), 1_000_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}Z" if digits else f"{text}Z"
