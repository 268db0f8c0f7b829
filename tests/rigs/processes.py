"""A lake and a simulated provider on a loopback port; every command is a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from batchpond.cli import main
from batchpond.lake import failpoints, tables
from batchpond.lake.attempts import LakeState, Phase, fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs import forked
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import STUDY

SETTINGS = Settings(seed=1, latency_s=(5.0, 10.0))
PROGRAM = (sys.executable, "-m", "batchpond")


@dataclass
class Rig:
    """A lake and a running simulator."""

    lake: Path
    simulator: server.Running
    provider: str = "openai"

    def environment(self, failpoint: str | None = None) -> dict[str, str]:
        """Return the environment that a user of the simulator has."""
        named = {failpoints.VARIABLE: failpoint} if failpoint else {}
        return os.environ | named | {
            SIMULATED[self.provider].url_env: self.simulator.base_url_of(self.provider),
            SIMULATED[self.provider].key_env: "sk-simulated",
            "BATCHPOND_TEST_SETTLE_S": "0", "BATCHPOND_LAKE": os.fspath(self.lake),
        }  # fmt: skip

    def start(
        self,
        *arguments: str,
        failpoint: str | None = None,
        stderr: int = subprocess.DEVNULL,
    ) -> forked.Started:
        """Start a command; with a failpoint it kills or stops itself there."""
        return forked.start(*arguments, env=self.environment(failpoint), stderr=stderr)

    def start_program(
        self,
        *arguments: str,
        program: tuple[str, ...] = PROGRAM,
        failpoint: str | None = None,
        stderr: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a command as a program of its own, from its first line of Python on."""
        return subprocess.Popen(
            [*program, *arguments], env=self.environment(failpoint), stdout=subprocess.DEVNULL, stderr=stderr
        )

    def run(self, *arguments: str, failpoint: str | None = None) -> int:
        """Run a command to its end; returns its exit status, negative for a signal."""
        self.let_batches_end()
        return self.start(*arguments, failpoint=failpoint).wait(120)

    def here(self, *arguments: str) -> int:
        """Run a command to its end in this process, which is enough before and after the one that is killed."""
        self.let_batches_end()
        with patch.dict(os.environ, self.environment()):
            return main(arguments)

    def let_batches_end(self) -> None:
        """Move the provider's time on, past the end of whatever was created."""
        self.simulator.world.advance(20.0)

    def submit(self, failpoint: str | None = None) -> int:
        """Run `submit --yes`."""
        return self.run("submit", STUDY, "--yes", failpoint=failpoint)

    def sync(self, failpoint: str | None = None) -> int:
        """Run `sync`."""
        return self.run("sync", failpoint=failpoint)

    def lake_state(self) -> LakeState:
        """Fold the lake's events anew."""
        return fold(read(Store.open(self.lake)))

    def is_complete(self, n_shards: int) -> bool:
        """Whether every shard's latest batch is verified."""
        lake_state = self.lake_state()
        latest = [lake_state.latest_attempt(shard_id) for shard_id in lake_state.shards]
        return len(latest) == n_shards and all(a is not None and a.phase is Phase.VERIFIED for a in latest)

    def n_answers(self) -> tuple[int, int]:
        """Return how many accepted answers there are, and to how many requests."""
        with tables.connect(Store.open(self.lake), ["responses"]) as connection:
            rows = connection.execute(
                "select count(*), count(distinct request_id) from responses"
                " where match = 'matched' and status = 'succeeded'"
            ).fetchall()
        return rows[0]

    def billed(self) -> tuple[int, int, int]:
        """Return how many requests, input and output tokens the provider has charged for."""
        bills = self.simulator.world.ledger.bills.values()
        return (
            sum(bill.n_requests for bill in bills),
            sum(bill.input_tokens for bill in bills),
            sum(bill.output_tokens for bill in bills),
        )


@contextmanager
def rig_at(folder: Path, planned_lake: Path, provider: str = "openai") -> Iterator[Rig]:
    """Lay out a rig with a copy of a planned lake."""
    shutil.copytree(planned_lake, folder / "copy")
    (folder / "copy").rename(folder / "lake")  # a reader must not see half a copy
    with server.running(SETTINGS, folder / "world") as simulator:
        yield Rig(folder / "lake", simulator, provider)
