"""Vertex AI's requests and answers: Gemini's, held to what can be loaded as a table.

The check that Vertex AI's import makes is made before sending. Recorded failures of 2026 (`error.code 3`, "Failed to
import data"): the whole job fails, unbilled, when a JSON key holds two types over the file, a null, an empty object,
an array of arrays, a name that is no column name, or more than 15 levels. Nothing documents the rules; they are those
of a BigQuery load.

A row is `{custom_id, request, response, status, processed_time}`; it failed when `status` is not empty or `response`
is missing. What stands after the first ": " of a status is the error's JSON (recorded traffic of 2026); older
rows have `response` "" then.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.errors import ProviderError, UsageError
from batchpond.model import Mode, Prompt, Response
from batchpond.providers import base
from batchpond.providers.gemini.dialect import FAMILIES, GENERATE, Gemini, WholeRow, read_whole
from batchpond.providers.shared.dialect import BuiltBody, ModelSettings, on_one_line
from batchpond.providers.shared.lines import Id, ReadLine, reader

SETTINGS: Final = base.table("vertex", "settings")
CREDENTIALS_ENV: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_QUOTA_ENV: Final = "GOOGLE_CLOUD_QUOTA_PROJECT"
PUBLISHER: Final = "publishers/google/models/"
_MODEL_PATH: Final = re.compile(r"(?:projects/[^/]+/locations/[^/]+/)?(?:publishers/[^/]+/)?models/[^/]+(?:@[^/]+)?")
_FRACTIONS: Final = ("temperature", "topP", "topK", "presencePenalty", "frequencyPenalty")
_ID_HEAD: Final = "k"
_OUR_ID: Final = re.compile(rf"{_ID_HEAD}([a-z2-7]{{10}}-[a-z2-7]{{20}})")


def model_path(model: str) -> str:
    """Return the name that a job takes for a model; raises UsageError for one that names something else."""
    path = model if "/" in model else PUBLISHER + model
    if not _MODEL_PATH.fullmatch(path) or "/anthropic/" in path:
        raise UsageError(
            f"model {model!r} is not a Gemini model of Vertex AI",
            hint=f"write gemini-2.5-flash, or {PUBLISHER}gemini-2.5-flash",
        )
    return path


def bare_model(model: str) -> str:
    """Return a model's own name, without the path before it."""
    return model.rpartition("/")[2]


def own_id(key: str) -> str:
    """Return the custom_id that was sent as a key."""
    ours = _OUR_ID.fullmatch(key)
    return ours[1] if ours else key


class Vertex(Gemini):
    """What is asked of Gemini's models on Vertex AI, and what they answer."""

    id_name = "custom_id"
    DESCRIPTOR = base.descriptor(
        "vertex",
        endpoints=(GENERATE,),
        modes=(Mode.BATCH,),
        header_env=(("x-goog-user-project", _QUOTA_ENV),),
        settings=tuple((name, about["variable"]) for name, about in SETTINGS.items()),
        credentials_env=(CREDENTIALS_ENV,),
        nearest=lambda model: FAMILIES.nearest(bare_model(model)),
    )

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model before money is spent on it."""
        return super().caveats(bare_model(model))

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the `request` of an input line, as Gemini's is for the same model.

        Numbers that may be fractions always are, so that 0 and 0.5 make one column. Raises UsageError for
        what the model refuses, and for parameters that Vertex AI could not load.
        """
        model_path(settings.request_model)
        built = super().build_body(
            prompt, dataclasses.replace(settings, request_model=bare_model(settings.request_model))
        )
        generation: dict[str, Any] = built.body.get("generationConfig", {})
        for name in _FRACTIONS:
            value = generation.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                generation[name] = float(value)
        try:
            Table().add({"request": built.body}, 1)
        except ImportRuleError as error:
            raise UsageError(f"model {settings.request_model}: {error}", hint=HINT) from None
        return built

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG002  # the job names the model
        """Return one line of a batch input file, without its line feed; `body` is used as it is.

        Vertex AI documents no key, but gives unknown keys beside `request` back (recorded traffic of 2026). It
        turns text that looks like a number into one, so that the id begins with a letter.
        """
        return b'{"custom_id":%b,"request":%b}' % (orjson.dumps(_ID_HEAD + custom_id), on_one_line(custom_id, body))

    @cached_property
    def straight(self) -> ReadLine:
        """What reads a well-formed row: Gemini's, under an id that begins with a letter."""
        return reader(_Line, self.id_name, lambda line: read_whole(line, own_id(line.custom_id)))

    def read_row(self, row: dict[str, Any]) -> Response:
        """Return one row of a result file made uniform.

        Its custom_id is what was sent without the letter before it; an id that came back as anything but text
        is none. What the answer and the error hold is read as the Gemini API's rows are.
        """
        key = fields.identifier(row.get("custom_id"))
        return self.read_result(
            None if key is None else own_id(key), row.get("response"), _status(row.get("status")), row.get("error")
        )


DIALECT: Final = Vertex()


class _Line(WholeRow, kw_only=True):
    custom_id: Id


LEVELS_MAX: Final = 15
HINT: Final = (
    "Vertex AI loads the input file as a table: a key holds one type over all lines, never null or {}, and its name"
    " has letters, digits and _ only; change the model's parameters so, or ask it in a study of its own"
)
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,299}")
_EMPTY: Final = "an empty array"
_KINDS: Final = {bool: "true or false", str: "text", int: "a whole number", float: "a fraction", dict: "an object"}


class ImportRuleError(ValueError):
    """Why a line, or a line after the others, cannot be loaded."""


class Table:
    """The columns that lines come to, one line after the other.

    Of each path, in lower case, it is known how its name is written, and what it has held so far, first on which line.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._held: dict[str, tuple[str, int]] = {}

    def add(self, row: object, line: int) -> None:
        """Take one more row in; raises ImportRuleError that names the key, and the line it is at odds with."""
        self._put(row, line, "", 0)

    def _put(self, value: object, line: int, path: str, level: int) -> None:
        kind = _kind(value, path)
        if kind != _EMPTY:
            held, first = self._held.setdefault(path.lower(), (kind, line))
            if held != kind:
                where = "" if first == line else f" as on line {first}"
                raise ImportRuleError(f"{path or 'the line'} is {kind}, not {held}{where}")
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, dict):
                self._members(row, line, path, level + 1)

    def _members(self, row: dict[str, Any], line: int, path: str, level: int) -> None:
        if level > LEVELS_MAX:
            raise ImportRuleError(f"{path} is nested deeper than {LEVELS_MAX} levels")
        for name, value in row.items():
            below = f"{path}.{name}" if path else name
            if below.lower() not in self._names and not _COLUMN.fullmatch(name):
                raise ImportRuleError(f"the key {below} is no column name")
            known = self._names.setdefault(below.lower(), name)
            if known != name:
                raise ImportRuleError(f"the key {below} is {known} elsewhere: columns ignore case")
            self._put(value, line, below, level)


def _kind(value: object, path: str) -> str:
    """Return what a value is to a table; raises ImportRuleError for what none can hold."""
    if value is None or value == {}:
        raise ImportRuleError(f"{path or 'the line'} is {'null' if value is None else 'an empty object'}")
    if isinstance(value, list):
        return _array_kind(value, path) if value else _EMPTY
    return _KINDS[next((kind for kind in (dict, str) if isinstance(value, kind)), type(value))]


def _array_kind(items: list[Any], path: str) -> str:
    if any(isinstance(item, list) for item in items):
        raise ImportRuleError(f"{path} is an array of arrays")
    kinds = {_kind(item, path) for item in items}
    if len(kinds) > 1:
        raise ImportRuleError(f"{path} holds {' and '.join(sorted(kinds))}")
    return f"an array of {kinds.pop()}"


def check_payload(path: Path) -> None:
    """Raise ProviderError, with the line and the key, for an input file that Vertex AI would refuse whole."""
    table = Table()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                table.add(orjson.loads(line), number)
            except (ImportRuleError, orjson.JSONDecodeError) as error:
                message = f"line {number} of {path.name} would fail the whole batch: {error}; no batch exists"
                raise ProviderError(message, hint=HINT) from None


_PHRASES: Final = {status.phrase.lower(): status.value for status in HTTPStatus if status >= 400}
_WORD: Final = re.compile(r"\b(?:[A-Z]{3,}_[A-Z_]{3,}|INTERNAL|UNAVAILABLE|CANCELLED|ABORTED)\b")
_CODE_OF: Final = base.table("vertex", "statuses")


def _status(status: object) -> object:
    """Return a row's status as a google.rpc.Status object, what is no text as it is."""
    if not isinstance(status, str) or not status.strip():
        return None if isinstance(status, str) else status
    phrase, _, rest = status.partition(": ")
    said = fields.json_object(rest)
    error = fields.mapping(said.get("error")) or said
    if error.get("message") or error.get("code"):
        return error
    # Without JSON it has a code by Google's word for it, or by HTTP's phrase.
    word = _WORD.search(status)
    name = word[0] if word else None
    code = _CODE_OF.get(name or "") or _PHRASES.get(phrase.strip().lower())
    return {"message": status} | ({"code": code} if code else {}) | ({"status": name} if name else {})
