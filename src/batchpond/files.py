"""Reading files that a person names: whole texts within bounds, and rows made elsewhere with true line numbers.

Nothing here knows the lake or what columns mean. CSV, Parquet and JSON lines are read in blocks, so memory does not
grow with a file.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from batchpond.errors import StudyError, UsageError
from batchpond.fields import delimiter_of

_T = TypeVar("_T")

BLOCK_ROWS: Final = 50_000
LINE_SIZE_MAX_BYTES: Final = 1_000_000
FIELD_SIZE_MAX: Final = 100_000_000
PROBLEMS_SHOWN_MAX: Final = 20
_UNKNOWN_SHOWN_MAX: Final = 20
_BOM: Final = b"\xef\xbb\xbf"
SLASHES: Final = "write paths with /: in double quotes a backslash begins an escape; under WSL, C:\\ is /mnt/c"


def readers(group: str) -> list[str]:
    """Return the names of an entry-point group: what installed packages, this one too, can read besides."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it loads the mail package, and few commands need it

    return sorted(entry_points(group=group).names)


def reader_of(group: str, name: str, what: str) -> Any:
    """Return what reads `what`, which an entry point names; raises UsageError where its package cannot be loaded."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - as above

    entry = entry_points(group=group)[name]
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        package = entry.dist.name if entry.dist else entry.value
        raise UsageError(
            f"the package {package} cannot read {what}: {error}", hint="install it anew, or ask its authors"
        ) from error


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a file must and may have, and how other tools call them (`aliases`, lower case).

    A file with all columns of `own` is a table of batchpond's, whose other columns say nothing here.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    aliases: Mapping[str, str]
    suffixes: tuple[str, ...] = (".csv", ".tsv", ".parquet")
    own: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, the required ones first."""
        return (*self.required, *self.optional)

    @property
    def schema(self) -> pa.Schema:
        """What `RowFile.blocks` yields: the line number, and every column as text."""
        return pa.schema([("line_no", pa.int64()), *((name, pa.string()) for name in self.names)])


@dataclass
class Noted(Generic[_T]):
    """What was noted, such as rows that cannot be used: all counted, the first few kept."""

    n: int = 0
    shown: list[_T] = field(default_factory=list)

    def add(self, one: _T) -> None:
        """Note one."""
        self.n += 1
        if len(self.shown) < PROBLEMS_SHOWN_MAX:
            self.shown.append(one)


Problems = Noted[tuple[int, str]]
"""Rows that cannot be used: the number of each, and what is wrong with it."""


class RowFile:
    """A file of rows; `unit` says what its numbers count, `problems` what could not be read."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self.path = path
        self.columns = columns
        self.problems = Problems()
        self._suffix = path.suffix.lower()
        if self._suffix not in columns.suffixes:
            *most, last = (f"a {suffix}" for suffix in columns.suffixes)
            raise UsageError(f"{path}: neither {', '.join(most)} nor {last} file", hint="convert it to one of these")
        self.unit = "row" if self._suffix == ".parquet" else "line"

    def blocks(self) -> Iterator[pa.Table]:
        """Yield the rows as text, in blocks of the columns' schema; raises UsageError where reading cannot go on."""
        try:
            match self._suffix:
                case ".parquet":
                    yield from _parquet_blocks(self)
                case ".jsonl":
                    yield from _blocks(self, _flat_rows(self))
                case _:
                    yield from _blocks(self, csv_rows(self.path, check=partial(_check_columns, self)))
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read: {error.strerror or error}") from error


def csv_records(
    path: Path, line_size_max_bytes: int = LINE_SIZE_MAX_BYTES
) -> Generator[tuple[int, list[str]], None, None]:
    """Yield the records of a CSV file of any columns with the line that each starts on; raises UsageError.

    The file is closed at its end, or by `close`.
    """
    try:
        with _Lines(path, line_size_max_bytes) as lines:
            yield from _records(lines, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def csv_rows(
    path: Path, line_size_max_bytes: int = LINE_SIZE_MAX_BYTES, check: Callable[[list[str]], None] = lambda _: None
) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Yield each row of a CSV file, or what is wrong with it, with the line that it starts on; raises UsageError."""
    with closing(csv_records(path, line_size_max_bytes)) as records:
        _, header = next(records, (1, []))
        check(header)
        if not header:
            raise UsageError(f"{path}: is empty; its first line must name the columns")
        for name in header:
            if header.count(name) > 1:
                raise UsageError(f"{path}: column {name!r} stands in the header more than once")
        for start, fields in records:
            if len(fields) == len(header):
                yield start, dict(zip(header, fields, strict=True))
            elif fields:
                yield start, f"has {len(fields)} fields, the header has {len(header)}"


def json_rows(lines: Iterable[str | bytes]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield the object on each line that is not blank, or what is wrong with it, with the line's number."""
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield number, f"is not JSON: {error}"
            continue
        yield number, row if isinstance(row, dict) else "is not a JSON object"


def listed(lines: Iterable[str], n_all: int, shown_max: int = PROBLEMS_SHOWN_MAX) -> str:
    """Return the first problems of `n_all` as indented lines, and how many more there are."""
    shown = list(lines)[:shown_max]
    rest = n_all - len(shown)
    return "".join(f"\n  {line}" for line in [*shown, *([f"and {rest:,} more"] if rest else [])])


class _Lines:
    """A file's lines, split at line feeds only, as editors and `sed` count them; open while it is entered."""

    def __init__(self, path: Path, size_max_bytes: int = LINE_SIZE_MAX_BYTES) -> None:
        self._path, self._size_max_bytes = path, size_max_bytes
        self._stream = path.open("rb")
        self.n_read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[bytes]:
        while line := self._stream.readline(self._size_max_bytes + 1):
            self.n_read += 1
            if len(line) > self._size_max_bytes:
                raise UsageError(f"{self._path}: line {self.n_read} is longer than {self._size_max_bytes:,} bytes")
            yield line.removeprefix(_BOM) if self.n_read == 1 else line

    def first(self) -> str:
        """Return the first line, before any is read."""
        line = self._stream.readline(LINE_SIZE_MAX_BYTES)
        self._stream.seek(0)
        return line.decode("utf-8", "replace")

    def text(self, line: bytes) -> str:
        """Return the line just read as text."""
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            raise UsageError(
                f"{self._path}: line {self.n_read} is not UTF-8", hint="save the file as UTF-8; nothing was recorded"
            ) from None


def _records(lines: _Lines, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the line that it starts on; a quoted field may span lines."""
    reader = csv.reader(map(lines.text, lines), delimiter=delimiter_of(lines.first()), strict=True)
    # The limit is the process's, and long texts need more than its default. Put back, it would end who still reads.
    csv.field_size_limit(max(csv.field_size_limit(), FIELD_SIZE_MAX))
    try:
        start = lines.n_read + 1
        for record in reader:
            yield start, record
            start = lines.n_read + 1
    except csv.Error as error:
        raise UsageError(
            f"{path}: the record that starts on line {start} is not CSV: {error} (line {lines.n_read})",
            hint='check its quotes: a quote inside a quoted field is written twice (""); nothing was recorded',
        ) from None


def _blocks(file: RowFile, rows: Iterable[tuple[int, Mapping[str, Any] | str]]) -> Iterator[pa.Table]:
    """Yield rows as text, so many at a time; what is wrong with one is noted."""
    block: list[tuple[int, Mapping[str, Any]]] = []
    for number, row in rows:
        if isinstance(row, str):
            file.problems.add((number, row))
            continue
        block.append((number, row))
        if len(block) == BLOCK_ROWS:
            yield _block(file.columns, block)
            block = []
    yield _block(file.columns, block)


def _block(columns: Columns, block: Sequence[tuple[int, Mapping[str, Any]]]) -> pa.Table:
    arrays = [pa.array([number for number, _ in block], pa.int64())]
    for name in columns.names:
        values = (row.get(name) for _, row in block)
        arrays.append(pa.array([None if value in {None, ""} else str(value) for value in values], pa.string()))
    return pa.table(arrays, schema=columns.schema)


def _flat_rows(file: RowFile) -> Iterator[tuple[int, dict[str, Any] | str]]:
    with _Lines(file.path) as lines:
        for number, row in json_rows(lines):
            yield number, row if isinstance(row, str) else _flat(row, file.columns)


def _flat(row: dict[str, Any], columns: Columns) -> dict[str, Any] | str:
    """Return a row of known columns with a text or number in each, or what is wrong with it."""
    if unknown := [name for name in row if name not in columns.names]:
        return f"has an unknown key {_suggested(unknown[0], columns)}"
    nested = next((name for name, value in row.items() if isinstance(value, list | dict)), None)
    return row if nested is None else f"has {nested!r} that is neither text nor a number"


def _parquet_blocks(file: RowFile) -> Iterator[pa.Table]:
    columns = file.columns
    try:
        with pq.ParquetFile(file.path) as parquet:
            _check_columns(file, parquet.schema_arrow.names)
            n_read = 0
            for batch in parquet.iter_batches(BLOCK_ROWS):
                numbers = pa.array(range(n_read + 1, n_read + 1 + batch.num_rows), pa.int64())
                n_read += batch.num_rows
                texts = (_texts(batch, name, file.path) for name in columns.names)
                yield pa.table([numbers, *texts], schema=columns.schema)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{file.path}: not a readable Parquet file: {error}") from None


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


def _check_columns(file: RowFile, names: Sequence[str]) -> None:
    path, columns = file.path, file.columns
    hint = f"needed: {', '.join(columns.required)}; optional: {', '.join(columns.optional)}"
    is_own = columns.own and {*columns.own} <= {*names}
    unknown = [name for name in names if name not in columns.names and not is_own]
    if unknown:
        told = ", ".join(_suggested(name, columns) for name in unknown[:_UNKNOWN_SHOWN_MAX])
        raise UsageError(f"{path}: unknown {'columns' if len(unknown) > 1 else 'column'} {told}", hint=hint)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(f"{path}: column {repeated[0]!r} stands in the header more than once")
    missing = [name for name in columns.required if name not in names]
    if missing:
        raise UsageError(f"{path}: no column {', '.join(map(repr, missing))}", hint=hint)


def _suggested(name: str, columns: Columns) -> str:
    known = columns.aliases.get(name.lower())
    close = [known] if known else difflib.get_close_matches(name.lower(), columns.names, n=1)
    return f"{name[:80]!r}" + (f" (did you mean {close[0]!r}?)" if close else "")


_VARIABLE: Final = re.compile(
    r"""(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(?:'([^']*)'|"([^"]*)"|((?![\'"]).*?))\s*(?:(?<=\s)\#.*)?"""
)


def variables(path: Path) -> dict[str, str]:
    """Return what a file of lines NAME=VALUE sets; raises UsageError that names the line, never what stands there."""
    found = {}
    for number, line in enumerate(read_text(path, LINE_SIZE_MAX_BYTES).splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            match = _VARIABLE.fullmatch(text)
            if match is None:
                raise UsageError(f"{path}:{number}: is no NAME=VALUE", hint="quotes must be closed on the same line")
            found[match[1]] = next(value for value in match.groups()[1:] if value is not None)
    return found


def read_bytes(path: Path, size_max: int, hint: str | None = None) -> bytes:
    """Return a file's bytes; raises StudyError for one that cannot be read or is larger than `size_max` bytes.

    Without a `hint` of what else to do, that of one that cannot be read says how paths are written.
    """
    try:
        with path.open("rb") as file:
            data = file.read(size_max + 1)
    except OSError as error:
        is_plain = str(path).isprintable() and "\\" not in str(path)
        usual = "paths start at the study file's folder" if is_plain else SLASHES
        raise StudyError(f"{path}: {error.strerror or error}", hint=hint or usual) from None
    if len(data) > size_max:
        raise StudyError(f"{path}: larger than {size_max:,} bytes")
    return data


def read_text(path: Path, size_max: int) -> str:
    """Return a text file's content; raises StudyError for what cannot be read, is too large or no UTF-8."""
    return decoded(read_bytes(path, size_max), path)


def decoded(data: bytes, source: Path | str) -> str:
    """Return what a file holds as text; raises StudyError that names the line for what is no UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StudyError(f"{source}:{line}: not valid UTF-8 ({error.reason})", hint="save the file as UTF-8") from None
