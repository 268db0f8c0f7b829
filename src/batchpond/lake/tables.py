"""SQL over the lake's tables for batchpond's own decisions: in memory, over an explicit file list."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING

from batchpond.errors import LakeError
from batchpond.lake import manifest
from batchpond.lake.schemas import TABLES
from batchpond.lake.store import Store

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "256MB"

_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "double": "DOUBLE", "bool": "BOOLEAN",
          "binary": "BLOB", "timestamp[us, tz=UTC]": "TIMESTAMPTZ"}  # fmt: skip


@contextmanager
def connect(store: Store, tables: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with one view per named table; an empty table is an empty view.

    Raises LakeError where a file that was published is gone or damaged: what follows decides what is bought.
    """
    import duckdb  # an idle pass asks nothing of it

    # A folder of its own: two processes that spill into one overwrite each other's blocks.
    spill = store.scratch(".spill")
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": os.fspath(spill),
        "threads": 2,
    }
    try:
        with duckdb.connect(":memory:", config=config) as connection:
            manifest.require(store, manifest.GUARDED.intersection(tables))
            for name in tables:
                with reading(f"table {name}"):
                    connection.execute(f"CREATE VIEW {name} AS {_select(store, name)}")
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise what DuckDB or Arrow say of a file that is gone or damaged as LakeError; `what` is what was to be read."""
    try:
        yield
    except Exception as error:
        import duckdb  # no reader without an error needs them here
        import pyarrow as pa

        # Arrow's readers raise OSError with DuckDB's text, and without a number of the system's.
        is_read_error = isinstance(error, OSError) and error.errno is None
        if not isinstance(error, (duckdb.Error, pa.ArrowException)) and not is_read_error:
            raise
        raise LakeError(
            f"{what} could not be read: {str(error).splitlines()[0]}",
            hint="`batchpond doctor` names a damaged file, and what to do about it; the others are not affected",
        ) from error


def _select(store: Store, name: str) -> str:
    table = TABLES[name]
    files = store.files(name)
    columns = ", ".join(f"CAST(NULL AS {_TYPES[str(f.type)]}) AS {quoted(f.name)}" for f in table.schema)
    nothing = f"SELECT {columns}, CAST(NULL AS VARCHAR) AS filename WHERE FALSE"
    if not files:
        return nothing
    paths = ", ".join(literal(os.fspath(path)) for path in files)
    options = "hive_partitioning = false, filename = true"
    if store.is_outdated and table.later:
        return f"{nothing} UNION ALL BY name FROM read_parquet([{paths}], {options}, union_by_name = TRUE)"
    names = ", ".join(quoted(column) for column in table.schema.names)
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
