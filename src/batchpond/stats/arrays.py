"""What these modules share: names for arrays, the few distributions, rough solutions, reproducible random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Z_95: Final = NormalDist().inv_cdf(0.975)


def p_two_sided(z: float) -> float:
    """Return P(|Z| >= |z|) of a standard normal Z."""
    return math.erfc(abs(z) / math.sqrt(2))


ITERATIONS_MAX: Final = 40
TOLERANCE: Final = 1e-4


def solved(matrix: Floats, target: Floats) -> Floats:
    """Return x with matrix @ x about target, by conjugate gradients scaled by the diagonal.

    The matrix is symmetric and not negative; where it is singular, target lies in its range. Ends when the
    residual is TOLERANCE of the target, or after ITERATIONS_MAX products.
    """
    own = np.diag(matrix)
    scale = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
    return conjugate(
        lambda way: np.einsum("ij,j->i", matrix, way), lambda rest: scale * rest, target, TOLERANCE, ITERATIONS_MAX
    )


def conjugate(
    times: Callable[[Floats], Floats],
    scaled: Callable[[Floats], Floats],
    target: Floats,
    tolerance: float,
    iterations_max: int,
) -> Floats:
    """Return x with `times(x)` about target, by conjugate gradients, `scaled` a rough inverse of `times`."""
    x, rest = np.zeros_like(target), target
    way = near = scaled(rest)
    size = float(rest @ near)
    enough = size * tolerance**2
    for _ in range(iterations_max):
        if not size > enough:
            break
        turned = times(way)
        curvature = float(way @ turned)
        if not curvature > 0:
            break
        share = size / curvature
        x, rest = x + share * way, rest - share * turned
        near = scaled(rest)
        size, before = float(rest @ near), size
        way = near + size / before * way
    return x


_UNIT: Final = 2.0**-53
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_A: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B: Final = np.uint64(0x94D049BB133111EB)

Keys = NDArray[np.uint64]


def uniforms(seed: int, n: int) -> Floats:
    """Return n numbers in [0, 1) of a seed; numpy promises the bits of a generator, not what it makes of them."""
    raw = np.atleast_1d(np.random.PCG64(seed).random_raw(n)) if n else np.empty(0, np.uint64)
    return np.asarray((raw >> np.uint64(11)).astype(np.float64) * _UNIT)


def permutation(seed: int, n: int) -> Ints:
    """Return the numbers from 0 to n - 1 in random order."""
    return np.argsort(uniforms(seed, n), kind="stable")


def of_pairs(first: Keys, second: Keys, seed: int) -> Floats:
    """Return a number in [0, 1) for each pair of keys, whichever stands first; it depends on nothing else."""
    lo, hi = np.minimum(first, second), np.maximum(first, second)
    mixed = _mixed(_mixed(_mixed(np.full_like(lo, np.uint64(seed))) ^ lo) ^ hi)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * _UNIT)


def _mixed(values: Keys) -> Keys:
    """Return 64 bits that look random of 64 bits that need not (Steele, Lea and Flood 2014, SplitMix64)."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _MIX_A
    values = (values ^ (values >> np.uint64(27))) * _MIX_B
    return np.asarray(values ^ (values >> np.uint64(31)))
