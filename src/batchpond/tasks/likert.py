"""The likert task: a rating on a scale, read from `{rating, explanation}` or from a line `Rating: 4`.

A rating may be written as a text, also as `4/5` where 5 is the end of the scale. One outside the scale, or
between whole numbers where the scale has only those, is unparsed: nothing is rounded or cut to fit. Two
ratings that differ are ambiguous. With the form `line`, the number stands alone on a line after the
prefix, which may be blank, and the last line of a text that was cut for length is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

from batchpond.errors import StudyError
from batchpond.model import Outcome
from batchpond.tasks import base, structured
from batchpond.tasks.base import Care, Judgment, Logprobs, Number, Text, bare_number
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "likert"
FORMS: Final = ("json", "line")
_OF_MAX: Final = re.compile(r"([^/o]{1,40}+)(?:/|out\s{0,9}of|of)([^/]{1,40})")


@dataclass(frozen=True)
class LikertRule(structured.ObjectRule):
    """The scale, its ends included, and how a rating is written."""

    TASK: ClassVar[str] = TASK
    SAYS: ClassVar[tuple[str, ...]] = ("text", "score", "explanation")
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("STATEMENT", "OUTPUT"), ("INPUT", *STATEMENT_PLACEHOLDERS, "SCALE_MIN", "SCALE_MAX", "ANSWER_FORMAT")
    )

    minimum: Number = 1.0
    maximum: Number = 5.0
    is_whole: bool = True
    form: Text = "json"
    key: Text = "rating"
    prefix: Text = "Rating:"
    logprobs: Logprobs = False

    @property
    def number(self) -> str:
        """What a rating is, in words."""
        return f"a {'whole ' if self.is_whole else ''}number from {self.minimum:.15g} to {self.maximum:.15g}"

    @cached_property
    def allowed(self) -> Mapping[str, float]:
        """Each rating by its digits, where the expected one is read."""
        return {str(n): float(n) for n in range(int(self.minimum), int(self.maximum) + 1)} if self.logprobs else {}

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """Each whole rating of the scale."""
        last = int(min(self.maximum, self.minimum + base.SCALE_LISTED_MAX))
        return {TASK: tuple(str(n) for n in range(int(self.minimum), last + 1))}

    def values(self) -> dict[str, str]:
        """Return the scale and how the answer is asked for, by placeholder."""
        line = f"{self.prefix.rstrip()} <{self.number}>".lstrip()
        return {
            "SCALE_MIN": f"{self.minimum:.15g}",
            "SCALE_MAX": f"{self.maximum:.15g}",
            "ANSWER_FORMAT": self._asked({self.key: self.number}) if self.form == "json" else line,
        }

    def check(self, where: str) -> None:
        """Raise StudyError for a scale without room or a form that does not exist."""
        if not self.minimum < self.maximum:
            raise StudyError(f"{where}: the scale from {self.minimum:.15g} to {self.maximum:.15g} has no room")
        if self.is_whole and not (self.minimum.is_integer() and self.maximum.is_integer()):
            raise StudyError(f"{where}: a scale of whole numbers ends in whole numbers")
        if self.logprobs and not (self.is_whole and self.minimum >= 0 and self.maximum <= 100):  # written in one token
            raise StudyError(f"{where}.logprobs needs a scale of whole numbers from 0 to at most 100")
        if self.form not in FORMS:
            raise StudyError(f"{where}.form is {self.form!r}, not one of {', '.join(FORMS)}")
        super().check(where)
        if any(sign.isdigit() for sign in self.prefix):
            raise StudyError(f"{where}.prefix has a digit, which would be read as part of the rating")

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer; none for the form `line`."""
        if self.form != "json":
            return None
        kind = "integer" if self.is_whole else "number"
        return self._schema({self.key: {"type": kind, "description": self.number}})

    def _found(self, text: str) -> Judgment | None:
        if self.form == "json":
            return super()._found(text)
        return base.agreed(self._on_lines(text.splitlines()))

    def _left_of_cut(self, text: str) -> str:
        return text if self.form == "json" else base.whole_lines(text)

    def _found_with_care(self, text: str, care: Care) -> Judgment | None:
        if "star" in text or "point" in text or "out of" in text:
            text = care.guards["unit"].sub(r"\1", care.guards["out_of"].sub(r"\1/", text))
        if self.form == "json":
            return super()._found_with_care(text, care)
        shown = care.guards["remark"].sub(lambda found: f"{found[1]}\n", base.plain(text))
        places = [base.Found(match[0], *match.span()) for match in _WITH_DIGIT.finditer(shown)]
        return care.meant(shown, [(one, place) for place in places for one in self._on_lines([place.words])])

    def _on_lines(self, lines: list[str]) -> list[Judgment]:
        prefix = bare_number(self.prefix)
        ratings = [self.rating(bare_number(line, prefix or "")) for line in lines]
        return [Judgment(None, Outcome.DECIDED, score=rating) for rating in ratings if rating is not None]

    def _bare(self, value: object) -> object:
        """Return a rating written with words or markup as the number in it, where it has but one."""
        if not isinstance(value, str):
            return value
        text = value.strip().strip("*_`'\"()[]!.").casefold()
        with_words = _WITH_WORDS.fullmatch(text)
        return str(_NUMBERS.index(text)) if text in _NUMBERS else with_words[1] if with_words else text

    def _reading(self, found: structured.Object) -> Judgment:
        value, reason = found[structured.fold(self.key)], self._reason(found)
        if value is None:
            return Judgment(None, Outcome.UNSURE, explanation=reason)
        rating = self.rating(value)
        outcome = Outcome.UNPARSED if rating is None else Outcome.DECIDED
        return Judgment(None, outcome, score=rating, explanation=reason)

    def rating(self, value: object) -> float | None:
        """Return a rating on the scale, None for any other value."""
        if isinstance(value, str) and (match := _OF_MAX.fullmatch(value.strip())):
            value = match[1] if base.number(match[2]) == self.maximum else None
        rating = base.number(value)
        if rating is None or not self.minimum <= rating <= self.maximum:
            return None
        return None if self.is_whole and not rating.is_integer() else rating


_NUMBERS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WITH_DIGIT: Final = re.compile(r"^[^\n]*\d[^\n]*", re.MULTILINE)
_WITH_WORDS: Final = re.compile(r"([+-]?\d[\d./ ]{0,20}?)\s*[-\u2013\u2014:,.(]\s*[^\W\d]\D*")
