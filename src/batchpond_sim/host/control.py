"""The whole simulator behind one `handle`: the providers' APIs, and `/_sim/` to steer and inspect.

GET    /_sim/ledger       every batch created, token billed, calls by operation
GET    /_sim/requests     the record of every request, as JSON lines
POST   /_sim/advance      {"seconds": N}
POST   /_sim/faults       {"spec": "..."} or {"specs": [...]}; DELETE removes all
GET    /_sim/live         how often each body was asked, billed and answered live, as JSON lines (?min_billed=2)
POST   /_sim/limits       {"spec": "gpt-5*:rpm=600,tpm=200000"} or {"specs": [...]}; DELETE removes all
POST   /_sim/judges       {"spec": "gpt-5*:position_bias=0.8"} or a judge's settings as an object
POST   /_sim/qualities    {"samples": [{"text": "...", "quality": 0.7}]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Protocol

import orjson

from batchpond_sim import SimulatorError
from batchpond_sim.anthropic import api as anthropic
from batchpond_sim.compatible import api as compatible
from batchpond_sim.faults.faults import Op
from batchpond_sim.gemini import api as gemini
from batchpond_sim.host.wire import CHUNK_BYTES, MARK, Answer, Reply, Request, Stream, json_reply
from batchpond_sim.judges.judge import judge_of
from batchpond_sim.ollama import api as ollama
from batchpond_sim.openai import api as openai
from batchpond_sim.together import api as together
from batchpond_sim.vertex import api as vertex
from batchpond_sim.world.world import World


class ProviderSimulator(Protocol):
    """One provider's API over a world."""

    def handle(self, request: Request) -> Answer:
        """Return the answer to a request."""
        ...

    def tick(self) -> None:
        """Make every change that is due by now."""
        ...


PROVIDERS: dict[str, tuple[str, Callable[[World], ProviderSimulator]]] = {
    "openai": (openai.BASE_PATH, openai.OpenAISimulator),
    "anthropic": (anthropic.BASE_PATH, anthropic.AnthropicSimulator),
    "gemini": (gemini.BASE_PATH, gemini.GeminiSimulator),
    "vertex": (vertex.BASE_PATH, vertex.VertexSimulator),
    "together": (together.BASE_PATH, together.TogetherSimulator),
    "ollama": (ollama.BASE_PATH, ollama.OllamaSimulator),
    "compatible": (compatible.BASE_PATH, compatible.CompatibleSimulator),
}
"""Every simulated provider, those with live calls only included: its base path and what answers below it."""


_NDJSON = (("content-type", "application/x-ndjson"),)


class Simulator:
    """All simulated providers of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._apis = [(path, make(world)) for path, make in PROVIDERS.values()]

    def handle(self, request: Request) -> Answer:
        """Return the answer to any request."""
        for path, api in self._apis:
            if request.path.startswith(f"{path}/") or request.path == path:
                return api.handle(request)
        reply = self._control(request) if request.path.startswith("/_sim/") else self._nobody(request)
        return replace(reply, headers=(*reply.headers, MARK))

    def _nobody(self, request: Request) -> Reply:
        self.world.arrive(request, request.bearer, "nobody", Op.ANY)
        known = ", ".join(path for path, _ in self._apis)
        return json_reply(404, {"error": {"message": f"no simulated provider at {request.path}; there are: {known}"}})

    def _control(self, request: Request) -> Reply:
        try:
            return self._controlled(request)
        except (SimulatorError, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            hint = error.hint if isinstance(error, SimulatorError) else None
            return json_reply(400, {"error": {"message": str(error), "hint": hint}})

    def _controlled(self, request: Request) -> Reply:
        route = f"{request.method} {request.path.removeprefix('/_sim/')}"
        if route == "GET requests":
            return Reply(200, _NDJSON, Stream(self._requests))
        if route == "GET live":
            rows = self.world.ledger.live_rows(int(request.query.get("min_billed", "0")))
            return Reply(200, _NDJSON, Stream(lambda: (orjson.dumps(row) + b"\n" for row in rows)))
        shown = self._steer(route, request.read_json() or {})
        if shown is None:
            return json_reply(404, {"error": {"message": f"no control route {request.method} {request.path}"}})
        return json_reply(200, shown)

    def _steer(self, route: str, body: dict[str, Any]) -> dict[str, Any] | None:
        world = self.world
        shown: dict[str, Any] = {}
        match route:
            case "GET ledger":
                self._tick()
                shown = world.snapshot()
            case "POST advance":
                shown = {"now": world.advance(float(body["seconds"]))}
            case "POST faults":
                for spec in body["specs"] if "specs" in body else [body["spec"]]:
                    world.add_fault(spec)
            case "DELETE faults":
                world.clear_faults()
            case "POST limits":
                for spec in body["specs"] if "specs" in body else [body["spec"]]:
                    world.add_limit(spec)
            case "DELETE limits":
                world.clear_limits()
            case "POST judges":
                world.add_judge(body["spec"] if "spec" in body else _judge_spec(body))
            case "POST qualities":
                with world.lock:
                    world.panel.register((row["text"], row["quality"]) for row in body["samples"])
            case "GET faults" | "GET judges" | "GET limits":
                pass
            case _:
                return None
        limits = [asdict(limit) for limit in world.limiter.limits]
        return shown or {"faults": [fault.spec for fault in world.faults], "limits": limits, **world.panel.describe()}

    def _tick(self) -> None:
        for _, api in self._apis:
            api.tick()

    def _requests(self) -> Iterator[bytes]:
        with self.world.ledger.path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


def _judge_spec(body: dict[str, Any]) -> str:
    spec = orjson.dumps(body).decode("utf-8")
    judge_of(body, spec)
    return spec
