"""Sets of verdicts on pairs with a planted truth, as many cells of one study: a query gives them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, Row, result, views_over

ENDS = ("lo", "hi")
OF_THESE = "_these_items"
TRUTHS = ("position_logodds", "consistency_decided", "conflict_rate")


@dataclass(frozen=True)
class Pairs:
    """A design: what is drawn anew for each set, and how it is asked.

    The log-odds that the first wins are the gap of the two items' qualities, plus the pair's own taste, plus `eta`,
    plus the mean of what either item adds to it, plus what the pair adds to it. Where all is of these items, their
    qualities are drawn once, for all sets.
    """

    eta: float = 0.0
    n_items: int = 20
    quality_sd: float = 1.5
    taste_sd: float = 0.0
    item_sd: float = 0.0
    pair_sd: float = 0.0
    repeats: int = 1
    ties: float = 0.0  # the share of ties between equals, where it is highest
    missing: float = 0.0  # of the order with the higher item first
    unequal: int = 0  # how often more the order with the lower item first is asked
    is_of_these: bool = False


DESIGNS = {
    "no effect": Pairs(),
    "no effect, quality sd 3": Pairs(quality_sd=3),
    "eta .3": Pairs(eta=0.3),
    "eta .5, taste sd 1": Pairs(eta=0.5, taste_sd=1),
    "items differ, sd .25": Pairs(item_sd=0.25),
    "items differ, sd .5": Pairs(item_sd=0.5),
    "items differ, sd 1": Pairs(item_sd=1),
    "items differ, sd 2": Pairs(item_sd=2),
    "pairs differ, sd 1": Pairs(pair_sd=1),
    "no effect, 2 repeats": Pairs(repeats=2),
    "eta .3, 2 repeats": Pairs(eta=0.3, repeats=2),
    "eta .8, 3 repeats": Pairs(eta=0.8, repeats=3),
    "eta .3, 5 repeats": Pairs(eta=0.3, repeats=5),
    "no effect, 3 repeats, ties": Pairs(repeats=3, ties=0.5),
    "eta .3, ties": Pairs(eta=0.3, ties=0.5),
    "eta .3, missing by position": Pairs(eta=0.3, missing=0.4),
    "no effect, one order thrice": Pairs(unequal=2),
    "eta 1.5": Pairs(eta=1.5),
    "no effect, 10 items": Pairs(n_items=10),
    "no effect, 40 items": Pairs(n_items=40),
    "these items, no effect": Pairs(is_of_these=True),
    "these items, no effect, 2 repeats": Pairs(is_of_these=True, repeats=2),
    "these items, no effect, 3 repeats, ties": Pairs(is_of_these=True, repeats=3, ties=0.5),
    "these items, no effect, one order thrice": Pairs(is_of_these=True, unequal=2),
    "these items, eta .3, ties": Pairs(is_of_these=True, eta=0.3, ties=0.5),
    "these items, eta .3, 5 repeats": Pairs(is_of_these=True, eta=0.3, repeats=5),
    "these items, eta .8, 3 repeats, missing": Pairs(is_of_these=True, eta=0.8, repeats=3, missing=0.4),
}


def _logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def judgments(design: Pairs, n_sets: int, seed: int) -> pa.Table:
    """Return rows of `pair_judgments`, a cell per set."""
    rng = np.random.default_rng(seed)
    lo, hi = np.triu_indices(design.n_items, 1)
    quality, added = (rng.normal(0, sd, (n_sets, design.n_items)) for sd in (design.quality_sd, design.item_sd))
    if design.is_of_these:
        quality[:] = _these(design)
    gap = quality[:, lo] - quality[:, hi] + rng.normal(0, design.taste_sd, (n_sets, lo.size))
    effect = design.eta + (added[:, lo] + added[:, hi]) / 2 + rng.normal(0, design.pair_sd, gap.shape)
    asked = []
    for repeat in range(1, design.repeats + design.unequal + 1):
        for is_lo_first in (True, False) if repeat <= design.repeats else (True,):
            lo_wins = _logistic(gap + (effect if is_lo_first else -effect))
            verdict = np.where((rng.random(gap.shape) < lo_wins) == is_lo_first, 0, 1)
            verdict[rng.random(gap.shape) < 4 * design.ties * lo_wins * (1 - lo_wins)] = 2
            cell, pair = np.nonzero(rng.random(gap.shape) >= (0 if is_lo_first else design.missing))
            same = np.ones_like(cell)
            asked.append(np.stack([cell, lo[pair], hi[pair], is_lo_first * same, verdict[cell, pair], repeat * same]))
    cell, low, high, is_lo_first, verdict, repeat_no = np.concatenate(asked, axis=1)
    items = [f"i{item:04}" for item in range(design.n_items)]
    columns = {name: pa.repeat(pa.scalar(value), cell.size) for name, value in CELL_DEFAULT.items()}
    columns |= {"template_id": _words(cell, [f"t{number:05}" for number in range(n_sets)])}
    columns |= {"unit_id": pa.repeat(pa.scalar(""), cell.size), "repeat_no": pa.array(repeat_no)}
    columns |= {
        "item_lo": _words(low, items),
        "item_hi": _words(high, items),
        "is_lo_first": pa.array(is_lo_first == 1),
    }
    columns |= {"item_first": _words(np.where(is_lo_first, low, high), items)}
    columns |= {"item_second": _words(np.where(is_lo_first, high, low), items)}
    columns |= {"verdict": _words(verdict, ["first", "second", "tie"])}
    columns |= {"outcome": _words((verdict == 2).astype(int), ["decided", "tie"])}
    return pa.table(columns)


def _words(codes: Numbers, words: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words)).cast(pa.string())


def _these(design: Pairs) -> Numbers:
    return np.random.default_rng(99).normal(0, design.quality_sd, design.n_items)


def rates(design: Pairs) -> dict[str, float]:
    """Return how often two votes on a pair, one per order, name the same winner, or two, of all items or of these."""
    rng = np.random.default_rng(1)
    if design.is_of_these:
        lo, hi = np.triu_indices(design.n_items, 1)
        gap = _these(design)[lo] - _these(design)[hi]
    else:
        gap = rng.normal(0, np.hypot(design.quality_sd * 2**0.5, design.taste_sd), 1_000_000)
    effect = rng.normal(design.eta, np.hypot(design.item_sd / 2**0.5, design.pair_sd), gap.size)
    first, second = _logistic(gap + effect), _logistic(gap - effect)
    untied = (1 - 4 * design.ties * first * (1 - first)) * (1 - 4 * design.ties * second * (1 - second))
    wins = untied * (first * second + (1 - first) * (1 - second))
    return {
        "consistency_decided": float(wins.sum() / untied.sum()),
        "conflict_rate": float(np.mean(untied - wins)),
    }


@dataclass
class Played:
    """What the views said of all sets of a design: shares, and two means."""

    shares: dict[str, float] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)


def play(design: Pairs, n_sets: int, seed: int) -> Played:
    """Return how often each interval holds the truth, and each test rejects, over sets of a design."""
    with views_over({"pair_judgments": judgments(design, n_sets, seed)}) as connection:
        bias = result(connection, "FROM metric_position_bias")
        consistent = result(connection, "FROM metric_consistency")
    assert len(bias) == len(consistent) == n_sets
    found = Played()
    truths = {"position_logodds": (bias, design.eta)}
    truths |= {name: (consistent, rate) for name, rate in rates(design).items()}
    for name, (rows, truth) in truths.items():
        for target in ("", OF_THESE):
            found.shares[f"{name}{target}"] = _covered(rows, name, target, truth)
    for name in ("p_position", f"p_position{OF_THESE}", "p_position_items"):
        found.shares[name] = float(np.mean(column(bias, name) < 0.05))
    found.means.update(
        {f"mean {name}": np.nanmean(column(bias, name)) for name in ("position_logodds", "position_item_sd")}
    )
    return found


def _covered(rows: Sequence[Row], name: str, target: str, truth: float) -> float:
    """Return the share of intervals that hold the truth; an end that is NULL is open."""
    low, high = (column(rows, f"{name}_{end}{target}") for end in ENDS)
    return float(np.mean(~(low > truth) & ~(high < truth)))
