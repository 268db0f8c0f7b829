"""A local server of the OpenAI-compatible kind, live only, below `/compatible/v1`: chat completions and models.

It is what vLLM, llama.cpp, LM Studio, DeepSeek and the like have in common, with their differences:
any key or none is good, errors are plain strings, extra members are taken, streams are server-sent
events. Where thoughts stand depends on the model's name:

    *reason*, *-r1*        `message.reasoning_content` (DeepSeek, llama.cpp, older vLLM)
    *gpt-oss*, *magistral* `message.reasoning` (newer vLLM, Together, Groq)
    *think*, *qwq*         `<think>...</think>` within the text
    any other              there are none; `unknown-*` is no model at all
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from batchpond_sim.host.messages import Answer, Reply, Request, Stream, json_reply, pieces
from batchpond_sim.judges import speech
from batchpond_sim.judges.judge import Says
from batchpond_sim.shared.api import Api, PageError, Route, forced, routes
from batchpond_sim.world.faults import Call, Op, Stage
from batchpond_sim.world.limits import Quota, openai_headers, openai_message
from batchpond_sim.world.world import World

PROVIDER = "compatible"
BASE_PATH = "/compatible/v1"
MODELS = ("qwen3-8b-instruct", "deepseek-reasoner", "gpt-oss-20b", "qwq-32b-think", "tiny-random")
_INLINE = "<think>"
_STYLES = (
    (re.compile(r"reason|-r1"), "reasoning_content"),
    (re.compile(r"gpt-oss|magistral"), "reasoning"),
    (re.compile(r"think|qwq"), _INLINE),
)
_TEXTS = {
    401: "Invalid API key",
    402: "Insufficient Balance",
    404: "Not Found",
    422: "Invalid request body",
    429: "Rate limit reached",
    503: "Service is too busy. Please try again later.",
}


class CompatibleSimulator(Api):
    """The API of one world."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, BASE_PATH, "local")

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        return routes(
            ("GET", r"/models", Op.MODELS_LIST, self._models),
            ("POST", r"/chat/completions", Op.LIVE, self._chat),
        )

    def _refusal(self, _request: Request, _key: str, project: str | None) -> Reply | None:
        return self._fault_reply(401, "status") if project is None and self._world.settings.keys else None

    def _fault_reply(self, status: int, kind: str) -> Reply:
        return _error(status, _TEXTS[402] if kind == "billing" else _TEXTS.get(status, "Internal Server Error"))

    def _bad_json(self, detail: str) -> Reply:
        return _error(400, f"JSON decode error: {detail}")

    def _bad_page(self, error: PageError) -> Reply:
        return _error(400, str(error))

    def _no_route(self, request: Request) -> Reply:
        return json_reply(404, {"detail": f"Not Found: {request.method} {request.path}"})

    def _headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("server", "uvicorn"),)

    def _limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:
        return openai_headers(quota)

    def _limited_reply(self, quota: Quota) -> Reply:
        return _error(429, openai_message(quota, "local"))

    def _models(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        rows = [{"id": name, "object": "model", "created": 1_770_000_000, "owned_by": "local"} for name in MODELS]
        return json_reply(200, {"object": "list", "data": rows})

    def _chat(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        if (refused := _refused_body(body)) is not None:
            return refused
        model = body["model"]
        style = _style(model)
        effort = body.get("reasoning_effort", "low") if style else "none"
        asked = speech.Asked(model, speech.messages_text(body["messages"]), effort, True, _limit(body))
        judged = self._world.panel.answer(model, asked.prompt, self.live_key(body))
        if judged.says is Says.ERROR:
            return self._fault_reply(500, "status")
        said = speech.completed(asked, judged, forced(call))
        self.bill_live(call, model, said.input_tokens, said.output_tokens)
        head = {"id": f"chatcmpl-{said.key}", "created": int(self._world.now_s()), "model": model}
        if not body.get("stream"):
            return json_reply(200, {**head, "object": "chat.completion", **_whole(said, style, body)})
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        is_broken = call.has(Stage.LINES, "stream_error")
        events = tuple(_events(head, _message(said, style), said, wants_usage=wants_usage, is_broken=is_broken))
        return Reply(200, (("content-type", "text/event-stream; charset=utf-8"),), Stream(lambda: iter(events)))


def _error(status: int, message: str) -> Reply:
    return json_reply(status, {"error": message})


def _limit(body: dict[str, Any]) -> Any:
    return body.get("max_completion_tokens", body.get("max_tokens"))


def _style(model: str) -> str:
    return next((member for pattern, member in _STYLES if pattern.search(model.lower())), "")


def _are_by_turns(messages: list[Any]) -> bool:
    if speech.stranger(messages, ("system", "user", "assistant")) is not None:
        return False
    roles = [message["role"] for message in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    return all(role == ("assistant" if place % 2 else "user") for place, role in enumerate(spoken))


def _refused_body(body: Any) -> Reply | None:
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return _error(422, "messages: field required")
    if not _are_by_turns(body["messages"]):
        # Of Mistral's chat template, which vLLM and llama.cpp run; those of Gemma and Qwen are as strict.
        text = "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
        return _error(400, text)
    model = body.get("model")
    if not isinstance(model, str) or model.startswith("unknown-"):
        return _error(404, f"The model `{model}` does not exist.")
    limit = _limit(body)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        return _error(400, f"max_tokens must be at least 1, got {limit}.")
    if body.get("reasoning_effort", "low") not in speech.EFFORT_TOKENS:
        return _error(400, f"reasoning_effort: unknown value {body['reasoning_effort']}")
    wrong = speech.picture_problem(body["messages"]) or speech.format_problem(body.get("response_format"))
    return None if wrong is None else _error(400, wrong)


def _message(said: speech.Completion, style: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.refusal or said.text}
    if not said.reasoning_tokens:
        return message
    thoughts = said.thoughts or "Nothing to think about."
    if style != _INLINE:
        return {**message, style: thoughts}
    # A limit that is reached in thought leaves the tag open.
    is_cut = said.finish == "length" and not said.text
    return {**message, "content": f"<think>\n{thoughts}" + ("" if is_cut else f"\n</think>\n\n{message['content']}")}


def _usage(said: speech.Completion) -> dict[str, Any]:
    return {
        "prompt_tokens": said.input_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": said.input_tokens + said.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
    }


def _whole(said: speech.Completion, style: str, body: dict[str, Any]) -> dict[str, Any]:
    message = _message(said, style)
    choice = {"index": 0, "message": message, "finish_reason": said.finish}
    return {"choices": [choice | {"logprobs": speech.logprobs(message["content"], body)}], "usage": _usage(said)}


def _events(
    head: dict[str, Any], message: dict[str, Any], said: speech.Completion, *, wants_usage: bool, is_broken: bool
) -> Iterator[bytes]:
    for member, text in sorted(message.items(), key=lambda pair: pair[0] == "content"):
        parts = (text,) if member == "role" else pieces(text)
        yield from (_event(head, {"index": 0, "delta": {member: part}, "finish_reason": None}) for part in parts)
    if is_broken:
        yield b"data: %b\n\n" % orjson.dumps({"error": "Internal Server Error"})
        return
    yield _event(head, {"index": 0, "delta": {}, "finish_reason": said.finish})
    if wants_usage:
        yield _event(head, None, _usage(said))
    yield b"data: [DONE]\n\n"


def _event(head: dict[str, Any], choice: dict[str, Any] | None, usage: dict[str, Any] | None = None) -> bytes:
    body = {**head, "object": "chat.completion.chunk", "choices": [] if choice is None else [choice]}
    return b"data: %b\n\n" % orjson.dumps(body if usage is None else {**body, "usage": usage})
