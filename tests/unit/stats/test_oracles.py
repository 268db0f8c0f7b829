"""scikit-learn and statsmodels agree with the views and functions on random well-behaved data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, cohen_kappa_score, roc_auc_score
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from batchpond.stats.bradley_terry import Model, Penalty, fit
from batchpond.stats.votes import HI_WON, LO_WON
from tests.oracles import agreement
from tests.oracles.agreement import Ratings
from tests.rigs.metrics import of_items, of_pairs
from tests.rigs.rank import drawn
from tests.rigs.sql import Row, result, views_over
from tests.unit.views.test_metrics_invariance import random_rows

SEEDS = range(3)


@pytest.mark.parametrize("has_eta", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_plain_bradley_terry_is_a_logistic_regression_without_penalty(seed: int, has_eta: bool) -> None:
    """scikit-learn's regression of single votes on who was shown gives the same gaps, and the same position effect."""
    votes = drawn(seed, 9, 600, eta=0.4)
    rows, won, times = [], [], []
    for order, sign in ((0, 1.0), (1, -1.0)):
        for lo, hi, counts in zip(votes.lo, votes.hi, votes.counts[order].T, strict=True):
            row = np.zeros(votes.n_items + has_eta)
            row[lo], row[hi] = 1, -1
            if has_eta:
                row[-1] = sign
            rows += [row, row]
            won += [1, 0]
            times += [counts[LO_WON], counts[HI_WON]]
    model = LogisticRegression(C=1e10, fit_intercept=False, solver="newton-cholesky", tol=1e-10)
    found = model.fit(np.array(rows)[:, 1:], won, sample_weight=times).coef_[0]
    own = fit(votes, Model(has_eta=has_eta, penalty=Penalty.NONE))
    assert np.allclose(own.theta[1:] - own.theta[0], found[: votes.n_items - 1], atol=1e-6)
    if has_eta:
        assert own.eta == pytest.approx(found[-1], abs=1e-6)


@pytest.mark.parametrize("has_eta", [False, True])
def test_many_items_solve_firths_equations(has_eta: bool) -> None:
    """220 items, where the way to the estimate is another: its modified score, written out plainly, is 0."""
    votes = drawn(4, 220, 20_000, sd=1.5, eta=0.3)
    own = fit(votes, Model(has_eta=has_eta))
    pairs = np.arange(len(votes.lo))
    design, won, lost = [], [], []
    for order, sign in ((0, 1.0), (1, -1.0)):
        rows = np.zeros((len(pairs), votes.n_items + has_eta))
        rows[pairs, votes.lo], rows[pairs, votes.hi] = 1, -1
        if has_eta:
            rows[:, -1] = sign
        design.append(rows)
        won.append(votes.counts[order, LO_WON])
        lost.append(votes.counts[order, HI_WON])
    x, wins, losses = np.concatenate(design), np.concatenate(won), np.concatenate(lost)
    p = 1 / (1 + np.exp(-x @ np.r_[own.theta, [] if own.eta is None else own.eta]))
    weight = (wins + losses) * p * (1 - p)
    leverage = weight * np.einsum("ij,jk,ik->i", x, np.linalg.pinv((x.T * weight) @ x), x, optimize=True)
    assert own.is_converged
    assert abs(x.T @ (wins - (wins + losses) * p + leverage * (0.5 - p))).max() < 1e-7
    assert abs(own.theta.sum()) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_calibration_is_scikit_learns(seed: int) -> None:
    """metric_calibration's Brier score and AUROC, tied confidences among them."""
    rng = np.random.default_rng(seed)
    confidence = rng.integers(1, 20, 150) / 20
    right = rng.random(150) < confidence
    rows: list[Row] = []
    for number, (sure, is_right) in enumerate(zip(confidence, right, strict=True)):
        place = {"item": f"i{number}", "unit_id": f"i{number}"}
        rows.append(place | {"verdict": "true", "confidence": float(sure)})
        person = {"provider": "human", "request_model": "h1", "verdict": "true" if is_right else "false"}
        rows.append(place | person)
    ((got,),) = of_items(rows, "metric_calibration")
    assert got["brier"] == pytest.approx(brier_score_loss(right, confidence), abs=1e-12)
    assert got["auroc"] == pytest.approx(roc_auc_score(right, confidence), abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_cohens_kappa_is_scikit_learns(seed: int) -> None:
    """Two judges, five labels."""
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 5, 200)
    other = np.where(rng.random(200) < 0.6, one, rng.integers(0, 5, 200))
    own = agreement.cohen_kappa(Ratings(np.stack([one, other], axis=1), np.arange(5.0)))
    assert own.kappa == pytest.approx(cohen_kappa_score(one, other), abs=1e-12)


def test_paired_tests_and_q_values_are_statsmodels() -> None:
    """McNemar's exact p of every compared pair of cells, one vote per order, and q over a study's."""
    once = [row for row in random_rows(3, 4000) if row["repeat_no"] == 1]
    (rows,) = of_pairs([row | {"verdict": row["verdict"] or row.get("outcome")} for row in once], "metric_paired")
    tested = [row for row in rows if row["n_a_only"] + row["n_b_only"]]
    assert tested
    for row in tested:
        table = [[0, row["n_a_only"]], [row["n_b_only"], 0]]
        assert row["p_diff_these_items"] == pytest.approx(mcnemar(table, exact=True).pvalue, rel=1e-9)
    for study in {row["study"] for row in tested}:
        own = [row for row in tested if row["study"] == study and row["p_diff"] is not None]
        q_values = multipletests([row["p_diff"] for row in own], method="fdr_bh")[1]
        assert np.allclose([row["q_bh"] for row in own], q_values, rtol=1e-9)


def test_intervals_of_shares_are_statsmodels() -> None:
    """The views' Wilson interval of consistency, cell by cell, of one vote per order."""
    once = [row for row in random_rows(5) if row["repeat_no"] == 1]
    (rows,) = of_pairs(once, "metric_consistency")
    rows = [row for row in rows if row["n_decided"]]
    assert rows
    for row in rows:
        lo, hi = proportion_confint(row["n_consistent_win"], row["n_decided"], method="wilson")
        assert row["consistency_decided_lo_these_items"] == pytest.approx(lo, abs=1e-9)
        assert row["consistency_decided_hi_these_items"] == pytest.approx(hi, abs=1e-9)
    with views_over({}) as connection:
        (tail,) = result(connection, "SELECT clopper_pearson_lo(7, 40) AS lo, clopper_pearson_hi(7, 40) AS hi")
    assert (tail["lo"], tail["hi"]) == pytest.approx(proportion_confint(7, 40, method="beta"), abs=1e-9)
