"""Judgments of pairs: which place is favoured, and what the tests of that could have found."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from batchpond.results.report.parts import Exhibit
from batchpond.results.report.written import chapter


def _words(exhibits: Sequence[Exhibit]) -> tuple[str, ...]:
    frame = exhibits[0].frame
    first = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") > 0))
    second = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") < 0))
    n_null = len(frame) - len(first) - len(second)
    return (
        f"Of {len(frame):,} cells, {len(first):,} favour the one shown first and {len(second):,} the one shown second "
        f"at a false discovery rate of 5 %; for {n_null:,} there is no evidence either way.",
    )


section = chapter("position", says=_words)
