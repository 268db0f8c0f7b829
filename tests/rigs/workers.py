"""Workers of mode `files` as processes, on hosts that are names, beside a lake and a server that counts its calls.

The server is the simulated one of the OpenAI-compatible kind; its ledger knows nothing of batchpond or its workers.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs import s3
from tests.rigs.files_study import FilesRig

BOUND_S = 60.0
HOSTS = ("node-a", "node-b")
MODEL = "gpt-4.1-mini"
COUNTS = re.compile(
    r"asked ([\d,]+), answered ([\d,]+) \(([\d,]+) errors\), ([\d,]+) had answers already, ([\d,]+) left"
)


@dataclass(frozen=True)
class Size:
    """A study of `n_items` (n_items - 1) requests, in batches and parts of so many."""

    n_items: int = 16
    max_requests: int = 150
    part_requests: int = 40

    @property
    def n_requests(self) -> int:
        """How many requests there are."""
        return self.n_items * (self.n_items - 1)


def submitted(folder: Path, size: Size, models: Sequence[str] = (MODEL,)) -> FilesRig:
    """Return a rig whose requests lie in the outbox, in small parts."""
    rig = FilesRig(folder, models=models, max_requests=size.max_requests, n_items=size.n_items)
    rig.plan()
    rig.submit()
    for path in rig.outbox.glob("*.manifest.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"part_requests": size.part_requests}))
    return rig


@dataclass
class Workers:
    """A copy of a submitted lake, a server, and the workers that were started."""

    rig: FilesRig
    simulator: server.Running
    size: Size
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What the workers are told of the server."""
        return self.simulator.base_url_of("compatible")

    @property
    def place(self) -> str:
        """Where the workers are told that the requests are."""
        return str(self.rig.folder)

    @property
    def environ(self) -> dict[str, str]:
        """What a worker has beside what this process has."""
        return {}

    def start(self, *arguments: str, engine: str | None = None, host: str = HOSTS[0]) -> subprocess.Popen[str]:
        """Start a worker as a program of its own."""
        command = [sys.executable, "-m", "batchpond_work", self.place, "--engine", engine or self.url, "--host", host]
        environ = os.environ | self.environ
        process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True, env=environ)
        self.started.append(process)
        return process

    def run(self, *arguments: str, engine: str | None = None, host: str = HOSTS[0]) -> tuple[int, str]:
        """Run a worker to its end; returns its exit code and what it said."""
        process = self.start(*arguments, engine=engine, host=host)
        said = process.communicate(timeout=BOUND_S)[1]
        return process.returncode, said

    @property
    def n_asked(self) -> int:
        """How many calls the server was asked to make, answered or not."""
        return self.simulator.world.ledger.live.n_asked

    @property
    def n_again(self) -> int:
        """How many answers the server gave to a request that it had answered before."""
        return int(self.simulator.world.ledger.live_summary()["n_duplicates"])

    def rows(self) -> Counter[str]:
        """Return how often each custom_id stands in the inbox."""
        lines = (line for path in self.rig.inbox.glob("*.jsonl") for line in path.read_bytes().splitlines())
        return Counter(json.loads(line)["custom_id"] for line in lines)

    def check_whole(self) -> None:
        """Assert that `sync` takes every request's answer, and that the account is in balance."""
        self.rig.age()
        assert self.rig.sync().exit_code is ExitCode.DONE, self.rig.notes
        assert len(self.rig.answers()) == self.size.n_requests
        assert {attempt.phase for attempt in self.rig.attempts()} == {Phase.VERIFIED}
        assert self.rig.rows("select match, count(*) from responses group by all", "responses") == [
            ("matched", self.size.n_requests)
        ]
        assert list(self.rig.folder.glob("claims/*.claim")) == []
        assert list(self.rig.inbox.glob(".*")) == []


@dataclass
class FarWorkers(Workers):
    """Workers at an address, whose requests were put there and whose results are brought from there."""

    shop: s3.Shop = field(default_factory=s3.Shop)
    at: str = "bucket-one/judging"

    @property
    def place(self) -> str:
        """The address."""
        return f"s3://{self.at}"

    @property
    def environ(self) -> dict[str, str]:
        """How to reach the store."""
        return self.shop.environ

    def lay_out(self) -> None:
        """Put the requests there."""
        for path in self.rig.outbox.iterdir():
            self.shop.objects[f"{self.at}/outbox/{path.name}"] = path.read_bytes(), datetime.now(UTC)

    def files(self, side: str) -> dict[str, bytes]:
        """Return the objects of one side."""
        found = ((key.removeprefix(f"{self.at}/"), data) for key, (data, _) in sorted(self.shop.objects.items()))
        return {name.removeprefix(f"{side}/"): data for name, data in found if name.startswith(f"{side}/")}

    def rows(self) -> Counter[str]:
        """Return how often each custom_id stands in the inbox."""
        lines = (line for data in self.files("inbox").values() for line in data.splitlines())
        return Counter(json.loads(line)["custom_id"] for line in lines)

    def check_whole(self) -> None:
        """Assert that each request has one row there, that no claim is left, and the rest as in a folder."""
        assert set(self.rows().values()) == {1}
        assert [name for name in self.files("claims") if name.endswith(".claim")] == []
        for name, data in self.files("inbox").items():
            (self.rig.inbox / name).write_bytes(data)
        super().check_whole()


@contextmanager
def far_workers(folder: Path, lake: FilesRig, size: Size, **settings: object) -> Iterator[FarWorkers]:
    """Lay out a submitted lake's requests in a bucket of its own."""
    with s3.served() as shop, workers(folder, lake, size, **settings) as near:
        made = FarWorkers(near.rig, near.simulator, size, near.started, shop)
        made.lay_out()
        yield made


@contextmanager
def workers(folder: Path, lake: FilesRig, size: Size, **settings: object) -> Iterator[Workers]:
    """Lay out a copy of a submitted lake beside a running server; whoever still works is killed at the end."""
    rig = FilesRig(folder, models=(MODEL,), max_requests=size.max_requests, n_items=size.n_items)
    shutil.copytree(lake.lake, rig.lake)
    with server.running(Settings(seed=1, **settings), folder / "server") as simulator:  # type: ignore[arg-type]
        made = Workers(rig, simulator, size)
        try:
            yield made
        finally:
            for process in made.started:
                process.kill()
                process.communicate()
            rig.world.close()


@dataclass
class Toll:
    """What deaths cost: kills and sleeps, and the most and all calls that were made again."""

    n_kills: int = 0
    n_sleeps: int = 0
    n_again: int = 0
    n_again_most: float = 0.0


def kill_at_random(made: Workers, draw: random.Random, n_kills: int, *, concurrency: int, lease_s: float = 1.0) -> Toll:
    """Kill workers on two hosts, or put them to sleep for longer than their lease, until so many died or all is done.

    Two to four of them are at work all the time. Then one ends what is left, and the study must be whole.
    """
    toll, alive = Toll(), list[subprocess.Popen[str]]()
    options = ("--concurrency", str(concurrency), "--flush", "10", "--lease", str(lease_s))

    def start() -> None:
        alive.append(made.start(*options, host=draw.choice(HOSTS)))

    for _ in range(draw.randint(2, 4)):
        start()
    while toll.n_kills < n_kills:
        time.sleep(draw.uniform(0.3, 1.2))
        alive = [process for process in alive if process.poll() is None]
        if not alive:
            break
        victim = draw.choice(alive)
        if draw.random() < 0.2:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(lease_s * draw.uniform(1.0, 2.5))
            victim.send_signal(signal.SIGCONT)
            toll.n_sleeps += 1
        else:
            victim.kill()
            victim.wait()
            toll.n_kills += 1
            start()
        while len(alive) < 2:
            start()
    for process in alive:
        said = process.communicate(timeout=BOUND_S)[1]
        assert process.returncode in {ExitCode.DONE, -signal.SIGKILL}, said
    code, said = made.run(*options)
    assert code == ExitCode.DONE, said
    made.check_whole()
    toll.n_again = made.n_again
    deaths = toll.n_kills + toll.n_sleeps
    toll.n_again_most = toll.n_again / deaths if deaths else 0.0
    assert toll.n_again <= deaths * (concurrency + made.size.part_requests)
    return toll
