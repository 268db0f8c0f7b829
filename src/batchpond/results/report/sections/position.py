"""Judgments of pairs: which place is favoured, and what the tests of that could have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from batchpond.results.report.declared import Declared
from batchpond.results.report.parts import Exhibit
from batchpond.results.report.written import chapter


def _words(exhibits: Sequence[Exhibit]) -> tuple[str, ...]:
    frame = next(exhibit.frame for exhibit in exhibits if exhibit.key == "position")
    first = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") > 0))
    second = frame.filter((pl.col("q_bh") < 0.05) & (pl.col("position_logodds") < 0))
    n_null = len(frame) - len(first) - len(second)
    return (
        f"Of {len(frame):,} cells, {len(first):,} favour the one shown first and {len(second):,} the one shown second "
        f"at a false discovery rate of 5 %; for {n_null:,} there is no evidence either way.",
    )


def _by_evidence(tests: Declared) -> Declared:
    return replace(tests, adds=lambda frame: frame.sort("q_bh", nulls_last=True, maintain_order=True))


section = chapter("position", says=_words, **{"position-tests": _by_evidence})
