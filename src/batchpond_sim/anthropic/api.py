"""A local Anthropic: message batches, models and live messages, below `/anthropic`.

Paths, headers, bodies, paging and states are those of the public API of versions 2023-06-01 and
2026-10-21; `handle` is pure but for the world it is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from batchpond_sim.anthropic.answers import CREDIT_TEXT, FAMILIES, VERSIONS, Conditions, answer, family_of
from batchpond_sim.anthropic.batches import (
    PROVIDER,
    SHAPE,
    AnthropicAccount,
    EncodingError,
    InboxError,
    JsonError,
    MessageBatch,
    Rules,
    Taken,
    TooLargeError,
    batch_view,
    spool,
    take,
    timestamp,
)
from batchpond_sim.host.messages import Answer, Break, BreakKind, Reply, Request, json_reply
from batchpond_sim.shared.api import Api, Page, PageError, Route, forced, is_looping, page_at, routes
from batchpond_sim.shared.batches import view_faults
from batchpond_sim.shared.delivery import delivered
from batchpond_sim.world.faults import Call, Op, Stage
from batchpond_sim.world.limits import Quota, Scarce
from batchpond_sim.world.world import World, fingerprint

BASE_PATH = "/anthropic"
BODY_MAX_BYTES = 256_000_000
PAGE_MOST = 1000
RULES = Rules(re.compile(r"^[a-zA-Z0-9_-]{1,64}$"), 64, 100_000, ("user_profile_id",))
_ORGANIZATION = "00000000-0000-4000-8000-00005a11a7ed"
_BATCH = r"/v1/messages/batches/([^/]+)"


class AnthropicSimulator(Api):
    """The API of one world."""

    def __init__(self, world: World) -> None:
        self.account = AnthropicAccount(world)
        super().__init__(world, PROVIDER, BASE_PATH, "wrkspc_simulated", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("POST", r"/v1/messages/batches", Op.BATCHES_CREATE, self._create),
            ("GET", r"/v1/messages/batches", Op.BATCHES_LIST, self._list),
            ("GET", rf"{_BATCH}/results", Op.FILES_CONTENT, self._results),
            ("POST", rf"{_BATCH}/cancel", Op.BATCHES_CANCEL, self._cancel),
            ("GET", _BATCH, Op.BATCHES_GET, self._get),
            ("DELETE", _BATCH, Op.BATCHES_DELETE, self._delete),
            ("GET", r"/v1/models(?:/([^/]+))?", Op.MODELS_LIST, self._models),
            ("POST", r"/v1/messages", Op.LIVE, self._live),
        )

    def _key(self, request: Request) -> str:
        return request.headers.get("x-api-key", "").strip() or request.bearer

    def _refusal(self, request: Request, key: str, project: str | None) -> Reply | None:
        if not key:
            return error_reply("authentication_error", "x-api-key header is required")
        if project is None:
            return self._fault_reply(401, "status")
        version = request.headers.get("anthropic-version")
        if version is None:
            return error_reply("invalid_request_error", "anthropic-version: header is required")
        if version not in VERSIONS:
            return error_reply("invalid_request_error", f'anthropic-version: "{version}" is not a valid version')
        return None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        if kind == "billing" and status == 400:
            return error_reply("invalid_request_error", CREDIT_TEXT)
        if kind == "billing" and status == 429:
            text = "Your organization has reached its spend limit for this month."
            return error_reply("rate_limit_error", text, "enforced_spend_limit_reached")
        return _error(status, *_TEXTS.get(status, ("api_error", "Internal server error")))

    def _bad_json(self, detail: str) -> Reply:
        return error_reply("invalid_request_error", f"The request body is not valid JSON: {detail}")

    def _bad_page(self, error: PageError) -> Reply:
        return error_reply("invalid_request_error", f"{error.param}: {error}")

    def _no_route(self, request: Request) -> Reply:
        return error_reply("not_found_error", f"Not found: {request.method} {request.path.removeprefix(BASE_PATH)}")

    def _headers(self, request_id: str, project: str | None) -> Iterable[tuple[str, str]]:
        return (
            ("request-id", f"req_{request_id}"),
            ("anthropic-organization-id", _ORGANIZATION),
            *((("anthropic-workspace-id", project),) if project else ()),
        )

    def _account_headers(self) -> Iterable[tuple[str, str]]:
        return (
            ("anthropic-ratelimit-requests-limit", "20000"),
            ("anthropic-ratelimit-requests-remaining", "19999"),
            ("anthropic-ratelimit-requests-reset", timestamp(self._world.now_s())),
        )

    def _limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        windows = {"requests": quota.requests, "tokens": quota.tokens, "input-tokens": quota.tokens}
        for name, window in windows.items():
            if window is not None:
                reset = datetime.fromtimestamp(math.ceil(self._world.now_s() + window.reset_s), UTC)
                found += [
                    (f"anthropic-ratelimit-{name}-limit", str(window.per_minute)),
                    (f"anthropic-ratelimit-{name}-remaining", str(int(window.remaining))),
                    (f"anthropic-ratelimit-{name}-reset", reset.strftime("%Y-%m-%dT%H:%M:%SZ")),
                ]
        if quota.scarce is not None:
            found.append(("retry-after", str(max(1, math.ceil(quota.retry_s)))))
        return tuple(found)

    def _limited_reply(self, quota: Quota) -> Reply:
        what = {Scarce.TOKENS: "input tokens per minute", Scarce.CONCURRENT: "concurrent connections"}
        about = what.get(quota.scarce, "requests per minute") if quota.scarce else "requests per minute"
        text = f"This request would exceed your organization's rate limit of {about} (model: {quota.model})."
        return error_reply("rate_limit_error", text)

    def _stamped(self, reply: Reply, request_id: str) -> Reply:
        if isinstance(reply.body, bytes) and reply.body.startswith(_HEAD):
            return replace(reply, body=reply.body[:-1] + b',"request_id":"req_%b"}' % request_id.encode("ascii"))
        return reply

    def _create(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body, lines = (self.account.blob(f"upload-{call.n}{end}.part") for end in ("", "-requests"))
        try:
            spool(request, body, BODY_MAX_BYTES)
            taken = take(body, lines, RULES)
            if call.has(Stage.EFFECT, "enqueued"):
                return error_reply("rate_limit_error", "Too many batch requests are in the queue. Try again later.")
            with self._world.lock:
                now = self.account.tick()
                batch = self._stored(request, call, project, taken)
                if "delay_exec" in batch.effects:
                    return Break(BreakKind.RESET)
                return self._shown(request, batch, call, now)
        except InboxError as error:
            return self._refused_body(error)
        finally:
            body.unlink(missing_ok=True)
            lines.unlink(missing_ok=True)

    def _refused_body(self, error: InboxError) -> Reply:
        match error:
            case TooLargeError():
                return self._fault_reply(413, "status")
            case JsonError():
                return self._bad_json(str(error))
            case EncodingError(is_known=is_known):
                code = f"request_body_encoding_{'invalid' if is_known else 'unsupported'}"
                return error_reply("invalid_request_error", f"The body cannot be decoded as {error}.", code)
            case _:
                return error_reply("invalid_request_error", str(error))

    def _stored(self, request: Request, call: Call, project: str, taken: Taken) -> MessageBatch:
        batch_id = f"msgbatch_{self._world.name('message batch', call.n)}"
        self.account.blob(f"upload-{call.n}-requests.part").replace(self.account.requests_blob(batch_id))
        draft = MessageBatch(
            id=batch_id,
            project=project,
            endpoint="/v1/messages",
            version=request.headers["anthropic-version"],
            n_total=taken.n_requests,
            first_custom_id=taken.first_custom_id,
            model=taken.model,
        )
        return self.account.create(draft, call, fingerprint(self._key(request)))

    def _shown(self, request: Request, batch: MessageBatch, call: Call, now_s: float) -> Reply:
        host = request.headers.get("host", "127.0.0.1")
        return json_reply(200, batch_view(batch, now_s, host, view_faults(batch, call)))

    def _get(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.fetch(argument, project, now)
            if batch is None:
                return no_batch(argument)
            shown = self._shown(request, batch, call, now)
            return shown if batch.is_ended else replace(shown, headers=(*shown.headers, ("retry-after", "10")))

    def _list(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            ids = [batch.id for batch in self.account.listed(project, now, call)]
            page = _page(ids, request.query, call)
            host = request.headers.get("host", "127.0.0.1")
            shown = (self.account.batches[name] for name in page.ids)
            return json_reply(
                200, page.body([batch_view(batch, now, host, view_faults(batch, call)) for batch in shown])
            )

    def _results(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return no_batch(argument)
            if batch.is_ended and batch.n_results_404 > 0:
                self.account.put(replace(batch, n_results_404=batch.n_results_404 - 1))
                return no_batch(argument)
            if not batch.has_results or batch.is_archived(now):
                return error_reply("not_found_error", f"Message Batch {argument} has no available results.")
            return delivered(self.account.results_blob(batch.id), call, SHAPE.row_id, "application/x-jsonl")

    def _cancel(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return no_batch(argument)
            if batch.is_ended:
                text = f"Message Batch {argument} cannot be canceled because it has ended."
                return error_reply("invalid_request_error", text)
            changed = self.account.cancel(batch, call, now)
            if changed is None:
                return error_reply("conflict_error", f"Message Batch {argument} is ending and cannot be canceled.")
            return self._shown(request, changed, call, now)

    def _delete(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            batch = self.account.find(argument, project, self.account.tick())
            if batch is None:
                return no_batch(argument)
            if not batch.is_ended:
                text = "In progress batches cannot be deleted. Consider canceling the batch instead."
                return error_reply("invalid_request_error", text)
            self.account.drop(batch)
            return json_reply(200, {"id": argument, "type": "message_batch_deleted"})

    def _models(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        if argument:
            family = family_of(argument)
            if family is None:
                return error_reply("not_found_error", f"model: {argument}")
            return json_reply(200, _model(argument))
        page = _page([family.name for family in FAMILIES], request.query, call)
        return json_reply(200, page.body([_model(name) for name in page.ids]))

    def _live(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict):
            return error_reply("invalid_request_error", "Input should be an object")
        if body.get("stream"):
            return error_reply("invalid_request_error", "stream: this simulator does not stream")
        conditions = Conditions(request.headers["anthropic-version"], False)
        said = answer(body, self.live_key(body), self._world.panel, conditions, forced(call))
        if not said.is_success:
            return error_reply(said.body["type"], str(said.body["message"]))
        self.bill_live(call, str(body["model"]), said.input_tokens, said.output_tokens)
        return json_reply(200, said.body)


def _model(name: str) -> dict[str, object]:
    words = name.removeprefix("claude-").split("-")
    return {
        "type": "model",
        "id": name,
        "display_name": " ".join(("Claude", words[0].title(), ".".join(words[1:]))),
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
    }


def _page(ids: Sequence[str], query: Mapping[str, str], call: Call) -> Page:
    limit = _limit(query.get("limit", "20"))
    after, before = query.get("after_id"), query.get("before_id")
    if after and before:
        raise PageError(400, "only one of after_id and before_id may be given", "before_id")
    if is_looping(call):
        after = before = None
    if before:
        # What is newer than the cursor, the page nearest to it.
        newer = tuple(reversed(ids[: _place(ids, before, "before_id")]))
        page = page_at(newer, 0, limit, call)
        return Page(tuple(reversed(page.ids)), page.has_more)
    return page_at(ids, _place(ids, after, "after_id") + 1 if after else 0, limit, call)


def _place(ids: Sequence[str], name: str, param: str) -> int:
    if name not in ids:
        raise PageError(400, f"there is no object with id {name}", param)
    return ids.index(name)


def _limit(text: str) -> int:
    if not text.isdigit():
        raise PageError(400, "Input should be a valid integer, unable to parse string as an integer", "limit")
    if int(text) < 1:
        raise PageError(400, "Input should be greater than or equal to 1", "limit")
    if int(text) > PAGE_MOST:
        raise PageError(400, f"Input should be less than or equal to {PAGE_MOST}", "limit")
    return int(text)


STATUS_OF: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TEXTS: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request could not be understood."),
    401: ("authentication_error", "API key is invalid."),
    402: ("billing_error", CREDIT_TEXT),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "The requested resource could not be found."),
    409: ("conflict_error", "The request conflicts with another one."),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit. Please try again later."),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}
_HEAD = b'{"type":"error",'


def error_reply(kind: str, message: str, error_code: str | None = None) -> Reply:
    """Return an API error of a type, with `details` where it has a code."""
    return _error(STATUS_OF[kind], kind, message, error_code)


def _error(status: int, kind: str, message: str, error_code: str | None = None) -> Reply:
    error: dict[str, Any] = {"type": kind, "message": message}
    if error_code is not None:
        error["details"] = {"error_code": error_code}
    return json_reply(status, {"type": "error", "error": error})


def no_batch(batch_id: str) -> Reply:
    """Return the answer about a batch that is not there."""
    return error_reply("not_found_error", f"Message Batch {batch_id} not found.")
