"""Requests and plan rows on their way into the lake: one round of a stage, staged first, then only what the lake lacks.

A round is published like a plan: requests first, then the rows that refer to them, last the event that
says the round stands. The same asks make the same files, so a process may die anywhere and the next one
completes the round without a trace."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from batchpond import ids
from batchpond.clock import Work
from batchpond.lake import failpoints, tables
from batchpond.lake.disk import StagedTable
from batchpond.lake.schemas import ITEMS, PLAN, REQUESTS, ROW_GROUP_NARROW, ROW_GROUP_TEXT, RUBRICS, TEMPLATES, Table
from batchpond.lake.store import Store
from batchpond.lake.tables import literal, quoted
from batchpond.plan.asks import Ask, Asks
from batchpond.plan.blocks import BLOCK_ROWS, AskBlocks, Block, Grid, Round, grid_blocks, plan_table, requests_table
from batchpond.plan.cells import ModelConfig, cell_id, make_model_configs
from batchpond.plan.items import Item
from batchpond.plan.rounds.adaptive import Purpose
from batchpond.plan.rows import Rows
from batchpond.providers import registry
from batchpond.study.spec import StageSpec, Study
from batchpond.tasks.templates import Rubric

_KINDS: Final = {REQUESTS.name: "request file"}  # of files whose kind is not their table
REQUEST_FILE_ROWS: Final = 3 * ROW_GROUP_TEXT  # at most 50,000, in whole row groups
PLAN_FILE_ROWS: Final = 4 * ROW_GROUP_NARROW


class Spool:
    """Rows on their way to files of `file_rows` rows each (the last one less), in whole row groups.

    A context manager: files that were not taken by then are removed.
    """

    def __init__(self, store: Store, table: Table, file_rows: int) -> None:
        self.table = table
        # Smaller than others may be: a group is held until it is written, which is most of what planning holds.
        self.group_rows = max(1, table.row_group_rows // (2 if table.has_text else 4))
        self.file_rows = -(-file_rows // self.group_rows) * self.group_rows
        self.paths: list[Path] = []
        self._store = store
        self._pending: list[pa.Table] = []
        self._n_pending = 0
        self._open = ExitStack()
        self._file: StagedTable | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        unfinished = [] if self._file is None else [self._file.path]
        self._open.__exit__(*error)
        for path in (*self.paths, *unfinished):
            path.unlink(missing_ok=True)

    def add(self, rows: pa.Table) -> None:
        """Append rows."""
        self._pending.append(rows)
        self._n_pending += rows.num_rows
        if self._n_pending >= self.group_rows:
            self._flush(self._n_pending - self._n_pending % self.group_rows)

    def finish(self) -> list[Path]:
        """Write what is left and return all files, in row order."""
        self._flush(self._n_pending)
        self._close_file()
        return self.paths

    def _flush(self, n_rows: int) -> None:
        if not n_rows:
            return
        rows = pa.concat_tables(self._pending)
        for start in range(0, n_rows, self.group_rows):
            stop = min(start + self.group_rows, n_rows)
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


def publish_new(store: Store, connection: duckdb.DuckDBPyConnection, spool: Spool) -> None:
    """Publish the spooled rows that the lake lacks by their first column, each once.

    `connection` has a view of the lake's table. Which are new is one anti-join over that column alone.
    """
    paths, table = spool.finish(), quoted(spool.table.name)
    key = quoted(spool.table.schema.names[0])
    staged = " UNION ALL ".join(
        f"SELECT {key}, {number * spool.file_rows} + file_row_number AS place "
        f"from read_parquet({literal(os.fspath(path))}, file_row_number = true)"
        for number, path in enumerate(paths)
    )
    if not paths:
        return
    connection.execute("CREATE OR REPLACE TEMP TABLE fresh (place BIGINT)")
    for part in tables.parts(connection, len(paths) * spool.file_rows):
        connection.execute(tables.query(__package__, "lacking", staged=staged, table=table, key=key), part)
    for number, path in enumerate(paths):
        low = number * spool.file_rows
        places = connection.execute(
            "SELECT place - ? AS row_number FROM fresh WHERE place >= ? AND place < ?",
            [low, low, low + spool.file_rows],
        ).fetchnumpy()["row_number"]
        publish_rows(store, spool.table, path, places)


def publish_rows(
    store: Store, table: Table, path: Path, row_numbers: NDArray[np.int64], name: str | None = None
) -> None:
    """Publish some rows of a spooled file, none as no file; without a name it is one made of their first column."""
    if not len(row_numbers):
        return
    with pq.ParquetFile(path) as file:
        keep = np.zeros(file.metadata.num_rows, np.bool_)
        keep[row_numbers] = True
        if name is None:
            known = file.read(columns=table.schema.names[:1]).column(0).filter(pa.array(keep))
            name = ids.digest(_KINDS.get(table.name, f"{table.name} file"), known=known.to_pylist())
        staged = path if keep.all() else _copy_rows(store, table, file, keep)
    store.publish_file(table, name, staged)


def _copy_rows(store: Store, table: Table, file: pq.ParquetFile, keep: NDArray[np.bool_]) -> Path:
    start = 0
    with store.staging(table) as staged:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number).replace_schema_metadata(None)
            kept = rows.filter(pa.array(keep[start : start + rows.num_rows]))
            start += rows.num_rows
            if kept.num_rows:
                staged.write(kept)
    return staged.path


_FETCH_ROWS: Final = 10_000
_SEPARATOR: Final = "\x1f"

_PLANNED: Final = tables.query(__package__, "planned")
_FRESH: Final = tables.query(__package__, "fresh")
_ALIKE: Final = tables.query(__package__, "alike")


def ask_id(ask: Ask) -> bytes:
    """Return a digest of what tells an ask from the stage's others."""
    return hashlib.md5(_SEPARATOR.join(ask.key).encode("utf-8"), usedforsecurity=False).digest()


class PlannedAsks:
    """The `ask_id`s of asks that are planned, in 16 bytes each."""

    def __init__(self, digests: bytes) -> None:
        self._sorted = np.sort(np.frombuffer(digests, "S16"))

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, ask: bytes) -> bool:
        wanted = np.bytes_(ask)
        place = int(self._sorted.searchsorted(wanted))
        return place < len(self._sorted) and bool(self._sorted[place] == wanted.rstrip(b"\0"))


def planned_asks(connection: duckdb.DuckDBPyConnection, found: Round) -> PlannedAsks:
    """Return the `ask_id`s of a stage's asks of which every row is planned; `connection` has a view of `plan`."""
    stage = found.stage
    values = {
        "study": found.study,
        "version": found.version,
        "stage": stage.name,
        "n_rows": len(found.configs) * len(stage.templates) * stage.repeats,
        "n_repeats": stage.repeats,
    }
    result = connection.execute(_PLANNED, values)
    digests = bytearray()
    while rows := result.fetchmany(_FETCH_ROWS):
        digests += bytes.fromhex("".join(row[0] for row in rows))
    return PlannedAsks(bytes(digests))


def publish(store: Store, connection: duckdb.DuckDBPyConnection, found: Round, asked: Grid | Iterable[Asks]) -> int:
    """Write the requests and plan rows of a grid or of asks, and return how many rows the lake lacked.

    `connection` has views of `plan`, `requests` and the input tables. Rows that stand already, as when a
    process died between two files of a round, are left out. Raises StudyError for a request that no batch
    could hold, before anything is written; inputs and requests are published before the rows that refer to them.
    """
    with (
        Spool(store, REQUESTS, REQUEST_FILE_ROWS) as requests,
        Spool(store, PLAN, PLAN_FILE_ROWS) as plan,
        Spool(store, ITEMS, REQUEST_FILE_ROWS) as items,
    ):
        inputs = _Inputs(items, asked.items if isinstance(asked, Grid) else ())
        n_rows: int | None = None
        if isinstance(asked, Grid):
            blocks = grid_blocks(found, asked, BLOCK_ROWS)
            n_rows = len(asked) * len(found.configs) * len(found.stage.templates)
        else:
            blocks = AskBlocks(found, inputs.keep, BLOCK_ROWS).of(asked)
        with Work(f"planning {found.stage.name}", "requests", n_rows) as work:
            for block in blocks:
                block.check()
                inputs.note(block)
                requests.add(requests_table(block))
                plan.add(plan_table(found, block))
                work.add(len(block.request_ids))
        if not inputs.rubrics:
            return 0
        publish_new(store, connection, requests)
        _publish_inputs(store, connection, found.stage, inputs.rubrics.values(), items)
        failpoints.reach("R0")
        return _publish_plan(store, connection, found, plan.finish())


def _publish_plan(store: Store, connection: duckdb.DuckDBPyConnection, found: Round, paths: Sequence[Path]) -> int:
    n_rows = 0
    for number, path in enumerate(paths):
        name = found.file_name(number)
        if found.is_fresh:
            n_rows += pq.read_metadata(path).num_rows
            store.publish_file(PLAN, name, path)
            continue
        rows = _marked(store, connection, found, path) if found.has_alike else path
        sql = _FRESH.format(path=literal(os.fspath(rows)))
        fresh = connection.execute(sql, {"study": found.study, "version": found.version})
        places = fresh.fetchnumpy()["place"]
        publish_rows(store, PLAN, rows, places, name)
        rows.unlink(missing_ok=True)  # where rows that stand were left out, what was published is a copy
        n_rows += len(places)
    return n_rows


def _marked(store: Store, connection: duckdb.DuckDBPyConnection, found: Round, path: Path) -> Path:
    """Return a file of rows of which those are marked that another stage has too: one answer is one vote."""
    sql, values = _ALIKE.format(path=literal(os.fspath(path))), {"study": found.study, "version": found.version}
    places = connection.execute(sql, {**values, "stage": found.stage.name}).fetchnumpy()["place"]
    if not len(places):
        return path
    place = PLAN.schema.get_field_index("purpose")
    with pq.ParquetFile(path) as file, store.staging(PLAN) as staged:
        start = 0
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number).replace_schema_metadata(None)
            is_shared = np.isin(np.arange(start, start + rows.num_rows), places)
            start += rows.num_rows
            purposes = pc.if_else(pa.array(is_shared), Purpose.SHARED.value, rows.column(place))
            staged.write(rows.set_column(place, PLAN.schema.field(place), purposes))
    return staged.path


class _Inputs:
    """The rows and rubrics of what passed by, each once; the rows are spooled."""

    def __init__(self, items: Spool, of_grid: Sequence[Item]) -> None:
        self.rubrics: dict[str, Rubric] = {}
        self._items = items
        self._seen: set[str] = set()
        if of_grid:
            items.add(_columns(ITEMS, [(item.item_hash, *item) for item in of_grid]))

    def note(self, block: Block) -> None:
        """Take the rubrics of a block."""
        for cell in block.cells:
            self.rubrics.setdefault(cell.rubric.rubric_hash, cell.rubric)

    def keep(self, rows: Rows) -> None:
        """Take rows."""
        fresh = {name: place for place, name in enumerate(rows.hashes) if name not in self._seen}
        if fresh:
            self._seen.update(fresh)
            found = rows if len(fresh) == len(rows) else rows.take([*fresh.values()])
            columns = [pa.array(found.hashes), *map(found.arrow, ("item_id", "text", "metadata"))]
            self._items.add(pa.Table.from_arrays(columns, schema=ITEMS.schema))


def _publish_inputs(
    store: Store, connection: duckdb.DuckDBPyConnection, stage: StageSpec, rubrics: Iterable[Rubric], items: Spool
) -> None:
    by = [tuple(getattr(rubric, name) for name in RUBRICS.schema.names) for rubric in rubrics]
    how = [(template.template_hash, template.template_id, template.text) for template in stage.templates]
    for table, rows in ((RUBRICS, by), (TEMPLATES, how)):
        with Spool(store, table, REQUEST_FILE_ROWS) as spool:
            spool.add(_columns(table, rows))
            publish_new(store, connection, spool)
    publish_new(store, connection, items)


def _columns(table: Table, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), table.schema.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=table.schema)


INPUT_TABLES: Final = ("items", "rubrics", "templates", "requests", "plan")
FIRST_ROUND: Final = 1
_FIRST_CELL: Final = tables.query(__package__, "first_cell")
_PLACE: Final = tables.query(__package__, "place")


def publish_round(
    store: Store, staged: Study, version: str, round_no: int, stage: StageSpec, asked: Grid | Iterable[Asks], *,
    configs: Sequence[ModelConfig] = (), is_only: bool = False,
) -> int:  # fmt: skip
    """Plan what is new of a stage's grid or asks as rows of a round; return how many rows that adds.

    `configs` are the stage's, made anew where none are given; a study without further rounds `is_only` this one.
    """
    if not configs:
        configs, _ = make_model_configs(stage.models, registry.module, staged.unsupported, staged.source, **stage.wants)
    with tables.connect(store, INPUT_TABLES) as connection:
        values: dict[str, str | int] = {"study": staged.name, "version": version, "round_no": round_no}
        n_slots, n_files = connection.execute(_PLACE, values).fetchall()[0]
        in_cells = _stage_in_cells(connection, staged, version, stage)
        # The rows of a study without rounds stand where its grid says, whatever of them is there.
        first_slot, first_file = (0, 0) if is_only else (n_slots, n_files)
        found = Round(
            staged.name, version, round_no, stage, configs, first_slot, first_file, in_cells, is_only,
            is_fresh=n_slots == 0, has_alike=n_slots > 0 and staged.has_alike(stage),
        )  # fmt: skip
        if not (found.is_fresh or isinstance(asked, Grid)) and (known := planned_asks(connection, found)):
            asked = (some.take([at for at, ask in enumerate(some) if ask_id(ask) not in known]) for some in asked)
        return publish(store, connection, found, asked)


def _stage_in_cells(connection: duckdb.DuckDBPyConnection, study: Study, version: str, stage: StageSpec) -> str | None:
    """Return the stage as it enters a version's cell ids, None where it does not; `connection` has a view of `plan`.

    What stands decides: a version of pairs that was planned with the stage in its ids goes on so.
    """
    if not study.is_pairs_alone:
        return stage.name
    values = {"study": study.name, "version": version, "stage": stage.name}
    found = connection.execute(_FIRST_CELL, values).fetchone()
    is_named = found is not None and found[-1] == cell_id(study.name, found[:-1], stage.name)
    return stage.name if is_named else None
