"""What simulated Gemini models answer to one request: a `GenerateContentResponse` or a `google.rpc.Status`.

Shapes follow the official SDK's types. A refusal is plain text, for the API has no member for it;
what a filter stops comes as `promptFeedback.blockReason` or as `finishReason` SAFETY, half and half.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from batchpond_sim.judges.judge import Judgement, Panel, Says, count_tokens
from batchpond_sim.judges.speech import EFFORT_TOKENS, RowAnswer, picture_problem, schema_problem, shown_tokens, tokens
from batchpond_sim.shared.google import BILLING_TEXT, rpc_error

LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")
LEVEL_TOKENS = {word.upper(): n for word, n in EFFORT_TOKENS.items()}
DYNAMIC_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Family:
    """The models whose names start alike.

    `budget` is the range of `thinkingBudget` in tokens; `levels` are the words of `thinkingLevel`, both
    empty for models that do not think. `default` is a level or, for budgets, a number of tokens (-1:
    the model decides). `is_strict` models ignore sampling and refuse penalties and prefilled answers.
    An answer over `answer_max_tokens` of an `is_continued` model can be asked on for, so that a
    request's own limit may be higher.
    """

    pattern: str
    budget: tuple[int, int] | None = None
    can_be_off: bool = False
    levels: tuple[str, ...] = ()
    default: str | int = 0
    is_strict: bool = False
    answer_max_tokens: int = 65_536
    is_continued: bool = False

    @property
    def thinks(self) -> bool:
        """Whether these models can think at all."""
        return self.budget is not None or bool(self.levels)


_ALL = LEVELS[:4]
FAMILIES = (
    Family(
        r"gemini-4",
        levels=("LOW", "MEDIUM", "HIGH"),
        default="MEDIUM",
        is_strict=True,
        answer_max_tokens=32_768,
        is_continued=True,
    ),
    Family(r"gemini-3\.[78]-flash", levels=_ALL[1:], default="MEDIUM", is_strict=True),
    Family(r"gemini-3\.5-flash-lite|gemini-3\.6-flash", levels=_ALL, default="MINIMAL", is_strict=True),
    Family(r"gemini-3\.1-pro", levels=("LOW", "MEDIUM", "HIGH"), default="HIGH"),
    Family(r"gemini-3(\.\d)?-pro", levels=("LOW", "HIGH"), default="HIGH"),
    Family(r"gemini-3(\.\d)?-flash-lite", levels=_ALL, default="MINIMAL"),
    Family(r"gemini-3(\.\d)?-flash", levels=_ALL, default="HIGH"),
    Family(r"gemini-2\.5-pro", budget=(128, 32_768), default=-1),
    Family(r"gemini-2\.5-flash-lite", budget=(512, 24_576), can_be_off=True, default=0),
    Family(r"gemini-2\.5-flash", budget=(0, 24_576), can_be_off=True, default=-1),
    Family(r"gemini-2\.0-flash", answer_max_tokens=8_192),
)
"""Every family, the first that fits is meant."""

MODELS = (
    "gemini-4-argon", "gemini-3.8-flash", "gemini-3.6-flash", "gemini-3.5-flash", "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview", "gemini-3.1-flash-lite", "gemini-3-flash-preview", "gemini-2.5-pro",
    "gemini-2.5-flash", "gemini-2.5-flash-lite",
)  # fmt: skip
"""What the model listing shows."""


def family_of(model: str) -> Family | None:
    """Return the family of a model's name without `models/`, None when there is no such model."""
    return next((family for family in FAMILIES if re.match(family.pattern, model)), None)


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


def known_family(model: str) -> Family:
    """Return the family of a batch's model; create has made sure that there is one."""
    family = family_of(model)
    if family is None:
        raise LookupError(f"there is a batch of the unknown model {model}")
    return family


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
    return picture_problem(rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def refused(request: Mapping[str, Any], family: Family) -> str | None:
    """Return why a model does not take a well-formed request, None when it does."""
    fields = named(request)
    config = named(fields.get("generationConfig"))
    return (
        _refused_numbers(config, family)
        or _refused_thinking(named(config.get("thinkingConfig")), family)
        or _refused_schema(config)
        or ("Logprobs is not supported for this model." if family.levels and config.get("responseLogprobs") else None)
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
    problem = schema_problem(schema)
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


_REFUSAL = "I cannot help with that request."
_NO_CONTENT = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "OTHER"})


@dataclass(frozen=True, slots=True)
class _Completion:
    text: str
    finish: str
    block: str
    prompt_tokens: int
    answer_tokens: int
    thought_tokens: int
    thoughts: str
    key: str


def answer(
    model: str, family: Family, request: Mapping[str, Any], request_key: str, panel: Panel, force: str = ""
) -> RowAnswer:
    """Return the answer to one request.

    `request_key` makes repeats of one request differ; `force` is a row fault (`refusal`, `empty_text`,
    `truncated_text`, `finish:<word>`, `blocked:<word>`, `error_429`, ...) or empty.
    """
    forced = _forced_error(force)
    if forced is not None:
        return forced
    wrong = malformed(request) or refused(request, family)
    if wrong is not None:
        return RowAnswer(400, rpc_error(400, wrong))
    wanted = asked(request, family)
    judged = panel.answer(model, wanted.prompt, request_key)
    if judged.says is Says.ERROR:
        return _server_error()
    said = _completed(wanted, family, judged, force)
    said = replace(said, prompt_tokens=said.prompt_tokens + shown_tokens(model, request))
    body, config = _response(model, family, wanted, said), named(named(request).get("generationConfig"))
    if config.get("responseLogprobs") and said.text:
        body["candidates"][0]["logprobsResult"] = _logprobs(said.text, int(config.get("logprobs") or 0))
    return RowAnswer(
        200,
        body,
        said.prompt_tokens,
        said.answer_tokens + said.thought_tokens,
        said.thought_tokens,
    )


def _server_error() -> RowAnswer:
    return RowAnswer(500, rpc_error(500, "An internal error has occurred. Please retry or report the problem."))


def _forced_error(force: str) -> RowAnswer | None:
    match force:
        case "error_429":
            return RowAnswer(429, rpc_error(429, "Resource has been exhausted (e.g. check quota)."))
        case "error_500" | "output_500" | "status_0":
            return _server_error()
        case "error_400":
            return RowAnswer(400, rpc_error(400, "Request contains an invalid argument."))
        case "billing_rows":
            return RowAnswer(429, rpc_error(429, BILLING_TEXT))
        case _:
            return None


def prompt_tokens(request: Mapping[str, Any], family: Family) -> int:
    """Return what a well-formed request counts for in the queue of its model."""
    return count_tokens(asked(request, family).prompt) + 4


def _completed(wanted: Asked, family: Family, judged: Judgement, force: str) -> _Completion:
    text, finish, block = _outcome(judged, force)
    n_prompt = count_tokens(wanted.prompt) + 4
    thought = 0 if block else _thought_tokens(wanted, judged.u)
    if block or finish in _NO_CONTENT:
        return _Completion("", finish, block, n_prompt, 0, thought, "", judged.key)
    spoken = count_tokens(text) if text else 0
    # An answer longer than one hop is cut there, below the limit of all hops together.
    limit, cut = wanted.max_tokens, "MAX_TOKENS"
    if limit is None or limit > family.answer_max_tokens:
        limit, cut = family.answer_max_tokens, "CONTINUATION" if family.is_continued else cut
    if force == "truncated_text" or finish == "CONTINUATION":
        limit, cut = thought + spoken // 2, cut if finish == "STOP" else finish
    if thought + spoken > limit:
        thought = min(thought, limit)
        spoken = limit - thought
        text, finish = text[: spoken * 4], cut
    return _Completion(text, finish, "", n_prompt, spoken, thought, judged.thoughts, judged.key)


def _outcome(judged: Judgement, force: str) -> tuple[str, str, str]:
    """Return the text, the finish reason and the reason of a block, of which one of the last two is empty."""
    kind, _, word = force.partition(":")
    if kind == "finish":
        return judged.text, word, ""
    if kind == "blocked":
        return "", "", word
    if judged.says is Says.FILTERED:
        return ("", "SAFETY", "") if judged.u < 0.5 else ("", "", "SAFETY")
    if judged.says is Says.REFUSAL or kind == "refusal":
        return _REFUSAL, "STOP", ""
    if judged.says is Says.EMPTY or kind == "empty_text":
        return "", "STOP", ""
    return judged.text, "STOP", ""


def _thought_tokens(wanted: Asked, u: float) -> int:
    if isinstance(wanted.thinking, str):
        return int(LEVEL_TOKENS[wanted.thinking] * (0.5 + u))
    dynamic = int(DYNAMIC_TOKENS * (0.5 + u))
    return dynamic if wanted.thinking == -1 else min(dynamic, wanted.thinking)


def _response(model: str, family: Family, wanted: Asked, said: _Completion) -> dict[str, Any]:
    body: dict[str, Any] = {"promptFeedback": {"blockReason": said.block}} if said.block else {}
    if not said.block:
        body["candidates"] = [_candidate(family, wanted, said)]
    return {**body, "usageMetadata": _usage(said), "modelVersion": model, "responseId": said.key[:22]}


def _candidate(family: Family, wanted: Asked, said: _Completion) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if wanted.wants_thoughts and said.thought_tokens and said.thoughts:
        parts.append({"thought": True, "text": said.thoughts})
    if said.text or said.finish == "STOP":
        part: dict[str, Any] = {"text": said.text}
        if family.levels and said.thought_tokens:
            part["thoughtSignature"] = base64.b64encode(said.key.encode("ascii")).decode("ascii")
        parts.append(part)
    candidate: dict[str, Any] = {"finishReason": said.finish, "index": 0}
    if said.finish not in _NO_CONTENT:
        candidate = {"content": {"parts": parts, "role": "model"} if parts else {"role": "model"}, **candidate}
    if said.finish == "SAFETY":
        candidate["safetyRatings"] = [
            {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}
        ]
    if said.finish == "CONTINUATION":
        candidate["continuationToken"] = base64.b64encode(f"next-{said.key}".encode("ascii")).decode("ascii")
    return candidate


def _logprobs(text: str, n: int) -> dict[str, Any]:
    steps = [[{"token": one["token"], "logProbability": one["logprob"]} for one in (step, *step["top_logprobs"])]
             for step in tokens(text, n)]  # fmt: skip
    return {"chosenCandidates": [own for own, *_ in steps], "topCandidates": [{"candidates": top} for _, *top in steps]}


def _usage(said: _Completion) -> dict[str, Any]:
    counts = {
        "promptTokenCount": said.prompt_tokens,
        "candidatesTokenCount": said.answer_tokens,
        "thoughtsTokenCount": said.thought_tokens,
        "totalTokenCount": said.prompt_tokens + said.answer_tokens + said.thought_tokens,
    }
    # proto3 JSON leaves zeros out.
    details = [{"modality": "TEXT", "tokenCount": said.prompt_tokens}]
    return {**{name: n for name, n in counts.items() if n}, "promptTokensDetails": details}
