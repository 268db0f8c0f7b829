"""Win tables for the tests of rankings: from files, and from a known truth."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from batchpond.stats import votes
from batchpond.stats.votes import Votes

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden"

Numbers = npt.NDArray[np.float64]


def expected(case: str) -> dict[str, Any]:
    """Return what a reference case expects."""
    found: dict[str, Any] = json.loads((GOLDEN / case / "expected.json").read_text("utf-8"))["expected"]
    return found


def rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV file."""
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def golden_votes(case: str) -> tuple[list[str], Votes]:
    """Return a case's items in order, and its votes."""
    return judged(rows(GOLDEN / case / "judgments.csv"))


def judged(judgments: Sequence[dict[str, str]]) -> tuple[list[str], Votes]:
    """Count judgments with the columns item_first, item_second and verdict."""
    names = sorted({row[side] for row in judgments for side in ("item_first", "item_second")})
    number = {name: place for place, name in enumerate(names)}
    first, second = ([number[row[side]] for row in judgments] for side in ("item_first", "item_second"))
    return names, votes.of_rows(len(names), first, second, [row["verdict"] for row in judgments])


def shared(folder: str) -> Path:
    """Return a folder of reference data that is not part of this repository; skips without it."""
    found = Path(os.environ.get("BATCHPOND_SHARED", TESTS.parents[1] / "shared")) / "reference/golden" / folder
    if not found.is_dir():
        pytest.skip(f"NOT COMPARED: no {found}; set BATCHPOND_SHARED to the folder that holds it")
    return found


def drawn(
    seed: int, n_items: int, n_votes: int, *, sd: float = 1.0, eta: float = 0.0, ties: float = 0.0, unit_max: int = 1
) -> Votes:
    """Draw votes of a Bradley-Terry judge on random pairs in random order."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, sd, n_items)
    first = rng.integers(0, n_items, n_votes)
    second = (first + rng.integers(1, n_items, n_votes)) % n_items
    is_first = rng.random(n_votes) < 1 / (1 + np.exp(theta[second] - theta[first] - eta))
    verdict = np.where(rng.random(n_votes) < ties, "tie", np.where(is_first, "first", "second"))
    unit = rng.integers(0, unit_max, n_votes)
    return votes.of_rows(n_items, first.tolist(), second.tolist(), verdict.tolist(), unit.tolist())


def largest(table: Votes) -> Votes:
    """Return the votes of the largest connected component."""
    label = votes.components(table)
    return table.among(np.flatnonzero(label == np.bincount(label[label >= 0]).argmax()))


def renamed(table: Votes, order: npt.NDArray[np.int64]) -> Votes:
    """Return the same votes where item i is called order[i]."""
    lo, hi = order[table.lo], order[table.hi]
    is_kept = lo < hi
    # With the names of a pair the other way round, so are who is shown first and who won.
    turned = table.counts[::-1][:, [1, 0, 2]]
    counts = np.where(is_kept, table.counts, turned)
    key = np.lexsort((np.maximum(lo, hi), np.minimum(lo, hi), table.unit))
    return Votes(table.n_items, np.minimum(lo, hi)[key], np.maximum(lo, hi)[key], table.unit[key], counts[:, :, key])
