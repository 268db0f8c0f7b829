"""Text as a figure shows it: one line, of a bounded width, with nothing in it that acts on its surroundings."""

from __future__ import annotations

import unicodedata
from typing import Final

NAMELESS: Final = "(empty)"
_ELLIPSIS: Final = "…"
_READ_MAX: Final = 2_000
_MARKS_MAX: Final = 2
_JOINER: Final = "\u200d"
# Advance widths of Helvetica's letters in columns of 0.533 em; Arial and Liberation Sans have the same.
_WIDTHS: Final = {
    **dict.fromkeys(" !,./:;I[\\]ft|", 0.53), **dict.fromkeys("'ijl", 0.43), **dict.fromkeys('"()-`r{}*', 0.68),
    **dict.fromkeys("MWm@%", 1.8), **dict.fromkeys("\u2026", 1.9), "w": 1.36,
}  # fmt: skip


def short(text: object, columns: int) -> str:
    """Return a text in at most `columns` columns, with an ellipsis where it was cut; wide letters take more than one.

    Line ends and spaces become one space; control characters, bidirectional controls and what XML cannot carry become
    U+FFFD, so that a name cannot turn its neighbours around; marks piled on one letter are cut after two.
    """
    clean = _one_line("" if text is None else str(text)[:_READ_MAX])
    if not clean:
        return NAMELESS
    kept: list[str] = []
    used = 0.0
    widths = [_columns(character) for character in clean]
    bound = columns if sum(widths) <= columns else columns - _columns(_ELLIPSIS)
    for character, width in zip(clean, widths, strict=True):
        if used + width > bound:
            return "".join(kept).rstrip(" " + _JOINER) + _ELLIPSIS
        kept.append(character)
        used += width
    return "".join(kept)


def width(text: str) -> float:
    """Return how many columns a text takes, one being as wide as most small letters."""
    return sum(_columns(character) for character in text)


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


def _columns(character: str) -> float:
    category = unicodedata.category(character)
    if category in {"Mn", "Me", "Cf"}:
        return 0.0
    if unicodedata.east_asian_width(character) in {"W", "F"}:
        return 2.4
    if character in _WIDTHS:
        return _WIDTHS[character]
    return 1.06 if character.isascii() and category != "Lu" else 1.45
