"""What a simulator is handed and what it hands back, the same for both hosts.

Request --handle--> Reply   (status, headers, bytes or a stream of them)
                  | Break   (the connection ends instead of an answer)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import orjson

from batchpond_sim import SimulatorError

CHUNK_BYTES = 1 << 17
JSON_BODY_MAX_BYTES = 64 << 20


class Readable(Protocol):
    """A request body, readable once."""

    def read(self, n: int, /) -> bytes:
        """Return up to `n` bytes; empty at the end."""


class NoBody:
    """The body of a request that has none."""

    def read(self, _n: int, /) -> bytes:
        """Return nothing."""
        return b""


class IterBody:
    """A body made of chunks as they come."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, n: int, /) -> bytes:
        """Return up to `n` bytes; empty at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = chunk
        out, self._rest = self._rest[:n], self._rest[n:]
        return out


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header names are lower case, `path` has no query."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Readable

    @property
    def bearer(self) -> str:
        """The key of an `Authorization: Bearer` header, empty without one."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""

    def read_json(self) -> Any:
        """Return the parsed body, None when it is empty.

        Raises orjson.JSONDecodeError for anything but JSON and SimulatorError for over 64 MiB.
        """
        data = self.read_all()
        return orjson.loads(data) if data else None

    def read_all(self) -> bytes:
        """Return the whole body; raises SimulatorError for over 64 MiB."""
        chunks, size = [], 0
        while chunk := self.body.read(CHUNK_BYTES):
            size += len(chunk)
            if size > JSON_BODY_MAX_BYTES:
                raise SimulatorError(f"{self.method} {self.path}: the body is over {JSON_BODY_MAX_BYTES} bytes")
            chunks.append(chunk)
        return b"".join(chunks)

    def drain(self) -> None:
        """Read and drop what is left of the body, so that the client has sent all of it."""
        while self.body.read(CHUNK_BYTES):
            pass


class Ending(StrEnum):
    """How a streamed body ends on the wire."""

    FRAMED = "framed"  # a proper end: nothing tells the client that bytes are missing
    UNFRAMED = "unframed"  # ended by closing the connection, with no length given
    SHORT = "short"  # closed before the length that was given
    RESET = "reset"  # the connection is reset


@dataclass(frozen=True, slots=True)
class Stream:
    """A body produced in chunks; `bytes_per_s` slows it down, `pause_s` is waited before each chunk but the first.

    `size_bytes` is the length given for a body that ends short of it.
    """

    chunks: Callable[[], Iterator[bytes]]
    ending: Ending = Ending.FRAMED
    bytes_per_s: float | None = None
    pause_s: float = 0.0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer; it leaves `delay_s` after it was made."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes | Stream
    delay_s: float = 0.0


class BreakKind(StrEnum):
    """How a connection ends without an answer."""

    RESET = "reset"
    HANG = "hang"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Break:
    """The client gets no answer; a hang lasts `seconds` before the connection is reset."""

    kind: BreakKind
    seconds: float = 0.0


Answer = Reply | Break
MARK = ("x-batchpond-simulator", "1")
"""The header by which every simulated answer can be told from a real one."""


_PIECE_CHARS = 40


def pieces(text: str) -> tuple[str, ...]:
    """Return a text in pieces, as a model streams it."""
    return tuple(text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS))


def json_reply(status: int, body: object, *headers: tuple[str, str]) -> Reply:
    """Return a JSON answer."""
    return Reply(status, (("content-type", "application/json"), *headers), orjson.dumps(body))


def html_reply(status: int) -> Reply:
    """Return what a proxy or a captive portal answers in place of the API."""
    title = "502 Bad Gateway" if status >= 500 else "Sign in to continue"
    page = f"<html><head><title>{title}</title></head><body><center><h1>{title}</h1></center></body></html>\n"
    return Reply(status, (("content-type", "text/html; charset=utf-8"),), page.encode("ascii"))


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
