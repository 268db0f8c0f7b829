"""Which pairs of items are asked, in which order, and how even the places came out.

Every choice is a number drawn from the seed and the two ids, smaller id first, so it is the same on
every machine and does not change when items are added. The one exception is the order `alternate`,
which balances places over all chosen pairs and so depends on all of them.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.study.spec import Order, PairsSpec

PAIRS_MAX: Final = 50_000_000
UNEVEN_SHOWN_MAX: Final = 5

Indices = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pairs:
    """The chosen pairs, as positions in the id-sorted list of items; one element per pair.

    `lo` < `hi` always. `lo_first` is the forward order; `has_reverse` says that the swapped order is
    asked too. Nine bytes and some per pair.
    """

    lo: Indices
    hi: Indices
    lo_first: Flags
    has_reverse: Flags
    n_possible: int

    def __len__(self) -> int:
        return len(self.lo)


@dataclass(frozen=True, slots=True)
class ItemBalance:
    """How often an item is shown, and how often in the first place."""

    item_id: str
    n_shown: int
    n_first: int

    @property
    def first_share(self) -> float:
        """The share of its showings in which the item stands first."""
        return self.n_first / self.n_shown


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly places came out, per prompt design; `uneven` holds the items furthest from half.

    `lo_first_share` is over all orders asked, `forward_lo_first_share` over the forward ones only.
    """

    n_forward: int
    n_reverse: int
    lo_first_share: float
    forward_lo_first_share: float
    first_share_min: float
    first_share_max: float
    uneven: tuple[ItemBalance, ...]


@dataclass(frozen=True, slots=True)
class Showings:
    """Every pair, direction and repeat that is asked, as positions; one array element each."""

    pair: Indices
    first: Indices
    second: Indices
    is_reverse: Flags
    repeat_no: Indices

    def __len__(self) -> int:
        return len(self.pair)


def pair_id(lo: str, hi: str) -> str:
    """Return the id of an unordered pair, forward and reverse alike; `lo` is the smaller id."""
    return ids.digest("pair", lo, hi)


def choose(item_ids: Sequence[str], spec: PairsSpec, seed: int) -> Pairs:
    """Return the pairs of a study; `item_ids` are sorted and different.

    Raises StudyError when nothing is left or the count passes what one study may hold.
    """
    n = len(item_ids)
    n_possible = n * (n - 1) // 2
    if n_possible > PAIRS_MAX:
        raise StudyError(
            f"{n:,} items make {n_possible:,} pairs; one study holds at most {PAIRS_MAX:,}",
            hint="split the items over several studies",
        )
    lo, hi = _chosen(item_ids, spec, seed)
    if not len(lo):
        raise StudyError(
            f"pairs.share = {spec.share} left none of {n_possible:,} pairs", hint="raise share, or give count instead"
        )
    lo_first = _forward_order(item_ids, lo, hi, spec.order, seed)
    return Pairs(lo, hi, lo_first, _reversed(item_ids, lo, hi, spec.reverse, seed), n_possible)


def _all(n: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n) for j in range(i + 1, n))


def _chosen(item_ids: Sequence[str], spec: PairsSpec, seed: int) -> tuple[Indices, Indices]:
    n = len(item_ids)
    if spec.count is None and spec.share in (None, 1.0):
        lo, hi = np.triu_indices(n, k=1)
        return lo.astype(np.int32), hi.astype(np.int32)
    draws = ((ids.unit_interval(seed, "pair", item_ids[i], item_ids[j]), i, j) for i, j in _all(n))
    if spec.count is not None:
        kept = sorted((i, j) for _, i, j in heapq.nsmallest(spec.count, draws))
        flat = array("i", [index for pair in kept for index in pair])
    else:
        share = spec.share or 1.0
        flat = array("i", (index for draw, i, j in draws if draw < share for index in (i, j)))
    both = np.frombuffer(flat, dtype=np.int32) if flat else np.empty(0, np.int32)
    return both[0::2].copy(), both[1::2].copy()


def _draws_below(item_ids: Sequence[str], lo: Indices, hi: Indices, what: str, share: float, seed: int) -> Flags:
    pairs = zip(lo.tolist(), hi.tolist(), strict=True)
    drawn = (ids.unit_interval(seed, what, item_ids[i], item_ids[j]) < share for i, j in pairs)
    return np.fromiter(drawn, np.bool_, count=len(lo))


def _forward_order(item_ids: Sequence[str], lo: Indices, hi: Indices, order: Order, seed: int) -> Flags:
    match order:
        case Order.RANDOM:
            return _draws_below(item_ids, lo, hi, "order", 0.5, seed)
        case Order.FIXED:
            return np.ones(len(lo), np.bool_)
        case Order.ALTERNATE:
            return _alternate(len(item_ids), lo, hi)


def _alternate(n_items: int, lo: Indices, hi: Indices) -> Flags:
    """The item that has stood first less often, net, stands first; ties go by the parity of the distance."""
    net = [0] * n_items
    lo_first = np.empty(len(lo), np.bool_)
    for k, (i, j) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
        is_lo_first = net[i] < net[j] or (net[i] == net[j] and (j - i) % 2 == 1)
        lo_first[k] = is_lo_first
        change = 1 if is_lo_first else -1
        net[i] += change
        net[j] -= change
    return lo_first


def _reversed(item_ids: Sequence[str], lo: Indices, hi: Indices, share: float, seed: int) -> Flags:
    if share in (0.0, 1.0):
        return np.full(len(lo), share == 1.0)
    return _draws_below(item_ids, lo, hi, "reverse", share, seed)


def showings(pairs: Pairs, repeats: int) -> Showings:
    """Return what is asked of chosen pairs: of each the forward repeats, then the reverse ones."""
    n_of_pair = (1 + pairs.has_reverse.astype(np.int32)) * repeats
    pair = np.repeat(np.arange(len(pairs), dtype=np.int32), n_of_pair)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(n_of_pair) - n_of_pair, n_of_pair)
    is_reverse = position >= repeats
    lo_first = pairs.lo_first[pair] ^ is_reverse
    lo, hi = pairs.lo[pair], pairs.hi[pair]
    repeat_no = (position % repeats + 1).astype(np.int32)
    return Showings(pair, np.where(lo_first, lo, hi), np.where(lo_first, hi, lo), is_reverse, repeat_no)


def balance(item_ids: Sequence[str], pairs: Pairs) -> Balance:
    """Return how evenly the chosen orders place each item first."""
    n = len(item_ids)
    forward_first = np.where(pairs.lo_first, pairs.lo, pairs.hi)
    reverse_first = np.where(pairs.lo_first, pairs.hi, pairs.lo)[pairs.has_reverse]
    n_first = np.bincount(forward_first, minlength=n) + np.bincount(reverse_first, minlength=n)
    both = np.concatenate([pairs.lo, pairs.hi, pairs.lo[pairs.has_reverse], pairs.hi[pairs.has_reverse]])
    n_shown = np.bincount(both, minlength=n)
    shown = np.flatnonzero(n_shown)
    shares = n_first[shown] / n_shown[shown]
    furthest = shown[np.argsort(-np.abs(shares - 0.5), kind="stable")[:UNEVEN_SHOWN_MAX]]
    uneven = tuple(ItemBalance(item_ids[k], int(n_shown[k]), int(n_first[k])) for k in furthest.tolist())
    n_forward, n_reverse = len(pairs), int(pairs.has_reverse.sum())
    n_lo_first = int(pairs.lo_first.sum()) + int((~pairs.lo_first & pairs.has_reverse).sum())
    return Balance(
        n_forward=n_forward,
        n_reverse=n_reverse,
        lo_first_share=n_lo_first / (n_forward + n_reverse),
        forward_lo_first_share=float(pairs.lo_first.mean()),
        first_share_min=float(shares.min()),
        first_share_max=float(shares.max()),
        uneven=tuple(item for item in uneven if item.n_first * 2 != item.n_shown),
    )
