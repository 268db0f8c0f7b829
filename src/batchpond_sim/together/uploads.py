"""Uploading to a simulated Together: in one form, or announced, put to a signed address and finished.

What is there already is not stored twice: the answer is 409 and the file's id.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from batchpond_sim.host.multipart import Form, MultipartError, read_form
from batchpond_sim.host.wire import CHUNK_BYTES, Answer, Reply, Request, json_reply
from batchpond_sim.shared.filed import FileRecord, sha256_of
from batchpond_sim.together.life import TogetherAccount
from batchpond_sim.together.views import file_view, no_file, text_error
from batchpond_sim.world.world import Call, World

FILE_MAX_BYTES = 512 << 20
PURPOSES = frozenset(
    {"fine-tune", "eval", "eval-sample", "eval-output", "eval-summary", "batch-generated", "batch-api"}
)


class Uploads:
    """The ways into the files of one world."""

    def __init__(self, world: World, account: TogetherAccount) -> None:
        self._world = world
        self._account = account

    def direct(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Take a file in one form."""
        part = self._part(call)
        try:
            form = read_form(request.headers.get("content-type", ""), request.body, part, FILE_MAX_BYTES)
            if form.filename is None:
                return text_error(400, "file is required")
            return _refused(form) or self._kept(part, self._draft(form, call, project, form.size_bytes), call)
        except MultipartError as error:
            return text_error(400, f"The form could not be read: {error}")
        finally:
            part.unlink(missing_ok=True)

    def announce(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Say where a file's bytes are to be put."""
        try:
            form = read_form(request.headers.get("content-type", ""), request.body, self._part(call), FILE_MAX_BYTES)
        except MultipartError as error:
            return text_error(400, f"The form could not be read: {error}")
        refused = _refused(form)
        if refused is not None:
            return refused
        sha256 = form.fields.get("checksum", "")
        with self._world.lock:
            same = self._account.same_content(project, sha256)
            if same is not None:
                return _same(same)
            draft = replace(self._draft(form, call, project, 0), n=self._account.uploads.next_n(), sha256=sha256)
            self._account.uploads.put(draft)
        host = request.headers.get("host", "127.0.0.1")
        address = f"http://{host}/together/storage/{draft.id}?signature={self._world.name('signature', draft.id)}"
        return Reply(302, (("location", address), ("x-together-file-id", draft.id)), b"")

    def put(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        """Take the bytes of an announced file; whoever has the address may put them."""
        upload = self._account.uploads.get(argument)
        if upload is None or request.query.get("signature") != self._world.name("signature", argument):
            return text_error(403, "the signature does not match")
        part = self._part(call)
        with part.open("wb") as out:
            while chunk := request.body.read(CHUNK_BYTES):
                out.write(chunk)
        if upload.sha256 and sha256_of(part) != upload.sha256:
            part.unlink()
            return text_error(400, "the content does not have the checksum that was announced")
        with self._world.lock:
            part.replace(self._account.blob(upload.id))
            self._account.uploads.put(replace(upload, size_bytes=self._account.blob(upload.id).stat().st_size))
        return Reply(200, (), b"")

    def finish(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        """Make a file object of an announced file whose bytes are there."""
        with self._world.lock:
            upload, blob = self._account.uploads.get(argument), self._account.blob(argument)
            if upload is None or upload.project != project or not blob.exists():
                return no_file(argument)
            record = self._account.keep(blob, upload, call)
            self._account.uploads.drop(argument)
            return json_reply(200, file_view(record))

    def _part(self, call: Call) -> Path:
        return self._account.blob(f"upload-{call.n}.part")

    def _draft(self, form: Form, call: Call, project: str, size_bytes: int) -> FileRecord:
        name, purpose = form.fields.get("file_name") or form.filename or "", form.fields["purpose"]
        return FileRecord(f"file-{self._world.name('upload', call.n)}", 0, project, name, purpose, size_bytes, 0.0)

    def _kept(self, part: Path, draft: FileRecord, call: Call) -> Reply:
        with self._world.lock:
            same = self._account.same_content(draft.project, sha256_of(part))
            if same is not None:
                return _same(same)
            record = self._account.keep(part, draft, call)
            # What a fault has cut off is other content.
            record = replace(record, sha256=sha256_of(self._account.blob(record.id)))
            self._account.files.put(record)
            return json_reply(200, file_view(record))


def _refused(form: Form) -> Reply | None:
    if form.fields.get("purpose") not in PURPOSES:
        return text_error(400, f"Invalid purpose: expected one of {', '.join(sorted(PURPOSES))}")
    return None if form.fields.get("file_name") else text_error(400, "file_name is required")


def _same(record: FileRecord) -> Reply:
    return json_reply(409, {"error": "File already exists", "file_id": record.id})
