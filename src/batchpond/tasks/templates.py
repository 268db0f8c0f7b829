"""The words of prompts: templates, and what they ask a judge to look at: rubrics and policy statements.

A template is text with placeholders, filled in one pass so that values stay plain text (guide: study). A pairwise one
must contain `{TRAIT_NAME}`, `{TRAIT_DESCRIPTION}`, `{SAMPLE_1}` and `{SAMPLE_2}`; every other task has placeholders of
its own, which its answer rule names, and any column of an item may be one, `{item.x as media}` where it is a picture or
document. Any other word in braces is an error, since a paid model would read it as it stands, unless the template's
`literal` names it. All other braces (`{"score": 1}`, `{}`) are text. There is no escape: `{{x}}` is sent with both its
braces, so that the declaration of a word never changes what a template asks.

A text whose first line is `[[system]]` or `[[user]]` is a conversation. Mistral's and Gemma's chat templates refuse any
order but what the system says, if anything, then the user and the assistant by turns, the user last.
"""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import resources
from typing import Any, Final

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Role, Turn

SIZE_MAX_BYTES: Final = 1_000_000
_TEXTS: Final = resources.files("batchpond.tasks") / "texts"
PAIRWISE: Final = "pairwise"
_WORD: Final = re.compile(r"\{\s*([^\W\d]\w*(?:[.-]\w+)*)\s*\}")
_NEAR: Final = 0.6
TURN_MARK: Final = re.compile(r"^\[\[(system|user|assistant)\]\][ \t\r]*$", re.MULTILINE)
_LIKE_MARK: Final = re.compile(r"^[ \t]*\[\[[ \t]*(\w+)[ \t]*\]\][ \t\r]*$", re.MULTILINE)
_LIKE: Final = 0.8
_FOLLOWS: Final[Mapping[Role | None, tuple[Role, ...]]] = {
    None: (Role.SYSTEM, Role.USER),
    Role.SYSTEM: (Role.USER,),
    Role.USER: (Role.ASSISTANT,),
    Role.ASSISTANT: (Role.USER,),
}
"""Who may speak after whom."""
PAIR_SIDES: Final = ("SAMPLE_1", "SAMPLE_2", "OUTPUT_A", "OUTPUT_B")
OF_STATEMENT: Final = "statement"
"""Whose columns are what the file of statements says of each."""
ANSWERS: Final = "answers"
"""Whose columns are what earlier stages answered, `answers.STAGE.COLUMN`."""
MEDIA: Final = " as media"
"""What ends the name of a column whose value is a picture or document."""
_COLUMN: Final = re.compile(
    r"\{ *([#^/]?)((?:item|statement|answers|SAMPLE_[12]|OUTPUT_[AB])\.[\w-]+(?:(?:\.| +)[\w-]+)*) *\}"
)
_ODD_MEDIA: Final = re.compile(r"^(?:statement|answers)\..* as media$| as (?!media$)(?i:media|image|picture|photo)$")
_PARTS: Final = "{#item.x} or {^item.x}, what stands there if the item has an x or has none, and {/item.x}"
_ORDER: Final = "what the system says comes first, if at all; then user and assistant speak by turns, the user last"


@dataclass(frozen=True)
class Placeholders:
    """What the templates of a task must contain, each at least once, and what they may contain."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What finds a placeholder, its name as the only group."""
        return re.compile(r"\{(" + "|".join(map(re.escape, self.required + self.optional)) + r")\}")

    @property
    def sides(self) -> tuple[str, ...]:
        """Whose columns templates may show: each side's of a pair, none of a list, else the item's; the statement's."""
        known = self.required + self.optional
        return (
            *(tuple(side for side in PAIR_SIDES if side in known) or (() if "SAMPLES" in known else ("item",))),
            *((OF_STATEMENT,) if OF_STATEMENT.upper() in known else ()),
        )

    def columns(self, text: str, literal: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the columns that a template shows or asks for, as they stand in its braces, in name order."""
        meant, sides = {name.strip("{ }") for name in literal}, (*self.sides, ANSWERS)
        found = {match[2] for match in _COLUMN.finditer(text) if "  " not in match[2]} - meant
        return tuple(sorted(name for name in found if name.partition(".")[0] in sides))

    def check(
        self,
        text: str,
        where: str,
        literal: Sequence[str] = (),
        at: Callable[[int], str] | None = None,
        columns: tuple[str, ...] = (),
    ) -> None:
        """Raise StudyError when a required placeholder is missing, or for a word in braces that is none.

        The words of `literal`, with or without their braces, are meant as text; `at` says where a character is written.
        """
        at = at or partial(_line, where, text)
        found, known = set(pattern_of(self, columns).findall(text)), self.required + self.optional
        sides = {name.partition(".")[0] for name in columns if name.endswith(MEDIA)}
        found |= sides | ({"INPUT", "OUTPUT"} if "item" in sides else set())  # a picture stands for a text
        literal = [name.strip("{ }") for name in literal]
        if missing := [f"{{{name}}}" for name in self.required if name not in found]:
            raise StudyError(
                f"{where}: the template lacks {', '.join(missing)}",
                hint="`batchpond templates` shows complete ones to start from",
            )
        if filled := [name for name in literal if name in known]:
            raise StudyError(f"{where}: {{{filled[0]}}} is filled in here, so it cannot be literal")
        odd = {name for name in columns if _ODD_MEDIA.search(name)}
        columns = tuple({*columns} - odd)
        meant = {f"{{{name}}}" for name in (*known, *columns, *(mark + name for mark in "#^/" for name in columns))}
        words = itertools.chain(_WORD.finditer(text), _COLUMN.finditer(text))
        unknown = {match[0]: match.start() for match in words if match[0] not in meant}
        unknown = {word: start for word, start in unknown.items() if word.strip("{ }") not in literal}
        media = f"a picture or document is shown by {{{self.sides[0]}.COLUMN{MEDIA}}}; " if odd else ""
        hint = "what its samples say is all that is shown of them; " if "SAMPLES" in known else media
        if unknown:
            lines = (f"{at(start)}: {word} is no placeholder here" for word, start in unknown.items())
            shown = (*known, *(f"{side}.COLUMN" for side in self.sides), f"{ANSWERS}.STAGE.COLUMN")
            raise StudyError("\n".join(lines), hint=hint + _way_out([word.strip("{ }") for word in unknown], shown))


@cache
def pattern_of(placeholders: Placeholders, columns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds a placeholder, a column or a conditional part, as `{`, the only group and `}`.

    Of a conditional part the group is `#COLUMN}TEXT{/COLUMN`, or begins with `^`.
    """
    if not columns:
        return placeholders.pattern
    names = "|".join(map(re.escape, (*placeholders.required, *placeholders.optional, *columns)))
    parts = "|".join(rf"[#^]{name}\}}(?s:.*?)\{{/{name}" for name in map(re.escape, columns))
    return re.compile(rf"\{{({names}|{parts})\}}")


def part_of(name: str) -> tuple[str, str, str] | None:
    """Return mark, column and text of a conditional part as `pattern_of` finds it, None for another name."""
    if name[0] not in "#^":
        return None
    column, _, rest = name[1:].partition("}")
    return name[0], column, rest.removesuffix(f"{{/{column}")


def column_of(name: str) -> str:
    """Return the column that `item.x` or `item.x as media` names."""
    return name.partition(".")[2].removesuffix(MEDIA)


def _line(where: str, text: str, offset: int) -> str:
    number = text.count("\n", 0, offset) + 1
    return f"{where}: line {number}"


def _way_out(words: Sequence[str], known: Sequence[str]) -> str:
    """Return what to write in place of words that are no placeholders, and how to say that they are meant."""
    near = [name for word in words for name in difflib.get_close_matches(word.upper(), known, 1, _NEAR)]
    question = f"did you mean {' or '.join(f'{{{name}}}' for name in dict.fromkeys(near))}? " if near else ""
    names = ", ".join(f"{{{name}}}" for name in known) or "none"
    declared = ", ".join(f'"{word}"' for word in dict.fromkeys(words))
    return f"{question}placeholders here: {names}; what a model is to read as it stands: literal = [{declared}]"


@dataclass(frozen=True)
class Template:
    """A prompt text by name, and the columns that it shows; its hash changes with any character of them."""

    template_id: str
    text: str
    columns: tuple[str, ...] = ()

    @cached_property
    def template_hash(self) -> str:
        """The digest of id, text and columns, so that a row of the lake is found by it alone."""
        return ids.digest("template", self.template_id, self.text, *self.columns)

    @cached_property
    def media(self) -> frozenset[str]:
        """The columns whose values are pictures and documents."""
        return frozenset(column_of(name) for name in self.columns if name.endswith(MEDIA))

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Who says what, placeholders included, without the blank lines around it."""
        ends = [mark.start() for mark in self._marks[1:]] + [len(self.text)]
        parts = zip(self._marks, ends, strict=False)
        found = tuple(Turn(Role(mark[1]), self.text[mark.end() : end].strip("\r\n")) for mark, end in parts)
        found = found or (Turn(Role.USER, self.text),)
        if not self.columns:
            return found
        names = "|".join(map(re.escape, self.columns))
        alone = re.compile(rf"^[ \t]*(\{{[#^/](?:{names})\}})[ \t\r]*(?:\n|\Z)", re.MULTILINE)
        return tuple(Turn(turn.role, alone.sub(r"\1", turn.text)) for turn in found)

    @cached_property
    def _marks(self) -> list[re.Match[str]]:
        """The lines that begin a turn; none in a text that begins with anything else."""
        found = list(TURN_MARK.finditer(self.text))
        return found if found and not self.text[: found[0].start()].strip() else []

    def check(
        self, where: str, placeholders: Placeholders, literal: Sequence[str] = (), places: Sequence[str] = ()
    ) -> None:
        """Raise StudyError for a text that cannot be sent, or holds what neither placeholders nor `literal` name.

        `places` are where its turns are written, if not in the lines of one text.
        """
        if len(self.text.encode("utf-8", "surrogatepass")) > SIZE_MAX_BYTES:
            raise StudyError(f"{where}: the template is larger than {SIZE_MAX_BYTES:,} bytes")

        def at(offset: int) -> str:
            if not places:
                return _line(where, self.text, offset)
            return places[sum(mark.start() <= offset for mark in self._marks) - 1]

        self._check_turns(at, literal)
        self._check_parts(at)
        placeholders.check(self.text, where, literal, at, self.columns)

    def _check_parts(self, at: Callable[[int], str]) -> None:
        """Raise StudyError where a conditional part is not closed, within its turn, or is in one of its own kind."""
        ends = iter([*(mark.start() for mark in self._marks[1:]), len(self.text)])
        opened: list[str] = []
        end = next(ends)
        for match in (one for one in _COLUMN.finditer(self.text) if one[1] and one[2] in self.columns):
            while match.start() > end and not opened:
                end = next(ends)
            is_end = match[1] == "/"
            if match.start() > end or (is_end and opened[-1:] != [match[2]]) or (not is_end and match[2] in opened):
                raise StudyError(f"{at(match.start())}: {match[0]} does not fit what is open here", hint=_PARTS)
            if is_end:
                opened.pop()
            else:
                opened.append(match[2])
        if opened:
            raise StudyError(f"{at(len(self.text))}: {{#{opened[-1]}}} is never closed", hint=_PARTS)

    def _check_turns(self, at: Callable[[int], str], literal: Sequence[str]) -> None:
        before: Role | None = None
        for mark, turn in zip(self._marks, self.turns, strict=False):
            if turn.role not in _FOLLOWS[before]:
                raise StudyError(f"{at(mark.start())}: the {turn.role} cannot speak here", hint=_ORDER)
            if not turn.text.strip():
                raise StudyError(f"{at(mark.start())}: the {turn.role} says nothing", hint="write it, or leave it out")
            if turn.role is not Role.USER and f"{MEDIA}}}" in turn.text:
                raise StudyError(f"{at(mark.start())}: the {turn.role} cannot show a picture", hint="only the user can")
            before = turn.role
        if before not in (None, Role.USER):
            raise StudyError(f"{at(len(self.text))}: the {before} cannot speak last", hint=_ORDER)
        known = {mark.start() for mark in self._marks}
        for match in _LIKE_MARK.finditer(self.text):
            word = match[0].strip()
            is_meant = match.start() in known or word in literal
            if not is_meant and difflib.get_close_matches(match[1].casefold(), list(Role), 1, _LIKE):
                raise StudyError(
                    f"{at(match.start())}: {word} begins no turn here",
                    hint="lines [[system]], [[user]] and [[assistant]] do, in a text that begins with one;"
                    f' what a model is to read as it stands: literal = ["{word}"]',
                )


def text_of(turns: Sequence[Turn]) -> str:
    """Return the text of a template that has these turns."""
    return "\n".join(f"[[{turn.role}]]\n" + turn.text.strip("\r\n") for turn in turns)


def table(name: str) -> dict[str, Any]:
    """Return what a file of words and texts says that batchpond brings."""
    return tomllib.loads((_TEXTS / f"{name}.toml").read_text("utf-8"))


@cache
def builtin(task: str = PAIRWISE) -> dict[str, Template]:
    """Return the templates that batchpond brings for a task, by id; none for a task it does not know."""
    folder = _TEXTS / task
    if not folder.is_dir():
        return {}
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".txt")), key=lambda e: e.name)
    return {
        name: Template(name, text, tuple(sorted({match[2] for match in _COLUMN.finditer(text)})))
        for entry in files
        if (name := entry.name.removesuffix(".txt")) and (text := entry.read_text("utf-8").removesuffix("\n"))
    }


def tasks() -> list[str]:
    """Return the tasks that templates come with, in name order, pairwise first."""
    names = sorted(entry.name for entry in _TEXTS.iterdir() if entry.is_dir())
    return sorted(names, key=lambda name: name != PAIRWISE)


STATEMENT_PLACEHOLDERS: Final = ("STATEMENT_ID", "STATEMENT_TYPE", "AUTHORITY", "SECTION", "SUBSECTION", "EXAMPLES")
NOT_KNOWN: Final = "(none)"
POINTS: Final = "POINTS"


@dataclass(frozen=True)
class Rubric:
    """A trait by name and description, or a policy statement; its hash changes with anything it says.

    `more` has what templates may show of a statement besides its text, and its points.
    """

    rubric_id: str
    name: str
    description: str
    more: tuple[tuple[str, str], ...] = ()

    @property
    def points(self) -> float | None:
        """What an answer that meets it earns, below 0 for what it should not do; None where nothing is given."""
        found = dict(self.more).get(POINTS)
        return None if found is None else float(found)

    @cached_property
    def rubric_hash(self) -> str:
        """The digest of id, name, description and what else templates may show."""
        more = [part for pair in self.more for part in pair]
        return ids.digest("rubric", self.rubric_id, self.name, self.description, *more)


@cache
def builtin_rubrics() -> dict[str, Rubric]:
    """Return the rubrics that batchpond brings, by id, in name order."""
    return {
        rubric_id: Rubric(rubric_id, entry["name"], entry["description"].strip())
        for rubric_id, entry in sorted(table("rubrics").items())
    }
