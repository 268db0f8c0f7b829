"""What building request bodies shares among providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import ModelSettings


def add_parameters(body: dict[str, Any], settings: ModelSettings, reserved: Mapping[str, str]) -> None:
    """Put a study's own parameters into a body, as they are written.

    `reserved` names what sets a parameter instead. Raises UsageError for those, and for what a
    setting of the study has put there already.
    """
    for name, value in (settings.parameters or {}).items():
        if name in reserved:
            message = f"model {settings.request_model}: parameter {name!r} cannot be passed through"
            raise UsageError(message, hint=f"it is set by {reserved[name]}")
        if name in body:
            message = f"model {settings.request_model}: parameter {name!r} is already set by a setting of its own"
            raise UsageError(message, hint=f"remove {name!r} from the parameters, or the setting")
        body[name] = value


SCHEMA: Final = "structured output"
"""What a body is told to lack whose model cannot be held to a schema."""
_SCHEMA_NAME: Final = "answer"


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `response_format` of a chat body that holds the answer to a schema, in OpenAI's form."""
    return {"type": "json_schema", "json_schema": {"name": _SCHEMA_NAME, "schema": schema, "strict": True}}


def text_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `text` of a body of OpenAI's responses endpoint that holds the answer to a schema."""
    return {"format": {"type": "json_schema", "name": _SCHEMA_NAME, "schema": schema, "strict": True}}


def messages(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as chat messages."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": str(turn.role), "content": turn.text} for turn in prompt]


def size_bytes(prompt: Prompt) -> int:
    """Return how long a prompt's texts are in UTF-8."""
    texts = [prompt] if isinstance(prompt, str) else [turn.text for turn in prompt]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def on_one_line(custom_id: str, body: bytes) -> bytes:
    """Return a body as it is; raises UsageError for one that would become two requests."""
    if b"\n" in body:
        raise UsageError(f"request {custom_id}: a body must be JSON on one line")
    return body
