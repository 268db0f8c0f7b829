"""Together AI's Batch API: files, jobs and their states on the wire.

Shapes: together 3.1 `types/batch_job.py`, `types/file_response.py`, the official OpenAPI file of 2026-04-28, and
recorded traffic of 2026-09. Nothing of the user's travels with a job but its input file, and so it is by that file
that a job is known as ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from batchpond import fields
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
from batchpond.providers.http.errors import AckRule, Answer, ApiError, classify
from batchpond.providers.shared import rates as common_rates
from batchpond.providers.shared import wire as common
from batchpond.providers.shared.live import LiveAccess, LiveApi, LiveWire
from batchpond.providers.together.body import (
    CHAT,
    DISCOUNTS,
    accepted_thinking,
    build_body,
    caveats,
    endpoint_for,
    payload_line,
)
from batchpond.providers.together.lines import class_of_text, read_answer, read_line
from batchpond.text import Secret, redact

__all__ = [
    "DESCRIPTOR",
    "Together",
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

_NO_FILE_CODE: Final = "input_file_unavailable"

DESCRIPTOR: Final = Descriptor(
    name="together",
    default_base_url="https://api.together.ai",
    base_url_env="TOGETHER_BASE_URL",
    key_env=("TOGETHER_API_KEY",),
    endpoints=(CHAT,),
    default_endpoint=CHAT,
    max_requests=50_000,
    max_bytes=100_000_000,
    list_page_size=0,
    create_deadline_s=120.0,
    settle_s=900.0,
    results_retention_days=1,
    has_token=False,
    takes_schema=True,
    requeue_codes=(_NO_FILE_CODE,),
    modes=(Mode.BATCH, Mode.LIVE, Mode.FILES),
    batch_discounts=DISCOUNTS,
    content_hosts=(".r2.cloudflarestorage.com",),
    caveats=(
        "Together does not say how long it keeps results: sync within a day",
        "Together does not say what becomes of answers when a batch passes 24 hours: small shards lose less",
        "what a model refuses is known only when its line runs, and comes back as an errored row, unbilled",
    ),
    notes=(
        "limits of requests, bytes and lines: Together's batch overview; 30 billion tokens may wait per model",
        "retention of results: not documented; a day is batchpond's own caution",
        "no metadata, no listing by pages: together 3.1 types/batch_create_params.py, resources/batches.py",
        "the state CANCELING is in no document: recorded 2026-09; what an EXPIRED batch leaves was never seen",
        "uploads go to /files/upload, all at one host (OpenAPI file, recorded 2026-09): the other way of uploading "
        "would send the bytes to a storage host",
        "content comes from the API itself (recorded 2026-09); the SDK follows redirects to storage, where uploads "
        "were seen to go to Cloudflare R2: that downloads go there is not verified",
        "answers carry cf-ray, which the SDK's first version took for the request id; an error's body may name one",
        "that a failed download of the input file passes by itself is an assumption",
        "settle time: twice the create deadline and 5 minutes, at least 15 minutes",
    ),
)

_STATES: Final = {
    "VALIDATING": BatchState.QUEUED,
    "IN_PROGRESS": BatchState.RUNNING,
    "CANCELING": BatchState.CANCELLING,
    "CANCELLING": BatchState.CANCELLING,
    "COMPLETED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "EXPIRED": BatchState.EXPIRED,
    "CANCELLED": BatchState.CANCELLED,
    "CANCELED": BatchState.CANCELLED,
}
_ACK: Final = AckRule(request_id_headers=("cf-ray", "x-request-id"), within="job", has_text_errors=True)
_LIVE: Final = LiveApi(DESCRIPTOR, common_rates.TOGETHER, "/models", list, ("x-request-id", "cf-ray"), ("", ""))
_NO_FILE: Final = re.compile(r"(?i)failed to download input file")
_NOT_FOUND: Final = frozenset({404})
_TOO_LATE: Final = frozenset({400, 404, 409})
_ALREADY_THERE: Final = frozenset({409})
# What a server that cuts lists off might cut them off at: no document names any such bound.
_LIKELY_BOUNDS: Final = frozenset({20, 25, 50, 100, 200, 250, 500, 1_000, 2_000, 5_000, 10_000})
_CUT: Final = "cut"


def connect(
    clock: Clock,
    *,
    transport: Any = None,
    environ: Mapping[str, str] = os.environ,
    base_url: str | None = None,
) -> Together:
    """Return the wire for the environment's key; raises AccessError when there is none.

    Reads TOGETHER_API_KEY and TOGETHER_BASE_URL, as the SDK does; a `/v1` at the end of the base URL, which
    OpenAI's SDK needs there, is understood.
    """
    access = keys.resolve(DESCRIPTOR, environ, base_url=base_url)
    headers = {"Authorization": Secret(f"Bearer {access.key.reveal()}")}
    http = HttpClient(
        access.base_url.removesuffix("/v1"),
        headers,
        clock,
        transport,
        key_name=access.key_env,
        content_hosts=DESCRIPTOR.content_hosts,
    )
    return Together(http, clock)


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
    headers = {"Authorization": Secret(f"Bearer {access.key.reveal()}")}
    live = LiveAccess(f"{access.base_url.removesuffix('/v1')}/v1", headers, access.key_env)
    return LiveWire(_LIVE, live, clock, transport, max_connections)


class Together(common.FilesWire):
    """The wire of Together's Batch API, bound to one key and base URL."""

    files_path = "/v1/files"

    @property
    def descriptor(self) -> Descriptor:
        """Return Together's limits and caveats."""
        return DESCRIPTOR

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Upload a payload for batch use; safe to repeat: content that is there already is found, not stored again."""
        form = {"purpose": "batch-api", "file_name": filename, "file_type": "jsonl"}
        answer = self._http.upload_multipart(f"{self.files_path}/upload", path, filename, form, allow=_ALREADY_THERE)
        found = common.file_object(answer.json)
        if not answer.is_success:
            known = fields.identifier(fields.mapping(answer.json).get("file_id"))
            found = None if known is None else self._file(known)
        if found is None:
            raise ProviderError(f"{self.host} took the upload of {filename} but answered without a file id")
        return found

    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:
        """Return the uploaded files of that name, newest first, made since then or at an unknown time."""
        rows = self._http.request_json("GET", self.files_path).json.get("data")
        if not isinstance(rows, list):
            raise ProviderError(f"GET {self.files_path} at {self.host} answered without a list")
        files = (common.file_object(row) for row in rows)
        found = [file for file in files if file is not None and file.filename == filename]
        kept = [file for file in found if not common.is_before(file, since)]
        return sorted(kept, key=lambda file: file.created_at or since, reverse=True)

    def create(self, spec: CreateSpec) -> CreateAnswer:
        """Send exactly one POST and classify its answer; raises nothing for network faults.

        Raises ProviderError, with nothing sent, when there is no input file.
        """
        if spec.input_file_id is None:
            raise ProviderError("a Together batch is made of an uploaded file, and none was given")
        payload = {"input_file_id": spec.input_file_id, "endpoint": spec.endpoint, "completion_window": "24h"}
        answer = self._http.post_once("/v1/batches", payload, deadline_s=DESCRIPTOR.create_deadline_s, rule=_ACK)
        if isinstance(answer, Unclear):
            return answer
        if not answer.is_success:
            return self._rejection(answer)
        batch = _batch(answer.json)
        return Unclear("the answer has no job id") if batch is None else Created(batch, self._scope([batch]))

    def list_page(self, cursor: str | None) -> BatchPage:
        """Return all of the account's batches, newest first: there are no pages.

        A list as long as servers like to make them may be cut off. Its oldest batch then makes a page of its own,
        and an empty one that has no end follows, so that only those take the list for complete who look for
        nothing as old. Raises ProviderError for a row without an id: an incomplete list must never look like a
        complete one.
        """
        if cursor is not None:
            oldest = None if cursor == _CUT else self.get(cursor)
            return BatchPage(() if oldest is None else (oldest,), _CUT)
        rows = self._http.request_json("GET", "/v1/batches", shape=list).json
        batches = [_batch(row) for row in rows]
        found = [batch for batch in batches if batch is not None]
        if len(found) < len(batches):
            raise ProviderError(f"{self.host} lists a batch without an id")
        dates = [batch.created_at for batch in found if batch.created_at is not None]
        if len(dates) == len(found):
            found.sort(key=lambda batch: batch.created_at or dates[0], reverse=True)
        if len(found) in _LIKELY_BOUNDS:
            return BatchPage(tuple(found[:-1]), found[-1].batch_id)
        return BatchPage(tuple(found), None)

    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None on 404, which is not proof of loss."""
        path = f"/v1/batches/{common.segment(batch_id)}"
        answer = self._http.request_json("GET", path, allow=_NOT_FOUND)
        if not answer.is_success:
            return None
        batch = _batch(answer.json)
        if batch is None or batch.batch_id != batch_id:
            raise ProviderError(f"GET {path} at {self.host} answered with another object: {answer.excerpt()}")
        return batch

    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when Together says it is too late (409) or unknown (404)."""
        path = f"/v1/batches/{common.segment(batch_id)}/cancel"
        answer = self._http.request_json("POST", path, allow=_TOO_LATE)
        return _batch(answer.json) if answer.is_success else None

    def check(self) -> str:
        """List the batches, which is free, and return the scope that the key belongs to, as far as they show it."""
        return self._scope(self.list_page(None).batches)

    def _file(self, file_id: str) -> RemoteFile | None:
        return common.file_object(self._http.request_json("GET", f"{self.files_path}/{common.segment(file_id)}").json)

    def _scope(self, batches: Sequence[RemoteBatch]) -> str:
        """Return the scope: only batches say which organisation and project a key is of, and they must agree."""
        names = ("organization_id", "project_id")
        owners = {tuple(fields.text(batch.seen.get(name)) or "" for name in names) for batch in batches}
        owner = owners.pop() if len(owners) == 1 else ("", "")
        return common.scope(DESCRIPTOR.name, self.host, dict(zip(names, owner, strict=True)), names)

    def _rejection(self, answer: Answer) -> Rejected:
        error = answer.error or ApiError(answer.error_text or answer.excerpt())
        error_class = classify(answer.status_code, error)
        if error_class is ErrorClass.PERMANENT:
            is_early = _NO_FILE.search(error.message) is not None
            error_class = ErrorClass.TRANSIENT if is_early else class_of_text(error.message) or error_class
        return common.rejection(answer, error_class, self._clock.now(), error)


def _batch(value: object) -> RemoteBatch | None:
    """Return a job made uniform, bare or wrapped, None when it has no id; an unknown status is RUNNING."""
    found = fields.mapping(value)
    found = fields.mapping(found.get("job")) or found
    batch_id = fields.identifier(found.get("id"))
    if batch_id is None:
        return None
    status = fields.word(found.get("status")) or ""
    state = _STATES.get(status.strip().upper(), BatchState.RUNNING)
    return RemoteBatch(
        batch_id=batch_id,
        state=state,
        provider_status=status,
        seen=found,
        created_at=fields.moment(found.get("created_at")),
        expires_at=fields.moment(found.get("job_deadline")),
        ended_at=fields.moment(found.get("completed_at")) if state.is_terminal else None,
        input_file_id=fields.identifier(found.get("input_file_id")),
        output_file_id=fields.identifier(found.get("output_file_id")),
        error_file_id=fields.identifier(found.get("error_file_id")),
        endpoint=fields.text(found.get("endpoint")),
        errors=_errors(found.get("error")),
    )


def _errors(value: object) -> tuple[BatchError, ...]:
    """Return the error of a failed job, a bare text, with a code where the text is known to mean one."""
    message = fields.identifier(value) or fields.identifier(fields.mapping(value).get("message"))
    if message is None:
        return ()
    code = _NO_FILE_CODE if _NO_FILE.search(message) else None
    if class_of_text(message) is ErrorClass.MODEL_GONE:
        code = "model_not_available"
    return (BatchError(code, redact(message)),)
