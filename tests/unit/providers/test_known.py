"""What is known of providers as data agrees with their own SDKs, with our bodies, and with itself."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from google.genai.types import GenerationConfig
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from together.types.chat.completion_create_params import CompletionCreateParamsBase as TogetherParams

from batchpond.providers import base, registry
from batchpond.providers.shared.dialect import ModelSettings

WITH_DATA = ("openai", "anthropic", "gemini", "vertex", "together")
CHAT = "/v1/chat/completions"


def names_of(kind: Any) -> set[str]:
    return set(getattr(kind, "model_fields", None) or kind.__annotations__)


@pytest.mark.parametrize(
    ("provider", "endpoint", "kind"),
    [
        ("openai", CHAT, CompletionCreateParamsBase),
        ("openai", "/v1/responses", ResponseCreateParamsBase),
        ("anthropic", "/v1/messages", MessageCreateParamsBase),
        ("together", CHAT, TogetherParams),
        ("gemini", "generateContent", GenerationConfig),
    ],
)
def test_every_field_of_the_official_sdk_is_known(provider: str, endpoint: str, kind: Any) -> None:
    """A setting that works at the provider is never called a slip of the pen."""
    data = base.known(provider)
    assert [name for name in sorted(names_of(kind)) if not data.kinds(name, endpoint)] == []
    assert data.kinds("top_pp", endpoint) == ()


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "gpt-5.4-mini"), ("anthropic", "claude-haiku-4-5"), ("together", "openai/gpt-oss-120b")],
)
def test_what_we_send_ourselves_is_known_and_of_its_kind(provider: str, model: str) -> None:
    module = registry.module(provider)
    for endpoint in module.DESCRIPTOR.endpoints:
        settings = ModelSettings(model, endpoint, max_output_tokens=4000, thinking="low")
        for name, value in module.build_body("a prompt", settings).body.items():
            assert base.fits(value, base.known(provider).kinds(name, endpoint) or ()), (endpoint, name)


@pytest.mark.parametrize("provider", WITH_DATA)
def test_the_data_are_in_order(provider: str) -> None:
    """Each endpoint is one that there is, each day is one, and no model has two."""
    data = base.known(provider)
    assert {endpoint.partition("@")[0] for endpoint in registry.module(provider).DESCRIPTOR.endpoints} == set(
        data.fields
    )
    days = [datetime.date.fromisoformat(day) for day in (*data.ended.values(), *data.ends.values())]
    assert all(day.year >= 2024 for day in days)
    assert max(data.ended.values(), default="") < min(data.ends.values(), default="9")
    assert not data.ended.keys() & data.ends.keys()


@pytest.mark.parametrize(
    ("provider", "model", "day"),
    [
        ("openai", "gpt-4", "2026-10-23"),
        ("openai", "gpt-4-turbo-2024-04-09", "2026-10-23"),
        ("openai", "ft:gpt-3.5-turbo:org::id", "2026-10-23"),
        ("openai", "o3-mini-2025-01-31", "2026-10-23"),
        ("openai", "gpt-4o", None),
        ("openai", "o3", None),
        ("openai", "gpt-4.1", None),
        ("openai", "gpt-5.1", None),
        ("anthropic", "claude-3-5-sonnet-latest", "2025-10-28"),
        ("anthropic", "claude-3-7-sonnet-20250219", "2026-02-19"),
        ("anthropic", "claude-sonnet-4-20250514", "2026-06-15"),
        ("anthropic", "claude-sonnet-4-5", None),
        ("anthropic", "claude-opus-4-8", None),
        ("gemini", "models/gemini-2.0-flash-001", "2026-06-01"),
        ("gemini", "gemini-2.5-flash", None),
        ("vertex", "gemini-2.0-flash-001", None),
        ("ollama", "llama3.2", None),
    ],
)
def test_a_model_has_ended_by_its_own_name_or_a_dated_one(provider: str, model: str, day: str | None) -> None:
    assert base.day_of(model, base.known(provider).ended) == day


@pytest.mark.parametrize(
    ("value", "kinds", "is_fitting"),
    [
        (1, ["number"], True), (1.5, ["number"], True), (1.5, ["whole"], False), (True, ["number", "whole"], False),
        (True, ["switch"], True), (1, ["switch"], False), ("1", ["whole", "list"], False),
        ("x", ["list", "text"], True), ([1], ["list"], True), ({}, ["table"], True), ("x", [], False),
    ],
)  # fmt: skip
def test_a_value_is_of_its_kind(value: object, kinds: list[str], is_fitting: bool) -> None:
    assert base.fits(value, kinds) is is_fitting


def test_a_name_that_is_in_no_table_has_its_nearest() -> None:
    """And one that a table has, or a provider without a table, none."""
    for name, model, near in (
        ("openai", "gpt-5.44", "gpt-5.4"),
        ("anthropic", "claude-opus-4-77", "claude-opus-4-7"),
        ("gemini", "gemini-2.5-flesh", "gemini-2.5-flash"),
        ("vertex", "publishers/google/models/gemini-2.5-flesh", "gemini-2.5-flash"),
    ):
        assert near in (registry.module(name).DESCRIPTOR.nearest(model) or ())
    assert registry.module("anthropic").DESCRIPTOR.nearest("gpt-4o") == ()
    for name, model in (("openai", "gpt-5.4-mini"), ("ollama", "any"), ("together", "any/thing"), ("xai", "grok-9")):
        assert registry.module(name).DESCRIPTOR.nearest(model) is None
