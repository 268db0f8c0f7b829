"""One pair's share of the likelihood, for all pairs at once: Bradley-Terry, and Davidson's model of ties.

Each vote depends on the items through u = theta_lo - theta_hi (+ eta when the lower item is shown
first, - eta when the higher is): the lower wins in proportion to e^(u/2), the higher to e^(-u/2), and a
tie is e^lambda, with nu = e^lambda (Davidson 1970); without ties that is the logistic P(lo) = 1/(1+e^-u).
Both are exponential families in (u, lambda), which makes the Jeffreys penalty (Firth 1993) explicit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchpond.stats.arrays import Floats
from batchpond.stats.votes import HI_WON, LO_WON, TIED


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
