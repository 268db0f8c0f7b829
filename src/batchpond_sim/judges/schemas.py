"""What providers refuse in the JSON schema that an answer is to be held to: the strict subset that they share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KNOWN = frozenset({"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "description"})
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def problem(schema: Any) -> str | None:
    """Return what is wrong with a schema, None when it can be held to: an object whose keys are all required."""
    if not isinstance(schema, dict):
        return "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."
    if schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    return next(_problems(schema, ()), None)


def _problems(schema: Any, path: tuple[str, ...]) -> Iterator[str]:
    where = f"In context={path!r}, "
    if not isinstance(schema, dict):
        yield f"{where}schema must be an object."
        return
    unknown = schema.keys() - _KNOWN
    if unknown:
        yield f"{where}'{min(unknown)}' is not permitted."
    if "type" in schema and schema["type"] not in _TYPES:
        yield f"{where}'{schema['type']}' is not valid under any of the given types."
    if schema.get("type") == "object":
        yield from _object_problems(schema, path, where)
    for number, option in enumerate(schema.get("anyOf", ())):
        yield from _problems(option, (*path, "anyOf", str(number)))
    if "items" in schema:
        yield from _problems(schema["items"], (*path, "items"))


def _object_problems(schema: dict[str, Any], path: tuple[str, ...], where: str) -> Iterator[str]:
    if schema.get("additionalProperties") is not False:
        yield f"{where}'additionalProperties' is required to be supplied and to be false."
    properties = schema.get("properties", {})
    missing = [name for name in properties if name not in schema.get("required", ())]
    if missing:
        yield f"{where}'required' is required to be an array including every key in properties. Missing '{missing[0]}'."
    for name, part in properties.items():
        yield from _problems(part, (*path, "properties", name))


def named_problem(form: Any) -> str | None:
    """Return what is wrong with a schema that has a name, as OpenAI's `json_schema` is."""
    if not isinstance(form, dict) or not isinstance(form.get("name"), str):
        return "Missing required parameter: 'response_format.json_schema.name'."
    if not _NAME.fullmatch(form["name"]):
        return f"Invalid 'response_format.json_schema.name': '{form['name']}' does not match '^[a-zA-Z0-9_-]+$'."
    found = problem(form.get("schema")) if form.get("strict") else None
    return None if found is None else f"Invalid schema for response_format '{form['name']}': {found}"
