"""The line that a live call leaves in `raw`: what came back, exactly, and whose answer it is.

A call has no result file of a provider's, so batchpond writes one of its own, a JSON object a line:

    {"custom_id":"...","asked_at":"...","answered_at":"...","n_tries":1,"status_code":200,
     "request_id":"req_...","body":"the answer's bytes as text"}

`body_base64` stands in for `body` where the bytes are not UTF-8. A call that was given up has
`failure` (`reason`, `message`) in place of a status and a body.
"""

from __future__ import annotations

import base64
import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from batchpond import fields
from batchpond.model import ErrorClass, Response, ResponseStatus
from batchpond.providers.base import Answered
from batchpond.providers.shared.dialect import Dialect
from batchpond.providers.shared.lines import unreadable
from batchpond.text import redact

_MESSAGE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request was given up without a final answer."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CallRecord:
    """When one request was last asked, and how often in all; the first keys of its line."""

    custom_id: str
    asked_at: datetime
    answered_at: datetime
    n_tries: int


def line_of(call: CallRecord, outcome: Answered | Failure) -> bytes:
    """Return a call's line, without its line feed."""
    found: dict[str, Any] = dataclasses.asdict(call)
    match outcome:
        case Answered():
            found["status_code"] = outcome.status_code
            found["request_id"] = outcome.provider_request_id
            found |= _body(outcome.body)
        case Failure():
            found["failure"] = {"reason": outcome.reason, "message": redact(outcome.message)[:_MESSAGE_CHARS]}
    return orjson.dumps(found, option=orjson.OPT_UTC_Z)


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def read_line(module: Dialect, line: bytes) -> Response:
    """Return a live call's line made uniform; total: any bytes give a Response."""
    found = fields.json_object(line)
    custom_id = fields.identifier(found.get("custom_id"))
    failure = fields.mapping(found.get("failure"))
    if failure:
        return Response(
            custom_id,
            ResponseStatus.ERRORED,
            error_class=ErrorClass.TRANSIENT,
            error_code=fields.text(failure.get("reason")),
            error_message=fields.text(failure.get("message")),
        )
    body, status_code = _bytes_of(found), found.get("status_code")
    if custom_id is None or body is None or not isinstance(status_code, int):
        return unreadable(custom_id, "not a line of a live call")
    answer = module.read_answer(status_code, body)
    request_id = answer.provider_request_id or fields.text(found.get("request_id"))
    return answer._replace(custom_id=custom_id, provider_request_id=request_id)


def _bytes_of(found: dict[str, Any]) -> bytes | None:
    if isinstance(text := found.get("body"), str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(coded := found.get("body_base64"), str):
        try:
            return base64.b64decode(coded, validate=True)
        except ValueError:
            return None
    return None
