"""Resumable uploads: start, upload, query, finalize, cancel, by the header `X-Goog-Upload-Command`.

What has arrived before a connection breaks is kept, so that a client can ask how much that is and
go on from there. The upload's own URL lets its bytes in; they need no key.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

from batchpond_sim.gemini.answers import named
from batchpond_sim.gemini.batches import FileRecord, GeminiAccount, Upload
from batchpond_sim.host.messages import CHUNK_BYTES, Answer, Break, BreakKind, Reply, Request
from batchpond_sim.shared.google import error_reply, reply, timestamp
from batchpond_sim.world.faults import Call, Stage, number
from batchpond_sim.world.world import World

FILE_MAX_BYTES = 2 << 30
GRANULARITY_BYTES = 8 << 20
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_ACTIVE = ("x-goog-upload-status", "active")
_PLAIN = ("content-type", "text/plain; charset=utf-8")
_FINAL = ("x-goog-upload-status", "final")


class UploadHandler:
    """Takes the uploads of one world."""

    def __init__(self, world: World, account: GeminiAccount) -> None:
        self._world = world
        self._account = account
        self._busy: set[str] = set()

    def handle(self, request: Request, call: Call, project: str, base_url: str) -> Answer:
        """Answer a start, or a command to an upload's own URL; `base_url` ends before the version."""
        version = _version(request)
        upload_id = request.query.get("upload_id")
        if upload_id is None:
            return self._start(request, call, project, f"{base_url}/upload/{version}/files")
        with self._world.lock:
            self._account.tick()
            upload = self._account.files.uploads.get(upload_id)
            if upload is None:
                return error_reply(404, "Upload has already been terminated or does not exist.")
            if upload.id in self._busy:
                return error_reply(409)
            self._busy.add(upload.id)
        try:
            return self._command(upload, request, call, f"{base_url}/{version}")
        finally:
            self._busy.discard(upload.id)

    def _start(self, request: Request, call: Call, project: str, url: str) -> Reply:
        header = request.headers.get
        protocol, command = (header(f"x-goog-upload-{name}", "").lower() for name in ("protocol", "command"))
        if protocol != "resumable" or command != "start":
            return error_reply(400, "This simulator takes resumable uploads: the command must be start.")
        body = request.read_json()
        file = named(named(body).get("file"))
        size = header("x-goog-upload-header-content-length")
        name = str(file.get("name") or "").removeprefix("files/")
        with self._world.lock:
            self._account.tick()
            refused = self._refused(file, name, size)
            if refused is not None:
                return refused
            upload = Upload(
                id=f"u{self._world.name('upload', call.n)}",
                n=self._account.files.uploads.next_n(),
                project=project,
                name=name or self._world.name("file", call.n)[:12],
                display_name=str(file.get("displayName") or ""),
                mime_type=str(header("x-goog-upload-header-content-type") or file.get("mimeType") or ""),
                size_bytes=None if size is None else int(size),
                created_s=self._world.now_s(),
                effects=call.values(Stage.EFFECT),
            )
            self._account.files.uploads.put(upload)
        own = f"{url}?upload_id={upload.id}&upload_protocol=resumable"
        return Reply(
            200,
            (
                _PLAIN,
                _ACTIVE,
                ("x-goog-upload-url", own),
                ("x-goog-upload-control-url", own),
                ("x-goog-upload-chunk-granularity", str(GRANULARITY_BYTES)),
            ),
            b"",
        )

    def _refused(self, file: dict[str, Any], name: str, size: str | None) -> Reply | None:
        if file.get("name") and not _NAME.fullmatch(name):
            text = (
                "* CreateFileRequest.file.name: File name may only contain lowercase alphanumeric characters or "
                "dashes (-), cannot begin or end with a dash, and has at most 40 characters.\n"
            )
            return error_reply(400, text)
        if name and name in self._account.files.records:
            return _taken(name)
        if size is not None and (not size.isdigit() or int(size) > FILE_MAX_BYTES):
            return error_reply(400, f"The file must have at most {FILE_MAX_BYTES} bytes.")
        return None

    def _command(self, upload: Upload, request: Request, call: Call, base_url: str) -> Answer:
        words = {word.strip() for word in request.headers.get("x-goog-upload-command", "").lower().split(",")}
        if words == {"query"}:
            return self._state(upload)
        if upload.status != "active":
            return error_reply(400, "Upload has already been terminated.")
        if words == {"cancel"}:
            return self._cancel(upload)
        if not words or words - {"upload", "finalize"}:
            return error_reply(400, "X-Goog-Upload-Command must be upload, finalize, query or cancel.")
        is_last = "finalize" in words
        stopped = self._take(upload, request, call, is_last=is_last) if "upload" in words else None
        if stopped is not None:
            return stopped
        return self._finalize(upload, base_url) if is_last else Reply(200, (_ACTIVE, _PLAIN), b"")

    def _cancel(self, upload: Upload) -> Reply:
        with self._world.lock:
            self._account.files.uploads.put(replace(upload, status="cancelled"))
            self._account.files.blob(upload.part).unlink(missing_ok=True)
        return Reply(200, (("x-goog-upload-status", "cancelled"),), b"")

    def _state(self, upload: Upload) -> Reply:
        size = ("x-goog-upload-size-received", str(self._account.files.received(upload)))
        return Reply(
            200, (("x-goog-upload-status", upload.status), *((size,) if upload.status == "active" else ())), b""
        )

    def _take(self, upload: Upload, request: Request, call: Call, *, is_last: bool) -> Answer | None:
        """Append a chunk; return the refusal, None when all is well."""
        received = self._account.files.received(upload)
        offset = request.headers.get("x-goog-upload-offset", "")
        if offset != str(received):
            return error_reply(400, f"The upload is at offset {received}, not at {offset[:20] or 'none'}.")
        most = FILE_MAX_BYTES if upload.size_bytes is None else upload.size_bytes
        is_cut, kept = call.value(Stage.EFFECT, "cut_upload")
        end = received
        with self._account.files.blob(upload.part).open("ab") as part:
            stop = received + int(number(kept)) if is_cut else most
            while end < stop and (chunk := request.body.read(min(CHUNK_BYTES, stop - end))):
                end += part.write(chunk)
        if is_cut:
            return Break(BreakKind.RESET)
        if request.body.read(1):
            return error_reply(400, f"More bytes than the {most} that were announced.")
        if not is_last and (end - received) % GRANULARITY_BYTES:
            return error_reply(400, f"Every chunk but the last must have a multiple of {GRANULARITY_BYTES} bytes.")
        return None

    def _finalize(self, upload: Upload, base_url: str) -> Reply:
        with self._world.lock:
            received = self._account.files.received(upload)
            if upload.size_bytes is not None and received != upload.size_bytes:
                return error_reply(400, f"The upload has {received} of {upload.size_bytes} bytes.")
            if upload.name in self._account.files.records:
                return _taken(upload.name)
            record = self._account.files.finish(upload, self._world.now_s())
            return reply(200, {"file": file_view(record, base_url)}, _FINAL)


def _version(request: Request) -> str:
    return "v1beta" if "/v1beta/" in request.path else "v1"


def _taken(name: str) -> Reply:
    body = error_reply(409, f"The file files/{name} already exists.", "ALREADY_EXISTS")
    return Reply(body.status, (*body.headers, _FINAL), body.body)


def file_view(file: FileRecord, base_url: str) -> dict[str, Any]:
    """Return a file as the API shows it; `base_url` has the version, such as `http://host/gemini/v1beta`."""
    view: dict[str, Any] = {
        "name": f"files/{file.id}",
        "displayName": file.display_name,
        "mimeType": file.mime_type,
        "sizeBytes": str(file.size_bytes),
        "createTime": timestamp(file.created_s),
        "updateTime": timestamp(file.created_s),
        "expirationTime": None if file.expires_s is None else timestamp(file.expires_s),
        # The service encodes the digest's hexadecimal form, not its bytes.
        "sha256Hash": base64.b64encode(file.sha256.encode("ascii")).decode("ascii"),
        "uri": f"{base_url}/files/{file.id}",
        "state": "ACTIVE",
        "source": file.source,
        "downloadUri": f"{base_url}/files/{file.id}:download?alt=media" if file.source == "GENERATED" else None,
    }
    return {name: value for name, value in view.items() if value not in (None, "")}
