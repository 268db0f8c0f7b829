"""SQL over the lake's views for what a stage asks about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from batchpond.lake.store import Store
from batchpond.views import stream_query

QUERY_TIMEOUT_S: Final = 600.0
ROWS_MAX: Final = 5_000_000
READ_ROWS: Final = 1_000
GOOD: Final = "outcome IN ('decided', 'tie')"
CHOSEN: Final = f"""
WITH chosen AS (
  SELECT * FROM results
  WHERE study = $study AND stage = $stage AND {GOOD} AND (
    $where
  )
)
"""
"""What a stage came to, as far as a condition chooses it."""


def query(store: Store, sql: str, where: str | None = None, **values: object) -> Iterator[dict[str, Any]]:
    """Yield the rows of one SELECT over the lake's views; `$name` in it stands for a value, `$where` for SQL."""
    if where is not None:
        sql = sql.replace("$where", where)
    found = stream_query(store.path, sql, timeout_s=QUERY_TIMEOUT_S, max_rows=ROWS_MAX, values=values or None)
    for batch in found:
        for start in range(0, batch.num_rows, READ_ROWS):
            yield from batch.slice(start, READ_ROWS).to_pylist()
