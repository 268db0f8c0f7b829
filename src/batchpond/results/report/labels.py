"""Text as a figure shows it: one line, of a bounded length, with nothing in it that acts on its surroundings."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import count
from typing import Any, Final

NAMELESS: Final = "(empty)"
_ELLIPSIS: Final = "…"
_READ_MAX: Final = 2_000
_MARKS_MAX: Final = 2
_JOINER: Final = "\u200d"


def short(text: object, size: int) -> str:
    """Return a text in at most `size` characters, with an ellipsis where it was cut.

    Line ends and spaces become one space; control characters, bidirectional controls and what XML cannot carry become
    U+FFFD, so that a name cannot turn its neighbours around; marks piled on one letter are cut after two.
    """
    clean = _one_line("" if text is None else str(text)[:_READ_MAX])
    if len(clean) > size:
        return clean[: size - 1].rstrip(" " + _JOINER) + _ELLIPSIS
    return clean or NAMELESS


def distinct(texts: Iterable[Any], size: int) -> dict[Any, str]:
    """Return each text as it is shown: two that look alike once they are cut get a number."""
    shown: dict[Any, str] = {}
    for text in dict.fromkeys(texts):
        taken = set(shown.values())
        numbered = (short(text, size) if n == 1 else f"{short(text, size - 6)} ({n})" for n in count(1))
        shown[text] = next(name for name in numbered if name not in taken)
    return shown


def _one_line(text: str) -> str:
    plain, marks = [], 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if character.isspace():
            plain.append(" ")
        elif character == _JOINER:
            plain.append(character)
        elif category in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}:
            plain.append("\ufffd")
        elif marks <= _MARKS_MAX:
            plain.append(character)
    return " ".join("".join(plain).split())
