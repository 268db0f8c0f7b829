"""A lake of an earlier format becomes one of the present: every file of a table has the same columns afterwards.

A reader without batchpond takes the columns of the first file that it sees for those of all: it would drop what only
later files have, or fail. So a file that lacks columns is written anew with them, empty; its rows are counted and
stand in their order. `FORMATS.md` beside this file has a line for each format; the number in the lake's marker is
raised when a table gains columns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchpond.errors import LakeError
from batchpond.lake import disk, manifest
from batchpond.lake.disk import StagedTable
from batchpond.lake.schemas import TABLES, Table

if TYPE_CHECKING:
    from batchpond.lake.store import Store


@dataclass(frozen=True, slots=True)
class Outdated:
    """The files of an earlier format: those to write anew, and derived ones to drop, for a pass makes them again."""

    short: tuple[tuple[Table, Path], ...]
    dropped: tuple[Path, ...]


def outdated(lake_path: Path) -> Outdated:
    """Return what is of an earlier format; raises LakeError where facts lack a column that has to be known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    short, dropped = list[tuple[Table, Path]](), list[Path]()
    for name, table in TABLES.items():
        for path in map(Path, disk.parquet_files(lake_path / name)):
            try:
                written = pq.read_schema(path).names
            except (pa.ArrowException, OSError):
                continue  # damaged: whoever reads it says so
            lacks = {*table.schema.names} - {*written}
            unknown = sorted(lacks - table.later)
            if unknown and not table.is_derived:
                raise LakeError(
                    f"{lake_path} was written by a version too early for this one: "
                    f"its table {name} lacks {', '.join(unknown)}",
                    hint="collect its open batches with the version that wrote it; then `batchpond plan` the study in "
                    "a new lake and `batchpond adopt` its batches there, so that nothing is bought again",
                )
            if unknown:
                dropped.append(path)
            elif lacks:
                short.append((table, path))
    return Outdated(tuple(short), tuple(dropped))


def take_on(store: Store, found: Outdated) -> None:
    """Write anew what lacks columns and drop what is made again; the lake's lock is held.

    The lists of what must be there let go of a file before it changes, and take it up with the next pass that
    publishes. Who dies on the way leaves each file whole, and the rest to the next.
    """
    for path in found.dropped:
        path.unlink(missing_ok=True)
    manifest.strike(store, {path.relative_to(store.path).as_posix() for _, path in found.short})
    for table, path in found.short:
        staged = _completed(store, table, path)
        if staged is not None:
            disk.replace(staged, path)


def _completed(store: Store, table: Table, path: Path) -> Path | None:
    """Stage the rows of a file with all columns of its table; None for one whose bytes are not as they were written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            said = file.schema_arrow.metadata or {}
            kept = {key.decode(): value.decode() for key, value in said.items() if key != b"lake_format"}
            with store.staging(table, kept) as staged:
                for number in range(file.num_row_groups):
                    staged.write(table.completed(file.read_row_group(number)))
            _check_count(staged, file.metadata.num_rows, path)
    except pa.ArrowException:
        return None  # as it is, it says what is wrong with it to whoever reads it
    return Path(staged.path)


def _check_count(staged: StagedTable, n_rows: int, path: Path) -> None:
    if staged.n_rows != n_rows:
        raise LakeError(
            f"{os.fspath(path)} has {n_rows} rows, of which {staged.n_rows} were copied", hint="nothing was changed"
        )
