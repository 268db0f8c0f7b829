"""Rounds that chose their pairs by earlier answers: what was asked, and why."""

from __future__ import annotations

import polars as pl

from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Section
from batchpond.results.report.sections.common import cut, exhibit, sentences, total
from batchpond.results.report.source import Source

_WORDS = (
    "Pairs were chosen by what earlier rounds had left open. A random part was held out: how well the other judgments "
    "foretell it, in the table on the quality of the ranking, is the honest measure of such a ranking; its separation "
    "reliability is not."
)


def adaptive(source: Source) -> Section | None:
    """Count the judgments of each adaptive round by the reason for which they were asked."""
    if not source.is_adaptive:
        return None
    rows = source.rows(
        "SELECT stage, round_no, purpose, count(*) AS n_planned, count(outcome) AS n_answered,\n"
        "  count(verdict) AS n_verdicts\n"
        f"FROM results\nWHERE study = {source.name} AND purpose IS NOT NULL\n"
        "GROUP BY stage, round_no, purpose\nORDER BY stage, round_no, purpose"
    )
    if not len(rows):
        return None
    n_held_out = total(rows.frame.filter(pl.col("purpose") == "holdout"), "n_planned")
    caption = sentences(
        f"n = {total(rows.frame, 'n_planned'):,} judgments planned in {rows.frame['round_no'].n_unique():,} rounds, "
        f"{n_held_out:,} of them held out. start: balanced first pairs; gain: the most is learnt from them; holdout: "
        "drawn at random; reverse: a pair again in the other order.",
        cut(rows),
    )
    columns = (
        *((Column("stage", "stage", Kind.TEXT),) if rows.frame["stage"].n_unique() > 1 else ()),
        Column("round_no", "round"),
        Column("purpose", "why", Kind.RANGE),
        Column("n_planned", "planned"),
        Column("n_answered", "answered"),
        Column("n_verdicts", "verdicts"),
    )
    part = exhibit(rows, "rounds", "Judgments per round, by why they were asked", caption, columns)
    return Section("adaptive", "Adaptive rounds", (_WORDS,), (part,))
