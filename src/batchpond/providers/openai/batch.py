"""OpenAI's Batch API: files, batches and their states on the wire.

Shapes: openai 3.52 `types/batch.py`, `types/file_object.py` and the official OpenAPI file 2.3.0;
deviations that servers were seen to make are read without complaint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from batchpond import fields, ids
from batchpond.clock import Clock
from batchpond.errors import ProviderError
from batchpond.model import (
    BatchError,
    BatchPage,
    BatchState,
    CreateAnswer,
    Created,
    CreateSpec,
    ErrorClass,
    Mode,
    Rejected,
    RemoteBatch,
    RemoteFile,
    Unclear,
)
from batchpond.providers.base import LIVE_CONNECTIONS, Descriptor
from batchpond.providers.http import keys
from batchpond.providers.http.client import HttpClient
from batchpond.providers.http.errors import Answer, ApiError, error_class_of
from batchpond.providers.openai.body import CHAT, RESPONSES, build_body, endpoint_for, payload_line
from batchpond.providers.openai.lines import read_answer, read_line
from batchpond.providers.openai.models import accepted_thinking, caveats
from batchpond.providers.shared import rates as common_rates
from batchpond.providers.shared import wire as common
from batchpond.providers.shared.live import LiveAccess, LiveApi, LiveWire
from batchpond.text import Secret, redact

__all__ = [
    "DESCRIPTOR",
    "OpenAI",
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

DESCRIPTOR: Final = Descriptor(
    name="openai",
    default_base_url="https://api.openai.com/v1",
    base_url_env="OPENAI_BASE_URL",
    key_env=("OPENAI_API_KEY",),
    endpoints=(CHAT, RESPONSES),
    default_endpoint=CHAT,
    max_requests=50_000,
    max_bytes=200_000_000,
    list_page_size=100,
    create_deadline_s=120.0,
    settle_s=900.0,
    results_retention_days=30,
    has_token=True,
    caveats=(
        "OpenAI deletes result files 30 days after a batch ends: sync before that",
        "a batch that passes 24 hours expires: finished requests are billed and kept, the others are not run",
        "prompt tokens waiting in batches are limited per model and organisation; above it a batch fails unbilled",
        "a batch cancelled while it runs may lose answers that were already counted",
    ),
    notes=(
        "limits of requests and bytes: openai 3.52 types/batch_create_params.py",
        "retention: OpenAI batch guide and files API, recorded traffic of 2026",
        "metadata 16 pairs, keys of 64 and values of 512 characters: openai 3.52 types/shared_params/metadata.py",
        "settle time: twice the create deadline and 5 minutes, at least 15 minutes",
    ),
    requeue_codes=("token_limit_exceeded",),
    modes=(Mode.BATCH, Mode.LIVE, Mode.FILES),
    takes_schema=True,
)

_SCOPE_HEADERS: Final = ("openai-organization", "openai-project")
_LIVE: Final = LiveApi(DESCRIPTOR, common_rates.OPENAI, scope_headers=_SCOPE_HEADERS)
_STATES: Final = {
    "validating": BatchState.QUEUED,
    "queued": BatchState.QUEUED,
    "pending": BatchState.QUEUED,
    "in_progress": BatchState.RUNNING,
    "finalizing": BatchState.RUNNING,
    "cancelling": BatchState.CANCELLING,
    "canceling": BatchState.CANCELLING,
    "completed": BatchState.COMPLETED,
    "failed": BatchState.FAILED,
    "expired": BatchState.EXPIRED,
    "cancelled": BatchState.CANCELLED,
    "canceled": BatchState.CANCELLED,
}
_ENDED_AT: Final = {
    BatchState.COMPLETED: "completed_at",
    BatchState.FAILED: "failed_at",
    BatchState.EXPIRED: "expired_at",
    BatchState.CANCELLED: "cancelled_at",
}
# The validator was seen to miss files that exist (recorded 2026-08): sending again later helps.
_FILE_NOT_READY: Final = re.compile(r"(?i)cannot find file|no such file|does not have access to it")
_NOT_FOUND: Final = frozenset({404})
_TOO_LATE: Final = frozenset({400, 404, 409})
_TOKEN_KEY: Final = "batchpond"
_PAIRS_MAX, _KEY_CHARS, _VALUE_CHARS = 16, 64, 512
_ERRORS_MAX: Final = 100
_FILES_PER_PAGE: Final = 1_000
_FILE_PAGES_MAX: Final = 1_000


def connect(
    clock: Clock,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    base_url: str | None = None,
) -> OpenAI:
    """Return the wire for the environment's key; raises AccessError when there is none.

    Reads OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_ORG_ID and OPENAI_PROJECT_ID, as the SDK does.
    """
    access = keys.resolve(DESCRIPTOR, environ, base_url=base_url)
    headers = _headers(access, environ)
    return OpenAI(HttpClient(access.base_url, headers, clock, transport, key_name=access.key_env), clock)


def connect_live(
    clock: Clock,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    base_url: str | None = None,
    max_connections: int = LIVE_CONNECTIONS,
) -> LiveWire:
    """Return the wire of live calls for the same key; raises AccessError when there is none."""
    access = keys.resolve(DESCRIPTOR, environ, base_url=base_url)
    live = LiveAccess(access.base_url, _headers(access, environ), access.key_env)
    return LiveWire(_LIVE, live, clock, transport, max_connections)


def _headers(access: keys.Access, environ: Mapping[str, str]) -> dict[str, str | Secret]:
    headers: dict[str, str | Secret] = {"Authorization": Secret(f"Bearer {access.key.reveal()}")}
    if organization := keys.setting(environ, "OPENAI_ORG_ID"):
        headers["OpenAI-Organization"] = organization
    if project := keys.setting(environ, "OPENAI_PROJECT_ID"):
        headers["OpenAI-Project"] = project
    return headers


class OpenAI(common.FilesWire):
    """The wire of OpenAI's Batch API, bound to one key and base URL."""

    @property
    def descriptor(self) -> Descriptor:
        """Return OpenAI's limits and caveats."""
        return DESCRIPTOR

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Upload a payload for batch use; safe to repeat, since files cost nothing."""
        answer = self._http.upload_multipart("/files", path, filename, {"purpose": "batch"})
        found = common.file_object(answer.json)
        if found is None:
            raise ProviderError(f"{self.host} took the upload of {filename} but answered without a file id")
        return found

    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:
        """Return the uploaded files of that name, made since then or at an unknown time."""
        found: list[RemoteFile] = []
        cursor: str | None = None
        for _ in range(_FILE_PAGES_MAX):
            params: dict[str, str | int] = {"purpose": "batch", "limit": _FILES_PER_PAGE, "order": "desc"}
            rows, next_cursor = common.page_by_last_id(self._http, "/files", params, cursor, "after")
            files = [file for file in map(common.file_object, rows) if file is not None]
            found += [file for file in files if file.filename == filename and not common.is_before(file, since)]
            is_past = bool(files) and all(common.is_before(file, since) for file in files)
            if next_cursor is None or is_past:
                return found
            cursor = next_cursor
        raise ProviderError(f"{self.host} lists more than {_FILE_PAGES_MAX} pages of files")

    def create(self, spec: CreateSpec) -> CreateAnswer:
        """Send exactly one POST and classify its answer; raises nothing for network faults."""
        payload = {
            "input_file_id": spec.input_file_id,
            "endpoint": spec.endpoint,
            "completion_window": "24h",
            "metadata": _metadata(spec),
        }
        answer = self._http.post_once("/batches", payload, deadline_s=DESCRIPTOR.create_deadline_s)
        if isinstance(answer, Unclear):
            return answer
        if not answer.is_success:
            return self._rejection(answer)
        batch = _batch(answer.json)
        if batch is None:
            return Unclear("the answer has no batch id")
        return Created(batch, self._scope(answer))

    def list_page(self, cursor: str | None) -> BatchPage:
        """Return one page of the account's batches, newest first.

        Raises ProviderError when the listing does not go on as it says: an incomplete list must
        never look like a complete one.
        """
        params: dict[str, str | int] = {"limit": DESCRIPTOR.list_page_size}
        rows, next_cursor = common.page_by_last_id(self._http, "/batches", params, cursor, "after")
        batches = [_batch(row) for row in rows]
        if any(batch is None for batch in batches):
            raise ProviderError(f"{self.host} lists a batch without an id")
        return BatchPage(tuple(batch for batch in batches if batch is not None), next_cursor)

    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None on 404, which is not proof of loss."""
        path = f"/batches/{common.segment(batch_id)}"
        answer = self._http.request_json("GET", path, allow=_NOT_FOUND)
        if not answer.is_success:
            return None
        batch = _batch(answer.json)
        if batch is None or batch.batch_id != batch_id:
            raise ProviderError(f"GET {path} at {self.host} answered with another object: {answer.excerpt()}")
        return batch

    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when OpenAI says it is too late (400, 409) or unknown (404)."""
        path = f"/batches/{common.segment(batch_id)}/cancel"
        answer = self._http.request_json("POST", path, allow=_TOO_LATE)
        return _batch(answer.json) if answer.is_success else None

    def check(self) -> str:
        """List one batch, which is free, and return the scope that the key belongs to."""
        return self._scope(self._http.request_json("GET", "/batches", params={"limit": 1}))

    def _scope(self, answer: Answer) -> str:
        return common.scope(DESCRIPTOR.name, self.host, answer.headers, _SCOPE_HEADERS)

    def _rejection(self, answer: Answer) -> Rejected:
        error = answer.error or ApiError(answer.excerpt())
        error_class = error_class_of(answer)
        if error_class is ErrorClass.PERMANENT and _FILE_NOT_READY.search(error.message):
            error_class = ErrorClass.TRANSIENT
        return common.rejection(answer, error_class, self._clock.now())


def _metadata(spec: CreateSpec) -> dict[str, str]:
    """Return the metadata within OpenAI's bounds, the token first so that it is never cut off."""
    key = next((key for key, value in spec.metadata if value == spec.token), _TOKEN_KEY)
    pairs = {key[:_KEY_CHARS]: spec.token}
    for name, value in spec.metadata:
        if len(pairs) < _PAIRS_MAX:
            pairs.setdefault(name[:_KEY_CHARS], value[:_VALUE_CHARS])
    return pairs


def _batch(value: object) -> RemoteBatch | None:
    """Return a batch object made uniform, None when it has no id; an unknown status is RUNNING."""
    found = fields.mapping(value)
    batch_id = fields.identifier(found.get("id"))
    if batch_id is None:
        return None
    status = fields.word(found.get("status")) or ""
    state = _STATES.get(status.strip().lower(), BatchState.RUNNING)
    counts = fields.mapping(found.get("request_counts"))
    return RemoteBatch(
        batch_id=batch_id,
        state=state,
        provider_status=status,
        seen=found,
        created_at=fields.moment(found.get("created_at")),
        expires_at=fields.moment(found.get("expires_at")),
        ended_at=fields.moment(found.get(_ENDED_AT.get(state, ""))),
        n_total=fields.count(counts.get("total")),
        n_completed=fields.count(counts.get("completed")),
        n_failed=fields.count(counts.get("failed")),
        input_file_id=fields.identifier(found.get("input_file_id")),
        output_file_id=fields.identifier(found.get("output_file_id")),
        error_file_id=fields.identifier(found.get("error_file_id")),
        endpoint=fields.text(found.get("endpoint")),
        token=_token(found.get("metadata")),
        errors=_errors(found.get("errors")),
    )


def _token(metadata: object) -> str | None:
    for value in fields.mapping(metadata).values():
        if isinstance(value, str) and value.startswith(f"{ids.TOKEN_PREFIX}-"):
            return value
    return None


def _errors(value: object) -> tuple[BatchError, ...]:
    rows = value if isinstance(value, list) else fields.mapping(value).get("data")
    return tuple(
        BatchError(
            fields.word(row.get("code")), redact(fields.text(row.get("message")) or ""), fields.count(row.get("line"))
        )
        for row in map(fields.mapping, fields.sequence(rows, _ERRORS_MAX))
        if row
    )
