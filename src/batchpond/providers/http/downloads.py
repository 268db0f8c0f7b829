"""Writing a download to disk: bounded, hashed, inflated once if it must be, and flushed to the platter."""

from __future__ import annotations

import hashlib
import itertools
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from batchpond.clock import Clock
from batchpond.errors import LakeError
from batchpond.model import Download
from batchpond.providers.http.connections import Deadline
from batchpond.providers.http.retry import Again, RetryReason

_INFLATE_BYTES: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MADE_BYTES: Final = 1 << 34


class Refused(Exception):  # control flow inside the network modules, never seen outside
    """A body that asking again would not make acceptable."""


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
    """Inflates in bounded steps, so that a small body cannot become a large buffer."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def pieces(self, chunk: bytes) -> Iterable[bytes]:
        while chunk:
            if self._inflater.eof:
                raise Refused("the gzip body has bytes after its end")
            try:
                yield self._inflater.decompress(chunk, _INFLATE_BYTES)
            except zlib.error as error:
                raise Refused(f"the gzip body is damaged ({error})") from None
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
    pieces = iter(chunks)
    try:
        first = next(pieces, b"")
        is_packed = encoding.endswith("gzip") or first.startswith(_GZIP_MAGIC)
        with _private(path) as file:
            writer = _Writer(file, max_bytes)
            gunzip = _Gunzip() if is_packed else None
            result = _copy(itertools.chain((first,), pieces), headers, writer, gunzip, slowness, until)
            if not isinstance(result, Again):
                file.flush()
                os.fsync(file.fileno())
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        raise LakeError(f"cannot write {path}: {error.strerror or error}", hint="free space, then sync again") from None
    return result


def write(pieces: Iterable[bytes], path: Path) -> Download:
    """Write bytes that this program made of an answer as `store` would; raises LakeError when the disk fails."""
    try:
        with _private(path) as file:
            writer = _Writer(file, _MADE_BYTES)
            for piece in pieces:
                writer.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LakeError(f"cannot write {path}: {error.strerror or error}", hint="free space, then sync again") from None
    return writer.result()


def _private(path: Path) -> BinaryIO:
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


class _Writer:
    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes) -> None:
        self._size_bytes += len(data)
        if self._size_bytes > self._max_bytes:
            raise Refused(f"the body is larger than {self._max_bytes} bytes")
        self._sha256.update(data)
        self._file.write(data)

    def result(self) -> Download:
        return Download(self._size_bytes, self._sha256.hexdigest())


def _copy(
    chunks: Iterable[bytes],
    headers: Mapping[str, str],
    writer: _Writer,
    gunzip: _Gunzip | None,
    slowness: Slowness,
    until: Deadline,
) -> Download | Again:
    n_received = 0
    for chunk in chunks:
        n_received += len(chunk)
        for piece in gunzip.pieces(chunk) if gunzip else (chunk,):
            writer.write(piece)
        if until.remaining_s <= 0:
            return Again(RetryReason.TIMEOUT, "the download's total deadline has passed")
        if slowness.add(len(chunk)):
            return Again(RetryReason.TIMEOUT, "the download was too slow")
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and n_received != int(declared[:19]):
        return Again(RetryReason.SHORT_BODY, f"{n_received} of {declared[:19]} bytes arrived")
    if gunzip is not None and not gunzip.is_whole and n_received:
        return Again(RetryReason.SHORT_BODY, "the gzip body ended early")
    return writer.result()
