"""Degenerate votes give flags and absences, never a number that means nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from batchpond.errors import UsageError
from batchpond.stats import elo, votes
from batchpond.stats.bradley_terry import Ties, fit, is_eta_estimable
from batchpond.stats.ranking import Cluster, Extra, Flag, Options, rank, separation
from batchpond.stats.votes import Votes, triads
from tests.oracles import agreement
from tests.rigs.rank import drawn


def table(n_items: int, *judgments: tuple[int, int, str]) -> Votes:
    """Count judgments of (first, second, verdict)."""
    first, second, verdict = zip(*judgments, strict=True) if judgments else ((), (), ())
    return votes.of_rows(n_items, first, second, verdict)


def test_nothing_at_all() -> None:
    """No item, and no vote between items, make no component."""
    assert rank(table(0)).components == []
    found = rank(table(3, (0, 1, "unparsed")))
    assert found.components == []
    assert found.flags == [[Flag.NO_VOTES]] * 3
    assert np.isnan(found.theta).all()


def test_one_vote() -> None:
    """One vote orders two items; nothing says how far apart they are."""
    found = rank(table(2, (0, 1, "first")), Options(is_full=True, extras=frozenset(Extra)))
    assert found.theta[0] == pytest.approx(math.log(3) / 2)
    assert found.component_rank.tolist() == [1, 2]
    assert np.isnan([found.theta_lo, found.theta_hi]).all()
    assert {Flag.UNBEATEN, Flag.NO_UPPER_BOUND, Flag.NO_LOWER_BOUND, Flag.BRIDGE, Flag.FEW_COMPARISONS} <= set(
        found.flags[0]
    )
    (component,) = found.components
    assert (component.eta, component.eta_lr, component.nu) == (None, None, None)
    assert component.separation.reliability is None
    assert np.isnan(found.extras["theta_ml"]).all()


def test_a_position_that_always_wins() -> None:
    """With the first always chosen in both orders the items are equal, and eta is finite by the penalty alone."""
    judgments = [(a, b, "first") for a in range(4) for b in range(4) if a != b]
    found = rank(table(4, *judgments), Options(is_full=True, has_position=True))
    assert np.allclose(found.theta, 0)
    assert found.component_rank.tolist() == [1, 1, 1, 1]
    assert len(set(found.tied_group)) == 1
    (component,) = found.components
    assert component.eta is not None
    assert component.eta > 1
    assert component.is_eta_lr_penalised is True


def test_position_without_a_cycle_is_not_estimable() -> None:
    """On a chain of pairs in one order each, quality and position cannot be told apart."""
    chain = table(3, (0, 1, "first"), (1, 2, "first"), (0, 1, "second"))
    assert not is_eta_estimable(chain)
    assert rank(chain, Options(has_position=True, is_full=True)).components[0].eta is None
    assert is_eta_estimable(table(3, (0, 1, "first"), (1, 0, "first")).among(np.arange(2)))


def test_all_ties() -> None:
    """Only ties: equal items under the half rule, nothing at all when ties are dropped."""
    judgments = [(a, b, "tie") for a in range(3) for b in range(3) if a != b] * 2
    found = rank(table(3, *judgments), Options(is_full=True))
    assert np.allclose(found.theta, 0)
    assert found.components[0].rank_change_ties_dropped is None
    assert found.components[0].triads == triads(table(3, *judgments))
    assert rank(table(3, *judgments), Options(ties=Ties.DROP)).components == []


def test_a_total_order() -> None:
    """Without any upset the order is known and no distance is: every end is open."""
    judgments = [(a, b, "first") for a in range(6) for b in range(a + 1, 6)]
    found = rank(table(6, *judgments), Options(is_full=True))
    assert found.component_rank.tolist() == [1, 2, 3, 4, 5, 6]
    assert np.isnan([found.theta_lo, found.theta_hi]).all()
    assert not found.components[0].mle_exists
    assert found.components[0].n_strong_groups == 6


def test_a_pair_that_holds_the_graph_together_is_named() -> None:
    """The items at a bridge are flagged; their errors are the model's, not infinite."""
    triangle = [(a, b, word) for a, b in ((0, 1), (1, 2), (2, 0)) for word in ("first", "second", "first")]
    other = [(a + 3, b + 3, word) for a, b, word in triangle]
    found = rank(table(6, *triangle, *other, *[(0, 3, "first"), (3, 0, "first")] * 3))
    assert [Flag.BRIDGE in flags for flags in found.flags] == [True, False, False, True, False, False]
    assert np.isfinite(found.se).all()
    assert found.se.max() < 5


def test_a_unit_that_holds_the_graph_together() -> None:
    """Clustered by unit, a unit whose absence would cut the graph enters with the model's variance."""
    votes_by_unit = votes.of_rows(3, [0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1], ["first"] * 6, [0, 0, 1, 1, 2, 2])
    found = rank(votes_by_unit, Options(cluster=Cluster.UNIT))
    assert [Flag.BRIDGE in flags for flags in found.flags] == [False, True, True]
    assert np.isfinite(found.se).all()


def test_separation_needs_items_that_differ() -> None:
    """No reliability for two items or for equal ones; no strata where errors exceed the differences."""
    assert separation(np.array([1.0, -1.0]), np.array([0.1, 0.1])).reliability is None
    assert separation(np.zeros(5), np.ones(5)).reliability is None
    noisy = separation(np.array([0.1, 0.0, -0.1]), np.ones(3))
    assert noisy.reliability is not None
    assert noisy.reliability < 0
    assert noisy.strata is None


def test_fits_refuse_what_they_cannot_fit() -> None:
    """No votes, votes by unit and malformed tables are usage errors."""
    with pytest.raises(UsageError, match="needs votes"):
        fit(table(2))
    with pytest.raises(UsageError, match="one row per pair"):
        fit(drawn(1, 4, 50, unit_max=3))
    with pytest.raises(UsageError, match="lo < hi"):
        Votes(2, np.array([1]), np.array([0]), np.array([0]), np.zeros((2, 3, 1)))
    with pytest.raises(UsageError, match="outside"):
        Votes(1, np.array([0]), np.array([1]), np.array([0]), np.zeros((2, 3, 1)))


def test_too_many_votes_to_replay() -> None:
    """Replaying is bounded: beyond it an error says what to use instead."""
    many = np.zeros((2, 3, 1))
    many[0, 0, 0] = elo.REPLAYED_MAX + 1
    with pytest.raises(UsageError, match="too many to replay"):
        elo.replay_of(Votes(2, np.array([0]), np.array([1]), np.array([0]), many))


def test_agreement_without_anything_to_agree_on() -> None:
    """One judge, one category, or no common unit: no statistic."""
    alone = agreement.ratings(["a", "b"], ["j", "j"], ["x", "y"])
    assert agreement.krippendorff(alone) is None
    assert agreement.fleiss_kappa(alone) is None
    assert agreement.percent_agreement(alone) is None
    same = agreement.ratings(["a", "a", "b", "b"], ["j", "k"] * 2, ["x"] * 4)
    assert agreement.krippendorff(same) is None
    assert agreement.gwet_ac1(same) is None
    assert agreement.cohen_kappa(same).kappa is None
    assert agreement.krippendorff_interval(same, seed=1).lo is None
    apart = agreement.ratings(["a", "b"], ["j", "k"], ["x", "y"])
    assert agreement.cohen_kappa(apart) == agreement.Kappa(0, None, None, None)
    with pytest.raises(UsageError, match="twice"):
        agreement.ratings(["a", "a"], ["j", "j"], ["x", "y"])


def test_alphas_interval_holds_alpha_and_is_seeded() -> None:
    """The same seed draws the same interval; it lies around alpha."""
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 3, 80)
    codes = np.where(rng.random((80, 3)) < 0.7, truth[:, None], rng.integers(0, 3, (80, 3)))
    data = agreement.Ratings(codes, np.arange(3.0))
    one = agreement.krippendorff_interval(data, seed=5)
    assert one == agreement.krippendorff_interval(data, seed=5)
    assert one.lo is not None
    assert one.hi is not None
    assert one.alpha is not None
    assert one.lo < one.alpha < one.hi


def test_a_ring_has_errors_of_a_sane_size() -> None:
    """Where every pair all but holds the graph together, errors are the model's, not quotients by next to nothing."""
    n, rng = 200, np.random.default_rng(1)
    first = np.r_[np.arange(n), (np.arange(n) + 1) % n]
    second = np.r_[(np.arange(n) + 1) % n, np.arange(n)]
    words = rng.choice(["first", "second"], 2 * n)
    ring = votes.of_rows(n, first.tolist(), second.tolist(), words.tolist())
    found = rank(ring)
    assert all(Flag.BRIDGE in flags for flags in found.flags)
    assert np.allclose(found.se, fit(ring).se)
