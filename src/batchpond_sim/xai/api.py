"""A local xAI: files, batches, results in pages, models and chat completions, below `/xai/v1`, and what models say.

Names: xai-proto of 2026-05. How REST has them, from recorded traffic of 2026: no status, counters that a cancel makes
wrong for a while, dates without a time, errors of two texts, a bad key as HTTP 400; `completion_tokens` leave the
reasoning out, and a tick is 1e-10 USD. `handle` is pure but for the world that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.host.messages import Answer, Break, BreakKind, Form, Reply, Request, json_reply
from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.shared.api import FilesApi, Page, PageError, Route, forced, is_looping, page_at, routes
from batchpond_sim.shared.batches import End, FiledBatch, FileRecord, FilesAccount, RowsError, counted, view_faults
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

_EFFORTS = ("none", "low", "medium", "high", "xhigh")
_ROLES = ("system", "user", "assistant", "tool", "developer")
_TICKS_PER_TOKEN = 12_500
_OF_BATCHES = re.compile(r"grok-4\.(3|20)")


def is_for_batches(model: str) -> bool:
    """Return whether a model is taken in batches."""
    return _OF_BATCHES.match(model) is not None


def error(message: str, code: str = "Client specified an invalid argument") -> dict[str, Any]:
    """Return an error body of the API: two texts."""
    return {"code": code, "error": message}


def answer(body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = "") -> speech.RowAnswer:
    """Return the answer to one body; `request_key` makes repeats of it differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    effort = str(body.get("reasoning_effort") or "none")
    asked = speech.Asked(str(body["model"]), speech.messages_text(body["messages"]), effort, True, limit)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _refused_row(message: str) -> speech.RowAnswer:
    return speech.RowAnswer(400, error(message))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, error("Internal server error", "The service is currently unavailable"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(
                429, error("Too many requests: rate limit reached", "Some resource has been exhausted")
            )
        case "error_500" | "status_0" | "output_500":
            return _broken()
        case "error_400":
            return _refused_row("Maximum number of tokens max_tokens must be positive but max_tokens = -5")
        case "billing_rows":
            return speech.RowAnswer(402, error("The team is out of credits", "Some resource has been exhausted"))
        case "filtered_rows":
            text = "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"
            return speech.RowAnswer(403, error(text, "The caller does not have permission to execute the operation"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _refused_row("messages: every message needs a known role")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _refused_row(problem)
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        return _refused_row(f"Argument not supported on this model: reasoning_effort = {effort}")
    problem = speech.format_problem(body.get("response_format"))
    return None if problem is None else _refused_row(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": said.refusal}
    if said.reasoning_tokens:
        message["reasoning_content"] = said.thoughts or "I compare the two."
    total = said.input_tokens + said.output_tokens
    return {
        "id": said.key,
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens - said.reasoning_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
            "cost_in_usd_ticks": total * _TICKS_PER_TOKEN,
        },
        "service_tier": "default",
    }


PROVIDER = "xai"
WINDOW_S = 30 * 86_400
SHAPE = Shape(
    "batch_request_id", b'"id":"', ("batch_result", "response", "chat_get_completion", "usage"), (b'"content":"',)
)


@dataclass(frozen=True, slots=True)
class XaiSpeaker:
    """Answers requests as results: an error is a bare text."""

    created_at: int
    panel: Panel

    def answered(self, _i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the result of a request."""
        said = answer(body, request_key(custom_id), self.panel, self.created_at, force)
        result = {"response": {"chat_get_completion": said.body}} if said.is_success else {"error": said.body["error"]}
        return AnsweredRow.of(dump_row({"batch_request_id": custom_id, "batch_result": result}), said)

    def not_run(self, _i: int, custom_id: str, why: NotRun) -> bytes | None:
        """Return the result of a request that was cancelled; one that waited until the end has none."""
        if why is NotRun.EXPIRED:
            return None
        return dump_row({"batch_request_id": custom_id, "batch_result": {"error": "Batch cancelled"}})


class Lines:
    """The requests of an input file; iterating raises RowsError, in xAI's words, at the first bad line."""

    def __init__(self, source: Path) -> None:
        self.model = ""
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        seen: set[str] = set()
        for line_no, line in numbered_lines(self._source):
            data = loaded(line)
            body = data.get("body") if isinstance(data, dict) else None
            custom_id = data.get("custom_id") if isinstance(data, dict) else None
            where = f"JSONL file validation failed: line {line_no}"
            if not isinstance(body, dict) or not isinstance(custom_id, str):
                raise RowsError(f"{where}: invalid JSON: a custom_id and a body are required")
            if custom_id in seen:
                raise RowsError(f"{where}: duplicate custom_id '{custom_id}'")
            seen.add(custom_id)
            self.model = self.model or str(body.get("model") or "")
            if not is_for_batches(str(body.get("model") or "")):
                raise RowsError(f"{where}: Model {body.get('model')} is not supported for batch processing.")
            yield custom_id, body


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(FiledBatch):
    """A batch over an uploaded file; its name stands where others have metadata."""

    message: str | None = None


class XaiAccount(FilesAccount[BatchRecord]):
    """All files and batches; the results of a batch are a blob that has its name."""

    roles = ("results",)

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BatchRecord, WINDOW_S)

    def begin(self, batch: BatchRecord) -> None:
        """Read the input file, and answer its requests or give the batch up."""
        if "fail" in batch.effects:
            self.fail(batch, message=f"JSONL file validation failed: line 1: {batch.effects['fail']}")
        elif self.file(batch.input_file_id, batch.project) is None:
            self.fail(batch, message=f"Input file {batch.input_file_id} was not found")
        else:
            try:
                count = self.write(batch, self.plan(batch))
            except RowsError as error:
                self.fail(batch, message=str(error))
            else:
                # Its counters alone say that it is over: the last answer is its end.
                done_s = batch.ran_s if batch.end == End.COMPLETED else batch.done_s
                self.put(replace(counted(batch, count), is_validated=True, done_s=done_s))

    def write(self, batch: BatchRecord, plan: RowPlan) -> RowCount:
        """Write the results; raises RowsError where the whole batch is given up."""
        lines = Lines(self.blob(batch.input_file_id))
        outputs = Outputs(self.part(batch, "results"), None, SHAPE)
        count = write_rows(lines, outputs, plan, XaiSpeaker(int(batch.valid_s), self.world.panel))
        count.model = lines.model
        return count

    def publish(self, batch: BatchRecord) -> BatchRecord:
        """Put the results where their pages are read from."""
        part = self.part(batch, "results")
        if part.exists():
            part.replace(self.blob(f"{batch.id}.results"))
        return batch

    def result_file(self, batch: BatchRecord, role: str) -> FileRecord:
        """Raise: results are no files here."""
        raise NotImplementedError(f"{batch.id} has no {role} file")

    def results(self, batch: BatchRecord, now_s: float) -> list[bytes]:
        """Return the results that can be read by now: while a batch runs those of the requests that were answered."""
        if batch.end == End.FAILED:
            return []
        path = self.blob(f"{batch.id}.results") if batch.is_ended else self.part(batch, "results")
        rows = path.read_bytes().splitlines() if path.exists() else []
        return rows if batch.is_ended else rows[: int(len(rows) * batch.share_done(now_s))]


BASE_PATH = "/xai/v1"
MODELS = ("grok-4.3", "grok-4.20", "grok-4.7", "grok-3-mini")
PAGE_MAX = 1_000
_TEXTS: Mapping[int, str] = {
    400: "The request is not valid",
    402: "The team is out of credits",
    404: "The requested resource was not found",
    409: "The request conflicts with another one",
    412: "Cannot add inline requests to a file-based batch",
    429: "Too many requests: rate limit reached",
    503: "The service is currently unavailable",
}


class XaiSimulator(FilesApi[BatchRecord]):
    """The API of one world."""

    account: XaiAccount
    file_max_bytes = 200 << 20

    def __init__(self, world: World) -> None:
        self.account = XaiAccount(world)
        super().__init__(world, PROVIDER, BASE_PATH, "team", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("POST", r"/files", Op.FILES_CREATE, self._create_file),
            ("GET", r"/files", Op.FILES_LIST, self._list_files),
            ("DELETE", r"/files/([^/]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", r"/batches", Op.BATCHES_CREATE, self._create_batch),
            ("GET", r"/batches", Op.BATCHES_LIST, self._list_batches),
            ("GET", r"/batches/([^/:]+)/results", Op.FILES_CONTENT, self._results),
            ("POST", r"/batches/([^/:]+):cancel", Op.BATCHES_CANCEL, self._cancel_batch),
            ("GET", r"/batches/([^/:]+)", Op.BATCHES_GET, self._get_batch),
            ("GET", r"/models", Op.MODELS_LIST, self._models),
            ("POST", r"/chat/completions", Op.LIVE, self._live),
        )

    def _refusal(self, _request: Request, key: str, project: str | None) -> Reply | None:
        return self._fault_reply(401, "status") if not key or project is None else None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        if kind == "billing":
            return json_reply(402, error(_TEXTS[402], "Some resource has been exhausted"))
        if kind == "file_not_ready":
            return json_reply(400, error("Input file is unavailable"))
        if status in (401, 403):
            text = "Incorrect API key provided: te***st. You can obtain an API key from https://console.x.ai."
            return json_reply(400, error(text))
        return json_reply(status, error(_TEXTS.get(status, "Internal server error"), "The service is unavailable"))

    def _bad_json(self, detail: str) -> Reply:
        return json_reply(400, error(f"The body could not be parsed: {detail}"))

    def _bad_page(self, error: PageError) -> Reply:
        return _bad(str(error))

    def _no_route(self, request: Request) -> Reply:
        return json_reply(
            404, error(f"no route for {request.method} {request.path}", "Some requested entity was not found")
        )

    def _headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("x-zero-data-retention", "false"), ("x-data-retention", "30d"))

    def _limited_reply(self, _quota: Quota) -> Reply:
        return json_reply(429, error(_TEXTS[429], "Some resource has been exhausted"))

    def _file_view(self, record: FileRecord) -> dict[str, Any]:
        return {**super()._file_view(record), "expires_at": None}

    def _view(self, batch: BatchRecord, now: float, call: Call) -> dict[str, Any]:
        return batch_view(batch, now, view_faults(batch, call))

    def _no_file(self, file_id: str) -> Reply:
        return _nothing("file", file_id)

    def _no_batch(self, batch_id: str) -> Reply:
        return _nothing("batch", batch_id)

    def _bad_form(self, detail: str) -> Reply:
        return _bad(detail)

    def _refused_form(self, form: Form, part: Path) -> Reply | None:  # noqa: ARG002
        return _bad("file is required") if form.filename is None else None

    def _file_draft(self, form: Form, call: Call, project: str) -> FileRecord:
        name = f"file_{self._world.name('upload', call.n)}"
        return FileRecord(name, 0, project, form.filename or "", form.fields.get("purpose", ""), form.size_bytes, 0.0)

    def _list_files(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            ids = [record.id for record in self.account.listed_files(project, self.account.tick(), call)]
            page = _page(ids, request.query, call)
            rows = [self._file_view(self.account.files[name]) for name in page.ids]
            return json_reply(200, {"data": rows, **_after(page)})

    def _create_batch(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not body["name"]:
            return _bad("name is required")
        file_id = body.get("input_file_id")
        if not isinstance(file_id, str):
            return _bad("this simulator makes batches of a file alone: input_file_id is required")
        draft = BatchRecord(
            id=f"batch_{self._world.name('batch', call.n)}",
            project=project,
            input_file_id=file_id,
            metadata={"name": body["name"]},
        )
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.create(draft, call, fingerprint(request.bearer))
            if "delay_exec" in batch.effects:
                return Break(BreakKind.RESET)
            return json_reply(200, self._view(batch, now, call))

    def _list_batches(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Return a page in the order of the ids, which tells nothing."""
        with self._world.lock:
            now = self.account.tick()
            found = {batch.id: batch for batch in self.account.listed(project, now, call)}
            page = _page(sorted(found), request.query, call)
            rows = [self._view(found[name], now, call) for name in page.ids]
            return json_reply(200, {"batches": rows, **_after(page)})

    def _results(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return self._no_batch(argument)
            rows = sorted(self.account.results(batch, now))
            page = _page([str(i) for i in range(len(rows))], request.query, call)
            shown = b",".join(rows[int(i)] for i in page.ids)
            token = orjson.dumps(_after(page)["pagination_token"])
            body = b'{"results":[%b],"pagination_token":%b}' % (shown, token)
            return Reply(200, (("content-type", "application/json"),), body)

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return self._no_batch(argument)
            changed = None if batch.is_ended else self.account.cancel(batch, call, now)
            if changed is None:
                return _bad("The batch has been processed and cannot be cancelled")
            return json_reply(200, self._view(changed, now, call))

    def _models(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        rows = [{"id": name, "object": "model", "created": 1_770_000_000, "owned_by": "xai"} for name in MODELS]
        return json_reply(200, {"object": "list", "data": rows})

    def _live(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or body.get("stream"):
            return _bad("this simulator takes JSON objects without streaming")
        model = str(body.get("model") or "")
        if not model or model.startswith("unknown-"):
            return _nothing("model", model)
        said = answer(body, self.live_key(body), self._world.panel, int(self._world.now_s()), forced(call))
        if said.is_success:
            self.bill_live(call, model, said.input_tokens, said.output_tokens)
        return json_reply(said.status, said.body)


def _bad(message: str) -> Reply:
    return json_reply(400, error(message))


def _nothing(kind: str, name: str) -> Reply:
    return json_reply(404, error(f"The {kind} {name} does not exist", "Some requested entity was not found"))


def _page(ids: list[str], query: Mapping[str, str], call: Call) -> Page:
    limit, token = query.get("limit", "100"), query.get("pagination_token", "")
    if not limit.isdigit() or not 1 <= int(limit) <= PAGE_MAX:
        raise PageError(400, f"limit must be from 1 to {PAGE_MAX}", "limit")
    if token and token not in ids:
        raise PageError(400, "the pagination_token is not valid", "pagination_token")
    start = 0 if not token or is_looping(call) else ids.index(token) + 1
    return page_at(ids, start, int(limit), call)


def _after(page: Page) -> dict[str, Any]:
    return {"pagination_token": (page.ids[-1] if page.ids else "more") if page.has_more else None}


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def batch_view(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look."""
    created = batch.created_s + number(faults.get("clock_skew"))
    return {
        "batch_id": batch.id,
        "name": (batch.metadata or {}).get("name"),
        "create_time": _day(created),
        "expire_time": _day(created + WINDOW_S),
        "create_api_key_id": "key-simulated",
        "cancel_time": None if batch.cancel_s is None else _day(batch.cancel_s),
        "cancel_by_xai_message": batch.message if batch.is_ended else None,
        "state": None if "counts_null" in faults else _counts(batch, now, faults),
        "cost_breakdown": None,
        "input_file_id": batch.input_file_id,
    }


def _counts(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    is_over = batch.is_ended and "regress" not in faults
    has_begun = (batch.is_ended and batch.end != End.FAILED) or (batch.is_validated and batch.valid_s <= now)
    total = batch.n_total if has_begun else 0
    at = now if batch.cancel_s is None else batch.cancel_s
    share = replace(batch, cancel_s=None, done_share=1.0).share_done(at)
    share = 1.0 if batch.is_ended else 0.0 if "counts_late" in faults else share
    good, bad = (int(n * share) if has_begun else 0 for n in (batch.n_completed, batch.n_failed))
    # While a cancel is carried out, all that is not answered counts as cancelled, also what is answered in the end.
    is_cancelled = batch.cancel_s is not None or (batch.is_ended and batch.end == End.CANCELLED)
    cancelled = total - good - bad if is_cancelled else 0
    pending = 0 if is_over and batch.end != End.EXPIRED else total - good - bad - cancelled
    if "regress" in faults and batch.is_ended:
        pending, good = total, 0
    counts = {
        "num_requests": total,
        "num_pending": pending,
        "num_success": good,
        "num_error": bad,
        "num_cancelled": cancelled,
    }
    return {name: str(n) for name, n in counts.items()} if "counts_text" in faults else counts
