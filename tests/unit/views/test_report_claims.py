"""How much a plan could find: the least and the largest effect in reach of each claim are those of exact tests."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from tests.oracles.power import power_of_sign_test
from tests.rigs.sql import Row, result, table, views_over

N = 30


def power(n: int, a_only: float, b_only: float) -> float:
    """Return the exact chance that McNemar's exact test rejects, of pairs that differ one way or the other so often."""
    total = 0.0
    for m in range(6, n + 1):
        weight = float(stats.binom.pmf(m, n, a_only + b_only))
        k = np.arange(m + 1)
        rejects = stats.binom.cdf(np.minimum(k, m - k), m, 0.5) * 2 <= 0.05
        total += weight * float(stats.binom.pmf(k, m, a_only / (a_only + b_only))[rejects].sum())
    return total


def planned(n_items: int, n_templates: int, n_judges: int, *, is_of_models: bool) -> list[Row]:
    """Return a plan of all pairs of items in both orders; or of two models' outputs to inputs, and of compliance."""
    rows: list[Row] = []
    asked = [
        (f"i{a}", f"i{b}", "", None, None) for a, b in combinations(range(n_items), 2)
    ] if not is_of_models else [(f"x{unit}", f"y{unit}", f"u{unit}", "m", "n") for unit in range(n_items)]  # fmt: skip
    for template in range(n_templates):
        for judge in range(n_judges):
            cell = {"study": "s", "study_version": "v", "template_id": f"t{template}", "rubric_id": "r",
                    "provider": "p", "request_model": f"j{judge}", "thinking": "none", "repeat_no": 1}  # fmt: skip
            for first, second, unit, one, other in asked:
                rows += [
                    {**cell, "task": "pairwise", "unit_id": unit, "pair_id": f"{first}{second}",
                     "is_lo_first": is_lo_first, "candidate_first": one if is_lo_first else other,
                     "candidate_second": other if is_lo_first else one} for is_lo_first in (True, False)
                ]  # fmt: skip
                if is_of_models:
                    rows += [{**cell, "task": "compliance", "unit_id": unit, "candidate_first": name} for name in "mn"]
    return rows


def claimed(primary: str, rows: list[Row], effect: float = 0.2) -> Row:
    """Return what the report says of a claim over a plan."""
    config = json.dumps({"claims": {"primary": primary, "secondary": [], "effect": effect, "stop": "all"}})
    given = {
        "studies": table([{"study": "s", "study_version": "v", "config": config}]),
        "studies_current": table([{"study": "s", "study_version": "v"}]),
        "events": table([{"kind": "planned", "study": "s", "study_version": "v", "ord": 1,
                          "occurred_at": "2026-01-01 00:00:00"}]),
        "attempts": table([], ["study"]), "plan": table(rows),
    }  # fmt: skip
    with views_over(given) as connection:
        (row,) = result(connection, "FROM report_claims")
    return row


@pytest.mark.parametrize("primary", ["consistency by template", "consistency by judge", "compliance", "win matrix"])
def test_paired_claims_have_the_least_and_the_largest_effect_of_the_exact_test(primary: str) -> None:
    """At best nothing smaller is found, whatever share of pairs differs; at worst, that is found with power 0.8."""
    is_of_models = primary in {"compliance", "win matrix"}
    row = claimed(primary, planned(N if is_of_models else 9, 2, 2, is_of_models=is_of_models))
    n = N if is_of_models else 36
    assert (row["n_compared"], row["mde_lacks"], row["position_mde"]) == (n, None, None)
    of_rate = 2 if primary == "win matrix" else 1  # a win less the loss is twice what the rate is above 1/2
    least, most = of_rate * row["effect_mde"], of_rate * row["effect_mde_max"]
    assert stats.binom.sf(5, n, least) == pytest.approx(0.8, abs=1e-9)
    assert power_of_sign_test(n, (1 + most) / 2) == pytest.approx(0.8, abs=1e-3)
    for discordant in (least, 0.3, 0.5, 0.8, 1.0):
        both = max(0.0, discordant - least) / 2
        assert power(n, both + least, both) <= 0.8 + 1e-9
        if discordant > most:
            assert power(n, (discordant + most) / 2, (discordant - most) / 2) > 0.76
    assert row["is_effect_in_reach"] is (row["effect_mde"] <= 0.2)


@pytest.mark.parametrize("primary", ["position", "length"])
def test_claims_of_one_share_have_what_the_sign_test_of_all_pairs_finds(primary: str) -> None:
    """As a distance from 1/2; there is no largest, as pairs that do not count make it larger."""
    row = claimed(primary, planned(9, 1, 1, is_of_models=False))
    assert power_of_sign_test(36, 0.5 + row["effect_mde"]) == pytest.approx(0.8, abs=1e-3)
    assert (row["n_compared"], row["effect_mde_max"]) == (36, None)
    assert row["position_mde"] == (pytest.approx(0.5 + row["effect_mde"]) if primary == "position" else None)


@pytest.mark.parametrize(
    ("primary", "n_items", "lacks"),
    [
        ("consistency by template", 9, "templates"), ("consistency by judge", 9, "judges"), ("position", 3, "pairs"),
        ("win matrix", 9, "candidates"), ("compliance", 9, "candidates"), ("length", 3, "pairs"),
        ("points", 9, "a known spread"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_null_with_why(primary: str, n_items: int, lacks: str) -> None:
    """One template, one judge, no candidates, too few pairs, or scores, whose spread no plan knows."""
    row = claimed(primary, planned(n_items, 1, 1, is_of_models=False))
    assert (row["effect_mde"], row["is_effect_in_reach"], row["mde_lacks"]) == (None, None, lacks)


def test_too_few_inputs_are_said() -> None:
    """Five of them cannot tell two candidates apart."""
    row = claimed("compliance", planned(5, 1, 1, is_of_models=True))
    assert (row["n_compared"], row["effect_mde"], row["mde_lacks"]) == (5, None, "inputs")
