"""Gemini's requests and answers: bodies that refuse what a model would refuse, lines and live answers read totally.

Shapes: google-genai 3.4 `types.py` (Content, GenerationConfig, ThinkingConfig, ThinkingLevel, InlinedResponse) and
`batches.py`, recorded traffic of 2026. [compat] is Google's page on OpenAI compatibility, which gives the words of
thinking a number of tokens. Rows: `{key, response: GenerateContentResponse}` or `{key, error: {code, message,
details}}`; Google's documents also call the error `status`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from msgspec import Struct

from batchpond import fields
from batchpond.errors import UsageError
from batchpond.model import ErrorClass, Finish, Prompt, Response, Role
from batchpond.providers import base
from batchpond.providers.http import keys
from batchpond.providers.http.errors import ApiError, classify, read_error
from batchpond.providers.shared import dialect, lines
from batchpond.providers.shared.dialect import BuiltBody, Dialect, ModelSettings, Sight
from batchpond.providers.shared.lines import PARTS, Count, Id, ReadLine, Row, Tokens, Word

GENERATE: Final = "generateContent"
_BESIDE_GENERATION: Final = frozenset({"systemInstruction", "safetySettings", "tools", "toolConfig", "cachedContent"})
_RESERVED: Final = base.table("gemini", "reserved")
_SAMPLING: Final = ("topP", "topK", "temperature")
_PENALTIES: Final = ("presencePenalty", "frequencyPenalty")
_VERSION: Final = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")
_DEFAULT_VERSION: Final = "v1beta"
WORDS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_WORD_TOKENS: Final = {"low": 1_024, "medium": 8_192, "high": 24_576}  # [compat]


@dataclass(frozen=True)
class Budget:
    """The tokens that `thinkingBudget` may ask for; `has_words` where this program's words come to some."""

    least: int
    most: int
    can_be_off: bool
    has_words: bool = True

    @cached_property
    def words(self) -> dict[str, int]:
        """What this program's words come to."""
        words = {"none": 0} if self.can_be_off else {}
        if not self.has_words:
            return words
        return words | _WORD_TOKENS | ({"max": self.most} if self.most > _WORD_TOKENS["high"] else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(base.Family):
    """Models that take the same parameters: a `thinkingLevel`, a `thinkingBudget`, or neither.

    Where `ignores_sampling`, temperature, topP and topK have no effect and penalties are refused. `takes_schema`
    is about `responseJsonSchema`, which came with 2.5, `takes_system` about system prompts; `remark` is for people,
    `unasked` the word by which they think where none is sent.
    """

    levels: tuple[str, ...] = ()
    unasked: str = "medium"
    budget: Budget | None = None
    ignores_sampling: bool = False
    remark: str | None = None
    takes_schema: bool = True
    takes_system: bool = True

    @property
    def thinks(self) -> bool:
        """Whether these models can think."""
        return bool(self.levels) or self.budget is not None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the thinking words that these models accept; models that cannot think accept `none`."""
        if not self.thinks:
            return ("none",)
        budgeted = self.budget.words if self.budget else {}
        return tuple(word for word in WORDS if word in self.levels or word in budgeted)


FAMILIES: Final = base.Families("gemini", Family)


def _base_of(base_url: str, environ: Mapping[str, str]) -> str:
    """Return a base URL that ends in a version: its own, else the variable's, else that of all recorded batches."""
    if _VERSION.fullmatch(base_url.rpartition("/")[2]):
        return base_url
    wish = keys.setting(environ, "GOOGLE_GENAI_API_VERSION")
    version = _DEFAULT_VERSION if wish in (None, "beta") else wish
    if not _VERSION.fullmatch(version):
        raise UsageError(f"GOOGLE_GENAI_API_VERSION is {version!r}", hint="unset it, or set it to v1beta or v1")
    return f"{base_url}/{version}"


class Gemini(Dialect):
    """What is asked of Gemini's models, and what they answer."""

    id_name = "key"
    line_form = b'{"key":%(id)b,"request":%(body)b}'
    answer_members = ("candidates", "promptFeedback", "usageMetadata")
    DESCRIPTOR = base.descriptor("gemini", endpoints=(GENERATE,), nearest=FAMILIES.nearest, base_of=_base_of)

    def effort(self, model: str, thinking: str) -> str:
        """Return how hard a model thinks by a study's word: unasked as its family does, or the budget of the word."""
        family = FAMILIES.of(model)
        if thinking == dialect.UNASKED:
            return (family.unasked if family.thinks else "none") if family.is_known else thinking
        return str(family.budget.words.get(thinking, thinking)) if family.budget and not family.levels else thinking

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model before money is spent on it."""
        remark = FAMILIES.of(model).remark
        return (remark,) if remark else FAMILIES.caveats(model)

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the `request` of an input line; the model is no part of it.

        Thinking becomes `thinkingLevel` or `thinkingBudget` by the model's family; a word or number of tokens
        that the family does not take raises UsageError. Parameters go into `generationConfig`, or beside
        it where Gemini wants them there, under their camelCase names. What a model ignores
        (temperature, topP, topK) or has not (a schema) is left out and named in `dropped`.
        """
        family = FAMILIES.of(settings.request_model)
        dialect.check_endpoint(settings, self.DESCRIPTOR)
        dropped: list[str] = []
        generation: dict[str, Any] = {}
        if settings.max_output_tokens is not None:
            generation["maxOutputTokens"] = settings.max_output_tokens
        if settings.temperature is not None:
            if family.ignores_sampling:
                dropped.append("temperature")
            else:
                generation["temperature"] = settings.temperature
        if thinking := _thinking(settings, family, dropped):
            generation["thinkingConfig"] = thinking
        if settings.output_schema is not None and family.takes_schema:
            generation |= {"responseMimeType": "application/json", "responseJsonSchema": settings.output_schema}
        elif settings.output_schema is not None:
            dropped.append(dialect.SCHEMA)
        generation |= self.logprobs(settings, is_taken=not (family.levels and family.is_known))
        system, rest = dialect.apart(prompt)
        body: dict[str, Any] = {"contents": _contents(rest, self.sight)}
        if system is not None:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        _add_parameters(body, generation, settings, family, dropped)
        if "systemInstruction" in body and not family.takes_system:
            raise UsageError(f"model {settings.request_model} takes no system prompt", hint="say it in the user's turn")
        if generation:
            body["generationConfig"] = generation
        return BuiltBody(body, tuple(dropped))

    @cached_property
    def straight(self) -> ReadLine:
        """What reads a well-formed GenerateContentResponse in its row."""
        return lines.reader(_Line, self.id_name, lambda line: read_whole(line, line.key))

    def read_row(self, row: dict[str, Any]) -> Response:
        """Return one row of a result file made uniform.

        A prompt that was blocked has succeeded and is BLOCKED. The first of several candidates is read; thought
        signatures are not.
        """
        return self.read_result(row.get("key"), row.get("response"), row.get("error"), row.get("status"))

    def read_result(self, key: object, answer: object, *errors: object) -> Response:
        """Return what a row says made uniform: the first of `errors` that says something, else its answer."""
        row = Row(fields.identifier(key))
        for error in (*errors, fields.mapping(answer).get("error")):
            if not is_blank(error):
                return _failed(row, error)
        if not isinstance(answer, dict):
            return lines.unreadable(row.custom_id, "the row has neither a response nor an error")
        return self.read_body(row, answer)

    def read_body(self, row: Row, body: dict[str, Any]) -> Response:
        """Return a GenerateContentResponse made uniform."""
        candidates = fields.sequence(body.get("candidates"), 1)
        candidate = fields.mapping(candidates[0]) if candidates else {}
        reason = fields.word(candidate.get("finishReason"))
        finish = FINISH.get(reason or "", Finish.OTHER) if candidate else None
        blocked = fields.word(fields.mapping(body.get("promptFeedback")).get("blockReason"))
        if not candidate and blocked:
            reason, finish = blocked, Finish.BLOCKED
        named = row._replace(request_id=fields.identifier(body.get("responseId")))
        texts, tokens = _content(candidate.get("content")), _usage(body.get("usageMetadata"))
        said = lines.answered(named, body.get("modelVersion"), reason, finish, (*texts, None), tokens)
        return lines.with_logprobs(said, _steps(fields.mapping(candidate.get("logprobsResult"))))


DIALECT: Final = Gemini()


def _thinking(settings: ModelSettings, family: Family, dropped: list[str]) -> dict[str, Any]:
    config = _amount(settings, family)
    if not settings.include_thoughts:
        return config
    if not family.thinks:
        raise UsageError(
            f"model {settings.request_model} does not think, so it has no thoughts to include",
            hint="set include_thoughts = false for this model",
        )
    if config.get("thinkingBudget") == 0:
        dropped.append("include_thoughts")
        return config
    return {"includeThoughts": True, **config}


def _amount(settings: ModelSettings, family: Family) -> dict[str, Any]:
    """Return the level or the budget to send; nothing for a model's default, or where it has no switch."""
    wish = settings.thinking
    if wish is None:
        return {}
    if wish in family.levels:
        return {"thinkingLevel": wish.upper()}
    if family.budget is None:
        if wish in family.words:
            return {}
        raise _refusal(settings, family)
    budget = family.budget
    tokens = int(wish) if wish.isascii() and wish.isdecimal() and len(wish) < 10 else budget.words.get(wish)
    if tokens is None or not (budget.least <= tokens <= budget.most or (tokens == 0 and budget.can_be_off)):
        raise _refusal(settings, family)
    if tokens and settings.max_output_tokens is not None and settings.max_output_tokens <= tokens:
        raise UsageError(
            f"model {settings.request_model}: max_output_tokens {settings.max_output_tokens} leaves no room"
            f" beside {tokens} tokens of thinking ({wish!r})",
            hint=f"set max_output_tokens above {tokens}: on Gemini it covers the thoughts too",
        )
    return {"thinkingBudget": tokens}


def _refusal(settings: ModelSettings, family: Family) -> UsageError:
    accepted = f"it accepts {', '.join(family.words)}"
    if family.budget is not None:
        accepted += f", or a number of tokens from {family.budget.least} to {family.budget.most}"
    return dialect.refused_thinking(settings, accepted)


def _add_parameters(
    body: dict[str, Any], generation: dict[str, Any], settings: ModelSettings, family: Family, dropped: list[str]
) -> None:
    """Put a study's parameters where Gemini reads them; `top_p` and `topP` are the same parameter."""
    beside: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    for written, value in (settings.parameters or {}).items():
        name = re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), written)
        if family.ignores_sampling and name in _PENALTIES:
            raise UsageError(
                f"model {settings.request_model} refuses parameter {written!r}",
                hint=f"remove {written!r} from the parameters of this model",
            )
        place = beside if name in _BESIDE_GENERATION else inside
        if name in place:
            raise UsageError(f"model {settings.request_model}: parameter {name!r} is written twice")
        if family.ignores_sampling and name in _SAMPLING:
            dropped.append(name)
        else:
            place[name] = value
    dialect.add_parameters(generation, dataclasses.replace(settings, parameters=inside), _RESERVED)
    dialect.add_parameters(body, dataclasses.replace(settings, parameters=beside), _RESERVED)


def _contents(prompt: Prompt, sight: Sight) -> list[dict[str, Any]]:
    if isinstance(prompt, str):
        return [{"role": "user", "parts": [{"text": prompt}]}]
    names = {Role.USER: "user", Role.ASSISTANT: "model"}
    return [{"role": names[turn.role], "parts": sight.parts(turn)} for turn in prompt]


_RPC: Final = {int(code): tuple(row) for code, row in base.table("gemini", "rpc").items()}
_WORDS: Final = {int(status): word for status, word in base.table("gemini", "words").items()}
_CLEARLY_ACCESS: Final = frozenset({"UNAUTHENTICATED", "API_KEY_INVALID"})
FINISH: Final = base.by_word("gemini", "finish", Finish)


def is_blank(error: object) -> bool:
    """Return whether a google.rpc.Status says nothing: absent, empty, or code 0 without a message."""
    if isinstance(error, dict):
        return not error.get("code") and not error.get("message")
    return not isinstance(error, str) or not error


def read_status(error: object) -> tuple[int | None, ApiError]:
    """Return the HTTP status and error of a google.rpc.Status, whose code may be of either kind."""
    if not isinstance(error, dict):
        return None, ApiError((fields.text(error) or "")[:1000])
    read = read_error(error)
    number = fields.count(error.get("code"))
    status_code, name = _RPC.get(number or 0, (number, _WORDS.get(number or 0)))
    if status_code is not None and not 100 <= status_code <= 999:
        status_code = None
    return status_code, dataclasses.replace(read, code=fields.identifier(error.get("status")) or name or read.code)


def _failed(row: Row, error: object) -> Response:
    status_code, read = read_status(error)
    error_class = classify(status_code, read)
    if read.code == "CANCELLED":
        error_class = ErrorClass.CANCELLED
    elif error_class is ErrorClass.ACCESS and not {read.code, read.kind} & _CLEARLY_ACCESS:
        error_class = ErrorClass.PERMANENT  # one row's permission says nothing about the key
    return lines.failed(row._replace(status_code=status_code), read, error_class)


def _content(content: object) -> tuple[str | None, str | None]:
    """Return text and thoughts of a candidate's parts; text is None without any text part."""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in fields.sequence(fields.mapping(content).get("parts"), lines.PARTS_MAX):
        text = fields.text(fields.mapping(part).get("text"))
        if text is not None:
            (thoughts if part.get("thought") is True else texts).append(text)
    return lines.joined(texts, thoughts)


def _steps(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tokens of a LogprobsResult as others write them."""
    chosen, tops = (
        fields.sequence(result.get(name), lines.PARTS_MAX) for name in ("chosenCandidates", "topCandidates")
    )
    both = zip(chosen, (fields.mapping(top).get("candidates") for top in tops), strict=False)
    return [_named(own) | {"top_logprobs": [*map(_named, fields.sequence(top, lines.PARTS_MAX))]} for own, top in both]


def _named(candidate: object) -> dict[str, Any]:
    about = fields.mapping(candidate)
    return {"token": about.get("token"), "logprob": about.get("logProbability")}


def _usage(usage: object) -> Tokens:
    """Return input, output, reasoning and cached tokens.

    Google leaves out what is zero, so an absent count beside others is 0. Input is the prompt, cached tokens
    included, and what tools put into it; output is candidates and thoughts, which are counted apart.
    """
    if not isinstance(usage, dict) or not {"promptTokenCount", "totalTokenCount"} & usage.keys():
        return lines.NO_TOKENS
    prompt = fields.count(usage.get("promptTokenCount"))
    tools = fields.count(usage.get("toolUsePromptTokenCount", 0))
    answer = fields.count(usage.get("candidatesTokenCount", 0))
    thoughts = fields.count(usage.get("thoughtsTokenCount", 0))
    cached = fields.count(usage.get("cachedContentTokenCount", 0))
    return _sum(prompt, tools), _sum(answer, thoughts), thoughts, cached, None


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else fields.count(a + b)


class _Usage(Struct):
    promptTokenCount: Count
    toolUsePromptTokenCount: Count = 0
    candidatesTokenCount: Count = 0
    thoughtsTokenCount: Count = 0
    cachedContentTokenCount: Count = 0

    def tokens(self) -> Tokens:
        given = self.promptTokenCount + self.toolUsePromptTokenCount
        made = self.candidatesTokenCount + self.thoughtsTokenCount
        return given, made, self.thoughtsTokenCount, self.cachedContentTokenCount, None


class _Part(Struct):
    text: str | None = None
    thought: bool | None = None


class _Content(Struct):
    parts: Annotated[list[_Part], PARTS]


class _Candidate(Struct):
    content: _Content
    finishReason: Word | None = None
    logprobsResult: None = None


class _Generated(Struct):
    candidates: Annotated[list[_Candidate], PARTS]
    usageMetadata: _Usage | None = None
    modelVersion: str | None = None
    responseId: str | None = None
    error: None = None


class WholeRow(Struct, kw_only=True):
    """What a row holds beside its id: an answer and no error, which Vertex AI says by an empty `status`."""

    response: _Generated
    error: None = None
    status: Literal[""] | None = None


class _Line(WholeRow, kw_only=True):
    key: Id


def read_whole(row: WholeRow, custom_id: str) -> Response:
    """Return what a row says, made uniform."""
    generated = row.response
    candidate = generated.candidates[0]
    parts, reason = candidate.content.parts, candidate.finishReason
    texts = [part.text for part in parts if part.text is not None and part.thought is not True]
    thoughts = [part.text for part in parts if part.text and part.thought is True]
    tokens = generated.usageMetadata.tokens() if generated.usageMetadata else lines.NO_TOKENS
    around = Row(custom_id, None, generated.responseId or None)
    finish = FINISH.get(reason or "", lines.OTHER)
    return lines.answered(
        around, generated.modelVersion, reason, finish, (*lines.joined(texts, thoughts), None), tokens
    )
