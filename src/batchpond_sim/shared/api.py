"""What every simulated API does with a request: count it, apply faults, check the key, route it, sign the answer.

A provider is a table of routes and the few things in which doors differ: where the key stands,
what an error looks like, which headers an answer has.

`FilesApi` has the shape that OpenAI gave it: files are uploaded as forms, and found, read and deleted by their ids.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, ClassVar, Generic

import orjson

from batchpond_sim import SimulatorError
from batchpond_sim.host.messages import (
    MARK,
    Answer,
    Break,
    BreakKind,
    Form,
    IterBody,
    MultipartError,
    Reply,
    Request,
    html_reply,
    json_reply,
    read_form,
)
from batchpond_sim.shared.batches import F, FileRecord, FilesAccount
from batchpond_sim.shared.delivery import delivered, spoiled
from batchpond_sim.world.faults import Call, Fault, Op, Stage, number
from batchpond_sim.world.limits import BYTES_PER_TOKEN, Quota
from batchpond_sim.world.world import World, body_id, fingerprint


class PageError(ValueError):
    """A page that cannot be shown; `param` is the query parameter to blame."""

    def __init__(self, status: int, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True)
class Page:
    """The ids of one page, and what comes after the last of them."""

    ids: tuple[str, ...]
    has_more: bool

    def body(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the shown objects with first and last id, as OpenAI and Anthropic answer."""
        first, last = (self.ids[0], self.ids[-1]) if self.ids else (None, None)
        return {"data": data, "first_id": first, "last_id": last, "has_more": self.has_more}


def page_at(ids: Sequence[str], start: int, limit: int, call: Call) -> Page:
    """Return up to `limit` ids from `start` on, or what the call's faults make of them.

    Raises PageError of status 500 where a fault asks for it.
    """
    faults = call.values(Stage.VIEW)
    if "cursor_loop" in faults:
        start = 0
    if faults.get("list_error_page") == 1 + -(-start // limit):
        raise PageError(500, "the listing failed", None)
    shown = tuple(ids[start : start + limit])
    if "empty_page" in faults:
        return Page((), True)
    if "cursor_loop" in faults:
        return Page(shown, True)
    if "has_more_lies" in faults:
        return Page(shown, str(faults["has_more_lies"]).lower() == "true")
    return Page(shown, start + limit < len(ids))


def is_looping(call: Call) -> bool:
    """Return whether the cursor of this call is to be ignored."""
    return call.has(Stage.VIEW, "cursor_loop")


FORCED = {"empty_text", "truncated_text", "refusal"}
FORCED_WORDS = {"finish", "blocked"}


def openai_error(
    message: str, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return an error body as OpenAI has it, and those who copy its API."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def forced(call: Call) -> str:
    """Return what the faults of a call make its model say, in the words of the providers' `answer`; empty for none."""
    for fault in call.at(Stage.LINES):
        if fault.kind in FORCED:
            return fault.kind
        if fault.kind in FORCED_WORDS:
            return f"{fault.kind}:{fault.value}"
    return ""


def _model(data: bytes) -> str:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ""
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else ""


ErrorReply = Callable[[int, str], Reply]
"""Makes a provider's own error answer from a status and a fault kind's name."""


def _early(fault: Fault, error: ErrorReply) -> Answer:
    match fault.kind:
        case "reset_before" | "refuse" | "hang_before":
            return Break(_BREAKS[fault.kind], number(fault.value))
        case "html":
            return html_reply(int(number(fault.value)))
        case "redirect":
            return Reply(307, (("location", str(fault.value)),), b"")
        case "retry_after":
            reply = error(429, fault.kind)
            return Reply(reply.status, (*reply.headers, ("retry-after", str(fault.value))), reply.body)
        case _:
            return error(_STATUS.get(fault.kind) or int(number(fault.value)), fault.kind)


_BREAKS = {"reset_before": BreakKind.RESET, "refuse": BreakKind.REFUSE, "hang_before": BreakKind.HANG}
_STATUS = {"file_not_ready": 400}


def _late(fault: Fault, answer: Answer, error: ErrorReply) -> Answer:
    match fault.kind:
        case "reset_after":
            return Break(BreakKind.RESET)
        case "hang_after":
            return Break(BreakKind.HANG, number(fault.value))
        case "html_after":
            return html_reply(int(number(fault.value)))
        case "status_after":
            return error(int(number(fault.value)), fault.kind)
        case _:
            return answer


Handler = Callable[[Request, Call, str, str], Answer]
"""Answers a request: (request, call, project, the path's first argument or an empty string)."""


@dataclass(frozen=True, slots=True)
class Route:
    """Requests of one method whose path below the base path matches all of `pattern`."""

    method: str
    pattern: re.Pattern[str]
    op: Op
    run: Handler


def routes(*rows: tuple[str, str, Op, Handler]) -> tuple[Route, ...]:
    """Return routes of rows (method, regular expression, operation, handler)."""
    return tuple(Route(method, re.compile(pattern), op, run) for method, pattern, op, run in rows)


class Api(ABC):
    """One provider's API over a world; `handle` is pure but for that world.

    A provider says what there is below the base path (`routes`) and how its doors differ: the methods of the first
    section. `tick` makes every change of its account that is due by now.
    """

    def __init__(
        self, world: World, name: str, base_path: str, project: str, tick: Callable[[], object] = lambda: None
    ) -> None:
        self._world = world
        self._name = name
        self._base_path = base_path
        self._project = project
        self._tick = tick
        self._routes: Iterable[Route] = self.routes()

    @abstractmethod
    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""

    @abstractmethod
    def _refusal(self, request: Request, key: str, project: str | None) -> Reply | None:
        """Return the refusal of a key (no project: a bad one) or of headers, None to let a request in."""

    @abstractmethod
    def _fault_reply(self, status: int, kind: str) -> Reply:
        """Return the error body of a status, for a fault of `kind`."""

    @abstractmethod
    def _bad_json(self, detail: str) -> Reply:
        """Return the error of a body that is not JSON."""

    @abstractmethod
    def _bad_page(self, error: PageError) -> Reply:
        """Return the error of a listing that was asked for wrongly."""

    @abstractmethod
    def _no_route(self, request: Request) -> Reply:
        """Return the answer where there is nothing."""

    @abstractmethod
    def _headers(self, request_id: str, project: str | None) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer; `request_id` has 24 hex digits."""

    def _key(self, request: Request) -> str:
        """Return the key that a request carries, empty for none."""
        return request.bearer

    def _stamped(self, reply: Reply, request_id: str) -> Reply:  # noqa: ARG002
        """Return an answer with its request id in the body, where a provider puts it there."""
        return reply

    def _account_headers(self) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer to anything but a live call."""
        return ()

    def _limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:  # noqa: ARG002
        """Return the headers that tell how a live call stands with its limits, where a provider sends any."""
        return ()

    def _limited_reply(self, quota: Quota) -> Reply:  # noqa: ARG002
        """Return the refusal of a live call that is beyond a limit, without the headers of `_limit_headers`."""
        return self._fault_reply(429, "status")

    def tick(self) -> None:
        """Make every change that is due by now."""
        with self._world.lock:
            self._tick()

    def handle(self, request: Request) -> Answer:
        """Return the answer to a request whose path is below the base path."""
        route, argument = self._route(request)
        key = self._key(request)
        call = self._world.arrive(request, key, self._name, Op.ANY if route is None else route.op)
        project = self._world.project(key, self._project)
        try:
            answer = self._answer(route, request, call, project, argument)
            request.drain()
        except ConnectionError:
            with self._world.lock:
                self._world.ledger.answered(call.n, None, ())
            raise
        return self._signed(call, answer, project)

    def _answer(self, route: Route | None, request: Request, call: Call, project: str | None, argument: str) -> Answer:
        try:
            request = self._heard(request, call, argument) if call.op is Op.LIVE else request
        except SimulatorError as error:
            return self._bad_json(str(error))
        for fault in call.at(Stage.BEFORE):
            return _early(fault, self._fault_reply)
        done: Answer | None = self._refusal(request, self._key(request), project)
        if done is None:
            run = self._limited if call.op is Op.LIVE else self._executed
            done = run(route, request, call, project or "", argument)
        for fault in call.at(Stage.AFTER):
            return _late(fault, done, self._fault_reply)
        return done

    def _route(self, request: Request) -> tuple[Route | None, str]:
        path = request.path.removeprefix(self._base_path)
        for route in self._routes:
            if route.method == request.method and (match := route.pattern.fullmatch(path)):
                return route, next(iter(match.groups()), None) or ""
        return None, ""

    def _executed(self, route: Route | None, request: Request, call: Call, project: str, argument: str) -> Answer:
        if route is None:
            return self._no_route(request)
        try:
            return route.run(request, call, project, argument)
        except PageError as error:
            return self._fault_reply(500, "status") if error.status == 500 else self._bad_page(error)
        except (orjson.JSONDecodeError, SimulatorError) as error:
            return self._bad_json(str(error))

    def _signed(self, call: Call, answer: Answer, project: str | None) -> Answer:
        self._world.depart(call, None if isinstance(answer, Break) else answer.status)
        if isinstance(answer, Break):
            return answer
        date = ("date", formatdate(self._world.now_s(), usegmt=True))
        request_id = self._world.name("request", call.n)
        own = self._headers(request_id, project)
        account = () if call.op is Op.LIVE else self._account_headers()
        return self._stamped(replace(answer, headers=(*answer.headers, date, MARK, *own, *account)), request_id)

    def _heard(self, request: Request, call: Call, argument: str) -> Request:
        """Read a live call's body, note what it asks, and return the request with the body unread again.

        The model is the body's, or the path's `argument`. Raises SimulatorError for over 64 MiB.
        """
        data = request.read_all()
        live = self._world.ledger.live_call(call.n)
        live.body = body_id(request.path, data)
        live.model = _model(data) or argument
        live.tokens_guessed = len(data) // BYTES_PER_TOKEN
        return replace(request, body=IterBody(iter((data,))))

    def _limited(self, route: Route | None, request: Request, call: Call, project: str, argument: str) -> Answer:
        """Execute a live call that its limits let in; its answer comes as its faults have it, and when it is due."""
        world, account = self._world, (self._name, fingerprint(self._key(request)))
        live = world.ledger.live_call(call.n)
        with world.lock:
            quota = world.limiter.admit(*account, live.model, live.tokens_guessed, world.now_s())
        if quota is not None and quota.scarce is not None:
            answer: Answer = self._limited_reply(quota)
        else:
            answer = self._executed(route, request, call, project, argument)
            if isinstance(answer, Reply):
                answer = replace(spoiled(call, answer), delay_s=self._delay_s(call))
            if quota is not None:
                end_s = world.now_s() + (answer.delay_s * world.speed if isinstance(answer, Reply) else 0.0)
                more = sum(live.billed or (0, 0)) - live.tokens_guessed
                with world.lock:
                    world.limiter.settle(*account, quota.model, more, end_s)
        if quota is None or isinstance(answer, Break):
            return answer
        return replace(answer, headers=(*answer.headers, *self._limit_headers(quota)))

    def _delay_s(self, call: Call) -> float:
        is_late, seconds = call.value(Stage.DELIVERY, "delay")
        low, high = self._world.settings.live_latency_s
        usual = low + (high - low) * self._world.draw("latency", call.n) if high else 0.0
        return usual + (number(seconds) if is_late else 0.0)

    def bill_live(self, call: Call, model: str, input_tokens: int, output_tokens: int) -> None:
        """Record what a live call of a model is charged."""
        live = self._world.ledger.live_call(call.n)
        live.model, live.billed = model, (input_tokens, output_tokens)

    def live_key(self, body: dict[str, Any]) -> str:
        """Return what stands for a live call's id: the same body gets the same answer."""
        return self._world.name("live", orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode("utf-8"))


class FilesApi(Api, Generic[F]):
    """The handlers that are alike; a provider says what its files, its batches and its errors look like."""

    account: FilesAccount[F]
    row_id = b""
    """How the id of a result line begins."""
    file_max_bytes = 512 << 20
    deleted: ClassVar[Mapping[str, Any]] = {}
    """What the answer to a deletion says beside the id."""

    @abstractmethod
    def _view(self, batch: F, now: float, call: Call) -> dict[str, Any]:
        """Return a batch as the API shows it, or as the faults of a call make it look."""

    @abstractmethod
    def _no_file(self, file_id: str) -> Reply:
        """Return the answer about a file that is not there."""

    @abstractmethod
    def _no_batch(self, batch_id: str) -> Reply:
        """Return the answer about a batch that is not there."""

    @abstractmethod
    def _bad_form(self, detail: str) -> Reply:
        """Return the error of an upload that cannot be read."""

    @abstractmethod
    def _refused_form(self, form: Form, part: Path) -> Reply | None:
        """Return the refusal of an upload whose bytes are at `part`, None when it is fine."""

    @abstractmethod
    def _file_draft(self, form: Form, call: Call, project: str) -> FileRecord:
        """Return the file object of an upload, without its ordinal and time."""

    def _file_view(self, record: FileRecord) -> dict[str, Any]:
        """Return a file as the API shows it: what all say of one, to which a provider adds its own."""
        return {
            "id": record.id,
            "object": "file",
            "bytes": record.size_bytes,
            "created_at": int(record.created_s),
            "filename": record.filename,
            "purpose": record.purpose,
        }

    def _create_file(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Take a file in one form."""
        part = self._part(call)
        try:
            form = self._form(request, part)
            refused = self._refused_form(form, part)
            return refused or self._kept(part, self._file_draft(form, call, project), call)
        except MultipartError as error:
            return self._bad_form(f"the form could not be read: {error}")
        finally:
            part.unlink(missing_ok=True)

    def _form(self, request: Request, part: Path) -> Form:
        return read_form(request.headers.get("content-type", ""), request.body, part, self.file_max_bytes)

    def _part(self, call: Call) -> Path:
        return self.account.blob(f"upload-{call.n}.part")

    def _kept(self, part: Path, draft: FileRecord, call: Call) -> Reply:
        """Store an upload and return its file object."""
        with self._world.lock:
            return json_reply(200, self._file_view(self.account.keep(part, draft, call)))

    def _get_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            record = self.account.file(argument, project)
            return self._no_file(argument) if record is None else json_reply(200, self._file_view(record))

    def _delete_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            if self.account.file(argument, project) is None:
                return self._no_file(argument)
            self.account.drop_file(argument)
            return json_reply(200, {"id": argument, **self.deleted, "deleted": True})

    def _content(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            path = self.account.content(argument, project)
            return self._no_file(argument) if path is None else delivered(path, call, self.row_id)

    def _get_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.fetch(argument, project, now)
            return self._no_batch(argument) if batch is None else json_reply(200, self._view(batch, now, call))
