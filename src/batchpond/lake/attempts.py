"""What the events say about every attempt, shard and approval: a pure fold, no effects.

The SQL view `batches` folds the same events for readers; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

from batchpond.lake.events import Event, Kind
from batchpond.model import BatchState, Mode, RemoteBatch, ShardKind, wire_name
from batchpond.text import redact


class Phase(StrEnum):
    """Where an attempt stands in the submission protocol."""

    INTENT = "intent"
    UPLOADED = "uploaded"
    SENT = "sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    ABSENT = "absent"
    OPEN = "open"
    ENDED = "ended"
    VERIFIED = "verified"
    MISMATCH = "mismatch"
    MISSING_REMOTE = "missing_remote"
    LOST = "lost"

    @property
    def is_unclear(self) -> bool:
        """Whether the provider may or may not have a batch."""
        return self in UNCLEAR_PHASES


SETTLED_PHASES = frozenset({Phase.ABSENT, Phase.VERIFIED, Phase.MISMATCH, Phase.LOST})
UNSENT_PHASES = frozenset({Phase.INTENT, Phase.UPLOADED})
UNCLEAR_PHASES = frozenset({Phase.SENT, Phase.UNKNOWN})
READ_PHASES = frozenset({Phase.VERIFIED, Phase.MISMATCH})
LOSABLE_PHASES = frozenset({Phase.OPEN, Phase.ENDED, Phase.MISSING_REMOTE, Phase.MISMATCH})
ATTENTION_PHASES = frozenset({Phase.UNKNOWN, Phase.MISMATCH, Phase.MISSING_REMOTE, Phase.LOST})
_OF_OTHERS = frozenset({Kind.CANDIDATE, Kind.FOREIGN})
REFETCH = "refetch"
FOUND = "found"
SETTLED = "settled"
NOT_FOUND_POLLS_MIN = 5
NOT_FOUND_AGE_MIN_S = 86_400


@dataclass(frozen=True, slots=True)
class Attempt:
    """One intended provider batch, as of the last event about it."""

    intent: Event
    phase: Phase = Phase.INTENT
    file_id: str | None = None
    uploaded: Event | None = field(default=None, compare=False)
    n_sends: int = 0
    sent: Event | None = None
    observed: tuple[Event, ...] = ()
    first_listed: Event | None = None
    is_settled: bool = False
    candidates: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    rejection: Event | None = None
    n_rejections: int = 0
    batch_id: str | None = None
    scope: str | None = None
    state: BatchState | None = None
    status: Event | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    downloads: tuple[Event, ...] = ()
    n_mismatches: int = 0
    n_answered: int = 0
    not_found: tuple[Event, ...] = ()
    duplicates: tuple[Event, ...] = ()

    @property
    def attempt_id(self) -> str:
        """The attempt's id."""
        return self.intent.attempt_id or ""

    @property
    def shard_id(self) -> str:
        """The shard that the attempt is for."""
        return self.intent.shard_id or ""

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.intent.provider or ""

    @property
    def mode(self) -> Mode:
        """How the attempt's requests are asked."""
        return Mode(self.intent.mode or Mode.BATCH)

    @property
    def wire(self) -> str:
        """The name of the way to the attempt's batch."""
        return wire_of(self.intent)

    @property
    def is_adopted(self) -> bool:
        """Whether the batch is another tool's, taken in by a map of its custom_ids: never sent from here."""
        return self.intent.shard_kind == ShardKind.ADOPTED

    @property
    def uploaded_at(self) -> datetime | None:
        """When the attempt's input file was made, by the provider's clock."""
        return self.uploaded.provider_created_at if self.uploaded else None

    @property
    def is_open(self) -> bool:
        """Whether a batch is known and not known to have ended."""
        return self.phase is Phase.OPEN

    @property
    def failure_code(self) -> str | None:
        """The code of the batch-level error of a failed batch."""
        if self.state is BatchState.FAILED and self.status is not None:
            return self.status.reason
        return None


def _changed(attempt: Attempt, **fields: Any) -> Attempt:
    """Set fields of an attempt that nobody outside the fold has seen yet."""
    for name, value in fields.items():
        object.__setattr__(attempt, name, value)
    return attempt


def _step(attempt: Attempt, event: Event) -> Attempt:  # noqa: C901, PLR0911, PLR0912 - one match, one row per fact
    match event.kind:
        case Kind.UPLOADED if attempt.phase in {Phase.INTENT, Phase.UPLOADED, Phase.REJECTED}:
            phase = Phase.REJECTED if attempt.phase is Phase.REJECTED else Phase.UPLOADED
            return _changed(attempt, phase=phase, file_id=event.file_id, uploaded=event)
        case Kind.SENT if attempt.batch_id is None:
            counted = _changed(attempt, n_sends=attempt.n_sends + 1, sent=event, first_listed=None)
            return _changed(counted, phase=Phase.SENT, is_settled=False, candidates=())
        case Kind.SENT:
            return _changed(attempt, n_sends=attempt.n_sends + 1)
        case Kind.REJECTED if attempt.phase is Phase.SENT:
            return _changed(attempt, phase=Phase.REJECTED, rejection=event, n_rejections=attempt.n_rejections + 1)
        case Kind.UNKNOWN if attempt.phase in UNCLEAR_PHASES:
            return _changed(attempt, phase=Phase.UNKNOWN, observed=_observed(attempt, event))
        case Kind.LISTED if attempt.phase is Phase.UNKNOWN:
            is_settled = attempt.is_settled or event.reason == SETTLED
            return _changed(attempt, first_listed=attempt.first_listed or event, is_settled=is_settled)
        case Kind.CANDIDATE:
            return _changed(attempt, candidates=(*attempt.candidates, event.batch_id or ""))
        case Kind.FOREIGN:
            return _changed(attempt, foreign=(*attempt.foreign, event.batch_id or ""))
        case Kind.ABSENT if attempt.phase is Phase.UNKNOWN:
            return _changed(attempt, phase=Phase.ABSENT)
        case Kind.CREATED | Kind.ADOPTED if attempt.batch_id is None:
            return _seen(_changed(attempt, phase=Phase.OPEN, batch_id=event.batch_id, scope=event.scope), event)
        case Kind.STATUS if attempt.batch_id is not None:
            return _seen(_changed(attempt, not_found=()), event)
        case Kind.DUPLICATE_REMOTE:
            return _changed(attempt, duplicates=(*attempt.duplicates, event))
        case Kind.NOT_FOUND:
            return _changed(attempt, not_found=(*attempt.not_found, event))
        case Kind.DOWNLOADED:
            return _changed(attempt, downloads=(*attempt.downloads, event))
        case Kind.VERIFIED if attempt.phase is Phase.ENDED:
            return _changed(attempt, phase=Phase.VERIFIED, n_answered=(event.n_completed or 0) + (event.n_failed or 0))
        case Kind.MISMATCH if attempt.phase is Phase.ENDED:
            return _changed(attempt, phase=Phase.MISMATCH, n_mismatches=attempt.n_mismatches + 1)
        case Kind.MISSING_REMOTE if attempt.phase is Phase.OPEN:
            return _changed(attempt, phase=Phase.MISSING_REMOTE)
        case Kind.LOST if attempt.phase in LOSABLE_PHASES:
            return _changed(attempt, phase=Phase.LOST)
        case Kind.RESOLVED if event.reason == FOUND:
            phase = Phase.OPEN if attempt.phase is Phase.MISSING_REMOTE else attempt.phase
            return _changed(attempt, phase=phase, not_found=())
        case Kind.RESOLVED if event.reason == REFETCH and attempt.phase is Phase.MISMATCH:
            return _changed(attempt, phase=Phase.ENDED)
        case _:
            return attempt


def _observed(attempt: Attempt, event: Event) -> tuple[Event, ...]:
    """Return the first observation of the doubt in each boot: only within one can time be measured."""
    known = attempt.observed if attempt.phase is Phase.UNKNOWN else ()
    return known if any(first.boot_id == event.boot_id for first in known) else (*known, event)


def _seen(attempt: Attempt, event: Event) -> Attempt:
    """Apply a status; a terminal state is never left, whatever a stale replica says."""
    if attempt.state is not None and attempt.state.is_terminal:
        return attempt
    state = BatchState(event.state) if event.state else BatchState.QUEUED
    phase = attempt.phase
    if phase in {Phase.OPEN, Phase.MISSING_REMOTE}:
        phase = Phase.ENDED if state.is_terminal else Phase.OPEN
    return _changed(
        attempt,
        state=state,
        phase=phase,
        status=event,
        created_at=event.provider_created_at or attempt.created_at,
        expires_at=event.expires_at or attempt.expires_at,
    )


def wire_of(event: Event) -> str:
    """Return the name of the way to the batch of a shard or an intent."""
    return wire_name(event.provider or "", event.mode)


def seen_event(kind: Kind, attempt: Attempt, batch: RemoteBatch) -> Event:
    """Return the fact that an attempt's batch was seen as `batch` shows it."""
    first_error = batch.errors[0] if batch.errors else None
    return Event(
        kind=kind,
        attempt_id=attempt.attempt_id,
        provider=attempt.provider,
        batch_id=batch.batch_id,
        state=batch.state,
        provider_status=batch.provider_status,
        provider_created_at=batch.created_at,
        expires_at=batch.expires_at,
        n_requests=attempt.intent.n_requests,
        n_completed=batch.n_completed,
        n_failed=batch.n_failed,
        reason=first_error.code if first_error else None,
        detail=first_error.message if first_error else redact(orjson.dumps(batch.seen).decode()),
    )


@dataclass(slots=True)
class Picture:
    """Everything the controller decides from: the fold of all events."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    shards: dict[str, Event] = field(default_factory=dict)
    approvals: dict[str, Event] = field(default_factory=dict)
    current_versions: dict[str, str] = field(default_factory=dict)
    by_shard: dict[str, list[str]] = field(default_factory=dict)
    batch_ids: set[str] = field(default_factory=set)
    voided: set[str] = field(default_factory=set)
    rounds: dict[str, Event] = field(default_factory=dict)

    def latest_attempt(self, shard_id: str) -> Attempt | None:
        """Return the newest attempt for a shard."""
        attempt_ids = self.by_shard.get(shard_id)
        return self.attempts[attempt_ids[-1]] if attempt_ids else None

    def add(self, event: Event) -> None:
        """Fold one more event in; an attempt that was handed out stays as it was."""
        known = self.attempts.get(event.attempt_id or "")
        if known is not None:
            self.attempts[known.attempt_id] = dataclasses.replace(known)
        self._fold(event)

    def _fold(self, event: Event) -> None:
        match event.kind:
            case Kind.PLANNED:
                self.current_versions[event.study or ""] = event.study_version or ""
            case Kind.ROUND:
                self.rounds[event.study_version or ""] = event
            case Kind.APPROVAL:
                self.approvals[event.study or ""] = event
            case Kind.SHARDED:
                self.shards[event.shard_id or ""] = event
            case Kind.VOIDED:
                self.voided.add(event.shard_id or "")
                self.shards.pop(event.shard_id or "", None)
            case Kind.INTENT:
                self._add_intent(event)
            case _ if event.attempt_id in self.attempts:
                _step(self.attempts[event.attempt_id], event)
        if event.batch_id and event.kind not in _OF_OTHERS:
            self.batch_ids.add(event.batch_id)

    def _add_intent(self, event: Event) -> None:
        if event.attempt_id and event.attempt_id not in self.attempts:
            self.attempts[event.attempt_id] = Attempt(event)
            self.by_shard.setdefault(event.shard_id or "", []).append(event.attempt_id)


def fold(events: Iterable[Event]) -> Picture:
    """Return what the events, in order, amount to."""
    picture = Picture()
    for event in events:
        picture._fold(event)
    return picture
