"""Reading a file of judgments made elsewhere: CSV or Parquet, as text columns with true line numbers.

Nothing here knows the lake. A file is read in blocks, so memory does not grow with it.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond.errors import UsageError

REQUIRED: Final = ("item_first", "item_second", "verdict")
OPTIONAL: Final = (
    "study", "template_id", "rubric_id", "provider", "model", "thinking", "unit_id", "repeat_no", "confidence",
    "input_tokens", "output_tokens", "cost_usd",
)  # fmt: skip
COLUMNS: Final = (*REQUIRED, *OPTIONAL)
BLOCK_ROWS: Final = 50_000
LINE_SIZE_MAX_BYTES: Final = 1_000_000
PROBLEMS_SHOWN_MAX: Final = 20
SCHEMA: Final = pa.schema([("line_no", pa.int64()), *((name, pa.string()) for name in COLUMNS)])
# How other tools call these columns.
_KNOWN_ELSEWHERE: Final = {
    "id1": "item_first", "id2": "item_second", "item_a": "item_first", "item_b": "item_second",
    "better_id": "verdict", "winner": "verdict", "outcome": "verdict", "request_model": "model", "judge": "model",
    "template": "template_id", "trait": "rubric_id", "rubric": "rubric_id", "prompt_id": "unit_id",
    "repeat": "repeat_no",
}  # fmt: skip


@dataclass
class Problems:
    """Rows that cannot be imported: all counted, the first few kept."""

    n: int = 0
    shown: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line_no: int, text: str) -> None:
        """Note one row."""
        self.n += 1
        if len(self.shown) < PROBLEMS_SHOWN_MAX:
            self.shown.append((line_no, text))


class JudgmentFile:
    """A file of judgments; `unit` says what its numbers count, `problems` what could not be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems = Problems()
        suffix = path.suffix.lower()
        if suffix not in {".csv", ".parquet"}:
            raise UsageError(f"{path}: neither a .csv nor a .parquet file", hint="convert it to one of the two")
        self.unit = "line" if suffix == ".csv" else "row"

    def blocks(self) -> Iterator[pa.Table]:
        """Yield the rows as text, in blocks of `SCHEMA`; raises UsageError where reading cannot go on."""
        try:
            yield from _csv_blocks(self.path, self.problems) if self.unit == "line" else _parquet_blocks(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read: {error.strerror or error}") from error


def _csv_blocks(path: Path, problems: Problems) -> Iterator[pa.Table]:
    lines = _Lines(path)
    reader = csv.reader(lines, strict=True)
    records = _records(reader, lines, path)
    start, header = next(records, (1, []))
    _check_columns(header, path)
    block: list[tuple[int, list[str]]] = []
    for start, fields in records:
        if not fields:
            continue  # a blank line
        if len(fields) != len(header):
            problems.add(start, f"has {len(fields)} fields, the header has {len(header)}")
            continue
        block.append((start, fields))
        if len(block) == BLOCK_ROWS:
            yield _csv_block(header, block)
            block = []
    yield _csv_block(header, block)


class _Lines:
    """A file's lines as text, split at line feeds only, as editors and `sed` count them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = count(1)
        self.n_read = 0

    def __iter__(self) -> Iterator[str]:
        with self._path.open("rb") as stream:
            while line := stream.readline(LINE_SIZE_MAX_BYTES + 1):
                self.n_read = next(self._numbers)
                if len(line) > LINE_SIZE_MAX_BYTES:
                    raise UsageError(f"{self._path}: line {self.n_read} is longer than {LINE_SIZE_MAX_BYTES:,} bytes")
                yield self._text(line.removeprefix(b"\xef\xbb\xbf") if self.n_read == 1 else line)

    def _text(self, line: bytes) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            raise UsageError(
                f"{self._path}: line {self.n_read} is not UTF-8", hint="save the file as UTF-8; nothing was imported"
            ) from None


def _records(reader: Iterator[list[str]], lines: _Lines, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the line that it starts on; a quoted field may span lines."""
    while True:
        start = lines.n_read + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(
                f"{path}: the record that starts on line {start} is not CSV: {error}",
                hint='check its quotes: a quote inside a quoted field is written twice (""); nothing was imported',
            ) from None


def _csv_block(header: Sequence[str], block: Sequence[tuple[int, list[str]]]) -> pa.Table:
    columns = {name: [fields[index] or None for _, fields in block] for index, name in enumerate(header)}
    arrays = [pa.array([start for start, _ in block], pa.int64())]
    arrays += [pa.array(columns.get(name, [None] * len(block)), pa.string()) for name in COLUMNS]
    return pa.table(arrays, schema=SCHEMA)


def _parquet_blocks(path: Path) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(file.schema_arrow.names, path)
            n_read = 0
            for batch in file.iter_batches(BLOCK_ROWS):
                numbers = pa.array(range(n_read + 1, n_read + 1 + batch.num_rows), pa.int64())
                n_read += batch.num_rows
                yield pa.table([numbers, *(_texts(batch, name, path) for name in COLUMNS)], schema=SCHEMA)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{path}: not a readable Parquet file: {error}") from None


def _texts(batch: pa.RecordBatch, name: str, path: Path) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    column = batch.column(name)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise UsageError(f"{path}: column {name!r} has type {column.type}, not text or numbers") from None


def _check_columns(names: Sequence[str], path: Path) -> None:
    """Raise UsageError for a header that this cannot be: unknown, repeated or missing columns."""
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise UsageError(
            f"{path}: unknown {'columns' if len(unknown) > 1 else 'column'} {', '.join(map(_suggested, unknown[:20]))}",
            hint=_header_hint(names),
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(f"{path}: column {repeated[0]!r} stands in the header more than once")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise UsageError(f"{path}: no column {', '.join(map(repr, missing))}", hint=_header_hint(names))


def _suggested(name: str) -> str:
    known = _KNOWN_ELSEWHERE.get(name.lower())
    close = [known] if known else difflib.get_close_matches(name.lower(), COLUMNS, n=1)
    return f"{name[:80]!r}" + (f" (did you mean {close[0]!r}?)" if close else "")


def _header_hint(names: Sequence[str]) -> str:
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        return "columns are separated by commas"
    return f"needed: {', '.join(REQUIRED)}; optional: {', '.join(OPTIONAL)}"
