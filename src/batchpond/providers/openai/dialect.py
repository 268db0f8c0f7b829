"""OpenAI's requests and answers: chat, which `shared` has, and /v1/responses.

Bodies refuse what a model would refuse; lines and live answers are read totally: any bytes give a Response.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from batchpond import fields
from batchpond.errors import UsageError
from batchpond.model import Finish, Prompt, Response
from batchpond.providers import base
from batchpond.providers.http.errors import ApiError
from batchpond.providers.shared import dialect
from batchpond.providers.shared.lines import PARTS_MAX, Row, answered, content_of, failed, usage_of, with_logprobs

RESPONSES: Final = "/v1/responses"


# Models before structured outputs, those that only research, and the one that follows the chat product:
# OpenAI's guide "structured outputs" (gpt-4o-mini, gpt-4o-2024-08-06 and later).
_WITHOUT_SCHEMA: Final = re.compile(
    r"gpt-3\.5|gpt-4(?![o.])|gpt-4o-2024-05-13|chatgpt-4o|o\d(?:-mini|-pro)?-deep-research"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(base.Family):
    """Models that take the same parameters; `thinking` are the accepted words, `unasked` the one that holds unsaid.

    `temperature_at` are the efforts at which they take a temperature, "" where none is sent; None is all.
    `has_effort` is false where no reasoning parameter may be sent.
    """

    thinking: tuple[str, ...]
    unasked: str = "medium"
    temperature_at: tuple[str, ...] | None = None
    has_effort: bool = True
    is_responses_only: bool = False


FAMILIES: Final = base.Families("openai", Family)


def accepted_thinking(model: str, endpoint: str) -> tuple[str, ...]:
    """Return the thinking words that a model accepts at an endpoint.

    The word `max` is for /v1/responses: chat completions refuse it for every model ([pai]).
    """
    family = FAMILIES.of(model)
    is_chat = endpoint.endswith("/chat/completions") and family.is_known
    return tuple(word for word in family.thinking if not (is_chat and word == "max"))


class OpenAI(dialect.ChatDialect):
    """What is asked of OpenAI's models, and what they answer, at both endpoints."""

    DESCRIPTOR = base.descriptor("openai", endpoints=(dialect.CHAT, RESPONSES), nearest=FAMILIES.nearest)
    reserved = base.table("openai", "reserved")

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG002
        """Return the endpoint to use where the study names none: chat, unless only responses will do."""
        return RESPONSES if include_thoughts or FAMILIES.of(model).is_responses_only else dialect.CHAT

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model before money is spent on it."""
        return FAMILIES.caveats(model)

    def effort(self, model: str, thinking: str) -> str:
        """Return how hard a model thinks by a study's word: unasked as its family does."""
        family = FAMILIES.of(model)
        return family.unasked if thinking == dialect.UNASKED and family.is_known else thinking

    def takes_schema(self, model: str) -> bool:
        """Return whether a model's answers can be held to a JSON schema; one that is not known is taken to."""
        return _WITHOUT_SCHEMA.match(model.lower().removeprefix("ft:")) is None

    def build_body(self, prompt: Prompt, settings: dialect.ModelSettings) -> dialect.BuiltBody:
        """Return the request body for a prompt.

        Chat: `max_completion_tokens`, `reasoning_effort`. Responses: `max_output_tokens`, `reasoning.effort`,
        `reasoning.summary` (openai 3.52 `completion_create_params.py`, `response_create_params.py`); a schema is
        `response_format` or `text.format`. What the model's family forbids by rule (temperature, a schema) is left out
        and named in `dropped`; a thinking word it does not know raises UsageError.
        """
        dialect.check_endpoint(settings, self.DESCRIPTOR)
        is_chat = _is_chat(settings)
        effort, allowed = _effort(settings), FAMILIES.of(settings.request_model).temperature_at
        is_sampled = allowed is None or (effort or "") in allowed
        dropped: list[str] = []
        body: dict[str, Any] = {"model": settings.request_model}
        if is_chat:
            body["messages"] = dialect.messages(prompt, self)
        else:
            body["input"] = prompt if isinstance(prompt, str) else dialect.messages(prompt, self, "input_")
        if settings.max_output_tokens is not None:
            body["max_completion_tokens" if is_chat else "max_output_tokens"] = settings.max_output_tokens
        if settings.temperature is not None:
            if is_sampled:
                body["temperature"] = settings.temperature
            else:
                dropped.append("temperature")
        if is_chat and effort is not None:
            body["reasoning_effort"] = effort
        if not is_chat and (reasoning := _reasoning(settings, effort, dropped)):
            body["reasoning"] = reasoning
        schema = settings.output_schema
        if schema is not None and not self.takes_schema(settings.request_model):
            dropped.append(dialect.SCHEMA)
        elif schema is not None and is_chat:
            body["response_format"] = dialect.response_format(schema)
        elif schema is not None:
            body["text"] = {
                "format": {"type": "json_schema", "name": dialect.SCHEMA_NAME, "schema": schema, "strict": True}
            }
        # Who takes no temperature as it is asked takes none of these either (OpenAI's guides to GPT-5.1 to 5.4).
        told = self.logprobs(settings, is_taken=is_sampled)
        body |= told if is_chat or not told else base.table("openai", "logprobs")
        dialect.add_parameters(body, settings, self.reserved)
        return dialect.BuiltBody(body, tuple(dropped))

    def read_body(self, row: Row, body: dict[str, Any]) -> Response:
        """Return the body of a success made uniform, of either endpoint."""
        if body.get("object") == "response" or ("output" in body and "choices" not in body):
            return _responses(row, body)
        return super().read_body(row, body)


DIALECT: Final = OpenAI()


def _is_chat(settings: dialect.ModelSettings) -> bool:
    model = settings.request_model
    is_chat = settings.endpoint == dialect.CHAT
    if is_chat and settings.include_thoughts:
        raise UsageError(
            f"model {model}: {dialect.CHAT} never returns thoughts",
            hint=f"use endpoint {RESPONSES}, or set include_thoughts = false",
        )
    if is_chat and FAMILIES.of(model).is_responses_only:
        raise UsageError(f"model {model} is only served at {RESPONSES}", hint=f"set its endpoint to {RESPONSES}")
    return is_chat


def _effort(settings: dialect.ModelSettings) -> str | None:
    """Return the word to send, None for no reasoning parameter at all."""
    word = settings.thinking
    if word is None:
        return None
    accepted = accepted_thinking(settings.request_model, settings.endpoint)
    if word not in accepted:
        raise dialect.refused_thinking(settings, f"it accepts {', '.join(accepted)}", f" at {settings.endpoint}")
    return word if FAMILIES.of(settings.request_model).has_effort else None


def _reasoning(settings: dialect.ModelSettings, effort: str | None, dropped: list[str]) -> dict[str, str]:
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


_CUT: Final = dict.fromkeys(("max_output_tokens", "max_messages"), Finish.LENGTH)  # openai 3.57 `response.py`
_INCOMPLETE: Final = _CUT | {"content_filter": Finish.BLOCKED}
_NOT_ANSWERED: Final = {status: ApiError(*said) for status, said in base.table("openai", "not_answered").items()}


def _responses(row: Row, body: dict[str, Any]) -> Response:
    status = fields.word(body.get("status"))
    if status in _NOT_ANSWERED:
        return failed(row, _NOT_ANSWERED[status])
    text, thoughts, refusal, steps = _output(body.get("output"))
    reason = fields.word(fields.mapping(body.get("incomplete_details")).get("reason")) or status
    finish = _responses_finish(status, reason, text, refusal)
    said = answered(row, body.get("model"), reason, finish, (text, thoughts, refusal), usage_of(body.get("usage")))
    return with_logprobs(said, steps)


def _responses_finish(status: str | None, reason: str | None, text: str | None, refusal: str | None) -> Finish:
    if status == "incomplete":
        return _INCOMPLETE.get(reason or "", Finish.OTHER)
    if refusal and not text:
        return Finish.REFUSAL
    return Finish.STOP if status == "completed" else Finish.OTHER


def _output(output: object) -> tuple[str | None, str | None, str | None, list[object]]:
    """Return text, thoughts, refusal and the text's tokens of the output items; text is None without any message."""
    texts: list[str] = []
    thoughts: list[str] = []
    refusals: list[str] = []
    steps: list[object] = []
    has_message = False
    for item in fields.sequence(output, PARTS_MAX):
        match fields.mapping(item).get("type"):
            case "message":
                has_message = True
                text, refusal = content_of(item.get("content"))
                refusals.append(refusal or "")
                if item.get("phase") == "commentary":  # openai 3.57 `response_output_message.py`: not the final answer
                    thoughts += [text] if text else []
                    continue
                texts.append(text or "")
                parts = map(fields.mapping, fields.sequence(item.get("content"), PARTS_MAX))
                steps += [step for part in parts for step in fields.sequence(part.get("logprobs"), PARTS_MAX)]
            case "reasoning":
                thoughts.extend(_reasons(item))
    return "".join(texts) if has_message else None, "\n\n".join(thoughts) or None, "".join(refusals) or None, steps


def _reasons(item: dict[str, Any]) -> list[str]:
    for name in ("summary", "content"):
        parts = (fields.text(fields.mapping(part).get("text")) for part in fields.sequence(item.get(name), PARTS_MAX))
        if texts := [part for part in parts if part]:
            return texts
    return []
