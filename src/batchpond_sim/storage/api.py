"""A local Cloud Storage: the part of its JSON API that uploads, lists, reads and deletes objects.

Paths, codes, bodies and preconditions are those of the public API; see `storage_store` for which buckets there are.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchpond_sim.faults.delivery import delivered
from batchpond_sim.faults.faults import Op, Stage, number
from batchpond_sim.gemini.views import reply
from batchpond_sim.host.wire import Answer, Reply, Request
from batchpond_sim.shared.api import Route, routes
from batchpond_sim.shared.token_pages import Paging, listing_of, page_of
from batchpond_sim.storage.store import FORBIDDEN, NO_BUCKET, LocalStore, ObjectRecord
from batchpond_sim.storage.uploads import Uploads
from batchpond_sim.storage.views import bucket_view, denied, error_reply, no_bucket, no_object, object_view
from batchpond_sim.world.world import Call, World

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
        self._uploads = Uploads(world, store)

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
        return self._uploads.handle(request, call, project, argument)

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
