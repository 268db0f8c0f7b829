"""Reading a view: as a stream of Arrow batches, so that no size of study fills the memory, or as a few plain rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb

from batchpond.errors import LakeError, UsageError
from batchpond.lake.tables import quoted
from batchpond.text import did_you_mean
from batchpond.views import database
from batchpond.views.database import is_view

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")

BATCH_ROWS = 10_000
ROWS_MAX = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What DuckDB alone makes no value of without further packages, or of another type than Arrow does.
_TIME: Final = "TIMESTAMP WITH TIME ZONE"
_PLAIN: Final = {_TIME: "epoch_us({column})", "HUGEINT": "CAST({column} AS DECIMAL(38, 0))"}


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
    *,
    columns: Sequence[str] | None = None,
    study: str | None = None,
    where: str = "",
    order: Sequence[str] = (),
    limit: int | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatchReader]:
    """Open a view's rows, of one study or of all; raises LakeError when a file cannot be read.

    `where` is a condition of our own on its columns, never a user's.
    """
    import pyarrow as pa

    sql = _select(view, columns, study, where, order, limit)

    def ask(connection: duckdb.DuckDBPyConnection) -> pa.RecordBatchReader:
        if study is not None:
            check_study(connection, study)
        return connection.sql(sql, params=_values(study)).to_arrow_reader(batch_rows)

    try:
        with asked(lake_path, ask) as reader:
            yield reader
    except (duckdb.Error, pa.ArrowException) as error:
        raise _unreadable(view, error) from error


def rows(
    lake_path: Path, view: str, *, order: Sequence[str], study: str | None = None, where: str = ""
) -> list[dict[str, Any]]:
    """Return a small view's rows in order; raises UsageError when there are more than a person can read.

    Without Arrow, which takes longer to load than such a view to read.
    """
    sql = _select(view, None, study, where, order, ROWS_MAX + 1)

    def ask(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
        if study is not None:
            check_study(connection, study)
        return _plain_rows(connection, sql, _values(study))

    try:
        with asked(lake_path, ask) as found:
            pass
    except duckdb.Error as error:
        raise _unreadable(view, error) from error
    if len(found) > ROWS_MAX:
        raise UsageError(
            f"view {view} has more than {ROWS_MAX:,} rows", hint=f"`batchpond query {view}` prints all of them"
        )
    return found


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


def _unreadable(view: str, error: Exception) -> LakeError:
    return LakeError(
        f"view {view} could not be read: {str(error).splitlines()[0]}",
        hint="`batchpond doctor` names a damaged file; the others are not affected",
    )
