"""One good result line of each provider, and what goes wrong in its shape: the rows of the contract of lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

CID = "abcdefghij-abcdefghijklmnopqrst"
N_INPUT, N_OUTPUT = 12_345_678, 5

Strategy = st.SearchStrategy[Any]

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@dataclass(frozen=True)
class Shape:
    """A kind of line: `answered` is the result of a text beside the id, which stands in `id_name`.

    `foreign` are rows that nothing can be read from though they have an id; `odd` are rows of roughly the right
    shape. `has_thoughts` where `answered` thinks its text too; `splits` where thoughts are taken out of a text.
    """

    name: str
    provider: str
    answered: Callable[[str], dict[str, Any]]
    odd: Strategy
    foreign: tuple[dict[str, Any], ...] = ()
    id_name: str = "custom_id"
    has_thoughts: bool = False
    splits: bool = False

    def row(self, text: str = "Hello", **more: Any) -> bytes:
        """Return a good line."""
        return json.dumps({self.id_name: CID, **self.answered(text), **more}).encode()


def sometimes(strategy: Strategy) -> Strategy:
    return strategy | ANYTHING


def thing(**members: Strategy) -> Strategy:
    return st.fixed_dictionaries({}, optional={name: sometimes(value) for name, value in members.items()})


def several(strategy: Strategy) -> Strategy:
    return st.lists(sometimes(strategy), max_size=3)


TEXT = st.text(st.characters())


# --- OpenAI and those who copy it -----------------------------------------------------------------


def http(body: Any) -> dict[str, Any]:
    return {"response": {"status_code": 200, "request_id": "r", "body": body}, "error": None}


def chat(content: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": N_INPUT, "completion_tokens": N_OUTPUT}
    return http({"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})


def responses(content: str) -> dict[str, Any]:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": content}]}
    usage = {"input_tokens": N_INPUT, "output_tokens": N_OUTPUT}
    return http({"object": "response", "model": "m", "status": "completed", "output": [said], "usage": usage})


_ERROR = thing(code=st.sampled_from(["batch_expired", "server_error", 400]), message=TEXT, type=st.text())
_PART = thing(type=st.sampled_from(["text", "refusal", "output_text", "summary_text"]), text=TEXT)
_CONTENT = TEXT | several(_PART)
_CHOICE = thing(
    message=thing(content=_CONTENT, refusal=st.text(), reasoning=st.text()),
    finish_reason=st.sampled_from(["stop", "length", "content_filter"]),
)
_ITEM = thing(type=st.sampled_from(["message", "reasoning"]), content=_CONTENT, summary=several(_PART))
_BODY = thing(
    object=st.sampled_from(["response", "chat.completion"]),
    model=st.text(),
    status=st.sampled_from(["completed", "failed", "incomplete", "queued"]),
    choices=several(_CHOICE),
    output=several(_ITEM),
    error=_ERROR,
    incomplete_details=thing(reason=st.just("max_output_tokens")),
    usage=thing(prompt_tokens=st.integers(), input_tokens=st.integers(), output_tokens_details=ANYTHING),
)
_CHAT_ROW = thing(
    custom_id=TEXT,
    response=thing(status_code=st.sampled_from([200, 0, 429, "200"]), request_id=st.text(), body=_BODY),
    error=_ERROR | TEXT,
)
_NO_BODY = (
    {"response": None, "error": None},
    {"response": {"status_code": 200, "body": []}, "error": None},
    {"response": "x", "error": None},
    {"response": {"status_code": 200}},
)


# --- Anthropic ------------------------------------------------------------------------------------


def messages(content: str) -> dict[str, Any]:
    said = [{"type": "thinking", "thinking": content, "signature": "s"}, {"type": "text", "text": content}]
    usage = {"input_tokens": N_INPUT, "output_tokens": N_OUTPUT}
    message = {"type": "message", "model": "m", "content": said, "stop_reason": "end_turn", "usage": usage}
    return {"result": {"type": "succeeded", "message": message}}


_BLOCK = thing(type=st.sampled_from(["text", "thinking", "redacted_thinking"]), text=TEXT, thinking=TEXT)
_MESSAGE = thing(
    id=st.text(),
    model=st.text(),
    content=several(_BLOCK),
    stop_reason=st.sampled_from(["end_turn", "max_tokens", "refusal"]),
    stop_details=thing(category=st.text(), explanation=TEXT),
    usage=thing(input_tokens=st.integers(), cache_read_input_tokens=st.integers(), output_tokens_details=ANYTHING),
)
_API_ERROR = thing(
    type=st.sampled_from(["api_error", "not_found_error"]), message=TEXT, details=thing(error_code=st.text())
)
_RESULT = thing(
    type=st.sampled_from(["succeeded", "errored", "canceled", "expired"]),
    message=_MESSAGE,
    error=thing(error=_API_ERROR, request_id=st.text()) | _API_ERROR,
)
_NO_RESULT = (
    *({"result": result} for result in (None, {}, "expired", {"type": "novelty"}, {"type": "x" * 10_000})),
    *({"result": result} for result in ({"type": 7}, {"type": "succeeded"}, {"type": "succeeded", "message": "Hello"})),
    {"message": {}},
)


# --- Google ---------------------------------------------------------------------------------------


def candidates(content: str) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": content}]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": N_INPUT, "candidatesTokenCount": N_OUTPUT}
    return {"response": {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}}


_COUNTS = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
_RPC_ERROR = thing(
    code=st.integers(0, 20) | st.sampled_from([400, 403, 429, 503, 10**30]),
    message=TEXT,
    status=st.sampled_from(["INVALID_ARGUMENT", "CANCELLED"]),
    details=several(thing(reason=st.text(), retryDelay=st.text())),
)
_CANDIDATE = thing(
    content=thing(parts=several(thing(text=TEXT, thought=st.booleans()))),
    finishReason=st.sampled_from(["STOP", "SAFETY"]),
)
_GENERATED = thing(
    candidates=several(_CANDIDATE),
    promptFeedback=thing(blockReason=st.just("SAFETY")),
    usageMetadata=thing(**{name: st.integers() | st.integers(0, 2**63).map(str) for name in _COUNTS}),
    modelVersion=st.text(),
    responseId=st.text(),
    error=_RPC_ERROR,
)
_NO_ANSWER: tuple[dict[str, Any], ...] = ({}, {"response": []}, {"response": "x"})

# --- xAI ------------------------------------------------------------------------------------------


def result_of(content: str) -> dict[str, Any]:
    return {"batch_result": {"response": {"chat_get_completion": chat(content)["response"]["body"]}}}


_RESULT_ROW = thing(
    batch_request_id=TEXT,
    batch_result=thing(response=thing(chat_get_completion=_BODY), error=TEXT | thing(code=st.integers(), message=TEXT)),
)
_NO_COMPLETION = (
    *({"batch_result": result} for result in (None, {}, "x", {"response": {}}, {"response": None})),
    {"batch_result": {"response": {"chat_get_completion": []}}},
)

SHAPES = (
    Shape("openai chat", "openai", chat, _CHAT_ROW, _NO_BODY),
    Shape("openai parts", "openai", lambda text: chat([{"type": "text", "text": text}]), _CHAT_ROW),
    Shape("openai responses", "openai", responses, _CHAT_ROW),
    Shape("together", "together", chat, _CHAT_ROW, _NO_BODY, splits=True),
    Shape("groq", "groq", chat, _CHAT_ROW, _NO_BODY, splits=True),
    Shape("mistral", "mistral", chat, _CHAT_ROW, _NO_BODY, splits=True),
    Shape("xai", "xai", result_of, _RESULT_ROW, _NO_COMPLETION, id_name="batch_request_id", splits=True),
    Shape("compatible", "vllm", chat, _CHAT_ROW, _NO_BODY, splits=True),
    Shape("anthropic", "anthropic", messages, thing(custom_id=TEXT, result=_RESULT), _NO_RESULT, has_thoughts=True),
    Shape(
        "gemini",
        "gemini",
        candidates,
        thing(key=TEXT, response=_GENERATED, error=_RPC_ERROR, status=_RPC_ERROR),
        _NO_ANSWER,
        id_name="key",
    ),
    Shape(
        "vertex",
        "vertex",
        candidates,
        thing(custom_id=TEXT, response=_GENERATED, error=_RPC_ERROR, status=TEXT | _RPC_ERROR),
        (*_NO_ANSWER, {"response": ""}, {"response": None}, {"response": 3}),
    ),
)
