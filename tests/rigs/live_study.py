"""A lake with a study of live models, and the simulated endpoints that answer them on a loopback port."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from batchpond.clock import SystemClock
from batchpond.lake import failpoints, tables
from batchpond.lake.attempts import Attempt, LakeState, fold
from batchpond.lake.events import read
from batchpond.lake.schemas import TABLES
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.providers import registry
from batchpond.run import submit
from batchpond.run.live import calls, run, spool
from batchpond.run.live.run import LiveSettings, load
from batchpond.run.session import Note, Providers
from batchpond.run.sync import SyncReport, sync_once
from batchpond.study import file as study
from batchpond.views.database import connect as connect_lens
from batchpond.views.refresh import refresh
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings, body_id
from tests.rigs import forked
from tests.rigs.processes import PROGRAM
from tests.rigs.sim_cache import no_lens
from tests.rigs.sim_providers import LIVE
from tests.rigs.sim_transport import SimulatorTransport

STUDY = "live"
KEY = "sk-canary-0123456789"
BOUND_S = 60.0
STUDY_TOML = """
study = "{name}"

[items]
path = "items.csv"
id = "id"
text = "text"

[pairs]
order = "random"
count = {n_pairs}
reverse = {reverse}

{shards}

[[rubrics]]
use = "overall_quality"

[[templates]]
use = "plain"
"""
MODEL_TOML = """
[[models]]
provider = "{provider}"
model = "{model}"
mode = "{mode}"
max_output_tokens = 200
"""
# The name that a study has for each simulated endpoint, and the variables of a server of one's own.
STUDY_NAMES: Mapping[str, str] = {"compatible": "compatible-lab"}
OWN = {"LAB_BASE_URL": "/compatible/v1"}


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for the waits between two tries."""
    monkeypatch.setattr(calls, "AGAIN_AFTER_DOUBT_S", 0.02)
    monkeypatch.setattr(calls, "BACKOFF_FIRST_S", 0.05)
    monkeypatch.setattr(run, "STEP_S", 0.02)


@dataclass(frozen=True)
class Asked:
    """A model of a study: the simulated endpoint, the model, and how it is asked."""

    endpoint: str = "openai"
    model: str | None = None
    mode: str = "live"

    @property
    def provider(self) -> str:
        """What the study calls the endpoint's provider."""
        return STUDY_NAMES.get(self.endpoint, self.endpoint)

    @property
    def request_model(self) -> str:
        """The model's name, the endpoint's usual one if none was given."""
        return self.model or LIVE[self.endpoint].model


OPENAI = (Asked(),)


def environ(root_url: str) -> dict[str, str]:
    """Return the environment that points every live endpoint at one simulator."""
    found = {end.key_env: KEY for end in LIVE.values()}
    found |= {end.url_env: f"{root_url}{end.path}" for end in LIVE.values() if end.name != "compatible"}
    return found | {name: f"{root_url}{path}" for name, path in OWN.items()}


def write_live_study(
    folder: Path, n_requests: int = 20, asked: Sequence[Asked] = OPENAI, *, shards: str = "", name: str = STUDY
) -> Path:
    """Write a study of so many requests to each model; returns the path of study.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    n_items = 2
    while n_items * (n_items - 1) // 2 < n_requests:
        n_items += 1
    rows = [f"i{n},text number {n} [[quality=0.{n % 10}]]" for n in range(1, n_items + 1)]
    (folder / "items.csv").write_text("\n".join(["id,text", *rows]) + "\n")
    head = STUDY_TOML.format(name=name, n_pairs=n_requests, reverse=0.0, shards=shards)
    models = [MODEL_TOML.format(provider=one.provider, model=one.request_model, mode=one.mode) for one in asked]
    path = folder / f"{name}.toml"
    path.write_text(head + "".join(models))
    return path


def settings_of(**values: Any) -> LiveSettings:
    """Return settings for every model."""
    return LiveSettings({"": values})


@dataclass
class LiveRig:
    """A lake and a running simulator; a verb runs in this process or, as `start` does, in one of its own."""

    folder: Path
    simulator: server.Running
    with_lens: bool = True
    notes: list[Note] = field(default_factory=list)

    @property
    def lake(self) -> Path:
        """The lake's folder."""
        return self.folder / "lake"

    @property
    def environ(self) -> dict[str, str]:
        """The variables of every endpoint."""
        return environ(self.simulator.root_url)

    def store(self) -> Store:
        """Open the lake anew."""
        return Store.open(self.lake)

    # -- the verbs, in this process --------------------------------------------------------------------

    def plan(self, n_requests: int = 20, asked: Sequence[Asked] = OPENAI, **more: Any) -> None:
        """Plan a study of so many requests to each model."""
        path = write_live_study(self.folder, n_requests, asked, **more)
        found = study.load(path)
        plan.plan_study(Store.init(self.lake), found)

    def submit(self, name: str = STUDY, max_cost_usd: float | None = None) -> submit.SubmitReport:
        """Approve what is due, whatever it costs."""
        return submit.submit(
            self.store(), name, submit.Bounds(max_cost_usd), confirm=lambda _: True,
            providers=self.providers(),
        )  # fmt: skip

    def begin(self, n_requests: int = 20, asked: Sequence[Asked] = OPENAI, **more: Any) -> None:
        """Plan and approve; a lake where only that has been done is a copy of one that stands already."""
        if self.lake.exists() or any(one.mode != "live" for one in asked):
            self.plan(n_requests, asked, **more)
            self.submit(more.get("name", STUDY))
            return
        write_live_study(self.folder, n_requests, asked, **more)
        shutil.copytree(_begun(n_requests, tuple(asked), **more), self.lake)

    def providers(self) -> Providers:
        """Connect anew to batch providers."""

        wire = SimulatorTransport(self.simulator.world, SystemClock())
        return Providers(lambda name: registry.connect(name, transport=wire, environ=self.environ, lake_path=self.lake))

    def live(
        self, settings: LiveSettings | None = None, on_progress: Any = lambda _: None, **forced: Any
    ) -> run.LiveReport:
        """Run `live`; `forced` settings hold for every model."""
        store = self.store()
        self.notes = []
        options = run.LiveOptions(
            studies=(),
            settings=(settings or load(store.path)).over(**forced),
            connect=lambda name, n: registry.connect_live(name, store.clock, environ=self.environ, max_connections=n),
            on_note=self.notes.append,
            on_progress=on_progress,
        )
        with nullcontext() if self.with_lens else patch.object(run, "refresh", no_lens):
            return run.run(store, options)

    def sync(self) -> SyncReport:
        """Make one pass."""
        return sync_once(self.store(), providers=self.providers())

    # -- the verbs, as processes -----------------------------------------------------------------------

    def start(
        self,
        *arguments: str,
        failpoint: str | None = None,
        stderr: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a command as a program of its own; with a failpoint it kills or stops itself there."""
        variables = self._variables(failpoint)
        return subprocess.Popen([*PROGRAM, *arguments], env=variables, stdout=subprocess.DEVNULL, stderr=stderr)

    def run(
        self, *arguments: str, failpoint: str | None = None, bound_s: float = BOUND_S
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, in a process of its own; with a failpoint it kills itself there."""
        return forked.run(*arguments, env=self._variables(failpoint), timeout=bound_s)

    def _variables(self, failpoint: str | None) -> dict[str, str]:
        named = {failpoints.VARIABLE: failpoint} if failpoint else {}
        return os.environ | self.environ | named | {"BATCHPOND_LAKE": os.fspath(self.lake)}

    # -- looking -----------------------------------------------------------------------------------------

    def lake_state(self) -> LakeState:
        """Fold the lake's events anew."""
        return fold(read(self.store()))

    def attempts(self) -> list[Attempt]:
        """Return all attempts, in the order of their intents."""
        return list(self.lake_state().attempts.values())

    def rows(self, sql: str, *names: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over tables, all if none is named."""
        with tables.connect(self.store(), names or tuple(TABLES)) as connection:
            return connection.execute(sql).fetchall()

    def view(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the views, as a user would see them; without a lens, one is made now."""
        if not self.with_lens:
            with self.store().lock("test"):
                refresh(self.store())
        with connect_lens(self.lake) as connection:
            return connection.execute(sql).fetchall()

    def spooled(self) -> list[str]:
        """Return the attempts that have answers outside the lake's tables."""
        return spool.attempts_with_segments(self.store())

    def n_answers(self) -> tuple[int, int]:
        """Return how many final lines there are in the lake, and of how many requests."""
        sql = "select count(*), count(distinct request_id) from responses where match = 'matched'"
        ((n_lines, n_requests),) = self.rows(sql, "responses")
        return n_lines, n_requests

    # -- judging -----------------------------------------------------------------------------------------

    def check_complete(self, n_requests: int) -> None:
        """Assert that each request has one answer, all is accounted for, and nothing waits in the spool."""
        assert self.n_answers() == (n_requests, n_requests)
        assert self.spooled() == []
        audited = self.view("select is_balanced, n_missing, n_outstanding, n_conflict, n_duplicate, origin from audit")
        assert {row for row in audited if row[0] is not None} <= {(True, 0, 0, 0, 0, "simulated")}, audited
        self.check_ledger()

    def check_ledger(self) -> None:
        """Assert that nothing was bought twice but what `doubts` lists, once more for each time that it does."""
        doubts = self.doubts()
        for bought, request_id in self._bought():
            assert bought <= 1 + doubts[request_id], f"{request_id} was billed {bought} times"

    def doubts(self) -> Counter[str]:
        """Return how often each request was in doubt."""
        return Counter(row[0] for row in self.rows("select request_id from doubts", "doubts"))

    def _bought(self) -> Iterator[tuple[int, str]]:
        ledger = self.simulator.world.ledger
        names: dict[str, str] = {}
        for request_id, provider, model, body in self.rows(
            "select request_id, provider, request_model, body from requests", "requests"
        ):
            for path in _paths(provider, model):
                names[body_id(path, body.encode())] = request_id
        unknown = [body for body in ledger.live_bodies if body not in names]
        assert not unknown, f"{len(unknown)} bodies were asked that no request has"
        for body, count in ledger.live_bodies.items():
            yield count.n_billed, names[body]


def billed(rig: LiveRig) -> int:
    """Return how many live calls the provider has charged for."""
    return rig.simulator.world.ledger.live.n_billed


@functools.cache
def _begun(n_requests: int, asked: tuple[Asked, ...], **more: Any) -> Path:
    """Return a lake in which a study of live models alone is planned and approved: nobody has been called yet."""
    folder = Path(tempfile.mkdtemp(prefix="batchpond-begun-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with live_rig(folder) as rig:
        rig.plan(n_requests, asked, **more)
        rig.submit(more.get("name", STUDY))
        assert rig.simulator.world.ledger.live.n_asked == 0
        assert not rig.simulator.world.ledger.batches
        return rig.lake


def _paths(provider: str, model: str) -> Iterator[str]:
    endpoint = next((name for name, named in STUDY_NAMES.items() if named == provider), provider)
    base = LIVE[endpoint].path
    if endpoint == "gemini":
        yield f"{base}/v1beta/models/{model}:generateContent"
        return
    yield f"{base}{LIVE[endpoint].ask_ending}"
    if endpoint == "openai":
        yield f"{base}/responses"


@contextmanager
def live_rig(
    folder: Path, settings: Settings | None = None, *, with_lens: bool = True, **more: Any
) -> Iterator[LiveRig]:
    """Lay out an empty rig beside a running simulator; without a lens its live runs leave none, and `view` makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    with server.running(settings or Settings(seed=1, **more), folder / "world") as simulator:
        yield LiveRig(folder, simulator, with_lens)


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen[bytes] | None = None, bound_s: float = 30.0) -> None:
    """Wait until something is so; a process that ends before that is a failure."""
    end = time.monotonic() + bound_s
    while not is_so():
        assert time.monotonic() < end, "waited too long"
        assert process is None or process.poll() is None, f"the process ended: {process and process.returncode}"
        time.sleep(0.005)


def document(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """Return what a command printed with --json."""
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded
