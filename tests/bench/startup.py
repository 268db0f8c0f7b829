"""What each trick of `cli` saves a pass with nothing new: `python -m tests.bench.startup [--runs 15]`.

Plans and submits a small study to a simulator, syncs it to its end, and then runs `sync` again and again: as it is,
and without one trick at a time, interleaved. Prints the median CPU time of each way and its ratio to the first.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study
from tests.rigs.sim_providers import SIMULATED

PROGRAM = """
import sys
from batchpond import cli
{without}
from batchpond.cli import program
sys.exit(program())
"""
WAYS = {
    "as it is": "",
    "collecting while modules load": "import gc; cli.gc = type('', (), "
    "{'set_threshold': staticmethod(lambda _: None), 'freeze': gc.freeze})",
    "httpx's command line": "spare = cli.spare\n"
    "def loading():\n    spare(); del sys.modules['httpx._main']\ncli.spare = loading",
    "pandas": "spare = cli.spare\ndef loading():\n    spare(); del sys.meta_path[0]\ncli.spare = loading",
    "searching at exit": "cli.spare_exit = lambda: None",
    "threads of linear algebra": "from contextlib import nullcontext\n"
    "cli.linear_algebra = lambda threads: nullcontext()",
}


def main() -> None:
    """Measure every way and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    n_runs = parser.parse_args().runs
    openai = SIMULATED["openai"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with server.running(Settings(seed=1, latency_s=(5.0, 10.0)), folder / "world") as simulator:
            environment = os.environ | {
                openai.url_env: simulator.base_url_of("openai"),
                openai.key_env: "sk-simulated",
                "BATCHPOND_LAKE": str(folder / "lake"),
            }

            def cpu_s(without: str, *arguments: str) -> float:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [sys.executable, "-c", PROGRAM.format(without=without), *arguments]
                subprocess.run(command, env=environment, check=True, capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

            cpu_s("", "plan", str(write_study(folder)))
            cpu_s("", "submit", STUDY, "--yes")
            simulator.world.advance(20.0)
            cpu_s("", "sync")
            taken: dict[str, list[float]] = {name: [] for name in WAYS}
            for _ in range(n_runs):
                for name, without in WAYS.items():
                    taken[name].append(cpu_s(without, "sync"))
    usual = statistics.median(taken["as it is"])
    for name, seconds in taken.items():
        median = statistics.median(seconds)
        print(f"{name:32} {median * 1000:6.0f} ms CPU  {median / usual:5.2f}  {(median - usual) * 1000:+6.0f} ms")


if __name__ == "__main__":
    main()
