"""SQL over the lake's tables for batchpond's own decisions: in memory, over an explicit file list.

One engine of the process answers, its spill beside the lake: starting one takes longer than most of what is asked
of it, and a pass asks a dozen times.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchpond.errors import LakeError
from batchpond.lake import disk, manifest
from batchpond.lake.schemas import TABLES
from batchpond.lake.store import Memo, Store, keep_memo, recall_memo

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "256MB"
FOLDED: Final[Mapping[str, tuple[str, ...]]] = {"shard_requests": (), "responses": ("text", "thoughts", "refusal")}
"""The tables that have a file per batch, whose rows `fold` keeps in one more, without these columns: texts."""
FOLD_ABOVE = 64
_FOLD: Final = "2"
FOLD_SHARE = 16  # what is folded is copied again once so large a part of it has come since
PART_ROWS, PARTS_MAX = 1 << 18, 3  # the keys of a part take some tens of MB, and each part reads those of all
QUIET: Final = "SET enable_progress_bar = FALSE; SET TimeZone = 'UTC';"
"""For each connection, which else draws a bar on stdout in `python -c`, and has days and hours as the machine has."""


@dataclass(slots=True)
class _Engine:
    lake_path: Path
    spill: Path
    database: duckdb.DuckDBPyConnection
    n_open: int = 0


class _Engines:
    """The engine of the lake that was asked about last, and others as long as somebody still asks them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: _Engine | None = None
        self._lost: list[_Engine] = []

    @contextmanager
    def connection(self, store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection to the lake's engine, whose temporary tables and views are its own.

        An engine that has spilled ends with its last connection, and its folder with it.
        """
        with self._lock:
            if self._current is None or self._current.lake_path != store.path:
                self._current = _start(store)
            engine = self._current
            engine.n_open += 1
        try:
            with engine.database.cursor() as connection:
                connection.execute(QUIET)
                yield connection
        finally:
            with self._lock:
                engine.n_open -= 1
                if not engine.n_open and engine.spill.exists():
                    engine.database.close()
                    shutil.rmtree(engine.spill, ignore_errors=True)
                    self._current = None if engine is self._current else self._current

    def forget(self) -> None:
        """Start anew in a forked child: the threads of the engine stayed with its parent, and nothing can end it."""
        self._lock = threading.Lock()
        if self._current is not None:
            self._lost.append(self._current)
        self._current = None


_ENGINES = _Engines()
os.register_at_fork(after_in_child=_ENGINES.forget)


def _start(store: Store) -> _Engine:
    import duckdb  # an idle pass asks nothing of it

    # A folder of its own: two processes that spill into one overwrite each other's blocks.
    spill = store.scratch(".spill")
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": os.fspath(spill),
        "threads": 2,
        "enable_external_file_cache": False,
    }
    return _Engine(store.path, spill, duckdb.connect(":memory:", config=config))


@contextmanager
def connect(store: Store, tables: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with one view per named table; an empty table is an empty view.

    Raises LakeError where a file that was published is gone or damaged: what follows decides what is bought.
    """
    with _ENGINES.connection(store) as connection, reading(f"what is asked of {', '.join(tables) or 'the lake'}"):
        manifest.require(store, manifest.GUARDED.intersection(tables))
        for name in tables:
            connection.execute(f"CREATE TEMP VIEW {name} AS {_select(store, name)}")
        yield connection


def give_back(connection: duckdb.DuckDBPyConnection) -> None:
    """Have the engine return to the system what a query has let go, which it does where its limit is set."""
    with connection.cursor() as beside:  # a result that is still being read stays
        beside.execute(f"SET memory_limit = {literal(MEMORY_LIMIT)}")


def parts(connection: duckdb.DuckDBPyConnection, n_rows: int) -> Iterator[dict[str, int]]:
    """Yield parameters by which SQL takes some of the rows, by their key's digest; what each held is given back."""
    n_parts = min(max(1, -(-n_rows // PART_ROWS)), PARTS_MAX)
    for part in range(n_parts):
        yield {"part": part, "n_parts": n_parts}
        if n_parts > 1:
            give_back(connection)


def rows(store: Store, names: Sequence[str], sql: str, values: object = None) -> list[tuple[Any, ...]]:
    """Return the rows of one SELECT over the named tables; raises LakeError as `connect` does."""
    with connect(store, names) as connection:
        return connection.execute(sql, values).fetchall()


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise what DuckDB or Arrow say of a file that is gone or damaged as LakeError; `what` is what was to be read."""
    try:
        yield
    except Exception as error:
        import duckdb  # no reader without an error needs them here
        import polars as pl
        import pyarrow as pa

        # Arrow's readers raise OSError with DuckDB's text, and without a number of the system's.
        is_read_error = isinstance(error, OSError) and error.errno is None
        if not isinstance(error, (duckdb.Error, pa.ArrowException, pl.exceptions.ComputeError)) and not is_read_error:
            raise
        hint = "`batchpond doctor` names a damaged file, and what to do about it; the others are not affected"
        if "Out of Memory" in (why := str(error).splitlines()[0]):
            hint = "nothing is damaged: ask for less at once, as one study, or let an engine do it: guide `spark`"
        raise LakeError(f"{what} could not be read: {why}", hint=hint) from error


def fold(store: Store) -> None:
    """Keep the rows of each table that has a file per batch in one file more, once many came; the lake's lock is held.

    Each question of what was asked and answered would open all of them. What is kept is derived and may be deleted: it
    counts only while it and every file in it stand as they did. Who reads without the lock may be about to open the
    file of before: the new one has the other of two names.
    """
    for name in FOLDED:
        files, before, staged = store.published(name), _folded(store, name), store.scratch(".parquet")
        if len(files) - len(before) >= max(FOLD_ABOVE, len(before) // FOLD_SHARE):
            kept = f".{name}.{'b' if before[:1] == [f'.{name}.a'] else 'a'}"
            with connect(store, [name]) as connection:
                connection.execute(f"COPY (SELECT * EXCLUDE (filename) FROM {name}) TO {literal(str(staged))}")
            os.chmod(staged, disk.FILE_MODE)
            disk.sync(staged)
            content = {"sha256": disk.sha256(staged)}
            disk.replace(staged, store.path / kept)
            keep_memo(store, f".{name}.of", Memo(_FOLD, [kept, *disk.relative(store.path, files)], (), content))


def misfolded(store: Store) -> Iterator[str]:
    """Yield the files that `fold` keeps and whose bytes are not those that it wrote, relative to the lake."""
    for name in FOLDED:
        kept = recall_memo(store, f".{name}.of", _FOLD)
        if kept is not None and disk.sha256(store.path / kept.held[0]) != kept.content["sha256"]:
            yield kept.held[0]


def _folded(store: Store, name: str) -> list[str]:
    """Return the file with the rows of many, and those, relative to the lake; none where it cannot be relied on."""
    kept = recall_memo(store, f".{name}.of", _FOLD)
    return [] if kept is None else [*kept.held]


def _select(store: Store, name: str) -> str:
    table = TABLES[name]
    files = store.files(name)
    if name in FOLDED and not store.is_outdated and (folded := _folded(store, name)):
        files = [store.path / folded[0], *sorted({*files}.difference(map(store.path.joinpath, folded)))]
    nothing = table.select(", CAST(NULL AS VARCHAR) AS filename WHERE FALSE", is_empty=True)
    if not files:
        return nothing
    paths = ", ".join(literal(os.fspath(path)) for path in files)
    options = "hive_partitioning = false, filename = true"
    if store.is_outdated and table.later:
        return f"{nothing} UNION ALL BY name FROM read_parquet([{paths}], {options}, union_by_name = TRUE)"
    names = ", ".join(quoted(column) for column, _ in table.columns if column not in FOLDED.get(name, ()))
    return f"SELECT {names}, filename FROM read_parquet([{paths}], {options})"


def query(package: str, name: str, **parts: str) -> str:
    """Return the SQL of the file `queries/NAME.sql` of a package, its `{part}` filled with these."""
    sql = (resources.files(package) / "queries" / f"{name}.sql").read_text("utf-8")
    return sql.format(**parts) if parts else sql


def quoted(identifier: str) -> str:
    """Return an identifier quoted for SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string literal quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"
