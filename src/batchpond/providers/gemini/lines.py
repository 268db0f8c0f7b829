"""Reading Gemini batch result lines: total, so that any bytes give a Response and none an exception.

Row shapes: `{key, response: GenerateContentResponse}` or `{key, error: {code, message, details}}` (google-genai
3.4 `types.py` InlinedResponse, recorded traffic of 2026); Google's documents also call the error `status`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from batchpond import fields
from batchpond.model import ErrorClass, FileRole, Finish, Response
from batchpond.providers.http.errors import ApiError, classify, read_error
from batchpond.providers.shared import known
from batchpond.providers.shared.lines import (
    NO_TOKENS,
    PARTS_MAX,
    Row,
    Tokens,
    answered,
    failed,
    load_row,
    success_of,
    unreadable,
)

_RPC: Final = {int(code): tuple(row) for code, row in known.table("gemini", "rpc").items()}
_WORDS: Final = {int(status): word for status, word in known.table("gemini", "words").items()}
_CLEARLY_ACCESS: Final = frozenset({"UNAUTHENTICATED", "API_KEY_INVALID"})
_FINISH: Final = known.by_word("gemini", "finish", Finish)


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001  # there is one file
    """Return one line of a result file made uniform.

    Lone surrogates and invalid UTF-8 become U+FFFD, NaN and infinities become null; a line that is
    no JSON object, or that names two keys, is UNREADABLE. A prompt that was blocked has succeeded
    and is BLOCKED. The first of several candidates is read; thought signatures are not.
    """
    row = load_row(line, "key")
    if isinstance(row, str):
        return unreadable(None, row)
    return read_result(fields.identifier(row.get("key")), row.get("response"), row.get("error"), row.get("status"))


def read_answer(status_code: int, body: bytes) -> Response:
    """Return a live call's whole answer made uniform."""
    found = success_of(status_code, body)
    if isinstance(found, Response):
        return found
    if not {"candidates", "promptFeedback", "usageMetadata"} & found.keys():
        return unreadable(None, "the answer has no candidates", status_code)
    return _answered(None, status_code, found)


def read_result(key: str | None, answer: object, *errors: object) -> Response:
    """Return what a row says made uniform: the first of `errors` that says something, else its answer."""
    for error in (*errors, fields.mapping(answer).get("error")):
        if not is_blank(error):
            return _failed(key, error)
    if not isinstance(answer, dict):
        return unreadable(key, "the row has neither a response nor an error")
    return _answered(key, None, answer)


# --- errors ---------------------------------------------------------------------------------------


def is_blank(error: object) -> bool:
    """Return whether a google.rpc.Status says nothing: absent, empty, or code 0 without a message."""
    if isinstance(error, dict):
        return not error.get("code") and not error.get("message")
    return not isinstance(error, str) or not error


def read_status(error: object) -> tuple[int | None, ApiError]:
    """Return the HTTP status and error of a google.rpc.Status, whose code may be of either kind."""
    if not isinstance(error, dict):
        return None, ApiError((fields.text(error) or "")[:1000])
    read = read_error(error)
    number = fields.count(error.get("code"))
    status_code, name = _RPC.get(number or 0, (number, _WORDS.get(number or 0)))
    if status_code is not None and not 100 <= status_code <= 999:
        status_code = None
    return status_code, dataclasses.replace(read, code=fields.identifier(error.get("status")) or name or read.code)


def _failed(key: str | None, error: object) -> Response:
    status_code, read = read_status(error)
    error_class = classify(status_code, read)
    if read.code == "CANCELLED":
        error_class = ErrorClass.CANCELLED
    elif error_class is ErrorClass.ACCESS and not {read.code, read.kind} & _CLEARLY_ACCESS:
        error_class = ErrorClass.PERMANENT  # one row's permission says nothing about the key
    return failed(Row(key, status_code), read, error_class)


# --- answers --------------------------------------------------------------------------------------


def _answered(key: str | None, status_code: int | None, answer: dict[str, Any]) -> Response:
    candidates = fields.sequence(answer.get("candidates"), 1)
    candidate = fields.mapping(candidates[0]) if candidates else {}
    reason = fields.word(candidate.get("finishReason"))
    finish = _FINISH.get(reason or "", Finish.OTHER) if candidate else None
    blocked = fields.word(fields.mapping(answer.get("promptFeedback")).get("blockReason"))
    if not candidate and blocked:
        reason, finish = blocked, Finish.BLOCKED
    row = Row(key, status_code, fields.identifier(answer.get("responseId")))
    texts, tokens = _content(candidate.get("content")), _usage(answer.get("usageMetadata"))
    return answered(row, answer.get("modelVersion"), reason, finish, (*texts, None), tokens)


def _content(content: object) -> tuple[str | None, str | None]:
    """Return text and thoughts of a candidate's parts; text is None without any text part."""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in fields.sequence(fields.mapping(content).get("parts"), PARTS_MAX):
        text = fields.text(fields.mapping(part).get("text"))
        if text is not None:
            (thoughts if part.get("thought") is True else texts).append(text)
    return "".join(texts) if texts else None, "\n\n".join(filter(None, thoughts)) or None


def _usage(usage: object) -> Tokens:
    """Return input, output, reasoning and cached tokens.

    Google leaves out what is zero, so an absent count beside others is 0. Input is the prompt, cached tokens
    included, and what tools put into it; output is candidates and thoughts, which are counted apart.
    """
    if not isinstance(usage, dict) or not {"promptTokenCount", "totalTokenCount"} & usage.keys():
        return NO_TOKENS
    prompt = fields.count(usage.get("promptTokenCount"))
    tools = fields.count(usage.get("toolUsePromptTokenCount", 0))
    answer = fields.count(usage.get("candidatesTokenCount", 0))
    thoughts = fields.count(usage.get("thoughtsTokenCount", 0))
    cached = fields.count(usage.get("cachedContentTokenCount", 0))
    return _sum(prompt, tools), _sum(answer, thoughts), thoughts, cached, None


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else fields.count(a + b)
