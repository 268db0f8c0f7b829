"""The words of prompts: templates, and what they ask a judge to look at: rubrics and policy statements.

A template is text with placeholders, filled in one pass so that values stay plain text. A pairwise one must contain
`{TRAIT_NAME}`, `{TRAIT_DESCRIPTION}`, `{SAMPLE_1}` and `{SAMPLE_2}`, each at least once, and may contain
`{ANSWER_FIRST}` and `{ANSWER_SECOND}`, which become the study's exact answers. Every other task has placeholders of its
own, which its answer rule names.

Any other word in braces is an error, since a paid model would read it as it stands, unless the template's
`literal` names it. All other braces (`{"score": 1}`, `{}`) are text. There is no escape: `{{x}}` is sent with
both its braces, so that the declaration of a word never changes what a template asks.

A text whose first line is `[[system]]` or `[[user]]` is a conversation, cut at such lines before it is filled in: what
the system says, if anything, then the user and the assistant by turns, the user last. Mistral's and Gemma's chat
templates refuse any other order, and not every provider takes it. A text without such a line is what the user says.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import resources
from typing import Final

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Role, Turn

SIZE_MAX_BYTES: Final = 1_000_000
PAIRWISE: Final = "pairwise"
_WORD: Final = re.compile(r"\{\s*([^\W\d]\w*(?:[.-]\w+)*)\s*\}")
_NEAR: Final = 0.6
_MARK: Final = re.compile(r"^\[\[(system|user|assistant)\]\][ \t\r]*$", re.MULTILINE)
_LIKE_MARK: Final = re.compile(r"^[ \t]*\[\[[ \t]*(\w+)[ \t]*\]\][ \t\r]*$", re.MULTILINE)
_LIKE: Final = 0.8
_FOLLOWS: Final[Mapping[Role | None, tuple[Role, ...]]] = {
    None: (Role.SYSTEM, Role.USER),
    Role.SYSTEM: (Role.USER,),
    Role.USER: (Role.ASSISTANT,),
    Role.ASSISTANT: (Role.USER,),
}
"""Who may speak after whom."""
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

    def check(self, text: str, where: str, literal: Sequence[str] = (), at: Callable[[int], str] | None = None) -> None:
        """Raise StudyError when a required placeholder is missing, or for a word in braces that is none.

        The words of `literal`, with or without their braces, are meant as text; `at` says where a character is written.
        """
        at = at or partial(_line, where, text)
        found, known = set(self.pattern.findall(text)), self.required + self.optional
        literal = [name.strip("{ }") for name in literal]
        if missing := [f"{{{name}}}" for name in self.required if name not in found]:
            raise StudyError(
                f"{where}: the template lacks {', '.join(missing)}",
                hint="`batchpond templates` shows complete ones to start from",
            )
        if filled := [name for name in literal if name in known]:
            raise StudyError(f"{where}: {{{filled[0]}}} is filled in here, so it cannot be literal")
        if unknown := {match[0]: match for match in _WORD.finditer(text) if not self._is_meant(match, literal)}:
            lines = (f"{at(match.start())}: {word} is no placeholder here" for word, match in unknown.items())
            raise StudyError("\n".join(lines), hint=_way_out([match[1] for match in unknown.values()], known))

    def _is_meant(self, match: re.Match[str], literal: Sequence[str]) -> bool:
        return match[1] in literal or self.pattern.fullmatch(match[0]) is not None

    def fill(self, text: str, values: Mapping[str, str]) -> str:
        """Return a text with all placeholders replaced; an optional one without a value becomes nothing.

        Raises KeyError for a required one without a value.
        """
        return self.pattern.sub(
            lambda match: values.get(match[1], "") if match[1] in self.optional else values[match[1]], text
        )


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
    """A prompt text by name; its hash changes with any character of either."""

    template_id: str
    text: str

    @cached_property
    def template_hash(self) -> str:
        """The digest of id and text, so that a row of the lake is found by it alone."""
        return ids.digest("template", self.template_id, self.text)

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """Who says what, placeholders included, without the blank lines around it."""
        ends = [mark.start() for mark in self._marks[1:]] + [len(self.text)]
        parts = zip(self._marks, ends, strict=False)
        found = tuple(Turn(Role(mark[1]), self.text[mark.end() : end].strip("\r\n")) for mark, end in parts)
        return found or (Turn(Role.USER, self.text),)

    @cached_property
    def _marks(self) -> list[re.Match[str]]:
        """The lines that begin a turn; none in a text that begins with anything else."""
        found = list(_MARK.finditer(self.text))
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
        placeholders.check(self.text, where, literal, at)

    def _check_turns(self, at: Callable[[int], str], literal: Sequence[str]) -> None:
        before: Role | None = None
        for mark, turn in zip(self._marks, self.turns, strict=False):
            if turn.role not in _FOLLOWS[before]:
                raise StudyError(f"{at(mark.start())}: the {turn.role} cannot speak here", hint=_ORDER)
            if not turn.text.strip():
                raise StudyError(f"{at(mark.start())}: the {turn.role} says nothing", hint="write it, or leave it out")
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


def has_turns(text: str) -> bool:
    """Return whether a line of a text is one that begins a turn."""
    return _MARK.search(text) is not None


def text_of(turns: Sequence[Turn]) -> str:
    """Return the text of a template that has these turns."""
    return "\n".join(f"[[{turn.role}]]\n" + turn.text.strip("\r\n") for turn in turns)


@cache
def builtin(task: str = PAIRWISE) -> dict[str, Template]:
    """Return the templates that batchpond brings for a task, by id; none for a task it does not know."""
    folder = resources.files("batchpond.tasks") / "texts" / task
    if not folder.is_dir():
        return {}
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".txt")), key=lambda e: e.name)
    return {
        name: Template(name, entry.read_text("utf-8").removesuffix("\n"))
        for entry in files
        if (name := entry.name.removesuffix(".txt"))
    }


def tasks() -> list[str]:
    """Return the tasks that templates come with, in name order, pairwise first."""
    folder = resources.files("batchpond.tasks") / "texts"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    return sorted(names, key=lambda name: name != PAIRWISE)


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
def builtin_rubrics() -> dict[str, Rubric]:
    """Return the rubrics that batchpond brings, by id, in name order."""
    text = (resources.files("batchpond.tasks") / "texts" / "rubrics.toml").read_text("utf-8")
    return {
        rubric_id: Rubric(rubric_id, entry["name"], entry["description"].strip())
        for rubric_id, entry in sorted(tomllib.loads(text).items())
    }
