"""The verb `import` for what other tools left behind: into the lake, marked as imported.

All or nothing: every row is checked before the lake is touched. What cannot be believed is counted
and named, never guessed; `is_strict` refuses all of it. Importing again is a no-op.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond.errors import UsageError
from batchpond.files import listed
from batchpond.interop import imported
from batchpond.interop.foreign import (
    MEANINGS,
    Doubt,
    Findings,
    ForeignJudgment,
    ForeignRubric,
    ForeignText,
    Record,
    Said,
    TrackedBatch,
)
from batchpond.interop.foreign_files import Reader, files_below
from batchpond.interop.imported import STUDY_DEFAULT, UNSPECIFIED, Tally
from batchpond.lake import disk, tables
from batchpond.lake.schemas import IMPORTED_JUDGMENTS, ITEMS, RUBRICS, Table
from batchpond.lake.store import Store
from batchpond.plan.items import Item
from batchpond.views import refresh

if TYPE_CHECKING:
    import duckdb

_BLOCK_ROWS: Final = 5_000
_RUBRICS_MAX: Final = 100_000
_DEFAULTS: Final = ("template_id", "rubric_id", "provider", "request_model", "thinking")
_FLAGS: Final = ("other_first", "other_second")
_STAGED: Final = pa.schema(
    [
        ("line_no", pa.int64()),
        ("place", pa.string()),
        *((field.name, field.type) for field in IMPORTED_JUDGMENTS.schema if field.name != "import_key"),
        *((name, pa.string()) for name in _FLAGS),
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
    """Where the records stand until they are checked, and what was found beside them."""

    judgments: Path
    texts: Path
    rubrics: dict[str, ForeignRubric]
    n_rubrics: int


def import_foreign(
    store: Store,
    reader: Reader,
    paths: Sequence[Path],
    *,
    said: Said | None = None,
    accepted: Iterable[Doubt] = (),
    is_strict: bool = False,
) -> ForeignReport:
    """Import what `reader` finds in files and folders, or nothing of it.

    `said` fills in what the files do not say, `accepted` are doubts that a person answers for. Raises
    UsageError that lists broken rows, contradictions, and with `is_strict` every doubt; and BusyError.
    """
    files = files_below(paths)
    findings = Findings(frozenset(accepted))
    where = ", ".join(map(str, paths))
    with _staged(store, reader(files, said or Said(), findings), findings, said or Said()) as staged:
        _check_problems(findings, where)
        with store.lock("import"):
            names = [IMPORTED_JUDGMENTS.name, ITEMS.name, RUBRICS.name]
            with tables.connect(store, names) as connection:
                _load(connection, staged)
                _prove_candidates(connection, findings)
                _check_doubts(findings, where, is_strict=is_strict)
                imported.check_contradictions(connection, where)
                report = _publish(store, connection, staged, findings)
            refresh.refresh(store)
    return dataclasses.replace(report, n_files=len(files))


@contextmanager
def _staged(store: Store, records: Iterator[Record], findings: Findings, said: Said) -> Iterator[_Staged]:
    """Write the records, as they come, to where SQL can read them."""
    judgments, texts = store.scratch(".parquet"), store.scratch(".parquet")
    for path in (judgments, texts):
        disk.write_private(path, b"")
    try:
        with (
            pq.ParquetWriter(os.fspath(judgments), _STAGED, compression="zstd") as judged,
            pq.ParquetWriter(os.fspath(texts), _TEXTS, compression="zstd") as written,
        ):
            rubrics, n_rubrics = _write(records, judged, written, findings, said)
        yield _Staged(judgments, texts, rubrics, n_rubrics)
    finally:
        judgments.unlink(missing_ok=True)
        texts.unlink(missing_ok=True)


_TEXTS: Final = pa.schema([("line_no", pa.int64()), ("place", pa.string()), *ITEMS.schema])


def _write(
    records: Iterator[Record],
    judged: pq.ParquetWriter,
    written: pq.ParquetWriter,
    findings: Findings,
    said: Said,
) -> tuple[dict[str, ForeignRubric], int]:
    rubrics: dict[str, ForeignRubric] = {}
    n_rubrics = 0
    numbers = itertools.count(1)
    while block := list(itertools.islice(records, _BLOCK_ROWS)):
        judgments, texts = [], []
        for record in block:
            row = _row(record, next(numbers), said)
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


def _row(record: Record, line_no: int, said: Said) -> dict[str, Any]:
    place = {"line_no": line_no, "place": record.source}
    match record:
        case ForeignJudgment():
            row = {name: getattr(record, name) for name in (*imported.COLUMNS, *_FLAGS)}
            row["study"] = record.study or said.study or STUDY_DEFAULT
            for name in _DEFAULTS:
                row[name] = row[name] or getattr(said, name) or UNSPECIFIED
            return place | row
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
    for name, path in (("given", staged.judgments), ("texts", staged.texts)):
        source = f"read_parquet({tables.literal(os.fspath(path))}, hive_partitioning = false)"
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {source}")
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
    connection.execute(imported.keyed_sql(rest))
    connection.unregister("left_out")


def _publish(store: Store, connection: duckdb.DuckDBPyConnection, staged: _Staged, findings: Findings) -> ForeignReport:
    """Publish what is new; each of the three files appears whole, and importing again adds what a kill left out."""
    judgments = imported.tally(connection)
    outcomes: dict[str, dict[str, int]] = {}
    query = "SELECT task, outcome, count(*) FROM keyed GROUP BY ALL ORDER BY ALL"
    for task, outcome, n in connection.execute(query).fetchall():
        outcomes.setdefault(task, {})[outcome] = n
    rubrics = _publish_rubrics(store, connection, staged)
    items = _publish_items(store, connection)
    if judgments.n_new:
        imported.publish(store, connection)
    doubts = [
        DoubtReport(kind, MEANINGS[kind], findings.doubts[kind].n, findings.doubts[kind].shown)
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
