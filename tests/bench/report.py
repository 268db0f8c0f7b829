"""What a report costs beside the SQL that it runs, in time and memory.

    python -m tests.bench.report [--comparisons 1000000] [--items 1000]

It imports that many judgments of four judges into a temporary lake and, each in a process of its own, runs the queries
of the report's exhibits alone, builds the report, and writes the page; it prints seconds, CPU seconds and the peak of
memory of each, and the ratio of the page to its queries.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.views import database
from batchpond_report import build, page, source

FILE_ROWS = 50_000
JUDGES = ("m1", "m2", "m3", "m4")


def make(path: Path, n_items: int, n_comparisons: int) -> None:
    """Write judgments of a one-dimensional scale: each pair by one judge, in both orders."""
    rng = np.random.default_rng(1)
    theta = rng.normal(0, 1.5, n_items)
    a = rng.integers(0, n_items, n_comparisons // 2)
    b = (a + rng.integers(1, n_items, len(a))) % n_items
    first, second = np.stack([a, b], 1).ravel(), np.stack([b, a], 1).ravel()
    is_first = rng.random(len(first)) < 1 / (1 + np.exp(theta[second] - theta[first]))
    names = np.array([f"item-{number:05}" for number in range(n_items)])
    judges = np.array(JUDGES)[np.repeat(np.arange(len(a)) % len(JUDGES), 2)]
    store, schema = Store.init(path), IMPORTED_JUDGMENTS.schema
    for start in range(0, len(first), FILE_ROWS):
        at = slice(start, start + FILE_ROWS)
        size = len(first[at])
        columns = {name: pa.nulls(size, kind) for name, kind in zip(schema.names, schema.types, strict=True)}
        same = {"study": "bench", "task": "pairwise", "template_id": "t", "rubric_id": "r", "provider": "p",
                "thinking": "none", "unit_id": "", "outcome": "decided"}  # fmt: skip
        columns |= {name: pa.array([value] * size) for name, value in same.items()}
        columns |= {"import_key": pa.array([f"k{number}" for number in range(start, start + size)])}
        columns |= {"repeat_no": pa.array(np.arange(start, start + size) // 2 + 1, schema.field("repeat_no").type)}
        columns |= {"item_first": pa.array(names[first[at]]), "item_second": pa.array(names[second[at]])}
        columns |= {"request_model": pa.array(judges[at]), "cost_usd": pa.array([0.0001] * size)}
        columns |= {"input_tokens": pa.array([900] * size), "output_tokens": pa.array([40] * size)}
        columns |= {"verdict": pa.array(np.where(is_first[at], "first", "second"))}
        store.publish(IMPORTED_JUDGMENTS, f"f{start:09}", pa.table(columns, schema=schema))
    database.build(store.path, database.listed(store.path))


def run(step: str, path: Path, queries: Path) -> None:
    """Do one step and print what it took, as JSON."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    match step:
        case "queries":
            with source.opened(path, None) as found:
                for sql in json.loads(queries.read_text()):
                    found.rows(sql)
        case "build":
            report = build.build(path)
            queries.write_text(json.dumps(list(dict.fromkeys(one.sql for one in report.exhibits() if one.sql))))
        case "page":
            (queries.parent / "report.html").write_text(page.render(build.build(path)))
    took = {"wall_s": time.perf_counter() - wall_s, "cpu_s": time.process_time() - cpu_s}
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(took | {"peak_mib": peak_mib}))


def measure(step: str, path: Path, queries: Path) -> dict[str, float]:
    """Do one step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--lake", str(path), "--queries", str(queries)]
    done: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return done


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--comparisons", type=int, default=1_000_000)
    parser.add_argument("--step", choices=["queries", "build", "page"], help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--queries", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        run(arguments.step, arguments.lake, arguments.queries)
        return
    with tempfile.TemporaryDirectory() as folder:
        path, queries = Path(folder) / "lake", Path(folder) / "queries.json"
        make(path, arguments.items, arguments.comparisons)
        sys.stdout.write(f"{arguments.items:,} items, {arguments.comparisons:,} judgments, {os.cpu_count()} CPUs\n")
        found = {step: measure(step, path, queries) for step in ("build", "queries", "page")}
        for step, took in found.items():
            sys.stdout.write(
                f"  {step:8} {took['wall_s']:7.2f} s {took['cpu_s']:7.2f} cpu-s {took['peak_mib']:7.0f} MiB\n"
            )
        sys.stdout.write(f"  page / queries {found['page']['cpu_s'] / found['queries']['cpu_s']:.2f} (CPU)\n")
        sys.stdout.write(f"  page: {(Path(folder) / 'report.html').stat().st_size / 1024:,.0f} KiB\n")


if __name__ == "__main__":
    main()
