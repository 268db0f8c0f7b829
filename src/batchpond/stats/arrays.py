"""Names for the arrays that these modules hand each other, and the few distributions they need."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Z_95: Final = NormalDist().inv_cdf(0.975)


def p_two_sided(z: float) -> float:
    """Return P(|Z| >= |z|) of a standard normal Z."""
    return math.erfc(abs(z) / math.sqrt(2))


def p_chi2_1(x: float) -> float:
    """Return P(X >= x) of a chi-square X with one degree of freedom; a statistic below 0 by rounding counts as 0."""
    return math.erfc(math.sqrt(max(x, 0.0) / 2))
