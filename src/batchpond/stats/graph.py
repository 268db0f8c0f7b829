"""What a win table connects: components, those in which everybody can be overtaken, and circles among three items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats.arrays import Bools, Floats, Ints
from batchpond.stats.votes import HI_WON, LO_WON, TIED, Votes


def components(votes: Votes) -> Ints:
    """Return each item's component: items that votes connect, however indirectly.

    Components are numbered from 0 in the order of their first items; an item without any vote is -1.
    """
    judged = votes.decided()
    label = np.arange(votes.n_items)
    while True:
        lowest = np.minimum(label[judged.lo], label[judged.hi])
        following = label.copy()
        np.minimum.at(following, judged.lo, lowest)
        np.minimum.at(following, judged.hi, lowest)
        # A label is an item too: taking that item's label halves the way to the lowest one.
        following = following[following]
        if np.array_equal(following, label):
            break
        label = following
    has_votes = np.zeros(votes.n_items, dtype=np.bool_)
    has_votes[judged.lo] = has_votes[judged.hi] = True
    _, numbered = np.unique(label[has_votes], return_inverse=True)
    result = np.full(votes.n_items, -1, dtype=np.int64)
    result[has_votes] = numbered
    return result


def beats(votes: Votes) -> Bools:
    """Return who won against whom at least once, shape (items, items); a tie is half a win for both."""
    lo_won, hi_won = (votes.results[won] + votes.results[TIED] > 0 for won in (LO_WON, HI_WON))
    matrix = np.zeros((votes.n_items, votes.n_items), dtype=np.bool_)
    matrix[votes.lo[lo_won], votes.hi[lo_won]] = True
    matrix[votes.hi[hi_won], votes.lo[hi_won]] = True
    return matrix


@dataclass(frozen=True, slots=True)
class Core:
    """The largest group in which everybody beat everybody else through a chain of wins, and who stands outside.

    Ford (1957): the plain estimate exists only if one such group is all there is. Nothing bounds the distance
    of an item `above` from below it (there is no chain of losses back into the group), nor of one `below`;
    an item that no chain of wins connects either way is both. Without a single largest group, all are both.
    """

    n_groups: int
    above: Bools
    below: Bools

    @property
    def is_whole(self) -> bool:
        """Whether the plain estimate exists."""
        return self.n_groups == 1


def core(matrix: Bools) -> Core:
    """Find the core of one component from who beat whom."""
    groups = sorted(_strong_components(matrix), key=len)
    largest = groups[-1]
    is_single = len(groups) == 1 or len(groups[-2]) < len(largest)
    if len(largest) < 2 or not is_single:
        everybody = np.full(len(matrix), len(matrix) > 1)
        return Core(len(groups), everybody, everybody)
    everybody = np.ones(len(matrix), dtype=np.bool_)
    start = int(largest[0])
    is_beaten, beats_it = _reached(matrix, everybody, start), _reached(matrix.T, everybody, start)
    return Core(len(groups), ~is_beaten, ~beats_it)


def _strong_components(matrix: Bools) -> list[Ints]:
    left = np.ones(len(matrix), dtype=np.bool_)
    wins, losses = matrix.sum(axis=1), matrix.sum(axis=0)
    groups: list[Ints] = []
    while left.any():
        alone = np.flatnonzero(left & ((wins == 0) | (losses == 0)))
        group = alone[:1]
        if not len(alone):
            start = int(np.flatnonzero(left)[0])
            group = np.flatnonzero(_reached(matrix, left, start) & _reached(matrix.T, left, start))
        groups.append(group)
        left[group] = False
        wins -= matrix[:, group].sum(axis=1)
        losses -= matrix[group].sum(axis=0)
    return groups


def _reached(matrix: Bools, left: Bools, start: int) -> Bools:
    reached = np.zeros_like(left)
    reached[start] = True
    frontier = np.array([start])
    while len(frontier):
        new = matrix[frontier].any(axis=0) & left & ~reached
        reached |= new
        frontier = np.flatnonzero(new)
    return reached


SIMULATED_ITEMS_MAX: Final = 150
SIMULATIONS: Final = 400


@dataclass(frozen=True, slots=True)
class Triads:
    """Circles in the majority tournament; a triad counts when all its three pairs have a majority.

    `n_cyclic_expected` is what the fitted model expects, `p_cyclic_excess` the share of tournaments simulated
    from it with at least as many circles (None above SIMULATED_ITEMS_MAX items); `zeta` is Kendall and
    Babington Smith's coefficient (1940), for complete tournaments only.
    """

    n_triads: int
    n_cyclic: int
    n_cyclic_expected: float | None
    p_cyclic_excess: float | None
    zeta: float | None


def triads(votes: Votes, theta: Floats | None = None, *, seed: int = 0) -> Triads:
    """Count circles; with `theta`, also those that a Bradley-Terry model expects."""
    lo_wins, hi_wins = votes.results[LO_WON], votes.results[HI_WON]
    kept = lo_wins != hi_wins
    lo, hi, n = votes.lo[kept], votes.hi[kept], votes.n_items
    is_lo = lo_wins[kept] > hi_wins[kept]
    n_triads = round(_three(_tournament(n, lo, hi, np.ones(len(lo)), np.ones(len(lo)))) / 2)
    won = is_lo.astype(np.float64)
    n_cyclic = round(_three(_tournament(n, lo, hi, won, 1 - won)))
    complete = len(lo) == n * (n - 1) // 2 and n >= 3
    zeta = 1 - 24 * n_cyclic / (n**3 - (n if n % 2 else 4 * n)) if complete else None
    if theta is None or not n_triads:
        return Triads(n_triads, n_cyclic, None, None, zeta)
    share = _majority(theta[lo] - theta[hi], np.rint(lo_wins + hi_wins)[kept].astype(np.int64))
    expected = _three(_tournament(n, lo, hi, share, 1 - share))
    p_cyclic_excess = None
    if n <= SIMULATED_ITEMS_MAX:
        rng = np.random.default_rng(seed)
        drawn = (rng.random(len(lo)) < share for _ in range(SIMULATIONS))
        counts = [_three(_tournament(n, lo, hi, one.astype(np.float64), (~one).astype(np.float64))) for one in drawn]
        p_cyclic_excess = (1 + sum(count >= n_cyclic - 0.5 for count in counts)) / (1 + SIMULATIONS)
    return Triads(n_triads, n_cyclic, expected, p_cyclic_excess, zeta)


def _tournament(n: int, lo: Ints, hi: Ints, share_lo: Floats, share_hi: Floats) -> Floats:
    matrix = np.zeros((n, n))
    matrix[lo, hi], matrix[hi, lo] = share_lo, share_hi
    return matrix


def _three(matrix: Floats) -> float:
    """Return a third of the trace of the cube: directed walks around three items."""
    return float(np.sum((matrix @ matrix) * matrix.T)) / 3


def _majority(gap: Floats, n_votes: Ints) -> Floats:
    """Return the chance that the lower item has the majority of n votes, given that there is one."""
    result = np.empty(len(gap))
    for n in np.unique(n_votes):
        at = n_votes == n
        k = np.arange(int(n) + 1)
        log_choose = _log_factorial(int(n))[-1] - _log_factorial(int(n)) - _log_factorial(int(n))[::-1]
        log_p = -np.logaddexp(0, -gap[at])[:, None] * k - np.logaddexp(0, gap[at])[:, None] * (n - k) + log_choose
        p = np.exp(log_p)
        won, lost = p[:, 2 * k > n].sum(axis=1), p[:, 2 * k < n].sum(axis=1)
        result[at] = won / (won + lost)
    return result


def _log_factorial(n: int) -> Floats:
    return np.asarray(np.r_[0.0, np.cumsum(np.log(np.arange(1, n + 1)))], dtype=np.float64)
