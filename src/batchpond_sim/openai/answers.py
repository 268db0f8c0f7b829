"""What simulated OpenAI models answer to one request body: Chat Completions and Responses.

Shapes follow the official SDK's types; error texts are those that the API gives.
"""

from __future__ import annotations

import re
from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.shared.api import openai_error

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"

_REASONING_MODEL = re.compile(r"(ft:)?(o\d|gpt-[5-9])(?!-chat)")
_NONE_BY_DEFAULT = re.compile(r"(ft:)?gpt-5\.[1-4](?!-(pro|chat|codex-max))")
_WITHOUT_SCHEMA = re.compile(r"gpt-3\.5|gpt-4(-|$)|chatgpt-4o")
_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_COMMON = {
    "model", "temperature", "top_p", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "user", "stream", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs", "prompt_cache_retention",
}  # fmt: skip
_KNOWN = {
    CHAT: _COMMON | {
        "messages", "max_completion_tokens", "max_tokens", "reasoning_effort", "verbosity", "response_format", "seed",
        "stop", "n", "logprobs", "frequency_penalty", "presence_penalty", "logit_bias", "modalities", "prediction",
        "stream_options", "web_search_options", "audio", "functions", "function_call",
    },
    RESPONSES: _COMMON | {
        "input", "instructions", "max_output_tokens", "reasoning", "text", "include", "truncation", "background",
        "previous_response_id", "conversation", "max_tool_calls", "prompt", "stream_options", "context_management",
    },
}  # fmt: skip


def _bad(message: str, param: str | None, code: str | None) -> speech.RowAnswer:
    return speech.RowAnswer(400, openai_error(message, "invalid_request_error", param, code))


def answer(
    endpoint: str, body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = ""
) -> speech.RowAnswer:
    """Return the answer to one request body.

    `request_key` makes repeats of one body differ; `force` is a row fault (`refusal`,
    `empty_text`, `truncated_text`, `billing_rows`, `error_429`, ...) or empty.
    """
    if endpoint not in _KNOWN:
        return _bad(f"This simulator answers {CHAT} and {RESPONSES}, not {endpoint}.", None, "unsupported_endpoint")
    forced = _forced_error(force)
    if forced is not None:
        return forced
    refused = _refused_parameters(endpoint, body)
    if refused is not None:
        return refused
    asked = _asked_chat(body) if endpoint == CHAT else _asked_responses(body)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _server_error()
    said = speech.completed(asked, judged, force)
    if endpoint == CHAT:
        return _row(said, _chat_body(asked, said, created_at, body))
    return _row(said, _responses_body(asked, said, body, created_at))


def _row(said: speech.Completion, body: dict[str, Any]) -> speech.RowAnswer:
    return speech.RowAnswer(200, body, said.input_tokens, said.output_tokens, said.reasoning_tokens)


def _server_error() -> speech.RowAnswer:
    text = "The server had an error while processing your request. Sorry about that!"
    return speech.RowAnswer(500, openai_error(text, "server_error", None, "server_error"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            text = "Rate limit reached for requests. Please try again later."
            return speech.RowAnswer(429, openai_error(text, "requests", None, "rate_limit_exceeded"))
        case "error_500":
            return _server_error()
        case "error_400":
            return _bad("Invalid value for 'messages'.", "messages", "invalid_value")
        case "billing_rows":
            text = "You exceeded your current quota, please check your plan and billing details."
            return speech.RowAnswer(429, openai_error(text, "insufficient_quota", None, "insufficient_quota"))
        case "filtered_rows":
            text = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
            return _bad(text, "prompt", "content_filter")
        case _:
            return None


_ROLES = {
    "messages": ("system", "assistant", "user", "function", "tool", "developer"),
    "input": ("assistant", "system", "developer", "user"),
}


def _refused_parameters(endpoint: str, body: dict[str, Any]) -> speech.RowAnswer | None:
    unknown = body.keys() - _KNOWN[endpoint]
    if unknown:
        name = min(unknown)
        return _bad(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    needed = "messages" if endpoint == CHAT else "input"
    if not isinstance(body.get(needed), list if endpoint == CHAT else list | str):
        return _bad(f"Missing required parameter: '{needed}'.", needed, "missing_required_parameter")
    if (problem := speech.picture_problem(body[needed])) is not None:
        return _bad(problem, needed, "invalid_image_format")
    return _refused_role(needed, body[needed]) or _refused_format(endpoint, body) or _refused_values(endpoint, body)


def _refused_role(name: str, messages: Any) -> speech.RowAnswer | None:
    known = _ROLES[name]
    place = speech.stranger(messages, known)
    if place is None:
        return None
    role = messages[place].get("role") if isinstance(messages[place], dict) else None
    words = ", ".join(f"'{word}'" for word in known[:-1])
    message = f"Invalid value: '{role}'. Supported values are: {words}, and '{known[-1]}'."
    return _bad(message, f"{name}[{place}].role", "invalid_value")


def _refused_format(endpoint: str, body: dict[str, Any]) -> speech.RowAnswer | None:
    """Refuse a schema that is none, or that the model does not take."""
    text = body.get("text")
    form = body.get("response_format") if endpoint == CHAT else text.get("format") if isinstance(text, dict) else None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    param = "response_format" if endpoint == CHAT else "text.format"
    if _WITHOUT_SCHEMA.match(str(body.get("model"))):
        message = f"Invalid parameter: '{param}' of type 'json_schema' is not supported with this model."
        return _bad(message, None, None)
    problem = speech.named_schema_problem(form.get("json_schema") if endpoint == CHAT else form)
    return None if problem is None else _bad(problem, param, "invalid_json_schema")


def _refused_values(endpoint: str, body: dict[str, Any]) -> speech.RowAnswer | None:
    model = str(body.get("model"))
    effort = _effort(endpoint, body)
    is_reasoning = _REASONING_MODEL.match(model) is not None
    if effort is not None:
        refused = _refused_effort("reasoning_effort" if endpoint == CHAT else "reasoning.effort", model, effort)
        if refused is not None:
            return refused
    is_fixed = (effort or _default_effort(model)) != "none"
    for name, top in (("temperature", 2), ("top_p", 1)):
        refused = _refused_number(name, top, body.get(name), is_fixed)
        if refused is not None:
            return refused
    if is_fixed and (body.get("logprobs") or body.get("top_logprobs")):
        return speech.RowAnswer(403, openai_error("You are not allowed to request logprobs from this model"))
    if is_reasoning and "max_tokens" in body:
        text = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return _bad(text, "max_tokens", "unsupported_parameter")
    least = body.get("max_output_tokens")
    if endpoint == RESPONSES and isinstance(least, int) and least < 16:
        text = (
            "Invalid 'max_output_tokens': integer below minimum value. "
            f"Expected a value >= 16, but got {least} instead."
        )
        return _bad(text, "max_output_tokens", "integer_below_min_value")
    return None


def _refused_effort(param: str, model: str, effort: str) -> speech.RowAnswer | None:
    if not _REASONING_MODEL.match(model):
        text = f"Unsupported parameter: '{param}' is not supported with this model."
        return _bad(text, param, "unsupported_parameter")
    words = _efforts(model)
    if effort in words:
        return None
    listed = ", ".join(f"'{word}'" for word in words)
    if effort in speech.EFFORT_TOKENS:
        text = (
            f"Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are: {listed}."
        )
        return _bad(text, param, "unsupported_value")
    return _bad(f"Invalid value: '{effort}'. Supported values are: {listed}.", param, "invalid_value")


def _refused_number(name: str, top: int, value: Any, is_fixed: bool) -> speech.RowAnswer | None:
    if value is None:
        return None
    if not isinstance(value, int | float):
        return _bad(
            f"Invalid type for '{name}': expected a decimal, but got something else instead.", name, "invalid_type"
        )
    if value > top:
        text = f"Invalid '{name}': decimal above maximum value. Expected a value <= {top}, but got {value} instead."
        return _bad(text, name, "decimal_above_max_value")
    if value < 0:
        text = f"Invalid '{name}': decimal below minimum value. Expected a value >= 0, but got {value} instead."
        return _bad(text, name, "decimal_below_min_value")
    if is_fixed and value != 1:
        text = (
            f"Unsupported value: '{name}' does not support {value} with this model. "
            "Only the default (1) value is supported."
        )
        return _bad(text, name, "unsupported_value")
    return None


def _effort(endpoint: str, body: dict[str, Any]) -> str | None:
    if endpoint == CHAT:
        value = body.get("reasoning_effort")
    else:
        reasoning = body.get("reasoning")
        value = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return None if value is None else str(value)


def _default_effort(model: str) -> str:
    return "medium" if _REASONING_MODEL.match(model) and not _NONE_BY_DEFAULT.match(model) else "none"


def _efforts(model: str) -> tuple[str, ...]:
    # The first family had `minimal` and no `none`; all later ones are the other way round.
    if re.match(r"(ft:)?gpt-5(?!\.)", model):
        return ("minimal", "low", "medium", "high")
    return tuple(word for word in speech.EFFORT_TOKENS if word != "minimal")


def _asked_chat(body: dict[str, Any]) -> speech.Asked:
    model = str(body.get("model"))
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    effort = _effort(CHAT, body) or _default_effort(model)
    return speech.Asked(model, speech.messages_text(body["messages"]), effort, False, limit, body["messages"])


def _asked_responses(body: dict[str, Any]) -> speech.Asked:
    model = str(body.get("model"))
    prompt = speech.messages_text(body["input"])
    if isinstance(body.get("instructions"), str):
        prompt = f"{body['instructions']}\n\n{prompt}"
    reasoning = body.get("reasoning")
    wants = isinstance(reasoning, dict) and bool(reasoning.get("summary"))
    effort = _effort(RESPONSES, body) or _default_effort(model)
    return speech.Asked(model, prompt, effort, wants, body.get("max_output_tokens"), body["input"])


def _snapshot(model: str) -> str:
    return model if _DATED.search(model) else f"{model}-2026-03-05"


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": said.refusal, "annotations": []}
    if said.refusal is not None:
        message["content"] = None
    return {
        "id": f"chatcmpl-{said.key}",
        "object": "chat.completion",
        "created": created_at,
        "model": _snapshot(asked.model),
        "choices": [
            {"index": 0, "message": message, "logprobs": speech.logprobs(said.text, body), "finish_reason": said.finish}
        ],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": said.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _responses_output(asked: speech.Asked, said: speech.Completion, body: dict[str, Any]) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if said.reasoning_tokens:
        summary = [{"type": "summary_text", "text": said.thoughts}] if asked.wants_summary and said.thoughts else []
        output.append({"id": f"rs_{said.key}", "type": "reasoning", "summary": summary})
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": said.text}
    if "message.output_text.logprobs" in (body.get("include") or ()):
        part["logprobs"] = speech.tokens(said.text, body.get("top_logprobs", 0))
    if said.refusal is not None:
        part = {"type": "refusal", "refusal": said.refusal}
    is_cut_in_thought = said.finish == "length" and not said.text
    if not is_cut_in_thought and said.finish != "content_filter":
        status = "completed" if said.finish == "stop" else "incomplete"
        message = {"id": f"msg_{said.key}", "type": "message", "status": status, "role": "assistant", "content": [part]}
        output.append(message)
    return output


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def _responses_body(
    asked: speech.Asked, said: speech.Completion, body: dict[str, Any], created_at: int
) -> dict[str, Any]:
    reason = _INCOMPLETE.get(said.finish)
    reasoning = body.get("reasoning") or {}
    return {
        "id": f"resp_{said.key}",
        "object": "response",
        "created_at": created_at,
        "status": "completed" if reason is None else "incomplete",
        "background": False,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": body.get("instructions"),
        "max_output_tokens": asked.max_tokens,
        "model": _snapshot(asked.model),
        "output": _responses_output(asked, said, body),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "service_tier": "default",
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": {
            "input_tokens": said.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": said.output_tokens,
            "output_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
            "total_tokens": said.input_tokens + said.output_tokens,
        },
        "user": None,
        "metadata": body.get("metadata") or {},
    }
