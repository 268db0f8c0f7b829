"""What simulated xAI models answer to one chat completion.

Shapes: recorded traffic of 2026; `completion_tokens` leave the reasoning out, and a tick is 1e-10 USD.
"""

from __future__ import annotations

import re
from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says

_EFFORTS = ("none", "low", "medium", "high", "xhigh")
_ROLES = ("system", "user", "assistant", "tool", "developer")
_TICKS_PER_TOKEN = 12_500
_OF_BATCHES = re.compile(r"grok-4\.(3|20)")


def is_for_batches(model: str) -> bool:
    """Return whether a model is taken in batches."""
    return _OF_BATCHES.match(model) is not None


def error(message: str, code: str = "Client specified an invalid argument") -> dict[str, Any]:
    """Return an error body of the API: two texts."""
    return {"code": code, "error": message}


def answer(body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = "") -> speech.RowAnswer:
    """Return the answer to one body; `request_key` makes repeats of it differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    effort = str(body.get("reasoning_effort") or "none")
    prompt = speech.messages_text(body["messages"])
    asked = speech.Asked(str(body["model"]), prompt, effort, True, limit if isinstance(limit, int) else None)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _bad(message: str) -> speech.RowAnswer:
    return speech.RowAnswer(400, error(message))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, error("Internal server error", "The service is currently unavailable"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(
                429, error("Too many requests: rate limit reached", "Some resource has been exhausted")
            )
        case "error_500" | "status_0" | "output_500":
            return _broken()
        case "error_400":
            return _bad("Maximum number of tokens max_tokens must be positive but max_tokens = -5")
        case "billing_rows":
            return speech.RowAnswer(402, error("The team is out of credits", "Some resource has been exhausted"))
        case "filtered_rows":
            text = "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"
            return speech.RowAnswer(403, error(text, "The caller does not have permission to execute the operation"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _bad("messages: every message needs a known role")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _bad(problem)
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"Argument not supported on this model: reasoning_effort = {effort}")
    form = body.get("response_format")
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    problem = speech.named_schema_problem(form.get("json_schema"))
    return None if problem is None else _bad(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": said.refusal}
    if said.reasoning_tokens:
        message["reasoning_content"] = said.thoughts or "I compare the two."
    total = said.input_tokens + said.output_tokens
    return {
        "id": said.key,
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens - said.reasoning_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
            "cost_in_usd_ticks": total * _TICKS_PER_TOKEN,
        },
        "service_tier": "default",
    }
