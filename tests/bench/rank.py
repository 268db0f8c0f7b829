"""How long a ranking takes beside what it cannot do without: counting in SQL, and one dense Newton solve.

    python tests/bench/rank.py [--items 1000] [--comparisons 1000000]

It imports that many judgments as one Parquet file into a temporary lake and prints seconds for the SQL
that counts them, one plain Newton fit of the same counts, one linear solve of that size, and `rank` with
intervals, rank intervals and tied groups as the command runs it, printing left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchpond import lens, rank, rank_counts
from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.stats import bradley_terry
from batchpond.stats.bradley_terry import Model, Penalty
from batchpond.stats.votes import Votes

FILE_ROWS = 50_000
RUNS = 3


def make(path: Path, n_items: int, n_comparisons: int) -> Store:
    """Write random judgments of a one-dimensional scale."""
    rng = np.random.default_rng(1)
    theta = rng.normal(0, 1.5, n_items)
    first = rng.integers(0, n_items, n_comparisons)
    second = (first + rng.integers(1, n_items, n_comparisons)) % n_items
    is_first = rng.random(n_comparisons) < 1 / (1 + np.exp(theta[second] - theta[first]))
    names = np.array([f"item-{number:05}" for number in range(n_items)])
    store = Store.init(path)
    for start in range(0, n_comparisons, FILE_ROWS):
        at = slice(start, start + FILE_ROWS)
        size = len(first[at])
        columns = {name: pa.nulls(size, kind) for name, kind in zip(*_kinds(), strict=True)}
        columns |= {name: pa.array(["same"] * size) for name in ("study", "task", *rank_counts.CELL)}
        columns |= {"import_key": pa.array([f"k{number}" for number in range(start, start + size)])}
        columns |= {"unit_id": pa.array([""] * size), "repeat_no": pa.array([1] * size, _type("repeat_no"))}
        columns |= {"task": pa.array(["pairwise"] * size), "outcome": pa.array(["decided"] * size)}
        columns |= {"item_first": pa.array(names[first[at]]), "item_second": pa.array(names[second[at]])}
        columns |= {"verdict": pa.array(np.where(is_first[at], "first", "second"))}
        store.publish(IMPORTED_JUDGMENTS, f"f{start:09}", pa.table(columns, schema=IMPORTED_JUDGMENTS.schema))
    lens.build(store.path, store.all_files())
    return store


def _kinds() -> tuple[list[str], list[pa.DataType]]:
    schema = IMPORTED_JUDGMENTS.schema
    return schema.names, schema.types


def _type(name: str) -> pa.DataType:
    return IMPORTED_JUDGMENTS.schema.field(name).type


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the best of some runs, in seconds and CPU seconds."""
    best = (np.inf, np.inf)
    for _ in range(RUNS):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        work()
        best = min(best, (time.perf_counter() - wall_s, time.process_time() - cpu_s))
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--comparisons", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder) / "lake", arguments.items, arguments.comparisons).path
        report(path, arguments.items, arguments.comparisons)


def report(path: Path, n_items: int, n_comparisons: int) -> None:
    """Print a line per step and the ratios."""
    request = rank.Request()
    held: list[Votes] = []

    def count() -> None:
        held[:] = [counts.votes for counts in rank_counts.counted(path, None, request.what, request.by)]

    sql = timed(count)
    votes = held[0]
    newton = timed(lambda: bradley_terry.fit(votes, Model(penalty=Penalty.NONE)))
    matrix = np.eye(n_items) + 1.0
    solve = timed(lambda: np.linalg.solve(matrix, matrix[0]))
    whole = timed(lambda: rank.rank(path, request))
    sys.stdout.write(f"{n_items:,} items, {n_comparisons:,} comparisons, {os.cpu_count()} CPUs\n")
    for name, (wall_s, cpu_s) in {"SQL": sql, "Newton fit": newton, "linear solve": solve, "rank": whole}.items():
        sys.stdout.write(f"  {name:14} {wall_s:7.3f} s {cpu_s:7.3f} cpu-s\n")
    sys.stdout.write(f"  rank / (SQL + Newton fit)   {whole[0] / (sql[0] + newton[0]):5.2f}\n")
    sys.stdout.write(f"  rank / (SQL + linear solve) {whole[0] / (sql[0] + solve[0]):5.2f}\n")


if __name__ == "__main__":
    main()
