"""What a model is pressed with: tactics, and the conversation up to a level of pressure.

A tactic is a category and its phrases in order of escalation; six come with batchpond, a study may bring
more. At level t the model sees the question, each of its own real earlier answers, and the phrases of the
levels 1 to t. A tactic with fewer phrases than levels repeats its last one. With cold start, the pressure
stands in the first message already: the tactic's opening, which contains `{QUESTION}`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from batchpond.errors import StudyError
from batchpond.model import Role, Turn
from batchpond.tasks.templates import Placeholders

OPENING: Final = Placeholders(("QUESTION",))
PHRASE: Final = Placeholders(())
PHRASES_MAX: Final = 100
TEXT_MAX_CHARS: Final = 20_000


@dataclass(frozen=True)
class Tactic:
    """One way to press: by level, phrase after phrase; `opening` is for cold starts and may be blank."""

    tactic_id: str
    category: str
    phrases: tuple[str, ...]
    opening: str = ""

    def phrase(self, level: int) -> str:
        """Return what the user says at a level, from 1."""
        if level < 1:
            raise ValueError(f"level {level}: pressure begins at 1")
        return self.phrases[min(level, len(self.phrases)) - 1]

    def check(self, where: str, literal: Sequence[str] = ()) -> None:
        """Raise StudyError when it says nothing, has no category, or has words in braces that are not in `literal`."""
        texts = (self.category, *self.phrases)
        if not 1 <= len(self.phrases) <= PHRASES_MAX or not all(text.strip() for text in texts):
            raise StudyError(f"{where} needs a category and 1 to {PHRASES_MAX} phrases, none of them blank")
        if any(len(text) > TEXT_MAX_CHARS for text in (*texts, self.opening)):
            raise StudyError(f"{where} has a text longer than {TEXT_MAX_CHARS:,} characters")
        for phrase in self.phrases:
            PHRASE.check(phrase, f"{where}.phrases", literal)
        if self.opening:
            OPENING.check(self.opening, f"{where}.opening", literal)


@cache
def builtin() -> dict[str, Tactic]:
    """Return the tactics that batchpond brings, by id, in the order of their file."""
    text = (resources.files("batchpond.tasks") / "texts" / "tactics.toml").read_text("utf-8")
    return {
        name: Tactic(name, table["category"], tuple(table["phrases"]), table["opening"])
        for name, table in tomllib.loads(text).items()
    }


def first_message(question: str, tactic: Tactic | None = None) -> str:
    """Return what the user says first: the question, or with a tactic its opening around the question.

    Raises StudyError for a tactic without opening.
    """
    if tactic is None:
        return question
    if not tactic.opening:
        raise StudyError(f"the tactic {tactic.tactic_id} has no opening, so it cannot start cold")
    return OPENING.fill(tactic.opening, {"QUESTION": question})


def conversation(first: str, answers: Sequence[str], tactic: Tactic) -> tuple[Turn, ...]:
    """Return the messages that ask for level `len(answers)`: each real earlier answer met by its phrase.

    Raises ValueError for a blank answer: without one there is no next turn, only a conversation that ended.
    """
    messages = [Turn(Role.USER, first)]
    for level, answer in enumerate(answers, 1):
        if not answer.strip():
            raise ValueError(f"the answer before level {level} is blank, so nothing can be built on it")
        messages += (Turn(Role.ASSISTANT, answer), Turn(Role.USER, tactic.phrase(level)))
    return tuple(messages)


def transcript(messages: Sequence[Turn]) -> str:
    """Return a conversation for a judge to read, its messages numbered.

    A message that imitates the headings stays recognisable: the count of messages is written above.
    """
    head = f"({len(messages)} messages)"
    parts = [
        f"[{number}. {message.role}]\n{message.text}\n[end of {number}.]" for number, message in enumerate(messages, 1)
    ]
    return "\n\n".join([head, *parts])
