"""Building Gemini requests and input lines: pure, and refusing what a model would refuse.

Shapes: google-genai 3.4 `types.py` (Content, GenerationConfig, ThinkingConfig, ThinkingLevel) and `batches.py`.
[compat] is Google's page on OpenAI compatibility, which gives the words of thinking a number of tokens.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from batchpond.errors import UsageError
from batchpond.model import Prompt, Role
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.shared import known
from batchpond.providers.shared.lines import SCHEMA, add_parameters, on_one_line, refused_thinking

GENERATE: Final = "generateContent"
_BESIDE_GENERATION: Final = frozenset({"systemInstruction", "safetySettings", "tools", "toolConfig", "cachedContent"})
_RESERVED: Final = known.table("gemini", "reserved")
_SAMPLING: Final = ("topP", "topK", "temperature")
_PENALTIES: Final = ("presencePenalty", "frequencyPenalty")
WORDS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_WORD_TOKENS: Final = {"low": 1_024, "medium": 8_192, "high": 24_576}  # [compat]


@dataclass(frozen=True)
class Budget:
    """The tokens that `thinkingBudget` may ask for; `has_words` where this program's words come to some."""

    least: int
    most: int
    can_be_off: bool
    has_words: bool = True

    @cached_property
    def words(self) -> dict[str, int]:
        """What this program's words come to."""
        words = {"none": 0} if self.can_be_off else {}
        if not self.has_words:
            return words
        return words | _WORD_TOKENS | ({"max": self.most} if self.most > _WORD_TOKENS["high"] else {})

    def accepts(self, tokens: int) -> bool:
        """Return whether a model takes this number of tokens."""
        return self.least <= tokens <= self.most or (tokens == 0 and self.can_be_off)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(known.Family):
    """Models that take the same parameters: a `thinkingLevel`, a `thinkingBudget`, or neither.

    Where `ignores_sampling`, temperature, topP and topK have no effect and penalties are refused. `takes_schema`
    is about `responseJsonSchema`, which came with 2.5. `remark` is what to know about the models.
    """

    levels: tuple[str, ...] = ()
    budget: Budget | None = None
    ignores_sampling: bool = False
    remark: str | None = None
    takes_schema: bool = True

    @property
    def thinks(self) -> bool:
        """Whether these models can think."""
        return bool(self.levels) or self.budget is not None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the thinking words that these models accept; models that cannot think accept `none`."""
        if not self.thinks:
            return ("none",)
        budgeted = self.budget.words if self.budget else {}
        return tuple(word for word in WORDS if word in self.levels or word in budgeted)


FAMILIES: Final = known.Families("gemini", Family)


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    remark = FAMILIES.of(model).remark
    return (remark,) if remark else FAMILIES.caveats(model)


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the `request` of an input line; the model is no part of it.

    Thinking becomes `thinkingLevel` or `thinkingBudget` by the model's family; a word or number of tokens
    that the family does not take raises UsageError. Parameters go into `generationConfig`, or beside
    it where Gemini wants them there, under their camelCase names. What a model ignores
    (temperature, topP, topK) or has not (a schema) is left out and named in `dropped`.
    """
    family = FAMILIES.of(settings.request_model)
    if settings.endpoint != GENERATE:
        raise UsageError(f"model {settings.request_model}: endpoint {settings.endpoint!r} is not {GENERATE}")
    dropped: list[str] = []
    generation: dict[str, Any] = {}
    if settings.max_output_tokens is not None:
        generation["maxOutputTokens"] = settings.max_output_tokens
    if settings.temperature is not None:
        if family.ignores_sampling:
            dropped.append("temperature")
        else:
            generation["temperature"] = settings.temperature
    if thinking := _thinking(settings, family, dropped):
        generation["thinkingConfig"] = thinking
    if settings.output_schema is not None and family.takes_schema:
        generation |= {"responseMimeType": "application/json", "responseJsonSchema": settings.output_schema}
    elif settings.output_schema is not None:
        dropped.append(SCHEMA)
    body: dict[str, Any] = {"contents": _contents(prompt)}
    _add_parameters(body, generation, settings, family, dropped)
    if generation:
        body["generationConfig"] = generation
    return BuiltBody(body, tuple(dropped))


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG001  # the model's URL has it
    """Return one line of a batch input file, without its line feed; `body` is used as it is."""
    return b'{"key":%b,"request":%b}' % (orjson.dumps(custom_id), on_one_line(custom_id, body))


def _thinking(settings: ModelSettings, family: Family, dropped: list[str]) -> dict[str, Any]:
    config = _amount(settings, family)
    if not settings.include_thoughts:
        return config
    if not family.thinks:
        raise UsageError(
            f"model {settings.request_model} does not think, so it has no thoughts to include",
            hint="set include_thoughts = false for this model",
        )
    if config.get("thinkingBudget") == 0:
        dropped.append("include_thoughts")
        return config
    return {"includeThoughts": True, **config}


def _amount(settings: ModelSettings, family: Family) -> dict[str, Any]:
    """Return the level or the budget to send; nothing for a model's default, or where it has no switch."""
    wish = settings.thinking
    if wish is None:
        return {}
    if wish in family.levels:
        return {"thinkingLevel": wish.upper()}
    if family.budget is None:
        if wish in family.words:
            return {}
        raise _refusal(settings, family)
    tokens = int(wish) if wish.isascii() and wish.isdecimal() and len(wish) < 10 else family.budget.words.get(wish)
    if tokens is None or not family.budget.accepts(tokens):
        raise _refusal(settings, family)
    if tokens and settings.max_output_tokens is not None and settings.max_output_tokens <= tokens:
        raise UsageError(
            f"model {settings.request_model}: max_output_tokens {settings.max_output_tokens} leaves no room"
            f" beside {tokens} tokens of thinking ({wish!r})",
            hint=f"set max_output_tokens above {tokens}: on Gemini it covers the thoughts too",
        )
    return {"thinkingBudget": tokens}


def _refusal(settings: ModelSettings, family: Family) -> UsageError:
    accepted = ", ".join(family.words)
    if family.budget is not None:
        accepted += f", or a number of tokens from {family.budget.least} to {family.budget.most}"
    return refused_thinking(settings, accepted)


def _add_parameters(
    body: dict[str, Any], generation: dict[str, Any], settings: ModelSettings, family: Family, dropped: list[str]
) -> None:
    """Put a study's parameters where Gemini reads them; `top_p` and `topP` are the same parameter."""
    beside: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    for written, value in (settings.parameters or {}).items():
        name = re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), written)
        if family.ignores_sampling and name in _PENALTIES:
            raise UsageError(
                f"model {settings.request_model} refuses parameter {written!r}",
                hint=f"remove {written!r} from the parameters of this model",
            )
        place = beside if name in _BESIDE_GENERATION else inside
        if name in place:
            raise UsageError(f"model {settings.request_model}: parameter {name!r} is written twice")
        if family.ignores_sampling and name in _SAMPLING:
            dropped.append(name)
        else:
            place[name] = value
    add_parameters(generation, dataclasses.replace(settings, parameters=inside), _RESERVED)
    add_parameters(body, dataclasses.replace(settings, parameters=beside), _RESERVED)


def _contents(prompt: Prompt) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "parts": [{"text": prompt}]}]
    names = {Role.USER: "user", Role.ASSISTANT: "model"}
    return [{"role": names[turn.role], "parts": [{"text": turn.text}]} for turn in prompt]
