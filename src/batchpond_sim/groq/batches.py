"""Groq's account: OpenAI's files and batches, with what simulated Groq models answer.

Shapes: groq 1.7 `types/chat/chat_completion.py`; which words of effort a model takes: console.groq.com "reasoning".
"""

from __future__ import annotations

import re
from typing import Any

from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.openai.batches import OpenAIAccount
from batchpond_sim.shared.api import openai_error
from batchpond_sim.world.world import World

CHAT = "/v1/chat/completions"
_EFFORTS = (
    (re.compile(r"(openai/)?gpt-oss"), ("low", "medium", "high")),
    (re.compile(r"(qwen/)?qwen3"), ("none", "default")),
)
_SCHEMAS = re.compile(r"(openai/)?gpt-oss")
_ROLES = ("system", "user", "assistant", "tool", "function", "developer")


def answer(
    endpoint: str, body: dict[str, Any], request_key: str, panel: Panel, created_at: int, force: str = ""
) -> speech.RowAnswer:
    """Return the answer to one body; `request_key` makes repeats of it differ, `force` is a row fault or empty."""
    refused = _forced_error(force) or _refused(endpoint, body)
    if refused is not None:
        return refused
    model = str(body["model"])
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    effort = str(body.get("reasoning_effort") or _usual(model)).replace("default", "medium")
    asked = speech.Asked(model, speech.messages_text(body["messages"]), effort, True, limit)
    judged = panel.answer(asked.model, asked.prompt, request_key)
    if judged.says is Says.ERROR:
        return _broken()
    said = speech.completed(asked, judged, force)
    tokens = said.input_tokens, said.output_tokens, said.reasoning_tokens
    return speech.RowAnswer(200, _chat_body(asked, said, created_at), *tokens)


def _bad(message: str, code: str | None = None) -> speech.RowAnswer:
    return speech.RowAnswer(400, openai_error(message, code=code))


def _broken() -> speech.RowAnswer:
    return speech.RowAnswer(500, openai_error("Internal Server Error", "internal_server_error"))


def _forced_error(force: str) -> speech.RowAnswer | None:
    match force:
        case "error_429":
            return speech.RowAnswer(
                429, openai_error("Rate limit reached for this model.", "tokens", None, "rate_limit_exceeded")
            )
        case "error_500":
            return _broken()
        case "error_400":
            return _bad("'messages' : the value is not valid")
        case "billing_rows":
            return speech.RowAnswer(402, openai_error("The organization has reached its spend limit.", "billing_error"))
        case _:
            return None


def _words(model: str) -> tuple[str, ...]:
    return next((words for pattern, words in _EFFORTS if pattern.match(model)), ())


def _usual(model: str) -> str:
    # The real ones think more by themselves: these leave room for an answer within small limits.
    return "low" if _words(model) else "none"


def _refused(endpoint: str, body: dict[str, Any]) -> speech.RowAnswer | None:
    if endpoint != CHAT:
        return _bad(f"{endpoint} is not supported")
    model = str(body.get("model"))
    if not isinstance(body.get("messages"), list) or speech.stranger(body["messages"], _ROLES) is not None:
        return _bad("'messages' : an array of messages with a known role is required")
    if (problem := speech.picture_problem(body["messages"])) is not None:
        return _bad(problem)
    effort, words = body.get("reasoning_effort"), _words(model)
    if effort is not None and effort not in words:
        listed = " or ".join(f"`{word}`" for word in words)
        return _bad(f"`reasoning_effort` must be one of {listed}" if words else "`reasoning_effort` is not supported")
    temperature = body.get("temperature")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature <= 2):
        return _bad("'temperature' : number must be at most 2")
    return _refused_format(model, body.get("response_format"))


def _refused_format(model: str, form: Any) -> speech.RowAnswer | None:
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    if not _SCHEMAS.match(model):
        return _bad("This model does not support response format `json_schema`.")
    problem = speech.named_schema_problem(form.get("json_schema"))
    return None if problem is None else _bad(problem)


def _chat_body(asked: speech.Asked, said: speech.Completion, created_at: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": said.refusal or said.text}
    if said.reasoning_tokens:
        message["reasoning"] = said.thoughts or "I compare the two."
    finish = "stop" if said.finish == "content_filter" else said.finish
    return {
        "id": f"chatcmpl-{said.key}",
        "object": "chat.completion",
        "created": created_at,
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "queue_time": 0.01,
            "prompt_tokens": said.input_tokens,
            "prompt_time": 0.001,
            "completion_tokens": said.output_tokens,
            "completion_time": 0.1,
            "total_tokens": said.input_tokens + said.output_tokens,
            "total_time": 0.101,
            "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
        },
        "system_fingerprint": "fp_simulated",
        "x_groq": {"id": f"req_{said.key}"},
        "service_tier": "on_demand",
    }


PROVIDER = "groq"


class GroqAccount(OpenAIAccount):
    """All files and batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, answer)
