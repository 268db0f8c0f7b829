"""Reading OpenAI batch result lines: total, so that any bytes give a Response and none an exception.

Row shapes: `{id, custom_id, response: {status_code, request_id, body} | null, error: {code,
message} | null}` (OpenAI's batch guide); a row that failed over HTTP keeps `error` null and has
the error in `response.body.error` (openai-openapi#302).
"""

from __future__ import annotations

from typing import Any, Final

from batchpond import fields
from batchpond.api_errors import ApiError, classify, read_error
from batchpond.model import FileRole, Finish, Response, ResponseStatus
from batchpond.providers.common_lines import PARTS_MAX, failed, load_row, unreadable

_FINISH: Final = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "content_filter": Finish.BLOCKED,
}
_INCOMPLETE: Final = {
    "max_output_tokens": Finish.LENGTH,
    "content_filter": Finish.BLOCKED,
}


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001  # error rows may be in either file
    """Return one line of an output or error file made uniform.

    A line that is no JSON object, or that names two custom_ids, is UNREADABLE; see `load_row`.
    """
    row = load_row(line)
    return unreadable(None, row) if isinstance(row, str) else _row(row)


# --- rows -----------------------------------------------------------------------------------------


def _row(row: dict[str, Any]) -> Response:
    custom_id = fields.identifier(row.get("custom_id"))
    answer, error = row.get("response"), row.get("error")
    if isinstance(error, dict) and not (isinstance(answer, dict) and _is_blank(error)):
        status_code = _status_code(fields.mapping(answer).get("status_code"))
        return failed(custom_id, status_code, read_error(error), _request_id(fields.mapping(answer)))
    if isinstance(error, str) and error:
        return failed(custom_id, None, ApiError(error), None)
    if not isinstance(answer, dict):
        return unreadable(custom_id, "the row has neither a response nor an error")
    return _answered(custom_id, answer)


def _answered(custom_id: str | None, answer: dict[str, Any]) -> Response:
    body, request_id = answer.get("body"), _request_id(answer)
    status_code = _status_code(answer.get("status_code"))
    is_silent = answer.get("status_code") is None  # some compatible servers leave the status out
    if is_silent and isinstance(body, dict) and ("choices" in body or "output" in body):
        return _succeeded(custom_id, None, body, request_id)
    if status_code is None or not 200 <= status_code <= 299:
        problem = _error_of(body)
        error_class = classify(status_code or 0, problem)
        return failed(custom_id, status_code, problem, request_id, error_class=error_class)
    if not isinstance(body, dict):
        return unreadable(custom_id, "the response has no body", status_code)
    return _succeeded(custom_id, status_code, body, request_id)


def _is_blank(error: dict[str, Any]) -> bool:
    return not error.get("code") and not error.get("message")


def _error_of(body: object) -> ApiError:
    if isinstance(body, str):
        return ApiError(body[:1000])
    error = fields.mapping(body).get("error")
    if isinstance(error, dict):
        return read_error(error)
    return ApiError(error[:1000] if isinstance(error, str) else "the provider gave no error text")


def _request_id(answer: dict[str, Any]) -> str | None:
    return fields.identifier(answer.get("request_id"))


def _status_code(value: object) -> int | None:
    number = fields.count(value)
    return number if number is not None and number <= 999 else None


def _succeeded(
    custom_id: str | None, status_code: int | None, body: dict[str, Any], request_id: str | None
) -> Response:
    error = body.get("error")
    if isinstance(error, dict) and not _is_blank(error):
        return failed(custom_id, status_code, read_error(error), request_id)
    if body.get("object") == "response" or ("output" in body and "choices" not in body):
        return _responses(custom_id, status_code, body, request_id)
    return _chat(custom_id, status_code, body, request_id)


# --- /v1/chat/completions -------------------------------------------------------------------------


def _chat(custom_id: str | None, status_code: int | None, body: dict[str, Any], request_id: str | None) -> Response:
    choices = body.get("choices")
    choice = fields.mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = fields.mapping(choice.get("message"))
    text, refusal = _content(message.get("content"))
    refusal = fields.identifier(message.get("refusal")) or refusal
    reason = fields.word(choice.get("finish_reason"))
    tokens = _usage(body.get("usage"))
    return Response(
        custom_id,
        ResponseStatus.SUCCEEDED,
        status_code,
        fields.text(body.get("model")),
        reason,
        _finish(reason, text, refusal) if choice else None,
        text,
        fields.identifier(message.get("reasoning_content")) or fields.identifier(message.get("reasoning")),
        refusal,
        *tokens,
        provider_request_id=request_id,
    )


def _finish(reason: str | None, text: str | None, refusal: str | None) -> Finish:
    finish = _FINISH.get(reason, Finish.OTHER) if reason else Finish.OTHER
    return Finish.REFUSAL if refusal and not text and finish in (Finish.STOP, Finish.OTHER) else finish


def _content(content: object) -> tuple[str | None, str | None]:
    """Return text and refusal of a message's content: a string, or a list of parts."""
    if not isinstance(content, list):
        return fields.text(content), None
    texts: list[str] = []
    refusals: list[str] = []
    for part in content[:PARTS_MAX]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            _gather(part, texts, refusals)
    return "".join(texts), "".join(refusals) or None


def _gather(part: dict[str, Any], texts: list[str], refusals: list[str]) -> None:
    if part.get("type") == "refusal":
        refusals.append(fields.text(part.get("refusal")) or "")
    elif isinstance(part.get("text"), str):
        texts.append(part["text"])


# --- /v1/responses --------------------------------------------------------------------------------


def _responses(
    custom_id: str | None, status_code: int | None, body: dict[str, Any], request_id: str | None
) -> Response:
    status = fields.word(body.get("status"))
    match status:
        case "failed":
            return failed(custom_id, status_code, ApiError("the response failed without an error text"), request_id)
        case "cancelled" | "canceled":
            return failed(custom_id, status_code, ApiError("the response was cancelled", "batch_cancelled"), request_id)
        case "in_progress" | "queued":
            return failed(custom_id, status_code, ApiError(f"the response is {status}", "server_error"), request_id)
        case _:
            pass
    text, thoughts, refusal = _output(body.get("output"))
    reason = fields.word(fields.mapping(body.get("incomplete_details")).get("reason")) or status
    return Response(
        custom_id,
        ResponseStatus.SUCCEEDED,
        status_code,
        fields.text(body.get("model")),
        reason,
        _responses_finish(status, reason, text, refusal),
        text,
        thoughts,
        refusal,
        *_usage(body.get("usage")),
        provider_request_id=request_id,
    )


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
                text, refusal = _content(item.get("content"))
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


# --- usage ----------------------------------------------------------------------------------------


def _usage(usage: object) -> tuple[int | None, int | None, int | None, int | None]:
    """Return input, output, reasoning and cached tokens, in chat's or responses' spelling."""
    if not isinstance(usage, dict):
        return None, None, None, None
    is_chat = "prompt_tokens" in usage or "completion_tokens" in usage
    given, made = ("prompt_tokens", "completion_tokens") if is_chat else ("input_tokens", "output_tokens")
    return (
        fields.count(usage.get(given)),
        fields.count(usage.get(made)),
        fields.count(fields.mapping(usage.get(f"{made}_details")).get("reasoning_tokens")),
        fields.count(fields.mapping(usage.get(f"{given}_details")).get("cached_tokens")),
    )
