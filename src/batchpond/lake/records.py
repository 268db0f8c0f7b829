"""The facts that a lake records: each kind a frozen record with exactly the fields that it has.

A field that may be None says that the fact has no such thing; what always belongs to a fact is required. Where the
table keeps a field under another name, `columns` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from batchpond.model import EPOCH, BatchState, ErrorClass, FileRole, Mode, Origin, ShardKind, Take, client_name

UNRECORDED: Final = EPOCH
"""When a fact was recorded that is not yet."""

SETTLED: Final = "settled"


class Resolution(StrEnum):
    """What a person, or a batch that was seen again, says about an attempt."""

    ADOPT = "adopt"
    ABSENT = "absent"
    LOST = "lost"
    REFETCH = "refetch"
    FOUND = "found"
    KNOWN = "known"
    TAKE_FIRST = "take_first"
    TAKE_SECOND = "take_second"
    TAKE_NONE = "take_none"

    @property
    def take(self) -> Take | None:
        """Which of two answers that differ is taken, if it says so."""
        return _TAKES.get(self)


_TAKES: Final = {
    Resolution.TAKE_FIRST: Take.FIRST, Resolution.TAKE_SECOND: Take.SECOND, Resolution.TAKE_NONE: Take.NONE
}  # fmt: skip


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def _record(kind: type[_T]) -> type[_T]:
    """Make a frozen record of a class; `Event` compares and shows all of them, as to make that for each takes time."""
    return dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)(kind)


@_record
class Event:
    """One fact; the log gives it its id, its place in the order and its time when it records it.

    An occurrence counts each time that it happens; any other fact is the same however often it is seen.
    """

    kind: ClassVar[str]
    is_occurrence: ClassVar[bool] = False

    event_id: str = ""
    ord: int = 0
    occurred_at: datetime = UNRECORDED

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _said(self) == _said(other)

    def __hash__(self) -> int:
        return hash((self.kind, self.event_id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in _said(self))})"


def _said(event: Event) -> list[tuple[str, Any]]:
    return [(field.name, getattr(event, field.name)) for field in fields(event)]


@_record
class Planned(Event):
    """A version of a study became its newest, or is read by another reader from now on; without one it is the first."""

    kind = "planned"
    is_occurrence = True
    study: str
    study_version: str
    reader: int | None = None


COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"
FINAL: Final = "final"


@_record
class Rounds(Event):
    """How far the rounds of a study's version are.

    The version has `n_requests` by now; `looked`, a JSON object, says for which answers each stage was looked at last.
    """

    kind = "round"
    is_occurrence = True
    study: str
    study_version: str
    round_no: int
    n_requests: int
    progress: str
    looked: str
    stage: str | None = None
    n_new: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the last look found nothing that failed, and nothing that was not read yet."""
        return self.progress in {COMPLETE, FINAL}

    @property
    def is_final(self) -> bool:
        """Whether no answer leads to further questions, so that nobody has to look at them."""
        return self.progress == FINAL


@_record
class Approval(Event):
    """What a person agreed to spend on a study's version; a sample of it where there is a limit of requests."""

    kind = "approval"
    is_occurrence = True
    approval_id: str
    study: str
    study_version: str
    n_requests: int
    expires_at: datetime
    n_limit: int | None = None
    cost_expected_usd: float | None = None
    cost_max_usd: float | None = None


@_record
class PutOff(Event):
    """A provider, named as its client is, asked not to be called before `retry_at`."""

    kind = "put_off"
    is_occurrence = True
    provider: str
    message: str
    retry_at: datetime


@_record
class Asked(Event):
    """What a shard asks, of whom, and for how much: said when it is made, and again of each attempt at it.

    `cells` is for people who read the provider's console.
    """

    study: str
    study_version: str
    shard_id: str
    shard_kind: ShardKind
    mode: Mode = Mode.BATCH
    provider: str
    endpoint: str
    request_model: str
    n_requests: int
    size_bytes: int
    input_tokens: int
    cells: str
    cost_expected_usd: float | None = None
    cost_max_usd: float | None = None

    @property
    def client_name(self) -> str:
        """The name of the way to its batch."""
        return client_name(self.provider, self.mode)

    def asked(self) -> dict[str, Any]:
        """Return what an attempt at the shard repeats of it."""
        return {name: getattr(self, name) for name in Asked.__annotations__}


@_record
class Sharded(Asked):
    """Requests were put together for one provider batch; a study without tiers gives it none."""

    kind = "sharded"
    tier: int | None = None


@_record
class AdoptedShard(Sharded):
    """Requests were found to be in a batch that another tool made."""

    shard_kind: ShardKind = ShardKind.ADOPTED
    batch_id: str
    host: str
    origin: Origin


@_record
class Voided(Event):
    """A shard was given up before it was sent, for good."""

    kind = "voided"
    study: str
    shard_id: str


@_record
class Fresh(Event):
    """Somebody said that a study is to be bought whether or not another lake has bought it before."""

    kind = "fresh"
    study: str


@_record
class Intent(Asked):
    """A batch is about to be made of a shard.

    Live calls and batches of other tools carry no token; a duplicate has that of the attempt that its lines name. Where
    no batch carries any, `scope` is the account and `newest_batch_at` the time of its newest batch by then.
    """

    kind = "intent"
    attempt_id: str
    ordinal: int
    host: str
    origin: Origin
    token: str | None = None
    approval_id: str | None = None
    sha256: str | None = None
    scope: str | None = None
    newest_batch_at: datetime | None = None


@_record
class Forget(Event):
    """Somebody wants what so many requests asked, and their answers, out of the lake: a study's, or those of `what`.

    `what` is a JSON object of ids: the `requests`, and the `item` that they are about. It stays, as all events do.
    """

    kind = "forget"
    is_occurrence = True
    study: str | None = None
    n_requests: int
    what: str


@_record
class Forgotten(Event):
    """What an event `forget` names is out of the lake."""

    kind = "forgotten"
    forget_id: str


@_record
class OfAttempt(Event):
    """A fact about an attempt."""

    attempt_id: str


@_record
class Uploaded(OfAttempt):
    """The attempt's input file is at the provider, whole."""

    kind = "uploaded"
    file_id: str
    size_bytes: int
    provider_created_at: datetime | None = None


@_record
class Tidied(OfAttempt):
    """A file of the attempt, its input as a rule, is not at the provider any more."""

    kind = "tidied"
    file_id: str


@_record
class Sent(OfAttempt):
    """The one process that may is about to ask for the batch, for the `ordinal`-th time."""

    kind = "sent"
    ordinal: int
    file_id: str | None = None
    boot_id: str
    monotonic_s: float


@_record
class Rejected(OfAttempt):
    """The provider said that it made no batch, with this HTTP status; `retry_at` is when it may be asked again."""

    kind = "rejected"
    is_occurrence = True
    ordinal: int
    error_class: ErrorClass
    error_code: str | None = None
    message: str
    provider_status: str | None = None
    retry_at: datetime | None = None


@_record
class Unknown(OfAttempt):
    """A batch may or may not exist; a person who says so has no clock."""

    kind = "unknown"
    is_occurrence = True
    ordinal: int
    reason: str
    boot_id: str | None = None
    monotonic_s: float | None = None


@_record
class Listed(OfAttempt):
    """A complete listing did not show the batch; `evidence` says what it showed."""

    kind = "listed"
    is_occurrence = True
    evidence: str
    reason: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it began a settle time after the doubt."""
        return self.reason == SETTLED


@_record
class Possible(OfAttempt):
    """A batch that may be the attempt's, as it was listed."""

    provider: str
    batch_id: str
    n_requests: int | None = None
    provider_created_at: datetime | None = None


class Candidate(Possible):
    """A batch may be the attempt's: only its results will tell."""

    __slots__ = ()
    kind = "candidate"


class Foreign(Possible):
    """A batch that might have been the attempt's is another's."""

    __slots__ = ()
    kind = "foreign"


@_record
class Absent(OfAttempt):
    """No batch was made; `evidence` says who or what shows it."""

    kind = "absent"
    evidence: str


@_record
class OfBatch(OfAttempt):
    """A fact about a batch of the attempt."""

    batch_id: str


@_record
class Seen(OfBatch):
    """What the provider showed of the batch: `detail` is its first error in words or, without one, all of it."""

    provider: str
    state: BatchState = BatchState.QUEUED
    provider_status: str
    provider_created_at: datetime | None = None
    expires_at: datetime | None = None
    n_requests: int | None = None
    n_completed: int | None = None
    n_failed: int | None = None
    error_code: str | None = None
    detail: str | None = None


@_record
class Created(Seen):
    """The provider acknowledged the batch, to the account of that scope."""

    kind = "created"
    scope: str


class Adopted(Seen):
    """The attempt's batch was found."""

    __slots__ = ()
    kind = "adopted"


class Status(Seen):
    """The batch was seen to have changed."""

    __slots__ = ()
    kind = "status"


class NotFound(OfBatch):
    """The provider said that it has no such batch."""

    __slots__ = ()
    kind = "not_found"
    is_occurrence = True


class MissingRemote(OfBatch):
    """The provider has said for long enough that it has no such batch."""

    __slots__ = ()
    kind = "missing_remote"
    is_occurrence = True


class CancelAsked(OfBatch):
    """The provider is about to be asked to stop the batch."""

    __slots__ = ()
    kind = "cancel_asked"
    is_occurrence = True


@_record
class DuplicateRemote(OfBatch):
    """A second batch was made for the attempt, and may cost as much again."""

    kind = "duplicate_remote"
    provider: str
    cost_max_usd: float | None = None
    provider_created_at: datetime | None = None


@_record
class Downloaded(OfBatch):
    """A result file is in the lake, byte for byte."""

    kind = "downloaded"
    provider: str
    file_id: str
    file_role: FileRole
    size_bytes: int
    sha256: str
    n_lines: int


@_record
class Counted(OfBatch):
    """How many of the batch's requests its files answer, and how."""

    n_requests: int
    n_completed: int
    n_failed: int


class Verified(Counted):
    """Every request of the batch is accounted for."""

    __slots__ = ()
    kind = "verified"


@_record
class Mismatch(Counted):
    """What the batch's files hold does not add up, for these reasons; of that many lines a person must say more."""

    kind = "mismatch"
    is_occurrence = True
    reason: str
    n_conflicts: int | None = None


@_record
class Lost(OfAttempt):
    """The batch's answers were given up."""

    kind = "lost"
    reason: str


@_record
class Resolved(OfAttempt):
    """Somebody decided about the attempt; a batch that was named with it is the attempt's from now on."""

    kind = "resolved"
    is_occurrence = True
    resolution: Resolution
    batch_id: str | None = None


KINDS: Final[dict[str, type[Event]]] = {
    record.kind: record
    for record in (
        Planned, Rounds, Approval, PutOff, Sharded, Voided, Fresh, Intent, Uploaded, Sent, Rejected, Unknown,
        Listed, Candidate, Foreign, Absent, Created, Adopted, Status, NotFound, MissingRemote, CancelAsked,
        DuplicateRemote, Downloaded, Verified, Mismatch, Lost, Resolved, Tidied, Forget, Forgotten,
    )
}  # fmt: skip
