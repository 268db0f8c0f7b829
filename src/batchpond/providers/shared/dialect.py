"""Requests and answers in words that most providers have: what bodies share, and the dialect of chat completions.

Which pictures and documents models take, in which words, and how many tokens they are, is `media` of `known.toml`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

import msgspec
import orjson

from batchpond import fields
from batchpond.errors import UsageError
from batchpond.lake.jsonl import Embedded
from batchpond.model import Media, Prompt, Response, Role, Turn
from batchpond.providers.base import Descriptor, table
from batchpond.providers.shared import lines
from batchpond.providers.shared.lines import ReadLine, Row

CHAT: Final = "/v1/chat/completions"
UNASKED: Final = "default"  # the word of a study that leaves thinking to the model
PDF: Final = "application/pdf"
UNKNOWN_TOKENS: Final = 10_000
PAGES_UNKNOWN: Final = 100
_CROPS: Final = (256, 768)
_BYTES: Final = "{bytes}"


@dataclass(frozen=True, kw_only=True)
class Count:
    """How models whose names match count: `base` tokens, and `each` for every square of `side` pixels, `most` of them.

    Each row of squares has `row` more. A picture is fitted to a `long` and a `short` side first. With `crops`, the side
    of a picture larger than that follows from it, as Gemini's guide has it. A page of a document is `page` at most.
    """

    models: str
    base: int = 0
    each: float = 0.0
    side: int = 1
    row: int = 0
    long: int = 0
    short: int = 0
    most: int = 0
    crops: int = 0
    page: int = 0

    def tokens(self, width: float, height: float) -> int:
        """Return the tokens of a picture of so many pixels; of one that the provider shrinks, the most it can be."""
        for most, of in ((self.long, max), (self.short, min)):
            factor = min(1.0, most / of(width, height)) if most else 1.0
            width, height = width * factor, height * factor
        side = self.side
        if max(width, height) > self.crops > 0:
            side = sorted((*_CROPS, int(min(width, height) / 1.5)))[1]
        n_across, n_rows = (math.ceil(round(part / side, 6)) for part in (width, height))
        n = n_across * n_rows
        return self.base + math.ceil(self.each * min(n, self.most or n)) + self.row * n_rows


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What a provider's models take: media `types`, each of at most so many bytes, and a request of so many.

    A picture has at most `max_side` pixels a side, where that is said. `takes_urls` where it fetches a picture itself,
    and a document at endpoints that match `document_urls`; models that match `blind` take nothing. `forms` are the
    parts of a message: a text, an image, a document, and the addresses of those.
    """

    types: Mapping[str, int] = field(default_factory=dict)
    max_request_bytes: int = 0
    max_side: int = 0
    takes_urls: bool = False
    document_urls: str = "$"
    blind: str = "$"
    counts: tuple[Count, ...] = ()
    forms: Mapping[str, Any] = field(default_factory=lambda: table("shared", "forms"))

    def parts(self, turn: Turn, prefix: str = "") -> list[dict[str, Any]]:
        """Return what a turn says and shows, in order; `prefix` begins the names of the forms."""
        return [_part(self.forms, prefix, one) for one in turn.parts or (turn.text,)]

    def refusal(self, model: str, media: Media, endpoint: str = "") -> str | None:
        """Return why a model cannot be shown something, None where it can."""
        if not self.types or re.match(self.blind, model, re.IGNORECASE):
            return "takes neither pictures nor documents"
        if media.url is not None and media.media_type == PDF:
            is_taken = endpoint and re.match(self.document_urls, endpoint)
            return None if is_taken else f"takes no addresses of documents at {endpoint}, only what is sent along"
        if media.url is not None:
            return None if self.takes_urls else "takes no addresses of pictures, only what is sent along"
        if (most := self.types.get(media.media_type)) is None:
            return f"takes no {media.media_type}, only {', '.join(self.types)}"
        if max(media.width or 0, media.height or 0) > self.max_side > 0:
            return f"takes at most {self.max_side:,} pixels a side, not {media.width} x {media.height}"
        return None if media.size_bytes <= most else f"takes at most {most:,} bytes at once, not {media.size_bytes:,}"

    def tokens(self, model: str, media: Media) -> tuple[int, bool]:
        """Return how many tokens something counts as, and whether that is documented: else it counts as very large."""
        count = next((one for one in self.counts if re.match(one.models, model, re.IGNORECASE)), None)
        if media.media_type == PDF:
            known = (media.n_pages or 0) * (count.page if count else 0)
            return known or UNKNOWN_TOKENS * (media.n_pages or PAGES_UNKNOWN), known > 0
        if count is None or media.width is None or media.height is None:
            return UNKNOWN_TOKENS, False
        return count.tokens(media.width, media.height), True


def _part(forms: Mapping[str, Any], prefix: str, one: str | Media) -> Any:
    if isinstance(one, str):
        return {**forms[f"{prefix}text"], "text": one}
    kind = ("document" if one.media_type == PDF else "image") + ("_address" if one.url else "")
    return _filled(forms[prefix + kind], one)


def _filled(form: Any, media: Media) -> Any:
    if isinstance(form, dict):
        return {name: _filled(value, media) for name, value in form.items()}
    text = str(form).removesuffix(_BYTES).format(type=media.media_type, url=media.url)
    return Embedded(text, media) if form.endswith(_BYTES) else text


UNSEEN: Final = Sight()


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model of a study, as its provider's `build_body` needs it.

    `output_schema` is the JSON schema that an answer is to be held to, in the subset that all providers take; it goes
    into the body as the object that it is. With `logprobs` the answer's tokens come with their log probabilities.
    """

    request_model: str
    endpoint: str
    thinking: str | None = None
    include_thoughts: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    parameters: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class BuiltBody:
    """A request body, with what the provider's rules made batchpond leave out.

    `max_output_tokens` is the limit that the body carries though the study gave none.
    """

    body: dict[str, Any]
    dropped: tuple[str, ...] = ()
    max_output_tokens: int | None = None


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


_DROP_HINT: Final = "change the study's thinking levels for this model, or let the study drop what is refused"


def refused_thinking(settings: ModelSettings, accepted: str, where: str = "", hint: str = _DROP_HINT) -> UsageError:
    """Return the refusal of a thinking word that means nothing to a model; `where` begins with a space."""
    refusal = f"model {settings.request_model} does not accept thinking {settings.thinking!r}{where}"
    return UsageError(f"{refusal}; {accepted}", hint=hint)


SCHEMA: Final = "structured output"
"""What a body is told to lack whose model cannot be held to a schema."""
SCHEMA_NAME: Final = "answer"


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `response_format` of a chat body that holds the answer to a schema, in OpenAI's form."""
    return {"type": "json_schema", "json_schema": {"name": SCHEMA_NAME, "schema": schema, "strict": True}}


def apart(prompt: Prompt) -> tuple[str | None, Prompt]:
    """Return what the system says, None where it says nothing, and the rest, for who takes them apart."""
    if isinstance(prompt, str) or prompt[0].role is not Role.SYSTEM:
        return None, prompt
    return prompt[0].text, prompt[1:]


def messages(prompt: Prompt, dialect: Dialect | None = None, prefix: str = "") -> list[dict[str, Any]]:
    """Return a prompt as chat messages; what shows something has parts, in the forms that begin with `prefix`."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    sight = UNSEEN if dialect is None else dialect.sight
    said = ((turn, sight.parts(turn, prefix) if turn.parts else turn.text) for turn in prompt)
    return [{"role": str(turn.role), "content": content} for turn, content in said]


def check_endpoint(settings: ModelSettings, descriptor: Descriptor) -> None:
    """Raise UsageError for an endpoint that a provider has not."""
    known = descriptor.endpoints
    if settings.endpoint not in known:
        wanted = f"one of {', '.join(known)}" if len(known) > 1 else f"{known[0]}, the only one of {descriptor.name}"
        raise UsageError(f"model {settings.request_model}: endpoint {settings.endpoint!r} is not {wanted}")


def on_one_line(custom_id: str, body: bytes) -> bytes:
    """Return a body as it is; raises UsageError for one that would become two requests."""
    if b"\n" in body:
        raise UsageError(f"request {custom_id}: a body must be JSON on one line")
    return body


BARE_LINE: Final = b'{"custom_id":%(id)b,"body":%(body)b}'
"""The form of lines that name no path, which the batch does."""


class Dialect(ABC):
    """The pure half of a provider: building lines before, reading lines after.

    `id_name` is what a result line calls its custom_id. A live answer has one of `answer_members`; the first names what
    another lacks. `line_form` is the form of a line of a batch input file, by what stands in it: `id`, `endpoint` and
    `body`.
    """

    DESCRIPTOR: Descriptor
    id_name = "custom_id"
    answer_members: tuple[str, ...]
    line_form: bytes = BARE_LINE

    @cached_property
    def sight(self) -> Sight:
        """What its models can be shown; where its file says nothing of media, none are taken."""
        return msgspec.convert(table(self.DESCRIPTOR.name, "media", {}), Sight)

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG002
        """Return the endpoint to use where a study names none: the first, unless something speaks for another."""
        return self.DESCRIPTOR.endpoints[0]

    def caveats(self, model: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return what to know about one model before money is spent, besides the provider's caveats."""
        return ()

    def effort(self, model: str, thinking: str) -> str:  # noqa: ARG002
        """Return how hard a model thinks by a study's word: as it says, or a number of tokens it may take."""
        return thinking

    def logprobs(self, settings: ModelSettings, *, is_taken: bool = True) -> Mapping[str, Any]:
        """Return what a body says where log probabilities are wanted; raises UsageError where there are none."""
        if settings.logprobs and not (is_taken and self.DESCRIPTOR.logprobs):
            raise UsageError(f"model {settings.request_model} gives no log probabilities as it is asked")
        return self.DESCRIPTOR.logprobs if settings.logprobs else {}

    @abstractmethod
    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the request body for a prompt; raises UsageError for what the model refuses."""

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one line of a batch input file, without its line feed; `body` is used as it is."""
        named = {b"id": orjson.dumps(custom_id), b"endpoint": orjson.dumps(endpoint)}
        return self.line_form % {**named, b"body": on_one_line(custom_id, body)}

    def marked(self, body: bytes, cache: str) -> bytes:  # noqa: ARG002
        """Return a body with marks of what a cache is to keep for so long: the same where a provider has no marks."""
        return body

    def kept_from(self, model: str) -> int:  # noqa: ARG002
        """Return of how many tokens on a cache keeps what is marked; 0 where that is not known."""
        return 0

    @abstractmethod
    def read_row(self, row: dict[str, Any]) -> Response:
        """Return a result line's object made uniform, total over any JSON."""

    @abstractmethod
    def read_body(self, row: Row, body: dict[str, Any]) -> Response:
        """Return the body of a success made uniform, total over any JSON; `row` is what stands around it."""

    def is_answer(self, body: dict[str, Any]) -> bool:
        """Return whether the body of a live call that went well is an answer at all."""
        return not body.keys().isdisjoint(self.answer_members)

    @cached_property
    def straight(self) -> ReadLine | None:
        """What reads a well-formed success as `read_any_line` does, only sooner; None for other lines, or for all."""
        return None

    def read_line(self, line: bytes) -> Response:
        """Return a result line made uniform; total: any bytes give a Response."""
        found = None if self.straight is None else self.straight(line)
        return self.read_any_line(line) if found is None else found

    def read_any_line(self, line: bytes) -> Response:
        """Return a result line made uniform by looking at each of its members; total.

        A line that is no JSON object, or that names two ids, is UNREADABLE; see `load_row`.
        """
        row = lines.load_row(line, self.id_name)
        return lines.unreadable(None, row) if isinstance(row, str) else self.read_row(row)

    def read_answer(self, status_code: int, body: bytes) -> Response:
        """Return a live call's final answer made uniform, without a custom_id; total: any bytes give a Response."""
        found = lines.success_of(status_code, body)
        if isinstance(found, Response):
            return found
        if not self.is_answer(found):
            return lines.unreadable(None, f"the answer has no {self.answer_members[0]}", status_code)
        return self.read_body(Row(None, status_code), found)


class ChatDialect(Dialect):
    """Chat completions as OpenAI has them, and all who copy it; a provider says what differs.

    `reserved` are the parameters that a study cannot pass through, and what sets them; `limit_name` is what the limit
    of the output is called.
    """

    answer_members = ("choices", "output")
    # As `vllm run-batch` reads it too.
    line_form = b'{"custom_id":%(id)b,"method":"POST","url":%(endpoint)b,"body":%(body)b}'
    reserved: ClassVar[Mapping[str, str]]
    limit_name: str = "max_tokens"

    def words(self, model: str) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002
        """Return the thinking words that a model takes, and what each puts into a body."""
        return {}

    def takes_schema(self, model: str) -> bool:  # noqa: ARG002
        """Return whether a model's answers can be held to a JSON schema."""
        return True

    def refusal(self, settings: ModelSettings) -> UsageError:
        """Return the refusal of a thinking word that a model is not known to take."""
        return refused_thinking(settings, f"it accepts {', '.join(self.words(settings.request_model))}")

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the chat body for a prompt; thoughts come back where the server tells them apart, asked for or not.

        A schema is left out, and named in `dropped`, where the model does not take one. Raises UsageError for
        another endpoint, and for a thinking word that is not known to mean anything to the model.
        """
        check_endpoint(settings, self.DESCRIPTOR)
        body: dict[str, Any] = {"model": settings.request_model, "messages": messages(prompt, self)}
        if settings.max_output_tokens is not None:
            body[self.limit_name] = settings.max_output_tokens
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.thinking is not None:
            words = self.words(settings.request_model)
            if settings.thinking not in words:
                raise self.refusal(settings)
            body |= words[settings.thinking]
        dropped: tuple[str, ...] = ()
        if settings.output_schema is not None:
            if self.takes_schema(settings.request_model):
                body["response_format"] = response_format(settings.output_schema)
            else:
                dropped = (SCHEMA,)
        body |= self.logprobs(settings)
        add_parameters(body, settings, self.reserved)
        return BuiltBody(body, dropped)

    @cached_property
    def straight(self) -> ReadLine:
        """What reads a well-formed chat completion in its row."""
        return lines.chat(self.settle)

    def settle(self, response: Response, total_tokens: int | None) -> Response:  # noqa: ARG002
        """Return a completion as this provider means it; `total_tokens` is the sum that it gave."""
        return response

    def read_body(self, row: Row, body: dict[str, Any]) -> Response:
        """Return the body of a chat completion made uniform."""
        total_tokens = fields.count(fields.mapping(body.get("usage")).get("total_tokens"))
        return self.settle(lines.read_chat(row, body), total_tokens)

    def read_row(self, row: dict[str, Any]) -> Response:
        """Return a row of an output or error file made uniform: either may hold rows of both kinds."""
        return lines.read_row(row, self.read_body)
