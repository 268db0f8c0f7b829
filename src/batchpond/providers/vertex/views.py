"""What Vertex AI's batch prediction jobs say, made uniform: pure, and total over any JSON.

Shapes: the discovery document of the aiplatform API, v1, revision 20261106, and recorded traffic of 2026.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from batchpond import fields, ids
from batchpond.model import BatchError, BatchState, RemoteBatch
from batchpond.providers.gemini.lines import is_blank, read_status
from batchpond.providers.vertex.roles import advice_for_job
from batchpond.text import redact

LABEL: Final = "batchpond"
_STATES: Final = {
    "QUEUED": BatchState.QUEUED,
    "PENDING": BatchState.QUEUED,
    "RUNNING": BatchState.RUNNING,
    "PAUSED": BatchState.RUNNING,
    "UPDATING": BatchState.RUNNING,
    "CANCELLING": BatchState.CANCELLING,
    "SUCCEEDED": BatchState.COMPLETED,
    "PARTIALLY_SUCCEEDED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "CANCELLED": BatchState.CANCELLED,
    "EXPIRED": BatchState.EXPIRED,
}
_QUEUED_AT_MOST: Final = timedelta(hours=72)
_RUNS_AT_MOST: Final = timedelta(hours=24)


def read_job(value: object) -> RemoteBatch | None:
    """Return a job made uniform, None when it has no name; an unknown state is RUNNING.

    `output_file_id` is where the rows of a job that ended are: a folder of Cloud Storage, with a slash at its end.
    `expires_at` is the documented end of the queue or, once it runs, of the run: jobs have no such time.
    `n_total` is known only of a job that succeeded: before that its counts need not be all.
    """
    job = fields.mapping(value)
    name = fields.identifier(job.get("name"))
    if name is None:
        return None
    status = fields.word(job.get("state")) or ""
    word = status.strip().upper().removeprefix("JOB_STATE_")
    state = _STATES.get(word, BatchState.RUNNING)
    n_completed, n_failed, n_left = _counts(job.get("completionStats"))
    is_counted = word == "SUCCEEDED" and None not in (n_completed, n_failed, n_left)
    return RemoteBatch(
        batch_id=name,
        state=state,
        provider_status=status,
        seen=job,
        created_at=fields.moment(job.get("createTime")),
        expires_at=_expiry(job),
        ended_at=fields.moment(job.get("endTime")) if state.is_terminal else None,
        n_total=(n_completed or 0) + (n_failed or 0) + (n_left or 0) if is_counted else None,
        n_completed=n_completed,
        n_failed=n_failed,
        input_file_id=_input(job),
        output_file_id=_folder(job) if state.is_terminal else None,
        token=_token(job),
        errors=_errors(job, name),
    )


def _counts(stats: object) -> tuple[int | None, int | None, int | None]:
    """Return the counts of `completionStats`: zeros are left out there, "-1" is unknown, absent as a whole too."""
    if not isinstance(stats, dict):
        return None, None, None
    names = ("successfulCount", "failedCount", "incompleteCount")
    completed, failed, left = (fields.count(stats.get(name, 0)) for name in names)
    return completed, failed, left


def _expiry(job: dict[str, Any]) -> datetime | None:
    created, started = fields.moment(job.get("createTime")), fields.moment(job.get("startTime"))
    try:
        if started is not None:
            return started + _RUNS_AT_MOST
        return None if created is None else created + _QUEUED_AT_MOST + _RUNS_AT_MOST
    except OverflowError:
        return None


def _input(job: dict[str, Any]) -> str | None:
    source = fields.mapping(fields.mapping(job.get("inputConfig")).get("gcsSource"))
    uris = fields.sequence(source.get("uris"), 2)
    return fields.identifier(uris[0]) if len(uris) == 1 else None


def _folder(job: dict[str, Any]) -> str | None:
    """Return the job's own folder or, where it names none, that of all jobs with its output prefix."""
    own = fields.identifier(fields.mapping(job.get("outputInfo")).get("gcsOutputDirectory"))
    destination = fields.mapping(fields.mapping(job.get("outputConfig")).get("gcsDestination"))
    folder = own or fields.identifier(destination.get("outputUriPrefix"))
    return None if folder is None else folder.rstrip("/") + "/"


def _token(job: dict[str, Any]) -> str | None:
    for mark in (fields.mapping(job.get("labels")).get(LABEL), job.get("displayName")):
        if (text := fields.text(mark)) and text.startswith(f"{ids.TOKEN_PREFIX}-"):
            return text
    return None


def _errors(job: dict[str, Any], name: str) -> tuple[BatchError, ...]:
    error = job.get("error")
    if is_blank(error):
        return ()
    _, read = read_status(error)
    advice = advice_for_job(read.code, read.message, name)
    return (BatchError(read.code, redact(read.message + (f" [{advice}]" if advice else ""))),)
