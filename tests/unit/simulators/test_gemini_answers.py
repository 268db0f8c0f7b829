"""Simulated Gemini models think, stop and refuse as their families do."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from batchpond_sim.gemini.answers import MODELS, RowAnswer, answer, family_of, malformed
from batchpond_sim.judges.judge import Panel, parse_judge
from tests.rigs.gemini import request


def ask(model: str, *judges: str, key: str = "r-1", **config: Any) -> RowAnswer:
    family = family_of(model)
    assert family is not None
    panel = Panel(7)
    panel.judges = tuple(parse_judge(spec) for spec in judges)
    return answer(model, family, request(**config), key, panel)


def usage(said: RowAnswer, name: str) -> int:
    return int(said.body["usageMetadata"].get(name, 0))


@pytest.mark.parametrize("model", MODELS)
def test_every_model_answers_as_the_sdk_reads_it(model: str) -> None:
    said = ask(model)
    parsed = types.GenerateContentResponse.model_validate(said.body)
    assert parsed.text
    counts = [usage(said, name) for name in ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")]
    assert sum(counts) == usage(said, "totalTokenCount")
    assert (said.input_tokens, said.output_tokens) == (counts[0], counts[1] + counts[2])
    assert ask(model) == said
    assert ask(model, key="r-2").body["responseId"] != said.body["responseId"]


@pytest.mark.parametrize(
    ("model", "thinking", "says"),
    [
        ("gemini-2.5-flash", {"thinkingLevel": "LOW"}, "not supported"),
        ("gemini-2.5-pro", {"thinkingBudget": 0}, "only works in thinking mode"),
        ("gemini-2.5-pro", {"thinkingBudget": 127}, "between 128 and 32768"),
        ("gemini-2.5-flash", {"thinkingBudget": 24_577}, "between 0 and 24576"),
        ("gemini-2.5-flash-lite", {"thinkingBudget": 100}, "between 512 and 24576"),
        ("gemini-3-pro-preview", {"thinkingLevel": "MEDIUM"}, "MEDIUM is not supported"),
        ("gemini-4-argon", {"thinkingLevel": "minimal"}, "MINIMAL is not supported"),
        ("gemini-3.8-flash", {"thinkingLevel": "XHIGH"}, "XHIGH is not supported"),
        ("gemini-3.8-flash", {"thinkingLevel": "MINIMAL"}, "MINIMAL is not supported"),
        ("gemini-3.8-flash", {"thinkingLevel": "LOW", "thinkingBudget": 128}, "only one"),
        ("gemini-2.0-flash", {"includeThoughts": True}, "not enabled"),
    ],
)
def test_thinking_that_a_model_does_not_have_is_refused(model: str, thinking: dict[str, Any], says: str) -> None:
    said = ask(model, thinkingConfig=thinking)
    assert (said.status, said.body["status"], said.is_success) == (400, "INVALID_ARGUMENT", False)
    assert says in said.body["message"]


@pytest.mark.parametrize(
    ("model", "thinking", "least", "most"),
    [
        ("gemini-2.5-flash", {"thinkingBudget": 0}, 0, 0),
        ("gemini-2.5-flash", {"thinkingBudget": 50}, 50, 50),
        ("gemini-2.5-flash", {"thinkingBudget": -1}, 200, 600),
        ("gemini-2.5-flash-lite", {}, 0, 0),
        ("gemini-2.5-pro", {}, 200, 600),
        ("gemini-3.8-flash", {}, 240, 720),
        ("gemini-3.6-flash", {}, 12, 36),
        ("gemini-3-flash-preview", {}, 650, 1950),
        ("gemini-3.1-pro-preview", {"thinkingLevel": "medium"}, 240, 720),
        ("gemini-3-pro-preview", {"thinkingBudget": 128}, 128, 128),
        ("gemini-2.0-flash", {}, 0, 0),
    ],
)
def test_thinking_costs_what_was_asked_for(model: str, thinking: dict[str, Any], least: int, most: int) -> None:
    said = ask(model, thinkingConfig=thinking)
    assert least <= usage(said, "thoughtsTokenCount") <= most
    assert said.reasoning_tokens == usage(said, "thoughtsTokenCount")


def test_thoughts_are_shown_when_wished_for_and_signed_by_models_with_levels() -> None:
    def parts(model: str, **thinking: Any) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = ask(model, thinkingConfig=thinking).body["candidates"][0]["content"]["parts"]
        return shown

    thought, text = parts("gemini-3.8-flash", includeThoughts=True, thinkingLevel="HIGH")
    assert (thought["thought"], "thoughtSignature" in thought, "thoughtSignature" in text) == (True, False, True)
    assert [part.get("thought") for part in parts("gemini-2.5-pro", includeThoughts=True)] == [True, None]
    (text,) = parts("gemini-2.5-pro")
    assert "thoughtSignature" not in text


def test_the_token_limit_counts_thoughts_and_can_leave_no_text() -> None:
    said = ask("gemini-2.5-pro", maxOutputTokens=150)
    candidate = said.body["candidates"][0]
    assert (candidate["finishReason"], candidate["content"]) == ("MAX_TOKENS", {"role": "model"})
    assert usage(said, "thoughtsTokenCount") == 150
    assert "candidatesTokenCount" not in said.body["usageMetadata"]
    enough = ask("gemini-2.5-flash", maxOutputTokens=2000, thinkingConfig={"thinkingBudget": 0})
    assert enough.body["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize(
    ("model", "config", "status"),
    [
        ("gemini-2.5-flash", {"temperature": 2.1}, 400),
        ("gemini-2.5-flash", {"topP": 1.1}, 400),
        ("gemini-2.5-flash", {"candidateCount": 2}, 400),
        ("gemini-2.5-flash", {"maxOutputTokens": 0}, 400),
        ("gemini-2.5-flash", {"maxOutputTokens": 65_537}, 400),
        ("gemini-4-argon", {"maxOutputTokens": 200_000}, 200),
        ("gemini-2.5-flash", {"presencePenalty": 0.5}, 200),
        ("gemini-3.8-flash", {"presencePenalty": 0.5}, 400),
        ("gemini-3.8-flash", {"temperature": 0.2, "topP": 0.5, "topK": 3}, 200),
        ("gemini-2.5-flash", {"max_output_tokens": 3000, "response_mime_type": "application/json"}, 200),
    ],
)
def test_values_are_checked_by_family(model: str, config: dict[str, Any], status: int) -> None:
    assert ask(model, **config).status == status


def test_new_models_refuse_an_answer_that_was_begun_for_them() -> None:
    body = {"contents": [*request()["contents"], {"role": "model", "parts": [{"text": "It is"}]}]}
    statuses = []
    for model in ("gemini-2.5-flash", "gemini-3.5-flash-lite"):
        family = family_of(model)
        assert family is not None
        statuses.append(answer(model, family, body, "r", Panel(1)).status)
    assert statuses == [200, 400]


def test_judges_refuse_in_text_and_filters_block_prompts_or_answers() -> None:
    refused = ask("gemini-2.5-flash", "*:refusal_rate=1")
    assert refused.body["candidates"][0]["finishReason"] == "STOP"
    assert "cannot help" in refused.body["candidates"][0]["content"]["parts"][0]["text"]
    kinds = set()
    for i in range(20):
        body = ask("gemini-2.5-flash", "*:filtered_rate=1", key=f"r-{i}").body
        types.GenerateContentResponse.model_validate(body)
        kinds.add("prompt" if body.get("promptFeedback") else body["candidates"][0]["finishReason"])
    assert kinds == {"prompt", "SAFETY"}
    assert ask("gemini-2.5-flash", "*:error_rate=1").status == 500


def test_unknown_models_have_no_family() -> None:
    assert [family_of(name) for name in ("gpt-5.4", "gemini", "models/gemini-2.5-pro", "gemini-1.5-pro")] == [None] * 4


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70_000) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["contents", "parts", "text", "role", "generationConfig", "thinkingConfig", "thinkingLevel",
                         "thinkingBudget", "maxOutputTokens", "candidateCount", "system_instruction", "x"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(body=_JSON)
def test_any_json_is_malformed_or_gets_an_answer(body: Any) -> None:
    family = family_of("gemini-2.5-flash")
    assert family is not None
    if malformed(body) is None:
        assert answer("gemini-2.5-flash", family, body, "r", Panel(1)).status in (200, 400)


@given(config=_JSON)
def test_any_configuration_gets_an_answer(config: Any) -> None:
    family = family_of("gemini-3.8-flash")
    assert family is not None
    body = {**request(), "generationConfig": config}
    assert answer("gemini-3.8-flash", family, body, "r", Panel(1)).status in (200, 400)
