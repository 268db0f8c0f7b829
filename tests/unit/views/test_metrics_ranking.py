"""The win matrix over candidate models gives the reference numbers and SpecEval's, and depends on no name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.rigs.candidates_planted import Candidates, tables, truths
from tests.rigs.metrics import column, of_pairs, reference, wrong
from tests.rigs.sql import Row, differs, result, views_over


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Return SpecEval ranks (1, 0, -1 of the model shown first) as judgments of the two models' outputs."""
    words = {"1": "first", "0": "tie", "-1": "second", None: "unparsed"}
    return [
        {
            "rubric_id": row["statement_id"], "unit_id": row["input_id"], "verdict": words[row["rank"]],
            "item_first": f"{row['statement_id']}-{row['input_id']}-{row['model_a']}",
            "item_second": f"{row['statement_id']}-{row['input_id']}-{row['model_b']}",
            "candidate_first": row["model_a"], "candidate_second": row["model_b"],
        }
        for row in rows
    ]  # fmt: skip


WIN_NAMES = {
    "wins_a": "n_wins_a", "wins_b": "n_wins_b", "true_ties": "n_true_ties", "inconsistent": "n_inconsistent",
    "missing": "n_missing", "n": "n_both", "consistency": "consistency", "win_rate_half": "win_rate_half",
    "net": "net",
}  # fmt: skip
# A sign test that takes inputs for independent: the matrix tests statements, as its interval does.
NOT_OFFERED = {"sign_p"}


def test_win_matrix_reference() -> None:
    """Every number of the reference matrix and SpecEval's totals come out."""
    rows, expected = reference("12_model_win_matrix", "rankings.csv")
    matrix, totals = of_pairs(ranked(rows), "metric_win_matrix", "metric_win_totals")
    got = {f"{row['candidate_a']}|{row['candidate_b']}": row for row in matrix}
    assert got.keys() == expected["pairs"].keys()
    for pair, numbers in expected["pairs"].items():
        assert not wrong(
            got[pair], {WIN_NAMES[name]: value for name, value in numbers.items() if name not in NOT_OFFERED}
        )
    assert {row["candidate"] for row in totals} == expected["speceval_totals"].keys()
    for row in totals:
        assert not wrong(row, {f"speceval_{n}": v for n, v in expected["speceval_totals"][row["candidate"]].items()})


def plain_matrix(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """Work out the matrix with loops: points per statement, ranks per order, unique-pairs totals."""
    ranks = {(r["statement_id"], r["input_id"], r["model_a"], r["model_b"]): r["rank"] for r in rows}
    found: dict[tuple[str, str], dict[str, Any]] = defaultdict(lambda: {"points": defaultdict(list), "ranks": []})
    for (statement, unit, a, b), rank in ranks.items():
        back = ranks.get((statement, unit, b, a))
        if a < b and rank is not None and back is not None:
            forth, reverse = int(rank), -int(back)
            found[a, b]["ranks"].append((forth, reverse))
            found[a, b]["points"][statement].append((forth + 1) / 2 if forth == reverse else 0.5)
    return found


def clustered_se(clusters: Sequence[Sequence[float]]) -> float:
    """Return the CR1 standard error of a mean over clusters."""
    values = np.concatenate([np.asarray(cluster, dtype=float) for cluster in clusters])
    squares = sum((np.sum(cluster) - len(cluster) * values.mean()) ** 2 for cluster in clusters)
    return float(np.sqrt(squares * len(clusters) / (len(clusters) - 1)) / len(values))


def test_win_matrix_clusters_and_correlates() -> None:
    """Clustered error, its interval, SpecEval's correlation, BH values and unique-pairs totals equal plain loops."""
    rows, _ = reference("12_model_win_matrix", "rankings.csv")
    matrix, by_rubric, totals = of_pairs(
        ranked(rows), "metric_win_matrix", "metric_win_matrix_by_rubric", "metric_win_totals"
    )
    plain = plain_matrix(rows)
    q_values = stats.false_discovery_control([row["p_win_rate"] for row in matrix])
    for row, q_value in zip(matrix, q_values, strict=True):
        pair = plain[row["candidate_a"], row["candidate_b"]]
        clusters = list(pair["points"].values())
        se = clustered_se(clusters)
        rate = float(np.mean(np.concatenate(clusters)))
        own = np.concatenate(clusters).var() / row["n_both"]  # of pairs as draws
        n_eff = rate * (1 - rate) / max(own, se**2)
        correlation = float(np.corrcoef(np.array(pair["ranks"]).T)[0, 1])
        assert not wrong(row, {"win_rate_half": rate, "win_rate_half_se": se, "net_se": 2 * se, "q_bh": float(q_value)})
        assert not wrong(row, {"rank_correlation": correlation, "n_rubrics": len(clusters)})
        t = stats.t.ppf(0.975, len(clusters) - 1)
        p_value = 2 * stats.t.sf(abs(2 * rate - 1) * np.sqrt(n_eff), len(clusters) - 1)
        least = 0.5 + (t + stats.t.ppf(0.8, len(clusters) - 1)) / (2 * np.sqrt(n_eff))
        assert not wrong(row, {"p_win_rate": float(p_value)})
        assert row["win_rate_mde"] == pytest.approx(min(1.0, least), rel=2e-3)
        assert (p_value < 0.05) == (not row["win_rate_half_lo"] <= 0.5 <= row["win_rate_half_hi"])
        for end in ("lo", "hi"):
            p = row[f"win_rate_half_{end}"]
            assert not differs((p - rate) ** 2, float(t**2 * p * (1 - p) / n_eff))
    assert sum(row["n_wins_a"] for row in by_rubric) == sum(row["n_wins_a"] for row in matrix)
    for row in totals:
        name = row["candidate"]
        seen = [int(r["rank"]) * (1 if r["model_a"] == name else -1) for r in rows
                if name in (r["model_a"], r["model_b"]) and r["model_a"] < r["model_b"] and r["rank"]]  # fmt: skip
        words = {"wins": seen.count(1), "losses": seen.count(-1), "ties": seen.count(0)}
        assert not wrong(row, {f"speceval_unique_{word}": n for word, n in words.items()})


def voted(seed: int, repeats: int) -> list[Row]:
    """Return three models' outputs for prompts under six statements, compared in both orders so often, some in vain."""
    rng = np.random.default_rng(seed)
    rows = []
    for rubric, unit, (one, other) in product(range(6), range(8), combinations("abc", 2)):
        leaning = rng.normal(0.4, 1)
        for (first, second), repeat in product(((one, other), (other, one)), range(repeats)):
            wins = rng.random() < 1 / (1 + np.exp(-leaning if first == one else leaning) - 0.2)
            word = rng.choice(["tie", "unparsed", "first" if wins else "second"], p=[0.15, 0.1, 0.75])
            rows.append({
                "rubric_id": f"r{rubric}", "unit_id": f"u{unit}", "repeat_no": repeat, "verdict": str(word),
                "item_first": f"{rubric}{unit}{first}", "item_second": f"{rubric}{unit}{second}",
                "candidate_first": first, "candidate_second": second,
            })  # fmt: skip
    return rows


def crossed_votes(rows: Sequence[Row]) -> dict[tuple[str, str], dict[tuple[str, str], list[tuple[int, int]]]]:
    """Return, by candidates and pair, each vote of one order with each of the other: 1 for the lower name, -1, or 0."""
    votes: dict[tuple[str, ...], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    for row in rows:
        a, b = sorted((row["candidate_first"], row["candidate_second"]))
        is_a_first = row["candidate_first"] == a
        if row["verdict"] in {"first", "second", "tie"}:
            vote = {"first": 1, "second": -1, "tie": 0}[row["verdict"]] * (1 if is_a_first else -1)
            votes[a, b, row["rubric_id"], row["unit_id"]][is_a_first].append(vote)
    found: dict[tuple[str, str], dict[tuple[str, str], list[tuple[int, int]]]] = defaultdict(dict)
    for (a, b, rubric, unit), orders in votes.items():
        if orders[True] and orders[False]:
            found[a, b][rubric, unit] = list(product(orders[True], orders[False]))
    return found


@pytest.mark.parametrize(("seed", "repeats"), [(1, 2), (2, 3)])
def test_win_matrices_take_each_vote_of_one_order_with_each_of_the_other(seed: int, repeats: int) -> None:
    """Rates, errors, correlation, totals and the test of one statement equal plain loops over repeats that split."""
    rows = voted(seed, repeats)
    matrix, by_rubric, totals = of_pairs(
        rows, "metric_win_matrix", "metric_win_matrix_by_rubric", "metric_win_totals"
    )  # fmt: skip
    plain = crossed_votes(rows)
    of_candidate: dict[str, list[float]] = defaultdict(list)
    for row in matrix:
        pairs = plain[row["candidate_a"], row["candidate_b"]]
        held = {pair: np.mean([one == other for one, other in both]) for pair, both in pairs.items()}
        leads = {pair: np.mean([one * (one == other) for one, other in both]) for pair, both in pairs.items()}
        points, same = defaultdict(list), defaultdict(list)
        for pair, lead in leads.items():
            points[pair[0]].append(0.5 + lead / 2)
            same[pair[0]].append(held[pair])
        of_candidate[row["candidate_a"]] += [0.5 + lead / 2 for lead in leads.values()]
        of_candidate[row["candidate_b"]] += [0.5 - lead / 2 for lead in leads.values()]
        weights = np.concatenate([[1 / len(both)] * len(both) for both in pairs.values()])
        cov = np.cov(np.concatenate(list(pairs.values())).T, aweights=weights)
        assert not wrong(row, {
            "n_both": len(pairs), "win_rate_half": 0.5 + np.mean(list(leads.values())) / 2,
            "consistency": np.mean(list(held.values())), "net": np.mean(list(leads.values())),
            "win_rate_half_se": clustered_se(list(points.values())),
            "consistency_se": clustered_se(list(same.values())),
            "rank_correlation": cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]),
        })  # fmt: skip
    for row in totals:
        assert not wrong(row, {"win_rate_half": np.mean(of_candidate[row["candidate"]])})
    for row in by_rubric:
        pairs = plain[row["candidate_a"], row["candidate_b"]]
        d = np.array([
            np.mean([one * (one == other) for one, other in both])
            for (rubric, _), both in pairs.items() if rubric == row["rubric_id"]
        ])  # fmt: skip
        assert not wrong(row, {"n_both": len(d), "win_rate_half": 0.5 + d.mean() / 2, "net": d.mean()})
        if np.count_nonzero(d) >= 6:
            assert not wrong(row, {"p_sign": 2 * stats.norm.sf(abs(d.sum()) / np.sqrt(d @ d))})
            z = stats.norm.ppf(0.975)
            for end in ("lo", "hi"):
                x = d - (2 * row[f"win_rate_half_{end}"] - 1)
                assert row[f"win_rate_half_{end}"] in {0, 1} or abs(x.sum()) == pytest.approx(z * np.sqrt(x @ x))


def test_asking_more_often_moves_no_win_rate() -> None:
    """With 1, 2, 3 and 5 votes per order alike, the mean of many sets is the truth; of majorities it would not be."""
    design = Candidates(8, 6, is_of_general=True)
    truth = truths(replace(design, repeats=1))
    for repeats in (1, 2, 3, 5):
        with views_over(tables(replace(design, repeats=repeats), 60, seed=repeats)) as connection:
            rows = result(connection, "FROM metric_win_matrix")
        for name in ("consistency", "win_rate_half"):
            assert column(rows, name).mean() == pytest.approx(truth[name], abs=0.02), (repeats, name)
        majorities = 1 - column(rows, "n_inconsistent") / column(rows, "n_both")
        assert repeats != 2 or majorities.mean() < truth["consistency"] - 0.03


def test_renaming_candidates_mirrors_the_matrix() -> None:
    """Which model is called a, and which item id is lower, is without meaning: wins change sides and nothing else."""
    rows, _ = reference("12_model_win_matrix", "rankings.csv")
    other = {"m1": "z4", "m2": "z3", "m3": "z2", "m4": "z1"}
    renamed = [row | {"model_a": other[row["model_a"]], "model_b": other[row["model_b"]]} for row in rows]
    (before,), (after,) = of_pairs(ranked(rows), "metric_win_matrix"), of_pairs(ranked(renamed), "metric_win_matrix")
    mirrored = {(row["candidate_b"], row["candidate_a"]): row for row in after}
    for row in before:
        twin = mirrored[other[row["candidate_a"]], other[row["candidate_b"]]]
        assert (twin["n_wins_a"], twin["n_wins_b"]) == (row["n_wins_b"], row["n_wins_a"])
        assert not wrong(
            twin, {n: row[n] for n in ("n_inconsistent", "n_missing", "p_win_rate", "q_bh", "consistency_lo")}
        )
        assert not wrong(twin, {"net": -row["net"], "win_rate_half_lo": 1 - row["win_rate_half_hi"]})
        assert not wrong(
            twin, {"rank_correlation": row["rank_correlation"], "win_rate_half_se": row["win_rate_half_se"]}
        )


@pytest.mark.parametrize(("n_outputs", "n_votes"), [(1, 1), (3, 1), (1, 3)], ids=["one pair", "outputs", "repeats"])
def test_of_one_statement_the_matrix_speaks_of_its_prompts_as_the_statements_own_does(
    n_outputs: int, n_votes: int
) -> None:
    """One criterion says nothing of statements in general; its prompts have interval and test all the same."""
    rng = np.random.default_rng(11)
    rows = [
        {
            "rubric_id": "helpful", "unit_id": f"u{unit}", "verdict": rng.choice(["first", "second", "tie"]),
            "item_first": f"{unit}-{names[0]}-{output if names[0] == 'm1' else 0}",
            "item_second": f"{unit}-{names[1]}-{output if names[1] == 'm1' else 0}",
            "candidate_first": names[0], "candidate_second": names[1],
        }
        for unit in range(40) for output in range(n_outputs) for names in (("m1", "m2"), ("m2", "m1"))
        for _ in range(n_votes)
    ]  # fmt: skip
    (one,), (own,) = of_pairs(rows, "metric_win_matrix", "metric_win_matrix_by_rubric")
    assert one["n_both"] == own["n_both"] == 40 * n_outputs
    assert one["p_win_rate"] is one["win_rate_half_lo"] is None
    ends = {f"win_rate_half_{end}_these_statements": own[f"win_rate_half_{end}"] for end in ("lo", "hi")}
    assert not wrong(one, {"p_win_rate_these_statements": own["p_sign"], **ends})
    assert 0 < own["win_rate_half_lo"] < own["win_rate_half_hi"] < 1
