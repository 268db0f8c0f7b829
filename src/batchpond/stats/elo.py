"""Ratings replayed vote by vote, for comparison with other tools: Elo, EloChoice's integers, TrueSkill.

They depend on the order of the votes and have no honest interval; Bradley-Terry estimates the same from
all votes at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from batchpond.errors import UsageError
from batchpond.stats.arrays import Floats, Ints
from batchpond.stats.votes import HI_WON, TIED, Votes

ELO_K: Final = 32.0
ELO_START: Final = 1500.0
ELO_SCALE: Final = 400.0
ELOCHOICE_K: Final = 100.0
SHUFFLES: Final = 20
REPLAYED_MAX: Final = 20_000_000

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Replay:
    """Votes in an order: items `a` and `b`, and a's `score`, 1, 0 or 0.5 for a tie."""

    n_items: int
    a: Ints
    b: Ints
    score: Floats

    def __len__(self) -> int:
        return len(self.a)

    def shuffled(self, rng: np.random.Generator) -> Replay:
        """Return the same votes in another order."""
        order = rng.permutation(len(self.a))
        return Replay(self.n_items, self.a[order], self.b[order], self.score[order])


def replay_of(votes: Votes) -> Replay:
    """Return single votes from counts, in the order of the items; raises UsageError for too many to replay."""
    if votes.counts.sum() > REPLAYED_MAX:
        raise UsageError(
            f"{int(votes.counts.sum()):,} votes are too many to replay one by one",
            hint="theta says the same from all of them at once",
        )
    rows, scores = [], []
    for order in votes.counts:
        for result, counts in enumerate(order):
            times = np.rint(counts).astype(np.int64)
            rows.append(np.repeat(np.arange(len(votes.lo)), times))
            scores.append(np.full(int(times.sum()), 0.5 if result == TIED else float(result != HI_WON)))
    row = np.concatenate(rows)
    in_order = np.argsort(row, kind="stable")
    row = row[in_order]
    return Replay(votes.n_items, votes.lo[row], votes.hi[row], np.concatenate(scores)[in_order])


def elo(votes: Replay) -> Floats:
    """Return Elo ratings after the votes in their order."""
    rating = [ELO_START] * votes.n_items
    for a, b, score in zip(votes.a.tolist(), votes.b.tolist(), votes.score.tolist(), strict=True):
        change = ELO_K * (score - 1 / (1 + 10 ** ((rating[b] - rating[a]) / ELO_SCALE)))
        rating[a] += change
        rating[b] -= change
    return np.array(rating)


def elo_shuffled(votes: Replay, *, seed: int) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of Elo ratings over random orders of the votes; it is no standard error."""
    if len(votes) * SHUFFLES > REPLAYED_MAX:
        raise UsageError(
            f"{len(votes):,} votes in {SHUFFLES} orders are too many to replay",
            hint="theta says the same from all of them at once",
        )
    rng = np.random.default_rng(seed)
    ratings = np.array([elo(votes.shuffled(rng)) for _ in range(SHUFFLES)])
    return ratings.mean(axis=0), ratings.std(axis=0, ddof=1)


def elochoice(votes: Replay) -> Ints:
    """Return ratings by the rule of the R package EloChoice: from 0, rounded to whole numbers after each vote.

    Votes for a tie have no place in it and are left out. Halves round away from zero.
    """
    rating = [0] * votes.n_items
    for a, b, score in zip(votes.a.tolist(), votes.b.tolist(), votes.score.tolist(), strict=True):
        if score == 0.5:
            continue
        winner, loser = (a, b) if score > 0.5 else (b, a)
        change = ELOCHOICE_K / (1 + 10 ** ((rating[winner] - rating[loser]) / ELO_SCALE))
        rating[winner] = _rounded(rating[winner] + change)
        rating[loser] = _rounded(rating[loser] - change)
    return np.array(rating, dtype=np.int64)


def _rounded(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


@dataclass(frozen=True, slots=True)
class TrueSkill:
    """TrueSkill's mean and deviation per item."""

    mu: Floats
    sigma: Floats


def trueskill(votes: Replay, *, mu: float = 25.0, sigma: float = 25 / 3, draw_rate: float = 0.1) -> TrueSkill:
    """Replay votes between two through TrueSkill (Herbrich et al. 2007), beta sigma/2 and tau sigma/100."""
    beta, tau = sigma / 2, sigma / 100
    margin = _NORMAL.inv_cdf((draw_rate + 1) / 2) * math.sqrt(2) * beta
    mean, variance = [mu] * votes.n_items, [sigma**2] * votes.n_items
    for a, b, score in zip(votes.a.tolist(), votes.b.tolist(), votes.score.tolist(), strict=True):
        winner, loser = (a, b) if score >= 0.5 else (b, a)
        of_winner, of_loser = variance[winner] + tau**2, variance[loser] + tau**2
        scale = math.sqrt(2 * beta**2 + of_winner + of_loser)
        gap, edge = (mean[winner] - mean[loser]) / scale, margin / scale
        shift, shrink = _tied(gap, edge) if score == 0.5 else _won(gap - edge)
        mean[winner] += of_winner / scale * shift
        mean[loser] -= of_loser / scale * shift
        variance[winner] = of_winner * (1 - of_winner / scale**2 * shrink)
        variance[loser] = of_loser * (1 - of_loser / scale**2 * shrink)
    return TrueSkill(np.array(mean), np.sqrt(np.array(variance)))


def _won(x: float) -> tuple[float, float]:
    below = _NORMAL.cdf(x)
    # Far below, the ratio of density and tail is -x but for terms of 1/x.
    shift = _NORMAL.pdf(x) / below if below > 1e-300 else -x
    return shift, shift * (shift + x)


def _tied(gap: float, edge: float) -> tuple[float, float]:
    size = abs(gap)
    inside = _NORMAL.cdf(edge - size) - _NORMAL.cdf(-edge - size)
    sign = -1.0 if gap < 0 else 1.0
    if inside < 1e-300:
        return sign * (edge - size), 1.0
    lower, upper = _NORMAL.pdf(-edge - size), _NORMAL.pdf(edge - size)
    shift = (lower - upper) / inside
    return sign * shift, shift**2 + ((edge - size) * upper + (edge + size) * lower) / inside
