"""A local Together: files both ways, batches, models and chat completions, below `/together/v1`.

Paths, bodies and states are those of the public API (OpenAPI file of 2026-04-28, together 3.1, recorded traffic of
2026-09); `handle` is pure but for the world it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.host.messages import (
    CHUNK_BYTES,
    Answer,
    Break,
    BreakKind,
    Form,
    MultipartError,
    Reply,
    Request,
    json_reply,
)
from batchpond_sim.shared.api import FilesApi, PageError, Route, forced, openai_error, page_at, routes
from batchpond_sim.shared.batches import FileRecord, sha256_of, view_faults
from batchpond_sim.together.batches import CHAT, PROVIDER, SHAPE, WINDOW_S, BatchRecord, TogetherAccount, answer
from batchpond_sim.world.faults import Call, Op, Stage, Value, number
from batchpond_sim.world.limits import Quota, per_second_headers
from batchpond_sim.world.world import World, fingerprint

BASE_PATH = "/together"
MODELS = (
    "meta-llama/Llama-3.3-70B-Instruct-Turbo", "openai/gpt-oss-120b", "openai/gpt-oss-20b", "Qwen/Qwen3.5-9B",
    "moonshotai/Kimi-K3",
)  # fmt: skip


class TogetherSimulator(FilesApi[BatchRecord]):
    """The API of one world."""

    account: TogetherAccount
    row_id = SHAPE.row_id

    def __init__(self, world: World) -> None:
        self.account = TogetherAccount(world)
        super().__init__(world, PROVIDER, BASE_PATH, "proj_simulated", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("POST", r"/v1/files/upload", Op.FILES_CREATE, self._create_file),
            ("POST", r"/v1/files", Op.FILES_CREATE, self._announce),
            ("PUT", r"/storage/([^/]+)", Op.FILES_UPLOAD, self._put),
            ("POST", r"/v1/files/([^/]+)/preprocess", Op.FILES_GET, self._finish),
            ("GET", r"/v1/files", Op.FILES_LIST, self._list_files),
            ("GET", r"/v1/files/([^/]+)/content", Op.FILES_CONTENT, self._content),
            ("GET", r"/v1/files/([^/]+)", Op.FILES_GET, self._get_file),
            ("DELETE", r"/v1/files/([^/]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", r"/v1/batches", Op.BATCHES_CREATE, self._create_batch),
            ("GET", r"/v1/batches", Op.BATCHES_LIST, self._list_batches),
            ("POST", r"/v1/batches/([^/]+)/cancel", Op.BATCHES_CANCEL, self._cancel_batch),
            ("GET", r"/v1/batches/([^/]+)", Op.BATCHES_GET, self._get_batch),
            ("GET", r"/v1/models", Op.MODELS_LIST, self._models),
            ("POST", r"/v1/chat/completions", Op.LIVE, self._live),
        )

    def _refusal(self, request: Request, key: str, project: str | None) -> Reply | None:
        if request.method == "PUT":
            return text_error(400, "the storage takes no key beside a signed address") if key else None
        return no_key() if not key or project is None else None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        if kind == "billing":
            return text_error(402, _TEXTS[402])
        if kind == "file_not_ready":
            return text_error(status, "Failed to download input file: the storage answered 404")
        if status in (401, 403):
            return no_key(status)
        return text_error(status, _TEXTS.get(status, "Internal server error"))

    def _bad_json(self, _detail: str) -> Reply:
        return text_error(400, "Invalid request body")

    def _bad_page(self, error: PageError) -> Reply:
        return text_error(error.status, str(error))

    def _no_route(self, request: Request) -> Reply:
        return json_reply(404, openai_error(f"no route for {request.method} {request.path.removeprefix(BASE_PATH)}"))

    def _headers(self, request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("cf-ray", f"{request_id[:16]}-SIM"),)

    def _stamped(self, reply: Reply, request_id: str) -> Reply:
        if reply.status < 400 or not isinstance(reply.body, bytes) or not reply.body.startswith(b'{"error":"'):
            return reply
        return replace(reply, body=orjson.dumps(orjson.loads(reply.body) | {"request_id": request_id}))

    def _limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:
        return per_second_headers(quota)

    def _limited_reply(self, _quota: Quota) -> Reply:
        body = openai_error("You have reached the rate limit of this model.", "rate_limit")
        return json_reply(429, body | {"error_type": "dynamic_request_limited"})

    def _file_view(self, record: FileRecord) -> dict[str, Any]:
        return super()._file_view(record) | {
            "FileType": "jsonl",
            "LineCount": 0,
            "Processed": True,
            "processing_status": "COMPLETED",
        }

    def _view(self, batch: BatchRecord, now: float, call: Call) -> dict[str, Any]:
        return batch_view(batch, now, view_faults(batch, call))

    def _no_file(self, file_id: str) -> Reply:
        return no_file(file_id)

    def _no_batch(self, batch_id: str) -> Reply:  # noqa: ARG002
        return text_error(404, "Job not found")

    def _bad_form(self, detail: str) -> Reply:
        return text_error(400, detail)

    def _refused_form(self, form: Form, part: Path) -> Reply | None:  # noqa: ARG002
        return text_error(400, "file is required") if form.filename is None else _refused(form)

    def _announce(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Say where a file's bytes are to be put."""
        try:
            form = self._form(request, self._part(call))
        except MultipartError as error:
            return self._bad_form(f"the form could not be read: {error}")
        refused = _refused(form)
        if refused is not None:
            return refused
        sha256 = form.fields.get("checksum", "")
        with self._world.lock:
            same = self.account.same_content(project, sha256)
            if same is not None:
                return _same(same)
            draft = replace(self._file_draft(form, call, project), n=self.account.uploads.next_n(), sha256=sha256)
            self.account.uploads.put(draft)
        host = request.headers.get("host", "127.0.0.1")
        address = f"http://{host}/together/storage/{draft.id}?signature={self._world.name('signature', draft.id)}"
        return Reply(302, (("location", address), ("x-together-file-id", draft.id)), b"")

    def _put(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        """Take the bytes of an announced file; whoever has the address may put them."""
        upload = self.account.uploads.get(argument)
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
            part.replace(self.account.blob(upload.id))
            self.account.uploads.put(replace(upload, size_bytes=self.account.blob(upload.id).stat().st_size))
        return Reply(200, (), b"")

    def _finish(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        """Make a file object of an announced file whose bytes are there."""
        with self._world.lock:
            upload, blob = self.account.uploads.get(argument), self.account.blob(argument)
            if upload is None or upload.project != project or not blob.exists():
                return no_file(argument)
            record = self.account.keep(blob, upload, call)
            self.account.uploads.drop(argument)
            return json_reply(200, self._file_view(record))

    def _file_draft(self, form: Form, call: Call, project: str) -> FileRecord:
        name, purpose = form.fields.get("file_name") or form.filename or "", form.fields["purpose"]
        return FileRecord(f"file-{self._world.name('upload', call.n)}", 0, project, name, purpose, form.size_bytes, 0.0)

    def _kept(self, part: Path, draft: FileRecord, call: Call) -> Reply:
        with self._world.lock:
            same = self.account.same_content(draft.project, sha256_of(part))
            if same is not None:
                return _same(same)
            record = self.account.keep(part, draft, call)
            # What a fault has cut off is other content.
            record = replace(record, sha256=sha256_of(self.account.blob(record.id)))
            self.account.files.put(record)
            return json_reply(200, self._file_view(record))

    def _list_files(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            records = list(self.account.listed_files(project, now, call))
            _fail_if_asked(call)
            return json_reply(200, {"data": [self._file_view(record) for record in records]})

    def _create_batch(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body = request.read_json()
        refused = refused_batch(body)
        if refused is not None:
            return refused
        if call.has(Stage.EFFECT, "enqueued"):
            return text_error(429, "Too many tokens are waiting for this model. Please try again later.")
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.create(self._draft(body, call, project), call, fingerprint(request.bearer))
            if "delay_exec" in batch.effects:
                return Break(BreakKind.RESET)
            return json_reply(201, {"job": self._view(batch, now, call)})

    def _draft(self, body: dict[str, Any], call: Call, project: str) -> BatchRecord:
        digits = self._world.name("batch", call.n) + self._world.name("batch-tail", call.n)[:8]
        source = self.account.file(body["input_file_id"], project)
        return BatchRecord(
            id="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            project=project,
            endpoint=body["endpoint"],
            input_file_id=body["input_file_id"],
            first_custom_id=self.account.first_custom_id(body["input_file_id"]),
            file_size_bytes=0 if source is None else source.size_bytes,
        )

    def _list_batches(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Return all batches as a bare array, in no order that anybody could rely on."""
        with self._world.lock:
            now = self.account.tick()
            batches = sorted(self.account.listed(project, now, call), key=lambda batch: batch.id)
            _fail_if_asked(call)
            return json_reply(200, [self._view(batch, now, call) for batch in batches])

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return self._no_batch(argument)
            if batch.is_ended:
                return text_error(409, f"Cannot cancel job - already in terminal state: {batch.status(now)}")
            changed = self.account.cancel(batch, call, now)
            if changed is None:
                return text_error(409, "Cannot cancel job - it is being completed")
            return json_reply(200, self._view(changed, now, call))

    def _models(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        return json_reply(200, [{"id": name, "object": "model", "created": 0, "type": "chat"} for name in MODELS])

    def _live(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or body.get("stream"):
            return json_reply(400, openai_error("This simulator takes JSON objects without streaming."))
        said = answer(body, self.live_key(body), self._world.panel, int(self._world.now_s()), forced(call))
        if said.is_success:
            self.bill_live(call, str(body["model"]), said.input_tokens, said.output_tokens)
        return json_reply(said.status, said.body)


def _fail_if_asked(call: Call) -> None:
    """Raise PageError where a fault makes the only page of a listing fail; other faults of paging mean nothing here."""
    page_at((), 0, 1, call)


PURPOSES = frozenset(
    {"fine-tune", "eval", "eval-sample", "eval-output", "eval-summary", "batch-generated", "batch-api"}
)


def _refused(form: Form) -> Reply | None:
    if form.fields.get("purpose") not in PURPOSES:
        return text_error(400, f"Invalid purpose: expected one of {', '.join(sorted(PURPOSES))}")
    return None if form.fields.get("file_name") else text_error(400, "file_name is required")


def _same(record: FileRecord) -> Reply:
    return json_reply(409, {"error": "File already exists", "file_id": record.id})


ENDPOINTS = (CHAT, "/v1/audio/transcriptions", "/v1/audio/translations")
ORGANIZATION = "org-simulated"
_TEXTS: Mapping[int, str] = {
    400: "Bad request",
    402: "Insufficient credits: add some to go on.",
    404: "Not found",
    409: "The request conflicts with another one.",
    429: "Too many requests. Please try again later.",
    503: "The model is overloaded. Please try again later.",
}


def text_error(status: int, message: str) -> Reply:
    """Return an error of the batch API, which is bare text."""
    return json_reply(status, {"error": message})


def no_key(status: int = 401) -> Reply:
    """Return the refusal of a missing or wrong key."""
    text = "Invalid API key provided. You can find your API key at https://api.together.ai/settings/api-keys."
    return json_reply(status, openai_error(text, code="invalid_api_key"))


def no_file(file_id: str) -> Reply:
    """Return the answer about a file that is not there."""
    return json_reply(404, {"error": {"message": f"File {file_id} not found", "type": "not_found"}})


def batch_view(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a job as the API shows it, or as `faults` make it look: what is not there is no member at all."""
    is_regressed = "regress" in faults and batch.is_ended
    has_ended = batch.is_ended and not is_regressed
    status = "IN_PROGRESS" if is_regressed else batch.status(now)
    created_s = batch.created_s + number(faults.get("clock_skew"))
    absent = "" if "error_file_empty_string" in faults else None
    later = {
        "model_id": batch.model,
        "output_file_id": (batch.output_file_id or absent) if has_ended else absent,
        "error_file_id": (batch.error_file_id or absent) if has_ended else absent,
        "error": batch.error if has_ended else None,
        "completed_at": _moment(batch.done_s) if has_ended else None,
    }
    return {
        "id": batch.id,
        "user_id": "user-simulated",
        "project_id": batch.project,
        "organization_id": ORGANIZATION,
        "input_file_id": batch.input_file_id,
        "file_size_bytes": batch.file_size_bytes,
        "status": str(faults["status_word"]) if "status_word" in faults else status,
        "job_deadline": _moment(created_s + WINDOW_S),
        "created_at": _moment(created_s),
        "endpoint": batch.endpoint,
        "progress": 100.0 if has_ended else round(100 * batch.share_done(now), 1),
        **{name: value for name, value in later.items() if value is not None},
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def refused_batch(body: Any) -> Reply | None:
    """Return the immediate refusal of a create call, None when it is accepted (to fail later, maybe)."""
    if not isinstance(body, dict):
        return text_error(400, "Invalid request body")
    if not isinstance(body.get("input_file_id"), str) or not body["input_file_id"]:
        return text_error(400, "input_file_id is required")
    if body.get("endpoint") not in ENDPOINTS:
        return text_error(400, f"Invalid endpoint: expected one of {', '.join(ENDPOINTS)}")
    return None
