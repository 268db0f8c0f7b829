"""From estimates to ranks: which places fit the data, who is tied with whom, how well items are told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats.arrays import Z_95, Floats, Ints

DRAWS: Final = 500
SAME: Final = 1e-7


def ranks(theta: Floats) -> Ints:
    """Return places from 1, the largest theta first; equal thetas share the better place."""
    order = np.argsort(-theta, kind="stable")
    is_new = np.r_[True, -np.diff(theta[order]) > SAME]
    result = np.empty(len(theta), dtype=np.int64)
    result[order] = np.maximum.accumulate(np.where(is_new, np.arange(1, len(theta) + 1), 0))
    return result


def rank_intervals(theta: Floats, covariance: Floats, *, seed: int, draws: int = DRAWS) -> tuple[Ints, Ints]:
    """Return the places that hold 95 % of an item's ranks among draws from N(theta, covariance).

    Each interval is about its own item; that all hold at once is less likely. Draws follow the order of
    theta, so that naming items otherwise changes nothing.
    """
    order = np.argsort(-theta, kind="stable")
    spread = _root(covariance[np.ix_(order, order)])
    # Places are all that is asked of these numbers, and half the width takes half the time.
    noise = np.random.default_rng(seed).standard_normal((draws, len(theta)), dtype=np.float32)
    drawn = theta[order].astype(np.float32) + noise @ spread.T.astype(np.float32)
    places = np.empty(drawn.shape, dtype=np.int32)
    np.put_along_axis(places, np.argsort(-drawn, axis=1), np.arange(1, len(theta) + 1, dtype=np.int32)[None, :], axis=1)
    places.sort(axis=0)
    tail = int(0.025 * draws)
    own = ranks(theta)
    lo, hi = np.empty_like(own), np.empty_like(own)
    lo[order], hi[order] = places[tail], places[draws - 1 - tail]
    return np.minimum(lo, own), np.maximum(hi, own)


def _root(covariance: Floats) -> Floats:
    """Return a matrix whose product with its transpose is the covariance, but for a shift that all items share."""
    level = float(np.trace(covariance)) / len(covariance) + 1e-12
    try:
        return np.asarray(np.linalg.cholesky(covariance + level / len(covariance)), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def tied_groups(theta: Floats, covariance: Floats) -> Ints:
    """Return groups from 1: from the top, items that do not differ at 95 % from the best of their group.

    Neighbours across the border of two groups need not differ: being tied is not transitive.
    """
    own = np.diag(covariance)
    group = np.zeros(len(theta), dtype=np.int64)
    best, number = -1, 0
    for item in np.argsort(-theta, kind="stable"):
        if best >= 0:
            variance = own[best] + own[item] - 2 * covariance[best, item]
            gap = theta[best] - theta[item]
        if best < 0 or (gap > SAME and gap > Z_95 * math.sqrt(max(variance, 0.0))):
            best, number = item, number + 1
        group[item] = number
    return group


@dataclass(frozen=True, slots=True)
class Separation:
    """How well items are told apart: 1 - mean(se^2) / var(theta), and how many strata that makes, (4 G + 1) / 3.

    Below 0 the estimates differ less than their errors, and there are no strata. It holds for pairs chosen
    without looking at earlier votes: adaptive rounds raise it even among equal items (.84 was seen).
    """

    reliability: float | None
    strata: float | None


def separation(theta: Floats, se: Floats) -> Separation:
    """Return the separation of one component's items; None for fewer than three, or when they are all equal."""
    if len(theta) < 3:
        return Separation(None, None)
    error, observed = float(np.mean(se**2)), float(np.var(theta, ddof=1))
    if not observed > SAME or not math.isfinite(error) or error <= 0:
        return Separation(None, None)
    reliability = 1 - error / observed
    strata = (4 * math.sqrt((observed - error) / error) + 1) / 3 if reliability > 0 else None
    return Separation(reliability, strata)
