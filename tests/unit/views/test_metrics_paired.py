"""Paired comparisons, repeats and power equal plain implementations, scipy and the reference numbers."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from tests.oracles import power
from tests.rigs.metrics import of_pairs, reference, wrong
from tests.rigs.rank import expected
from tests.rigs.sql import CELL, Row, differs, judged, result, views_over
from tests.unit.views.test_metrics_invariance import plain_crossed, random_rows


def test_paired_comparisons_equal_a_plain_implementation() -> None:
    """Common pairs, how far each is consistent, exact tests and q values are those of loops and scipy."""
    rows = random_rows(6, 1200)
    for number, row in enumerate(rows):
        row["request_model"] = f"m{number % 2}"
    cells: dict[tuple[str, ...], dict[tuple[str, ...], float]] = defaultdict(dict)
    for pair, crossed in plain_crossed(rows).items():
        cells[pair[: len(CELL)]][pair[len(CELL) :]] = float(np.mean([one == other for one, other in crossed]))
    wanted = {}
    for a, b in combinations(sorted(cells), 2):
        is_template, is_judge = a[:1] + a[2:] == b[:1] + b[2:], a[:3] == b[:3]
        common = cells[a].keys() & cells[b].keys()
        if (is_template or is_judge) and common:
            wanted[a + b] = np.array([(cells[a][pair], cells[b][pair]) for pair in common])
    (found,) = of_pairs_kept(rows)
    sides = [tuple(f"{name}_{side}" for name in ("template", "provider", "request_model", "thinking")) for side in "ab"]
    got = {}
    for row in found:
        template_a, *judge_a = (row[name] for name in sides[0])
        template_b, *judge_b = (row[name] for name in sides[1])
        where = (row["study"], row["rubric_id"])
        key = (where[0], template_a, where[1], *judge_a, where[0], template_b, where[1], *judge_b)
        got[key] = row
        assert row["compared"] == ("judge" if template_a == template_b else "template")
    assert got.keys() == wanted.keys()
    by_study: dict[str, list[float]] = defaultdict(list)
    for key, row in got.items():
        b, c = row["n_a_only"], row["n_b_only"]
        diff = wanted[key][:, 0] - wanted[key][:, 1]
        assert (row["n"], b, c) == (len(diff), np.sum(diff > 0), np.sum(diff < 0))
        np.testing.assert_allclose([row["consistency_a"], row["consistency_b"]], wanted[key].mean(axis=0), rtol=1e-9)
        if set(diff) <= {-1, 0, 1}:
            assert not differs(row["p_diff_these_items"], float(stats.binomtest(b, b + c).pvalue) if b + c else None)
        else:
            flips = 2 * stats.norm.sf(abs(diff.sum()) / np.sqrt(diff @ diff))
            assert not differs(row["p_diff_these_items"], float(flips) if b + c >= 6 else None)
        assert (row["p_diff"] is None) == (not b + c or row["n_clusters"] < 5)
        if row["p_diff"] is not None:
            by_study[row["study"]].append(row["p_diff"])
    for study, p_values in by_study.items():
        q_values = sorted(row["q_bh"] for row in found if row["study"] == study and row["q_bh"] is not None)
        np.testing.assert_allclose(q_values, sorted(stats.false_discovery_control(p_values)), rtol=1e-12)


def of_pairs_kept(rows: list[Row]) -> list[list[Row]]:
    """Return metric_paired over rows that are complete already."""
    return of_pairs([row | {"verdict": row["verdict"] or row.get("outcome")} for row in rows], "metric_paired")


def test_power_of_paired_and_sign_tests_in_sql() -> None:
    """The planned difference inverts the sample size of the reference case; the exact one has power 0.8 by scipy."""
    with views_over({}) as connection:
        for name, wanted in expected("20_power")["mcnemar_n"].items():
            discordant, difference = (float(part.split("=")[1]) for part in name.split(","))
            assert not differs(power.n_for_mcnemar(discordant, difference), wanted)
            (row,) = result(connection, f"SELECT mcnemar_mde_planned({discordant}, {wanted}) AS d")
            assert not differs(row["d"], difference)
        for b, c, n in ((12, 8, 100), (30, 20, 400)):
            (row,) = result(connection, f"SELECT mcnemar_mde({b}, {c}, {n}) AS d")
            share = (row["d"] * n / (b + c) + 1) / 2
            # scipy's power counts rejections on both sides; the wrong side is below 1e-4
            assert power.power_of_sign_test(b + c, share) == pytest.approx(0.8, abs=1e-4)
        (row,) = result(connection, "SELECT mcnemar_mde(3, 2, 100) AS few, mcnemar_mde_planned(0.01, 20) AS none")
        assert row == {"few": None, "none": None}


def test_power_stands_beside_every_null_finding() -> None:
    """Each test of the views has a row with their effect, p, q and smallest effect, and null findings are named."""
    rows = random_rows(2)
    for row in rows:
        row |= {"candidate_first": row["item_first"], "candidate_second": row["item_second"]}
    found, paired = of_pairs(
        [row | {"verdict": row["verdict"] or row.get("outcome")} for row in rows],
        "metric_power", "metric_paired",
    )  # fmt: skip
    wanted = [("paired_template", row["diff"], row["diff_mde"], row["p_diff"], row["q_bh"]) for row in paired]
    got = [tuple(row[name] for name in ("finding", "effect", "effect_mde", "p", "q_bh")) for row in found]

    def rounded(values: tuple[object, ...]) -> str:
        return str([round(value, 9) if isinstance(value, float) else value for value in values])

    assert sorted(map(rounded, got)) == sorted(map(rounded, wanted))
    assert [row["is_null_finding"] for row in found] == [row["q_bh"] is None or row["q_bh"] >= 0.05 for row in found]


def test_repeats_have_intervals() -> None:
    """Of these items: agreements lie in their Wilson intervals, the excess has a t interval over pairs."""
    rows, wanted = reference("06_repeats", "judgments.csv")
    (found,) = of_pairs(judged(rows), "metric_repeat")
    (row,) = found
    se = row["position_excess_conflict_se_these_items"]
    half = float(stats.t.ppf(0.975, row["n_pairs"] - 1)) * se
    excess = wanted["position_excess_conflict"]
    assert not wrong(row, {
        "n_pairs": 30, "position_excess_conflict": excess,
        "position_excess_conflict_lo_these_items": excess - half,
        "position_excess_conflict_hi_these_items": excess + half,
    })  # fmt: skip
    for name, n in (("repeat_agreement", row["n_orders"]), ("cross_order_agreement", row["n_cross_order_pairs"])):
        p, z = row[name], float(stats.t.ppf(0.975, n - 1))
        size = p * (1 - p) / row[f"{name}_se_these_items"] ** 2
        centre = (p + z**2 / size / 2) / (1 + z**2 / size)
        width = z * np.sqrt(p * (1 - p) / size + z**2 / size**2 / 4) / (1 + z**2 / size)
        ends = {"lo": float(centre - width), "hi": float(centre + width)}
        assert not wrong(row, {f"{name}_{end}_these_items": value for end, value in ends.items()})
