"""SIGKILL at every failpoint at every provider, and at every point of a round change, as processes.

`python -m tests.sweeps.kills [pytest options]`; at any moment instead, so often in all, batches of every provider and
live calls in turn: `python -m tests.sweeps.kills --moments 1000 [--seed 0]`, which prints how many there were and each
promise that was broken, and exits 1 when any was.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.process.test_live_kills import Scale, kill_at_random
from tests.rigs import mortal
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.swept import EVERYTHING
from tests.sweeps import played

LIVE = Scale(n_requests=400, n_kills=12, concurrency=8)


def at_any_moment(n_moments: int, seed: int) -> int:
    """Kill so often, at moments that nobody chose, or until Ctrl-C, and print what came of it."""
    draw, began_s = random.Random(seed), time.monotonic()
    deaths: Counter[str] = Counter()
    n_lakes = n_doubts = n_broken = 0
    with tempfile.TemporaryDirectory() as scratch, mortal.nursery() as born:
        folder = Path(scratch)
        lakes = mortal.planned_lakes(folder)
        with suppress(KeyboardInterrupt):  # what came of it so far is worth as much
            while deaths.total() < n_moments:
                for name in SIMULATED:
                    own = folder / f"lake-{n_lakes}"
                    own.mkdir()
                    found, problems = mortal.go_through(own, lakes[name], name, born, draw)
                    deaths.update({f"{name} {verb}": n for verb, n in found.items()})
                    n_lakes += 1
                    n_broken += bool(problems)
                    sys.stdout.write("".join(f"lake {n_lakes} of {name}: {problem}\n" for problem in problems))
                n_doubts += kill_at_random(folder / f"live-{n_lakes}", LIVE, draw)
                deaths["live"] += LIVE.n_kills
                sys.stdout.flush()
    by = ", ".join(f"{n} {name}" for name, n in sorted(deaths.items()))
    sys.stdout.write(
        f"{deaths.total()} kills ({by}) in {n_lakes} lakes of batches, {n_doubts} live calls in doubt, all listed;"
        f" {n_broken} lakes with a broken promise; {time.monotonic() - began_s:.0f} s\n"
    )
    return 1 if n_broken else 0


def main() -> int:
    """Kill at the failpoints, or at any moment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    asked, others = parser.parse_known_args()
    if asked.moments:
        return at_any_moment(asked.moments, asked.seed)
    os.environ[EVERYTHING] = "all"
    process = Path(__file__).parents[1] / "process"
    tests = [os.fspath(process / f"test_{name}.py") for name in ("kill_sweep", "stages_kills")]
    return played(*tests, *others)


if __name__ == "__main__":
    sys.exit(main())
