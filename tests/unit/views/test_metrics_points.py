"""Points over planted prompts: intervals hold the truth for prompts in general, and equal candidates differ by chance.

An answer meets each of three criteria, one of them a fault, with a chance that prompts differ in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tests.rigs.sql import CELL_DEFAULT, Row, judged_items, result, table, views_over

WORTH = (5.0, 3.0, -2.0)
MEANS = {"even": 0.6, "less": 0.35, "same": 0.6}
"""How often each candidate meets a criterion, over all prompts."""
N_SETS = 300


def truth(candidate: str) -> float:
    """Return a candidate's mean score over all prompts that there might be."""
    return MEANS[candidate] * sum(WORTH) / sum(points for points in WORTH if points > 0)


def planted(n_prompts: int) -> dict[str, pa.Table]:
    """Return N_SETS sets, a template each, of so many prompts whose difficulty the candidates share in part."""
    rng = np.random.default_rng(n_prompts)
    rubrics = {f"r{prompt}-{number}": points for prompt in range(n_prompts) for number, points in enumerate(WORTH)}

    def rows() -> Iterator[Row]:
        for number in range(N_SETS):
            shared = rng.normal(0, 0.15, n_prompts)
            for candidate, mean in MEANS.items():
                chance = mean + np.clip(shared + rng.normal(0, 0.1, n_prompts), -0.34, 0.34)
                met = rng.random((n_prompts, len(WORTH))) < chance[:, None]
                for (prompt, place), is_met in np.ndenumerate(met):
                    yield {
                        "template_id": f"t{number:03}", "rubric_id": f"r{prompt}-{place}", "unit_id": f"u{prompt}",
                        "candidate": candidate, "item": f"{prompt}{candidate}", "verdict": str(bool(is_met)).lower(),
                    }  # fmt: skip

    plan = [{"study": CELL_DEFAULT["study"], "rubric_id": name, "rubric_hash": f"h{name}"} for name in rubrics]
    points = [{"rubric_hash": f"h{name}", "rubric_id": name, "points": value} for name, value in rubrics.items()]
    return {"item_judgments": table(judged_items(list(rows()))), "plan_current": table(plan), "rubrics": table(points)}


@cache
def found(n_prompts: int) -> tuple[list[Row], list[Row]]:
    """Return the rows of both views."""
    with views_over(planted(n_prompts)) as connection:
        return result(connection, "FROM metric_points"), result(connection, "FROM metric_points_paired")


@pytest.mark.parametrize("n_prompts", [8, 40])
def test_intervals_hold_the_truth_for_prompts_in_general(n_prompts: int) -> None:
    """Of a score and of a difference, in .93 to .98 of all sets, but for what chance does to 300 of them."""
    scores, pairs = found(n_prompts)
    slack = 2 * (0.05 * 0.95 / N_SETS) ** 0.5
    for candidate in MEANS:
        own = [row for row in scores if row["candidate"] == candidate]
        held = np.mean([row["score_lo"] <= truth(candidate) <= row["score_hi"] for row in own])
        assert 0.93 - slack <= held <= 0.98 + slack / 2, (candidate, held)
        assert np.mean([row["score"] for row in own]) == pytest.approx(truth(candidate), abs=0.02)
    for a, b in (("even", "less"), ("even", "same"), ("less", "same")):
        own = [row for row in pairs if (row["candidate_a"], row["candidate_b"]) == (a, b)]
        held = np.mean([row["diff_lo"] <= truth(a) - truth(b) <= row["diff_hi"] for row in own])
        assert 0.93 - slack <= held <= 0.98 + slack / 2, (a, b, held)


def test_equal_candidates_are_told_apart_by_chance_alone() -> None:
    """And unequal ones more often than not, of forty prompts."""
    _, pairs = found(40)
    p = {
        names: np.array([row["p_diff"] for row in pairs if (row["candidate_a"], row["candidate_b"]) == names])
        for names in (("even", "same"), ("even", "less"))
    }
    assert 0.015 <= np.mean(p["even", "same"] < 0.05) <= 0.07 + 2 * (0.05 * 0.95 / N_SETS) ** 0.5
    assert np.mean(p["even", "less"] < 0.05) > 0.5


def test_a_test_says_what_it_could_have_found() -> None:
    """A true difference as large as `diff_mde`, of another 40 prompts, is found in about .8."""
    _, pairs = found(40)
    reach = stats.t.ppf(0.975, 39) + stats.t.ppf(0.8, 39)
    for row in pairs:
        assert row["diff_mde"] == pytest.approx(reach * row["diff_se"], rel=1e-3)
    least = np.mean([row["diff_mde"] for row in pairs if (row["candidate_a"], row["candidate_b"]) == ("even", "less")])
    own = np.array([row["p_diff"] for row in pairs if (row["candidate_a"], row["candidate_b"]) == ("even", "less")])
    power = stats.norm.cdf((truth("even") - truth("less")) / least * 2.8 - 1.96)
    assert np.mean(own < 0.05) == pytest.approx(power, abs=0.08)


def test_power_has_a_row_for_each_comparison_by_points() -> None:
    """With its prompts, those on which the two differ, and what could have been found."""
    tables = planted(8)
    tables["item_judgments"] = tables["item_judgments"].slice(0, len(MEANS) * 8 * len(WORTH))
    with views_over(tables) as connection:
        names = "n_prompts AS n, n_differ AS n_informative, diff AS effect, diff_mde AS effect_mde, p_diff AS p, q_bh"
        wanted = result(connection, f"SELECT {names} FROM metric_points_paired ORDER BY candidate_a, candidate_b")
        shown = result(
            connection,
            "SELECT n, n_informative, effect, effect_mde, p, q_bh FROM metric_power"
            " WHERE finding = 'points' AND cluster_kind = 'prompt' AND n_clusters = n ORDER BY compared_with",
        )
    assert len(wanted) == 3
    assert shown == wanted
