"""How many judgments a question needs, before they are paid for: 5 % two-sided, power 80 % unless said."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np

from batchpond.stats.arrays import Floats

_NORMAL: Final = NormalDist()
Z_ALPHA: Final = _NORMAL.inv_cdf(0.975)
Z_POWER: Final = _NORMAL.inv_cdf(0.8)
NODES: Final = 101


def n_for_proportion(p: float, half_width: float) -> float:
    """Return how many pairs estimate a proportion to plus or minus `half_width` at 95 %."""
    return Z_ALPHA**2 * p * (1 - p) / half_width**2


def n_discordant_for_position(share: float) -> float:
    """Return how many flipped pairs show that one position wins `share` of the flips (normal approximation).

    The exact sign test needs about 5 % more; see `power_of_sign_test`.
    """
    return ((0.5 * Z_ALPHA + Z_POWER * math.sqrt(share * (1 - share))) / (share - 0.5)) ** 2


def n_pairs_for_position(conflict_rate: float, share: float) -> float:
    """Return how many pairs judged in both orders hold that many flips."""
    return n_discordant_for_position(share) / conflict_rate


def power_of_sign_test(n_discordant: int, share: float) -> float:
    """Return the exact chance that a 5 % sign test on n flips finds a position that wins `share` of them."""
    log_factorial = np.r_[0.0, np.cumsum(np.log(np.arange(1, n_discordant + 1)))]
    k = np.arange(n_discordant + 1)
    log_choose = log_factorial[-1] - log_factorial - log_factorial[::-1]
    fair = np.exp(log_choose - n_discordant * math.log(2))
    p_value = 2 * np.cumsum(fair)[np.minimum(k, n_discordant - k)]
    log_odds = k * math.log(share) + (n_discordant - k) * math.log1p(-share)
    return float(np.exp(log_choose + log_odds)[p_value <= 0.05].sum())


def n_for_mcnemar(discordant: float, difference: float) -> float:
    """Return how many pairs tell two proportions apart that differ by `difference`, `discordant` of pairs differing."""
    spread = math.sqrt(discordant - difference**2)
    return (Z_ALPHA * math.sqrt(discordant) + Z_POWER * spread) ** 2 / difference**2


def information_per_comparison(sd: float) -> float:
    """Return the mean of p (1 - p) over pairs of items whose strengths are normal with this deviation."""
    p, weight = _win_rates(sd)
    return float(np.sum(weight * p * (1 - p)))


def consistency_expected(sd: float) -> float:
    """Return how often two independent votes on a random pair name the same winner, by noise alone."""
    p, weight = _win_rates(sd)
    return float(np.sum(weight * (p**2 + (1 - p) ** 2)))


def comparisons_per_item(reliability: float, sd: float) -> float:
    """Return how many comparisons of each item reach a separation reliability."""
    return reliability / (1 - reliability) / (sd**2 * information_per_comparison(sd))


def _win_rates(sd: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return np.asarray(1 / (1 + np.exp(-math.sqrt(2) * sd * nodes))), np.asarray(weights / weights.sum())
