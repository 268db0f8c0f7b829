"""What simulated Mistral models answer to one chat completion.

Shapes: the OpenAPI file of 2026-08; a model that thinks answers in parts. Error texts are those that the API was seen
to give.
"""

from __future__ import annotations

from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says

CHAT = "/v1/chat/completions"
TEMPERATURE_MAX = 1.5
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_ROLES = ("system", "user", "assistant", "tool")


def error(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, Any]:
    """Return an error body of the API."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code, "raw_status_code": None}


def answer(
    body: dict[str, Any], model: str, request_key: str, panel: Panel, created_at: int, force: str = ""
) -> speech.RowAnswer:
    """Return the answer of a model to one body; `request_key` makes repeats differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(body)
    if refused is not None:
        return refused
    limit = body.get("max_tokens")
    effort = "medium" if body.get("prompt_mode") == "reasoning" else str(body.get("reasoning_effort") or "none")
    asked = speech.Asked(
        model, speech.messages_text(body["messages"]), effort, True, limit if isinstance(limit, int) else None
    )
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _bad(message: str, code: str = "3051") -> speech.RowAnswer:
    return speech.RowAnswer(400, error(message, code=code))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, error("Internal server error", "internal_server_error", "3700"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(429, error("Rate limit exceeded", "rate_limited", "1300"))
        case "error_500" | "status_0" | "output_500":
            return _broken()
        case "error_400":
            return _bad("Invalid request")
        case "billing_rows":
            return speech.RowAnswer(402, error("Insufficient credits", "payment_required"))
        case _:
            return None


def _refused(body: dict[str, Any]) -> speech.RowAnswer | None:
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _bad("messages: every role must be one of system, user, assistant, tool")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _bad(problem)
    effort, temperature = body.get("reasoning_effort"), body.get("temperature")
    if effort is not None and effort not in _EFFORTS:
        return _bad(f"reasoning_effort must be one of {', '.join(_EFFORTS)}")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= TEMPERATURE_MAX):
        return _bad(f"temperature must be from 0 to {TEMPERATURE_MAX}")
    form = body.get("response_format")
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    problem = speech.named_schema_problem(form.get("json_schema"))
    return None if problem is None else _bad(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    content: Any = said.refusal or said.text
    if said.reasoning_tokens:
        thought = {"type": "text", "text": said.thoughts or "I compare the two."}
        content = [{"type": "thinking", "thinking": [thought]}, {"type": "text", "text": content}]
    finish = "stop" if said.finish == "content_filter" else said.finish
    message = {"role": "assistant", "content": content, "tool_calls": None}
    return {
        "id": said.key,
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
            "num_cached_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }
