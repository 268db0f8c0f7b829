"""Anthropic's requests and answers: bodies that refuse what a model would refuse, lines and live answers read totally.

[sdk] is anthropic 2.11 `types/model.py`, `types/thinking_config_*.py`, `types/output_config_param.py`,
`resources/messages/messages.py`. Rows: `{custom_id, result: {type: succeeded, message} | {type: errored, error: {type:
error, error: {type, message, details}, request_id}} | {type: canceled} | {type: expired}}`
(`types/messages/message_batch_individual_response.py` and its siblings).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import orjson
from msgspec import Struct

from batchpond import fields
from batchpond.errors import UsageError
from batchpond.model import ErrorClass, Finish, Prompt, Response
from batchpond.providers import base
from batchpond.providers.http.errors import ApiError, classify, read_error
from batchpond.providers.shared import dialect, lines
from batchpond.providers.shared.dialect import BuiltBody, Dialect, ModelSettings
from batchpond.providers.shared.lines import PARTS, Count, Id, ReadLine, Row, Tokens, Word

HEAD: Final = b'{"requests":['
TAIL: Final = b"]}"
MESSAGES: Final = "/v1/messages"
MESSAGES_2023: Final = "/v1/messages@2023-06-01"
VERSIONS: Final = {MESSAGES: "2026-10-21", MESSAGES_2023: "2023-06-01"}
TEMPERATURE_MAX: Final = 1.0
# `max_tokens` where a study gives none: the answer, and what a level of thinking may take before it.
ANSWER_TOKENS: Final = 4_096
ROOM_TOKENS: Final = base.table("anthropic", "room")
_CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SAMPLING: Final = ("top_p", "top_k")
_RESERVED: Final = base.table("anthropic", "reserved")
BUDGET_MIN_TOKENS: Final = 1_024  # [sdk] thinking_config_enabled_param.py
# What a thinking word means in tokens where a model takes budgets; batchpond's own scale.
BUDGETS: Final = base.table("anthropic", "budgets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(base.Family):
    """One model and its dated names.

    `efforts` are the words it takes beside adaptive thinking, empty where words become budgets.
    `off` is the `thinking.type` that turns thinking off, None where nothing does. `default_effort` is None where it
    does not think unless asked. `hides_thoughts` where thoughts come back empty unless asked for. `takes_sampling`
    is about API version 2023-06-01, since later ones take none from any model. A marked text shorter than
    `cache_min_tokens` is not kept; 0 where that is not known.
    """

    efforts: tuple[str, ...]
    off: Literal["disabled", "between_tools"] | None = None
    default_effort: str | None = None
    max_output_tokens: int
    cache_min_tokens: int = 0
    takes_budget: bool = False
    takes_sampling: bool = False
    hides_thoughts: bool = True

    @property
    def thinks_by_default(self) -> bool:
        """Whether it thinks when nothing is said about thinking."""
        return self.default_effort is not None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the thinking words it accepts."""
        return (("none",) if self.off else ()) + (self.efforts or tuple(BUDGETS))


FAMILIES: Final = base.Families("anthropic", Family)


def accepted_thinking(model: str) -> tuple[str, ...]:
    """Return what a model accepts as thinking, for people: its words, and a budget where it takes one."""
    family = FAMILIES.of(model)
    budget = (f"a number of tokens from {BUDGET_MIN_TOKENS}",) if family.takes_budget else ()
    return (*family.words, *budget)


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a thinking setting becomes: `config` and `effort` are sent, None and {} where nothing is."""

    is_on: bool
    room_tokens: int
    config: Mapping[str, Any] = field(default_factory=dict)
    effort: str | None = None
    budget_tokens: int = 0


class Anthropic(Dialect):
    """What is asked of Anthropic's models, and what they answer."""

    answer_members = ("content",)
    line_form = b'{"custom_id":%(id)b,"params":%(body)b}'
    DESCRIPTOR = base.descriptor(
        "anthropic",
        endpoints=tuple(VERSIONS),
        max_bytes=256_000_000 - len(HEAD + TAIL),
        headers=(("anthropic-version", VERSIONS[MESSAGES]),),
        nearest=FAMILIES.nearest,
    )

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG002
        """Return the endpoint to use where the study names none: the older one, if its temperature may help."""
        family = FAMILIES.of(model)
        is_older = temperature is not None and family.takes_sampling and family.is_known
        return MESSAGES_2023 if is_older else MESSAGES

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model before money is spent on it."""
        family = FAMILIES.of(model)
        if not (family.is_known and family.thinks_by_default):
            return FAMILIES.caveats(model)
        how = 'unless thinking is "none"' if family.off else "and cannot be kept from it"
        return (
            f"{model} thinks by default {how}; thinking is billed as output and counts against max_output_tokens: "
            "leave room for thousands of tokens, or answers come back cut off and empty",
        )

    def effort(self, model: str, thinking: str) -> str:
        """Return how hard a model thinks by a study's word: unasked as its family does, or the budget of the word."""
        family = FAMILIES.of(model)
        if thinking not in BUDGETS:
            return family.default_effort or "none" if thinking == dialect.UNASKED else thinking
        return thinking if family.efforts else str(BUDGETS[thinking])

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the `params` of a batch entry for a prompt (anthropic 2.11 `message_create_params.py`).

        `max_tokens`, which Anthropic requires, is by default 4,096 without thinking, 8,192 at effort
        low, 16,384 medium, 32,768 high, 64,000 xhigh and max, and the budget plus 4,096 where there is
        one. What rules forbid (temperature) is left out and named in `dropped`; thinking that the model
        does not know, and limits that cannot hold, raise UsageError.
        """
        dialect.check_endpoint(settings, self.DESCRIPTOR)
        self.logprobs(settings)
        family = FAMILIES.of(settings.request_model)
        dropped: list[str] = []
        thinking = _with_thoughts(_thinking(settings, family), settings, family, dropped)
        system, rest = dialect.apart(prompt)
        body: dict[str, Any] = {
            "model": settings.request_model,
            "max_tokens": _max_tokens(settings, family, thinking),
            "messages": dialect.messages(rest, self),
        }
        if system is not None:
            body["system"] = system
        if thinking.config:
            body["thinking"] = dict(thinking.config)
        _sample(body, settings, family, thinking, dropped)
        if settings.output_schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": settings.output_schema}}
        dialect.add_parameters(body, settings, _RESERVED)
        if settings.thinking is not None:
            _set_effort(body, thinking.effort, settings)
        return BuiltBody(body, tuple(dropped), body["max_tokens"])

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one entry of a batch's `requests`, without a line feed; `body` is used as it is.

        Raises UsageError for a custom_id that Anthropic refuses: 1 to 64 of `[a-zA-Z0-9_-]`.
        """
        if not _CUSTOM_ID.fullmatch(custom_id):
            raise UsageError(f"custom_id {custom_id[:80]!r} is not 1 to 64 of a-z, A-Z, 0-9, _ and -")
        return super().payload_line(custom_id, endpoint, body)

    def marked(self, body: bytes, cache: str) -> bytes:
        """Return a body with a mark after its system prompt (anthropic 2.11 `cache_control_ephemeral_param.py`)."""
        found = orjson.loads(body)
        if isinstance(found.get("system"), str):
            mark = {"type": "ephemeral", "ttl": cache}
            found["system"] = [{"type": "text", "text": found["system"], "cache_control": mark}]
        return orjson.dumps(found)

    def kept_from(self, model: str) -> int:
        """Return of how many tokens on a cache keeps what is marked, by the model's family."""
        return FAMILIES.of(model).cache_min_tokens

    def is_answer(self, body: dict[str, Any]) -> bool:
        """Return whether the body of a live call that went well is an answer at all."""
        return isinstance(body.get("content"), list | str)

    @cached_property
    def straight(self) -> ReadLine:
        """What reads a well-formed message in its row."""
        return lines.reader(_Line, self.id_name, _read_whole)

    def read_row(self, row: dict[str, Any]) -> Response:
        """Return one row of a batch's results made uniform."""
        custom_id = fields.identifier(row.get("custom_id"))
        result = fields.mapping(row.get("result"))
        kind = fields.text(result.get("type"))
        if kind in _NOT_RUN:
            error_class, reason = _NOT_RUN[kind]
            return lines.failed(Row(custom_id), ApiError(reason, kind), error_class)
        if kind == "errored":
            return _errored(custom_id, result.get("error"))
        if kind != "succeeded":
            return lines.unreadable(
                custom_id, f"the row's result is of an unknown type: {kind[:100] if kind else kind}"
            )
        message = result.get("message")
        if not isinstance(message, dict):
            return lines.unreadable(custom_id, "the row succeeded but has no message")
        return self.read_body(Row(custom_id), message)

    def read_body(self, row: Row, body: dict[str, Any]) -> Response:
        """Return a message made uniform."""
        texts = _content(body.get("content"))
        reason = fields.word(body.get("stop_reason"))
        finish = FINISH.get(reason, Finish.OTHER) if reason else Finish.OTHER
        refusal = _refusal(body.get("stop_details")) if finish is Finish.REFUSAL else None
        named = row._replace(request_id=fields.identifier(body.get("id")))
        usage = fields.mapping(body.get("usage"))
        hour = fields.count(fields.mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
        return lines.answered(named, body.get("model"), reason, finish, (*texts, refusal), _usage(usage), hour)


DIALECT: Final = Anthropic()


def version_of(endpoint: str, model: str) -> str:
    """Return the API version that an endpoint stands for; raises UsageError for one that is none."""
    version = VERSIONS.get(endpoint)
    if version is None:
        raise UsageError(f"model {model}: endpoint {endpoint!r} is not one of {', '.join(VERSIONS)}")
    return version


def _thinking(settings: ModelSettings, family: Family) -> Thinking:
    word = settings.thinking
    if word is None:
        effort = family.default_effort
        return Thinking(family.thinks_by_default, ROOM_TOKENS[effort] if effort else ANSWER_TOKENS)
    if word.isascii() and word.isdecimal() and family.takes_budget:
        return _budget(int(word), settings, family)
    if word == "none" and family.off is not None:
        return Thinking(False, ANSWER_TOKENS, {"type": family.off})
    if word in family.efforts:
        return Thinking(True, ROOM_TOKENS[word], {"type": "adaptive"}, word)
    if word in family.words:
        return _budget(BUDGETS[word], settings, family)
    raise dialect.refused_thinking(settings, f"it accepts {', '.join(accepted_thinking(settings.request_model))}")


def _budget(tokens: int, settings: ModelSettings, family: Family) -> Thinking:
    if not BUDGET_MIN_TOKENS <= tokens < family.max_output_tokens:
        raise UsageError(
            f"model {settings.request_model}: a thinking budget of {tokens} tokens is not between "
            f"{BUDGET_MIN_TOKENS} and {family.max_output_tokens - 1}"
        )
    room = min(tokens + ANSWER_TOKENS, family.max_output_tokens)
    return Thinking(True, room, {"type": "enabled", "budget_tokens": tokens}, budget_tokens=tokens)


def _with_thoughts(thinking: Thinking, settings: ModelSettings, family: Family, dropped: list[str]) -> Thinking:
    if not settings.include_thoughts or (thinking.is_on and not family.hides_thoughts):
        return thinking
    if not thinking.is_on:
        dropped.append("include_thoughts")
        return thinking
    config = {**(thinking.config or {"type": "adaptive"}), "display": "summarized"}
    return replace(thinking, config=config)


def _max_tokens(settings: ModelSettings, family: Family, thinking: Thinking) -> int:
    limit = settings.max_output_tokens
    if limit is None:
        return thinking.room_tokens
    model = settings.request_model
    if limit > family.max_output_tokens:
        raise UsageError(f"model {model} puts out at most {family.max_output_tokens} tokens, not {limit}")
    if limit <= thinking.budget_tokens:
        raise UsageError(
            f"model {model}: max_output_tokens {limit} leaves nothing for the answer after "
            f"a thinking budget of {thinking.budget_tokens}",
            hint=f"raise it, such as to {thinking.room_tokens}, or think less",
        )
    return limit


def _sample(
    body: dict[str, Any], settings: ModelSettings, family: Family, thinking: Thinking, dropped: list[str]
) -> None:
    """Put a temperature where it is taken; refuse one that is too high, and what else is not taken.

    The version of 2023 takes sampling parameters, with thinking on none but their defaults, and no `top_p` beside a
    temperature (platform.claude.com "migration guide"; BerriAI/litellm#15097).
    """
    is_unheard_of = not family.is_known and settings.thinking is None
    is_older = settings.endpoint == MESSAGES_2023
    is_taken = is_older and family.takes_sampling and (is_unheard_of or not thinking.is_on)
    found = [name for name in _SAMPLING if name in (settings.parameters or {})]
    if found and not is_taken:
        raise UsageError(
            f"model {settings.request_model} at {settings.endpoint} takes no {' or '.join(found)}",
            hint=f"remove it; models up to 4.6 take it at {MESSAGES_2023} with thinking off",
        )
    value = settings.temperature
    if value is not None and not is_taken:
        dropped.append("temperature")
    elif value is not None and family.is_known and "top_p" in found:
        raise UsageError(f"model {settings.request_model} takes a temperature or top_p, not both", hint="remove one")
    elif value is not None and value > TEMPERATURE_MAX:
        raise UsageError(f"model {settings.request_model} takes a temperature of 0 to 1, not {value}")
    elif value is not None:
        body["temperature"] = value


def _set_effort(body: dict[str, Any], effort: str | None, settings: ModelSettings) -> None:
    """Put the effort of the study's thinking beside what else its own `output_config` holds."""
    given = body.get("output_config", {})
    if not isinstance(given, Mapping) or "effort" in given:
        raise UsageError(
            f"model {settings.request_model}: 'output_config' must be a table without an effort of its own",
            hint="the effort is set by the study's `thinking`",
        )
    if effort is not None:
        body["output_config"] = {**given, "effort": effort}


FINISH: Final = base.by_word("anthropic", "finish", Finish)
_CANCELLED: Final = ErrorClass.CANCELLED, "the batch was cancelled before this request ran"
_EXPIRED: Final = ErrorClass.EXPIRED, "the batch expired before this request ran"
_NOT_RUN: Final = {"canceled": _CANCELLED, "cancelled": _CANCELLED, "expired": _EXPIRED}


def _errored(custom_id: str | None, envelope: object) -> Response:
    """Return a row that failed: one request's trouble says little about the whole account.

    A model that is not there is a 404 whose message begins with `model:`.
    """
    outer = fields.mapping(envelope)
    inner = outer.get("error") if isinstance(outer.get("error"), dict) else outer
    error = read_error(fields.mapping(inner))
    if not error.message and error.kind is None:
        error = ApiError("the provider gave no error text")
    error_class = classify(None, error)
    if error.kind == "not_found_error" and error.message.startswith("model:"):
        error_class = ErrorClass.MODEL_GONE
    elif error_class is ErrorClass.ACCESS and error.kind != "authentication_error":
        error_class = ErrorClass.PERMANENT
    return lines.failed(Row(custom_id, None, fields.identifier(outer.get("request_id"))), error, error_class)


def _content(content: object) -> tuple[str | None, str | None]:
    """Return text and thoughts; text is None without any text block, redacted thoughts are left out."""
    if isinstance(content, str):
        return content, None
    texts: list[str] = []
    thoughts: list[str] = []
    for block in map(fields.mapping, fields.sequence(content, lines.PARTS_MAX)):
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                texts.append(block["text"])
            case "thinking" if fields.identifier(block.get("thinking")):
                thoughts.append(block["thinking"])
            case _:
                pass
    return lines.joined(texts, thoughts)


def _refusal(details: object) -> str | None:
    """Return why the model refused: the category and the explanation, each of which may be absent."""
    found = fields.mapping(details)
    parts = (fields.identifier(found.get(name)) for name in ("category", "explanation"))
    return ": ".join(part for part in parts if part) or None


def _usage(usage: Mapping[str, object]) -> Tokens:
    """Return the counts; Anthropic's `input_tokens` leaves out what the cache read and wrote of the prompt."""
    fresh, made = fields.count(usage.get("input_tokens")), fields.count(usage.get("output_tokens"))
    read = fields.count(usage.get("cache_read_input_tokens"))
    written = fields.count(usage.get("cache_creation_input_tokens"))
    total = None if fresh is None else fields.count(fresh + (written or 0) + (read or 0))
    reasoning = fields.count(fields.mapping(usage.get("output_tokens_details")).get("thinking_tokens"))
    return total, made, reasoning, read, written


_REFUSED: Final = Finish.REFUSAL  # an enumeration is asked for a member more slowly than a module for a name


class _Details(Struct):
    thinking_tokens: Count | None = None


class _Usage(Struct):
    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens_details: _Details | None = None
    cache_creation: dict[str, Count] | None = None

    def tokens(self) -> Tokens:
        read, written = self.cache_read_input_tokens, self.cache_creation_input_tokens
        details = self.output_tokens_details
        reasoning = details.thinking_tokens if details else None
        return self.input_tokens + (written or 0) + (read or 0), self.output_tokens, reasoning, read, written


class _Block(Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None


class _Message(Struct):
    content: Annotated[list[_Block], PARTS]
    id: str | None = None
    model: str | None = None
    stop_reason: Word | None = None
    usage: _Usage | None = None


class _Result(Struct):
    type: Literal["succeeded"]
    message: _Message


class _Line(Struct):
    """A well-formed message in its row."""

    custom_id: Id
    result: _Result


def _read_whole(line: _Line) -> Response | None:
    message = line.result.message
    finish = FINISH.get(message.stop_reason or "", lines.OTHER)
    if finish is _REFUSED:
        return None
    texts = [block.text for block in message.content if block.type == "text" and block.text is not None]
    thoughts = [block.thinking for block in message.content if block.type == "thinking" and block.thinking]
    usage, row = message.usage, Row(line.custom_id, None, message.id or None)
    tokens = usage.tokens() if usage else lines.NO_TOKENS
    hour = usage.cache_creation.get("ephemeral_1h_input_tokens") if usage and usage.cache_creation else None
    return lines.answered(
        row, message.model, message.stop_reason, finish, (*lines.joined(texts, thoughts), None), tokens, hour
    )
