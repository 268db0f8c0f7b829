"""Studies of all settings at once: `python -m tests.sweeps.combinations [--seeds 200] [--first 0] [--changed]`.

Each seed is a study of stages, files, judges, faults and moments to die that nobody chose, asked to its end against the
simulators (`tests/rigs/combined.py` draws it and says what is held to be true). With `--changed` somebody changes study
and files five times meanwhile, and sends, cancels and asks again in between (`tests/rigs/changed.py`). Prints what is
wrong by seed, and why studies were refused; exits 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

from batchpond.errors import StudyError
from tests.rigs.changed import Walk
from tests.rigs.combined import carry_out, drawn, rig_of


class Outcome(NamedTuple):
    """What came of a seed: what is wrong, or why its study was refused."""

    seed: int
    stages: list[str]
    wrong: list[str]
    refused: str = ""


def play(seed: int, *, is_changed: bool = False) -> Outcome:
    """Ask the study of a seed to its end; what ends it before is wrong too, but for a refusal of the study."""
    study = drawn(seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            rig = rig_of(Path(folder), study)
            if not is_changed:
                return Outcome(seed, study.stages, list(carry_out(rig, study)))
            walk = Walk(rig, study)
            wrong = list(walk.play())
            return Outcome(seed, study.stages, wrong and [*wrong, "; ".join(walk.said)])
        except StudyError as error:
            return Outcome(seed, study.stages, [], str(error).replace(folder, ""))
        except Exception as error:  # noqa: BLE001 - it is what the seed came to
            return Outcome(seed, study.stages, [f"{type(error).__name__}: {error}"])


def main() -> int:
    """Play the seeds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--changed", action="store_true")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    began_s, n_wrong, refused = time.monotonic(), 0, Counter[str]()
    with multiprocessing.Pool(asked.jobs, maxtasksperchild=10) as pool:
        for outcome in pool.imap(partial(play, is_changed=asked.changed), seeds):
            n_wrong += bool(outcome.wrong)
            refused[outcome.refused] += bool(outcome.refused)
            for line in outcome.wrong:
                sys.stdout.write(f"{outcome.seed} {' '.join(outcome.stages)}: {line}\n")
            sys.stdout.flush()
    for why, n in refused.most_common():
        sys.stdout.write(f"refused {n} times: {why}\n" if why else "")
    wall_s = time.monotonic() - began_s
    sys.stdout.write(f"{asked.seeds} studies, {refused.total()} refused, {n_wrong} wrong; {wall_s:.0f} s\n")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
