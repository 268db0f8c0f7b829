"""The nouns: states, verdicts and the frozen records that modules hand each other.

Words are those of the README's glossary; units stand last in names; times are UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Before anything that has a date."""

# What a cell is within its study; metrics speak of cells, and name them by these columns in this order.
CELL_COLUMNS: Final = ("template_id", "rubric_id", "provider", "request_model", "thinking")


class Summed:
    """Counts of what was done, as a dataclass with slots adds to it; two of a kind can be added up."""

    __slots__: tuple[str, ...] = ()

    def __add__(self, other: Self) -> Self:
        """Return the sums."""
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


class Verdict(StrEnum):
    """What a pairwise judge said about the two presented items."""

    FIRST = "first"
    SECOND = "second"
    TIE = "tie"


class Outcome(StrEnum):
    """Why a judgment has, or has not, a verdict; only DECIDED and TIE enter a rate."""

    DECIDED = "decided"
    TIE = "tie"
    NOT_APPLICABLE = "not_applicable"
    UNSURE = "unsure"
    AMBIGUOUS = "ambiguous"
    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    REFUSED = "refused"
    BLOCKED = "blocked"
    ERROR = "error"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    MISSING = "missing"


class Direction(StrEnum):
    """Whether a pair is asked as drawn or with its two items swapped."""

    FORWARD = "forward"
    REVERSE = "reverse"


class Origin(StrEnum):
    """Where an answer came from; a simulated one never looks real."""

    BATCH = "batch"
    LIVE = "live"
    FILES = "files"
    IMPORTED = "imported"
    SIMULATED = "simulated"


class Mode(StrEnum):
    """How a model is asked: by a provider's batch API, one call per request, or through files."""

    BATCH = "batch"
    LIVE = "live"
    FILES = "files"


FILES_MARK = "@files"


def client_name(provider: str, mode: str | None) -> str:
    """Return what a pass calls the way to a provider's batches: its name, or `name@files` for a folder of them."""
    return f"{provider}{FILES_MARK}" if mode == Mode.FILES else provider


def named_client(name: str) -> tuple[str, Mode]:
    """Return the provider and the mode of a way to batches, as `client_name` names it."""
    provider = name.removesuffix(FILES_MARK)
    return provider, Mode.BATCH if provider == name else Mode.FILES


class PricedModel(NamedTuple):
    """What has a price: a model at a provider, in the way that it is asked."""

    provider: str
    model: str
    mode: Mode = Mode.BATCH

    @property
    def override(self) -> str:
        """The name of its price in `config.toml`."""
        return f"{self.provider}/{self.model}{'@live' if self.mode is Mode.LIVE else ''}"


class ShardKind(StrEnum):
    """Whether a shard asks its requests for the first time, again, or not at all: another tool asked them.

    An attempt is a duplicate where its batch is a second one, made of what another attempt had sent.
    """

    FIRST = "first"
    RETRY = "retry"
    ADOPTED = "adopted"
    DUPLICATE = "duplicate"


class BatchState(StrEnum):
    """A provider batch's state in one vocabulary for all providers."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether no further answers can appear."""
        return self in _TERMINAL


_TERMINAL = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED, BatchState.CANCELLED})


class FileRole(StrEnum):
    """What a result file holds: a provider's rows, its error rows, or the answers to live calls."""

    OUTPUT = "output"
    ERROR = "error"
    LIVE = "live"


class ResponseStatus(StrEnum):
    """What became of one request inside a batch."""

    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNREADABLE = "unreadable"


class Finish(StrEnum):
    """Why the model stopped, in one vocabulary; `finish_reason` keeps the provider's word."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    BLOCKED = "blocked"
    OTHER = "other"


class ErrorClass(StrEnum):
    """What kind of failure an error is, and so whether asking again can help.

    MISSING and LOST are of requests that no result row answers: their batch ended without one, or was given up.
    FORGOTTEN is of answers that were taken out of the lake.
    """

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    BILLING = "billing"
    ACCESS = "access"
    MODEL_GONE = "model_gone"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNREADABLE = "unreadable"
    MISSING = "missing"
    LOST = "lost"
    FORGOTTEN = "forgotten"


class Match(StrEnum):
    """How a raw line relates to the requests that its attempt sent."""

    MATCHED = "matched"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    UNMATCHED = "unmatched"
    BLANK = "blank"


class Take(StrEnum):
    """Which of two answers to a request that differ counts, as a person says."""

    FIRST = "first"
    SECOND = "second"
    NONE = "none"


class Role(StrEnum):
    """Who speaks in a conversation; the system speaks first, if at all."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Media:
    """A picture or document in a prompt: by the digest of its bytes, which the lake keeps, or by a `url`.

    `media_type` is by its bytes, `image/*` behind a URL. `width` and `height` are in pixels, those of a document None.
    `n_pages` is None where it cannot be told. `made_of` names the larger picture that this was made of, as
    `sha256@pixels` of the longer side.
    """

    media_type: str
    sha256: str = ""
    size_bytes: int = 0
    width: int | None = None
    height: int | None = None
    n_pages: int | None = None
    url: str | None = None
    made_of: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation; `parts` are what it says and shows, in order, where that is not text alone."""

    role: Role
    text: str
    parts: tuple[str | Media, ...] = ()


Prompt = str | tuple[Turn, ...]
"""What a model is asked: a text, or a conversation that ends with the user's turn."""


class Token(NamedTuple):
    """One token of an answer: its bytes, and what could have stood there, itself included, with natural log shares."""

    text: bytes
    choices: tuple[tuple[bytes, float], ...]


class Response(NamedTuple):
    """A raw result line made uniform, as a provider's `read_line` returns it.

    Token counts are None when the provider did not say; they are never guessed. `input_tokens` is
    all of the prompt, what was read from (`cached_tokens`) and written to a cache included;
    `output_tokens` is all that is billed as output, reasoning included. `logprobs` are the tokens of the answer where
    it came with log probabilities. In the raw line alone are those kept, and the `cache_hour_tokens` of
    `cache_write_tokens`, which are written for an hour and dearer.
    """

    custom_id: str | None
    status: ResponseStatus
    status_code: int | None = None
    response_model: str | None = None
    finish_reason: str | None = None
    finish: Finish | None = None
    text: str | None = None
    thoughts: str | None = None
    refusal: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    error_class: ErrorClass | None = None
    error_code: str | None = None
    error_message: str | None = None
    provider_request_id: str | None = None
    logprobs: tuple[Token, ...] | None = None
    cache_hour_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BatchError:
    """One batch-level error, with the input line it points at if it does."""

    code: str | None
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file object at a provider."""

    file_id: str
    filename: str
    size_bytes: int | None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A provider's batch as one answer showed it; counts are None when unknown.

    `seen` is the provider's own JSON object, kept for the events table. `token` and `input_file_id`
    are what an unacknowledged batch is recognised by.
    """

    batch_id: str
    state: BatchState
    provider_status: str
    seen: Mapping[str, Any] = field(compare=False)
    created_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    n_total: int | None = None
    n_completed: int | None = None
    n_failed: int | None = None
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    endpoint: str | None = None
    token: str | None = None
    errors: tuple[BatchError, ...] = ()

    @property
    def age_key(self) -> tuple[datetime, str]:
        """What sorts batches by age, the oldest first; those without a date come before all others."""
        return self.created_at or EPOCH, self.batch_id


@dataclass(frozen=True, slots=True)
class BatchPage:
    """One page of a provider's batch listing; `next_cursor` is None on the last page, `scope` where it says none."""

    batches: tuple[RemoteBatch, ...]
    next_cursor: str | None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The provider acknowledged a create with an id."""

    batch: RemoteBatch
    scope: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider definitely did not create a batch."""

    error_class: ErrorClass
    code: str | None
    message: str
    status_code: int
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """Neither a clear yes nor a clear no: the batch may exist."""

    reason: str


CreateAnswer = Created | Rejected | Unclear


@dataclass(frozen=True, slots=True)
class CreateSpec:
    """What one create call needs; `metadata` already carries the token.

    `input_file_id` is None where the provider takes the requests inside the create call: they are
    the lines of the file at `payload_path`.
    """

    token: str
    endpoint: str
    request_model: str
    input_file_id: str | None
    payload_path: Path
    n_requests: int
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Download:
    """What a finished download put on disk."""

    size_bytes: int
    sha256: str
