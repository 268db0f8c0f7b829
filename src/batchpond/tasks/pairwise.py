"""The pairwise task: which of two samples is better, read from exactly one answer tag.

An answer is a tag's prefix, a word and the tag's suffix, for example `<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>`. White
space around the word and the case of letters do not matter; the words do. One of the two answers in the text: decided,
also when the text was cut after it; both: ambiguous; neither: the rules of `common`. There is no tie in this task: a
judge that will not choose is unparsed, not a tie.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Outcome, Verdict
from batchpond.tasks import base
from batchpond.tasks.base import CarefulRule, Judgment
from batchpond.tasks.templates import Placeholders

TASK: Final = "pairwise"
_PART_MAX_CHARS: Final = 200
_Part = Annotated[str, Meta(min_length=1, max_length=_PART_MAX_CHARS, pattern=r"\S")]


@dataclass(frozen=True)
class PairwiseRule(CarefulRule):
    """What a judge of pairs must write: `prefix`, one of two words, `suffix`; a text with both of them is no answer."""

    TASK: ClassVar[str] = TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("TRAIT_NAME", "TRAIT_DESCRIPTION", "SAMPLE_1", "SAMPLE_2"), ("ANSWER_FIRST", "ANSWER_SECOND")
    )

    prefix: _Part = "<BETTER_SAMPLE>"
    first: _Part = "SAMPLE_1"
    second: _Part = "SAMPLE_2"
    suffix: Annotated[str, Meta(max_length=_PART_MAX_CHARS, pattern=r"^$|\S")] = "</BETTER_SAMPLE>"

    @property
    def answer_first(self) -> str:
        """The whole answer for the sample shown first."""
        return f"{self.prefix}{self.first}{self.suffix}"

    @property
    def answer_second(self) -> str:
        """The whole answer for the sample shown second."""
        return f"{self.prefix}{self.second}{self.suffix}"

    @property
    def parser_id(self) -> str:
        """The name of this way to read answers, as it was before other tasks had rules."""
        parts = (self.prefix, self.first, self.second, self.suffix)
        return f"{TASK}-{self.PARSER_VERSION}-{ids.digest('answer', *parts, length=8)}"

    def values(self) -> dict[str, str]:
        """Return what the rule itself fills in, by placeholder."""
        return {"ANSWER_FIRST": self.answer_first, "ANSWER_SECOND": self.answer_second}

    def _found(self, text: str) -> Judgment | None:
        found = [one for one, known in zip(_DECIDED, self.patterns, strict=True) if known.search(text)]
        return base.agreed(found)

    def _found_with_care(self, text: str) -> Judgment | None:
        shown = base.plain(text)
        if self.suffix.strip() and self.bare:
            tags = base.tags(shown, self.prefix, self.suffix)
            return base.meant(shown, [(self.bare.get(base.bare(tag.words), _UNPARSED), tag) for tag in tags])
        known = zip(_DECIDED, self.patterns, strict=True)
        places = [(one, match) for one, pattern in known for match in pattern.finditer(shown)]
        return base.meant(shown, [(one, base.Found(match[0], *match.span())) for one, match in places])

    @cached_property
    def bare(self) -> dict[str, Judgment]:
        """What each word means, by its letters and digits, and by the one sign that tells it from the other.

        Nothing where only other signs tell them apart.
        """
        words = base.bare(self.first), base.bare(self.second)
        if not all(words) or words[0] == words[1]:
            return {}
        signs = [word[-1] for word in words] if words[0][:-1] == words[1][:-1] else []
        return dict(zip((*words, *signs), _DECIDED * 2, strict=False))

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """What finds the first and the second answer in a text."""
        return self._pattern(self.first), self._pattern(self.second)

    def _pattern(self, word: str) -> re.Pattern[str]:
        # Without a suffix only the end of the word keeps "1" from being found in "10".
        end = rf"\s*{re.escape(self.suffix.strip())}" if self.suffix.strip() else r"(?!\w)"
        text = rf"{re.escape(self.prefix.strip())}\s*{re.escape(word.strip())}{end}"
        return re.compile(text, re.IGNORECASE)

    def check(self, where: str) -> None:
        """Raise StudyError when the two answers could not be told apart in a text."""
        if not self.prefix.strip() or not self.first.strip() or not self.second.strip():
            raise StudyError(f"{where}: prefix, first and second must not be blank")
        first, second = self.patterns
        if first.search(self.answer_second) or second.search(self.answer_first):
            raise StudyError(
                f"{where}: {self.answer_first!r} and {self.answer_second!r} cannot be told apart",
                hint="choose two words of which neither begins the other, whatever their case",
            )

    def to_spec(self) -> dict[str, str]:
        """Return the rule as `studies.parsers` keeps it."""
        answers = {"answer_first": self.answer_first, "answer_second": self.answer_second}
        return {"task": TASK, **answers, **self._fields()}


_DECIDED: Final = Judgment(Verdict.FIRST, Outcome.DECIDED), Judgment(Verdict.SECOND, Outcome.DECIDED)
_UNPARSED: Final = Judgment(None, Outcome.UNPARSED)
