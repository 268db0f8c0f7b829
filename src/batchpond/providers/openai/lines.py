"""Reading OpenAI's result lines and live answers: total, so that any bytes give a Response and none an exception.

What is of chat completions is in `shared/lines.py`; here is /v1/responses.
"""

from __future__ import annotations

from typing import Any, Final

from batchpond import fields
from batchpond.model import FileRole, Finish, Response
from batchpond.providers.http.errors import ApiError
from batchpond.providers.shared import lines
from batchpond.providers.shared.lines import PARTS_MAX, Row, answered, content_of, failed, usage_of

_INCOMPLETE: Final = {
    "max_output_tokens": Finish.LENGTH,
    "content_filter": Finish.BLOCKED,
}
_NOT_ANSWERED: Final = {
    "failed": ApiError("the response failed without an error text"),
    "cancelled": ApiError("the response was cancelled", "batch_cancelled"),
    "canceled": ApiError("the response was cancelled", "batch_cancelled"),
    "in_progress": ApiError("the response is in_progress", "server_error"),
    "queued": ApiError("the response is queued", "server_error"),
}


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001  # error rows may be in either file
    """Return one line of an output or error file made uniform."""
    return lines.read_line(line, _read_body)


def read_answer(status_code: int, body: bytes) -> Response:
    """Return a live call's whole answer made uniform."""
    return lines.read_answer(status_code, body, _read_body)


def _read_body(row: Row, body: dict[str, Any]) -> Response:
    if body.get("object") == "response" or ("output" in body and "choices" not in body):
        return _responses(row, body)
    return lines.read_chat(row, body)


# --- /v1/responses --------------------------------------------------------------------------------


def _responses(row: Row, body: dict[str, Any]) -> Response:
    status = fields.word(body.get("status"))
    if status in _NOT_ANSWERED:
        return failed(row, _NOT_ANSWERED[status])
    text, thoughts, refusal = _output(body.get("output"))
    reason = fields.word(fields.mapping(body.get("incomplete_details")).get("reason")) or status
    finish = _responses_finish(status, reason, text, refusal)
    return answered(row, body.get("model"), reason, finish, (text, thoughts, refusal), usage_of(body.get("usage")))


def _responses_finish(status: str | None, reason: str | None, text: str | None, refusal: str | None) -> Finish:
    if status == "incomplete":
        return _INCOMPLETE.get(reason or "", Finish.OTHER)
    if refusal and not text:
        return Finish.REFUSAL
    return Finish.STOP if status == "completed" else Finish.OTHER


def _output(output: object) -> tuple[str | None, str | None, str | None]:
    """Return text, thoughts and refusal of the output items; text is None without any message."""
    texts: list[str] = []
    thoughts: list[str] = []
    refusals: list[str] = []
    has_message = False
    for item in fields.sequence(output, PARTS_MAX):
        match fields.mapping(item).get("type"):
            case "message":
                has_message = True
                text, refusal = content_of(item.get("content"))
                texts.append(text or "")
                refusals.append(refusal or "")
            case "reasoning":
                thoughts.extend(_reasoning(item))
    return "".join(texts) if has_message else None, "\n\n".join(thoughts) or None, "".join(refusals) or None


def _reasoning(item: dict[str, Any]) -> list[str]:
    for name in ("summary", "content"):
        parts = (fields.text(fields.mapping(part).get("text")) for part in fields.sequence(item.get(name), PARTS_MAX))
        if texts := [part for part in parts if part]:
            return texts
    return []
