"""Bradley-Terry with a normal prior whose spread the votes choose: what the next round of pairs is planned from.

theta_i ~ N(0, sd^2) and a position effect eta ~ N(0, 1), at the posterior mode; sd is the one of a grid with the
largest marginal likelihood by Laplace's method (empirical Bayes). Unlike the estimates that are reported, it is
finite and sensible after a handful of votes per item, and items without any have one too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats import votes as likelihood
from batchpond.stats.arrays import Floats
from batchpond.stats.bradley_terry import predictors
from batchpond.stats.votes import Votes, per_item

SDS: Final = tuple(0.25 * 2 ** (step / 2) for step in range(11))
SD_FIRST: Final = 6
ETA_SD: Final = 1.0
ITERATIONS_MAX: Final = 50
STEP_TOLERANCE: Final = 1e-8
HALVINGS_MAX: Final = 30
DENSE_MAX: Final = 500
CONJUGATE_TOLERANCE: Final = 1e-10
CONJUGATE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class MapFit:
    """A posterior mode: `covariance` is that of theta, shape (items, items), by Laplace's method."""

    theta: Floats
    covariance: Floats
    eta: float
    sd: float
    log_evidence: float


@dataclass(frozen=True, slots=True)
class _Mode:
    """A mode at one sd; `matrix` is the negative Hessian there, eta last."""

    beta: Floats
    matrix: Floats
    log_evidence: float


def fit(votes: Votes) -> MapFit:
    """Fit all items of a win table, judged or not; units do not matter, a tie is half a win for each.

    The evidence has one top in sd where there is enough to see it, so the grid is climbed, not walked.
    """
    table = votes.decided().without_units()
    found = {SD_FIRST: _mode(table, SDS[SD_FIRST], np.zeros(table.n_items + 1))}
    best = SD_FIRST
    for step in (1, -1):
        while 0 <= best + step < len(SDS):
            tried = best + step
            if tried not in found:
                start = found[best].beta * (SDS[tried] / SDS[best]) ** 0.5
                found[tried] = _mode(table, SDS[tried], start)
            if found[tried].log_evidence <= found[best].log_evidence:
                break
            best = tried
    mode, n = found[best], table.n_items
    covariance = np.linalg.inv(mode.matrix)[:n, :n]
    return MapFit(mode.beta[:n], (covariance + covariance.T) / 2, float(mode.beta[n]), SDS[best], mode.log_evidence)


def _mode(votes: Votes, sd: float, start: Floats) -> _Mode:
    """Return the posterior mode at one sd by Newton's method; the posterior is log-concave."""
    n = votes.n_items
    precision = np.r_[np.full(n, sd**-2), ETA_SD**-2]
    beta = start.copy()
    height = _log_posterior(votes, beta, precision)
    for _ in range(ITERATIONS_MAX):
        gradient, curve = _derivatives(votes, beta, precision)
        step = curve.solved(gradient)
        if float(np.abs(step).max()) < STEP_TOLERANCE:
            break
        share = 1.0
        for _ in range(HALVINGS_MAX):
            after = _log_posterior(votes, beta + share * step, precision)
            if after >= height:
                break
            share /= 2
        else:
            break
        beta, height = beta + share * step, after
    matrix = _derivatives(votes, beta, precision)[1].matrix()
    log_volume = 0.5 * float(np.log(precision).sum()) - 0.5 * float(np.linalg.slogdet(matrix)[1])
    return _Mode(beta, matrix, height + log_volume)


def _log_posterior(votes: Votes, beta: Floats, precision: Floats) -> float:
    u = predictors(votes, beta[:-1], float(beta[-1]))
    return likelihood.log_likelihood(votes.counts, u, None) - 0.5 * float(np.sum(precision * beta**2))


def _derivatives(votes: Votes, beta: Floats, precision: Floats) -> tuple[Floats, _Curve]:
    """Return the gradient of the log posterior and its negative Hessian."""
    local = likelihood.half_ties(votes.counts, predictors(votes, beta[:-1], float(beta[-1])))
    score, info = local.score_u, local.info_uu
    gradient = np.r_[per_item(votes, score.sum(axis=0), -score.sum(axis=0)), (score[0] - score[1]).sum()]
    return gradient - precision * beta, _Curve(votes, info.sum(axis=0), info[0] - info[1], precision)


@dataclass(frozen=True, slots=True)
class _Curve:
    """The negative Hessian of the log posterior, by what each pair adds to it: to the items, and across to eta."""

    votes: Votes
    pair: Floats
    across: Floats
    precision: Floats

    def matrix(self) -> Floats:
        """Return it whole, eta last."""
        votes, pair, n = self.votes, self.pair, self.votes.n_items
        matrix = np.zeros((n + 1, n + 1))
        matrix[votes.lo, votes.hi] = matrix[votes.hi, votes.lo] = -pair
        matrix[np.arange(n), np.arange(n)] = per_item(votes, pair, pair)
        matrix[:n, n] = matrix[n, :n] = per_item(votes, self.across, -self.across)
        matrix[n, n] = pair.sum()
        matrix[np.arange(n + 1), np.arange(n + 1)] += self.precision
        return matrix

    def times(self, vector: Floats) -> Floats:
        """Return its product with a vector, without making it."""
        votes, theta, eta = self.votes, vector[:-1], vector[-1]
        gap = theta[votes.lo] - theta[votes.hi]
        flow = self.pair * gap + self.across * eta
        own = np.r_[per_item(votes, flow, -flow), float(self.across @ gap) + float(self.pair.sum()) * eta]
        return np.asarray(own + self.precision * vector)

    def solved(self, gradient: Floats) -> Floats:
        """Return Newton's step: solved whole for few items, by conjugate gradients for many."""
        if self.votes.n_items <= DENSE_MAX:
            return np.asarray(np.linalg.solve(self.matrix(), gradient))
        diagonal = np.r_[per_item(self.votes, self.pair, self.pair), self.pair.sum()] + self.precision
        step, rest = np.zeros_like(gradient), gradient.copy()
        scaled = rest / diagonal
        way, size = scaled.copy(), float(rest @ scaled)
        goal = size * CONJUGATE_TOLERANCE**2
        for _ in range(CONJUGATE_MAX):
            if size <= goal:
                break
            turned = self.times(way)
            share = size / float(way @ turned)
            step, rest = step + share * way, rest - share * turned
            scaled = rest / diagonal
            size, before = float(rest @ scaled), size
            way = scaled + size / before * way
        return step


@dataclass(frozen=True, slots=True)
class Prediction:
    """How well votes were foretold: the share of decided ones, and the mean log-loss (.693 is a coin)."""

    n_votes: int
    accuracy: float
    log_loss: float


def predict(found: MapFit, votes: Votes) -> Prediction | None:
    """Judge a fit by votes that it has not seen, None without any that were decided; an even guess is half right."""
    decided = votes.without_ties()
    n = round(float(decided.total.sum()))
    if not n:
        return None
    u = predictors(decided, found.theta, found.eta)
    results = decided.counts[:, :2]
    loss = float(np.sum(results[:, 0] * np.logaddexp(0, -u) + results[:, 1] * np.logaddexp(0, u)))
    right = float(np.sum(results[:, 0] * _share_right(u) + results[:, 1] * _share_right(-u)))
    return Prediction(n, right / n, loss / n)


def _share_right(u: Floats) -> Floats:
    return np.asarray(np.where(u > 0, 1.0, np.where(u < 0, 0.0, 0.5)))
