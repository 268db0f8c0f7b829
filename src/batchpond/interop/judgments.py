"""The verb `import judgments`: judgments made elsewhere, or in another lake, into the same metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchpond.errors import UsageError
from batchpond.files import PROBLEMS_SHOWN_MAX, Columns, RowFile, listed
from batchpond.interop import imports
from batchpond.interop.imports import STUDY_DEFAULT
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
_query: Final = partial(tables.query, __package__)


_PAIRS: Final = (pairwise.TASK, ranking.TASK)
_TASKS: Final = (*_PAIRS, compliance.TASK, likert.TASK, pressure.TASK, prompts.TASK)
# "decided" alone does not say for which item.
WORDS: Final = (*Verdict, *(word for word in Outcome if word not in {Outcome.DECIDED, Outcome.TIE}))


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
        with imports.connect(store, [IMPORTED_JUDGMENTS.name]) as connection:
            _take(connection, given, file)
            of_file = {"unit": file.unit, "file": file.path.name, "study": study or STUDY_DEFAULT}
            imports.key(connection, _query("typed"), of_file)
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
    with imports.scratch_rows(store, COLUMNS.schema) as (writer, given):
        for block in file.blocks():
            writer.write_table(block)
        writer.close()
        yield given


def _take(connection: duckdb.DuckDBPyConnection, given: str, file: RowFile) -> None:
    """Make the view of the file's judgments; raises UsageError if any row of it is unusable by itself."""
    lists = {"pairs": _PAIRS, "tasks": _TASKS, "words": WORDS, "origins": tuple(Origin)}
    parts = {name: ", ".join(map(tables.literal, words)) for name, words in lists.items()}
    connection.execute(_query("import_given", given=given, **parts))
    found = f"FROM ({_query('import_problems', **parts)}) WHERE problem IS NOT NULL"
    ((n_found,),) = connection.execute(f"SELECT count(*) {found}").fetchall()
    n_bad = n_found + file.problems.n
    if not n_bad:
        return
    first = connection.execute(f"{found} ORDER BY line_no LIMIT {PROBLEMS_SHOWN_MAX}").fetchall()
    lines = (f"{file.unit} {line_no} {problem}" for line_no, problem in sorted([*first, *file.problems.shown]))
    raise UsageError(
        f"{file.path}: {n_bad:,} {'rows' if n_bad > 1 else 'row'} cannot be imported:{listed(lines, n_bad)}",
        hint=f"a verdict is one of {', '.join(WORDS)}; nothing was imported",
    )
