"""What a judge is asked to look at: rubrics, two built in and any number of one's own, and policy statements."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final

from batchpond import ids

STATEMENT_PLACEHOLDERS: Final = (
    "STATEMENT_ID",
    "STATEMENT_TYPE",
    "AUTHORITY",
    "SECTION",
    "SUBSECTION",
    "EXAMPLES",
)
_NONE: Final = "(none)"


@dataclass(frozen=True, slots=True)
class Example:
    """A statement's example: a request with an answer that breaks the statement and one that keeps to it."""

    description: str = ""
    question: str = ""
    bad_answer: str = ""
    good_answer: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A policy statement that outputs are judged by; what is not known of it is blank."""

    statement_id: str
    text: str
    statement_type: str = ""
    authority: str = ""
    section: str = ""
    subsection: str = ""
    examples: tuple[Example, ...] = ()

    def values(self) -> dict[str, str]:
        """Return what templates show of it, by placeholder."""
        return {
            "STATEMENT": self.text,
            "STATEMENT_ID": self.statement_id,
            "STATEMENT_TYPE": self.statement_type or _NONE,
            "AUTHORITY": self.authority or _NONE,
            "SECTION": self.section or _NONE,
            "SUBSECTION": self.subsection or _NONE,
            "EXAMPLES": examples_text(self.examples),
        }


def examples_text(examples: Sequence[Example]) -> str:
    """Return examples as a numbered list, without the parts that are blank."""
    return "\n\n".join(_example_text(number, example) for number, example in enumerate(examples, 1)) or _NONE


def _example_text(number: int, example: Example) -> str:
    parts = (
        ("Request", example.question),
        ("Goes against the statement", example.bad_answer),
        ("In line with the statement", example.good_answer),
    )
    lines = [f"Example {number}: {example.description}".rstrip(": ")]
    return "\n".join(lines + [f"- {name}: {text}" for name, text in parts if text.strip()])


@dataclass(frozen=True)
class Rubric:
    """A trait by name and description, or a policy statement; its hash changes with anything it says.

    `more` has the placeholders that templates may show of a statement besides its text.
    """

    rubric_id: str
    name: str
    description: str
    more: tuple[tuple[str, str], ...] = ()

    @cached_property
    def rubric_hash(self) -> str:
        """The digest of id, name, description and what else templates may show."""
        more = [part for pair in self.more for part in pair]
        return ids.digest("rubric", self.rubric_id, self.name, self.description, *more)


@cache
def builtin() -> dict[str, Rubric]:
    """Return the rubrics that batchpond brings, by id."""
    text = (resources.files("batchpond.tasks") / "texts" / "rubrics.toml").read_text("utf-8")
    return {
        rubric_id: Rubric(rubric_id, entry["name"], entry["description"].strip())
        for rubric_id, entry in tomllib.loads(text).items()
    }


def listing() -> list[Rubric]:
    """Return the built-in rubrics in name order."""
    return sorted(builtin().values(), key=lambda rubric: rubric.rubric_id)
