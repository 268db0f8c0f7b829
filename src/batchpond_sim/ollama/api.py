"""A local Ollama, live only, below `/ollama`: chat, generate, what models there are and are loaded, and what they say.

As in the real one no key is needed, answers stream unless told not to, and a model stays loaded for `keep_alive`. A
prompt beyond `num_ctx` (4096 unless given) is cut without a word: the oldest messages go first, then the middle of what
is left, and the model judges what remains. With `truncate` false it is refused; with `shift` false an answer ends where
the context is full.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from batchpond_sim.host.messages import Answer, Reply, Request, Stream, json_reply, pieces
from batchpond_sim.judges.judge import Says, count_tokens
from batchpond_sim.judges.speech import Asked, Completion, completed, messages_text, picture_problem, tokens
from batchpond_sim.shared.api import Api, PageError, Route, forced, routes
from batchpond_sim.world.faults import Call, Op, Stage
from batchpond_sim.world.limits import Quota
from batchpond_sim.world.world import World

NUM_CTX_DEFAULT = 4096
MODIFIED = "2026-10-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Model:
    """One pulled model; `thinking` is `none`, `switch` (on or off) or `levels` (always on, low to high)."""

    name: str
    family: str
    parameter_size: str
    size_bytes: int
    context_length: int
    thinking: str = "none"

    @property
    def digest(self) -> str:
        """The hexadecimal digest that names its weights."""
        return hashlib.sha256(self.name.encode("ascii")).hexdigest()

    def details(self) -> dict[str, Any]:
        """Return the `details` of a model as every listing has them."""
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": self.parameter_size,
            "quantization_level": "Q4_K_M",
        }

    def listed(self) -> dict[str, Any]:
        """Return what `/api/tags` tells."""
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": MODIFIED,
            "size": self.size_bytes,
            "digest": self.digest,
            "details": self.details(),
        }

    def shown(self) -> dict[str, Any]:
        """Return what `/api/show` tells."""
        can_think = () if self.thinking == "none" else ("thinking",)
        return {
            "license": "",
            "modelfile": f"FROM {self.name}",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": self.details(),
            "model_info": {
                "general.architecture": self.family,
                f"{self.family}.context_length": self.context_length,
            },
            "capabilities": ["completion", *can_think],
            "modified_at": MODIFIED,
        }


MODELS = {
    model.name: model
    for model in (
        Model("llama3.2:latest", "llama", "3.2B", 2_019_393_189, 131_072),
        Model("gemma3:4b", "gemma3", "4.3B", 3_338_801_804, 131_072),
        Model("qwen3:8b", "qwen3", "8.2B", 5_225_388_164, 40_960, "switch"),
        Model("deepseek-r1:8b", "qwen3", "8.2B", 5_225_376_047, 131_072, "switch"),
        Model("gpt-oss:20b", "gptoss", "20.9B", 13_793_441_244, 131_072, "levels"),
    )
}


def found(name: str) -> Model | None:
    """Return a model by its name, in which `:latest` may be left out."""
    return MODELS.get(name if ":" in name else f"{name}:latest")


KEEP_ALIVE_S = 300.0
FOREVER_S = 100 * 365 * 86_400.0
_TEMPLATE_TOKENS = 11
_KEPT_TOKENS = 4
_CHARS_PER_TOKEN = 4
_NUM_CTX_LEAST = 64
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"-?(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h))+")
_LEVELS = ("low", "medium", "high")
_INTEGERS = ("num_ctx", "num_predict", "top_k", "seed")
_DECIMALS = ("temperature", "top_p", "min_p", "repeat_penalty")
_LOAD_NS, _PROMPT_TOKEN_NS, _TOKEN_NS = 1_200_000_000, 250_000, 12_000_000


class BodyError(Exception):
    """A body that is refused with HTTP 400."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a body asks for: `prompt` is what fits the context, `effort` how hard to think."""

    prompt: str
    n_prompt_tokens: int
    num_ctx: int
    max_tokens: int | None
    effort: str
    keep_alive_s: float
    is_empty: bool
    is_streamed: bool


def wanted(body: dict[str, Any], model: Model, *, is_chat: bool) -> Wanted:
    """Return what a body asks of a model; raises BodyError."""
    options = _options(body.get("options"))
    num_ctx = min(max(_NUM_CTX_LEAST, options.get("num_ctx", NUM_CTX_DEFAULT)), model.context_length)
    messages = _messages(body) if is_chat else _as_messages(body)
    if body.get("truncate") is False:
        _check_fits(messages, num_ctx)
    prompt, n_tokens = fitted(messages, num_ctx)
    _check_format(body.get("format"))
    return Wanted(
        prompt=prompt,
        n_prompt_tokens=n_tokens,
        num_ctx=num_ctx,
        max_tokens=_max_tokens(options, None if body.get("shift", True) else max(1, num_ctx - n_tokens)),
        effort=_effort(body.get("think"), model),
        keep_alive_s=_keep_alive_s(body.get("keep_alive")),
        is_empty=not messages,
        is_streamed=body.get("stream", True) is not False,
    )


def fitted(messages: list[dict[str, Any]], num_ctx: int) -> tuple[str, int]:
    """Return what of a conversation the model gets to see, and its tokens: at most `num_ctx`."""
    kept = list(messages)
    while len(kept) > 1 and _n_tokens(messages_text(kept)) > num_ctx:
        oldest = next((i for i, message in enumerate(kept[:-1]) if message.get("role") != "system"), None)
        if oldest is None:
            break
        del kept[oldest]
    prompt = messages_text(kept)
    if _n_tokens(prompt) > num_ctx:
        head = _KEPT_TOKENS * _CHARS_PER_TOKEN
        tail = (num_ctx - _TEMPLATE_TOKENS - _KEPT_TOKENS) * _CHARS_PER_TOKEN
        prompt = prompt[:head] + prompt[-tail:]
    return prompt, _n_tokens(prompt)


def _n_tokens(prompt: str) -> int:
    return count_tokens(prompt) + _TEMPLATE_TOKENS


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages") or []
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BodyError("json: cannot unmarshal into Go struct field ChatRequest.messages of type []api.Message")
    if (problem := picture_problem(messages)) is not None:
        raise BodyError(problem)
    return messages


def _as_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    prompt = body.get("prompt") or ""
    system = body.get("system")
    head = [{"role": "system", "content": system}] if system else []
    return [*head, {"role": "user", "content": prompt}] if prompt else []


def _options(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise BodyError("json: cannot unmarshal into Go struct field ChatRequest.options of type map[string]interface")
    for name, value in options.items():
        if name in _INTEGERS and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise BodyError(f'option "{name}" must be of type integer')
        if name in _DECIMALS and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise BodyError(f'option "{name}" must be of type float32')
    return {name: int(value) if name in _INTEGERS else value for name, value in options.items()}


def _max_tokens(options: dict[str, Any], room: int | None) -> int | None:
    """Return the limit of an answer: what was asked, or the `room` left where the context must not be shifted."""
    asked = options.get("num_predict", -1)
    limits = [limit for limit in (asked if asked > 0 else None, room) if limit is not None]
    return min(limits, default=None)


def _check_fits(messages: list[dict[str, Any]], num_ctx: int) -> None:
    """Refuse a prompt that is too long, as the engine below words it: JSON within the string (ollama#16800)."""
    n_tokens = _n_tokens(messages_text(messages))
    if n_tokens <= num_ctx:
        return
    text = f"request ({n_tokens} tokens) exceeds the available context size ({num_ctx} tokens), try increasing it"
    told = {"n_prompt_tokens": n_tokens, "n_ctx": num_ctx}
    error = {"error": {"code": 400, "message": text, "type": "exceed_context_size_error", **told}}
    raise BodyError(orjson.dumps(error).decode("utf-8"))


def _check_format(value: Any) -> None:
    if value in (None, "", "json") or isinstance(value, dict):
        return
    raise BodyError(f'invalid format: {value!r}; expected "json" or a valid JSON Schema object')


def _effort(think: Any, model: Model) -> str:
    if think is not None and not isinstance(think, bool) and think not in _LEVELS:
        raise BodyError(f'invalid think value: "{think}" (must be "high", "medium", "low", true, or false)')
    if model.thinking == "none":
        if think:
            raise BodyError(f'"{model.name.removesuffix(":latest")}" does not support thinking')
        return "none"
    if model.thinking == "levels":
        return think if think in _LEVELS else "medium"  # these models cannot be kept from thinking
    # One that can think does so unless it is told not to.
    return "none" if think is False else think if think in _LEVELS else "low"


def _keep_alive_s(value: Any) -> float:
    match value:
        case None:
            return KEEP_ALIVE_S
        case int() | float():
            return float(value) if value >= 0 else FOREVER_S
        case str() if re.fullmatch(r"-?\d+(\.\d+)?", value):
            return _keep_alive_s(float(value))
        case str() if _DURATION.fullmatch(value):
            parts = re.findall(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)", value)
            seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
            return FOREVER_S if value.startswith("-") else seconds
        case _:
            raise BodyError(f'time: invalid duration "{value}"')


@dataclass(frozen=True, slots=True)
class Written:
    """Everything an answer is written from; `is_cached` is that the whole prompt was still in memory."""

    model: str
    created_at: str
    is_chat: bool
    said: Completion
    n_prompt_tokens: int
    is_loaded: bool
    is_cached: bool


def whole(answer: Written) -> dict[str, Any]:
    """Return the answer as one object."""
    text, thoughts = _words(answer.said)
    return {**_part(answer, text, thoughts), **_end(answer)}


def lines(answer: Written, *, is_broken: bool) -> Iterator[bytes]:
    """Yield the answer as lines of JSON; the last has `done` true, or is an error."""
    text, thoughts = _words(answer.said)
    parts = [_part(answer, "", piece) for piece in pieces(thoughts)]
    parts += [_part(answer, piece, "") for piece in pieces(text)]
    yield from (orjson.dumps({**part, "done": False}) + b"\n" for part in parts)
    last = {"error": "an error was encountered while running the model"}
    yield orjson.dumps(last if is_broken else {**_part(answer, "", ""), **_end(answer)}) + b"\n"


def nothing(model: str, created_at: str, reason: str, *, is_chat: bool) -> dict[str, Any]:
    """Return the answer to a body without a prompt, which only loads or unloads a model."""
    said = {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    return {"model": model, "created_at": created_at, **said, "done": True, "done_reason": reason}


def _words(said: Completion) -> tuple[str, str]:
    thoughts = (said.thoughts or "Nothing to think about.") if said.reasoning_tokens else ""
    return said.refusal or said.text, thoughts


def _part(answer: Written, text: str, thoughts: str) -> dict[str, Any]:
    head = {"model": answer.model, "created_at": answer.created_at}
    thinking = {"thinking": thoughts} if thoughts else {}
    if answer.is_chat:
        return {**head, "message": {"role": "assistant", "content": text, **thinking}}
    return {**head, "response": text, **thinking}


def _end(answer: Written) -> dict[str, Any]:
    said = answer.said
    load_ns = 5_000_000 if answer.is_loaded else _LOAD_NS
    prompt_ns = 100_000 if answer.is_cached else answer.n_prompt_tokens * _PROMPT_TOKEN_NS
    eval_ns = max(1, said.output_tokens) * _TOKEN_NS
    return {
        "done": True,
        "done_reason": "length" if said.finish == "length" else "stop",
        "total_duration": load_ns + prompt_ns + eval_ns,
        "load_duration": load_ns,
        # Zeros are left out, and of a prompt that is wholly in memory nothing is evaluated.
        **({} if answer.is_cached else {"prompt_eval_count": answer.n_prompt_tokens}),
        "prompt_eval_duration": prompt_ns,
        "eval_count": max(1, said.output_tokens),
        "eval_duration": eval_ns,
    }


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
