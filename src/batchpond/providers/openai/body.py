"""Building OpenAI request bodies and input lines: pure, and refusing what a model would refuse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.shared import known
from batchpond.providers.shared.lines import (
    SCHEMA,
    add_parameters,
    messages,
    on_one_line,
    refused_thinking,
    response_format,
    text_format,
)

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
WORDS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_RESERVED: Final = known.table("openai", "reserved")


class Sampling(StrEnum):
    """When a model takes `temperature`."""

    ALWAYS = "always"
    WHEN_NOT_REASONING = "only with thinking none"
    WHEN_OFF_BY_DEFAULT = "with thinking none or left out"
    NEVER = "never"


# Models before structured outputs, those that only research, and the one that follows the chat product:
# OpenAI's guide "structured outputs" (gpt-4o-mini, gpt-4o-2024-08-06 and later).
_WITHOUT_SCHEMA: Final = re.compile(
    r"gpt-3\.5|gpt-4(?![o.])|gpt-4o-2024-05-13|chatgpt-4o|o\d(?:-mini|-pro)?-deep-research"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(known.Family):
    """Models that take the same parameters; `thinking` are the accepted words.

    `has_effort` is false where no reasoning parameter may be sent.
    """

    thinking: tuple[str, ...]
    sampling: Sampling
    has_effort: bool = True
    is_responses_only: bool = False


FAMILIES: Final = known.Families("openai", Family)
caveats: Final = FAMILIES.caveats


def takes_schema(model: str) -> bool:
    """Return whether a model's answers can be held to a JSON schema; one that is not known is taken to."""
    return _WITHOUT_SCHEMA.match(model.lower().removeprefix("ft:")) is None


def accepted_thinking(model: str, endpoint: str) -> tuple[str, ...]:
    """Return the thinking words that a model accepts at an endpoint.

    The word `max` is for /v1/responses: chat completions refuse it for every model ([pai]).
    """
    family = FAMILIES.of(model)
    is_chat = endpoint.endswith("/chat/completions") and family.is_known
    return tuple(word for word in family.thinking if not (is_chat and word == "max"))


def endpoint_for(model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG001
    """Return the endpoint to use where the study names none: chat, unless only responses will do."""
    return RESPONSES if include_thoughts or FAMILIES.of(model).is_responses_only else CHAT


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the request body for a prompt.

    Chat: `max_completion_tokens`, `reasoning_effort`. Responses: `max_output_tokens`,
    `reasoning.effort`, `reasoning.summary` (openai 3.52 `completion_create_params.py`,
    `response_create_params.py`); a schema is `response_format` or `text.format`. What the model's family
    forbids by rule (temperature, a schema) is left out and named in `dropped`; a thinking word it does
    not know raises UsageError.
    """
    is_chat = _is_chat(settings)
    effort = _effort(settings)
    dropped: list[str] = []
    body: dict[str, Any] = {"model": settings.request_model}
    if is_chat:
        body["messages"] = messages(prompt)
    else:
        body["input"] = prompt if isinstance(prompt, str) else messages(prompt)
    if settings.max_output_tokens is not None:
        body["max_completion_tokens" if is_chat else "max_output_tokens"] = settings.max_output_tokens
    if settings.temperature is not None:
        if _takes_temperature(settings, effort):
            body["temperature"] = settings.temperature
        else:
            dropped.append("temperature")
    if is_chat and effort is not None:
        body["reasoning_effort"] = effort
    if not is_chat and (reasoning := _reasoning(settings, effort, dropped)):
        body["reasoning"] = reasoning
    body |= _schema(settings, dropped, is_chat=is_chat)
    add_parameters(body, settings, _RESERVED)
    return BuiltBody(body, tuple(dropped))


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:
    """Return one line of a batch input file, without its line feed; `body` is used as it is."""
    head = b'{"custom_id":%b,"method":"POST","url":%b,"body":' % (orjson.dumps(custom_id), orjson.dumps(endpoint))
    return head + on_one_line(custom_id, body) + b"}"


def _is_chat(settings: ModelSettings) -> bool:
    model = settings.request_model
    if settings.endpoint not in (CHAT, RESPONSES):
        raise UsageError(f"model {model}: endpoint {settings.endpoint!r} is not one of {CHAT}, {RESPONSES}")
    is_chat = settings.endpoint == CHAT
    if is_chat and settings.include_thoughts:
        raise UsageError(
            f"model {model}: {CHAT} never returns thoughts",
            hint=f"use endpoint {RESPONSES}, or set include_thoughts = false",
        )
    if is_chat and FAMILIES.of(model).is_responses_only:
        raise UsageError(f"model {model} is only served at {RESPONSES}", hint=f"set its endpoint to {RESPONSES}")
    return is_chat


def _effort(settings: ModelSettings) -> str | None:
    """Return the word to send, None for no reasoning parameter at all."""
    word = settings.thinking
    if word is None:
        return None
    accepted = accepted_thinking(settings.request_model, settings.endpoint)
    if word not in accepted:
        raise refused_thinking(settings, ", ".join(accepted), f" at {settings.endpoint}")
    return word if FAMILIES.of(settings.request_model).has_effort else None


def _schema(settings: ModelSettings, dropped: list[str], *, is_chat: bool) -> dict[str, Any]:
    schema = settings.output_schema
    if schema is None:
        return {}
    if not takes_schema(settings.request_model):
        dropped.append(SCHEMA)
        return {}
    return {"response_format": response_format(schema)} if is_chat else {"text": text_format(schema)}


def _takes_temperature(settings: ModelSettings, effort: str | None) -> bool:
    match FAMILIES.of(settings.request_model).sampling:
        case Sampling.ALWAYS:
            return True
        case Sampling.WHEN_NOT_REASONING:
            return effort == "none"
        case Sampling.WHEN_OFF_BY_DEFAULT:
            return effort in (None, "none")
        case Sampling.NEVER:
            return False


def _reasoning(settings: ModelSettings, effort: str | None, dropped: list[str]) -> dict[str, str]:
    reasoning = {} if effort is None else {"effort": effort}
    if not settings.include_thoughts:
        return reasoning
    if not FAMILIES.of(settings.request_model).has_effort:
        raise UsageError(
            f"model {settings.request_model} does not reason, so it has no thoughts to include",
            hint="set include_thoughts = false for this model",
        )
    if effort == "none":
        dropped.append("include_thoughts")
    else:
        reasoning["summary"] = "auto"
    return reasoning
