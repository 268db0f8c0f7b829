"""Comparisons with a planted truth for items in general: two templates on the same items, and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa

from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, Row, result, views_over

N_TRUTH = 1_000_000
VIEWS = {
    "metric_paired": ("p_diff", "diff", "_these_items"),
    "metric_failures_paired": ("p_diff", "diff", "_these_items"),
    "metric_length": ("p_longer", "longer_win_rate", "_these_items"),
}


@dataclass(frozen=True)
class General:
    """A design: items are drawn anew for each set, with a quality, a length, and how hard they are to answer about.

    Two templates ask about all pairs in both orders. By either, an item adds its own position effect (`item_sd`), and
    its own to what is hard (`own_sd`); by both, the longer of two texts is better by `length`, and failures are by
    `hard_sd` likelier on some items. What template b has more of is `more_bias` (position) and `more_failures`.
    """

    n_items: int = 20
    quality_sd: float = 1.5
    item_sd: float = 0.5
    length: float = 0.0
    hard_sd: float = 1.0
    own_sd: float = 0.5
    failures: float = -3.0
    more_bias: float = 0.0
    more_failures: float = 0.0
    repeats: int = 1


DESIGNS = {
    "no difference": General(),
    "no difference, 10 items": General(n_items=10),
    "no difference, 40 items": General(n_items=40),
    "no difference, items differ, sd 1.5": General(item_sd=1.5, hard_sd=1.5, own_sd=1),
    "no difference, failures are rare": General(failures=-5, hard_sd=0.5, own_sd=0),
    "b is worse, longer is better": General(more_bias=1, more_failures=0.7, length=0.5),
    "no difference, 2 repeats": General(repeats=2),
    "b is worse, 3 repeats": General(more_bias=1, more_failures=0.7, length=0.5, repeats=3),
    "b is worse, 5 repeats": General(more_bias=1, more_failures=0.7, length=0.5, repeats=5),
}


def _logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def _words(codes: Numbers, words: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words)).cast(pa.string())


def tables(design: General, n_sets: int, seed: int) -> dict[str, pa.Table]:
    """Return rows of `pair_judgments` and `item_lengths`, a study per set."""
    rng = np.random.default_rng(seed)
    lo, hi = np.triu_indices(design.n_items, 1)
    shape = (n_sets, design.n_items)
    length = rng.normal(0, 1, shape)
    quality = rng.normal(0, design.quality_sd, shape) + design.length * length
    hard = rng.normal(0, design.hard_sd, shape)
    parts = []
    for template in (0, 1):
        added, own = rng.normal(0, design.item_sd, shape), rng.normal(0, design.own_sd, shape)
        gap = quality[:, lo] - quality[:, hi]
        effect = template * design.more_bias + (added[:, lo] + added[:, hi]) / 2
        trouble = design.failures + template * design.more_failures + (hard + own)[:, lo] / 2 + (hard + own)[:, hi] / 2
        for repeat, is_lo_first in product(range(1, design.repeats + 1), (1, 0)):
            lo_wins = rng.random(gap.shape) < _logistic(gap + (effect if is_lo_first else -effect))
            verdict = np.where(lo_wins == bool(is_lo_first), 0, 1)
            verdict[rng.random(gap.shape) < _logistic(trouble)] = 2
            cell, pair = (index.ravel() for index in np.indices(gap.shape))
            same = np.ones_like(cell)
            numbers = (is_lo_first * same, verdict.ravel(), template * same, repeat * same)
            parts.append(np.stack([cell, lo[pair], hi[pair], *numbers]))
    cell, low, high, is_lo_first, verdict, template, repeat_no = np.concatenate(parts, axis=1)
    items = [f"i{item:03}" for item in range(design.n_items)]
    studies = [f"s{number:05}" for number in range(n_sets)]
    columns = {name: pa.repeat(pa.scalar(value), cell.size) for name, value in CELL_DEFAULT.items()}
    columns |= {"study": _words(cell, studies), "template_id": _words(template, ["a", "b"])}
    columns |= {"unit_id": pa.repeat(pa.scalar(""), cell.size), "repeat_no": pa.array(repeat_no)}
    columns |= {
        "item_lo": _words(low, items),
        "item_hi": _words(high, items),
        "is_lo_first": pa.array(is_lo_first == 1),
    }
    columns |= {"item_first": _words(np.where(is_lo_first, low, high), items)}
    columns |= {"item_second": _words(np.where(is_lo_first, high, low), items)}
    columns |= {"verdict": _words(verdict, ["first", "second", "none"])}
    columns["verdict"] = pa.array([word if word != "none" else None for word in columns["verdict"].to_pylist()])
    columns |= {"outcome": _words((verdict == 2).astype(int), ["decided", "unparsed"])}
    lengths = {
        "study": pa.array(np.repeat(studies, design.n_items)),
        "item": pa.array(items * n_sets),
        "n_chars": pa.array((1000 * np.exp(length.ravel() / 3)).astype(int)),
    }
    return {"pair_judgments": pa.table(columns), "item_lengths": pa.table(lengths)}


def truths(design: General) -> dict[str, float]:
    """Return what each view estimates, of all items that might be."""
    rng = np.random.default_rng(1)
    length = rng.normal(0, 1, (N_TRUTH, 2))
    quality = rng.normal(0, design.quality_sd, length.shape) + design.length * length
    gap = quality[:, 0] - quality[:, 1]
    rates, failed, consistent_wins = [], [], []
    for template in (0, 1):
        effect = template * design.more_bias + rng.normal(0, design.item_sd / 2**0.5, N_TRUTH)
        first, second = _logistic(gap + effect), _logistic(gap - effect)
        rates.append(np.mean(first * second + (1 - first) * (1 - second)))
        consistent_wins.append((first * second, (1 - first) * (1 - second)))
        spread = (design.hard_sd**2 + design.own_sd**2) ** 0.5 / 2**0.5
        trouble = design.failures + template * design.more_failures + rng.normal(0, spread, N_TRUTH)
        failed.append(np.mean(_logistic(trouble)))
    lo_won, hi_won = consistent_wins[0]  # lengths are looked at in template a
    is_lo_longer = length[:, 0] > length[:, 1]
    longer = np.where(is_lo_longer, lo_won, hi_won).sum() / (lo_won + hi_won).sum()
    return {
        "metric_paired": float(rates[0] - rates[1]),
        "metric_failures_paired": float(failed[0] - failed[1]),
        "metric_length": float(longer) if design.length else 0.5,
    }


def play(design: General, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often each interval holds the truth, and each test rejects, for either target."""
    found: dict[str, float] = {}
    given, truth = tables(design, n_sets, seed), truths(design)
    wheres = {"metric_failures_paired": "WHERE failure = 'unparsed'", "metric_length": "WHERE template_id = 'a'"}
    with views_over(given) as connection:
        rows = {view: result(connection, f"FROM {view} {wheres.get(view, '')}") for view in VIEWS}
    for view, (p, of, target) in VIEWS.items():
        assert len(rows[view]) == n_sets, view
        short = view.removeprefix("metric_")
        for suffix in ("", target):
            found[f"{short}{suffix}"] = _covered(rows[view], of, suffix, truth[view])
            found[f"{short} p{suffix}"] = float(np.mean(column(rows[view], f"{p}{suffix}") < 0.05))
    return found


def _covered(rows: Sequence[Row], of: str, suffix: str, truth: float) -> float:
    low, high = (column(rows, f"{of}_{end}{suffix}") for end in ("lo", "hi"))
    return float(np.mean(~(low > truth) & ~(high < truth)))
