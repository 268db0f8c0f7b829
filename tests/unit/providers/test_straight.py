"""A well-formed line is read at once, and never otherwise than the general reader reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchpond.providers import registry
from batchpond.providers.shared.dialect import Dialect
from tests.rigs.result_lines import ANYTHING, CID, SHAPES, Shape
from tests.rigs.swept import examples

WHOLE = {
    "openai": {
        "id": "batch_req_1", "custom_id": CID, "error": None,
        "response": {"status_code": 200, "request_id": "r1", "body": {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_000_000, "model": "gpt-5.4-mini",
            "choices": [{"index": 0, "logprobs": None, "finish_reason": "stop", "message": {
                "role": "assistant", "content": "Hello \u2028 \U0001f600", "refusal": None, "annotations": []}}],
            "usage": {
                "prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 4, "audio_tokens": 0},
            }, "service_tier": "default", "system_fingerprint": "fp"}},
    },
    "together": {
        "id": "batch_req_1", "custom_id": CID, "response": {"status_code": 200, "body": {
            "id": "o", "object": "chat.completion", "model": "Qwen/Qwen3", "choices": [{"index": 0, "message": {
                "role": "assistant", "content": "<think>Hm</think> A", "reasoning": "So", "tool_calls": []},
                "finish_reason": "length"}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17, "cached_tokens": 2}}},
    },
    "groq": {
        "id": "batch_req_1", "custom_id": CID, "error": None, "response": {
            "status_code": 200, "request_id": "req_1", "body": {
                "id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_000_000, "model": "gpt-oss-20b",
                "choices": [{"index": 0, "logprobs": None, "finish_reason": "stop", "message": {
                    "role": "assistant", "content": "A", "reasoning": "So"}}],
                "usage": {"queue_time": 0.04, "prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17,
                          "completion_tokens_details": {"reasoning_tokens": 2}},
                "system_fingerprint": "fp", "x_groq": {"id": "req_1"}, "service_tier": "on_demand"}},
    },
    "mistral": {
        "id": "batch-1a2b3c4d-0", "custom_id": CID, "error": None, "response": {"status_code": 200, "body": {
            "id": "c1", "object": "chat.completion", "model": "mistral-small-2603", "created": 1_795_200_000,
            "usage": {"prompt_tokens": 6, "completion_tokens": 5, "total_tokens": 11, "num_cached_tokens": 1,
                      "prompt_tokens_details": {"cached_tokens": 0}},
            "choices": [{"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant", "content": "Hello", "tool_calls": None}}]}},
    },
    "xai": {
        "batch_request_id": CID, "batch_result": {"response": {"chat_get_completion": {
            "id": "c", "object": "chat.completion", "created": 1_795_200_000, "model": "grok-4.3",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant", "content": "Hello", "reasoning_content": "Hm", "refusal": None}}],
            "usage": {"prompt_tokens": 198, "completion_tokens": 1, "total_tokens": 317,
                      "prompt_tokens_details": {"cached_tokens": 192},
                      "completion_tokens_details": {"reasoning_tokens": 118}, "cost_in_usd_ticks": 2747200},
            "service_tier": "default"}}},
    },
    "vllm": {
        "custom_id": CID, "error": None, "response": {"status_code": 200, "request_id": "r", "body": {
            "object": "chat.completion", "model": "m", "choices": [{"finish_reason": "stop", "message": {
                "role": "assistant", "reasoning_content": "Because", "content": "A</think>B"}}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "num_cached_tokens": 1, "reasoning_tokens": 2}}},
    },
    "anthropic": {
        "custom_id": CID, "result": {"type": "succeeded", "message": {
            "model": "claude", "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
            "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}, {"type": "text", "text": "A"},
                        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "B", "citations": None}],
            "usage": {"input_tokens": 12, "output_tokens": 5, "cache_read_input_tokens": 3,
                      "cache_creation_input_tokens": 4, "output_tokens_details": {"thinking_tokens": 2}}}},
    },
    "gemini": {
        "key": CID, "response": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Hm", "thought": True}, {"text": "A"}]},
                            "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 19,
                              "thoughtsTokenCount": 2, "cachedContentTokenCount": 1, "toolUsePromptTokenCount": 3},
            "modelVersion": "gemini-3", "responseId": "x"},
    },
    "vertex": {
        "custom_id": f"k{CID}", "status": "", "processed_time": "2026-10-01T00:00:00Z", "request": {"contents": []},
        "response": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "A", "thought": False}]},
                            "finishReason": "MAX_TOKENS", "avgLogprobs": -0.5}],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5}, "modelVersion": "g",
            "responseId": "x"},
    },
}  # fmt: skip
each = pytest.mark.parametrize("provider", WHOLE)
ODD_BYTES = st.sampled_from(
    [
        b"\xff",
        b"\\ud800",
        b"\\u0000",
        b"1e999",
        b"9" * 400,
        b"NaN",
        b"-0",
        b" ",
        b"\xef\xbb\xbf",
        b'"',
        b"{",
        b"}",
        b",",
    ]
)


def check(dialect: Dialect, line: bytes) -> None:
    """Hold the two readers of a dialect against each other."""
    assert dialect.straight is not None
    found = dialect.straight(line)
    assert found is None or found == dialect.read_any_line(line)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return where something stands in a tree: the object or list, and the name or number."""
    pairs = list(tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ())
    return [(tree, key) for key, _ in pairs] + [place for _, inner in pairs for place in places(inner)]


@each
def test_a_whole_line_is_read_at_once(provider: str) -> None:
    """As its provider writes it, the line never comes to the general reader."""
    dialect = registry.module(provider)
    assert dialect.straight is not None
    line = json.dumps(WHOLE[provider]).encode()
    found = dialect.straight(line)
    assert found is not None
    assert found == dialect.read_any_line(line) == dialect.read_line(line)
    assert (found.custom_id, found.input_tokens is None) == (CID, False)


def test_every_provider_of_batches_has_a_whole_line() -> None:
    """A provider that is added is held to all of this."""
    assert set(registry.NAMES) <= WHOLE.keys()


@each
@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_mangled_line_is_read_as_the_general_reader_reads_it(provider: str, data: st.DataObject) -> None:
    """Anything in any place of a whole line, members left out, named twice or of any type."""
    tree = json.loads(json.dumps(WHOLE[provider]))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(tree)))
        match data.draw(st.sampled_from(["replace", "none", "drop", "add", "number"])):
            case "replace":
                holder[key] = data.draw(ANYTHING)
            case "none":
                holder[key] = None
            case "number":
                holder[key] = data.draw(
                    st.sampled_from([0, -1, 3.0, "7", "", 2**62, 2**63, 1e30, True, [], {}, "stop"])
                )
            case "drop" if isinstance(holder, dict):
                del holder[key]
            case _ if isinstance(holder, list):
                holder.append(data.draw(ANYTHING))
            case _:
                holder[data.draw(st.sampled_from(["error", "object", "status", "choices", "output"]))] = data.draw(
                    ANYTHING
                )
        if not places(tree):
            break
    check(registry.module(provider), json.dumps(tree).encode("utf-8", "surrogatepass"))


@each
@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_line_of_other_bytes_is_read_as_the_general_reader_reads_it(provider: str, data: st.DataObject) -> None:
    """Cut, doubled and overwritten: what one JSON parser lets pass and another does not makes no difference."""
    line = json.dumps(WHOLE[provider], ensure_ascii=data.draw(st.booleans())).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(line)))
        end = data.draw(st.integers(start, min(len(line), start + 12)))
        line = line[:start] + data.draw(st.binary(max_size=2) | ODD_BYTES | st.just(line[start:end])) + line[end:]
    check(registry.module(provider), line)


@each
@given(key=st.sampled_from(["custom_id", "key", "error", "status", "response", "result"]), value=ANYTHING)
@example(key="custom_id", value=CID)
@example(key="key", value=CID)
def test_a_member_named_twice_is_read_as_the_general_reader_reads_it(provider: str, key: str, value: Any) -> None:
    """Before the others and after them, also by a name with an escape in it."""
    line = json.dumps(WHOLE[provider]).encode()
    more = json.dumps(value).encode("utf-8", "surrogatepass")
    for name in (json.dumps(key).encode(), b'"\\u%04x%b"' % (ord(key[0]), key[1:].encode())):
        check(registry.module(provider), b"{%b:%b,%b" % (name, more, line[1:]))
        check(registry.module(provider), b"%b,%b:%b}" % (line[:-1], name, more))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@settings(max_examples=50)
@given(data=st.data())
def test_an_odd_row_is_read_as_the_general_reader_reads_it(shape: Shape, data: st.DataObject) -> None:
    """Rows of roughly the right shape."""
    check(registry.module(shape.provider), json.dumps(data.draw(shape.odd)).encode("utf-8", "surrogatepass"))
    check(registry.module(shape.provider), shape.row(data.draw(st.text(st.characters()))))


@pytest.mark.parametrize("depth", [10, 500, 990, 1100, 100_000])
def test_a_deep_line_is_read_as_the_general_reader_reads_it(depth: int) -> None:
    """What is nested too deeply for one is left to the other."""
    line = json.dumps(WHOLE["openai"]).encode()
    check(registry.module("openai"), line[:-1] + b',"more":' + b"[" * depth + b"]" * depth + b"}")
