"""Building bodies for Ollama's native chat: pure, and large enough that no prompt is cut.

Shapes: ollama 0.6.3 `_types.py` ChatRequest, Options. Ollama cuts a prompt that is longer than `num_ctx` without
a word; `truncate` and `shift` false (Ollama of 2025-10 and newer) make it refuse such a prompt instead.
"""

from __future__ import annotations

from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.shared.body import messages, size_bytes

CHAT: Final = "/api/chat"
CONTEXT_MIN_TOKENS: Final = 8_192
ANSWER_TOKENS: Final = 4_096
TEMPLATE_TOKENS: Final = 256
_BYTES_PER_TOKEN: Final = 2  # English has about 4, Chinese 2 to 3: twice too much room costs memory, too little answers
_BESIDE_OPTIONS: Final = frozenset({"format", "keep_alive", "logprobs", "top_logprobs", "truncate", "shift"})
_RESERVED: Final = {
    "model": "the study's `model`",
    "messages": "the template",
    "stream": "nothing: a streamed answer that breaks off looks like one that ended",
    "think": "the study's `thinking`",
    "options": "its members, each written as a parameter",
    "num_predict": "the study's `max_output_tokens`",
    "temperature": "the study's `temperature`",
}
_LEVELS: Final = ("low", "medium", "high")
_SWITCH: Final = {"none": False, "enabled": True}


def endpoint_for(model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG001
    """Return the endpoint to use where the study names none: there is one."""
    return CHAT


def accepted_thinking(model: str) -> tuple[str, ...]:
    """Return the thinking words for a model: levels for gpt-oss, which cannot be kept from thinking, else a switch."""
    return _LEVELS if _name(model).startswith("gpt-oss") else tuple(_SWITCH)


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the body for a prompt; `stream` is false and the study's parameters become `options`.

    `num_ctx`, unless a parameter sets it, is the power of two from 8,192 on that holds the prompt, counted as a
    token for every two bytes, and `max_output_tokens`, or 4,096 where the study gives none. Raises UsageError for
    another endpoint, and for a thinking word that Ollama has not for this model.
    """
    model = settings.request_model
    if settings.endpoint != CHAT:
        raise UsageError(f"model {model}: endpoint {settings.endpoint!r} is not {CHAT}")
    options: dict[str, Any] = {"num_ctx": context_tokens(prompt, settings.max_output_tokens)}
    if settings.max_output_tokens is not None:
        options["num_predict"] = settings.max_output_tokens
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    body: dict[str, Any] = {"model": model, "messages": messages(prompt), "stream": False}
    body |= {"truncate": False, "shift": False}
    if settings.thinking is not None:
        body["think"] = _think(settings)
    if settings.output_schema is not None:
        body["format"] = settings.output_schema
    for name, value in (settings.parameters or {}).items():
        if name in _RESERVED:
            message = f"model {model}: parameter {name!r} cannot be passed through"
            raise UsageError(message, hint=f"it is set by {_RESERVED[name]}")
        if name in body:
            message = f"model {model}: parameter {name!r} is already set by a setting of its own"
            raise UsageError(message, hint=f"remove {name!r} from the parameters, or the setting")
        (body if name in _BESIDE_OPTIONS else options)[name] = value
    body["options"] = options
    return BuiltBody(body)


def context_tokens(prompt: Prompt, max_output_tokens: int | None) -> int:
    """Return the context that a prompt and its answer fit into: a power of two, so that few sizes are ever loaded."""
    needed = size_bytes(prompt) // _BYTES_PER_TOKEN + TEMPLATE_TOKENS
    needed += ANSWER_TOKENS if max_output_tokens is None else max_output_tokens
    return max(CONTEXT_MIN_TOKENS, 1 << (needed - 1).bit_length())


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG001
    """Refuse: Ollama answers calls, and has neither batches nor files."""
    raise UsageError(f"request {custom_id}: Ollama takes live calls alone", hint='set mode = "live" for its models')


def _think(settings: ModelSettings) -> bool | str:
    word = settings.thinking or ""
    accepted = accepted_thinking(settings.request_model)
    if word not in accepted:
        raise UsageError(
            f"model {settings.request_model} does not accept thinking {word!r} at Ollama;"
            f" it accepts {', '.join(accepted)}",
            hint="change the study's thinking levels for this model, or let the study drop what is refused",
        )
    return _SWITCH.get(word, word)


def _name(model: str) -> str:
    return model.lower().rsplit("/", 1)[-1]
