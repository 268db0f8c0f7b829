"""A local Ollama, live only, below `/ollama`: chat, generate, and what models there are and are loaded.

As in the real one no key is needed, answers stream unless told not to, a prompt beyond `num_ctx`
(4096 unless given) is silently cut, and a model stays loaded for `keep_alive`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from batchpond_sim.host.messages import Answer, Reply, Request, Stream, json_reply
from batchpond_sim.judges.judge import Says
from batchpond_sim.judges.speech import Asked, completed, tokens
from batchpond_sim.ollama.answers import MODELS, BodyError, Model, Wanted, Written, found, lines, nothing, wanted, whole
from batchpond_sim.shared.api import Api, PageError, Route, forced, routes
from batchpond_sim.world.faults import Call, Op, Stage
from batchpond_sim.world.limits import Quota
from batchpond_sim.world.world import World

PROVIDER = "ollama"
BASE_PATH = "/ollama"
VERSION = "0.13.0"
LOADED_MAX = 3
_BUSY = "server busy, please try again.  maximum pending requests exceeded"
_TEXTS = {401: "unauthorized", 404: "404 page not found", 503: _BUSY}


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model in memory; `prompt` is the last one it read, which is still cached."""

    model: Model
    num_ctx: int
    until_s: float
    prompt: str = ""


class OllamaSimulator(Api):
    """The server of one world; what is loaded is forgotten when it stops."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BASE_PATH, "local", self._unload)
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("GET", r"/?", Op.MODELS_LIST, self._running),
            ("HEAD", r"/?", Op.MODELS_LIST, self._running),
            ("GET", r"/api/version", Op.MODELS_LIST, self._version),
            ("GET", r"/api/tags", Op.MODELS_LIST, self._tags),
            ("GET", r"/api/ps", Op.MODELS_LIST, self._ps),
            ("POST", r"/api/show", Op.MODELS_LIST, self._show),
            ("POST", r"/api/(chat|generate)", Op.LIVE, self._live),
        )

    def _unload(self) -> None:
        """Unload what has been idle for long enough."""
        now = self._world.now_s()
        for name in [name for name, loaded in self._loaded.items() if loaded.until_s <= now]:
            del self._loaded[name]

    def _refusal(self, _request: Request, _key: str, _project: str | None) -> Reply | None:
        return None

    def _fault_reply(self, status: int, kind: str) -> Reply:  # noqa: ARG002
        return _error(status, _TEXTS.get(status, "an error was encountered while running the model"))

    def _bad_json(self, detail: str) -> Reply:
        return _error(400, detail)

    def _bad_page(self, error: PageError) -> Reply:
        return _error(400, str(error))

    def _no_route(self, _request: Request) -> Reply:
        return Reply(404, (("content-type", "text/plain"),), b"404 page not found")

    def _headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return ()

    def _limited_reply(self, _quota: Quota) -> Reply:
        return _error(503, _BUSY)

    def _running(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        return Reply(200, (("content-type", "text/plain; charset=utf-8"),), b"Ollama is running")

    def _version(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        return json_reply(200, {"version": VERSION})

    def _tags(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        return json_reply(200, {"models": [model.listed() for model in MODELS.values()]})

    def _ps(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        self.tick()
        with self._world.lock:
            return json_reply(200, {"models": [_in_memory(loaded) for loaded in self._loaded.values()]})

    def _show(self, request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        name = str((body.get("model") or body.get("name")) if isinstance(body, dict) else "")
        model = found(name)
        return _no_model(name) if model is None else json_reply(200, model.shown())

    def _live(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        body = request.read_json()
        name = body.get("model") if isinstance(body, dict) else None
        model = found(name) if isinstance(name, str) else None
        if model is None or not isinstance(name, str):
            return _no_model(name) if isinstance(name, str) and name else _error(400, "model is required")
        is_chat = argument == "chat"
        try:
            asked = wanted(body, model, is_chat=is_chat)
        except BodyError as error:
            return _error(400, str(error))
        if asked.is_empty:
            self._load(model, asked)
            reason = "unload" if asked.keep_alive_s == 0 else "load"
            return json_reply(200, nothing(name, self._now(), reason, is_chat=is_chat))
        judged = self._world.panel.answer(name, asked.prompt, self.live_key({**body, "stream": None}))
        if judged.says is Says.ERROR:
            return self._fault_reply(500, "status")
        said = completed(Asked(name, asked.prompt, asked.effort, True, asked.max_tokens), judged, forced(call))
        self.bill_live(call, name, asked.n_prompt_tokens, said.output_tokens)
        is_loaded, is_cached = self._load(model, asked)
        answer = Written(name, self._now(), is_chat, said, asked.n_prompt_tokens, is_loaded, is_cached)
        if not asked.is_streamed:
            logprobs = {"logprobs": tokens(said.text, body.get("top_logprobs", 0))} if body.get("logprobs") else {}
            return json_reply(200, {**whole(answer), **logprobs})
        parts = tuple(lines(answer, is_broken=call.has(Stage.LINES, "stream_error")))
        return Reply(200, (("content-type", "application/x-ndjson"),), Stream(lambda: iter(parts)))

    def _load(self, model: Model, asked: Wanted) -> tuple[bool, bool]:
        """Have a model in memory for as long as asked; returns whether it was there, and the whole prompt with it."""
        self.tick()
        with self._world.lock:
            before = self._loaded.pop(model.name, None)
            is_loaded = before is not None and before.num_ctx == asked.num_ctx
            is_cached = is_loaded and before is not None and before.prompt == asked.prompt
            if asked.keep_alive_s > 0:
                until_s = self._world.now_s() + asked.keep_alive_s
                self._loaded[model.name] = _Loaded(model, asked.num_ctx, until_s, asked.prompt)
                while len(self._loaded) > LOADED_MAX:
                    self._loaded.popitem(last=False)
            return is_loaded, is_cached

    def _now(self) -> str:
        return _timestamp(self._world.now_s())


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _error(status: int, message: str) -> Reply:
    return json_reply(status, {"error": message})


def _no_model(name: str) -> Reply:
    return _error(404, f"model '{name}' not found")


def _in_memory(loaded: _Loaded) -> dict[str, Any]:
    model = loaded.model
    row = {name: value for name, value in model.listed().items() if name != "modified_at"}
    return {
        **row,
        "expires_at": _timestamp(loaded.until_s),
        "size_vram": model.size_bytes,
        "context_length": loaded.num_ctx,
    }
