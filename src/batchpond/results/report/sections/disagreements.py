"""Answers to be read side by side: one judge that contradicts itself, and judges that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from batchpond.lake.tables import literal
from batchpond.model import CELL_COLUMNS
from batchpond.results.report.declared import Chapter
from batchpond.results.report.parts import Case, Cases, Passage
from batchpond.results.report.source import Source
from batchpond.text import escape

CASES_MAX: Final = 4
ANSWER_CHARACTERS_MAX: Final = 1_500
ITEM_CHARACTERS_MAX: Final = 900
_PLACE: Final = (*CELL_COLUMNS, "unit_id", "item_first", "item_second")
_NO_TEXT: Final = "(the answer's text is not in the lake)"

Row = dict[str, Any]


def _flips(source: Source) -> Cases | None:
    if not source.has_pairs:
        return None
    keys = ", ".join((*CELL_COLUMNS, "unit_id", "item_lo", "item_hi"))
    sql = (
        f"SELECT {keys}, status\nFROM pair_status\nWHERE study = {source.name} AND status IN ('primacy', 'recency')\n"
        f"ORDER BY md5(concat_ws(chr(31), {keys})), {keys}"
    )
    chosen = source.values(sql, CASES_MAX)
    wanted = [
        {**row, "item_first": first, "item_second": second}
        for row in chosen
        for first, second in ((row["item_lo"], row["item_hi"]), (row["item_hi"], row["item_lo"]))
    ]
    answers = _Answers(source, wanted)
    cases = [
        Case(
            _title(row, "The one shown first wins both times" if row["status"] == "primacy"
                   else "The one shown second wins both times"),
            [answers.passage(place, f"{place['item_first']} shown first, {place['item_second']} second")
             for place in wanted[2 * number:2 * number + 2]],
            answers.items(wanted[2 * number]),
        )
        for number, row in enumerate(chosen)
    ]  # fmt: skip
    if not cases:
        return None
    caption = (
        f"{len(cases)} pairs whose winner flips when the two swap places, of all cells together, with both answers. "
        f"Texts are cut at {ANSWER_CHARACTERS_MAX:,} characters."
    )
    return Cases("flips", "A judge against itself", caption, sql, cases)


def _opposed(source: Source) -> Cases | None:
    keys = "task, rubric_id, unit_id, item_lo, item_hi, candidate, turn_no"
    parts = ("value", "template", "provider", "model", "thinking")
    sides = ", ".join(f"{name}_{side}" for side in "ab" for name in parts)
    sql = (
        f"SELECT {keys}, n_judges, {sides}\nFROM report_disagreements\nWHERE study = {source.name}\n"
        f"ORDER BY md5(concat_ws(chr(31), {keys})), {keys}"
    )
    chosen = source.values(sql, CASES_MAX)
    wanted = [_place(row, side) for row in chosen for side in "ab"]
    answers = _Answers(source, wanted)
    cases = [
        Case(
            _title(row, f"Two of {row['n_judges']:,} judges and templates"),
            [answers.passage(place, f"{_judge(place)} says {_said(row, side)}")
             for side, place in zip("ab", wanted[2 * number:2 * number + 2], strict=True)],
            answers.items(wanted[2 * number]),
        )
        for number, row in enumerate(chosen)
    ]  # fmt: skip
    if not cases:
        return None
    caption = (
        f"{len(cases)} pairs or items on which judges say the opposite, each sure in itself: of a pair, the same "
        f"winner in both orders. One of each side is shown. Texts are cut at {ANSWER_CHARACTERS_MAX:,} characters."
    )
    return Cases("opposed", "Judges against each other", caption, sql, cases)


def _place(row: Row, side: str) -> Row:
    return {
        "template_id": row[f"template_{side}"], "rubric_id": row["rubric_id"], "provider": row[f"provider_{side}"],
        "request_model": row[f"model_{side}"], "thinking": row[f"thinking_{side}"], "unit_id": row["unit_id"],
        "item_first": row["item_lo"], "item_second": row["item_hi"],
    }  # fmt: skip


def _said(row: Row, side: str) -> str:
    value = str(row[f"value_{side}"])
    return f"{row['item_lo' if value == 'lo' else 'item_hi']} is better" if row["task"] == "pair" else value


def _judge(place: Row) -> str:
    return f"{place['request_model']} ({place['template_id']})"


def _title(row: Row, words: str) -> str:
    what = [row["item_lo"], row["item_hi"]]
    named = " and ".join(str(name) for name in what if name is not None)
    where = [row["rubric_id"], row.get("template_id"), row.get("request_model"), row.get("candidate"), row["unit_id"]]
    return escape(f"{words}: {named}" + "".join(f" · {part}" for part in where if part and part != "unspecified"))


class _Answers:
    """The texts of a few answers, and of what they judge, looked up by their ids alone."""

    def __init__(self, source: Source, places: Sequence[Row]) -> None:
        self._found: dict[tuple[Any, ...], Row] = {}
        self._texts: dict[str, str] = {}
        if not places:
            return
        where = " OR ".join(f"({_equal(place)})" for place in places)
        names = ", ".join(_PLACE)
        planned = source.values(
            f"SELECT {names}, request_id, attempt_id, verdict, label, outcome, item_first_hash, item_second_hash\n"
            f"FROM results\nWHERE study = {source.name} AND request_state = 'answered' AND ({where})\n"
            "ORDER BY slot", limit=20 * len(places),
        )  # fmt: skip
        imported = source.values(
            f"SELECT {names}, verdict, label, outcome, explanation AS text\nFROM imported_judgments\n"
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

    def passage(self, place: Row, title: str) -> Passage:
        """Return an answer under a title that says who gave it and what was read in it."""
        row = self._found.get(tuple(place[name] for name in _PLACE), {})
        read = row.get("verdict") or row.get("label")
        said = f": {read}" if read and place["item_second"] is not None else ""
        return _cut(f"{title}{said}", row.get("text") or _NO_TEXT, ANSWER_CHARACTERS_MAX)

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


section = Chapter(
    key="disagreements",
    title="Disagreements, side by side",
    words=("The cases are drawn by a hash of their names, so that nobody chose them and everybody gets the same.",),
    parts=(_flips, _opposed),
)
