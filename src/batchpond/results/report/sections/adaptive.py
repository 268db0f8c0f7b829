"""Rounds that chose their pairs by earlier answers: what was asked, and why."""

from __future__ import annotations

import polars as pl

from batchpond.results.report.declared import Chapter, Declared
from batchpond.results.report.numbers import Kind, total
from batchpond.results.report.parts import Column, When, count, text


def _rounds(frame: pl.DataFrame) -> dict[str, str]:
    n_held_out = total(frame.filter(pl.col("purpose") == "holdout"), "n_planned")
    return {"rounds": f"{frame['round_no'].n_unique():,}", "held_out": f"{n_held_out:,}"}


_ROUNDS = Declared(
    key="rounds",
    title="Judgments per round, by why they were asked",
    caption=(
        "n = {n_planned:total} judgments planned in {rounds} rounds, {held_out} of them held out. start: balanced "
        "first pairs; gain: the most is learnt from them; holdout: drawn at random; reverse: a pair again in the "
        "other order."
    ),
    view="results",
    where="purpose IS NOT NULL",
    order="stage, round_no, purpose",
    is_grouped=True,
    columns=(
        text("stage", "stage", when=When.VARYING),
        count("round_no", "round"),
        Column("purpose", "why", Kind.RANGE),
        count("n_planned", "planned", sql="count(*)"),
        count("n_answered", "answered", sql="count(outcome)"),
        count("n_verdicts", "verdicts", sql="count(verdict)"),
    ),
    says=_rounds,
)
section = Chapter(
    key="adaptive",
    title="Adaptive rounds",
    words=(
        "Pairs were chosen by what earlier rounds had left open. A random part was held out: how well the other "
        "judgments foretell it, in the table on the quality of the ranking, is the honest measure of such a ranking; "
        "its separation reliability is not.",
    ),
    needs=lambda source: source.is_adaptive,
    parts=(_ROUNDS,),
)
