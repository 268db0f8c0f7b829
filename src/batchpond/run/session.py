"""One locked pass over the lake: the events so far, the providers, the rules of answers, what happened on the way.

A request has the answer rules of every study that plans it. What was found of them is kept for the next pass: only new
shards and new rows of plans are looked at, so that a pass costs what came since, not what the lake has.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed, wait
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self, TypeVar

import msgspec

from batchpond import answers
from batchpond.clock import Clock, each
from batchpond.errors import (
    AccessError,
    AttentionError,
    BatchpondError,
    BusyError,
    ExitCode,
    LakeError,
    ProviderError,
    PutOffError,
    UnreachableError,
)
from batchpond.lake import disk, failpoints, tables
from batchpond.lake.attempts import READ_PHASES, Attempt, LakeState, fold
from batchpond.lake.events import EventLog
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.records import Access, Asked, Event, PutOff
from batchpond.lake.schemas import JUDGMENTS, PLAN, RAW, RESPONSES, SHARD_REQUESTS
from batchpond.lake.store import CONFIG, Memo, Store, keep_memo, recall_memo
from batchpond.model import RemoteBatch, RemoteFile, Summed
from batchpond.plan import versions
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.study.prices import basis, is_outdated, load_config
from batchpond.text import Shown

_T = TypeVar("_T")
SETTLE_VARIABLE = "BATCHPOND_TEST_SETTLE_S"
NOTES_MAX = 1_000
PUT_OFF_MIN_S = 5.0
ELSEWHERE_S = 120.0
"""Within how long of its election a sender on another machine makes its call, if it does: it gives up in half of it."""
PATIENCE_S: Final = 1.0
"""How long a file on its way is waited for with the lake's lock held: others get their turn while it travels."""
TURN_WAIT_S: Final = 600.0
LARGE = 1_000
"""From so many requests on, what is done for a batch is on record at once, lest it has to be done again."""
TAKE_HINT = "the first stands; `batchpond resolve BATCH --take first|second|none` says which of them counts"


class Severity(StrEnum):
    """How much a note matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that a pass has to say, and what to do about it."""

    severity: Severity
    message: str
    hint: str | None = None
    exit_code: ExitCode = ExitCode.DONE


@dataclass(slots=True)
class Counts(Summed):
    """What one pass did."""

    n_created: int = 0
    n_adopted: int = 0
    n_absent: int = 0
    n_rejected: int = 0
    n_unknown: int = 0
    n_status_changes: int = 0
    n_files_downloaded: int = 0
    n_lines: int = 0
    n_verified: int = 0
    n_mismatched: int = 0
    n_read_again: int = 0

    @property
    def n_existing(self) -> int:
        """How many batches there are that were not known before: created, or created and found again."""
        return self.n_created + self.n_adopted


class Report(Shown):
    """What a verb did; each kind has the `notes` of its pass."""

    __slots__ = ()
    notes: tuple[Note, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What the notes add up to."""
        order = [ExitCode.LAKE, ExitCode.ACCESS, ExitCode.ATTENTION, ExitCode.USAGE, ExitCode.FAILED]
        seen = {note.exit_code for note in self.notes}
        return next((code for code in order if code in seen), ExitCode.DONE)


class Providers:
    """The providers a pass may call, connected when first needed; as a context, closed with it.

    A provider whose key is missing or refused, or that cannot be reached, is `out` for the rest of the pass, with what
    put it out; the others go on.
    """

    def __init__(self, connect: Callable[[str], BatchProvider]) -> None:
        self._connect = connect
        self.out: dict[str, AccessError | UnreachableError] = {}
        self._connected: dict[str, BatchProvider] = {}

    @classmethod
    def of_environment(cls, clock: Clock, lake_path: Path) -> Providers:
        """Return the real providers, with the environment's keys and what the lake's settings say of each."""

        def connect(name: str) -> BatchProvider:
            environ = os.environ | load_config(lake_path).variables
            return registry.connect(name, clock=clock, environ=environ, lake_path=lake_path)

        return cls(connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; what is asked for again is connected anew."""
        for provider in self._connected.values():
            provider.close()
        self._connected.clear()

    def get(self, name: str) -> BatchProvider:
        """Return the provider; raises the AccessError or UnreachableError that put it out for this pass."""
        if name in self.out:
            raise self.out[name]
        if name not in self._connected:
            try:
                self._connected[name] = self._connect(name)
            except AccessError as error:
                self.out[name] = error
                raise
        return self._connected[name]


@dataclass(frozen=True, slots=True)
class Listing:
    """The batches of an account in a window; absence can only be read from a complete one.

    `scope` is the account, where the answers say whose it is.
    """

    batches: tuple[RemoteBatch, ...]
    is_complete: bool
    scope: str | None = None

    def evidence(self) -> str:
        """Return a digest that says which batches were seen."""
        seen = ",".join(sorted(batch.batch_id for batch in self.batches))
        return f"{len(self.batches)} batches, sha256 {hashlib.sha256(seen.encode()).hexdigest()[:16]}"


def beside(name: str, work: Callable[[], _T], claim: Path, *, is_told: bool = False) -> Future[_T] | None:
    """Do work in a thread that touches nothing of the pass, and that the process does not wait for when it ends.

    A file is claimed meanwhile: None where another process of this machine has it, and so is at the same work. How far
    it is may be told of one thread at a time.
    """
    claimed = disk.claim(claim)
    if claimed is None:
        return None
    found: Future[_T] = Future()

    def run() -> None:
        with claimed:
            try:
                found.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised by whoever asks for the result
                found.set_exception(error)

    target = partial(copy_context().run, run) if is_told else run
    Thread(target=target, name=f"batchpond-{name}", daemon=True).start()
    return found


@dataclass(slots=True, weakref_slot=True)
class Session:
    """The state of a pass. Make it while holding the lake's lock.

    `paused` are the clients' models that take no more in this pass, with an empty model for all of a client's.
    `listed` has the batches of a client since a study was planned, `heads` the first custom_id of looked-into results,
    `listings` what a client listed to find refused creates, and since when, `looked_at_s` when its batches were listed
    last, `read_parts` the files of responses that stood before this pass read any, by the result file that they are of,
    `uncut` the studies of which what is due was not made shards, `waiting` how many shards of each study wait to be
    sent, `denied` why clients did not let this pass in, `heard` those that it had no trouble with. By attempt,
    `uploads` are the input files on their way, `arrivals` the batches whose results are, to `folder`.

    A pass that `lets_go` of the lock while files travel is made in turns; `tried` are the shards and the attempts that
    it has done what it can for.
    """

    store: Store
    providers: Providers
    log: EventLog
    _state: LakeState
    on_note: Callable[[Note], None]
    rules: Rules
    notes: list[Note] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    paused: set[tuple[str, str]] = field(default_factory=set)
    waiting: Counter[str] = field(default_factory=Counter)
    scopes: dict[str, str] = field(default_factory=dict)
    listed: dict[tuple[str, str], tuple[datetime, tuple[RemoteBatch, ...]]] = field(default_factory=dict)
    heads: dict[str, str | None] = field(default_factory=dict)
    listings: dict[str, tuple[datetime, Listing]] = field(default_factory=dict)
    looked_at_s: dict[str, float] = field(default_factory=dict)
    uploads: dict[str, Future[RemoteFile]] = field(default_factory=dict)
    arrivals: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    tried: set[str] = field(default_factory=set)
    lets_go: bool = False
    read_parts: dict[str, list[Path]] | None = None
    uncut: set[str] = field(default_factory=set)
    denied: dict[str, str] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)
    began_ord: int = 0
    _is_whole: bool = True
    _is_held_up: bool = False

    @classmethod
    def begin(
        cls,
        store: Store,
        providers: Providers,
        on_note: Callable[[Note], None] | None = None,
        *,
        lets_go: bool = False,
    ) -> Session:
        """Read the lake's events."""
        log = EventLog(store)
        state = fold(log.recent)
        found = cls(store, providers, log, state, on_note or (lambda _: None), Rules(store, state.readers))
        found.began_ord, found._is_whole, found.lets_go = log.last_ord, log.is_whole, lets_go
        return found

    def is_here(self, way: Future[Any]) -> bool:
        """Whether what travels has come, or failed; where it is late, none is waited for in this turn."""
        while not (is_done := bool(wait([way], 0.0 if self._is_held_up else PATIENCE_S).done)) and not self.lets_go:
            pass
        self._is_held_up |= not is_done
        return is_done

    def let_files_come(self, held: ExitStack, purpose: str) -> None:
        """Let go of the lake's lock until the files that travel have come, and go on as a pass that begins now would.

        Others may have written meanwhile. Raises BusyError where another process keeps the lake.
        """
        self.log.append()
        held.close()
        failpoints.reach("W0")
        ways = [*self.uploads.values(), *(arrival.way for arrival in self.arrivals.values())]
        for _ in each(as_completed(ways), "waiting for", "files", len(ways)):
            pass
        lock = partial(self.store.lock, purpose)
        try:
            held.enter_context(disk.waited_for(lock, self.store.clock, TURN_WAIT_S))
        except BusyError as error:
            hint = "what was sent and brought in is on record; `batchpond sync` goes on with the rest"
            raise BusyError(error.message, hint=hint) from None
        self.log = EventLog(self.store)
        self._state = fold(self.log.recent)
        self.rules = Rules(self.store, self._state.readers)
        self.began_ord, self._is_whole = self.log.last_ord, self.log.is_whole
        self._is_held_up, self.read_parts = False, None
        for of_then in (self.listed, self.listings, self.heads, self.waiting, self.uncut):
            of_then.clear()
        self.keep_away()

    @property
    def is_over(self) -> bool:
        """Whether nothing travels that this pass has to wait for."""
        return not (self.uploads or self.arrivals)

    @property
    def open_state(self) -> LakeState:
        """What the events amount to that are not archived: all that a pass may still have to do with."""
        if self.log.is_whole and not self._is_whole:
            self._state, self._is_whole = fold(self.log.events), True
        return self._state

    @property
    def lake_state(self) -> LakeState:
        """What all events amount to; reads those that are archived."""
        self.log.read_all()
        return self.open_state

    def record(self, *events: Event, is_urgent: bool = True) -> int:
        """Append events, or leave them to the next that are urgent, and fold those that are new: so many."""
        lake_state = self.open_state
        new = self.log.append(*events, is_urgent=is_urgent)
        if lake_state is self.open_state:  # and not folded anew, with all events, just now
            for event in new:
                lake_state.add(event)
        return len(new)

    def elect(self, name: str, event: Event) -> bool:
        """Record an event under a name that one process alone can win; whether this one won."""
        lake_state = self.open_state
        if not self.log.append_as(name, event):
            return False
        lake_state.add(self.log.recent[-1])
        return True

    def scope(self, provider: BatchProvider) -> str:
        """Return the account that the provider's key belongs to, asked once a pass."""
        name = provider.descriptor.name
        if name not in self.scopes:
            self.scopes[name] = provider.check()
        return self.scopes[name]

    def remembered(
        self, name: str, basis: object, count: Callable[[], Mapping[str, int]], held: Iterable[str] = ()
    ) -> Mapping[str, int]:
        """Return each study's number kept under a name, counted anew where `basis` or the files `held` changed."""
        layout = f"3 {hashlib.sha256(repr(basis).encode()).hexdigest()}"
        kept = recall_memo(self.store, name, layout)
        if kept is None:
            kept = Memo(layout, [*held], (), {"n": count()})
            keep_memo(self.store, name, kept)
        return Counter[str](kept.content["n"])

    def attempt(self, attempt_id: str) -> Attempt:
        """Return an attempt as it now stands."""
        return self.open_state.attempts.get(attempt_id) or self.lake_state.attempts[attempt_id]

    def note(
        self, severity: Severity, message: str, *, hint: str | None = None, exit_code: ExitCode = ExitCode.DONE
    ) -> None:
        """Say something to the user once the step is over."""
        note = Note(severity, message, hint, exit_code)
        if len(self.notes) < NOTES_MAX and note not in self.notes:
            self.notes.append(note)
            self.on_note(note)

    def alert(self, message: str, *, hint: str | None, severity: Severity = Severity.WARNING) -> None:
        """Say something that needs a person."""
        self.note(severity, message, hint=hint, exit_code=ExitCode.ATTENTION)

    @contextmanager
    def isolated(self, provider: str, what: str, study: str = "") -> Iterator[None]:
        """Keep one batch's or provider's failure from stopping the others, and remember what keeps a `study` unsent.

        A damaged lake or disk stops everything: going on could send what cannot be recorded.
        """
        sent = f"{provider} {study}"
        try:
            yield
        except LakeError:
            raise
        except BatchpondError as error:
            is_refused = isinstance(error, AccessError)
            text = error.message if is_refused else f"{what}: {error.message}"
            self.note(
                Severity.ERROR if is_refused else Severity.WARNING, text, hint=error.hint, exit_code=error.exit_code
            )
            if is_refused and provider:
                self.denied.setdefault(provider, error.message)
            elif study and isinstance(error, AttentionError):
                self.denied.setdefault(sent, error.message)
            if isinstance(error, AccessError | UnreachableError):
                self.providers.out[provider] = error
            elif isinstance(error, ProviderError):
                self._put_off(provider, error)
        else:
            self.heard |= {provider, sent}

    def keep_access(self) -> None:
        """Remember who refused the key of this pass, or what was not sent, and which that had before went well.

        `status` says so until a pass gets through. What changes in a message from call to call makes no news.
        """
        standing = self.open_state.denied
        for name, message in self.denied.items():
            if name not in standing or _gist(standing[name].message) != _gist(message):
                self.record(Access(provider=name, message=message))
        for name in self.heard & standing.keys() - self.denied.keys() - self.providers.out.keys():
            self.record(Access(provider=name))

    def _put_off(self, client_name: str, error: ProviderError) -> None:
        """Remember until when a provider wants no call, for this pass and those to come; others go on."""
        wait_s = error.retry_after_s or 0.0
        if client_name and wait_s > PUT_OFF_MIN_S:
            retry_at = self.store.clock.now() + timedelta(seconds=wait_s)
            self.record(PutOff(provider=client_name, message=error.message, retry_at=retry_at))
            self.keep_away()

    def keep_away(self) -> None:
        """Put out for this pass the providers that asked not to be called yet."""
        now = self.store.clock.now()
        for name, event in self.open_state.put_off.items():
            # What is dated in time to come was dated by a clock that was ahead.
            if event.occurred_at <= now < event.retry_at and name not in self.providers.out:
                text = f"{name} asked not to be called before {event.retry_at:%Y-%m-%d %H:%M:%S} UTC"
                self.providers.out[name] = PutOffError(text, hint="`batchpond sync` goes on with it after that")

    def settle_s(self, provider: BatchProvider) -> float:
        """Return how long an unclear create must stay invisible; shorter only against loopback."""
        setting = os.environ.get(SETTLE_VARIABLE)
        if setting is not None and provider.is_loopback:
            return float(setting)
        found = provider.descriptor
        return found.settle_s + (self.store.mirror is not None) * (ELSEWHERE_S + found.create_deadline_s)


def _gist(message: str | None) -> list[str]:
    """Return what of a refusal is ours to say: whose key, which call, which status; what follows is the provider's."""
    return (message or "").split(": ")[:2]


RULES_MEMO: Final = ".rules"
_RULES_LAYOUT: Final = "3"
_USED: Final = tables.query(__package__, "rules_used")
_SHARED: Final = tables.query(__package__, "rules_shared")


@dataclass(frozen=True, slots=True)
class _Read:
    """When all that came was read: of which plans, by which readers, after which download, and a digest of all else."""

    plan: list[str]
    readers: dict[str, int]
    last_ord: int
    digest: str


@dataclass(slots=True)
class _Found:
    """What is known: by which files of plans, each study's rules of each shard's file, when all was read and costed."""

    plan: set[str] = field(default_factory=set)
    used: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    read: _Read | None = None
    prices: str | None = None


def answered(lake_state: LakeState) -> list[Attempt]:
    """Return the attempts whose answers are here, and counted."""
    return [one for one in lake_state.attempts.values() if one.phase in READ_PHASES and one.downloads]


class Rules:
    """The answer rules of the lake's shards, and each study's reader, as first asked for; the lake's lock is held."""

    def __init__(self, store: Store, readers: Mapping[str, int]) -> None:
        self._store = store
        self._readers = dict(readers)
        self._shared: dict[tuple[frozenset[str], frozenset[str]], bool] = {}

    @cached_property
    def _plan(self) -> list[str]:
        return disk.relative(self._store.path, self._store.published(PLAN.name))

    @cached_property
    def _found(self) -> _Found:
        kept = recall_memo(self._store, RULES_MEMO, _RULES_LAYOUT)
        if kept is None or not set(kept.content["plan"]) <= set(self._plan):
            return _Found()
        return msgspec.convert(kept.content, _Found)

    @property
    def is_priced_anew(self) -> bool:
        """Whether other prices hold than when all that was read was costed."""
        return is_outdated(self._found.prices, self._store.path / CONFIG)

    @cached_property
    def _specs(self) -> dict[str, dict[str, Any]]:
        return versions.parsers(self._store)

    def of(self, shards: Iterable[Asked]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the rules of the requests of each shard, by shard id and the name of the rule as it is read."""
        names = {shard.shard_id: shard_file_name(shard.provider, shard.shard_id) for shard in shards}
        if len(self._specs) <= 1 and len(set(self._readers.values())) <= 1:
            reader = max(self._readers.values(), default=1)
            read = dict(_read_by(rule, spec, reader) for rule, spec in self._specs.items())
            return dict.fromkeys(names, read)
        new = [path for path in self._plan if path not in self._found.plan]
        if self._has_shared(new, self._found.plan):
            self._look(new, self._found.used)
        self._found.plan.update(self._plan)
        self._look(self._plan, [name for name in names.values() if name not in self._found.used])
        return {
            shard_id: dict(
                _read_by(rule, self._specs[rule], self._readers.get(study, 1))
                for study, rule in self._found.used[name]
                if rule in self._specs
            )
            for shard_id, name in names.items()
        }

    def _look(self, plan: Sequence[str], shards: Iterable[str]) -> None:
        """Add the rules that files of plans have for the requests of shards, named as their files are."""
        rules: dict[str, set[tuple[str, str]]] = {name: set(self._found.used.get(name, ())) for name in shards}
        if rules and plan:
            paths = [os.fspath(self._store.final_path(SHARD_REQUESTS, name)) for name in rules]
            of_id = {name.rpartition("/")[2]: name for name in rules}
            values = {"plan": self._paths(plan), "shards": paths}
            for shard_id, study, rule in tables.rows(self._store, [], _USED, values):
                rules[of_id[shard_id]].add((study, rule))
        self._found.used |= {name: sorted(found) for name, found in rules.items()}

    def _has_shared(self, new: Sequence[str], old: Collection[str]) -> bool:
        """Whether plans ask for requests that others ask for too: a shard's are all in one that is as old as it."""
        if not new or not old:
            return False
        if (asked := (frozenset(new), frozenset(old))) not in self._shared:
            values = {"new": self._paths(new), "old": self._paths(old)}
            self._shared[asked] = bool(tables.rows(self._store, [], _SHARED, values)[0][0])
        return self._shared[asked]

    def _paths(self, names: Iterable[str]) -> list[str]:
        return [f"{self._store.path}/{name}" for name in names]

    def is_all_read(self, attempts: Sequence[Attempt]) -> bool:
        """Whether nothing came, was planned or was taken away since all was read; the attempts are the open ones."""
        read = self._found.read
        return read is not None and read.plan == self._plan and self._came_since(attempts, read) == []

    def unread(self, attempts: Sequence[Attempt]) -> list[Attempt] | None:
        """Return which of the open attempts may lack something, None where those that are archived may too."""
        read = self._found.read
        before, now = set(read.plan if read else ()), set(self._plan)
        is_other = read is None or not before <= now or self._has_shared(sorted(now - before), read.plan)
        return None if read is None or is_other else self._came_since(attempts, read)

    def _came_since(self, attempts: Sequence[Attempt], read: _Read) -> list[Attempt] | None:
        """Return the attempts that were downloaded since, None where anything else is otherwise than it was."""
        is_other = any(read.readers.get(study, reader) != reader for study, reader in self._readers.items())
        new = [one for one in attempts if one.downloads[-1].ord > read.last_ord]
        return new if not is_other and self._digest(attempts, new) == read.digest else None

    def published(self) -> list[str]:
        """Return the files of raw lines and of what is read from them, as `table/name.parquet`."""
        paths = (path for table in (RAW, RESPONSES, JUDGMENTS) for path in self._store.published(table.name))
        return disk.relative(self._store.path, paths)

    def keep(self, attempts: Sequence[Attempt], *, is_all_read: bool) -> None:
        """Keep what was found for the next pass."""
        last_ord = max((one.downloads[-1].ord for one in attempts), default=0)
        read = _Read(self._plan, self._readers, last_ord, self._digest(attempts, ())) if is_all_read else None
        prices = basis(self._store.path / CONFIG) if is_all_read else self._found.prices
        content = msgspec.to_builtins(replace(self._found, read=read, prices=prices), order="sorted")
        keep_memo(self._store, RULES_MEMO, Memo(_RULES_LAYOUT, (), (), content))

    def _digest(self, attempts: Iterable[Attempt], without: Iterable[Attempt]) -> str:
        """Return a digest of all but plans and readers that reading depends on, and of all that it makes.

        Some attempts are left out of it.
        """
        left_out = {one.attempt_id: one for one in without}
        names = self.published()
        if left_out:
            from batchpond.lake.jsonl import files_of  # an idle pass reads nothing

            stems = {file.stem for one in left_out.values() for file in files_of(one)}
            names = [name for name in names if name.rpartition("/")[2].rpartition("-")[0] not in stems]
        # How they stand, too: a derived file that was damaged is made again.
        names = [f"{name} {disk.stands(f'{self._store.path}/{name}')}" for name in names]
        taken = [f"{one.attempt_id} {one.take}" for one in attempts if one.take and one.attempt_id not in left_out]
        all_told = [str(answers.READER_VERSION), basis(self._store.path / CONFIG), *taken, *names]
        return hashlib.sha256("\n".join(all_told).encode()).hexdigest()


def _read_by(parser_id: str, spec: Mapping[str, Any], reader: int) -> tuple[str, dict[str, Any]]:
    """Return the name that judgments have by an answer rule and a reader, and the rule with the reader.

    The first reader's have the rule's own name, by which all were read once; `plan_current` names them the same way.
    """
    return (parser_id if reader == 1 else f"{parser_id}-r{reader}"), {**spec, "read_by": reader}
