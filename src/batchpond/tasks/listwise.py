"""The listwise task: several samples are shown at once, and the judge puts all of them in order, or names the best.

Samples have letters in the order in which they are shown. An order is the letters from best to worst with `>` between
them, and `=` between those that are equally good, where the study has ties; the best is one letter, of ties several. A
judge may say that none is good in the word for it, where the study has one. What was read is the judgment's label,
`C>A=D>B`; that none is good, or all are equal, is a tie. An order that misses a letter, repeats one or has one of no
sample is unparsed, and so is a tie that the study does not have.

Each item of a list is a row of the plan with its place, and all share the request: what an order says of an item, and
of two of them, follows from their places (the views `results` and `pair_judgments`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from batchpond.errors import StudyError
from batchpond.model import Outcome
from batchpond.tasks import base, structured
from batchpond.tasks.base import Judgment, Text
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "listwise"
SIZE_MAX: Final = 20
NONE: Final = "none"
"""The label of an answer that none is good: in small letters, which no sample has."""
_LETTER: Final = re.compile(r"(?:sample|text|answer|response|candidate|item|output)?([a-z])")


@dataclass(frozen=True)
class OrderRule(structured.ObjectRule):
    """All `size` samples of a list in order; `ties` are read where they are allowed, `none` where there is a word."""

    TASK: ClassVar[str] = TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("SAMPLES",),
        ("TRAIT_NAME", "TRAIT_DESCRIPTION", "STATEMENT", *STATEMENT_PLACEHOLDERS, "INPUT", "ANSWER_FORMAT"),
    )

    key: Text = "order"
    size: Annotated[int, Meta(ge=2, le=SIZE_MAX)] = 4
    ties: bool = False
    none: Text = ""

    @property
    def n_rows(self) -> int:
        """How many rows of the plan one request answers: one of each sample."""
        return self.size

    @property
    def letters(self) -> str:
        """The letters of the samples, in the order in which they are shown."""
        return string.ascii_uppercase[: self.size]

    def shown(self, texts: Sequence[str]) -> str:
        """Return samples under their letters, as a template shows them."""
        parts = zip(self.letters, texts, strict=True)
        return "\n\n".join(f"=== SAMPLE {one} ===\n{text}\n=== end of SAMPLE {one} ===" for one, text in parts)

    def values(self) -> dict[str, str]:
        """Return how the answer is asked for, by placeholder, and how samples are shown before there are any."""
        return {"SAMPLES": self.shown([""] * self.size), "ANSWER_FORMAT": self._asked({self.key: self.asked})}

    @property
    def asked(self) -> str:
        """What a judge is told to write."""
        equal = ", = between those that are equally good" if self.ties else ""
        return f"the letters {', '.join(self.letters)} from best to worst, > between them{equal}{self._or_none}"

    @property
    def _or_none(self) -> str:
        return f"; {self.none.strip()} if none is good" if self.none else ""

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer."""
        return self._schema({self.key: {"type": "string", "description": self.asked}})

    def check(self, where: str) -> None:
        """Raise StudyError for keys that cannot be told apart, or a word for none that cannot be read."""
        super().check(where)
        if self.none and (not base.bare(self.none) or _LETTER.fullmatch(base.bare(self.none))):
            raise StudyError(f"{where}.none is {self.none!r}, which cannot be told from a sample", hint='say "none"')

    def _bare(self, value: object) -> object:
        return value

    def _reading(self, found: structured.Object) -> Judgment:
        value, reason = found[structured.fold(self.key)], self._reason(found)
        if value is None:
            return Judgment(None, Outcome.UNSURE, explanation=reason)
        label = self.label(value)
        if label is None:
            return Judgment(None, Outcome.UNPARSED, explanation=reason)
        is_tie = label == NONE or label == "=".join(self.letters)
        return Judgment(None, Outcome.TIE if is_tie else Outcome.DECIDED, label=label, explanation=reason)

    def label(self, value: object) -> str | None:
        """Return an answer as orders are kept, None for one that is none of this list."""
        parts = [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str)]
        text = base.plain(">".join(parts))
        if isinstance(value, list) and len(parts) < len(value):
            return None
        if self.none and base.bare(text) == base.bare(self.none):
            return NONE
        words = [part.split("=") for part in text.split(">" if ">" in text else ",")]
        found = [[_LETTER.fullmatch(base.bare(word)) for word in part] for part in words]
        groups = [sorted(match[1].upper() if match else "" for match in part) for part in found]
        named = [letter for group in groups for letter in group]
        is_known = len(set(named)) == len(named) and set(named) <= set(self.letters)
        if not is_known or not self._is_whole(groups) or (len(named) > len(groups) and not self.ties):
            return None
        return ">".join("=".join(group) for group in groups)

    def _is_whole(self, groups: Sequence[Sequence[str]]) -> bool:
        return sum(map(len, groups)) == self.size


@dataclass(frozen=True)
class BestRule(OrderRule):
    """The best of `size` samples alone."""

    READER: ClassVar[str] = "best"

    key: Text = "best"

    @property
    def asked(self) -> str:
        """What a judge is told to write."""
        equal = ", or of several that are equally good, = between them" if self.ties else ""
        return f"the letter of the best sample, {', '.join(self.letters)}{equal}{self._or_none}"

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer."""
        words = [*self.letters, *([self.none.strip()] if self.none else [])]
        choices = {} if self.ties else {"enum": words}
        return self._schema({self.key: {"type": "string", **choices, "description": self.asked}})

    def _is_whole(self, groups: Sequence[Sequence[str]]) -> bool:
        return len(groups) == 1
