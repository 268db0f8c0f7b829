"""What simulated Anthropic models answer to the parameters of one request.

Shapes follow the official SDK's types; error texts are those that the API gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from batchpond_sim.anthropic.models import Family
from batchpond_sim.anthropic.params import ParamsError, check_params, effort_of, thinking_of
from batchpond_sim.judges.judge import Judgement, Panel, Says, count_tokens

CACHED_TOKENS_MIN = 1024
CREDIT_TEXT = (
    "Your credit balance is too low to access the Anthropic API. "
    "Please go to Plans & Billing to upgrade or purchase credits."
)
_EFFORT_TOKENS = {"low": 96, "medium": 320, "high": 900, "xhigh": 1800, "max": 3600}
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
}
_OVERLOADED = ("overloaded_error", "Overloaded")


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """A message, or an error (`kind` is its type, else empty), and what it is billed for.

    `is_checked` is false for errors of a request that was refused before it was run.
    """

    body: dict[str, Any]
    kind: str = ""
    is_checked: bool = True
    input_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which API version, in a batch or live, and with which cached prefixes requests are answered."""

    version: str
    is_batch: bool
    cached: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Said:
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
    said = _said(params, family, judged, force)
    usage = _usage(params, prompt, said, conditions)
    body = _message(params, family, judged, said)
    tokens_in = usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"]
    tokens_out = usage["output_tokens"]
    return RowAnswer(body | {"usage": usage}, "", True, tokens_in, tokens_out, said.thinking_tokens)


def _error(kind: str, message: str, *, is_checked: bool = True) -> RowAnswer:
    return RowAnswer({"type": kind, "message": message}, kind, is_checked)


# -- reading parameters ------------------------------------------------------------------------


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


# -- saying something --------------------------------------------------------------------------


def _thinking_tokens(params: dict[str, Any], family: Family, u: float) -> int:
    kind = thinking_of(params, family)
    if kind == "enabled":
        return int(min(params["thinking"]["budget_tokens"], 4000) * (0.25 + 0.5 * u))
    if kind == "adaptive":
        return int(_EFFORT_TOKENS[effort_of(params) or "high"] * (0.5 + u))
    return 0


def _said(params: dict[str, Any], family: Family, judged: Judgement, force: str) -> _Said:
    thinking = _thinking_tokens(params, family, judged.u)
    if judged.says in (Says.REFUSAL, Says.FILTERED) or force == "refusal":
        is_plain = judged.says is not Says.FILTERED
        category = "general_harms" if is_plain else "bio" if judged.u < 0.5 else "cyber"
        return _Said("", "refusal", None, category, _REFUSAL_TOKENS, 0)
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
    return _Said(text, stop, sequence, None, spoken, thinking)


def _usage(params: dict[str, Any], prompt: str, said: _Said, conditions: Conditions) -> dict[str, Any]:
    prefix, ttl = _cached_prefix(params)
    created = read = 0
    n_prefix = count_tokens(prefix) if prefix else 0
    if n_prefix >= CACHED_TOKENS_MIN:
        name = hashlib.sha256(f"{params['model']}|{prefix}".encode("utf-8", "surrogatepass")).hexdigest()
        created, read = (0, n_prefix) if name in conditions.cached else (n_prefix, 0)
        conditions.cached.add(name)
    return {
        "input_tokens": count_tokens(prompt) + _PROMPT_EXTRA_TOKENS - created - read,
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


def _message(params: dict[str, Any], family: Family, judged: Judgement, said: _Said) -> dict[str, Any]:
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


def _thoughts(params: dict[str, Any], family: Family, judged: Judgement, said: _Said) -> Iterator[dict[str, Any]]:
    if not said.thinking_tokens:
        return
    signature = f"Er{judged.key}"
    if family.is_open and judged.u < 1 / 16:
        yield {"type": "redacted_thinking", "data": f"Em{judged.key}"}
    display = (params.get("thinking") or {}).get("display") or ("summarized" if family.is_open else "omitted")
    thought = (judged.thoughts or "Let me think about this.") if display == "summarized" else ""
    yield {"type": "thinking", "thinking": thought, "signature": signature}
