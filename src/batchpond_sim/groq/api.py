"""A local Groq, below `/groq/openai/v1`: OpenAI's paths and words, but for lists without pages, and what models say.

Shapes: groq 1.7 `types/batch_list_response.py`, `types/file_list_response.py`, `types/batch_create_response.py`,
`types/chat/chat_completion.py`; which words of effort a model takes: console.groq.com "reasoning".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from batchpond_sim.host.messages import Answer, Reply, Request, json_reply
from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Panel, Says
from batchpond_sim.openai.api import OpenAISimulator, error_reply
from batchpond_sim.openai.batches import BatchRecord, OpenAIAccount
from batchpond_sim.shared.api import openai_error, page_at
from batchpond_sim.world.faults import Call, Stage
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


BASE_PATH = "/groq/openai/v1"


class GroqSimulator(OpenAISimulator):
    """The API of one world."""

    provider = PROVIDER
    base_path = BASE_PATH
    windows = ("24h", *(f"{days}d" for days in range(1, 8)))
    models = ("openai/gpt-oss-20b", "openai/gpt-oss-120b", "qwen/qwen3-32b", "llama-3.3-70b-versatile")
    make_account = GroqAccount

    def _no_route(self, request: Request) -> Reply:
        return error_reply(404, f"Unknown request URL: {request.method} {request.path.removeprefix('/groq')}.")

    def _headers(self, request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("x-request-id", f"req_{request_id}"), ("cf-ray", f"{request_id[:16]}-SIM"))

    def _create_batch(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        if call.has(Stage.EFFECT, "enqueued"):  # no batch of Groq's is known to fail for that once it was created
            return self._fault_reply(429, "status")
        return super()._create_batch(request, call, project, argument)

    def _list_files(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            shown = [
                self._file_view(record) for record in self.account.listed_files(project, self.account.tick(), call)
            ]
            return _listed(shown, call)

    def _list_batches(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            return _listed([self._view(batch, now, call) for batch in self.account.listed(project, now, call)], call)

    def _view(self, batch: BatchRecord, now: float, call: Call) -> dict[str, Any]:
        seen = super()._view(batch, now, call)
        return {name: value for name, value in seen.items() if name not in ("model", "usage")}


def _listed(rows: list[dict[str, Any]], call: Call) -> Reply:
    """Return all rows; of the faults of paging the one that makes the only page fail means something here."""
    page_at((), 0, 1, call)
    return json_reply(200, {"object": "list", "data": rows})
