"""What a simulated Together shows and refuses: jobs, file objects, errors as text and as objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from batchpond_sim.faults.faults import Value, number
from batchpond_sim.host.wire import Reply, json_reply
from batchpond_sim.shared.filed import FileRecord
from batchpond_sim.together.answers import CHAT, error_body
from batchpond_sim.together.life import WINDOW_S, BatchRecord

ENDPOINTS = (CHAT, "/v1/audio/transcriptions", "/v1/audio/translations")
ORGANIZATION = "org-simulated"
_TEXTS: Mapping[int, str] = {
    400: "Bad request",
    402: "Insufficient credits: add some to go on.",
    404: "Not found",
    409: "The request conflicts with another one.",
    429: "Too many requests. Please try again later.",
    503: "The model is overloaded. Please try again later.",
}


def text_error(status: int, message: str) -> Reply:
    """Return an error of the batch API, which is bare text."""
    return json_reply(status, {"error": message})


def no_key(status: int = 401) -> Reply:
    """Return the refusal of a missing or wrong key."""
    text = "Invalid API key provided. You can find your API key at https://api.together.ai/settings/api-keys."
    return json_reply(status, error_body(text, code="invalid_api_key"))


def fault_reply(status: int, kind: str) -> Reply:
    """Return the error that a fault of `kind` asks for; what is about money is a 402."""
    if kind == "billing":
        return text_error(402, _TEXTS[402])
    if kind == "file_not_ready":
        return text_error(status, "Failed to download input file: the storage answered 404")
    if status in (401, 403):
        return no_key(status)
    return text_error(status, _TEXTS.get(status, "Internal server error"))


def stamped(reply: Reply, request_id: str) -> Reply:
    """Return an answer whose error, where it is bare text, names the request."""
    if reply.status < 400 or not isinstance(reply.body, bytes) or not reply.body.startswith(b'{"error":"'):
        return reply
    return replace(reply, body=orjson.dumps(orjson.loads(reply.body) | {"request_id": request_id}))


def no_file(file_id: str) -> Reply:
    """Return the answer about a file that is not there."""
    return json_reply(404, {"error": {"message": f"File {file_id} not found", "type": "not_found"}})


def file_view(record: FileRecord) -> dict[str, Any]:
    """Return a file as the API shows it."""
    return {
        "id": record.id,
        "object": "file",
        "purpose": record.purpose,
        "filename": record.filename,
        "bytes": record.size_bytes,
        "created_at": int(record.created_s),
        "FileType": "jsonl",
        "LineCount": 0,
        "Processed": True,
        "processing_status": "COMPLETED",
    }


def batch_view(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a job as the API shows it, or as `faults` make it look: what is not there is no member at all."""
    is_regressed = "regress" in faults and batch.is_ended
    has_ended = batch.is_ended and not is_regressed
    status = "IN_PROGRESS" if is_regressed else batch.status(now)
    created_s = batch.created_s + number(faults.get("clock_skew"))
    absent = "" if "error_file_empty_string" in faults else None
    later = {
        "model_id": batch.model,
        "output_file_id": (batch.output_file_id or absent) if has_ended else absent,
        "error_file_id": (batch.error_file_id or absent) if has_ended else absent,
        "error": batch.error if has_ended else None,
        "completed_at": _moment(batch.done_s) if has_ended else None,
    }
    return {
        "id": batch.id,
        "user_id": "user-simulated",
        "project_id": batch.project,
        "organization_id": ORGANIZATION,
        "input_file_id": batch.input_file_id,
        "file_size_bytes": batch.file_size_bytes,
        "status": str(faults["status_word"]) if "status_word" in faults else status,
        "job_deadline": _moment(created_s + WINDOW_S),
        "created_at": _moment(created_s),
        "endpoint": batch.endpoint,
        "progress": 100.0 if has_ended else round(100 * batch.share_done(now), 1),
        **{name: value for name, value in later.items() if value is not None},
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def refused_batch(body: Any) -> Reply | None:
    """Return the immediate refusal of a create call, None when it is accepted (to fail later, maybe)."""
    if not isinstance(body, dict):
        return text_error(400, "Invalid request body")
    if not isinstance(body.get("input_file_id"), str) or not body["input_file_id"]:
        return text_error(400, "input_file_id is required")
    if body.get("endpoint") not in ENDPOINTS:
        return text_error(400, f"Invalid endpoint: expected one of {', '.join(ENDPOINTS)}")
    return None
