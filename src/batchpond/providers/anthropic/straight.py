"""A well-formed message in its row, read at once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Struct

from batchpond.model import Finish, Response
from batchpond.providers.anthropic.dialect import FINISH
from batchpond.providers.shared.lines import NO_TOKENS, OTHER, Row, Tokens, answered, joined
from batchpond.providers.shared.straight import PARTS, Count, Id, Word, reader

REFUSAL: Final = Finish.REFUSAL


class _Details(Struct):
    thinking_tokens: Count | None = None


class _Usage(Struct):
    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens_details: _Details | None = None
    cache_creation: dict[str, Count] | None = None

    def tokens(self) -> Tokens:
        read, written = self.cache_read_input_tokens, self.cache_creation_input_tokens
        details = self.output_tokens_details
        reasoning = details.thinking_tokens if details else None
        return self.input_tokens + (written or 0) + (read or 0), self.output_tokens, reasoning, read, written


class _Block(Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None


class _Message(Struct):
    content: Annotated[list[_Block], PARTS]
    id: str | None = None
    model: str | None = None
    stop_reason: Word | None = None
    usage: _Usage | None = None


class _Result(Struct):
    type: Literal["succeeded"]
    message: _Message


class _Line(Struct):
    custom_id: Id
    result: _Result


def _read(line: _Line) -> Response | None:
    message = line.result.message
    finish = FINISH.get(message.stop_reason or "", OTHER)
    if finish is REFUSAL:
        return None
    texts = [block.text for block in message.content if block.type == "text" and block.text is not None]
    thoughts = [block.thinking for block in message.content if block.type == "thinking" and block.thinking]
    usage, row = message.usage, Row(line.custom_id, None, message.id or None)
    tokens = usage.tokens() if usage else NO_TOKENS
    hour = usage.cache_creation.get("ephemeral_1h_input_tokens") if usage and usage.cache_creation else None
    return answered(row, message.model, message.stop_reason, finish, (*joined(texts, thoughts), None), tokens, hour)


LINE: Final = reader(_Line, "custom_id", _read)
