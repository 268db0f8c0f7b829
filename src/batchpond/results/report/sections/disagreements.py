"""Answers to be read side by side: one judge that contradicts itself, and judges that contradict each other."""

from __future__ import annotations

from typing import Final

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.declared import Chapter
from batchpond.results.report.parts import Case, Cases
from batchpond.results.report.sections.answers import ANSWER_CHARACTERS_MAX, Answers, Row, title_of
from batchpond.results.report.source import Source

CASES_MAX: Final = 4


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
    answers = Answers(source, wanted)
    cases = [
        Case(
            title_of(row, "The one shown first wins both times" if row["status"] == "primacy"
                   else "The one shown second wins both times"),
            [answers.passage(place, f"{place['item_first']} shown first, {place['item_second']} second: "
                                    f"{answers.read(place)}")
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
    answers = Answers(source, wanted)
    cases = [
        Case(
            title_of(row, f"Two of {row['n_judges']:,} judges and templates"),
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


section = Chapter(
    key="disagreements",
    title="Disagreements, side by side",
    words=("The cases are drawn by a hash of their names, so that nobody chose them and everybody gets the same.",),
    parts=(_flips, _opposed),
)
