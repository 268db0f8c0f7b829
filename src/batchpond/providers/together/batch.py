"""Together AI's Batch API: files, jobs and their states.

Shapes: together 3.1 `types/batch_job.py`, `types/file_response.py`, the official OpenAPI file of 2026-04-28, and
recorded traffic of 2026-09. Nothing of the user's travels with a job but its input file, and so it is by that file
that a job is known as ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from batchpond import fields
from batchpond.model import BatchError, BatchState, ErrorClass, RemoteBatch
from batchpond.providers import base
from batchpond.providers.http.errors import AckRule, ApiError, classify
from batchpond.providers.shared.batches import FilesClient
from batchpond.providers.shared.live import LiveApi
from batchpond.providers.together.dialect import DIALECT, NO_FILE_CODE
from batchpond.text import redact

_NO_FILE: Final = base.texts("together", "refusals")
_OWNER: Final = ("organization_id", "project_id")


class TogetherClient(FilesClient):
    """The client of Together's Batch API, bound to one key and base URL."""

    descriptor = DIALECT.DESCRIPTOR
    texts = _NO_FILE + base.texts("together", "texts")
    upload_path = "/files/upload"
    already_there = frozenset({409})
    list_shapes = MappingProxyType({FilesClient.batches_path: list})
    members = MappingProxyType({**FilesClient.members, "expires_at": "job_deadline"})
    ended_at = MappingProxyType({state: "completed_at" for state in BatchState if state.is_terminal})
    ack = AckRule(request_id_headers=("cf-ray", "x-request-id"), within="job", has_text_errors=True)

    def form(self, filename: str) -> dict[str, str]:
        """Return the members of an upload's form beside the file."""
        return {"purpose": "batch-api", "file_name": filename, "file_type": "jsonl"}

    def scope_of(self, headers: Mapping[str, str], batches: Sequence[RemoteBatch]) -> str:  # noqa: ARG002
        """Return the scope: only batches say which organisation and project a key is of, and they must agree."""
        owners = {tuple(fields.text(batch.seen.get(name)) or "" for name in _OWNER) for batch in batches}
        owner = owners.pop() if len(owners) == 1 else ("", "")
        return self.scope_in(dict(zip(_OWNER, owner, strict=True)), _OWNER)

    @classmethod
    def read_batch(cls, value: object) -> RemoteBatch | None:
        """Return a job made uniform, bare or wrapped."""
        return super().read_batch(fields.mapping(fields.inside(value, "job")) or value)

    @classmethod
    def errors_of(cls, found: Mapping[str, Any]) -> tuple[BatchError, ...]:
        """Return the error of a failed job, a bare text, with a code where the text is known to mean one."""
        value = found.get("error")
        message = fields.identifier(value) or fields.identifier(fields.mapping(value).get("message"))
        if message is None:
            return ()
        code = NO_FILE_CODE if base.class_of(_NO_FILE, message) else None
        if classify(None, ApiError(message)) is ErrorClass.MODEL_GONE:
            code = "model_not_available"
        return (BatchError(code, redact(message)),)


BATCH: Final = TogetherClient
LIVE: Final = LiveApi(DIALECT.DESCRIPTOR, models_shape=list, request_id_headers=("x-request-id", "cf-ray"))
