"""Bradley-Terry by Newton's method on the win table: Firth-penalised, plain, or with a normal prior.

One connected component at a time; theta is centred. Checked against R: glm, brglm2 (AS_mean), and the
Poisson log-linear form of Davidson's model. There is no Bayesian fit beside it: Firth's estimate is the
posterior mode under Jeffreys' prior, and Laplace's approximation there has the covariance of the information,
which votes on one pair that resemble each other make too small.

The standard errors of `by_pair` and `by_unit` hold when votes on one pair (or one prompt) resemble each other. They are
CR3 (Bell and McCaffrey 2002): each cluster's score is divided by one minus its leverage, which is what leaving the
cluster out would do. A cluster whose absence would cut the graph in two has leverage 1, and one that all but holds it
together (in a ring of many items, each) nearly so: the data cannot say how such clusters vary, and dividing by next to
nothing gives any number. They enter with the variance of the model, and are reported. So do votes on items that are
separated, for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from batchpond.errors import UsageError
from batchpond.stats import votes as likelihood
from batchpond.stats.arrays import Bools, Floats, Ints, solved
from batchpond.stats.votes import HI_WON, LO_WON, TIED, Local, Votes, per_item

ITERATIONS_MAX: Final = 300
STEP_TOLERANCE: Final = 1e-9
STEP_MAX: Final = 3.0
# A step with an old information matrix is cheap; when it gains less than this a new matrix pays.
CHORD_GAIN: Final = 0.3
CHORD_STEPS_MAX: Final = 8
# The penalty moves with the place: to go further than it does is to aim at what moves.
CHORD_DEPTH: Final = 1e-4
# From so many items on, an inverse takes longer than to walk near the place where one inverse is enough.
APPROACHED_MIN: Final = 200
APPROACH_STEPS_MAX: Final = 8
APPROACH_TOLERANCE: Final = 1e-5
HALVINGS_MAX: Final = 20
LEVERAGE_SMALL: Final = 0.05
MIXED_STEP_MAX: Final = 0.1
MIXED_STEPS: Final = 30  # where the penalised likelihood is nearly flat, what is mixed wanders for ever
MIXED_MAX: Final = 5
ETA_INFORMATION_MIN: Final = 1e-9


class Ties(StrEnum):
    """What a tie counts for."""

    HALF = "half"
    DAVIDSON = "davidson"
    DROP = "drop"


class Penalty(StrEnum):
    """What keeps estimates finite: Jeffreys' penalty (Firth 1993), or nothing."""

    FIRTH = "firth"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Model:
    """What to fit; `is_eta_zero` keeps the position term at 0 but penalises as if it were free."""

    ties: Ties = Ties.HALF
    has_eta: bool = False
    penalty: Penalty = Penalty.FIRTH
    is_eta_zero: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model: `covariance` is that of (theta, eta, log_nu), by the information, theta centred.

    `score_max` is the largest component of the (penalised) score. Where `is_converged` is False nothing
    else is to be used.
    """

    model: Model
    votes: Votes
    theta: Floats
    eta: float | None
    log_nu: float | None
    covariance: Floats
    score_max: float
    iterations: int
    is_converged: bool

    @property
    def se(self) -> Floats:
        """Standard errors of theta by the information matrix, as if every vote were independent."""
        return np.sqrt(np.diag(self.covariance)[: len(self.theta)])


def fit(votes: Votes, model: Model | None = None, start: Floats | None = None) -> Fit:
    """Fit one connected component; `start` is a theta to begin from.

    The plain estimate need not exist: then `is_converged` is False. Raises UsageError for votes
    with units (fit needs one row per pair: `without_units`), or with no vote at all.
    """
    newton = _Newton(votes, model or Model())
    return newton.run(start)


def likelihood_ratio(votes: Votes, ties: Ties = Ties.HALF, penalty: Penalty = Penalty.NONE) -> float | None:
    """Return the likelihood ratio statistic (chi-square, 1 df) of the position term; None where it has no estimate.

    Penalised, the two fits share the penalty of the larger model (Heinze and Schemper 2002), so that they are nested.
    """
    free = fit(votes, Model(ties, has_eta=True, penalty=penalty))
    if not free.is_converged:
        return None
    held = fit(votes, Model(ties, has_eta=True, penalty=penalty, is_eta_zero=True), start=free.theta)
    if not held.is_converged:
        return None
    larger = _Newton(votes, free.model)
    return max(2 * (larger.objective(free) - larger.objective(held)), 0.0)


def is_eta_estimable(votes: Votes) -> bool:
    """Whether a connected component's votes tell a position effect from the items' qualities.

    They do when a pair was judged in both orders, or when the orders around some cycle of pairs do not cancel.
    """
    by_order = votes.counts.sum(axis=1)
    if bool(np.any(np.all(by_order > 0, axis=0))):
        return True
    newton = _Newton(votes, Model(has_eta=True))
    matrix = newton._information(newton._local(np.zeros(newton.size), newton.results))
    n = votes.n_items
    matrix[:n, :n] += np.trace(matrix[:n, :n]) / n**2
    explained = matrix[n, :n] @ np.linalg.solve(matrix[:n, :n], matrix[:n, n])
    return bool(matrix[n, n] - explained > ETA_INFORMATION_MIN * matrix[n, n])


def log_likelihood(fitted: Fit) -> float:
    """Return the log-likelihood of a fit, without any penalty."""
    results = results_by_order(fitted.votes, has_eta=fitted.eta is not None)
    return likelihood.log_likelihood(results, predictors(fitted.votes, fitted.theta, fitted.eta), fitted.log_nu)


def predictors(votes: Votes, theta: Floats, eta: float | None) -> Floats:
    """Return u of every pair, shape (orders, rows): one order without position term, else both."""
    gap = theta[votes.lo] - theta[votes.hi]
    return gap[None, :] if eta is None else np.stack([gap + eta, gap - eta])


def results_by_order(votes: Votes, *, has_eta: bool) -> Floats:
    """Return the counts that `predictors` speaks of, shape (orders, 3, rows)."""
    return votes.counts if has_eta else votes.results[None]


def gap_covariances(votes: Votes, covariance: Floats, at_pair: Ints) -> list[Floats]:
    """Return the variance of each row's gap, and its covariance with each further parameter."""
    lo, hi, own = votes.lo, votes.hi, np.diag(covariance)
    further = (covariance[lo, at] - covariance[hi, at] for at in range(votes.n_items, len(covariance)))
    return [own[lo] + own[hi] - 2 * covariance.reshape(-1)[at_pair], *further]


class _Newton:
    """The iteration: parameters are theta, then eta and log_nu where the model has them."""

    def __init__(self, votes: Votes, model: Model) -> None:
        if model.ties is Ties.DROP:
            votes = votes.without_ties()
        if not len(votes.lo) or np.any(np.diff(votes.lo * votes.n_items + votes.hi) <= 0):
            raise UsageError("a fit needs votes, one row per pair in order of the items")
        self.votes, self.model, self.n = votes, model, votes.n_items
        self.results = results_by_order(votes, has_eta=model.has_eta)
        self.at_eta = self.n if model.has_eta else None
        self.at_nu = self.n + model.has_eta if model.ties is Ties.DAVIDSON else None
        self.size = self.n + model.has_eta + (self.at_nu is not None)
        # Flat places and sums over runs of equal items take a fifth of the time of their plain forms.
        self.at_pair = likelihood.pair_places(votes, self.size)
        self.lo_starts = np.flatnonzero(np.r_[True, np.diff(votes.lo) > 0])

    def run(self, start: Floats | None) -> Fit:
        """Iterate until a step with the information matrix of the very place is nothing."""
        beta = np.zeros(self.size)
        beta[: self.n] = self._start() if start is None else start - start.mean()
        if self.n >= APPROACHED_MIN:
            beta = self._approach(beta)
        mixer = _Mixer()
        covariance, gradient = np.full((self.size, self.size), np.nan), np.zeros(self.size)
        for iteration in range(1, ITERATIONS_MAX + 1):
            local = self._local(beta, self.results)
            try:
                covariance = self._inverse(local)
                counts = self._penalised(local, covariance)
                inverse = self._of_penalised(beta, counts, covariance)
                step, gradient = self._step(beta, counts, inverse)
                size = float(np.abs(step).max())
                if not np.isfinite(size):
                    break
                if size < STEP_TOLERANCE:
                    return self._fit(beta, covariance, gradient, iteration, is_done=True)
                after = self._onward(beta, (step, gradient), counts, inverse)
            except np.linalg.LinAlgError:
                break
            # Mixing extrapolates, which is wrong where Newton's own steps are: far away, and without a penalty.
            is_near = size < MIXED_STEP_MAX and self.model.penalty is Penalty.FIRTH
            beta = mixer.mixed(beta, after) if is_near and iteration <= MIXED_STEPS else after
        return self._fit(beta, covariance, gradient, ITERATIONS_MAX, is_done=False)

    def _of_penalised(self, beta: Floats, counts: Floats, covariance: Floats) -> Floats:
        """Return the inverse information of the votes with the penalty's: steps without it overshoot on few votes."""
        if self._added(counts) < LEVERAGE_SMALL:
            return covariance
        return self._inverse(self._local(beta, counts))

    def _added(self, counts: Floats) -> float:
        total = counts.sum(axis=1)
        return float(((total - self.results.sum(axis=1)) / np.maximum(total, 1.0)).max())

    def _onward(self, beta: Floats, move: tuple[Floats, Floats], counts: Floats, inverse: Floats) -> Floats:
        """Take a step, shorter where it overshoots, and further ones with the same matrix while they gain."""
        step, gradient = move
        first = float(np.abs(step).max())
        share, slope = min(1.0, STEP_MAX / first), float(gradient @ step)
        for _ in range(HALVINGS_MAX):
            move = self._step(beta + share * step, counts, inverse)
            # The penalty held fixed, the likelihood is concave: beyond its top along the step, it falls.
            if float(move[1] @ step) >= -0.5 * slope:
                break
            share /= 2
        beta, last = beta + share * step, share * first  # what is gained on is the step that was taken
        for _ in range(CHORD_STEPS_MAX):
            size = float(np.abs(move[0]).max())
            is_deep = size < CHORD_DEPTH * first and self.model.penalty is Penalty.FIRTH
            if is_deep or not size < CHORD_GAIN * last:
                break
            beta, last = beta + move[0], size
            move = self._step(beta, counts, inverse)
        return beta

    def _approach(self, beta: Floats) -> Floats:
        """Return a place near the estimate: Newton's steps by conjugate gradients, the penalty's size guessed.

        Only where votes outweigh the penalty by far: elsewhere it can have several tops (a ring's has), and
        the one above the start is the one to climb.
        """
        start, size_first = beta, np.inf
        for _ in range(APPROACH_STEPS_MAX):
            local = self._local(beta, self.results)
            matrix = self._information(local)
            counts = self._guessed(local, np.diag(matrix))
            if not self._added(counts) < LEVERAGE_SMALL:
                return start
            if self.model.penalty is Penalty.FIRTH:
                local = self._local(beta, counts)
            gradient = self._gradient(local)
            if self.model.is_eta_zero and self.at_eta is not None:
                matrix[self.at_eta] = matrix[:, self.at_eta] = gradient[self.at_eta] = 0.0
            step = solved(matrix, gradient)
            size = float(np.abs(step).max())
            if not size < 2 * size_first:
                return start
            size_first = min(size, size_first)
            beta = beta + min(1.0, STEP_MAX / size) * step if size else beta
            if size < APPROACH_TOLERANCE:
                break
        beta[: self.n] -= beta[: self.n].mean()
        return beta

    def _guessed(self, local: Local, own: Floats) -> Floats:
        """Return the votes with roughly those of the penalty, as if every parameter stood alone."""
        inverse = 1 / np.maximum(own, LEVERAGE_SMALL)
        eta = 0.0 if self.at_eta is None else float(inverse[self.at_eta])
        var = (inverse[self.votes.lo] + inverse[self.votes.hi] + eta) * np.ones_like(local.total)
        if self.at_nu is None:
            added = likelihood.firth_counts(local, var, None, 0.0)
        else:
            added = likelihood.firth_counts(local, var, np.zeros_like(var), float(inverse[self.at_nu]))
        return self.results + np.stack(added, axis=1)

    def _start(self) -> Floats:
        votes, results = self.votes, self.votes.results
        lo_wins, hi_wins = results[LO_WON] + results[TIED] / 2, results[HI_WON] + results[TIED] / 2
        wins = per_item(votes, lo_wins, hi_wins)
        losses = per_item(votes, hi_wins, lo_wins)
        theta = np.log((wins + 0.5) / (losses + 0.5))
        return np.asarray(theta - theta.mean())

    def _local(self, beta: Floats, counts: Floats) -> Local:
        u = predictors(self.votes, beta[: self.n], None if self.at_eta is None else float(beta[self.at_eta]))
        return likelihood.local(counts, u, None if self.at_nu is None else float(beta[self.at_nu]))

    def _information(self, local: Local) -> Floats:
        return likelihood.spread(self.votes, local.informations, self.at_pair, self._per_item)

    def _inverse(self, local: Local) -> Floats:
        """Return the covariance: the inverse on the space where thetas add up to 0."""
        matrix, n = self._information(local), self.n
        level = float(np.trace(matrix[:n, :n])) / n**2
        matrix[:n, :n] += level
        inverse = np.linalg.inv(matrix)
        inverse[:n, :n] -= 1 / (level * n**2)
        return np.asarray(inverse, dtype=np.float64)

    def _penalised(self, local: Local, covariance: Floats) -> Floats:
        if self.model.penalty is Penalty.NONE:
            return self.results
        return self.results + np.stack(likelihood.firth_counts(local, *self._variances(covariance)), axis=1)

    def _per_item(self, votes: Votes, lo: Floats, hi: Floats) -> Floats:
        """Add up what each row says of its lower and of its higher item, as `votes.per_item` does."""
        result = np.bincount(votes.hi, weights=hi, minlength=self.n)
        result[votes.lo[self.lo_starts]] += np.add.reduceat(lo, self.lo_starts)
        return np.asarray(result, dtype=np.float64)

    def _gradient(self, local: Local) -> Floats:
        pair, *further = local.scores
        return np.asarray(np.r_[self._per_item(self.votes, pair, -pair), [one.sum() for one in further]])

    def _step(self, beta: Floats, counts: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        gradient = self._gradient(self._local(beta, counts))
        # Not by `@`: for so little work, waking its threads takes longer than the work.
        step = np.einsum("ij,j->i", covariance, gradient)
        if self.model.is_eta_zero and self.at_eta is not None:
            # The inverse of the information without eta's row and column, from the inverse with it.
            column = covariance[:, self.at_eta]
            if not column[self.at_eta] > 0:
                raise np.linalg.LinAlgError("far out, nothing is left to tell the position effect by")
            step = step - column * (step[self.at_eta] / column[self.at_eta])
            step[self.at_eta] = gradient[self.at_eta] = 0.0
        return step, gradient

    def _variances(self, covariance: Floats) -> tuple[Floats, Floats | None, float]:
        """Return each row's variance of u, covariance of u and lambda, and the variance of lambda."""
        gap, *further = gap_covariances(self.votes, covariance, self.at_pair[0])
        var, n = gap[None, :], self.n
        if self.at_eta is not None:
            across = 2 * further[0]
            var = np.stack([gap + across, gap - across]) + covariance[n, n]
        if self.at_nu is None:
            return var, None, 0.0
        at, both = self.at_nu, further[-1][None, :]
        if self.at_eta is not None:
            both = np.stack([both[0] + covariance[n, at], both[0] - covariance[n, at]])
        return var, both, float(covariance[at, at])

    def _fit(self, beta: Floats, covariance: Floats, gradient: Floats, iterations: int, *, is_done: bool) -> Fit:
        theta = beta[: self.n] - beta[: self.n].mean()
        eta = None if self.at_eta is None else float(beta[self.at_eta])
        log_nu = None if self.at_nu is None else float(beta[self.at_nu])
        return Fit(
            self.model, self.votes, theta, eta, log_nu, covariance, float(np.abs(gradient).max()), iterations, is_done
        )

    def objective(self, fitted: Fit) -> float:
        """Return the log-likelihood plus, where there is one, the penalty, up to a constant."""
        value = log_likelihood(fitted)
        if self.model.penalty is Penalty.NONE:
            return value
        extras = [extra for extra in (fitted.eta, fitted.log_nu) if extra is not None]
        matrix = self._information(self._local(np.r_[fitted.theta, extras], self.results))
        matrix[: self.n, : self.n] += 1.0
        return value + 0.5 * float(np.linalg.slogdet(matrix)[1])


class _Mixer:
    """Anderson's mixing: the penalty makes Newton's steps shrink slowly, but along few directions."""

    def __init__(self) -> None:
        self.places: list[Floats] = []
        self.moves: list[Floats] = []

    def mixed(self, place: Floats, after: Floats) -> Floats:
        """Return where the last moves together point, given one more."""
        self.places, self.moves = [*self.places, after][-MIXED_MAX:], [*self.moves, after - place][-MIXED_MAX:]
        if len(self.moves) == 1:
            return after
        turns = np.diff(np.array(self.moves), axis=0).T
        weights = np.linalg.lstsq(turns, self.moves[-1], rcond=1e-10)[0]
        return np.asarray(after - np.diff(np.array(self.places), axis=0).T @ weights)


# Where a cluster is left with less, leaving it out makes its error several times what is known of it.
LEVERAGE_GAP_MIN: Final = 0.15
DETERMINANT_MIN: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Sandwich:
    """The covariance of (theta, eta, log_nu), and which items stand at clusters of leverage near 1.

    `df` are the degrees of freedom of each variance where clusters are few or few of them say nearly all; None: many.
    """

    covariance: Floats
    n_clusters: int
    is_at_bridge: Bools
    df: Floats | None = None


def by_pair(fit: Fit, *, is_adjusted: bool = True, separated: Bools | None = None) -> Sandwich:
    """Return CR3 (or CR0 with `is_adjusted` False) clustered by unordered pair.

    Votes on an item that is `separated` all went one way, as far as they go: they show no noise, and nearly all that
    is known of it comes from its closest pair, so that leaving this out gives any number (45 for 1.6 was seen, and all
    items were tied with it). They enter with the variance of the model, which Firth's penalty keeps finite.
    """
    votes, (score, information) = fit.votes, _by_row(fit, fit.votes)
    is_bridge = np.zeros(len(votes.lo), dtype=np.bool_)
    if is_adjusted:
        score, is_bridge = _left_out(score, information, _pair_covariance(fit))
    is_plain = is_bridge | _touches(votes, separated)
    meat = np.where(is_plain, information, score[:, None, :] * score[None, :, :])
    is_at_bridge = np.zeros(votes.n_items, dtype=np.bool_)
    is_at_bridge[votes.lo[is_bridge]] = is_at_bridge[votes.hi[is_bridge]] = True
    bread, filling = fit.covariance, likelihood.spread(votes, [list(row) for row in meat])
    return Sandwich(bread @ filling @ bread, len(votes.lo), is_at_bridge)


def by_unit(fit: Fit, votes: Votes, *, separated: Bools | None = None) -> Sandwich:
    """Return CR3 clustered by the unit of `votes`, the same votes that were fitted, by unit and pair; see `by_pair`."""
    if fit.model.ties is Ties.DROP:
        votes = votes.without_ties()
    (score, information), bread = _by_row(fit, votes), fit.covariance
    is_plain = _touches(votes, separated)
    meat = likelihood.spread(votes, [list(row) for row in information * is_plain])
    by_row = score * ~is_plain, information * ~is_plain
    order = np.argsort(votes.unit, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(votes.unit[order]) != 0]) if len(order) else np.zeros(0, np.int64)
    is_at_bridge = np.zeros(votes.n_items, dtype=np.bool_)
    extras, parts, squares = np.arange(votes.n_items, len(bread)), np.zeros(len(bread)), np.zeros(len(bread))
    for rows in np.split(order, starts[1:]):
        items = np.unique(np.r_[votes.lo[rows], votes.hi[rows]])
        at = np.r_[items, extras]
        score, information = _of_cluster(votes, by_row, rows, items, len(extras))
        left = np.eye(len(at)) - information @ bread[np.ix_(at, at)]
        # The eigenvalues are one minus leverages, all real: the matrix is similar to a symmetric one.
        if float(np.linalg.eigvals(left).real.min()) < LEVERAGE_GAP_MIN:
            is_at_bridge[items] = True
            meat[np.ix_(at, at)] += information
            continue
        moved = np.linalg.solve(left, score)
        meat[np.ix_(at, at)] += np.outer(moved, moved)
        part = (bread[:, at] @ moved) ** 2
        parts, squares = parts + part, squares + part**2
    return Sandwich(bread @ meat @ bread, len(starts), is_at_bridge, _df(parts, squares, len(starts)))


def _df(parts: Floats, squares: Floats, n: int) -> Floats:
    """Return Satterthwaite's degrees of freedom of sums of `n` parts, by the sums of their squares; of none, infinity.

    Normal parts have about n - 1, and the fewer of them make up the sum, the fewer it has.
    """
    apart = squares - parts**2 / max(n, 1)
    df = 2 * parts**2 / np.where(apart > 0, apart, 1.0)
    return np.where(parts > 0, np.clip(np.where(apart > 0, df, np.inf), 1, max(n - 1, 1)), np.inf)


def _touches(votes: Votes, items: Bools | None) -> Bools:
    """Return which rows are about one of the items."""
    return np.zeros(len(votes.lo), dtype=np.bool_) if items is None else items[votes.lo] | items[votes.hi]


def _by_row(fit: Fit, votes: Votes) -> tuple[Floats, Floats]:
    """Return every row's score (q, rows) and information (q, q, rows) in gap, eta and log_nu, as far as they are."""
    results = results_by_order(votes, has_eta=fit.eta is not None)
    local = likelihood.local(results, predictors(votes, fit.theta, fit.eta), fit.log_nu)
    return _orders_added(local.scores), np.array([_orders_added(row) for row in local.informations])


def _orders_added(parts: list[Floats]) -> Floats:
    return np.array([np.atleast_2d(part).sum(axis=0) for part in parts])


def _pair_covariance(fit: Fit) -> Floats:
    votes, n, bread = fit.votes, fit.votes.n_items, fit.covariance
    covariances = np.array(gap_covariances(votes, bread, likelihood.pair_places(votes, len(bread))[0]))
    result = np.empty((len(covariances), *covariances.shape))
    result[0] = result[:, 0] = covariances
    result[1:, 1:] = bread[n:, n:, None]
    return result


def _left_out(score: Floats, information: Floats, covariance: Floats) -> tuple[Floats, Bools]:
    """Divide every pair's score by one minus its leverage; says too which pairs have leverage near 1."""
    if len(covariance) == 1:
        left = 1 - information[0] * covariance[0]
        is_bridge = left[0] < LEVERAGE_GAP_MIN
        return score / np.where(is_bridge, 1.0, left), np.asarray(is_bridge)
    product = np.einsum("ijr,jkr->rik", information, covariance)
    left = np.eye(len(covariance)) - product
    is_bridge = (left[:, 0, 0] < LEVERAGE_GAP_MIN) | (np.linalg.det(left) < DETERMINANT_MIN)
    left[is_bridge] = np.eye(len(covariance))
    return np.linalg.solve(left, score.T[:, :, None])[:, :, 0].T, np.asarray(is_bridge)


def _of_cluster(
    votes: Votes, by_row: tuple[Floats, Floats], rows: Ints, items: Ints, n_extras: int
) -> tuple[Floats, Floats]:
    """Return a cluster's score and information in its own items and the extra parameters."""
    lo, hi = np.searchsorted(items, votes.lo[rows]), np.searchsorted(items, votes.hi[rows])
    design = np.zeros((1 + n_extras, len(rows), len(items) + n_extras))
    at = np.arange(len(rows))
    design[0, at, lo], design[0, at, hi] = 1.0, -1.0
    for extra in range(n_extras):
        design[1 + extra, :, len(items) + extra] = 1.0
    score = np.einsum("qr,qrp->p", by_row[0][:, rows], design)
    information = np.einsum("qrp,qsr,srt->pt", design, by_row[1][:, :, rows], design, optimize=True)
    return score, information
