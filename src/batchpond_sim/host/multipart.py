"""Reading `multipart/form-data` as a stream: the file part goes to disk, never to memory.

Wire format: RFC 7578 with the boundary rules of RFC 2046 section 5.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from batchpond_sim.host.wire import CHUNK_BYTES, Readable

_FIELD_MAX_BYTES = 1 << 20
_HEADERS_MAX_BYTES = 1 << 14
_BOUNDARY = re.compile(r'boundary=(?:"([^"]+)"|([^;\s]+))', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name="((?:[^"\\]|\\.)*)"')
_FILENAME = re.compile(rb'[;\s]filename="((?:[^"\\]|\\.)*)"')


class MultipartError(ValueError):
    """The body is not the multipart form that its content type promises."""


@dataclass(slots=True)
class Form:
    """The fields of a form, and its file if one was sent; the file's bytes are at the path given."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    size_bytes: int = 0


def read_form(content_type: str, body: Readable, file_path: Path, max_bytes: int) -> Form:
    """Read a form whose `file` part is written to `file_path`, in memory that does not grow.

    Raises MultipartError for a body that is cut or malformed, or a file over `max_bytes`.
    """
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise MultipartError("no multipart boundary in the content type")
    reader = _Reader(body, (match[1] or match[2]).encode("latin-1"))
    form = Form()
    while (headers := reader.next_part()) is not None:
        name = _unquoted(_NAME.search(headers))
        filename = _unquoted(_FILENAME.search(headers))
        if filename is None:
            form.fields[name or ""] = _field(reader.part())
            continue
        form.filename = filename
        with file_path.open("wb") as out:
            for chunk in reader.part():
                form.size_bytes += out.write(chunk)
                if form.size_bytes > max_bytes:
                    raise MultipartError(f"the file is over {max_bytes} bytes")
    return form


def _field(chunks: Iterator[bytes]) -> str:
    value = bytearray()
    for chunk in chunks:
        value += chunk
        if len(value) > _FIELD_MAX_BYTES:
            raise MultipartError(f"a form field is over {_FIELD_MAX_BYTES} bytes")
    return value.decode("utf-8", "replace")


def _unquoted(match: re.Match[bytes] | None) -> str | None:
    if match is None:
        return None
    text = match[1].decode("utf-8", "replace").replace('\\"', '"').replace("\\\\", "\\")
    return text.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


class _Reader:
    def __init__(self, body: Readable, boundary: bytes) -> None:
        self._body = body
        self._buffer = b"\r\n"  # so that the first boundary looks like all the others
        self._mark = b"\r\n--" + boundary
        self._is_started = False

    def _fill(self) -> None:
        chunk = self._body.read(CHUNK_BYTES)
        if not chunk:
            raise MultipartError("the body ends before its last boundary")
        self._buffer += chunk

    def next_part(self) -> bytes | None:
        """Return the raw headers of the next part, None after the last."""
        if not self._is_started:
            self._is_started = True
            for _ in self.part():
                pass
        while len(self._buffer) < 2:
            self._fill()
        if self._buffer.startswith(b"--"):
            return None
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _HEADERS_MAX_BYTES:
                raise MultipartError("the headers of a part are too long")
            self._fill()
        headers, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        return headers

    def part(self) -> Iterator[bytes]:
        """Yield the bytes of the part up to its boundary, which is consumed."""
        while True:
            at = self._buffer.find(self._mark)
            if at >= 0:
                chunk, self._buffer = self._buffer[:at], self._buffer[at + len(self._mark) :]
                if chunk:
                    yield chunk
                return
            safe = len(self._buffer) - len(self._mark) + 1
            if safe > 0:
                chunk, self._buffer = self._buffer[:safe], self._buffer[safe:]
                yield chunk
            self._fill()
