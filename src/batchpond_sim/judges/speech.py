"""What a simulated model says to a chat, within its token limit: the same for every API of that kind."""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import imagesize  # type: ignore[import-untyped]

from batchpond_sim.judges.judge import Judgement, Says, count_tokens

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KNOWN = frozenset({"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "description"})
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def schema_problem(schema: Any) -> str | None:
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


def format_problem(form: Any) -> str | None:
    """Return what is wrong with a `response_format` of chat completions, None where nothing is or it has no schema."""
    is_schema = isinstance(form, dict) and form.get("type") == "json_schema"
    return named_schema_problem(form.get("json_schema")) if is_schema else None


def named_schema_problem(form: Any) -> str | None:
    """Return what is wrong with a schema that has a name, as OpenAI's `json_schema` is."""
    if not isinstance(form, dict) or not isinstance(form.get("name"), str):
        return "Missing required parameter: 'response_format.json_schema.name'."
    if not _NAME.fullmatch(form["name"]):
        return f"Invalid 'response_format.json_schema.name': '{form['name']}' does not match '^[a-zA-Z0-9_-]+$'."
    found = schema_problem(form.get("schema")) if form.get("strict") else None
    return None if found is None else f"Invalid schema for response_format '{form['name']}': {found}"


# What a level of thinking takes on average, within what is reported of short tasks (low 80 to 200, medium 300 to 800,
# high 800 to 2,500, xhigh 2,000 to 8,000); an answer takes half to one and a half times that.
EFFORT_TOKENS = {"none": 0, "minimal": 24, "low": 96, "medium": 480, "high": 1300, "xhigh": 3600, "max": 6000}
REFUSAL = "I'm sorry, but I can't help with that request."


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """The HTTP status of one request, its answer or error, and what it is billed for.

    `is_checked` is false for errors of a request that was refused before it was run, where an API tells them apart.
    """

    status: int
    body: dict[str, Any]
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    is_checked: bool = True

    @property
    def is_success(self) -> bool:
        """Whether the row is a success, and so billed."""
        return self.status == 200


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a body that an answer depends on, whatever the API."""

    model: str
    prompt: str
    effort: str
    wants_summary: bool
    max_tokens: Any
    messages: Any = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model comes to say, before an API puts it into its own shape."""

    text: str
    refusal: str | None
    finish: str
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    thoughts: str
    key: str


def content_text(content: Any) -> str:
    """Return a message's content as text: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def messages_text(messages: Any) -> str:
    """Return the text of all messages."""
    if isinstance(messages, str):
        return messages
    return "\n\n".join(content_text(m.get("content")) for m in messages if isinstance(m, dict))


def stranger(messages: Any, known: Collection[str]) -> int | None:
    """Return the place of the first message whose role is none of those known, None where there is none."""
    if not isinstance(messages, list):
        return None
    for place, message in enumerate(messages):
        is_other = isinstance(message, dict) and message.get("type", "message") != "message"
        if not is_other and (not isinstance(message, dict) or message.get("role") not in known):
            return place
    return None


def completed(asked: Asked, judged: Judgement, force: str) -> Completion:
    """Return what is said about a judgement within the token limit; `force` is a row fault or empty."""
    text, refusal, finish = judged.text, None, "stop"
    if judged.says is Says.REFUSAL or force == "refusal":
        text, refusal = "", REFUSAL
    elif judged.says is Says.FILTERED:
        text, finish = "", "content_filter"
    elif judged.says is Says.EMPTY or force == "empty_text":
        text = ""
    reasoning = int(EFFORT_TOKENS[asked.effort] * (0.5 + judged.u))
    n_spoken = count_tokens(refusal or text) if refusal or text else 0
    limit = asked.max_tokens if isinstance(asked.max_tokens, int) else None
    if force == "truncated_text":
        limit = reasoning + n_spoken // 2
    if limit is not None and reasoning + n_spoken > limit:
        reasoning = min(reasoning, limit)
        n_spoken = limit - reasoning
        text, refusal, finish = text[: n_spoken * 4], None, "length"
    tokens_in = count_tokens(asked.prompt) + 7 + shown_tokens(asked.model, asked.messages)
    return Completion(text, refusal, finish, tokens_in, reasoning + n_spoken, reasoning, judged.thoughts, judged.key)


SPREAD = 0.3
_TOKEN = re.compile(r"\d{1,3}|[^\W\d]+|\W")


def logprobs(text: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `logprobs` of a choice, None where its body asks for none; Together has their number there."""
    wanted = body.get("logprobs")
    return {"content": tokens(text, body.get("top_logprobs", int(wanted))), "refusal": None} if wanted else None


def tokens(text: str, n: int) -> list[dict[str, Any]]:
    """Return the tokens of an answer, each with its `n` likeliest choices.

    A number, or a single letter, may be one up to nine away: at a distance of d exp(-d / SPREAD) times as likely.
    """
    return [{**found[0], "top_logprobs": found[:n]} for found in map(_choices, _TOKEN.findall(text))]


def _choices(piece: str) -> list[dict[str, Any]]:
    code, name = (int, str) if piece.isdigit() and piece == str(int(piece)) else (ord, chr)
    is_open = code is int or (len(piece) == 1 and piece.isascii() and piece.isalpha())
    steps = [step for step in sorted(range(-9, 10), key=abs) if code(piece) + step >= 0] if is_open else [0]
    near = {name(code(piece) + step) if step else piece: -abs(step) / SPREAD for step in steps}
    whole = math.log(math.fsum(map(math.exp, near.values())))
    return [{"token": one, "logprob": share - whole, "bytes": list(one.encode())} for one, share in near.items()]


_MAGIC = {
    "image/png": rb"\x89PNG\r\n\x1a\n", "image/jpeg": rb"\xff\xd8\xff", "image/gif": rb"GIF8[79]a",
    "image/webp": rb"(?s)RIFF....WEBP", "application/pdf": rb"%PDF-",
}  # fmt: skip
_DATA_URL = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.DOTALL)


def picture_problem(body: Any) -> str | None:
    """Return what is wrong with a picture or document in a body of any API, None where nothing is."""
    return next((found for kind, data in _shown(body) if (found := _problem(kind, data)) is not None), None)


def _shown(value: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield the media type and the base64 of all that is shown: data URLs, sources, inline data, bare images."""
    if isinstance(value, str) and (match := _DATA_URL.fullmatch(value)):
        yield match[1], match[2]
    elif isinstance(value, list):
        for inner in value:
            yield from _shown(inner)
    elif isinstance(value, dict):
        kind = value.get("media_type") or value.get("mimeType")
        if kind is not None and "data" in value:
            yield kind, value["data"]
        yield from ((None, data) for data in value.get("images") or ())
        for inner in (value[name] for name in value.keys() - {"text", "images"}):
            yield from _shown(inner)


def _problem(kind: str | None, data: Any) -> str | None:
    try:
        content = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return "the image data is not valid base64"
    if kind is None:
        return None if any(re.match(magic, content) for magic in _MAGIC.values()) else "image: unknown format"
    if kind not in _MAGIC:
        return f"{kind} is not a supported media type"
    return None if re.match(_MAGIC[kind], content) else f"the image does not match the provided media type {kind}"


_COUNTS: list[dict[str, Any]] = tomllib.loads((resources.files(__package__) / "pictures.toml").read_text())["models"]


def shown_tokens(model: str, body: Any) -> int:
    """Return how many tokens the pictures and documents of a body are, by the arithmetic that the model's guide has."""
    rule = next((one for one in _COUNTS if re.match(one["name"], model)), None)
    return sum(_counted(rule, base64.b64decode(data)) for _, data in _shown(body)) if rule else 0


def _counted(rule: dict[str, Any], content: bytes) -> int:
    if content.startswith(b"%PDF-"):
        return int(rule.get("page", 0)) * len(re.findall(rb"/Type\s*/Page(?![A-Za-z])", content))
    size = imagesize.get(io.BytesIO(content))
    fitted = min(1.0, rule.get("long", math.inf) / max(size), rule.get("short", math.inf) / min(size))
    crop = sorted((256, 768, min(size) // 1.5))[1] if max(size) > 384 else 384
    side = crop if "crops" in rule else rule.get("side", max(size))
    across, down = (round(part * fitted / side, 6) for part in size)
    n, most = min(math.ceil(across) * math.ceil(down), rule.get("cap", math.inf)), rule.get("most", math.inf)
    if n > most:  # first by its area, then to whole squares on one side
        shrunk = [part * math.sqrt(most / across / down) for part in (across, down)]
        whole = min(math.floor(part) / part for part in shrunk)
        n = math.prod(math.ceil(round(part * whole, 6)) for part in shrunk)
    return int(rule.get("base", 0) + math.ceil(rule.get("each", 0) * n) + rule.get("row", 0) * math.ceil(down))
