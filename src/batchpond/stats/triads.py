"""Circles among three items: how many there are, and how many a single scale would produce by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats.arrays import Floats, Ints
from batchpond.stats.votes import HI_WON, LO_WON, Votes

SIMULATED_ITEMS_MAX: Final = 150
SIMULATIONS: Final = 400


@dataclass(frozen=True, slots=True)
class Triads:
    """Circles in the majority tournament; a triad counts when all its three pairs have a majority.

    `n_cyclic_expected` is what the fitted model expects, `p_excess` the share of tournaments simulated
    from it with at least as many circles (None above SIMULATED_ITEMS_MAX items); `zeta` is Kendall and
    Babington Smith's coefficient (1940), for complete tournaments only.
    """

    n_triads: int
    n_cyclic: int
    n_cyclic_expected: float | None
    p_excess: float | None
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
    p_excess = None
    if n <= SIMULATED_ITEMS_MAX:
        rng = np.random.default_rng(seed)
        drawn = (rng.random(len(lo)) < share for _ in range(SIMULATIONS))
        counts = [_three(_tournament(n, lo, hi, one.astype(np.float64), (~one).astype(np.float64))) for one in drawn]
        p_excess = (1 + sum(count >= n_cyclic - 0.5 for count in counts)) / (1 + SIMULATIONS)
    return Triads(n_triads, n_cyclic, expected, p_excess, zeta)


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
