"""Hosts that share one lake in a bucket, each with mirrors of its own; their commands are killed and put to sleep.

Bucket, provider and hosts are on loopback. A host is a folder of mirrors and the commands that run over it.
"""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from batchpond import Lake
from batchpond.cli import main
from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase, fold
from batchpond.lake.events import read
from batchpond.lake.records import DuplicateRemote
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from batchpond_sim.host import server
from tests.rigs import forked, s3
from tests.rigs.processes import SETTINGS
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY, is_of, write_study

N_SHARDS = 4
N_REQUESTS = 24
LEASE_S = 2.0
SHORT_LEASE_S = 0.2
SETTLE_S = 8.0
"""Longer than any sleep: whoever is woken later than that may have been called absent."""
SLEEP_MAX_S = 6.0
SYNCS_MAX = 24
# Another writes, or has taken over, is what several hosts are told; nothing says that the lake is damaged.
USUAL = {ExitCode.DONE, ExitCode.ATTENTION, ExitCode.BUSY}


@dataclass
class Toll:
    """What was done to commands, and what of it was seen."""

    n_kills: int = 0
    n_sleeps: int = 0
    n_runs: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)


@dataclass
class Hosts:
    """One lake, one provider, and hosts by number."""

    folder: Path
    simulator: server.Running
    provider: str
    variables: dict[str, str]
    shop: s3.Shop

    def environment(self, host: int, **more: str) -> dict[str, str]:
        """Return what a command on a host has."""
        provider = SIMULATED[self.provider]
        return {
            **os.environ,
            provider.url_env: self.simulator.base_url_of(self.provider),
            provider.key_env: "sk-simulated",
            "BATCHPOND_MIRRORS": f"{self.folder}/host-{host}",
            "BATCHPOND_TEST_LEASE_S": str(LEASE_S),
            "BATCHPOND_TEST_SETTLE_S": str(SETTLE_S),
            **self.variables,
            **more,
        }

    @property
    def url(self) -> str:
        """The lake's address."""
        return self.variables["BATCHPOND_LAKE"]

    def start(self, host: int, *arguments: str, **more: str) -> forked.Started:
        with (self.folder / f"said-{host}").open("wb") as said:
            return forked.start(*arguments, env=self.environment(host, **more), stderr=said.fileno())

    def here(self, host: int, *arguments: str) -> int:
        """Run a command of a host to its end in this process."""
        self.simulator.world.advance(20.0)
        with patch.dict(os.environ, self.environment(host)):
            return main(arguments)

    @contextmanager
    def store(self, host: int) -> Iterator[Store]:
        """Open the lake as a host has it."""
        with patch.dict(os.environ, self.environment(host)):
            yield Store.open(Path(self.url))

    def is_complete(self) -> bool:
        """Whether every shard's latest batch is verified, as a host sees it that nobody has disturbed."""
        with self.store(0) as store:
            state = fold(read(store))
        latest = [state.latest_attempt(shard_id) for shard_id in state.shards]
        return len(latest) == N_SHARDS and all(one is not None and one.phase is Phase.VERIFIED for one in latest)

    def finish(self) -> list[int]:
        """Let one host bring the study to its end, undisturbed; returns the exit codes."""
        self.variables["BATCHPOND_TEST_LEASE_S"] = str(LEASE_S)
        with redirect_stderr(io.StringIO()):
            codes = [self.here(0, "submit", STUDY, "--yes")]
            while not self.is_complete() and len(codes) <= SYNCS_MAX:
                time.sleep(LEASE_S)
                codes.append(self.here(0, "sync"))
                codes.append(
                    self.here(0, "submit", STUDY, "--yes")
                )  # for what a pass alone asks again ever more rarely
        return codes

    def problems(self) -> list[str]:
        """Return every promise that is broken, by the provider's own ledger and by what each host sees."""
        found = [] if self.is_complete() else ["not complete"]
        with self.store(0) as store:
            attempts = fold(read(store)).attempts.values()
            n_told = sum(isinstance(event, DuplicateRemote) for event in read(store))
        entries = self.simulator.world.ledger.batches.values()
        shards = Counter(attempt.shard_id for entry in entries for attempt in attempts if is_of(entry, attempt))
        if sorted(shards.values()) != [1] * N_SHARDS or len(entries) != N_SHARDS:
            found.append(f"{len(entries)} batches for {N_SHARDS} shards, {n_told} duplicates told: {dict(shards)}")
        for host in (0, 1, 99):  # the last has no mirror yet
            with patch.dict(os.environ, self.environment(host)):
                rows = (
                    Lake(self.url)
                    .sql("SELECT count(*), count(DISTINCT request_id), count(verdict) FROM results")
                    .rows()
                )
                lines = Lake(self.url).sql("SELECT count(*), count(DISTINCT line_number || file_id) FROM raw").rows()
            if rows[0][:2] != (N_REQUESTS, N_REQUESTS) or lines[0] != (N_REQUESTS, N_REQUESTS):
                found.append(f"host {host} sees {rows} of {N_REQUESTS} results, and {lines} lines")
        return found


@contextmanager
def hosts(folder: Path, provider: str = "openai", bucket: str = "", faults: tuple[str, ...] = ()) -> Iterator[Hosts]:
    """Plan a lake in a bucket, ours or one in another store, and run a provider."""
    models = SIMULATED[provider].models
    with s3.served() as shop, server.running(replace(SETTINGS, faults=faults), folder / "world") as simulator:
        made = Hosts(folder, simulator, provider, {} if bucket else shop.environ, shop)
        made.variables["BATCHPOND_LAKE"] = f"{bucket or 's3://bucket-one'}/{folder.name}"
        with patch.dict(os.environ, made.environment(0)):
            plan_study(Store.init(Path(made.url)), load(write_study(folder / "study", max_requests=6, models=models)))
        yield made


def disturb(
    made: Hosts,
    draw: random.Random,
    n_kills: int,
    n_sleeps: int,
    n_hosts: int,
    bound_s: float,
    sleep_max_s: float = SLEEP_MAX_S,
) -> Toll:
    """Have all hosts submit and sync at once, and kill them and put them to sleep, until that was so often.

    The lease is one that mostly keeps them apart, or one that often does not.
    """
    made.variables["BATCHPOND_TEST_LEASE_S"] = str(draw.choice((LEASE_S, SHORT_LEASE_S)))
    toll, until_s = Toll(), time.monotonic() + bound_s
    running: dict[int, forked.Started] = {}
    asleep: dict[int, float] = {}
    while time.monotonic() < until_s and (toll.n_kills < n_kills or toll.n_sleeps < n_sleeps):
        made.simulator.world.advance(5.0)
        for host in range(1, n_hosts + 1):
            command = running.get(host)
            if command is None:
                arguments = draw.choice((("submit", STUDY, "--yes"), ("sync",), ("sync",)))
                running[host] = made.start(host, *arguments)
                toll.n_runs += 1
            elif _ended(command, toll, made.folder / f"said-{host}", 0.001):
                del running[host]
                asleep.pop(host, None)
            elif host in asleep:
                if time.monotonic() > asleep[host]:
                    _signal(command, signal.SIGCONT)
                    del asleep[host]
            elif draw.random() < 0.04 and toll.n_kills < n_kills:
                _signal(command, signal.SIGKILL)
                toll.n_kills += 1
            elif draw.random() < 0.02 and toll.n_sleeps < n_sleeps:
                _signal(command, signal.SIGSTOP)
                asleep[host] = time.monotonic() + draw.uniform(0.5, sleep_max_s)
                toll.n_sleeps += 1
        time.sleep(0.05)
    for host, command in running.items():
        _signal(command, signal.SIGCONT)
        _ended(command, toll, made.folder / f"said-{host}", 60.0)
    return toll


def _signal(command: forked.Started, number: int) -> None:
    with suppress(ProcessLookupError):  # it ended just now
        command.send_signal(number)


def _ended(command: forked.Started, toll: Toll, said: Path, wait_s: float) -> bool:
    try:
        code = command.wait(wait_s)
    except subprocess.TimeoutExpired:
        return False
    toll.codes[code] += 1
    if code >= 0 and code not in USUAL:
        toll.strange.append(f"exit {code}: {said.read_text('utf-8')[-600:]}")
    return True
