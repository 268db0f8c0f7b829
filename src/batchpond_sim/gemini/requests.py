"""Reading a `GenerateContentRequest`, and what is wrong with it.

A request that is no such message at all is `malformed`: it spoils the file it stands in. One with
values that its model does not take is `refused`, for itself only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchpond_sim.gemini.models import LEVELS, Family
from batchpond_sim.judges import schemas

_FIELDS = frozenset({
    "model", "contents", "systemInstruction", "generationConfig", "safetySettings", "tools", "toolConfig",
    "cachedContent", "serviceTier", "store", "continuationToken",
})  # fmt: skip
_CONFIG_FIELDS = frozenset({
    "maxOutputTokens", "temperature", "topP", "topK", "stopSequences", "seed", "candidateCount", "responseMimeType",
    "responseSchema", "responseJsonSchema", "thinkingConfig", "presencePenalty", "frequencyPenalty",
    "responseLogprobs", "logprobs", "responseModalities", "mediaResolution", "speechConfig", "imageConfig",
    "audioTranscriptionConfig", "enableEnhancedCivicAnswers",
})  # fmt: skip
_THINKING_FIELDS = frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"})
_CONFIG_NUMBERS = ("temperature", "topP", "presencePenalty", "frequencyPenalty")
_CONFIG_COUNTS = ("maxOutputTokens", "topK", "seed", "candidateCount")
_RANGES = (("temperature", "temperature", 2.0), ("topP", "top_p", 1.0))


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a request that its answer depends on; `thinking` is a level or a number of tokens."""

    prompt: str
    thinking: str | int
    wants_thoughts: bool
    max_tokens: int | None


def named(value: Any) -> dict[str, Any]:
    """Return an object with its own names in camelCase, as proto3 JSON takes both; {} for anything else."""
    return {_camel(name): item for name, item in value.items()} if isinstance(value, Mapping) else {}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _text(content: Any) -> str:
    parts = named(content).get("parts")
    rows = parts if isinstance(parts, list) else [parts]
    return "\n".join(str(part.get("text", "")) for part in rows if isinstance(part, dict) and not part.get("thought"))


def asked(request: Mapping[str, Any], family: Family) -> Asked:
    """Return what a well-formed request asks for."""
    fields = named(request)
    config = named(fields.get("generationConfig"))
    thinking = named(config.get("thinkingConfig"))
    texts = [_text(content) for content in fields["contents"]]
    if fields.get("systemInstruction"):
        texts.insert(0, _text(fields["systemInstruction"]))
    level = thinking.get("thinkingLevel")
    amount: str | int = family.default
    if level is not None and level != "THINKING_LEVEL_UNSPECIFIED":
        amount = str(level).upper()
    elif thinking.get("thinkingBudget") is not None:
        amount = int(thinking["thinkingBudget"])
    limit = config.get("maxOutputTokens")
    return Asked(
        "\n\n".join(texts), amount, bool(thinking.get("includeThoughts")), None if limit is None else int(limit)
    )


# -- malformed ---------------------------------------------------------------------------------


def malformed(request: Any) -> str | None:
    """Return why a request is not a `GenerateContentRequest`, None when it is one."""
    if not isinstance(request, dict):
        return "Invalid JSON payload received. Expected an object at 'request'."
    fields = named(request)
    config = named(fields.get("generationConfig"))
    wrong = (
        _unknown(fields, _FIELDS, "request")
        or _not_objects(fields, ("generationConfig", "systemInstruction"), "request")
        or _unknown(config, _CONFIG_FIELDS, "request.generation_config")
        or _not_objects(config, ("thinkingConfig",), "request.generation_config")
        or _wrong_thinking(named(config.get("thinkingConfig")))
    )
    if wrong is not None:
        return wrong
    for names, is_good in ((_CONFIG_NUMBERS, _is_number), (_CONFIG_COUNTS, _is_whole)):
        for name in names:
            if config.get(name) is not None and not is_good(config[name]):
                return f"Invalid value at 'request.generation_config.{name}': {config[name]!r}"
    return _wrong_contents(fields.get("contents"))


def _unknown(fields: Mapping[str, Any], known: frozenset[str], where: str) -> str | None:
    name = min(fields.keys() - known, default=None)
    return (
        None
        if name is None
        else f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
    )


def _not_objects(fields: Mapping[str, Any], names: tuple[str, ...], where: str) -> str | None:
    for name in names:
        if fields.get(name) is not None and not isinstance(fields[name], dict):
            return f"Invalid value at '{where}.{name}': expected an object."
    return None


def _wrong_thinking(thinking: Mapping[str, Any]) -> str | None:
    where = "request.generation_config.thinking_config"
    wrong = _unknown(thinking, _THINKING_FIELDS, where)
    if wrong is not None:
        return wrong
    level = thinking.get("thinkingLevel")
    # The enum's names are upper case; the service takes them in lower case as well.
    if level is not None and str(level).upper() not in (*LEVELS, "THINKING_LEVEL_UNSPECIFIED"):
        return f"Invalid value at '{where}.thinking_level': {level!r}"
    budget = thinking.get("thinkingBudget")
    if budget is not None and not _is_whole(budget):
        return f"Invalid value at '{where}.thinking_budget' (TYPE_INT32), {budget!r}"
    return None


def _wrong_contents(contents: Any) -> str | None:
    if contents is not None and not isinstance(contents, list | dict):
        return "Invalid value at 'request.contents': expected a list of contents."
    rows = contents if isinstance(contents, list) else []
    if not rows:
        return "* GenerateContentRequest.contents: contents is not specified\n"
    for i, content in enumerate(rows):
        parts = named(content).get("parts")
        if not isinstance(parts, list | dict) or not parts:
            return f"* GenerateContentRequest.contents[{i}].parts: contents.parts must not be empty.\n"
        if named(content).get("role", "user") not in ("user", "model", "function"):
            return "Please use a valid role: user, model."
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


# -- refused -----------------------------------------------------------------------------------


def refused(request: Mapping[str, Any], family: Family) -> str | None:
    """Return why a model does not take a well-formed request, None when it does."""
    fields = named(request)
    config = named(fields.get("generationConfig"))
    return (
        _refused_numbers(config, family)
        or _refused_thinking(named(config.get("thinkingConfig")), family)
        or _refused_schema(config)
        or (_refused_by_strict(fields["contents"], config) if family.is_strict else None)
    )


def _refused_schema(config: Mapping[str, Any]) -> str | None:
    schema = config.get("responseJsonSchema")
    if schema is None:
        return None
    if config.get("responseMimeType") != "application/json":
        return "Function calling or JSON mode is needed: response_mime_type must be application/json with a schema."
    if config.get("responseSchema") is not None:
        return "Only one of response_schema and response_json_schema can be set."
    problem = schemas.problem(schema)
    return None if problem is None else f"* GenerateContentRequest.generation_config.response_json_schema: {problem}\n"


def _refused_numbers(config: Mapping[str, Any], family: Family) -> str | None:
    for name, path, top in _RANGES:
        value = config.get(name)
        if value is not None and not 0 <= value <= top:
            return f"* GenerateContentRequest.generation_config.{path}: {path} must be in the range [0.0, {top}].\n"
    if (config.get("candidateCount") or 1) != 1:
        return "Multiple candidates is not enabled for this model"
    limit = config.get("maxOutputTokens")
    top_tokens = None if family.is_continued else family.answer_max_tokens
    if limit is not None and (limit < 1 or (top_tokens is not None and limit > top_tokens)):
        where = "* GenerateContentRequest.generation_config.max_output_tokens"
        return f"{where}: max_output_tokens must be in the range [1, {top_tokens or 'no limit'}].\n"
    return None


def _refused_thinking(thinking: Mapping[str, Any], family: Family) -> str | None:
    level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
    if level is not None and budget is not None:
        return "You can only set only one of thinking budget and thinking level."
    if not family.thinks:
        return "Thinking is not enabled for this model." if thinking else None
    if level is not None:
        if not family.levels:
            return "Thinking level is not supported for this model."
        if str(level).upper() not in (*family.levels, "THINKING_LEVEL_UNSPECIFIED"):
            return f"Thinking level {str(level).upper()} is not supported for this model."
    if budget is not None:
        return _refused_budget(int(budget), family)
    return None


def _refused_budget(budget: int, family: Family) -> str | None:
    # Models with levels take a budget for backwards compatibility.
    low, high = family.budget or (0, 65_536)
    if budget == -1 or low <= budget <= high or (budget == 0 and family.can_be_off):
        return None
    if budget == 0:
        return "Budget 0 is invalid. This model only works in thinking mode."
    return f"The thinking budget {budget} is invalid. Please choose a value between {low} and {high}."


def _refused_by_strict(contents: list[Any], config: Mapping[str, Any]) -> str | None:
    for name in ("presencePenalty", "frequencyPenalty"):
        if config.get(name):
            return "Penalty is not enabled for this model"
    if named(contents[-1]).get("role") == "model":
        return "The last content must not have the role 'model' for this model."
    return None
