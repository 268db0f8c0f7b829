"""The one place where what is published changes: rows leave files, texts leave raw lines, older files gain columns.

A file that changes is listed no longer before it does, and anew by the next pass that publishes: who dies in between
leaves each file whole and nothing amiss, and doing it again finds nothing left to change.

A lake of an earlier format becomes one of the present: every file of a table has the same columns afterwards. A reader
without batchpond takes the columns of the first file that it sees for those of all: it would drop what only later files
have, or fail. So a file that lacks columns is written anew with them, empty; its rows are counted and stand in their
order. `FORMATS.md` beside this file has a line for each format; the number in the lake's marker is raised when a table
gains columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchpond.errors import LakeError
from batchpond.lake import disk, manifest
from batchpond.lake.disk import StagedTable, relative
from batchpond.lake.schemas import RAW, TABLES, Table
from batchpond.lake.store import Store

_TELLING: Final = frozenset(
    {"custom_id", "key", "id", "object", "type", "role", "model", "modelVersion", "status", "code", "request_id",
     "responseId", "finish_reason", "finishReason", "stop_reason", "asked_at", "answered_at", "reason"}
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/+-]{1,128}")


def take_out(store: Store, table: Table, goes: Callable[[pa.Table], pa.ChunkedArray]) -> None:
    """Take the rows that `goes` marks out of a table; the lake's lock is held."""
    for path in store.files(table.name):
        _rewrite(store, table, path, lambda rows: rows.filter(pc.invert(goes(rows))))


def exchange(store: Store, table: Table, key: str, gone: Sequence[str], rows: pa.Table) -> None:
    """Put rows in the place of those of the same key, and take out others that are `gone`; the lake's lock is held.

    A row and what comes in its place are in one file, so that whoever dies in between leaves one of them.
    """
    keys = pa.array(gone, pa.string())

    def exchanged(before: pa.Table) -> pa.Table:
        goes = pc.is_in(before.column(key), value_set=keys)
        if not pc.any(goes).as_py():
            return before
        comes = pc.is_in(rows.column(key), value_set=before.column(key).combine_chunks())
        return pa.concat_tables([before.filter(pc.invert(goes)), rows.filter(comes)])

    for path in store.files(table.name):
        _rewrite(store, table, path, exchanged)


def empty_lines(store: Store, path: Path, is_kept: Callable[[bytes], bool]) -> int:
    """Take the texts out of the lines of a raw file, but those that are kept; return how many lines it was done to."""
    n_emptied = 0

    def emptied(rows: pa.Table) -> pa.Table:
        nonlocal n_emptied
        texts, odds = rows.column("line").to_pylist(), rows.column("line_bytes").to_pylist()
        for at, (text, odd) in enumerate(zip(texts, odds, strict=True)):
            line = text.encode("utf-8") if text is not None else odd or b""
            if not is_kept(line):
                texts[at], odds[at] = without_texts(line), None
                n_emptied += texts[at] != text
        columns = {"line": pa.array(texts, pa.string()), "line_bytes": pa.array(odds, pa.binary())}
        return pa.Table.from_pydict({name: columns.get(name, rows.column(name)) for name in RAW.schema.names})

    _rewrite(store, RAW, path, emptied)
    return n_emptied


def without_texts(line: bytes) -> str:
    """Return a result line with its ids, states and figures, no other text, and `FORGOTTEN` at its end; total."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    return orjson.dumps(_without("", found) | {"batchpond_forgotten": True}).decode() if isinstance(found, dict) else ""


def _without(key: str, value: Any) -> Any:
    match value:
        case dict():
            return {name: _without(name, inner) for name, inner in value.items()}
        case list():
            return [_without(key, inner) for inner in value]
        case str() if key == "body":  # of a live call: the answer's bytes as text
            return without_texts(value.encode("utf-8", "replace"))
        case str():
            return value if key in _TELLING and _WORD.fullmatch(value) else ""
        case _:
            return value


def _rewrite(store: Store, table: Table, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put a file of what is left in a file's place, where anything changes; nothing in the place of an empty one."""
    with disk.intact(path) as file:
        staged, is_same = _staged(store, table, file, change)
    if is_same:
        disk.drop(staged.path)
        return
    manifest.strike(store, relative(store.path, [os.fspath(path)]))
    if staged.n_rows:
        store.replace(staged.path, path)
    else:
        disk.drop(staged.path)
        store.drop(path)


def _staged(
    store: Store, table: Table, file: pq.ParquetFile, change: Callable[[pa.Table], pa.Table] = lambda rows: rows
) -> tuple[StagedTable, bool]:
    """Stage the rows of a file as `change` leaves them, with all columns of its table; and whether it left them all."""
    said = file.schema_arrow.metadata or {}
    metadata = {name.decode(): value.decode() for name, value in said.items() if name != b"lake_format"}
    is_same = True
    with store.staging(table, metadata) as staged:
        for number in range(file.num_row_groups):
            before = table.completed(file.read_row_group(number))
            after = change(before)
            is_same = is_same and after.equals(before)
            staged.write(after)
    return staged, is_same


@dataclass(frozen=True, slots=True)
class Outdated:
    """The files of an earlier format: those to write anew, and derived ones to drop, for a pass makes them again."""

    short: tuple[tuple[Table, Path], ...]
    dropped: tuple[Path, ...]


def outdated(lake_path: Path) -> Outdated:
    """Return what is of an earlier format; raises LakeError where facts lack a column that has to be known."""
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

    One whose bytes are not as they were written stays as it is: it says so to whoever reads it.
    """
    for path in found.dropped:
        store.drop(path)
    manifest.strike(store, relative(store.path, [os.fspath(path) for _, path in found.short]))
    for table, path in found.short:
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                staged, _ = _staged(store, table, file)
                n_rows = file.metadata.num_rows
        except pa.ArrowException:
            continue
        if staged.n_rows != n_rows:
            raise LakeError(
                f"{os.fspath(path)} has {n_rows} rows, of which {staged.n_rows} were copied", hint="nothing was changed"
            )
        store.replace(staged.path, path)
