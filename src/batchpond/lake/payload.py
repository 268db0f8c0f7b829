"""A shard's payload file: built from the lake's requests, byte for byte the same every time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake import disk, failpoints
from batchpond.lake.schemas import REQUESTS, SHARD_REQUESTS
from batchpond.lake.store import Store, read_rows

_BATCH_ROWS = 4_096
_BUFFER_BYTES = 1 << 20


class LineBuilder(Protocol):
    """What makes a line of a provider's batch input file."""

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return the line of one request, without its line feed."""
        ...


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload that stands complete and durable under its final name."""

    path: Path
    size_bytes: int
    sha256: str


def shard_file_name(provider: str, shard_id: str) -> str:
    """Return the name of a shard's file in `shard_requests`."""
    return f"p_provider={provider}/{shard_id}"


@dataclass(frozen=True, slots=True)
class ShardLines:
    """A shard's requests in line order, the request files that hold them, and the custom_ids of a foreign batch."""

    request_ids: list[str]
    files: list[Path]
    custom_ids: list[str | None]

    def custom_ids_of(self, attempt_id: str) -> Iterator[str]:
        """Yield the custom_id of each line: the one that was given to it elsewhere, or the attempt's own."""
        for request_id, given in zip(self.request_ids, self.custom_ids, strict=True):
            yield ids.custom_id(attempt_id, request_id) if given is None else given


def shard_lines(store: Store, provider: str, shard_id: str) -> ShardLines:
    """Read a shard's lines."""
    path = store.final_path(SHARD_REQUESTS, shard_file_name(provider, shard_id))
    rows = read_rows(path, ["line_number", "request_id", "requests_file", "custom_id"])
    rows = rows.sort_by("line_number")
    names = rows.column("requests_file").unique().to_pylist()
    files = [store.final_path(REQUESTS, name) for name in names]
    return ShardLines(rows.column("request_id").to_pylist(), files, rows.column("custom_id").to_pylist())


def build(
    store: Store, module: LineBuilder, *, provider: str, endpoint: str, shard_id: str, attempt_id: str
) -> Payload:
    """Write an attempt's payload, or find it written, and return its size and digest.

    Raises LakeError when a request of the shard is not in the lake.
    """
    final = store.payload_path(attempt_id)
    if final.exists():
        return _measure(final)
    staged = store.scratch(".jsonl")
    lines = shard_lines(store, provider, shard_id)
    disk.write_private(staged, b"")
    try:
        with staged.open("r+b", buffering=_BUFFER_BYTES) as out:
            for request_id, body in bodies(lines):
                out.write(module.payload_line(ids.custom_id(attempt_id, request_id), endpoint, body))
                out.write(b"\n")
            out.flush()
            failpoints.reach("S2")
            os.fsync(out.fileno())
    except BaseException:
        disk.drop(staged)  # it may be large, and the disk full
        raise
    disk.link_into_place(staged, final)
    failpoints.reach("S3")
    return _measure(final)


def discard(store: Store, attempt_id: str) -> None:
    """Drop a payload whose answers are verified; the lake can build it again."""
    store.payload_path(attempt_id).unlink(missing_ok=True)


def sweep(store: Store, settled: set[str]) -> None:
    """Drop what a process that was killed left of settled attempts."""
    for attempt_id in settled.intersection(store.payloads()):
        discard(store, attempt_id)


def _measure(path: Path) -> Payload:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as lines:
        while chunk := lines.read(_BUFFER_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return Payload(path, size, digest.hexdigest())


def bodies(lines: ShardLines) -> Iterator[tuple[str, bytes]]:
    """Yield (request_id, body) in line order, holding only what stands out of that order."""
    wanted = lines.request_ids
    position = {request_id: index for index, request_id in enumerate(wanted)}
    held: dict[int, bytes] = {}
    following = 0
    for request_id, body in _scan(lines.files, position):
        held[position[request_id]] = body
        while following in held:
            yield wanted[following], held.pop(following)
            following += 1
    if following != len(wanted):
        raise LakeError(
            f"request {wanted[following]} of a shard is not in the lake's requests",
            hint="run `batchpond doctor`; nothing was sent",
        )


def _scan(files: list[Path], position: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    import pyarrow.parquet as pq

    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=["request_id", "body"]):
                rows = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                yield from ((request_id, body.encode("utf-8")) for request_id, body in rows if request_id in position)
