"""The win table: who beat whom how often, in which order of presentation, in which unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.errors import UsageError
from batchpond.stats.arrays import Floats, Ints

LO_FIRST: Final = 0
HI_FIRST: Final = 1
LO_WON: Final = 0
HI_WON: Final = 1
TIED: Final = 2


@dataclass(frozen=True, slots=True)
class Votes:
    """One row per unordered pair of items and unit; items are numbers from 0 to n_items - 1.

    `lo` < `hi` are the two items, shape (rows,); `counts` has shape (2, 3, rows): order of
    presentation (the lower item first, the higher first) by result (lower won, higher won, tie).
    `unit` numbers the prompt on which a pair was judged; all 0 where there is but one.
    """

    n_items: int
    lo: Ints
    hi: Ints
    unit: Ints
    counts: Floats

    def __post_init__(self) -> None:
        rows = self.lo.shape[0]
        shapes = (self.hi.shape, self.unit.shape, self.counts.shape) == ((rows,), (rows,), (2, 3, rows))
        if not shapes or not bool(np.all(self.lo < self.hi)) or bool(np.any(self.counts < 0)):
            raise UsageError("votes need one row per pair: lo < hi, a unit, and counts of shape (2, 3, rows) from 0 up")
        if rows and (int(self.lo.min()) < 0 or int(self.hi.max()) >= self.n_items):
            raise UsageError(f"votes name items outside 0 to {self.n_items - 1}")

    @property
    def results(self) -> Floats:
        """Wins of the lower item, wins of the higher, ties; shape (3, rows), both orders together."""
        return np.asarray(self.counts.sum(axis=0))

    @property
    def total(self) -> Floats:
        """Comparisons per row."""
        return np.asarray(self.counts.sum(axis=(0, 1)))

    def without_units(self) -> Votes:
        """Return one row per pair, units added up."""
        key = self.lo * self.n_items + self.hi
        if not self.unit.any() and bool(np.all(np.diff(key) > 0)):
            return self
        return _added_up(self.n_items, self.lo, self.hi, np.zeros_like(self.lo), self.counts)

    def without_ties(self) -> Votes:
        """Return the votes that name a winner; pairs without any are gone."""
        counts = self.counts.copy()
        counts[:, TIED] = 0
        return Votes(self.n_items, self.lo, self.hi, self.unit, counts).decided()

    def decided(self) -> Votes:
        """Return the rows with at least one vote."""
        kept = self.total > 0
        if bool(kept.all()):
            return self
        return Votes(self.n_items, self.lo[kept], self.hi[kept], self.unit[kept], self.counts[:, :, kept])

    def among(self, items: Ints) -> Votes:
        """Return the votes between some items (ascending), numbered by their place among them."""
        if len(items) == self.n_items:
            return self
        place = np.full(self.n_items, -1, dtype=np.int64)
        place[items] = np.arange(len(items))
        kept = (place[self.lo] >= 0) & (place[self.hi] >= 0)
        lo, hi = place[self.lo[kept]], place[self.hi[kept]]
        return Votes(len(items), lo, hi, self.unit[kept], self.counts[:, :, kept])


def of_rows(n_items: int, first: Sequence[int], second: Sequence[int], verdict: Sequence[str | None],
            unit: Sequence[int] | None = None) -> Votes:  # fmt: skip
    """Count judgments one by one: the items shown first and second, and `first`, `second` or `tie`.

    Other verdicts are no votes. Raises UsageError for an item compared with itself.
    """
    words = {"first": 0, "second": 1, "tie": 2}
    code = np.array([words.get(word or "", -1) for word in verdict], dtype=np.int64)
    a, b = np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
    units = np.zeros_like(a) if unit is None else np.array(unit, dtype=np.int64)
    if bool(np.any(a == b)):
        raise UsageError("an item cannot be compared with itself")
    is_vote = code >= 0
    a, b, units, code = a[is_vote], b[is_vote], units[is_vote], code[is_vote]
    is_lo_first = a < b
    order = np.where(is_lo_first, LO_FIRST, HI_FIRST)
    result = np.where(code == TIED, TIED, np.where((code == 0) == is_lo_first, LO_WON, HI_WON))
    counts = np.zeros((2, 3, len(a)))
    counts[order, result, np.arange(len(a))] = 1
    return _added_up(n_items, np.minimum(a, b), np.maximum(a, b), units, counts)


def per_item(votes: Votes, lo: Floats, hi: Floats) -> Floats:
    """Add up what each row says of its lower and of its higher item; shape (n_items,)."""
    n = votes.n_items
    return np.asarray(np.bincount(votes.lo, weights=lo, minlength=n) + np.bincount(votes.hi, weights=hi, minlength=n))


def _added_up(n_items: int, lo: Ints, hi: Ints, unit: Ints, counts: Floats) -> Votes:
    key = (unit * n_items + lo) * n_items + hi
    found, place = np.unique(key, return_inverse=True)
    summed = np.array(
        [[np.bincount(place, weights=row, minlength=len(found)) for row in order] for order in counts]
    ).reshape(2, 3, len(found))
    return Votes(n_items, found // n_items % n_items, found % n_items, found // n_items // n_items, summed)
