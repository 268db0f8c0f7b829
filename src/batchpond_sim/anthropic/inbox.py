"""Requests that travel inside a create call: spooled to disk, then checked and kept one at a time.

A body may be hundreds of megabytes; memory stays bounded by its largest single request.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchpond_sim.host.wire import CHUNK_BYTES, Request
from batchpond_sim.shared.rows import dump_row, load_row

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_BLANK = re.compile(rb"[ \t\r\n]*+")
_QUOTED = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb'[^\s,:"\[\]{}]++')
_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+([\[\]{}])', re.DOTALL)


class InboxError(ValueError):
    """A body that is refused."""


class TooLargeError(InboxError):
    """A body of more bytes than allowed."""


class EncodingError(InboxError):
    """A body whose Content-Encoding is unknown (`is_known` false) or does not fit its bytes."""

    def __init__(self, encoding: str, *, is_known: bool) -> None:
        super().__init__(encoding)
        self.is_known = is_known


class JsonError(InboxError):
    """A body that is not JSON."""


class RequestsError(InboxError):
    """The first thing wrong with the requests, as the API names it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a create call may hold: the pattern of a custom_id, most requests, keys beside `requests`."""

    custom_id: re.Pattern[str]
    id_length_max: int
    requests_max: int
    other_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """The requests of a create call: how many, the first id, the first model."""

    n_requests: int
    first_custom_id: str
    model: str


def spool(request: Request, path: Path, max_bytes: int) -> None:
    """Write a request's body to a file, unpacked; raises TooLargeError or EncodingError."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise EncodingError(encoding, is_known=False)
    unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    n_bytes = 0
    with path.open("wb") as file:
        while chunk := request.body.read(CHUNK_BYTES):
            for piece in _unpacked(unpack, chunk):
                n_bytes += len(piece)
                if n_bytes > max_bytes:
                    raise TooLargeError(f"over {max_bytes} bytes")
                file.write(piece)
        if unpack is not None:
            file.write(unpack.flush())
    if unpack is not None and not unpack.eof:
        raise EncodingError(encoding, is_known=True)


def _unpacked(unpack: Any, chunk: bytes) -> Iterator[bytes]:
    if unpack is None:
        yield chunk
        return
    while chunk:
        try:
            yield unpack.decompress(chunk, CHUNK_BYTES)
        except zlib.error as error:
            raise EncodingError("gzip", is_known=True) from error
        chunk = unpack.unconsumed_tail


def take(body: Path, lines: Path, rules: Rules) -> Taken:
    """Check a body `{"requests": [...]}` and write each request as a line of its own.

    Raises JsonError for what is no JSON and RequestsError for the first wrong request.
    """
    if body.stat().st_size == 0:
        raise JsonError("the body is empty")
    with (
        body.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        lines.open("wb") as out,
    ):
        taking = _Taking(rules)
        for request in _Scanner(data, rules.other_keys).requests():
            out.write(taking.line(request))
    return taking.done()


class _Taking:
    """Checks requests one by one."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seen: set[str] = set()
        self._first = self._model = ""

    def line(self, request: Any) -> bytes:
        i = len(self._seen)
        if not isinstance(request, dict):
            raise RequestsError(f"requests.{i}: Input should be an object")
        custom_id = self._custom_id(i, request)
        params = request.get("params")
        if params is None:
            raise RequestsError(f"requests.{i}.params: Field required")
        if not isinstance(params, dict):
            raise RequestsError(f"requests.{i}.params: Input should be an object")
        extra = request.keys() - {"custom_id", "params"}
        if extra:
            raise RequestsError(f"requests.{i}.{min(extra)}: Extra inputs are not permitted")
        if custom_id in self._seen:
            text = f"custom_id's must be unique within a batch. Duplicate custom_id found: {custom_id}"
            raise RequestsError(f"requests: {text}")
        self._seen.add(custom_id)
        if i == self._rules.requests_max:
            raise RequestsError(f"requests: List should have at most {i} items after validation, not {i + 1}")
        if i == 0:
            self._first, self._model = custom_id, str(params.get("model", ""))
        return dump_row({"custom_id": custom_id, "params": params}) + b"\n"

    def _custom_id(self, i: int, request: dict[str, Any]) -> str:
        custom_id = request.get("custom_id")
        where = f"requests.{i}.custom_id"
        if custom_id is None:
            raise RequestsError(f"{where}: Field required")
        if not isinstance(custom_id, str):
            raise RequestsError(f"{where}: Input should be a valid string")
        if len(custom_id) > self._rules.id_length_max:
            raise RequestsError(f"{where}: String should have at most {self._rules.id_length_max} characters")
        if not self._rules.custom_id.fullmatch(custom_id):
            raise RequestsError(f"{where}: String should match pattern '{self._rules.custom_id.pattern}'")
        return custom_id

    def done(self) -> Taken:
        if not self._seen:
            raise RequestsError("requests: List should have at least 1 item after validation, not 0")
        return Taken(len(self._seen), self._first, self._model)


class _Scanner:
    """Finds the requests of a body without reading all of it at once."""

    def __init__(self, data: mmap.mmap, other_keys: tuple[str, ...]) -> None:
        self._data = data
        self._other_keys = other_keys
        self._at = 0

    def requests(self) -> Iterator[Any]:
        has_requests = False
        self._expect(b"{")
        for _ in self._items(b"}"):
            name = self._value(_QUOTED)
            self._expect(b":")
            if name == "requests":
                has_requests = True
                yield from self._elements()
            elif name in self._other_keys:
                self._value()
            else:
                raise RequestsError(f"{name}: Extra inputs are not permitted")
        self._blank()
        if self._at != len(self._data):
            raise self._error()
        if not has_requests:
            raise RequestsError("requests: Field required")

    def _elements(self) -> Iterator[Any]:
        self._blank()
        if self._data[self._at : self._at + 1] != b"[":
            self._value()
            raise RequestsError("requests: Input should be a valid list")
        self._expect(b"[")
        for _ in self._items(b"]"):
            yield self._value()

    def _items(self, close: bytes) -> Iterator[None]:
        """Stop before each item up to the closing bracket."""
        if self._skips(close):
            return
        while True:
            yield
            if self._skips(close):
                return
            self._expect(b",")

    def _value(self, only: re.Pattern[bytes] | None = None) -> Any:
        self._blank()
        start = self._at
        if only is not None:
            end = self._end(only)
        elif self._data[start : start + 1] in (b"{", b"["):
            end = self._closing()
        else:
            end = self._end(_QUOTED if self._data[start : start + 1] == b'"' else _SCALAR)
        self._at = end
        try:
            return load_row(self._data[start:end])
        except (ValueError, RecursionError) as error:
            raise JsonError(f"{error} in the value at byte {start}") from error

    def _end(self, pattern: re.Pattern[bytes]) -> int:
        match = pattern.match(self._data, self._at)
        if match is None:
            raise self._error()
        return match.end()

    def _closing(self) -> int:
        depth, at = 0, self._at
        while True:
            match = _BRACKET.match(self._data, at)
            if match is None:
                raise self._error()
            at = match.end()
            depth += 1 if match[1] in b"[{" else -1
            if depth == 0:
                return at

    def _blank(self) -> None:
        self._at = self._end(_BLANK)

    def _skips(self, mark: bytes) -> bool:
        self._blank()
        is_there = self._data[self._at : self._at + 1] == mark
        self._at += is_there
        return is_there

    def _expect(self, mark: bytes) -> None:
        if not self._skips(mark):
            raise self._error()

    def _error(self) -> JsonError:
        return JsonError(f"unexpected data at byte {self._at}")
