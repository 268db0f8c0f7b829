"""How many judgments a ranking needs when pairs are chosen in rounds by earlier answers, and when at random.

    python -m tests.bench.adaptive [--seeds 100] [--through 12] [--items 50] [--sd 3] [--rho 0.95] [--per-item 3]

A judge prefers by the logistic of a gap in theta ~ N(0, sd^2), .3 in favour of what is shown first. Counted is every
judgment asked for, held-out and reversed ones included; the mean Spearman correlation with the truth over all seeds
is followed, and where its line crosses `rho` is the number of judgments needed. Both ways are estimated alike: as
`rank` does (Firth) and as the rounds are planned (MAP).

`--seeds` runs in memory; `--through` of them go through simulated batches too, both ways, from study file to last
answer by `sync` alone, and there the pairs of every adaptive round must be those that the same function chooses in
memory by the same answers. Exit code 1 when a pair differs, or fewer than a quarter of the judgments are saved.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchpond.stats.votes import Votes
from batchpond.study.spec import AdaptiveSpec, PairsSpec
from tests.rigs.adaptive_study import (
    Numbers,
    Row,
    Say,
    judge_of,
    play,
    replayed,
    rho_firth,
    rho_map,
    rig_of,
    table_of,
    told,
)
from tests.rigs.sim_study import Rig

RANDOM_STEP = 25
ESTIMATES: dict[str, Callable[[Votes, Numbers], float]] = {"rank (Firth)": rho_firth, "MAP": rho_map}
MODEL = "gpt-4.1-mini"


@dataclass(frozen=True)
class Design:
    """What is measured."""

    n_items: int
    sd: float
    rho: float
    per_item: int
    n_rounds: int

    @property
    def spec(self) -> PairsSpec:
        """The pairs of a study, as the study file has them."""
        return PairsSpec(reverse=0.1, adaptive=AdaptiveSpec(self.n_rounds, per_item=self.per_item, stop_stale=False))

    @property
    def toml(self) -> str:
        """The same as a study file says it."""
        return f"rounds = {self.n_rounds}\nper_item = {self.per_item}\nstop_stale = false"

    @property
    def random_sizes(self) -> list[int]:
        """After how many random judgments a ranking is made."""
        return list(range(2 * self.n_items, 12 * self.n_items, RANDOM_STEP))

    def theta(self, seed: int) -> Numbers:
        """Return the truth of a seed, as study files can say it."""
        return np.random.default_rng(seed).normal(0, self.sd, self.n_items).round(4)


def random_rows(design: Design, seed: int, n: int, say: Say) -> list[Row]:
    """Return judgments of different random pairs, each in a random order."""
    rng = np.random.default_rng([seed, 1])
    lo, hi = np.triu_indices(design.n_items, 1)
    at = rng.permutation(len(lo))[:n]
    turn = rng.random(len(at)) < 0.5
    first, second = np.where(turn, lo[at], hi[at]).tolist(), np.where(turn, hi[at], lo[at]).tolist()
    return [(a, b, "random", 1, say(a, b)) for a, b in zip(first, second, strict=True)]


def curve(design: Design, theta: Numbers, rows: Sequence[Row], sizes: Sequence[int]) -> Numbers:
    """Return the correlation with the truth after so many judgments, shape (estimates, sizes)."""
    tables = [table_of(design.n_items, rows[:size]) for size in sizes]
    return np.array([[rho(table, theta) for table in tables] for rho in ESTIMATES.values()])


def crossing(sizes: Sequence[int], line: Numbers, rho: float) -> float:
    """Return where a rising line crosses rho, between its points; NaN where it does not."""
    over = np.flatnonzero(line >= rho)
    if not len(over) or not over[0]:
        return float(sizes[0]) if len(over) else float("nan")
    at = int(over[0])
    share = (rho - line[at - 1]) / (line[at] - line[at - 1])
    return float(sizes[at - 1] + share * (sizes[at] - sizes[at - 1]))


def in_memory(design: Design, n_seeds: int) -> bool:
    """Print what both ways need, and whether a quarter is saved."""
    adaptive_sizes, random_sizes = [0], design.random_sizes
    found: dict[str, list[Numbers]] = {"adaptive": [], "random": []}
    for seed in range(n_seeds):
        theta = design.theta(seed)
        rounds = play(design.n_items, design.spec, seed, judge_of(theta, np.random.default_rng([seed, 2])))
        adaptive_sizes = np.cumsum([len(one) for one in rounds]).tolist()
        found["adaptive"].append(curve(design, theta, [row for one in rounds for row in one], adaptive_sizes))
        rows = random_rows(design, seed, random_sizes[-1], judge_of(theta, np.random.default_rng([seed, 3])))
        found["random"].append(curve(design, theta, rows, random_sizes))
    return report(design, found, adaptive_sizes, random_sizes)


def report(
    design: Design, found: dict[str, list[Numbers]], adaptive_sizes: Sequence[int], random_sizes: Sequence[int]
) -> bool:
    """Print judgments needed by each way and estimate; returns whether every one saves a quarter."""
    is_saved = True
    for number, name in enumerate(ESTIMATES):
        lines = {way: np.mean([curves[number] for curves in found[way]], axis=0) for way in found}
        needed = {
            "adaptive": crossing(adaptive_sizes, lines["adaptive"], design.rho),
            "random": crossing(random_sizes, lines["random"], design.rho),
        }
        saved = 1 - needed["adaptive"] / needed["random"]
        is_saved &= bool(saved >= 0.25)
        print(f"{name}: adaptive {needed['adaptive']:.0f}, random {needed['random']:.0f}: {saved:.0%} fewer")
        print(
            "  rho by round:", ", ".join(f"{n} {r:.3f}" for n, r in zip(adaptive_sizes, lines["adaptive"], strict=True))
        )
    return is_saved


def through_batches(design: Design, n_seeds: int) -> bool:
    """Run whole studies against a simulated provider, both ways.

    Prints what they need, and returns whether all adaptive ones chose as memory does and saved a quarter.
    """
    found: dict[str, list[Numbers]] = {"adaptive": [], "random": []}
    is_same, sizes, random_sizes = True, [0], design.random_sizes
    started = time.process_time()
    for seed in range(n_seeds):
        theta = design.theta(seed)
        rows, violations = answered(design, theta, design.toml, seed, "adaptive")
        is_same &= rows == replayed(design.n_items, design.spec, rows, seed) and not violations
        sizes = np.cumsum(np.unique([row[3] for row in rows], return_counts=True)[1]).tolist()
        found["adaptive"].append(curve(design, theta, rows, sizes))
        asked = f"count = {random_sizes[-1]}\nreverse = 0.0"
        rows, violations = answered(design, theta, asked, seed, "random")
        is_same &= not violations
        order = np.random.default_rng([seed, 1]).permutation(len(rows)).tolist()
        found["random"].append(curve(design, theta, [rows[at] for at in order], random_sizes))
    seconds = time.process_time() - started
    same = "the same pairs as in memory" if is_same else "OTHER PAIRS than in memory, or a broken promise"
    print(f"{n_seeds} studies of each way through simulated batches, {len(sizes)} rounds, {seconds:.0f} s CPU: {same}")
    return report(design, found, sizes, random_sizes) and is_same


def answered(design: Design, theta: Numbers, pairs: str, seed: int, select: str) -> tuple[list[Row], list[str]]:
    """Return the judgments of one study that `sync` alone brought to its end, and promises that it broke."""
    with tempfile.TemporaryDirectory() as folder:
        rig = rig_of(Path(folder) / "rig", theta, pairs, seed=seed, select=select)
        rig.plan() if select == "adaptive" else Rig.plan(rig)
        rig.submit()
        rig.finish()
        rows = told(rig, MODEL)
        if len(rows) < design.n_items:
            raise AssertionError(f"seed {seed}: {len(rows)} judgments")
        return rows, list(rig.violations())


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--through", type=int, default=12)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--sd", type=float, default=3.0)
    parser.add_argument("--rho", type=float, default=0.95)
    parser.add_argument("--per-item", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    design = Design(wanted.items, wanted.sd, wanted.rho, wanted.per_item, wanted.rounds)
    print(f"{wanted.items} items, sd {wanted.sd:g}, bias .3, rho {wanted.rho:g}, {wanted.seeds} seeds in memory")
    is_good = in_memory(design, wanted.seeds) if wanted.seeds else True
    return 0 if (not wanted.through or through_batches(design, wanted.through)) and is_good else 1


if __name__ == "__main__":
    sys.exit(main())
