"""The program of an earlier commit beside today's: what planning, whole runs and idle passes cost, in turns.

    python -m tests.bench.beside [--commit cc06c86] [--pairs 9] [--requests 20000]

Both programs get the same studies, files and simulator; each pair is one run of either, the order alternating.
Prints the CPU seconds of each verb as medians, and the median of the pairs' ratios (today's over the earlier one's):
`plan` of a study of ten cells, `plan`, `submit` and `sync` of a pairwise study, and a pass with nothing new over 100
open batches. Limit: 1.1. Exits 1 where it is passed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import orjson

from tests.bench import open_batches, plan, scale
from tests.rigs import older

LIMIT = 1.1
N_OPEN = 100
Costs = Mapping[str, float]
TEMPLATES = ("concise", "order_warned", "plain", "rubric_first", "step_by_step")
MODELS = ("gpt-5.4-mini", "gpt-5.4-nano")
N_ITEMS = 200


def write_study(folder: Path, n_requests: int) -> None:
    """Write a study of ten cells, which both programs understand: pairs in both orders, in so many requests."""
    items = ({"id": f"t{n:04}", "text": f"{n} {plan.TEXT}"} for n in range(N_ITEMS))
    (folder / "items.jsonl").write_bytes(b"".join(orjson.dumps(item) + b"\n" for item in items))
    count = n_requests // (2 * len(TEMPLATES) * len(MODELS))
    lines = ['study = "beside"', "[items]", 'path = "items.jsonl"', "[pairs]", f"count = {count}"]
    lines += ["[[rubrics]]", 'use = "overall_quality"', *(f'[[templates]]\nuse = "{name}"' for name in TEMPLATES)]
    lines += [f'[[models]]\nprovider = "openai"\nmodel = "{name}"\nmax_output_tokens = 300' for name in MODELS]
    (folder / "study.toml").write_text("\n".join(lines) + "\n", "utf-8")


def planned(python: str, n_requests: int) -> Costs:
    """Plan the study of ten cells."""
    with tempfile.TemporaryDirectory(prefix="beside-") as name:
        folder = Path(name)
        write_study(folder, n_requests)
        environ = {**os.environ, "BATCHPOND_LAKE": str(folder / "lake"), "OPENAI_API_KEY": "simulated"}
        return {"plan of ten cells": scale.run(["plan", str(folder / "study.toml")], environ, python).cpu_s}


def whole(python: str, n_requests: int) -> Costs:
    """Plan, submit and sync a pairwise study."""
    return {verb: used.cpu_s for verb, used in scale.measure(n_requests, python).items()}


def pairs(pythons: tuple[str, str], n_pairs: int, n_requests: int) -> Iterator[tuple[Costs, Costs]]:
    """Yield what the earlier program and today's took for everything, pair by pair."""
    with ExitStack() as stack:
        programs = [[python, "-m", "batchpond"] for python in pythons]
        lakes = [stack.enter_context(open_batches.opened(N_OPEN, ("openai",), one)) for one in programs]
        for number in range(n_pairs):
            taken: list[Costs] = [{}, {}]
            for which in (0, 1) if number % 2 else (1, 0):
                python = pythons[which]
                idle_s = open_batches.cpu_s([*programs[which], "sync"], lakes[which].environ)
                idle = {f"a pass over {N_OPEN} open": idle_s}
                taken[which] = {**planned(python, n_requests), **whole(python, n_requests), **idle}
            sys.stderr.write(f"pair {number + 1} of {n_pairs}\n")
            yield taken[0], taken[1]


def main() -> int:
    """Run the pairs and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="cc06c86")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=20_000)
    asked = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)  # what it names would run in the place of both
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as today:
        # Both as users have them: wheels, compiled when they are installed.
        pythons = (str(older.install(asked.commit, Path(before))), str(older.install(None, Path(today))))
        found = list(pairs(pythons, asked.pairs, asked.requests))
    is_kept = True
    for name in found[0][0]:
        earlier, now = ([costs[which][name] for costs in found] for which in (0, 1))
        ratio = statistics.median(mine / theirs for theirs, mine in zip(earlier, now, strict=True))
        is_kept &= ratio <= LIMIT
        medians = f"{statistics.median(earlier):6.2f} -> {statistics.median(now):6.2f} CPU s"
        sys.stdout.write(f"{name:22} {medians}  ratio {ratio:.2f}{'' if ratio <= LIMIT else f' OVER {LIMIT}'}\n")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
