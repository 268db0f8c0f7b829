"""Request bodies for Anthropic: the thinking table cell by cell, what is refused or left out, the SDK's types."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from batchpond.errors import UsageError
from batchpond.providers.anthropic.dialect import BUDGETS, DIALECT, FAMILIES, accepted_thinking
from batchpond.providers.shared.dialect import ModelSettings

NEW, OLD = DIALECT.DESCRIPTOR.endpoints
WORDS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "4096", "1000", "extreme", "-1", "")


def settings(model: str, endpoint: str = NEW, **more: Any) -> ModelSettings:
    return ModelSettings(model, endpoint, **more)


def body(model: str, endpoint: str = NEW, **more: Any) -> dict[str, Any]:
    return DIALECT.build_body("Hi", settings(model, endpoint, **more)).body


def test_a_body_has_what_was_asked() -> None:
    """One user message, the model, and a limit: Anthropic requires `max_tokens`."""
    built = DIALECT.build_body(
        "Hi", settings("claude-haiku-4-5", max_output_tokens=64, parameters={"system": "Be brief."})
    )
    assert built.body == {
        "model": "claude-haiku-4-5",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "Hi"}],
        "system": "Be brief.",
    }
    assert built.dropped == ()


OFF = {"thinking": {"type": "disabled"}}
BETWEEN = {"thinking": {"type": "between_tools"}}


def budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def adaptive(*words: str) -> dict[str, dict[str, Any]]:
    return {word: {"thinking": {"type": "adaptive"}, "output_config": {"effort": word}} for word in words}


BY_BUDGET = {"none": OFF, "4096": budget(4096)} | {word: budget(tokens) for word, tokens in BUDGETS.items()}
ALL_EFFORTS = adaptive("low", "medium", "high", "xhigh", "max")
EITHER = {"none": OFF, "4096": budget(4096)} | adaptive("low", "medium", "high", "max")
# One row per model of the table; a word that a row does not have must be refused.
TABLE: dict[str, dict[str, dict[str, Any]]] = {
    "claude-fable-5": ALL_EFFORTS,
    "claude-fable-5-1": ALL_EFFORTS,
    "claude-fable-5-2": ALL_EFFORTS,
    "claude-mythos-5": ALL_EFFORTS,
    "claude-mythos-5-1": ALL_EFFORTS,
    "claude-mythos-5-2": ALL_EFFORTS,
    "claude-opus-5-5": ALL_EFFORTS,
    "claude-opus-5": {"none": OFF} | ALL_EFFORTS,
    "claude-sonnet-5-5": {"none": BETWEEN} | ALL_EFFORTS,
    "claude-sonnet-5": {"none": OFF} | ALL_EFFORTS,
    "claude-haiku-5-5": {"none": OFF} | ALL_EFFORTS,
    "claude-opus-4-8": {"none": OFF} | ALL_EFFORTS,
    "claude-opus-4-7": {"none": OFF} | ALL_EFFORTS,
    "claude-opus-4-6": EITHER,
    "claude-sonnet-4-6": EITHER,
    "claude-opus-4-5": BY_BUDGET,
    "claude-sonnet-4-5": BY_BUDGET,
    "claude-haiku-4-5": BY_BUDGET,
}


def test_the_table_below_is_the_whole_table() -> None:
    """Every family is tested, each can be reached by name and date, and says where it is known from."""
    assert [family.prefix for family in FAMILIES.rows] == list(TABLE)
    for family in FAMILIES.rows:
        assert FAMILIES.of(family.prefix) is family
        assert FAMILIES.of(f"{family.prefix}-20251001") is family
        assert family.source


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("model", TABLE)
def test_each_thinking_word_becomes_its_parameters_or_is_refused(model: str, word: str) -> None:
    """Cell by cell: the parameters that are sent, or an error that names model, word and what is accepted."""
    expected = TABLE[model].get(word)
    if expected is None:
        with pytest.raises(UsageError) as caught:
            body(model, thinking=word)
        assert model in caught.value.message
        assert ", ".join(accepted_thinking(model)) in caught.value.message or word == "1000"
        return
    sent = body(model, thinking=word)
    assert {name: sent[name] for name in ("thinking", "output_config") if name in sent} == expected
    assert sent["max_tokens"] > expected.get("thinking", {}).get("budget_tokens", 0)
    assert sent["max_tokens"] <= FAMILIES.of(model).max_output_tokens


@pytest.mark.parametrize("model", TABLE)
def test_without_a_word_nothing_about_thinking_is_sent_but_room_is_left(model: str) -> None:
    """The provider's default holds; where that is to think, the limit leaves room for it."""
    sent = body(model)
    assert not {"thinking", "output_config"} & set(sent)
    effort = FAMILIES.of(model).default_effort
    assert sent["max_tokens"] == {None: 4_096, "medium": 16_384, "high": 32_768}[effort]


@pytest.mark.parametrize("model", TABLE)
def test_thoughts_are_asked_for_where_they_would_come_back_empty(model: str) -> None:
    """`display` is sent where the default hides them, never where thinking is off: then it is dropped."""
    family = FAMILIES.of(model)
    for word in (None, *family.words):
        built = DIALECT.build_body("Hi", settings(model, thinking=word, include_thoughts=True))
        is_on = word != "none" and (word is not None or family.thinks_by_default)
        display = built.body.get("thinking", {}).get("display")
        assert display == ("summarized" if is_on and family.hides_thoughts else None)
        assert built.dropped == (() if is_on else ("include_thoughts",))


@pytest.mark.parametrize(
    ("model", "word"),
    [(model, word) for model in TABLE for word in (None, "none", "low") if word in {None, *TABLE[model]}],
)
@pytest.mark.parametrize("endpoint", [NEW, OLD])
def test_temperature_is_sent_only_where_model_version_and_thinking_allow_it(
    model: str, word: str | None, endpoint: str
) -> None:
    """Models up to 4.6, under 2023-06-01, not thinking; everywhere else it is left out and named."""
    built = DIALECT.build_body("Hi", settings(model, endpoint, thinking=word, temperature=0.0))
    is_kept = endpoint == OLD and word != "low" and "-4-" in model and not model.endswith(("4-7", "4-8"))
    assert built.body.get("temperature") == (0.0 if is_kept else None)
    assert built.dropped == (() if is_kept else ("temperature",))


def test_the_endpoint_carries_the_version_that_takes_a_temperature() -> None:
    """2023-06-01 only where a temperature is wished for and the model takes one there."""
    assert DIALECT.endpoint_for("claude-haiku-4-5", False, None) == NEW
    assert DIALECT.endpoint_for("claude-haiku-4-5", True, 0.0) == OLD
    assert DIALECT.endpoint_for("claude-sonnet-4-6-20260217", False, 1.0) == OLD
    assert DIALECT.endpoint_for("claude-opus-4-7", False, 0.0) == NEW
    assert DIALECT.endpoint_for("claude-sonnet-5-5", False, 0.0) == NEW
    assert DIALECT.endpoint_for("claude-nova-9", False, 0.0) == NEW
    assert DIALECT.DESCRIPTOR.endpoints == ("/v1/messages", "/v1/messages@2023-06-01")


def test_sampling_parameters_pass_only_where_they_are_taken() -> None:
    """`top_p` and `top_k` are refused, since nothing says that they were left out."""
    assert body("claude-haiku-4-5", OLD, parameters={"top_p": 0.5})["top_p"] == 0.5
    for model, endpoint, thinking in (
        ("claude-haiku-4-5", NEW, None),
        ("claude-haiku-4-5", OLD, "low"),
        ("claude-sonnet-5", OLD, None),
    ):
        for name in ("top_p", "top_k"):
            with pytest.raises(UsageError, match=name):
                body(model, endpoint, thinking=thinking, parameters={name: 1})


def test_a_temperature_and_top_p_are_not_asked_for_at_once() -> None:
    """Models of the table that take either answer both with a 400; nobody knows it of another."""
    for model in ("claude-haiku-4-5", "claude-sonnet-4-5-20250929", "claude-opus-4-6"):
        with pytest.raises(UsageError, match="not both"):
            body(model, OLD, temperature=0.5, parameters={"top_p": 0.9})
        assert body(model, OLD, temperature=0.5, parameters={"top_k": 9})["temperature"] == 0.5
    assert body("claude-nova-9", OLD, temperature=0.5, parameters={"top_p": 0.9})["top_p"] == 0.9


@pytest.mark.parametrize(
    "case",
    [
        settings("claude-haiku-4-5", "/v1/chat/completions"),
        settings("claude-haiku-4-5", parameters={"stream": True}),
        settings("claude-haiku-4-5", parameters={"messages": []}),
        settings("claude-haiku-4-5", parameters={"max_tokens": 9}),
        settings("claude-haiku-4-5", parameters={"temperature": 0}),
        settings("claude-haiku-4-5", parameters={"thinking": {"type": "adaptive"}}),
        settings("claude-haiku-4-5", parameters={"speed": "fast"}),
        settings("claude-opus-5-5", thinking="low", parameters={"output_config": {"effort": "high"}}),
        settings("claude-opus-5", thinking="none", parameters={"output_config": {"effort": "max"}}),
        settings("claude-opus-5", thinking="low", parameters={"output_config": "low"}),
        settings("claude-haiku-4-5", OLD, temperature=1.5),
        settings("claude-haiku-4-5", max_output_tokens=64_001),
        settings("claude-opus-5-5", max_output_tokens=128_001),
        settings("claude-haiku-4-5", thinking="4096", max_output_tokens=4096),
        settings("claude-haiku-4-5", thinking="high", max_output_tokens=1000),
        settings("claude-haiku-4-5", thinking="1023"),
        settings("claude-haiku-4-5", thinking="64000"),
        settings("claude-haiku-4-5", thinking="9" * 30),
        settings("claude-opus-5-5", thinking="4096"),
        settings("claude-opus-5-5", thinking="none"),
    ],
)
def test_what_cannot_work_is_refused_before_money_is_spent(case: ModelSettings) -> None:
    """Each refusal names the model."""
    with pytest.raises(UsageError) as caught:
        DIALECT.build_body("Hi", case)
    assert case.request_model in caught.value.message


def test_an_output_format_of_the_study_stays_beside_the_effort() -> None:
    """Structured output and thinking share one object."""
    given_format = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    sent = body("claude-opus-5-5", thinking="low", parameters={"output_config": given_format})
    assert sent["output_config"] == {**given_format, "effort": "low"}
    assert body("claude-opus-4-5", parameters={"output_config": {"effort": "low"}})["output_config"] == {
        "effort": "low"
    }


def test_unknown_models_are_sent_as_written_with_a_caveat() -> None:
    """A name outside the table is not refused, a newer minor version is not taken for an older one."""
    for model in ("claude-nova-9", "claude-opus-5-7", "claude-opus-4-55", "my-gateway/claude-opus-5"):
        assert not FAMILIES.of(model).is_known
        assert model in DIALECT.caveats(model)[0]
        assert body(model, thinking="max")["output_config"] == {"effort": "max"}
        assert body(model, thinking="4096")["thinking"]["budget_tokens"] == 4096
        assert body(model, OLD, temperature=0.5)["temperature"] == 0.5


def test_caveats_say_what_thinking_costs_and_when_a_model_ends() -> None:
    """A default to think is told, and whether it can be turned off."""
    assert "cannot be kept from it" in DIALECT.caveats("claude-opus-5-5")[0]
    assert 'unless thinking is "none"' in DIALECT.caveats("claude-sonnet-5-5")[0]
    assert DIALECT.caveats("claude-opus-4-8") == ()
    assert DIALECT.caveats("claude-sonnet-4-5-20250929") == ()  # when it ends is data of its own


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True), st.text(st.characters(codec="utf-8")))
def test_a_payload_line_is_one_json_line_whose_body_is_untouched(custom_id: str, prompt: str) -> None:
    """Any prompt stays inside its string: quotes, line breaks, U+2028 and NUL included."""
    params = orjson.dumps(DIALECT.build_body(prompt, settings("claude-opus-5-5")).body)
    line = DIALECT.payload_line(custom_id, NEW, params)
    assert b"\n" not in line
    assert params in line
    row = json.loads(line)
    assert row == {"custom_id": custom_id, "params": json.loads(params)}
    assert row["params"]["messages"][0]["content"] == prompt


@pytest.mark.parametrize("custom_id", ["", "a" * 65, "a b", "a.b", "ä", "a\n"])
def test_a_custom_id_that_anthropic_refuses_never_leaves(custom_id: str) -> None:
    """One bad id would have the whole batch refused."""
    with pytest.raises(UsageError):
        DIALECT.payload_line(custom_id, NEW, b"{}")


def test_a_body_on_two_lines_is_refused() -> None:
    """It would become two requests."""
    with pytest.raises(UsageError):
        DIALECT.payload_line("a", NEW, b'{\n"model":"x"}')


# --- the official types -----------------------------------------------------------------------------


@cache
def sdk_type(name: str) -> TypeAdapter[Any]:
    types = pytest.importorskip("anthropic.types", reason="NOT CHECKED: the official SDK is not installed")
    params = pytest.importorskip("anthropic.types.message_create_params")
    return TypeAdapter(getattr(types, name, None) or getattr(params, name))


def validated(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the body as the SDK's types read it: a key that they do not know is gone from it."""
    read = sdk_type("MessageCreateParamsNonStreaming").validate_python(sent)
    messages = [sdk_type("MessageParam").validate_python(message) for message in read["messages"]]
    return {**read, "messages": messages}


@pytest.mark.parametrize("model", TABLE)
def test_bodies_are_of_the_official_type(model: str) -> None:
    """Every accepted word, with and without thoughts: nothing missing, nothing unknown, no wrong value."""
    for word in (None, *TABLE[model]):
        for has_thoughts in (False, True):
            extra = {"stop_sequences": ["END"], "system": "Be brief."}
            sent = body(model, thinking=word, include_thoughts=has_thoughts, parameters=extra)
            assert validated(sent) == sent


def test_the_type_check_can_fail() -> None:
    """A wrong effort, a missing limit and an unknown key are noticed, so the check above means something."""
    sent = body("claude-opus-5-5", thinking="low")
    with pytest.raises(ValidationError):
        validated(sent | {"output_config": {"effort": "extreme"}})
    with pytest.raises(ValidationError):
        validated({name: value for name, value in sent.items() if name != "max_tokens"})
    with_unknown = sent | {"temperature": 0.5}
    assert validated(with_unknown) != with_unknown
