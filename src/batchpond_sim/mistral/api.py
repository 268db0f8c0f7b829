"""A local Mistral: files, batch jobs, models and chat completions, below `/mistral/v1`, and what models say.

Paths, bodies and states are those of the public API (OpenAPI file of 2026-08, mistralai 3.7, recorded traffic of 2026);
a model that thinks answers in parts, and error texts are those that the API was seen to give. Lines of an input file
are checked when it is uploaded. `handle` is pure but for the world it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from batchpond_sim.host.messages import Answer, Break, BreakKind, Form, Reply, Request, json_reply
from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.shared.api import FilesApi, PageError, Route, forced, page_at, routes
from batchpond_sim.shared.batches import FiledBatch, FileRecord, FilesAccount, RowsError, counted, view_faults
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
from batchpond_sim.world.faults import Call, Op, Value, number
from batchpond_sim.world.limits import Quota
from batchpond_sim.world.world import World, fingerprint

TEMPERATURE_MAX = 1.5
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_ROLES = ("system", "user", "assistant", "tool")


def error(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    """Return an error body of the API."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code, "raw_status_code": None}


def answer(
    body: dict[str, Any], model: str, request_key: str, panel: Panel, created_at: int, force: str = ""
) -> speech.RowAnswer:
    """Return the answer of a model to one body; `request_key` makes repeats differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    limit = body.get("max_tokens")
    effort = "medium" if body.get("prompt_mode") == "reasoning" else str(body.get("reasoning_effort") or "none")
    asked = speech.Asked(model, speech.messages_text(body["messages"]), effort, True, limit, body["messages"])
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _bad(message: str, code: str = "3051") -> speech.RowAnswer:
    return speech.RowAnswer(400, error(message, code=code))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, error("Internal server error", "internal_server_error", "3700"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(429, error("Rate limit exceeded", "rate_limited", "1300"))
        case "error_500" | "status_0" | "output_500":
            return _broken()
        case "error_400":
            return _bad("Invalid request")
        case "billing_rows":
            return speech.RowAnswer(402, error("Insufficient credits", "payment_required"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _bad("messages: every role must be one of system, user, assistant, tool")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _bad(problem)
    effort, temperature = body.get("reasoning_effort"), body.get("temperature")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"reasoning_effort must be one of {', '.join(_EFFORTS)}")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= TEMPERATURE_MAX):
        return _bad(f"temperature must be from 0 to {TEMPERATURE_MAX}")
    problem = speech.format_problem(body.get("response_format"))
    return None if problem is None else _bad(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    content: Any = said.refusal or said.text
    if said.reasoning_tokens:
        thought = {"type": "text", "text": said.thoughts or "I compare the two."}
        content = [{"type": "thinking", "thinking": [thought]}, {"type": "text", "text": content}]
    finish = "stop" if said.finish == "content_filter" else said.finish
    message = {"role": "assistant", "content": content, "tool_calls": None}
    return {
        "id": said.key,
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "num_cached_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


PROVIDER = "mistral"
SHAPE = Shape("custom_id", b'"id":"batch-', ("response", "body", "usage"), (b'"content":"', b'"text":"'))
_WORDS = {"completed": "SUCCESS", "failed": "FAILED", "expired": "TIMEOUT_EXCEEDED", "cancelled": "CANCELLED"}
_FAILURES = {"invalid_request": "Input file could not be read", "model_not_found": "Invalid model"}


@dataclass(frozen=True, slots=True)
class MistralSpeaker:
    """Answers requests as rows of result files."""

    batch_id: str
    model: str
    created_at: int
    panel: Panel

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request; the body of a failed one is JSON in a text."""
        model = self.model or str(body.get("model") or "")
        said = answer(body, model, request_key(custom_id), self.panel, self.created_at, force)
        shown = said.body if said.is_success else dump_row(said.body).decode()
        status = 0 if force == "status_0" else said.status
        row = {
            "id": f"batch-{self.batch_id[:8]}-{i}",
            "custom_id": custom_id,
            "response": {"status_code": status, "body": shown},
            "error": None,
        }
        answered = AnsweredRow.of(dump_row(row), said)
        return replace(answered, is_good=True) if force == "output_500" else answered

    def not_run(self, _i: int, _custom_id: str, _why: NotRun) -> bytes | None:
        """Return nothing: no row was ever seen of a request that was not run."""
        return None


def requests(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a file asks, by custom_id; raises RowsError, which names the line, for what upload refuses."""
    for line_no, line in numbered_lines(source):
        data = loaded(line)
        body = data.get("body") if isinstance(data, dict) else None
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            raise RowsError(f"line {line_no}: a JSON object with a body is required")
        yield str(data.get("custom_id")), body


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(FiledBatch):
    """A job over an uploaded file."""

    job_model: str = ""
    errors: list[dict[str, Any]] | None = None

    def status(self, now_s: float) -> str:
        """Return the status word at a time."""
        if self.is_ended:
            return _WORDS[self.end]
        if self.cancel_s is not None:
            return "CANCELLATION_REQUESTED"
        return "RUNNING" if self.is_validated and now_s >= self.valid_s else "QUEUED"


class MistralAccount(FilesAccount[BatchRecord]):
    """All files and jobs."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, 86_400)

    def begin(self, batch: BatchRecord) -> None:
        """Answer the requests of a job, or fail it."""
        code = batch.effects.get("fail")
        if isinstance(code, str):
            self.fail(batch, errors=[{"message": _FAILURES.get(code, f"The job failed: {code}"), "count": 1}])
        elif self.file(batch.input_file_id, batch.project) is None:
            self.fail(batch, errors=[{"message": "Input file not found", "count": 1}])
        else:
            self.put(replace(counted(batch, self.write(batch, self.plan(batch))), is_validated=True))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write both result files."""
        speaker = MistralSpeaker(batch.id, batch.job_model, int(batch.valid_s), self.world.panel)
        outputs = Outputs(self.part(batch, "output"), self.part(batch, "error"), SHAPE)
        count = write_rows(requests(self.blob(batch.input_file_id)), outputs, plan, speaker)
        count.model = batch.job_model
        return count

    def result_file(self, batch: BatchRecord, role: str) -> FileRecord:
        """Return the file object of a result file, without its id, place and size."""
        return FileRecord("", 0, batch.project, f"{batch.id}_{role}.jsonl", "batch", 0, batch.done_s)


BASE_PATH = "/mistral/v1"
MODELS = ("mistral-small-2603", "mistral-large-2512", "ministral-8b-2512", "magistral-medium-latest")
ENDPOINTS = ("/v1/chat/completions", "/v1/embeddings", "/v1/fim/completions", "/v1/moderations", "/v1/ocr")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OWN_PARAMETERS = {"page", "page_size", "model", "agent_id", "created_after", "created_by_me", "status", "order_by"}
_TEXTS: Mapping[int, str] = {
    400: "Invalid request",
    402: "Insufficient credits",
    404: "Not found",
    409: "The request conflicts with another one",
    429: "Rate limit exceeded",
    503: "Service unavailable",
}


class MistralSimulator(FilesApi[BatchRecord]):
    """The API of one world."""

    account: MistralAccount
    row_id = SHAPE.row_id
    deleted: ClassVar = {"object": "file"}

    def __init__(self, world: World) -> None:
        self.account = MistralAccount(world)
        super().__init__(world, PROVIDER, BASE_PATH, "workspace", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("POST", r"/files", Op.FILES_CREATE, self._create_file),
            ("GET", r"/files", Op.FILES_LIST, self._list_files),
            ("GET", r"/files/([^/]+)/content", Op.FILES_CONTENT, self._content),
            ("GET", r"/files/([^/]+)", Op.FILES_GET, self._get_file),
            ("DELETE", r"/files/([^/]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", r"/batch/jobs", Op.BATCHES_CREATE, self._create_job),
            ("GET", r"/batch/jobs", Op.BATCHES_LIST, self._list_jobs),
            ("POST", r"/batch/jobs/([^/]+)/cancel", Op.BATCHES_CANCEL, self._cancel_job),
            ("GET", r"/batch/jobs/([^/]+)", Op.BATCHES_GET, self._get_batch),
            ("GET", r"/models", Op.MODELS_LIST, self._models),
            ("POST", r"/chat/completions", Op.LIVE, self._live),
        )

    def _refusal(self, _request: Request, key: str, project: str | None) -> Reply | None:
        return self._fault_reply(401, "status") if not key or project is None else None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        if kind == "billing":
            return json_reply(402, error(_TEXTS[402], "payment_required"))
        if kind == "file_not_ready":
            return json_reply(400, error("Input file is not ready: no such file"))
        if status in (401, 403):
            return json_reply(status, {"detail": "Invalid API Key"})
        return json_reply(status, error(_TEXTS.get(status, "Internal server error"), "rate_limited" * (status == 429)))

    def _bad_json(self, detail: str) -> Reply:
        return _invalid("body", detail)

    def _bad_page(self, error: PageError) -> Reply:
        return _invalid(error.param or "page", str(error))

    def _no_route(self, request: Request) -> Reply:
        return json_reply(404, {"detail": f"no Route matched {request.path.removeprefix('/mistral')}"})

    def _headers(self, request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("mistral-correlation-id", request_id), ("x-kong-request-id", request_id))

    def _limited_reply(self, _quota: Quota) -> Reply:
        return json_reply(429, error(_TEXTS[429], "rate_limited", "1300"))

    def _file_view(self, record: FileRecord) -> dict[str, Any]:
        return super()._file_view(record) | {
            "sample_type": "batch_request",
            "num_lines": None,
            "mimetype": "application/jsonl",
            "source": "upload",
            "signature": record.sha256 or None,
            "expires_at": None,
            "visibility": "workspace",
        }

    def _view(self, batch: BatchRecord, now: float, call: Call) -> dict[str, Any]:
        return job_view(batch, now, view_faults(batch, call))

    def _no_file(self, file_id: str) -> Reply:
        return _nothing(file_id)

    def _no_batch(self, batch_id: str) -> Reply:
        return _nothing(batch_id)

    def _bad_form(self, detail: str) -> Reply:
        return _invalid("file", f"Invalid file format. {detail}")

    def _refused_form(self, form: Form, part: Path) -> Reply | None:
        if form.filename is None:
            return _invalid("file", "Field required")
        try:
            for _ in requests(part) if form.fields.get("purpose") == "batch" else ():
                pass
        except RowsError as problem:
            return self._bad_form(str(problem))
        return None

    def _file_draft(self, form: Form, call: Call, project: str) -> FileRecord:
        name, purpose = _uuid(self._world.name("upload", call.n)), form.fields.get("purpose", "fine-tune")
        return FileRecord(name, 0, project, form.filename or "", purpose, form.size_bytes, 0.0)

    def _list_files(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            listed = self.account.listed_files(project, self.account.tick(), call)
            wanted = request.query.get("purpose")
            found = [record for record in listed if wanted is None or record.purpose == wanted]
            found.sort(key=lambda record: (record.created_s, record.n), reverse=True)
            shown = _shown([record.id for record in found], request.query, call)
            rows = [self._file_view(self.account.files[name]) for name in shown]
            return json_reply(200, {"data": rows, "object": "list", "total": len(found)})

    def _create_job(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body = request.read_json()
        refused = refused_job(body)
        if refused is not None:
            return refused
        draft = BatchRecord(
            id=_uuid(self._world.name("batch", call.n)),
            project=project,
            endpoint=body["endpoint"],
            input_file_id=body["input_files"][0],
            metadata=body.get("metadata"),
            job_model=body.get("model") or "",
        )
        with self._world.lock:
            now = self.account.tick()
            if self.account.file(draft.input_file_id, project) is None:
                return json_reply(404, error(f"File {draft.input_file_id} not found", "invalid_request_file", "3310"))
            job = self.account.create(draft, call, fingerprint(request.bearer))
            if "delay_exec" in job.effects:
                return Break(BreakKind.RESET)
            return json_reply(200, self._view(job, now, call))

    def _list_jobs(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Return a page of the jobs; a parameter that is none of its own asks for jobs with that metadata."""
        with self._world.lock:
            now = self.account.tick()
            tags = {name: value for name, value in request.query.items() if name not in _OWN_PARAMETERS}
            jobs = [
                job for job in self.account.listed(project, now, call) if tags.items() <= (job.metadata or {}).items()
            ]
            shown = _shown([job.id for job in jobs], request.query, call)
            rows = [self._view(self.account.batches[name], now, call) for name in shown]
            return json_reply(200, {"data": rows, "object": "list", "total": len(jobs)})

    def _cancel_job(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            job = self.account.find(argument, project, now)
            if job is None:
                return _nothing(argument)
            changed = None if job.is_ended else self.account.cancel(job, call, now)
            if changed is None:
                return json_reply(400, error("The job has ended and cannot be cancelled"))
            return json_reply(200, self._view(changed, now, call))

    def _models(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        rows = [{"id": name, "object": "model", "created": 1_770_000_000, "owned_by": "mistralai"} for name in MODELS]
        return json_reply(200, {"object": "list", "data": rows})

    def _live(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or body.get("stream"):
            return _invalid("stream", "this simulator takes JSON objects without streaming")
        model = str(body.get("model") or "")
        if not model or model.startswith("unknown-"):
            return json_reply(400, error(f"Invalid model: {model}", "invalid_model", "1500"))
        said = answer(body, model, self.live_key(body), self._world.panel, int(self._world.now_s()), forced(call))
        if said.is_success:
            self.bill_live(call, model, said.input_tokens, said.output_tokens)
        return json_reply(said.status, said.body)


def _uuid(digits: str) -> str:
    digits = (digits + digits)[:32]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _invalid(place: str, message: str) -> Reply:
    return json_reply(422, {"detail": [{"type": "value_error", "loc": ["body", place], "msg": message, "input": None}]})


def _nothing(name: str) -> Reply:
    if not _UUID.fullmatch(name):
        return _invalid("id", "Input should be a valid UUID")
    return json_reply(404, {"detail": f"{name} was not found"})


def _shown(ids: list[str], query: Mapping[str, str], call: Call) -> tuple[str, ...]:
    page, size = query.get("page", "0"), query.get("page_size", "100")
    if not (page.isdigit() and size.isdigit() and int(size) > 0):
        raise PageError(422, "Input should be a valid integer", "page")
    return page_at(ids, int(page) * int(size), int(size), call).ids


def refused_job(body: Any) -> Reply | None:
    """Return the immediate refusal of a create call, None when it is accepted."""
    if not isinstance(body, dict):
        return _invalid("body", "Input should be an object")
    if body.get("endpoint") not in ENDPOINTS:
        return _invalid("endpoint", f"Input should be one of {', '.join(ENDPOINTS)}")
    files, hours = body.get("input_files"), body.get("timeout_hours", 24)
    if not isinstance(files, list) or not files or not all(_UUID.fullmatch(str(name)) for name in files):
        return _invalid("input_files", "Input should be a list of UUIDs")
    if not isinstance(hours, int) or not 1 <= hours <= 168:
        return _invalid("timeout_hours", "Input should be from 1 to 168")
    for name, value in (body.get("metadata") or {}).items():
        if not 1 <= len(name) <= 32 or not isinstance(value, str) or not 1 <= len(value) <= 512:
            return _invalid("metadata", "keys have 1 to 32 characters, values are strings of 1 to 512")
    return None


def job_view(job: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a job as the API shows it, or as `faults` make it look."""
    is_regressed = "regress" in faults and job.is_ended
    has_ended = job.is_ended and not is_regressed
    status = "RUNNING" if is_regressed else job.status(now)
    absent = "" if "error_file_empty_string" in faults else None
    created = int(job.created_s + number(faults.get("clock_skew")))
    has_run = job.is_validated and job.valid_s <= now
    return {
        "id": job.id,
        "object": "batch",
        "input_files": [job.input_file_id],
        "endpoint": job.endpoint,
        "model": job.job_model or None,
        "agent_id": None,
        "metadata": job.metadata,
        "status": str(faults["status_word"]) if "status_word" in faults else status,
        "created_at": created,
        "started_at": int(job.valid_s) if has_run else None,
        "completed_at": int(job.done_s) if has_ended else None,
        "output_file": (job.output_file_id or absent) if has_ended else absent,
        "error_file": (job.error_file_id or absent) if has_ended else absent,
        "errors": job.errors or [],
        "outputs": None,
        **_counts(job, now, faults, has_begun=has_ended or has_run),
    }


def _counts(job: BatchRecord, now: float, faults: Mapping[str, Value], *, has_begun: bool) -> dict[str, Any]:
    share = 1.0 if job.is_ended else 0.0 if "counts_late" in faults else job.share_done(now)
    good, bad = (int(n * share) if has_begun else 0 for n in (job.n_completed, job.n_failed))
    if "counts_wrong" in faults:
        good, bad = (0 if good == 1 else 1), 0
    counts: dict[str, Any] = {
        "total_requests": job.n_total if has_begun else 0,
        "completed_requests": good + bad,
        "succeeded_requests": good,
        "failed_requests": bad,
    }
    if "counts_null" in faults:
        return dict.fromkeys(counts)
    return {name: str(n) for name, n in counts.items()} if "counts_text" in faults else counts
