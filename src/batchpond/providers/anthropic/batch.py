"""Anthropic's Message Batches: requests inside the create call, one result stream, no name or metadata.

Shapes: anthropic 2.11 `types/messages/message_batch.py`, `batch_create_params.py`,
`batch_list_params.py`; deviations that servers were seen to make are read without complaint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from batchpond import fields
from batchpond.model import BatchError, BatchState, CreateSpec, RemoteBatch
from batchpond.providers import base
from batchpond.providers.anthropic.dialect import DIALECT, HEAD, MESSAGES, TAIL, version_of
from batchpond.providers.http.client import JsonStream, readable
from batchpond.providers.http.errors import AckRule
from batchpond.providers.shared.batches import BatchClient, Order
from batchpond.providers.shared.live import LiveApi

_BLOCK_BYTES: Final = 1 << 20


class AnthropicClient(BatchClient):
    """The client of Anthropic's Message Batches, bound to one key and base URL (without `/v1`, as its SDK has it).

    A batch's id is that of its results too: they are deleted with it, and nothing else of it is kept there
    (https://platform.claude.com/docs/en/api/deleting-message-batches). Where they are is made from the id: a
    `results_url` is never followed, so no answer can send the key to another host.
    """

    descriptor = DIALECT.DESCRIPTOR
    batches_path = files_path = "/v1/messages/batches"
    content_suffix = "/results"
    cursor_name = "after_id"
    ack = AckRule(request_id_headers=("request-id",))
    members = base.table("anthropic", "batch")
    states = base.by_word("anthropic", "states", BatchState)

    def order(self, spec: CreateSpec) -> Order:
        """Return the payload's lines as one body, and the version that the endpoint means.

        Raises LakeError when the payload cannot be read, and UsageError for an endpoint that is no API version.
        """
        requests = _requests(spec.payload_path)
        return Order(self.batches_path, requests, {"anthropic-version": version_of(spec.endpoint, spec.request_model)})

    @classmethod
    def state_of(cls, status: str, found: Mapping[str, Any]) -> BatchState:
        """Return the state; only the counts tell a batch that ended in full from one that was stopped."""
        state, counts = super().state_of(status, found), _counts(found)
        if state is not BatchState.COMPLETED:
            return state
        if counts.get("canceled"):
            return BatchState.CANCELLED
        return BatchState.EXPIRED if counts.get("expired") else BatchState.COMPLETED

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a batch with the sum of its counts, and its results unless they are gone."""
        n_total, archived_at = _total(_counts(found)), found.get("archived_at")
        if not archived_at:
            return replace(batch, n_total=n_total, output_file_id=batch.batch_id if batch.state.is_terminal else None)
        gone = f"Anthropic archived this batch on {fields.word(archived_at)}: its results are gone"
        return replace(batch, n_total=n_total, errors=(BatchError("archived", gone),))


BATCH: Final = AnthropicClient
LIVE: Final = LiveApi(
    DIALECT.DESCRIPTOR,
    models_path="/v1/models",
    request_id_headers=("request-id",),
    address=lambda endpoint, model: (MESSAGES, {"anthropic-version": version_of(endpoint, model)}),
)


def _requests(path: Path) -> JsonStream:
    with readable(path) as lines:
        size_bytes = lines.seek(0, os.SEEK_END)
        lines.seek(max(0, size_bytes - 1))
        size_bytes -= lines.read(1) == b"\n"
    return JsonStream(len(HEAD) + size_bytes + len(TAIL), lambda: _parts(path, size_bytes))


def _parts(path: Path, size_bytes: int) -> Iterator[bytes]:
    yield HEAD
    with readable(path) as lines:
        while size_bytes > 0 and (block := lines.read(min(_BLOCK_BYTES, size_bytes))):
            size_bytes -= len(block)
            yield block.replace(b"\n", b",")
    yield TAIL


def _counts(found: Mapping[str, Any]) -> dict[str, int | None]:
    return {name: fields.count(count) for name, count in fields.mapping(found.get("request_counts")).items()}


def _total(counts: Mapping[str, int | None]) -> int | None:
    """Return how many requests the batch has: the sum of its counts, None when any of them is unknown."""
    known = [count for count in counts.values() if count is not None]
    total = sum(known)
    return total if known and len(known) == len(counts) and total < 2**63 else None
