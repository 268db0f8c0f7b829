"""The metric views find planted position bias, with intervals and levels as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tests.rigs.metrics import column, measured
from tests.rigs.sql import CELL_DEFAULT, differs, judged, result, views_over
from tests.rigs.swept import some


def judge(n_cells: int, n_pairs: int, bias: float, seed: int) -> pa.Table:
    """Return judgments of every pair in both orders: P(first wins) = logistic(quality gap + bias)."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(0, 1.5, (n_cells, n_pairs))
    lo_wins_first = rng.random(gap.shape) < 1 / (1 + np.exp(-(gap + bias)))
    lo_wins_second = rng.random(gap.shape) < 1 / (1 + np.exp(-(gap - bias)))
    cell = np.repeat(np.arange(n_cells), n_pairs)
    pair = np.tile(np.arange(n_pairs), n_cells)
    columns: dict[str, Any] = {name: np.full(2 * cell.size, value) for name, value in CELL_DEFAULT.items()}
    columns["template_id"] = np.char.mod("t%05d", np.tile(cell, 2))
    lo, hi = np.char.mod("a%04d", np.tile(pair, 2)), np.char.mod("b%04d", np.tile(pair, 2))
    is_lo_first = np.repeat([True, False], cell.size)
    lo_won = np.concatenate([lo_wins_first.ravel(), lo_wins_second.ravel()])
    columns |= {"item_lo": lo, "item_hi": hi, "is_lo_first": is_lo_first, "unit_id": np.full(lo.size, "")}
    columns |= {"item_first": np.where(is_lo_first, lo, hi), "item_second": np.where(is_lo_first, hi, lo)}
    columns |= {"verdict": np.where(lo_won == is_lo_first, "first", "second"), "outcome": np.full(lo.size, "decided")}
    return pa.table(columns)


@pytest.mark.parametrize("bias", some(0.3, swept=[0.0, 0.8, -0.5]))
def test_planted_bias_is_recovered(bias: float) -> None:
    """Over 400 seeded studies the log-odds average the planted bias and intervals cover the truth 93 to 98 %."""
    rng = np.random.default_rng(7)
    gaps = rng.normal(0, 1.5, 200_000)
    first, second = 1 / (1 + np.exp(-(gaps + bias))), 1 / (1 + np.exp(-(gaps - bias)))
    consistent, primacy = first * second + (1 - first) * (1 - second), first * (1 - second)
    truth = {
        "position_logodds": bias,
        "first_rate_balanced": (first.mean() + (1 - second).mean()) / 2,
        "primacy_share": primacy.mean() / (1 - consistent.mean()),
    }
    with views_over({"pair_judgments": judge(400, 190, bias, seed=11)}) as connection:
        bias_rows = result(connection, "FROM metric_position_bias")
        rate_rows = result(connection, "FROM metric_position_rates")
        consistency_rows = result(connection, "FROM metric_consistency")
    assert len(bias_rows) == 400
    estimate = column(bias_rows, "position_logodds")
    assert abs(estimate.mean() - bias) < 4 * estimate.std() / np.sqrt(400)
    covered = {}
    for name, value in truth.items():
        rows = bias_rows if name == "position_logodds" else rate_rows
        covered[name] = np.mean((column(rows, f"{name}_lo") <= value) & (value <= column(rows, f"{name}_hi")))
    lo, hi = (column(consistency_rows, f"consistency_decided_{end}") for end in ("lo", "hi"))
    covered["consistency_decided"] = np.mean((lo <= consistent.mean()) & (consistent.mean() <= hi))
    assert all(0.93 <= share <= 0.99 for share in covered.values()), covered
    found = np.mean(column(bias_rows, "p_position_these_items") <= 0.05)
    if bias == 0:
        assert found <= 0.05
        assert np.mean(column(bias_rows, "q_bh") <= 0.05) <= 0.01
    else:
        assert found > 0.5


def test_p_position_keeps_its_level() -> None:
    """With 2,000 studies of an unbiased judge at most 5 % have an exact p <= .05."""
    with views_over({"pair_judgments": judge(2000, 40, 0.0, seed=13)}) as connection:
        ((exact,),) = connection.execute(
            "SELECT avg((p_position_these_items <= 0.05)::INT) FROM metric_position_bias"
        ).fetchall()
    assert exact <= 0.05


def test_minimum_detectable_share_is_about_right() -> None:
    """Where a judge's true share of first among flips is the MDE, four studies in five find it."""
    rng = np.random.default_rng(17)
    n = 47
    critical = max(k for k in range(n // 2) if stats.binomtest(k, n).pvalue <= 0.05)
    share = stats.beta.ppf(0.8, n - critical, critical + 1)
    rows = []
    for cell, flips in enumerate(rng.binomial(n, share, 300)):
        for pair in range(n):
            word = "first" if pair < flips else "second"
            items = (f"a{pair:02}", f"b{pair:02}")
            template = {"template_id": f"t{cell:03}", "verdict": word}
            rows += [
                dict(zip(("item_first", "item_second"), order, strict=True), **template)
                for order in (items, items[::-1])
            ]
    views = measured(judged(rows), "metric_position_bias")["metric_position_bias"]
    with views_over({}) as connection:
        assert not differs(result(connection, f"SELECT sign_test_mde({n}) AS share")[0]["share"], float(share))
    assert 0.74 <= np.mean([row["p_position_these_items"] <= 0.05 for row in views]) <= 0.86
