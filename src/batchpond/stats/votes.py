"""The win table, who beat whom how often, in which order and unit, and one pair's share of its likelihood.

The likelihood is that of Bradley-Terry, or of Davidson's model of ties, for all pairs at once. Each vote depends on
the items through u = theta_lo - theta_hi (+ eta when the lower item is shown first, - eta when the higher is): the
lower wins in proportion to e^(u/2), the higher to e^(-u/2), and a tie is e^lambda, with nu = e^lambda (Davidson 1970);
without ties that is the logistic P(lo) = 1/(1+e^-u). Both are exponential families in (u, lambda), which makes the
Jeffreys penalty (Firth 1993) explicit.

What a win table connects: components, those in which everybody can be overtaken, and circles among three items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchpond.errors import UsageError
from batchpond.stats.arrays import Bools, Floats, Ints, p_two_sided

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


def spread(
    votes: Votes,
    blocks: Sequence[Sequence[Floats]],
    at: tuple[Ints, Ints] | None = None,
    added_up: Callable[[Votes, Floats, Floats], Floats] = per_item,
) -> Floats:
    """Return a matrix in the items and all further parameters from what each row says of its gap and of these.

    `blocks` has them by row and column, the gap first, which is the lower item less the higher one. `at` are the rows'
    places in the matrix, both ways, for who knows them.
    """
    (pair, *columns), *further = blocks
    n = votes.n_items
    size = n + len(further)
    matrix = np.zeros((size, size))
    flat, (straight, turned) = matrix.reshape(-1), at or pair_places(votes, size)
    flat[straight] = flat[turned] = -pair
    matrix[np.arange(n), np.arange(n)] = added_up(votes, pair, pair)
    for place, (column, (_, *row)) in enumerate(zip(columns, further, strict=True), n):
        matrix[:n, place] = matrix[place, :n] = added_up(votes, column, -column)
        matrix[place, n:] = [block.sum() for block in row]
    return matrix


def pair_places(votes: Votes, size: int) -> tuple[Ints, Ints]:
    """Return where each pair stands in a flat matrix of so many parameters, and where turned around."""
    return votes.lo * size + votes.hi, votes.hi * size + votes.lo


def p_position(votes: Votes) -> float:
    """Return the p value that no position is favoured, by pairs judged in both orders; 1 where none tells.

    The sign-flip test of Mantel and Haenszel's terms by its normal approximation, as `sign_flip_z` in SQL.
    """
    counts = votes.counts
    n = np.maximum(counts[:, :TIED].sum(axis=(0, 1)), 1)
    first = counts[LO_FIRST, LO_WON] * counts[HI_FIRST, HI_WON] / n
    second = counts[LO_FIRST, HI_WON] * counts[HI_FIRST, LO_WON] / n
    spread = math.sqrt(float(np.sum((first - second) ** 2)))
    return p_two_sided(float(np.sum(first - second)) / spread) if spread else 1.0


def _added_up(n_items: int, lo: Ints, hi: Ints, unit: Ints, counts: Floats) -> Votes:
    key = (unit * n_items + lo) * n_items + hi
    found, place = np.unique(key, return_inverse=True)
    summed = np.array(
        [[np.bincount(place, weights=row, minlength=len(found)) for row in order] for order in counts]
    ).reshape(2, 3, len(found))
    return Votes(n_items, found // n_items % n_items, found % n_items, found // n_items // n_items, summed)


@dataclass(frozen=True, slots=True)
class Local:
    """Score and information of every row in u and, for Davidson's model, in lambda (None otherwise).

    `mean_u` and `p_tie` are the expectations of (wins_lo - wins_hi) / 2 and of ties per vote.
    """

    total: Floats
    score_u: Floats
    info_uu: Floats
    mean_u: Floats
    score_l: Floats | None = None
    info_ul: Floats | None = None
    info_ll: Floats | None = None
    p_tie: Floats | None = None

    @property
    def scores(self) -> list[Floats]:
        """Each row's score in gap, eta and, by order, lambda, as far as the model has them."""
        return [*_by_order(self.score_u), *([] if self.score_l is None else [self.score_l])]

    @property
    def informations(self) -> list[list[Floats]]:
        """Each row's information, by row and column, in what `scores` are of."""
        own, *across = _by_order(self.info_uu)
        found = [[own, *across], *([one, own] for one in across)]
        if self.info_ul is None or self.info_ll is None:
            return found
        column = _by_order(self.info_ul)
        return [*([*row, end] for row, end in zip(found, column, strict=True)), [*column, self.info_ll]]


def _by_order(values: Floats) -> list[Floats]:
    """Return what both orders say together and how much more the first says; what one says, where the order is none."""
    return [values[0]] if len(values) == 1 else [values[0] + values[1], values[0] - values[1]]


def local(results: Floats, u: Floats, log_nu: float | None) -> Local:
    """Return score and information at some predictors; without log_nu a tie is half a win for each side."""
    return half_ties(results, u) if log_nu is None else davidson(results, u, log_nu)


def half_ties(results: Floats, u: Floats) -> Local:
    """Return the logistic model's score and information; a tie is half a win for each side.

    `results` has the axis of LO_WON, HI_WON, TIED next to its last; `u` lacks that axis.
    """
    total = results.sum(axis=-2)
    mean_u = 0.5 * np.tanh(0.5 * u)
    won_less_lost = 0.5 * (results[..., LO_WON, :] - results[..., HI_WON, :])
    return Local(total, won_less_lost - total * mean_u, total * (0.25 - mean_u**2), mean_u)


def davidson(results: Floats, u: Floats, log_nu: float) -> Local:
    """Return the score and information of Davidson's model at nu = e^log_nu."""
    total = results.sum(axis=-2)
    top = np.maximum(np.abs(u) / 2, log_nu)
    lo, hi, tie = np.exp(u / 2 - top), np.exp(-u / 2 - top), np.exp(log_nu - top)
    whole = lo + hi + tie
    mean_u, p_tie = 0.5 * (lo - hi) / whole, tie / whole
    return Local(
        total=total,
        score_u=0.5 * (results[..., LO_WON, :] - results[..., HI_WON, :]) - total * mean_u,
        info_uu=total * (0.25 * (1 - p_tie) - mean_u**2),
        mean_u=mean_u,
        score_l=results[..., TIED, :] - total * p_tie,
        info_ul=-total * mean_u * p_tie,
        info_ll=total * p_tie * (1 - p_tie),
        p_tie=p_tie,
    )


def log_likelihood(results: Floats, u: Floats, log_nu: float | None) -> float:
    """Return the log-likelihood; without log_nu a tie is half a win for each side."""
    lo, hi = results[..., LO_WON, :], results[..., HI_WON, :]
    tie = results[..., TIED, :]
    if log_nu is None:
        return float(-np.sum((lo + tie / 2) * np.logaddexp(0, -u) + (hi + tie / 2) * np.logaddexp(0, u)))
    whole = np.logaddexp(np.logaddexp(u / 2, -u / 2), log_nu)
    return float(np.sum(lo * (u / 2 - whole) + hi * (-u / 2 - whole) + tie * (log_nu - whole)))


def firth_counts(
    local: Local, var_uu: Floats, var_ul: Floats | None, var_ll: Floats | float
) -> tuple[Floats, Floats, Floats]:
    """Return the votes (lower won, higher won, tie) that the Jeffreys penalty amounts to, row by row.

    `var_*` is the covariance of a row's (u, lambda) under the model. The score of the penalised likelihood is
    that of the votes and these together, as long as they are held fixed while it is taken.
    """
    if local.p_tie is None or var_ul is None:
        half = 0.5 * local.info_uu * var_uu
        return half, half, np.zeros_like(half)
    mean_u, p_tie = local.mean_u, local.p_tie

    def added(p: Floats, t_u: float, t_l: float) -> Floats:
        du, dl = t_u - mean_u, t_l - p_tie
        return np.asarray(0.5 * local.total * p * (du * du * var_uu + 2 * du * dl * var_ul + dl * dl * var_ll))

    p_lo, p_hi = 0.5 * (1 - p_tie) + mean_u, 0.5 * (1 - p_tie) - mean_u
    return added(p_lo, 0.5, 0.0), added(p_hi, -0.5, 0.0), added(p_tie, 0.0, 1.0)


def components(votes: Votes) -> Ints:
    """Return each item's component: items that votes connect, however indirectly.

    Components are numbered from 0 in the order of their first items; an item without any vote is -1.
    """
    judged = votes.decided()
    label = np.arange(votes.n_items)
    while True:
        lowest = np.minimum(label[judged.lo], label[judged.hi])
        following = label.copy()
        np.minimum.at(following, judged.lo, lowest)
        np.minimum.at(following, judged.hi, lowest)
        # A label is an item too: taking that item's label halves the way to the lowest one.
        following = following[following]
        if np.array_equal(following, label):
            break
        label = following
    has_votes = np.zeros(votes.n_items, dtype=np.bool_)
    has_votes[judged.lo] = has_votes[judged.hi] = True
    _, numbered = np.unique(label[has_votes], return_inverse=True)
    result = np.full(votes.n_items, -1, dtype=np.int64)
    result[has_votes] = numbered
    return result


def beats(votes: Votes) -> Bools:
    """Return who won against whom at least once, shape (items, items); a tie is half a win for both."""
    lo_won, hi_won = (votes.results[won] + votes.results[TIED] > 0 for won in (LO_WON, HI_WON))
    matrix = np.zeros((votes.n_items, votes.n_items), dtype=np.bool_)
    matrix[votes.lo[lo_won], votes.hi[lo_won]] = True
    matrix[votes.hi[hi_won], votes.lo[hi_won]] = True
    return matrix


@dataclass(frozen=True, slots=True)
class Core:
    """The largest group in which everybody beat everybody else through a chain of wins, and who stands outside.

    Ford (1957): the plain estimate exists only if one such group is all there is. Nothing bounds the distance
    of an item `above` from below it (there is no chain of losses back into the group), nor of one `below`;
    an item that no chain of wins connects either way is both. Without a single largest group, all are both.
    """

    n_groups: int
    above: Bools
    below: Bools

    @property
    def is_whole(self) -> bool:
        """Whether the plain estimate exists."""
        return self.n_groups == 1


def core(matrix: Bools) -> Core:
    """Find the core of one component from who beat whom."""
    groups = sorted(_strong_components(matrix), key=len)
    largest = groups[-1]
    is_single = len(groups) == 1 or len(groups[-2]) < len(largest)
    if len(largest) < 2 or not is_single:
        everybody = np.full(len(matrix), len(matrix) > 1)
        return Core(len(groups), everybody, everybody)
    everybody = np.ones(len(matrix), dtype=np.bool_)
    start = int(largest[0])
    is_beaten, beats_it = _reached(matrix, everybody, start), _reached(matrix.T, everybody, start)
    return Core(len(groups), ~is_beaten, ~beats_it)


def _strong_components(matrix: Bools) -> list[Ints]:
    left = np.ones(len(matrix), dtype=np.bool_)
    wins, losses = matrix.sum(axis=1), matrix.sum(axis=0)
    groups: list[Ints] = []
    while left.any():
        alone = np.flatnonzero(left & ((wins == 0) | (losses == 0)))
        group = alone[:1]
        if not len(alone):
            start = int(np.flatnonzero(left)[0])
            group = np.flatnonzero(_reached(matrix, left, start) & _reached(matrix.T, left, start))
        groups.append(group)
        left[group] = False
        wins -= matrix[:, group].sum(axis=1)
        losses -= matrix[group].sum(axis=0)
    return groups


def _reached(matrix: Bools, left: Bools, start: int) -> Bools:
    reached = np.zeros_like(left)
    reached[start] = True
    frontier = np.array([start])
    while len(frontier):
        new = matrix[frontier].any(axis=0) & left & ~reached
        reached |= new
        frontier = np.flatnonzero(new)
    return reached


SIMULATED_ITEMS_MAX: Final = 150
SIMULATIONS: Final = 400


@dataclass(frozen=True, slots=True)
class Triads:
    """Circles in the majority tournament; a triad counts when all its three pairs have a majority.

    `n_cyclic_expected` is what the fitted model expects, `p_cyclic_excess` the share of tournaments simulated
    from it with at least as many circles (None above SIMULATED_ITEMS_MAX items); `zeta` is Kendall and
    Babington Smith's coefficient (1940), for complete tournaments only.
    """

    n_triads: int
    n_cyclic: int
    n_cyclic_expected: float | None
    p_cyclic_excess: float | None
    zeta: float | None


def triads(votes: Votes, theta: Floats | None = None, *, seed: int = 0) -> Triads:
    """Count circles; with `theta`, also those that a Bradley-Terry model expects."""
    lo_wins, hi_wins = votes.results[LO_WON], votes.results[HI_WON]
    kept = lo_wins != hi_wins
    lo, hi, n = votes.lo[kept], votes.hi[kept], votes.n_items
    is_lo = lo_wins[kept] > hi_wins[kept]
    n_triads = round(_three(_tournament(n, lo, hi, np.ones(len(lo)), np.ones(len(lo)))) / 2)
    won = is_lo.astype(np.float64)
    n_cyclic = round(_three(_tournament(n, lo, hi, won, 1 - won)))
    complete = len(lo) == n * (n - 1) // 2 and n >= 3
    zeta = 1 - 24 * n_cyclic / (n**3 - (n if n % 2 else 4 * n)) if complete else None
    if theta is None or not n_triads:
        return Triads(n_triads, n_cyclic, None, None, zeta)
    share = _majority(theta[lo] - theta[hi], np.rint(lo_wins + hi_wins)[kept].astype(np.int64))
    expected = _three(_tournament(n, lo, hi, share, 1 - share))
    p_cyclic_excess = None
    if n <= SIMULATED_ITEMS_MAX:
        rng = np.random.default_rng(seed)
        drawn = (rng.random(len(lo)) < share for _ in range(SIMULATIONS))
        counts = [_three(_tournament(n, lo, hi, one.astype(np.float64), (~one).astype(np.float64))) for one in drawn]
        p_cyclic_excess = (1 + sum(count >= n_cyclic - 0.5 for count in counts)) / (1 + SIMULATIONS)
    return Triads(n_triads, n_cyclic, expected, p_cyclic_excess, zeta)


def _tournament(n: int, lo: Ints, hi: Ints, share_lo: Floats, share_hi: Floats) -> Floats:
    matrix = np.zeros((n, n))
    matrix[lo, hi], matrix[hi, lo] = share_lo, share_hi
    return matrix


def _three(matrix: Floats) -> float:
    """Return a third of the trace of the cube: directed walks around three items."""
    return float(np.sum((matrix @ matrix) * matrix.T)) / 3


def _majority(gap: Floats, n_votes: Ints) -> Floats:
    """Return the chance that the lower item has the majority of n votes, given that there is one."""
    result = np.empty(len(gap))
    for n in np.flatnonzero(np.bincount(n_votes)).tolist():  # `np.unique` would load numpy.ma
        at = n_votes == n
        k = np.arange(n + 1)
        log_choose = _log_factorial(n)[-1] - _log_factorial(n) - _log_factorial(n)[::-1]
        log_p = -np.logaddexp(0, -gap[at])[:, None] * k - np.logaddexp(0, gap[at])[:, None] * (n - k) + log_choose
        p = np.exp(log_p)
        won, lost = p[:, 2 * k > n].sum(axis=1), p[:, 2 * k < n].sum(axis=1)
        result[at] = won / (won + lost)
    return result


def _log_factorial(n: int) -> Floats:
    return np.asarray(np.r_[0.0, np.cumsum(np.log(np.arange(1, n + 1)))], dtype=np.float64)
