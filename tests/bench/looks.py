"""What it costs to look: planning each view, and the commands that only read, against their limits.

    python -m tests.bench.looks [--lake DIR] [--rounds 3]

Runs the demo into a temporary lake (5,700 requests), unless a finished one is given. Prints for each view what planning
`SELECT * FROM view` takes (EXPLAIN as JSON, one thread), and for each command the whole process, in CPU seconds, the
best of some rounds, its modules compiled as an installation has them: figure, limit, and their ratio. Ends with 1 where
a limit is passed. What all views take with EXPLAIN's boxes is printed beside it and held by nothing: drawing a wide
plan takes several times as long as making it, and no command draws one. `tests/unit/views/test_planning.py` holds the
same by counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from batchpond.lake.tables import quoted
from batchpond.views import database

VIEW_MAX_S = 0.15
MEDIAN_MAX_S = 0.03
ALL_MAX_S = 4.0
PROGRAM = (sys.executable, "-m", "batchpond")
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "--help": ((*PROGRAM, "--help"), 0.15),
    "import batchpond; Lake()": ((sys.executable, "-c", "import batchpond; batchpond.Lake()"), 0.3),
    'query "select 1"': ((*PROGRAM, "query", "select 1"), 0.3),
    "status": ((*PROGRAM, "status"), 0.4),
    "results --limit 10": ((*PROGRAM, "results", "--limit", "10"), 0.4),
    "query report_consistency": ((*PROGRAM, "query", "from report_consistency"), 0.5),
    "rank": ((*PROGRAM, "rank"), 0.7),
    "report, Markdown": ((*PROGRAM, "report", "-o", "looks.md", "--force"), 2.0),
    "report": ((*PROGRAM, "report", "-o", "looks.html", "--force"), 3.0),
    "report, drawn anew": (
        ("env", f"XDG_CACHE_HOME={os.devnull}", *PROGRAM, "report", "-o", "looks.html", "--force"),
        5.5,
    ),
}


def planned_s(lake_path: Path, how: str, rounds: int) -> dict[str, float]:
    """Return the CPU seconds that planning each table and view takes, by a form of EXPLAIN."""
    found = {}
    with database.connect(lake_path) as connection:
        connection.execute("SET threads = 1")
        for view in database.views():
            taken = []
            for _ in range(rounds):
                before = time.process_time()
                connection.execute(f"{how} SELECT * FROM {quoted(view.name)}").fetchall()
                taken.append(time.process_time() - before)
            found[view.name] = min(taken)
    return found


def run_s(command: tuple[str, ...], lake_path: Path, folder: Path, rounds: int) -> float:
    """Return the CPU seconds of a process; raises CalledProcessError when it fails."""
    environment = os.environ | {"BATCHPOND_LAKE": str(lake_path), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    taken = []
    for _ in range(rounds + 1):  # the first one compiles
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def show(name: str, figure_s: float, limit_s: float) -> bool:
    """Print a line; returns whether the limit holds."""
    ratio = figure_s / limit_s
    print(f"{name:32} {figure_s:8.3f} s of {limit_s:5.2f} s {ratio:7.2f}{'' if ratio <= 1 else '  TOO MUCH'}")
    return ratio <= 1


def main() -> None:
    """Measure, print, and end with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        lake_path = arguments.lake.resolve() if arguments.lake else Path(scratch) / "lake"
        if not arguments.lake:
            subprocess.run((*PROGRAM, "demo", "--lake", str(lake_path)), check=True, capture_output=True)
        drawn = planned_s(lake_path, "EXPLAIN", 1)
        print(f"with boxes: all {sum(drawn.values()):.2f} s, at most {max(drawn.values()):.3f} s")
        planned = planned_s(lake_path, "EXPLAIN (FORMAT json)", arguments.rounds)
        dear = sorted(planned.items(), key=lambda pair: pair[1], reverse=True)
        held = [show(name, seconds, VIEW_MAX_S) for name, seconds in dear]
        held.append(show(f"median of {len(planned)} views", statistics.median(planned.values()), MEDIAN_MAX_S))
        held.append(show(f"all {len(planned)} views", sum(planned.values()), ALL_MAX_S))
        for name, (command, limit_s) in COMMANDS.items():
            held.append(show(name, run_s(command, lake_path, Path(scratch), arguments.rounds), limit_s))
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
