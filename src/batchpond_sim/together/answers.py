"""What simulated Together models answer to one chat completion.

Shapes: recorded traffic of 2026-09 and together 3.1 `types/chat/chat_completion.py`; error texts are those that the
API was seen to give.
"""

from __future__ import annotations

import re
from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.shared.api import openai_error

CHAT = "/v1/chat/completions"
STOPS_MAX = 4
_EFFORTS = ("low", "medium", "high")
_ROLES = ("system", "user", "assistant", "tool", "function")
_REASONS = re.compile(r"openai/gpt-oss-")
_STOPS_WITH_EOS = re.compile(r"meta-llama/")


def _bad(message: str) -> speech.RowAnswer:
    return speech.RowAnswer(400, openai_error(message))


def answer(body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = "") -> speech.RowAnswer:
    """Return the answer to one body; `request_key` makes repeats of it differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    asked = _asked(body)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return speech.RowAnswer(500, openai_error("Internal server error", "server_error"))
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at, speech.logprobs(said.text, body)), *tokens)


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(429, openai_error("You have reached the rate limit of this model.", "rate_limit"))
        case "error_500" | "status_0" | "output_500":
            return speech.RowAnswer(500, openai_error("Internal server error", "server_error"))
        case "error_400":
            return _bad("Input validation error")
        case "billing_rows":
            return speech.RowAnswer(402, openai_error("Insufficient credits: add some to go on.", "credit_limit"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        return _bad("missing 'model' field in body or not a string")
    if model.startswith(("unknown-", "nonexistent/")):
        text = f"Unable to access model {model}. Please visit https://api.together.ai/models to see what there is."
        return speech.RowAnswer(404, openai_error(text, code="model_not_available"))
    stops = body.get("stop")
    if isinstance(stops, list) and len(stops) > STOPS_MAX:
        return _bad("Maximum four stop sequences allowed")
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"Invalid reasoning_effort: expected one of {', '.join(_EFFORTS)}")
    return _refused_messages(body) or _refused_format(body.get("response_format")) or _refused_number(body)


def _refused_messages(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list):
        return _bad("missing field `messages`")
    if speech.stranger(body["messages"], _ROLES) is not None:
        return _bad(f"Input validation error: role must be one of {', '.join(_ROLES)}")
    problem = speech.picture_problem(body["messages"])
    return None if problem is None else _bad(problem)


def _refused_format(form: Any) -> speech.RowAnswer | None:
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    problem = speech.named_schema_problem(form.get("json_schema"))
    return None if problem is None else _bad(problem)


def _refused_number(body: dict[str, Any]) -> speech.RowAnswer | None:
    temperature, limit = body.get("temperature"), body.get("max_tokens")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= 2):
        return _bad("temperature must be from 0 to 2")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        return _bad("max_tokens must be at least 1")
    return None


def _asked(body: dict[str, Any]) -> speech.Asked:
    model, switch = str(body["model"]), body.get("reasoning")
    is_on = _REASONS.match(model) is not None or (isinstance(switch, dict) and switch.get("enabled") is True)
    effort = str(body.get("reasoning_effort") or ("medium" if is_on else "none"))
    return speech.Asked(model, speech.messages_text(body["messages"]), effort, False, body.get("max_tokens"))


def _chat_body(
    asked: speech.Asked, said: speech.Completion, created_at: int, found: dict[str, Any] | None
) -> dict[str, Any]:
    finish = "eos" if said.finish == "stop" and _STOPS_WITH_EOS.match(asked.model) else said.finish
    if finish == "content_filter":
        finish = "stop"  # an empty answer: there is no word for a filter
    message = {"role": "assistant", "content": said.refusal or said.text, "tool_calls": []}
    if said.reasoning_tokens:
        message["reasoning"] = said.thoughts or "I compare the two."
    return {
        "id": f"o{said.key}",
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "prompt": [],
        "choices": [{"index": 0, "finish_reason": finish, "logprobs": found, "seed": None, "message": message}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "reasoning_tokens": said.reasoning_tokens,
        },
    }
