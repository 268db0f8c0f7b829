"""Building chat bodies for OpenAI-compatible hosts: pure, and refusing what is not known to be understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.compatible.hosts import Host, Words
from batchpond.providers.shared.body import SCHEMA, add_parameters, messages, response_format

CHAT: Final = "/v1/chat/completions"
_RESERVED: Final = {
    "model": "the study's `model`",
    "messages": "the template",
    "stream": "nothing: a streamed answer that breaks off looks like one that ended",
    "n": "the study's `repeats`, which keeps every answer apart",
}


def build_body(host: Host, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the chat body for a prompt: the host's word for the limit, and for thinking.

    Raises UsageError for another endpoint, and for a thinking word that is not known to mean anything to
    this model at this host. Thoughts come back where the server tells them apart, asked for or not.
    """
    model = settings.request_model
    if settings.endpoint != CHAT:
        raise UsageError(f"model {model}: endpoint {settings.endpoint!r} is not {CHAT}, the only one of {host.name}")
    body: dict[str, Any] = {"model": model, "messages": messages(prompt)}
    if settings.max_output_tokens is not None:
        body[host.limit_name] = settings.max_output_tokens
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    body |= _thinking(host, settings)
    dropped: tuple[str, ...] = ()
    if settings.output_schema is not None and model.lower().rsplit("/", 1)[-1].startswith(host.schema_prefixes):
        body["response_format"] = response_format(settings.output_schema)
    elif settings.output_schema is not None:
        dropped = (SCHEMA,)
    add_parameters(body, settings, _RESERVED)
    return BuiltBody(body, dropped)


def accepted_thinking(host: Host, model: str) -> tuple[str, ...]:
    """Return the thinking words that a model takes at a host; none where nothing is known."""
    return tuple(_words(host, model))


def _thinking(host: Host, settings: ModelSettings) -> Mapping[str, Any]:
    word = settings.thinking
    if word is None:
        return {}
    words = _words(host, settings.request_model)
    if word in words:
        return words[word]
    accepted = f"it accepts {', '.join(words)}" if words else "no thinking word is known for it"
    raise UsageError(
        f"model {settings.request_model} does not accept thinking {word!r} at {host.name}; {accepted}",
        hint="leave its thinking at the default, and write what the server understands as parameters of the model",
    )


def _words(host: Host, model: str) -> Words:
    name = model.lower().rsplit("/", 1)[-1]
    return next((family.words for family in host.families if name.startswith(family.prefix)), {})
