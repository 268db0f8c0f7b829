"""The facts that a lake records: each kind a frozen record with exactly the fields that it has.

A field that may be None says that the fact has no such thing; what always belongs to a fact is required. What the
table keeps under another name, `rename` says.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

import msgspec

from batchpond import model
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
        return Take(self.removeprefix("take_")) if self.startswith("take_") else None


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="kind"):
    """One fact; the log gives it its id, its place in the order and its time when it records it.

    An occurrence counts each time that it happens; any other fact is the same however often it is seen.
    """

    is_occurrence: ClassVar[bool] = False

    event_id: str = ""
    ord: int = 0
    occurred_at: datetime = UNRECORDED

    @property
    def kind(self) -> str:
        """What kind of fact it is, as the table has it."""
        return str(self.__struct_config__.tag)


class Planned(Event, frozen=True, kw_only=True, tag="planned", rename={"reader": "ordinal", "words": "detail"}):
    """A version of a study became its newest, or has another reader or other words (JSON) for its report from now."""

    is_occurrence = True
    study: str
    study_version: str
    reader: int | None = None
    words: str | None = None


COMPLETE: Final = "complete"
INCOMPLETE: Final = "incomplete"
FINAL: Final = "final"


class Rounds(
    Event, frozen=True, kw_only=True, tag="round",
    rename={"round_no": "ordinal", "progress": "state", "looked": "detail", "stage": "reason", "n_new": "n_lines"},
):  # fmt: skip
    """How far the rounds of a study's version are.

    The version has `n_requests` by now; `looked`, a JSON object, says for which answers each stage was looked at last.
    """

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


class Approval(Event, frozen=True, kw_only=True, tag="approval"):
    """What a person agreed to spend on a study's version; a sample of it where there is a limit of requests."""

    is_occurrence = True
    approval_id: str
    study: str
    study_version: str
    n_requests: int
    expires_at: datetime
    n_limit: int | None = None
    cost_expected_usd: float | None = None
    cost_max_usd: float | None = None


class PutOff(Event, frozen=True, kw_only=True, tag="put_off", rename={"message": "detail", "retry_at": "expires_at"}):
    """A provider, named as its client is, asked not to be called before `retry_at`."""

    is_occurrence = True
    provider: str
    message: str
    retry_at: datetime


class Access(Event, frozen=True, kw_only=True, tag="access", rename={"message": "detail"}):
    """A client, or a `provider/model` asked live, let a pass in again or, as `message` says, did not, or had no key.

    Or a study, after the client and a blank, was sent or, as `message` says, waits for a person.
    """

    is_occurrence = True
    provider: str
    message: str | None = None


class Asked(Event, frozen=True, kw_only=True, rename={"cells": "detail"}):
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

    @property
    def priced(self) -> model.PricedModel:
        """What its prices depend on."""
        return model.PricedModel(self.provider, self.request_model, self.mode)

    def asked(self) -> dict[str, Any]:
        """Return what an attempt at the shard repeats of it."""
        return {name: getattr(self, name) for name in Asked.__annotations__}


class Sharded(Asked, frozen=True, kw_only=True, tag="sharded", rename={"prices": "sha256"}):
    """Requests were put together for one batch, by `prices` of that digest; a study without tiers gives it none."""

    tier: int | None = None
    prices: str | None = None

    def part(self, n_requests: int) -> Self:
        """Return it as so many of its requests, at their share of its tokens and cost."""
        share = n_requests / self.n_requests
        expected_usd, max_usd = (usd and usd * share for usd in (self.cost_expected_usd, self.cost_max_usd))
        costs = {"cost_expected_usd": expected_usd, "cost_max_usd": max_usd}
        tokens = round(self.input_tokens * share)
        return msgspec.structs.replace(self, n_requests=n_requests, input_tokens=tokens, **costs)


class AdoptedShard(Sharded, frozen=True, kw_only=True, tag="sharded"):
    """Requests were found to be in a batch that another tool made."""

    shard_kind: ShardKind = ShardKind.ADOPTED
    batch_id: str
    host: str
    origin: Origin


class Voided(Event, frozen=True, kw_only=True, tag="voided"):
    """A shard was given up before it was sent, for good."""

    study: str
    shard_id: str


class Fresh(Event, frozen=True, kw_only=True, tag="fresh"):
    """Somebody said that a study is to be bought whether or not another lake has bought it before."""

    study: str


class Intent(Asked, frozen=True, kw_only=True, tag="intent", rename={"newest_batch_at": "provider_created_at"}):
    """A batch is about to be made of a shard.

    Live calls and batches of other tools carry no token; a duplicate has that of the attempt that its lines name. Where
    no batch carries any, `scope` is the account and `newest_batch_at` the time of its newest batch by then.
    """

    attempt_id: str
    ordinal: int
    host: str
    origin: Origin
    token: str | None = None
    approval_id: str | None = None
    sha256: str | None = None
    scope: str | None = None
    newest_batch_at: datetime | None = None


class Forget(Event, frozen=True, kw_only=True, tag="forget", rename={"what": "detail"}):
    """Somebody wants what so many requests asked, and their answers, out of the lake: a study's, or those of `what`.

    `what` is a JSON object of ids: the `requests`, and the `item` that they are about. It stays, as events but plans
    do.
    """

    is_occurrence = True
    study: str | None = None
    n_requests: int
    what: str


class Forgotten(Event, frozen=True, kw_only=True, tag="forgotten", rename={"forget_id": "reason"}):
    """What an event `forget` names is out of the lake."""

    forget_id: str


class Relabelled(
    Event, frozen=True, kw_only=True, tag="relabelled", rename={"rater": "request_model", "said": "detail"}
):
    """A rater changed a label that was handed in: `said` is its row of `imported_judgments`, a JSON object."""

    is_occurrence = True
    study: str
    rater: str
    said: str


class OfAttempt(Event, frozen=True, kw_only=True):
    """A fact about an attempt."""

    attempt_id: str


class Uploaded(OfAttempt, frozen=True, kw_only=True, tag="uploaded"):
    """The attempt's input file is at the provider, whole."""

    file_id: str
    size_bytes: int
    provider_created_at: datetime | None = None


class Tidied(OfAttempt, frozen=True, kw_only=True, tag="tidied"):
    """A file of the attempt, its input as a rule, is not at the provider any more."""

    file_id: str


class Sent(OfAttempt, frozen=True, kw_only=True, tag="sent"):
    """The one process that may is about to ask for the batch, for the `ordinal`-th time."""

    ordinal: int
    file_id: str | None = None
    boot_id: str
    monotonic_s: float


class Rejected(
    OfAttempt, frozen=True, kw_only=True, tag="rejected",
    rename={"error_class": "state", "error_code": "reason", "message": "detail", "retry_at": "expires_at"},
):  # fmt: skip
    """The provider said that it made no batch, with this HTTP status; `retry_at` is when it may be asked again."""

    is_occurrence = True
    ordinal: int
    error_class: ErrorClass
    error_code: str | None = None
    message: str
    provider_status: str | None = None
    retry_at: datetime | None = None


class Unknown(OfAttempt, frozen=True, kw_only=True, tag="unknown"):
    """A batch may or may not exist; a person who says so has no clock."""

    is_occurrence = True
    ordinal: int
    reason: str
    boot_id: str | None = None
    monotonic_s: float | None = None


class Listed(OfAttempt, frozen=True, kw_only=True, tag="listed", rename={"evidence": "detail"}):
    """A complete listing did not show the batch; `evidence` says what it showed."""

    is_occurrence = True
    evidence: str
    reason: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it began a settle time after the doubt."""
        return self.reason == SETTLED


class Possible(OfAttempt, frozen=True, kw_only=True):
    """A batch that may be the attempt's, as it was listed."""

    provider: str
    batch_id: str
    n_requests: int | None = None
    provider_created_at: datetime | None = None


class Candidate(Possible, frozen=True, tag="candidate"):
    """A batch may be the attempt's: only its results will tell."""


class Foreign(Possible, frozen=True, tag="foreign"):
    """A batch that might have been the attempt's is another's."""


class Absent(OfAttempt, frozen=True, kw_only=True, tag="absent", rename={"evidence": "detail"}):
    """No batch was made; `evidence` says who or what shows it."""

    evidence: str


class OfBatch(OfAttempt, frozen=True, kw_only=True):
    """A fact about a batch of the attempt."""

    batch_id: str


class Seen(OfBatch, frozen=True, kw_only=True, rename={"error_code": "reason"}):
    """What the provider showed of the batch: `detail` is its first error in words or, without one, all of it.

    The log gives it the reading of a clock that nobody can set.
    """

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
    boot_id: str | None = None
    monotonic_s: float | None = None


class Created(Seen, frozen=True, kw_only=True, tag="created"):
    """The provider acknowledged the batch, to the account of that scope."""

    scope: str


class Adopted(Seen, frozen=True, tag="adopted"):
    """The attempt's batch was found."""


class Status(Seen, frozen=True, tag="status"):
    """The batch was seen to have changed."""


class NotFound(OfBatch, frozen=True, tag="not_found"):
    """The provider said that it has no such batch."""

    is_occurrence = True


class MissingRemote(OfBatch, frozen=True, tag="missing_remote"):
    """The provider has said for long enough that it has no such batch."""

    is_occurrence = True


class CancelAsked(OfBatch, frozen=True, tag="cancel_asked"):
    """The provider is about to be asked to stop the batch."""

    is_occurrence = True


class DuplicateRemote(OfBatch, frozen=True, kw_only=True, tag="duplicate_remote"):
    """A second batch was made for the attempt, and may cost as much again."""

    provider: str
    cost_max_usd: float | None = None
    provider_created_at: datetime | None = None


class Downloaded(OfBatch, frozen=True, kw_only=True, tag="downloaded"):
    """A result file is in the lake, byte for byte."""

    provider: str
    file_id: str
    file_role: FileRole
    size_bytes: int
    sha256: str
    n_lines: int


class Counted(OfBatch, frozen=True, kw_only=True):
    """How many of the batch's requests its files answer, and how."""

    n_requests: int
    n_completed: int
    n_failed: int


class Verified(Counted, frozen=True, tag="verified"):
    """Every request of the batch is accounted for."""


class Mismatch(Counted, frozen=True, kw_only=True, tag="mismatch", rename={"n_conflicts": "n_lines"}):
    """What the batch's files hold does not add up, for these reasons; of that many lines a person must say more."""

    is_occurrence = True
    reason: str
    n_conflicts: int | None = None


class Lost(OfAttempt, frozen=True, kw_only=True, tag="lost"):
    """The batch's answers were given up."""

    reason: str


class Resolved(OfAttempt, frozen=True, kw_only=True, tag="resolved", rename={"resolution": "reason"}):
    """Somebody decided about the attempt; a batch that was named with it is the attempt's from now on."""

    is_occurrence = True
    resolution: Resolution
    batch_id: str | None = None


KINDS: Final[dict[str, type[Event]]] = {
    str(record.__struct_config__.tag): record
    for record in (
        Planned, Rounds, Approval, PutOff, Access, Sharded, Voided, Fresh, Intent, Uploaded, Sent, Rejected, Unknown,
        Listed, Candidate, Foreign, Absent, Created, Adopted, Status, NotFound, MissingRemote, CancelAsked,
        DuplicateRemote, Downloaded, Verified, Mismatch, Lost, Resolved, Tidied, Forget, Forgotten, Relabelled,
    )
}  # fmt: skip
