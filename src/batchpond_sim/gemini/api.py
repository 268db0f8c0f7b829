"""A local Gemini API: files with resumable uploads, batches, models and live calls, below `/gemini`.

`/gemini/v1beta/...` and `/gemini/v1/...` are the same; uploads and downloads have `/upload` and
`/download` before the version. Paths, codes, bodies and states are those of the public API.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchpond_sim.gemini.answers import MODELS, answer, family_of, named
from batchpond_sim.gemini.batches import (
    ENDED,
    GENERATED,
    MAX_OPEN,
    PROVIDER,
    SHAPE,
    UPLOADED,
    BatchRecord,
    GeminiAccount,
    LineError,
    UploadHandler,
    counted_lines,
    file_view,
    inlined,
    write_inlined,
)
from batchpond_sim.host.messages import Answer, Break, BreakKind, Reply, Request
from batchpond_sim.shared.api import Api, PageError, Route, forced, routes
from batchpond_sim.shared.batches import view_faults
from batchpond_sim.shared.delivery import delivered
from batchpond_sim.shared.google import (
    RPC,
    Paging,
    error_reply,
    fault_reply,
    listing_of,
    page_of,
    quota_reply,
    reply,
    timestamp,
)
from batchpond_sim.world.faults import Call, Op, Stage, Value, number
from batchpond_sim.world.limits import Quota, Scarce
from batchpond_sim.world.world import World, fingerprint

BASE_PATH = "/gemini"
_PAGING = Paging("pageSize", 10, 100)
NAME_MAX_CHARS = 40
_V = r"/(?:v1beta|v1)"


class GeminiSimulator(Api):
    """The API of one world."""

    def __init__(self, world: World) -> None:
        self.account = GeminiAccount(world)
        self._uploads = UploadHandler(world, self.account)
        super().__init__(world, PROVIDER, BASE_PATH, "gen-lang-client-simulated", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        model = r"/models/([^/:]+)"
        return routes(
            ("POST", rf"/upload{_V}/files", Op.FILES_CREATE, self._upload),
            ("GET", rf"{_V}/files", Op.FILES_LIST, self._list_files),
            ("GET", rf"(?:/download)?{_V}/files/([^/:]+):download", Op.FILES_CONTENT, self._content),
            ("GET", rf"{_V}/files/([^/:]+)", Op.FILES_GET, self._get_file),
            ("DELETE", rf"{_V}/files/([^/:]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", rf"{_V}{model}:batchGenerateContent", Op.BATCHES_CREATE, self._create_batch),
            ("GET", rf"{_V}/batches", Op.BATCHES_LIST, self._list_batches),
            ("POST", rf"{_V}/batches/([^/:]+):cancel", Op.BATCHES_CANCEL, self._cancel_batch),
            ("GET", rf"{_V}/batches/([^/:]+)", Op.BATCHES_GET, self._get_batch),
            ("DELETE", rf"{_V}/batches/([^/:]+)", Op.BATCHES_DELETE, self._delete_batch),
            ("GET", rf"{_V}/models(?:/([^/:]+))?", Op.MODELS_LIST, self._models),
            ("POST", rf"{_V}{model}:generateContent", Op.LIVE, self._live),
        )

    def _key(self, request: Request) -> str:
        return request.headers.get("x-goog-api-key") or request.query.get("key", "")

    def _refusal(self, request: Request, key: str, project: str | None) -> Reply | None:
        if "upload_id" in request.query:
            return None
        if not key:
            return no_key()
        return bad_key() if project is None else None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        return fault_reply(status, kind)

    def _bad_json(self, detail: str) -> Reply:
        return error_reply(400, f"Invalid JSON payload received. {detail}")

    def _bad_page(self, error: PageError) -> Reply:
        return error_reply(400, str(error))

    def _no_route(self, request: Request) -> Reply:
        return error_reply(404, f"Method not found: {request.method} {request.path.removeprefix(BASE_PATH)}")

    def _headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("server", "scaffolding on HTTPServer2"), ("vary", "Origin, X-Origin, Referer"))

    def _limited_reply(self, quota: Quota) -> Reply:
        is_tokens = quota.scarce is Scarce.TOKENS
        window = quota.tokens if is_tokens else quota.requests
        what = "generate_content_paid_tier_input_token_count" if is_tokens else "generate_content_paid_tier_requests"
        quota_id = f"GenerateContentPaidTier{'InputTokens' if is_tokens else 'Requests'}PerModelPerMinute"
        more = {} if window is None else {"quotaValue": str(int(window.limit))}
        return quota_reply(quota.model, round(quota.retry_s, 6), what, quota_id, more)

    def _route(self, request: Request) -> tuple[Route | None, str]:
        route, argument = super()._route(request)
        if route is not None and "upload_id" in request.query:
            return replace(route, op=Op.FILES_UPLOAD), argument  # the same path, told apart by its query
        return route, argument

    def _upload(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        return self._uploads.handle(request, call, project, _origin(request))

    def _list_files(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            stale = number(call.value(Stage.VIEW, "stale_list")[1])
            files = [
                file
                for file in self.account.files.records
                if file.project == project
                and file.source != GENERATED
                and max(file.listed_s, file.created_s + stale) <= now
            ]
            files.sort(key=lambda file: (file.created_s, file.n), reverse=True)
            page = page_of([file.id for file in files], request, call, _PAGING)
            base = _base_url(request)
            return reply(
                200, listing_of("files", page, [file_view(self.account.files.records[name], base) for name in page.ids])
            )

    def _get_file(self, request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            file = self.account.files.find(argument, project)
            if file is None:
                return _missing(argument)
            return reply(200, file_view(file, _base_url(request)))

    def _delete_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        if len(argument) > NAME_MAX_CHARS:
            return error_reply(400, f"* DeleteFileRequest.name: the id has more than {NAME_MAX_CHARS} characters.\n")
        with self._world.lock:
            self.account.tick()
            if self.account.files.find(argument, project) is None:
                return no_file(argument)
            self.account.files.drop(argument)
            return reply(200, {})

    def _content(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            files = self.account.files
            file = files.find(argument, project)
            if file is not None and file.n_404 > 0:
                files.records.put(replace(file, n_404=file.n_404 - 1))
                return error_reply(404)
            if file is None:
                return _missing(argument)
            if file.source != GENERATED:
                return error_reply(400, "Only generated files can be downloaded.", "FAILED_PRECONDITION")
            return delivered(files.blob(file.id), call, SHAPE.row_id)

    def _create_batch(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        made = self._created(request, call, project, argument)
        if not isinstance(made, BatchRecord):
            return made
        with self._world.lock:
            return reply(200, operation_view(made, self._world.now_s(), view_faults(made, call)))

    def _created(self, request: Request, call: Call, project: str, model: str) -> BatchRecord | Reply | Break:
        """Return the new batch, or the answer that says why there is none (or hides that there is)."""
        size = request.headers.get("content-length", "0")
        if size.isdigit() and int(size) > INLINE_MAX_BYTES:
            return error_reply(400, f"Request payload size exceeds the limit: {INLINE_MAX_BYTES} bytes.")
        batch = named(named(request.read_json()).get("batch"))
        config = named(batch.get("inputConfig"))
        family = family_of(model)
        if family is None:
            return no_model(model, "batchGenerateContent")
        refused = _refused(batch, config)
        if refused is not None:
            return refused
        part = self.account.blob(f"upload-{call.n}.part")
        try:
            missing = self._copied(config, project, part)
            if missing is not None:
                return missing
            n_total, tokens = counted_lines(part, family)
            draft = BatchRecord(
                id=(self._world.name("batch", call.n) + self._world.name("batch-tail", call.n))[:36],
                project=project,
                endpoint=f"models/{model}:batchGenerateContent",
                model=model,
                input_file_id=str(config.get("fileName") or ""),
                metadata={"displayName": str(batch.get("displayName") or "")},
                display_name=str(batch.get("displayName") or ""),
                priority=int(batch.get("priority") or 0),
                is_inline="fileName" not in config or call.has(Stage.EFFECT, "inline_results"),
                n_total=n_total,
                queued_tokens=tokens,
            )
            return self._stored(draft, call, self._key(request), part)
        except LineError as error:
            return error_reply(400, str(error))
        finally:
            part.unlink(missing_ok=True)

    def _copied(self, config: dict[str, Any], project: str, part: Path) -> Reply | None:
        """Put the requests into `part`; return the refusal where there are none."""
        if "fileName" not in config:
            write_inlined(config["requests"], part)
            return None
        name = str(config["fileName"]).removeprefix("files/")
        with self._world.lock:
            self.account.tick()
            file = self.account.files.find(name, project)
            if file is None or file.source != UPLOADED:
                return no_file(name)
            part.unlink(missing_ok=True)
            os.link(self.account.blob(file.id), part)
        return None

    def _stored(self, draft: BatchRecord, call: Call, key: str, part: Path) -> BatchRecord | Reply | Break:
        with self._world.lock:
            self.account.tick()
            model = draft.model or ""
            is_full = self.account.full_queue(model, draft.project, draft.queued_tokens) is not None
            is_crowded = self.account.open_count(draft.project) >= MAX_OPEN
            if is_full or is_crowded or call.has(Stage.EFFECT, "enqueued"):
                return quota_reply(model, RETRY_S)
            made = self.account.create_over(draft, call, fingerprint(key), part)
        return Break(BreakKind.RESET) if "delay_exec" in made.effects else made

    def _get_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.fetch(argument, project, now)
            if batch is None:
                return error_reply(404)
            faults = view_faults(batch, call)
            rows = None
            if batch.is_inline and batch.output_file_id is not None:
                words = frozenset(str(faults.get("inline_results") or "").split("+"))
                rows = inlined(self.account.blob(batch.output_file_id), words)
            return reply(200, operation_view(batch, now, faults, rows))

    def _list_batches(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            page = page_of([batch.id for batch in self.account.listed(project, now, call)], request, call, _PAGING)
            batches = (self.account.batches[name] for name in page.ids)
            views = [operation_view(batch, now, view_faults(batch, call)) for batch in batches]
            return reply(200, listing_of("operations", page, views))

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return error_reply(404)
            if batch.is_ended:
                return error_reply(400, "The batch has ended and cannot be cancelled.", "FAILED_PRECONDITION")
            return error_reply(409) if self.account.cancel(batch, call, now) is None else reply(200, {})

    def _delete_batch(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return error_reply(404)
            self.account.delete(batch)
            return reply(200, {})

    def _models(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        if argument:
            return reply(200, _model_view(argument)) if argument in MODELS else no_model(argument, "getModel")
        page = page_of(list(MODELS), request, call, _PAGING)
        return reply(200, listing_of("models", page, [_model_view(name) for name in page.ids]))

    def _live(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        body = request.read_json()
        family = family_of(argument)
        if family is None:
            return no_model(argument, "generateContent")
        said = answer(argument, family, body, self.live_key(body), self._world.panel, forced(call))
        if not said.is_success:
            return reply(said.status, {"error": said.body})
        self.bill_live(call, argument, said.input_tokens, said.output_tokens)
        return reply(200, said.body)


def _origin(request: Request) -> str:
    return f"http://{request.headers.get('host', 'localhost')}{BASE_PATH}"


def _base_url(request: Request) -> str:
    return f"{_origin(request)}/{'v1beta' if '/v1beta/' in f'{request.path}/' else 'v1'}"


def _missing(file_id: str) -> Reply:
    # Ids that no client can have chosen are those of generated files.
    return error_reply(404) if len(file_id) > NAME_MAX_CHARS else no_file(file_id)


def _model_view(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "batchGenerateContent"],
        "thinking": True,
    }


INLINE_MAX_BYTES = 20 << 20
RETRY_S = 34
_FIELDS = frozenset({"displayName", "inputConfig", "priority", "model", "name", "webhookConfig"})


def _refused(batch: dict[str, Any], config: dict[str, Any]) -> Reply | None:
    unknown = min(batch.keys() - _FIELDS, default=None)
    if unknown is not None:
        text = f"Invalid JSON payload received. Unknown name \"{unknown}\" at 'batch': Cannot find field."
        return error_reply(400, text)
    if len(config.keys() & {"fileName", "requests"}) != 1:
        return error_reply(400, "* BatchGenerateContentRequest.batch.input_config: input_config is not specified\n")
    if not str(batch.get("priority") or 0).lstrip("-").isdigit():
        return error_reply(400, "Invalid value at 'batch.priority' (TYPE_INT64)")
    return None


_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch"
_ENDS: Mapping[str, tuple[int, str]] = {
    "failed": (13, "The batch failed"),
    "cancelled": (13, "The batch was cancelled."),
    "expired": (4, "The batch expired before it was finished."),
}


def bad_key() -> Reply:
    """Return the answer to a key that is none: HTTP 400."""
    text = "API key not valid. Please pass a valid API key."
    service = {"service": "generativelanguage.googleapis.com"}
    details: list[dict[str, Any]] = [
        {"@type": f"{RPC}.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com", "metadata": service},
        {"@type": f"{RPC}.LocalizedMessage", "locale": "en-US", "message": text},
    ]
    return error_reply(400, text, details=details)


def no_key() -> Reply:
    """Return the answer to a call without a key: HTTP 403."""
    text = (
        "Method doesn't allow unregistered callers (callers without established identity). "
        "Please use API Key or other form of API consumer identity to call this API."
    )
    return error_reply(403, text)


def no_file(name: str) -> Reply:
    """Return the answer about an uploaded file that is missing or another project's: HTTP 403."""
    text = f"You do not have permission to access the File {name} or it may not exist."
    return error_reply(403, text)


def no_model(model: str, method: str) -> Reply:
    """Return the answer about a model that is not there, or not for this."""
    text = (
        f"models/{model} is not found for API version v1beta, or is not supported for {method}. "
        "Call ListModels to see the list of available models and their supported methods."
    )
    return error_reply(404, text)


def operation_view(
    batch: BatchRecord, now: float, faults: Mapping[str, Value], inlined: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look; `inlined` are its answers, where shown."""
    state = batch.state(now)
    if "regress" in faults and state in ENDED:
        state = "running"
    skew = number(faults.get("clock_skew"))
    output = _output(batch, faults, inlined) if state == "succeeded" else {}
    if state != "succeeded" and "error_file_empty_string" in faults:
        output = {"responsesFile": ""}
    at_end = state in ENDED
    metadata: dict[str, Any] = {
        "@type": _TYPE,
        "model": f"models/{batch.model}",
        "displayName": batch.display_name,
        "state": _state_word(state, faults),
        "createTime": timestamp(batch.created_s + skew),
        "updateTime": timestamp(batch.changed_s(now) + skew),
        "endTime": timestamp(batch.done_s + skew) if at_end else None,
        "inputConfig": _input_config(batch, faults),
        "output": output or None,
        "batchStats": _stats(batch, now, state, faults),
        "priority": None if batch.priority == 0 else str(batch.priority),
        "name": f"batches/{batch.id}",
    }
    places = _places(faults)
    view: dict[str, Any] = {"name": f"batches/{batch.id}"}
    view["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    if "metadata" not in places:
        view["metadata"].pop("output", None)
    if at_end:
        view["done"] = True
    if state == "succeeded":
        shown_output = output if "response" in places else {}
        view["response"] = {"@type": f"{_TYPE}Output", **shown_output}
    elif at_end:
        code, text = _ENDS[state]
        view["error"] = {"code": code, "message": f"{text}: {batch.error}" if batch.error else text}
    return view


def _state_word(state: str, faults: Mapping[str, Value]) -> str:
    head = "JOB_STATE" if "job_state" in faults else "BATCH_STATE"
    word = str(faults["status_word"]) if "status_word" in faults else state
    return word if "_STATE_" in word else f"{head}_{word.upper()}"


def _input_config(batch: BatchRecord, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    return {"fileName": batch.input_file_id} if batch.input_file_id and "no_input_config" not in faults else None


def _places(faults: Mapping[str, Value]) -> frozenset[str]:
    """Return in which of the two members of an operation its output stands."""
    words = str(faults.get("output_at") or "both")
    return frozenset({"metadata", "response"} if words == "both" else {words})


def _output(batch: BatchRecord, faults: Mapping[str, Value], inlined: list[dict[str, Any]] | None) -> dict[str, Any]:
    if batch.output_file_id is None:
        return {"responsesFile": ""} if "error_file_empty_string" in faults else {}
    if batch.is_inline:
        return {} if inlined is None else {"inlinedResponses": {"inlinedResponses": inlined}}
    return {"responsesFile": f"files/{batch.output_file_id}"}


def _stats(batch: BatchRecord, now: float, state: str, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    if "counts_null" in faults:
        return None
    share = 1.0 if state in ENDED else batch.share_done(now)
    if "counts_late" in faults and state not in ENDED:
        share = 0.0
    good, bad = int(batch.n_completed * share), int(batch.n_failed * share)
    if "counts_wrong" in faults:
        good, bad = (0 if good == 1 else 1), 0
    counts = {
        "requestCount": batch.n_total,
        "successfulRequestCount": good,
        "failedRequestCount": bad,
        "pendingRequestCount": 0 if state in ENDED else batch.n_total - good - bad,
    }
    # Numbers in place of the strings that proto3 JSON asks for would be the odd ones here.
    return {name: n if "counts_text" in faults else str(n) for name, n in counts.items() if n}
