"""The verb `live`: ask what is due of the live models, lane by lane, until all is answered or someone stops it.

How calls are made comes from `[live]` of the lake's `config.toml` (guide: live); what is written for a model wins over
its provider's.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from batchpond.errors import AccessError, BatchpondError, BusyError, ExitCode, LakeError, ProviderError, UsageError
from batchpond.lake import disk, failpoints
from batchpond.lake.attempts import Attempt, Phase, fold
from batchpond.lake.events import read
from batchpond.lake.records import Approval, Sharded
from batchpond.lake.store import CONFIG, Store, disk_errors
from batchpond.model import BatchState, Mode, PricedModel
from batchpond.plan import versions
from batchpond.providers import registry
from batchpond.providers.base import LiveStart
from batchpond.providers.shared.live import LiveClient
from batchpond.run import dispatch, due
from batchpond.run.find import check_host
from batchpond.run.live import spool
from batchpond.run.live.calls import CallCounts, CallRules, Calls, OnDoubt, Pace, PaceSettings
from batchpond.run.live.seal import (
    begin_attempt,
    elsewhere,
    end,
    items_left,
    left_of,
    live_lock,
    recover,
    seal,
)
from batchpond.run.live.spool import Spool
from batchpond.run.session import Note, Providers, Report, Session, Severity
from batchpond.run.told import for_nothing
from batchpond.study import config_file, typed
from batchpond.study.typed import Table, between
from batchpond.text import did_you_mean, plural
from batchpond.views.refresh import refresh

CONCURRENCY_MAX: Final = 256
_RATES: Final = frozenset({"qps", "requests_per_minute"})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What may be written for every model, a provider or a model."""

    concurrency: Annotated[int, between(1, CONCURRENCY_MAX)] | None = None
    qps: Annotated[float, between(0.0001, 10_000)] | None = None
    requests_per_minute: Annotated[float, between(0.001, 1e6)] | None = None
    tokens_per_minute: Annotated[float, between(1, 1e12)] | None = None
    gap_s: Annotated[float, between(0, 86_400)] | None = None
    deadline_s: Annotated[float, between(1, 86_400)] | None = None
    on_doubt: OnDoubt | None = None
    max_doubts: Annotated[int, between(0, 100)] | None = None


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What a lake says about live calls: values by scope, which is empty, a provider, or `provider/model`."""

    scopes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forced: Mapping[str, Any] = field(default_factory=dict)

    def over(self, **forced: Any) -> LiveSettings:
        """Return these settings with some of them set for every model; None leaves one as it is."""
        return dataclasses.replace(self, forced={key: value for key, value in forced.items() if value is not None})

    def of_model(self, provider: str, model: str, usual_concurrency: int) -> tuple[PaceSettings, CallRules]:
        """Return how a model is asked; as many calls at once as are usual with its provider, unless it is written."""
        values: dict[str, Any] = {"concurrency": usual_concurrency}
        scopes = (self.scopes.get(scope, {}) for scope in ("", provider, f"{provider}/{model}"))
        for written in (*scopes, self.forced):
            if written.keys() & _RATES:  # the two say the same thing, so that the one stands for both
                values = {key: value for key, value in values.items() if key not in _RATES}
            values |= written
        if (qps := values.pop("qps", None)) is not None:
            values["requests_per_minute"] = qps * 60
        rules = {key: values.pop(key) for key in ("deadline_s", "on_doubt", "max_doubts") if key in values}
        return PaceSettings(**values), CallRules(**rules)


def load(lake_path: Path) -> LiveSettings:
    """Read a lake's `[live]`; raises UsageError that names the file, line and key."""
    path = lake_path / CONFIG
    if not path.exists():
        return LiveSettings()
    live = config_file.document(path.read_bytes(), str(path)).inside("live")
    scopes = [name for name, value in live.data.items() if isinstance(value, dict)]
    own = Table(live.source, live.text, live.key, {key: live.data[key] for key in live.data if key not in scopes})
    return LiveSettings({"": _values(own), **{name: _values(live.inside(name)) for name in scopes}})


def _values(table: Table) -> dict[str, Any]:
    found = typed.read(table, Scope)
    if found.qps is not None and found.requests_per_minute is not None:
        table.fail("qps", "cannot be given together with requests_per_minute")
    return {key: value for key, value in vars(found).items() if value is not None}


SEAL_LINES = 5_000
SEAL_AFTER_S = 300.0


@dataclass(slots=True)
class Running:
    """The attempt that a lane is asking now."""

    attempt: Attempt
    calls: Calls
    spool: Spool
    n_before: int

    @property
    def n_answered(self) -> int:
        """How many of its requests have their final line, an answer or a failure."""
        counts = self.calls.counts
        return self.n_before + counts.n_answered + counts.n_failed

    def is_seal_due(self, now_s: float) -> bool:
        """Whether enough answers wait outside the lake's tables, or some for long enough."""
        n_answers = self.spool.n_answers
        return n_answers >= SEAL_LINES or (n_answers > 0 and now_s - self.spool.opened_s >= SEAL_AFTER_S)


@dataclass(slots=True)
class Lane:
    """One model's shards that wait, what is being asked, and what it has come to."""

    provider: str
    model: str
    pace: Pace
    rules: CallRules
    shards: deque[Sharded] = field(default_factory=deque)
    client: LiveClient | None = None
    start: LiveStart | None = None
    running: Running | None = None
    past: CallCounts = field(default_factory=CallCounts)
    n_requests: int = 0
    n_done: int = 0
    error: BatchpondError | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.provider}/{self.model}"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is asked of this model."""
        return self.running is None and (self.error is not None or not self.shards)

    @property
    def counts(self) -> CallCounts:
        """What became of all its calls in this run."""
        return self.past if self.running is None else self.past + self.running.calls.counts

    @property
    def n_answered(self) -> int:
        """How many of its requests have their final line, earlier runs included."""
        return self.n_done + (0 if self.running is None else self.running.n_answered)

    def ended(self) -> None:
        """Add what the running attempt came to, and be free for the next."""
        self.past, self.n_done = self.counts, self.n_answered
        self.running = None


STEP_S: Final = 0.25
LOCK_WAIT_S: Final = 600.0
LIVE_LOCK_WAIT_S: Final = 2.0  # a `sync` that brings in what was left has it for a moment
STOP_WAIT_S: Final = 3.0

_NO_BATCHES: Final = Providers(registry.connect)

Connect = Callable[[str, int], LiveClient]
"""Connects a provider by name, with room for so many calls at once."""


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """Where one model's live calls stand; `n_answered` counts earlier runs too."""

    name: str
    n_requests: int
    n_answered: int
    n_in_flight: int
    counts: CallCounts
    is_stalled: bool


@dataclass(frozen=True, slots=True)
class LiveReport(Report):
    """What a run of live calls did; `n_left` requests are still without an answer."""

    lanes: tuple[LaneProgress, ...]
    n_left: int
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What to ask and how, whom to tell, and when, by the lake's monotonic clock, to ask nothing more."""

    studies: Collection[str]
    settings: LiveSettings
    connect: Connect
    until_s: float = math.inf
    on_note: Callable[[Note], None] = lambda _: None
    on_progress: Callable[[tuple[LaneProgress, ...]], None] = lambda _: None


class LiveRun:
    """One run over all lanes; made by `run` while the live lock is held."""

    def __init__(self, store: Store, options: LiveOptions) -> None:
        self._store = store
        self._options = options
        self._clock = store.clock
        self._notes: list[Note] = []
        self._lanes: list[Lane] = []
        self._n_unfunded: Counter[str] = Counter()
        self._elsewhere: dict[str, list[Attempt]] = defaultdict(list)
        self._denied: frozenset[str] = frozenset()

    def ask(self) -> LiveReport:
        """Ask until all lanes are over; whatever ends it early, what was answered is durable."""
        with self._writing() as session:
            recover(session)
            self._lanes = self._planned(session)
            self._denied = frozenset(session.open_state.denied)
        try:
            while not all(lane.is_over for lane in self._lanes):
                if self._clock.monotonic_s() >= self._options.until_s:
                    self._ask_no_more()
                for lane in self._ready():
                    self._step(lane)
                self._options.on_progress(tuple(self._progress(lane) for lane in self._lanes))
                self._clock.sleep(STEP_S)
        finally:
            self._stop_all()
        self._keep_access()
        return self._report()

    def _planned(self, session: Session) -> list[Lane]:
        lanes: dict[PricedModel, Lane] = {}
        for study, approval in sorted(session.lake_state.approvals.items()):
            is_wanted = not self._options.studies or study in self._options.studies
            if not is_wanted or dispatch.approval_of(session, study) is None:
                continue
            shards = [session.lake_state.shards[one.shard_id] for one in due.begun(session.lake_state, study)]
            with session.isolated("", f"looking for what is due of study {study}"):
                due.form_shards(session, study, approval)
                shards += self._due(session, study, approval)
            for shard in shards:
                lane = lanes.setdefault(shard.priced, self._lane(shard))
                lane.shards.append(shard)
                lane.n_requests += shard.n_requests
        return list(lanes.values())

    def _due(self, session: Session, study: str, approval: Approval) -> Iterator[Sharded]:
        """Yield the shards that are to be begun, as far as the approved money goes."""
        budget = dispatch.Budget.of(session, approval)
        precedence = dispatch.Precedence()
        for shard, latest in dispatch.candidates(session.store, session.lake_state, study):
            if shard.mode is not Mode.LIVE or latest is not None:
                continue
            if budget.allows(shard) and precedence.before(shard) is None:
                budget.reserve(shard)
                yield shard
            else:
                precedence.hold(shard, dispatch.ALL)
                self._n_unfunded[study] += shard.n_requests

    def _opened(self, session: Session, lane: Lane, client: LiveClient, start: LiveStart) -> Attempt | None:
        """Return the attempt of a lane's next shard, begun now if need be; None where it is not to be asked here.

        Since the run began others may have spent the money, and calls of its own that are in doubt, or planned anew;
        another machine may have its calls, or have made them.
        """
        shard = lane.shards[0]
        attempt = session.lake_state.latest_attempt(shard.shard_id) or self._new(session, shard, client, start)
        if attempt is None:
            return None
        if attempt.phase is not Phase.OPEN:
            lane.n_requests -= shard.n_requests
        elif host := session.store.claim(attempt.attempt_id):
            self._elsewhere[host].append(attempt)
        else:
            return attempt
        return None

    def _new(self, session: Session, shard: Sharded, client: LiveClient, start: LiveStart) -> Attempt | None:
        approval = dispatch.approval_of(session, shard.study)
        is_wanted = approval is not None and approval.study_version == shard.study_version
        if approval is None or not is_wanted or shard.shard_id in session.lake_state.voided:
            return None
        if not dispatch.Budget.of(session, approval).allows(shard):
            self._n_unfunded[shard.study] += shard.n_requests
            return None
        return begin_attempt(session, shard, approval, client, start)

    def _lane(self, shard: Sharded) -> Lane:
        usual = registry.module(shard.provider).DESCRIPTOR.live_concurrency
        pace, rules = self._options.settings.of_model(shard.provider, shard.request_model, usual)
        return Lane(shard.provider, shard.request_model, Pace(pace, self._clock.monotonic_s()), rules)

    def _ready(self) -> Iterator[Lane]:
        """Yield the lanes that may go on; of a server that holds one model at a time, only the first."""
        busy: set[str] = set()
        for lane in self._lanes:
            if lane.is_over or lane.provider in busy:
                continue
            yield lane
            if registry.module(lane.provider).DESCRIPTOR.is_one_model_at_a_time:
                busy.add(lane.provider)

    def _step(self, lane: Lane) -> None:
        try:
            if lane.running is None:
                self._begin(lane)
            elif lane.running.calls.join(0.0):
                self._end(lane, lane.running)
            elif lane.running.is_seal_due(self._clock.monotonic_s()):
                self._seal(lane.running)
        except LakeError:
            raise
        except BatchpondError as error:
            self._fail(lane, error)

    def _begin(self, lane: Lane) -> None:
        if lane.client is None or lane.start is None:
            lane.client = self._options.connect(lane.provider, lane.pace.settings.concurrency)
            lane.start = lane.client.start(lane.model)
        with self._writing() as session:
            attempt = self._opened(session, lane, lane.client, lane.start)
        lane.shards.popleft()
        if attempt is None:
            return
        check_host(attempt, lane.client)
        left = left_of(self._store, attempt)
        is_held = lane.rules.on_doubt is OnDoubt.HOLD
        items = items_left(self._store, attempt, left, is_held=is_held)
        written = spool.Spool(spool.folder_of(self._store, attempt.attempt_id), self._clock)
        way = (attempt.intent.endpoint, lane.model)
        calls = Calls(lane.client, way, items, written, lane.pace, lane.rules, self._clock)
        calls.counts.n_held = len(left.doubts) if is_held else 0
        lane.running = Running(attempt, calls, written, len(left.answered))
        calls.start()

    def _seal(self, running: Running) -> None:
        """Bring what was answered so far into the lake, unless a `sync` holds it: then a little later."""
        running.spool.rotate()
        try:
            with self._writing(wait_s=0.0) as session:
                attempt = session.attempt(running.attempt.attempt_id)
                seal(session, attempt, running.spool.closed_segments())
        except BusyError:
            return
        if attempt.phase is not Phase.OPEN:  # somebody said that this machine was gone
            running.calls.stop()

    def _end(self, lane: Lane, running: Running) -> None:
        """Bring in all answers of an attempt whose calls have ended, and close it if none is lacking."""
        _close(running)
        failpoints.reach("L0")
        with self._writing() as session:
            attempt = session.attempt(running.attempt.attempt_id)
            seal(session, attempt, running.spool.closed_segments())
            spool.drop(spool.folder_of(self._store, attempt.attempt_id))
            if attempt.phase is Phase.OPEN and running.n_answered >= attempt.intent.n_requests:
                end(session, session.attempt(attempt.attempt_id), BatchState.COMPLETED)
            else:
                self._store.release(attempt.attempt_id)
        lane.ended()
        if running.calls.defect is not None:
            raise running.calls.defect
        if running.calls.error is not None:
            self._fail(lane, running.calls.error)

    def _fail(self, lane: Lane, error: BatchpondError) -> None:
        lane.error = error
        note = Note(Severity.ERROR, f"{lane.name}: {error.message}", error.hint, error.exit_code)
        self._note(note)
        if lane.running is None:
            return
        if lane.running.spool.is_closed:  # all is durable: the next pass brings it in
            lane.ended()
        else:
            lane.running.calls.stop()

    def _keep_access(self) -> None:
        """Remember who refused the key, of which models no call got through, and which that had before answered."""
        stopped = ((lane, lane.error) for lane in self._lanes if isinstance(lane.error, AccessError | ProviderError))
        refused = {lane.provider if isinstance(why, AccessError) else lane.name: why.message for lane, why in stopped}
        answered = [lane for lane in self._lanes if lane.counts.n_answered]
        heard = self._denied & {name for lane in answered for name in (lane.provider, lane.name)}
        if not refused and not heard:
            return
        with self._writing() as session:
            session.heard |= heard
            session.denied |= refused
            session.keep_access()

    def _ask_no_more(self) -> None:
        """Let calls that are under way come to their end, and begin none."""
        for lane in self._lanes:
            lane.shards.clear()
            if lane.running is not None:
                lane.running.calls.stop()

    def _stop_all(self) -> None:
        """End every call in time, and leave what was answered durable; the next pass brings it into the lake."""
        self._ask_no_more()
        running = [lane.running for lane in self._lanes if lane.running is not None]
        until_s = self._clock.monotonic_s() + STOP_WAIT_S
        with ExitStack() as every:  # a spool that cannot be closed keeps no other open
            for one in running:
                one.calls.join(max(0.0, until_s - self._clock.monotonic_s()))
                every.callback(_close, one)
        for lane in self._lanes:
            if lane.client is not None:  # a call that is still under way loses its connection when it ends
                lane.client.close()

    @contextmanager
    def _writing(self, wait_s: float = LOCK_WAIT_S) -> Iterator[Session]:
        """Hold the lake's lock for one step; waits for a `sync` that has it, at most `wait_s`."""
        with disk.waited_for(lambda: self._store.lock("live"), self._clock, wait_s):
            yield Session.begin(self._store, _NO_BATCHES, self._note)
            refresh(self._store)

    def _note(self, note: Note) -> None:
        if note not in self._notes:
            self._notes.append(note)
            self._options.on_note(note)

    def _progress(self, lane: Lane) -> LaneProgress:
        return LaneProgress(
            name=lane.name,
            n_requests=lane.n_requests,
            n_answered=lane.n_answered,
            n_in_flight=lane.pace.n_in_flight,
            counts=lane.counts,
            is_stalled=lane.pace.held_until_s > self._clock.monotonic_s(),
        )

    def _report(self) -> LiveReport:
        lanes = tuple(self._progress(lane) for lane in self._lanes)
        n_held = sum(lane.counts.n_held for lane in lanes)
        if n_held:
            self._note(
                Note(
                    Severity.WARNING,
                    f"{n_held} requests are held back: an earlier call of each may have been answered and paid",
                    "`batchpond live --on-doubt again` asks them once more",
                    ExitCode.ATTENTION,
                )
            )
        for note in (
            for_nothing(self._store, fold(read(self._store))) if any(one.counts.n_failed for one in lanes) else ()
        ):
            self._note(note)
        for study, n_requests in self._n_unfunded.items():
            text = f"{n_requests} live requests of study {study} wait for money: what was approved is reserved or spent"
            self._note(Note(Severity.WARNING, text, f"`batchpond submit {study}` approves more"))
        for host, attempts in self._elsewhere.items():
            n_requests = sum(attempt.intent.n_requests for attempt in attempts)
            text = f"{host} has the calls of {plural(n_requests, 'request')}"
            self._note(Note(Severity.WARNING, text, elsewhere(attempts[0])))
        n_left = sum(lane.n_requests - lane.n_answered for lane in lanes)
        return LiveReport(lanes, n_left, tuple(self._notes))


def _close(running: Running) -> None:
    """Let nothing more be written; calls that are still under way then are in doubt, as the spool says."""
    if running.spool.is_closed:
        return
    try:
        running.spool.free(running.calls.unasked)
    finally:
        running.spool.close()


def check_studies(store: Store, studies: Collection[str]) -> None:
    """Raise UsageError for a study that no approval covers."""
    lake_state = fold(read(store))
    approved = lake_state.approvals
    for study in studies:
        if study not in approved:
            versions.planned_version(lake_state, study)  # says so where there is no such study at all
            known = ", ".join(sorted(approved)) or "none"
            raise UsageError(
                f"study {study!r} was never submitted (submitted: {known})",
                hint=did_you_mean(study, approved, f"`batchpond submit {study}` shows the cost and approves it"),
            )


def run(store: Store, options: LiveOptions) -> LiveReport:
    """Ask what is due of the studies' live models, all studies' if none is named.

    Raises BusyError when another process makes live calls, and KeyboardInterrupt when it is told to stop,
    with every answer durable.
    """
    with disk_errors(store.path), live_lock(store, wait_s=LIVE_LOCK_WAIT_S):
        return LiveRun(store, options).ask()
