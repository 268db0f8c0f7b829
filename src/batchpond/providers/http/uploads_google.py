"""The two dialects of Google's resumable uploads.

`Commands` is that of the Gemini API's files: google-genai 3.4 `files.py` and `_api_client.py` (`start`, `upload`,
`finalize`); `query` is of Google's guide of resumable uploads. `Ranges` is that of Cloud Storage: its JSON
API's discovery document and guide, revision of October 2026.
"""

from __future__ import annotations

import re
from typing import Final

from batchpond import fields
from batchpond.providers.http.answers import Answer
from batchpond.providers.http.uploads import Headers, Standing

_ACTIVE, _FINAL, _CANCELLED = "active", "final", "cancelled"
_FORGOTTEN: Final = frozenset({404, 410})
_RESUME: Final = 308
_RANGE: Final = re.compile(r"bytes=0-(\d{1,18})")


class Commands:
    """A header says what a request is: start, upload, query, finalize; another how things stand."""

    def opening(self, mime_type: str, size_bytes: int) -> Headers:
        """Return the headers that open a session."""
        return {
            "X-Goog-Upload-Protocol": "resumable",
            "X-Goog-Upload-Command": "start",
            "X-Goog-Upload-Header-Content-Length": str(size_bytes),
            "X-Goog-Upload-Header-Content-Type": mime_type,
        }

    def address(self, answer: Answer) -> str:
        """Return the session's address, empty for none."""
        return _header(answer, "url")

    def piece(self, offset: int, n_bytes: int, size_bytes: int) -> tuple[str, Headers]:
        """Return method and headers of a piece; the last one finalizes."""
        is_last = offset + n_bytes >= size_bytes
        command = "upload, finalize" if is_last else "upload"
        return "POST", {"X-Goog-Upload-Command": command, "X-Goog-Upload-Offset": str(offset)}

    def query(self, size_bytes: int) -> tuple[str, Headers]:  # noqa: ARG002  # the session knows
        """Return method and headers that ask how the session stands."""
        return "POST", {"X-Goog-Upload-Command": "query"}

    def standing(self, answer: Answer) -> Standing:
        """Return how the session stands."""
        if not answer.is_success:
            return Standing.LOST if answer.status_code in _FORGOTTEN else Standing.OVER
        match _header(answer, "status").lower():
            case word if word == _ACTIVE:
                return Standing.OPEN
            case word if word == _CANCELLED:
                return Standing.LOST
            case word if word == _FINAL or "file" in fields.mapping(answer.json):
                return Standing.OVER
            case _:
                return Standing.SILENT

    def received(self, answer: Answer) -> int | None:
        """Return the bytes that are there; only the answer to a query has to say."""
        return fields.count(_header(answer, "size-received"))


class Ranges:
    """`Content-Range` says what a request brings, status 308 and `Range` what is there."""

    def opening(self, mime_type: str, size_bytes: int) -> Headers:
        """Return the headers that open a session."""
        return {"X-Upload-Content-Type": mime_type, "X-Upload-Content-Length": str(size_bytes)}

    def address(self, answer: Answer) -> str:
        """Return the session's address, empty for none."""
        return answer.headers.get("location", "").strip()

    def piece(self, offset: int, n_bytes: int, size_bytes: int) -> tuple[str, Headers]:
        """Return method and headers of a piece."""
        held = f"{offset}-{offset + n_bytes - 1}" if n_bytes else "*"
        return "PUT", {"Content-Range": f"bytes {held}/{size_bytes}"}

    def query(self, size_bytes: int) -> tuple[str, Headers]:
        """Return method and headers that ask how the session stands."""
        return "PUT", {"Content-Range": f"bytes */{size_bytes}"}

    def standing(self, answer: Answer) -> Standing:
        """Return how the session stands; the last answer is the object itself."""
        if answer.status_code == _RESUME:
            return Standing.OPEN
        if not answer.is_success:
            return Standing.LOST if answer.status_code in _FORGOTTEN else Standing.OVER
        return Standing.OVER if fields.identifier(fields.mapping(answer.json).get("name")) else Standing.SILENT

    def received(self, answer: Answer) -> int | None:
        """Return the bytes that are there: none where no range is named."""
        held = _RANGE.fullmatch(answer.headers.get("range", "").strip())
        return int(held[1]) + 1 if held else 0


def _header(answer: Answer, name: str) -> str:
    return answer.headers.get(f"x-goog-upload-{name}", "").strip()
