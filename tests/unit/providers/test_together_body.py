"""Building Together bodies and lines: what is sent, and what is refused before it is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from batchpond.errors import UsageError
from batchpond.providers import registry
from batchpond.providers.shared.dialect import ModelSettings
from batchpond.providers.together.dialect import DIALECT, LINE_BYTES_MAX

CHAT = "/v1/chat/completions"
OSS = "openai/gpt-oss-120b"
LLAMA = "meta-llama/Llama-3.3-70B-Instruct-Turbo"


def settings(model: str = LLAMA, **more: Any) -> ModelSettings:
    return ModelSettings(request_model=model, endpoint=CHAT, **more)


def test_a_body_names_its_model_and_limits_tokens_as_together_spells_it() -> None:
    built = DIALECT.build_body("Hi", settings(max_output_tokens=64, temperature=0.5, parameters={"top_p": 0.9}))
    assert built.body == {
        "model": LLAMA,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 64,
        "temperature": 0.5,
        "top_p": 0.9,
    }
    assert built.dropped == ()


@pytest.mark.parametrize(
    ("model", "word", "sent"),
    [
        (OSS, None, {}),
        (OSS, "low", {"reasoning_effort": "low"}),
        (OSS, "high", {"reasoning_effort": "high"}),
        ("moonshotai/Kimi-K3", "none", {"reasoning": {"enabled": False}}),
        ("moonshotai/Kimi-K3", "enabled", {"reasoning": {"enabled": True}}),
        ("moonshotai/Kimi-K3", "medium", {"reasoning_effort": "medium"}),
    ],
)
def test_thinking_is_an_effort_or_a_switch(model: str, word: str | None, sent: dict[str, Any]) -> None:
    body = DIALECT.build_body("Hi", settings(model, thinking=word)).body
    assert {name: body[name] for name in body if name.startswith("reasoning")} == sent
    assert word is None or word in DIALECT.words(model)


@pytest.mark.parametrize(
    "bad",
    [
        settings(OSS, thinking="none"),  # it cannot be turned off
        settings(thinking="xhigh"),
        settings(parameters={"n": 2}),
        settings(parameters={"stream": True}),
        settings(parameters={"model": "other"}),
        settings(max_output_tokens=5, parameters={"max_tokens": 6}),
        ModelSettings(request_model=OSS, endpoint="/v1/responses"),
    ],
)
def test_what_would_be_refused_or_lost_is_an_error_first(bad: ModelSettings) -> None:
    with pytest.raises(UsageError):
        DIALECT.build_body("Hi", bad)


def test_a_line_has_an_id_and_the_body_as_it_is() -> None:
    """No method and no URL: those are the batch's."""
    line = DIALECT.payload_line('a"1', CHAT, b'{"model":"m","x":1.0}')
    assert line == b'{"custom_id":"a\\"1","body":{"model":"m","x":1.0}}'
    assert orjson.loads(line)["custom_id"] == 'a"1'


def test_a_line_that_together_would_not_read_is_refused() -> None:
    """Ten million bytes: a longer line is found out only when the batch runs."""
    room = LINE_BYTES_MAX - len(DIALECT.payload_line("a", CHAT, b'""'))
    assert len(DIALECT.payload_line("a", CHAT, b'"%b"' % (b"x" * room))) == LINE_BYTES_MAX
    with pytest.raises(UsageError, match="reads up to"):
        DIALECT.payload_line("a", CHAT, b'"%b"' % (b"x" * (room + 1)))
    with pytest.raises(UsageError, match="one line"):
        DIALECT.payload_line("a", CHAT, b"{\n}")


def test_the_user_is_told_which_models_are_no_cheaper() -> None:
    assert DIALECT.caveats(LLAMA) == ()
    assert "standard price" in DIALECT.caveats(OSS)[0]
    assert registry.module("together").endpoint_for(OSS, True, None) == CHAT
