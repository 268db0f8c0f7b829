"""Many seeded schedules: `python -m tests.sweeps.schedules --seeds 2000 [--first 0] [--jobs 2]`.

Prints each broken promise with its history and the seed that replays it, then the figures; exits 1
when any promise was broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.rigs import schedules

SHARE = 100  # what has to be played undisturbed is played once for each


def _play(base: Path, seeds: Sequence[int]) -> list[schedules.Outcome]:
    folder = Path(tempfile.mkdtemp(dir=base))
    undisturbed = schedules.Undisturbed(folder / "undisturbed")
    outcomes = []
    for seed in seeds:
        path = folder / str(seed)
        outcomes.append(schedules.run(seed, path, undisturbed))
        shutil.rmtree(path)
    shutil.rmtree(folder)
    return outcomes


def main() -> int:
    """Play the seeds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    shares = [seeds[at : at + SHARE] for at in range(0, len(seeds), SHARE)]
    started_s = time.monotonic()
    n_broken = n_crashes = n_done = n_lossy = passes_max = 0
    # Its workers are replaced now and then: what a process plays stays in its memory.
    with tempfile.TemporaryDirectory() as base, multiprocessing.Pool(asked.jobs, maxtasksperchild=1) as pool:
        for outcomes in pool.imap(partial(_play, Path(base)), shares):
            for outcome in outcomes:
                n_done += 1
                n_lossy += outcome.is_lossy
                n_crashes += outcome.n_crashes
                passes_max = max(passes_max, outcome.n_passes)
                if outcome.problems:
                    n_broken += 1
                    sys.stdout.write(f"{outcome}\n")
            sys.stdout.flush()  # what was found by then is worth as much
    wall_s = time.monotonic() - started_s
    sys.stdout.write(
        f"{n_done} schedules ({n_lossy} with faults in the answers), {n_crashes} crashes, {n_broken} with a broken"
        f" promise; at most {passes_max} passes to the end; {wall_s:.0f} s\n"
    )
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
