"""The ranking task: which of two candidates' outputs follows a statement better, read from one line.

The answer is the prefix and one of five words alone on a line, `Model: A`. White space, case, emphasis,
quotes, brackets, a bullet and a full stop around it do not matter; prose on other lines neither. More
words on the line make it no answer: `Model: a better choice is B` does not mean A. Two lines that say
different things are ambiguous; the last line of a text that was cut for length is not read.

A is the output shown first. N/A and unsure are no ties: they have outcomes of their own. A study may have words for
"both are good" and "both are bad", ties whose label says which.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

from batchpond.errors import StudyError
from batchpond.model import Outcome, Verdict
from batchpond.tasks import base
from batchpond.tasks.base import About, Care, CarefulRule, Judgment, Text, bare_words
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "ranking"
_READINGS: Final = {
    "first": Judgment(Verdict.FIRST, Outcome.DECIDED),
    "second": Judgment(Verdict.SECOND, Outcome.DECIDED),
    "tie": Judgment(Verdict.TIE, Outcome.TIE),
    "not_applicable": Judgment(None, Outcome.NOT_APPLICABLE),
    "unsure": Judgment(None, Outcome.UNSURE),
    **base.TIE_KINDS,
}
_SPECEVAL: Final = re.compile(r"^Model:\s*(A|B|equal|N/A|unsure)\b", re.IGNORECASE | re.MULTILINE)
_SPECEVAL_RANKS: Final = {"a": 1, "b": -1}


@dataclass(frozen=True)
class RankingRule(CarefulRule):
    """How a judge is told to answer: `prefix` and one of five words, or more, on a line of its own."""

    TASK: ClassVar[str] = TASK
    ABOUT: ClassVar[About] = About.CANDIDATES
    SAYS: ClassVar[tuple[str, ...]] = ("text", "verdict")
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("STATEMENT", "INPUT", "OUTPUT_A", "OUTPUT_B"),
        (*STATEMENT_PLACEHOLDERS, *(f"ANSWER_{name.upper()}" for name in _READINGS)),
    )

    prefix: Text = "Model:"
    first: Text = "A"
    second: Text = "B"
    tie: Text = "equal"
    not_applicable: Text = "N/A"
    unsure: Text = "unsure"
    both_good: Text | None = None
    both_bad: Text | None = None

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain; of the kinds of ties those that there are words for."""
        unknown = {f"ANSWER_{name.upper()}" for name in _READINGS.keys() - self.readings.keys()}
        optional = tuple(name for name in self.PLACEHOLDERS.optional if name not in unknown)
        return replace(self.PLACEHOLDERS, optional=optional)

    @cached_property
    def readings(self) -> dict[str, Judgment]:
        """What each word means, by its name among the settings, of those that the study has."""
        return {name: said for name, said in _READINGS.items() if getattr(self, name) is not None}

    def answer(self, name: str) -> str:
        """Return the whole line for `first`, `second`, `tie`, `not_applicable`, `unsure` or another of `readings`."""
        return f"{self.prefix.rstrip()} {getattr(self, name).strip()}"

    def values(self) -> dict[str, str]:
        """Return the whole answers by placeholder."""
        return {f"ANSWER_{name.upper()}": self.answer(name) for name in self.readings}

    @cached_property
    def bare(self) -> dict[str, Judgment]:
        """What each answer means, by its line without markup."""
        return {bare_words(self.answer(name)): reading for name, reading in self.readings.items()}

    def check(self, where: str) -> None:
        """Raise StudyError when two answers could not be told apart, or one is nothing but markup."""
        prefix = bare_words(self.prefix)
        blank = [name for name in self.readings if not bare_words(getattr(self, name))]
        if not prefix or blank:
            raise StudyError(f"{where}.{'prefix' if not prefix else blank[0]} has no letter, number or sign of its own")
        if len(self.bare) < len(self.readings):
            raise StudyError(
                f"{where}: two of the answers cannot be told apart",
                hint="white space, case, quotes, brackets and emphasis are not read; choose different words",
            )

    def _found(self, text: str) -> Judgment | None:
        found = self.bare.keys() & {bare_words(line) for line in text.splitlines()}
        return base.agreed([self.bare[line] for line in found])

    def _left_of_cut(self, text: str) -> str:
        return base.whole_lines(text)

    def _found_with_care(self, text: str, care: Care) -> Judgment | None:
        shown = base.plain(text)
        own = set(self.prefix + "".join(self.answer(name) for name in self.readings))
        blank = {sign: other for sign, other in _BLANK.items() if chr(sign) not in own}
        matches = self.lines[care.doubts].finditer(shown.translate(blank))
        found = [match for match in matches if _IS_REST.fullmatch(match["rest"])]
        places = [base.Found(match["word"], match.start(), match.end("word")) for match in found]
        return care.meant(shown, [(self.words[place.words.casefold()], place) for place in places])

    @cached_property
    def words(self) -> dict[str, Judgment]:
        """What each word means, by its small letters, others that mean the same included."""
        also = {word: _READINGS[name] for name, words in _ALSO.items() for word in words}
        return also | {getattr(self, name).strip().casefold(): reading for name, reading in self.readings.items()}

    @cached_property
    def lines(self) -> tuple[re.Pattern[str], ...]:
        """What finds an answer in a text whose markup is blank, and what follows on its line; the second goes on."""
        word = "|".join(re.escape(word) for word in sorted(self.words, key=len, reverse=True))
        noun = r"(?:(?:model|response|output|assistant)[\s_-]{0,3})?\(?"
        no_other = rf"\W*(?:or|and|if|unless|vs|not|is)(?!\w)|[^\w\n]*(?:{word})(?!\w)|\W*(?:{word})"
        start = rf"(?<!\w){base.loose(self.prefix.strip())}\s{{0,20}}{noun}(?P<word>{word})(?!\w)"
        rests = (rf"(?P<rest>(?!{no_other}{end})[^\n]{{0,{_REST_CHARS}}})" for end in (r"(?!\w)", r"[^\w\n]*(?:\n|\Z)"))
        return tuple(re.compile(start + rest, re.IGNORECASE) for rest in rests)


_REST_CHARS: Final = 1_000
_SIGNS: Final = dict.fromkeys(map(ord, "*_`#\"'{}[]<>$|\u201c\u201d\u2018\u2019\u00ab\u00bb\u3000"), " ")
_BLANK: Final = _SIGNS | {0xFF1A: ":"}
_ALSO: Final = {"tie": ("tie", "both equal"), "not_applicable": ("na", "not applicable")}
_IS_REST: Final = re.compile(r"\s*(?:[.!)]*\s*|\s/\w+\s*|(?:[-\u2013\u2014:;,.(]|because\b|since\b).*)")


def parse_speceval(text: str | None) -> int:
    """Return the rank as SpecEval reads it: 1 for A, -1 for B, 0 for everything else, failures included.

    For comparison with its figures only: what could not be read, N/A and unsure all count as ties.
    """
    match = _SPECEVAL.search(text) if text is not None and not text.startswith("ERROR") else None
    return _SPECEVAL_RANKS.get(match[1].lower(), 0) if match else 0
