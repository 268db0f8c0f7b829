"""A well-formed GenerateContentResponse in its row, read at once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Struct

from batchpond.model import Response
from batchpond.providers.gemini.dialect import FINISH
from batchpond.providers.shared import lines
from batchpond.providers.shared.lines import NO_TOKENS, OTHER, Tokens, answered, joined
from batchpond.providers.shared.straight import PARTS, Count, Id, Word, reader


class _Usage(Struct):
    promptTokenCount: Count
    toolUsePromptTokenCount: Count = 0
    candidatesTokenCount: Count = 0
    thoughtsTokenCount: Count = 0
    cachedContentTokenCount: Count = 0

    def tokens(self) -> Tokens:
        given = self.promptTokenCount + self.toolUsePromptTokenCount
        made = self.candidatesTokenCount + self.thoughtsTokenCount
        return given, made, self.thoughtsTokenCount, self.cachedContentTokenCount, None


class _Part(Struct):
    text: str | None = None
    thought: bool | None = None


class _Content(Struct):
    parts: Annotated[list[_Part], PARTS]


class _Candidate(Struct):
    content: _Content
    finishReason: Word | None = None
    logprobsResult: None = None


class _Generated(Struct):
    candidates: Annotated[list[_Candidate], PARTS]
    usageMetadata: _Usage | None = None
    modelVersion: str | None = None
    responseId: str | None = None
    error: None = None


class Row(Struct, kw_only=True):
    """What a row holds beside its id: an answer and no error, which Vertex AI says by an empty `status`."""

    response: _Generated
    error: None = None
    status: Literal[""] | None = None


class _Line(Row, kw_only=True):
    key: Id


def read(row: Row, custom_id: str) -> Response:
    """Return what a row says, made uniform."""
    generated = row.response
    candidate = generated.candidates[0]
    parts, reason = candidate.content.parts, candidate.finishReason
    texts = [part.text for part in parts if part.text is not None and part.thought is not True]
    thoughts = [part.text for part in parts if part.text and part.thought is True]
    tokens = generated.usageMetadata.tokens() if generated.usageMetadata else NO_TOKENS
    around = lines.Row(custom_id, None, generated.responseId or None)
    finish = FINISH.get(reason or "", OTHER)
    return answered(around, generated.modelVersion, reason, finish, (*joined(texts, thoughts), None), tokens)


LINE: Final = reader(_Line, "key", lambda line: read(line, line.key))
