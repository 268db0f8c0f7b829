"""What a task's answer rule is and what it returns, whatever the task, and what every task's reader shares.

That is why there is no answer, numbers, texts that can be stored, answers on a line.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
from msgspec import Meta

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.model import Finish, Outcome, Response, ResponseStatus
from batchpond.tasks.templates import Placeholders

NUMBER_MAX: Final = 1e15
READER: Final = 2
"""The newest way of reading answers: 1 takes what stands in the asked form for an answer, 2 reads with care."""

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

    def read_with_care(self, response: Response) -> Judgment:
        """Return what a response says as reader 2 reads it; a rule that has only one reads as ever."""
        return self.read(response)

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


EXPLANATION_MAX_CHARS: Final = 20_000
_NOT_ANSWERED: Final = {
    ResponseStatus.ERRORED: Outcome.ERROR,
    ResponseStatus.UNREADABLE: Outcome.ERROR,
    ResponseStatus.EXPIRED: Outcome.EXPIRED,
    ResponseStatus.CANCELLED: Outcome.CANCELLED,
}
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)


def not_answered(response: Response) -> Outcome | None:
    """Return why a response's text does not count at all, or None when it does."""
    if response.status is not ResponseStatus.SUCCEEDED:
        return _NOT_ANSWERED[response.status]
    if response.finish is Finish.BLOCKED:
        return Outcome.BLOCKED
    return Outcome.REFUSED if response.finish is Finish.REFUSAL else None


def why_no_answer(response: Response) -> Outcome:
    """Return the outcome of a text in which no answer was found."""
    if response.refusal:
        return Outcome.REFUSED
    if response.finish is Finish.LENGTH:
        return Outcome.TRUNCATED
    return Outcome.UNPARSED if (response.text or "").strip() else Outcome.EMPTY


def read(response: Response, reader: Callable[[str], Judgment | None]) -> Judgment:
    """Return what `reader` finds in the visible text, or why there is nothing; None from it is nothing.

    An answer that `reader` saw but could not use (unparsed) is named by what came with the response.
    """
    outcome = not_answered(response)
    if outcome is not None:
        return Judgment(None, outcome)
    found = reader(response.text or "")
    if found is None or found.outcome is Outcome.UNPARSED:
        return Judgment(None, why_no_answer(response))
    return found


def whole_lines(response: Response) -> Callable[[str], list[str]]:
    """Return how to split a response's text: without its last line where the text was cut in it.

    `Model: A` may be the beginning of `Model: A and B are equal`.
    """
    is_cut = response.finish is Finish.LENGTH
    return lambda text: (text + "?").splitlines()[:-1] if is_cut else text.splitlines()


def agreed(readings: Sequence[Judgment]) -> Judgment | None:
    """Return the last of several readings of one text if they say the same, else ambiguous.

    Readings that could not be used (unparsed) count only when there is no other: a judge may repeat
    the form that it was shown before it fills it in. None when there is no reading.
    """
    usable = [reading for reading in readings if reading.outcome is not Outcome.UNPARSED]
    if not usable:
        return readings[-1] if readings else None
    if len({(reading.outcome, reading.verdict, reading.label, reading.score) for reading in usable}) > 1:
        return Judgment(None, Outcome.AMBIGUOUS)
    return usable[-1]


def storable(text: str, size_max: int = EXPLANATION_MAX_CHARS) -> str | None:
    """Return a text as a table can keep it, cut to `size_max` characters; None when it is blank.

    Half a surrogate pair, which JSON can escape but UTF-8 cannot say, becomes a question mark.
    """
    return text[:size_max].encode("utf-8", "replace").decode("utf-8").strip() or None


def explanation(value: object) -> str | None:
    """Return a judge's reason, which must be a text; all of it stays in `responses.text`."""
    return storable(value) if isinstance(value, str) else None


def number(value: object) -> float | None:
    """Return a finite number, also one written as a text; true and false are none."""
    if isinstance(value, str):
        text = value.strip()
        value = float(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def confidence(value: object) -> float | None:
    """Return a number from 0 to 1, also from a text with a per cent sign; anything else is unknown."""
    is_percent = isinstance(value, str) and value.rstrip().endswith("%")
    found = number(value.rstrip()[:-1] if isinstance(value, str) and is_percent else value)
    if found is None:
        return None
    share = found / 100 if is_percent else found
    return share if 0 <= share <= 1 else None


_BULLETS: Final = re.compile(r"\s*(?:[-+*\u2022]\s+|>\s*)*+")
_AROUND: Final = "*_`#\"'(){}[]\u201c\u201d\u2018\u2019\u00ab\u00bb"
_MARKUP: Final = str.maketrans("", "", _AROUND)
_MARKUP_OF_WORDS: Final = str.maketrans("", "", _AROUND + "<>~$\\")


def _bare(line: str, markup: dict[int, int | None]) -> str:
    return "".join(line.translate(markup).split()).casefold().rstrip(".,;!")


def bare_words(line: str) -> str:
    """Return a line without white space, case, bullets, quotes, brackets, emphasis and its last full stop."""
    return _bare(line[_end_of_bullets(line) :], _MARKUP_OF_WORDS)


def bare_number(line: str, prefix: str = "") -> str | None:
    """Return what follows a bare prefix on a line, with every sign that could belong to a number: `-3`, `<3`.

    None when the line begins otherwise. Only with a prefix can a bullet be told from a minus.
    """
    text = _bare(line, _MARKUP)
    if prefix:
        text = text.lstrip("-+>\u2022")
    return text.removeprefix(prefix) if text.startswith(prefix) else None


def _end_of_bullets(line: str) -> int:
    match = _BULLETS.match(line)
    return match.end() if match else 0
