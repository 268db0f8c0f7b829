"""Uploads to a simulated Cloud Storage: resumable ones in pieces, and those of one request.

What has arrived before a connection breaks is kept, so that a client can ask how much that is and
go on from there. A session's own address lets its bytes in; they need no key.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from batchpond_sim.faults.faults import Stage, number
from batchpond_sim.gemini.views import reply
from batchpond_sim.host.wire import CHUNK_BYTES, JSON_BODY_MAX_BYTES, Answer, Break, BreakKind, Reply, Request
from batchpond_sim.storage.store import SESSION_S, LocalStore, Target, Upload
from batchpond_sim.storage.views import error_reply, object_view, root_url
from batchpond_sim.world.world import Call, World

GRANULARITY_BYTES = 256 << 10
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BOUNDARY = re.compile(r"boundary=\"?([^\";]+)\"?")


class Uploads:
    """Takes the uploads of one world."""

    def __init__(self, world: World, store: LocalStore) -> None:
        self._world = world
        self._store = store
        self._busy: set[str] = set()

    def handle(self, request: Request, call: Call, project: str, bucket: str) -> Answer:
        """Answer the start of an upload, a piece of one, or a whole one."""
        upload_id = request.query.get("upload_id")
        if upload_id is None:
            return self._begun(request, call, project, bucket)
        with self._world.lock:
            upload = self._store.uploads.get(upload_id)
            if upload is None or upload.created_s + SESSION_S <= self._world.now_s():
                return error_reply(404, "No such upload.")
            if upload.id in self._busy:
                return error_reply(409)
            self._busy.add(upload.id)
        try:
            return self._piece(upload, request, call)
        finally:
            self._busy.discard(upload.id)

    def _begun(self, request: Request, call: Call, project: str, bucket: str) -> Answer:
        kind = request.query.get("uploadType", "")
        metadata: dict[str, Any] = {}
        content: bytes | None = None
        if kind == "resumable":
            metadata = request.read_json() or {}
        elif kind == "media":
            content = _whole(request)
        elif kind == "multipart":
            metadata, content = _parted(request)
        else:
            return error_reply(400, f"Unknown upload type {kind!r}.")
        size = request.headers.get("x-upload-content-length", "")
        upload = Upload(
            id=f"s{self._world.name('storage upload', call.n)}",
            n=self._store.uploads.next_n(),
            project=project,
            bucket=bucket,
            name=request.query.get("name") or str(metadata.get("name") or ""),
            content_type=str(
                metadata.get("contentType") or request.headers.get("x-upload-content-type") or "text/plain"
            ),
            size_bytes=int(size) if size.isdigit() else None,
            if_generation=_generation(request.query.get("ifGenerationMatch")),
            created_s=self._world.now_s(),
            effects={fault.kind: fault.value for fault in call.at(Stage.EFFECT)},
        )
        if not upload.name:
            return error_reply(400, "Required parameter: name")
        with self._world.lock:
            if not self._may_write(upload):
                return error_reply(412)
            self._store.uploads.put(upload)
        if content is None:
            own = f"{root_url(request)}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={upload.id}"
            return Reply(200, (("location", own), ("x-guploader-uploadid", upload.id)), b"")
        self._store.blob(upload.part).write_bytes(content)
        return self._finished(upload, request)

    def _may_write(self, upload: Upload) -> bool:
        """Whether the precondition of an upload holds now."""
        there = self._store.objects.get(Target("", upload.bucket, upload.name).id)
        if upload.if_generation is None:
            return True
        return upload.if_generation == (0 if there is None else there.generation)

    def _piece(self, upload: Upload, request: Request, call: Call) -> Answer:
        made = self._store.objects.get(upload.made)
        if made is not None:
            return reply(200, object_view(made, request))
        match = _RANGE.fullmatch(request.headers.get("content-range", "bytes 0-0/*"))
        if match is None:
            return error_reply(400, "Failed to parse Content-Range header.")
        first, last, total = match.groups()
        size = upload.size_bytes if total == "*" else int(total)
        if first is not None:
            stopped = self._taken(upload, request, call, int(first), int(last) + 1)
            if stopped is not None:
                return stopped
        received = self._store.received(upload)
        if size is not None and received == size:
            return self._finished(upload, request)
        return Reply(308, (("range", f"bytes=0-{received - 1}"),) if received else (), b"")

    def _taken(self, upload: Upload, request: Request, call: Call, first: int, end: int) -> Answer | None:
        """Append a piece; return the refusal, None when all is well."""
        received = self._store.received(upload)
        if first != received:
            return error_reply(400, f"Invalid request. There are {received} bytes, not {first}.")
        is_cut, kept = call.value(Stage.EFFECT, "cut_upload")
        stop = min(end, received + int(number(kept))) if is_cut else end
        with self._store.blob(upload.part).open("ab") as part:
            while received < stop and (chunk := request.body.read(min(CHUNK_BYTES, stop - received))):
                received += part.write(chunk)
        if is_cut:
            return Break(BreakKind.RESET)
        is_odd = received != end or request.body.read(1)
        is_last = upload.size_bytes is None or end == upload.size_bytes
        if is_odd or (not is_last and (end - first) % GRANULARITY_BYTES):
            return error_reply(400, f"Content-Range does not fit the body, or is no multiple of {GRANULARITY_BYTES}.")
        return None

    def _finished(self, upload: Upload, request: Request) -> Reply:
        with self._world.lock:
            if not self._may_write(upload):
                return error_reply(412)
            return reply(200, object_view(self._store.finish(upload), request))


def _generation(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _whole(request: Request) -> bytes:
    chunks = []
    size = 0
    while chunk := request.body.read(CHUNK_BYTES):
        size += len(chunk)
        if size > JSON_BODY_MAX_BYTES:
            raise orjson.JSONDecodeError(f"over {JSON_BODY_MAX_BYTES} bytes in one request", "", 0)
        chunks.append(chunk)
    return b"".join(chunks)


def _parted(request: Request) -> tuple[dict[str, Any], bytes]:
    """Return metadata and content of a `multipart/related` body."""
    match = _BOUNDARY.search(request.headers.get("content-type", ""))
    parts = _whole(request).split(b"--" + match[1].encode("latin-1")) if match else []
    if len(parts) != 4:
        raise orjson.JSONDecodeError("a multipart upload has two parts", "", 0)
    (_, _, head), (_, _, content) = (part.partition(b"\r\n\r\n") for part in parts[1:3])
    return orjson.loads(head), content.removesuffix(b"\r\n")
