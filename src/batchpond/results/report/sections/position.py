"""Judgments of pairs: which place is favoured, and what the tests of that could have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.cells import JUDGE
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.parts import ChartKind, Exhibit, count, number, p_value

_EFFECT = (
    count("n_decided", "decided twice"),
    count("n_primacy", "first twice"),
    count("n_recency", "second twice"),
    number("position_logodds", "log-odds", has_ends=True, role="value",
           axis="log-odds of the first position (above 0: first favoured)"),
    number("position_item_sd", "sd of items"),
)  # fmt: skip
_TESTS = (
    count("n_flipped", "flips"),
    p_value("p_position", "p"),
    p_value("q_bh", "q"),
    number("position_logodds_mde", "detectable"),
    p_value("p_position_these_items", "p, these items"),
    p_value("p_position_items", "p, items differ"),
)
_POSITION = Declared(
    key="position",
    title="Effect of being shown first",
    caption=(
        "n = {n_flipped} pairs per cell with a vote for the same place in both orders; all votes count. {left_out} "
        "Log-odds above 0 favour the one shown first; no flipped pair gives no estimate. 95 % t intervals for items in "
        "general, and how much items differ in it."
    ),
    view="metric_position_bias",
    cells=CELL_COLUMNS,
    where="n_both > 0",
    columns=_EFFECT,
    selects=(*_EFFECT, *_TESTS),
    left_out=(
        ("n_left_out", "pairs without a majority in both orders"),
        ("n_pairs_pending", "pairs still pending"),
    ),
    figure=Drawn(kind=ChartKind.INTERVALS, group=JUDGE, panel="rubric_id", reference=0.0),
)
_POWER = replace(
    _POSITION,
    key="position-tests",
    title="Tests of positional bias and their power",
    caption=(
        "p: t test of the log-odds for items in general; q: the same, corrected over the study's cells (Benjamini and "
        "Hochberg). Detectable: the smallest log-odds that it reveals with a power of 80 %; a p that found nothing "
        "says no more than that. These items: the exact test (exact McNemar), with repeats the sign-flip test, of how "
        "the judge treats the very items that were asked. Items differ: whether the effect is another for other items."
    ),
    columns=_TESTS,
    figure=None,
)


def _words(exhibits: Sequence[Exhibit]) -> tuple[str, ...]:
    frame = exhibits[0].frame
    first = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") > 0))
    second = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") < 0))
    n_null = len(frame) - len(first) - len(second)
    return (
        f"Of {len(frame):,} cells, {len(first):,} favour the one shown first and {len(second):,} the one shown second "
        f"at a false discovery rate of 5 %; for {n_null:,} there is no evidence either way.",
    )


section = Chapter(
    key="position",
    title="Positional bias",
    says=_words,
    needs=lambda source: source.has_pairs,
    parts=(_POSITION, _POWER),
)
