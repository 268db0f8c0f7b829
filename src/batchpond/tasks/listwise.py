"""The listwise task: several samples are shown at once, and the judge puts all of them in order, or names the best.

Samples have letters in the order in which they are shown. An order is the letters from best to worst with `>` between
them, and `=` between equally good ones where the study has ties; the best is one letter, of ties several. What was read
is the judgment's label, `C>A=D>B`; that all are equal is a tie, and so is the study's word for none. An order that
misses a letter, repeats one or has one of no sample is unparsed, and so is a tie that the study does not have.

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

from batchpond.model import Outcome
from batchpond.tasks import base, structured
from batchpond.tasks.base import About, Care, Judgment, Text
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

TASK: Final = "listwise"
SIZE_MAX: Final = 20
NONE: Final = "none"
"""The label of an answer that none is good: in small letters, which no sample has."""
_LETTER: Final = re.compile(r"(?:sample|text|answer|response|candidate|item|output)?([a-z])")


@dataclass(frozen=True)
class OrderRule(structured.ObjectRule):
    """All `size` samples of a list in order; `ties` are read where they are allowed, `none` where it is a word."""

    TASK: ClassVar[str] = TASK
    ABOUT: ClassVar[About] = About.LIST
    SAYS: ClassVar[tuple[str, ...]] = ("text", "label", "explanation")
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("SAMPLES",),
        ("TRAIT_NAME", "TRAIT_DESCRIPTION", "STATEMENT", *STATEMENT_PLACEHOLDERS, "INPUT", "ANSWER_FORMAT"),
    )
    ASKED: ClassVar[str] = "the letters {} from best to worst, > between them"

    key: Text = "order"
    size: Annotated[int, Meta(ge=2, le=SIZE_MAX)] = 4
    ties: bool = False
    none: Annotated[str, Meta(max_length=200, pattern=r"^$|[^\W_]{2}\W*$")] = ""

    @property
    def letters(self) -> str:
        """The letters of the samples, in the order in which they are shown."""
        return string.ascii_uppercase[: self.size]

    def shown(self, texts: Sequence[str]) -> str:
        """Return samples under their letters, as a template shows them."""
        parts = zip(self.letters, texts, strict=True)
        return "\n\n".join(f"=== SAMPLE {one} ===\n{text}\n=== end of SAMPLE {one} ===" for one, text in parts)

    @property
    def _asked_order(self) -> str:
        equal = ", = between those that are equally good" if self.ties else ""
        none = f"; {self.none.strip()} if none is good" if self.none else ""
        return self.ASKED.format(", ".join(self.letters)) + equal + none

    def values(self) -> dict[str, str]:
        """Return how the answer is asked for, by placeholder, and how samples are shown before there are any."""
        return {"SAMPLES": self.shown([""] * self.size), "ANSWER_FORMAT": self._asked({self.key: self._asked_order})}

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer; of one letter, it lists them."""
        words = [*self.letters, *([self.none.strip()] if self.none else [])]
        choices = {"enum": words} if self.READER and not self.ties else {}
        return self._schema({self.key: {"type": "string", **choices, "description": self._asked_order}})

    def _found_with_care(self, text: str, care: Care) -> Judgment | None:
        found = super()._found_with_care(text, care)
        is_turned = found and care.guards["ascending"].search("\n" + text.lower())
        return Judgment(None, Outcome.AMBIGUOUS) if is_turned else found

    def _reading(self, found: structured.Object) -> Judgment:
        value, reason = found[structured.fold(self.key)], self._reason(found)
        label = self.label(value)
        if label is None:
            return Judgment(None, Outcome.UNSURE if value is None else Outcome.UNPARSED, explanation=reason)
        is_tie = label in {NONE, "=".join(self.letters)}
        return Judgment(None, Outcome.TIE if is_tie else Outcome.DECIDED, label=label, explanation=reason)

    def label(self, value: object) -> str | None:
        """Return an answer as orders are kept, None for one that is none of this list."""
        parts = value if isinstance(value, list) else [value]
        text = base.plain(">".join(part if isinstance(part, str) else "" for part in parts))
        if self.none and base.bare(text) == base.bare(self.none):
            return NONE
        words = [part.split("=") for part in text.split(">" if ">" in text else ",")]
        found = [[_LETTER.fullmatch(base.bare(word)) for word in part] for part in words]
        groups = [sorted(match[1].upper() if match else "" for match in part) for part in found]
        named = [letter for group in groups for letter in group]
        is_whole = len(groups) == 1 if self.READER else len(named) == self.size
        is_known = len(set(named)) == len(named) and set(named) <= set(self.letters)
        is_allowed = self.ties or len(named) == len(groups)
        return ">".join(map("=".join, groups)) if is_whole and is_known and is_allowed else None


@dataclass(frozen=True)
class BestRule(OrderRule):
    """The best of `size` samples alone."""

    READER: ClassVar[str] = "best"
    ASKED: ClassVar[str] = "the letter of the best sample, {}"

    key: Text = "best"
