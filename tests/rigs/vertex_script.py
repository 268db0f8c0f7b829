"""Scripted servers and shapes for tests of the Vertex AI wire."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from batchpond import ids
from batchpond.model import CreateSpec
from batchpond.providers import registry
from tests.rigs import wire_script
from tests.rigs.wire_script import Answer

TOKEN_ENV = "GOOGLE_OAUTH_ACCESS_TOKEN"
SECRET = "ya29.canary-wire-0123456789"
HOST = "https://us-central1-aiplatform.googleapis.com"
STORAGE = "https://storage.googleapis.com"
PARENT = "projects/my-project/locations/us-central1"
JOBS = f"{HOST}/v1/{PARENT}/batchPredictionJobs"
BUCKET = "gs://my-bucket/studies"
TOKEN = ids.token("lake", "attempt", b"secret", "0" * 64)
INPUT = f"{BUCKET}/{TOKEN}.jsonl"
SPEC = CreateSpec(
    TOKEN, "generateContent", "gemini-2.5-flash", INPUT, Path("unused"), 2,
    (("batchpond", TOKEN), ("study", "My Study"), ("shard", "abc234"), ("cells", "x")),
)  # fmt: skip
NAME = "projects/123456/locations/us-central1/batchPredictionJobs/7890"
ENVIRON = {
    TOKEN_ENV: SECRET,
    "GOOGLE_CLOUD_PROJECT": "my-project",
    "GOOGLE_CLOUD_LOCATION": "us-central1",
    "BATCHPOND_VERTEX_BUCKET": BUCKET,
}


class Script(wire_script.Script):
    """A scripted Google: Vertex AI and Cloud Storage answer in one row."""

    def __init__(self, *answers: Answer | Callable[[httpx.Request], Answer], **environ: str) -> None:
        super().__init__(*answers)
        self.wire = registry.connect("vertex", self.clock, transport=self.transport, environ=ENVIRON | environ)

    @property
    def calls(self) -> list[str]:
        """What was called, in order."""
        return [f"{request.method} {str(request.url).split('?')[0]}" for request in self.requests]


def ok(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body)


def refusal(code: int, status: str, message: str = "no", http: int | None = None) -> httpx.Response:
    return httpx.Response(http or code, json={"error": {"code": code, "message": message, "status": status}})


def missing(permission: str, code: int = 403) -> httpx.Response:
    """Return Google's refusal of a permission, which says that the thing may not exist either."""
    text = f"Permission '{permission}' denied on resource '//aiplatform.googleapis.com/x' (or it may not exist)."
    return refusal(code, "PERMISSION_DENIED", text)


def missing_object(permission: str) -> httpx.Response:
    """Return Cloud Storage's refusal, which has no status word."""
    text = (
        f"me@my-project.iam.gserviceaccount.com does not have {permission} access to the Google Cloud Storage object."
        f" Permission '{permission}' denied on resource (or it may not exist)."
    )
    return httpx.Response(403, json={"error": {"code": 403, "message": text, "errors": [{"reason": "forbidden"}]}})


def job(state: str = "PENDING", **more: Any) -> dict[str, Any]:
    found = {
        "name": NAME,
        "displayName": TOKEN,
        "model": "publishers/google/models/gemini-2.5-flash",
        "inputConfig": {"instancesFormat": "jsonl", "gcsSource": {"uris": [INPUT]}},
        "outputConfig": {"gcsDestination": {"outputUriPrefix": f"{BUCKET}/{TOKEN}-output"}},
        "labels": {"batchpond": TOKEN},
        "createTime": "2026-11-21T10:00:00.1Z",
        "state": f"JOB_STATE_{state}",
    }
    return found | more


def stored(name: str, data: bytes = b"x", **more: Any) -> dict[str, Any]:
    """Return an object's metadata."""
    return {"name": name, "bucket": "my-bucket", "size": str(len(data)), "generation": "17"} | more
