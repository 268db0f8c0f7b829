"""Standard errors that hold when votes on one pair (or one prompt) resemble each other.

CR3 (Bell and McCaffrey 2002): each cluster's score is divided by one minus its leverage, which is what leaving the
cluster out would do. A cluster whose absence would cut the graph in two has leverage 1, and one that all but holds it
together (in a ring of many items, each) nearly so: the data cannot say how such clusters vary, and dividing by next to
nothing gives any number. They enter with the variance of the model, and are reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats import votes as likelihood
from batchpond.stats.arrays import Bools, Floats, Ints
from batchpond.stats.bradley_terry import Fit, Ties, gap_covariances, predictors, results_by_order
from batchpond.stats.votes import Votes

LEVERAGE_GAP_MIN: Final = 0.02
DETERMINANT_MIN: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Sandwich:
    """The covariance of (theta, eta, log_nu), and which items stand at clusters of leverage near 1."""

    covariance: Floats
    n_clusters: int
    is_at_bridge: Bools


def by_pair(fit: Fit, *, is_adjusted: bool = True) -> Sandwich:
    """Return CR3 (or CR0 with `is_adjusted` False) clustered by unordered pair."""
    votes, (score, information) = fit.votes, _by_row(fit, fit.votes)
    is_bridge = np.zeros(len(votes.lo), dtype=np.bool_)
    if is_adjusted:
        score, is_bridge = _left_out(score, information, _pair_covariance(fit))
    meat = np.where(is_bridge, information, score[:, None, :] * score[None, :, :])
    is_at_bridge = np.zeros(votes.n_items, dtype=np.bool_)
    is_at_bridge[votes.lo[is_bridge]] = is_at_bridge[votes.hi[is_bridge]] = True
    bread, filling = fit.covariance, likelihood.spread(votes, [list(row) for row in meat])
    return Sandwich(bread @ filling @ bread, len(votes.lo), is_at_bridge)


def by_unit(fit: Fit, votes: Votes) -> Sandwich:
    """Return CR3 clustered by the unit of `votes`, the same votes that were fitted, by unit and pair."""
    if fit.model.ties is Ties.DROP:
        votes = votes.without_ties()
    by_row, bread = _by_row(fit, votes), fit.covariance
    order = np.argsort(votes.unit, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(votes.unit[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    meat = np.zeros_like(bread)
    is_at_bridge = np.zeros(votes.n_items, dtype=np.bool_)
    extras = np.arange(votes.n_items, len(bread))
    for rows in np.split(order, starts[1:]):
        items = np.unique(np.r_[votes.lo[rows], votes.hi[rows]])
        at = np.r_[items, extras]
        score, information = _of_cluster(votes, by_row, rows, items, len(extras))
        left = np.eye(len(at)) - information @ bread[np.ix_(at, at)]
        # The eigenvalues are one minus leverages, all real: the matrix is similar to a symmetric one.
        if float(np.linalg.eigvals(left).real.min()) < LEVERAGE_GAP_MIN:
            is_at_bridge[items] = True
            meat[np.ix_(at, at)] += information
            continue
        moved = np.linalg.solve(left, score)
        meat[np.ix_(at, at)] += np.outer(moved, moved)
    return Sandwich(bread @ meat @ bread, len(starts), is_at_bridge)


def _by_row(fit: Fit, votes: Votes) -> tuple[Floats, Floats]:
    """Return every row's score (q, rows) and information (q, q, rows) in gap, eta and log_nu, as far as they are."""
    results = results_by_order(votes, has_eta=fit.eta is not None)
    local = likelihood.local(results, predictors(votes, fit.theta, fit.eta), fit.log_nu)
    return _orders_added(local.scores), np.array([_orders_added(row) for row in local.informations])


def _orders_added(parts: list[Floats]) -> Floats:
    return np.array([np.atleast_2d(part).sum(axis=0) for part in parts])


def _pair_covariance(fit: Fit) -> Floats:
    votes, n, bread = fit.votes, fit.votes.n_items, fit.covariance
    covariances = np.array(gap_covariances(votes, bread, likelihood.pair_places(votes, len(bread))[0]))
    result = np.empty((len(covariances), *covariances.shape))
    result[0] = result[:, 0] = covariances
    result[1:, 1:] = bread[n:, n:, None]
    return result


def _left_out(score: Floats, information: Floats, covariance: Floats) -> tuple[Floats, Bools]:
    """Divide every pair's score by one minus its leverage; says too which pairs have leverage near 1."""
    if len(covariance) == 1:
        left = 1 - information[0] * covariance[0]
        is_bridge = left[0] < LEVERAGE_GAP_MIN
        return score / np.where(is_bridge, 1.0, left), np.asarray(is_bridge)
    product = np.einsum("ijr,jkr->rik", information, covariance)
    left = np.eye(len(covariance)) - product
    is_bridge = (left[:, 0, 0] < LEVERAGE_GAP_MIN) | (np.linalg.det(left) < DETERMINANT_MIN)
    left[is_bridge] = np.eye(len(covariance))
    return np.linalg.solve(left, score.T[:, :, None])[:, :, 0].T, np.asarray(is_bridge)


def _of_cluster(
    votes: Votes, by_row: tuple[Floats, Floats], rows: Ints, items: Ints, n_extras: int
) -> tuple[Floats, Floats]:
    """Return a cluster's score and information in its own items and the extra parameters."""
    lo, hi = np.searchsorted(items, votes.lo[rows]), np.searchsorted(items, votes.hi[rows])
    design = np.zeros((1 + n_extras, len(rows), len(items) + n_extras))
    at = np.arange(len(rows))
    design[0, at, lo], design[0, at, hi] = 1.0, -1.0
    for extra in range(n_extras):
        design[1 + extra, :, len(items) + extra] = 1.0
    score = np.einsum("qr,qrp->p", by_row[0][:, rows], design)
    information = np.einsum("qrp,qsr,srt->pt", design, by_row[1][:, :, rows], design, optimize=True)
    return score, information
