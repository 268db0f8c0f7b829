"""Votes with a known truth, and whether a ranking's intervals cover it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from batchpond.stats import ranking, votes
from batchpond.stats.ranking import Cluster, Options, Ties
from tests.rigs.rank import Numbers

# How a normal effect on the log-odds shrinks a mean log-odds: (1 + c s^2)^-1/2 with c = (16 sqrt 3 / 15 pi)^2.
_SHRINK = 0.346


@dataclass(frozen=True)
class Design:
    """Items of normal strengths; each pair, or item on a prompt, has an effect of its own, of deviation tau.

    Of votes that show the lower item first the share `missing` is not read, and `n_first` times as many are asked. With
    `nu` votes tie as Davidson's law says, and count as `ties` says: as half a win each they draw strengths together,
    and the truth is what the model fits to the expected votes.
    """

    n_items: int
    sd: float
    tau: float
    degree: int | None = None
    prompts: int = 0
    eta: float = 0.0
    is_single_order: bool = False
    repeats: int = 1
    missing: float = 0.0
    n_first: int = 1
    nu: float = 0.0
    ties: Ties = Ties.HALF
    coverage_max: float = 0.98


DESIGNS = {
    "all pairs": Design(20, sd=2, tau=1),
    "all pairs, no pair effect": Design(20, sd=2, tau=0),
    "all pairs, strong pair effect": Design(20, sd=2, tau=2),
    "sparse": Design(20, sd=2, tau=1, degree=8),
    "sparse, no pair effect": Design(20, sd=2, tau=0, degree=8),
    "fifty, sparse": Design(50, sd=2, tau=1, degree=10),
    # Twenty votes: the penalty pulls as much as they say, which makes intervals too wide rather than too narrow.
    "five items": Design(5, sd=1, tau=0.5, coverage_max=0.99),
    "one order, position": Design(20, sd=2, tau=1, degree=12, eta=0.7, is_single_order=True),
    "all pairs, position": Design(20, sd=2, tau=1, eta=1.5),
    "sparse, position": Design(20, sd=2, tau=1, degree=8, eta=1.5),
    "by prompt, position": Design(5, sd=0.5, tau=1, prompts=60, eta=1),
    "by prompt": Design(5, sd=0.5, tau=1, prompts=60),
    "all pairs, 3 repeats": Design(20, sd=2, tau=1, repeats=3),
    "sparse, 5 repeats": Design(20, sd=2, tau=1, degree=8, repeats=5),
    "sparse, far apart, 3 repeats": Design(20, sd=4, tau=0, degree=6, repeats=3),
    # Most prompts say nothing of items that are far apart: a handful of votes decides where they stand.
    "by 12 prompts, far apart": Design(5, sd=4, tau=0, prompts=12),
    "by 20 prompts, far apart": Design(5, sd=4, tau=0, prompts=20),
    "by 60 prompts, far apart": Design(5, sd=4, tau=0, prompts=60),
    "by 20 prompts": Design(5, sd=0.5, tau=1, prompts=20),
    "by prompt, 3 repeats": Design(5, sd=0.5, tau=1, prompts=60, repeats=3),
    "missing by position": Design(20, sd=2, tau=1, missing=0.4),
    "missing by position, position": Design(20, sd=2, tau=1, missing=0.4, eta=0.7),
    "one order thrice, position": Design(20, sd=2, tau=1, n_first=3, eta=0.7),
    "ties": Design(20, sd=2, tau=0, nu=1.0),
    "ties, Davidson": Design(20, sd=2, tau=0, nu=1.0, ties=Ties.DAVIDSON),
}


@dataclass
class Tally:
    """Counts of intervals that cover, and of all."""

    hits: Counter[str] = field(default_factory=Counter)
    total: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, hits: int, total: int) -> None:
        """Add up."""
        self.hits[name] += hits
        self.total[name] += total

    def rate(self, name: str) -> float:
        """Return the share that covered."""
        return self.hits[name] / self.total[name]


def play(design: Design, seed: int, tally: Tally) -> None:
    """Draw one set of votes, rank it, and count which intervals hold the truth; a set in parts is drawn again."""
    rng = np.random.default_rng(seed)
    while True:
        theta = rng.normal(0, design.sd, design.n_items)
        table = draw(design, theta, rng)
        cluster = Cluster.UNIT if design.prompts else Cluster.PAIR
        options = _options(design, cluster, seed)
        found = ranking.rank(table, options)
        if found.is_comparable and len(found.components[0].items) == design.n_items:
            break
    shrink = 1 / np.sqrt(1 + _SHRINK * design.tau**2)
    truth = _fitted(design, theta) if design.nu and design.ties is Ties.HALF else shrink * (theta - theta.mean())
    lo = np.where(np.isnan(found.theta_lo), -np.inf, found.theta_lo)
    hi = np.where(np.isnan(found.theta_hi), np.inf, found.theta_hi)
    tally.add("theta", int(np.sum((lo <= truth) & (truth <= hi))), design.n_items)
    is_closed = np.isfinite(lo) & np.isfinite(hi)
    tally.add("theta_closed", int(np.sum((lo <= truth) & (truth <= hi) & is_closed)), int(is_closed.sum()))
    tally.add("open", int(np.sum(np.isinf(lo) | np.isinf(hi))), design.n_items)
    place = (-theta).argsort().argsort() + 1
    held = (found.component_rank_lo <= place) & (place <= found.component_rank_hi)
    tally.add("rank", int(np.sum(held)), design.n_items)
    at_once = (found.component_rank_lo_joint <= place) & (place <= found.component_rank_hi_joint)
    tally.add("ranks_joint", int(np.all(at_once)), 1)
    width = found.component_rank_hi - found.component_rank_lo + 1
    tally.add("rank_width", int(width.sum()), design.n_items)
    (component,) = found.components
    if component.eta is not None and component.eta_se is not None:
        tally.add("eta", abs(component.eta - shrink * design.eta) < 1.96 * component.eta_se, 1)
        if design.eta == 0 and component.eta_lr_p is not None:
            tally.add("position_p", component.eta_lr_p <= 0.05, 1)


def _options(design: Design, cluster: Cluster, seed: int) -> Options:
    has_position = design.is_single_order or None
    return Options(design.ties, has_position=has_position, cluster=cluster, seed=seed, is_full=True)


def _fitted(design: Design, theta: Numbers) -> Numbers:
    """Return what the model makes of the votes that strengths lead to on average, where pairs have no effect."""
    lo, hi = np.triu_indices(design.n_items, 1)
    chances = _chances(theta[lo] - theta[hi], design.nu)
    # So many votes that the penalty says nothing.
    counts = np.stack([1e6 * chances, 1e6 * chances])
    table = votes.Votes(design.n_items, lo, hi, np.zeros_like(lo), counts)
    return np.asarray(ranking.rank(table, Options(design.ties)).theta)


def _chances(gap: Numbers, nu: float) -> Numbers:
    """Return how often the lower item wins, the higher one, and neither; shape (3, gaps). Source: Davidson (1970)."""
    parts = np.stack([np.exp(gap / 2), np.exp(-gap / 2), np.full_like(gap, nu)])
    return np.asarray(parts / parts.sum(axis=0))


def draw(design: Design, theta: Numbers, rng: np.random.Generator) -> votes.Votes:
    """Draw the votes of a design: each pair in both orders, or in one at random."""
    n_items = design.n_items
    pairs = np.array([(i, j) for i in range(n_items) for j in range(i + 1, n_items)])
    if design.degree is not None:
        pairs = pairs[rng.permutation(len(pairs))[: n_items * design.degree // 2]]
    units = np.repeat(np.arange(max(design.prompts, 1)), len(pairs))
    lo, hi = np.tile(pairs[:, 0], max(design.prompts, 1)), np.tile(pairs[:, 1], max(design.prompts, 1))
    if design.prompts:
        # A prompt suits some candidates better, in all their pairs.
        suits = rng.normal(0, design.tau / np.sqrt(2), (design.prompts, n_items))
        effect = suits[units, lo] - suits[units, hi]
    else:
        effect = rng.normal(0, design.tau, len(lo))
    gap = theta[lo] - theta[hi] + effect
    counts = np.zeros((2, 3, len(lo)))
    orders = rng.random(len(lo)) < 0.5
    for order, sign in ((0, 1), (1, -1)):
        is_asked = np.logical_not(design.is_single_order) | (orders == (order == 0))
        n = np.full(len(lo), design.repeats * (1 if order else design.n_first))
        if design.missing and not order:
            n = rng.binomial(n, 1 - design.missing)
        if design.nu:
            chances = _chances(gap + sign * design.eta, design.nu)
            counts[order] = is_asked * rng.multinomial(n, chances.T).T
            continue
        n_lo = rng.binomial(n, 1 / (1 + np.exp(-gap - sign * design.eta)))
        counts[order, 0], counts[order, 1] = is_asked * n_lo, is_asked * (n - n_lo)
    return votes.Votes(n_items, lo, hi, units, counts)
