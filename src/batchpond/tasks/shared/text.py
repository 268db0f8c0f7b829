"""What prompts of several tasks show: a policy statement with its examples, and a conversation.

Everything here becomes a placeholder's value, so it is never scanned for placeholders again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchpond.model import Turn

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


def transcript(messages: Sequence[Turn]) -> str:
    """Return a conversation for a judge to read, its messages numbered.

    A message that imitates the headings stays recognisable: the count of messages is written above.
    """
    head = f"({len(messages)} messages)"
    parts = [
        f"[{number}. {message.role}]\n{message.text}\n[end of {number}.]" for number, message in enumerate(messages, 1)
    ]
    return "\n\n".join([head, *parts])
