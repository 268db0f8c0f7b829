"""What every simulated API does with a request: count it, apply faults, check the key, route it, sign the answer.

A provider is a table of routes and the few things in which doors differ: where the key stands,
what an error looks like, which headers an answer has.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import Any

import orjson

from batchpond.errors import UsageError
from batchpond_sim.faults import gate
from batchpond_sim.faults.faults import Op
from batchpond_sim.host.wire import MARK, Answer, Break, Reply, Request
from batchpond_sim.shared.live import LiveDesk
from batchpond_sim.shared.pages import PageError
from batchpond_sim.world.limits import Quota
from batchpond_sim.world.world import Call, World

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
    """One provider's API over a world; `handle` is pure but for that world."""

    def __init__(self, world: World, name: str, base_path: str, project: str) -> None:
        self._world = world
        self._name = name
        self._base_path = base_path
        self._project = project
        self._live_desk = LiveDesk(world, name)
        self._routes: Iterable[Route] = self.routes()

    # -- what a provider adds -------------------------------------------------------------------

    @abstractmethod
    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        ...

    @abstractmethod
    def tick(self) -> None:
        """Make every change that is due by now."""
        ...

    @abstractmethod
    def key_of(self, request: Request) -> str:
        """Return the key that a request carries, empty for none."""
        ...

    @abstractmethod
    def refused(self, request: Request, key: str, project: str | None) -> Reply | None:
        """Return the refusal of a key (no project: a bad one) or of headers, None to let a request in."""
        ...

    @abstractmethod
    def fault_reply(self, status: int, kind: str) -> Reply:
        """Return the error body of a status, for a fault of `kind`."""
        ...

    @abstractmethod
    def bad_json(self, detail: str) -> Reply:
        """Return the error of a body that is not JSON."""
        ...

    @abstractmethod
    def bad_page(self, error: PageError) -> Reply:
        """Return the error of a listing that was asked for wrongly."""
        ...

    @abstractmethod
    def no_route(self, request: Request) -> Reply:
        """Return the answer where there is nothing."""
        ...

    @abstractmethod
    def headers(self, request_id: str, project: str | None) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer; `request_id` has 24 hex digits."""
        ...

    def stamp(self, reply: Reply, request_id: str) -> Reply:  # noqa: ARG002
        """Return an answer with its request id in the body, where a provider puts it there."""
        return reply

    def account_headers(self) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer to anything but a live call."""
        return ()

    def limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:  # noqa: ARG002
        """Return the headers that tell how a live call stands with its limits, where a provider sends any."""
        return ()

    def limited(self, quota: Quota) -> Reply:  # noqa: ARG002
        """Return the refusal of a live call that is beyond a limit, without the headers of `limit_headers`."""
        return self.fault_reply(429, "status")

    # -- one request ------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer:
        """Return the answer to a request whose path is below the base path."""
        route, argument = self._route(request)
        key = self.key_of(request)
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
            request = self._live_desk.heard(request, call, argument) if call.op is Op.LIVE else request
        except UsageError as error:
            return self.bad_json(str(error))
        answer = gate.before(call, self.fault_reply)
        if answer is not None:
            return answer
        refused = self.refused(request, self.key_of(request), project)
        if refused is not None:
            done: Answer = refused
        elif call.op is Op.LIVE:
            done = self._limited(route, request, call, project or "", argument)
        else:
            done = self._executed(route, request, call, project or "", argument)
        return gate.after(call, done, self.fault_reply)

    def _limited(self, route: Route | None, request: Request, call: Call, project: str, argument: str) -> Answer:
        key = self.key_of(request)
        quota = self._live_desk.admit(call, key)
        if quota is not None and quota.scarce is not None:
            answer: Answer = self.limited(quota)
        else:
            answer = self._executed(route, request, call, project, argument)
            answer = self._live_desk.answered(call, key, answer, quota)
        if quota is None or isinstance(answer, Break):
            return answer
        return replace(answer, headers=(*answer.headers, *self.limit_headers(quota)))

    def _route(self, request: Request) -> tuple[Route | None, str]:
        path = request.path.removeprefix(self._base_path)
        for route in self._routes:
            if route.method == request.method and (match := route.pattern.fullmatch(path)):
                return route, next(iter(match.groups()), None) or ""
        return None, ""

    def _executed(self, route: Route | None, request: Request, call: Call, project: str, argument: str) -> Answer:
        if route is None:
            return self.no_route(request)
        try:
            return route.run(request, call, project, argument)
        except PageError as error:
            return self.fault_reply(500, "status") if error.status == 500 else self.bad_page(error)
        except (orjson.JSONDecodeError, UsageError) as error:
            return self.bad_json(str(error))

    def _signed(self, call: Call, answer: Answer, project: str | None) -> Answer:
        faults = tuple(fault.spec for fault in call.faults)
        status = None if isinstance(answer, Break) else answer.status
        with self._world.lock:
            self._world.ledger.answered(call.n, status, faults)
        if isinstance(answer, Break):
            return answer
        date = ("date", formatdate(self._world.now_s(), usegmt=True))
        request_id = self._world.name("request", call.n)
        own = self.headers(request_id, project)
        account = () if call.op is Op.LIVE else self.account_headers()
        return self.stamp(replace(answer, headers=(*answer.headers, date, MARK, *own, *account)), request_id)

    def bill_live(self, call: Call, model: str, input_tokens: int, output_tokens: int) -> None:
        """Record what a live call of a model is charged."""
        live = self._world.ledger.live_call(call.n)
        live.model, live.billed = model, (input_tokens, output_tokens)

    def live_key(self, body: dict[str, Any]) -> str:
        """Return what stands for a live call's id: the same body gets the same answer."""
        return self._world.name("live", orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode("utf-8"))
