"""Independent implementations agree on random well-behaved data."""

from __future__ import annotations

import choix
import evalica
import krippendorff
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import trueskill
from scipy import optimize, stats
from statsmodels.stats.inter_rater import cohens_kappa, fleiss_kappa

from batchpond.stats import bradley_terry, elo
from batchpond.stats import votes as win_table
from batchpond.stats.bradley_terry import Fit, Model, Penalty, Ties, fit
from batchpond.stats.votes import HI_WON, LO_WON, TIED, Votes, of_rows, p_position, triads
from tests.oracles import agreement
from tests.oracles.agreement import Level, Ratings
from tests.rigs.rank import Numbers, drawn, largest

SEEDS = range(4)


def design(votes: Votes) -> tuple[Numbers, Numbers, Numbers]:
    """Return one row per order and pair: a column per item and one for the first position, wins, losses."""
    rows, wins, losses = [], [], []
    for order, sign in ((0, 1.0), (1, -1.0)):
        for place in range(len(votes.lo)):
            row = np.zeros(votes.n_items + 1)
            row[votes.lo[place]], row[votes.hi[place]], row[-1] = 1, -1, sign
            counts = votes.counts[order, :, place]
            rows.append(row)
            wins.append(counts[LO_WON] + counts[TIED] / 2)
            losses.append(counts[HI_WON] + counts[TIED] / 2)
    return np.array(rows), np.array(wins), np.array(losses)


@pytest.mark.parametrize("has_eta", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_plain_fit_is_a_logistic_regression(seed: int, has_eta: bool) -> None:
    """statsmodels' logistic regression on the same votes gives theta, eta and their covariance."""
    votes = drawn(seed, 8, 300, eta=0.5)
    x, wins, losses = design(votes)
    free = x[:, 1:] if has_eta else x[:, 1:-1]  # the first item is the reference
    kept = wins + losses > 0
    found = sm.GLM(np.stack([wins, losses], axis=1)[kept], free[kept], family=sm.families.Binomial()).fit(tol=1e-14)
    own = fit(votes, Model(has_eta=has_eta, penalty=Penalty.NONE))
    assert np.allclose(own.theta - own.theta[0], np.r_[0, found.params[:7]], atol=1e-8)
    assert has_eta is (own.eta is not None)
    if own.eta is not None:
        assert own.eta == pytest.approx(found.params[7], abs=1e-8)
    contrast = np.zeros((7, len(own.covariance)))
    contrast[:, 0], contrast[np.arange(7), np.arange(1, 8)] = -1, 1
    assert np.allclose(contrast @ own.covariance @ contrast.T, found.cov_params()[:7, :7], atol=1e-7)


def penalised(votes: Votes, ties: Ties, has_eta: bool) -> Numbers:
    """Maximise the log-likelihood plus half the log determinant of the information, both written out plainly."""
    n = votes.n_items

    def parts(beta: Numbers) -> tuple[float, Numbers]:
        theta = np.r_[0.0, beta[: n - 1]]
        eta = beta[n - 1] if has_eta else 0.0
        log_nu = beta[-1] if ties is Ties.DAVIDSON else None
        value, information = 0.0, np.zeros((len(beta), len(beta)))
        for order, sign in ((0, 1), (1, -1)):
            for place, (lo, hi) in enumerate(zip(votes.lo, votes.hi, strict=True)):
                counts = votes.counts[order, :, place]
                u = theta[lo] - theta[hi] + sign * eta
                gradient = np.zeros(n)
                gradient[lo], gradient[hi] = 0.5, -0.5
                t = np.zeros((3, len(beta)))
                t[0, : n - 1], t[1, : n - 1] = gradient[1:], -gradient[1:]
                if has_eta:
                    t[0, n - 1], t[1, n - 1] = sign / 2, -sign / 2
                weights = np.array([np.exp(u / 2), np.exp(-u / 2), 0.0])
                if log_nu is not None:
                    t[2, -1], weights[2] = 1, np.exp(log_nu)
                else:
                    counts = np.array([counts[0] + counts[2] / 2, counts[1] + counts[2] / 2, 0])
                p = weights / weights.sum()
                value += float(np.sum(counts[p > 0] * np.log(p[p > 0])))
                centred = t - p @ t
                information += counts.sum() * (centred.T * p) @ centred
        return value, information

    def loss(beta: Numbers) -> float:
        value, information = parts(beta)
        return -value - 0.5 * float(np.linalg.slogdet(information)[1])

    size = n - 1 + has_eta + (ties is Ties.DAVIDSON)
    found = optimize.minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-7})
    return np.asarray(found.x)


@pytest.mark.parametrize("ties", [Ties.HALF, Ties.DAVIDSON])
@pytest.mark.parametrize("has_eta", [False, True])
def test_firth_maximises_the_penalised_likelihood(ties: Ties, has_eta: bool) -> None:
    """scipy's optimiser finds the same maximum, few votes and separation included."""
    votes = largest(drawn(7, 5, 22, sd=2, ties=0.2))
    own, found = fit(votes, Model(ties, has_eta=has_eta)), penalised(votes, ties, has_eta)
    n = votes.n_items
    assert own.is_converged
    assert np.allclose((own.theta - own.theta[0])[1:], found[: n - 1], atol=2e-4)
    rest = [value for value in (own.eta, own.log_nu) if value is not None]
    assert np.allclose(rest, found[n - 1 :], atol=2e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_choix_and_evalica_agree_when_everybody_can_be_overtaken(seed: int) -> None:
    """Two other libraries give the plain estimate to 1e-6."""
    votes = drawn(seed, 12, 2000)
    assert win_table.core(win_table.beats(votes)).is_whole
    own = fit(votes, Model(penalty=Penalty.NONE)).theta
    wins = np.zeros((12, 12))
    wins[votes.lo, votes.hi], wins[votes.hi, votes.lo] = votes.results[LO_WON], votes.results[HI_WON]
    assert np.allclose(own, choix.ilsr_pairwise_dense(wins, tol=1e-12), atol=1e-6)
    first, second = np.nonzero(wins)
    result = evalica.bradley_terry(
        [str(i) for i in first], [str(i) for i in second], [evalica.Winner.X] * len(first),
        weights=wins[first, second].tolist(), tolerance=1e-12, limit=10_000,
    )  # fmt: skip
    other = np.log(result.scores.reindex([str(i) for i in range(12)]).to_numpy())
    assert np.allclose(own, other - other.mean(), atol=1e-6)


def test_elo_is_evalicas() -> None:
    """Sequential Elo with ties, vote by vote."""
    replay = elo.replay_of(drawn(5, 6, 150, ties=0.2)).shuffled(np.random.default_rng(1))
    words = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}
    result = evalica.elo(
        [str(i) for i in replay.a], [str(i) for i in replay.b], [words[s] for s in replay.score],
        initial=1500, k=32, base=10, scale=400,
    )  # fmt: skip
    other = result.scores.reindex([str(i) for i in range(6)]).to_numpy()
    assert np.allclose(elo.elo(replay), other, atol=1e-9)


def test_trueskill_is_the_packages() -> None:
    """Means and deviations of the trueskill package, ties and upsets included."""
    replay = elo.replay_of(drawn(9, 6, 200, ties=0.3)).shuffled(np.random.default_rng(2))
    held = [trueskill.Rating() for _ in range(6)]
    for a, b, score in zip(replay.a, replay.b, replay.score, strict=True):
        best, rest = (a, b) if score >= 0.5 else (b, a)
        held[best], held[rest] = trueskill.rate_1vs1(held[best], held[rest], drawn=bool(score == 0.5))
    own = elo.trueskill(replay)
    assert np.allclose(own.mu, [rating.mu for rating in held], atol=1e-5)
    assert np.allclose(own.sigma, [rating.sigma for rating in held], atol=1e-5)


def left_out(fitted: Fit, place: int) -> Numbers:
    """Return the one-step estimate without one pair: what CR3 adds up the squares of."""
    votes, n = fitted.votes, fitted.votes.n_items
    x = np.zeros((len(votes.lo), n))
    x[np.arange(len(votes.lo)), votes.lo], x[np.arange(len(votes.lo)), votes.hi] = 1, -1
    p = 1 / (1 + np.exp(-x @ fitted.theta))
    wins = votes.results[LO_WON] + votes.results[TIED] / 2
    kept = np.arange(len(votes.lo)) != place
    information = (x[kept].T * (votes.total * p * (1 - p))[kept]) @ x[kept]
    return np.asarray(np.linalg.pinv(information) @ (x[kept].T @ (wins - votes.total * p)[kept]))


@pytest.mark.parametrize("seed", SEEDS)
def test_cr3_is_the_jackknife_of_one_newton_step(seed: int) -> None:
    """The covariance is the sum over pairs of the squared moves when a pair is left out."""
    fitted = fit(drawn(seed, 7, 400), Model(penalty=Penalty.NONE))
    moves = np.array([left_out(fitted, place) for place in range(len(fitted.votes.lo))])
    assert np.allclose(bradley_terry.by_pair(fitted).covariance, moves.T @ moves, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("model", [Model(), Model(has_eta=True), Model(Ties.DAVIDSON, has_eta=True)])
def test_units_that_are_pairs_give_the_errors_by_pair(model: Model) -> None:
    """Both ways to cluster agree where they must."""
    votes = drawn(3, 7, 150, ties=0.2)
    fitted = fit(votes, model)
    by_unit = Votes(votes.n_items, votes.lo, votes.hi, np.arange(len(votes.lo)), votes.counts)
    assert np.allclose(
        bradley_terry.by_pair(fitted).covariance, bradley_terry.by_unit(fitted, by_unit).covariance, atol=1e-10
    )


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("seed", SEEDS)
def test_krippendorff_is_the_packages(seed: int, level: Level) -> None:
    """alpha at each level of measurement, with missing ratings, equals the krippendorff package's."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 40)
    codes = np.where(rng.random((40, 5)) < 0.6, truth[:, None], rng.integers(0, 4, (40, 5)))
    codes[rng.random((40, 5)) < 0.3] = agreement.MISSING
    values = np.array([1.0, 2.0, 4.0, 9.0])
    given = np.where(codes == agreement.MISSING, np.nan, values[codes])
    wanted = krippendorff.alpha(given.T, level_of_measurement=level.value, value_domain=values)
    assert agreement.krippendorff(Ratings(codes, values), level) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_kappas_are_statsmodels(seed: int) -> None:
    """Fleiss' and Cohen's kappa, and Cohen's standard error, equal statsmodels'."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, 60)
    codes = np.where(rng.random((60, 3)) < 0.5, truth[:, None], rng.integers(0, 3, (60, 3)))
    data = Ratings(codes, np.arange(3.0))
    assert agreement.fleiss_kappa(data) == pytest.approx(fleiss_kappa(data.table), abs=1e-12)
    found = agreement.cohen_kappa(data.of_judges(0, 1))
    wanted = cohens_kappa(pd.crosstab(codes[:, 0], codes[:, 1]).to_numpy())
    assert found.kappa == pytest.approx(wanted.kappa)
    assert found.se == pytest.approx(wanted.std_kappa)


@pytest.mark.parametrize("seed", SEEDS)
def test_circles_are_those_of_brute_force(seed: int) -> None:
    """Triads, circles and their expectation are those of three nested loops, gaps and repeats included."""
    votes = drawn(seed, 9, 60, ties=0.1)
    theta = np.random.default_rng(seed).normal(size=9)
    edge: dict[tuple[int, int], tuple[float, int]] = {}
    for lo, hi, won, lost in zip(votes.lo, votes.hi, *votes.results[:2], strict=True):
        if won != lost:
            n = int(won + lost)
            drawn_wins = np.random.default_rng(0).binomial(n, 1 / (1 + np.exp(theta[hi] - theta[lo])), 200_000)
            share = np.mean(2 * drawn_wins > n) / np.mean(2 * drawn_wins != n)
            edge[lo, hi], edge[hi, lo] = (share, won > lost), (1 - share, lost > won)
    counts = np.zeros(3)
    for i in range(9):
        for j in range(i + 1, 9):
            for k in range(j + 1, 9):
                if (i, j) in edge and (j, k) in edge and (i, k) in edge:
                    one, other = (edge[i, j], edge[j, k], edge[k, i]), (edge[j, i], edge[k, j], edge[i, k])
                    counts += np.array([
                        1, all(won for _, won in one) or all(won for _, won in other),
                        np.prod([p for p, _ in one]) + np.prod([p for p, _ in other]),
                    ], dtype=float)  # fmt: skip
    found = triads(votes, theta)
    assert (found.n_triads, found.n_cyclic) == (counts[0], counts[1])
    assert found.n_cyclic_expected == pytest.approx(counts[2], abs=0.1)


def test_a_position_effect_is_told_from_pairs_judged_twice() -> None:
    """Nine of ten pairs flip to the first: the sign-flip test of one vote per order; one order alone tells nothing."""
    pairs = [(item, other) for item in range(5) for other in range(item + 1, 5)]
    first = [one for pair in pairs for one in pair]
    second = [one for pair in pairs for one in pair[::-1]]
    verdicts = ["first"] * 18 + ["second"] * 2
    assert p_position(of_rows(5, first, second, verdicts)) == pytest.approx(2 * stats.norm.sf(8 / 10**0.5), rel=1e-9)
    assert p_position(of_rows(5, first[::2], second[::2], verdicts[::2])) == 1
    assert p_position(of_rows(5, first, second, ["first", "second"] * 10)) == 1
