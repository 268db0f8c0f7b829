"""Which pairs a cell is asked next, by what its judge has said so far: pure, and the same for the same answers.

Round 1 is balanced: random matchings that connect all items. Each later round takes the pairs of the largest
information gain, and beside them some pairs held out at random, which no choice ever looks at (they alone say how
well the ranking foretells a judgment), and some asked in the other order. A pair is asked at most once in each order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.plan.items import Pairs, in_id_order
from batchpond.stats import adaptive, arrays, ranking, votes
from batchpond.stats.adaptive import Candidates
from batchpond.stats.arrays import Bools, Floats, Ints, Keys
from batchpond.stats.votes import Votes
from batchpond.study.spec import AdaptiveSpec, PairsSpec

ITEMS_MAX: Final = 5_000
JUDGMENTS_MAX: Final = 2_000_000
CAP_SHARE: Final = 1.5
SEEN_FACTOR: Final = 0.5
HELD_OUT_MIN: Final = 30
HELD_OUT_ROUNDS: Final = 10


class Purpose(StrEnum):
    """Why an adaptive round asks a pair; or that a row of another stage has the request too, whose one answer it is."""

    START = "start"
    GAIN = "gain"
    HOLDOUT = "holdout"
    REVERSE = "reverse"
    SHARED = "shared"


class Stop(StrEnum):
    """Why a cell is asked no further."""

    ROUNDS = "all rounds are asked"
    COUNT = "the count is reached"
    PAIRS = "no pair is left"
    SILENT = "the last round has no usable answer"
    PRECISE = "ranks are as narrow as asked for"
    STALE = "held-out judgments are foretold no better than two rounds ago"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a cell was asked so far, one element per judgment; items are their places in id order.

    `verdict` is first, second, tie, or None for what did not say.
    """

    first: Ints
    second: Ints
    purpose: Sequence[str]
    round_no: Ints
    verdict: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, str, int, str | None]]) -> Asked:
        """Return it from rows of (first, second, purpose, round_no, verdict)."""
        numbers = np.array([(first, second, round_no) for first, second, _, round_no, _ in rows], dtype=np.int64)
        first, second, round_no = numbers.reshape(-1, 3).T
        return cls(first, second, [row[2] for row in rows], round_no, [row[4] for row in rows])

    @property
    def rounds(self) -> list[int]:
        """The numbers of its rounds, ascending."""
        return sorted(set(self.round_no.tolist()))

    def votes(self, n_items: int, *, held_out: bool, until: int | None = None) -> Votes:
        """Return the judgments that were held out, or the others, up to a round."""
        chosen = [
            at
            for at, purpose in enumerate(self.purpose)
            if (purpose == Purpose.HOLDOUT) is held_out and (until is None or self.round_no[at] <= until)
        ]
        said = [self.verdict[at] for at in chosen]
        return votes.of_rows(n_items, self.first[chosen].tolist(), self.second[chosen].tolist(), said)


@dataclass(frozen=True, slots=True)
class Choice:
    """One judgment to ask for; `gain` is what it is expected to say, in nats, of pairs that were chosen by it."""

    first: int
    second: int
    purpose: Purpose
    is_reverse: bool = False
    gain: float | None = None


def keys_of(item_ids: Sequence[str]) -> Keys:
    """Return a number for each id, on which every draw about an item rests."""
    return np.array([ids.number("item", item_id) for item_id in item_ids], dtype=np.uint64)


def next_round(item_keys: Keys, asked: Asked, spec: PairsSpec, seed: int) -> list[Choice] | Stop:
    """Return what a cell is asked next, or why nothing; `seed` is the cell's own, below 2^63."""
    return _Cell(item_keys, asked, spec, seed).next()


def first_round(item_ids: Sequence[str], spec: PairsSpec, seed: int, stage: str) -> list[Choice]:
    """Return round 1 of a stage, the same for all its cells; raises StudyError for items that are too few or many."""
    n = len(item_ids)
    if not 2 <= n <= ITEMS_MAX:
        raise StudyError(
            f"stage {stage}: adaptive pairs are for 2 to {ITEMS_MAX:,} items, not {n:,}",
            hint="leave out `pairs.select`, or split the items over several studies",
        )
    found = next_round(keys_of(item_ids), Asked.of([]), spec, seed_of(seed, stage))
    return found if isinstance(found, list) else []


def pairs_of(n_items: int, choices: Sequence[Choice]) -> Pairs:
    """Return the pairs that a first round asks for, each in one order."""
    first, second = (np.array([getattr(c, name) for c in choices], np.int32) for name in ("first", "second"))
    return replace(in_id_order(first, second), n_possible=n_items * (n_items - 1) // 2)


def seed_of(seed: int, stage: str) -> int:
    """Return the seed of a stage's cells; it is one for all of them."""
    return ids.number("adaptive", seed, stage)


def check_size(stage: str, spec: PairsSpec, n_items: int, n_cells: int) -> None:
    """Raise StudyError where adaptive rounds of so many cells may ask for more than is chosen from at once."""
    if spec.adaptive is None:
        return
    n = sum(n_of_rounds(n_items, spec)) * n_cells
    if n > JUDGMENTS_MAX:
        raise StudyError(
            f"stage {stage}: adaptive rounds of {n_cells:,} cells may ask for {n:,} judgments; at most"
            f" {JUDGMENTS_MAX:,} are chosen in one stage",
            hint="set `pairs.count`, the most judgments of a cell, or split the models over several studies",
        )


def n_of_rounds(n_items: int, spec: PairsSpec) -> list[int]:
    """Return about how many judgments each round of a cell asks for; stopping early makes it fewer."""
    rules = spec.adaptive or AdaptiveSpec()
    n_left = min(n_items * (n_items - 1), spec.count or n_items * (n_items - 1))
    sizes = []
    for number in range(rules.rounds):
        size = _size(n_items, rules.first_per_item if number == 0 else rules.per_item)
        wanted = size if number == 0 else size + sum(_extra(size, spec))
        sizes.append(min(wanted, n_left))
        n_left -= sizes[-1]
    return [size for size in sizes if size]


def _size(n_items: int, per_item: int) -> int:
    return min(n_items * per_item // 2, n_items * (n_items - 1) // 2)


def _extra(n_chosen: int, spec: PairsSpec) -> tuple[int, int]:
    """Return how many pairs are held out and reversed beside so many chosen ones."""
    rules = spec.adaptive or AdaptiveSpec()
    return round(rules.holdout * n_chosen), round(spec.reverse * n_chosen)


class _Cell:
    def __init__(self, item_keys: Keys, asked: Asked, spec: PairsSpec, seed: int) -> None:
        self.item_keys, self.asked, self.spec, self.n = item_keys, asked, spec, len(item_keys)
        self.rules = spec.adaptive or AdaptiveSpec()
        self.seed = seed
        self.round_seed = ids.number("round", seed, len(asked.rounds)) >> 1
        self.keys = np.minimum(asked.first, asked.second) * self.n + np.maximum(asked.first, asked.second)
        self.pool = self._pool()
        self.net = np.bincount(asked.first, minlength=self.n) - np.bincount(asked.second, minlength=self.n)
        self.orders = dict(zip(*(part.tolist() for part in np.unique(self.keys, return_counts=True)), strict=True))
        self.lo_first = dict(zip(self.keys.tolist(), (asked.first < asked.second).tolist(), strict=True))

    def next(self) -> list[Choice] | Stop:
        rounds = self.asked.rounds
        if not rounds:
            return self._first()
        n_left = self.n * (self.n - 1) if self.spec.count is None else self.spec.count - len(self.asked)
        if len(rounds) >= self.rules.rounds:
            return Stop.ROUNDS
        if n_left <= 0:
            return Stop.COUNT
        if not any(self.asked.verdict[at] for at in np.flatnonzero(self.asked.round_no == rounds[-1]).tolist()):
            return Stop.SILENT
        training = self.asked.votes(self.n, held_out=False)
        found = adaptive.fit(training)
        stop = self._stop(found)
        return stop or self._chosen(found, training, n_left) or Stop.PAIRS

    def _first(self) -> list[Choice]:
        edges = adaptive.balanced(self.n, self.rules.first_per_item, self.round_seed, self.pool)
        pairs = list(zip(edges.lo.tolist(), edges.hi.tolist(), strict=True))
        if self.spec.count is not None and len(pairs) > self.spec.count:
            order = arrays.permutation(self.round_seed, len(pairs)).tolist()
            pairs = [pairs[at] for at in sorted(order[: self.spec.count])]
        return self._placed([(lo, hi, Purpose.START, None) for lo, hi in pairs])

    def _pool(self) -> Ints:
        """Return the pairs that are held out for good, in the order in which they are asked.

        How many does not depend on the number of rounds, so that a study that is given more asks nothing else.
        """
        each, _ = _extra(_size(self.n, self.rules.per_item), self.spec)
        n_possible = self.n * (self.n - 1) // 2
        wanted = min(HELD_OUT_ROUNDS * each, int(self.rules.holdout * n_possible))
        if not wanted:
            return np.empty(0, dtype=np.int64)
        share = min(1.0, (wanted + 6 * math.sqrt(wanted) + 10) / n_possible)
        found, numbers = self._drawn_below(share)
        if len(found) < wanted:
            found, numbers = self._drawn_below(1.0)
        return found[np.argsort(numbers, kind="stable")][:wanted]

    def _drawn_below(self, share: float) -> tuple[Ints, Floats]:
        seed = ids.number("holdout", self.seed)
        kept, numbers = [], []
        for lo in range(self.n - 1):
            drawn = arrays.of_pairs(self.item_keys[lo + 1 :], self.item_keys[lo : lo + 1], seed)
            hits = np.flatnonzero(drawn < share)
            kept.append(lo * self.n + lo + 1 + hits)
            numbers.append(drawn[hits])
        return np.concatenate(kept), np.concatenate(numbers)

    def _stop(self, found: adaptive.MapFit) -> Stop | None:
        if self._is_precise(found):
            return Stop.PRECISE
        return Stop.STALE if self._is_stale(found) else None

    def _is_precise(self, found: adaptive.MapFit) -> bool:
        """Whether neighbours are told apart, and ranks known, as well as asked for; not asked for, never."""
        rules = self.rules
        if rules.stop_gap_z is None and rules.stop_rank_width is None:
            return False
        order = np.argsort(-found.theta, kind="stable")
        covariance = found.covariance[np.ix_(order, order)]
        own = np.diag(covariance)
        spread = own[1:] + own[:-1] - 2 * np.diag(covariance, 1)
        gap_z = float(np.median(-np.diff(found.theta[order]) / np.sqrt(spread)))
        lo, hi = ranking.rank_intervals(found.theta, found.covariance, seed=self.round_seed)
        width = float(np.median(hi - lo + 1))
        is_apart = rules.stop_gap_z is None or gap_z >= rules.stop_gap_z
        return is_apart and (rules.stop_rank_width is None or width <= rules.stop_rank_width)

    def _is_stale(self, found: adaptive.MapFit) -> bool:
        """Whether the last two rounds foretell what was held out no better than the answers before them."""
        held_out, rounds = self.asked.votes(self.n, held_out=True), self.asked.rounds
        if not self.rules.stop_stale or len(rounds) < 3 or held_out.without_ties().total.sum() < HELD_OUT_MIN:
            return False
        earlier = [adaptive.fit(self.asked.votes(self.n, held_out=False, until=number)) for number in rounds[-3:-1]]
        losses = [found.log_loss for found in (adaptive.predict(fit, held_out) for fit in (*earlier, found)) if found]
        return min(losses[1:]) >= losses[0]

    def _chosen(self, found: adaptive.MapFit, training: Votes, n_left: int) -> list[Choice]:
        n_gain = _size(self.n, self.rules.per_item)
        if n_gain + sum(_extra(n_gain, self.spec)) > n_left:
            n_gain = max(1, int(n_left / (1 + self.rules.holdout + self.spec.reverse)))
        n_held_out, n_reverse = _extra(n_gain, self.spec)
        held_out = [(key, Purpose.HOLDOUT, None) for key in self.pool.tolist() if key not in self.orders][:n_held_out]
        reverse = [(key, Purpose.REVERSE, None) for key in self._once(training)[:n_reverse].tolist()]
        gain = self._by_gain(found, training, n_gain, {key for key, *_ in reverse})
        picked = [*gain, *held_out, *reverse][:n_left]
        return self._placed([(key // self.n, key % self.n, purpose, worth) for key, purpose, worth in picked])

    def _once(self, training: Votes) -> Ints:
        """Return the judged pairs that were asked in one order only, in random order."""
        keys = training.lo * self.n + training.hi
        keys = keys[[self.orders[key] == 1 for key in keys.tolist()]]
        drawn = arrays.of_pairs(self.item_keys[keys // self.n], self.item_keys[keys % self.n], self.round_seed)
        return np.asarray(keys[np.argsort(drawn, kind="stable")])

    def _by_gain(
        self, found: adaptive.MapFit, training: Votes, n_wanted: int, reversed_now: set[int]
    ) -> list[tuple[int, Purpose, float | None]]:
        lo, hi = adaptive.within_reach(found.theta, self.round_seed)
        keys = lo * self.n + hi
        spent = {key for key, n_orders in self.orders.items() if n_orders > 1}
        out = np.array(sorted(spent | reversed_now | set(self.pool.tolist())), dtype=np.int64)
        is_free: Bools = ~np.isin(keys, out)
        lo, hi, keys = lo[is_free], hi[is_free], keys[is_free]
        factor = np.where(np.isin(keys, training.lo * self.n + training.hi), SEEN_FACTOR, 1.0)
        # What knowing more of each item is worth: in ranks, or for who is at the top.
        top_k = self.rules.top_k
        worth_of = adaptive.crowding(found) if top_k is None else adaptive.top_openness(found, top_k, self.round_seed)
        factor *= worth_of[lo] + worth_of[hi]
        drawn = arrays.of_pairs(self.item_keys[lo], self.item_keys[hi], self.round_seed)
        cap = math.ceil(CAP_SHARE * self.rules.per_item)
        picked = adaptive.pick(found, Candidates(lo, hi, factor, drawn), n_wanted, cap)
        worth = picked.gain / factor[picked.place]
        return [
            (key, Purpose.GAIN, gain)
            for key, gain in zip(keys[picked.place].tolist(), worth.tolist(), strict=True)
        ]  # fmt: skip

    def _placed(self, pairs: Sequence[tuple[int, int, Purpose, float | None]]) -> list[Choice]:
        """Give each pair its order: the other one if it was asked, else who stood first less often is first."""
        lo, hi = (np.array([pair[at] for pair in pairs], dtype=np.int64) for at in (0, 1))
        lots = arrays.of_pairs(self.item_keys[lo], self.item_keys[hi], ids.number("order", self.seed))
        found = []
        for (a, b, purpose, gain), lot in zip(pairs, lots.tolist(), strict=True):
            key = a * self.n + b
            is_again = key in self.orders
            if is_again:
                is_lo_first = not self.lo_first[key]
            else:
                is_even = purpose is Purpose.HOLDOUT or self.net[a] == self.net[b]
                is_lo_first = lot < 0.5 if is_even else bool(self.net[a] < self.net[b])
            first, second = (a, b) if is_lo_first else (b, a)
            self.net[first] += 1
            self.net[second] -= 1
            found.append(Choice(first, second, purpose, is_again, gain))
        return found
