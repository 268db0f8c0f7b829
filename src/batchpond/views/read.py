"""Reading a view: as a stream of Arrow batches, so that no size of study fills the memory, or as a few plain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb

from batchpond.errors import UsageError
from batchpond.lake.tables import quoted, reading
from batchpond.text import did_you_mean
from batchpond.views import database
from batchpond.views.database import is_view

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")

Reader = Callable[[duckdb.DuckDBPyConnection, str, Mapping[str, object] | None], _T]

BATCH_ROWS = 10_000
ROWS_MAX = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What DuckDB alone makes no value of without further packages, or of another type than Arrow does.
_TIME: Final = "TIMESTAMP WITH TIME ZONE"
_PLAIN: Final = {_TIME: "epoch_us({column})", "HUGEINT": "CAST({column} AS DECIMAL(38, 0))"}
# What DuckDB alone makes the same values of as Arrow does.
_NATIVE: Final = frozenset({"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR"})


@dataclass(frozen=True, slots=True)
class Rows:
    """A query's rows as they come, in batches of plain Python values."""

    names: list[str]
    batches: Iterator[list[tuple[Any, ...]]]


def answer(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    values: Mapping[str, object] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Rows | pa.RecordBatchReader:
    """Run a query and return its rows: where it can without Arrow, which takes as long to load as most queries run."""
    ran = connection.execute(sql, values)
    if {str(column[1]) for column in ran.description} <= _NATIVE:
        return Rows([column[0] for column in ran.description], iter(lambda: ran.fetchmany(batch_rows), []))
    # From DuckDB 2.0 on a result that nobody ended keeps its connection; earlier ones drop it with the next query.
    getattr(connection, "abort", lambda: None)()
    return arrow(connection, sql, values, batch_rows)


def arrow(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    values: Mapping[str, object] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> pa.RecordBatchReader:
    """Run a query and return its rows as Arrow makes them."""
    return connection.sql(sql, params=values).to_arrow_reader(batch_rows)


_STUDIES_SHOWN_MAX = 20
_STUDIES = "SELECT study FROM studies_current UNION SELECT study FROM imported_judgments ORDER BY study"


def check_study(connection: duckdb.DuckDBPyConnection, study: str) -> None:
    """Raise UsageError for a study that the lake neither planned nor imported, with the nearest that there is."""
    known = [str(name) for (name,) in connection.execute(_STUDIES).fetchall()]
    if study not in known:
        listed = ", ".join(known[:_STUDIES_SHOWN_MAX]) or "none"
        raise UsageError(f"the lake holds no study {study!r}", hint=did_you_mean(study, known, f"studies: {listed}"))


@contextmanager
def asked(
    lake_path: Path, ask: Callable[[duckdb.DuckDBPyConnection], _T], *, memory_limit: str = database.MEMORY_LIMIT
) -> Iterator[_T]:
    """Open the lens and what `ask` asks of it; once more where a file went because a merged one stands for it now."""
    connection = database.connect(lake_path, memory_limit=memory_limit)
    try:
        try:
            answer = ask(connection)
        except duckdb.IOException:
            connection.close()
            connection = database.connect(lake_path, memory_limit=memory_limit)
            answer = ask(connection)
        yield answer
    finally:
        connection.close()


@contextmanager
def stream(
    lake_path: Path,
    view: str,
    read: Reader[_T],
    *,
    columns: Sequence[str] | None = None,
    study: str | None = None,
    order: Sequence[str] = (),
    limit: int | None = None,
) -> Iterator[_T]:
    """Open a view's rows, of one study or of all, as `arrow` or `answer`; LakeError when a file cannot be read."""
    sql = _select(view, columns, study, "", order, limit)
    with _opened(lake_path, view, study, lambda lens: read(lens, sql, _values(study))) as found:
        yield found


@contextmanager
def _opened(
    lake_path: Path, view: str, study: str | None, ask: Callable[[duckdb.DuckDBPyConnection], _T]
) -> Iterator[_T]:
    def checked(connection: duckdb.DuckDBPyConnection) -> _T:
        if study is not None:
            check_study(connection, study)
        return ask(connection)

    with reading(f"view {view}"), asked(lake_path, checked) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Ask:
    """Which rows of a view are wanted, in which order; `where` is a condition of our own, never a user's."""

    view: str
    order: Sequence[str]
    where: str = ""


def rows(
    lake_path: Path, view: str, *, order: Sequence[str], study: str | None = None, where: str = ""
) -> list[dict[str, Any]]:
    """Return a small view's rows in order; raises as `rows_of_all` does."""
    return rows_of_all(lake_path, [Ask(view, order, where)], study)[0]


def rows_of_all(lake_path: Path, asks: Sequence[Ask], study: str | None = None) -> list[list[dict[str, Any]]]:
    """Return small views' rows, all of one moment; raises UsageError when one has more than a person can read.

    Without Arrow, which takes longer to load than such views to read.
    """
    with _opened(lake_path, ", ".join(ask.view for ask in asks), study, lambda lens: _all(lens, asks, study)) as found:
        pass
    for ask, its_rows in zip(asks, found, strict=True):
        if len(its_rows) > ROWS_MAX:
            raise UsageError(
                f"view {ask.view} has more than {ROWS_MAX:,} rows", hint=f"`batchpond query {ask.view}` prints them"
            )
    return found


def _all(connection: duckdb.DuckDBPyConnection, asks: Sequence[Ask], study: str | None) -> list[list[dict[str, Any]]]:
    return [
        _plain_rows(connection, _select(ask.view, None, study, ask.where, ask.order, ROWS_MAX + 1), _values(study))
        for ask in asks
    ]


def _select(
    view: str, columns: Sequence[str] | None, study: str | None, where: str, order: Sequence[str], limit: int | None
) -> str:
    if not is_view(view):
        raise UsageError(f"no view {view!r}", hint="`batchpond views` lists them")
    wanted = ", ".join(map(quoted, columns)) if columns else "*"
    sql = f"SELECT {wanted} FROM {quoted(view)}"
    conditions = [condition for condition in ("study = $study" if study is not None else "", where) if condition]
    if conditions:
        sql += " WHERE " + " AND ".join(f"({condition})" for condition in conditions)
    if order:
        sql += " ORDER BY " + ", ".join(map(quoted, order))
    if limit is not None:
        sql += f" LIMIT {limit:d}"
    return sql


def _values(study: str | None) -> dict[str, str] | None:
    return None if study is None else {"study": study}


def _plain_rows(connection: duckdb.DuckDBPyConnection, sql: str, values: dict[str, str] | None) -> list[dict[str, Any]]:
    shown = connection.sql(sql, params=values)
    names = shown.columns
    kinds = [str(kind) for kind in shown.types]
    columns = ", ".join(
        f"{_PLAIN.get(kind, '{column}').format(column=quoted(name))} AS {quoted(name)}"
        for name, kind in zip(names, kinds, strict=True)
    )
    found = connection.execute(f"SELECT {columns} FROM ({sql})", values).fetchall()
    times = [at for at, kind in enumerate(kinds) if kind == _TIME]
    return [dict(zip(names, _with_times(row, times), strict=True)) for row in found]


def _with_times(row: tuple[Any, ...], times: Sequence[int]) -> list[Any]:
    values = list(row)
    for at in times:
        if values[at] is not None:
            values[at] = _EPOCH + timedelta(microseconds=values[at])
    return values
