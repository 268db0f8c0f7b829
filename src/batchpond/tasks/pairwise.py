"""The pairwise task: which of two samples is better, read from exactly one answer tag.

An answer is a tag's prefix, a word and the tag's suffix, for example
`<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>`. White space around the word and the case of letters do not
matter; the words do. Only the visible text is read, never the thoughts. Rules, in this order:

- not executed, failed or blocked requests keep that outcome whatever text came with them;
- a finish for refusal is refused; a refusal message refuses when no text came with it;
- one of the two answers in the text: decided, also when the text was cut after it; both: ambiguous;
- neither: truncated when the text was cut, refused when a refusal message came with it, empty when
  there is no text, unparsed otherwise. There is no tie in this task: a judge that will not choose
  is unparsed, not a tie.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from batchpond import ids
from batchpond.errors import LakeError, StudyError
from batchpond.model import Finish, Outcome, Response, ResponseStatus, Verdict
from batchpond.tasks.base import Judgment

TASK: Final = "pairwise"
PARSER_VERSION: Final = 1
_PARTS: Final = ("prefix", "first", "second", "suffix")

_NOT_ANSWERED: Final = {
    ResponseStatus.ERRORED: Outcome.ERROR,
    ResponseStatus.UNREADABLE: Outcome.ERROR,
    ResponseStatus.EXPIRED: Outcome.EXPIRED,
    ResponseStatus.CANCELLED: Outcome.CANCELLED,
}


@dataclass(frozen=True)
class AnswerRule:
    """How a judge is told to answer: `prefix`, one of two words, `suffix`."""

    prefix: str = "<BETTER_SAMPLE>"
    first: str = "SAMPLE_1"
    second: str = "SAMPLE_2"
    suffix: str = "</BETTER_SAMPLE>"

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
        """The name of this way to read answers; another rule has another name."""
        parts = (self.prefix, self.first, self.second, self.suffix)
        return f"{TASK}-{PARSER_VERSION}-{ids.digest('answer', *parts, length=8)}"

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
        spec = {name: getattr(self, name) for name in _PARTS}
        return {"task": TASK, "answer_first": self.answer_first, "answer_second": self.answer_second, **spec}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> AnswerRule:
        """Return the rule that `to_spec` wrote; raises LakeError when it is damaged."""
        try:
            parts = [spec[name] for name in _PARTS]
        except KeyError as error:
            raise LakeError(f"a study's answer rule in the lake lacks {error}") from None
        if not all(isinstance(part, str) for part in parts):
            raise LakeError("a study's answer rule in the lake is damaged: its parts are not text")
        return cls(*parts)


def parse(response: Response, rule: AnswerRule) -> Judgment:
    """Return what a response says; total: any response gives a judgment."""
    if response.status is not ResponseStatus.SUCCEEDED:
        return Judgment(None, _NOT_ANSWERED[response.status])
    if response.finish is Finish.BLOCKED:
        return Judgment(None, Outcome.BLOCKED)
    if response.finish is Finish.REFUSAL:
        return Judgment(None, Outcome.REFUSED)
    text = response.text or ""
    first, second = (pattern.search(text) is not None for pattern in rule.patterns)
    if first and second:
        return Judgment(None, Outcome.AMBIGUOUS)
    if first or second:
        return Judgment(Verdict.FIRST if first else Verdict.SECOND, Outcome.DECIDED)
    return Judgment(None, _why_no_answer(response, text))


def _why_no_answer(response: Response, text: str) -> Outcome:
    if response.refusal:
        return Outcome.REFUSED
    if response.finish is Finish.LENGTH:
        return Outcome.TRUNCATED
    return Outcome.UNPARSED if text.strip() else Outcome.EMPTY


def parse_pairwisellm(text: str | None, rule: AnswerRule) -> Verdict | None:
    """Return the winner as pairwiseLLM 1.3.0 reads it: the first exact answer wins, even beside the second.

    For comparison with its figures only: a judge that repeats its instructions always votes first.
    """
    if text is not None and rule.answer_first in text:
        return Verdict.FIRST
    if text is not None and rule.answer_second in text:
        return Verdict.SECOND
    return None
