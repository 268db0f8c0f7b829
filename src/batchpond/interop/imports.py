"""The verbs `import`: judgments of a file, and what other tools left behind, into the lake, marked as imported.

One key says which judgment it is, wherever it came from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, Columns, RowFile, listed
from batchpond.interop import foreign
from batchpond.interop.foreign import Defaults, Doubt, Findings, ForeignJudgment, ForeignRubric, ForeignText, Record
from batchpond.lake import disk, rewrite, tables
from batchpond.lake.events import EventLog
from batchpond.lake.records import Relabelled
from batchpond.lake.schemas import IMPORTED_JUDGMENTS, ITEMS, RESPONSES, RUBRICS, Table
from batchpond.lake.store import Store
from batchpond.model import Origin, Outcome, Verdict
from batchpond.plan.items import Item
from batchpond.study.spec import CONVERSATION
from batchpond.tasks import pairwise, ranking, registry
from batchpond.tasks.base import TIE_KINDS
from batchpond.text import Shown, plural
from batchpond.views import refresh

if TYPE_CHECKING:
    import duckdb

STUDY_DEFAULT: Final = "imported"
UNSPECIFIED: Final = "unspecified"
COLUMNS: Final = tuple(name for name in IMPORTED_JUDGMENTS.schema.names if name != "import_key")
_query: Final = partial(tables.query, __package__)
_Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Tally:
    """`n_rows` = `n_new` + `n_known` (in the lake before) + `n_repeated` (given more than once).

    Of the new, `n_changed` are people's labels that take the place of what their rater said before; `n_taken_back` are
    beside all these.
    """

    n_rows: int
    n_new: int
    n_known: int
    n_repeated: int
    n_changed: int = 0
    n_taken_back: int = 0


def key(connection: duckdb.DuckDBPyConnection, rows: str, values: Mapping[str, str] | None = None) -> None:
    """Make the table `keyed` of rows with the columns `COLUMNS`, `line_no` (their order) and `place`."""
    connection.execute(_query("keyed", rows=rows), values)


def check_contradictions(connection: duckdb.DuckDBPyConnection, path: Path | str) -> None:
    """Raise UsageError if the same judgment has two verdicts, among the rows or against the lake."""
    clashes = _query("clashes")
    ((n_clashes,),) = connection.execute(f"SELECT count(*) FROM ({clashes})").fetchall()
    if not n_clashes:
        return
    first = connection.execute(f"FROM ({clashes}) ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}").fetchall()
    lines = (
        f"{place} says {word}, "
        + (f"{told_at} says {told}" if source is None else f"already in the lake from {source} as {told}")
        for _, place, word, told_at, source, told in first
    )
    contradict = "contradict" if n_clashes > 1 else "contradicts"
    told = f"{plural(n_clashes, 'row')} {contradict} another verdict on the same judgment"
    ((are_people,),) = connection.execute("SELECT bool_and(provider = 'human') FROM keyed").fetchall()
    hint = (
        "repeats of a judgment need a column repeat_no (1, 2, ...), another run of the same a --study of its own, and "
        "`batchpond rank STUDY STUDY` ranks both as one; nothing was imported"
    )
    if are_people:
        hint = (
            "nothing was imported: leave the label that counts, or give the other another --rater; "
            "what was handed in before changes by `batchpond import labels` alone"
        )
    foreign.refuse(path, told, lines, n_clashes, hint)


def tally(connection: duckdb.DuckDBPyConnection) -> Tally:
    """Return how many rows of `keyed` are new, known and repeated."""
    ((n_rows, n_known, n_new),) = connection.execute(_query("tally")).fetchall()
    return Tally(n_rows, n_new, n_known, n_rows - n_known - n_new)


def publish(store: Store, connection: duckdb.DuckDBPyConnection, replaced: _Rows = ()) -> None:
    """Write the new rows, in the order given, to one file whose name is the digest of what they say.

    What they have `replaced` is an event each, and then they stand in its place: whoever is killed leaves one of both.
    """
    # A stream that is read slowly pins what is behind it: only a plain scan may be.
    connection.execute(_query("new_rows", columns=", ".join(COLUMNS)))
    connection.execute("DROP TABLE keyed")
    if replaced:
        said = ((row["study"], row["request_model"], orjson.dumps(row).decode()) for row in replaced)
        EventLog(store).append(*(Relabelled(study=study, rater=rater, said=row) for study, rater, row in said))
        gone = [row["import_key"] for row in replaced]
        in_place = "FROM new_rows WHERE list_contains($gone, import_key)"
        comes = connection.sql(f"SELECT * EXCLUDE (row_digest) {in_place}", params={"gone": gone}).to_arrow_table()
        rewrite.exchange(store, IMPORTED_JUDGMENTS, "import_key", gone, comes.cast(IMPORTED_JUDGMENTS.schema))
        connection.execute(f"DELETE {in_place}", {"gone": gone})
    if connection.execute("SELECT count(*) FROM new_rows").fetchall() == [(0,)]:
        return
    content = hashlib.sha256()
    with store.staging(IMPORTED_JUDGMENTS) as staged:
        for batch in connection.sql("FROM new_rows").to_arrow_reader(IMPORTED_JUDGMENTS.row_group_rows):
            content.update("".join(batch.column("row_digest").to_pylist()).encode())
            block = pa.Table.from_batches([batch]).drop_columns(["row_digest"])
            staged.write(block.cast(IMPORTED_JUDGMENTS.schema))
    store.publish_file(IMPORTED_JUDGMENTS, ids.digest("imported_judgments", content.hexdigest()), staged.path)


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
class ForeignReport(Shown):
    """What an import found; `outcomes` counts the judgments that came in by task and outcome; `raters` gave labels."""

    n_files: int
    judgments: Tally
    items: Tally
    rubrics: Tally
    outcomes: dict[str, dict[str, int]]
    doubts: list[DoubtReport]
    n_skipped: int
    skipped: list[str]
    batches: list[foreign.TrackedBatch]
    raters: list[str] = field(default_factory=list)


@dataclass
class _Staged:
    """The SQL of the records until they are checked, and the rubrics, each once."""

    judgments: str
    texts: str
    rubrics: dict[str, ForeignRubric] = field(default_factory=dict)
    n_rubrics: int = 0

    def add(self, rubric: ForeignRubric, findings: Findings) -> None:
        """Take one; raises UsageError for too many."""
        self.n_rubrics += 1
        rubric_id = rubric.rubric.rubric_id
        told = self.rubrics.setdefault(rubric_id, rubric)
        if told.rubric != rubric.rubric:
            findings.problem(rubric.source, f"says something else of {rubric_id!r} than {told.source}")
        if len(self.rubrics) > _RUBRICS_MAX:
            raise UsageError(f"more than {_RUBRICS_MAX:,} rubrics", hint="import them in parts; nothing was imported")


def import_foreign(
    store: Store,
    reader: foreign.Reader,
    paths: Sequence[Path],
    *,
    defaults: Defaults | None = None,
    accepted: Iterable[Doubt] = (),
    is_strict: bool = False,
    is_relabelling: bool = False,
) -> ForeignReport:
    """Import what `reader` finds in files and folders, or nothing of it.

    `defaults` fills in what the files do not say, `accepted` are doubts that a person answers for; with
    `is_relabelling` what a rater says takes the place of what they said before. Raises
    UsageError that lists broken rows, contradictions, and with `is_strict` every doubt; and BusyError.
    """
    files = foreign.files_below(paths)
    findings = Findings(frozenset(accepted), n_files=len(files))
    where = ", ".join(map(str, paths))
    with _staged(store, reader(files, defaults or Defaults(), findings), findings, defaults or Defaults()) as staged:
        n, hint = findings.problems.n, "mend or remove them; nothing was imported"
        foreign.refuse(where, f"{plural(n, 'place')} cannot be read", findings.problems.shown, n, hint)
        with store.lock("import"):
            names = [IMPORTED_JUDGMENTS.name, ITEMS.name, RUBRICS.name]
            with connect(store, names) as connection:
                _load(connection, staged)
                _prove_candidates(connection, findings)
                if is_strict:
                    doubts = [f"{place} [{kind}]" for kind, told in findings.doubts.items() for place in told.shown]
                    hint = "without `--strict` they are left out, or come in without a verdict; nothing was imported"
                    n = sum(told.n for told in findings.doubts.values())
                    foreign.refuse(where, f"{plural(n, 'place')} cannot be believed", doubts, n, hint)
                replaced = _relabel(connection) if is_relabelling else None
                check_contradictions(connection, where)
                report = _publish(store, connection, staged, findings, replaced)
            refresh.refresh(store)
    return report


@contextmanager
def connect(store: Store, names: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection to tables of the lake, with the macros that imports are read by."""
    with tables.connect(store, names) as connection:
        connection.execute(_query("import_macros"))
        yield connection


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
    numbers = itertools.count(1)
    with scratch_rows(store, _STAGED) as (judged, judgments), scratch_rows(store, _TEXTS) as (written, texts):
        staged = _Staged(judgments, texts)
        while block := list(itertools.islice(records, _BLOCK_ROWS)):
            rows = [(record, _row(record, next(numbers), defaults)) for record in block]
            for writer, kind in ((judged, ForeignJudgment), (written, ForeignText)):
                own = [row for record, row in rows if isinstance(record, kind)]
                writer.write_table(pa.Table.from_pylist(own, schema=writer.schema))
            for record in block:
                if isinstance(record, ForeignRubric):
                    staged.add(record, findings)
        judged.close()
        written.close()
        yield staged


_TEXTS: Final = pa.schema([("line_no", pa.int64()), ("place", pa.string()), *ITEMS.schema])


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
            return place | {name: getattr(item, name) for name in ITEMS.schema.names}
        case ForeignRubric():
            return place


def _load(connection: duckdb.DuckDBPyConnection, staged: _Staged) -> None:
    for name, rows in (("given", staged.judgments), ("texts", staged.texts)):
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {rows}")
    clashes = connection.execute(_query("text_clashes")).fetchall()
    if clashes:
        lines = (f"{place} has another text for {item_id!r} than {told}" for place, item_id, told in clashes)
        raise UsageError(
            f"{len(clashes):,} texts contradict each other:{listed(lines, len(clashes))}",
            hint="one id is one text; nothing was imported",
        )


def _prove_candidates(connection: duckdb.DuckDBPyConnection, findings: Findings) -> None:
    """Leave out comparisons of outputs that no generation, given or in the lake, shows to be those candidates'."""
    rows = connection.execute(_query("unproven"))
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
    key(connection, "SELECT * FROM given WHERE line_no NOT IN (SELECT line_no FROM left_out)")
    connection.unregister("left_out")


def _relabel(connection: duckdb.DuckDBPyConnection) -> _Rows:
    """Have labels be known by what they are of, and return the rows of the lake that they take the place of."""
    connection.execute(_query("relabelled"))
    rows: list[dict[str, Any]] = connection.sql("FROM replaced").to_arrow_table().to_pylist()
    return rows


def _taken_back(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], int]:
    """Leave out labels that only take back what was said; return whose all are, and how many go."""
    raters = connection.execute("SELECT DISTINCT request_model FROM keyed ORDER BY ALL").fetchall()
    sql = "SELECT count(DISTINCT thing) FROM keyed WHERE outcome = $word AND thing IN (SELECT thing FROM told)"
    ((n_taken_back,),) = connection.execute(sql, {"word": str(Outcome.MISSING)}).fetchall()
    connection.execute("DELETE FROM keyed WHERE outcome = $word", {"word": str(Outcome.MISSING)})
    return [name for (name,) in raters], n_taken_back


def _publish(
    store: Store, connection: duckdb.DuckDBPyConnection, staged: _Staged, findings: Findings, replaced: _Rows | None
) -> ForeignReport:
    """Publish what is new; each of the three files appears whole, and importing again adds what a kill left out."""
    raters, n_taken_back = _taken_back(connection) if replaced is not None else ([], 0)
    judgments = tally(connection)
    if replaced is not None:
        changed = "SELECT count(DISTINCT thing) FROM keyed WHERE import_key IN (SELECT import_key FROM replaced)"
        ((n_changed,),) = connection.execute(changed).fetchall()
        judgments = dataclasses.replace(judgments, n_changed=n_changed, n_taken_back=n_taken_back)
    outcomes: dict[str, dict[str, int]] = {}
    query = "SELECT task, outcome, count(*) FROM keyed GROUP BY ALL ORDER BY ALL"
    for task, outcome, n in connection.execute(query).fetchall():
        outcomes.setdefault(task, {})[outcome] = n
    rubrics = _publish_rubrics(store, connection, staged)
    items = _publish_items(store, connection)
    if judgments.n_new or n_taken_back:
        publish(store, connection, replaced or ())
    doubts = [
        DoubtReport(kind, kind.meaning, told.n, told.shown) for kind in Doubt if (told := findings.doubts.get(kind))
    ]
    skipped, tallies = findings.skipped, (judgments, items, rubrics)
    return ForeignReport(
        findings.n_files, *tallies, outcomes, doubts, skipped.n, skipped.shown, findings.batches, raters
    )


def _publish_rubrics(store: Store, connection: duckdb.DuckDBPyConnection, staged: _Staged) -> Tally:
    rows = [{name: getattr(found.rubric, name) for name in RUBRICS.schema.names} for found in staged.rubrics.values()]
    connection.register("rubric_rows", pa.Table.from_pylist(rows, schema=RUBRICS.schema))
    new = "SELECT * FROM rubric_rows WHERE rubric_hash NOT IN (SELECT rubric_hash FROM rubrics)"
    n_new = _publish_new(store, connection, RUBRICS, "rubric_hash", new)
    return Tally(staged.n_rubrics, n_new, len(rows) - n_new, staged.n_rubrics - len(rows))


def _publish_items(store: Store, connection: duckdb.DuckDBPyConnection) -> Tally:
    ((n_rows, n_ids),) = connection.execute("SELECT count(*), count(DISTINCT item_id) FROM texts").fetchall()
    new = _query("new_items", columns=", ".join(ITEMS.schema.names))
    n_new = _publish_new(store, connection, ITEMS, "item_hash", new)
    return Tally(n_rows, n_new, n_ids - n_new, n_rows - n_ids)


def _publish_new(store: Store, connection: duckdb.DuckDBPyConnection, table: Table, hash_column: str, new: str) -> int:
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


FILE_COLUMNS: Final = Columns(**orjson.loads(Path(__file__).with_name("judgments.json").read_bytes()))
_PAIRS: Final = (pairwise.TASK, ranking.TASK)
_TASKS: Final = registry.JUDGING
_MADE: Final = (CONVERSATION, *(name for name in registry.NAMES if name not in registry.JUDGING))
# "decided" alone does not say for which item.
WORDS: Final = (*Verdict, *(word for word in Outcome if word not in {Outcome.DECIDED, Outcome.TIE}))


@dataclass(frozen=True, slots=True)
class ImportReport(Shown):
    """What an import found: `n_rows` = `n_new` + `n_known` (in the lake before) + `n_repeated` (in the file).

    Beside these, `n_left_out` rows of `results` hold none: answers that are to come, texts, and what this lake asked.
    `left_behind` says what figures of the other lake rest on and the file does not hold.
    """

    path: Path
    n_rows: int
    n_new: int
    n_known: int
    n_repeated: int
    n_left_out: int = 0
    left_behind: tuple[str, ...] = ()


def import_judgments(store: Store, path: Path, *, study: str | None = None) -> ImportReport:
    """Import a CSV, TSV or Parquet file of judgments, such as the view `results` of a lake, or nothing of it.

    `study` is for rows without one (`imported` if None). Raises UsageError that lists the lines of rows
    that cannot be used or that contradict each other or the lake, and BusyError.
    """
    file = RowFile(path, FILE_COLUMNS)
    with _file_rows(store, file) as given, store.lock("import judgments"):
        with connect(store, [IMPORTED_JUDGMENTS.name, RESPONSES.name]) as connection:
            _take(connection, given, file)
            of_file = {"unit": file.unit, "file": file.path.name, "study": study or STUDY_DEFAULT}
            key(connection, _query("typed"), of_file)
            check_contradictions(connection, path)
            found = tally(connection)
            ((n_given,),) = connection.execute(f"SELECT count(*) FROM {given}").fetchall()
            left_behind = tuple(_left_behind(connection, given))
            if found.n_new:
                publish(store, connection)
        refresh.refresh(store)
    n_left_out = n_given - found.n_rows
    return ImportReport(path, found.n_rows, found.n_new, found.n_known, found.n_repeated, n_left_out, left_behind)


def _left_behind(connection: duckdb.DuckDBPyConnection, given: str) -> Iterator[str]:
    made = ", ".join(map(tables.literal, _MADE))
    ((n_made, has_no_lengths, n_stages),) = connection.execute(_query("left_behind", given=given, made=made)).fetchall()
    if n_made:
        yield f"{plural(n_made, 'text')} that stages had models write, what they cost and how many calls failed"
    if has_no_lengths:
        yield "how long texts are and what points criteria give, which `batchpond results` and `export` write beside"
    if n_stages > 1:
        yield f"which rows of its {n_stages} stages were chosen by earlier answers"


@contextmanager
def _file_rows(store: Store, file: RowFile) -> Iterator[str]:
    with scratch_rows(store, FILE_COLUMNS.schema) as (writer, given):
        for block in file.blocks():
            writer.write_table(block)
        writer.close()
        yield given


def _take(connection: duckdb.DuckDBPyConnection, given: str, file: RowFile) -> None:
    """Make the view of the file's judgments; raises UsageError if any row of it is unusable by itself."""
    lists = {
        "pairs": _PAIRS,
        "tasks": _TASKS,
        "made": _MADE,
        "words": WORDS,
        "kinds": TIE_KINDS,
        "origins": tuple(Origin),
    }
    parts = {name: ", ".join(map(tables.literal, words)) for name, words in lists.items()}
    connection.execute(_query("import_given", given=given, **parts))
    found = f"FROM ({_query('import_problems', **parts)}) WHERE problem IS NOT NULL"
    ((n_found,),) = connection.execute(f"SELECT count(*) {found}").fetchall()
    n_bad = n_found + file.problems.n
    first = connection.execute(f"{found} ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}").fetchall() if n_found else []
    lines = [f"{file.unit} {line_no} {problem}" for line_no, problem in sorted([*first, *file.problems.shown])]
    known = {"verdict": (*WORDS, *TIE_KINDS), "task": _TASKS, "origin": tuple(Origin)}
    named = [name for name in known if any(f" {name}" in line for line in lines)]
    hints = [*(f"{name} is one of {', '.join(known[name])}" for name in named), "nothing was imported"]
    foreign.refuse(file.path, f"{plural(n_bad, 'row')} cannot be imported", lines, n_bad, "; ".join(hints))
