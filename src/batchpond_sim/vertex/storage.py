"""A local Cloud Storage: its objects, and the part of its JSON API that uploads, lists, reads and deletes them.

Paths, codes, bodies and preconditions are those of the public API. Every bucket is there, but for those with `no-such`
in their names; in those with `forbidden` the caller may do nothing, and those with `no-agent` the service agent of
Vertex AI cannot write to.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import orjson

from batchpond_sim import SimulatorError
from batchpond_sim.host.messages import CHUNK_BYTES, JSON_BODY_MAX_BYTES, Answer, Break, BreakKind, Reply, Request
from batchpond_sim.shared.api import Route, routes
from batchpond_sim.shared.batches import Records
from batchpond_sim.shared.delivery import delivered
from batchpond_sim.shared.google import Paging, listing_of, page_of, reply, timestamp
from batchpond_sim.world.faults import Call, Op, Stage, Value, number
from batchpond_sim.world.world import World

SESSION_S = 7 * 86_400
_TIMEOUT_S = 30.0
NO_BUCKET, FORBIDDEN, NO_AGENT = "no-such", "forbidden", "no-agent"


class NoBucketError(LookupError):
    """There is no bucket of that name."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where an object is, and whose key put it there."""

    project: str
    bucket: str
    name: str

    @property
    def id(self) -> str:
        """What stands for the place in file names."""
        return hashlib.sha256(f"{self.bucket}/{self.name}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """The live version of an object; its bytes are in the blob of the same generation."""

    id: str
    n: int
    project: str
    bucket: str
    name: str
    content_type: str
    size_bytes: int
    md5: str
    created_s: float
    listed_s: float = 0.0
    n_404: int = 0

    @property
    def generation(self) -> int:
        """The number of this version."""
        return int(self.created_s * 1e6) * 1_000 + self.n % 1_000

    @property
    def blob(self) -> str:
        """The name of the file with its bytes."""
        return f"{self.id}.{self.n}"


@dataclass(frozen=True, slots=True)
class Upload:
    """A resumable upload; what has arrived is in its part. `made` is the object's id once it is whole."""

    id: str
    n: int
    project: str
    bucket: str
    name: str
    content_type: str
    size_bytes: int | None
    if_generation: int | None
    created_s: float
    effects: dict[str, Value] = field(default_factory=dict)
    made: str = ""

    @property
    def part(self) -> str:
        """The name of the file that grows."""
        return f"{self.id}.part"

    @property
    def target(self) -> Target:
        """Where the object will be."""
        return Target(self.project, self.bucket, self.name)


class ObjectStore(Protocol):
    """What a job needs of Cloud Storage."""

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none. Raises NoBucketError."""

    def put(self, target: Target, source: Path, n_404: int) -> None:
        """Store a copy of a file; its first `n_404` downloads will find nothing. Raises NoBucketError."""


class LocalStore:
    """All objects of a world, in memory and in its folder."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._blobs = world.folder("storage", "blobs")
        self.objects: Records[ObjectRecord] = Records(world.folder("storage", "objects"), ObjectRecord)
        self.uploads: Records[Upload] = Records(world.folder("storage", "uploads"), Upload)

    def blob(self, name: str) -> Path:
        """Return where bytes are."""
        return self._blobs / name

    def find(self, bucket: str, name: str) -> ObjectRecord | None:
        """Return an object, None when there is none."""
        return self.objects.get(Target("", bucket, name).id)

    def below(self, bucket: str, prefix: str) -> Iterator[ObjectRecord]:
        """Yield the objects of a bucket whose names begin so, by name."""
        found = [record for record in self.objects if record.bucket == bucket and record.name.startswith(prefix)]
        yield from sorted(found, key=lambda record: record.name)

    def received(self, upload: Upload) -> int:
        """Return how many bytes of an upload are here."""
        path = self.blob(upload.part)
        return path.stat().st_size if path.exists() else 0

    def finish(self, upload: Upload) -> ObjectRecord:
        """Turn a complete upload into an object, or as much of it as its faults allow."""
        path = self.blob(upload.part)
        path.touch()
        if "store" in upload.effects:
            with path.open("r+b") as file:
                file.truncate(int(path.stat().st_size * number(upload.effects["store"])))
        listed_s = self._world.now_s() + number(upload.effects.get("stale_list"))
        record = self.keep(upload.target, path, upload.content_type, listed_s=listed_s)
        self.uploads.put(replace(upload, made=record.id))
        return record

    def keep(
        self, target: Target, part: Path, content_type: str, *, listed_s: float = 0.0, n_404: int = 0
    ) -> ObjectRecord:
        """Make a file, which it takes over, the live version of an object."""
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
        record = ObjectRecord(
            target.id, self.objects.next_n(), target.project, target.bucket, target.name, content_type,
            part.stat().st_size, base64.b64encode(digest).decode("ascii"), self._world.now_s(), listed_s, n_404,
        )  # fmt: skip
        old = self.objects.get(record.id)
        part.replace(self.blob(record.blob))
        self.objects.put(record)
        if old is not None:
            self.blob(old.blob).unlink(missing_ok=True)
        return record

    def drop(self, record: ObjectRecord) -> None:
        """Delete an object."""
        self.objects.drop(record.id)
        self.blob(record.blob).unlink(missing_ok=True)

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none. Raises NoBucketError."""
        _check(bucket)
        record = self.find(bucket, name)
        if record is not None:
            shutil.copyfile(self.blob(record.blob), path)
        return record is not None

    def put(self, target: Target, source: Path, n_404: int) -> None:
        """Store a copy of a file; its first `n_404` downloads will find nothing. Raises NoBucketError."""
        _check(target.bucket)
        part = self.blob(f"{target.id}.copy.part")
        shutil.copyfile(source, part)
        self.keep(target, part, "application/octet-stream", n_404=n_404)


def _check(bucket: str) -> None:
    if NO_BUCKET in bucket:
        raise NoBucketError(bucket)


class RemoteStore:
    """The objects behind an emulator's JSON API, such as `http://127.0.0.1:9023`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise SimulatorError(
                f"{url!r} is not the address of a storage emulator", hint="write http://127.0.0.1:9023"
            )
        self._host, self._port, self._path = parts.hostname, parts.port or 80, parts.path.rstrip("/")

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none."""
        connection = self._connection()
        try:
            connection.request("GET", f"{self._path}/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media")
            answer = connection.getresponse()
            if answer.status != 200:
                return False
            with path.open("wb") as file:
                shutil.copyfileobj(answer, file)
        finally:
            connection.close()
        return True

    def put(self, target: Target, source: Path, n_404: int) -> None:  # noqa: ARG002  # faults are not the emulator's
        """Store a copy of a file; raises NoBucketError where the emulator will not have it."""
        query = f"uploadType=media&name={quote(target.name, safe='')}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(source.stat().st_size)}
        connection = self._connection()
        try:
            with source.open("rb") as file:
                path = f"{self._path}/upload/storage/v1/b/{target.bucket}/o?{query}"
                connection.request("POST", path, body=file, headers=headers)
                status = connection.getresponse().status
        finally:
            connection.close()
        if status != 200:
            raise NoBucketError(target.bucket)

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)


BASE_PATH = "/vertex"
CALLER = "caller@simulated-project.iam.gserviceaccount.com"
ROW_ID = b'"responseId":"'
GRANULARITY_BYTES = 256 << 10
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BOUNDARY = re.compile(r"boundary=\"?([^\";]+)\"?")
_PAGING = Paging("maxResults", 1000, 1000)
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_SLICE_MAX_BYTES = 64 << 20
_PERMISSION = {"GET": "get", "POST": "create", "PUT": "create", "DELETE": "delete"}


class StorageRoutes:
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
        there = self._store.find(upload.bucket, upload.name)
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
