"""Intervals and tests keep what they promise on votes with a known truth (the long run is tests/sweeps/coverage.py)."""

from __future__ import annotations

import pytest

from tests.rigs import lists_planted
from tests.rigs.rank_planted import DESIGNS, Tally, play


@pytest.mark.parametrize("name", ["all pairs", "sparse", "by prompt"])
def test_intervals_cover_the_truth(name: str) -> None:
    """In 40 planted sets each, theta's, eta's and the places' 95 % intervals cover as they should."""
    tally = Tally()
    for seed in range(40):
        play(DESIGNS[name], seed, tally)
    # 40 sets are few: three standard errors of a rate with items as correlated as these.
    assert tally.rate("theta") > 0.9
    assert tally.rate("rank") > 0.9
    assert tally.rate("eta") > 0.8
    assert tally.rate("position_p") < 0.2


@pytest.mark.parametrize("name", ["all pairs, position", "by prompt, position"])
def test_intervals_cover_the_truth_where_the_first_shown_wins_more_often(name: str) -> None:
    """By default, as both orders were asked: with what being shown first adds left in they covered .84 and .90."""
    tally = Tally()
    for seed in range(40):
        play(DESIGNS[name], seed, tally)
    assert tally.rate("theta") > 0.92
    assert tally.rate("rank") > 0.9
    assert tally.rate("eta") > 0.8


def test_intervals_of_lists_cover_the_truth() -> None:
    """In four planted sets, those of what a list says of its items, of its places and of its pairs."""
    found = lists_planted.play(lists_planted.DESIGNS["orders of 4"], 4, 7)
    # 96 strengths and 16 places: three standard errors of a rate with items as correlated as these.
    assert found["theta"] > 0.85
    assert min(found["best_share"], found["mean_rank"]) > 0.7
    assert found["consistency"] > 0.5
