"""What a simulated OpenAI shows and refuses: the batch object, error bodies, checks at the door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchpond_sim.faults.faults import Value, number
from batchpond_sim.host.multipart import Form
from batchpond_sim.host.wire import Reply, json_reply
from batchpond_sim.openai.answers import error_body
from batchpond_sim.openai.life import ENDED, WINDOW_S, BatchRecord
from batchpond_sim.shared.filed import FileRecord
from batchpond_sim.world.limits import Quota, Scarce, openai_message

ORGANIZATION = "org-simulated"
BATCH_FILE_MAX_BYTES = 200 << 20
ENDPOINTS = (
    "/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/moderations",
    "/v1/images/generations", "/v1/images/edits", "/v1/videos",
)  # fmt: skip

_STATUS_ERRORS: Mapping[int, tuple[str, str, str | None]] = {
    400: ("The request could not be understood.", "invalid_request_error", None),
    401: ("Incorrect API key provided. You can find your API key in your account settings.", "invalid_request_error",
          "invalid_api_key"),
    403: ("You are not allowed to do this from your country, region, or territory.", "request_forbidden",
          "unsupported_country_region_territory"),
    404: ("The requested resource was not found.", "invalid_request_error", None),
    409: ("The request conflicts with another one.", "invalid_request_error", None),
    429: ("Rate limit reached for requests. Please try again later.", "requests", "rate_limit_exceeded"),
    503: ("The engine is currently overloaded, please try again later.", "server_error", "overloaded"),
}  # fmt: skip


def error_reply(status: int, message: str, param: str | None = None, code: str | None = None) -> Reply:
    """Return an API error of type `invalid_request_error`."""
    return json_reply(status, error_body(message, "invalid_request_error", param, code))


def limited_reply(quota: Quota) -> Reply:
    """Return the 429 of a live call that is beyond a limit."""
    kind = Scarce.TOKENS if quota.scarce is Scarce.TOKENS else Scarce.REQUESTS
    return json_reply(429, error_body(openai_message(quota, ORGANIZATION), kind, None, "rate_limit_exceeded"))


def fault_reply(status: int, kind: str) -> Reply:
    """Return the API error that a fault of `kind` asks for."""
    if kind == "billing":
        text = "You exceeded your current quota, please check your plan and billing details."
        return json_reply(status, error_body(text, "insufficient_quota", None, "insufficient_quota"))
    if kind == "file_not_ready":
        return error_reply(
            400, "No such File object: it is not there, or this project does not have access to it.", "input_file_id"
        )
    default = ("The server had an error while processing your request. Sorry about that!", "server_error", None)
    return json_reply(status, error_body(*_status_error(status, default)))


def _status_error(status: int, default: tuple[str, str, str | None]) -> tuple[str, str, str | None, str | None]:
    message, kind, code = _STATUS_ERRORS.get(status, default)
    return message, kind, None, code


def file_view(record: FileRecord) -> dict[str, Any]:
    """Return a file as the API shows it."""
    return {
        "object": "file",
        "id": record.id,
        "purpose": record.purpose,
        "filename": record.filename,
        "bytes": record.size_bytes,
        "created_at": int(record.created_s),
        "expires_at": None if record.expires_s is None else int(record.expires_s),
        "status": "processed",
        "status_details": None,
    }


def batch_view(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look."""
    status = batch.status(now)
    is_regressed = "regress" in faults and status in ENDED
    if is_regressed:
        status = "in_progress"
    skew = int(number(faults.get("clock_skew")))
    created = int(batch.created_s)
    has_run = batch.is_validated and batch.valid_s <= now
    has_files = batch.is_ended and not is_regressed
    absent = "" if "error_file_empty_string" in faults else None
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model if has_run else None,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": str(faults["status_word"]) if "status_word" in faults else status,
        "output_file_id": (batch.output_file_id or absent) if has_files else absent,
        "error_file_id": (batch.error_file_id or absent) if has_files else absent,
        "created_at": created + skew,
        "in_progress_at": int(batch.valid_s) if has_run else None,
        "expires_at": created + skew + WINDOW_S,
        "finalizing_at": int(batch.ran_s) if has_run and batch.cancel_s is None and batch.ran_s <= now else None,
        **{f"{end}_at": int(batch.done_s) if status == end else None for end in ("completed", "failed", "expired")},
        "cancelling_at": None if batch.cancel_s is None else int(batch.cancel_s),
        "cancelled_at": int(batch.done_s) if status == "cancelled" else None,
        "request_counts": _counts(batch, now, faults),
        "usage": batch.usage() if has_files else None,
        "metadata": batch.metadata,
    }


def _counts(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    if "counts_null" in faults:
        return None
    share = 1.0 if batch.is_ended else 0.0 if "counts_late" in faults else batch.share_done(now)
    counts: dict[str, Any] = {"total": 0, "completed": 0, "failed": 0}
    if batch.is_ended or (batch.is_validated and batch.valid_s <= now):
        counts = {
            "total": batch.n_total,
            "completed": int(batch.n_completed * share),
            "failed": int(batch.n_failed * share),
        }
    if "counts_wrong" in faults:
        counts |= {"completed": 0 if counts["completed"] == 1 else 1, "failed": 0}
    return {name: str(n) for name, n in counts.items()} if "counts_text" in faults else counts


def refused_form(form: Form) -> Reply | None:
    """Return the refusal of an upload, None when it is fine."""
    purpose = form.fields.get("purpose")
    if form.filename is None:
        return error_reply(400, "'file' is a required property", "file")
    if purpose not in ("assistants", "batch", "fine-tune", "vision", "user_data", "evals"):
        return error_reply(400, f"'{purpose}' is not one of the supported purposes", "purpose")
    if purpose == "batch" and form.size_bytes > BATCH_FILE_MAX_BYTES:
        return error_reply(400, f"The file is over the {BATCH_FILE_MAX_BYTES} bytes of a batch file.", "file")
    kept = form.fields.get("expires_after[seconds]")
    if kept is not None and not (kept.isdigit() and 3600 <= int(kept) <= 2_592_000):
        return error_reply(400, "expires_after.seconds must be from 3600 to 2592000.", "expires_after.seconds")
    return None


def refused_batch(body: Any) -> Reply | None:
    """Return the immediate refusal of a create call, None when it is accepted (to fail later, maybe)."""
    if not isinstance(body, dict):
        return error_reply(400, "We could not parse the JSON body of your request.")
    for name in ("input_file_id", "endpoint", "completion_window"):
        if not isinstance(body.get(name), str):
            return error_reply(400, f"Missing required parameter: '{name}'.", name, "missing_required_parameter")
    for name, words in (("endpoint", ENDPOINTS), ("completion_window", ("24h",))):
        if body[name] not in words:
            listed = ", ".join(f"'{word}'" for word in words)
            text = f"Invalid value: '{body[name]}'. Supported values are: {listed}."
            return error_reply(400, text, name, "invalid_value")
    expires = body.get("output_expires_after")
    if expires is not None and not (
        isinstance(expires, dict) and 3600 <= int(expires.get("seconds") or 0) <= 2_592_000
    ):
        return error_reply(400, "output_expires_after.seconds must be from 3600 to 2592000.", "output_expires_after")
    return _refused_metadata(body.get("metadata"))


def _refused_metadata(metadata: Any) -> Reply | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or len(metadata) > 16:
        return error_reply(
            400, "Invalid 'metadata': expected an object of at most 16 pairs.", "metadata", "invalid_type"
        )
    for name, value in metadata.items():
        if len(name) > 64 or not isinstance(value, str) or len(value) > 512:
            text = "Invalid 'metadata': keys have at most 64 characters, values are strings of at most 512."
            return error_reply(400, text, f"metadata.{name[:64]}", "invalid_value")
    return None
