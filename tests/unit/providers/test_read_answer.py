"""Reading live answers: each provider's shapes, and any bytes at all under any status."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers import registry

NAMES = ("openai", "anthropic", "gemini", "together", "ollama", "xai", "vllm", "compatible-mine")


def read(name: str, body: Any, status_code: int = 200) -> Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return registry.module(name).read_answer(status_code, content)


def chat(content: Any, reason: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content} | message, "finish_reason": reason}
    return {"model": "m-1", "choices": [choice]} | ({"usage": usage} if usage is not None else {})


def ollama(content: str = "A", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content} | more.pop("message", {})
    return {"model": "m", "message": message, "done": True, "done_reason": "stop", "eval_count": 3} | more


GOOD: dict[str, dict[str, Any]] = {
    "openai": chat("A", usage={"prompt_tokens": 8, "completion_tokens": 5}),
    "anthropic": {
        "type": "message", "model": "m-1", "content": [{"type": "text", "text": "A"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 8, "output_tokens": 5},
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "A"}]}, "finishReason": "STOP"}], "modelVersion": "m-1",
        "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 5, "totalTokenCount": 13},
    },
    "ollama": ollama(model="m-1", prompt_eval_count=8, eval_count=5),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_good_answer_is_made_uniform(name: str) -> None:
    """The same fields, whoever answers; there is no custom_id in a live answer."""
    found = read(name, GOOD.get(name, GOOD["openai"]))
    assert (found.custom_id, found.status, found.status_code) == (None, ResponseStatus.SUCCEEDED, 200)
    assert (found.response_model, found.text, found.finish) == ("m-1", "A", Finish.STOP)
    assert (found.input_tokens, found.output_tokens) == (8, 5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"<html>", b"[]", b"null", b"\xff", {"status": "ok"}, {}, {"message": "hello"}],
    ids=["empty", "cut", "html", "list", "null", "bytes", "foreign", "blank", "text"],
)
def test_a_success_that_holds_no_answer_is_unreadable(name: str, body: Any) -> None:
    """A captive portal's JSON is not an empty answer."""
    found = read(name, body)
    assert (found.status, found.text) == (ResponseStatus.UNREADABLE, None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "a text"}, "a text"),
        ({"error": {"message": "an object", "type": "x", "code": None}}, "an object"),
        ({"detail": "a detail"}, "a detail"),
        ({"detail": [{"loc": ["body"], "msg": "one"}, {"msg": "two"}]}, "one; two"),
        ({"message": "a message", "object": "error"}, "a message"),
        ({"code": "invalid argument", "error": "a pair"}, "a pair"),
        (b"plain text", "plain text"),
        ({}, "the provider gave no error text"),
    ],
)
def test_an_error_in_any_shape_is_an_error(name: str, body: Any, said: str) -> None:
    """With its words, its status, and a class that comes from both."""
    found = read(name, body, 400)
    assert (found.status, found.status_code, found.error_message) == (ResponseStatus.ERRORED, 400, said)
    assert found.error_class is ErrorClass.PERMANENT
    assert read(name, body, 503).error_class is ErrorClass.TRANSIENT


@pytest.mark.parametrize("name", NAMES)
def test_an_error_under_a_success_is_an_error(name: str) -> None:
    """OpenRouter and proxies answer 200 with an error."""
    found = read(name, {"error": {"message": "Provider returned error", "code": 502}})
    assert (found.status, found.error_class) == (ResponseStatus.ERRORED, ErrorClass.TRANSIENT)


members = st.sampled_from(
    ["choices", "message", "content", "finish_reason", "usage", "error", "candidates", "parts", "text", "type", "done",
     "done_reason", "output", "status", "stop_reason", "finishReason", "thinking", "reasoning", "usageMetadata",
     "prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens", "model", "detail"]
)  # fmt: skip
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["stop", "<think>x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=5),
    max_leaves=12,
)
objects = st.dictionaries(members, values, max_size=6).map(lambda value: json.dumps(value).encode())


@given(st.sampled_from(NAMES), st.integers(0, 999), st.binary(max_size=60) | objects)
def test_any_bytes_give_a_response(name: str, status_code: int, body: bytes) -> None:
    """Total; and nothing but a 2xx ever succeeds."""
    found = read(name, body, status_code)
    assert isinstance(found, Response)
    assert found.custom_id is None
    if found.status is ResponseStatus.SUCCEEDED:
        assert 200 <= status_code <= 299
    else:
        assert found.error_class is not None
    for count in (found.input_tokens, found.output_tokens, found.reasoning_tokens, found.cached_tokens):
        assert count is None or 0 <= count < 2**63


# --- thoughts within the text ---------------------------------------------------------------------

SPLIT = [
    ("<think>so</think>A", "A", "so"),
    ("\n<think>\nso\n</think>\n\nA\n", "A", "so"),
    ("<think></think>A", "A", None),
    ("<think>so", "", "so"),
    ("<think>so</think>", "", "so"),
    ("<think>a </think> b </think> c", "b </think> c", "a"),
    ("so, then\n</think>\n\nA", "A", "so, then"),
    ("A <think>", "A <think>", None),
    ("Is <think>x</think> a tag?", "Is <think>x</think> a tag?", None),
    ("A", "A", None),
]


@pytest.mark.parametrize("name", ["vllm", "together", "ollama", "compatible-mine", "deepseek"])
@pytest.mark.parametrize(("content", "text", "thoughts"), SPLIT)
def test_thoughts_never_stay_in_the_text(name: str, content: str, text: str, thoughts: str | None) -> None:
    """A tag at the beginning is taken out; one that was never closed leaves an empty text; others are text."""
    found = read(name, ollama(content) if name == "ollama" else chat(content))
    assert (found.text, found.thoughts) == (text, thoughts)


@given(st.text(), st.text())
def test_no_word_of_a_thought_is_in_the_text(thoughts: str, text: str) -> None:
    """Whatever the thoughts are, unless they close their own tag."""
    found = read("vllm", chat(f"<think>{thoughts}</think>{text}"))
    if "</think>" not in thoughts:
        assert found.text == text.strip() or "\ud800" <= max(text + thoughts, default="") <= "\udfff"
        assert (found.thoughts or "") == thoughts.strip() or not found.thoughts


def test_openais_own_answers_keep_their_text() -> None:
    """Its models put no thoughts there, and a study may well ask about the tag."""
    assert read("openai", chat("<think>x</think>A")).text == "<think>x</think>A"


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
def test_thoughts_kept_apart(member: str) -> None:
    """By either name; a copy within the text is taken out all the same (llama.cpp's `deepseek-legacy`)."""
    found = read("llamacpp", chat("<think>so</think>A", **{member: "so"}))
    assert (found.text, found.thoughts) == ("A", "so")


def test_mistrals_thinking_parts() -> None:
    """The content may be a list, with thoughts among its parts."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": "A"}]
    found = read("mistral", chat(parts))
    assert (found.text, found.thoughts) == ("A", "so")


# --- ends and counts ------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["insufficient_system_resource", "abort", "error"])
def test_an_answer_that_the_server_broke_off_is_an_error(reason: str) -> None:
    """Half an answer is none, and asking again may help."""
    found = read("deepseek", chat("Better is", reason))
    assert (found.status, found.error_class, found.text) == (ResponseStatus.ERRORED, ErrorClass.TRANSIENT, None)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", Finish.STOP), ("eos", Finish.STOP), ("length", Finish.LENGTH), ("model_length", Finish.LENGTH),
     ("repetition", Finish.LENGTH), ("content_filter", Finish.BLOCKED), (None, Finish.OTHER),
     ("", Finish.OTHER), ("tool_calls", Finish.OTHER)],
)  # fmt: skip
def test_why_a_chat_ended(reason: str | None, finish: Finish) -> None:
    """A server that gives no reason is not taken to have ended well."""
    assert read("vllm", chat("A", reason)).finish is finish


def test_geminis_continuation_is_a_truncated_answer() -> None:
    """There is more that was not asked for."""
    body = {"candidates": [{"content": {"parts": [{"text": "A"}]}, "finishReason": "CONTINUATION"}]}
    assert read("gemini", body).finish is Finish.LENGTH


def test_geminis_blocked_prompt_is_an_answer() -> None:
    """Without a candidate."""
    found = read("gemini", {"promptFeedback": {"blockReason": "SAFETY"}})
    assert (found.status, found.finish) == (ResponseStatus.SUCCEEDED, Finish.BLOCKED)


def test_anthropics_refusal_is_an_answer() -> None:
    """A success, with a reason."""
    found = read("anthropic", {"type": "message", "content": [], "stop_reason": "refusal"})
    assert (found.status, found.finish, found.text) == (ResponseStatus.SUCCEEDED, Finish.REFUSAL, None)


def test_openais_responses_are_read_too() -> None:
    """Both endpoints have one reader, as in batches."""
    output = [{"type": "message", "content": [{"type": "output_text", "text": "A"}]}]
    found = read("openai", {"object": "response", "status": "completed", "output": output})
    assert (found.text, found.finish) == ("A", Finish.STOP)


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 7}}


@pytest.mark.parametrize(
    ("name", "usage", "output_tokens", "cached_tokens"),
    [
        ("xai", USAGE | {"total_tokens": 22}, 12, None),
        ("xai", USAGE, 12, None),
        ("xai", USAGE | {"total_tokens": 15}, 5, None),
        ("vllm", USAGE | {"total_tokens": 22}, 5, None),
        ("deepseek", USAGE | {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}, 5, 4),
        ("mistral", USAGE | {"num_cached_tokens": 3}, 5, 3),
        ("vllm", {}, None, None),
        ("vllm", None, None, None),
        ("vllm", "none", None, None),
    ],
)
def test_what_is_billed_as_output(name: str, usage: Any, output_tokens: int | None, cached_tokens: int | None) -> None:
    """xAI counts the reasoning beside the completion, all others within; nothing is guessed."""
    found = read(name, chat("A", usage=usage))
    assert (found.output_tokens, found.cached_tokens) == (output_tokens, cached_tokens)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (ollama(done=False), "not done"),
        (ollama(done=None), "not done"),
        (ollama(done_reason=None), "no reason"),
        (ollama("", done_reason="load"), "loaded"),
        (ollama("", done_reason="unload"), "unloaded"),
    ],
)
def test_ollama_says_when_it_is_done(body: dict[str, Any], said: str) -> None:
    """Anything else is not an answer, and may be asked again."""
    found = read("ollama", body)
    assert (found.status, found.error_class, found.text) == (ResponseStatus.ERRORED, ErrorClass.TRANSIENT, None)
    assert said in (found.error_message or "")


def test_ollamas_counts_and_thoughts() -> None:
    """A prompt that was all in the cache has no count; thoughts are apart."""
    found = read("ollama", ollama(done_reason="length", message={"thinking": "so"}))
    assert (found.input_tokens, found.output_tokens) == (None, 3)
    assert (found.text, found.thoughts, found.finish) == ("A", "so", Finish.LENGTH)


def test_ollama_has_no_files() -> None:
    """Its lines are unreadable, its payloads refused."""
    assert registry.module("ollama").read_line(b"{}").status is ResponseStatus.UNREADABLE


def test_vllms_result_files_are_read_by_the_same_reader() -> None:
    """`vllm run-batch`: a row is a live answer in an envelope, thoughts included."""
    body = chat("<think>so</think>A")
    row = {"id": "vllm-1", "custom_id": "a-1", "response": {"status_code": 200, "request_id": "r", "body": body}}
    found = registry.module("vllm").read_line(json.dumps(row).encode())
    assert (found.custom_id, found.text, found.thoughts) == ("a-1", "A", "so")
