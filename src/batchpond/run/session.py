"""One locked pass over the lake: the events so far, the providers, and what happened on the way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Self

from batchpond.clock import Clock
from batchpond.errors import (
    AccessError,
    BatchpondError,
    ExitCode,
    LakeError,
    ProviderError,
    PutOffError,
    UnreachableError,
)
from batchpond.lake.attempts import Archive, Attempt, LakeState, fold
from batchpond.lake.events import EventLog
from batchpond.lake.records import Event, PutOff
from batchpond.lake.store import Store
from batchpond.model import RemoteBatch
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.run.rules import Rules
from batchpond.study import settings as config

SETTLE_VARIABLE = "BATCHPOND_TEST_SETTLE_S"
NOTES_MAX = 1_000
PUT_OFF_MIN_S = 5.0
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
class Counts:
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


class Report:
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

    A provider whose key is missing or refused, or that cannot be reached, is out for the rest of the pass; the others
    go on.
    """

    def __init__(self, connect: Callable[[str], BatchProvider]) -> None:
        self._connect = connect
        self._connected: dict[str, BatchProvider] = {}
        self._out: dict[str, AccessError | UnreachableError] = {}

    @classmethod
    def of_environment(cls, clock: Clock, lake_path: Path) -> Providers:
        """Return the real providers, with the environment's keys and what the lake's settings say of each."""

        def connect(name: str) -> BatchProvider:
            environ = os.environ | config.load(lake_path).variables
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
        if name in self._out:
            raise self._out[name]
        if name not in self._connected:
            try:
                self._connected[name] = self._connect(name)
            except AccessError as error:
                self._out[name] = error
                raise
        return self._connected[name]

    def put_out(self, name: str, error: AccessError | UnreachableError) -> None:
        """Stop calling a provider for the rest of the pass."""
        self._out[name] = error

    def is_out(self, name: str) -> bool:
        """Whether the provider is out for this pass."""
        return name in self._out

    def put_off_text(self, name: str) -> str | None:
        """Return until when the provider asked not to be called, None for one that did not."""
        error = self._out.get(name)
        return error.message if isinstance(error, PutOffError) else None

    def is_refused(self, name: str) -> bool:
        """Whether the provider is out for want of a key that it takes or an address that is right."""
        return isinstance(self._out.get(name), AccessError)

    def is_unreachable(self, name: str) -> bool:
        """Whether the provider is out because no connection to it came about."""
        return isinstance(self._out.get(name), UnreachableError)


@dataclass(frozen=True, slots=True)
class Listing:
    """The batches of an account in a window; absence can only be read from a complete one."""

    batches: tuple[RemoteBatch, ...]
    is_complete: bool

    def evidence(self) -> str:
        """Return a digest that says which batches were seen."""
        seen = ",".join(sorted(batch.batch_id for batch in self.batches))
        return f"{len(self.batches)} batches, sha256 {hashlib.sha256(seen.encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class Session:
    """The state of a pass. Make it while holding the lake's lock.

    `paused` are the clients' models that take no more in this pass, with an empty model for all of a client's.
    `listed` has the batches of a client since a study was planned, `heads` the first custom_id of looked-into results,
    `listings` what a client listed to find refused creates, and since when, `looked_at_s` when its batches were listed
    last.
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
    n_waiting: int = 0
    n_live: int = 0
    scopes: dict[str, str] = field(default_factory=dict)
    newest: dict[str, datetime | None] = field(default_factory=dict)
    listed: dict[tuple[str, str], tuple[datetime, tuple[RemoteBatch, ...]]] = field(default_factory=dict)
    heads: dict[str, str | None] = field(default_factory=dict)
    listings: dict[str, tuple[datetime, Listing]] = field(default_factory=dict)
    looked_at_s: dict[str, float] = field(default_factory=dict)
    _is_whole: bool = True

    @classmethod
    def begin(cls, store: Store, providers: Providers, on_note: Callable[[Note], None] | None = None) -> Session:
        """Read the lake's events."""
        log = EventLog(store)
        state = fold(log.recent)
        found = cls(store, providers, log, state, on_note or (lambda _: None), Rules(store, state.readers))
        found._is_whole = log.is_whole
        return found

    @property
    def open_state(self) -> LakeState:
        """What the events amount to that are not archived: all that a pass may still have to do with."""
        if self.log.is_whole and not self._is_whole:
            self._state, self._is_whole = fold(self.log.events), True
        return self._state

    @property
    def archive(self) -> Archive:
        """What is told of the attempts that `open_state` lacks."""
        return self.log.archive

    @property
    def lake_state(self) -> LakeState:
        """What all events amount to; reads those that are archived."""
        self.log.read_all()
        return self.open_state

    def record(self, *events: Event) -> bool:
        """Append events and fold those that are new; returns whether any was."""
        lake_state = self.open_state
        new = self.log.append(*events)
        if lake_state is self.open_state:  # and not folded anew, with all events, just now
            for event in new:
                lake_state.add(event)
        return bool(new)

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

    def attempt(self, attempt_id: str) -> Attempt:
        """Return an attempt as it now stands."""
        return self.open_state.attempts.get(attempt_id) or self.lake_state.attempts[attempt_id]

    def note(
        self,
        severity: Severity,
        message: str,
        *,
        hint: str | None = None,
        exit_code: ExitCode = ExitCode.DONE,
    ) -> None:
        """Say something to the user once the step is over."""
        note = Note(severity, message, hint, exit_code)
        if len(self.notes) < NOTES_MAX and note not in self.notes:
            self.notes.append(note)
            self.on_note(note)

    @contextmanager
    def isolated(self, provider: str, what: str) -> Iterator[None]:
        """Keep one batch's or provider's failure from stopping the others.

        A damaged lake or disk stops everything: going on could send what cannot be recorded.
        """
        try:
            yield
        except LakeError:
            raise
        except AccessError as error:
            self.providers.put_out(provider, error)
            self.note(Severity.ERROR, error.message, hint=error.hint, exit_code=error.exit_code)
        except UnreachableError as error:
            self.providers.put_out(provider, error)
            self.note(Severity.WARNING, f"{what}: {error.message}", hint=error.hint, exit_code=error.exit_code)
        except ProviderError as error:
            self.note(Severity.WARNING, f"{what}: {error.message}", hint=error.hint, exit_code=error.exit_code)
            self._put_off(provider, error)
        except BatchpondError as error:
            self.note(Severity.WARNING, f"{what}: {error.message}", hint=error.hint, exit_code=error.exit_code)

    def _put_off(self, client_name: str, error: ProviderError) -> None:
        """Remember until when a provider wants no call, for this pass and those to come; others go on."""
        wait_s = error.retry_after_s or 0.0
        if client_name and wait_s > PUT_OFF_MIN_S:
            retry_at = self.store.clock.now() + timedelta(seconds=wait_s)
            self.record(PutOff(provider=client_name, message=error.message, retry_at=retry_at))
            self.keep_away()

    def keep_away(self) -> None:
        """Put out for this pass the providers that asked not to be called yet."""
        for name, event in self.open_state.put_off.items():
            if self.store.clock.now() < event.retry_at and not self.providers.is_out(name):
                text = f"{name} asked not to be called before {event.retry_at:%Y-%m-%d %H:%M:%S} UTC"
                self.providers.put_out(name, PutOffError(text, hint="`batchpond sync` goes on with it after that"))

    def settle_s(self, provider: BatchProvider) -> float:
        """Return how long an unclear create must stay invisible; shorter only against loopback."""
        setting = os.environ.get(SETTLE_VARIABLE)
        if setting is not None and provider.is_loopback:
            return float(setting)
        return provider.descriptor.settle_s
