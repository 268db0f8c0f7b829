"""What a task's answer rule is, and what it returns, whatever the task."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
from msgspec import Meta

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.model import Outcome, Response
from batchpond.tasks.templates import Placeholders

NUMBER_MAX: Final = 1e15

Text = Annotated[str, Meta(max_length=10_000)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1_000)]
Number = Annotated[float, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]


@dataclass(frozen=True, slots=True)
class Judgment:
    """A response as its task reads it; verdict, score and confidence only when `outcome` is decided or tie.

    `verdict` is first, second or tie for two items, true or false for a yes or no; `label` a word of the
    task's own, `score` a number on its scale, `confidence` from 0 to 1, `explanation` the judge's reason.
    A judge that says why it cannot decide leaves its explanation, and the label for that, without a verdict.
    """

    verdict: str | None
    outcome: Outcome
    label: str | None = None
    score: float | None = None
    confidence: float | None = None
    explanation: str | None = None


class Rule:
    """How a task's answers are asked for and read: the base of frozen dataclasses, one for each way to read one task.

    Their fields are the study's settings and the lake's record of them; what may stand in them is said by their types.
    `READER` tells two ways to read one task apart; a change of what a rule of the same fields reads needs another
    `PARSER_VERSION`.
    """

    TASK: ClassVar[str]
    PARSER_VERSION: ClassVar[int]
    READER: ClassVar[str] = ""
    PLACEHOLDERS: ClassVar[Placeholders]

    @property
    def parser_id(self) -> str:
        """The name of this way to read answers; another rule has another name."""
        text = json.dumps(self._fields(), sort_keys=True)
        name = f"{self.TASK}-{self.READER}" if self.READER else self.TASK
        return f"{name}-{self.PARSER_VERSION}-{ids.digest('answer', name, text, length=8)}"

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain."""
        return self.PLACEHOLDERS

    def values(self) -> dict[str, str]:
        """Return what the rule itself fills in, by placeholder."""
        return {}

    def check(self, where: str) -> None:
        """Raise StudyError when answers could not be read reliably by it."""

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer for providers that can hold a model to one, if there is one."""
        return None

    def read(self, response: Response) -> Judgment:
        """Return what a response says; total: any response gives a judgment."""
        raise NotImplementedError

    def _fields(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in _names(type(self))}

    def to_spec(self) -> dict[str, Any]:
        """Return the rule as `studies.parsers` keeps it."""
        return {"task": self.TASK, "reader": self.READER, **self._fields()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Return the rule that `to_spec` wrote; raises LakeError when it is damaged."""
        try:
            return msgspec.convert({name: spec[name] for name in _names(cls)}, cls)
        except KeyError as error:
            raise LakeError(f"a study's answer rule in the lake lacks {error}") from None
        except msgspec.ValidationError as error:
            raise LakeError(f"a study's answer rule in the lake is damaged: {error}") from None


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
