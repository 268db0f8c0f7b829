"""The files of a simulated Gemini project: uploads under way, what was uploaded, what batches wrote.

Uploads are resumable: start, upload, query, finalize, cancel, by the header `X-Goog-Upload-Command`. What has arrived
before a connection breaks is kept, so that a client can ask how much that is and go on from there. The upload's own URL
lets its bytes in; they need no key.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from batchpond_sim.gemini.answers import Family, answer, known_family, malformed, named, prompt_tokens
from batchpond_sim.host.messages import CHUNK_BYTES, Answer, Break, BreakKind, Reply, Request
from batchpond_sim.judges.judge import Panel
from batchpond_sim.shared.batches import Account, Batch, End, Records, RowsError
from batchpond_sim.shared.google import error_reply, reply, timestamp
from batchpond_sim.shared.rows import (
    AnsweredRow,
    NotRun,
    Outputs,
    RowCount,
    RowPlan,
    Shape,
    dump_row,
    loaded,
    numbered_lines,
    request_key,
    write_rows,
)
from batchpond_sim.world.faults import Call, Stage, Value, number
from batchpond_sim.world.world import World

RETENTION_S = 48 * 3600
UPLOADED = "UPLOADED"
GENERATED = "GENERATED"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file; its bytes are in the blob of the same id. `sha256` is hexadecimal."""

    id: str
    n: int
    project: str
    display_name: str
    mime_type: str
    size_bytes: int
    created_s: float
    expires_s: float | None = None
    sha256: str = ""
    source: str = UPLOADED
    listed_s: float = 0.0
    n_404: int = 0


@dataclass(frozen=True, slots=True)
class Upload:
    """A resumable upload; what has arrived is in the blob `part`. `status` is active, final or cancelled."""

    id: str
    n: int
    project: str
    name: str
    display_name: str
    mime_type: str
    size_bytes: int | None
    created_s: float
    status: str = "active"
    effects: dict[str, Value] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """The name of the blob that grows."""
        return f"{self.id}.part"


class Files:
    """All files and uploads, in memory and in the world's folder; `blob` says where bytes are."""

    def __init__(self, world: World, provider: str, blob: Callable[[str], Path]) -> None:
        self.blob = blob
        self.records: Records[FileRecord] = Records(world.folder(provider, "files"), FileRecord)
        self.uploads: Records[Upload] = Records(world.folder(provider, "uploads"), Upload)

    def drop(self, file_id: str) -> None:
        """Delete a file and its bytes."""
        self.records.drop(file_id)
        self.blob(file_id).unlink(missing_ok=True)

    def expire(self, now_s: float) -> None:
        """Delete the files and the uploads whose time is over."""
        for file in [file for file in self.records if file.expires_s is not None and file.expires_s <= now_s]:
            self.drop(file.id)
        for upload in [upload for upload in self.uploads if upload.created_s + RETENTION_S <= now_s]:
            self.uploads.drop(upload.id)
            self.blob(upload.part).unlink(missing_ok=True)

    def find(self, file_id: str, project: str) -> FileRecord | None:
        """Return a project's file, None when there is none."""
        file = self.records.get(file_id)
        return None if file is None or file.project != project else file

    def received(self, upload: Upload) -> int:
        """Return how many bytes of an upload are here."""
        path = self.blob(upload.part)
        return path.stat().st_size if path.exists() else 0

    def finish(self, upload: Upload, now_s: float) -> FileRecord:
        """Turn a complete upload into a file."""
        path = self.blob(upload.part)
        path.touch()
        if "store" in upload.effects:
            with path.open("r+b") as file:
                file.truncate(int(path.stat().st_size * number(upload.effects["store"])))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        record = FileRecord(
            upload.name, self.records.next_n(), upload.project, upload.display_name, upload.mime_type,
            path.stat().st_size, now_s, now_s + RETENTION_S, digest,
            listed_s=now_s + number(upload.effects.get("stale_list")),
        )  # fmt: skip
        path.replace(self.blob(record.id))
        self.records.put(record)
        self.uploads.put(replace(upload, status="final"))
        return record


SHAPE = Shape("key", b'"responseId":"', ("response", "usageMetadata"), (b'{"text":"',))

_LINE_FIELDS = frozenset({"key", "request", "metadata"})
_RPC_CODES = {400: 3, 403: 7, 404: 5, 429: 8, 500: 13, 503: 14, 504: 4}
_NOT_RUN = {NotRun.EXPIRED: "The batch expired before this request.", NotRun.CANCELLED: "The batch was cancelled."}


class LineError(RowsError):
    """The first thing wrong with the input; nothing is created."""


@dataclass(frozen=True, slots=True)
class GeminiSpeaker:
    """Answers requests to one model; `is_status_row` puts errors in `status` with codes of google.rpc."""

    model: str
    family: Family
    panel: Panel
    is_status_row: bool = False

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request, given its line."""
        key = request_key(custom_id) or str(i)
        said = answer(self.model, self.family, body["request"], key, self.panel, force)
        part = {"response": said.body} if said.is_success else self._error(said.body)
        row = dump_row({**_head(body), **part})
        return AnsweredRow.of(row, said)

    def not_run(self, _i: int, custom_id: str, why: NotRun) -> bytes:
        """Return the row of a request that was not run."""
        head = {"key": custom_id} if custom_id else {}
        return dump_row({**head, **self._error({"code": 499, "message": _NOT_RUN[why], "status": "CANCELLED"})})

    def _error(self, error: dict[str, Any]) -> dict[str, Any]:
        if self.is_status_row:
            return {"status": {"code": _RPC_CODES.get(error["code"], 2), "message": error["message"]}}
        return {"error": {"code": error["code"], "message": error["message"], "details": []}}


def _head(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in ("key", "metadata") if name in line}


def lines_of(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the requests of an input file; raises LineError at the first bad line or for none at all."""
    n = 0
    for n, line in numbered_lines(source):
        yield _checked(line, f"line {n}")
    if n == 0:
        raise LineError("The input file has no requests.")


def _checked(line: bytes, where: str) -> tuple[str, dict[str, Any]]:
    data = loaded(line)
    if not isinstance(data, dict):
        raise LineError(f"Invalid JSON in the input file at {where}.")
    unknown = min(data.keys() - _LINE_FIELDS, default=None)
    if unknown is not None:
        raise LineError(f'Invalid input at {where}: Unknown name "{unknown}": Cannot find field.')
    key = data.get("key", "")
    if not isinstance(key, str):
        raise LineError(f"Invalid value at {where}, 'key' (TYPE_STRING): {key!r}")
    wrong = malformed(data.get("request"))
    if wrong is not None:
        raise LineError(f"Invalid request at {where}: {wrong.strip()}")
    return key, data


def counted_lines(source: Path, family: Family) -> tuple[int, int]:
    """Return the number of requests and of their prompt tokens; raises LineError at the first bad line."""
    n = tokens = 0
    for _, line in lines_of(source):
        n += 1
        tokens += prompt_tokens(line["request"], family)
    return n, tokens


def write_inlined(requests: Any, path: Path) -> None:
    """Store the requests of a create call as lines; raises LineError where they are none."""
    rows = named(requests).get("requests")
    if not isinstance(rows, list) or not rows:
        raise LineError("* BatchGenerateContentRequest.batch.input_config.requests: requests is not specified")
    with path.open("wb") as file:
        for i, row in enumerate(rows):
            line = row if isinstance(row, dict) else {}
            metadata = line.get("metadata")
            if (metadata is not None and not isinstance(metadata, dict)) or line.keys() - {"request", "metadata"}:
                raise LineError(f"Invalid value at 'batch.input_config.requests.requests[{i}]'.")
            key = (metadata or {}).get("key")
            head: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
            if isinstance(key, str):
                head["key"] = key
            file.write(dump_row({**head, "request": line.get("request")}) + b"\n")


def inlined(path: Path, words: frozenset[str]) -> list[dict[str, Any]]:
    """Return result rows as the members of `inlinedResponses`, or as the words of a fault have them.

    `reordered` turns their order round, `no_metadata` leaves out what says which is which.
    """
    responses: list[dict[str, Any]] = []
    with path.open("rb") as rows:
        for row in rows:
            data = loaded(row)
            if data is None:
                continue  # a row that was spoiled on purpose has no place in a JSON object
            metadata = data.get("metadata") or ({"key": data["key"]} if "key" in data else None)
            body = {name: data[name] for name in ("response", "error", "status") if name in data}
            if metadata is not None and "no_metadata" not in words:
                body["metadata"] = metadata
            responses.append(body)
    return responses[::-1] if "reordered" in words else responses


PROVIDER = "gemini"
WINDOW_S = 48 * 3600
MAX_OPEN = 100
SUCCEEDED = "succeeded"
ENDED = frozenset({SUCCEEDED, "failed", "expired", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Batch):
    """A batch of one model; `input_file_id` has `files/` before it and is empty for requests sent along."""

    display_name: str = ""
    priority: int = 0
    is_inline: bool = False
    is_deleted: bool = False
    output_file_id: str | None = None
    error: str = ""

    def state(self, now_s: float) -> str:
        """Return the state at a time, in lower case and without `BATCH_STATE_`."""
        if self.is_ended:
            return SUCCEEDED if self.end == End.COMPLETED else str(self.end)
        return "running" if self.is_validated and self.valid_s <= now_s else "pending"

    def changed_s(self, now_s: float) -> float:
        """Return when the state at a time began."""
        if self.is_ended:
            return self.done_s
        return self.valid_s if self.state(now_s) == "running" else self.created_s


class GeminiAccount(Account[BatchRecord]):
    """All files, uploads and batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)
        self.files = Files(world, PROVIDER, self.blob)

    def tick(self) -> float:
        """Make every change that is due by now, and return the time."""
        now_s = super().tick()
        self.files.expire(now_s)
        return now_s

    def open_count(self, project: str) -> int:
        """Return how many batches of a project have not ended."""
        return sum(self.batches[batch_id].project == project for batch_id in self._open)

    def begin(self, batch: BatchRecord) -> None:
        """Answer all requests, or fail."""
        code = batch.effects.get("fail")
        if isinstance(code, str):
            self.fail(batch, error=code)
        else:
            super().begin(batch)

    def _planned(self, batch: BatchRecord) -> BatchRecord:
        word = batch.effects.get("stuck")
        planned = super()._planned(batch)
        deadline = batch.created_s + WINDOW_S
        if word in ("pending", "validating"):
            return replace(planned, valid_s=deadline, ran_s=deadline, done_s=deadline, end=End.EXPIRED, done_share=0.0)
        if word is not None:
            return replace(planned, ran_s=deadline, done_s=deadline, end=End.EXPIRED)
        return planned

    def plan(self, batch: BatchRecord) -> RowPlan:
        """Return how rows are made: in the order of the input."""
        plan = super().plan(batch)
        return replace(plan, mutations=(*plan.mutations, ("in_order", None)))

    def input_of(self, batch_id: str) -> str:
        """Return the name of the blob that keeps a batch's requests, whatever becomes of the file."""
        return f"{batch_id}.input"

    def create_over(self, draft: BatchRecord, call: Call, key: str, source: Path) -> BatchRecord:
        """Store a new batch whose requests are in the file `source`, which it takes over."""
        source.replace(self.blob(self.input_of(draft.id)))
        return self.create(draft, call, key)

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write the rows of a batch."""
        status_rows = any(kind == "status_rows" for kind, _ in plan.mutations)
        speaker = GeminiSpeaker(batch.model or "", known_family(batch.model or ""), self.world.panel, status_rows)
        outputs = Outputs(self.part(batch, "output"), None, SHAPE)
        return write_rows(lines_of(self.blob(self.input_of(batch.id))), outputs, plan, speaker)

    def publish(self, batch: BatchRecord) -> BatchRecord:
        """Make the output of a batch that has succeeded available."""
        if batch.end == End.EXPIRED:
            return replace(batch, is_counted=False)  # nobody pays for answers that nobody can have
        if batch.end != End.COMPLETED or batch.is_deleted or "empty_output" in batch.effects:
            return batch
        name = f"batch-{batch.id}"
        part = self.part(batch, "output")
        if part.exists():
            part.replace(self.blob(name))
        if not batch.is_inline and name not in self.files.records:
            n_404 = int(number(batch.effects.get("results_404")))
            record = FileRecord(
                name, self.files.records.next_n(), batch.project, batch.display_name, "application/jsonl",
                self.blob(name).stat().st_size, batch.done_s, source=GENERATED, n_404=n_404,
            )  # fmt: skip
            self.files.records.put(record)
        return replace(batch, output_file_id=name)

    def clear(self, batch: BatchRecord) -> None:
        """Remove the parts and the requests of an ended batch."""
        super().clear(batch)
        self.blob(self.input_of(batch.id)).unlink(missing_ok=True)

    def find(self, batch_id: str, project: str, now_s: float) -> BatchRecord | None:
        """Return a batch that exists by now in a project and was not deleted, None otherwise."""
        batch = super().find(batch_id, project, now_s)
        return None if batch is None or batch.is_deleted else batch

    def listed(self, project: str, now_s: float, call: Call) -> list[BatchRecord]:
        """Return what a listing shows, newest first."""
        return [batch for batch in super().listed(project, now_s, call) if not batch.is_deleted]

    def delete(self, batch: BatchRecord) -> None:
        """Delete the record of a batch and its output; what is running runs on, and is billed."""
        if batch.output_file_id is not None:
            self.files.drop(batch.output_file_id)
        self.put(replace(batch, is_deleted=True, output_file_id=None))


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
