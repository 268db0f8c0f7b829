"""The base of answer rules: a frozen dataclass whose fields are the study's settings and the lake's spec."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from batchpond import ids
from batchpond.errors import LakeError, StudyError
from batchpond.model import Response
from batchpond.tasks.base import Judgment
from batchpond.tasks.templates import Placeholders

TEXT_MAX_CHARS: Final = 10_000
ENTRIES_MAX: Final = 1_000


@dataclass(frozen=True)
class TaskRule:
    """An answer rule whose fields are texts, numbers, true or false, lists of texts, or texts by name.

    `READER` tells two ways to read one task apart; a change of what a rule of the same fields reads
    needs another `PARSER_VERSION`.
    """

    TASK: ClassVar[str]
    PARSER_VERSION: ClassVar[int]
    READER: ClassVar[str] = ""

    @property
    def parser_id(self) -> str:
        """The name of this way to read answers; another rule has another name."""
        text = json.dumps(self._fields(), sort_keys=True)
        name = f"{self.TASK}-{self.READER}" if self.READER else self.TASK
        return f"{name}-{self.PARSER_VERSION}-{ids.digest('answer', name, text, length=8)}"

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain."""
        raise NotImplementedError

    def values(self) -> dict[str, str]:
        """Return what the rule itself fills in, by placeholder."""
        return {}

    def check(self, where: str) -> None:
        """Raise StudyError when answers could not be read reliably by it."""

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer, if it is JSON of a known form."""
        return None

    def read(self, response: Response) -> Judgment:
        """Return what a response says; total: any response gives a judgment."""
        raise NotImplementedError

    def _fields(self) -> dict[str, Any]:
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def to_spec(self) -> dict[str, Any]:
        """Return the rule as `studies.parsers` keeps it."""
        return {"task": self.TASK, "reader": self.READER, **self._fields()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Return the rule that `to_spec` wrote; raises LakeError when it is damaged."""
        values = {}
        for field in dataclasses.fields(cls):
            if field.name not in spec:
                raise LakeError(f"a study's answer rule in the lake lacks {field.name!r}")
            try:
                values[field.name] = _typed(_default(field), spec[field.name])
            except ValueError as error:
                raise LakeError(f"a study's answer rule in the lake is damaged: {field.name} {error}") from None
        return cls(**values)

    @classmethod
    def from_study(cls, settings: Mapping[str, Any], where: str) -> Self:
        """Return the rule that a study's settings describe, checked; raises StudyError. `where` names them."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        values = {}
        for name, value in settings.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"known keys here: {', '.join(known) or 'none'}"
                raise StudyError(f"{where}.{name} is not a setting of how {cls.TASK} answers are read", hint=hint)
            try:
                values[name] = _typed(_default(known[name]), value)
            except ValueError as error:
                raise StudyError(f"{where}.{name} {error}") from None
        rule = cls(**values)
        rule.check(where)
        return rule


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _typed(default: Any, value: Any) -> Any:
    """Return a value as the kind of the field's default; raises ValueError that says what it must be."""
    match default:
        case bool():
            return _is(isinstance(value, bool), value, "must be true or false")
        case int():
            return _is(isinstance(value, int) and not isinstance(value, bool), value, "must be a whole number")
        case float():
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            return float(_is(is_number and abs(value) <= 1e15, value, "must be a number, at most 1e15"))
        case str():
            return str(_is(_is_text(value), value, f"must be a text of at most {TEXT_MAX_CHARS:,} characters"))
        case tuple():
            is_list = isinstance(value, list | tuple) and len(value) <= ENTRIES_MAX and all(map(_is_text, value))
            return tuple(_is(is_list, value, f"must be a list of at most {ENTRIES_MAX:,} texts"))
        case _:
            is_table = isinstance(value, dict) and len(value) <= ENTRIES_MAX
            is_table = is_table and all(_is_text(part) for pair in value.items() for part in pair)
            return dict(_is(is_table, value, f"must be a table of at most {ENTRIES_MAX:,} texts"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_MAX_CHARS


def _is(is_right: bool, value: Any, problem: str) -> Any:
    if not is_right:
        raise ValueError(problem)
    return value
