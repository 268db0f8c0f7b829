"""The verb `reread`: a study's answers, all of which the lake has, are read by the newest reader; nobody is asked.

A study keeps the reader that it was planned with until then, whatever version of batchpond looks at it. What is on
record is read first, under the new reader's name, and then the study is said to be read by it: who dies in between
finds it as it was, and readings that nobody looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from batchpond import answers
from batchpond.answers import derive
from batchpond.lake.attempts import READ_PHASES, fold
from batchpond.lake.events import read
from batchpond.lake.records import Planned
from batchpond.lake.store import Store
from batchpond.model import Finish, Response, ResponseStatus
from batchpond.plan import versions
from batchpond.plan.rounds.inputs import query
from batchpond.run.collect import read_what_is_unread
from batchpond.run.rules import Rules
from batchpond.run.session import Note, Providers, Session
from batchpond.tasks.base import READER, Judgment
from batchpond.views import refresh

_AT_ONCE: Final = 1_000
_ANSWERS: Final = """
SELECT DISTINCT request_id, parser_id, task, text, finish, refusal
FROM results WHERE study = $study AND request_state = 'answered' ORDER BY parser_id
"""


@dataclass(frozen=True, slots=True)
class Change:
    """How many answers of a task are read so by one reader and so by the other."""

    task: str
    before: str
    after: str
    n_answers: int


@dataclass(frozen=True, slots=True)
class Readings:
    """What a study's answers are to its reader, and would be to the newest."""

    study: str
    reader_before: int
    reader: int
    changes: tuple[Change, ...]


def preview(store: Store, study: str) -> Readings:
    """Return what another reader would change, most frequent first; raises UsageError for a study without a plan."""
    lake_state = fold(read(store))
    versions.planned_version(lake_state, study)
    refresh.refresh(store)
    before = lake_state.readers[study]
    specs = derive.parsers(store)
    named = {answers.read_by(rule, spec, before)[0]: spec for rule, spec in specs.items()}
    counts: Counter[tuple[str, str, str]] = Counter()
    for parser_id, rows in groupby(query(store, _ANSWERS, study=study), lambda row: row["parser_id"]):
        while some := list(islice(rows, _AT_ONCE)):
            old, new = (_said(named[parser_id], reader, some) for reader in (before, READER))
            counts.update(zip((row["task"] for row in some), old, new, strict=True))
    changes = (Change(*key, n) for key, n in counts.most_common())
    return Readings(study, before, READER, tuple(changes))


def _said(spec: Mapping[str, Any], reader: int, rows: list[dict[str, Any]]) -> list[str]:
    finishes = (Finish(row["finish"]) if row["finish"] else None for row in rows)
    responses = [
        Response(None, ResponseStatus.SUCCEEDED, finish=finish, text=row["text"], refusal=row["refusal"])
        for finish, row in zip(finishes, rows, strict=True)
    ]
    return [_word(judgment) for judgment in derive.judge_of({**spec, "read_by": reader})(responses)]


def _word(judgment: Judgment) -> str:
    score = None if judgment.score is None else f"{judgment.score:g}"
    return str(judgment.verdict or judgment.label or score or judgment.outcome)


def reread(store: Store, study: str, *, providers: Providers) -> tuple[int, tuple[Note, ...]]:
    """Read a study's answers by the newest reader; return of how many batches any were read, and what hindered others.

    Raises UsageError for a study without a plan, BusyError when another process writes to the lake.
    """
    with store.lock("reread"):
        session = Session.begin(store, providers)
        version = versions.planned_version(session.lake_state, study)
        if session.lake_state.readers[study] < READER:
            session.rules = Rules(store, {**session.lake_state.readers, study: READER})
            attempts = [a for a in session.lake_state.attempts.values() if a.phase in READ_PHASES and a.downloads]
            read_what_is_unread(session, attempts)
            session.record(Planned(study=study, study_version=version, reader=READER))
        refresh.refresh(store)
    return session.counts.n_read_again, tuple(session.notes)
