"""What was asked, and what came back."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from batchpond_report.declared import LABEL, Declared, Drawn, chapter
from batchpond_report.numbers import total
from batchpond_report.parts import FIGURE_ROWS_MAX, ChartKind

_PARTS = (("n_valid", "valid"), ("n_no_verdict", "no verdict"), ("n_failed", "failed"), ("n_pending", "pending"))


def _parts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row per cell and part of it, none where all is of one part."""
    present = [(name, word) for name, word in _PARTS if total(frame, name)]
    if len(present) < 2:
        return frame.clear()
    parts = [pl.struct(pl.lit(word).alias("part"), pl.col(name).alias("n")) for name, word in present]
    cells = frame.head(FIGURE_ROWS_MAX // len(present)).select(LABEL, pl.concat_list(parts).alias("parts"))
    return cells.explode("parts").unnest("parts")


def _stacked(coverage: Declared) -> Declared:
    figure = Drawn(kind=ChartKind.BARS, roles={"value": "n", "group": "part"}, axes={"value": "judgments"}, rows=_parts)
    return replace(coverage, figure=figure)


section = chapter("coverage", coverage=_stacked)
