"""What simulated Anthropic models answer to the parameters of one request.

Shapes follow the official SDK's types; error texts are those that the API gives.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from batchpond_sim.judges.judge import Judgement, Panel, Says, count_tokens
from batchpond_sim.judges.speech import EFFORT_TOKENS, RowAnswer, picture_problem, schema_problem, shown_tokens

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_EFFORTS_4_6 = ("low", "medium", "high", "max")
_DATED = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Family:
    """One model line.

    `thinking` are the types it takes, `default` what it does unasked. `off_efforts` are the efforts
    beside which thinking can be off. `snapshot` is the date that answers add to the name. `is_open`
    shows thoughts unless told otherwise; `samples` is about API version 2023-06-01.
    """

    name: str
    thinking: tuple[str, ...]
    default: str
    efforts: tuple[str, ...]
    max_output_tokens: int = 128_000
    off_efforts: tuple[str, ...] = EFFORTS
    is_open: bool = False
    samples: bool = False
    takes_prefill: bool = False
    snapshot: str = ""


def _old(name: str, snapshot: str) -> Family:
    return Family(name, ("enabled", "disabled"), "disabled", (), 64_000, EFFORTS, True, True, True, snapshot)


def _both(name: str) -> Family:
    kinds = ("enabled", "adaptive", "disabled")
    return Family(name, kinds, "disabled", _EFFORTS_4_6, is_open=True, samples=True)


def _asked(name: str) -> Family:
    return Family(name, ("adaptive", "disabled"), "disabled", EFFORTS)


def _unasked(name: str, off: tuple[str, ...] = ("disabled",), off_efforts: tuple[str, ...] = EFFORTS) -> Family:
    return Family(name, ("adaptive", *off), "adaptive", EFFORTS, off_efforts=off_efforts)


FAMILIES = (
    _unasked("claude-fable-5", ()),
    _unasked("claude-fable-5-1", ()),
    _unasked("claude-fable-5-2", ()),
    _unasked("claude-mythos-5", ()),
    _unasked("claude-mythos-5-1", ()),
    _unasked("claude-mythos-5-2", ()),
    _unasked("claude-opus-5-5", ()),
    _unasked("claude-sonnet-5-5", ("between_tools",)),
    _unasked("claude-haiku-5-5"),
    _unasked("claude-opus-5", off_efforts=EFFORTS[:3]),
    _unasked("claude-sonnet-5"),
    _asked("claude-opus-4-8"),
    _asked("claude-opus-4-7"),
    _both("claude-opus-4-6"),
    _both("claude-sonnet-4-6"),
    _old("claude-opus-4-5", "20251101"),
    _old("claude-sonnet-4-5", "20250929"),
    _old("claude-haiku-4-5", "20251001"),
)
_BY_NAME = {family.name: family for family in FAMILIES}


@lru_cache(maxsize=256)
def family_of(model: str) -> Family | None:
    """Return the family of a model's name or dated name, None for a model that does not exist."""
    return _BY_NAME.get(_DATED.sub("", model).removesuffix("-latest"))


OLD_VERSION = "2023-06-01"
VERSION = "2026-10-21"
VERSIONS = (OLD_VERSION, VERSION)

_KNOWN = frozenset({
    "model", "max_tokens", "messages", "system", "stop_sequences", "thinking", "output_config", "metadata", "tools",
    "tool_choice", "service_tier", "inference_geo", "cache_control", "container", "diagnostics", "stream",
    "temperature", "top_p", "top_k", "speed", "user_profile_id", "workspace_id",
})  # fmt: skip
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": None}
_LIVE_ONLY = ("speed",)


class ParamsError(ValueError):
    """What is wrong with a request's parameters; `kind` is the API's error type."""

    def __init__(self, message: str, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.kind = kind


def check_params(params: dict[str, Any], version: str, *, is_batch: bool) -> Family:
    """Return the family of the model asked for; raises ParamsError for the first thing refused."""
    for name in ("model", "max_tokens", "messages"):
        if params.get(name) is None:
            raise ParamsError(f"{name}: Field required")
    unknown = params.keys() - _KNOWN
    if version == VERSION:
        unknown |= params.keys() & _SAMPLING.keys()
    if unknown:
        raise ParamsError(f"{min(unknown)}: Extra inputs are not permitted")
    if is_batch:
        _check_batch(params)
    family = family_of(str(params["model"]))
    if family is None:
        raise ParamsError(f"model: {params['model']}", "not_found_error")
    _check_max_tokens(params, family, is_batch)
    _check_messages(params["messages"], family, version)
    _check_system(params.get("system"))
    _check_format(params.get("output_config"))
    kind = _check_thinking(params, family)
    if version == OLD_VERSION:
        _check_sampling(params, family, is_thinking=kind in ("enabled", "adaptive"))
    return family


def thinking_of(params: dict[str, Any], family: Family) -> str:
    """Return the type of thinking that accepted parameters come down to."""
    thinking = params.get("thinking")
    return str(thinking["type"]) if isinstance(thinking, dict) else family.default


def effort_of(params: dict[str, Any]) -> str | None:
    """Return the effort that parameters ask for."""
    config = params.get("output_config")
    return config.get("effort") if isinstance(config, dict) else None


def _check_batch(params: dict[str, Any]) -> None:
    if params.get("stream"):
        raise ParamsError('"stream=True" is not supported in the Message Batches API')
    for name in _LIVE_ONLY:
        if params.get(name) is not None:
            raise ParamsError(f"{name}: Extra inputs are not permitted")


def _check_format(config: Any) -> None:
    form = config.get("format") if isinstance(config, dict) else None
    if form is None:
        return
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise ParamsError("output_config.format.type: Input should be 'json_schema'")
    problem = schema_problem(form.get("schema"))
    if problem is not None:
        raise ParamsError(f"output_config.format.schema: {problem}")


def _check_max_tokens(params: dict[str, Any], family: Family, is_batch: bool) -> None:
    wanted = params["max_tokens"]
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise ParamsError("max_tokens: Input should be a valid integer")
    least = 1 if is_batch else 0
    if wanted < least:
        raise ParamsError(f"max_tokens: must be greater than or equal to {least}")
    most = family.max_output_tokens
    if wanted > most:
        text = f"max_tokens: {wanted} > {most}, which is the maximum allowed number of output tokens for "
        raise ParamsError(text + str(params["model"]))


def _check_messages(messages: Any, family: Family, version: str) -> None:
    if not isinstance(messages, list):
        raise ParamsError("messages: Input should be a valid list")
    if not messages:
        raise ParamsError("messages: at least one message is required")
    for i, message in enumerate(messages):
        _check_message(i, message, version)
    if (problem := picture_problem(messages)) is not None:
        raise ParamsError(f"messages: {problem}")
    if messages[-1]["role"] == "assistant" and not family.takes_prefill:
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        raise ParamsError(text)


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise ParamsError("system: Input should be a valid list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise ParamsError(f"system.{i}.type: Input should be 'text'")
        if not block.get("text"):
            raise ParamsError("system: text content blocks must be non-empty")


def _check_message(i: int, message: Any, version: str) -> None:
    if not isinstance(message, dict):
        raise ParamsError(f"messages.{i}: Input should be an object")
    if message.get("role") not in ("user", "assistant"):
        raise ParamsError(f"messages.{i}.role: Input should be 'user' or 'assistant'")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise ParamsError(f"messages.{i}.content: Field required")
    if not content and message["role"] == "user":
        raise ParamsError(f"messages.{i}: user messages must have non-empty content")
    for j, block in enumerate(content if isinstance(content, list) else ()):
        where = f"messages.{i}.content.{j}"
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ParamsError(f"{where}.type: Field required")
        if block["type"] == "text" and not block.get("text"):
            raise ParamsError("messages: text content blocks must be non-empty")
        if version == OLD_VERSION:
            continue
        if block["type"] == "document" and message["role"] == "assistant":
            raise ParamsError(f"{where}: document blocks are not permitted in assistant messages")
        if block["type"] == "text" and message["role"] == "user" and block.get("citations"):
            raise ParamsError(f"{where}.citations: Extra inputs are not permitted")


def _check_thinking(params: dict[str, Any], family: Family) -> str:
    effort = effort_of(params)
    if effort is not None:
        _check_effort(effort, family)
    thinking = params.get("thinking")
    if thinking is None:
        return family.default
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "adaptive", "disabled", "between_tools"):
        raise ParamsError(
            "thinking: Input tag does not match any of the expected tags: 'enabled', 'adaptive', 'disabled'"
        )
    if kind not in family.thinking:
        raise ParamsError(_unsupported(kind, family))
    if kind == "enabled":
        _check_budget(thinking, params["max_tokens"])
    if kind == "disabled" and effort is not None and effort not in family.off_efforts:
        raise ParamsError(f'"thinking.type.disabled" is not supported with "output_config.effort" of {effort}.')
    if thinking.get("display") not in (None, "summarized", "omitted"):
        raise ParamsError("thinking.display: Input should be 'summarized' or 'omitted'")
    return str(kind)


def _unsupported(kind: str, family: Family) -> str:
    if kind == "enabled":
        return (
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    if kind == "adaptive":
        return "adaptive thinking is not supported on this model"
    listed = ", ".join(f'"{word}"' for word in family.thinking)
    return f'"thinking.type.{kind}" is not supported for this model. Supported: {listed}.'


def _check_effort(effort: Any, family: Family) -> None:
    if not family.efforts:
        raise ParamsError("This model does not support the effort parameter.")
    if effort not in family.efforts:
        listed = ", ".join(f"'{word}'" for word in family.efforts)
        raise ParamsError(f"output_config.effort: Input should be one of {listed}")


def _check_budget(thinking: dict[str, Any], max_tokens: int) -> None:
    budget = thinking.get("budget_tokens")
    if budget is None:
        raise ParamsError("thinking.enabled.budget_tokens: Field required")
    if not isinstance(budget, int) or budget < 1024:
        raise ParamsError("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= max_tokens:
        raise ParamsError("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_sampling(params: dict[str, Any], family: Family, *, is_thinking: bool) -> None:
    for name, neutral in _SAMPLING.items():
        value = params.get(name)
        if value is None:
            continue
        if not family.samples:
            raise ParamsError(f"`{name}` is deprecated for this model.")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ParamsError(f"{name}: Input should be a valid number")
        if neutral is not None and not 0 <= value <= 1:
            raise ParamsError(f"{name}: range: 0..1")
        if is_thinking and value != neutral and name == "temperature":
            raise ParamsError("`temperature` may only be set to 1 when thinking is enabled.")


CACHED_TOKENS_MIN = 1024
CREDIT_TEXT = (
    "Your credit balance is too low to access the Anthropic API. "
    "Please go to Plans & Billing to upgrade or purchase credits."
)
_PROMPT_EXTRA_TOKENS = 9
_REFUSAL_TOKENS = 8
_REFUSALS = {
    "general_harms": "This request could be related to an area that is restricted under the usage policy.",
    "bio": "This request was blocked by a safeguard for the life sciences.",
    "cyber": "This request was blocked by a safeguard for cybersecurity.",
}
_FORCED = {
    "error_429": ("rate_limit_error", "This request would exceed your organization's rate limit."),
    "error_500": ("api_error", "Internal server error"),
    "output_500": ("api_error", "Internal server error"),
    "error_400": ("invalid_request_error", "messages: Field required"),
    "billing_rows": ("billing_error", CREDIT_TEXT),
    "filtered_rows": ("invalid_request_error", "Output blocked by content filtering policy"),
}
_OVERLOADED = ("overloaded_error", "Overloaded")


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which API version, in a batch or live, and with which cached prefixes requests are answered."""

    version: str
    is_batch: bool
    cached: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Completion:
    text: str
    stop: str
    stop_sequence: str | None
    category: str | None
    spoken_tokens: int
    thinking_tokens: int


def answer(
    params: dict[str, Any], request_key: str, panel: Panel, conditions: Conditions, force: str = ""
) -> RowAnswer:
    """Return the answer to one request's parameters.

    `request_key` makes repeats of one body differ; `force` is a row fault (`refusal`,
    `empty_text`, `truncated_text`, `billing_rows`, `error_429`, ...) or empty.
    """
    if force in _FORCED:
        return _error(*_FORCED[force])
    try:
        family = check_params(params, conditions.version, is_batch=conditions.is_batch)
    except ParamsError as error:
        return _error(error.kind, str(error), is_checked=False)
    prompt = "\n\n".join(_texts(params))
    judged = panel.answer(str(params["model"]), prompt, request_key)
    if judged.says is Says.ERROR:
        return _error(*(_OVERLOADED if judged.u < 0.5 else _FORCED["error_500"]))
    said = _completed(params, family, judged, force)
    usage = _usage(params, prompt, said, conditions)
    body = _message(params, family, judged, said)
    tokens_in = usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"]
    tokens_out = usage["output_tokens"]
    return RowAnswer(200, body | {"usage": usage}, tokens_in, tokens_out, said.thinking_tokens)


def _error(kind: str, message: str, *, is_checked: bool = True) -> RowAnswer:
    return RowAnswer(400, {"type": kind, "message": message}, is_checked=is_checked)


def _blocks(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a prompt in the order in which they are cached."""
    parts = [params.get("system"), *(message["content"] for message in params["messages"])]
    for part in parts:
        if isinstance(part, str):
            yield {"type": "text", "text": part}
        elif isinstance(part, list):
            yield from (block for block in part if isinstance(block, dict))


def _texts(params: dict[str, Any]) -> Iterator[str]:
    return (str(block.get("text") or "") for block in _blocks(params))


def _cached_prefix(params: dict[str, Any]) -> tuple[str, str]:
    """Return the text up to the last cache mark and how long it is kept; empty without one."""
    prefix, ttl, texts = "", "", []
    for block in _blocks(params):
        texts.append(str(block.get("text") or ""))
        mark = block.get("cache_control")
        if isinstance(mark, dict):
            prefix, ttl = "\n\n".join(texts), mark.get("ttl", "5m")
    mark = params.get("cache_control")
    if isinstance(mark, dict):
        prefix, ttl = "\n\n".join(texts), mark.get("ttl", "5m")
    return prefix, ttl


def _thinking_tokens(params: dict[str, Any], family: Family, u: float) -> int:
    kind = thinking_of(params, family)
    if kind == "enabled":
        return int(min(params["thinking"]["budget_tokens"], 3000) * (0.25 + 0.5 * u))
    if kind == "adaptive":
        return int(EFFORT_TOKENS[effort_of(params) or "high"] * (0.5 + u))
    return 0


def _completed(params: dict[str, Any], family: Family, judged: Judgement, force: str) -> _Completion:
    thinking = _thinking_tokens(params, family, judged.u)
    if judged.says in (Says.REFUSAL, Says.FILTERED) or force == "refusal":
        is_plain = judged.says is not Says.FILTERED
        category = "general_harms" if is_plain else "bio" if judged.u < 0.5 else "cyber"
        return _Completion("", "refusal", None, category, _REFUSAL_TOKENS, 0)
    text, stop, sequence = judged.text, "end_turn", None
    if judged.says is Says.EMPTY or force == "empty_text":
        text = ""
    for word in params.get("stop_sequences") or ():
        if isinstance(word, str) and word and word in text:
            text, stop, sequence = text.split(word, 1)[0], "stop_sequence", word
    spoken = count_tokens(text) if text else 1
    limit = thinking + spoken // 2 if force == "truncated_text" else params["max_tokens"]
    if thinking + spoken > limit:
        thinking = min(thinking, limit)
        spoken = limit - thinking
        text, stop, sequence = text[: spoken * 4], "max_tokens", None
    return _Completion(text, stop, sequence, None, spoken, thinking)


def _usage(params: dict[str, Any], prompt: str, said: _Completion, conditions: Conditions) -> dict[str, Any]:
    prefix, ttl = _cached_prefix(params)
    created = read = 0
    n_tokens = count_tokens(prompt) + shown_tokens(params["model"], params["messages"]) + _PROMPT_EXTRA_TOKENS
    n_prefix = count_tokens(prefix) if prefix else 0
    if n_prefix >= CACHED_TOKENS_MIN:
        name = hashlib.sha256(f"{params['model']}|{prefix}".encode("utf-8", "surrogatepass")).hexdigest()
        created, read = (0, n_prefix) if name in conditions.cached else (n_prefix, 0)
        conditions.cached.add(name)
    return {
        "input_tokens": n_tokens - created - read,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": created if ttl != "1h" else 0,
            "ephemeral_1h_input_tokens": created if ttl == "1h" else 0,
        },
        "output_tokens": said.spoken_tokens + said.thinking_tokens,
        "output_tokens_details": {"thinking_tokens": said.thinking_tokens},
        "service_tier": "batch" if conditions.is_batch else "standard",
        "inference_geo": "not_available",
    }


def _message(params: dict[str, Any], family: Family, judged: Judgement, said: _Completion) -> dict[str, Any]:
    content = list(_thoughts(params, family, judged, said))
    if said.text:
        content.append({"type": "text", "text": said.text})
    details = None
    if said.category is not None:
        details = {"type": "refusal", "category": said.category, "explanation": _REFUSALS[said.category]}
    model = str(params["model"])
    return {
        "id": f"msg_{judged.key[:24]}",
        "type": "message",
        "role": "assistant",
        "model": f"{model}-{family.snapshot}" if family.snapshot and model == family.name else model,
        "content": content,
        "stop_reason": said.stop,
        "stop_sequence": said.stop_sequence,
        "stop_details": details,
    }


def _thoughts(params: dict[str, Any], family: Family, judged: Judgement, said: _Completion) -> Iterator[dict[str, Any]]:
    if not said.thinking_tokens:
        return
    signature = f"Er{judged.key}"
    if family.is_open and judged.u < 1 / 16:
        yield {"type": "redacted_thinking", "data": f"Em{judged.key}"}
    display = (params.get("thinking") or {}).get("display") or ("summarized" if family.is_open else "omitted")
    thought = (judged.thoughts or "Let me think about this.") if display == "summarized" else ""
    yield {"type": "thinking", "thinking": thought, "signature": signature}
