"""Random numbers that are the same on every machine and with every release of numpy: raw bits, read one way."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchpond.stats.arrays import Floats, Ints

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
