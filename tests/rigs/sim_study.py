"""A small study against an in-process simulator, one clock for both, with crashes at will.

`Rig` is a user with a lake and a provider: it plans, submits and syncs, each time from nothing but
what is on disk, as a new process would. `Rig.violations` judges the outcome by the simulator's
own ledger, which knows nothing of batchpond.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import httpx
import pyarrow as pa

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.lake import disk, events, failpoints, tables
from batchpond.lake.attempts import Attempt, LakeState, Phase, fold
from batchpond.lake.events import EventLog, read
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.records import Event, Resolution, Sent
from batchpond.lake.schemas import SHARD_REQUESTS, TABLES
from batchpond.lake.store import MARKER, Store
from batchpond.model import ErrorClass
from batchpond.plan import verb as plan
from batchpond.providers import registry
from batchpond.run import collect, recover, send, submit, sync
from batchpond.run.resolve import cancel, resolve
from batchpond.run.session import Providers, Session
from batchpond.run.submit import retry
from batchpond.study import file as study
from batchpond_sim.world.world import BatchEntry, Settings, World
from tests.rigs.clock import ManualClock
from tests.rigs.sim_cache import read_once, started_once, table_once, without_lens
from tests.rigs.sim_inputs import MODELS, N_ITEMS, STUDY, write_study
from tests.rigs.sim_providers import SIMULATED, acknowledged_id, bare_id, environ
from tests.rigs.sim_transport import SimulatorTransport

START = datetime(2026, 11, 21, tzinfo=UTC)
GIVEN_UP_AFTER_S = 30_000.0
LATE_STEP_S = 172_800.0  # some providers have a window of a month
LATENCY_S = (60.0, 600.0)


def is_of(entry: BatchEntry, attempt: Attempt) -> bool:
    """Whether a batch in the provider's ledger was made for an attempt."""
    marks = set((entry.metadata or {}).values())
    if marks:
        return attempt.intent.token in marks
    return (entry.first_custom_id or "").startswith(ids.custom_id_prefix(attempt.attempt_id))


@functools.cache
def _engine() -> duckdb.DuckDBPyConnection:
    """Return the engine that all rigs of this process share: opening one takes longer than most questions to it."""
    return duckdb.connect(":memory:", config={"threads": 2})


def _at_once(_: str, work: Callable[[], Any], *_claim: Path, **_told: bool) -> Future[Any]:
    """Do what a thread would do, here and now; dying in it is dying."""
    found: Future[Any] = Future()
    try:
        found.set_result(work())
    except Exception as error:  # noqa: BLE001 - as the thread keeps it
        found.set_exception(error)
    return found


class Killed(BaseException):
    """The process dies here."""


class Wire(httpx.BaseTransport):
    """The way to the simulator, which remembers what reached this side, and may be cut by a crash."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._inner = SimulatorTransport(rig.world, rig.clock)
        self.n_create_posts = 0
        self.acknowledged: set[str] = set()
        self.calls: Counter[str] = Counter()

    def restart(self) -> None:
        """Read the simulator's objects anew, after another program has changed them."""
        self._inner.restart()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on; dying before it, or after it with its answer unread."""
        self._rig.pass_point("before http")
        is_create = any(provider.is_create(request) for provider in SIMULATED.values())
        self.calls[f"{request.method} {request.url.path.removeprefix('/openai/v1')}"] += 1
        self.n_create_posts += is_create
        answer = self._inner.handle_request(request)
        self._rig.pass_point("after http")
        if is_create and (batch_id := acknowledged_id(answer)) is not None:
            self.acknowledged.add(bare_id(batch_id))
        return answer


@dataclass
class Rig:
    """A lake, a simulated provider, and one clock."""

    path: Path
    settings: Settings = field(default_factory=lambda: Settings(seed=1, latency_s=LATENCY_S))
    max_requests: int = 5
    n_items: int = N_ITEMS
    models: Sequence[str] = MODELS
    key: str = "sk-test"
    base_urls: dict[str, str] = field(default_factory=dict)
    with_lens: bool = True
    lake_seed: int = 0
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    lateness: random.Random | None = None
    """Draws which files come late, so that the lake's lock is let go, and when another process makes a pass then."""

    def __post_init__(self) -> None:
        self.world = World(self.path / "world", self.settings, self.clock)
        self.study_path = write_study(
            self.path / "study", max_requests=self.max_requests, n_items=self.n_items, models=self.models
        )
        self.lake = self.path / "lake"
        self.n_drawn = 0
        self.crash_in: int | None = None
        self.crash_at: str | None = None
        self.wire = Wire(self)
        self.foreign: set[str] = set()
        self.notes: list[str] = []
        self.n_sent_elsewhere = 0
        self.is_made_again = False
        self.late = set[Future[Any]]()
        self.n_elsewhere = 0

    # -- files that come late --------------------------------------------------------------------

    def _is_late(self, session: Session, way: Future[Any]) -> bool:
        """Whether a file has not come when it is first asked for."""
        is_first = session.lets_go and self.lateness is not None and way not in self.late
        if is_first and self.lateness is not None and self.lateness.random() < 0.5:
            self.late.add(way)
            return True
        return False

    def _goes_on_elsewhere(self) -> None:
        """Let another process make a pass while files of this one travel."""
        draw, self.lateness = self.lateness, None
        if draw is not None and draw.random() < 0.3:
            due, self.crash_in = self.crash_in, None
            self.sync()
            self.n_elsewhere += 1
            self.crash_in = due
        self.lateness = draw

    # -- crashing ------------------------------------------------------------------------------

    def pass_point(self, name: str) -> None:
        """Die here if a crash is due."""
        if name == "W0":
            self._goes_on_elsewhere()
        if self.crash_at == name:
            self.crash_at = None
            raise Killed(name)
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                raise Killed(name)

    @contextmanager
    def _points(self) -> Iterator[None]:
        link, replace, is_here = disk.link_into_place, disk.replace, Session.is_here

        def is_here_now(session: Session, way: Future[Any]) -> bool:
            return not self._is_late(session, way) and is_here(session, way)

        def linked(staged: Path, final: Path) -> bool:
            self.pass_point("before link")
            is_new = link(staged, final)
            self.pass_point("after link")
            return is_new

        def replaced(staged: Path, final: Path) -> None:
            self.pass_point("before replace")
            replace(staged, final)
            self.pass_point("after replace")

        with (
            patch.object(failpoints, "reach", self.pass_point),
            patch.object(disk, "link_into_place", linked),
            patch.object(disk, "replace", replaced),
            patch.object(os, "fsync", lambda _: None),  # a crash of the process, unlike one of the machine
            patch.object(events, "read_rows", read_once),
            patch.object(tables, "_start", started_once),
            patch.object(collect, "beside", _at_once),  # as fast as can be, and ever the same
            patch.object(send, "beside", _at_once),
            patch.object(Session, "is_here", is_here_now),
            nullcontext() if self.with_lens else without_lens(),
        ):
            yield

    def _events(self) -> list[Event]:
        with patch.object(events, "read_rows", read_once):
            return read(self.store())

    # -- the verbs, each by a new process ---------------------------------------------------------

    def store(self) -> Store:
        """Open the lake anew; its id depends on the seed only, so that a schedule replays exactly."""
        if (self.lake / MARKER).exists():
            return Store.open(self.lake, self.clock)
        with patch("batchpond.lake.store.random_hex", self._drawn):
            return Store.init(self.lake, self.clock)

    def _drawn(self, n_bytes: int) -> str:
        self.n_drawn += 1
        return f"{self.n_drawn:04x}{self.lake_seed:x}".zfill(2 * n_bytes)

    def providers(self) -> Providers:
        """Connect anew."""
        found = environ(self.key, self.base_urls)
        return Providers(lambda name: registry.connect(name, self.clock, transport=self.wire, environ=found))

    def plan(self) -> None:
        """Run `plan`."""
        loaded = study.load(self.study_path)
        with self._points():
            plan.plan_study(self.store(), loaded)

    def change(self) -> None:
        """Add an item to the study, cut its batches otherwise, and run `plan`."""
        self.n_items += 1
        self.max_requests = 3 + self.n_items % 4
        write_study(self.path / "study", max_requests=self.max_requests, n_items=self.n_items, models=self.models)
        self.plan()

    def submit(self, limit: int | None = None, study: str = STUDY) -> submit.SubmitReport:
        """Run `submit --yes`."""
        with self._points():
            report = submit.submit(
                self.store(),
                study,
                submit.Bounds(limit=limit),
                confirm=lambda _: True,
                providers=self.providers(),
                on_note=lambda note: self.notes.append(note.message),
            )
        return report

    def sync(self, *, submit_due: bool = True) -> sync.SyncReport:
        """Run `sync`."""
        with self._points():
            return sync.sync_once(
                self.store(),
                providers=self.providers(),
                submit_due=submit_due,
                on_note=lambda note: self.notes.append(note.message),
            )

    def recover(self, sample: int | None = None, study: str = STUDY) -> recover.RecoverReport:
        """Run `recover`."""
        with self._points():
            return recover.recover(
                self.store(),
                study,
                providers=self.providers(),
                sample=sample,
                on_note=lambda note: self.notes.append(note.message),
            )

    def retry(self) -> None:
        """Run `retry --yes` for all that failed, where there is a submission; of a plan made since it is refused."""
        if STUDY in self.lake_state().approvals:
            with self._points(), suppress(UsageError):
                retry(
                    self.store(), STUDY, classes=list(ErrorClass), max_attempts=3, confirm=lambda *_: True,
                    providers=self.providers(), on_note=lambda note: self.notes.append(note.message),
                )  # fmt: skip

    def cancel_open(self, place: int) -> None:
        """Run `cancel` on one of the open batches, if there is any."""
        found = [attempt.attempt_id for attempt in self.attempts() if attempt.phase is Phase.OPEN]
        if found:
            with self._points():
                cancel(self.store(), [found[place % len(found)]], providers=self.providers())

    def refetch_mismatched(self) -> None:
        """Run `resolve --refetch` on every mismatched attempt."""
        for attempt in list(self.lake_state().attempts.values()):
            if attempt.phase is Phase.MISMATCH:
                resolve(self.store(), attempt.attempt_id, Resolution.REFETCH, providers=self.providers())

    def decide_what_stays_open(self) -> None:
        """Do what a person would: give up files that were never there, adopt a batch that no result names."""
        for attempt in self.attempts():
            if attempt.phase is Phase.ENDED and not attempt.downloads:
                resolve(self.store(), attempt.attempt_id, Resolution.LOST, providers=self.providers())
            own = [
                b for b, made in self.world.ledger.batches.items() if b in attempt.candidates and is_of(made, attempt)
            ]
            if attempt.phase is Phase.UNKNOWN and own:
                adopt, providers = Resolution.ADOPT, self.providers()
                resolve(self.store(), attempt.attempt_id, adopt, providers=providers, batch_id=own[0])

    def die_between_shard_and_file(self, step: Callable[[], object]) -> None:
        """Run a step until it dies with a shard on record of which there is no file."""
        for self.crash_in in range(200):
            self.survive(step)
            shards = self.lake_state().shards.values()
            if any(not self.store().has(SHARD_REQUESTS, shard_file_name(one.provider, one.shard_id)) for one in shards):
                return
        raise AssertionError("no such moment was met")

    def survive(self, step: Callable[[], object]) -> bool:
        """Run a step; returns whether the process lived through it."""
        try:
            step()
        except Killed:
            return False
        finally:
            self.crash_in = self.crash_at = None
        return True

    # -- looking -----------------------------------------------------------------------------------

    def lake_state(self) -> LakeState:
        """Fold the lake's events anew."""
        return fold(self._events())

    def n_sent(self) -> int:
        """Return how many creates the lake records."""
        return sum(isinstance(event, Sent) for event in self._events())

    def attempts(self) -> list[Attempt]:
        """Return all attempts, in the order of their intents."""
        return list(self.lake_state().attempts.values())

    def only(self) -> Attempt:
        """Return the one attempt there is."""
        (attempt,) = self.attempts()
        return attempt

    def rows(self, sql: str, *names: str) -> list[tuple[object, ...]]:
        """Return the rows of a query over the named tables."""
        store = self.store()
        with _engine().cursor() as connection:
            for name in names:
                files = [TABLES[name].schema.empty_table(), *map(table_once, store.files(name))]
                connection.register(name, pa.concat_tables(files, promote_options="permissive"))
            return connection.execute(sql).fetchall()

    def answers(self) -> dict[object, object]:
        """Return the text that answers each request."""
        sql = "select request_id, text from responses where match = 'matched' and status = 'succeeded'"
        found = self.rows(sql, "responses")
        assert len({request_id for request_id, _ in found}) == len(found), "a request has two accepted answers"
        return dict(found)  # type: ignore[arg-type]

    def billed(self) -> tuple[int, int, int]:
        """Return how many requests, input and output tokens the provider has charged for."""
        bills = [bill for bill in self.world.ledger.bills.values() if bill.batch_id not in self.foreign]
        return (
            sum(bill.n_requests for bill in bills),
            sum(bill.input_tokens for bill in bills),
            sum(bill.output_tokens for bill in bills),
        )

    def tree(self) -> dict[str, str]:
        """Return the digest of every file of the lake."""
        return {
            str(path.relative_to(self.lake)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.lake.rglob("*"))
            if path.is_file()
        }

    # -- bringing it to an end -------------------------------------------------------------------------

    def settle(self, n_max: int = 40, step_s: float = 1_000.0, *, is_begun: bool = False) -> int:
        """Sync without faults until nothing is pending; returns how many passes that took.

        What is begun is planned, and what is approved then is left to the passes: they submit what is due.
        """
        self.world.clear_faults()
        if not is_begun:
            self.plan()
        if not (is_begun and STUDY in self.lake_state().approvals):
            self.submit()
        for n in range(1, n_max + 1):
            self.clock.advance(step_s if n <= n_max / 2 else LATE_STEP_S)
            report = self.sync()
            if not report.n_pending and not self._is_any_unsent():
                if is_begun or not report.n_unapproved:
                    return n
                self.submit()  # what was in doubt when a part was approved is nobody's yet
            if n * step_s > GIVEN_UP_AFTER_S:
                self.decide_what_stays_open()
            if report.n_attention or self._is_any_unsent():
                self.refetch_mismatched()
                self.submit()
        raise AssertionError(f"not settled: {[(a.attempt_id, a.phase, a.state) for a in self.attempts()]}")

    def _is_any_unsent(self) -> bool:
        lake_state = self.lake_state()
        done = {Phase.VERIFIED, Phase.MISMATCH, Phase.LOST, Phase.OPEN}
        for shard_id, shard in lake_state.shards.items():
            if not self.store().has(SHARD_REQUESTS, shard_file_name(shard.provider or "", shard_id)):
                continue  # a fact without its file is no shard
            latest = lake_state.latest_attempt(shard_id)
            if latest is None or latest.phase not in done:
                return True
            is_requeued = latest.failure_code in registry.module(latest.provider).DESCRIPTOR.requeue_codes
            if is_requeued and not latest.n_answered:
                return True
        return False

    # -- judging ---------------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """Return every promise that the ledger, the wire and the lake together show broken."""
        return [
            *self._bought_twice(), *self._lost(), *self._unaccounted(), *self._raw_damage(), *self._misremembered()
        ]  # fmt: skip

    def _misremembered(self) -> Iterator[str]:
        if EventLog(self.store()).events != self._events():
            yield "what is kept of the events is not what their files say"

    def _bought_twice(self) -> Iterator[str]:
        ledger = self.world.ledger
        attempts = self.attempts()
        batches: Counter[str] = Counter()
        shards: Counter[str] = Counter()
        for entry in ledger.batches.values():
            attempt = next((attempt for attempt in attempts if is_of(entry, attempt)), None)
            if attempt is None:
                if entry.batch_id not in self.foreign:
                    yield f"batch {entry.batch_id} is of no attempt that was ever intended"
                continue
            batches[attempt.attempt_id] += 1
            bill = ledger.bills.get(entry.batch_id)
            shards[attempt.shard_id] += bool(bill and bill.n_requests)
        yield from (f"{n} batches were made of attempt {name}" for name, n in batches.items() if n > 1)
        yield from (f"shard {shard} was billed {n} times" for shard, n in shards.items() if n > 1)
        n_sent = self.n_sent() + self.n_sent_elsewhere
        if self.wire.n_create_posts > n_sent and not self.is_made_again:
            yield f"{self.wire.n_create_posts} POSTs for {n_sent} sent records"

    def _lost(self) -> Iterator[str]:
        known = {bare_id(attempt.batch_id) for attempt in self.attempts()}
        made = set(self.world.ledger.batches) - self.foreign
        yield from (f"batch {b} exists but is not in the lake" for b in made if b not in known)
        yield from (f"foreign batch {b} was taken for the lake's own" for b in self.foreign & known)
        yield from (f"acknowledged batch {b} is not in the lake" for b in self.wire.acknowledged if b not in known)

    def _unaccounted(self) -> Iterator[str]:
        statuses = self.rows(
            "select attempt_id, count(*), count(distinct request_id) from responses"
            " where match = 'matched' group by attempt_id",
            "responses",
        )
        by_attempt = {attempt_id: (n, n_distinct) for attempt_id, n, n_distinct in statuses}
        for attempt in self.attempts():
            if attempt.phase not in {Phase.VERIFIED, Phase.MISMATCH}:
                continue
            n, n_distinct = by_attempt.get(attempt.attempt_id, (0, 0))
            if n != n_distinct:
                yield f"attempt {attempt.attempt_id} has {n} accepted answers for {n_distinct} requests"
            if attempt.phase is Phase.VERIFIED and n != attempt.n_answered:
                yield f"attempt {attempt.attempt_id} holds {n} answers and proved {attempt.n_answered}"
        named = "substr(attempt_id, 1, 10) || '-' || substr(request_id, 1, 20)"
        found = "custom_id"
        if self.is_made_again:  # the attempts were another lake's
            named, found = "substr(request_id, 1, 20)", "substr(custom_id, 12)"
        wrong = self.rows(f"select count(*) from responses where match = 'matched' and {found} <> {named}", "responses")
        if wrong != [(0,)]:
            yield f"{wrong} answers stand at a request that their custom_id does not name"

    def _raw_damage(self) -> Iterator[str]:
        rows = self.rows(
            "select batch_id, file_id, file_sha256, line_number, line, line_bytes from raw order by all", "raw"
        )
        files: dict[tuple[object, ...], list[bytes]] = {}
        for batch_id, file_id, sha256, number, line, odd in rows:
            lines = files.setdefault((batch_id, file_id, sha256), [])
            lines.append(odd if isinstance(odd, bytes) else str(line).encode())
            if number != len(lines):
                yield f"line {number} of {file_id} is out of order or twice there"
        for (_, file_id, sha256), lines in files.items():
            whole = b"\n".join(lines)
            if sha256 not in {hashlib.sha256(whole).hexdigest(), hashlib.sha256(whole + b"\n").hexdigest()}:
                yield f"the raw lines of {file_id} are not the bytes that were received"
        for attempt in self.attempts():
            for event in attempt.downloads:
                if (attempt.batch_id, event.file_id, event.sha256) not in files and event.n_lines:
                    yield f"{event.file_id} was downloaded but its lines are not in the lake"
