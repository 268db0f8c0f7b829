"""Well-formed lines, read at once: a shape of what is looked at, decoded from the bytes without all else.

A shape takes nothing that the general reader of its dialect would read otherwise; a line that does not fit, or that is
no success, is left to that one. A test holds the two against each other over mangled lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from msgspec import DecodeError, Meta, Struct, json

from batchpond.model import Response
from batchpond.providers.shared.lines import BROKEN_OFF, NO_TOKENS, PARTS_MAX, Row, Tokens, answered, finish_of

Shape = TypeVar("Shape")
ReadLine = Callable[[bytes], Response | None]
Settle = Callable[[Response, int | None], Response]

Count = Annotated[int, Meta(ge=0, le=2**60)]
"""A number of tokens; sums of a few are counts too."""
Id = Annotated[str, Meta(min_length=1)]
Word = Annotated[str, Meta(max_length=200)]
PARTS = Meta(min_length=1, max_length=PARTS_MAX)


def reader(shape: type[Shape], id_name: str, read: Callable[[Shape], Response | None]) -> ReadLine:
    """Return what reads a line of a shape, and gives None for any other; a line that may name two ids is another."""
    decode, name = json.Decoder(shape).decode, b'"%b"' % id_name.encode()

    def read_line(line: bytes) -> Response | None:
        if line.count(name) > 1:
            return None
        try:
            found = decode(line)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return read(found)

    return read_line


class _Details(Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(Struct):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    reasoning_tokens: Count | None = None
    cached_tokens: Count | None = None
    prompt_cache_hit_tokens: Count | None = None
    num_cached_tokens: Count | None = None

    def tokens(self) -> Tokens:
        given, made = self.prompt_tokens_details, self.completion_tokens_details
        reasoning = made.reasoning_tokens if made else None
        found = (given.cached_tokens if given else None, self.cached_tokens, self.prompt_cache_hit_tokens)
        cached = next((count for count in found if count is not None), self.num_cached_tokens)
        return (
            self.prompt_tokens,
            self.completion_tokens,
            self.reasoning_tokens if reasoning is None else reasoning,
            cached,
            given.cache_write_tokens if given else None,
        )


class _Message(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: Word | None = None
    logprobs: None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], PARTS]
    model: str | None = None
    usage: _Usage | None = None
    object: Literal["chat.completion"] = "chat.completion"
    error: None = None


class _Answer(Struct):
    body: _Completion
    status_code: Annotated[int, Meta(ge=200, le=299)]
    request_id: str | None = None


class _Line(Struct):
    custom_id: Id
    response: _Answer
    error: None = None


def _read(row: Row, body: _Completion, settle: Settle) -> Response | None:
    choice = body.choices[0]
    said, reason = choice.message, choice.finish_reason
    if reason in BROKEN_OFF:
        return None
    refusal = said.refusal or None
    texts = (said.content, said.reasoning_content or said.reasoning or None, refusal)
    finish, usage = finish_of(reason, said.content, refusal), body.usage
    tokens, n_in_all = (usage.tokens(), usage.total_tokens) if usage else (NO_TOKENS, None)
    return settle(answered(row, body.model, reason, finish, texts, tokens), n_in_all)


def chat(settle: Settle) -> ReadLine:
    """Return what reads a chat completion in its row; `settle` makes of it, and of its total of tokens, a dialect's."""

    def read(line: _Line) -> Response | None:
        answer = line.response
        return _read(Row(line.custom_id, answer.status_code, answer.request_id or None), answer.body, settle)

    return reader(_Line, "custom_id", read)


class _Response(Struct):
    chat_get_completion: _Completion


class _Result(Struct):
    response: _Response


class _ResultLine(Struct):
    batch_request_id: Id
    batch_result: _Result


def chat_result(settle: Settle) -> ReadLine:
    """Return what reads a chat completion in xAI's results."""

    def read(line: _ResultLine) -> Response | None:
        return _read(Row(line.batch_request_id), line.batch_result.response.chat_get_completion, settle)

    return reader(_ResultLine, "batch_request_id", read)
