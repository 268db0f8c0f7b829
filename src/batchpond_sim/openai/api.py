"""A local OpenAI: files, batches, models, and the two live endpoints, below `/openai/v1`.

Paths, codes, bodies, paging and states are those of the public API; `handle` is pure but for the
world it is given, so that both hosts and any clock give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from batchpond_sim.host.messages import Answer, Break, BreakKind, Form, Reply, Request, json_reply
from batchpond_sim.openai.batches import ENDED, PROVIDER, RETENTION_S, SHAPE, WINDOW_S, BatchRecord, OpenAIAccount
from batchpond_sim.shared.api import FilesApi, Page, PageError, Route, forced, is_looping, openai_error, page_at, routes
from batchpond_sim.shared.batches import FileRecord, view_faults
from batchpond_sim.world.faults import Call, Op, Value, number
from batchpond_sim.world.limits import Quota, Scarce, openai_headers, openai_message
from batchpond_sim.world.world import World, fingerprint

BASE_PATH = "/openai/v1"
MODELS = ("gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "gpt-5.5", "gpt-6-luna", "gpt-4.1", "gpt-4.1-mini")


class OpenAISimulator(FilesApi[BatchRecord]):
    """The API of one world; who copies it says below which path, what windows there are, and what its models answer."""

    account: OpenAIAccount
    row_id = SHAPE.row_id
    deleted: ClassVar = {"object": "file"}
    provider = PROVIDER
    base_path = BASE_PATH
    windows: tuple[str, ...] = ("24h",)
    models: tuple[str, ...] = MODELS
    make_account: Callable[[World], OpenAIAccount] = OpenAIAccount

    def __init__(self, world: World) -> None:
        self.account = type(self).make_account(world)
        super().__init__(world, self.provider, self.base_path, "proj_simulated", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("POST", r"/files", Op.FILES_CREATE, self._create_file),
            ("GET", r"/files", Op.FILES_LIST, self._list_files),
            ("GET", r"/files/([^/]+)/content", Op.FILES_CONTENT, self._content),
            ("GET", r"/files/([^/]+)", Op.FILES_GET, self._get_file),
            ("DELETE", r"/files/([^/]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", r"/batches", Op.BATCHES_CREATE, self._create_batch),
            ("GET", r"/batches", Op.BATCHES_LIST, self._list_batches),
            ("POST", r"/batches/([^/]+)/cancel", Op.BATCHES_CANCEL, self._cancel_batch),
            ("GET", r"/batches/([^/]+)", Op.BATCHES_GET, self._get_batch),
            ("GET", r"/models(?:/([^/]+))?", Op.MODELS_LIST, self._models),
            ("POST", r"/(chat/completions|responses)", Op.LIVE, self._live),
        )

    def _refusal(self, _request: Request, key: str, project: str | None) -> Reply | None:
        if not key:
            text = "You didn't provide an API key. Provide it in an Authorization header using Bearer auth."
            return error_reply(401, text)
        return self._fault_reply(401, "status") if project is None else None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        if kind == "billing":
            text = "You exceeded your current quota, please check your plan and billing details."
            return json_reply(status, openai_error(text, "insufficient_quota", None, "insufficient_quota"))
        if kind == "file_not_ready":
            return error_reply(
                400,
                "No such File object: it is not there, or this project does not have access to it.",
                "input_file_id",
            )
        default = ("The server had an error while processing your request. Sorry about that!", "server_error", None)
        message, kind, code = _STATUS_ERRORS.get(status, default)
        return json_reply(status, openai_error(message, kind, None, code))

    def _bad_json(self, _detail: str) -> Reply:
        return error_reply(400, "We could not parse the JSON body of your request.")

    def _bad_page(self, error: PageError) -> Reply:
        return error_reply(400, str(error), error.param)

    def _no_route(self, request: Request) -> Reply:
        return error_reply(404, f"Invalid URL ({request.method} {request.path.removeprefix('/openai')})")

    def _headers(self, request_id: str, project: str | None) -> Iterable[tuple[str, str]]:
        return (
            ("x-request-id", f"req_{request_id}"),
            ("openai-version", "2020-10-01"),
            ("openai-organization", ORGANIZATION),
            *((("openai-project", project),) if project else ()),
            ("openai-processing-ms", "7"),
        )

    def _limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:
        return openai_headers(quota)

    def _limited_reply(self, quota: Quota) -> Reply:
        kind = Scarce.TOKENS if quota.scarce is Scarce.TOKENS else Scarce.REQUESTS
        return json_reply(429, openai_error(openai_message(quota, ORGANIZATION), kind, None, "rate_limit_exceeded"))

    def _file_view(self, record: FileRecord) -> dict[str, Any]:
        return super()._file_view(record) | {
            "expires_at": None if record.expires_s is None else int(record.expires_s),
            "status": "processed",
            "status_details": None,
        }

    def _no_file(self, file_id: str) -> Reply:
        return error_reply(404, f"No such File object: {file_id}", "id")

    def _no_batch(self, batch_id: str) -> Reply:
        return error_reply(404, f"No batch found with id '{batch_id}'.")

    def _bad_form(self, detail: str) -> Reply:
        return error_reply(400, detail, "file")

    def _refused_form(self, form: Form, part: Path) -> Reply | None:  # noqa: ARG002
        return refused_form(form)

    def _file_draft(self, form: Form, call: Call, project: str) -> FileRecord:
        kept_s = float(form.fields.get("expires_after[seconds]", RETENTION_S))
        return FileRecord(
            id=f"file-{self._world.name('upload', call.n)}",
            n=0,
            project=project,
            filename=form.filename or "",
            purpose=form.fields["purpose"],
            size_bytes=form.size_bytes,
            created_s=0.0,
            expires_s=self._world.now_s() + kept_s if form.fields["purpose"] == "batch" else None,
        )

    def _list_files(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            purpose = request.query.get("purpose")
            listed = self.account.listed_files(project, now, call)
            records = [record for record in listed if purpose is None or record.purpose == purpose]
            is_newest_first = request.query.get("order", "desc") == "desc"
            records.sort(key=lambda record: (record.created_s, record.n), reverse=is_newest_first)
            page = _page([record.id for record in records], request.query, call, 10_000, 10_000)
            return _listing(page, [self._file_view(self.account.files[name]) for name in page.ids])

    def _create_batch(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body = request.read_json()
        refused = refused_batch(body, self.windows)
        if refused is not None:
            return refused
        expires = body.get("output_expires_after")
        draft = BatchRecord(
            id=f"batch_{self._world.name('batch', call.n)}",
            project=project,
            endpoint=body["endpoint"],
            input_file_id=body["input_file_id"],
            completion_window=body["completion_window"],
            metadata=body.get("metadata"),
            output_expires_s=None if expires is None else int(expires["seconds"]),
        )
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.create(draft, call, fingerprint(request.bearer))
            if "delay_exec" in batch.effects:
                return Break(BreakKind.RESET)
            return json_reply(200, self._view(batch, now, call))

    def _view(self, batch: BatchRecord, now: float, call: Call) -> dict[str, Any]:
        return batch_view(batch, now, view_faults(batch, call))

    def _list_batches(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            ids = [batch.id for batch in self.account.listed(project, now, call)]
            page = _page(ids, request.query, call, 20, 100)
            shown = (self.account.batches[name] for name in page.ids)
            return _listing(page, [self._view(batch, now, call) for batch in shown])

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return self._no_batch(argument)
            if batch.is_ended:
                return error_reply(400, f"Cannot cancel a batch with status '{batch.end}'.")
            changed = self.account.cancel(batch, call, now)
            if changed is None:
                return error_reply(409, "The batch is being completed and cannot be cancelled.")
            return json_reply(200, self._view(changed, now, call))

    def _models(self, _request: Request, _call: Call, _project: str, argument: str) -> Answer:
        data = [{"id": name, "object": "model", "created": 1_770_000_000, "owned_by": "openai"} for name in self.models]
        if not argument:
            return json_reply(200, {"object": "list", "data": data})
        found = next((model for model in data if model["id"] == argument), None)
        if found is None:
            return error_reply(404, f"The model '{argument}' does not exist", "model", "model_not_found")
        return json_reply(200, found)

    def _live(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or body.get("stream"):
            return error_reply(400, "This simulator takes JSON objects without streaming.")
        model = body.get("model")
        if not isinstance(model, str) or not model:
            return error_reply(400, "you must provide a model parameter", "model")
        if model.startswith("unknown-"):
            text = f"The model `{model}` does not exist or you do not have access to it."
            return error_reply(404, text, "model", "model_not_found")
        now_s, key = int(self._world.now_s()), self.live_key(body)
        said = self.account.answer(f"/v1/{argument}", body, key, self._world.panel, now_s, forced(call))
        if said.is_success:
            self.bill_live(call, model, said.input_tokens, said.output_tokens)
        return json_reply(said.status, said.body)


def _page(ids: Sequence[str], query: Mapping[str, str], call: Call, default: int, most: int) -> Page:
    text = query.get("limit", str(default))
    if not text.isdigit() or not 1 <= int(text) <= most:
        told = f"Invalid 'limit': expected an integer from 1 to {most}, but got '{text[:20]}'."
        raise PageError(400, told, "limit")
    after = query.get("after")
    start = 0
    if after and not is_looping(call):
        if after not in ids:
            raise PageError(400, f"Invalid 'after': no object with id '{after}'.", "after")
        start = ids.index(after) + 1
    return page_at(ids, start, int(text), call)


def _listing(page: Page, data: list[dict[str, Any]]) -> Reply:
    return json_reply(200, {"object": "list", **page.body(data)})


ORGANIZATION = "org-simulated"
BATCH_FILE_MAX_BYTES = 200 << 20
ENDPOINTS = (
    "/v1/responses", "/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/moderations",
    "/v1/images/generations", "/v1/images/edits", "/v1/videos",
)  # fmt: skip

_STATUS_ERRORS: Mapping[int, tuple[str, str, str | None]] = {
    400: ("The request could not be understood.", "invalid_request_error", None),
    401: ("Incorrect API key provided. You can find your API key in your account settings.", "invalid_request_error",
          "invalid_api_key"),
    403: ("You are not allowed to do this from your country, region, or territory.", "request_forbidden",
          "unsupported_country_region_territory"),
    404: ("The requested resource was not found.", "invalid_request_error", None),
    409: ("The request conflicts with another one.", "invalid_request_error", None),
    429: ("Rate limit reached for requests. Please try again later.", "requests", "rate_limit_exceeded"),
    503: ("The engine is currently overloaded, please try again later.", "server_error", "overloaded"),
}  # fmt: skip


def error_reply(status: int, message: str, param: str | None = None, code: str | None = None) -> Reply:
    """Return an API error of type `invalid_request_error`."""
    return json_reply(status, openai_error(message, "invalid_request_error", param, code))


def batch_view(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look."""
    status = batch.status(now)
    is_regressed = "regress" in faults and status in ENDED
    if is_regressed:
        status = "in_progress"
    skew = int(number(faults.get("clock_skew")))
    created = int(batch.created_s)
    has_run = batch.is_validated and batch.valid_s <= now
    has_files = batch.is_ended and not is_regressed
    absent = "" if "error_file_empty_string" in faults else None
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model if has_run else None,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": str(faults["status_word"]) if "status_word" in faults else status,
        "output_file_id": (batch.output_file_id or absent) if has_files else absent,
        "error_file_id": (batch.error_file_id or absent) if has_files else absent,
        "created_at": created + skew,
        "in_progress_at": int(batch.valid_s) if has_run else None,
        "expires_at": created + skew + WINDOW_S,
        "finalizing_at": int(batch.ran_s) if has_run and batch.cancel_s is None and batch.ran_s <= now else None,
        **{f"{end}_at": int(batch.done_s) if status == end else None for end in ("completed", "failed", "expired")},
        "cancelling_at": None if batch.cancel_s is None else int(batch.cancel_s),
        "cancelled_at": int(batch.done_s) if status == "cancelled" else None,
        "request_counts": _counts(batch, now, faults),
        "usage": batch.usage() if has_files else None,
        "metadata": batch.metadata,
    }


def _counts(batch: BatchRecord, now: float, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    if "counts_null" in faults:
        return None
    share = 1.0 if batch.is_ended else 0.0 if "counts_late" in faults else batch.share_done(now)
    counts: dict[str, Any] = {"total": 0, "completed": 0, "failed": 0}
    if batch.is_ended or (batch.is_validated and batch.valid_s <= now):
        counts = {
            "total": batch.n_total,
            "completed": int(batch.n_completed * share),
            "failed": int(batch.n_failed * share),
        }
    if "counts_wrong" in faults:
        counts |= {"completed": 0 if counts["completed"] == 1 else 1, "failed": 0}
    return {name: str(n) for name, n in counts.items()} if "counts_text" in faults else counts


def refused_form(form: Form) -> Reply | None:
    """Return the refusal of an upload, None when it is fine."""
    purpose = form.fields.get("purpose")
    if form.filename is None:
        return error_reply(400, "'file' is a required property", "file")
    if purpose not in ("assistants", "batch", "fine-tune", "vision", "user_data", "evals"):
        return error_reply(400, f"'{purpose}' is not one of the supported purposes", "purpose")
    if purpose == "batch" and form.size_bytes > BATCH_FILE_MAX_BYTES:
        return error_reply(400, f"The file is over the {BATCH_FILE_MAX_BYTES} bytes of a batch file.", "file")
    kept = form.fields.get("expires_after[seconds]")
    if kept is not None and not (kept.isdigit() and 3600 <= int(kept) <= 2_592_000):
        return error_reply(400, "expires_after.seconds must be from 3600 to 2592000.", "expires_after.seconds")
    return None


def refused_batch(body: Any, windows: tuple[str, ...]) -> Reply | None:
    """Return the immediate refusal of a create call, None when it is accepted (to fail later, maybe)."""
    if not isinstance(body, dict):
        return error_reply(400, "We could not parse the JSON body of your request.")
    for name in ("input_file_id", "endpoint", "completion_window"):
        if not isinstance(body.get(name), str):
            return error_reply(400, f"Missing required parameter: '{name}'.", name, "missing_required_parameter")
    for name, words in (("endpoint", ENDPOINTS), ("completion_window", windows)):
        if body[name] not in words:
            listed = ", ".join(f"'{word}'" for word in words)
            text = f"Invalid value: '{body[name]}'. Supported values are: {listed}."
            return error_reply(400, text, name, "invalid_value")
    expires = body.get("output_expires_after")
    if expires is not None and not (
        isinstance(expires, dict) and 3600 <= int(expires.get("seconds") or 0) <= 2_592_000
    ):
        return error_reply(400, "output_expires_after.seconds must be from 3600 to 2592000.", "output_expires_after")
    return _refused_metadata(body.get("metadata"))


def _refused_metadata(metadata: Any) -> Reply | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or len(metadata) > 16:
        return error_reply(
            400, "Invalid 'metadata': expected an object of at most 16 pairs.", "metadata", "invalid_type"
        )
    for name, value in metadata.items():
        if len(name) > 64 or not isinstance(value, str) or len(value) > 512:
            text = "Invalid 'metadata': keys have at most 64 characters, values are strings of at most 512."
            return error_reply(400, text, f"metadata.{name[:64]}", "invalid_value")
    return None
