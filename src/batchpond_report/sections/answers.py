"""Answers as they came: a few of every task, beside what they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from batchpond.lake.tables import literal, query
from batchpond.model import CELL_COLUMNS
from batchpond.text import escape
from batchpond.views.read import beside, drawn, media
from batchpond_report.parts import Case, Cases, Passage, Section
from batchpond_report.source import Source

OF_TASK_MAX: Final = 2
ANSWER_CHARACTERS_MAX: Final = 1_500
ITEM_CHARACTERS_MAX: Final = 900
THUMBNAIL_PX: Final = 320
THUMBNAIL_BYTES: Final = 20_000
PICTURE_BYTES_MAX: Final = 200_000
_SAME: Final = (*CELL_COLUMNS, "unit_id", "item_first", "item_second")
_PLACE: Final = (*_SAME, "task", "candidate_first", "turn_no", "said")
_NO_TEXT: Final = "(the answer's text is not in the lake)"
_LABEL: Final = "(a person's label, without a word beside it)"

Row = dict[str, Any]


def section(source: Source) -> Section | None:
    """Show answers of every task that were given to planned requests, drawn by a hash of their ids."""
    names = f"task, {', '.join(CELL_COLUMNS)},\n    unit_id, item_first, item_second, candidate_first, turn_no"
    sql = (
        f"SELECT {names}\nFROM (\n  SELECT {names}, min(request_id) AS request_id\n  FROM results\n"
        f"  WHERE study = {source.name} AND request_state = 'answered'\n  GROUP BY {names}\n) AS places\n"
        f"QUALIFY row_number() OVER (PARTITION BY task ORDER BY md5(request_id), request_id) <= {OF_TASK_MAX}\n"
        "ORDER BY task, md5(request_id), request_id"
    )
    chosen = source.values(sql)
    answers = Answers(source, chosen)
    parts = [Cases(f"answers-{task}", f"Answers to task {task}", f"{OF_TASK_MAX} at most, with what was read in them.",
                   sql, list(_cases(rows, answers))) for task, rows in groupby(chosen, itemgetter("task"))]  # fmt: skip
    words = f"Drawn by a hash, so that nobody chose them; texts are cut at {ANSWER_CHARACTERS_MAX:,} characters."
    return Section("answers", "Answers as they came", (words,), parts) if parts else None


def _cases(rows: Iterable[Row], answers: Answers) -> Iterator[Case]:
    for row in rows:
        about, read = answers.items(row), answers.read(row)
        answer = answers.passage(row, f"{row['request_model']} answers" + (f", read as {read}" if read else ""))
        of = {**row, "item_lo": row["item_first"], "item_hi": row["item_second"], "unit_id": None}
        yield Case(title_of(of, "About"), [*about[:1], answer], about[1:])


def title_of(row: Row, words: str) -> str:
    """Return what a case is called: what it is about, and of which cell."""
    what = [row["item_lo"], row["item_hi"]]
    named = " and ".join(str(name) for name in what if name is not None)
    turn = None if row.get("turn_no") is None else f"turn {row['turn_no']}"
    where = [*map(row.get, ("rubric_id", "template_id", "request_model", "candidate")), turn, row["unit_id"]]
    return escape(
        (f"{words}: {named}" if named else words)
        + "".join(f" · {part}" for part in where if part and part != "unspecified")
    )


class Answers:
    """The texts of a few answers, of repeats one that says what is `said` of them, and of what they judge."""

    def __init__(self, source: Source, places: Sequence[Row]) -> None:
        listed = (f"({n}, {', '.join(map(_text, _place_of(place)))})" for n, place in enumerate(places))
        same = " AND ".join(f"results.{name} IS NOT DISTINCT FROM places.{name}" for name in _SAME)
        columns, listing = ", ".join(_PLACE), ", ".join(listed)
        parts = {"places": listing, "columns": columns, "same": same, "study": source.name, "media": media("judged")}
        rows = source.values(query(__package__, "answers", **parts), len(places)) if places else []
        shown = (row[f"shown_{side}"] for row in rows for side in ("first", "second"))
        self._drawn = drawn(source.reading("blobs"), shown, THUMBNAIL_PX, THUMBNAIL_BYTES, PICTURE_BYTES_MAX)
        self._found = {_place_of(places[row["place_no"]]): row for row in rows}

    def read(self, place: Row) -> str:
        """Return what was read in an answer, or why nothing was; nothing of one that is no judgment."""
        row = self._found.get(_place_of(place), {})
        said = next((row[name] for name in ("verdict", "label", "score") if row.get(name) is not None), None)
        if said is None:
            return "" if row.get("outcome") in {None, "decided", "tie"} else str(row["outcome"])
        return f"{said:g}" if isinstance(said, float) else str(said)

    def passage(self, place: Row, title: str) -> Passage:
        """Return an answer under a title."""
        row = self._found.get(_place_of(place), {})
        lacking = _LABEL if place["provider"] == "human" else _NO_TEXT
        return _cut(title, row.get("text") or lacking, ANSWER_CHARACTERS_MAX)

    def items(self, place: Row) -> list[Passage]:
        """Return the texts of what a place judges, where the lake holds them."""
        row = self._found.get(_place_of(place), {})
        sides = {
            str(place[f"item_{side}"]): side for side in ("first", "second") if row.get(f"text_{side}") is not None
        }
        return [self._of_item(name, row, side) for name, side in sides.items()]

    def _of_item(self, name: str, row: Row, side: str) -> Passage:
        text = _cut(name, row[f"text_{side}"], ITEM_CHARACTERS_MAX)
        whole, pictures = beside(text.text, row[f"shown_{side}"], self._drawn)
        return replace(text, text=escape(whole, keep_newlines=True), pictures=pictures)


def _place_of(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in _PLACE)


def _text(value: Any) -> str:
    return "NULL::VARCHAR" if value is None else literal(str(value))


def _cut(title: str, text: str, size: int) -> Passage:
    return Passage(escape(title), escape(text[:size], keep_newlines=True), max(0, len(text) - size))
