"""The metric views over a handful of judgments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sql_support import CELL, Row, result, table, views_over

CELL_VIEWS = (
    "metric_consistency", "metric_position_bias", "metric_completion", "metric_repeat_agreement", "metric_cost",
    "metric_pairwisellm",
)  # fmt: skip
OUTCOMES = "metric_outcomes"

Numbers = npt.NDArray[np.float64]


def measured(rows: Sequence[Row], *views: str) -> dict[str, list[Row]]:
    """Return metric views (all if none is named) over rows of pair_judgments, in order of cell."""
    cell = ", ".join(CELL)
    with views_over({"pair_judgments": table(rows, CELL)}) as connection:
        return {
            name: result(connection, f"SELECT * FROM {name} ORDER BY {cell}" + (", outcome" * (name == OUTCOMES)))
            for name in views or (*CELL_VIEWS, OUTCOMES)
        }


def one_cell(views: dict[str, list[Row]]) -> dict[str, Row]:
    """Return the single row of every view, and of every outcome under its own name."""
    by_outcome = {row["outcome"]: row for row in views[OUTCOMES]}
    return {name: rows[0] for name, rows in views.items() if name != OUTCOMES} | by_outcome


def column(rows: Sequence[Row], name: str) -> Numbers:
    """Return a column as numbers, NULL as NaN."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)
