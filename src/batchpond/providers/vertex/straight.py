"""A well-formed row of Vertex AI's, read at once: Gemini's, under an id that begins with a letter."""

from __future__ import annotations

from typing import Final

from batchpond.providers.gemini import straight
from batchpond.providers.shared.straight import Id, reader
from batchpond.providers.vertex.dialect import own_id


class _Line(straight.Row, kw_only=True):
    custom_id: Id


LINE: Final = reader(_Line, "custom_id", lambda line: straight.read(line, own_id(line.custom_id)))
