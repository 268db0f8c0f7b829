"""Putting a plan into the lake: staged first, then only what the lake lacks is published."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.lake.schemas import ROW_GROUP_NARROW, ROW_GROUP_TEXT, Table
from batchpond.lake.store import StagedTable, Store
from batchpond.lake.tables import literal, quoted

REQUEST_FILE_ROWS: Final = 3 * ROW_GROUP_TEXT  # at most 50,000, in whole row groups
PLAN_FILE_ROWS: Final = 4 * ROW_GROUP_NARROW


class Spool:
    """Rows on their way to files of `file_rows` rows each (the last one less), in whole row groups.

    A context manager: files that were not taken by then are removed.
    """

    def __init__(self, store: Store, table: Table, file_rows: int) -> None:
        self.table = table
        self.file_rows = -(-file_rows // table.row_group_rows) * table.row_group_rows
        self.paths: list[Path] = []
        self._store = store
        self._pending: list[pa.Table] = []
        self._n_pending = 0
        self._open = ExitStack()
        self._file: StagedTable | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
        for path in self.paths:
            path.unlink(missing_ok=True)

    def add(self, rows: pa.Table) -> None:
        """Append rows."""
        self._pending.append(rows)
        self._n_pending += rows.num_rows
        group = self.table.row_group_rows
        if self._n_pending >= group:
            self._flush(self._n_pending - self._n_pending % group)

    def finish(self) -> list[Path]:
        """Write what is left and return all files, in row order."""
        self._flush(self._n_pending)
        self._close_file()
        return self.paths

    def _flush(self, n_rows: int) -> None:
        if not n_rows:
            return
        rows = pa.concat_tables(self._pending)
        for start in range(0, n_rows, self.table.row_group_rows):
            stop = min(start + self.table.row_group_rows, n_rows)
            self._write(rows.slice(start, stop - start))
        self._pending = [rows.slice(n_rows).combine_chunks()]
        self._n_pending -= n_rows
        del rows
        pa.default_memory_pool().release_unused()

    def _write(self, rows: pa.Table) -> None:
        if self._file is None:
            self._file = self._open.enter_context(self._store.staging(self.table))
        self._file.write(rows)
        if self._file.n_rows >= self.file_rows:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self.paths.append(self._file.path)
            self._file = None
            self._open.close()


def publish_requests(store: Store, connection: duckdb.DuckDBPyConnection, spool: Spool) -> int:
    """Publish the spooled requests that the lake lacks, each once; return how many those are.

    `connection` has a view `requests` of the lake. Which are new is one anti-join over ids alone.
    """
    paths = spool.finish()
    staged = " union all ".join(
        f"select request_id, {number * spool.file_rows} + file_row_number as place "
        f"from read_parquet({literal(os.fspath(path))}, file_row_number = true)"
        for number, path in enumerate(paths)
    )
    connection.execute(
        f"create or replace temp table fresh as select min(place) as place from ({staged}) as staged "
        "where not exists (select 1 from requests where requests.request_id = staged.request_id) "
        "group by request_id"
    )
    n_new = 0
    for number, path in enumerate(paths):
        low = number * spool.file_rows
        places = connection.execute(
            "select place - ? as row_number from fresh where place >= ? and place < ?",
            [low, low, low + spool.file_rows],
        ).fetchnumpy()["row_number"]
        n_new += len(places)
        publish_rows(store, spool.table, path, places)
    return n_new


def publish_rows(
    store: Store,
    table: Table,
    path: Path,
    row_numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    name: str | None = None,
) -> None:
    """Publish some rows of a spooled file, none as no file; without a name it is one made of their request ids."""
    with pq.ParquetFile(path) as file:
        n_rows = file.metadata.num_rows
        if not len(row_numbers):
            return
        if len(row_numbers) == n_rows:
            names = file.read(columns=["request_id"]).column(0).to_pylist()
            staged = path
        else:
            keep = np.zeros(n_rows, np.bool_)
            keep[row_numbers] = True
            names, staged = _copy_rows(store, table, file, keep)
    store.publish_file(table, name or ids.digest("request file", *names), staged)


def _copy_rows(
    store: Store, table: Table, file: pq.ParquetFile, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[list[str], Path]:
    names: list[str] = []
    start = 0
    with store.staging(table) as staged:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number).replace_schema_metadata(None)
            kept = rows.filter(pa.array(keep[start : start + rows.num_rows]))
            start += rows.num_rows
            names += kept.column("request_id").to_pylist()
            if kept.num_rows:
                staged.write(kept)
    return names, staged.path


def publish_inputs(
    store: Store, connection: duckdb.DuckDBPyConnection, table: Table, hash_column: str, rows: pa.Table
) -> int:
    """Publish the rows whose hash the lake lacks as one file; return how many those are."""
    connection.register("candidates", rows.select([hash_column]))
    column = quoted(hash_column)
    known = f"select 1 from {quoted(table.name)} as known where known.{column} = candidates.{column}"
    found = connection.execute(f"select {column} from candidates where not exists ({known})").fetchall()
    connection.unregister("candidates")
    if not found:
        return 0
    hashes = pa.array([row[0] for row in found], pa.string())
    new = rows.filter(pc.is_in(rows.column(hash_column), value_set=hashes))
    store.publish(table, ids.digest(f"{table.name} file", *new.column(hash_column).to_pylist()), new)
    return len(found)
