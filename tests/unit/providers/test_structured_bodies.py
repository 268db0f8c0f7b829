"""Answers held to a JSON schema are asked for in the words of the official SDKs."""

from __future__ import annotations

from typing import Any, get_type_hints

import orjson
import pytest
from groq.types.chat.completion_create_params import CompletionCreateParams as groq_params
from mistralai.client.models import ChatCompletionRequest, JSONSchema
from pydantic import TypeAdapter, ValidationError
from together.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as together_params

from batchpond.plan.cells import canonical
from batchpond.providers import registry
from batchpond.providers.shared.dialect import CHAT, ModelSettings

SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": ["first", "second"]}},
    "required": ["verdict"],
    "additionalProperties": False,
}
MODELS = {
    "groq": "openai/gpt-oss-20b",
    "mistral": "mistral-medium-latest",
    "together": "openai/gpt-oss-20b",
}


def body_of(provider: str) -> dict[str, Any]:
    """Return a body that asks for an answer by the schema, as it is kept, read back."""
    built = registry.module(provider).build_body("Which?", ModelSettings(MODELS[provider], CHAT, output_schema=SCHEMA))
    assert built.dropped == ()
    body: dict[str, Any] = orjson.loads(canonical(built.body))
    return body


@pytest.mark.parametrize(("provider", "params"), [("groq", groq_params), ("together", together_params)])
def test_the_form_of_an_answer_is_of_the_types_of_groq_and_together(provider: str, params: Any) -> None:
    """The schema whole and nothing that they do not know; a form without one is refused."""
    kind = TypeAdapter(get_type_hints(params)["response_format"])
    asked = body_of(provider)["response_format"]
    assert kind.validate_python(asked) == asked
    assert asked["json_schema"]["schema"] == SCHEMA
    with pytest.raises(ValidationError):
        kind.validate_python({"type": "json_schema"})


def test_mistral_reads_the_schema_back_as_it_was_asked() -> None:
    """By the model of its SDK for the whole request, which then writes the same body."""
    body = body_of("mistral")
    read = ChatCompletionRequest.model_validate(body)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True)["response_format"] == body["response_format"]
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert JSONSchema.model_validate(body["response_format"]["json_schema"]).name
    with pytest.raises(ValidationError):
        JSONSchema.model_validate({})
