"""One ranking from one win table: each connected component on its own, its places, ties and weak spots."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Final

import numpy as np

from batchpond.stats import bradley_terry
from batchpond.stats import elo as ratings
from batchpond.stats import votes as win_table
from batchpond.stats.arrays import Z_95, Bools, Floats, Ints, p_two_sided
from batchpond.stats.bradley_terry import Fit, Model, Penalty, Ties, fit, is_eta_estimable, likelihood_ratio
from batchpond.stats.votes import HI_WON, LO_WON, TIED, Triads, Votes, per_item, triads

DRAWS: Final = 500
SAME: Final = 1e-7


def ranks(theta: Floats) -> Ints:
    """Return places from 1, the largest theta first; equal thetas share the better place."""
    order = np.argsort(-theta, kind="stable")
    is_new = np.r_[True, -np.diff(theta[order]) > SAME]
    result = np.empty(len(theta), dtype=np.int64)
    result[order] = np.maximum.accumulate(np.where(is_new, np.arange(1, len(theta) + 1), 0))
    return result


def rank_intervals(theta: Floats, covariance: Floats, *, seed: int) -> tuple[Ints, Ints]:
    """Return the places that hold 95 % of an item's ranks among draws from N(theta, covariance).

    Each interval is about its own item; `joint_rank_intervals` hold all at once. Draws follow the order of
    theta, so that naming items otherwise changes nothing.
    """
    order = np.argsort(-theta, kind="stable")
    spread = _root(covariance[np.ix_(order, order)])
    # Places are all that is asked of these numbers, and half the width takes half the time.
    noise = np.random.default_rng(seed).standard_normal((DRAWS, len(theta)), dtype=np.float32)
    drawn = theta[order].astype(np.float32) + noise @ spread.T.astype(np.float32)
    places = np.empty(drawn.shape, dtype=np.int32)
    np.put_along_axis(places, np.argsort(-drawn, axis=1), np.arange(1, len(theta) + 1, dtype=np.int32)[None, :], axis=1)
    places.sort(axis=0)
    tail = int(0.025 * DRAWS)
    own = ranks(theta)
    lo, hi = np.empty_like(own), np.empty_like(own)
    lo[order], hi[order] = places[tail], places[DRAWS - 1 - tail]
    return np.minimum(lo, own), np.maximum(hi, own)


def joint_rank_intervals(theta: Floats, covariance: Floats) -> tuple[Ints, Ints]:
    """Return the places that hold all items' ranks at once in 95 % of studies: those between the items surely apart.

    Surely apart are two items whose difference is beyond its normal interval, all pairs' intervals holding at once by
    Bonferroni (Klein, Wright and Wieczorek 2020, with the differences of Al Mohamad, Goeman and van Zwet 2022).
    """
    n = len(theta)
    own, z = np.diag(covariance), -NormalDist().inv_cdf(0.025 / max(n * (n - 1) // 2, 1))
    lo, hi = np.ones(n, dtype=np.int64), np.full(n, n)
    for item in range(n):
        gap = theta - theta[item]
        reach = SAME + z * np.sqrt(np.maximum(own + own[item] - 2 * covariance[item], 0.0))
        lo[item] += np.sum(gap > reach)
        hi[item] -= np.sum(-gap > reach)
    return lo, hi


def _root(covariance: Floats) -> Floats:
    """Return a matrix whose product with its transpose is the covariance, but for a shift that all items share."""
    level = float(np.trace(covariance)) / len(covariance) + 1e-12
    try:
        return np.asarray(np.linalg.cholesky(covariance + level / len(covariance)), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def tied_groups(theta: Floats, covariance: Floats) -> Ints:
    """Return groups from 1: from the top, items that do not differ at 95 % from the best of their group.

    Neighbours across the border of two groups need not differ: being tied is not transitive.
    """
    own = np.diag(covariance)
    group = np.zeros(len(theta), dtype=np.int64)
    best, number = -1, 0
    for item in np.argsort(-theta, kind="stable"):
        if best >= 0:
            variance = own[best] + own[item] - 2 * covariance[best, item]
            gap = theta[best] - theta[item]
        if best < 0 or (gap > SAME and gap > Z_95 * math.sqrt(max(variance, 0.0))):
            best, number = item, number + 1
        group[item] = number
    return group


@dataclass(frozen=True, slots=True)
class Separation:
    """How well items are told apart: 1 - mean(se^2) / var(theta), and how many strata that makes, (4 G + 1) / 3.

    Below 0 the estimates differ less than their errors, and there are no strata. It holds for pairs chosen
    without looking at earlier votes: adaptive rounds raise it even among equal items (.84 was seen).
    """

    reliability: float | None
    strata: float | None


def separation(theta: Floats, se: Floats) -> Separation:
    """Return the separation of one component's items; None for fewer than three, or when they are all equal."""
    if len(theta) < 3:
        return Separation(None, None)
    error, observed = float(np.mean(se**2)), float(np.var(theta, ddof=1))
    if not observed > SAME or not math.isfinite(error) or error <= 0:
        return Separation(None, None)
    reliability = 1 - error / observed
    strata = (4 * math.sqrt((observed - error) / error) + 1) / 3 if reliability > 0 else None
    return Separation(reliability, strata)


COMPARISONS_MIN: Final = 5
# With fewer clusters the sandwich alone covers too little (.91 of .95 for three or four items).
CLUSTERS_MIN: Final = 10
# The t quantile by powers of 1 / df, the highest first: to .002 from 3 degrees on (Fisher and Cornish 1960).
T_95: Final = (1.589, 2.5556, 2.8225, 2.3725, Z_95)
NOISE_MIN: Final = 1e-6  # errors below this share of the model's come from votes that show no noise
ELO_CENTRE: Final = 1500.0
ELO_PER_THETA: Final = 400 / math.log(10)


class Cluster(StrEnum):
    """Which votes may resemble each other: those on one pair, or those on one unit (prompt)."""

    PAIR = "pair"
    UNIT = "unit"


class Flag(StrEnum):
    """What to know about an item before believing its number."""

    NO_VOTES = "no_votes"
    UNBEATEN = "unbeaten"
    WINLESS = "winless"
    NO_UPPER_BOUND = "no_upper_bound"
    NO_LOWER_BOUND = "no_lower_bound"
    FEW_COMPARISONS = "few_comparisons"
    FEW_CLUSTERS = "few_clusters"
    BRIDGE = "bridge"
    NOT_COMPARABLE = "not_comparable"
    NOT_CONVERGED = "not_converged"


class Extra(StrEnum):
    """Estimates beside theta, for comparison with other tools."""

    ML = "ml"
    ELO = "elo"
    ELOCHOICE = "elochoice"
    TRUESKILL = "trueskill"


@dataclass(frozen=True, slots=True)
class Options:
    """How to rank. `is_full` adds what only the summary shows: tests, ties' models, triads.

    `has_position` estimates what being shown first adds, so that it is no part of theta, where the votes tell it; None
    does so where a pair was judged in both orders. At an effect of 1.5 intervals of theta hold it .84 of the time
    without the term and .96 with it; where there is no effect it widens them by 0 to 3 %. To test first, and have the
    term where it shows, holds too little where few pairs are reversed (.94).
    """

    ties: Ties = Ties.HALF
    has_position: bool | None = False
    cluster: Cluster = Cluster.PAIR
    seed: int = 0
    extras: frozenset[Extra] = frozenset()
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """What holds for all items of a component; see `Flag` and the modules of the parts for the meanings."""

    component_id: int
    items: Ints
    n_pairs: int
    n_pairs_unbalanced: int
    n_comparisons: int
    n_ties: int
    n_strong_groups: int
    mle_exists: bool
    is_converged: bool
    iterations: int
    score_max: float
    n_clusters: int
    separation: Separation
    has_position: bool
    eta: float | None = None
    eta_se: float | None = None
    eta_p: float | None = None
    eta_lr: float | None = None
    eta_lr_p: float | None = None
    is_eta_lr_penalised: bool | None = None
    nu: float | None = None
    rank_change_ties_dropped: int | None = None
    rank_change_ties_davidson: int | None = None
    triads: Triads | None = None


@dataclass(slots=True)
class Ranking:
    """Per item, in the order of their numbers: NaN and 0 stand for what does not exist.

    `component` is numbered from 1. `rank*` are places among all items, 0 unless every item with votes is in
    one component; `component_rank*` are places inside the component.
    """

    n_items: int
    components: list[Component]
    component: Ints
    theta: Floats
    se: Floats
    theta_lo: Floats
    theta_hi: Floats
    component_rank: Ints
    component_rank_lo: Ints
    component_rank_hi: Ints
    component_rank_lo_joint: Ints
    component_rank_hi_joint: Ints
    tied_group: Ints
    flags: list[list[Flag]]
    extras: dict[str, Floats]

    @property
    def is_comparable(self) -> bool:
        """Whether all items with votes can be compared."""
        return len(self.components) == 1


@dataclass(frozen=True, slots=True)
class _Estimate:
    """A component's thetas, the covariance that intervals rest on, and the ends that the data leave open."""

    fit: Fit
    covariance: Floats
    core: win_table.Core
    weak: bradley_terry.Sandwich

    @property
    def se(self) -> Floats:
        return np.sqrt(np.maximum(np.diag(self.covariance)[: len(self.fit.theta)], 0.0))


def rank(votes: Votes, options: Options | None = None) -> Ranking:
    """Rank items by their votes; items without votes have no number and a flag."""
    options = options or Options()
    counted = votes.without_ties() if options.ties is Ties.DROP else votes.decided()
    by_pair = counted.without_units()
    label = win_table.components(by_pair)
    result = _empty(label + 1)
    for number in range(int(label.max(initial=-1)) + 1):
        _rank_component(result, np.flatnonzero(label == number), counted, by_pair, options)
    for item in np.flatnonzero(label < 0):
        result.flags[item].append(Flag.NO_VOTES)
    if len(result.components) > 1:
        for item in np.flatnonzero(label >= 0):
            result.flags[item].append(Flag.NOT_COMPARABLE)
    if options.extras:
        _add_replays(result, by_pair, options)
    return result


def _empty(component: Ints) -> Ranking:
    n = len(component)
    theta, se, theta_lo, theta_hi = (np.full(n, np.nan) for _ in range(4))
    place, lo, hi, joint_lo, joint_hi, group = (np.zeros(n, dtype=np.int64) for _ in range(6))
    flags: list[list[Flag]] = [[] for _ in range(n)]
    return Ranking(n, [], component, theta, se, theta_lo, theta_hi, place, lo, hi, joint_lo, joint_hi, group, flags, {})


def _rank_component(result: Ranking, items: Ints, counted: Votes, by_pair: Votes, options: Options) -> None:
    own = by_pair.among(items)
    estimate = _estimate(own, counted.among(items), options)
    _flag(result, items, own, estimate)
    if estimate.fit.is_converged:
        _fill(result, items, estimate, options)
    result.components.append(_component(len(result.components) + 1, items, own, estimate, options))
    if Extra.ML in options.extras:
        theta, se = _plain(own, estimate, options)
        for name, values in (("theta_ml", theta), ("se_ml", se)):
            result.extras.setdefault(name, np.full(result.n_items, np.nan))[items] = values


def _model(votes: Votes, options: Options) -> Model:
    # Davidson's model without a tie is the plain one; nu would be a number from nothing.
    has_ties = bool(votes.results[TIED].any())
    ties = Ties.DAVIDSON if options.ties is Ties.DAVIDSON and has_ties else Ties.HALF
    is_wanted = options.has_position
    if is_wanted is None:
        is_wanted = bool(np.any(np.all(votes.counts.sum(axis=1) > 0, axis=0)))
    return Model(ties, has_eta=is_wanted and is_eta_estimable(votes))


def _estimate(votes: Votes, by_unit: Votes, options: Options) -> _Estimate:
    fitted = fit(votes, _model(votes, options))
    core = win_table.core(win_table.beats(votes))
    errors = _errors(fitted, by_unit, core.above | core.below, options)
    n = votes.n_items
    robust, plain = np.sqrt(np.diag(errors.covariance)[:n]), fitted.se
    if bool(np.any(robust <= NOISE_MIN * plain)):
        return _Estimate(fitted, fitted.covariance, core, errors)
    stretch = np.ones(len(errors.covariance))
    # Prompts that all but decide an item show less noise than there is, however many others there are.
    is_weak = errors.df is not None or errors.n_clusters < CLUSTERS_MIN
    stretch[:n] = _floor(robust / plain, core, is_small=is_weak)
    return _Estimate(fitted, errors.covariance * stretch[:, None] * stretch[None, :], core, errors)


def _floor(ratio: Floats, core: win_table.Core, *, is_small: bool) -> Floats:
    """Return what errors are stretched by that are `ratio` times the model's: it is their floor where they show none.

    Votes that all went one way show no noise, nor how far they resemble each other: as far as those on other items do.
    """
    is_open = core.above | core.below
    alike = max(float(np.median(ratio[~is_open])), 1.0) if not is_open.all() else 1.0
    return np.where(is_open, np.maximum(alike / ratio, 1.0), np.maximum(1 / ratio, 1.0) if is_small else 1.0)


def _errors(fitted: Fit, by_unit: Votes, separated: Bools, options: Options) -> bradley_terry.Sandwich:
    if not fitted.is_converged:
        nothing = np.zeros(fitted.votes.n_items, dtype=np.bool_)
        return bradley_terry.Sandwich(np.full_like(fitted.covariance, np.nan), 0, nothing)
    if options.cluster is Cluster.UNIT:
        return bradley_terry.by_unit(fitted, by_unit, separated=separated)
    return bradley_terry.by_pair(fitted, separated=separated)


def _fill(result: Ranking, items: Ints, estimate: _Estimate, options: Options) -> None:
    theta, se, n = estimate.fit.theta, estimate.se, len(items)
    result.theta[items], result.se[items] = theta, se
    df = np.inf if estimate.weak.df is None else estimate.weak.df[:n]
    reach = np.polyval(T_95, 1 / df) * se
    result.theta_lo[items] = np.where(estimate.core.below, np.nan, theta - reach)
    result.theta_hi[items] = np.where(estimate.core.above, np.nan, theta + reach)
    covariance = estimate.covariance[:n, :n]
    result.component_rank[items] = ranks(theta)
    lo, hi = rank_intervals(theta, covariance, seed=options.seed)
    result.component_rank_lo[items], result.component_rank_hi[items] = lo, hi
    lo, hi = joint_rank_intervals(theta, covariance)
    result.component_rank_lo_joint[items], result.component_rank_hi_joint[items] = lo, hi
    result.tied_group[items] = tied_groups(theta, covariance) + int(result.tied_group.max())


def _flag(result: Ranking, items: Ints, votes: Votes, estimate: _Estimate) -> None:
    lo_won, hi_won, tied = votes.results[LO_WON], votes.results[HI_WON], votes.results[TIED]
    n = votes.n_items
    wins, losses, ties = per_item(votes, lo_won, hi_won), per_item(votes, hi_won, lo_won), per_item(votes, tied, tied)
    is_small = np.full(n, estimate.weak.n_clusters < CLUSTERS_MIN)
    conditions: list[tuple[Flag, Bools]] = [
        (Flag.UNBEATEN, (losses == 0) & (ties == 0)),
        (Flag.WINLESS, (wins == 0) & (ties == 0)),
        (Flag.NO_UPPER_BOUND, estimate.core.above),
        (Flag.NO_LOWER_BOUND, estimate.core.below),
        (Flag.FEW_COMPARISONS, wins + losses + ties < COMPARISONS_MIN),
        (Flag.FEW_CLUSTERS, is_small),
        (Flag.BRIDGE, estimate.weak.is_at_bridge),
        (Flag.NOT_CONVERGED, np.full(n, not estimate.fit.is_converged)),
    ]
    for flag, holds in conditions:
        for item in items[holds]:
            result.flags[item].append(flag)


def _component(number: int, items: Ints, votes: Votes, estimate: _Estimate, options: Options) -> Component:
    fitted, by_order = estimate.fit, votes.counts.sum(axis=1)
    found = Component(
        component_id=number,
        items=items,
        n_pairs=len(votes.lo),
        n_pairs_unbalanced=int(np.sum(by_order[0] != by_order[1])),
        n_comparisons=round(float(votes.total.sum())),
        n_ties=round(float(votes.results[TIED].sum())),
        n_strong_groups=estimate.core.n_groups,
        mle_exists=estimate.core.is_whole,
        is_converged=fitted.is_converged,
        iterations=fitted.iterations,
        score_max=fitted.score_max,
        n_clusters=estimate.weak.n_clusters,
        separation=separation(fitted.theta, estimate.se),
        has_position=fitted.model.has_eta,
        nu=None if fitted.log_nu is None else math.exp(fitted.log_nu),
    )
    if not fitted.is_converged:
        return found
    if options.is_full:
        found, theta = _with_ties(found, votes, fitted)
        found = replace(found, triads=triads(votes, theta, seed=options.seed))
    return _with_position(found, votes, estimate, options)


def _with_position(found: Component, votes: Votes, estimate: _Estimate, options: Options) -> Component:
    """Add the position term: from the fit if it has one, from one more fit for the summary."""
    fitted, covariance, n = estimate.fit, estimate.covariance, votes.n_items
    if fitted.eta is None:
        if not options.is_full or options.has_position or not is_eta_estimable(votes):
            return found
        fitted = fit(votes, replace(fitted.model, has_eta=True), start=fitted.theta)
        if not fitted.is_converged or fitted.eta is None:
            return found
        # Units are not asked again: this is a check beside the ranking, by pair.
        covariance = bradley_terry.by_pair(fitted, separated=estimate.core.above | estimate.core.below).covariance
    eta, se = fitted.eta, math.sqrt(max(float(covariance[n, n]), float(fitted.covariance[n, n])))
    found = replace(found, eta=eta, eta_se=se, eta_p=p_two_sided(eta / se))
    if not options.is_full:
        return found
    ratio = likelihood_ratio(votes, fitted.model.ties, Penalty.NONE) if found.mle_exists else None
    is_penalised = ratio is None
    if ratio is None:
        ratio = likelihood_ratio(votes, fitted.model.ties, Penalty.FIRTH)
    if ratio is None:
        return found
    p = p_two_sided(math.sqrt(max(ratio, 0.0)))  # chi-square with one degree of freedom; below 0 it is by rounding
    return replace(found, eta_lr=ratio, eta_lr_p=p, is_eta_lr_penalised=is_penalised)


def _with_ties(found: Component, votes: Votes, fitted: Fit) -> tuple[Component, Floats]:
    """Add how far ranks move when ties are dropped, or modelled; returns too the theta that predicts decided votes."""
    theta = fitted.theta
    if not found.n_ties:
        return found, theta
    own = ranks(fitted.theta)
    modelled = fit(votes, replace(fitted.model, ties=Ties.DAVIDSON), start=fitted.theta)
    if modelled.is_converged and modelled.log_nu is not None:
        change = int(np.abs(ranks(modelled.theta) - own).max())
        found = replace(found, nu=math.exp(modelled.log_nu), rank_change_ties_davidson=change)
        theta = modelled.theta
    left = votes.without_ties()
    is_whole = not bool(np.any(win_table.components(left) != 0))
    if not is_whole or (fitted.model.has_eta and not is_eta_estimable(left)):
        return found, theta
    dropped = fit(left, replace(fitted.model, ties=Ties.HALF), start=fitted.theta)
    if not dropped.is_converged:
        return found, theta
    return replace(found, rank_change_ties_dropped=int(np.abs(ranks(dropped.theta) - own).max())), theta


def _plain(votes: Votes, estimate: _Estimate, options: Options) -> tuple[Floats, Floats]:
    nothing = np.full(votes.n_items, np.nan)
    if not estimate.core.is_whole or votes.n_items < 2:
        return nothing, nothing
    fitted = fit(votes, replace(_model(votes, options), penalty=Penalty.NONE), start=estimate.fit.theta)
    return (fitted.theta, fitted.se) if fitted.is_converged else (nothing, nothing)


def _add_replays(result: Ranking, votes: Votes, options: Options) -> None:
    """Add ratings over random orders of the votes; items without votes have none."""
    if not options.extras - {Extra.ML} or not len(votes.lo):
        return
    replay = ratings.replay_of(votes)
    shuffled = replay.shuffled(np.random.default_rng(options.seed))
    if Extra.ELO in options.extras:
        result.extras["elo"], result.extras["elo_sd"] = ratings.elo_shuffled(replay, seed=options.seed)
    if Extra.ELOCHOICE in options.extras:
        result.extras["elochoice"] = ratings.elochoice(shuffled).astype(np.float64)
    if Extra.TRUESKILL in options.extras:
        skill = ratings.trueskill(shuffled)
        result.extras |= {"trueskill_mu": skill.mu, "trueskill_sigma": skill.sigma}
    for name, values in result.extras.items():
        result.extras[name] = np.where(result.component > 0, values, np.nan)
