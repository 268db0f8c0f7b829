"""What a batch provider is to the rest of batchpond: a descriptor (data) and a wire (calls).

A provider module knows its wire format and nothing of the lake, SQL or the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from batchpond.model import (
    BatchPage,
    CreateAnswer,
    CreateSpec,
    Download,
    FileRole,
    RemoteBatch,
    RemoteFile,
    Response,
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
    `input_retention_s`; None is longer than any attempt.
    """

    name: str
    default_base_url: str
    base_url_env: str
    key_env: tuple[str, ...]
    endpoints: tuple[str, ...]
    default_endpoint: str
    max_requests: int
    max_bytes: int
    list_page_size: int
    create_deadline_s: float
    settle_s: float
    results_retention_days: int
    has_token: bool
    caveats: tuple[str, ...]
    notes: tuple[str, ...]
    requeue_codes: tuple[str, ...] = ()
    takes_files: bool = True
    has_row_per_request: bool = False
    input_retention_s: float | None = None

    @property
    def is_opaque(self) -> bool:
        """Whether nothing at the provider names an attempt before its results do: no token, no input file."""
        return not (self.has_token or self.takes_files)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model of a study, as its provider's `build_body` needs it."""

    request_model: str
    endpoint: str
    thinking: str | None = None
    include_thoughts: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BuiltBody:
    """A request body, with what the provider's rules made batchpond leave out.

    `max_output_tokens` is the limit that the body carries though the study gave none.
    """

    body: dict[str, Any]
    dropped: tuple[str, ...] = ()
    max_output_tokens: int | None = None


class BatchProvider(Protocol):
    """The wire of one provider's batch API, bound to one key and base URL.

    No method retries `create`; the others may be called again safely. Each raises
    `AccessError` when the key is refused and `ProviderError` when permitted retries end.
    """

    @property
    def descriptor(self) -> Descriptor:
        """The provider's limits and caveats."""
        ...

    @property
    def host(self) -> str:
        """The host that the key is bound to."""
        ...

    @property
    def is_loopback(self) -> bool:
        """Whether the base URL is on this machine, that is, a simulator."""
        ...

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Upload a payload; safe to repeat."""
        ...

    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:
        """Return the uploaded files of that name."""
        ...

    def create(self, spec: CreateSpec) -> CreateAnswer:
        """Send exactly one POST and classify its answer; raises nothing for network faults."""
        ...

    def list_page(self, cursor: str | None) -> BatchPage:
        """Return one page of the account's batches, newest first."""
        ...

    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None on 404, which is not proof of loss."""
        ...

    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when the provider says it is too late or unknown."""
        ...

    def result_files(self, batch: RemoteBatch) -> tuple[tuple[FileRole, str], ...]:
        """Return the result files that a batch names, output first."""
        ...

    def download(self, file_id: str, path: Path) -> Download | None:
        """Stream a file's bytes to `path`; None on 404."""
        ...

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a result file; None on 404."""
        ...

    def check(self) -> str:
        """Make one free call and return the scope (account) that the key belongs to."""
        ...


class ProviderModule(Protocol):
    """The pure half of a provider: building lines before, reading lines after."""

    DESCRIPTOR: Descriptor

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None) -> str:
        """Return the endpoint to use where a study names none."""
        ...

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what to know about one model before money is spent, besides the provider's caveats."""
        ...

    def build_body(self, prompt: str, settings: ModelSettings) -> BuiltBody:
        """Return the request body for a prompt; raises UsageError for what the model refuses."""
        ...

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one line of a batch input file, without its line feed."""
        ...

    def read_line(self, line: bytes, role: FileRole) -> Response:
        """Return a result line made uniform; total: any bytes give a Response."""
        ...
