"""Linear equations solved roughly, without a factorisation."""

from __future__ import annotations

from typing import Final

import numpy as np

from batchpond.stats.arrays import Floats

ITERATIONS_MAX: Final = 40
TOLERANCE: Final = 1e-4


def solved(matrix: Floats, target: Floats, *, iterations_max: int = ITERATIONS_MAX) -> Floats:
    """Return x with matrix @ x about target, by conjugate gradients scaled by the diagonal.

    The matrix is symmetric and not negative; where it is singular, target lies in its range. Ends when the
    residual is TOLERANCE of the target, or after that many products.
    """
    own = np.diag(matrix)
    scale = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
    x, residual = np.zeros_like(target), target
    direction = scaled = scale * residual
    gain = float(residual @ scaled)
    enough = TOLERANCE**2 * gain
    for _ in range(iterations_max):
        product = np.einsum("ij,j->i", matrix, direction)
        curvature = float(direction @ product)
        if not (gain > enough and curvature > 0):
            break
        x = x + gain / curvature * direction
        residual = residual - gain / curvature * product
        scaled = scale * residual
        gain, before = float(residual @ scaled), gain
        direction = scaled + gain / before * direction
    return x
