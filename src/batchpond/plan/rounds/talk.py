"""Conversations under pressure: the next turn of each, built from the model's real earlier answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchpond.model import Role, Turn
from batchpond.plan.asks import Ask, SourceRow
from batchpond.study.spec import StageSpec
from batchpond.tasks.pressure import Tactic, conversation, first_message, transcript
from batchpond.tasks.templates import Rubric

PLACES: Final = ("conversation", "first_output", "pressure", "turn")
"""What a row to judge has more than others, as placeholders in small letters."""
_SEPARATOR: Final = "/"


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: a question, the model that is pressed, and with which tactic."""

    unit_id: str
    candidate: str
    tactic_id: str


def rubric_of(tactic: Tactic) -> Rubric:
    """Return a tactic as the rubric of its requests: cells and metrics are by tactic, its name is the category."""
    return Rubric(tactic.tactic_id, tactic.category, "\n".join(tactic.phrases))


def asks(stage: StageSpec, questions: Sequence[SourceRow], answers: Mapping[Talk, Sequence[str]]) -> Iterator[Ask]:
    """Yield all turns that can be asked by now: the first of every question, and each that follows an answer.

    `answers` has the answers of turns 0, 1, ... without a gap: after a turn that failed a conversation ends.
    """
    answered = {talk.unit_id for talk in answers}
    by_id: dict[str, SourceRow] = {row.item_id: row for row in questions if row.item_id in answered}
    tactics = {tactic.tactic_id: tactic for tactic in stage.tactics}
    for tactic in stage.tactics:
        for row in questions:
            first = first_message(row.text, tactic if stage.is_cold_start else None)
            yield Ask(rubric_of(tactic), row, turn_no=0, text=first)
    for talk, said in sorted(answers.items(), key=lambda pair: (pair[0].tactic_id, pair[0].unit_id, pair[0].candidate)):
        question, talk_tactic = by_id.get(talk.unit_id), tactics.get(talk.tactic_id)
        if question is None or talk_tactic is None:
            continue
        for turn_no in range(1, min(len(said), stage.turns) + 1):
            yield _turn(stage, question, talk_tactic, talk.candidate, said[:turn_no])


def _turn(stage: StageSpec, row: SourceRow, tactic: Tactic, candidate: str, said: Sequence[str]) -> Ask:
    *history, last = _messages(stage, row.text, tactic, said)
    return Ask(rubric_of(tactic), row, turn_no=len(said), text=last.text, history=tuple(history), only=candidate)


def _messages(stage: StageSpec, question: str, tactic: Tactic, said: Sequence[str]) -> tuple[Turn, ...]:
    first = first_message(question, tactic if stage.is_cold_start else None)
    return conversation(first, said, tactic)


def rows(
    stage: StageSpec, questions: Mapping[str, str], answers: Mapping[Talk, Sequence[str]]
) -> Iterator[tuple[Talk, SourceRow]]:
    """Yield every answer of the conversations as a row to judge; `questions` gives each unit's text."""
    tactics = {tactic.tactic_id: tactic for tactic in stage.tactics}
    for talk, said in answers.items():
        tactic = tactics[talk.tactic_id]
        question = questions[talk.unit_id]
        for turn_no, answer in enumerate(said):
            messages = _messages(stage, question, tactic, said[:turn_no])
            yield (
                talk,
                SourceRow(
                    _SEPARATOR.join((talk.unit_id, talk.candidate, talk.tactic_id, str(turn_no))),
                    answer,
                    unit_id=talk.unit_id,
                    rubric_id=talk.tactic_id,
                    candidate=talk.candidate,
                    input_text=question,
                    turn_no=turn_no,
                    more={
                        "conversation": transcript([*messages, Turn(Role.ASSISTANT, answer)]),
                        "first_output": said[0],
                        "pressure": tactic.phrase(turn_no) if turn_no else "",
                        "turn": turn_no,
                    },
                ),
            )
