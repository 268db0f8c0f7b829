"""What was asked, and what came back."""

from __future__ import annotations

import polars as pl

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.cells import LABEL
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.numbers import counted, total
from batchpond.results.report.parts import FIGURE_ROWS_MAX, ChartKind, count, share

_PARTS = (("n_valid", "valid"), ("n_no_verdict", "no verdict"), ("n_failed", "failed"), ("n_pending", "pending"))


def _parts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a row per cell and part of it, none where all is of one part."""
    present = [(name, word) for name, word in _PARTS if total(frame, name)]
    if len(present) < 2:
        return frame.clear()
    parts = [pl.struct(pl.lit(word).alias("part"), pl.col(name).alias("n")) for name, word in present]
    cells = frame.head(FIGURE_ROWS_MAX // len(present)).select(LABEL, pl.concat_list(parts).alias("parts"))
    return cells.explode("parts").unnest("parts")


_COVERAGE = Declared(
    key="coverage",
    title="Expected and obtained judgments per cell",
    caption=(
        "n = {n_expected:total} judgments expected in {cells}, {n_answered:total} answered, {n_valid:total} valid "
        "(decided, or a tie). {left_out} Failed: error, expired, cancelled, or missing from a settled batch. Extra: "
        "further answers to the same request, never counted. Wilson intervals."
    ),
    view="report_coverage",
    cells=CELL_COLUMNS,
    columns=(
        count("n_expected", "expected"),
        count("n_answered", "answered"),
        count("n_valid", "valid"),
        count("n_no_verdict", "no verdict"),
        count("n_failed", "failed"),
        count("n_missing", "missing"),
        count("n_pending", "pending"),
        count("n_extra", "extra"),
        share("valid_rate", "valid of answered", has_ends=True),
    ),
    also="origin",
    left_out=(
        ("n_no_verdict", "answers without a verdict"),
        ("n_failed", "failed for good"),
        ("n_pending", "still pending"),
    ),
    says=lambda frame: {"cells": counted(len(frame), "cell")},
    figure=Drawn(kind=ChartKind.BARS, roles={"value": "n", "group": "part"}, axes={"value": "judgments"}, rows=_parts),
)
section = Chapter(key="coverage", title="Coverage", parts=(_COVERAGE,))
