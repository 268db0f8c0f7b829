"""The verb `import judgments`: pairwise judgments made elsewhere, into the same metrics, marked as imported.

All or nothing: every row is checked before the lake is touched, and the new ones appear in one file
under one name. A row that the lake has already, with the same verdict, is a no-op.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.import_files import SCHEMA, JudgmentFile
from batchpond.lake import disk, tables
from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.lens import refresh
from batchpond.model import Outcome, Verdict
from batchpond.row_files import PROBLEMS_SHOWN_MAX, listed

if TYPE_CHECKING:
    import duckdb

STUDY_DEFAULT: Final = "imported"
UNSPECIFIED: Final = "unspecified"
_VOTES: Final = tuple(Verdict)
# "decided" alone does not say for which item.
WORDS: Final = (*_VOTES, *(word for word in Outcome if word not in {Outcome.DECIDED, Outcome.TIE}))
_KEY: Final = (
    "study", "template_id", "rubric_id", "provider", "request_model", "thinking", "unit_id", "item_first",
    "item_second", "repeat_no",
)  # fmt: skip
_VALUES: Final = ("confidence", "input_tokens", "output_tokens", "cost_usd")
_KEY_LENGTH: Final = 32  # hex digits: 128 bits
_COUNT: Final = r"[0-9]{1,15}(\.0+)?"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import found: `n_rows` = `n_new` + `n_known` (in the lake before) + `n_repeated` (in the file)."""

    path: Path
    n_rows: int
    n_new: int
    n_known: int
    n_repeated: int


def import_judgments(store: Store, path: Path, *, study: str | None = None) -> ImportReport:
    """Import a CSV or Parquet file of judgments, or nothing of it.

    `study` is for rows without one (`imported` if None). Raises UsageError that lists the lines of rows
    that cannot be used or that contradict each other or the lake, and BusyError.
    """
    file = JudgmentFile(path)
    with _staged(store, file) as given, store.lock("import judgments"):
        with tables.connect(store, [IMPORTED_JUDGMENTS.name]) as connection:
            _check_rows(connection, given, file)
            connection.execute(_keyed_sql(given, path.name), [study or STUDY_DEFAULT])
            _check_contradictions(connection, file)
            report = _report(connection, path)
            if report.n_new:
                _publish(store, connection)
        refresh.refresh(store)
    return report


@contextmanager
def _staged(store: Store, file: JudgmentFile) -> Iterator[str]:
    """Copy the file's rows, as text, to where SQL can read them; yields a table expression."""
    path = store.scratch(".parquet")
    disk.write_private(path, b"")
    try:
        with pq.ParquetWriter(os.fspath(path), SCHEMA, compression="zstd") as writer:
            for block in file.blocks():
                writer.write_table(block)
        yield f"read_parquet({tables.literal(os.fspath(path))}, hive_partitioning = false)"
    finally:
        path.unlink(missing_ok=True)


def _check_rows(connection: duckdb.DuckDBPyConnection, given: str, file: JudgmentFile) -> None:
    """Raise UsageError if any row of the file is unusable by itself."""
    found = f"SELECT line_no, {_PROBLEM} AS problem FROM {given}"
    ((n_found,),) = connection.execute(f"SELECT count(problem) FROM ({found})").fetchall()
    n_bad = n_found + file.problems.n
    if not n_bad:
        return
    first = connection.execute(
        f"SELECT line_no, problem FROM ({found}) WHERE problem IS NOT NULL ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}"
    ).fetchall()
    lines = (f"{file.unit} {line_no} {problem}" for line_no, problem in sorted([*first, *file.problems.shown]))
    raise UsageError(
        f"{file.path}: {n_bad:,} {'rows' if n_bad > 1 else 'row'} cannot be imported:{listed(lines, n_bad)}",
        hint=f"a verdict is one of {', '.join(WORDS)}; nothing was imported",
    )


def _check_contradictions(connection: duckdb.DuckDBPyConnection, file: JudgmentFile) -> None:
    """Raise UsageError if the same judgment has two verdicts, in the file or against the lake."""
    clashes = f"({_CLASHES_IN_FILE}) UNION ALL ({_CLASHES_WITH_LAKE})"
    ((n_clashes,),) = connection.execute(f"SELECT count(*) FROM ({clashes})").fetchall()
    if not n_clashes:
        return
    first = connection.execute(f"FROM ({clashes}) ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}").fetchall()
    lines = (
        f"{file.unit} {line_no} says {word}, "
        + (f"{file.unit} {told_on} says {told}" if source is None else f"already in the lake from {source} as {told}")
        for line_no, word, told_on, source, told in first
    )
    raise UsageError(
        f"{file.path}: {n_clashes:,} {'rows contradict' if n_clashes > 1 else 'row contradicts'} another verdict on the"
        f" same judgment:{listed(lines, n_clashes)}",
        hint="repeats of a judgment need a column repeat_no (1, 2, ...); nothing was imported",
    )


def _report(connection: duckdb.DuckDBPyConnection, path: Path) -> ImportReport:
    query = f"SELECT count(*), count(*) FILTER (WHERE is_known), ({_N_NEW}) FROM ({_MARKED})"
    ((n_rows, n_known, n_new),) = connection.execute(query).fetchall()
    return ImportReport(path, n_rows, n_new, n_known, n_rows - n_known - n_new)


def _publish(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
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


def _text(column: str, default: str) -> str:
    return f"coalesce({column}, {tables.literal(default)})"


def _number(column: str) -> str:
    # pandas and R write a missing number as nan and NA.
    return f"CASE WHEN lower(trim({column})) NOT IN ('', 'nan', 'na') THEN trim({column}) END"


def _whole(column: str, kind: str = "BIGINT") -> str:
    return rf"TRY_CAST(regexp_replace({_number(column)}, '\.0+$', '') AS {kind})"


def _shown(column: str) -> str:
    return f"'''' || left({column}, 60) || ''''"


def _bad_count(column: str) -> str:
    return f"WHEN NOT regexp_full_match({_number(column)}, '{_COUNT}') THEN 'has {column} ' || {_shown(column)}"


def _bad_amount(column: str, is_good: str) -> str:
    value = f"TRY_CAST({_number(column)} AS DOUBLE)"
    bad = f"{_number(column)} IS NOT NULL AND ({value} IS NULL OR NOT isfinite({value}) OR NOT {value} {is_good})"
    return f"WHEN {bad} THEN 'has {column} ' || {_shown(column)}"


def _keyed_sql(given: str, source: str) -> str:
    """Return the SQL that makes `keyed`: the file's rows with types, defaults, key and word; $1 is the study."""
    return f"""
        CREATE TEMP TABLE keyed AS
        SELECT *, left(sha256(concat({_length_prefixed(_KEY)})), {_KEY_LENGTH}) AS import_key
        FROM (
            SELECT
                line_no,
                coalesce(study, $1) AS study,
                {_text("template_id", UNSPECIFIED)} AS template_id,
                {_text("rubric_id", UNSPECIFIED)} AS rubric_id,
                {_text("provider", UNSPECIFIED)} AS provider,
                {_text("model", UNSPECIFIED)} AS request_model,
                {_text("thinking", UNSPECIFIED)} AS thinking,
                {_text("unit_id", "")} AS unit_id,
                item_first, item_second,
                coalesce({_whole("repeat_no", "INTEGER")}, 1) AS repeat_no,
                verdict AS word,
                TRY_CAST({_number("confidence")} AS DOUBLE) AS confidence,
                {_whole("input_tokens")} AS input_tokens,
                {_whole("output_tokens")} AS output_tokens,
                TRY_CAST({_number("cost_usd")} AS DOUBLE) AS cost_usd,
                {tables.literal(source)} || ':' || line_no AS source
            FROM {given}
        )"""


def _length_prefixed(columns: Iterable[str]) -> str:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    return ", ".join(f"length({column}::VARCHAR), ':', {column}" for column in columns)


_PROBLEM: Final = f"""
    CASE
        WHEN coalesce(trim(item_first), '') = '' THEN 'has no item_first'
        WHEN coalesce(trim(item_second), '') = '' THEN 'has no item_second'
        WHEN item_first = item_second THEN 'judges ' || {_shown("item_first")} || ' against itself'
        WHEN verdict IS NULL THEN 'has no verdict'
        WHEN verdict NOT IN ({", ".join(map(tables.literal, WORDS))}) THEN 'has verdict ' || {_shown("verdict")}
        WHEN NOT regexp_full_match({_number("repeat_no")}, '0*[1-9][0-9]{{0,8}}(\\.0+)?')
            THEN 'has repeat_no ' || {_shown("repeat_no")} || ', not a whole number from 1'
        {_bad_amount("confidence", "BETWEEN 0 AND 1")} || ', not a number from 0 to 1'
        {_bad_count("input_tokens")} || ', not a whole number'
        {_bad_count("output_tokens")} || ', not a whole number'
        {_bad_amount("cost_usd", ">= 0")} || ', not an amount'
    END"""

_CLASHES_IN_FILE: Final = """
    SELECT keyed.line_no, keyed.word, told.line_no AS other_line, CAST(NULL AS VARCHAR) AS source, told.word AS other
    FROM (
        SELECT import_key, min(line_no) AS line_no, min_by(word, line_no) AS word
        FROM keyed GROUP BY import_key HAVING min(word) <> max(word)
    ) AS told
    JOIN keyed ON keyed.import_key = told.import_key AND keyed.word <> told.word"""

_CLASHES_WITH_LAKE: Final = """
    SELECT
        keyed.line_no, keyed.word, CAST(NULL AS BIGINT) AS other_line,
        coalesce(known.source, 'an unnamed source') AS source,
        coalesce(known.verdict, known.outcome) AS other
    FROM keyed
    JOIN imported_judgments AS known
        ON known.import_key = keyed.import_key AND coalesce(known.verdict, known.outcome) <> keyed.word"""

_MARKED: Final = """
    SELECT *, import_key IN (SELECT import_key FROM imported_judgments) AS is_known FROM keyed"""

_N_NEW: Final = f"SELECT count(DISTINCT import_key) FROM ({_MARKED}) WHERE NOT is_known"

_NEW_ROWS: Final = f"""
    SELECT
        import_key, study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second,
        repeat_no,
        CASE WHEN word IN ({", ".join(map(tables.literal, _VOTES))}) THEN word END AS verdict,
        CASE WHEN word IN ('first', 'second') THEN 'decided' ELSE word END AS outcome,
        confidence, input_tokens, output_tokens, cost_usd, source,
        sha256(concat(import_key, word, {_length_prefixed(_VALUES)})) AS row_digest
    FROM ({_MARKED})
    WHERE NOT is_known AND line_no IN (SELECT min(line_no) FROM keyed GROUP BY import_key)
    ORDER BY line_no"""
