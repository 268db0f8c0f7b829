"""`run_query`: one SELECT over the lake for a user, with nothing else in reach.

Three fences, each enough for what it guards. The statement must be one SELECT, as DuckDB's
parser sees it. Its syntax tree must hold only query nodes, names of views, and table functions
that make rows from nothing: this is what stops a COPY or INSERT inside a WITH. And the engine
runs read-only, without external access except to the listed Parquet files, with its settings
locked, so that a hole in the first two still reaches no other file and no network.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import duckdb
import orjson

from batchpond.errors import BatchpondError, LakeError, UsageError
from batchpond.lake.tables import literal
from batchpond.views import read, refresh

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
_Batch = TypeVar("_Batch", bound=Sized)

TIMEOUT_S: Final = 60.0
QUERY_MEMORY_LIMIT: Final = "1GB"
ROWS_MAX: Final = 1_000_000
SQL_CHARACTERS_MAX: Final = 300_000

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
_REFUSED_FUNCTIONS = frozenset(
    {"getenv", "current_setting", "getvariable", "write_log", "sleep_ms", "nextval", "current_query"}
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_REFUSED_TABLES = re.compile(r"(?:duckdb|pragma|pg|sqlite)_\w*", re.IGNORECASE)

_HINT_SELECT = "`query` runs one SELECT over the views; `batchpond views` lists them"
_HINT_VIEWS = "`batchpond views` lists what can be queried, `DESCRIBE name` its columns"


def run_query(
    lake_path: Path,
    sql: str,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_limit: str = QUERY_MEMORY_LIMIT,
    max_rows: int = ROWS_MAX,
) -> pa.Table:
    """Run one SELECT over the lake's views and return its rows.

    Raises UsageError for anything but one SELECT over views, for what DuckDB cannot make of it,
    and when it runs longer than `timeout_s`, needs more than `memory_limit`, or returns more
    than `max_rows` rows; LakeError when a file of the lake cannot be read.
    """
    import pyarrow as pa

    with _asked(lake_path, sql, timeout_s, memory_limit, None, read.arrow) as reader:
        batches = list(_batches(reader, timeout_s, max_rows))
        return pa.Table.from_batches(batches, schema=reader.schema)


def stream_query(
    lake_path: Path,
    sql: str,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_limit: str = QUERY_MEMORY_LIMIT,
    max_rows: int = ROWS_MAX,
    values: Mapping[str, object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run one SELECT as `run_query` does and yield its rows as they come, so that memory holds few of them.

    `values` are bound to the `$name`s in it. The time that the caller takes for the rows counts. Raises as
    `run_query` does, also between two batches.
    """
    with _asked(lake_path, sql, timeout_s, memory_limit, values, read.arrow) as reader:
        yield from _batches(reader, timeout_s, max_rows)


@contextmanager
def shown_query(
    lake_path: Path,
    sql: str,
    *,
    is_arrow: bool,
    timeout_s: float = TIMEOUT_S,
    memory_limit: str = QUERY_MEMORY_LIMIT,
    max_rows: int = ROWS_MAX,
) -> Iterator[read.Rows | pa.RecordBatchReader]:
    """Run one SELECT as `run_query` does and open its rows, as Arrow or as what is quicker; raises as that does."""
    answer = read.arrow if is_arrow else read.answer
    with _asked(lake_path, sql, timeout_s, memory_limit, None, answer) as found:
        if isinstance(found, read.Rows):
            yield read.Rows(found.names, _batches(found.batches, timeout_s, max_rows))
        else:
            import pyarrow as pa

            yield pa.RecordBatchReader.from_batches(found.schema, _batches(found, timeout_s, max_rows))


@contextmanager
def _asked(
    lake_path: Path,
    sql: str,
    timeout_s: float,
    memory_limit: str,
    values: Mapping[str, object] | None,
    answer: read.Reader[_T],
) -> Iterator[_T]:
    if len(sql) > SQL_CHARACTERS_MAX:
        raise UsageError(f"the query is longer than {SQL_CHARACTERS_MAX:,} characters", hint=_HINT_SELECT)

    def ask(connection: duckdb.DuckDBPyConnection) -> tuple[duckdb.DuckDBPyConnection, _T]:
        _lock_down(connection)
        with _deadline(connection, timeout_s):
            _check(connection, sql)
            return connection, answer(connection, sql, values)

    with (
        _translated(lake_path),
        read.asked(lake_path, ask, memory_limit=memory_limit) as (connection, found),
        _deadline(connection, timeout_s),
    ):
        yield found


def _lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    paths = [path for (path,) in connection.execute(_PATHS).fetchall()]
    connection.execute(f"SET allowed_paths = [{', '.join(map(literal, paths))}]")
    connection.execute("SET enable_external_access = FALSE")
    connection.execute("SET lock_configuration = TRUE")


_PATHS = "SELECT getvariable('lake') || '/' || path FROM lens_files WHERE problem IS NULL"


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        _refuse(f"{len(statements)} statements" if len(statements) != 1 else "not a SELECT")
    text = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0]
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError:
        _refuse("it is nested too deeply")
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        _refuse(str(tree.get("error_message") or "not a SELECT"))
    for node in _nodes(tree["statements"]):
        _check_node(node)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the syntax tree, without recursion: its depth is the user's."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


@cache
def _macros() -> frozenset[str]:
    return frozenset(name for script in refresh.scripts() for name in script.macros)


def _check_node(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _QUERY_NODES:
        _refuse(f"{kind.removesuffix('_QUERY_NODE').removesuffix('_NODE')} inside a query")
    if "info_type" in node:
        _refuse(f"{node['info_type']} inside a query")
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"]).lower()
        if name not in _TABLE_FUNCTIONS and name not in _macros():
            _refuse(f"the table function {name}")
    if kind == "BASE_TABLE":
        _check_table(node)
    if node.get("class") == "FUNCTION" and str(node.get("function_name")).lower() in _REFUSED_FUNCTIONS:
        _refuse(f"the function {node['function_name']}")


def _check_table(node: dict[str, Any]) -> None:
    name = str(node.get("table_name"))
    if str(node.get("schema_name")).lower() == "information_schema":
        return
    if not _IDENTIFIER.fullmatch(name) or _REFUSED_TABLES.fullmatch(name):
        _refuse(f"the table {name!r}")


def _refuse(what: str) -> NoReturn:
    raise UsageError(f"this query is not allowed: {what}", hint=_HINT_SELECT)


def _batches(reader: Iterable[_Batch], timeout_s: float, max_rows: int) -> Iterator[_Batch]:
    ends_at = time.monotonic() + timeout_s
    n_rows = 0
    for batch in reader:
        n_rows += len(batch)
        if n_rows > max_rows:
            raise UsageError(
                f"the query returns more than {max_rows:,} rows", hint="add LIMIT, or use `batchpond export`"
            )
        if time.monotonic() > ends_at:
            raise duckdb.InterruptException("timeout")
        yield batch


@contextmanager
def _deadline(connection: duckdb.DuckDBPyConnection, timeout_s: float) -> Iterator[None]:
    is_over = threading.Event()

    def stop() -> None:
        is_over.set()
        connection.interrupt()

    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (duckdb.Error, OSError) as error:
        # What an interrupted stream raises depends on who was reading; that time is up does not.
        if not is_over.is_set() and not isinstance(error, duckdb.InterruptException):
            raise
        raise UsageError(
            f"the query ran longer than {timeout_s:g} s and was stopped",
            hint="narrow it with WHERE, or allow more with --timeout",
        ) from None
    finally:
        timer.cancel()
        timer.join()


@contextmanager
def _translated(lake_path: Path) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, OSError) as error:  # Arrow's readers raise OSError with DuckDB's text
        raise _translation(str(error).split("\n", 1)[0], lake_path) from None


_BROKEN: Final = frozenset({"IO Error", "FATAL Error"})


def _translation(message: str, lake_path: Path) -> BatchpondError:
    kind = message.split(":", 1)[0]
    is_of_lake = f"{os.path.abspath(lake_path)}/" in message  # one that is gone is looked for, which is not allowed
    if kind == "Permission Error" and not is_of_lake:
        return UsageError(f"this query is not allowed: {message}", hint=_HINT_SELECT)
    if is_of_lake or kind in _BROKEN or not kind.endswith(" Error"):  # what its Parquet reader says has no kind
        return LakeError(
            f"a file of the lake cannot be read: {message}", hint="`batchpond doctor` names what is damaged"
        )
    if kind == "Out of Memory Error":
        return UsageError(f"the query needs too much memory: {message}", hint="narrow it with WHERE")
    if kind in {"Catalog Error", "Binder Error"}:
        return UsageError(message, hint=_HINT_VIEWS)
    return UsageError(message or "the query could not be run", hint=_HINT_SELECT)
