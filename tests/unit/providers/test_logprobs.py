"""The tokens of an answer with their log probabilities, as each provider writes them: all of them, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types as google
from hypothesis import given
from hypothesis import strategies as st
from ollama import ChatResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response as OpenAIResponse
from together.types import LogProbs

from batchpond.lake.schemas import RESPONSES
from batchpond.model import Response, Token
from batchpond.providers import registry
from tests.rigs.result_lines import ANYTHING, CID

Step = tuple[tuple[str, float], list[tuple[str, float]]]

texts = st.text(st.characters(codec="utf-8"), max_size=4)
shares = st.floats(-9999, 0)
steps = st.lists(
    st.tuples(st.tuples(texts, shares), st.lists(st.tuples(texts, shares), max_size=4, unique_by=lambda one: one[0])),
    min_size=1,
    max_size=5,
)


def read_of(found: list[Step]) -> tuple[Token, ...]:
    """Return the tokens that are read: each with its choices, itself first, a text that stands twice as it is last."""
    return tuple(
        Token(own[0].encode(), tuple({text.encode(): share for text, share in (own, *top)}.items()))
        for own, top in found
    )


def openai_step(step: Step, *, with_bytes: bool) -> dict[str, Any]:
    own, top = (
        [
            {"token": text, "logprob": share, "bytes": list(text.encode()) if with_bytes else None}
            for text, share in some
        ]
        for some in ([step[0]], step[1])
    )
    return {**own[0], "top_logprobs": top}


def completion(logprobs: object) -> dict[str, Any]:
    """Return a chat completion."""
    message = {"role": "assistant", "content": "4", "refusal": None}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": logprobs}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def responses_body(logprobs: object) -> dict[str, Any]:
    """Return the body of /v1/responses."""
    parts = [{"type": "output_text", "annotations": [], "text": "4", "logprobs": logprobs}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": parts}
    return {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [message],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def line_of(provider: str, body: object) -> bytes:
    """Return a result line."""
    if provider == "gemini":
        return json.dumps({"key": CID, "response": body}).encode()
    return json.dumps({"custom_id": CID, "error": None, "response": {"status_code": 200, "body": body}}).encode()


def read(provider: str, body: object) -> Response:
    """Return a result line as the provider's dialect reads it, both ways."""
    module = registry.module(provider)
    line = line_of(provider, body)
    found = module.read_line(line)
    assert found == module.read_any_line(line)
    return found


@given(steps, st.booleans())
def test_chat_has_them_beside_its_message(found: list[Step], with_bytes: bool) -> None:
    """As OpenAI's own type has them; servers that copy it, and Together for some models, have the same."""
    content = [openai_step(step, with_bytes=with_bytes) for step in found]
    body = completion({"content": content, "refusal": None})
    assert ChatCompletion.model_validate(body, strict=True).choices[0].logprobs is not None
    for provider in ("openai", "vllm", "together"):
        response = read(provider, body)
        assert response.logprobs == read_of(found)
        assert response._replace(logprobs=None) == read(provider, completion(None))


@given(steps)
def test_responses_have_them_in_each_part(found: list[Step]) -> None:
    body = responses_body([openai_step(step, with_bytes=True) for step in found])
    assert OpenAIResponse.model_validate(body).output_text == "4"
    assert read("openai", body).logprobs == read_of(found)


@given(steps)
def test_together_has_lists_beside_one_another(found: list[Step]) -> None:
    """Its type calls `top_logprobs` one table; its answers have one for each token (inspect_ai#3084)."""
    logprobs = {
        "tokens": [own[0] for own, _ in found],
        "token_logprobs": [own[1] for own, _ in found],
        "top_logprobs": [dict(top) for _, top in found],
    }
    assert LogProbs.model_validate({**logprobs, "top_logprobs": None}).tokens == logprobs["tokens"]
    assert read("together", completion(logprobs)).logprobs == read_of(found)
    for name in logprobs:
        lacking = {**logprobs, name: logprobs[name][1:]}
        assert read("together", completion(lacking)).logprobs is None
    assert read("together", completion({**logprobs, "top_logprobs": {"4": -0.1}})).logprobs is None


@given(steps)
def test_google_has_them_beside_the_content(found: list[Step]) -> None:
    result = google.LogprobsResult(
        chosen_candidates=[google.LogprobsResultCandidate(token=own[0], log_probability=own[1]) for own, _ in found],
        top_candidates=[
            google.LogprobsResultTopCandidates(
                candidates=[google.LogprobsResultCandidate(token=text, log_probability=share) for text, share in top]
            )
            for _, top in found
        ],
    ).model_dump(mode="json", by_alias=True, exclude_none=True)
    candidate = {"content": {"role": "model", "parts": [{"text": "4"}]}, "finishReason": "STOP"}
    assert read("gemini", {"candidates": [{**candidate, "logprobsResult": result}]}).logprobs == read_of(found)
    assert read("gemini", {"candidates": [candidate]}).logprobs is None


@given(steps)
def test_ollama_has_them_beside_the_message(found: list[Step]) -> None:
    top = [{"token": text, "logprob": share} for text, share in found[0][1]]
    body = {"model": "m", "message": {"role": "assistant", "content": "4"}, "done": True, "done_reason": "stop",
            "logprobs": [openai_step(step, with_bytes=True) for step in found]}  # fmt: skip
    told = ChatResponse.model_validate(body).logprobs
    assert told is not None
    assert [{"token": one.token, "logprob": one.logprob} for one in told[0].top_logprobs or ()] == top
    answer = registry.module("ollama").read_answer(200, json.dumps(body).encode())
    assert answer.logprobs == read_of(found)


@pytest.mark.parametrize("provider", ["openai", "together", "gemini", "vllm"])
@given(st.data())
def test_what_is_malformed_is_left_out_whole_and_spoils_nothing(provider: str, data: st.DataObject) -> None:
    """Half a distribution would be another one: the answer is read as if it had come without."""

    def put(step: dict[str, Any]) -> dict[str, Any]:
        return step | {data.draw(st.sampled_from(["token", "logprob", "bytes", "top_logprobs"])): data.draw(ANYTHING)}

    sound = openai_step((("4", -0.1), [("4", -0.1), ("5", -2.0)]), with_bytes=True)
    spoiled = [sound, put(sound)] if data.draw(st.booleans()) else data.draw(ANYTHING)
    logprobs = data.draw(st.sampled_from([{"content": spoiled}, {"tokens": spoiled, "top_logprobs": spoiled}, spoiled]))
    if provider == "gemini":
        content = {"content": {"role": "model", "parts": [{"text": "4"}]}, "finishReason": "STOP"}
        bodies = [{"candidates": [content | more]} for more in ({"logprobsResult": logprobs}, {})]
    else:
        bodies = [completion(logprobs), completion(None)]
    response, without = (read(provider, body) for body in bodies)
    assert response._replace(logprobs=None) == without
    assert response.logprobs is None or len(response.logprobs) == 2


def test_the_lake_keeps_no_column_of_them() -> None:
    """What was bought is in the raw line; a table of responses is what it was."""
    assert "logprobs" in Response._fields
    assert "logprobs" not in RESPONSES.schema.names
