"""Building Vertex AI requests and input lines: Gemini's, held to what can be loaded as a table.

The check that Vertex AI's import makes is made before sending. Recorded failures of 2026 (`error.code 3`, "Failed to
import data"): the whole job fails, unbilled, when a JSON key holds two types over the file, a null, an empty object,
an array of arrays, a name that is no column name, or more than 15 levels. Nothing documents the rules; they are those
of a BigQuery load.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond.errors import ProviderError, UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.gemini import body as gemini_body
from batchpond.providers.shared.lines import on_one_line

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


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    return gemini_body.caveats(bare_model(model))


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the `request` of an input line, as `gemini_body.build_body` does for the same model.

    Numbers that may be fractions always are, so that 0 and 0.5 make one column. Raises UsageError for
    what the model refuses, and for parameters that Vertex AI could not load.
    """
    model_path(settings.request_model)
    known = dataclasses.replace(settings, request_model=bare_model(settings.request_model))
    built = gemini_body.build_body(prompt, known)
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


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG001  # the job names the model
    """Return one line of a batch input file, without its line feed; `body` is used as it is.

    Vertex AI documents no key, but gives unknown keys beside `request` back (recorded traffic of 2026). It
    turns text that looks like a number into one, so that the id begins with a letter.
    """
    return b'{"custom_id":%b,"request":%b}' % (orjson.dumps(_ID_HEAD + custom_id), on_one_line(custom_id, body))


def own_id(written: str | None) -> str | None:
    """Return the custom_id that `payload_line` wrote, or a foreign one as it is."""
    ours = _OUR_ID.fullmatch(written or "")
    return ours[1] if ours else written


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


@dataclass(slots=True)
class _Column:
    """What a key has held so far, and first on which line; `kind` None is nothing yet."""

    name: str
    kind: str | None = None
    line: int = 0
    members: dict[str, _Column] = field(default_factory=dict)


class Table:
    """The columns that lines come to, one line after the other."""

    def __init__(self) -> None:
        self._root = _Column("the line")

    def add(self, row: object, line: int) -> None:
        """Take one more row in; raises ImportRuleError that names the key, and the line it is at odds with."""
        self._put(self._root, row, line, "", 0)

    def _put(self, column: _Column, value: object, line: int, path: str, level: int) -> None:
        kind = _kind(value, path)
        if kind != _EMPTY:
            if column.kind is None:
                column.kind, column.line = kind, line
            elif column.kind != kind:
                where = "" if column.line == line else f" as on line {column.line}"
                raise ImportRuleError(f"{path or column.name} is {kind}, not {column.kind}{where}")
        rows = value if isinstance(value, list) else [value]
        for row in rows:
            if isinstance(row, dict):
                self._members(column, row, line, path, level + 1)

    def _members(self, column: _Column, row: dict[str, Any], line: int, path: str, level: int) -> None:
        if level > LEVELS_MAX:
            raise ImportRuleError(f"{path} is nested deeper than {LEVELS_MAX} levels")
        for name, value in row.items():
            below = f"{path}.{name}" if path else name
            known = column.members.get(name.lower())
            if known is None:
                if not _COLUMN.fullmatch(name):
                    raise ImportRuleError(f"the key {below} is no column name")
                known = column.members[name.lower()] = _Column(name)
            elif known.name != name:
                raise ImportRuleError(f"the key {below} is {known.name} elsewhere: columns ignore case")
            self._put(known, value, line, below, level)


def _kind(value: object, path: str) -> str:
    """Return what a value is to a table; raises ImportRuleError for what none can hold."""
    if value is None or value == {}:
        raise ImportRuleError(f"{path or 'the line'} is {'null' if value is None else 'an empty object'}")
    if isinstance(value, list):
        return _array_kind(value, path) if value else _EMPTY
    return _KINDS[dict if isinstance(value, dict) else type(value)]


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
