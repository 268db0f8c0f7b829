"""Answers as they came: a few of every task, beside what they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from batchpond.lake.tables import literal
from batchpond.model import CELL_COLUMNS
from batchpond.results.report.parts import Case, Cases, Passage, Section
from batchpond.results.report.source import Source
from batchpond.text import escape

OF_TASK_MAX: Final = 2
ANSWER_CHARACTERS_MAX: Final = 1_500
ITEM_CHARACTERS_MAX: Final = 900
_PLACE: Final = (*CELL_COLUMNS, "unit_id", "item_first", "item_second")
_NO_TEXT: Final = "(the answer's text is not in the lake)"

Row = dict[str, Any]


def section(source: Source) -> Section | None:
    """Show answers of every task that were given to planned requests, drawn by a hash of their ids."""
    names = f"task, {', '.join(CELL_COLUMNS)},\n    unit_id, item_first, item_second, candidate_first"
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
    where = [row["rubric_id"], row.get("template_id"), row.get("request_model"), row.get("candidate"), row["unit_id"]]
    return escape(f"{words}: {named}" + "".join(f" · {part}" for part in where if part and part != "unspecified"))


class Answers:
    """The texts of a few answers, and of what they judge, looked up by their ids alone."""

    def __init__(self, source: Source, places: Sequence[Row]) -> None:
        self._found: dict[tuple[Any, ...], Row] = {}
        self._texts: dict[str, str] = {}
        if not places:
            return
        where = " OR ".join(f"({_equal(place)})" for place in places)
        names = ", ".join(_PLACE)
        planned = source.values(
            f"SELECT {names}, request_id, attempt_id, verdict, label, score, outcome, item_first_hash,\n"
            "  item_second_hash\n"
            f"FROM results\nWHERE study = {source.name} AND request_state = 'answered' AND ({where})\n"
            "ORDER BY slot", limit=20 * len(places),
        )  # fmt: skip
        imported = source.values(
            f"SELECT {names}, verdict, label, score, outcome, explanation AS text\nFROM imported_judgments\n"
            f"WHERE study = {source.name} AND ({where})\nORDER BY import_key", limit=20 * len(places),
        )  # fmt: skip
        for row in (*planned, *imported):
            self._found.setdefault(tuple(row[name] for name in _PLACE), row)
        self._look_up(source)

    def _look_up(self, source: Source) -> None:
        rows = self._found.values()
        asked = sorted({row["request_id"] for row in rows if row.get("request_id")})
        if asked:
            answers = source.values(
                f"SELECT request_id, attempt_id, text FROM responses WHERE request_id IN ({_listed(asked)})\n"
                "AND status = 'succeeded' ORDER BY request_id, attempt_id, line_number", limit=20 * len(asked),
            )  # fmt: skip
            texts = {(row["request_id"], row["attempt_id"]): row["text"] for row in answers}
            for row in rows:
                row.setdefault("text", texts.get((row.get("request_id"), row.get("attempt_id"))))
        hashes = sorted({str(row[name]) for row in rows for name in ("item_first_hash", "item_second_hash")
                         if row.get(name)})  # fmt: skip
        if hashes:
            items = source.values(
                f"SELECT DISTINCT item_hash, text FROM items WHERE item_hash IN ({_listed(hashes)}) ORDER BY item_hash",
                limit=2 * len(hashes),
            )
            self._texts = {row["item_hash"]: row["text"] or "" for row in items}

    def read(self, place: Row) -> str:
        """Return what was read in an answer, or why nothing was; nothing of one that is no judgment."""
        row = self._found.get(tuple(place[name] for name in _PLACE), {})
        said = next((row[name] for name in ("verdict", "label", "score") if row.get(name) is not None), None)
        if said is None:
            return "" if row.get("outcome") in {None, "decided", "tie"} else str(row["outcome"])
        return f"{said:g}" if isinstance(said, float) else str(said)

    def passage(self, place: Row, title: str) -> Passage:
        """Return an answer under a title."""
        row = self._found.get(tuple(place[name] for name in _PLACE), {})
        return _cut(title, row.get("text") or _NO_TEXT, ANSWER_CHARACTERS_MAX)

    def items(self, place: Row) -> list[Passage]:
        """Return the texts of what a place judges, where the lake holds them."""
        row = self._found.get(tuple(place[name] for name in _PLACE), {})
        named = {place[f"item_{side}"]: row.get(f"item_{side}_hash") for side in ("first", "second")}
        known = {name: self._texts[found] for name, found in named.items() if found in self._texts}
        return [_cut(str(name), text, ITEM_CHARACTERS_MAX) for name, text in known.items()]


def _equal(place: Row) -> str:
    tests = (f"{name} = {literal(str(value))}" if value is not None else f"{name} IS NULL"
             for name, value in ((name, place[name]) for name in _PLACE))  # fmt: skip
    return " AND ".join(tests)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(map(literal, values))


def _cut(title: str, text: str, size: int) -> Passage:
    return Passage(escape(title), escape(text[:size], keep_newlines=True), max(0, len(text) - size))
