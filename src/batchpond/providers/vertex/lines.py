"""Reading Vertex AI output rows: total, so that any bytes give a Response and none an exception.

A row is `{custom_id, request, response, status, processed_time}`; it failed when `status` is not empty or `response`
is missing. What stands after the first ": " of a status is the error's JSON (recorded traffic of 2026); older
rows have `response` "" then.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.model import FileRole, Response
from batchpond.providers.gemini import lines as gemini_lines
from batchpond.providers.shared import known
from batchpond.providers.shared.lines import load_row, unreadable
from batchpond.providers.vertex.body import own_id

_PHRASES: Final = {status.phrase.lower(): status.value for status in HTTPStatus if status >= 400}
_WORD: Final = re.compile(r"\b(?:[A-Z]{3,}_[A-Z_]{3,}|INTERNAL|UNAVAILABLE|CANCELLED|ABORTED)\b")
_CODE_OF: Final = known.table("vertex", "statuses")
read_answer: Final = gemini_lines.read_answer


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001  # all files hold rows of both kinds
    """Return one row of a result file made uniform.

    Its custom_id is what was sent without the letter before it; an id that came back as anything but text
    is none. What the answer and the error hold is read as the Gemini API's rows are.
    """
    row = load_row(line)
    if isinstance(row, str):
        return unreadable(None, row)
    key = own_id(fields.identifier(row.get("custom_id")))
    return gemini_lines.read_result(key, row.get("response"), read_status(row.get("status")), row.get("error"))


def read_status(status: object) -> object:
    """Return a row's status as a google.rpc.Status object, what is no text as it is."""
    if not isinstance(status, str) or not status.strip():
        return None if isinstance(status, str) else status
    phrase, _, rest = status.partition(": ")
    try:
        said = fields.mapping(orjson.loads(rest))
    except orjson.JSONDecodeError:
        said = {}
    error = fields.mapping(said.get("error")) or said
    if error.get("message") or error.get("code"):
        return error
    return _worded(status, phrase)


def _worded(status: str, phrase: str) -> dict[str, Any]:
    """Return the error of a status without JSON: its code by Google's word for it, or by HTTP's phrase."""
    word = _WORD.search(status)
    name = word[0] if word else None
    code = _CODE_OF.get(name or "") or _PHRASES.get(phrase.strip().lower())
    return {"message": status} | ({"code": code} if code else {}) | ({"status": name} if name else {})
