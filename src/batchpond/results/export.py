"""Copies of a view for other programs: Parquet, CSV or JSON lines, in one file, one per batch, or other layouts.

DuckDB streams the rows, so memory does not grow with the view. A file appears under its final
name whole or not at all, and never replaces another one unless told to.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Final

import duckdb

from batchpond.errors import BatchpondError, LakeError, UsageError
from batchpond.lake import disk
from batchpond.lake.schemas import TABLES
from batchpond.lake.tables import literal, quoted
from batchpond.text import shown
from batchpond.views import database, read

BATCHES_MAX = 100_000
_NAME_LENGTH_MAX = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ROWS = "export_rows"

# What a spreadsheet takes for the start of a formula, wherever invisible characters or spaces
# stand before it; the full-width forms too, which some programs fold to the plain ones.
_FORMULA = r"^[\s\p{Z}\p{C}]*[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|^[\t\r\n]"


class ExportFormat(StrEnum):
    """The kinds of file that `export` writes."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


_OPTIONS = {
    ExportFormat.PARQUET: "FORMAT parquet, COMPRESSION zstd",
    ExportFormat.CSV: "FORMAT csv, HEADER true",
    ExportFormat.JSONL: "FORMAT json",
}


def export(
    lake_path: Path,
    destination: Path,
    *,
    format: ExportFormat,
    per_batch: bool = False,
    view: str = "results",
    defuse_formulas: bool = True,
    force: bool = False,
) -> list[Path]:
    """Write a view to `destination`, a file, or with `per_batch` a folder with one file per batch.

    Rows come in the order of the view's grain; `per_batch` leaves out rows that no batch belongs to. In CSV, text that
    a spreadsheet would run as a formula gets a `'` before it. Returns the files written. Raises UsageError for an
    unknown view, for `per_batch` of a view without batches, and for a file that exists when `force` is not set.
    The destination may be an address, as `disk.destined` has it.
    """
    info = {known.name: known for known in database.views()}.get(view)
    if info is None:
        raise UsageError(f"there is no view {view!r} to export", hint="`batchpond views` lists them")
    order = f"ORDER BY {', '.join(map(quoted, info.grain_columns)) or 'ALL'}"
    source = f"(SELECT {read.carried()} FROM results)" if view == "results" else quoted(view)
    # A file outlives the warning that something is not in it.
    with closing(database.connect(lake_path, must_be_whole=True)) as connection, translated(destination):
        if per_batch:
            with disk.destined(destination, force=force) as folder:
                written = _write_batches(connection, source, order, folder, format, defuse=defuse_formulas, force=force)
            return [destination / path.name for path in written]
        select = _select(connection, source, order, format, defuse=defuse_formulas)
        return [_write(connection, select, destination, _OPTIONS[format], force=force)]


def _write_batches(
    connection: duckdb.DuckDBPyConnection, source: str, order: str, folder: Path, form: ExportFormat,
    *, defuse: bool, force: bool,
) -> list[Path]:  # fmt: skip
    if not {"attempt_id", "batch_id"} <= {name for name, _ in _columns(connection, source)}:
        raise UsageError("this view does not say which batch a row belongs to", hint="export it without --per-batch")
    # The view is worked out once; each batch is then a small scan of a sorted copy that spills to disk.
    connection.execute(
        f"CREATE TEMP TABLE {_ROWS} AS SELECT * FROM {source} WHERE attempt_id IS NOT NULL ORDER BY attempt_id"
    )
    attempts = connection.execute(
        f"SELECT attempt_id, min(batch_id) FROM {_ROWS} GROUP BY attempt_id ORDER BY attempt_id LIMIT {BATCHES_MAX + 1}"
    ).fetchall()
    if len(attempts) > BATCHES_MAX:
        raise UsageError(f"there are more than {BATCHES_MAX:,} batches to export", hint="export them into one file")
    paths = {attempt_id: folder / _file_name(attempt_id, batch_id, form) for attempt_id, batch_id in attempts}
    if not force:
        for path in paths.values():
            disk.refuse_existing(path)
    disk.make_directory(folder)
    written = []
    for attempt_id, path in paths.items():
        batch = f"(SELECT * FROM {_ROWS} WHERE attempt_id = {literal(attempt_id)})"
        select = _select(connection, batch, order, form, defuse=defuse)
        written.append(_write(connection, select, path, _OPTIONS[form], force=force))
    return written


def _file_name(attempt_id: str, batch_id: str | None, form: ExportFormat) -> str:
    # A batch id is the provider's text. The attempt's own id keeps cleaned-up names apart.
    parts = [part for part in (batch_id, attempt_id) if part]
    return "-".join(_UNSAFE.sub("_", part)[:_NAME_LENGTH_MAX] for part in parts) + f".{form}"


def _select(connection: duckdb.DuckDBPyConnection, source: str, order: str, form: ExportFormat, *, defuse: bool) -> str:
    if form is not ExportFormat.CSV or not defuse:
        return f"SELECT * FROM {source} {order}"
    texts = [quoted(name) for name, kind in _columns(connection, source) if kind == "VARCHAR"]
    defused = [
        f"CASE WHEN regexp_matches({column}, {literal(_FORMULA)}) THEN '''' || {column} ELSE {column} END AS {column}"
        for column in texts
    ]
    return f"SELECT * REPLACE ({', '.join(defused)}) FROM (SELECT * FROM {source}) {order}"


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]


def _write(connection: duckdb.DuckDBPyConnection, select: str, path: Path, options: str, *, force: bool) -> Path:
    """Write a query's rows as DuckDB's COPY does with these options, to a file that appears whole or not at all."""
    with disk.placed(path, force=force) as staged:
        target = literal(os.path.abspath(staged))
        connection.execute(f"COPY ({select}) TO {target} ({options}, USE_TMP_FILE false)")
    return path


_LAKE_FILE: Final = re.compile(rf"/(?:{'|'.join(TABLES)})/[^'\"]*\.parquet")


@contextmanager
def translated(destination: Path) -> Iterator[None]:
    """Raise what the disk or DuckDB refuses as an error that says what to check."""
    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename}: the folder does not exist", hint="make it first") from None
    except (OSError, duckdb.Error) as error:
        first_line = str(error).split("\n", 1)[0]
        if _LAKE_FILE.search(first_line):
            hint = "`batchpond doctor` names a damaged file, and what to do about it"
            raise LakeError(f"{shown(destination)} was not written: {first_line}", hint=hint) from error
        raise BatchpondError(
            f"{shown(destination)} could not be written: {first_line}",
            hint="check free space and permissions; `batchpond doctor` checks the lake",
        ) from error


FILES_MAX: Final = 1_000_000
_CSV_OF_R: Final = "FORMAT csv, HEADER true, NULLSTR 'NA'"
_FETCH_ROWS: Final = 1_000


@dataclass(frozen=True)
class Tree:
    """A folder that is filled, from one study or all: its files, and of how many rows it has no place, by reason."""

    connection: duckdb.DuckDBPyConnection
    folder: Path
    study: str | None
    is_forced: bool
    files: list[Path] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def keep(self, name: str, query: str) -> None:
        """Keep the rows of a query, which may name `$study`, as a table."""
        values = {"study": self.study} if "$study" in query else {}
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {query}", values)

    def leave_out(self, table: str, where: str, why: str) -> None:
        """Count rows of a kept table that are not written."""
        ((n_rows,),) = self.connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchall()
        if n_rows:
            self.left_out[why] = n_rows

    def json(self, query: str, between: str) -> None:
        """Write the files that a query has the entries of, one after the other, without holding any.

        Its columns: `file`, a path; `of`, what tells apart two of one path; `head`, what stands before the entries of
        a file; `entry`; `tail`, which ends a file and its last line.
        """
        cursor = self.connection.execute(query)
        rows = itertools.chain.from_iterable(iter(lambda: cursor.fetchmany(_FETCH_ROWS), []))
        for (name, _), entries in itertools.groupby(rows, itemgetter(0, 1)):
            with (
                disk.placed(self._path(name), force=self.is_forced) as staged,
                staged.open("w", encoding="utf-8") as out,
            ):
                end = ""
                for _, _, head, entry, tail in entries:
                    out.write(f"{between if end else head}{entry}")
                    end = tail
                out.write(end)

    def csv(self, name: str, query: str) -> None:
        """Write a query's rows as R reads them: a missing value is NA."""
        _write(self.connection, query, self._path(name), _CSV_OF_R, force=self.is_forced)

    def _path(self, name: str) -> Path:
        path = self.folder / name
        disk.make_directory(path.parent)
        self.files.append(path)
        if len(self.files) > FILES_MAX:
            raise UsageError(f"more than {FILES_MAX:,} files to write", hint="export one `--study` at a time")
        return path
