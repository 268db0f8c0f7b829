"""Which role is missing, and whose: what a 403, or a job that failed for want of a permission, comes to.

Permissions and roles: Google Cloud's IAM reference. A call is made as the caller; a job reads and writes
Cloud Storage as the Vertex AI service agent of its project, not as the caller (recorded traffic of 2026).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from batchpond.errors import AccessError
from batchpond.providers.http.errors import HttpError

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
