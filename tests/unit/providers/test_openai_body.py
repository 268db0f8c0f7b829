"""Request bodies: the thinking map, what is refused or left out, and the official schema."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from batchpond.errors import UsageError
from batchpond.providers.openai.dialect import DIALECT, FAMILIES, accepted_thinking
from batchpond.providers.shared.dialect import ModelSettings

WORDS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
SHARED = Path(os.environ.get("BATCHPOND_SHARED", Path(__file__).parents[4] / "shared"))
SPEC = SHARED / "reference" / "specs" / "openai" / "openapi.json"


def settings(model: str, endpoint: str = CHAT, **more: Any) -> ModelSettings:
    return ModelSettings(model, endpoint, **more)


def test_a_chat_body_has_what_was_asked() -> None:
    """The prompt is one user message; the limit is `max_completion_tokens`."""
    built = DIALECT.build_body(
        "Hi", settings("gpt-4.1-mini", max_output_tokens=64, temperature=0.5, parameters={"top_p": 1})
    )
    assert built.body == {
        "model": "gpt-4.1-mini",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_completion_tokens": 64,
        "temperature": 0.5,
        "top_p": 1,
    }
    assert built.dropped == ()


def test_a_responses_body_asks_for_a_summary_where_thoughts_are_wanted() -> None:
    """`reasoning.effort` and `reasoning.summary`; the limit is `max_output_tokens`."""
    built = DIALECT.build_body(
        "Hi", settings("gpt-5-mini", RESPONSES, thinking="low", include_thoughts=True, max_output_tokens=9)
    )
    assert built.body == {
        "model": "gpt-5-mini",
        "input": "Hi",
        "max_output_tokens": 9,
        "reasoning": {"effort": "low", "summary": "auto"},
    }


@pytest.mark.parametrize(
    ("model", "chat_words"),
    [
        ("gpt-4o-mini-2024-07-18", "none"),
        ("gpt-4.1", "none"),
        ("ft:gpt-4o-mini-2024-07-18:org::abc", "none"),
        ("o3", "low medium high"),
        ("o4-mini-2025-04-16", "low medium high"),
        ("gpt-5", "minimal low medium high"),
        ("gpt-5-nano-2025-08-07", "minimal low medium high"),
        ("gpt-5-chat-latest", "none"),
        ("gpt-5.1-2025-11-13", "none low medium high"),
        ("gpt-5.1-chat-latest", "medium"),
        ("gpt-5.2", "none low medium high xhigh"),
        ("gpt-5.4-mini-2026-03-17", "none low medium high xhigh"),
        ("gpt-5.6-terra", "none low medium high xhigh"),
        ("gpt-6-astra", "low medium high xhigh"),
        ("gpt-6.1-sol", "low medium high xhigh"),
        ("gpt-6-luna", "none low medium high xhigh"),
    ],
)
def test_each_family_accepts_its_own_thinking_words(model: str, chat_words: str) -> None:
    """Accepted words are sent as effort; every other word is refused by name."""
    accepted = chat_words.split()
    assert list(accepted_thinking(model, CHAT)) == accepted
    for word in [*WORDS, "extreme"]:
        if word in accepted:
            body = DIALECT.build_body("Hi", settings(model, thinking=word)).body
            assert body.get("reasoning_effort") == (word if FAMILIES.of(model).has_effort else None)
            continue
        with pytest.raises(UsageError) as caught:
            DIALECT.build_body("Hi", settings(model, thinking=word))
        message = caught.value.message
        assert model in message
        assert repr(word) in message
        assert ", ".join(accepted) in message


def test_max_is_a_word_of_the_responses_endpoint_alone() -> None:
    """Chat completions refuse it for every model."""
    assert DIALECT.build_body("Hi", settings("gpt-5.6-sol", RESPONSES, thinking="max")).body["reasoning"] == {
        "effort": "max"
    }
    with pytest.raises(UsageError):
        DIALECT.build_body("Hi", settings("gpt-5.6-sol", CHAT, thinking="max"))


@pytest.mark.parametrize(
    ("model", "thinking", "is_kept"),
    [
        ("gpt-4o", None, True),
        ("gpt-4o", "none", True),
        ("o3", None, False),
        ("o3", "low", False),
        ("gpt-5", None, False),
        ("gpt-5.1", None, True),
        ("gpt-5.1", "none", True),
        ("gpt-5.1", "low", False),
        ("gpt-5.4-mini", "none", True),
        ("gpt-5.5", None, False),
        ("gpt-5.5", "none", True),
        ("gpt-6-astra", "low", False),
        ("somebody/llama-4", None, True),
        ("somebody/llama-4", "high", True),
    ],
)
@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
def test_temperature_is_left_out_and_named_where_the_model_forbids_it(
    model: str, thinking: str | None, is_kept: bool, endpoint: str
) -> None:
    """A model that reasons takes none; what was left out is reported."""
    built = DIALECT.build_body("Hi", settings(model, endpoint, thinking=thinking, temperature=0.0))
    assert ("temperature" in built.body) == is_kept
    assert built.dropped == (() if is_kept else ("temperature",))


def test_unknown_models_are_passed_through_with_a_caveat() -> None:
    """A name outside the table is not refused, but the user is told."""
    assert DIALECT.build_body("Hi", settings("gpt-9-nova", thinking="max")).body["reasoning_effort"] == "max"
    assert "gpt-9-nova" in DIALECT.caveats("gpt-9-nova")[0]
    assert DIALECT.caveats("gpt-5.4-mini") == ()
    assert not FAMILIES.of("gpt-5.9").is_known


@pytest.mark.parametrize(
    "case",
    [
        settings("gpt-5", CHAT, include_thoughts=True),
        settings("gpt-4o", RESPONSES, include_thoughts=True),
        settings("gpt-5-pro", CHAT),
        settings("o3", "/v1/embeddings"),
        settings("o3", parameters={"stream": True}),
        settings("o3", parameters={"n": 2}),
        settings("o3", parameters={"messages": []}),
        settings("o3", thinking="low", parameters={"reasoning_effort": "high"}),
    ],
)
def test_what_cannot_work_is_refused_before_money_is_spent(case: ModelSettings) -> None:
    """Each refusal says what to change."""
    with pytest.raises(UsageError) as caught:
        DIALECT.build_body("Hi", case)
    assert case.request_model in caught.value.message


def test_the_endpoint_follows_from_what_is_wanted() -> None:
    """Chat, unless thoughts are wanted or the model is served elsewhere only."""
    assert DIALECT.endpoint_for("gpt-5-mini", False) == CHAT
    assert DIALECT.endpoint_for("gpt-5-mini", True) == RESPONSES
    assert DIALECT.endpoint_for("gpt-5-pro", False) == RESPONSES


def test_every_row_of_the_table_can_be_reached_and_says_where_it_is_from() -> None:
    """No family is shadowed by one before it."""
    for family in FAMILIES.rows:
        assert FAMILIES.of(family.prefix) is family
        assert family.source
        assert set(family.thinking) <= set(WORDS)


@given(st.text(), st.text(st.characters(codec="utf-8")))
def test_a_payload_line_is_one_json_line_whose_body_is_untouched(custom_id: str, prompt: str) -> None:
    """Any prompt stays inside its string: quotes, line breaks, U+2028 and NUL included."""
    custom_id = custom_id.encode("utf-8", "replace").decode()
    body = orjson.dumps(DIALECT.build_body(prompt, settings("gpt-4o")).body)
    line = DIALECT.payload_line(custom_id, CHAT, body)
    assert b"\n" not in line
    assert body in line
    row = json.loads(line)
    assert row == {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": json.loads(body)}
    assert row["body"]["messages"][0]["content"] == prompt


def test_a_body_on_two_lines_is_refused() -> None:
    """It would become two requests."""
    with pytest.raises(UsageError):
        DIALECT.payload_line("a", CHAT, b'{\n"model":"x"}')


# --- the official schema --------------------------------------------------------------------------


@cache
def validator(schema: str) -> jsonschema.Draft202012Validator:
    document = json.loads(SPEC.read_text("utf-8"))
    resource = Resource(contents=document, specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:openai", resource)
    return jsonschema.Draft202012Validator({"$ref": f"urn:openai#/components/schemas/{schema}"}, registry=registry)


def needs_spec() -> None:
    if not SPEC.exists():
        pytest.skip(f"NOT CHECKED: the official OpenAPI file is not at {SPEC}; set BATCHPOND_SHARED")


@pytest.mark.parametrize(
    "model", ["gpt-4o", "o3", "gpt-5-mini", "gpt-5.1", "gpt-5.4-mini", "gpt-6-astra", "gpt-6-luna"]
)
@pytest.mark.parametrize(("endpoint", "schema"), [(CHAT, "CreateChatCompletionRequest"), (RESPONSES, "CreateResponse")])
def test_bodies_validate_against_the_official_schema(model: str, endpoint: str, schema: str) -> None:
    """Every accepted word, with and without thoughts, in OpenAI's own OpenAPI document."""
    needs_spec()
    for word in (None, *accepted_thinking(model, endpoint)):
        has_thoughts = endpoint == RESPONSES and FAMILIES.of(model).has_effort
        case = settings(model, endpoint, thinking=word, include_thoughts=has_thoughts)
        for extra in ({}, {"max_output_tokens": 64, "temperature": 0.2, "parameters": {"top_p": 0.5, "store": False}}):
            built = DIALECT.build_body("Hi", ModelSettings(**{**_fields(case), **extra}))
            assert [error.message for error in validator(schema).iter_errors(built.body)] == []


def test_the_schema_check_can_fail() -> None:
    """A wrong effort word is noticed, so the check above means something."""
    needs_spec()
    body = DIALECT.build_body("Hi", settings("gpt-5")).body | {"reasoning_effort": "extreme"}
    assert not validator("CreateChatCompletionRequest").is_valid(body)
    assert not validator("CreateResponse").is_valid({"model": "o3", "reasoning": {"effort": "extreme"}, "input": "x"})


def _fields(case: ModelSettings) -> dict[str, Any]:
    return {name: getattr(case, name) for name in ModelSettings.__slots__}
