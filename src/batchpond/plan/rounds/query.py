"""SQL over the lake's views for what a stage asks about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from batchpond.lake.store import Store
from batchpond.lake.tables import literal
from batchpond.views import stream_query

QUERY_TIMEOUT_S: Final = 600.0
ROWS_MAX: Final = 5_000_000
READ_ROWS: Final = 1_000
GOOD: Final = "outcome in ('decided', 'tie')"
CHOSEN: Final = f"""
with chosen as (
  select * from results
  where study = $study and stage = $stage and {GOOD} and (
    $where
  )
)
"""
"""What a stage came to, as far as a condition chooses it."""


def query(store: Store, sql: str, **values: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one SELECT over the lake's views; `$name` in it stands for a value, `$where` for SQL."""
    where = values.pop("where", None)
    for name, value in values.items():
        sql = sql.replace(f"${name}", literal(value))
    if where is not None:
        sql = sql.replace("$where", where)
    for batch in stream_query(store.path, sql, timeout_s=QUERY_TIMEOUT_S, max_rows=ROWS_MAX):
        for start in range(0, batch.num_rows, READ_ROWS):
            yield from batch.slice(start, READ_ROWS).to_pylist()
