"""Judgments of pairs and the lengths of the texts: does the longer one win?"""

from __future__ import annotations

from typing import Final

import polars as pl

from batchpond.results.report.cells import JUDGE, ORDER, cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections.common import cut, drawn, exhibit, left_out, ranged, sentences
from batchpond.results.report.source import Source

_DIMENSIONS: Final = ("template_id", "provider", "request_model", "thinking")
_WORDS: Final = (
    "Longer texts may be better texts: this shows what goes with winning, not what a judge looks at. Lengths are "
    "characters of what was judged."
)


def lengths(source: Source) -> Section | None:
    """Show how often the longer text wins, and candidates compared at equal shares of longer texts."""
    if not source.has_pairs:
        return None
    parts = [part for part in (_longer(source), _candidates(source)) if part]
    return Section("length", "Length", (_WORDS,), parts) if parts else None


def _longer(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{ORDER}, n_pairs, n_no_length, n_longer_won, n_shorter_won, n_same_length,\n"
        "  longer_win_rate, longer_win_rate_lo, longer_win_rate_hi, p_longer, longer_mde, length_correlation",
        "metric_length", ORDER, where="n_longer_won + n_shorter_won > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame.with_columns(pl.lit(0.5).alias("even")))
    frame, encoding = found.labelled(group=JUDGE, panel="rubric_id")
    title = "Share of wins by the longer text"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_pairs')} pairs per cell whose winner is the same in both orders.",
        left_out(rows.frame, (("n_no_length", "pairs with a text of unknown length"),
                              ("n_same_length", "pairs of equal length"))),
        "Wilson 95 % intervals. p: exact sign test. Detectable: the smallest share that so many pairs reveal with a "
        "power of 80 %. Correlation: of winning with the logarithm of the ratio of lengths.",
        found.said(),
        cut(rows),
    )  # fmt: skip
    encoding |= {"value": "longer_win_rate", "low": "longer_win_rate_lo", "high": "longer_win_rate_hi",
                 "reference": "even"}  # fmt: skip
    figure = drawn(
        rows, ChartKind.INTERVALS, "length-figure", (title, caption), frame, encoding,
        titles={"value": "wins by the longer text", "group": JUDGE, "label": ""}, is_share=True,
    )  # fmt: skip
    columns = (
        *found.columns,
        Column("n_longer_won", "longer won"),
        Column("n_shorter_won", "shorter won"),
        Column("longer_win_rate", "longer wins", Kind.SHARE, "longer_win_rate_lo", "longer_win_rate_hi"),
        Column("p_longer", "p", Kind.P),
        Column("longer_mde", "detectable share", Kind.SHARE),
        Column("length_correlation", "correlation", Kind.NUMBER),
    )
    return exhibit(rows, "length", title, caption, columns, frame=found.frame, figure=figure)


def _candidates(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{', '.join(_DIMENSIONS)}, candidate_a, candidate_b, n_pairs, n_no_length, n_longer, n_shorter,\n"
        "  length_ratio, win_rate_half, win_rate_longer, win_rate_longer_lo, win_rate_longer_hi,\n"
        "  win_rate_shorter, win_rate_shorter_lo, win_rate_shorter_hi, win_rate_balanced",
        "metric_length_candidates", f"{', '.join(_DIMENSIONS)}, candidate_a, candidate_b", where="n_pairs > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, _DIMENSIONS)
    judges = found.columns if len(found.frame.select(found.varying).unique()) > 1 else ()
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_pairs')} comparisons of a with b in both orders, apart for those where a wrote "
        "more and less; balanced is the mean of the two. A tie or an inconsistent pair counts half. Length ratio: of a "
        "to b, geometric mean.",
        left_out(rows.frame, (("n_no_length", "comparisons with a text of unknown length"),)),
        found.said(),
        cut(rows),
    )
    columns = (
        *judges,
        Column("candidate_a", "a", Kind.TEXT),
        Column("candidate_b", "b", Kind.TEXT),
        Column("length_ratio", "length ratio", Kind.NUMBER),
        Column("n_longer", "a longer"),
        Column("n_shorter", "a shorter"),
        Column("win_rate_longer", "where longer", Kind.SHARE, "win_rate_longer_lo", "win_rate_longer_hi"),
        Column("win_rate_shorter", "where shorter", Kind.SHARE, "win_rate_shorter_lo", "win_rate_shorter_hi"),
        Column("win_rate_balanced", "balanced", Kind.SHARE),
    )
    title = "Wins of longer and shorter outputs"
    return exhibit(rows, "length-candidates", title, caption, columns, frame=found.frame)
