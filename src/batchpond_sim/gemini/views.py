"""What a simulated Gemini API shows: errors, files, operations; int64 as strings, zeros and false left out."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from batchpond_sim.faults.faults import Value, number
from batchpond_sim.gemini.answers import BILLING_TEXT, rpc_error
from batchpond_sim.gemini.life import ENDED, BatchRecord
from batchpond_sim.gemini.store import FileRecord
from batchpond_sim.host.wire import Reply
from batchpond_sim.shared.rows import dump_row
from batchpond_sim.world.limits import Quota, Scarce

_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch"
_RPC = "type.googleapis.com/google.rpc"
_CONTENT_TYPE = "application/json; charset=UTF-8"
_QUOTA_TEXT = (
    "You exceeded your current quota, please check your plan and billing details. "
    "For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)
_TEXTS: Mapping[int, str] = {
    400: "Request contains an invalid argument.",
    401: "Request had invalid authentication credentials.",
    403: "The caller does not have permission",
    404: "Requested entity was not found.",
    409: "The operation was aborted.",
    429: "Resource has been exhausted (e.g. check quota).",
    500: "An internal error has occurred. Please retry or report the problem.",
    503: "The model is overloaded. Please try again later.",
    504: "The request timed out. Please try again.",
}
_ENDS: Mapping[str, tuple[int, str]] = {
    "failed": (13, "The batch failed"),
    "cancelled": (13, "The batch was cancelled."),
    "expired": (4, "The batch expired before it was finished."),
}


# -- errors ------------------------------------------------------------------------------------


def reply(status: int, body: dict[str, Any], *headers: tuple[str, str]) -> Reply:
    """Return a JSON answer."""
    return Reply(status, (("content-type", _CONTENT_TYPE), *headers), dump_row(body))


def error_reply(status: int, message: str = "", word: str = "", details: list[dict[str, Any]] | None = None) -> Reply:
    """Return an API error; the message and the status word are the usual ones of the HTTP status unless given."""
    return reply(status, {"error": rpc_error(status, message or _TEXTS.get(status, "Unknown error."), details, word)})


def fault_reply(status: int, kind: str) -> Reply:
    """Return the API error that a fault of `kind` asks for."""
    match kind:
        case "billing":
            return error_reply(status, BILLING_TEXT)
        case "retry_after":
            return quota_reply("models", 34)
        case "file_not_ready":
            text = "The File is not in an ACTIVE state and usage is not allowed."
            return error_reply(400, text, "FAILED_PRECONDITION")
        case _:
            return error_reply(status)


def quota_reply(
    model: str,
    retry_s: float,
    metric: str = "batch_enqueued_tokens",
    quota_id: str = "BatchEnqueuedTokensPerModelPerProject",
    more: Mapping[str, str] | None = None,
) -> Reply:
    """Return the 429 of a full queue, or of another quota; `more` is what else its violation tells."""
    violation = {
        "quotaMetric": f"generativelanguage.googleapis.com/{metric}",
        "quotaId": quota_id,
        "quotaDimensions": {"model": model, "location": "global"},
        **(more or {}),
    }
    details: list[dict[str, Any]] = [
        {"@type": f"{_RPC}.QuotaFailure", "violations": [violation]},
        {"@type": f"{_RPC}.RetryInfo", "retryDelay": f"{retry_s:.9g}s"},
    ]
    return error_reply(429, _QUOTA_TEXT, details=details)


def limited_reply(quota: Quota) -> Reply:
    """Return the 429 of a live call that is beyond a limit."""
    is_tokens = quota.scarce is Scarce.TOKENS
    window = quota.tokens if is_tokens else quota.requests
    what = "generate_content_paid_tier_input_token_count" if is_tokens else "generate_content_paid_tier_requests"
    quota_id = f"GenerateContentPaidTier{'InputTokens' if is_tokens else 'Requests'}PerModelPerMinute"
    more = {} if window is None else {"quotaValue": str(int(window.limit))}
    return quota_reply(quota.model, round(quota.retry_s, 6), what, quota_id, more)


def bad_key() -> Reply:
    """Return the answer to a key that is none: HTTP 400."""
    text = "API key not valid. Please pass a valid API key."
    service = {"service": "generativelanguage.googleapis.com"}
    details: list[dict[str, Any]] = [
        {"@type": f"{_RPC}.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com", "metadata": service},
        {"@type": f"{_RPC}.LocalizedMessage", "locale": "en-US", "message": text},
    ]
    return error_reply(400, text, details=details)


def no_key() -> Reply:
    """Return the answer to a call without a key: HTTP 403."""
    text = (
        "Method doesn't allow unregistered callers (callers without established identity). "
        "Please use API Key or other form of API consumer identity to call this API."
    )
    return error_reply(403, text)


def no_file(name: str) -> Reply:
    """Return the answer about an uploaded file that is missing or another project's: HTTP 403."""
    text = f"You do not have permission to access the File {name} or it may not exist."
    return error_reply(403, text)


def no_model(model: str, method: str) -> Reply:
    """Return the answer about a model that is not there, or not for this."""
    text = (
        f"models/{model} is not found for API version v1beta, or is not supported for {method}. "
        "Call ListModels to see the list of available models and their supported methods."
    )
    return error_reply(404, text)


# -- objects -----------------------------------------------------------------------------------


def timestamp(seconds: float) -> str:
    """Return a time as proto3 JSON has it: RFC 3339 with 0, 3, 6 or 9 digits after the second."""
    whole, nanos = divmod(int(seconds * 1e9), 1_000_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}Z" if digits else f"{text}Z"


def file_view(file: FileRecord, base_url: str) -> dict[str, Any]:
    """Return a file as the API shows it; `base_url` has the version, such as `http://host/gemini/v1beta`."""
    view: dict[str, Any] = {
        "name": f"files/{file.id}",
        "displayName": file.display_name,
        "mimeType": file.mime_type,
        "sizeBytes": str(file.size_bytes),
        "createTime": timestamp(file.created_s),
        "updateTime": timestamp(file.created_s),
        "expirationTime": None if file.expires_s is None else timestamp(file.expires_s),
        # The service encodes the digest's hexadecimal form, not its bytes.
        "sha256Hash": base64.b64encode(file.sha256.encode("ascii")).decode("ascii"),
        "uri": f"{base_url}/files/{file.id}",
        "state": "ACTIVE",
        "source": file.source,
        "downloadUri": f"{base_url}/files/{file.id}:download?alt=media" if file.source == "GENERATED" else None,
    }
    return {name: value for name, value in view.items() if value not in (None, "")}


def operation_view(
    batch: BatchRecord, now: float, faults: Mapping[str, Value], inlined: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look; `inlined` are its answers, where shown."""
    state = batch.state(now)
    if "regress" in faults and state in ENDED:
        state = "running"
    skew = number(faults.get("clock_skew"))
    output = _output(batch, faults, inlined) if state == "succeeded" else {}
    if state != "succeeded" and "error_file_empty_string" in faults:
        output = {"responsesFile": ""}
    at_end = state in ENDED
    metadata: dict[str, Any] = {
        "@type": _TYPE,
        "model": f"models/{batch.model}",
        "displayName": batch.display_name,
        "state": _state_word(state, faults),
        "createTime": timestamp(batch.created_s + skew),
        "updateTime": timestamp(batch.changed_s(now) + skew),
        "endTime": timestamp(batch.done_s + skew) if at_end else None,
        "inputConfig": _input_config(batch, faults),
        "output": output or None,
        "batchStats": _stats(batch, now, state, faults),
        "priority": None if batch.priority == 0 else str(batch.priority),
        "name": f"batches/{batch.id}",
    }
    places = _places(faults)
    view: dict[str, Any] = {"name": f"batches/{batch.id}"}
    view["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    if "metadata" not in places:
        view["metadata"].pop("output", None)
    if at_end:
        view["done"] = True
    if state == "succeeded":
        shown_output = output if "response" in places else {}
        view["response"] = {"@type": f"{_TYPE}Output", **shown_output}
    elif at_end:
        code, text = _ENDS[state]
        view["error"] = {"code": code, "message": f"{text}: {batch.error}" if batch.error else text}
    return view


def _state_word(state: str, faults: Mapping[str, Value]) -> str:
    head = "JOB_STATE" if "job_state" in faults else "BATCH_STATE"
    word = str(faults["status_word"]) if "status_word" in faults else state
    return word if "_STATE_" in word else f"{head}_{word.upper()}"


def _input_config(batch: BatchRecord, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    return {"fileName": batch.input_file_id} if batch.input_file_id and "no_input_config" not in faults else None


def _places(faults: Mapping[str, Value]) -> frozenset[str]:
    """Return in which of the two members of an operation its output stands."""
    words = str(faults.get("output_at") or "both")
    return frozenset({"metadata", "response"} if words == "both" else {words})


def _output(batch: BatchRecord, faults: Mapping[str, Value], inlined: list[dict[str, Any]] | None) -> dict[str, Any]:
    if batch.output_file_id is None:
        return {"responsesFile": ""} if "error_file_empty_string" in faults else {}
    if batch.is_inline:
        return {} if inlined is None else {"inlinedResponses": {"inlinedResponses": inlined}}
    return {"responsesFile": f"files/{batch.output_file_id}"}


def _stats(batch: BatchRecord, now: float, state: str, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    if "counts_null" in faults:
        return None
    share = 1.0 if state in ENDED else batch.share_done(now)
    if "counts_late" in faults and state not in ENDED:
        share = 0.0
    good, bad = int(batch.n_completed * share), int(batch.n_failed * share)
    if "counts_wrong" in faults:
        good, bad = (0 if good == 1 else 1), 0
    counts = {
        "requestCount": batch.n_total,
        "successfulRequestCount": good,
        "failedRequestCount": bad,
        "pendingRequestCount": 0 if state in ENDED else batch.n_total - good - bad,
    }
    # Numbers in place of the strings that proto3 JSON asks for would be the odd ones here.
    return {name: n if "counts_text" in faults else str(n) for name, n in counts.items() if n}
