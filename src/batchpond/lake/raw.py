"""Provider output as received: every line of every file, exact bytes, before anything reads it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from batchpond import ids
from batchpond.lake.schemas import RAW
from batchpond.lake.store import Store
from batchpond.model import FileRole

LINES_PER_FILE = 50_000
_ROWS_PER_WRITE = 5_000
_BYTES_PER_WRITE = 16 << 20
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

    @property
    def stem(self) -> str:
        """The file's name in every table made from it, without its part number."""
        return f"{_safe(self.batch_id)}.{_safe(self.file_id)}.{self.role}.{self.sha256[:12]}"

    def part_name(self, part: int) -> str:
        """Return the name of one part in the raw table."""
        day = self.created_at.strftime("%Y-%m-%d") if self.created_at else "unknown"
        return f"p_provider={self.provider}/p_day={day}/{self.stem}-{part:05d}"


def _safe(identifier: str) -> str:
    """Return an id as part of a file name; a provider's odd one by its digest."""
    return identifier if _SAFE.fullmatch(identifier) else ids.digest("name", identifier)


def publish(store: Store, file: RawFile, path: Path) -> int:
    """Append a downloaded file's lines to the raw table; returns how many there are.

    Lines end at byte 0x0A and nowhere else. Empty lines are rows too, so that the lengths of
    all lines and their line feeds add up to the file.
    """
    n_lines = 0
    with path.open("rb") as lines:
        for part in itertools.count():
            chunk = itertools.islice(lines, LINES_PER_FILE)
            first = next(chunk, None)
            if first is None:
                return n_lines
            n_lines += _publish_part(store, file, part, n_lines, itertools.chain([first], chunk))
    raise AssertionError("unreachable")


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
    n = len(lines)
    text, odd = _text_and_odd(lines)

    def constant(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), n)

    columns = [
        constant(file.provider), constant(file.batch_id), constant(file.attempt_id), constant(file.file_id),
        constant(file.role), constant(file.sha256),
        pa.array(range(first_line_number, first_line_number + n), pa.int32()), text, odd,
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=RAW.schema)


def _text_and_odd(lines: list[bytes]) -> tuple[pa.Array, pa.Array]:
    """Return the lines as text, and apart from them those that are not UTF-8."""
    try:
        return pa.array(lines, pa.binary()).cast(pa.string()), pa.nulls(len(lines), pa.binary())
    except pa.ArrowInvalid:
        is_text = [_is_utf8(line) for line in lines]
        text = [line.decode("utf-8") if ok else None for line, ok in zip(lines, is_text, strict=True)]
        odd = [None if ok else line for line, ok in zip(lines, is_text, strict=True)]
        return pa.array(text, pa.string()), pa.array(odd, pa.binary())


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def part_paths(store: Store, file: RawFile) -> list[Path]:
    """Return the published parts of a file, in line order."""
    paths = (store.final_path(RAW, file.part_name(part)) for part in itertools.count())
    return list(itertools.takewhile(Path.exists, paths))
