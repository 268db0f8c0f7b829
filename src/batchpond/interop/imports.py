"""The verb `import` for what other tools left behind: into the lake, one key each, marked as imported."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, listed
from batchpond.interop.foreign import (
    Defaults,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignRubric,
    ForeignText,
    Reader,
    Record,
    TrackedBatch,
    files_below,
)
from batchpond.lake import disk, tables
from batchpond.lake.schemas import IMPORTED_JUDGMENTS, ITEMS, RUBRICS, Table
from batchpond.lake.store import Store
from batchpond.plan.items import Item
from batchpond.views import refresh

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


_BLOCK_ROWS: Final = 5_000
_RUBRICS_MAX: Final = 100_000
_UNSAID: Final = Defaults(STUDY_DEFAULT, *(UNSPECIFIED,) * 5)
_STAGED: Final = pa.schema(
    [
        ("line_no", pa.int64()),
        ("place", pa.string()),
        *((field.name, field.type) for field in IMPORTED_JUDGMENTS.schema if field.name != "import_key"),
        ("other_first", pa.string()),
        ("other_second", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class DoubtReport:
    """How often one kind of doubt was found, what became of such rows, and the first places."""

    kind: Doubt
    meaning: str
    n: int
    shown: list[str]


@dataclass(frozen=True, slots=True)
class ForeignReport:
    """What an import found; `outcomes` counts the judgments that came in by task and outcome."""

    n_files: int
    judgments: Tally
    items: Tally
    rubrics: Tally
    outcomes: dict[str, dict[str, int]]
    doubts: list[DoubtReport]
    n_skipped: int
    skipped: list[str]
    batches: list[TrackedBatch]


@dataclass(frozen=True)
class _Staged:
    """The SQL of the records until they are checked, and what was found beside them."""

    judgments: str
    texts: str
    rubrics: dict[str, ForeignRubric]
    n_rubrics: int


def import_foreign(
    store: Store,
    reader: Reader,
    paths: Sequence[Path],
    *,
    defaults: Defaults | None = None,
    accepted: Iterable[Doubt] = (),
    is_strict: bool = False,
) -> ForeignReport:
    """Import what `reader` finds in files and folders, or nothing of it.

    `defaults` fills in what the files do not say, `accepted` are doubts that a person answers for. Raises
    UsageError that lists broken rows, contradictions, and with `is_strict` every doubt; and BusyError.
    """
    files = files_below(paths)
    findings = Findings(frozenset(accepted))
    where = ", ".join(map(str, paths))
    with _staged(store, reader(files, defaults or Defaults(), findings), findings, defaults or Defaults()) as staged:
        _check_problems(findings, where)
        with store.lock("import"):
            names = [IMPORTED_JUDGMENTS.name, ITEMS.name, RUBRICS.name]
            with tables.connect(store, names) as connection:
                _load(connection, staged)
                _prove_candidates(connection, findings)
                _check_doubts(findings, where, is_strict=is_strict)
                check_contradictions(connection, where)
                report = _publish(store, connection, staged, findings)
            refresh.refresh(store)
    return dataclasses.replace(report, n_files=len(files))


@contextmanager
def scratch_rows(store: Store, schema: pa.Schema) -> Iterator[tuple[pq.ParquetWriter, str]]:
    """Yield a writer of rows and the SQL that reads them once it is closed; after the block they are gone."""
    path = store.scratch(".parquet")
    disk.write_private(path, b"")
    try:
        with pq.ParquetWriter(os.fspath(path), schema, compression="zstd") as writer:
            yield writer, f"read_parquet({tables.literal(os.fspath(path))}, hive_partitioning = false)"
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _staged(store: Store, records: Iterator[Record], findings: Findings, defaults: Defaults) -> Iterator[_Staged]:
    """Write the records, as they come, to where SQL can read them."""
    with scratch_rows(store, _STAGED) as (judged, judgments), scratch_rows(store, _TEXTS) as (written, texts):
        rubrics, n_rubrics = _write(records, judged, written, findings, defaults)
        judged.close()
        written.close()
        yield _Staged(judgments, texts, rubrics, n_rubrics)


_TEXTS: Final = pa.schema([("line_no", pa.int64()), ("place", pa.string()), *ITEMS.schema])


def _write(
    records: Iterator[Record],
    judged: pq.ParquetWriter,
    written: pq.ParquetWriter,
    findings: Findings,
    defaults: Defaults,
) -> tuple[dict[str, ForeignRubric], int]:
    rubrics: dict[str, ForeignRubric] = {}
    n_rubrics = 0
    numbers = itertools.count(1)
    while block := list(itertools.islice(records, _BLOCK_ROWS)):
        judgments, texts = [], []
        for record in block:
            row = _row(record, next(numbers), defaults)
            match record:
                case ForeignJudgment():
                    judgments.append(row)
                case ForeignText():
                    texts.append(row)
                case ForeignRubric():
                    n_rubrics += 1
                    _add_rubric(rubrics, record, findings)
        judged.write_table(pa.Table.from_pylist(judgments, schema=_STAGED))
        written.write_table(pa.Table.from_pylist(texts, schema=_TEXTS))
    return rubrics, n_rubrics


def _row(record: Record, line_no: int, defaults: Defaults) -> dict[str, Any]:
    place = {"line_no": line_no, "place": record.source}
    match record:
        case ForeignJudgment():
            only_of_pairs = defaults if record.item_second else dataclasses.replace(defaults, direction=None)
            said = record.said.or_else(only_of_pairs).or_else(_UNSAID)
            of_parts = {name: getattr(part, name) for part in (record, said) for name in part.__slots__}
            return place | of_parts | record.found._asdict()
        case ForeignText():
            item = Item(record.item_id, record.text, record.metadata())
            return place | {
                "item_hash": item.item_hash, "item_id": item.item_id, "text": item.text, "metadata": item.metadata,
            }  # fmt: skip
        case ForeignRubric():
            return place


def _add_rubric(rubrics: dict[str, ForeignRubric], rubric: ForeignRubric, findings: Findings) -> None:
    rubric_id = rubric.rubric.rubric_id
    told = rubrics.setdefault(rubric_id, rubric)
    if told.rubric != rubric.rubric:
        findings.problem(rubric.source, f"says something else of {rubric_id!r} than {told.source}")
    if len(rubrics) > _RUBRICS_MAX:
        raise UsageError(f"more than {_RUBRICS_MAX:,} rubrics", hint="import them in parts; nothing was imported")


def _check_problems(findings: Findings, where: str) -> None:
    problems = findings.problems
    if problems.n:
        raise UsageError(
            f"{where}: {problems.n:,} {'places' if problems.n > 1 else 'place'} cannot be read:"
            + listed(problems.shown, problems.n),
            hint="mend or remove them; nothing was imported",
        )


def _check_doubts(findings: Findings, where: str, *, is_strict: bool) -> None:
    n = sum(notes.n for notes in findings.doubts.values())
    if not is_strict or not n:
        return
    lines = [f"{place} [{kind}]" for kind, notes in findings.doubts.items() for place in notes.shown]
    raise UsageError(
        f"{where}: {n:,} {'places' if n > 1 else 'place'} cannot be believed:{listed(lines, n)}",
        hint="without `--strict` they are left out, or come in without a verdict; nothing was imported",
    )


def _load(connection: duckdb.DuckDBPyConnection, staged: _Staged) -> None:
    for name, rows in (("given", staged.judgments), ("texts", staged.texts)):
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {rows}")
    clashes = connection.execute(
        "SELECT t.place, t.item_id, f.place FROM texts t JOIN ("
        " SELECT item_id, min_by(text, line_no) AS text, min_by(place, line_no) AS place FROM texts"
        " GROUP BY item_id HAVING min(text) <> max(text)"
        ") f ON f.item_id = t.item_id AND f.text <> t.text ORDER BY t.line_no"
    ).fetchall()
    if clashes:
        lines = (f"{place} has another text for {item_id!r} than {told}" for place, item_id, told in clashes)
        raise UsageError(
            f"{len(clashes):,} texts contradict each other:{listed(lines, len(clashes))}",
            hint="one id is one text; nothing was imported",
        )


def _prove_candidates(connection: duckdb.DuckDBPyConnection, findings: Findings) -> None:
    """Leave out comparisons of outputs that no generation, given or in the lake, shows to be those candidates'."""
    connection.execute("CREATE TEMP TABLE outputs AS SELECT item_id FROM texts UNION SELECT item_id FROM items")
    connection.execute(
        "CREATE TEMP TABLE proofs AS SELECT line_no, place, candidate_first, candidate_second,"
        " item_first IN (FROM outputs) AND item_second IN (FROM outputs) AS is_proven,"
        " other_first IN (FROM outputs) AND item_first NOT IN (FROM outputs)"
        " OR other_second IN (FROM outputs) AND item_second NOT IN (FROM outputs) AS is_swapped"
        " FROM given WHERE other_first IS NOT NULL"
    )
    rows = connection.execute(
        "SELECT line_no, place, candidate_first, candidate_second, is_swapped FROM proofs WHERE NOT is_proven"
        " ORDER BY line_no"
    )
    left_out = []
    while block := rows.fetchmany(_BLOCK_ROWS):
        for line_no, place, first, second, is_swapped in block:
            text = f"compares {first} with {second}"
            if is_swapped:
                findings.doubt(Doubt.MISATTRIBUTED, place, text)
                left_out.append(line_no)
            elif not findings.trusts(Doubt.UNPROVEN_CANDIDATES, place, text):
                left_out.append(line_no)
    connection.register("left_out", pa.table({"line_no": pa.array(left_out, pa.int64())}))
    rest = "SELECT * FROM given WHERE line_no NOT IN (SELECT line_no FROM left_out)"
    connection.execute(keyed_sql(rest))
    connection.unregister("left_out")


def _publish(store: Store, connection: duckdb.DuckDBPyConnection, staged: _Staged, findings: Findings) -> ForeignReport:
    """Publish what is new; each of the three files appears whole, and importing again adds what a kill left out."""
    judgments = tally(connection)
    outcomes: dict[str, dict[str, int]] = {}
    query = "SELECT task, outcome, count(*) FROM keyed GROUP BY ALL ORDER BY ALL"
    for task, outcome, n in connection.execute(query).fetchall():
        outcomes.setdefault(task, {})[outcome] = n
    rubrics = _publish_rubrics(store, connection, staged)
    items = _publish_items(store, connection)
    if judgments.n_new:
        publish(store, connection)
    doubts = [
        DoubtReport(kind, kind.meaning, findings.doubts[kind].n, findings.doubts[kind].shown)
        for kind in Doubt
        if kind in findings.doubts
    ]
    return ForeignReport(
        0, judgments, items, rubrics, outcomes, doubts, findings.skipped.n, findings.skipped.shown, findings.batches
    )


def _publish_rubrics(store: Store, connection: duckdb.DuckDBPyConnection, staged: _Staged) -> Tally:
    rows = [
        {"rubric_hash": rubric.rubric_hash, "rubric_id": rubric.rubric_id, "name": rubric.name,
         "description": rubric.description}
        for rubric in (found.rubric for found in staged.rubrics.values())
    ]  # fmt: skip
    connection.register("rubric_rows", pa.Table.from_pylist(rows, schema=RUBRICS.schema))
    new = "SELECT * FROM rubric_rows WHERE rubric_hash NOT IN (SELECT rubric_hash FROM rubrics)"
    n_new = _publish_new(store, connection, RUBRICS, "rubric_hash", new)
    return Tally(staged.n_rubrics, n_new, len(rows) - n_new, staged.n_rubrics - len(rows))


def _publish_items(store: Store, connection: duckdb.DuckDBPyConnection) -> Tally:
    # An id with its text is known wherever it came from: another place alone makes no other item.
    known = "SELECT 1 FROM items WHERE items.item_id = firsts.item_id AND items.text = firsts.text"
    firsts = "SELECT * FROM texts QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY line_no) = 1"
    ((n_rows, n_ids),) = connection.execute("SELECT count(*), count(DISTINCT item_id) FROM texts").fetchall()
    columns = ", ".join(ITEMS.schema.names)
    new = f"SELECT {columns} FROM ({firsts}) AS firsts WHERE NOT EXISTS ({known}) ORDER BY line_no"
    n_new = _publish_new(store, connection, ITEMS, "item_hash", new)
    return Tally(n_rows, n_new, n_ids - n_new, n_rows - n_ids)


def _publish_new(store: Store, connection: duckdb.DuckDBPyConnection, table: Table, hash_column: str, new: str) -> int:
    """Publish a query's rows as one file, named after what they are; return how many those are."""
    name = f"new_{table.name}"
    connection.execute(f"CREATE TEMP TABLE {name} AS {new}")
    query = f"SELECT count(*), sha256(string_agg({hash_column}, ',' ORDER BY {hash_column})) FROM {name}"
    ((n_new, digest),) = connection.execute(query).fetchall()
    if not n_new:
        return 0
    with store.staging(table) as staged:
        for batch in connection.sql(f"FROM {name}").to_arrow_reader(table.row_group_rows):
            staged.write(pa.Table.from_batches([batch]).cast(table.schema))
    store.publish_file(table, f"imported-{digest[:32]}", staged.path)
    return int(n_new)
