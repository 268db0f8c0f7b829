"""What a simulated Vertex AI shows: jobs and errors; int64 as strings, zeros left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchpond_sim.faults.faults import Value, number
from batchpond_sim.gemini.views import error_reply, timestamp
from batchpond_sim.host.wire import Reply
from batchpond_sim.storage.views import CALLER
from batchpond_sim.vertex.life import ENDED, JobRecord

_RPC = "type.googleapis.com/google.rpc"


def no_login(*, is_expired: bool) -> Reply:
    """Return the answer to a call without a token, or with one that has run out or is none."""
    text = (
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid"
        " authentication credential."
    )
    reason = "ACCESS_TOKEN_EXPIRED" if is_expired else "CREDENTIALS_MISSING"
    details = [{"@type": f"{_RPC}.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    return error_reply(401, text, details=details)


def denied(permission: str, resource: str) -> Reply:
    """Return the refusal of a permission."""
    place = f"'//aiplatform.googleapis.com/{resource}'"
    return error_reply(403, f"Permission '{permission}' denied on resource {place} (or it may not exist). [{CALLER}]")


def no_model(model: str) -> Reply:
    """Return the answer about a model that is not there."""
    return error_reply(404, f"The PublisherModel {model} does not exist.")


def job_view(job: JobRecord, now_s: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a job as the API shows it, or as `faults` make it look."""
    state = job.state(now_s)
    if "regress" in faults and state in ENDED:
        state = "running"
    is_over = state in ENDED
    skew = number(faults.get("clock_skew"))
    word = str(faults.get("status_word") or state).upper()
    view: dict[str, Any] = {
        "name": job.name,
        "displayName": job.display_name,
        "model": job.model_path,
        "inputConfig": {"instancesFormat": "jsonl", "gcsSource": {"uris": [job.input_file_id]}},
        "outputConfig": {"predictionsFormat": "jsonl", "gcsDestination": {"outputUriPrefix": job.output_prefix}},
        "outputInfo": _output_info(job, faults, is_over=is_over),
        "state": f"JOB_STATE_{word}",
        "error": {"code": job.error_code, "message": job.error_text} if is_over and job.error_code else None,
        "completionStats": _stats(job, now_s, faults, is_over=is_over),
        "createTime": timestamp(job.created_s + skew),
        "startTime": timestamp(job.valid_s + skew) if job.is_validated else None,
        "endTime": timestamp(job.done_s + skew) if is_over else None,
        "updateTime": timestamp((job.done_s if is_over else job.created_s) + skew),
        "labels": job.labels or None,
        "modelVersionId": "1",
    }
    if state == "cancelled":
        view["error"] = {"code": 1, "message": "CANCELED"}
    if "no_input_config" in faults:
        del view["inputConfig"]
    return {name: value for name, value in view.items() if value is not None}


def _output_info(job: JobRecord, faults: Mapping[str, Value], *, is_over: bool) -> dict[str, str] | None:
    if not is_over:
        return {"gcsOutputDirectory": ""} if "error_file_empty_string" in faults else None
    return None if faults.get("output_at") == "metadata" else {"gcsOutputDirectory": job.folder}


def _stats(job: JobRecord, now_s: float, faults: Mapping[str, Value], *, is_over: bool) -> dict[str, Any] | None:
    if "counts_null" in faults or not job.is_counted:
        return None
    share = 1.0 if is_over else job.share_done(now_s)
    if "counts_late" in faults and not is_over:
        share = 0.0
    good, bad = int(job.n_completed * share), int(job.n_failed * share)
    if "counts_wrong" in faults:
        good, bad = (0 if good == 1 else 1), 0
    counts = {
        "successfulCount": good,
        "failedCount": bad,
        "incompleteCount": -1 if not is_over else job.n_total - good - bad,
    }
    return {name: n if "counts_text" in faults else str(n) for name, n in counts.items() if n}
