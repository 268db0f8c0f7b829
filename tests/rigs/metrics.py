"""The metric views over a handful of judgments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.rigs.sql import CELL, TESTS, Row, differs, judged, judged_items, read_csv, result, table, views_over

CELL_VIEWS = (
    "metric_consistency", "metric_position_bias", "metric_position_rates", "metric_completion", "metric_repeat",
    "metric_cost", "metric_pairwisellm",
)  # fmt: skip
OUTCOMES = "metric_outcomes"
GOLDEN = TESTS / "golden"

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


def reference(case: str, file: str) -> tuple[list[Row], dict[str, Any]]:
    """Return a reference case's rows and its numbers."""
    expected = json.loads((GOLDEN / case / "expected.json").read_text("utf-8"))["expected"]
    return read_csv((GOLDEN / case / file).read_text("utf-8")), expected


def of_pairs(rows: Sequence[Row], *views: str) -> list[list[Row]]:
    """Return metric views over rows of pair_judgments."""
    with views_over({"pair_judgments": table(judged(rows))}) as connection:
        return [result(connection, f"FROM {view} ORDER BY ALL") for view in views]


def of_items(rows: Sequence[Row], *views: str) -> list[list[Row]]:
    """Return metric views over rows of item_judgments."""
    with views_over({"item_judgments": table(judged_items(rows))}) as connection:
        return [result(connection, f"FROM {view} ORDER BY ALL") for view in views]


def wrong(row: Row, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that differ from what is expected, with what they hold; a pair of numbers is an interval."""
    flat: dict[str, Any] = {}
    for name, value in expected.items():
        flat |= {f"{name}_lo": value[0], f"{name}_hi": value[1]} if isinstance(value, list) else {name: value}
    return {name: (row[name], value) for name, value in flat.items() if differs(row[name], value)}


def mean_and_se(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
