"""What the events say about every attempt, shard and approval: a pure fold, no effects.

The SQL view `batches` folds the same events for readers; a test holds the two together.

A pass need not read all of it again: the attempts that are settled for good are archived, as a summary beside the
events of the rest. Only what nothing more can come of is: a batch whose every request is accounted for, the only one
of its shard. Whoever asks for more than the summary says reads all events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake import records
from batchpond.lake.records import Event, Intent, OfAttempt, Resolution, Sharded
from batchpond.model import BatchState, Mode, RemoteBatch, ShardKind, Take
from batchpond.text import Shown, redact


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


SETTLED_PHASES = frozenset({Phase.ABSENT, Phase.VERIFIED, Phase.MISMATCH, Phase.LOST})
UNSENT_PHASES = frozenset({Phase.INTENT, Phase.UPLOADED})
UNCLEAR_PHASES = frozenset({Phase.SENT, Phase.UNKNOWN})  # the provider may or may not have a batch
UNDER_WAY_PHASES = UNCLEAR_PHASES | {Phase.OPEN, Phase.ENDED, Phase.MISSING_REMOTE}
READ_PHASES = frozenset({Phase.VERIFIED, Phase.MISMATCH})
LOSABLE_PHASES = frozenset({Phase.OPEN, Phase.ENDED, Phase.MISSING_REMOTE, Phase.MISMATCH})
BEFORE_SENT_PHASES = frozenset({Phase.INTENT, Phase.UPLOADED, Phase.REJECTED})
ATTENTION_PHASES = frozenset({Phase.UNKNOWN, Phase.MISMATCH, Phase.MISSING_REMOTE})  # what is lost a person gave up
NOT_FOUND_POLLS_MIN = 5
_SETTLING = (records.Verified, records.Mismatch, records.Lost, records.Resolved)
NOT_FOUND_AGE_MIN_S = 86_400


@dataclass(slots=True)
class Attempt(Shown):
    """One intended provider batch, as of the last event about it.

    The fold builds it, event by event, and is all that ever changes it: `LakeState.add` puts a changed copy in the
    place of one that was handed out.
    """

    intent: Intent
    phase: Phase = Phase.INTENT
    file_id: str | None = None
    uploaded: records.Uploaded | None = field(default=None, compare=False)
    n_sends: int = 0
    sent: records.Sent | None = None
    observed: tuple[records.Unknown, ...] = ()
    first_listed: records.Listed | None = None
    is_settled: bool = False
    candidates: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    rejection: records.Rejected | None = None
    n_rejections: int = 0
    batch_id: str | None = None
    scope: str | None = None
    state: BatchState | None = None
    status: records.Seen | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    downloads: tuple[records.Downloaded, ...] = ()
    n_mismatches: int = 0
    n_conflicts: int = 0
    take: Take | None = None
    n_answered: int = 0
    n_succeeded: int = 0
    not_found: tuple[records.NotFound, ...] = ()
    duplicates: tuple[records.DuplicateRemote, ...] = ()
    is_known: bool = False
    tidied: tuple[str, ...] = ()

    @property
    def attempt_id(self) -> str:
        """The attempt's id."""
        return self.intent.attempt_id

    @property
    def shard_id(self) -> str:
        """The shard that the attempt is for."""
        return self.intent.shard_id

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.intent.provider

    @property
    def mode(self) -> Mode:
        """How the attempt's requests are asked."""
        return self.intent.mode

    @property
    def client_name(self) -> str:
        """The name of the way to the attempt's batch."""
        return self.intent.client_name

    @property
    def token(self) -> str:
        """What its batch is found by; raises LakeError for live calls and for batches of other tools."""
        if self.intent.token is None:
            raise LakeError(f"attempt {self.attempt_id} has no token: it was never meant to be sent")
        return self.intent.token

    @property
    def known_batch_id(self) -> str:
        """The provider's id of its batch; raises LakeError while none is known."""
        if self.batch_id is None:
            raise LakeError(f"no batch of attempt {self.attempt_id} is known: it is {self.phase}")
        return self.batch_id

    @property
    def is_duplicate(self) -> bool:
        """Whether the batch is a second one of what another attempt sent."""
        return self.intent.shard_kind is ShardKind.DUPLICATE

    @property
    def sender_id(self) -> str:
        """The attempt that the custom_ids of its batch name."""
        return ids.attempt_of(self.token) if self.is_duplicate else self.attempt_id

    @property
    def needs_attention(self) -> bool:
        """Whether a person has to decide, or to take note: a duplicate does until somebody says that it is known."""
        return self.phase in ATTENTION_PHASES or (self.is_duplicate and not self.is_known)

    @property
    def uploaded_at(self) -> datetime | None:
        """When the attempt's input file was made, by the provider's clock."""
        return self.uploaded.provider_created_at if self.uploaded else None

    def is_named_by(self, batch: RemoteBatch) -> bool:
        """Whether a batch carries the attempt's token or, without one, was made of its file."""
        if batch.token is not None:
            return batch.token == self.intent.token
        own_file = self.sent.file_id if self.sent else self.file_id
        return own_file is not None and batch.input_file_id == own_file

    @property
    def failure_code(self) -> str | None:
        """The code of the batch-level error of a failed batch."""
        if self.state is BatchState.FAILED and self.status is not None:
            return self.status.error_code
        return None


def _step(event: Event, attempt: Attempt) -> None:
    """Take an attempt on to what a fact says of its batch."""
    match event:
        case records.Created() | records.Adopted() if attempt.batch_id is None:
            attempt.phase, attempt.batch_id = Phase.OPEN, event.batch_id
            attempt.scope = event.scope if isinstance(event, records.Created) else None
            _see(attempt, event)
        case records.Status() if attempt.batch_id is not None:
            attempt.not_found = ()
            _see(attempt, event)
        case records.Downloaded():
            attempt.downloads = (*attempt.downloads, event)
        case records.Verified() if attempt.phase is Phase.ENDED:
            attempt.phase, attempt.n_succeeded = Phase.VERIFIED, event.n_completed
            attempt.n_answered = event.n_completed + event.n_failed
        case records.Mismatch() if attempt.phase is Phase.ENDED:
            attempt.phase, attempt.n_conflicts = Phase.MISMATCH, event.n_conflicts or 0
            attempt.n_mismatches += 1
        case records.MissingRemote() if attempt.phase is Phase.OPEN:
            attempt.phase = Phase.MISSING_REMOTE
        case records.Lost() if attempt.phase in LOSABLE_PHASES:
            attempt.phase = Phase.LOST
        case records.Resolved():
            _decide(event, attempt)
        case _:
            _step_before_batch(event, attempt)


def _step_before_batch(event: Event, attempt: Attempt) -> None:
    """Take an attempt on to what a fact says of its sending."""
    match event:
        case records.Uploaded() if attempt.phase in BEFORE_SENT_PHASES:
            attempt.file_id, attempt.uploaded = event.file_id, event
            if attempt.phase is not Phase.REJECTED:
                attempt.phase = Phase.UPLOADED
        case records.Sent():
            attempt.n_sends += 1
            if attempt.batch_id is None:
                attempt.phase, attempt.sent = Phase.SENT, event
                attempt.first_listed, attempt.is_settled, attempt.candidates = None, False, ()
        case records.Rejected() if attempt.phase is Phase.SENT:
            attempt.phase, attempt.rejection = Phase.REJECTED, event
            attempt.n_rejections += 1
        case records.Unknown() if attempt.phase in UNCLEAR_PHASES | {Phase.REJECTED}:
            # The first observation of the doubt in each boot is kept: only within one can time be measured. A refusal
            # comes to be doubted where the provider shows what may be the batch all the same.
            known = attempt.observed if attempt.phase is Phase.UNKNOWN else ()
            is_first = all(first.boot_id != event.boot_id for first in known)
            attempt.phase, attempt.observed = Phase.UNKNOWN, (*known, event) if is_first else known
        case records.Listed() if attempt.phase is Phase.UNKNOWN:
            attempt.first_listed = attempt.first_listed or event
            attempt.is_settled |= event.is_settled
        case records.Absent() if attempt.phase is Phase.UNKNOWN:
            attempt.phase = Phase.ABSENT
        case _:
            _tell(event, attempt)


def _tell(event: Event, attempt: Attempt) -> None:
    """Keep what is told of an attempt beside what was told before."""
    match event:
        case records.Candidate():
            attempt.candidates = (*attempt.candidates, event.batch_id)
        case records.Foreign():
            attempt.foreign = (*attempt.foreign, event.batch_id)
        case records.DuplicateRemote():
            attempt.duplicates = (*attempt.duplicates, event)
        case records.NotFound():
            attempt.not_found = (*attempt.not_found, event)
        case records.Tidied():
            attempt.tidied = (*attempt.tidied, event.file_id)


def _see(attempt: Attempt, event: records.Seen) -> None:
    """Apply a status; a terminal state is never left, whatever a stale replica says."""
    if attempt.state is not None and attempt.state.is_terminal:
        return
    attempt.state, attempt.status = event.state, event
    if attempt.phase in {Phase.OPEN, Phase.MISSING_REMOTE}:
        attempt.phase = Phase.ENDED if event.state.is_terminal else Phase.OPEN
    attempt.created_at = event.provider_created_at or attempt.created_at
    attempt.expires_at = event.expires_at or attempt.expires_at


def _decide(event: records.Resolved, attempt: Attempt) -> None:
    if event.resolution is Resolution.FOUND:
        attempt.not_found = ()
        if attempt.phase is Phase.MISSING_REMOTE:
            attempt.phase = Phase.OPEN
    elif event.resolution is Resolution.KNOWN:
        attempt.is_known = True
    elif attempt.phase is Phase.MISMATCH and (event.resolution is Resolution.REFETCH or event.resolution.take):
        attempt.phase, attempt.take = Phase.ENDED, event.resolution.take


def seen_as(attempt: Attempt, batch: RemoteBatch) -> dict[str, Any]:
    """Return what a fact says that saw an attempt's batch as `batch` shows it."""
    first_error = batch.errors[0] if batch.errors else None
    return {
        "attempt_id": attempt.attempt_id,
        "provider": attempt.provider,
        "batch_id": batch.batch_id,
        "state": batch.state,
        "provider_status": batch.provider_status,
        "provider_created_at": batch.created_at,
        "expires_at": batch.expires_at,
        "n_requests": attempt.intent.n_requests,
        "n_completed": batch.n_completed,
        "n_failed": batch.n_failed,
        "error_code": first_error.code if first_error else None,
        "detail": first_error.message if first_error else redact(orjson.dumps(batch.seen).decode()),
    }


@dataclass(slots=True)
class LakeState:
    """Everything the controller decides from: the fold of all events, and which refused shards a pass has to keep."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    shards: dict[str, records.Sharded] = field(default_factory=dict)
    approvals: dict[str, records.Approval] = field(default_factory=dict)
    current_versions: dict[str, str] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    words: dict[str, str | None] = field(default_factory=dict)
    by_shard: dict[str, list[str]] = field(default_factory=dict)
    batch_ids: set[str] = field(default_factory=set)
    voided: set[str] = field(default_factory=set)
    rounds: dict[str, records.Rounds] = field(default_factory=dict)
    put_off: dict[str, records.PutOff] = field(default_factory=dict)
    denied: dict[str, records.Access] = field(default_factory=dict)
    by_study: dict[str, dict[str, records.Sharded]] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)
    forgetting: dict[str, records.Forget] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def shards_of(self, study: str) -> Collection[records.Sharded]:
        """Return a study's shards, of all its versions: those that no study has given up."""
        return [shard for shard_id, shard in self.by_study.get(study, {}).items() if shard_id in self.shards]

    def settled_since(self, ord: int) -> set[str]:
        """Return the studies of which a later event settled answers, or settled an attempt otherwise."""
        return {study for study, at in self.settled.items() if at > ord}

    def latest_attempt(self, shard_id: str) -> Attempt | None:
        """Return the newest attempt for a shard."""
        attempt_ids = self.by_shard.get(shard_id)
        return self.attempts[attempt_ids[-1]] if attempt_ids else None

    def is_late(self, attempt: Attempt) -> bool:
        """Whether a batch of an attempt called absent, or refused, would be its only one: nothing was sent again."""
        is_latest = self.latest_attempt(attempt.shard_id) == attempt
        is_without = attempt.phase in {Phase.ABSENT, Phase.REJECTED}
        return is_without and is_latest and attempt.shard_id not in self.voided

    def add(self, event: Event) -> None:
        """Fold one more event in; an attempt that was handed out stays as it was."""
        known = self.attempts.get(event.attempt_id) if isinstance(event, OfAttempt) else None
        if known is not None:
            self.attempts[known.attempt_id] = dataclasses.replace(known)
        self._fold(event)

    def _fold(self, event: Event) -> None:
        match event:
            case OfAttempt():
                if event.attempt_id in self.attempts:
                    _step(event, self.attempts[event.attempt_id])
                    if isinstance(event, _SETTLING):
                        self.settled[self.attempts[event.attempt_id].intent.study] = event.ord
                self._know_batch(event)
            case Intent():
                self._add_intent(event)
            case records.Sharded():
                self.shards[event.shard_id] = event
                self.by_study.setdefault(event.study, {})[event.shard_id] = event
            case records.Planned():
                self.current_versions[event.study] = event.study_version
                self.readers[event.study] = event.reader or 1
                self.words[event.study] = event.words
            case records.Rounds():
                self.rounds[event.study_version] = event
            case records.Approval():
                self.approvals[event.study] = event
            case records.PutOff() | records.Access():
                self._hear(event)
            case records.Forget() | records.Forgotten():
                self._forget(event)
            case records.Voided():
                self.voided.add(event.shard_id)
                self.shards.pop(event.shard_id, None)

    def _hear(self, event: records.PutOff | records.Access) -> None:
        """Know how a provider last met a pass: whether it is to be left alone for a while, or let none in."""
        if isinstance(event, records.PutOff):
            self.put_off[event.provider] = event
        elif event.message is None:
            self.denied.pop(event.provider, None)
        else:
            self.denied[event.provider] = event

    def _forget(self, event: records.Forget | records.Forgotten) -> None:
        """Know nothing more of a study than its batches, as if it had never been planned."""
        if isinstance(event, records.Forgotten):
            self.forgetting.pop(event.forget_id, None)
            return
        self.forgetting[event.event_id] = event
        if event.study is not None:
            for of_study in (self.current_versions, self.readers, self.approvals, self.words):
                of_study.pop(event.study, None)
        self.rounds = {version: one for version, one in self.rounds.items() if one.study != event.study}

    def _know_batch(self, event: Event) -> None:
        """Take a batch for one of this lake's; those that were only looked into, or nearly taken in, are not."""
        if isinstance(event, records.OfBatch | records.Resolved) and event.batch_id is not None:
            self.batch_ids.add(event.batch_id)

    def _add_intent(self, intent: Intent) -> None:
        known = self.attempts.get(intent.attempt_id)
        # Where nothing of it is there yet, it is meant for another address now.
        if known is None or (not known.n_sends and known.batch_id is None):
            self.attempts[intent.attempt_id] = Attempt(intent)
        if known is None and intent.shard_kind is not ShardKind.DUPLICATE:
            self.by_shard.setdefault(intent.shard_id, []).append(intent.attempt_id)


def fold(events: Iterable[Event]) -> LakeState:
    """Return what the events, in order, amount to."""
    lake_state = LakeState()
    for event in events:
        lake_state._fold(event)
    return lake_state


ARCHIVE_ABOVE: Final = 128
"""How many attempts are settled for good before they are archived: a small lake has no archive."""
HISTORY_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Archive:
    """What is told of archived attempts.

    `settled` has, by study, the place of the last fact that settled any; `asked`, by version, how many requests
    its first shards hold; `took_s`, by provider, how long the last of its batches ran; `marks` what a batch is known
    by: its id, its token, the file that it was made of; `short`, by attempt, the shards of which some requests failed.
    `last_ord` is the last place of all events.
    """

    last_ord: int = 0
    n_attempts: int = 0
    settled: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    took_s: dict[str, list[float]] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()
    short: dict[str, str] = field(default_factory=dict)

    def with_more(self, archived: Sequence[Attempt], lake_state: LakeState, short: Collection[str]) -> Archive:
        """Return what is told once these attempts are archived too, of which those named have fallen `short`."""
        asked = dict(self.asked)
        took_s = {name: list(values) for name, values in self.took_s.items()}
        marks = set(self.marks)
        for one in archived:
            intent, sent = one.intent, one.sent
            if intent.shard_kind is ShardKind.FIRST:
                asked[intent.study_version] = asked.get(intent.study_version, 0) + intent.n_requests
            if (seconds := seconds_of(one)) is not None:
                took_s.setdefault(one.provider, []).append(seconds)
            found = (one.batch_id, intent.token, sent.file_id if sent else one.file_id)
            marks.update(mark for mark in found if mark)
        return Archive(
            self.last_ord,
            self.n_attempts + len(archived),
            self.settled | lake_state.settled,
            asked,
            {name: values[-HISTORY_MAX:] for name, values in took_s.items()},
            frozenset(marks),
            self.short | {one.attempt_id: one.shard_id for one in archived if one.attempt_id in short},
        )


def fallen_short(events: Iterable[Event], since: int = 0) -> set[str]:
    """Return the attempts that were counted since then and answered less than was asked, or were given up."""
    ended = (event for event in events if event.ord > since and isinstance(event, records.Counted | records.Lost))
    return {one.attempt_id for one in ended if isinstance(one, records.Lost) or one.n_completed < one.n_requests}


def seconds_of(attempt: Attempt) -> float | None:
    """Return how long a completed batch was under way, None for any other."""
    if attempt.state is not BatchState.COMPLETED or attempt.status is None or attempt.created_at is None:
        return None
    return (attempt.status.occurred_at - attempt.created_at).total_seconds()


def _is_over(attempt: Attempt, lake_state: LakeState) -> bool:
    """Whether nothing more can come of an attempt and its shard, and nobody has to be told anything of it."""
    return (
        attempt.phase is Phase.VERIFIED
        and attempt.mode is Mode.BATCH
        and attempt.failure_code is None
        and (attempt.n_succeeded > 0 or attempt.state is BatchState.CANCELLED)
        and attempt.take is None
        and not attempt.duplicates
        and not attempt.needs_attention
        and attempt.intent.shard_kind in {ShardKind.FIRST, ShardKind.RETRY}
        and attempt.shard_id in lake_state.shards
        and lake_state.by_shard.get(attempt.shard_id) == [attempt.attempt_id]
    )


def parted(events: Sequence[Event], archive: Archive) -> tuple[list[Event], Archive]:
    """Return which of the events of what is not archived yet a pass still reads, and what is told of all others."""
    lake_state = fold(events)
    over = {one.attempt_id: one for one in lake_state.attempts.values() if _is_over(one, lake_state)}
    if len(over) <= ARCHIVE_ABOVE:
        return list(events), archive
    shards = {attempt.shard_id for attempt in over.values()}
    latest = {_subject(event): event.event_id for event in events}
    kept = [event for event in events if _is_kept(event, over.keys(), shards, latest)]
    return kept, archive.with_more(list(over.values()), lake_state, fallen_short(events))


def _subject(event: Event) -> tuple[str, str]:
    """Return what a fact replaces an earlier one about; for most kinds that is nothing else."""
    match event:
        case records.Planned() | records.Approval():
            return event.kind, event.study
        case records.Rounds():
            return event.kind, event.study_version
        case records.PutOff() | records.Access():
            return event.kind, event.provider
        case _:
            return event.kind, event.event_id


def _is_kept(event: Event, attempt_ids: Collection[str], shards: set[str], latest: dict[tuple[str, str], str]) -> bool:
    match event:
        case OfAttempt() | Intent():
            return event.attempt_id not in attempt_ids
        case Sharded():
            return event.shard_id not in shards
        case _:
            return latest[_subject(event)] == event.event_id
