"""Answers on a line of their own, whatever markup a model puts around them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_BULLETS: Final = re.compile(r"\s*(?:[-+*\u2022]\s+|>\s*)*+")
_AROUND: Final = "*_`#\"'(){}[]\u201c\u201d\u2018\u2019\u00ab\u00bb"
_MARKUP: Final = str.maketrans("", "", _AROUND)
_MARKUP_OF_WORDS: Final = str.maketrans("", "", _AROUND + "<>~$\\")


def _bare(line: str, markup: dict[int, int | None]) -> str:
    return "".join(line.translate(markup).split()).casefold().rstrip(".,;!")


def bare_words(line: str) -> str:
    """Return a line without white space, case, bullets, quotes, brackets, emphasis and its last full stop."""
    return _bare(line[_end_of_bullets(line) :], _MARKUP_OF_WORDS)


def bare_number(line: str, prefix: str = "") -> str | None:
    """Return what follows a bare prefix on a line, with every sign that could belong to a number: `-3`, `<3`.

    None when the line begins otherwise. Only with a prefix can a bullet be told from a minus.
    """
    text = _bare(line, _MARKUP)
    if prefix:
        text = text.lstrip("-+>\u2022")
    return text.removeprefix(prefix) if text.startswith(prefix) else None


def _end_of_bullets(line: str) -> int:
    match = _BULLETS.match(line)
    return match.end() if match else 0


def answers(lines: Iterable[str], words: Iterable[str]) -> set[str]:
    """Return which of several bare words stand alone on a line."""
    return set(words) & {bare_words(line) for line in lines}
