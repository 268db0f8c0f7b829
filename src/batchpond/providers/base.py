"""What a batch provider is to the rest of batchpond: a descriptor (data) and a client (calls).

A provider module knows its wire format and nothing of the lake, SQL or the command line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from batchpond.errors import ProviderError
from batchpond.model import (
    BatchPage,
    CreateAnswer,
    CreateSpec,
    Download,
    FileRole,
    Mode,
    RemoteBatch,
    RemoteFile,
)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A provider's limits, names and caveats; `notes` says where each is known from.

    `caveats` are shown to the user before money is spent. `settle_s` is how long an unclear
    create must stay invisible before it may be called absent. A batch that failed whole with one of
    `requeue_codes` ran nothing and is sent again later by itself. `takes_files` is false where the
    requests travel inside the create call. Without a token (`has_token`) a batch is known as ours
    only by the custom_ids of its results. `has_row_per_request` says that every ended batch, however it
    ended, has a result row for each of its requests. An uploaded input file is gone after
    `input_retention_s`; None is longer than any attempt. Where `has_known_retention` is not set, the provider does not
    say how long it keeps results. `modes` are the ways to ask; `is_free` says that
    nobody bills for it: a server of one's own. Where `batch_discounts` is given, only its models are cheaper
    in batches, by that share; without it every model is, as its bundled prices say. `content_hosts` are the
    hosts that downloads may be redirected to, without the key; a dot at the beginning means all below.
    `settings` are what a lake's config.toml may say under `[providers.<name>]`, with the variables that it then
    stands for; `credentials_env` name files that stand in place of a key.
    Without `needs_key` calls are made without a key where none is set. With a `default_port` an address
    may lack scheme, host or port. Without `lists_state` the listing names
    the batches, but not how they stand. `takes_schema` says that answers can be held to a JSON schema, by some of its
    models at least. `key_header` carries the key, as a bearer token where it is `Authorization`; `headers` go with
    every call, and those of `header_env` with the value of their variable where it is set. The answers' headers
    `scope_headers`, in lower case, say which account a key belongs to; an empty name stands for a part that none says.
    `price_name` is what the price data call the provider. The ids of its batches begin with `batch_id_prefix`, where
    that tells them from those of other providers. `nearest` gives, for a model that its table of models does not have,
    the names in it that are most like it, and None for one that it has. `base_of` returns what endpoints are below, by
    the base URL that the user gave and the environment.
    """

    name: str
    default_base_url: str
    base_url_env: str
    key_env: tuple[str, ...]
    endpoints: tuple[str, ...]
    max_requests: int = 0
    max_bytes: int = 0
    list_page_size: int = 0
    create_deadline_s: float = 0.0
    settle_s: float = 0.0
    results_retention_days: int = 0
    has_token: bool = True
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    requeue_codes: tuple[str, ...] = ()
    takes_files: bool = True
    has_row_per_request: bool = False
    input_retention_s: float | None = None
    has_known_retention: bool = False
    modes: tuple[Mode, ...] = (Mode.BATCH, Mode.LIVE, Mode.FILES)
    is_free: bool = False
    live_concurrency: int = 16
    is_one_model_at_a_time: bool = False
    lists_state: bool = True
    batch_discounts: Mapping[str, float] | None = None
    content_hosts: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    credentials_env: tuple[str, ...] = ()
    needs_key: bool = True
    default_port: int | None = None
    takes_schema: bool = False
    key_header: str = "Authorization"
    headers: tuple[tuple[str, str], ...] = ()
    header_env: tuple[tuple[str, str], ...] = ()
    scope_headers: tuple[str, ...] = ()
    price_name: str | None = None
    batch_id_prefix: str | None = None
    nearest: Callable[[str], tuple[str, ...] | None] = lambda _: None
    base_of: Callable[[str, Mapping[str, str]], str] = lambda base_url, _: base_url

    @property
    def is_opaque(self) -> bool:
        """Whether nothing at the provider names an attempt before its results do: no token, no input file."""
        return not (self.has_token or self.takes_files)


@dataclass(frozen=True, slots=True)
class RateHints:
    """What an answer's headers say of the account's limits per window; None where they are silent.

    `*_reset_s` counts from the answer on until the whole limit is there again.
    """

    request_limit: int | None = None
    requests_left: int | None = None
    requests_reset_s: float | None = None
    token_limit: int | None = None
    tokens_left: int | None = None
    tokens_reset_s: float | None = None


NO_HINTS = RateHints()
LIVE_CONNECTIONS = 64  # of one live client, where the caller does not say


@dataclass(frozen=True, slots=True)
class Answered:
    """A live call's final answer, whole, good or bad: asking again would not change it.

    `body` is exactly what arrived.
    """

    status_code: int
    body: bytes
    provider_request_id: str | None = None
    hints: RateHints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Deferred:
    """The provider did not take a live call for now, and charged nothing: the same call may be made again.

    `is_shared` says that the refusal is of the account or server (rate limit, overload), so that the
    other workers had better wait too.
    """

    reason: str
    status_code: int | None = None
    retry_after_s: float | None = None
    is_shared: bool = True
    hints: RateHints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A live call whose answer did not arrive whole: it may have been computed and charged."""

    reason: str


LiveAnswer = Answered | Deferred | Doubtful


@dataclass(frozen=True, slots=True)
class LiveStart:
    """What one free call before the first live one came to: the account, and whether a simulator answers."""

    scope: str
    is_simulated: bool


class BatchProvider(ABC):
    """The client of one provider's batch API, bound to one key and base URL.

    No method retries `create`; the others may be called again safely. Each raises
    `AccessError` when the key is refused and `ProviderError` when permitted retries end. What is not abstract holds
    where requests travel inside the create call and nothing can be looked up by its token.
    """

    descriptor: Descriptor

    @property
    @abstractmethod
    def host(self) -> str:
        """The host that the key is bound to."""

    @property
    @abstractmethod
    def is_loopback(self) -> bool:
        """Whether the base URL is on this machine, that is, a simulator."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def upload(self, path: Path, filename: str) -> RemoteFile:  # noqa: ARG002
        """Upload a payload; safe to repeat."""
        raise ProviderError(f"{self.descriptor.name} takes no batch files; {filename} was not uploaded")

    @abstractmethod
    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:
        """Return the uploaded files of that name."""

    def drop_upload(self, file_id: str) -> bool:  # noqa: ARG002
        """Delete an uploaded payload; False where there was none."""
        return False

    @abstractmethod
    def create(self, spec: CreateSpec) -> CreateAnswer:
        """Send exactly one POST and classify its answer; raises nothing for network faults."""

    @abstractmethod
    def list_page(self, cursor: str | None) -> BatchPage:
        """Return one page of the account's batches, newest first."""

    def find_batches(self, token: str) -> tuple[RemoteBatch, ...]:  # noqa: ARG002
        """Return the batches that the provider itself finds by a token; none prove nothing."""
        return ()

    @abstractmethod
    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None on 404, which is not proof of loss."""

    @abstractmethod
    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when the provider says it is too late or unknown."""

    def result_files(self, batch: RemoteBatch) -> tuple[tuple[FileRole, str], ...]:
        """Return the result files that a batch names, output first."""
        named = ((FileRole.OUTPUT, batch.output_file_id), (FileRole.ERROR, batch.error_file_id))
        return tuple((role, file_id) for role, file_id in named if file_id)

    @abstractmethod
    def download(self, file_id: str, path: Path) -> Download | None:
        """Stream a file's bytes to `path`; None on 404."""

    @abstractmethod
    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a result file; None on 404."""

    @abstractmethod
    def check(self) -> str:
        """Make one free call and return the scope (account) that the key belongs to."""
