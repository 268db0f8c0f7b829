"""Reading a view as a stream of Arrow batches, so that no size of study fills the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from batchpond import views
from batchpond.errors import LakeError, UsageError
from batchpond.lake.tables import quoted
from batchpond.text import did_you_mean

BATCH_ROWS = 10_000
ROWS_MAX = 100_000


_STUDIES_SHOWN_MAX = 20
_STUDIES = "SELECT study FROM studies_current UNION SELECT study FROM imported_judgments ORDER BY study"


def check_study(connection: duckdb.DuckDBPyConnection, study: str) -> None:
    """Raise UsageError for a study that the lake neither planned nor imported, with the nearest that there is."""
    known = [str(name) for (name,) in connection.execute(_STUDIES).fetchall()]
    if study not in known:
        listed = ", ".join(known[:_STUDIES_SHOWN_MAX]) or "none"
        raise UsageError(f"the lake holds no study {study!r}", hint=did_you_mean(study, known, f"studies: {listed}"))


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
    if view not in {known.name for known in views.views()}:
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
    parameters = None if study is None else {"study": study}
    with views.connect(lake_path) as connection:
        try:
            if study is not None:
                check_study(connection, study)
            yield connection.sql(sql, params=parameters).to_arrow_reader(batch_rows)
        except (duckdb.Error, pa.ArrowException) as error:
            raise LakeError(
                f"view {view} could not be read: {str(error).splitlines()[0]}",
                hint="`batchpond doctor` names a damaged file; the others are not affected",
            ) from error


def rows(
    lake_path: Path, view: str, *, order: Sequence[str], study: str | None = None, where: str = ""
) -> list[dict[str, Any]]:
    """Return a small view's rows in order; raises UsageError when there are more than a person can read."""
    found: list[dict[str, Any]] = []
    with stream(lake_path, view, study=study, where=where, order=order, limit=ROWS_MAX + 1) as batches:
        for batch in batches:
            found.extend(batch.to_pylist())
    if len(found) > ROWS_MAX:
        raise UsageError(
            f"view {view} has more than {ROWS_MAX:,} rows", hint=f"`batchpond query {view}` prints all of them"
        )
    return found
