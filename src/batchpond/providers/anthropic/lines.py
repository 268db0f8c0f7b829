"""Reading Anthropic result lines: total, so that any bytes give a Response and none an exception.

Row shapes: `{custom_id, result: {type: succeeded, message} | {type: errored, error: {type: error,
error: {type, message, details}, request_id}} | {type: canceled} | {type: expired}}`
(anthropic 2.11 `types/messages/message_batch_individual_response.py` and its siblings).
"""

from __future__ import annotations

from typing import Any, Final

from batchpond import fields
from batchpond.model import ErrorClass, FileRole, Finish, Response
from batchpond.providers.http.errors import ApiError, classify, read_error
from batchpond.providers.shared import known
from batchpond.providers.shared.lines import PARTS_MAX, Row, Tokens, answered, failed, load_row, success_of, unreadable

_FINISH: Final = known.by_word("anthropic", "finish", Finish)
_NOT_RUN: Final = {
    "canceled": (ErrorClass.CANCELLED, "the batch was cancelled before this request ran"),
    "cancelled": (ErrorClass.CANCELLED, "the batch was cancelled before this request ran"),
    "expired": (ErrorClass.EXPIRED, "the batch expired before this request ran"),
}


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001  # all rows are in one stream
    """Return one line of a batch's results made uniform.

    A line that is no JSON object, or that names two custom_ids, is UNREADABLE; see `load_row`.
    """
    row = load_row(line)
    if isinstance(row, str):
        return unreadable(None, row)
    custom_id = fields.identifier(row.get("custom_id"))
    result = fields.mapping(row.get("result"))
    kind = fields.text(result.get("type"))
    if kind in _NOT_RUN:
        error_class, reason = _NOT_RUN[kind]
        return failed(Row(custom_id), ApiError(reason, kind), error_class)
    if kind == "errored":
        return _errored(custom_id, result.get("error"))
    if kind != "succeeded":
        return unreadable(custom_id, f"the row's result is of an unknown type: {kind[:100] if kind else kind}")
    message = result.get("message")
    if not isinstance(message, dict):
        return unreadable(custom_id, "the row succeeded but has no message")
    return _answered(custom_id, None, message)


def read_answer(status_code: int, body: bytes) -> Response:
    """Return a live call's whole answer made uniform."""
    found = success_of(status_code, body)
    if isinstance(found, Response):
        return found
    if not isinstance(found.get("content"), list | str):
        return unreadable(None, "the answer has no content", status_code)
    return _answered(None, status_code, found)


def error_class_of_row(error: ApiError) -> ErrorClass:
    """Return what a row's error means: one request's trouble says little about the whole account.

    A model that is not there is a 404 whose message begins with `model:`.
    """
    if error.kind == "not_found_error" and error.message.startswith("model:"):
        return ErrorClass.MODEL_GONE
    found = classify(None, error)
    is_clear = found is not ErrorClass.ACCESS or error.kind == "authentication_error"
    return found if is_clear else ErrorClass.PERMANENT


def _errored(custom_id: str | None, envelope: object) -> Response:
    outer = fields.mapping(envelope)
    inner = outer.get("error") if isinstance(outer.get("error"), dict) else outer
    error = read_error(fields.mapping(inner))
    if not error.message and error.kind is None:
        error = ApiError("the provider gave no error text")
    row = Row(custom_id, None, fields.identifier(outer.get("request_id")))
    return failed(row, error, error_class_of_row(error))


def _answered(custom_id: str | None, status_code: int | None, message: dict[str, Any]) -> Response:
    text, thoughts = _content(message.get("content"))
    reason = fields.word(message.get("stop_reason"))
    finish = _FINISH.get(reason, Finish.OTHER) if reason else Finish.OTHER
    refusal = _refusal(message.get("stop_details")) if finish is Finish.REFUSAL else None
    row = Row(custom_id, status_code, fields.identifier(message.get("id")))
    texts, tokens = (text, thoughts, refusal), _usage(fields.mapping(message.get("usage")))
    return answered(row, message.get("model"), reason, finish, texts, tokens)


def _content(content: object) -> tuple[str | None, str | None]:
    """Return text and thoughts; text is None without any text block, redacted thoughts are left out."""
    if isinstance(content, str):
        return content, None
    texts: list[str] = []
    thoughts: list[str] = []
    for block in map(fields.mapping, fields.sequence(content, PARTS_MAX)):
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                texts.append(block["text"])
            case "thinking" if fields.identifier(block.get("thinking")):
                thoughts.append(block["thinking"])
            case _:
                pass
    return "".join(texts) if texts else None, "\n\n".join(thoughts) or None


def _refusal(details: object) -> str | None:
    """Return why the model refused: the category and the explanation, each of which may be absent."""
    found = fields.mapping(details)
    parts = (fields.identifier(found.get(name)) for name in ("category", "explanation"))
    return ": ".join(part for part in parts if part) or None


def _usage(usage: dict[str, Any]) -> Tokens:
    """Return the counts; Anthropic's `input_tokens` leaves out what the cache read and wrote of the prompt."""
    fresh, made = fields.count(usage.get("input_tokens")), fields.count(usage.get("output_tokens"))
    read = fields.count(usage.get("cache_read_input_tokens"))
    written = fields.count(usage.get("cache_creation_input_tokens"))
    total = None if fresh is None else fields.count(fresh + (written or 0) + (read or 0))
    reasoning = fields.count(fields.mapping(usage.get("output_tokens_details")).get("thinking_tokens"))
    return total, made, reasoning, read, written
