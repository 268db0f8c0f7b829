"""Judgments from elsewhere on their way into the lake: one key, contradictions, and one file of what is new.

The caller makes a table `keyed` from `keyed_sql` on a connection that has a view of
`imported_judgments`; what the rows come from is its business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, listed
from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store

if TYPE_CHECKING:
    import duckdb

STUDY_DEFAULT: Final = "imported"
UNSPECIFIED: Final = "unspecified"
COLUMNS: Final = tuple(name for name in IMPORTED_JUDGMENTS.schema.names if name != "import_key")
_KEY: Final = (
    "study", "template_id", "rubric_id", "provider", "request_model", "thinking", "unit_id", "item_first",
    "item_second", "repeat_no",
)  # fmt: skip
_TASK_KEY: Final = ("task", "candidate_first", "candidate_second", "turn_no")
_VALUES: Final = ("confidence", "input_tokens", "output_tokens", "cost_usd")
_KEY_LENGTH: Final = 32  # hex digits: 128 bits


@dataclass(frozen=True, slots=True)
class Tally:
    """`n_rows` = `n_new` + `n_known` (in the lake before) + `n_repeated` (given more than once)."""

    n_rows: int
    n_new: int
    n_known: int
    n_repeated: int


def keyed_sql(rows: str) -> str:
    """Return the SQL that makes `keyed` of rows with the columns `COLUMNS`, `line_no` (their order) and `place`.

    A row without `repeat_no` is numbered among the rows that are the same but for it.
    """
    same = ", ".join(name for name in (*_KEY, *_TASK_KEY) if name != "repeat_no")
    counted = f"row_number() OVER (PARTITION BY {same} ORDER BY line_no)"
    return f"""
        CREATE TEMP TABLE keyed AS
        SELECT *, left(sha256(concat({_length_prefixed(_KEY)}, {_OF_TASK})), {_KEY_LENGTH}) AS import_key
        FROM (
            SELECT * REPLACE (CAST(coalesce(repeat_no, {counted}) AS INTEGER) AS repeat_no), {_WORD} AS word
            FROM ({rows})
        )"""


def check_contradictions(connection: duckdb.DuckDBPyConnection, path: Path | str) -> None:
    """Raise UsageError if the same judgment has two verdicts, among the rows or against the lake."""
    clashes = f"({_CLASHES_IN_FILE}) UNION ALL ({_CLASHES_WITH_LAKE})"
    ((n_clashes,),) = connection.execute(f"SELECT count(*) FROM ({clashes})").fetchall()
    if not n_clashes:
        return
    first = connection.execute(f"FROM ({clashes}) ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}").fetchall()
    lines = (
        f"{place} says {word}, "
        + (f"{told_at} says {told}" if source is None else f"already in the lake from {source} as {told}")
        for _, place, word, told_at, source, told in first
    )
    raise UsageError(
        f"{path}: {n_clashes:,} {'rows contradict' if n_clashes > 1 else 'row contradicts'} another verdict on the"
        f" same judgment:{listed(lines, n_clashes)}",
        hint="repeats of a judgment need a column repeat_no (1, 2, ...); nothing was imported",
    )


def tally(connection: duckdb.DuckDBPyConnection) -> Tally:
    """Return how many rows of `keyed` are new, known and repeated."""
    query = f"SELECT count(*), count(*) FILTER (WHERE is_known), ({_N_NEW}) FROM ({_MARKED})"
    ((n_rows, n_known, n_new),) = connection.execute(query).fetchall()
    return Tally(n_rows, n_new, n_known, n_rows - n_known - n_new)


def publish(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    """Write the new rows, in the order given, to one file whose name is the digest of what they say."""
    # A stream that is read slowly pins what is behind it: only a plain scan may be.
    connection.execute(f"CREATE TEMP TABLE new_rows AS {_NEW_ROWS}")
    connection.execute("DROP TABLE keyed")
    content = hashlib.sha256()
    with store.staging(IMPORTED_JUDGMENTS) as staged:
        for batch in connection.sql("FROM new_rows").to_arrow_reader(IMPORTED_JUDGMENTS.row_group_rows):
            content.update("".join(batch.column("row_digest").to_pylist()).encode())
            block = pa.Table.from_batches([batch]).drop_columns(["row_digest"])
            staged.write(block.cast(IMPORTED_JUDGMENTS.schema))
    store.publish_file(IMPORTED_JUDGMENTS, ids.digest("imported_judgments", content.hexdigest()), staged.path)


def _length_prefixed(columns: Iterable[str]) -> str:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    return ", ".join(f"length({column}::VARCHAR), ':', {column}" for column in columns)


_OF_TASK: Final = f"CASE WHEN task <> 'pairwise' THEN concat({_length_prefixed(_TASK_KEY)}) END"
# "decided" alone does not say for which item.
_WORD: Final = "coalesce(verdict, label, CAST(score AS VARCHAR), outcome)"
_KNOWN_WORD: Final = "coalesce(known.verdict, known.label, CAST(known.score AS VARCHAR), known.outcome)"

_CLASHES_IN_FILE: Final = """
    SELECT keyed.line_no, keyed.place, keyed.word, told.place AS other_place, CAST(NULL AS VARCHAR) AS source,
        told.word AS other
    FROM (
        SELECT import_key, min_by(place, line_no) AS place, min_by(word, line_no) AS word
        FROM keyed GROUP BY import_key HAVING min(word) <> max(word)
    ) AS told
    JOIN keyed ON keyed.import_key = told.import_key AND keyed.word <> told.word"""

_CLASHES_WITH_LAKE: Final = f"""
    SELECT
        keyed.line_no, keyed.place, keyed.word, CAST(NULL AS VARCHAR) AS other_place,
        coalesce(known.source, 'an unnamed source') AS source,
        {_KNOWN_WORD} AS other
    FROM keyed
    JOIN imported_judgments AS known
        ON known.import_key = keyed.import_key AND {_KNOWN_WORD} <> keyed.word"""

_MARKED: Final = """
    SELECT *, import_key IN (SELECT import_key FROM imported_judgments) AS is_known FROM keyed"""

_N_NEW: Final = f"SELECT count(DISTINCT import_key) FROM ({_MARKED}) WHERE NOT is_known"

_NEW_ROWS: Final = f"""
    SELECT
        import_key, {", ".join(COLUMNS)},
        sha256(concat(import_key, word, {_length_prefixed(_VALUES)})) AS row_digest
    FROM ({_MARKED})
    WHERE NOT is_known AND line_no IN (SELECT min(line_no) FROM keyed GROUP BY import_key)
    ORDER BY line_no"""
