"""What is asked of xAI's models, and what they answer: OpenAI's lines, and results by `batch_request_id`.

Rows: `{batch_request_id, batch_result: {response: {chat_get_completion: {...}}}}`, or `{error: "text"}` in the place of
the response: no code, and "Batch cancelled" for what was not run (recorded 2026).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from batchpond import fields
from batchpond.model import Response
from batchpond.providers import base
from batchpond.providers.compatible.dialect import Compatible
from batchpond.providers.http.errors import read_any
from batchpond.providers.shared import lines
from batchpond.providers.shared.dialect import CHAT
from batchpond.providers.shared.lines import ReadLine, Row

TEXTS: Final = base.texts("xai", "texts")


class Xai(Compatible):
    """What is asked of xAI's models, and what they answer."""

    id_name = "batch_request_id"

    @cached_property
    def straight(self) -> ReadLine:
        """What reads a well-formed chat completion in its row."""

        def read(line: _Line) -> Response | None:
            return lines.read_completion(
                Row(line.batch_request_id), line.batch_result.response.chat_get_completion, self.settle
            )

        return lines.reader(_Line, self.id_name, read)

    def read_row(self, row: dict[str, Any]) -> Response:
        """Return a result made uniform, total over any JSON."""
        around, result = Row(fields.identifier(row.get(self.id_name))), row.get("batch_result")
        body = fields.inside(result, "response.chat_get_completion")
        if isinstance(body, dict):
            return self.read_body(around, body)
        error = read_any(result)
        if error is None:
            return lines.unreadable(around.custom_id, "the result has neither a response nor an error")
        return lines.failed(around, error, base.class_of(TEXTS, error.message))


DIALECT: Final = Xai.of(base.descriptor("xai", endpoints=(CHAT,)), **base.table("xai", "chat"))


class _Response(Struct):
    chat_get_completion: lines.Completion


class _Result(Struct):
    response: _Response


class _Line(Struct):
    batch_request_id: lines.Id
    batch_result: _Result
