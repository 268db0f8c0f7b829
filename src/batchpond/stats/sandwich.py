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
from batchpond.stats.bradley_terry import Fit, Ties, predictors, results_by_order
from batchpond.stats.votes import Local, Votes

LEVERAGE_GAP_MIN: Final = 0.02
DETERMINANT_MIN: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Sandwich:
    """The covariance of (theta, eta, log_nu), and which items stand at clusters of leverage near 1."""

    covariance: Floats
    n_clusters: int
    is_at_bridge: Bools


@dataclass(frozen=True, slots=True)
class _Basis:
    """Every row's score (q, rows) and information (q, q, rows) in gap, eta and log_nu, as far as the model has them."""

    score: Floats
    information: Floats


def by_pair(fit: Fit, *, is_adjusted: bool = True) -> Sandwich:
    """Return CR3 (or CR0 with `is_adjusted` False) clustered by unordered pair."""
    votes, basis = fit.votes, _basis(fit, fit.votes)
    score, is_bridge = basis.score, np.zeros(len(votes.lo), dtype=np.bool_)
    if is_adjusted:
        score, is_bridge = _left_out(basis, _pair_covariance(fit))
    meat = np.where(is_bridge, basis.information, score[:, None, :] * score[None, :, :])
    is_at_bridge = np.zeros(votes.n_items, dtype=np.bool_)
    is_at_bridge[votes.lo[is_bridge]] = is_at_bridge[votes.hi[is_bridge]] = True
    bread = fit.covariance
    return Sandwich(bread @ _spread(votes, meat, len(bread)) @ bread, len(votes.lo), is_at_bridge)


def by_unit(fit: Fit, votes: Votes, *, is_adjusted: bool = True) -> Sandwich:
    """Return CR3 (or CR0) clustered by the unit of `votes`, the same votes that were fitted, by unit and pair."""
    if fit.model.ties is Ties.DROP:
        votes = votes.without_ties()
    basis, bread = _basis(fit, votes), fit.covariance
    order = np.argsort(votes.unit, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(votes.unit[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    meat = np.zeros_like(bread)
    is_at_bridge = np.zeros(votes.n_items, dtype=np.bool_)
    extras = np.arange(votes.n_items, len(bread))
    for rows in np.split(order, starts[1:]):
        items = np.unique(np.r_[votes.lo[rows], votes.hi[rows]])
        at = np.r_[items, extras]
        score, information = _of_cluster(votes, basis, rows, items, len(extras))
        left = np.eye(len(at)) - information @ bread[np.ix_(at, at)]
        # The eigenvalues are one minus leverages, all real: the matrix is similar to a symmetric one.
        is_bridge = is_adjusted and float(np.linalg.eigvals(left).real.min()) < LEVERAGE_GAP_MIN
        if is_bridge:
            is_at_bridge[items] = True
            meat[np.ix_(at, at)] += information
            continue
        moved = np.linalg.solve(left, score) if is_adjusted else score
        meat[np.ix_(at, at)] += np.outer(moved, moved)
    return Sandwich(bread @ meat @ bread, len(starts), is_at_bridge)


def _basis(fit: Fit, votes: Votes) -> _Basis:
    has_eta = fit.eta is not None
    results = results_by_order(votes, has_eta=has_eta)
    u = predictors(votes, fit.theta, fit.eta)
    local: Local = (
        likelihood.half_ties(results, u) if fit.log_nu is None else likelihood.davidson(results, u, fit.log_nu)
    )
    sign = np.array([[1.0], [-1.0]])
    scores = [local.score_u.sum(axis=0)]
    information = [[local.info_uu.sum(axis=0)]]
    if has_eta:
        across = (sign * local.info_uu).sum(axis=0)
        scores.append((sign * local.score_u).sum(axis=0))
        information = [[information[0][0], across], [across, information[0][0]]]
    if local.score_l is not None and local.info_ul is not None and local.info_ll is not None:
        scores.append(local.score_l.sum(axis=0))
        column = [local.info_ul.sum(axis=0)]
        column += [(sign * local.info_ul).sum(axis=0)] if has_eta else []
        information = [[*row, end] for row, end in zip(information, column, strict=True)]
        information.append([*column, local.info_ll.sum(axis=0)])
    return _Basis(np.array(scores), np.array(information))


def _pair_covariance(fit: Fit) -> Floats:
    lo, hi, n, bread = fit.votes.lo, fit.votes.hi, fit.votes.n_items, fit.covariance
    own = np.diag(bread)
    q = 1 + len(bread) - n
    result = np.empty((q, q, len(lo)))
    result[0, 0] = own[lo] + own[hi] - 2 * bread[lo, hi]
    for extra in range(1, q):
        result[0, extra] = result[extra, 0] = bread[lo, n + extra - 1] - bread[hi, n + extra - 1]
        for other in range(1, q):
            result[extra, other] = bread[n + extra - 1, n + other - 1]
    return result


def _left_out(basis: _Basis, covariance: Floats) -> tuple[Floats, Bools]:
    """Divide every pair's score by one minus its leverage; says too which pairs have leverage near 1."""
    if len(covariance) == 1:
        left = 1 - basis.information[0] * covariance[0]
        is_bridge = left[0] < LEVERAGE_GAP_MIN
        return basis.score / np.where(is_bridge, 1.0, left), np.asarray(is_bridge)
    product = np.einsum("ijr,jkr->rik", basis.information, covariance)
    left = np.eye(len(covariance)) - product
    is_bridge = (left[:, 0, 0] < LEVERAGE_GAP_MIN) | (np.linalg.det(left) < DETERMINANT_MIN)
    left[is_bridge] = np.eye(len(covariance))
    return np.linalg.solve(left, basis.score.T[:, :, None])[:, :, 0].T, np.asarray(is_bridge)


def _spread(votes: Votes, meat: Floats, size: int) -> Floats:
    n, lo, hi = votes.n_items, votes.lo, votes.hi
    matrix = np.zeros((size, size))
    matrix[lo, hi] = matrix[hi, lo] = -meat[0, 0]
    matrix[np.arange(n), np.arange(n)] = _items(n, lo, meat[0, 0]) + _items(n, hi, meat[0, 0])
    for extra in range(1, len(meat)):
        column = _items(n, lo, meat[0, extra]) - _items(n, hi, meat[0, extra])
        matrix[:n, n + extra - 1] = matrix[n + extra - 1, :n] = column
        for other in range(1, len(meat)):
            matrix[n + extra - 1, n + other - 1] = meat[extra, other].sum()
    return matrix


def _items(n_items: int, item: Ints, weight: Floats) -> Floats:
    return np.asarray(np.bincount(item, weights=weight, minlength=n_items), dtype=np.float64)


def _of_cluster(votes: Votes, basis: _Basis, rows: Ints, items: Ints, n_extras: int) -> tuple[Floats, Floats]:
    """Return a cluster's score and information in its own items and the extra parameters."""
    lo, hi = np.searchsorted(items, votes.lo[rows]), np.searchsorted(items, votes.hi[rows])
    design = np.zeros((1 + n_extras, len(rows), len(items) + n_extras))
    at = np.arange(len(rows))
    design[0, at, lo], design[0, at, hi] = 1.0, -1.0
    for extra in range(n_extras):
        design[1 + extra, :, len(items) + extra] = 1.0
    score = np.einsum("qr,qrp->p", basis.score[:, rows], design)
    information = np.einsum("qrp,qsr,srt->pt", design, basis.information[:, :, rows], design, optimize=True)
    return score, information
