"""Lines of result files and live answers: what reading them shares, and chat completions, which most speak.

Rows of chat completions, the shape of OpenAI and of all who copy it: `{id, custom_id, response: {status_code,
request_id, body} | null, error: {code, message} | null}`, either member also left out (OpenAI's batch guide; Together,
recorded 2026-09); a row that failed over HTTP keeps `error` null and has the error in `response.body.error`
(openai-openapi#302).

Well-formed lines are read at once, by a shape of what is looked at, decoded from the bytes without all else. A shape
takes nothing that the general reader of its dialect would read otherwise; a line that does not fit, or that is no
success, is left to that one. A test holds the two against each other over mangled lines.
"""

from __future__ import annotations

import builtins
import itertools
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import orjson
from msgspec import DecodeError, Meta, Struct

from batchpond import fields
from batchpond.model import ErrorClass, Finish, Response, ResponseStatus, Token
from batchpond.providers import base
from batchpond.providers.http.errors import ApiError, answer_of, classify, is_filtered, read_any, read_error

PARTS_MAX: Final = 10_000
# An enumeration is asked for a member more slowly than a module for a name, and these once a line.
SUCCEEDED: Final = ResponseStatus.SUCCEEDED
OTHER: Final = Finish.OTHER
_INT_DIGITS_MAX: Final = 300  # past the largest double, and past what int() reads by default
_BEFORE_ANSWER: Final = re.compile(rb"(?:[ \t\r\n]+|:[^\r\n]*(?=[\r\n]))+")
_EXCERPT_BYTES: Final = 4_000
_STATUS_OF_CLASS: Final = {ErrorClass(status): status for status in ResponseStatus if status in {*map(str, ErrorClass)}}


def load_row(line: bytes, id_name: str | None = "custom_id", what: str = "the line") -> dict[str, Any] | str:
    """Return a line's JSON object, or why it is none; total over any bytes.

    Lone surrogates and invalid UTF-8 become U+FFFD, NaN and infinities become null; a line that
    names its id twice is refused. Two ids are looked for where the bytes of the quoted name appear
    more than once, which costs nothing on ordinary lines.
    """
    if id_name is not None and line.count(b'"%b"' % id_name.encode()) > 1:
        return _load_slowly(line, id_name, what)
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _load_slowly(line, id_name, what)
    return row if isinstance(row, dict) else f"{what} is not a JSON object"


def load_answer(body: bytes) -> dict[str, Any] | str:
    """Return the JSON object of a live call's whole answer, or why it is none, as `load_row` does.

    Blank lines and `: keep-alive` comments before it, which DeepSeek sends while a call waits, are skipped.
    """
    start = _BEFORE_ANSWER.match(body)
    return load_row(body[start.end() :] if start else body, None, "the answer")


def success_of(status_code: int, body: bytes) -> dict[str, Any] | Response:
    """Return the JSON object of a live call that went well, or the Response of one that did not; total."""
    found = load_answer(body)
    if 200 <= status_code <= 299:
        error = read_any(found) if isinstance(found, dict) and found.get("error") else None
        if error is not None:
            return failed(Row(None, status_code), error, classify(None, error))
        return found if isinstance(found, dict) else unreadable(None, found, status_code)
    if isinstance(found, str):
        error = read_any(answer_of(status_code, {}, body).json)
        return failed(Row(None, status_code), error or ApiError(body[:_EXCERPT_BYTES].decode("utf-8", "replace")))
    row = Row(None, status_code, fields.identifier(found.get("request_id")))
    return failed(row, read_any(found) or ApiError("the provider gave no error text"))


class _Pairs(dict[str, Any]):
    """A JSON object that remembers whether it named its id twice."""

    names_two_ids = False


def _load_slowly(line: bytes, id_name: str | None, what: str) -> dict[str, Any] | str:
    text = line.decode("utf-8-sig", "replace")
    hook = partial(_pairs, id_name)
    try:
        row = json.loads(
            text, object_pairs_hook=hook, parse_constant=lambda _: None, parse_int=_integer, parse_float=_number
        )
    except RecursionError:  # not a ValueError
        return f"{what} is nested too deeply"
    except ValueError as error:
        return f"{what} is not JSON: {error}"
    if not isinstance(row, _Pairs):
        return f"{what} is not a JSON object"
    return f"{what} has more than one {id_name}" if row.names_two_ids else row


def _pairs(id_name: str | None, pairs: list[tuple[str, Any]]) -> _Pairs:
    row = _Pairs((key, _clean(value)) for key, value in pairs)
    row.names_two_ids = sum(key == id_name for key, _ in pairs) > 1
    return row


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_clean(item) if isinstance(item, str) else item for item in value]
    return value


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _INT_DIGITS_MAX else None


def _number(digits: str) -> float | None:
    number = float(digits)
    return number if abs(number) != float("inf") else None


class Row(NamedTuple):
    """What stands around an answer: whose it is, its HTTP status, and what the provider calls its request."""

    custom_id: str | None = None
    status_code: int | None = None
    request_id: str | None = None


Tokens = tuple[int | None, int | None, int | None, int | None, int | None]
"""The tokens of the input, the output, its reasoning, those read from a cache and those written to one."""
NO_TOKENS: Final = (None, None, None, None, None)

Texts = tuple[str | None, str | None, str | None]
"""The answer, the thoughts, and what the model says to refuse."""


def answered(
    row: Row, model: object, reason: str | None, finish: Finish | None, texts: Texts, tokens: Tokens,
    cache_hour_tokens: int | None = None,
) -> Response:  # fmt: skip
    """Return a row that was answered."""
    return Response(
        row.custom_id,
        SUCCEEDED,
        row.status_code,
        fields.text(model),
        reason,
        finish,
        *texts,
        *tokens,
        provider_request_id=row.request_id,
        cache_hour_tokens=cache_hour_tokens,
    )


def joined(texts: list[str], thoughts: list[str]) -> tuple[str | None, str | None]:
    """Return the parts of an answer and of its thoughts as one text each; None where there is none."""
    return "".join(texts) if texts else None, "\n\n".join(filter(None, thoughts)) or None


def failed(row: Row, error: ApiError, error_class: ErrorClass | None = None) -> Response:
    """Return a row that failed; without an `error_class` it is what the error says, and always where a filter spoke."""
    is_blocked = is_filtered(error)
    error_class = ErrorClass.PERMANENT if is_blocked else error_class or classify(row.status_code, error)
    return Response(
        custom_id=row.custom_id,
        status=_STATUS_OF_CLASS.get(error_class, ResponseStatus.ERRORED),
        status_code=row.status_code,
        finish=Finish.BLOCKED if is_blocked else None,
        error_class=error_class,
        error_code=error.code,
        error_message=error.message,
        provider_request_id=row.request_id,
    )


def unreadable(custom_id: str | None, message: str, status_code: int | None = None) -> Response:
    """Return a line that nothing can be read from; it stays in the lake as it came."""
    return Response(
        custom_id=custom_id,
        status=ResponseStatus.UNREADABLE,
        status_code=status_code,
        error_class=ErrorClass.UNREADABLE,
        error_message=message,
    )


class _Choice(Struct):
    token: str
    logprob: float
    bytes: list[Annotated[int, Meta(ge=0, le=255)]] | None = None

    def pair(self) -> tuple[builtins.bytes, float]:
        text = builtins.bytes(self.bytes) if self.bytes else self.token.encode("utf-8", "replace")
        return text, min(0.0, self.logprob)


class _Step(_Choice):
    top_logprobs: list[_Choice] = []


def with_logprobs(response: Response, steps: object) -> Response:
    """Return an answer with its tokens, where they came with log probabilities and all of them are well formed.

    Each of `steps` is `{token, logprob, bytes, top_logprobs: [{token, logprob, bytes}]}`.
    """
    try:
        found = msgspec.convert(steps, list[_Step])
    except msgspec.ValidationError:
        return response
    tokens = (Token(one.pair()[0], tuple(dict(map(_Choice.pair, (one, *one.top_logprobs))).items())) for one in found)
    return response._replace(logprobs=tuple(tokens)) if found else response


def _steps(logprobs: object) -> object:
    """Return the steps of a choice; Together has lists beside one another, whose choices are `{token: logprob}`."""
    about = fields.mapping(logprobs)
    lists = (fields.sequence(about.get(name), PARTS_MAX) for name in ("tokens", "token_logprobs", "top_logprobs"))
    return about.get("content") or [
        {"token": token, "logprob": own, "top_logprobs": isinstance(top, dict) and [*map(_named, top.items())]}
        for token, own, top in itertools.zip_longest(*lists)
    ]


def _named(choice: tuple[str, Any]) -> dict[str, Any]:
    return {"token": choice[0], "logprob": choice[1]}


ReadBody = Callable[[Row, dict[str, Any]], Response]
"""Reads the body of a success."""

_FINISH: Final = base.by_word("shared", "finish", Finish)
# The server gave up in the middle: DeepSeek, vLLM, Mistral and OpenRouter. What there is of an answer is none.
BROKEN_OFF: Final = frozenset({"insufficient_system_resource", "abort", "error"})
_THOUGHTS: Final = re.compile(r"\s*<think>(.*?)(?:</think>\s*(.*)|\Z)", re.DOTALL)


def read_row(row: dict[str, Any], read_body: ReadBody) -> Response:
    """Return a row of a result file made uniform, whichever of a row's members it has."""
    answer, error = row.get("response"), _unwrapped(row.get("error"))
    about = fields.mapping(answer)
    custom_id, status_code = fields.identifier(row.get("custom_id")), fields.count(about.get("status_code"))
    is_one = status_code is not None and status_code <= 999
    around = Row(custom_id, status_code if is_one else None, fields.identifier(about.get("request_id")))
    if isinstance(error, dict) and not (isinstance(answer, dict) and _is_blank(error)):
        return failed(around, read_error(error))
    if isinstance(error, str) and error:
        return failed(around, _error_of({"error": error}))
    if not isinstance(answer, dict):
        return unreadable(custom_id, "the row has neither a response nor an error")
    return _read_response(around, answer, read_body)


def _read_response(row: Row, answer: dict[str, Any], read_body: ReadBody) -> Response:
    body, status_code = answer.get("body"), row.status_code
    # Some compatible servers leave the status out.
    is_silent = answer.get("status_code") is None and isinstance(body, dict) and ("choices" in body or "output" in body)
    if not is_silent and (status_code is None or not 200 <= status_code <= 299):
        problem = _error_of(body)
        return failed(row, problem, classify(status_code or 0, problem))
    if not isinstance(body, dict):
        return unreadable(row.custom_id, "the response has no body", status_code)
    error = body.get("error")
    if isinstance(error, dict) and not _is_blank(error):
        return failed(row, read_error(error))
    if isinstance(error, str) and error and "choices" not in body:
        return failed(row, _error_of(body))
    return read_body(row, body)


def _unwrapped(error: object) -> object:
    """Return the error inside an envelope: vLLM's batch rows have `{"error": {"error": {"message": ...}}}`."""
    inner = fields.mapping(error).get("error")
    is_envelope = isinstance(inner, dict) and isinstance(error, dict) and _is_blank(error)
    return inner if is_envelope else error


def _is_blank(error: dict[str, Any]) -> bool:
    return not error.get("code") and not error.get("message")


def _error_of(body: object) -> ApiError:
    if isinstance(body, str):  # Mistral's, as JSON in a text (recorded 2026)
        return read_any(load_row(body.encode("utf-8", "replace"), None)) or ApiError(body[:1000])
    return read_any(body) or ApiError("the provider gave no error text")


def read_chat(row: Row, body: dict[str, Any]) -> Response:
    """Return the body of a chat completion made uniform; thoughts are what the provider keeps apart as such."""
    choices = body.get("choices")
    choice = fields.mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = fields.mapping(choice.get("message"))
    content = message.get("content")
    text, refusal = content_of(content)
    refusal = fields.identifier(message.get("refusal")) or refusal
    reason = fields.word(choice.get("finish_reason"))
    if reason in BROKEN_OFF:
        said = ApiError(f"the answer was broken off: {reason}", "server_error")
        return failed(row, read_any(choice) or said, ErrorClass.TRANSIENT)
    finish = finish_of(reason, text, refusal) if choice else None
    texts = (text, _thoughts(message, content), refusal)
    found = answered(row, body.get("model"), reason, finish, texts, usage_of(body.get("usage")))
    return with_logprobs(found, _steps(choice.get("logprobs")))


def _thoughts(message: dict[str, Any], content: object) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if found := fields.identifier(message.get(name)):
            return found
    if not isinstance(content, list):
        return None
    parts = (part.get("thinking") for part in map(fields.mapping, content[:PARTS_MAX]))
    return "\n\n".join(filter(None, (content_of(part)[0] for part in parts))) or None


def finish_of(reason: str | None, text: str | None, refusal: str | None) -> Finish:
    """Return why a chat model stopped, by the provider's word for it and what it said."""
    finish = _FINISH.get(reason, OTHER) if reason else OTHER
    return Finish.REFUSAL if refusal and not text and finish in (Finish.STOP, OTHER) else finish


def content_of(content: object) -> tuple[str | None, str | None]:
    """Return text and refusal of a message's content: a string, or a list of parts."""
    if not isinstance(content, list):
        return fields.text(content), None
    texts: list[str] = []
    refusals: list[str] = []
    for part in content[:PARTS_MAX]:
        if isinstance(part, str):
            texts.append(part)
        elif fields.mapping(part).get("type") == "refusal":
            refusals.append(fields.text(part.get("refusal")) or "")
        elif isinstance(text := fields.mapping(part).get("text"), str):
            texts.append(text)
    return "".join(texts), "".join(refusals) or None


def usage_of(usage: object) -> Tokens:
    """Return input, output, reasoning tokens, and those of caches, in chat's or responses' spelling."""
    if not isinstance(usage, dict):
        return NO_TOKENS
    is_chat = "prompt_tokens" in usage or "completion_tokens" in usage
    given, made = ("prompt_tokens", "completion_tokens") if is_chat else ("input_tokens", "output_tokens")
    return (
        fields.count(usage.get(given)),
        fields.count(usage.get(made)),
        _detail(usage, f"{made}_details", "reasoning_tokens"),
        _cached(usage, given),
        fields.count(fields.mapping(usage.get(f"{given}_details")).get("cache_write_tokens")),
    )


def _cached(usage: dict[str, Any], given: str) -> int | None:
    """Return the tokens read from a cache, which DeepSeek and Mistral have under names of their own."""
    found = _detail(usage, f"{given}_details", "cached_tokens")
    if found is None:
        found = fields.count(usage.get("prompt_cache_hit_tokens"))
    return fields.count(usage.get("num_cached_tokens")) if found is None else found


def _detail(usage: dict[str, Any], details: str, name: str) -> int | None:
    """Return a part of the tokens; Together has it flat, beside the sums."""
    found = fields.count(fields.mapping(usage.get(details)).get(name))
    return fields.count(usage.get(name)) if found is None else found


def without_thoughts(response: Response) -> Response:
    """Return a response whose text begins with `<think>...</think>` with that as its thoughts.

    Thoughts that were cut off leave an empty text. A template that opened the tag itself leaves only the end
    of it in the answer. Beside thoughts that the provider has kept apart (llama.cpp's `deepseek-legacy` has
    them twice) a tag at the beginning is taken out all the same.
    """
    text, apart = response.text, response.thoughts
    if not text or ("</think>" not in text and "<think>" not in text):
        return response
    if found := _THOUGHTS.fullmatch(text):
        thoughts, rest = found[1], found[2] or ""
    elif apart is None and text.count("</think>") == 1 and "<think>" not in text:
        thoughts, _, rest = text.partition("</think>")
    else:
        return response
    thoughts = thoughts.strip()
    both = thoughts if apart is None or apart.strip() == thoughts else "\n\n".join(filter(None, (apart, thoughts)))
    return response._replace(text=rest.strip(), thoughts=both or None)


def with_reasoning_counted(response: Response, total: int | None) -> Response:
    """Return a response whose output tokens include the reasoning, where `completion_tokens` leave it out.

    They do at xAI (recorded 2026-10); a total that adds up without the reasoning says that they do not.
    """
    output, reasoning = response.output_tokens, response.reasoning_tokens
    if output is None or not reasoning:
        return response
    if total is not None and response.input_tokens is not None and total == response.input_tokens + output:
        return response
    return response._replace(output_tokens=fields.count(output + reasoning))


Shape = TypeVar("Shape")
ReadLine = Callable[[bytes], Response | None]
Settle = Callable[[Response, int | None], Response]

Count = Annotated[int, Meta(ge=0, le=2**60)]
"""A number of tokens; sums of a few are counts too."""
Id = Annotated[str, Meta(min_length=1)]
Word = Annotated[str, Meta(max_length=200)]
PARTS = Meta(min_length=1, max_length=PARTS_MAX)


def reader(shape: type[Shape], id_name: str, read: Callable[[Shape], Response | None]) -> ReadLine:
    """Return what reads a line of a shape, and gives None for any other; a line that may name two ids is another."""
    decode, name = msgspec.json.Decoder(shape).decode, b'"%b"' % id_name.encode()

    def read_line(line: bytes) -> Response | None:
        if line.count(name) > 1:
            return None
        try:
            found = decode(line)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return read(found)

    return read_line


class _Details(Struct):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Usage(Struct):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    reasoning_tokens: Count | None = None
    cached_tokens: Count | None = None
    prompt_cache_hit_tokens: Count | None = None
    num_cached_tokens: Count | None = None

    def tokens(self) -> Tokens:
        given, made = self.prompt_tokens_details, self.completion_tokens_details
        reasoning = made.reasoning_tokens if made else None
        found = (given.cached_tokens if given else None, self.cached_tokens, self.prompt_cache_hit_tokens)
        cached = next((count for count in found if count is not None), self.num_cached_tokens)
        return (
            self.prompt_tokens,
            self.completion_tokens,
            self.reasoning_tokens if reasoning is None else reasoning,
            cached,
            given.cache_write_tokens if given else None,
        )


class _Message(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Said(Struct):
    message: _Message
    finish_reason: Word | None = None
    logprobs: None = None


class Completion(Struct):
    """A chat completion that went well, as far as it is looked at."""

    choices: Annotated[list[_Said], PARTS]
    model: str | None = None
    usage: _Usage | None = None
    object: Literal["chat.completion"] = "chat.completion"
    error: None = None


class _Answer(Struct):
    body: Completion
    status_code: Annotated[int, Meta(ge=200, le=299)]
    request_id: str | None = None


class _Line(Struct):
    custom_id: Id
    response: _Answer
    error: None = None


def read_completion(row: Row, body: Completion, settle: Settle) -> Response | None:
    """Return a completion made uniform, None for one that was broken off."""
    choice = body.choices[0]
    said, reason = choice.message, choice.finish_reason
    if reason in BROKEN_OFF:
        return None
    refusal = said.refusal or None
    texts = (said.content, said.reasoning_content or said.reasoning or None, refusal)
    finish, usage = finish_of(reason, said.content, refusal), body.usage
    tokens, n_in_all = (usage.tokens(), usage.total_tokens) if usage else (NO_TOKENS, None)
    return settle(answered(row, body.model, reason, finish, texts, tokens), n_in_all)


def chat(settle: Settle) -> ReadLine:
    """Return what reads a chat completion in its row; `settle` makes of it, and of its total of tokens, a dialect's."""

    def read(line: _Line) -> Response | None:
        answer = line.response
        return read_completion(Row(line.custom_id, answer.status_code, answer.request_id or None), answer.body, settle)

    return reader(_Line, "custom_id", read)
