"""What adaptive rounds stand on: a fit that is sensible after a handful of votes, and which pairs are asked next.

The fit is Bradley-Terry with a normal prior whose spread the votes choose: theta_i ~ N(0, sd^2) and a position effect
eta ~ N(0, 1), at the posterior mode; sd is the one of a grid with the largest marginal likelihood by Laplace's method
(empirical Bayes). Unlike the estimates that are reported, it is finite, and items without any vote have one too.

Asked are random matchings first, so that everybody is compared equally often and connected; then the pairs that say
most about the ranking, greedily, under a cap on how often an item is asked about.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats import arrays
from batchpond.stats import votes as likelihood
from batchpond.stats.arrays import Bools, Floats, Ints
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
class Belief:
    """What is believed of all items: theta, and its covariance, shape (items, items)."""

    theta: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class MapFit(Belief):
    """A posterior mode; its covariance is by Laplace's method."""

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
    local = likelihood.half_ties(votes.counts, predictors(votes, beta[:-1], float(beta[-1])))
    (score, shown_first), ((pair, across), _) = local.scores, local.informations
    gradient = np.r_[per_item(votes, score, -score), shown_first.sum()]
    return gradient - precision * beta, _Curve(votes, pair, across, precision)


@dataclass(frozen=True, slots=True)
class _Curve:
    """The negative Hessian of the log posterior, by what each pair adds to it: to the items, and across to eta."""

    votes: Votes
    pair: Floats
    across: Floats
    precision: Floats

    def matrix(self) -> Floats:
        """Return it whole, eta last."""
        matrix = likelihood.spread(self.votes, [[self.pair, self.across], [self.across, self.pair]])
        matrix[np.diag_indices(len(matrix))] += self.precision
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
        return arrays.conjugate(self.times, lambda rest: rest / diagonal, gradient, CONJUGATE_TOLERANCE, CONJUGATE_MAX)


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


TRIES_MAX: Final = 20
# Below this, random matchings get in each other's way; the rounds of a tournament never do.
FEW_ITEMS: Final = 14


@dataclass(frozen=True, slots=True)
class Edges:
    """Pairs of items, `lo` < `hi`, one element each; no pair twice."""

    lo: Ints
    hi: Ints


def balanced(n_items: int, n_matchings: int, seed: int, barred: Ints) -> Edges:
    """Return the pairs of some random matchings, and as many more as connect all items.

    An item is in at most one pair of a matching; with an odd number one sits out, never the same twice while others
    have not. `barred` are pairs, as lo * n_items + hi, that are left alone, even where that leaves items with fewer.
    """
    out = set(barred.tolist())
    is_few = n_items < FEW_ITEMS
    found = _tournament(n_items, n_matchings, seed) if is_few else _random(n_items, n_matchings, seed, out)
    keys = np.array(sorted(found - out), dtype=np.int64)
    joining = np.array(_joining(n_items, keys, out, seed), dtype=np.int64)
    keys = np.sort(np.r_[keys, joining])
    return Edges(keys // n_items, keys % n_items)


def _tournament(n_items: int, n_matchings: int, seed: int) -> set[int]:
    """Return some rounds of a round-robin tournament (circle method) of randomly numbered items."""
    n = n_items + n_items % 2
    label = arrays.permutation(seed, n).tolist()
    rounds = arrays.permutation(seed + 1, n - 1).tolist()[:n_matchings]
    keys = set()
    for number in rounds:
        meetings = [(n - 1, number)] + [((number + k) % (n - 1), (number - k) % (n - 1)) for k in range(1, n // 2)]
        keys |= {_key(n_items, label[a], label[b]) for a, b in meetings if max(label[a], label[b]) < n_items}
    return keys


def _random(n_items: int, n_matchings: int, seed: int, barred: set[int]) -> set[int]:
    used = set(barred)
    found: set[int] = set()
    sat_out: set[int] = set()
    for number in range(n_matchings):
        best: set[int] = set()
        rest = -1
        for attempt in range(TRIES_MAX):
            order = arrays.permutation(seed + number * TRIES_MAX + attempt, n_items).tolist()
            out = next((item for item in reversed(order) if item not in sat_out), order[-1]) if n_items % 2 else -1
            matching = _repaired(n_items, [item for item in order if item != out], used)
            if len(matching) > len(best):
                best, rest = matching, out
            if len(best) == n_items // 2:
                break
        found |= best
        used |= best
        sat_out.add(rest)
    return found


def _repaired(n_items: int, order: Sequence[int], used: set[int]) -> set[int]:
    """Pair neighbours off; where a pair is used already, swap partners with another pair, or leave it out."""
    left, right = list(order[0::2]), list(order[1::2])
    for at in range(len(left)):
        if _key(n_items, left[at], right[at]) not in used:
            continue
        for other in range(len(left)):
            crossed = _key(n_items, left[at], right[other]), _key(n_items, left[other], right[at])
            if other != at and used.isdisjoint(crossed):
                right[at], right[other] = right[other], right[at]
                break
    keys = (_key(n_items, a, b) for a, b in zip(left, right, strict=True))
    return {key for key in keys if key not in used}


def _joining(n_items: int, keys: Ints, barred: set[int], seed: int) -> list[int]:
    """Return pairs that connect what is not connected, the fewest where none is barred."""
    label = _components(n_items, keys)
    order = arrays.permutation(seed - 1, n_items)
    added: list[int] = []
    while label.max() > 0:
        inside, outside = order[label[order] == 0], order[label[order] != 0]
        free = (_key(n_items, int(a), int(b)) for b in outside for a in inside)
        key = next((key for key in free if key not in barred), None)
        if key is None:
            return added
        added.append(key)
        label = _components(n_items, np.r_[keys, np.array(added, dtype=np.int64)])
    return added


def _components(n_items: int, keys: Ints) -> Ints:
    """Return each item's component from 0; an item in no pair is one of its own."""
    lo, hi = keys // n_items, keys % n_items
    label = likelihood.components(Votes(n_items, lo, hi, np.zeros_like(lo), np.ones((2, 3, len(lo)))))
    alone = np.flatnonzero(label < 0)
    label[alone] = label.max(initial=-1) + 1 + np.arange(len(alone))
    return label


def _key(n_items: int, a: int, b: int) -> int:
    return min(a, b) * n_items + max(a, b)


ALL_PAIRS_MAX: Final = 2_000
NEAREST: Final = 40
AT_RANDOM: Final = 10
UPDATED_MAX: Final = 500
TOP_DRAWS: Final = 500
TOP_FLOOR: Final = 0.005


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
    some = (arrays.uniforms(seed, n * AT_RANDOM) * n).astype(np.int64)
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
    lo, hi, own = candidates.lo, candidates.hi, np.diag(belief.covariance)
    spread = own[lo] + own[hi] - 2 * belief.covariance[lo, hi]
    gain = np.asarray(candidates.factor * np.log1p(_weight(belief.theta[lo] - belief.theta[hi]) * spread))
    order = np.lexsort((candidates.draw, -gain))
    if len(belief.theta) > UPDATED_MAX:
        return _capped(gain, order, candidates, n_wanted, cap)
    return _Greedy(belief, candidates, gain, order).run(n_wanted, cap)


def _weight(gap: Floats) -> Floats:
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
