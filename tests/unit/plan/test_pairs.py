"""Pairs: drawn by hash, so stable; ordered fairly; and their balance told."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.plan.items import Pairs, balance, choose_pairs, pair_ids, showings
from batchpond.study.spec import Order, PairsSpec

id_sets = st.sets(st.text(min_size=1, max_size=6), min_size=2, max_size=14).map(sorted)
orders = st.sampled_from(Order)
KNOWN = {("a", "b"): (True, False), ("a", "c"): (False, True), ("a", "ø"): (False, True), ("b", "ø"): (True, True)}
KNOWN_PAIR_ID = "qnefpq6ml5xssgs5l3kmtzh2ac"
NAMES = [f"item-{number:04d}" for number in range(300)]


def drawn(names: list[str], pairs: Pairs) -> dict[tuple[str, str], tuple[bool, bool]]:
    """Return the chosen pairs by ids, with their order and whether they are reversed."""
    columns = (pairs.lo.tolist(), pairs.hi.tolist(), pairs.lo_first.tolist(), pairs.has_reverse.tolist())
    return {(names[lo], names[hi]): (first, back) for lo, hi, first, back in zip(*columns, strict=True)}


@given(id_sets, orders)
def test_all_pairs_are_all_combinations(names: list[str], order: Order) -> None:
    """Each unordered pair once, smaller id as lo."""
    pairs = choose_pairs(names, PairsSpec(order=order), 1)
    assert list(drawn(names, pairs)) == list(combinations(names, 2))
    assert pairs.n_possible == len(pairs) == len(names) * (len(names) - 1) // 2


@given(id_sets, st.text(min_size=1, max_size=6), st.integers(0, 9), st.floats(0.1, 1), st.floats(0, 1))
def test_adding_an_item_changes_no_earlier_draw(
    names: list[str], added: str, seed: int, share: float, reverse: float
) -> None:
    """Choice, order and reversal of an old pair stay; only pairs with the new item are added."""
    spec = PairsSpec(share=share, reverse=reverse)
    more = sorted({*names, added})
    try:
        before = drawn(names, choose_pairs(names, spec, seed))
    except StudyError:
        before = {}
    try:
        after = drawn(more, choose_pairs(more, spec, seed))
    except StudyError:
        after = {}
    assert before == {pair: how for pair, how in after.items() if pair[0] in names and pair[1] in names}


@given(id_sets, st.integers(1, 100), st.integers(0, 9))
def test_a_count_takes_the_smallest_draws(names: list[str], count: int, seed: int) -> None:
    """Exactly `count` pairs, or all; those with the smallest numbers; a larger count contains a smaller."""
    chosen = set(drawn(names, choose_pairs(names, PairsSpec(count=count), seed)))
    ranked = sorted(combinations(names, 2), key=lambda pair: ids.unit_interval(seed, "pair", *pair))
    assert chosen == set(ranked[:count])
    assert chosen <= set(drawn(names, choose_pairs(names, PairsSpec(count=count + 1), seed)))


@given(id_sets, st.one_of(st.none(), st.integers(1, 60)), orders, st.sampled_from([0.0, 0.4, 1.0]))
def test_the_balance_is_what_is_asked(names: list[str], count: int | None, order: Order, reverse: float) -> None:
    """The reported shares equal a count over every (pair, direction)."""
    pairs = choose_pairs(names, PairsSpec(count=count, order=order, reverse=reverse), 3)
    plan = showings(pairs, 1)
    found = balance(names, pairs)
    firsts, seconds = plan.first.tolist(), plan.second.tolist()
    shown = {k: firsts.count(k) + seconds.count(k) for k in {*firsts, *seconds}}
    shares = [firsts.count(k) / n for k, n in shown.items()]
    assert found.n_forward + found.n_reverse == len(plan.pair)
    assert found.lo_first_share == pytest.approx(np.mean(plan.first < plan.second))
    assert (found.first_share_min, found.first_share_max) == pytest.approx((min(shares), max(shares)))
    assert all(item.n_first * 2 != item.n_shown for item in found.uneven)
    if reverse == 1.0:
        assert found.lo_first_share == found.first_share_min == found.first_share_max == 0.5


@given(id_sets, st.one_of(st.none(), st.integers(1, 60)))
def test_alternate_balances_every_item(names: list[str], count: int | None) -> None:
    """Without any reversal each item stands first about half of the time, in samples too."""
    plan = showings(choose_pairs(names, PairsSpec(count=count, order=Order.ALTERNATE, reverse=0.0), 1), 1)
    net = np.bincount(plan.first, minlength=len(names)) - np.bincount(plan.second, minlength=len(names))
    assert np.abs(net).max() <= 3


def test_fixed_puts_the_smaller_id_first_and_random_does_so_half_of_the_time() -> None:
    """The three orders differ as they say, on 44,850 pairs."""
    shares = {order: balance(NAMES, choose_pairs(NAMES, PairsSpec(order=order, reverse=0.0), 1)) for order in Order}
    assert shares[Order.FIXED].lo_first_share == 1.0
    assert shares[Order.RANDOM].lo_first_share == pytest.approx(0.5, abs=0.01)
    assert shares[Order.ALTERNATE].first_share_min > 0.495
    assert shares[Order.ALTERNATE].first_share_max < 0.505


def test_shares_are_about_what_was_asked_and_differ_by_seed() -> None:
    """A tenth of the pairs, half of them reversed; another seed draws others."""
    one, two = (choose_pairs(NAMES, PairsSpec(share=0.1, reverse=0.5), seed) for seed in (1, 2))
    assert len(one) == pytest.approx(4_485, rel=0.1)
    assert one.has_reverse.mean() == pytest.approx(0.5, abs=0.05)
    assert drawn(NAMES, one).keys() != drawn(NAMES, two).keys()


def test_draws_are_the_same_on_every_machine() -> None:
    """Known numbers: a change of the draw would silently ask other pairs."""
    pairs = choose_pairs(["a", "b", "c", "ø"], PairsSpec(share=0.5, reverse=0.5), 7)
    assert drawn(["a", "b", "c", "ø"], pairs) == KNOWN
    assert pair_ids(["a"], ["b"]).to_pylist() == [KNOWN_PAIR_ID]


def test_asks_are_forward_repeats_then_reverse_repeats() -> None:
    """A reverse ask swaps the items of its forward ask and belongs to the same pair."""
    pairs = choose_pairs(["a", "b", "c"], PairsSpec(order=Order.FIXED, reverse=1.0, repeats=2), 1)
    plan = showings(pairs, 2)
    rows = list(zip(plan.pair.tolist(), plan.first.tolist(), plan.second.tolist(), plan.is_reverse.tolist(),
                    plan.repeat_no.tolist(), strict=True))  # fmt: skip
    assert rows[:4] == [(0, 0, 1, False, 1), (0, 0, 1, False, 2), (0, 1, 0, True, 1), (0, 1, 0, True, 2)]
    assert len(rows) == 12


def test_an_empty_draw_is_refused() -> None:
    """A share that leaves nothing is an error, not an empty study."""
    with pytest.raises(StudyError, match="left none of 1 pairs"):
        choose_pairs(["a", "b"], PairsSpec(share=1e-9), 1)


def calls_of(n_items: int) -> tuple[int, int]:
    """Return how many calls it takes to choose and measure all pairs of so many items, and how many those are."""
    names = [f"i{number:04d}" for number in range(n_items)]
    n_calls = 0

    def see(_frame: object, event: str, _argument: object) -> None:
        nonlocal n_calls
        n_calls += event in {"call", "c_call"}

    sys.setprofile(see)
    try:
        pairs = choose_pairs(names, PairsSpec(), 1)
        balance(names, pairs)
    finally:
        sys.setprofile(None)
    return n_calls, len(pairs)


def test_pairs_are_chosen_and_measured_in_linear_time() -> None:
    """Sixteen times as many pairs take no more calls a pair."""
    (few_calls, n_few), (many_calls, n_many) = calls_of(100), calls_of(400)
    assert (n_few, n_many) == (4_950, 79_800)
    assert many_calls / n_many <= few_calls / n_few
