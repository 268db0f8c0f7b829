"""Mistral's Batch API: files, jobs and their states.

Shapes: mistralai 3.7 `client/models/batchjob.py`, `listbatchjobsresponse.py`, the OpenAPI file of 2026-08, and recorded
traffic of 2026. A job's metadata come back, and jobs are found by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from batchpond import fields
from batchpond.model import BatchError, BatchPage, BatchState, CreateSpec, RemoteBatch
from batchpond.providers import base
from batchpond.providers.http.errors import AckRule
from batchpond.providers.mistral.dialect import DIALECT
from batchpond.providers.shared.batches import TOKEN_KEY, FilesClient, Order, Page, page_by_number
from batchpond.providers.shared.live import LiveApi
from batchpond.text import redact

_HOURS: Final = 24
_ERRORS_MAX: Final = 100


class MistralClient(FilesClient):
    """The client of Mistral's Batch API, bound to one key and base URL."""

    descriptor = DIALECT.DESCRIPTOR
    batches_path = "/batch/jobs"
    size_name = "page_size"
    key_chars = 32
    members = base.table("mistral", "job")
    states = base.by_word("mistral", "states", BatchState)
    ended_at = MappingProxyType({state: "completed_at" for state in BatchState if state.is_terminal})
    ack = AckRule(
        request_id_headers=("mistral-correlation-id", "x-kong-request-id", "x-request-id", "cf-ray"),
        has_text_errors=True,
    )

    def order(self, spec: CreateSpec) -> Order:
        """Return a job of an uploaded file, with its token in the metadata."""
        about = {"endpoint": spec.endpoint, "model": spec.request_model, "timeout_hours": _HOURS}
        metadata = {name: value for name, value in self.metadata_of(spec).items() if value}
        return Order(self.batches_path, {"input_files": [spec.input_file_id], "metadata": metadata} | about)

    def list_page(self, cursor: str | None) -> BatchPage:
        """Return one page of the workspace's jobs, newest first."""
        return self._jobs({"order_by": "-created"}, cursor)

    def files_page(self, cursor: str | None) -> Page:
        """Return one page of the workspace's files for batches."""
        params = {"purpose": "batch"}
        return page_by_number(self._http, self.files_path, params, cursor, has_total=False)

    def find_batches(self, token: str) -> tuple[RemoteBatch, ...]:
        """Return the jobs that Mistral itself finds by a token; none prove nothing."""
        return self._jobs({TOKEN_KEY: token}, None).batches

    def _jobs(self, params: Mapping[str, str], cursor: str | None) -> BatchPage:
        return self.page_of(page_by_number(self._http, self.batches_path, params, cursor))

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a job with its end, its token, its errors, and its input file, where that is the only one."""
        files = fields.sequence(found.get("input_files"), 2)
        only = fields.identifier(files[0]) if len(files) == 1 else None
        return replace(super().more_of(found, batch), input_file_id=only)

    @classmethod
    def errors_of(cls, found: Mapping[str, Any]) -> tuple[BatchError, ...]:
        """Return why a job failed; beside a job that goes on, or went well, they are those of its rows."""
        if cls.states.get((fields.word(found.get("status")) or "").lower()) is not BatchState.FAILED:
            return ()
        rows = map(fields.mapping, fields.sequence(found.get("errors"), _ERRORS_MAX))
        return tuple(BatchError(None, redact(fields.text(row.get("message")) or "")) for row in rows)


BATCH: Final = MistralClient
LIVE: Final = LiveApi(DIALECT.DESCRIPTOR)
