"""JSON lines on their way: a shard's payload, byte for byte the same every time, and provider output as received.

A payload is built from the lake's requests. Of what came, every line of every file is kept, exact bytes, before
anything reads it.

A kept body that shows a picture or document has a mark where the bytes go, inside a JSON string: `/blob/SHA256.SIZE`
with its slashes escaped. It is JSON, and no text of a study can forge it, since texts are written without that needless
escape. What is sent has base64 there, made while a line is on its way, so that no more than a line is ever held.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

from batchpond import ids
from batchpond.clock import Work
from batchpond.errors import LakeError
from batchpond.lake import disk, failpoints
from batchpond.lake.disk import intact, read_rows
from batchpond.lake.records import Asked
from batchpond.lake.schemas import BLOBS, RAW, REQUESTS, SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.model import FileRole, Media

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from batchpond.lake.attempts import Attempt

_BATCH_ROWS = 1_024
_BUFFER_BYTES = 1 << 20

HEAD: Final = rb"\/blob\/"
_MARK: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\/blob\\/([0-9a-f]{64})\.([0-9]+)")
_KEPT_MAX: Final = 8
_KEPT_BYTES_MAX: Final = 4_000_000


class Embedded(str):
    """A text of a body, such as the beginning of a `data:` URL, that ends in the bytes of a blob in base64."""

    __slots__ = ("mark",)
    mark: bytes

    def __new__(cls, head: str, media: Media) -> Embedded:
        """Return the text `head` with what stands for the blob in a kept body."""
        found = super().__new__(cls, head)
        found.mark = b"%b%b.%d" % (HEAD, media.sha256.encode(), media.size_bytes)
        return found


def sent_bytes(body: bytes) -> int:
    """Return how large a kept body is once it is sent."""
    marks = _MARK.finditer(body) if HEAD in body else ()
    return len(body) + sum(-(-int(mark[3]) // 3) * 4 - len(mark[0]) + len(mark[1]) for mark in marks)


class Blobs:
    """A lake's blobs, for any number of threads; the few small ones that were asked for last are kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = lru_cache(_KEPT_MAX)(self._read)

    def expanded(self, body: bytes) -> bytes:
        """Return a kept body as it is sent; raises LakeError for a blob that is not there, or damaged."""
        return _MARK.sub(self._shown, body) if HEAD in body else body

    def _shown(self, mark: re.Match[bytes]) -> bytes:
        read = self._kept if int(mark[3]) <= _KEPT_BYTES_MAX else self._read
        return mark[1] + read(mark[2].decode())

    @cached_property
    def _places(self) -> dict[str, tuple[Path, int]]:
        found: dict[str, tuple[Path, int]] = {}
        for path in self._store.files(BLOBS.name):
            with intact(path) as file:  # a row group has one row
                names = file.read(columns=["sha256"], use_threads=False).column(0).to_pylist()
            found |= {name: (path, number) for number, name in enumerate(names)}
        return found

    def _read(self, sha256: str) -> bytes:
        if sha256 not in self._places:
            raise LakeError(f"a request shows {sha256}, which is not in the lake's blobs", hint="nothing was sent")
        path, number = self._places[sha256]
        with intact(path) as file:
            return base64.b64encode(file.read_row_group(number, ["content"], use_threads=False).column(0)[0].as_py())


class LineBuilder(Protocol):
    """What makes a line of a provider's batch input file."""

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return the line of one request, without its line feed."""


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
        prefix = ids.custom_id_prefix(attempt_id)
        for request_id, given in zip(self.request_ids, self.custom_ids, strict=True):
            yield prefix + ids.request_key(request_id) if given is None else given


def shard_lines(store: Store, provider: str, shard_id: str) -> ShardLines:
    """Read a shard's lines."""
    path = store.final_path(SHARD_REQUESTS, shard_file_name(provider, shard_id))
    rows = read_rows(path, ["line_number", "request_id", "requests_file", "custom_id"])
    rows = rows.sort_by("line_number")
    names = rows.column("requests_file").unique().to_pylist()
    files = [store.final_path(REQUESTS, name) for name in names]
    return ShardLines(rows.column("request_id").to_pylist(), files, rows.column("custom_id").to_pylist())


def build_payload(
    store: Store, module: LineBuilder, asked: Asked, attempt_id: str, marked: Callable[[bytes], bytes] = bytes
) -> Payload:
    """Write an attempt's payload, its bodies as `marked`, or find it written, and return its size and digest.

    Raises LakeError when a request of the shard, or what one shows, is not in the lake.
    """
    final = store.payload_path(attempt_id)
    if final.exists():
        return _measure(final)
    staged, digest, blobs = store.scratch(".jsonl"), hashlib.sha256(), Blobs(store)
    lines = shard_lines(store, asked.provider, asked.shard_id)
    pairs = zip(lines.custom_ids_of(attempt_id), bodies(lines), strict=True)
    try:
        with (
            open(staged, "xb", _BUFFER_BYTES, opener=disk.open_new) as out,
            Work("writing a batch", "requests", len(lines.request_ids)) as work,
        ):
            built = (
                module.payload_line(name, asked.endpoint, marked(blobs.expanded(body))) for name, (_, body) in pairs
            )
            for n_lines, block in _blocks(built):
                out.write(block)
                digest.update(block)
                work.add(n_lines)
            out.flush()
            size_bytes = out.tell()
            failpoints.reach("S2")
            os.fsync(out.fileno())
    except BaseException:
        disk.drop(staged)  # it may be large, and the disk full
        raise
    is_mine = disk.link_into_place(staged, final)
    failpoints.reach("S3")
    return Payload(final, size_bytes, digest.hexdigest()) if is_mine else _measure(final)


def _blocks(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield how many lines fill a buffer, and them with their line feeds."""
    held: list[bytes] = []
    n_bytes = 0
    for line in lines:
        held.append(line)
        n_bytes += len(line)
        if n_bytes >= _BUFFER_BYTES:
            yield len(held), b"\n".join([*held, b""])
            held, n_bytes = [], 0
    yield len(held), b"\n".join([*held, b""])


def discard_payload(store: Store, attempt_id: str) -> None:
    """Drop a payload whose answers are verified; the lake can build it again."""
    store.payload_path(attempt_id).unlink(missing_ok=True)


def sweep_payloads(store: Store, settled: set[str]) -> None:
    """Drop what a process that was killed left of settled attempts."""
    for attempt_id in settled.intersection(store.payloads()):
        discard_payload(store, attempt_id)


def _measure(path: Path) -> Payload:
    return Payload(path, path.stat().st_size, disk.sha256(path))


def bodies(lines: ShardLines) -> Iterator[tuple[str, bytes]]:
    """Yield (request_id, body) in line order, holding only what stands out of that order."""
    wanted = lines.request_ids
    held: dict[str, bytes] = {}
    following = 0
    for names, found in _scan(lines.files, set(wanted)):
        if not held and names == wanted[following : following + len(names)]:
            yield from zip(names, found, strict=True)
            following += len(names)
            continue
        held.update(zip(names, found, strict=True))
        while following < len(wanted) and wanted[following] in held:
            yield wanted[following], held.pop(wanted[following])
            following += 1
    if following != len(wanted):
        raise LakeError(
            f"request {wanted[following]} of a shard is not in the lake's requests",
            hint="run `batchpond doctor`; nothing was sent",
        )


def _scan(files: list[Path], wanted: set[str]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield wanted requests and their bodies, reading bodies only of row groups that hold one, until all are found."""
    for path in files:
        with intact(path) as file:
            for group in range(file.num_row_groups):
                if not wanted:
                    return
                names = file.read_row_group(group, ["request_id"], use_threads=False).column(0)
                if not wanted.isdisjoint(names.to_pylist()):
                    yield from _found(file, group, wanted)


def _found(file: pq.ParquetFile, group: int, wanted: set[str]) -> Iterator[tuple[list[str], list[bytes]]]:
    import pyarrow as pa

    for batch in file.iter_batches(_BATCH_ROWS, [group], ["request_id", "body"], use_threads=False):
        all_names = batch.column(0).to_pylist()
        rows = [row for row, name in enumerate(all_names) if name in wanted]
        names, column = [all_names[row] for row in rows], batch.column(1).cast(pa.binary())
        yield names, (column if len(rows) == len(batch) else column.take(pa.array(rows, pa.int32()))).to_pylist()
        wanted.difference_update(names)
        if not wanted:
            return


LINES_PER_FILE = 50_000
_ROWS_PER_WRITE = 5_000
_BYTES_PER_WRITE = 16 << 20
LINE_KEPT_BYTES_MAX: Final = 40 << 20
LINE_END_BYTES: Final = 64 << 10
CUT: Final = b"\n\xff%d bytes, sha256 %b\n"
"""Stands between the ends of a line that is not kept whole; no line has a line feed, and no text this byte."""
FORGOTTEN: Final = b',"batchpond_forgotten":true}'
_NAMED: Final = re.compile(rb'"(?:custom_id|key)"\s*:\s*"([A-Za-z0-9_.:-]{1,200})"')
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")


@dataclass(frozen=True, slots=True)
class RawFile:
    """A result file's identity; the day is the batch's, so that two passes agree on the path."""

    provider: str
    batch_id: str
    attempt_id: str
    file_id: str
    role: FileRole
    sha256: str
    created_at: datetime | None

    @classmethod
    def of(cls, attempt: Attempt, role: FileRole, file_id: str, sha256: str) -> Self:
        """Return the identity of a result file of an attempt."""
        known = (attempt.provider, attempt.known_batch_id, attempt.attempt_id)
        return cls(*known, file_id, role, sha256, attempt.created_at)

    @property
    def stem(self) -> str:
        """The file's name in every table made from it, without its part number."""
        return f"{_safe(self.batch_id)}.{_safe(self.file_id)}.{self.role}.{self.sha256[:12]}"

    def part_name(self, part: int) -> str:
        """Return the name of one part in the raw table."""
        day = self.created_at.strftime("%Y-%m-%d") if self.created_at else "unknown"
        return f"p_provider={self.provider}/p_day={day}/{self.stem}-{part:05d}"


def files_of(attempt: Attempt) -> tuple[RawFile, ...]:
    """Return all that was downloaded of an attempt, output before error."""
    found = (RawFile.of(attempt, event.file_role, event.file_id, event.sha256) for event in attempt.downloads)
    return tuple(sorted(found, key=lambda file: file.role != FileRole.OUTPUT))


def whose(stem: str) -> str:
    """Return which result file of which batch the file's name is of, whatever its bytes were."""
    return stem.rpartition(".")[0]


def _safe(identifier: str) -> str:
    return identifier if _SAFE.fullmatch(identifier) else ids.digest("name", identifier)


def publish_raw(store: Store, file: RawFile, path: Path) -> int:
    """Append a downloaded file's lines to the raw table; returns how many there are.

    Lines end at byte 0x0A and nowhere else. Empty lines are rows too, so that the lengths of
    all lines and their line feeds add up to the file, but for lines that are longer than is kept.
    """
    n_lines = 0
    with path.open("rb") as file_lines:
        lines = whole_or_cut(file_lines)
        for part, first in enumerate(lines):
            chunk = itertools.chain([first], itertools.islice(lines, LINES_PER_FILE - 1))
            n_lines += _publish_part(store, file, part, n_lines, chunk)
    return n_lines


def whole_or_cut(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's lines; of one that is longer than is kept, its ends and what it was, never held whole."""
    for line in iter(partial(file.readline, LINE_KEPT_BYTES_MAX), b""):
        is_whole = len(line) < LINE_KEPT_BYTES_MAX or line.endswith(b"\n")
        yield line if is_whole else _cut(line, iter(partial(file.readline, _BUFFER_BYTES), b""))


def named_in(line: bytes) -> str | None:
    """Return the custom_id, or key, that a line shows of which only the ends are kept; None of any other line.

    A line that a writer left unfinished names a request too, but answers none.
    """
    named = _NAMED.search(line) if b"\n" in line else None
    return named[1].decode("ascii") if named else None


def _cut(line: bytes, rest: Iterator[bytes]) -> bytes:
    digest, n_bytes, head, tail = hashlib.sha256(), 0, line[:LINE_END_BYTES], b""
    for piece in itertools.chain([line], rest):
        text = piece.removesuffix(b"\n")
        digest.update(text)
        n_bytes, tail = n_bytes + len(text), (tail + text)[-LINE_END_BYTES:]
        if piece.endswith(b"\n"):
            break
    return head + CUT % (n_bytes, digest.hexdigest().encode()) + tail + b"\n"


def _publish_part(store: Store, file: RawFile, part: int, start: int, lines: Iterator[bytes]) -> int:
    metadata = {"source_sha256": file.sha256, "first_line_number": str(start + 1)}
    with store.staging(RAW, metadata) as staged:
        for batch in _batches(lines):
            staged.write(_rows(file, start + staged.n_rows + 1, batch))
    store.publish_file(RAW, file.part_name(part), staged.path)
    return staged.n_rows


def _batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line[:-1] if line.endswith(b"\n") else line)
        size += len(line)
        if len(batch) >= _ROWS_PER_WRITE or size >= _BYTES_PER_WRITE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _rows(file: RawFile, first_line_number: int, lines: list[bytes]) -> pa.Table:
    import pyarrow as pa

    n = len(lines)
    same = (file.provider, file.batch_id, file.attempt_id, file.file_id, file.role, file.sha256)
    columns = [pa.repeat(pa.scalar(value, pa.string()), n) for value in same]
    columns.append(pa.array(range(first_line_number, first_line_number + n), pa.int32()))
    return pa.Table.from_arrays([*columns, *_text_and_odd(lines)], schema=RAW.schema)


def _text_and_odd(lines: list[bytes]) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa

    try:
        return pa.array(lines, pa.binary()).cast(pa.string()), pa.nulls(len(lines), pa.binary())
    except pa.ArrowInvalid:
        text = [_text(line) for line in lines]
        odd = [line if read is None else None for line, read in zip(lines, text, strict=True)]
        return pa.array(text, pa.string()), pa.array(odd, pa.binary())


def _text(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def part_paths(store: Store, file: RawFile) -> list[Path]:
    """Return the published parts of a file, in line order."""
    paths = (store.final_path(RAW, file.part_name(part)) for part in itertools.count())
    return list(itertools.takewhile(Path.exists, paths))
