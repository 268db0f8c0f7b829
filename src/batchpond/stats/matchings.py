"""The first round of an adaptive ranking: random matchings, so that everybody is compared equally often, connected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.stats import draws, graph
from batchpond.stats.arrays import Ints
from batchpond.stats.votes import Votes

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
    label = draws.permutation(seed, n).tolist()
    rounds = draws.permutation(seed + 1, n - 1).tolist()[:n_matchings]
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
            order = draws.permutation(seed + number * TRIES_MAX + attempt, n_items).tolist()
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
    order = draws.permutation(seed - 1, n_items)
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
    label = graph.components(Votes(n_items, lo, hi, np.zeros_like(lo), np.ones((2, 3, len(lo)))))
    alone = np.flatnonzero(label < 0)
    label[alone] = label.max(initial=-1) + 1 + np.arange(len(alone))
    return label


def _key(n_items: int, a: int, b: int) -> int:
    return min(a, b) * n_items + max(a, b)
