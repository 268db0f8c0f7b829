"""The interval of a matched difference, found by looking for where its margins meet."""

from __future__ import annotations

import math

from scipy import optimize, stats
from statsmodels.stats.proportion import proportion_confint


def end(b: int, c: int, n: int, *, is_upper: bool) -> float:
    """Return an end for (b - c) / n: at x it is as far from 0 as both margins together, |d - x / s|.

    d is (b - c) / (b + c) with Clopper-Pearson's ends, s the share of pairs that tell the two apart with Wilson's.
    """
    if is_upper:
        return -end(c, b, n, is_upper=False)
    m = b + c
    low, high = proportion_confint(m, n, method="wilson")
    if m == 0:
        return float(-high)
    d, share = (b - c) / m, m / n
    of_d = d - (2 * (stats.beta.ppf(0.025, b, c + 1) if b else 0) - 1)

    def beyond(x: float) -> float:
        of_share = 1 / share - 1 / (low if x > 0 else high)
        return d - x / share - math.hypot(of_d, x * of_share)

    return float(optimize.brentq(beyond, -1, (b - c) / n, xtol=1e-15, rtol=1e-12))
