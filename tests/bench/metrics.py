"""How long pair_status and the metric views take, beside the floor of scanning the same rows once.

    python -m tests.bench.metrics [ROWS ...]

For each number of judgments (default 1e6 and 1e7; 30 cells, every pair in both orders, rows shuffled)
it writes one Parquet file to a temporary folder and prints, per view and in a process of its own, warm
seconds, CPU seconds, peak memory, and the ratio to `count(verdict)` over the same file.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from batchpond.views import database

FLOOR = "SELECT count(verdict) FROM pair_judgments"
QUERIES = {
    "count(verdict)": FLOOR,
    "pair_status": "SELECT status, count(*), sum(n_pending) FROM pair_status GROUP BY status",
}
QUERIES |= {view.name: f"FROM {view.name}" for view in database.views() if view.stage == "2_metrics"}

ROWS = """
SELECT
  'study' AS study, 't' || cell % 5 AS template_id, 'overall_quality' AS rubric_id, 'openai' AS provider,
  'model-' || cell // 5 % 3 AS request_model, CASE WHEN cell < 15 THEN 'low' ELSE 'high' END AS thinking, '' AS unit_id,
  lo || ' | ' || hi AS pair_id,
  CASE WHEN is_lo_first THEN lo ELSE hi END AS item_first, CASE WHEN is_lo_first THEN hi ELSE lo END AS item_second,
  lo AS item_lo, hi AS item_hi, is_lo_first, CASE WHEN is_lo_first THEN 'forward' ELSE 'reverse' END AS direction,
  1 AS repeat_no,
  CASE WHEN draw < 88 THEN CASE WHEN (draw < 45) = is_lo_first THEN 'first' ELSE 'second' END
       WHEN draw < 94 THEN 'first' WHEN draw < 97 THEN 'second' WHEN draw < 99 THEN 'tie' END AS verdict,
  CASE WHEN draw < 97 THEN 'decided' WHEN draw < 99 THEN 'tie' ELSE 'unparsed' END AS outcome,
  CAST(NULL AS DOUBLE) AS confidence, CAST(700 + draw AS BIGINT) AS input_tokens,
  CAST(200 + draw AS BIGINT) AS output_tokens, 0.001 AS cost_usd, 'batch' AS origin
FROM (
  SELECT
    i % 30 AS cell, i // 30 % 2 = 0 AS is_lo_first, hash(i % 30, i // 60) % 100 AS draw,
    's' || lpad(CAST(i // 60 // 1000 AS VARCHAR), 5, '0') AS lo,
    't' || lpad(CAST(i // 60 % 1000 AS VARCHAR), 5, '0') AS hi
  FROM range({n}) AS numbers (i)
)
ORDER BY hash(lo, hi, cell, is_lo_first)
"""


def make(path: Path, n_rows: int) -> None:
    """Write judgments in random order."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({ROWS.format(n=n_rows)}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


def measure(path: Path, name: str) -> None:
    """Run one query twice and print the second run's seconds, CPU seconds and the peak memory in MB."""
    with database.empty() as connection:
        connection.execute("SET enable_progress_bar = false")
        given = {column[0] for column in connection.execute(f"DESCRIBE FROM read_parquet('{path}')").fetchall()}
        columns = ", ".join(
            name if name in given else f"CAST(NULL AS {kind}) AS {name}"
            for name, kind, *_ in connection.execute("DESCRIBE pair_judgments").fetchall()
        )
        connection.execute(f"CREATE OR REPLACE VIEW pair_judgments AS SELECT {columns} FROM read_parquet('{path}')")
        for _ in range(2):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            connection.execute(QUERIES[name]).fetchall()
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{wall_s} {cpu_s} {peak_mb}\n")


def compare(path: Path) -> None:
    """Print a line per query, each measured in a fresh process."""
    floor_s = 0.0
    for name in QUERIES:
        command = [sys.executable, __file__, "--query", name, "--file", str(path)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        wall_s, cpu_s, peak_mb = map(float, out.split())
        floor_s = floor_s or wall_s
        line = f"  {name:24} {wall_s:8.3f} s {cpu_s:8.3f} cpu-s {peak_mb:8.0f} MB  x {wall_s / floor_s:.0f}\n"
        sys.stdout.write(line)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=float, default=[1e6, 1e7])
    # Each step runs in a process of its own: a child's peak memory starts from its parent's.
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--query", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.file, arguments.make)
        return
    if arguments.query:
        measure(arguments.file, arguments.query)
        return
    for n_rows in map(int, arguments.rows):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "judgments.parquet"
            subprocess.run([sys.executable, __file__, "--make", str(n_rows), "--file", str(path)], check=True)
            sys.stdout.write(f"{n_rows:,} judgments, {path.stat().st_size / 1e6:.0f} MB, DuckDB {duckdb.__version__}\n")
            compare(path)


if __name__ == "__main__":
    main()
