"""What answers make possible: entries of lists as rows, which questions are kept and what lacks; and further turns.

An entry is known by its statement and its text, so that the same entry of two models, of two rounds, or of an answer
that came late by a retry is one row, and no other row changes its name because of it. `query` is how all rounds ask the
lake's views. Conversations under pressure are built from the model's real earlier answers.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import orjson

from batchpond import ids
from batchpond.lake import tables
from batchpond.lake.store import Store
from batchpond.model import Role, Turn
from batchpond.plan.asks import Ask, Asks, asks, in_columns
from batchpond.plan.prompts import NoAnswer, check_prompts, row_of
from batchpond.plan.rows import PLACES, SourceRow, SourceRows, some_rows
from batchpond.study.spec import Kept, StageSpec, Study
from batchpond.tasks.inputs import InputsRule, Question, entries, promising, same, select
from batchpond.tasks.pressure import Tactic, conversation, first_message, transcript
from batchpond.tasks.templates import ANSWERS, Rubric
from batchpond.views.read import Limits, stream_query
from batchpond.views.refresh import refresh

QUERY_TIMEOUT_S: Final = 600.0  # the work on its rows included
ROWS_MAX: Final = 5_000_000
READ_ROWS: Final = 1_000
GOOD: Final = "outcome IN ('decided', 'tie')"
CHOSEN: Final = tables.query(__package__, "chosen", good=GOOD)
"""What a stage came to, as far as a condition chooses it."""

AVOID_MAX: Final = 100
"""How many questions a further round is told to leave out; more would cost more than repetitions do."""
KINDS: Final = {"categories": "category", "scenarios": "scenario", "questions": "question"}
PARENT: Final = "made_from"
"""Where an entry's metadata says which row it was made from."""
_ID_LENGTH: Final = 10

_LISTS: Final = tables.query(__package__, "lists", good=GOOD)
_RATINGS: Final = tables.query(__package__, "ratings", good=GOOD)
_ASKED: Final = tables.query(__package__, "asked")
_ANSWERS: Final = tables.query(__package__, "answers", good=GOOD)
_SEPARATOR: Final = "\x1f"
ALL: Final = "true"


def query(store: Store, sql: str, where: str = ALL, **values: object) -> Iterator[dict[str, Any]]:
    """Yield the rows of a SELECT of our own over the lake's views; `$name` in it is a value, `$where` a user's SQL."""
    return _rows(store, sql.replace("$where", where), values, is_ours=where == ALL)


def users(store: Store, sql: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a user's SELECT over the lake's views, brought up to date before; the lake's lock is held."""
    return _rows(store, sql, {}, is_ours=False)


def _rows(store: Store, sql: str, values: Mapping[str, object], *, is_ours: bool) -> Iterator[dict[str, Any]]:
    if not is_ours:
        refresh(store)  # a user's SQL sees what is on disk
    limits = Limits(QUERY_TIMEOUT_S, max_rows=ROWS_MAX)
    for batch in stream_query(store.path, sql, limits, values=values or None, is_ours=is_ours):
        for start in range(0, batch.num_rows, READ_ROWS):
            yield from batch.slice(start, READ_ROWS).to_pylist()


def entry_rows(store: Store, study: str, sources: Sequence[StageSpec], where: str = ALL) -> list[SourceRow]:
    """Return the entries of some stages' lists as rows, each once, with what they were made from."""
    rules = {source.name: source.rule for source in sources if isinstance(source.rule, InputsRule)}
    found: dict[str, SourceRow] = {}
    for answer in query(store, _LISTS, where, study=study, stages=list(rules)):
        rule = rules[answer["stage"]]
        for text in entries(answer["text"] or "", rule):
            row = _entry(answer, rule, text)
            known = found.get(row.item_id)
            if known is None or row.more[PARENT] < known.more[PARENT]:
                found[row.item_id] = row
    return list(found.values())


def _entry(answer: Mapping[str, Any], rule: InputsRule, text: str) -> SourceRow:
    parent_id, rubric_id = answer["parent_id"], answer["rubric_id"]
    kind = KINDS[rule.step]
    owner = rubric_id or parent_id
    item_id = f"{owner}/{kind[0]}-{ids.digest(kind, owner, same(text), length=_ID_LENGTH)}"
    metadata = orjson.loads(answer["metadata"]) if answer["metadata"] else {}
    above = {name: value for name, value in metadata.items() if name not in PLACES}
    more = {**above, kind: text, PARENT: parent_id}
    return SourceRow(item_id, text, unit_id=item_id, rubric_id=rubric_id, more=more, tier=metadata.get("tier"))


@dataclass(frozen=True, slots=True)
class Rated:
    """The questions that were made so far, as rows, and what they were rated; None where no judge could."""

    rows: Mapping[str, SourceRow]
    ratings: Mapping[str, float]

    def questions(self) -> list[Question]:
        """Return them as the selection takes them."""
        return [
            Question(row.rubric_id or "", row.item_id, row.text, self.ratings.get(row.item_id))
            for row in self.rows.values()
        ]


def rated(store: Store, staged: Study, kept: Kept) -> Rated:
    """Return the questions of all rounds that `kept` is about, each once."""
    rows = entry_rows(store, staged.name, [staged.stage(name) for name in kept.questions])
    found = query(store, _RATINGS, study=staged.name, stages=list(kept.ratings))
    return Rated({row.item_id: row for row in rows}, {row["unit_id"]: row["rating"] for row in found})


def kept_rows(store: Store, staged: Study, kept: Kept) -> list[SourceRow]:
    """Return the questions that are kept; one that a later stage has been asked about stays so whatever comes late."""
    found = rated(store, staged, kept)
    users = [stage.name for stage in staged.stages if stage.rows.kept == kept]
    asked = {row["item_first"] for row in query(store, _ASKED, study=staged.name, stages=users)}
    chosen = select(
        found.questions(), kept.below, staged.seed, kept.per_statement, kept.is_uniform, already=frozenset(asked)
    )
    return [found.rows[question.input_id] for question in chosen.kept]


def n_low(found: Rated, kept: Kept) -> dict[str, int]:
    """Return how many different questions of each statement are rated low enough; one without any is left out."""
    chosen = select(found.questions(), kept.below, 0, is_uniform=False)
    return {name: n for name, n in chosen.n_by_statement.items() if n}


def lacking_rows(found: Rated, scenarios: Sequence[SourceRow], kept: Kept, seed: int) -> list[SourceRow]:
    """Return the scenarios that a further round goes into: the lowest rated of each statement that lacks questions."""
    counts = n_low(found, kept)
    ratings: dict[str, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    for row in found.rows.values():
        if counts.get(row.rubric_id or "", 0) < kept.per_statement:
            ratings[row.rubric_id or ""][row.more[PARENT]].append(found.ratings.get(row.item_id))
    chosen = {name for of_statement in ratings.values() for name in promising(of_statement, kept.promising, seed)}
    return [row for row in scenarios if row.item_id in chosen]


def further_asks(store: Store, staged: Study, stage: StageSpec, kept: Kept) -> Iterator[Ask]:
    """Yield what a further round asks: more questions in the most promising scenarios, other than those made there."""
    found = rated(store, staged, kept)
    scenarios = entry_rows(store, staged.name, [staged.stage(stage.rows.stage or "")])
    made: dict[str, list[str]] = defaultdict(list)
    for item_id in sorted(found.rows):
        made[found.rows[item_id].more[PARENT]].append(found.rows[item_id].text)
    lacking = lacking_rows(found, scenarios, kept, staged.seed)
    for ask in chain.from_iterable(asks(stage, lacking, staged.seed)):
        avoid = orjson.dumps(made[ask.first.item_id][:AVOID_MAX]).decode()
        yield ask._replace(values={"AVOID": avoid})


OF_TALK: Final = ("conversation", "first_output", "pressure", "turn")
"""What a row to judge has more than others, as placeholders in small letters."""
_OF_TURN: Final = "/"


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: a question, the model that is pressed, and with which tactic."""

    unit_id: str
    candidate: str
    tactic_id: str


def rubric_of(tactic: Tactic) -> Rubric:
    """Return a tactic as the rubric of its requests: cells and metrics are by tactic, its name is the category."""
    return Rubric(tactic.tactic_id, tactic.category, "\n".join(tactic.phrases))


def talk_asks(stage: StageSpec, questions: SourceRows, answers: Mapping[Talk, Sequence[str]]) -> Iterator[Asks]:
    """Yield all turns that can be asked by now: the first of every question, and each that follows an answer.

    `answers` has the answers of turns 0, 1, ... without a gap: after a turn that failed a conversation ends.
    """
    for tactic in stage.tactics:
        rubric = rubric_of(tactic)
        for rows in some_rows(questions):
            said = [first_message(text, tactic if stage.is_cold_start else None) for text in rows.column("text")]
            others: dict[str, Sequence[Any]] = {"turn_no": [0] * len(rows), "text": said}
            yield Asks(rows, [rubric] * len(rows), np.arange(len(rows)), None, others)
    yield from in_columns(_further_turns(stage, questions, answers))


def _further_turns(stage: StageSpec, questions: SourceRows, answers: Mapping[Talk, Sequence[str]]) -> Iterator[Ask]:
    answered = {talk.unit_id for talk in answers}  # questions may be read from a file: not where none is
    by_id = {row.item_id: row for row in questions if row.item_id in answered} if answered else {}
    tactics = {tactic.tactic_id: tactic for tactic in stage.tactics}
    for talk, said in sorted(answers.items(), key=lambda pair: (pair[0].tactic_id, pair[0].unit_id, pair[0].candidate)):
        question, talk_tactic = by_id.get(talk.unit_id), tactics.get(talk.tactic_id)
        if question is None or talk_tactic is None:
            continue
        rubric = rubric_of(talk_tactic)
        for turn_no in range(1, min(len(said), stage.turns) + 1):
            *history, last = _messages(stage, question.text, talk_tactic, said[:turn_no])
            ask = Ask(rubric, question, turn_no=turn_no, text=last.text, history=tuple(history))
            yield ask._replace(only=talk.candidate)


def _messages(stage: StageSpec, question: str, tactic: Tactic, said: Sequence[str]) -> tuple[Turn, ...]:
    first = first_message(question, tactic if stage.is_cold_start else None)
    return conversation(first, said, tactic)


def talk_rows(
    stage: StageSpec, questions: Mapping[str, SourceRow], answers: Mapping[Talk, Sequence[str]]
) -> Iterator[tuple[Talk, SourceRow]]:
    """Yield every answer of the conversations as a row to judge; `questions` gives each unit's."""
    tactics = {tactic.tactic_id: tactic for tactic in stage.tactics}
    for talk, said in answers.items():
        tactic = tactics[talk.tactic_id]
        question = questions[talk.unit_id]
        for turn_no, answer in enumerate(said):
            messages = _messages(stage, question.text, tactic, said[:turn_no])
            more = {
                **question.more,
                "conversation": transcript([*messages, Turn(Role.ASSISTANT, answer)]),
                "first_output": said[0],
                "pressure": tactic.phrase(turn_no) if turn_no else "",
                "turn": turn_no,
            }
            item_id = _OF_TURN.join((talk.unit_id, talk.candidate, talk.tactic_id, str(turn_no)))
            row = SourceRow(item_id, answer, talk.unit_id, talk.tactic_id, talk.candidate, question.text, turn_no, more)
            yield talk, row._replace(tier=question.tier)


def with_answers(store: Store, study: Study, stage: StageSpec, found: Iterator[Asks]) -> Iterator[Ask]:
    """Yield asks with what earlier stages answered about the same, as far as the stage's templates show it.

    One that would show an answer that is not there, or not all of several that are asked for, is left out: it is asked
    once those have come.
    """
    with closing(sqlite3.connect("")) as known:  # a file without a name: answers may be more than memory holds
        columns = "stage, about, rubric, text, verdict, label, score, confidence, explanation, is_open"
        known.execute(f"CREATE TABLE said ({columns})")
        names = [asked for asked, _ in stage.answers.values()]
        rows = (tuple(row.values()) for row in query(store, _ANSWERS, study=study.name, stages=names))
        known.executemany("INSERT INTO said VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        known.execute("CREATE INDEX by_what ON said (stage, about)")
        for ask in chain.from_iterable(found):
            rubric_id = None if stage.rule.parts else ask.rubric.rubric_id  # fields are asked for at once
            asked = ((name, study.stage(source), column) for name, (source, column) in stage.answers.items())
            with suppress(NoAnswer):
                said = {one[0]: _answer(known, ask, rubric_id, one) for one in asked}
                full = ask._replace(values={**ask.values, **said})
                if not all(said.values()):
                    check_prompts(stage, full)
                yield full


def _answer(known: sqlite3.Connection, ask: Ask, rubric_id: str | None, asked: tuple[str, StageSpec, str]) -> str:
    """Return what a stage answered about an ask's items in order, as the output that it is, or about its unit.

    Raises NoAnswer where some of that is still to ask.
    """
    name, stage, column = asked
    is_of_side = not name.startswith(f"{ANSWERS}.")
    first, second = (row_of(name, ask), None) if is_of_side else (ask.first, ask.second)
    where = "stage = ? AND about = ? AND (rubric = ? OR rubric IS NULL) ORDER BY rubric IS NULL"
    if (part := stage.rule.parts.get(column)) is not None and column not in stage.rule.says:
        rubric_id, (column,), where = column, part.says, "stage = ? AND about = ? AND rubric = ?"
    places = [(first.item_id, second.item_id)] if second else [(first.item_id,), ("", first.unit_id, first.candidate)]
    for about in (*([] if ask.list_id else places), (first.unit_id,)):  # the items of a list share their prompt
        values = (stage.name, _SEPARATOR.join(one or "" for one in about), rubric_id)
        if (row := known.execute(f"SELECT {column}, is_open FROM said WHERE {where}", values).fetchone()) is not None:
            if row[1]:
                raise NoAnswer(f"not all of stage {stage.name} has been asked about {'/'.join(filter(None, about))}")
            return row[0] or ""
    return ""
