"""Processes that are killed at any moment: commands that start at once, and lakes that go through many deaths.

A command is a child of a process that has its modules loaded, so that nearly every moment of its life is one of its
work. Its death is SIGKILL from outside.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path

from batchpond.cli import main, spare
from batchpond.errors import ExitCode
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from tests.rigs.forked import LOADED
from tests.rigs.processes import Rig, rig_at
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY, is_of, write_study

N_SHARDS = 4
N_REQUESTS = 24
DEATHS_A_LAKE = 12
SYNCS_MAX = 6
# How long a request that a dead process sent may still be on its way, where no settle time is waited for.
ON_ITS_WAY_S = 0.1
FIRST_GUESS_S = 1.0


@dataclass
class Nursery:
    """The process whose children the commands are."""

    process: subprocess.Popen[str]
    durations_s: dict[str, float] = field(default_factory=dict)

    def run(self, arguments: tuple[str, ...], environment: Mapping[str, str], die_after_s: float | None) -> int | None:
        """Run a command, or kill it on its way; returns how it ended, or None where it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([arguments, dict(environment)]) + "\n")
        self.process.stdin.flush()
        pid, began_s = int(self.process.stdout.readline()), time.monotonic()
        is_late = not select.select([self.process.stdout], [], [], die_after_s)[0]
        if is_late:
            os.kill(pid, signal.SIGKILL)
        status = int(self.process.stdout.readline())
        if status == -signal.SIGKILL:
            return None
        self.durations_s[arguments[0]] = time.monotonic() - began_s
        return status


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Start the process whose children the commands are."""
    command = [sys.executable, "-m", "tests.rigs.mortal"]
    root = Path(__file__).parents[2]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield Nursery(process)
        process.stdin.close()


def planned_lakes(folder: Path) -> dict[str, Path]:
    """Return a planned lake for each provider."""
    lakes = {}
    for name, provider in SIMULATED.items():
        study = write_study(folder / name, max_requests=6, models=provider.models)
        plan_study(Store.init(folder / name / "lake"), load(study))
        lakes[name] = folder / name / "lake"
    return lakes


def go_through(
    folder: Path, planned: Path, provider: str, born: Nursery, draw: random.Random
) -> tuple[Counter[str], list[str]]:
    """Kill submits and syncs of one lake again and again, then let it end; returns the deaths and what was broken."""
    deaths: Counter[str] = Counter()
    with rig_at(folder, planned, provider) as rig:
        for _ in range(4 * DEATHS_A_LAKE):
            if deaths.total() == DEATHS_A_LAKE or rig.is_complete(N_SHARDS):
                break
            arguments = draw.choice((("submit", STUDY, "--yes"), ("sync",)))
            rig.let_batches_end()
            most_s = born.durations_s.get(arguments[0], FIRST_GUESS_S)
            if born.run(arguments, rig.environment(), draw.random() * most_s) is None:
                deaths[arguments[0]] += 1
                time.sleep(ON_ITS_WAY_S)
        return deaths, _ended(rig)


def _ended(rig: Rig) -> list[str]:
    """Let a lake come to its end undisturbed and return every promise that is broken."""
    with redirect_stderr(io.StringIO()):
        codes = [rig.here("submit", STUDY, "--yes")]
        while not rig.is_complete(N_SHARDS) and len(codes) <= SYNCS_MAX:
            codes.append(rig.here("sync"))
    problems = [f"exit codes {codes}"] if {*codes} - {ExitCode.DONE, ExitCode.ATTENTION} else []
    if not rig.is_complete(N_SHARDS):
        problems.append(f"not complete after {len(codes)} commands")
    attempts = rig.lake_state().attempts.values()
    entries = rig.simulator.world.ledger.batches.values()
    shards = Counter(attempt.shard_id for entry in entries for attempt in attempts if is_of(entry, attempt))
    if (len(entries), sorted(shards.values())) != (N_SHARDS, [1] * N_SHARDS):
        problems.append(f"{len(entries)} batches for {N_SHARDS} shards: {dict(shards)}")
    if rig.billed()[0] != N_REQUESTS:
        problems.append(f"{rig.billed()[0]} requests billed of {N_REQUESTS}")
    if rig.n_answers() != (N_REQUESTS, N_REQUESTS):
        problems.append(f"{rig.n_answers()} answers of {N_REQUESTS}")
    return problems


def serve() -> None:
    """Fork a child for each command that is asked for, one after the other, and say how it ended."""
    spare()
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        arguments, environment = json.loads(line)
        pid = os.fork()
        if pid == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for own in range(3):
                os.dup2(nothing, own)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = ["batchpond", *arguments]
            os._exit(main(arguments))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
