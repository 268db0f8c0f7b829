"""Hosts that share a lake in a bucket: `python -m tests.sweeps.hosts [--kills 200] [--sleeps 50] [--seed 0]`.

Eight submit and sync at once, each over a mirror of its own; every death is SIGKILL, every sleep SIGSTOP for up to
three leases. A lake is let come to its end and checked by the provider's own ledger; then the next begins, at each
provider in turn. `--bucket ADDRESS` is one in another store, whose variables are set, in the place of the tests' S3.
Prints what was done and each promise that was broken; exits 1 when any was.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.rigs.hosts import disturb, hosts
from tests.rigs.sim_providers import SIMULATED

KILLS_A_LAKE = 16
BOUND_A_LAKE_S = 90.0


def main() -> int:
    """Disturb so often, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("kills", 200), ("sleeps", 50), ("hosts", 8), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bucket", default="")
    asked = parser.parse_args()
    draw, began_s = random.Random(asked.seed), time.monotonic()
    n_kills = n_sleeps = n_runs = n_broken = n_lakes = 0
    codes: Counter[int] = Counter()
    names = list(SIMULATED)
    while n_kills < asked.kills or n_sleeps < asked.sleeps:
        name = names[n_lakes % len(names)]
        with tempfile.TemporaryDirectory() as scratch, hosts(Path(scratch), name, asked.bucket) as made:
            kills = min(KILLS_A_LAKE, max(asked.kills - n_kills, 0))
            sleeps = min(KILLS_A_LAKE // 3, max(asked.sleeps - n_sleeps, 0))
            toll = disturb(made, draw, kills, sleeps, asked.hosts, BOUND_A_LAKE_S)
            ended = made.finish()
            problems = made.problems()
        problems += toll.strange
        n_lakes += 1
        n_kills, n_sleeps, n_runs = n_kills + toll.n_kills, n_sleeps + toll.n_sleeps, n_runs + toll.n_runs
        n_broken += bool(problems)
        codes.update(toll.codes)
        print(
            f"lake {n_lakes} at {name}: {toll.n_kills} kills, {toll.n_sleeps} sleeps, then {ended}",
            *problems,
            sep="\n  ",
        )
        sys.stdout.flush()
    told = ", ".join(f"{n} with {code}" for code, n in sorted(codes.items()))
    print(
        f"{n_kills} kills and {n_sleeps} sleeps of {n_runs} commands on {asked.hosts} hosts ({told})"
        f" in {n_lakes} lakes; {n_broken} with a broken promise; {time.monotonic() - began_s:.0f} s"
    )
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
