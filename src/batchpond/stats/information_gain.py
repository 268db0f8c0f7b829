"""Which pairs say most about a ranking: greedy D-optimal design under a cap on how often an item is asked about.

The gain of a judgment of (i, j) is ln(1 + p (1 - p) (S_ii + S_jj - 2 S_ij)): by how much it is expected to shrink
the log-volume of the posterior, S its covariance and p the probability that i wins (Bradley-Terry by Laplace's
method; Chen, Bennett, Collins-Thompson and Horvitz 2013, Glickman and Jensen 2005 for the design).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats import draws
from batchpond.stats.arrays import Bools, Floats, Ints

ALL_PAIRS_MAX: Final = 2_000
NEAREST: Final = 40
AT_RANDOM: Final = 10
UPDATED_MAX: Final = 500
TOP_DRAWS: Final = 500
TOP_FLOOR: Final = 0.005


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of all items before a round: theta, and its covariance, shape (items, items)."""

    theta: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pairs that may be asked, `lo` < `hi`; `factor` weighs the gain of each, `draw` in [0, 1) breaks ties."""

    lo: Ints
    hi: Ints
    factor: Floats
    draw: Floats


@dataclass(frozen=True, slots=True)
class Picked:
    """Places among the candidates, in the order in which they were taken, with the gain of each when it was."""

    place: Ints
    gain: Floats


def within_reach(theta: Floats, seed: int) -> tuple[Ints, Ints]:
    """Return the pairs that a round looks at: all, or of many items each one's nearest in theta and some at random."""
    n = len(theta)
    if n <= ALL_PAIRS_MAX:
        lo, hi = np.triu_indices(n, k=1)
        return lo.astype(np.int64), hi.astype(np.int64)
    place = np.argsort(theta, kind="stable")
    ahead = [(place[:-step], place[step:]) for step in range(1, NEAREST // 2 + 1)]
    some = (draws.uniforms(seed, n * AT_RANDOM) * n).astype(np.int64)
    first = np.concatenate([*(a for a, _ in ahead), np.repeat(np.arange(n), AT_RANDOM)])
    second = np.concatenate([*(b for _, b in ahead), some])
    lo, hi = np.minimum(first, second), np.maximum(first, second)
    keys = np.unique(lo[lo < hi] * n + hi[lo < hi])
    return keys // n, keys % n


def pick(belief: Belief, candidates: Candidates, n_wanted: int, cap: int) -> Picked:
    """Take the pair of the largest gain again and again, no item in more than `cap` of them.

    Each choice shrinks the covariance that the next is made by, for up to UPDATED_MAX items. Gains only fall by
    that, so that a pair is looked at again only when it would be next.
    """
    gain = _gains(belief, candidates)
    order = np.lexsort((candidates.draw, -gain))
    if len(belief.theta) > UPDATED_MAX:
        return _capped(gain, order, candidates, n_wanted, cap)
    return _Greedy(belief, candidates, gain, order).run(n_wanted, cap)


def _gains(belief: Belief, candidates: Candidates) -> Floats:
    lo, hi, own = candidates.lo, candidates.hi, np.diag(belief.covariance)
    spread = own[lo] + own[hi] - 2 * belief.covariance[lo, hi]
    return np.asarray(candidates.factor * np.log1p(_weight(belief.theta[lo] - belief.theta[hi]) * spread))


def _weight(gap: Floats) -> Floats:
    """Return p (1 - p) of a logistic p."""
    return np.asarray(0.25 / np.cosh(np.minimum(np.abs(gap), 700.0) / 2) ** 2)


def _capped(gain: Floats, order: Ints, candidates: Candidates, n_wanted: int, cap: int) -> Picked:
    degree = np.zeros(int(candidates.hi.max(initial=-1)) + 1, dtype=np.int64)
    taken: list[int] = []
    for at in order.tolist():
        if len(taken) == n_wanted:
            break
        ends = [candidates.lo[at], candidates.hi[at]]
        if degree[ends].max() < cap and gain[at] > 0:
            degree[ends] += 1
            taken.append(at)
    place = np.array(taken, dtype=np.int64)
    return Picked(place, gain[place])


class _Greedy:
    """The choice with a covariance that shrinks: kept as the first one and a vector per pair taken."""

    def __init__(self, belief: Belief, candidates: Candidates, gain: Floats, order: Ints) -> None:
        self.covariance, self.candidates, self.gain, self.order = belief.covariance, candidates, gain, order
        self.own = np.diag(belief.covariance)
        self.weight = _weight(belief.theta[candidates.lo] - belief.theta[candidates.hi])
        self.degree = np.zeros(len(belief.theta), dtype=np.int64)
        self.taken: list[int] = []
        self.gains: list[float] = []
        self.vectors = np.empty((len(belief.theta), 0))

    def run(self, n_wanted: int, cap: int) -> Picked:
        self.vectors = np.empty((len(self.own), n_wanted))
        seen: list[tuple[float, int, int]] = []  # minus the gain, place in the order, at which size it was found
        n_seen = 0
        while len(self.taken) < n_wanted:
            while n_seen < len(self.order) and (not seen or self.gain[self.order[n_seen]] > -seen[0][0]):
                heapq.heappush(seen, (-float(self._now(self.order[n_seen])), n_seen, len(self.taken)))
                n_seen += 1
            if not seen:
                break
            minus, place, size = heapq.heappop(seen)
            at = int(self.order[place])
            if max(self.degree[self.candidates.lo[at]], self.degree[self.candidates.hi[at]]) >= cap or minus >= 0:
                continue
            if size == len(self.taken):
                self._take(at, -minus)
            else:
                heapq.heappush(seen, (-float(self._now(at)), place, len(self.taken)))
        return Picked(np.array(self.taken, dtype=np.int64), np.array(self.gains))

    def _spread(self, at: int) -> float:
        lo, hi = self.candidates.lo[at], self.candidates.hi[at]
        gone = self.vectors[lo, : len(self.taken)] - self.vectors[hi, : len(self.taken)]
        return max(float(self.own[lo] + self.own[hi] - 2 * self.covariance[lo, hi] - gone @ gone), 0.0)

    def _now(self, at: int) -> float:
        return float(self.candidates.factor[at] * np.log1p(self.weight[at] * self._spread(at)))

    def _take(self, at: int, gain: float) -> None:
        lo, hi, size = self.candidates.lo[at], self.candidates.hi[at], len(self.taken)
        before = self.vectors[:, :size]
        column = self.covariance[:, lo] - self.covariance[:, hi] - before @ (before[lo] - before[hi])
        weight = self.weight[at]
        self.vectors[:, size] = column * np.sqrt(weight / (1 + weight * self._spread(at)))
        self.taken.append(at)
        self.gains.append(gain)
        self.degree[[lo, hi]] += 1


def crowding(belief: Belief) -> Floats:
    """Return how many places an item moves, about, per unit of theta: the density of the others' gaps to it at 0.

    Gains multiplied by it go to where an error costs ranks, the crowded middle, rather than to volume alone.
    """
    theta, own, n = belief.theta, np.diag(belief.covariance), len(belief.theta)
    found = np.empty(n)
    for item in range(n):
        spread = own[item] + own - 2 * belief.covariance[item]
        spread[item] = 1.0
        density = np.exp(-0.5 * (theta[item] - theta) ** 2 / spread) / np.sqrt(spread)
        found[item] = density.sum() - density[item]
    return found


def top_openness(belief: Belief, top_k: int, seed: int) -> Floats:
    """Return how open it is for each item whether it is among the best `top_k`: P (1 - P), floored."""
    n = len(belief.theta)
    root = np.linalg.cholesky(belief.covariance + 1e-9 * np.eye(n))
    noise = np.random.default_rng(seed).standard_normal((TOP_DRAWS, n))
    drawn = belief.theta + noise @ root.T
    k = min(top_k, n - 1)
    edge = np.partition(drawn, n - k, axis=1)[:, n - k]
    is_top: Bools = drawn >= edge[:, None]
    share = is_top.mean(axis=0)
    return np.asarray(share * (1 - share) + TOP_FLOOR)
