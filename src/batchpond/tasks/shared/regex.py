"""A study's own regular expressions, run by RE2: a search is linear in the text whatever the pattern.

A backtracking engine can be sent to sleep for years by an innocent pattern and an unlucky answer, and
cannot be interrupted. The pattern must be valid for Python too, whose errors say where they are and which
groups have names; RE2 then refuses what it cannot do in linear time (look-around, back-references).
All matches are read, so the worst a pattern can do is to look at the rest of the text after each of them;
texts are bounded so that even this takes seconds, not hours. `\\d` and `\\w` mean ASCII; `(?i)`, `(?m)` and
`(?s)` may begin a pattern.
"""

from __future__ import annotations

import re
import warnings
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from batchpond.errors import StudyError

PATTERN_MAX_CHARS: Final = 2_000
TEXT_MAX_CHARS: Final = 100_000
_GROUPS_MAX: Final = 9
# Nothing that a model means has these in it; they are taken out of a text before they mark its matches.
_BEGIN, _BETWEEN, _END = "\x01", "\x02", "\x03"
_MARKS: Final = str.maketrans(dict.fromkeys((_BEGIN, _BETWEEN, _END), " "))


class Pattern:
    """A pattern with named groups; making one is free, `check` says whether it can be used."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def groups(self) -> dict[str, int]:
        """The number of each named group; raises StudyError when the pattern is not valid."""
        return dict(self._compiled("the pattern").groupindex)

    def _compiled(self, where: str) -> re.Pattern[str]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return re.compile(self.text)
        except re.error as error:
            place = "" if error.pos is None else f" at character {error.pos + 1}"
            raise StudyError(f"{where} is not a regular expression: {error.msg}{place}: {self.text!r}") from None
        except (RecursionError, OverflowError, FutureWarning, DeprecationWarning) as error:
            raise StudyError(f"{where} is not a usable regular expression: {error}") from None

    def check(self, where: str) -> None:
        """Raise StudyError for a pattern that is too long, not valid, or not possible in linear time."""
        if len(self.text) > PATTERN_MAX_CHARS:
            raise StudyError(f"{where} is longer than {PATTERN_MAX_CHARS:,} characters")
        compiled = self._compiled(where)
        if not compiled.groupindex:
            raise StudyError(f"{where} has no named group", hint="for example (?P<verdict>A|B)")
        if compiled.groups > _GROUPS_MAX:
            raise StudyError(f"{where} has more than {_GROUPS_MAX} groups", hint="(?:...) groups without counting")
        try:
            self._marked("")
        except pa.ArrowInvalid as error:
            problem = str(error).removeprefix("Invalid regular expression: ")
            raise StudyError(
                f"{where} cannot be run in linear time: {problem}",
                hint="look-around, back-references and repetitions over 1,000 are not possible",
            ) from None

    def _marked(self, text: str) -> str:
        inner = _BETWEEN.join(f"\\{number}" for number in self.groups.values())
        # Not with max_replacements: Arrow then searches what is left as a text of its own, so `^` matches inside.
        replacement = f"{_BEGIN}{inner}{_END}"
        return str(pc.replace_substring_regex(pa.scalar(text), pattern=self.text, replacement=replacement).as_py())

    def matches(self, text: str) -> list[dict[str, str]]:
        """Return the named groups of all matches; a group that matched nothing is left out.

        A text longer than TEXT_MAX_CHARS has none: half of it could say the opposite of the whole.
        """
        if len(text) > TEXT_MAX_CHARS:
            return []
        plain = text.translate(_MARKS).encode("utf-8", "replace").decode("utf-8")
        found = [part.partition(_END)[0].split(_BETWEEN) for part in self._marked(plain).split(_BEGIN)[1:]]
        return [
            {name: value for name, value in zip(self.groups, values, strict=True) if value}
            for values in found
            if any(values)
        ]
