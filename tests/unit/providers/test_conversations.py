"""A conversation reaches every provider as its turns, and one user turn is the plain prompt."""

from __future__ import annotations

import json

import pytest

from batchpond.model import Role, Turn
from batchpond.providers import registry
from batchpond.providers.shared.dialect import ModelSettings

TALK = (Turn(Role.USER, "Is it so?"), Turn(Role.ASSISTANT, "It is."), Turn(Role.USER, "Really?"))
MODELS = {
    "openai": "gpt-4.1-mini",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash-lite",
    "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "vertex": "gemini-2.5-flash-lite",
    "ollama": "llama3.2",
    "vllm": "anything",
}


@pytest.mark.parametrize(("provider", "model"), MODELS.items())
def test_every_turn_is_in_the_body_once_and_in_order(provider: str, model: str) -> None:
    """Roles alternate as given, whatever the provider calls them; a single user turn is the prompt itself."""
    module = registry.module(provider)
    endpoints = module.DESCRIPTOR.endpoints if provider == "openai" else (module.endpoint_for(model, False, None),)
    for endpoint in endpoints:
        settings = ModelSettings(model, endpoint, max_output_tokens=50)
        body = module.build_body(TALK, settings).body
        turns = body.get("messages") or body.get("contents") or body["input"]
        assert [turn["role"] in {"user"} for turn in turns] == [True, False, True]
        text = json.dumps(turns)
        places = [text.index(turn.text) for turn in TALK]
        assert places == sorted(places)
        alone = module.build_body((Turn(Role.USER, "Hello"),), settings).body
        plain = module.build_body("Hello", settings).body
        assert alone == plain or isinstance(plain["input"], str)


def test_room_is_made_for_all_turns_of_a_conversation() -> None:
    """Ollama cuts what its context cannot hold: every turn counts."""
    module = registry.module("ollama")
    settings = ModelSettings("llama3.2", "/api/chat", max_output_tokens=50)
    long = (Turn(Role.USER, "x" * 30_000), Turn(Role.ASSISTANT, "y" * 30_000), Turn(Role.USER, "z" * 30_000))
    sizes = [module.build_body(prompt, settings).body["options"]["num_ctx"] for prompt in (long[0].text, long)]
    assert sizes[1] > 90_000 // 4 >= sizes[0] // 2
