"""Workers of mode `files`, killed at any moment: `python -m tests.sweeps.workers [--kills 100] [--seed 0] [--far]`.

Two to four workers on two hosts share a folder of 2,450 requests in parts of 200, or with `--far` an address of an
object store on the loopback; every death is SIGKILL, or now and then a sleep of more than the lease. A folder whose
work is done is checked whole (`sync`, audit, one row a request) and the next begins. Prints how many calls a death
cost, by the server's own ledger; exits 1 with the first broken promise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.rigs.workers import Size, Toll, far_workers, kill_at_random, submitted, workers

SIZE = Size(n_items=50, max_requests=1_000, part_requests=200)
CONCURRENCY = 8
LATENCY_S = (0.02, 0.1)
LEASE_S, FAR_LEASE_S = 1.0, 3.0  # a store dates what it holds in whole seconds


def main() -> int:
    """Kill so often, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--far", action="store_true")
    asked = parser.parse_args()
    laid_out, lease_s = (far_workers, FAR_LEASE_S) if asked.far else (workers, LEASE_S)
    draw, began_s, total, n_folders = random.Random(asked.seed), time.monotonic(), Toll(), 0
    with tempfile.TemporaryDirectory() as scratch:
        lake = submitted(Path(scratch) / "submitted", SIZE)
        while total.n_kills < asked.kills:
            with laid_out(Path(scratch) / str(n_folders), lake, SIZE, live_latency_s=LATENCY_S) as made:
                n_kills = asked.kills - total.n_kills
                toll = kill_at_random(made, draw, n_kills, concurrency=CONCURRENCY, lease_s=lease_s)
            n_folders += 1
            total.n_kills += toll.n_kills
            total.n_sleeps += toll.n_sleeps
            total.n_again += toll.n_again
            total.n_again_most = max(total.n_again_most, toll.n_again_most)
            print(f"folder {n_folders}: {toll.n_kills} kills, {toll.n_sleeps} sleeps, {toll.n_again} calls again")
    deaths = total.n_kills + total.n_sleeps
    print(
        f"{total.n_kills} kills and {total.n_sleeps} sleeps in {n_folders} folders of {SIZE.n_requests:,} requests:"
        f" {total.n_again} calls made again, {total.n_again / deaths:.1f} a death, at worst {total.n_again_most:.1f}"
        f" in a folder (bound {CONCURRENCY + SIZE.part_requests}), all whole; {time.monotonic() - began_s:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
