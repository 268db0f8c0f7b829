"""The pairwise task: which of two samples is better, read from exactly one answer tag.

An answer is a tag's prefix, a word and the tag's suffix, for example `<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>`. White
space around the word and the case of letters do not matter; the words do. One of the answers in the text: decided,
also when the text was cut after it; more than one: ambiguous; none: the rules of `base`. A tie is what a judge says in
the word for it, where the study has one: a judge that will not choose is unparsed, not a tie. Where the study has words
for "both are good" and "both are bad", these are ties whose label says which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, permutations, repeat
from typing import Annotated, Any, ClassVar, Final, Self

from msgspec import Meta

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Outcome, Verdict
from batchpond.tasks import base
from batchpond.tasks.base import About, Care, CarefulRule, Judgment, Logprobs
from batchpond.tasks.templates import Placeholders

TASK: Final = "pairwise"
_PART_MAX_CHARS: Final = 200
_Part = Annotated[str, Meta(min_length=1, max_length=_PART_MAX_CHARS, pattern=r"\S")]
_SAID: Final = {
    "first": Judgment(Verdict.FIRST, Outcome.DECIDED),
    "second": Judgment(Verdict.SECOND, Outcome.DECIDED),
    "tie": Judgment(Verdict.TIE, Outcome.TIE),
    **base.TIE_KINDS,
}
"""What each word means, by its name among the settings."""


@dataclass(frozen=True)
class PairwiseRule(CarefulRule):
    """What a judge of pairs must write: `prefix`, one of the words, `suffix`; a text with two of them is no answer.

    `tie` is the word for neither, `both_good` and `both_bad` for why; without any, a judge has to choose.
    """

    TASK: ClassVar[str] = TASK
    ABOUT: ClassVar[About] = About.PAIR
    SAYS: ClassVar[tuple[str, ...]] = ("text", "verdict")
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("TRAIT_NAME", "TRAIT_DESCRIPTION", "SAMPLE_1", "SAMPLE_2"), tuple(f"ANSWER_{name.upper()}" for name in _SAID)
    )

    prefix: _Part = "<BETTER_SAMPLE>"
    first: _Part = "SAMPLE_1"
    second: _Part = "SAMPLE_2"
    suffix: Annotated[str, Meta(max_length=_PART_MAX_CHARS, pattern=r"^$|\S")] = "</BETTER_SAMPLE>"
    tie: _Part | None = None
    both_good: _Part | None = None
    both_bad: _Part | None = None
    logprobs: Logprobs = False

    @property
    def allowed(self) -> Mapping[str, float]:
        """What each word counts for the sample shown first, where the expected share of its wins is read."""
        worth = chain((1.0, 0.0), repeat(0.5))
        return dict(zip(map(base.bare, self.words), worth, strict=False)) if self.logprobs else {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What this study has a word for: the sample shown first, the one shown second, neither and why."""
        return tuple(name for name in _SAID if getattr(self, name) is not None)

    @property
    def words(self) -> tuple[str, ...]:
        """The words, by `names`."""
        return tuple(getattr(self, name) for name in self.names)

    @property
    def answers(self) -> tuple[str, ...]:
        """The whole answers, in the order of the words."""
        return tuple(f"{self.prefix}{word}{self.suffix}" for word in self.words)

    @property
    def parser_id(self) -> str:
        """The name of this way to read answers, as it was before other tasks had rules."""
        own = {name: f"{name} " if name in base.TIE_KINDS else "" for name in self.names[2:]}
        others = (f"{kind}{getattr(self, name)}" for name, kind in own.items())
        parts = (self.prefix, self.first, self.second, self.suffix, *others)
        name = f"{TASK}-logprobs" if self.logprobs else TASK
        name = f"{name}-kinds" if self.has_tie_kinds else name
        return f"{name}-{self.PARSER_VERSION}-{ids.digest('answer', *parts, length=8)}"

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain; the answer for neither only where there is a word for it."""
        return replace(self.PLACEHOLDERS, optional=tuple(f"ANSWER_{name.upper()}" for name in self.names))

    def values(self) -> dict[str, str]:
        """Return what the rule itself fills in, by placeholder."""
        return dict(zip(self.placeholders.optional, self.answers, strict=True))

    def _found(self, text: str) -> Judgment | None:
        found = [_SAID[one] for one, known in zip(self.names, self.patterns, strict=True) if known.search(text)]
        return base.agreed(found)

    def _found_with_care(self, text: str, care: Care) -> Judgment | None:
        shown = base.plain(text)
        if self.suffix.strip() and self.bare:
            tags = base.tags(shown, self.prefix, self.suffix)
            return care.meant(shown, [(self.bare.get(base.bare(tag.words), _UNPARSED), tag) for tag in tags])
        known = zip(self.names, self.patterns, strict=True)
        places = [(_SAID[one], match) for one, pattern in known for match in pattern.finditer(shown)]
        return care.meant(shown, [(one, base.Found(match[0], *match.span())) for one, match in places])

    @cached_property
    def bare(self) -> dict[str, Judgment]:
        """What each word means, by its letters and digits, and by the one sign that tells a sample from the other.

        Nothing where only other signs tell them apart.
        """
        words = [base.bare(word) for word in self.words]
        if not all(words) or len(set(words)) < len(words):
            return {}
        signs = [word[-1] for word in words[:2]] if words[0][:-1] == words[1][:-1] else []
        said = [_SAID[name] for name in self.names]
        return dict(zip(signs, said, strict=False)) | dict(zip(words, said, strict=True))

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """What finds each answer in a text, in the order of the words."""
        # Without a suffix only the end of the word keeps "1" from being found in "10".
        end = rf"\s*{re.escape(self.suffix.strip())}" if self.suffix.strip() else r"(?!\w)"
        texts = (rf"{re.escape(self.prefix.strip())}\s*{re.escape(word.strip())}{end}" for word in self.words)
        return tuple(re.compile(text, re.IGNORECASE) for text in texts)

    def check(self, where: str) -> None:
        """Raise StudyError when two answers could not be told apart in a text."""
        if not self.prefix.strip() or not all(word.strip() for word in self.words):
            raise StudyError(f"{where}: prefix, {', '.join(self.names)} must not be blank")
        for (pattern, own), (_, other) in permutations(zip(self.patterns, self.answers, strict=True), 2):
            if pattern.search(other):
                raise StudyError(
                    f"{where}: {own!r} and {other!r} cannot be told apart",
                    hint="choose words of which none begins another, whatever their case",
                )
        if self.logprobs and (len({word[:-1] for word in self.allowed}) > 1 or len(self.allowed) < len(self.words)):
            problem = "needs words that differ in their last letter or digit alone, which one token decides"
            raise StudyError(f"{where}.logprobs {problem}", hint="for example A, B and C")

    def to_spec(self) -> dict[str, Any]:
        """Return the rule as `studies.parsers` keeps it; one without a word for ties as it was before there was any."""
        answers = {name.lower(): answer for name, answer in self.values().items()}
        fields = {name: value for name, value in self._fields().items() if name != "tie" or value is not None}
        return {"task": TASK, **answers, **fields}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Return the rule that `to_spec` wrote; raises LakeError when it is damaged."""
        return super().from_spec({"tie": None, **spec})


_UNPARSED: Final = Judgment(None, Outcome.UNPARSED)
