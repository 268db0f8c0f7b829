"""Who beats whom: candidates per judge, or items where they are few."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import polars as pl

from batchpond.text import plural
from batchpond_report.declared import Declared, Drawn, Made, chapter
from batchpond_report.numbers import total
from batchpond_report.parts import ChartKind, Exhibit
from batchpond_report.source import Source

MATRIX_ITEMS_MAX: Final = 25


def _ordered(frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """Return the cells with rows and columns from the strongest to the weakest."""
    row, column = f"{what}_a", f"{what}_b"
    strength = frame.group_by(row).agg(pl.col("win_rate_half").mean().alias("strength")).sort(
        "strength", row, descending=[True, False], nulls_last=True
    )  # fmt: skip
    order = {name: place for place, name in enumerate(strength[row].to_list())}
    sort = [pl.col(name).replace_strict(order, default=len(order)) for name in (row, column)]
    panel = [pl.col("rest")] if "rest" in frame.columns else []
    return frame.sort(*panel, *sort, maintain_order=True)


def _drawn(matrix: Declared, what: str) -> Declared:
    return replace(
        matrix,
        key="matrix",
        says=lambda frame: {"comparisons": plural(total(frame, "n_both") // 2, "comparison")},
        figure=Drawn(kind=ChartKind.WIN_MATRIX, rows=partial(_ordered, what=what)),
    )


def _of_items(items: Declared) -> Made:

    def made(source: Source) -> Exhibit | None:
        if source.has_candidates and source.has("metric_win_matrix", "true"):
            return None
        return _drawn(items, "item")(source) if source.is_small(MATRIX_ITEMS_MAX) else None

    return made


section = chapter("matrix", matrix=lambda candidates: _drawn(candidates, "candidate"), items=_of_items)
