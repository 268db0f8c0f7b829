"""Reading Together's result lines and live answers: chat completions, and errors whose text says what they are.

Rows: `{id, custom_id, response: {status_code, body}}` in the output file, `{id, custom_id, error: {code, message}}` in
the error file. One code, `batch_client_error`, was seen for all errors, so the text decides what kind a failure is.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from batchpond.model import ErrorClass, FileRole, Response, ResponseStatus
from batchpond.providers.shared import known, lines

TEXTS: Final = known.texts("together", "texts")


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001  # the row itself says what it is
    """Return one line of an output or error file made uniform."""
    return _classified(lines.read_line(line, _read_body))


def read_answer(status_code: int, body: bytes) -> Response:
    """Return a live call's answer made uniform, without a custom_id."""
    return _classified(lines.read_answer(status_code, body, _read_body))


def _read_body(row: lines.Row, body: dict[str, Any]) -> Response:
    # Models whose thoughts Together does not keep apart write them into the text.
    return lines.without_thoughts(lines.read_chat(row, body))


def _classified(response: Response) -> Response:
    if response.status is not ResponseStatus.ERRORED or response.error_class is not ErrorClass.PERMANENT:
        return response
    error_class = known.class_of(TEXTS, response.error_message or "")
    return response if error_class is None else dataclasses.replace(response, error_class=error_class)
