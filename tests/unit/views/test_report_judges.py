"""A judge over all its templates: of one cell what the metrics say of it, of several what holds for the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rigs.metrics import of_pairs

SAME = (
    "n_pairs", "n_both", "n_decided", "n_consistent_win", "n_primacy", "n_recency", "consistency_decided",
    "consistency_decided_lo", "consistency_decided_hi", "position_logodds", "position_logodds_lo",
    "position_logodds_hi", "p_position", "q_bh",
)  # fmt: skip


def judgments(seed: int, templates: tuple[str, ...], logodds: float, n_items: int = 9) -> list[dict[str, Any]]:
    """Return judgments in both orders of all pairs of items by one judge, who favours the first position."""
    rng = np.random.default_rng(seed)
    worth = dict(zip("ABCDEFGHIJKLMNOP", rng.normal(size=n_items), strict=False))
    return [
        {"template_id": template, "item_first": a, "item_second": b,
         "verdict": "first" if rng.random() < 1 / (1 + np.exp(worth[b] - worth[a] - logodds)) else "second"}
        for template in templates for a in worth for b in worth if a != b
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_judge_of_one_template_is_what_the_metrics_say_of_its_cell(seed: int) -> None:
    rows = judgments(seed, ("t1",), 0.7)
    (judge,), (cell,), (bias,) = of_pairs(rows, "report_judges", "metric_consistency", "metric_position_bias")
    assert {name: judge[name] for name in SAME} == pytest.approx({name: {**bias, **cell}[name] for name in SAME})
    assert judge["n_cells"] == 1


def test_cells_of_a_judge_are_counted_where_each_item_is_in_one() -> None:
    """Outputs under statements of their own: three statements are three cells, whatever an item has."""
    rows = [
        row | {"rubric_id": f"r{n}", "item_first": f"{n}{row['item_first']}", "item_second": f"{n}{row['item_second']}"}
        for n in range(3) for row in judgments(n, ("t1", "t2"), 0.7)
    ]  # fmt: skip
    ((judge,),) = of_pairs(rows, "report_judges")
    assert judge["n_cells"] == 6


def listed(seed: int, template: str, n_items: int = 9, n_lists: int = 8) -> list[dict[str, Any]]:
    """Return what lists of three of these items, in both orders, imply for their pairs."""
    rng = np.random.default_rng(seed)
    return [
        {"template_id": template, "unit_id": f"list{number}", "list_kind": "order", "item_first": a, "item_second": b,
         "verdict": "first" if (a < b) == (rng.random() < 0.7) else "second"}
        for number in range(n_lists)
        for shown in [rng.choice(list("ABCDEFGHIJKLMNOP"[:n_items]), 3, replace=False)]
        for order in (shown, shown[::-1]) for at, a in enumerate(order) for b in order[at + 1 :]
    ]  # fmt: skip


@pytest.mark.parametrize("n_items", [4, 9])
@pytest.mark.parametrize("seed", range(4))
def test_a_judge_of_lists_is_what_the_metrics_say_of_its_cell(seed: int, n_items: int) -> None:
    """Lists share answers, and are no items: eight of them over four items give no interval for items in general."""
    rows = listed(seed, "t1", n_items)
    (judge,), (cell,), (bias,) = of_pairs(rows, "report_judges", "metric_consistency", "metric_position_bias")
    assert {name: judge[name] for name in SAME} == pytest.approx({name: {**bias, **cell}[name] for name in SAME})
    assert (judge["consistency_decided_lo"] is None) == (n_items < 5)


def test_pairs_and_lists_of_the_same_items_are_each_counted_once() -> None:
    """A judge who was asked by both has as many pairs, winners and flips as its two cells together."""
    rows = judgments(1, ("t1",), 0.7) + listed(1, "t2")
    (judge,), cells, biases = of_pairs(rows, "report_judges", "metric_consistency", "metric_position_bias")
    for name in ("n_pairs", "n_both", "n_decided", "n_consistent_win", "n_primacy", "n_recency"):
        assert judge[name] == sum({**bias, **cell}[name] for cell, bias in zip(cells, biases, strict=True)), name
    assert judge["consistency_decided"] == pytest.approx(judge["n_consistent_win"] / judge["n_decided"])


def _judges(templates: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return what the report says of 12 judges, each of whom judged by itself."""
    rows = [{**row, "request_model": f"m{n:02}"} for n in range(12) for row in judgments(n, templates, 0.7)]
    (found,) = of_pairs(rows, "report_judges")
    assert len(found) == 12
    return sorted(found, key=lambda row: str(row["request_model"]))


def test_over_templates_the_interval_narrows_and_holds_the_truth() -> None:
    """Of 12 judges with a known log-odds, asked by three templates, nearly all intervals hold it, each narrower."""
    n_held = 0
    for one, three in zip(_judges(("t1",)), _judges(("t1", "t2", "t3")), strict=True):
        assert one["request_model"] == three["request_model"]
        width = [row["position_logodds_hi"] - row["position_logodds_lo"] for row in (one, three)]
        assert width[1] < width[0]
        n_held += three["position_logodds_lo"] < 0.7 < three["position_logodds_hi"]
        assert three["first_share_lo"] < three["first_share"] < three["first_share_hi"]
    assert n_held >= 10
