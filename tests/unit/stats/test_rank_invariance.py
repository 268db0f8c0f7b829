"""Rankings are moved by what was voted and by nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from batchpond.stats import bradley_terry, ranking
from batchpond.stats import votes as win_table
from batchpond.stats.bradley_terry import Model, Penalty, Ties, fit, is_eta_estimable
from batchpond.stats.ranking import Cluster, Options
from batchpond.stats.votes import Votes, of_rows
from tests.oracles.agreement import MISSING, Level, Ratings, krippendorff
from tests.rigs.rank import drawn, largest, renamed
from tests.rigs.swept import examples

TOLERANCE = 1e-6
PLACES = [f"component_rank{end}" for end in ("", "_lo", "_hi", "_lo_joint", "_hi_joint")]

tables = st.builds(
    drawn,
    seed=st.integers(0, 10_000),
    n_items=st.integers(2, 9),
    n_votes=st.integers(1, 60),
    sd=st.sampled_from([0.0, 1.0, 5.0]),
    eta=st.sampled_from([0.0, 1.0]),
    ties=st.sampled_from([0.0, 0.2, 0.9]),
)
options = st.builds(
    Options,
    ties=st.sampled_from(Ties),
    has_position=st.booleans(),
    cluster=st.sampled_from(Cluster),
    is_full=st.just(False),
)


def same(one: object, other: object) -> bool:
    """Whether numbers agree, NaN with NaN."""
    return np.allclose(np.asarray(one, float), np.asarray(other, float), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


@settings(max_examples=examples(60))
@given(tables, options, st.integers(0, 1 << 30))
def test_names_do_not_matter(votes: Votes, how: Options, seed: int) -> None:
    """Items called otherwise keep theta, error, place, group and flags."""
    order = np.random.default_rng(seed).permutation(votes.n_items)
    one, other = ranking.rank(votes, how), ranking.rank(renamed(votes, order), how)
    assert same(one.theta, other.theta[order])
    assert same(one.se, other.se[order])
    assert same(one.component_rank, other.component_rank[order])
    assert [set(flags) for flags in one.flags] == [set(other.flags[place]) for place in order]
    assert len(one.components) == len(other.components)


@settings(max_examples=examples(60))
@given(tables, options)
def test_unrelated_items_change_nothing(votes: Votes, how: Options) -> None:
    """A further component leaves the others' numbers alone; only that ranks go across is no longer said."""
    n = votes.n_items
    pair = np.zeros((2, 3, 1))
    pair[0, 0], pair[1, 1] = 3, 2
    both = Votes(
        n + 2, np.r_[votes.lo, n], np.r_[votes.hi, n + 1], np.r_[votes.unit, 0],
        np.concatenate([votes.counts, pair], axis=2),
    )  # fmt: skip
    one, other = ranking.rank(votes, how), ranking.rank(both, how)
    for name in ("theta", "se", "theta_lo", "theta_hi", *PLACES):
        assert np.array_equal(getattr(one, name), getattr(other, name)[:n], equal_nan=True), name
    assert other.is_comparable is (len(one.components) == 0)


@settings(max_examples=examples(60))
@given(tables, st.booleans())
def test_exchanging_the_positions_turns_eta_and_nothing_else(votes: Votes, has_ties: bool) -> None:
    """With who was shown first exchanged everywhere, eta changes its sign and theta stays."""
    votes = largest(votes)
    if not is_eta_estimable(votes):
        return
    ties = Ties.DAVIDSON if has_ties else Ties.HALF
    turned = Votes(votes.n_items, votes.lo, votes.hi, votes.unit, votes.counts[::-1].copy())
    one, other = fit(votes, Model(ties, has_eta=True)), fit(turned, Model(ties, has_eta=True))
    assume(one.is_converged and other.is_converged)  # else nothing else is to be used, as the rank says: seed 16
    assert one.eta is not None
    assert other.eta is not None
    assert abs(one.eta + other.eta) < TOLERANCE
    assert same(one.theta, other.theta)


@settings(max_examples=40)
@given(st.integers(0, 1000))
def test_the_same_votes_twice_add_no_certainty(seed: int) -> None:
    """Doubling every vote leaves the plain estimate and its errors by pair; the model's errors shrink by sqrt 2."""
    votes = drawn(seed, 6, 300)
    assume(win_table.core(win_table.beats(votes)).is_whole)  # else there is no plain estimate: seed 785
    twice = Votes(6, votes.lo, votes.hi, votes.unit, 2 * votes.counts)
    one, other = (fit(table, Model(penalty=Penalty.NONE)) for table in (votes, twice))
    assert same(one.theta, other.theta)
    assert same(one.se, other.se * np.sqrt(2))
    assert same(bradley_terry.by_pair(one).covariance, bradley_terry.by_pair(other).covariance)


@settings(max_examples=examples(60))
@given(tables, options)
@example(drawn(seed=0, n_items=7, n_votes=16, sd=0.0, eta=0.0, ties=0.9), Options())  # every vote is a tie
@example(  # Newton's own first step is forty times what is taken of it
    drawn(seed=115, n_items=2, n_votes=19, sd=1.0, eta=0.0, ties=0.2), Options(ties=Ties.DROP, has_position=True)
)
@example(  # nearly flat along one direction: mixed steps wander
    drawn(seed=2735, n_items=8, n_votes=38, sd=5.0, eta=1.0, ties=0.2), Options(ties=Ties.DROP)
)
@example(drawn(seed=3247, n_items=8, n_votes=34, sd=5.0, eta=1.0, ties=0.9), Options(ties=Ties.DAVIDSON))
def test_every_number_that_is_shown_means_something(votes: Votes, how: Options) -> None:
    """Estimates are finite, centred, inside their intervals and places, or they are absent and flagged."""
    found = ranking.rank(votes, how)
    ranked = found.component > 0
    assert np.isfinite(found.theta[ranked]).all()
    assert (found.se[ranked] > 0).all()
    assert np.isnan(found.theta[~ranked]).all()
    assert all(ranking.Flag.NO_VOTES in found.flags[item] for item in np.flatnonzero(~ranked))
    lo = np.where(np.isnan(found.theta_lo), -np.inf, found.theta_lo)
    hi = np.where(np.isnan(found.theta_hi), np.inf, found.theta_hi)
    assert ((lo < found.theta) & (found.theta < hi))[ranked].all()
    places = np.stack([found.component_rank_lo, found.component_rank, found.component_rank_hi])
    assert (np.diff(places[:, ranked], axis=0) >= 0).all()
    joint = np.stack([found.component_rank_lo_joint, found.component_rank, found.component_rank_hi_joint])
    assert (np.diff(joint[:, ranked], axis=0) >= 0).all()
    for component in found.components:
        assert component.is_converged
        assert abs(float(found.theta[component.items].mean())) < TOLERANCE
        for ends in (places, joint):
            assert ends[:, component.items].min() >= 1
            assert ends[:, component.items].max() <= len(component.items)


@settings(max_examples=40)
@given(tables)
@example(drawn(seed=4, n_items=4, n_votes=5, sd=0.0, eta=1.0, ties=0.2))  # an estimate that runs away with its position
def test_a_full_summary_never_fails(votes: Votes) -> None:
    """Tests, ties' models and triads are there or absent; probabilities are probabilities."""
    for component in ranking.rank(votes, Options(is_full=True)).components:
        for p in (component.eta_p, component.eta_lr_p):
            assert p is None or 0 <= p <= 1
        assert component.nu is None or component.nu > 0
        assert component.triads is not None
        assert component.triads.n_cyclic <= component.triads.n_triads


@settings(max_examples=examples(60))
@given(tables)
def test_the_core_is_what_walks_along_wins_find(votes: Votes) -> None:
    """Groups, and who is above or below, equal the transitive closure's."""
    votes = largest(votes)
    matrix = win_table.beats(votes)
    reach = matrix | np.eye(len(matrix), dtype=bool)
    for _ in range(len(matrix)):
        reach = reach | (reach.astype(int) @ reach.astype(int) > 0)
    both = reach & reach.T
    found = win_table.core(matrix)
    assert found.n_groups == len({tuple(row) for row in both.tolist()})
    if found.is_whole:
        assert not (found.above | found.below).any()
    inside = np.flatnonzero(~(found.above | found.below))
    if len(inside):
        assert both[inside[0]].sum() == both.sum(axis=1).max()
        assert np.array_equal(~found.above, reach[inside[0]])
        assert np.array_equal(~found.below, reach[:, inside[0]])


@settings(max_examples=40)
@given(st.integers(0, 1000), st.sampled_from(Level))
def test_alpha_does_not_know_judges_or_units_by_name(seed: int, level: Level) -> None:
    """Units and judges in another order, and a unit with one rating more, leave alpha."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(MISSING, 3, (12, 4))
    values = np.array([0.0, 1.0, 5.0])
    alone = np.full((1, 4), MISSING)
    alone[0, 0] = 1
    moved = np.concatenate([codes[rng.permutation(12)][:, rng.permutation(4)], alone])
    one, other = krippendorff(Ratings(codes, values), level), krippendorff(Ratings(moved, values), level)
    assert (one is None) == (other is None)
    assert one is None or other is None or abs(one - other) < TOLERANCE


def test_joint_places_are_those_between_items_that_are_surely_apart() -> None:
    """By scipy's normal and every pair by itself; with two items they are the one test of their difference."""
    rng = np.random.default_rng(3)
    for n in (2, 3, 12):
        theta = rng.normal(0, 2, n)
        mixed = rng.normal(0, 0.4, (n, n))
        covariance = mixed @ mixed.T
        lo, hi = ranking.joint_rank_intervals(theta, covariance)
        z = norm.isf(0.025 / (n * (n - 1) / 2))
        for item in range(n):
            variances = [covariance[item, item] + covariance[j, j] - 2 * covariance[item, j] for j in range(n)]
            above = [theta[j] - theta[item] > z * np.sqrt(variances[j]) for j in range(n) if j != item]
            below = [theta[item] - theta[j] > z * np.sqrt(variances[j]) for j in range(n) if j != item]
            assert (lo[item], hi[item]) == (1 + sum(above), n - sum(below))


def test_of_one_pair_in_both_orders_each_order_is_a_share_of_its_own() -> None:
    """Theta and position fit both exactly: half a win and half a loss are added to each (Firth 1993)."""
    said = [(0, 1, "first")] * 11 + [(1, 0, "second")] * 3 + [(1, 0, "first")]
    votes = of_rows(2, *zip(*said, strict=True))  # type: ignore[arg-type]
    found = ranking.rank(votes, Options(has_position=True, is_full=False))
    first, second = np.log(11.5 / 0.5), np.log(3.5 / 1.5)
    assert found.theta[0] - found.theta[1] == pytest.approx((first + second) / 2)
    assert found.components[0].eta == pytest.approx((first - second) / 2)
