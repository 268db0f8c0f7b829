"""What the suite tries, and what sweeps try besides: each row, each step, each draw.

The suite tries every rule, of kills, providers and damages a part each; `BATCHPOND_TEST_SWEEP=all` tries them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, TypeVar

import pytest

EVERYTHING: Final = "BATCHPOND_TEST_SWEEP"
IS_ALL: Final = EVERYTHING in os.environ
sweep = pytest.mark.sweep
"""Marks what sweeps alone try, since something like it, or a short form of it, is in the suite."""

Row = TypeVar("Row")


def every(nth: int, rows: Iterable[Row]) -> list[Row]:
    """Return all rows in a sweep, every nth of them in the suite."""
    return list(rows)[:: 1 if IS_ALL else nth]


def examples(n: int) -> int:
    """Return how many examples a property that is dear is tried with: all in a sweep, a third in the suite."""
    return n if IS_ALL else -(-n // 3)


def some(*rows: Row, swept: Iterable[Row]) -> list[Row]:
    """Return these rows, and the others too in a sweep."""
    return [*rows, *(swept if IS_ALL else ())]
