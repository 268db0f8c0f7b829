"""Building Together request bodies and input lines: pure.

Parameters: together 3.1 `types/chat/completion_create_params.py`. Together checks them when a line runs, so what
a model refuses comes back as an errored row.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.shared.lines import add_parameters, messages, on_one_line, refused_thinking, response_format

CHAT: Final = "/v1/chat/completions"
LINE_BYTES_MAX: Final = 10_000_000
DISCOUNTS: Final = {"meta-llama/Llama-3.3-70B-Instruct-Turbo": 0.5}
"""The shares off the standard price in batches (Together's batch overview, 2026-09): all others cost as live calls."""

_EFFORTS: Final = ("low", "medium", "high")
_SWITCH: Final = {"none": False, "enabled": True}
_ALWAYS_REASONS: Final = re.compile(r"(?i)openai/gpt-oss-")
_RESERVED: Final = {
    "model": "the study's `model`",
    "messages": "the template",
    "stream": "nothing: batches cannot stream",
    "n": "the study's `repeats`, which keeps every answer apart",
}


def endpoint_for(model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG001
    """Return the only endpoint that answers prompts."""
    return CHAT


def accepted_thinking(model: str) -> tuple[str, ...]:
    """Return the thinking words that can be sent to a model: an effort, or a switch where it can be turned off."""
    return _EFFORTS if _ALWAYS_REASONS.match(model) else (*_SWITCH, *_EFFORTS)


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    return () if model in DISCOUNTS else (f"{model}: Together charges its standard price in batches too",)


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the request body for a prompt: `max_tokens`, `temperature`, `reasoning_effort` or `reasoning.enabled`.

    Thoughts come back in any case. Raises UsageError for another endpoint or an unknown thinking word.
    """
    model = settings.request_model
    if settings.endpoint != CHAT:
        raise UsageError(f"model {model}: endpoint {settings.endpoint!r} is not {CHAT}")
    body: dict[str, Any] = {"model": model, "messages": messages(prompt)}
    if settings.max_output_tokens is not None:
        body["max_tokens"] = settings.max_output_tokens
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    body |= _reasoning(settings)
    if settings.output_schema is not None:
        body["response_format"] = response_format(settings.output_schema)
    add_parameters(body, settings, _RESERVED)
    return BuiltBody(body)


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG001  # the endpoint is the batch's
    """Return one line of a batch input file, without its line feed; `body` is used as it is.

    Raises UsageError for a line that Together would not read.
    """
    line = b'{"custom_id":%b,"body":%b}' % (orjson.dumps(custom_id), on_one_line(custom_id, body))
    if len(line) > LINE_BYTES_MAX:
        raise UsageError(
            f"request {custom_id}: its line has {len(line):,} bytes, and Together reads up to {LINE_BYTES_MAX:,}",
            hint="shorten the item's text",
        )
    return line


def _reasoning(settings: ModelSettings) -> dict[str, Any]:
    word = settings.thinking
    if word is None:
        return {}
    accepted = accepted_thinking(settings.request_model)
    if word not in accepted:
        raise refused_thinking(settings, ", ".join(accepted))
    return {"reasoning_effort": word} if word in _EFFORTS else {"reasoning": {"enabled": _SWITCH[word]}}
