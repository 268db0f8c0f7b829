"""What `query --engine` takes beside DuckDB alone, over judgments that were made up.

    python -m tests.bench.engine [JUDGMENTS ...] [--engine sail] [--view metric_consistency] [--keep FOLDER]

For each number (default 1e6 and 1e7; 30 cells, every pair in both orders) it imports so many judgments into a lake and
asks for one view, by DuckDB and by the engine, each as a process; it prints seconds, CPU seconds and the largest
process of each, and what is different, which is nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa

from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.views import database

FILE_ROWS = 2_000_000
TIMEOUT_S = 7_200

ROWS = """
SELECT
  'k' || i AS import_key, 'bench' AS study, 'pairwise' AS task, 't' || cell % 5 AS template_id, 'overall' AS rubric_id,
  'openai' AS provider, 'model-' || cell // 5 % 3 AS request_model,
  CASE WHEN cell < 15 THEN 'low' ELSE 'high' END AS thinking, '' AS unit_id,
  CASE WHEN is_lo_first THEN lo ELSE hi END AS item_first, CASE WHEN is_lo_first THEN hi ELSE lo END AS item_second,
  1 AS repeat_no,
  CASE WHEN draw < 88 THEN CASE WHEN (draw < 45) = is_lo_first THEN 'first' ELSE 'second' END
       WHEN draw < 94 THEN 'first' WHEN draw < 97 THEN 'second' WHEN draw < 99 THEN 'tie' END AS verdict,
  CASE WHEN draw < 97 THEN 'decided' WHEN draw < 99 THEN 'tie' ELSE 'unparsed' END AS outcome,
  700 + draw AS input_tokens, 200 + draw AS output_tokens, 0.001 AS cost_usd
FROM (
  SELECT
    i, i % 30 AS cell, i // 30 % 2 = 0 AS is_lo_first, hash(i % 30, i // 60) % 100 AS draw,
    's' || lpad(CAST(hash(i // 60) % 5000 AS VARCHAR), 5, '0') AS lo,
    't' || lpad(CAST(i // 60 AS VARCHAR), 8, '0') AS hi
  FROM range({start}, {end}) AS numbers (i)
)
"""


def make(path: Path, n_rows: int) -> None:
    """Make a lake of imported judgments."""
    store, schema = Store.init(path), IMPORTED_JUDGMENTS.schema
    with duckdb.connect() as connection:
        for start in range(0, n_rows, FILE_ROWS):
            end = min(n_rows, start + FILE_ROWS)
            rows = connection.sql(ROWS.format(start=start, end=end)).to_arrow_table()
            given = set(rows.schema.names)
            columns = {
                name: rows.column(name).cast(kind) if name in given else pa.nulls(end - start, kind)
                for name, kind in zip(schema.names, schema.types, strict=True)
            }
            store.publish(IMPORTED_JUDGMENTS, f"f{start:012}", pa.table(columns, schema=schema))
    database.build(store.path, database.listed(store.path))


def ask(path: Path, view: str, *options: str) -> tuple[list[str], str]:
    """Ask for a view as a process, and return its rows and what it took."""
    command = [sys.executable, "-m", "batchpond", "query", f"FROM {view}", "--format", "csv"]
    command += ["--timeout", str(TIMEOUT_S), *options]
    environment, began_s = os.environ | {"BATCHPOND_LAKE": str(path)}, time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - began_s
        out.seek(0)
        head, *rows = out.read().splitlines() or [f"exit code {process.returncode}"]
    took = (
        f"{wall_s:7.1f} s {used.ru_utime + used.ru_stime:7.1f} CPU s, largest process {used.ru_maxrss / 1024:,.0f} MB"
    )
    return [head, *sorted(rows)], took


def differences(ours: list[str], theirs: list[str]) -> int:
    """Return how many values are further apart than 1e-9."""
    if len(ours) != len(theirs) or ours[0] != theirs[0]:
        return max(len(ours), len(theirs))
    pairs = [
        pair
        for here, there in zip(ours, theirs, strict=True)
        for pair in zip(here.split(","), there.split(","), strict=True)
    ]
    return sum(here != there and not _near(here, there) for here, there in pairs)


def _near(here: str, there: str) -> bool:
    try:
        return abs(float(here) - float(there)) <= 1e-9 * max(1.0, abs(float(here)))
    except ValueError:
        return False


def main() -> int:
    """Make the lakes and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("judgments", nargs="*", type=float, default=[1e6, 1e7])
    parser.add_argument("--engine", default="sail")
    parser.add_argument("--view", default="metric_consistency")
    parser.add_argument("--keep", type=Path, help="where to make the lakes, and leave them")
    asked = parser.parse_args()
    n_different = 0
    with tempfile.TemporaryDirectory() as scratch:
        for n_rows in map(int, asked.judgments):
            path = (asked.keep or Path(scratch)) / str(n_rows)
            if not path.exists():
                subprocess.run(
                    [sys.executable, "-c", f"from tests.bench.engine import *; make(Path({str(path)!r}), {n_rows})"],
                    check=True,
                )
            size_mb = sum(file.stat().st_size for file in path.rglob("*.parquet")) / 1e6
            sys.stdout.write(f"{n_rows:,} judgments, {size_mb:,.0f} MB, {asked.view}\n")
            theirs, took = ask(path, asked.view)
            sys.stdout.write(f"  DuckDB  {took}; {theirs[0] if len(theirs) == 1 else f'{len(theirs) - 1} rows'}\n")
            sys.stdout.flush()
            ours, took = ask(path, asked.view, "--engine", asked.engine)
            n = differences(theirs, ours)
            sys.stdout.write(f"  {asked.engine:7} {took}; {len(ours) - 1} rows, {n} values differ\n")
            sys.stdout.flush()
            n_different += n
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
