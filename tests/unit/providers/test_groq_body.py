"""What is asked of Groq's models stays what it was when they could be asked live alone; a line is OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchpond.errors import UsageError
from batchpond.providers.groq.dialect import DIALECT
from batchpond.providers.shared.dialect import CHAT, SCHEMA, ModelSettings


@pytest.mark.parametrize(
    ("model", "more", "expected"),
    [
        (
            "openai/gpt-oss-20b",
            {"thinking": "low", "max_output_tokens": 9},
            {"reasoning_effort": "low", "max_completion_tokens": 9},
        ),
        ("qwen/qwen3-32b", {"thinking": "none"}, {"reasoning_effort": "none"}),
        (
            "qwen/qwen3-32b",
            {"thinking": "enabled", "temperature": 0.5},
            {"reasoning_effort": "default", "temperature": 0.5},
        ),
        ("llama-3.3-70b-versatile", {}, {}),
    ],
)
def test_words_and_limits(model: str, more: dict[str, Any], expected: dict[str, Any]) -> None:
    """Efforts by the model's family, the limit under Groq's name."""
    body = DIALECT.build_body("A or B?", ModelSettings(model, CHAT, **more)).body
    assert body == {"model": model, "messages": [{"role": "user", "content": "A or B?"}]} | expected


def test_a_word_that_means_nothing_to_a_model_is_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError, match="does not accept thinking 'low' at groq"):
        DIALECT.build_body("x", ModelSettings("llama-3.3-70b-versatile", CHAT, thinking="low"))


def test_a_schema_is_left_out_and_told_where_the_model_takes_none() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    built = [
        DIALECT.build_body("x", ModelSettings(model, CHAT, output_schema=schema))
        for model in ("openai/gpt-oss-20b", "qwen/qwen3-32b")
    ]
    assert [("response_format" in one.body, one.dropped) for one in built] == [(True, ()), (False, (SCHEMA,))]


def test_a_line_names_the_path_below_the_version() -> None:
    """`/v1/...`, though the API stands below `/openai/v1`."""
    line = json.loads(DIALECT.payload_line("c-1", CHAT, b'{"model":"m"}'))
    assert line == {"custom_id": "c-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}}
