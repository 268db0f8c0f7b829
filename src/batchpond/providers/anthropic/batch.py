"""Anthropic's Message Batches: requests inside the create call, one result stream, no name or metadata.

Shapes: anthropic 2.11 `types/messages/message_batch.py`, `batch_create_params.py`,
`batch_list_params.py`; deviations that servers were seen to make are read without complaint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from batchpond import fields
from batchpond.clock import Clock
from batchpond.errors import LakeError, ProviderError
from batchpond.model import (
    BatchError,
    BatchPage,
    BatchState,
    CreateAnswer,
    Created,
    CreateSpec,
    Download,
    FileRole,
    Mode,
    RemoteBatch,
    RemoteFile,
    Unclear,
)
from batchpond.providers.anthropic.body import MESSAGES, VERSIONS, build_body, endpoint_for, payload_line, version_of
from batchpond.providers.anthropic.lines import read_answer, read_line
from batchpond.providers.anthropic.models import accepted_thinking, caveats
from batchpond.providers.base import LIVE_CONNECTIONS, Descriptor
from batchpond.providers.http import keys
from batchpond.providers.http.client import HttpClient, JsonStream
from batchpond.providers.http.errors import AckRule, Answer, error_class_of
from batchpond.providers.shared import rates as common_rates
from batchpond.providers.shared import wire as common
from batchpond.providers.shared.live import LiveAccess, LiveApi, LiveWire
from batchpond.text import Secret

__all__ = [
    "DESCRIPTOR",
    "Anthropic",
    "AnthropicLive",
    "accepted_thinking",
    "build_body",
    "caveats",
    "connect",
    "connect_live",
    "endpoint_for",
    "payload_line",
    "read_answer",
    "read_line",
]

_HEAD, _TAIL = b'{"requests":[', b"]}"

DESCRIPTOR: Final = Descriptor(
    name="anthropic",
    default_base_url="https://api.anthropic.com",
    base_url_env="ANTHROPIC_BASE_URL",
    key_env=("ANTHROPIC_API_KEY",),
    endpoints=tuple(VERSIONS),
    default_endpoint=MESSAGES,
    max_requests=100_000,
    max_bytes=256_000_000 - len(_HEAD + _TAIL),
    list_page_size=1_000,
    create_deadline_s=600.0,
    settle_s=1_800.0,
    results_retention_days=29,
    has_token=False,
    takes_schema=True,
    caveats=(
        "Anthropic keeps results for 29 days from a batch's creation: sync before that",
        "a batch that passes 24 hours expires: finished requests are billed and kept, the others are not run",
        "no mark of ours can be put on an Anthropic batch: use a workspace, with a key of its own, in which nothing"
        " else creates batches",
        "a batch whose creation got no clear answer is known again only by its results; it may take 30 minutes to be"
        " proven absent, and nothing is sent again before that",
    ),
    notes=(
        "limits of requests and bytes, one body: anthropic 2.11 resources/messages/batches.py, Anthropic's errors page",
        "retention, expiry: Anthropic's batch guide, recorded traffic of 2026",
        "API versions 2026-10-21 and 2023-06-01: anthropic 2.11 _constants.py, Anthropic's versioning page",
        "settle time: twice the create deadline and 5 minutes, rounded up",
    ),
    takes_files=False,
    modes=(Mode.BATCH, Mode.LIVE, Mode.FILES),
)

_BATCHES: Final = "/v1/messages/batches"
_STATES: Final = {
    "in_progress": BatchState.RUNNING,
    "canceling": BatchState.CANCELLING,
    "cancelling": BatchState.CANCELLING,
    "ended": BatchState.COMPLETED,
}
_SCOPE_HEADERS: Final = ("anthropic-organization-id", "anthropic-workspace-id")
_LIVE: Final = LiveApi(DESCRIPTOR, common_rates.ANTHROPIC, "/v1/models", dict, ("request-id",), _SCOPE_HEADERS)
_ACK: Final = AckRule(request_id_headers=("request-id",))
_NOT_FOUND: Final = frozenset({404})
_TOO_LATE: Final = frozenset({400, 404, 409})
_BLOCK_BYTES: Final = 1 << 20


def connect(
    clock: Clock,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    base_url: str | None = None,
) -> Anthropic:
    """Return the wire for the environment's key; raises AccessError when there is none.

    Reads ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL (without `/v1`), as the SDK does.
    """
    access = keys.resolve(DESCRIPTOR, environ, base_url=base_url)
    headers = _headers(access)
    return Anthropic(HttpClient(access.base_url, headers, clock, transport, key_name=access.key_env), clock)


def connect_live(
    clock: Clock,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    base_url: str | None = None,
    max_connections: int = LIVE_CONNECTIONS,
) -> AnthropicLive:
    """Return the wire of live calls for the same key; raises AccessError when there is none."""
    access = keys.resolve(DESCRIPTOR, environ, base_url=base_url)
    live = LiveAccess(access.base_url, _headers(access), access.key_env)
    return AnthropicLive(_LIVE, live, clock, transport, max_connections)


def _headers(access: keys.Access) -> dict[str, str | Secret]:
    return {"x-api-key": access.key, "anthropic-version": VERSIONS[MESSAGES]}


class AnthropicLive(LiveWire):
    """The wire of Anthropic's live calls; the endpoint says which API version is asked."""

    def address(self, endpoint: str, request_model: str) -> tuple[str, Mapping[str, str]]:
        """Return the path of an endpoint and its version; raises UsageError for one that is no API version."""
        return MESSAGES, {"anthropic-version": version_of(endpoint, request_model)}


class Anthropic(common.Wire):
    """The wire of Anthropic's Message Batches, bound to one key and base URL."""

    @property
    def descriptor(self) -> Descriptor:
        """Return Anthropic's limits and caveats."""
        return DESCRIPTOR

    def upload(self, path: Path, filename: str) -> RemoteFile:  # noqa: ARG002
        """Refuse: requests travel inside the create call."""
        raise ProviderError(f"{DESCRIPTOR.name} takes no batch files; {filename} was not uploaded")

    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:  # noqa: ARG002
        """Return nothing: there are no uploads."""
        return []

    def create(self, spec: CreateSpec) -> CreateAnswer:
        """Send the payload's lines in exactly one POST and classify its answer.

        Raises nothing for network faults; LakeError when the payload cannot be read, and UsageError
        for an endpoint that is no API version, before anything is sent.
        """
        answer = self._http.post_once(
            _BATCHES,
            _requests(spec.payload_path),
            deadline_s=DESCRIPTOR.create_deadline_s,
            rule=_ACK,
            headers={"anthropic-version": version_of(spec.endpoint, spec.request_model)},
        )
        if isinstance(answer, Unclear):
            return answer
        if not answer.is_success:
            return common.rejection(answer, error_class_of(answer), self._clock.now())
        batch = _batch(answer.json)
        if batch is None:
            return Unclear("the answer has no batch id")
        return Created(batch, self._scope(answer))

    def list_page(self, cursor: str | None) -> BatchPage:
        """Return one page of the workspace's batches, newest first.

        Raises ProviderError when the listing does not go on as it says: an incomplete list must
        never look like a complete one.
        """
        params: dict[str, str | int] = {"limit": DESCRIPTOR.list_page_size}
        rows, next_cursor = common.page_by_last_id(self._http, _BATCHES, params, cursor, "after_id")
        batches = [_batch(row) for row in rows]
        if any(batch is None for batch in batches):
            raise ProviderError(f"{self.host} lists a batch without an id")
        return BatchPage(tuple(batch for batch in batches if batch is not None), next_cursor)

    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None on 404, which Anthropic was seen to answer for batches that exist."""
        path = f"{_BATCHES}/{common.segment(batch_id)}"
        answer = self._http.request_json("GET", path, allow=_NOT_FOUND)
        if not answer.is_success:
            return None
        batch = _batch(answer.json)
        if batch is None or batch.batch_id != batch_id:
            raise ProviderError(f"GET {path} at {self.host} answered with another object: {answer.excerpt()}")
        return batch

    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when Anthropic says it is too late (400, 409) or unknown (404)."""
        path = f"{_BATCHES}/{common.segment(batch_id)}/cancel"
        answer = self._http.request_json("POST", path, allow=_TOO_LATE)
        return _batch(answer.json) if answer.is_success else None

    def result_files(self, batch: RemoteBatch) -> tuple[tuple[FileRole, str], ...]:
        """Return the one result stream of a batch that has ended and is not archived; its id is the batch's."""
        return ((FileRole.OUTPUT, batch.output_file_id),) if batch.output_file_id else ()

    def download(self, file_id: str, path: Path) -> Download | None:
        """Stream a batch's results to `path`; None on 404 and 410.

        The address is made from the id: a `results_url` is never followed, so no answer can send
        the key to another host.
        """
        return self._http.download(_results_path(file_id), path)

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a batch's results; None on 404 and 410."""
        return self._http.peek(_results_path(file_id), max_bytes)

    def check(self) -> str:
        """List one batch, which is free, and return the scope that the key belongs to."""
        return self._scope(self._http.request_json("GET", _BATCHES, params={"limit": 1}))

    def _scope(self, answer: Answer) -> str:
        return common.scope(DESCRIPTOR.name, self.host, answer.headers, _SCOPE_HEADERS)


def _results_path(batch_id: str) -> str:
    return f"{_BATCHES}/{common.segment(batch_id)}/results"


def _requests(path: Path) -> JsonStream:
    """Return `{"requests":[...]}` over a payload's lines; its size follows from the file's."""
    try:
        with path.open("rb") as lines:
            size_bytes = lines.seek(0, os.SEEK_END)
            lines.seek(max(0, size_bytes - 1))
            size_bytes -= lines.read(1) == b"\n"
    except OSError as error:
        raise LakeError(f"cannot read {path}: {error.strerror or error}") from None
    return JsonStream(len(_HEAD) + size_bytes + len(_TAIL), lambda: _parts(path, size_bytes))


def _parts(path: Path, size_bytes: int) -> Iterator[bytes]:
    yield _HEAD
    try:
        with path.open("rb") as lines:
            while size_bytes > 0 and (block := lines.read(min(_BLOCK_BYTES, size_bytes))):
                size_bytes -= len(block)
                yield block.replace(b"\n", b",")
    except OSError as error:
        raise LakeError(f"cannot read {path}: {error.strerror or error}") from None
    yield _TAIL


def _batch(value: object) -> RemoteBatch | None:
    """Return a batch object made uniform, None when it has no id; an unknown status is RUNNING."""
    found = fields.mapping(value)
    batch_id = fields.identifier(found.get("id"))
    if batch_id is None:
        return None
    status = fields.word(found.get("processing_status")) or ""
    counts = {name: fields.count(count) for name, count in fields.mapping(found.get("request_counts")).items()}
    state = _state(status, counts)
    archived_at = found.get("archived_at")
    return RemoteBatch(
        batch_id=batch_id,
        state=state,
        provider_status=status,
        seen=found,
        created_at=fields.moment(found.get("created_at")),
        expires_at=fields.moment(found.get("expires_at")),
        ended_at=fields.moment(found.get("ended_at")),
        n_total=_total(counts),
        n_completed=counts.get("succeeded"),
        n_failed=counts.get("errored"),
        output_file_id=batch_id if state.is_terminal and not archived_at else None,
        errors=_archived(archived_at),
    )


def _state(status: str, counts: Mapping[str, int | None]) -> BatchState:
    """Return the state; only the counts tell a batch that ended in full from one that was stopped."""
    state = _STATES.get(status.strip().lower(), BatchState.RUNNING)
    if state is not BatchState.COMPLETED:
        return state
    if counts.get("canceled"):
        return BatchState.CANCELLED
    return BatchState.EXPIRED if counts.get("expired") else BatchState.COMPLETED


def _total(counts: Mapping[str, int | None]) -> int | None:
    """Return how many requests the batch has: the sum of its counts, None when any of them is unknown."""
    known = [count for count in counts.values() if count is not None]
    total = sum(known)
    return total if known and len(known) == len(counts) and total < 2**63 else None


def _archived(archived_at: object) -> tuple[BatchError, ...]:
    if not archived_at:
        return ()
    return (
        BatchError("archived", f"Anthropic archived this batch on {fields.word(archived_at)}: its results are gone"),
    )
