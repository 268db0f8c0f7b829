"""Ollama's native chat, on this machine, another one, or its cloud.

Shapes: ollama 0.6.3 `_client.py` (addresses, Authorization), `_types.py` (ChatRequest, Options; ChatResponse: `{model,
message: {content, thinking?}, done, done_reason, prompt_eval_count?, eval_count}`, where the prompt's count is left out
if all of it was cached). Ollama cuts a prompt that is longer than `num_ctx` without a word; `truncate` and `shift`
false (Ollama of 2025-10 and newer) make it refuse such a prompt instead.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from batchpond import fields
from batchpond.errors import ProviderError, UsageError
from batchpond.lake.jsonl import Embedded
from batchpond.model import ErrorClass, Finish, Media, Mode, Prompt, Response
from batchpond.providers import base
from batchpond.providers.base import LiveStart
from batchpond.providers.http.errors import ApiError
from batchpond.providers.shared import dialect
from batchpond.providers.shared.lines import Row, answered, failed, unreadable, with_logprobs, without_thoughts
from batchpond.providers.shared.live import LiveApi, LiveClient

CHAT: Final = "/api/chat"
CONTEXT_MIN_TOKENS: Final = 8_192
ANSWER_TOKENS: Final = 4_096
TEMPLATE_TOKENS: Final = 256
_BYTES_PER_TOKEN: Final = 2  # English has about 4, Chinese 2 to 3: twice too much room costs memory, too little answers
_BESIDE_OPTIONS: Final = frozenset({"format", "keep_alive", "logprobs", "top_logprobs", "truncate", "shift"})
_RESERVED: Final = base.table("ollama", "reserved")
_LEVELS: Final = ("low", "medium", "high")
_SWITCH: Final = {"none": False, "enabled": True}

_NOT_THERE: Final = frozenset({400, 404})
_MODELS_MAX: Final = 10_000


class OllamaClient(LiveClient):
    """The client of Ollama's native chat; OLLAMA_HOST is read in all of its forms, as the SDK does."""

    def start(self, request_model: str) -> LiveStart:
        """Check that the model is there, and unload all others, so that it gets the memory.

        Raises ProviderError when nothing answers, and for a model that was not pulled.
        """
        answer = self._http.request_json("GET", "/api/tags")
        wanted = _full(request_model)
        if wanted not in _names(answer.json):  # as those of the cloud are not, though they are there
            shown = self._http.request_json("POST", "/api/show", payload={"model": request_model}, allow=_NOT_THERE)
            if not shown.is_success:
                message = f"Ollama at {self.host} has no model {request_model!r}"
                raise ProviderError(message, hint=f"run `ollama pull {request_model}`")
        self._unload_all_but(wanted)
        return self.started(answer)

    def _unload_all_but(self, wanted: str) -> None:
        loaded = self._http.request_json("GET", "/api/ps", allow=_NOT_THERE)  # the cloud has no memory to show
        for name in _names(loaded.json):
            if name != wanted:
                self._http.request_json(
                    "POST", "/api/generate", payload={"model": name, "keep_alive": 0}, allow=_NOT_THERE
                )


def _names(listing: object) -> set[str]:
    rows = map(fields.mapping, fields.sequence(fields.mapping(listing).get("models"), _MODELS_MAX))
    named = (fields.identifier(row.get(member)) for row in rows for member in ("name", "model"))
    return {_full(name) for name in named if name}


def _full(model: str) -> str:
    return model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"


def accepted_thinking(model: str) -> tuple[str, ...]:
    """Return the thinking words for a model: levels for gpt-oss, which cannot be kept from thinking, else a switch."""
    return _LEVELS if model.lower().rpartition("/")[2].startswith("gpt-oss") else tuple(_SWITCH)


def context_tokens(prompt: Prompt, max_output_tokens: int | None) -> int:
    """Return the context that a prompt and its answer fit into: a power of two, so that few sizes are ever loaded."""
    texts = [prompt] if isinstance(prompt, str) else [turn.text for turn in prompt]
    size_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    needed = size_bytes // _BYTES_PER_TOKEN + TEMPLATE_TOKENS
    needed += ANSWER_TOKENS if max_output_tokens is None else max_output_tokens
    return max(CONTEXT_MIN_TOKENS, 1 << (needed - 1).bit_length())


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    """Return chat messages; Ollama takes pictures beside a text, in order, which says nothing of their places in it."""
    found = dialect.messages(prompt)
    for message, turn in zip(found, () if isinstance(prompt, str) else prompt, strict=False):
        if turn.parts:
            images = [Embedded("", one) for one in turn.parts if isinstance(one, Media)]
            message |= {"content": turn.text, "images": images}
    return found


_FINISH: Final = {"stop": Finish.STOP, "length": Finish.LENGTH}
_NO_ANSWER: Final = base.table("ollama", "no_answer")


class Ollama(dialect.Dialect):
    """What is asked of models at Ollama, and what they answer: calls alone, for it has neither batches nor files."""

    DESCRIPTOR = base.descriptor("ollama", endpoints=(CHAT,), modes=(Mode.LIVE,))
    answer_members = ("message",)

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model before it is asked."""
        if model.endswith("-cloud"):
            return (f"{model} runs in Ollama's cloud: prompts leave this machine, and the account's limits hold",)
        return ()

    def build_body(self, prompt: Prompt, settings: dialect.ModelSettings) -> dialect.BuiltBody:
        """Return the body for a prompt; `stream` is false and the study's parameters become `options`.

        `num_ctx`, unless a parameter sets it, is the power of two from 8,192 on that holds the prompt, counted as a
        token for every two bytes, and `max_output_tokens`, or 4,096 where the study gives none. Raises UsageError for
        another endpoint, and for a thinking word that Ollama has not for this model.
        """
        dialect.check_endpoint(settings, self.DESCRIPTOR)
        inside = dict(settings.parameters or {})
        beside = {name: inside.pop(name) for name in tuple(inside) if name in _BESIDE_OPTIONS}
        options: dict[str, Any] = {
            "num_ctx": inside.pop("num_ctx", context_tokens(prompt, settings.max_output_tokens)),
        }
        if settings.max_output_tokens is not None:
            options["num_predict"] = settings.max_output_tokens
        if settings.temperature is not None:
            options["temperature"] = settings.temperature
        body: dict[str, Any] = {"model": settings.request_model, "messages": _messages(prompt), "stream": False}
        body |= {"truncate": False, "shift": False}
        if settings.thinking is not None:
            accepted = accepted_thinking(settings.request_model)
            if settings.thinking not in accepted:
                raise dialect.refused_thinking(settings, f"it accepts {', '.join(accepted)}", " at Ollama")
            body["think"] = _SWITCH.get(settings.thinking, settings.thinking)
        if settings.output_schema is not None:
            body["format"] = settings.output_schema
        body |= self.logprobs(settings)
        dialect.add_parameters(body, dataclasses.replace(settings, parameters=beside), _RESERVED)
        dialect.add_parameters(options, dataclasses.replace(settings, parameters=inside), _RESERVED)
        body["options"] = options
        return dialect.BuiltBody(body)

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG002
        """Refuse: nothing takes a file."""
        raise UsageError(f"request {custom_id}: Ollama takes live calls alone", hint='set mode = "live" for its models')

    def read_row(self, row: dict[str, Any]) -> Response:  # noqa: ARG002
        """Return an unreadable line: nothing writes a file."""
        return unreadable(None, "Ollama has no result files, but this is a line of one")

    def is_answer(self, body: dict[str, Any]) -> bool:
        """Return whether the body of a call that went well is an answer at all."""
        return isinstance(body.get("message"), dict)

    def read_body(self, row: Row, body: dict[str, Any]) -> Response:
        """Return a ChatResponse made uniform; one that Ollama did not end itself is no answer."""
        message = fields.mapping(body.get("message"))
        reason = fields.word(body.get("done_reason")) or ""
        broken = "the answer was broken off: it is not done" if body.get("done") is not True else _NO_ANSWER.get(reason)
        if broken is not None:
            return failed(row, ApiError(broken, reason or None), ErrorClass.TRANSIENT)
        finish = _FINISH.get(reason, Finish.OTHER)
        texts = (fields.text(message.get("content")), fields.identifier(message.get("thinking")), None)
        tokens = (fields.count(body.get("prompt_eval_count")), fields.count(body.get("eval_count")), None, None, None)
        said = without_thoughts(answered(row, body.get("model"), reason, finish, texts, tokens))
        return with_logprobs(said, body.get("logprobs"))


DIALECT: Final = Ollama()
LIVE: Final = LiveApi(
    DIALECT.DESCRIPTOR,
    models_path="/api/tags",
    request_id_headers=(),
    client=OllamaClient,
    address=lambda endpoint, _: (endpoint, None),
)
