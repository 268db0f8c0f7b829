"""A local Cloud Storage: the part of its JSON API that uploads, lists, reads and deletes objects.

Paths, codes, bodies and preconditions are those of the public API; see `storage_store` for which buckets there are.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from batchpond_sim.faults.delivery import delivered
from batchpond_sim.faults.faults import Call, Op, Stage, number
from batchpond_sim.host.wire import CHUNK_BYTES, JSON_BODY_MAX_BYTES, Answer, Break, BreakKind, Reply, Request
from batchpond_sim.shared.api import Route, routes
from batchpond_sim.shared.google import Paging, listing_of, page_of, reply, timestamp
from batchpond_sim.storage.store import FORBIDDEN, NO_BUCKET, SESSION_S, LocalStore, ObjectRecord, Target, Upload
from batchpond_sim.world.world import World

ROW_ID = b'"responseId":"'
_PAGING = Paging("maxResults", 1000, 1000)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_SLICE_MAX_BYTES = 64 << 20
_PERMISSION = {"GET": "get", "POST": "create", "PUT": "create", "DELETE": "delete"}


class StorageDesk:
    """The routes of one world's Cloud Storage, for the API that it is part of."""

    def __init__(self, world: World, store: LocalStore) -> None:
        self._world = world
        self._store = store
        self._busy: set[str] = set()

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the API's base path."""
        bucket, item = r"/storage/v1/b/([^/]+)", r"/storage/v1/b/([^/]+/o/.+)"
        return routes(
            ("POST", rf"/upload{bucket}/o", Op.FILES_CREATE, self._upload),
            ("PUT", rf"/upload{bucket}/o", Op.FILES_UPLOAD, self._upload),
            ("GET", rf"{bucket}/o", Op.FILES_LIST, self._list),
            ("GET", rf"(?:/download)?{item}", Op.FILES_GET, self._get),
            ("DELETE", item, Op.FILES_DELETE, self._delete),
            ("POST", r"/storage/v1/b", Op.ANY, self._make_bucket),
            ("GET", bucket, Op.ANY, self._get_bucket),
        )

    def operation(self, request: Request, op: Op) -> Op:
        """Return what a request does: bytes are read at the path of what is known of them."""
        return Op.FILES_CONTENT if op is Op.FILES_GET and request.query.get("alt") == "media" else op

    def _refused(self, request: Request, bucket: str, project: str, record: ObjectRecord | None = None) -> Reply | None:
        if NO_BUCKET in bucket:
            return no_bucket()
        if FORBIDDEN in bucket or (record is not None and record.project != project):
            return denied(_PERMISSION[request.method])
        return None

    def _upload(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        refused = self._refused(request, argument, project)
        if refused is not None:
            return refused
        return self._handled(request, call, project, argument)

    def _list(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        refused = self._refused(request, argument, project)
        if refused is not None:
            return denied("list") if FORBIDDEN in argument else refused
        with self._world.lock:
            hidden_s = number(call.value(Stage.VIEW, "stale_list")[1])
            now_s = self._world.now_s()
            found = {
                record.name: record
                for record in self._store.below(argument, request.query.get("prefix", ""))
                if record.project == project and max(record.listed_s, record.created_s + hidden_s) <= now_s
            }
            page = page_of(list(found), request, call, _PAGING)
            rows = [object_view(found[name], request) for name in page.ids]
            return reply(200, {"kind": "storage#objects", **listing_of("items", page, rows)})

    def _found(self, request: Request, project: str, argument: str) -> ObjectRecord | Reply:
        bucket, _, name = argument.partition("/o/")
        record = self._store.find(bucket, name)
        refused = self._refused(request, bucket, project, record)
        return refused or record or no_object(bucket, name)

    def _get(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            record = self._found(request, project, argument)
            if isinstance(record, Reply):
                return record
            if request.query.get("alt") != "media":
                return reply(200, object_view(record, request))
            if record.n_404 > 0:
                self._store.objects.put(replace(record, n_404=record.n_404 - 1))
                return no_object(record.bucket, record.name)
            part = _RANGE.fullmatch(request.headers.get("range", ""))
            path = self._store.blob(record.blob)
            answer = delivered(path, call, ROW_ID) if part is None else _slice(path, int(part[1]), part[2])
            hashed = ("x-goog-hash", f"md5={record.md5}"), ("x-goog-generation", str(record.generation))
            return replace(answer, headers=(*answer.headers, *hashed))

    def _delete(self, request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            record = self._found(request, project, argument)
            if isinstance(record, Reply):
                return record
            wanted = request.query.get("ifGenerationMatch")
            if wanted is not None and wanted != str(record.generation):
                return error_reply(412)
            self._store.drop(record)
            return Reply(204, (), b"")

    def _make_bucket(self, request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        body: dict[str, Any] = request.read_json() or {}
        return reply(200, bucket_view(str(body.get("name", ""))))

    def _get_bucket(self, request: Request, _call: Call, project: str, argument: str) -> Answer:
        return self._refused(request, argument, project) or reply(200, bucket_view(argument))

    def _handled(self, request: Request, call: Call, project: str, bucket: str) -> Answer:
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
            effects=call.values(Stage.EFFECT),
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
        match = _CONTENT_RANGE.fullmatch(request.headers.get("content-range", "bytes 0-0/*"))
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


def _slice(path: Path, first: int, last: str) -> Reply:
    """Return the part of an object that a client asks for."""
    size = path.stat().st_size
    if first >= size:
        return error_reply(416, "The requested range cannot be satisfied.")
    end = min(size, int(last) + 1 if last else size, first + _SLICE_MAX_BYTES)
    with path.open("rb") as file:
        file.seek(first)
        data = file.read(end - first)
    return Reply(206, (("content-range", f"bytes {first}-{end - 1}/{size}"),), data)


GRANULARITY_BYTES = 256 << 10
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BOUNDARY = re.compile(r"boundary=\"?([^\";]+)\"?")


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
