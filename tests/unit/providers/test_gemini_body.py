"""Gemini requests: the thinking table cell by cell, what is refused or left out, and the official types."""

from __future__ import annotations

import json
import warnings
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import UsageError
from batchpond.model import Role, Turn
from batchpond.providers import registry
from batchpond.providers.gemini.dialect import DIALECT, FAMILIES, WORDS
from batchpond.providers.shared.dialect import ModelSettings

GENERATE = "generateContent"


def settings(model: str, endpoint: str = GENERATE, **more: Any) -> ModelSettings:
    return ModelSettings(model, endpoint, **more)


def thinking_of(model: str, thinking: str | None, **more: Any) -> dict[str, Any]:
    body = DIALECT.build_body("Hi", settings(model, thinking=thinking, **more)).body
    found: dict[str, Any] = body.get("generationConfig", {}).get("thinkingConfig", {})
    return found


def test_a_body_has_what_was_asked() -> None:
    """The prompt is one turn of the user; limits and sampling are the generation's; no model in it."""
    case = settings(
        "gemini-2.5-flash",
        max_output_tokens=4_000,
        temperature=0.5,
        thinking="low",
        include_thoughts=True,
        parameters={"top_p": 0.9, "seed": 7, "safetySettings": [], "system_instruction": {"parts": [{"text": "s"}]}},
    )
    built = DIALECT.build_body("Hi", case)
    assert built.body == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "safetySettings": [],
        "systemInstruction": {"parts": [{"text": "s"}]},
        "generationConfig": {
            "maxOutputTokens": 4_000,
            "temperature": 0.5,
            "topP": 0.9,
            "seed": 7,
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1_024},
        },
    }
    assert built.dropped == ()


def test_a_model_that_takes_no_system_prompt_is_not_sent_one() -> None:
    """Every request would come back with a 400, however the prompt came to have it."""
    prompt = (Turn(Role.SYSTEM, "Be fair."), Turn(Role.USER, "Hi"))
    inside = {"system_instruction": {"parts": [{"text": "s"}]}}
    for asked, parameters in ((prompt, {}), ("Hi", inside)):
        with pytest.raises(UsageError, match="takes no system prompt"):
            DIALECT.build_body(asked, settings("gemma-3-27b-it", parameters=parameters))
        for model in ("gemini-2.5-flash", "gemma-4-31b-it"):
            assert "systemInstruction" in DIALECT.build_body(asked, settings(model, parameters=parameters)).body
    assert DIALECT.build_body("Hi", settings("gemma-3-27b-it")).body["contents"]


def test_a_plain_body_has_no_generation_config() -> None:
    """A model's defaults are its own."""
    assert DIALECT.build_body("Hi", settings("gemini-2.5-pro")).body == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]
    }


LEVELS = {
    "gemini-4-argon": "low medium high",
    "gemini-3.8-flash": "low medium high",
    "gemini-3.7-flash": "low medium high",
    "gemini-3.6-flash": "minimal low medium high",
    "gemini-3.5-flash-lite": "minimal low medium high",
    "gemini-3.5-flash": "minimal low medium high",
    "gemini-3.1-flash-lite": "minimal low medium high",
    "gemini-3.1-flash-lite-preview": "minimal low medium high",
    "gemini-3.1-pro-preview": "low medium high",
    "gemini-3-flash-preview": "minimal low medium high",
    "gemini-3-pro-preview": "low high",
    "models/gemini-3-pro": "low high",
}
PRO = {"low": 1_024, "medium": 8_192, "high": 24_576, "max": 32_768}
FLASH = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
BUDGETS: dict[str, tuple[dict[str, int], tuple[int, ...], tuple[int, ...]]] = {
    "gemini-2.5-pro": (PRO, (128, 32_768), (0, 127, 32_769)),
    "gemini-2.5-pro-preview-06-05": (PRO, (128, 32_768), (0, 127, 32_769)),
    "gemini-2.5-flash": (FLASH, (0, 1, 24_576), (24_577,)),
    "gemini-2.5-flash-preview-09-2025": (FLASH, (0, 1, 24_576), (24_577,)),
    "gemini-2.5-flash-lite": (FLASH, (0, 512, 24_576), (1, 511, 24_577)),
    "models/gemini-2.5-flash-lite": (FLASH, (0, 512, 24_576), (1, 511, 24_577)),
}


@pytest.mark.parametrize("word", [*WORDS, "extreme", "1024", "0", "-1"])
@pytest.mark.parametrize("model", LEVELS)
def test_each_model_of_generation_3_and_4_takes_its_own_levels(model: str, word: str) -> None:
    """Accepted words are sent as `thinkingLevel`; every other word, and every number, is refused by name."""
    accepted = LEVELS[model].split()
    assert list(FAMILIES.of(model).words) == accepted
    if word in accepted:
        assert thinking_of(model, word) == {"thinkingLevel": word.upper()}
        return
    with pytest.raises(UsageError) as caught:
        thinking_of(model, word)
    assert model in caught.value.message
    assert repr(word) in caught.value.message
    assert ", ".join(accepted) in caught.value.message


@pytest.mark.parametrize("word", [*WORDS, "extreme", "-1", "1e3", "²", "", "9" * 30])
@pytest.mark.parametrize("model", BUDGETS)
def test_each_model_of_generation_2_5_takes_its_own_budgets(model: str, word: str) -> None:
    """Accepted words are sent as `thinkingBudget`; a refusal says which numbers would do."""
    words, _, _ = BUDGETS[model]
    assert list(FAMILIES.of(model).words) == list(words)
    if word in words:
        assert thinking_of(model, word) == {"thinkingBudget": words[word]}
        return
    with pytest.raises(UsageError) as caught:
        thinking_of(model, word)
    assert model in caught.value.message
    assert "a number of tokens from" in caught.value.message


@pytest.mark.parametrize("model", BUDGETS)
def test_a_number_of_tokens_is_a_budget_within_the_models_range(model: str) -> None:
    """The bounds themselves are taken, one beyond them is not."""
    _, inside, outside = BUDGETS[model]
    for tokens in inside:
        assert thinking_of(model, str(tokens)) == {"thinkingBudget": tokens}
    for tokens in outside:
        with pytest.raises(UsageError):
            thinking_of(model, str(tokens))


@pytest.mark.parametrize("model", ["gemini-2.0-flash", "gemini-2.0-flash-lite", "gemini-1.5-pro", "gemma-3-27b-it"])
def test_models_that_do_not_think_take_none_and_nothing_else(model: str) -> None:
    """`none` is what they do anyway, and nothing is sent for it."""
    assert FAMILIES.of(model).words == ("none",)
    assert thinking_of(model, "none") == {}
    for word in ("low", "512"):
        with pytest.raises(UsageError):
            thinking_of(model, word)
    with pytest.raises(UsageError, match="does not think"):
        thinking_of(model, None, include_thoughts=True)


def test_the_models_default_is_left_to_the_model() -> None:
    """No word, no parameter."""
    for model in (*LEVELS, *BUDGETS):
        assert thinking_of(model, None) == {}
        assert thinking_of(model, None, include_thoughts=True) == {"includeThoughts": True}


def test_no_thoughts_can_be_shown_of_thinking_that_is_off() -> None:
    """What was left out is reported."""
    built = DIALECT.build_body("Hi", settings("gemini-2.5-flash", thinking="none", include_thoughts=True))
    assert built.body["generationConfig"] == {"thinkingConfig": {"thinkingBudget": 0}}
    assert built.dropped == ("include_thoughts",)


@pytest.mark.parametrize(("limit", "is_enough"), [(1_024, False), (1_025, True), (10, False), (None, True)])
def test_an_output_limit_must_leave_room_beside_the_budget(limit: int | None, is_enough: bool) -> None:
    """Gemini counts thoughts as output and refuses less."""
    case = settings("gemini-2.5-pro", thinking="low", max_output_tokens=limit)
    if is_enough:
        DIALECT.build_body("Hi", case)
        return
    with pytest.raises(UsageError, match="leaves no room"):
        DIALECT.build_body("Hi", case)


@pytest.mark.parametrize(
    ("model", "is_kept"),
    [
        ("gemini-2.5-flash", True),
        ("gemini-3-flash-preview", True),
        ("gemini-3.1-pro-preview", True),
        ("gemini-3.5-flash", True),
        ("gemini-3.5-flash-lite", False),
        ("gemini-3.6-flash", False),
        ("gemini-3.7-flash", False),
        ("gemini-3.8-flash", False),
        ("gemini-4-argon", False),
        ("gemini-9-neon", True),
    ],
)
def test_sampling_is_left_out_and_named_where_the_model_ignores_it(model: str, is_kept: bool) -> None:
    """Two temperatures that give the same answers must not look like two settings."""
    built = DIALECT.build_body("Hi", settings(model, temperature=0.0, parameters={"topK": 3, "top_p": 0.4, "seed": 1}))
    assert built.body["generationConfig"] == ({"temperature": 0.0, "topK": 3, "topP": 0.4} if is_kept else {}) | {
        "seed": 1
    }
    assert built.dropped == (() if is_kept else ("temperature", "topK", "topP"))


def test_unknown_models_are_passed_through_with_a_caveat() -> None:
    """A name outside the table is not refused, but the user is told."""
    assert thinking_of("gemini-9-neon", "xhigh") == {"thinkingLevel": "XHIGH"}
    assert thinking_of("gemini-9-neon", "2048") == {"thinkingBudget": 2_048}
    assert thinking_of("gemini-9-neon", "none") == {"thinkingBudget": 0}
    with pytest.raises(UsageError):
        thinking_of("gemini-9-neon", "max")
    assert "gemini-9-neon" in DIALECT.caveats("gemini-9-neon")[0]
    assert DIALECT.caveats("gemini-3.8-flash") == ()
    assert "retired" in DIALECT.caveats("gemini-3.7-flash")[0]
    assert not FAMILIES.of("gemini-3.9-flash").is_known
    assert not FAMILIES.of("gemini-flash-latest").is_known


@pytest.mark.parametrize(
    "case",
    [
        settings("gemini-2.5-pro", "/v1/chat/completions"),
        settings("gemini-2.5-pro", parameters={"contents": []}),
        settings("gemini-2.5-pro", parameters={"model": "x"}),
        settings("gemini-2.5-pro", parameters={"candidateCount": 2}),
        settings("gemini-2.5-pro", parameters={"candidate_count": 2}),
        settings("gemini-2.5-pro", parameters={"thinkingConfig": {}}),
        settings("gemini-2.5-pro", parameters={"generation_config": {}}),
        settings("gemini-2.5-pro", max_output_tokens=5, parameters={"max_output_tokens": 6}),
        settings("gemini-2.5-pro", parameters={"top_p": 1, "topP": 0.5}),
        settings("gemini-3.8-flash", parameters={"presencePenalty": 1}),
        settings("gemini-3.8-flash", parameters={"frequency_penalty": 1}),
    ],
)
def test_what_cannot_work_is_refused_before_money_is_spent(case: ModelSettings) -> None:
    """Each refusal says what to change."""
    with pytest.raises(UsageError) as caught:
        DIALECT.build_body("Hi", case)
    assert case.request_model in caught.value.message


def test_there_is_one_endpoint() -> None:
    """Whatever is wanted."""
    assert registry.module("gemini").endpoint_for("gemini-2.5-pro", True, 0.3) == GENERATE


def test_every_row_of_the_table_can_be_reached_and_says_where_it_is_from() -> None:
    """No family is shadowed by one before it."""
    for family in FAMILIES.rows:
        assert FAMILIES.of(family.prefix) is family
        assert family.source
        assert set(family.words) <= set(WORDS)


@given(st.text(), st.text(st.characters(codec="utf-8")))
def test_a_payload_line_is_one_json_line_whose_body_is_untouched(custom_id: str, prompt: str) -> None:
    """Any prompt stays inside its string: quotes, line breaks, U+2028 and NUL included."""
    custom_id = custom_id.encode("utf-8", "replace").decode()
    body = orjson.dumps(DIALECT.build_body(prompt, settings("gemini-2.5-pro")).body)
    line = DIALECT.payload_line(custom_id, GENERATE, body)
    assert b"\n" not in line
    assert body in line
    row = json.loads(line)
    assert row == {"key": custom_id, "request": json.loads(body)}
    assert row["request"]["contents"][0]["parts"][0]["text"] == prompt


def test_a_body_on_two_lines_is_refused() -> None:
    """It would become two requests."""
    with pytest.raises(UsageError):
        DIALECT.payload_line("a", GENERATE, b'{\n"contents":[]}')


# --- the official types ---------------------------------------------------------------------------


def official() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("google.genai.types", reason="NOT CHECKED: google-genai is not installed")


def check(types: Any, body: dict[str, Any]) -> None:
    """Each part of a request as the SDK's own types, which take no member that they do not know."""
    assert set(body) <= {"contents", "generationConfig", "systemInstruction", "safetySettings", "tools", "toolConfig"}
    for content in body["contents"]:
        types.Content.model_validate(content)
    found = types.GenerationConfig.model_validate(body.get("generationConfig", {}))
    level = body.get("generationConfig", {}).get("thinkingConfig", {}).get("thinkingLevel")
    if level is not None:
        assert found.thinking_config.thinking_level in set(types.ThinkingLevel)
        assert found.thinking_config.thinking_level.value == level


@pytest.mark.parametrize("model", [*LEVELS, *BUDGETS, "gemini-2.0-flash", "gemini-9-neon"])
def test_bodies_are_what_the_official_sdk_knows(model: str) -> None:
    """Every accepted word and number, with and without thoughts."""
    types = official()
    numbers = [str(tokens) for tokens in BUDGETS.get(model, ({}, (), ()))[1]]
    family = FAMILIES.of(model)
    for word in (None, *family.words, *numbers):
        for more in ({}, {"max_output_tokens": 60_000, "temperature": 0.2, "parameters": {"top_p": 0.5, "seed": 3}}):
            check(
                types,
                DIALECT.build_body("Hi", settings(model, thinking=word, include_thoughts=family.thinks, **more)).body,
            )


def test_the_check_can_fail() -> None:
    """A wrong member or level is noticed, so the check above means something."""
    types = official()
    body = DIALECT.build_body("Hi", settings("gemini-2.5-pro")).body
    for wrong in ({"maxTokens": 1}, {"thinkingConfig": {"thinkingLevels": "HIGH"}}, {"topP": "much"}):
        with pytest.raises(ValueError, match="validation error"):
            check(types, body | {"generationConfig": wrong})
