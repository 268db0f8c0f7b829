"""How far judges agree beyond chance: Krippendorff, Fleiss, Gwet, Cohen; units by judges, missing allowed.

Print several: kappas collapse when nearly all units belong to one category, where AC1 and raw agreement do not.
The views `metric_agreement` and `metric_agreement_overall` give the same figures in SQL, with delta-method errors;
`krippendorff_interval` is the bootstrap beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from batchpond.errors import UsageError
from batchpond.stats.arrays import Floats, Ints

MISSING: Final = -1
BOOTSTRAPS: Final = 1000


class Level(StrEnum):
    """What the categories are: names, places in an order, or numbers."""

    NOMINAL = "nominal"
    ORDINAL = "ordinal"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class Ratings:
    """Each unit's category per judge: `codes` has shape (units, judges), MISSING where there is none.

    `values` are the categories as numbers, ascending (for NOMINAL any numbers will do).
    """

    codes: Ints
    values: Floats

    def __post_init__(self) -> None:
        if self.codes.ndim != 2 or (self.codes.size and int(self.codes.max()) >= len(self.values)):
            raise UsageError("ratings need a category per unit and judge, each with a value")

    @property
    def table(self) -> Floats:
        """How many judges put each unit into each category, shape (units, categories)."""
        return np.stack([(self.codes == code).sum(axis=1) for code in range(len(self.values))], axis=1).astype(float)

    def of_judges(self, one: int, other: int) -> Ratings:
        """Return the units that both judges rated, by these two alone."""
        pair = self.codes[:, [one, other]]
        return Ratings(pair[(pair != MISSING).all(axis=1)], self.values)


def ratings(units: Sequence[str], judges: Sequence[str], categories: Sequence[str | float | None]) -> Ratings:
    """Arrange rows of (unit, judge, category) as Ratings; None is missing. Raises UsageError for a second rating."""
    known = sorted({category for category in categories if category is not None}, key=_in_order)
    code = {category: number for number, category in enumerate(known)}
    unit = {name: number for number, name in enumerate(dict.fromkeys(units))}
    judge = {name: number for number, name in enumerate(sorted(set(judges)))}
    codes = np.full((len(unit), len(judge)), MISSING, dtype=np.int64)
    for row, column, category in zip(units, judges, categories, strict=True):
        if category is None:
            continue
        at = unit[row], judge[column]
        if codes[at] != MISSING:
            raise UsageError(f"judge {column!r} rated unit {row!r} twice", hint="take the majority of repeats first")
        codes[at] = code[category]
    return Ratings(codes, np.array([float(c) if isinstance(c, int | float) else n for n, c in enumerate(known)]))


def _in_order(category: str | float) -> tuple[bool, str | float]:
    return isinstance(category, str), category


def krippendorff(data: Ratings, level: Level = Level.NOMINAL) -> float | None:
    """Return Krippendorff's alpha; None when no unit has two ratings, or all ratings are one category."""
    return _alpha(_rated(data.table), data.values, level)


@dataclass(frozen=True, slots=True)
class AlphaInterval:
    """Alpha and a 95 % percentile interval over units drawn with replacement; the ends are None without variation."""

    alpha: float | None
    lo: float | None
    hi: float | None
    n_units: int


def krippendorff_interval(
    data: Ratings, level: Level = Level.NOMINAL, *, seed: int, draws: int = BOOTSTRAPS
) -> AlphaInterval:
    """Return alpha with its interval; units with fewer than two ratings are out."""
    table = _rated(data.table)
    alpha = _alpha(table, data.values, level)
    if alpha is None or len(table) < 2:
        return AlphaInterval(alpha, None, None, len(table))
    rng = np.random.default_rng(seed)
    drawn = (_alpha(table[rng.integers(0, len(table), len(table))], data.values, level) for _ in range(draws))
    found = np.array([value for value in drawn if value is not None])
    # Draws without variation have no alpha; when they are many, what is left says little.
    if len(found) < 0.95 * draws:
        return AlphaInterval(alpha, None, None, len(table))
    lo, hi = np.quantile(found, [0.025, 0.975])
    return AlphaInterval(alpha, float(lo), float(hi), len(table))


def _rated(table: Floats) -> Floats:
    return np.asarray(table[table.sum(axis=1) >= 2])


def _alpha(table: Floats, values: Floats, level: Level) -> float | None:
    if not len(table):
        return None
    weight = 1 / (table.sum(axis=1) - 1)
    observed = (table * weight[:, None]).T @ table
    observed[np.diag_indices_from(observed)] -= weight @ table
    totals = table.sum(axis=0)
    distance = _distances(totals, values, level)
    expected = float(totals @ distance @ totals)
    if expected <= 0:
        return None
    return 1 - (float(totals.sum()) - 1) * float(np.sum(observed * distance)) / expected


def _distances(totals: Floats, values: Floats, level: Level) -> Floats:
    match level:
        case Level.NOMINAL:
            return np.asarray(1 - np.eye(len(values)), dtype=np.float64)
        case Level.INTERVAL:
            return np.asarray((values[:, None] - values[None, :]) ** 2)
        case Level.ORDINAL:
            middle = np.cumsum(totals) - totals / 2
            return np.asarray((middle[:, None] - middle[None, :]) ** 2)


def fleiss_kappa(data: Ratings) -> float | None:
    """Return Fleiss' kappa over the units that every judge rated; None without any, or without variation."""
    n_judges = data.codes.shape[1]
    table = data.table[(data.codes != MISSING).all(axis=1)]
    if n_judges < 2 or not len(table):
        return None
    agreed = float(np.mean((table * (table - 1)).sum(axis=1))) / (n_judges * (n_judges - 1))
    chance = float(np.sum((table.sum(axis=0) / table.sum()) ** 2))
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def gwet_ac1(data: Ratings) -> float | None:
    """Return Gwet's AC1 (2008); chance agreement over all rated units, agreement over those with two ratings."""
    agreed = percent_agreement(data)
    table = data.table[data.table.sum(axis=1) > 0]
    n_categories = len(data.values)
    if agreed is None or n_categories < 2:
        return None
    share = (table / table.sum(axis=1, keepdims=True)).mean(axis=0)
    chance = float(np.sum(share * (1 - share))) / (n_categories - 1)
    return (agreed - chance) / (1 - chance)


def percent_agreement(data: Ratings) -> float | None:
    """Return the share of a unit's pairs of ratings that agree, averaged over units with two ratings or more."""
    table = _rated(data.table)
    if not len(table):
        return None
    n = table.sum(axis=1)
    return float(np.mean((table * (table - 1)).sum(axis=1) / (n * (n - 1))))


@dataclass(frozen=True, slots=True)
class Kappa:
    """Cohen's kappa with its large-sample standard error (Fleiss, Cohen and Everitt 1969); None where not defined."""

    n: int
    agreement: float | None
    kappa: float | None
    se: float | None


def cohen_kappa(data: Ratings) -> Kappa:
    """Return Cohen's kappa of two judges over the units that both rated."""
    if data.codes.shape[1] != 2:
        raise UsageError("Cohen's kappa is between two judges", hint="`of_judges` picks two")
    both = data.codes[(data.codes != MISSING).all(axis=1)]
    n, q = len(both), len(data.values)
    if not n:
        return Kappa(0, None, None, None)
    p = np.bincount(both[:, 0] * q + both[:, 1], minlength=q * q).reshape(q, q) / n
    rows, columns, agreed = p.sum(axis=1), p.sum(axis=0), float(np.trace(p))
    chance = float(rows @ columns)
    if chance >= 1:
        return Kappa(n, agreed, None, None)
    kappa = (agreed - chance) / (1 - chance)
    margin = rows[None, :] + columns[:, None]
    own = float(np.sum(np.diag(p) * (1 - np.diag(margin) * (1 - kappa)) ** 2))
    off = float(np.sum(p * margin**2) - np.sum(np.diag(p) * np.diag(margin) ** 2)) * (1 - kappa) ** 2
    variance = (own + off - (kappa - chance * (1 - kappa)) ** 2) / (n * (1 - chance) ** 2)
    return Kappa(n, agreed, kappa, math.sqrt(max(variance, 0.0)))


def majority(data: Ratings) -> Ints:
    """Return each unit's most frequent category, MISSING where there is no single one."""
    table = data.table
    top = table.max(axis=1, initial=0)
    is_single = ((table == top[:, None]).sum(axis=1) == 1) & (top > 0)
    return np.where(is_single, table.argmax(axis=1), MISSING)
