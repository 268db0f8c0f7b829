"""How long a ranking takes beside what it cannot do without: counting in SQL, and one dense Newton solve.

    python -m tests.bench.rank [--items 1000] [--comparisons 1000000] [--runs 5]

It imports that many judgments as one study into a temporary lake and times, run by run in turn: the plainest
SQL that adds up wins by pair (opening the lake included), the counting that `rank` does (cells, units, ties,
judgments without verdict), a whole Newton fit of the plain model, one linear solve of the size of one of its
steps, and `rank` with intervals, rank intervals and tied groups as the command runs it, printing left out.
Ratios are of the least and of the median times; CPU seconds beside them, for a machine that others use.
Linear algebra has half as many threads as there are CPUs, as in the command, or OPENBLAS_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.model import CELL_COLUMNS
from batchpond.results.rank import verb as rank
from batchpond.stats import bradley_terry
from batchpond.stats.bradley_terry import Model, Penalty
from batchpond.views import database

FILE_ROWS = 50_000
VARIABLE = "OPENBLAS_NUM_THREADS"
AGGREGATION = """
SELECT least(item_first, item_second) AS item_lo, greatest(item_first, item_second) AS item_hi,
  count(*) FILTER (WHERE (verdict = 'first') = (item_first < item_second)) AS lo_won,
  count(*) FILTER (WHERE (verdict = 'first') <> (item_first < item_second)) AS hi_won
FROM pair_judgments WHERE study = 'same' AND verdict IS NOT NULL GROUP BY ALL
"""
FLOORS = (("counting", "Newton fit"), ("counting", "linear solve"), ("aggregation", "Newton fit"),
          ("aggregation", "linear solve"))  # fmt: skip


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
        columns |= {name: pa.array(["same"] * size) for name in ("study", "task", *CELL_COLUMNS)}
        columns |= {"import_key": pa.array([f"k{number}" for number in range(start, start + size)])}
        columns |= {"unit_id": pa.array([""] * size), "repeat_no": pa.array([1] * size, _type("repeat_no"))}
        columns |= {"task": pa.array(["pairwise"] * size), "outcome": pa.array(["decided"] * size)}
        columns |= {"item_first": pa.array(names[first[at]]), "item_second": pa.array(names[second[at]])}
        columns |= {"verdict": pa.array(np.where(is_first[at], "first", "second"))}
        store.publish(IMPORTED_JUDGMENTS, f"f{start:09}", pa.table(columns, schema=IMPORTED_JUDGMENTS.schema))
    database.build(store.path, database.listed(store.path))
    return store


def _kinds() -> tuple[list[str], list[pa.DataType]]:
    schema = IMPORTED_JUDGMENTS.schema
    return schema.names, schema.types


def _type(name: str) -> pa.DataType:
    return IMPORTED_JUDGMENTS.schema.field(name).type


@dataclass(frozen=True)
class Times:
    """Seconds and CPU seconds of one step, run by run."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def run(self, work: Callable[[], object]) -> None:
        """Do the step once."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        work()
        self.wall_s.append(time.perf_counter() - wall_s)
        self.cpu_s.append(time.process_time() - cpu_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--comparisons", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    if VARIABLE not in os.environ:
        # Read when numpy loads, which it has by now.
        own = os.environ | {VARIABLE: str(max(1, (os.cpu_count() or 1) // 2))}
        os.execve(sys.executable, [sys.executable, "-m", "tests.bench.rank", *sys.argv[1:]], own)  # noqa: S606
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder) / "lake", arguments.items, arguments.comparisons).path
        report(path, arguments.items, arguments.comparisons, arguments.runs)


def steps(path: Path, n_items: int) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    request = rank.Request()

    def count() -> list[rank.Counts]:
        with database.connect(path) as connection:
            return list(rank.counted(connection, None, request.what, request.by))

    (votes,) = (counts.votes for counts in count())
    matrix = np.eye(n_items) + 1.0

    def aggregate() -> None:
        with database.connect(path) as connection:
            connection.sql(AGGREGATION).to_arrow_table()

    return {
        "aggregation": aggregate,
        "counting": count,
        "Newton fit": lambda: bradley_terry.fit(votes, Model(penalty=Penalty.NONE)),
        "linear solve": lambda: np.linalg.solve(matrix, matrix[0]),
        "rank": lambda: rank.rank(path, request),
    }


def report(path: Path, n_items: int, n_comparisons: int, runs: int) -> None:
    """Print a line per step, and how many times as long as each floor `rank` takes, all from the same runs."""
    work = steps(path, n_items)
    times = {name: Times() for name in work}
    for _ in range(runs):
        for name, step in work.items():
            times[name].run(step)
    sys.stdout.write(
        f"{n_items:,} items, {n_comparisons:,} comparisons, {os.cpu_count()} CPUs,"
        f" {os.environ.get(VARIABLE)} threads of linear algebra, {runs} runs\n"
    )
    sys.stdout.write(f"{'':36}{'wall min':>9}{'median':>9}{'cpu min':>9}{'median':>9}\n")
    for name, found in times.items():
        cells = (f"{best(values):9.3f}" for values in (found.wall_s, found.cpu_s) for best in (min, median))
        sys.stdout.write(f"  {name:34}{''.join(cells)}\n")
    for floor in FLOORS:
        ratios = (
            f"{best(kind(times['rank'])) / sum(best(kind(times[name])) for name in floor):9.2f}"
            for kind in (attrgetter("wall_s"), attrgetter("cpu_s"))
            for best in (min, median)
        )
        sys.stdout.write(f"  rank / ({' + '.join(floor)}){'':{24 - len(''.join(floor))}}{''.join(ratios)}\n")


if __name__ == "__main__":
    main()
