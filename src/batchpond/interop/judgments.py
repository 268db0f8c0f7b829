"""The verb `import judgments`: judgments made elsewhere, or in another lake, into the same metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, Columns, RowFile, listed
from batchpond.interop import imports
from batchpond.interop.imports import STUDY_DEFAULT, UNSPECIFIED
from batchpond.lake import tables
from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.model import Origin, Outcome, Verdict
from batchpond.tasks import compliance, likert, pairwise, pressure, prompts, ranking
from batchpond.views import refresh

if TYPE_CHECKING:
    import duckdb

COLUMNS: Final = Columns(
    required=("item_first",),
    optional=(
        "item_second", "verdict", "study", "template_id", "rubric_id", "provider", "model", "thinking", "unit_id",
        "repeat_no", "confidence", "input_tokens", "output_tokens", "cost_usd", "task", "outcome", "label", "score",
        "candidate_first", "candidate_second", "turn_no", "direction", "explanation", "origin", "request_model",
        "request_state",
    ),
    aliases={
        "id1": "item_first", "id2": "item_second", "item_a": "item_first", "item_b": "item_second",
        "better_id": "verdict", "winner": "verdict", "judge": "model", "template": "template_id",
        "trait": "rubric_id", "rubric": "rubric_id", "prompt_id": "unit_id", "repeat": "repeat_no",
        "item": "item_first", "candidate": "candidate_first", "turn": "turn_no",
    },
    own=("request_id", "parser_id", "request_state"),
)  # fmt: skip
SCHEMA: Final = COLUMNS.schema


_PAIRS: Final = (pairwise.TASK, ranking.TASK)
_TASKS: Final = (*_PAIRS, compliance.TASK, likert.TASK, pressure.TASK, prompts.TASK)
_YES_NO: Final = ("true", "false")  # what the task prompts decides
_VOTES: Final = tuple(Verdict)
# "decided" alone does not say for which item.
WORDS: Final = (*_VOTES, *(word for word in Outcome if word not in {Outcome.DECIDED, Outcome.TIE}))
_COUNT: Final = r"[0-9]{1,15}(\.0+)?"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import found: `n_rows` = `n_new` + `n_known` (in the lake before) + `n_repeated` (in the file).

    Beside these, `n_left_out` rows of `results` hold no judgment: answers that are to come, and texts.
    """

    path: Path
    n_rows: int
    n_new: int
    n_known: int
    n_repeated: int
    n_left_out: int = 0


def import_judgments(store: Store, path: Path, *, study: str | None = None) -> ImportReport:
    """Import a CSV or Parquet file of judgments, such as the view `results` of a lake, or nothing of it.

    `study` is for rows without one (`imported` if None). Raises UsageError that lists the lines of rows
    that cannot be used or that contradict each other or the lake, and BusyError.
    """
    file = RowFile(path, COLUMNS)
    with _staged(store, file) as given, store.lock("import judgments"):
        with tables.connect(store, [IMPORTED_JUDGMENTS.name]) as connection:
            _check_rows(connection, given, file)
            connection.execute(imports.keyed_sql(_typed_sql(given, file)), [study or STUDY_DEFAULT])
            imports.check_contradictions(connection, path)
            tally = imports.tally(connection)
            ((n_given,),) = connection.execute(f"SELECT count(*) FROM {given}").fetchall()
            if tally.n_new:
                imports.publish(store, connection)
        refresh.refresh(store)
    return ImportReport(path, tally.n_rows, tally.n_new, tally.n_known, tally.n_repeated, n_given - tally.n_rows)


@contextmanager
def _staged(store: Store, file: RowFile) -> Iterator[str]:
    """Copy the file's rows, as text, to where SQL can read them; yields a table expression."""
    with imports.scratch_rows(store, SCHEMA) as (writer, given):
        for block in file.blocks():
            writer.write_table(block)
        writer.close()
        yield given


def _check_rows(connection: duckdb.DuckDBPyConnection, given: str, file: RowFile) -> None:
    """Raise UsageError if any row of the file is unusable by itself."""
    found = f"SELECT line_no, {_PROBLEM} AS problem FROM {given} WHERE {_IS_JUDGMENT}"
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


def _typed_sql(given: str, file: RowFile) -> str:
    """Return the SQL of the rows with types, defaults, and what their word for a verdict means; $1 is the study."""
    texts = {name: _text(name, UNSPECIFIED) for name in ("template_id", "rubric_id", "provider", "thinking")}
    wholes = {name: _whole(name) for name in ("input_tokens", "output_tokens")}
    wholes |= {name: _whole(name, "INTEGER") for name in ("turn_no", "repeat_no")}
    amounts = {name: f"TRY_CAST({_number(name)} AS DOUBLE)" for name in ("score", "confidence", "cost_usd")}
    return tables.query(
        __package__, "typed", given=given, unit=tables.literal(f"{file.unit} "), file=tables.literal(file.path.name),
        task=_TASK, word=_WORD, verdicts=_listed(*_VOTES, *_YES_NO), decided=_listed(*_DECIDED),
        unspecified=tables.literal(UNSPECIFIED), unit_id=_text("unit_id", ""), is_judgment=_IS_JUDGMENT,
        **texts, **wholes, **amounts,
    )  # fmt: skip


def _listed(*words: str) -> str:
    return ", ".join(map(tables.literal, words))


def _word_but(column: str, *words: str) -> str:
    return f"WHEN {column} NOT IN ({_listed(*words)}) THEN 'has {column} ' || {_shown(column)}"


_DECIDED: Final = (Verdict.FIRST, Verdict.SECOND, *_YES_NO)
_TASK: Final = f"coalesce(task, '{pairwise.TASK}')"
_IS_PAIR: Final = f"{_TASK} IN ({_listed(*_PAIRS)})"
# A decision is told by its verdict or, where there is none, by its label or score.
_WORD: Final = f"coalesce(verdict, outcome, CASE WHEN coalesce(label, score) IS NOT NULL THEN '{Outcome.DECIDED}' END)"
# Of another lake's results: what is not answered yet, and the texts that its stages made, are no judgments.
_IS_JUDGMENT: Final = f"(request_state IS NULL OR ({_TASK} IN ({_listed(*_TASKS)}) AND {_WORD} IS NOT NULL))"


_PROBLEM: Final = f"""
    CASE
        WHEN coalesce(trim(item_first), '') = '' THEN 'has no item_first'
        {_word_but("task", *_TASKS)}
        WHEN {_IS_PAIR} AND coalesce(trim(item_second), '') = '' THEN 'has no item_second'
        WHEN NOT {_IS_PAIR} AND item_second IS NOT NULL THEN 'has item_second, which ' || task || ' does not judge'
        WHEN item_first = item_second THEN 'judges ' || {_shown("item_first")} || ' against itself'
        WHEN {_WORD} IS NULL THEN 'has no verdict'
        WHEN {_IS_PAIR} AND {_WORD} NOT IN ({_listed(*WORDS)}) THEN 'has verdict ' || {_shown(_WORD)}
        WHEN {_WORD} NOT IN ({_listed(*WORDS, *_YES_NO, Outcome.DECIDED)}) THEN 'has verdict ' || {_shown(_WORD)}
        WHEN outcome NOT IN (verdict, '{Outcome.DECIDED}') THEN 'has a verdict and outcome ' || {_shown("outcome")}
        {_word_but("direction", "forward", "reverse")}
        {_word_but("origin", *Origin)}
        {_bad_count("turn_no")} || ', not a whole number'
        {_bad_amount("score", "IS NOT NULL")} || ', not a number'
        WHEN NOT regexp_full_match({_number("repeat_no")}, '0*[1-9][0-9]{{0,8}}(\\.0+)?')
            THEN 'has repeat_no ' || {_shown("repeat_no")} || ', not a whole number from 1'
        {_bad_amount("confidence", "BETWEEN 0 AND 1")} || ', not a number from 0 to 1'
        {_bad_count("input_tokens")} || ', not a whole number'
        {_bad_count("output_tokens")} || ', not a whole number'
        {_bad_amount("cost_usd", ">= 0")} || ', not an amount'
    END"""
