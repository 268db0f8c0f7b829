"""Dawid and Skene's model (1979): how each judge confuses words, and what each unit therefore is.

A unit is of word t with probability `shares[t]`, and of such a unit judge j says s with probability
`confusion[j, t, s]`, whatever the others say. EM from each unit's shares of votes climbs to the likeliest (their 2.3 to
2.5); it may be no more than the top of its hill, and with fewer than three judges many are equally high.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from batchpond.stats.arrays import Bools, Floats, Ints

ITERATIONS_MAX: Final = 5_000
TOLERANCE: Final = 1e-6
_LEAST: Final = 1e-300


class Estimate(NamedTuple):
    """`posterior` (units, words), `confusion` (judges, true words, said words), nan where no unit is of a true word.

    A jury has converged where the last iteration moved no posterior of its units by more than TOLERANCE.
    """

    posterior: Floats
    confusion: Floats
    iterations: int
    is_converged: Bools


def fit(unit: Ints, judge: Ints, said: Ints, jury: Ints) -> Estimate:
    """Return the estimate for votes, numbers from 0 without a gap; each jury has units and judges of its own."""
    n_units, n_judges, n = (int(one.max()) + 1 for one in (unit, judge, said))
    of_unit = np.empty(n_units, np.int64)
    of_unit[unit] = jury
    posterior = np.bincount(unit * n + said, minlength=n_units * n).reshape(n_units, n) / np.bincount(unit)[:, None]
    iterations, is_converged = 0, np.zeros(1, np.bool_)
    while not is_converged.all() and iterations < ITERATIONS_MAX:
        iterations += 1
        sums = [np.bincount(judge * n + said, posterior[unit, true], n_judges * n) for true in range(n)]
        counts = np.stack(sums).reshape(n, n_judges, n).transpose(1, 0, 2)
        total = counts.sum(axis=2, keepdims=True)
        confusion = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
        shares = np.stack([np.bincount(of_unit, column) / np.bincount(of_unit) for column in posterior.T], axis=1)
        logs = np.log(np.fmax(confusion, _LEAST))
        score = np.stack([np.bincount(unit, logs[judge, true, said], n_units) for true in range(n)], axis=1)
        score += np.log(np.fmax(shares, _LEAST))[of_unit]
        before, posterior = posterior, np.exp(score - score.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        is_moved = np.abs(posterior - before).max(axis=1) > TOLERANCE
        is_converged = np.bincount(of_unit, is_moved) == 0
    return Estimate(posterior, confusion, iterations, is_converged)
