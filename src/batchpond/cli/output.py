"""Everything that goes to stdout: rows in the asked format, one JSON document, or plain text.

Nothing is written before it is complete, so a command that fails leaves stdout empty.
"""

from __future__ import annotations

import errno
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

from batchpond.cli import formats
from batchpond.cli.formats import Format, Row, json_text
from batchpond.errors import UsageError
from batchpond.text import escape

if TYPE_CHECKING:
    import pyarrow as pa

    from batchpond.views.read import Rows

SPOOL_BYTES = 8 << 20


class ReaderGoneError(Exception):
    """Whoever read stdout has seen enough."""


@contextmanager
def _stdout() -> Iterator[IO[bytes]]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise ReaderGoneError from None
        raise


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be printed, complete, and how many rows a table had to leave out."""

    content: IO[bytes]
    n_left_out: int = 0


def show(prepared: Prepared) -> int:
    """Print it; returns how many rows were left out."""
    with prepared.content as content, _stdout() as stream:
        content.seek(0)
        shutil.copyfileobj(content, stream)
    return prepared.n_left_out


def _emit(chunks: Iterable[str]) -> None:
    show(Prepared(_spooled(chunks)))


def _spooled(chunks: Iterable[str]) -> IO[bytes]:
    spool = _spool()
    with _given_up(spool):
        for chunk in chunks:
            spool.write(chunk.encode())
    return spool


def _spool() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)


@contextmanager
def _given_up(spool: IO[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        spool.close()
        raise


def is_terminal() -> bool:
    """Return whether a person is looking at stdout."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the columns of the terminal, or in a pipe those that COLUMNS says, 80 without it."""
    return shutil.get_terminal_size((80, 24)).columns


def room() -> int | None:
    """Return the columns of the terminal that text is for, None where nobody looks: there nothing is cut."""
    return width() if is_terminal() else None


def text(lines: str) -> None:
    """Print text for people."""
    _emit([escape(lines, keep_newlines=True).rstrip("\n") + "\n"])


def script(source: str) -> None:
    """Print a program's text; bytes unchanged unless a terminal would obey them."""
    _emit([(escape(source, keep_newlines=True) if is_terminal() else source).rstrip("\n") + "\n"])


def document(value: Any) -> None:
    """Print one JSON document."""
    _emit([json_text(value, indent=True) + "\n"])


def line(value: Any) -> None:
    """Print one JSON document on one line, for a stream of them."""
    _emit([json_text(value) + "\n"])


def records(names: Sequence[str], rows: Iterable[Row], form: Format, *, has_color: bool = False) -> int:
    """Print Python rows; returns how many rows a table had to leave out."""
    return show(_records(names, rows, form, has_color=has_color))


def _records(names: Sequence[str], rows: Iterable[Row], form: Format, *, has_color: bool) -> Prepared:
    if form is Format.PARQUET:
        import pyarrow as pa

        table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
        return Prepared(_parquet(table.schema, table.to_batches()))
    names = formats.unique_names(names)
    if form is Format.TABLE:
        return _table(names, rows, has_color=has_color)
    return Prepared(_spooled(_chunks(names, rows, form)))


def table(data: Rows | pa.Table | pa.RecordBatchReader, form: Format, *, has_color: bool = False) -> int:
    """Print rows that a query returned; returns how many a table had to leave out."""
    return show(prepared(data, form, has_color=has_color))


def prepared(data: Rows | pa.Table | pa.RecordBatchReader, form: Format, *, has_color: bool = False) -> Prepared:
    """Take in all rows that a query returns, without printing any."""
    from batchpond.views.read import Rows  # loads DuckDB, which has made these rows

    if isinstance(data, Rows):
        return _records(data.names, chain.from_iterable(data.batches), form, has_color=has_color)
    import pyarrow as pa

    batches = data.to_batches(max_chunksize=10_000) if isinstance(data, pa.Table) else data
    if form is Format.PARQUET:
        return Prepared(_parquet(data.schema, batches))
    return _records(data.schema.names, formats.arrow_rows(batches), form, has_color=has_color)


def _chunks(names: Sequence[str], rows: Iterable[Row], form: Format) -> Iterator[str]:
    match form:
        case Format.JSON:
            return formats.json_array(names, rows)
        case Format.JSONL:
            return formats.json_lines(names, rows)
        case Format.CSV:
            return formats.csv_lines(names, rows, is_terminal=is_terminal())
        case Format.MARKDOWN:
            return formats.markdown_lines(names, rows)
        case Format.TSV:
            return formats.tab_lines(names, rows)
        case Format.TABLE | Format.PARQUET:
            raise AssertionError(f"{form} is not made line by line")


def _table(names: Sequence[str], rows: Iterable[Row], *, has_color: bool) -> Prepared:
    shown: list[Row] = []
    n_left_out = 0
    for row in rows:
        if len(shown) < formats.TERMINAL_ROWS_MAX:
            shown.append(row)
        else:
            n_left_out += 1
    return Prepared(_spooled(formats.terminal_lines(names, shown, width(), has_color=has_color)), n_left_out)


def _parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> IO[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if is_terminal():
        raise UsageError(
            "Parquet is not for a terminal", hint="send it to a file: `... --format parquet > out.parquet`"
        )
    names = formats.unique_names(schema.names)
    renamed = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    spool = _spool()
    with _given_up(spool):
        try:
            with pq.ParquetWriter(spool, renamed, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.rename_columns(names))
        except pa.ArrowNotImplementedError as error:
            raise UsageError(
                f"Parquet cannot hold a column of this result: {error}", hint="cast it to VARCHAR in the query"
            ) from None
    return spool
