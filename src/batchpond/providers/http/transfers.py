"""Files on their way: a resumable upload in chunks from disk, and a download to disk, bounded, hashed and flushed.

Nothing here connects: who sends is handed in. Two dialects of Google's uploads are known. `Commands` is that of the
Gemini API's files: google-genai 3.4 `files.py` and `_api_client.py` (`start`, `upload`, `finalize`); `query` is of
Google's guide of resumable uploads. `Ranges` is that of Cloud Storage: its JSON API's discovery document and guide,
revision of October 2026.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from batchpond import fields
from batchpond.clock import BYTES, Clock, Work
from batchpond.errors import LakeError, ProviderError
from batchpond.model import Download
from batchpond.providers.http.connections import Deadline
from batchpond.providers.http.errors import Again, Answer, Fault, RetryReason

_INFLATE_BYTES: Final = 1 << 20
_INFLATED_FREE_BYTES: Final = 64 << 20
_RATIO_MAX: Final = 200
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MADE_BYTES: Final = 1 << 34


class Refused(ProviderError):
    """A body that asking again would not make acceptable; of a call, the network modules make it a fault."""


class Slowness:
    """Says when a transfer has been slower than a floor over a whole window."""

    def __init__(self, clock: Clock, min_bytes_per_s: float, window_s: float) -> None:
        self._clock = clock
        self._min_bytes_per_s = min_bytes_per_s
        self._window_s = window_s
        self._since_s = clock.monotonic_s()
        self._n_bytes = 0

    def add(self, n_bytes: int) -> bool:
        """Count bytes; return True when the window that just ended was too slow."""
        self._n_bytes += n_bytes
        elapsed_s = self._clock.monotonic_s() - self._since_s
        if elapsed_s < self._window_s:
            return False
        is_slow = self._n_bytes < self._min_bytes_per_s * elapsed_s
        self._since_s, self._n_bytes = self._clock.monotonic_s(), 0
        return is_slow


class _Gunzip:
    """Inflates in bounded steps, so that a small body cannot become a large buffer, nor a large file.

    A body may be of several members, one after the other, as gzip files may.
    """

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._n_packed = self._n_inflated = 0

    def pieces(self, chunk: bytes) -> Iterable[bytes]:
        self._n_packed += len(chunk)
        while chunk:
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
            try:
                piece = self._inflater.decompress(chunk, _INFLATE_BYTES)
            except zlib.error as error:
                raise Refused(f"the gzip body is damaged ({error})") from None
            self._n_inflated += len(piece)
            if self._n_inflated > max(_INFLATED_FREE_BYTES, self._n_packed * _RATIO_MAX):
                raise Refused(f"the gzip body inflates to more than {_RATIO_MAX} times its size, as no answers do")
            yield piece
            chunk = self._inflater.unconsumed_tail or self._inflater.unused_data

    @property
    def is_whole(self) -> bool:
        return self._inflater.eof


def store(
    chunks: Iterable[bytes],
    headers: Mapping[str, str],
    path: Path,
    *,
    max_bytes: int,
    slowness: Slowness,
    until: Deadline,
) -> Download | Again:
    """Write a response's body to `path`, mode 0600, and return its size and digest.

    Returns `Again` when the body was short or slow; raises `Refused` for one that is too large or
    unreadably encoded, and LakeError when the disk fails. Only a whole body is left on disk. A body that
    begins as gzip does is inflated though no header says so: no result file begins like that.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise Refused(f"the body is encoded as {encoding[:40]!r} although it was asked for plain")
    rest = iter(chunks)
    first = next(rest, b"")
    is_packed = encoding.endswith("gzip") or first.startswith(_GZIP_MAGIC)
    gunzip = _Gunzip() if is_packed else None
    n_received = 0

    def pieces() -> Iterator[bytes]:
        nonlocal n_received
        for chunk in itertools.chain((first,), rest):
            n_received += len(chunk)
            work.add(len(chunk))
            yield from gunzip.pieces(chunk) if gunzip else (chunk,)
            if until.remaining_s <= 0:
                raise _GivenUp("the download's total deadline has passed")
            if slowness.add(len(chunk)):
                raise _GivenUp("the download was too slow")

    declared = fields.count(headers.get("content-length", "")[:19])
    work = Work("downloading", BYTES, declared)
    try:
        with work:
            written = write(pieces(), path, max_bytes)
    except _GivenUp as reason:
        return Again(RetryReason.TIMEOUT, str(reason))
    if declared is not None and n_received != declared:
        return Again(RetryReason.SHORT_BODY, f"{n_received} of {declared} bytes arrived")
    if gunzip is not None and not gunzip.is_whole and n_received:
        return Again(RetryReason.SHORT_BODY, "the gzip body ended early")
    return written


class _GivenUp(Exception):
    """A download that takes too long."""


def write(pieces: Iterable[bytes], path: Path, max_bytes: int = _MADE_BYTES) -> Download:
    """Write bytes as they come, mode 0600, flushed to disk; raises `Refused` for too many, LakeError when it fails."""
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            for piece in pieces:
                size_bytes += len(piece)
                if size_bytes > max_bytes:
                    raise Refused(f"the body is larger than {max_bytes} bytes")
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        raise LakeError(f"cannot write {path}: {error.strerror or error}", hint="free space, then sync again") from None
    return Download(size_bytes, digest.hexdigest())


CHUNK_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 18
_SESSIONS_MAX: Final = 3

Headers = Mapping[str, str]
Result = Answer | Again | Fault
Send = Callable[[str, str, Headers, bytes | Iterable[bytes]], Result]
"""Sends one request, by its method, to a path or a whole address of the same origin, with headers and content."""


class Standing(Enum):
    """How a session stands that does not go on: over (well or badly), forgotten, or not said."""

    OVER = "over"
    LOST = "lost"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Start:
    """What opens a session: where, with which JSON body, for what kind of content, in which dialect."""

    path: str
    payload: Mapping[str, object]
    mime_type: str
    dialect: Commands | Ranges


@dataclass
class Upload:
    """A file on its way, by `send`; `repeated` makes a call again where that may help.

    `_stands` is where the provider stands in the session at `_address`, or how that ended; None when only it knows.
    Content is read while it is sent: a request that lives on in some cycle then holds no chunk.
    """

    send: Send
    repeated: Callable[[Callable[[], Result]], Result]
    start: Start
    content: BinaryIO
    size_bytes: int
    _address: str = ""
    _stands: int | Standing | None = 0

    def run(self) -> Result:
        """Send the bytes and return the answer to the last of them, or what ended the attempt.

        A success without a body means that the provider took the whole file, but the answer that named
        it was lost. A session that the provider has forgotten is opened anew, three times at most.
        """
        result: Result = Fault("no upload session could be opened")
        for _ in range(_SESSIONS_MAX):
            result = self.repeated(self._open)
            if not isinstance(result, Answer) or not result.is_success:
                return result
            result = self._transfer()
            if self._stands is not Standing.LOST:
                return result
        return result

    def _open(self) -> Result:
        start = self.start
        headers = {**self.start.dialect.opening(start.mime_type, self.size_bytes), "Content-Type": "application/json"}
        answer = self.send("POST", start.path, headers, orjson.dumps(start.payload))
        if not (isinstance(answer, Answer) and answer.is_success):
            return answer
        self._address, self._stands = self.start.dialect.address(answer), 0
        if not self._address:
            return Again(RetryReason.SHORT_BODY, "the answer names no upload address", status_code=answer.status_code)
        return answer

    def _transfer(self) -> Result:
        """Send chunk after chunk; bounded, since a provider that goes back again and again never ends."""
        steps_max = 2 * (self.size_bytes // CHUNK_BYTES + 1) + 16
        for _ in range(steps_max):
            result = self.repeated(self._step)
            if not (isinstance(result, Answer) and isinstance(self._stands, int)):
                return result
        return Fault(f"the upload did not end within {steps_max} chunks")

    def _step(self) -> Result:
        if not isinstance(self._stands, int):
            method, headers = self.start.dialect.query(self.size_bytes)
            asked = self._heard(self.send(method, self._address, headers, b""), 0)
            if not isinstance(self._stands, int):
                return asked
        offset, self._stands = self._stands, None
        n_bytes = min(CHUNK_BYTES, self.size_bytes - offset)
        method, headers = self.start.dialect.piece(offset, n_bytes, self.size_bytes)
        content = _blocks(self.content, offset, n_bytes)
        answer = self.send(method, self._address, {**headers, "Content-Length": str(n_bytes)}, content)
        return self._heard(answer, offset + n_bytes)

    def _heard(self, answer: Result, sent_to: int) -> Result:
        """Note where the provider stands: where it says, else at the end of what was just sent."""
        if not isinstance(answer, Answer):
            return answer
        self._stands = stands = self.start.dialect.standing(answer, sent_to)
        if stands is Standing.SILENT:
            return Again(RetryReason.SHORT_BODY, "the answer does not say how the upload stands")
        if isinstance(stands, int) and stands > self.size_bytes:
            self._stands = Standing.OVER
            return Fault(f"the provider says that it has more than the {self.size_bytes} bytes of the file")
        return answer


def _blocks(content: BinaryIO, offset: int, n_bytes: int) -> Iterator[bytes]:
    content.seek(offset)
    while n_bytes > 0 and (block := content.read(min(_BLOCK_BYTES, n_bytes))):
        n_bytes -= len(block)
        yield block


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
        return _header(answer, "x-goog-upload-url")

    def piece(self, offset: int, n_bytes: int, size_bytes: int) -> tuple[str, Headers]:
        """Return method and headers of a piece; the last one finalizes."""
        is_last = offset + n_bytes >= size_bytes
        command = "upload, finalize" if is_last else "upload"
        return "POST", {"X-Goog-Upload-Command": command, "X-Goog-Upload-Offset": str(offset)}

    def query(self, size_bytes: int) -> tuple[str, Headers]:  # noqa: ARG002  # the session knows
        """Return method and headers that ask how the session stands."""
        return "POST", {"X-Goog-Upload-Command": "query"}

    def standing(self, answer: Answer, sent_to: int) -> int | Standing:
        """Return how many bytes are there, or how the session ended; only the answer to a query has to say."""
        if not answer.is_success:
            return _ended(answer)
        match _header(answer, "x-goog-upload-status").lower():
            case "active":
                received = fields.count(_header(answer, "x-goog-upload-size-received"))
                return sent_to if received is None else received
            case "cancelled":
                return Standing.LOST
            case word:
                return Standing.OVER if word == "final" or "file" in fields.mapping(answer.json) else Standing.SILENT


class Ranges:
    """`Content-Range` says what a request brings, status 308 and `Range` what is there."""

    def opening(self, mime_type: str, size_bytes: int) -> Headers:
        """Return the headers that open a session."""
        return {"X-Upload-Content-Type": mime_type, "X-Upload-Content-Length": str(size_bytes)}

    def address(self, answer: Answer) -> str:
        """Return the session's address, empty for none."""
        return _header(answer, "location")

    def piece(self, offset: int, n_bytes: int, size_bytes: int) -> tuple[str, Headers]:
        """Return method and headers of a piece."""
        held = f"{offset}-{offset + n_bytes - 1}" if n_bytes else "*"
        return "PUT", {"Content-Range": f"bytes {held}/{size_bytes}"}

    def query(self, size_bytes: int) -> tuple[str, Headers]:
        """Return method and headers that ask how the session stands: those of a piece without bytes."""
        return self.piece(0, 0, size_bytes)

    def standing(self, answer: Answer, sent_to: int) -> int | Standing:  # noqa: ARG002  # none where no range is named
        """Return how many bytes are there, or how the session ended; the last answer is the object itself."""
        if answer.status_code == _RESUME:
            held = _RANGE.fullmatch(_header(answer, "range"))
            return int(held[1]) + 1 if held else 0
        if not answer.is_success:
            return _ended(answer)
        return Standing.OVER if fields.identifier(fields.mapping(answer.json).get("name")) else Standing.SILENT


def _ended(answer: Answer) -> Standing:
    return Standing.LOST if answer.status_code in (404, 410) else Standing.OVER


def _header(answer: Answer, name: str) -> str:
    return answer.headers.get(name, "").strip()
