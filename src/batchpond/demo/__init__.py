"""The whole flow on this machine: a simulated provider over real HTTP, judges with planted bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from batchpond.clock import INTERVAL_ENV
from batchpond.errors import BatchpondError, UsageError
from batchpond.lake.attempts import fold
from batchpond.lake.events import read
from batchpond.lake.records import Approval, Intent, Planned
from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.model import Origin
from batchpond.plan import verb as plan
from batchpond.plan.report import PlanReport
from batchpond.providers import registry
from batchpond.run import submit, sync
from batchpond.run.session import Providers
from batchpond.study import file as study
from batchpond_sim import SimulatorError
from batchpond_sim.host import server
from batchpond_sim.host.server import Running
from batchpond_sim.world.world import Settings

STUDY = "demo"
DATA = Path(__file__).parent
SIMULATED_KEY = "simulated-key"
SYNCS_MAX = 200
SYNC_EVERY_S = 0.5

# What is planted, and what the bias table should find again: log-odds for the sample shown first.
JUDGES = (
    "claude-haiku-4-5:sharpness=7,position_bias=0,refusal_rate=0.005,unparsed_rate=0.01",
    "gpt-5.4-mini:sharpness=9,position_bias=0.9,unparsed_rate=0.005",
    "gemini-2.5-flash-lite:sharpness=5,position_bias=-0.7,refusal_rate=0.01,both_tags_rate=0.01",
)


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo did on its way."""

    plan: PlanReport
    n_batches: int
    n_syncs: int
    n_requests: int


def run(lake_path: Path, say: Callable[[str], None]) -> DemoReport:
    """Plan, submit and sync the demo study into a lake of its own; `say` gets a line per step.

    Raises UsageError, before any row is written, for a lake that holds anything but the demo.
    """
    store = Store.init(lake_path)
    _refuse_real_data(store)
    asked = study.parse_study((DATA / "study.toml").read_bytes(), "study.toml", DATA)
    planned = plan.plan_study(store, asked, is_shown=False)
    say(f"planned {planned.n_requests:,} requests in {planned.n_cells} cells (20 essays, 190 pairs, both directions)")
    with _simulator() as simulator:
        say(f"simulated providers listen at {simulator.root_url}: {', '.join(registry.NAMES)}")
        environ = environment(simulator)
        with Providers(lambda name: registry.connect(name, clock=store.clock, environ=environ)) as providers:
            sent = submit.submit(store, STUDY, confirm=lambda _: True, providers=providers, is_shown=False)
            say(f"submitted {sent.preview.n_requests:,} requests in {sent.preview.n_shards} batches")
            n_syncs = _sync_until_done(store, providers, say)
    lake_state = fold(read(store))
    return DemoReport(planned, len(lake_state.attempts), n_syncs, planned.n_requests)


def _refuse_real_data(store: Store) -> None:
    foreign = {
        event.study
        for event in read(store)
        if (isinstance(event, Planned | Approval) and event.study != STUDY)
        or (isinstance(event, Intent) and event.origin is not Origin.SIMULATED)
    }
    if store.files(IMPORTED_JUDGMENTS.name):
        foreign.add("imported judgments")
    if foreign:
        raise UsageError(
            f"{store.place} holds real data ({', '.join(sorted(foreign))}); the demo wants a lake of its own",
            hint="batchpond --lake /tmp/demo-lake demo",
        )


@contextmanager
def _simulator() -> Iterator[Running]:
    samples = [orjson.loads(line) for line in (DATA / "samples.jsonl").read_bytes().splitlines()]
    qualities = [(sample["text"], sample["grade"] / len(samples)) for sample in samples]
    try:
        with server.running(Settings(seed=7, judges=JUDGES, latency_s=(0.2, 1.5))) as simulator:
            simulator.world.panel.register(qualities)
            yield simulator
    except SimulatorError as error:
        raise UsageError(error.message, hint=error.hint) from error


def environment(simulator: Running) -> dict[str, str]:
    """Return the variables that point every provider at a simulator, which nobody need spare from being looked at.

    Those of live calls alone too: what is left out would be asked, and paid, in earnest.
    """
    found = {INTERVAL_ENV: "1"}
    for descriptor in registry.all_descriptors():
        name = descriptor.name if descriptor.name in server.PROVIDERS else "compatible"
        found[descriptor.base_url_env] = simulator.base_url_of(name)
        found |= dict.fromkeys(descriptor.key_env[:1], SIMULATED_KEY)
    return found


def _sync_until_done(store: Store, providers: Providers, say: Callable[[str], None]) -> int:
    for n_syncs in range(1, SYNCS_MAX + 1):
        report = sync.sync_once(store, providers=providers)
        if report.counts.n_verified:
            say(f"sync {n_syncs}: {report.counts.n_verified} batches complete, {report.n_pending} pending")
        if not report.n_pending:
            return n_syncs
        store.clock.sleep(SYNC_EVERY_S)
    raise BatchpondError(f"the demo's batches did not finish in {SYNCS_MAX} syncs", hint="`batchpond status` shows why")
