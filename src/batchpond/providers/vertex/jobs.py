"""What Vertex AI's jobs say, made uniform: pure, and total over any JSON; and which role is missing, and whose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from batchpond import fields, ids
from batchpond.errors import AccessError
from batchpond.model import BatchError, BatchState, RemoteBatch
from batchpond.providers.gemini.lines import is_blank, read_status
from batchpond.providers.http.errors import HttpError
from batchpond.text import redact

_PERMISSION: Final = re.compile(r"\b(?:aiplatform|storage|serviceusage)\.(?!googleapis\b)[A-Za-z]+\.[A-Za-z]+\b")
_ROLES: Final = (
    ("aiplatform.", "roles/aiplatform.user"),
    ("storage.buckets.", "roles/storage.legacyBucketReader"),
    ("storage.objects.", "roles/storage.objectUser"),
    ("serviceusage.", "roles/serviceusage.serviceUsageConsumer"),
)
_SPEAKER: Final = re.compile(r"([\w.+-]+@[\w.-]+) does not have ")
_PROJECT: Final = re.compile(r"projects/(\d+)/")
_BUCKET: Final = re.compile(r"(?:gs://|bucket location for )([a-z0-9._-]*[a-z0-9])")
_DENIED, _NOT_READY, _BAD_INPUT = "PERMISSION_DENIED", "FAILED_PRECONDITION", "INVALID_ARGUMENT"


def permission_in(message: str) -> str | None:
    """Return the permission that a refusal names."""
    found = _PERMISSION.search(message)
    return found[0] if found else None


def role_for(permission: str) -> str:
    """Return a predefined role that has a permission."""
    return next((role for prefix, role in _ROLES if permission.startswith(prefix)), "a role")


def advice_for_call(message: str, caller: str) -> str | None:
    """Return which role the caller lacks, None where a refusal names no permission."""
    permission = permission_in(message)
    if permission is None:
        return None
    speaker = _SPEAKER.search(message)
    place = "the bucket" if permission.startswith("storage.") else "the project"
    return f"grant {role_for(permission)} ({permission}) on {place} to the caller, {speaker[1] if speaker else caller}"


def advice_for_job(code: str | None, message: str, job_name: str) -> str | None:
    """Return what to grant to the service agent, or to change in the input, after a job failed."""
    project = _PROJECT.match(job_name)
    agent = f"service-{project[1] if project else 'PROJECT_NUMBER'}@gcp-sa-aiplatform.iam.gserviceaccount.com"
    bucket = _BUCKET.search(message)
    where = f"gs://{bucket[1]}" if bucket else "the bucket"
    if code == _NOT_READY and "bucket" in message.lower():
        return (
            f"does {where} exist? grant roles/storage.legacyBucketReader and roles/storage.objectUser on it to the"
            f" Vertex AI service agent, {agent}: the job reads and writes as that, not as you"
        )
    permission = permission_in(message)
    if code == _DENIED or permission is not None:
        role = role_for(permission or "storage.objects.create")
        return (
            f"grant {role} on {where} to the Vertex AI service agent, {agent}: the job reads and writes as that, not"
            " as you"
        )
    if code == _BAD_INPUT and "import" in message.lower():
        return "a key of the input lines holds two types, null or {}, or its name is no column name"
    return None


@contextmanager
def role_named(caller: Callable[[], str]) -> Iterator[None]:
    """Turn a refusal of the calls inside into an AccessError whose hint names the role and the principal."""
    try:
        yield
    except (AccessError, HttpError) as error:
        is_refusal = isinstance(error, AccessError) or error.status_code == 403
        advice = advice_for_call(error.message, caller()) if is_refusal else None
        if advice is None:
            raise
        refusal = AccessError(error.message, hint=advice)
    else:
        return
    raise refusal


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
