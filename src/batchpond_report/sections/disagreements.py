"""Answers to be read side by side: one judge that contradicts itself, and judges that contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from batchpond.model import CELL_COLUMNS
from batchpond_report.declared import Chapter
from batchpond_report.parts import Case, Cases
from batchpond_report.sections.answers import ANSWER_CHARACTERS_MAX, Answers, Row, title_of
from batchpond_report.source import Source

CASES_MAX: Final = 4
_VERDICTS: Final = {"lo": "first", "hi": "second"}  # of a pair whose lower item is shown first
_PLACES: Final = {"primacy": "first", "recency": "second"}


def _flips(source: Source) -> Cases | None:
    if not source.has_pairs:
        return None
    keys = ", ".join((*CELL_COLUMNS, "unit_id", "item_lo", "item_hi"))
    sql = (
        f"SELECT {keys}, status\nFROM pair_status\nWHERE study = {source.name} AND status IN ('primacy', 'recency')\n"
        f"ORDER BY md5(concat_ws(chr(31), {keys})), {keys}"
    )
    caption = "pairs whose winner flips when the two swap places, of all cells together, with both answers."
    return _side_by_side(
        source, Cases("flips", "A judge against itself", caption, sql, ()), _orders,
        lambda row: f"The one shown {_PLACES[row['status']]} wins both times",
        lambda place, read: f"{place['item_first']} shown first, {place['item_second']} second: {read}",
    )  # fmt: skip


def _opposed(source: Source) -> Cases | None:
    keys = "task, rubric_id, unit_id, item_lo, item_hi, candidate, turn_no"
    parts = ("value", "template", "provider", "model", "thinking")
    sides = ", ".join(f"{name}_{side}" for side in "ab" for name in parts)
    sql = (
        f"SELECT {keys}, n_judges, {sides}\nFROM report_disagreements\nWHERE study = {source.name}\n"
        f"ORDER BY md5(concat_ws(chr(31), {keys})), {keys}"
    )
    caption = (
        "pairs or items on which judges say the opposite, each sure in itself: of a pair, the same winner in both "
        "orders. One of each side is shown."
    )
    return _side_by_side(
        source, Cases("opposed", "Judges against each other", caption, sql, ()),
        lambda row: [_place(row, side) for side in "ab"],
        lambda row: f"Two of {row['n_judges']:,} judges and templates",
        lambda place, _: f"{_judge(place)} says {place['says']}",
    )  # fmt: skip


def _side_by_side(
    source: Source, empty: Cases, places: Callable[[Row], list[Row]], title: Callable[[Row], str],
    says: Callable[[Row, str], str],
) -> Cases | None:  # fmt: skip
    chosen = [(row, places(row)) for row in source.values(empty.sql, CASES_MAX)]
    answers = Answers(source, [place for _, sides in chosen for place in sides])
    cases = [
        Case(
            title_of(row, title(row)),
            [answers.passage(place, says(place, answers.read(place))) for place in sides],
            answers.items(sides[0]),
        )
        for row, sides in chosen
    ]
    caption = f"{len(cases)} {empty.caption} Texts are cut at {ANSWER_CHARACTERS_MAX:,} characters."
    return replace(empty, caption=caption, cases=cases) if cases else None


def _orders(row: Row) -> list[Row]:
    items, said = (row["item_lo"], row["item_hi"]), _PLACES[row["status"]]
    return [{**row, "item_first": one, "item_second": two, "said": said} for one, two in (items, items[::-1])]


def _place(row: Row, side: str) -> Row:
    value = row[f"value_{side}"]
    better = row["item_lo" if value == "lo" else "item_hi"]
    is_served_twice = row["model_a"] == row["model_b"] and row["provider_a"] != row["provider_b"]
    return {
        "judge": (f"{row[f'provider_{side}']}/" if is_served_twice else "") + row[f"model_{side}"],
        "template_id": row[f"template_{side}"], "rubric_id": row["rubric_id"], "provider": row[f"provider_{side}"],
        "request_model": row[f"model_{side}"], "thinking": row[f"thinking_{side}"], "unit_id": row["unit_id"],
        "item_first": row["item_lo"], "item_second": row["item_hi"], "task": row["task"], "turn_no": row["turn_no"],
        "candidate_first": row["candidate"], "said": _VERDICTS.get(value, value),
        "says": f"{better} is better" if row["task"] == "pair" else value,
    }  # fmt: skip


def _judge(place: Row) -> str:
    thinking = "" if place["thinking"] in {None, "none", "unspecified"} else f", thinking {place['thinking']}"
    return f"{place['judge']} ({place['template_id']}{thinking})"


section = Chapter(
    key="disagreements",
    title="Disagreements, side by side",
    words=("The cases are drawn by a hash of their names, so that nobody chose them and everybody gets the same.",),
    parts=(_flips, _opposed),
)
