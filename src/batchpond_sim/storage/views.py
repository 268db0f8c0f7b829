"""What a simulated Cloud Storage shows: objects, buckets, errors; numbers of 64 bits as strings."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from batchpond_sim.gemini.views import reply, timestamp
from batchpond_sim.host.wire import Reply, Request
from batchpond_sim.storage.store import ObjectRecord

BASE_PATH = "/vertex"
CALLER = "caller@simulated-project.iam.gserviceaccount.com"
_REASONS = {
    400: ("invalid", "Invalid argument."),
    401: ("authError", "Invalid Credentials"),
    403: ("forbidden", "Access denied."),
    404: ("notFound", "Not Found"),
    409: ("conflict", "The request conflicts with another one."),
    412: ("conditionNotMet", "At least one of the pre-conditions you specified did not hold."),
    429: ("rateLimitExceeded", "The rate of requests is over the limit. Please reduce your rate."),
}


def root_url(request: Request) -> str:
    """Return where the API is for the client that asks."""
    return f"http://{request.headers.get('host', 'localhost')}{BASE_PATH}"


def error_reply(status: int, message: str = "") -> Reply:
    """Return an error as the JSON API has it."""
    reason, usual = _REASONS.get(status, ("backendError", "Backend Error"))
    text = message or usual
    errors = [{"message": text, "domain": "global", "reason": reason}]
    return reply(status, {"error": {"code": status, "message": text, "errors": errors}})


def denied(verb: str) -> Reply:
    """Return the refusal of a permission: its text says that the object may not exist either."""
    permission = f"storage.objects.{verb}"
    return error_reply(
        403,
        f"{CALLER} does not have {permission} access to the Google Cloud Storage object. "
        f"Permission '{permission}' denied on resource (or it may not exist).",
    )


def no_bucket() -> Reply:
    """Return the answer about a bucket that is not there."""
    return error_reply(404, "The specified bucket does not exist.")


def no_object(bucket: str, name: str) -> Reply:
    """Return the answer about an object that is not there."""
    return error_reply(404, f"No such object: {bucket}/{name}")


def object_view(record: ObjectRecord, request: Request) -> dict[str, Any]:
    """Return an object's metadata."""
    path = f"{root_url(request)}/storage/v1/b/{record.bucket}/o/{quote(record.name, safe='')}"
    made = timestamp(record.created_s)
    return {
        "kind": "storage#object",
        "id": f"{record.bucket}/{record.name}/{record.generation}",
        "selfLink": path,
        "mediaLink": f"{path.replace('/storage/v1/', '/download/storage/v1/', 1)}?alt=media",
        "name": record.name,
        "bucket": record.bucket,
        "generation": str(record.generation),
        "metageneration": "1",
        "contentType": record.content_type,
        "storageClass": "STANDARD",
        "size": str(record.size_bytes),
        "md5Hash": record.md5,
        "timeCreated": made,
        "updated": made,
    }


def bucket_view(name: str) -> dict[str, Any]:
    """Return a bucket's metadata."""
    return {"kind": "storage#bucket", "id": name, "name": name, "location": "US-CENTRAL1", "storageClass": "STANDARD"}
