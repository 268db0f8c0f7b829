"""The verb `reread`: a study's answers, all of which the lake has, are read by the newest reader; nobody is asked.

A study keeps the reader that it was planned with until then, whatever version of batchpond looks at it. The answers
are read first, beside the readings that stand, and only then is the study said to be read so: until that, and in a
process that died, nobody looks at the new readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchpond.lake import tables
from batchpond.lake.attempts import READ_PHASES, fold
from batchpond.lake.events import EventLog
from batchpond.lake.records import Planned
from batchpond.lake.store import Store
from batchpond.plan import versions
from batchpond.plan.rounds.inputs import query
from batchpond.run.collect import read_what_is_unread
from batchpond.run.session import Note, Providers, Rules, Session
from batchpond.tasks.base import READER
from batchpond.views import refresh

_CHANGES: Final = tables.query(__package__, "read_anew")


@dataclass(frozen=True, slots=True)
class Change:
    """How many answers of a task are read so by one reader and so by the other."""

    task: str
    before: str
    after: str
    n_answers: int


@dataclass(frozen=True, slots=True)
class Readings:
    """What a study's answers are to its reader, and to the newest; of how many batches that one read any just now."""

    study: str
    reader_before: int
    reader: int
    n_read_again: int
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]


def read_beside(store: Store, study: str, *, providers: Providers) -> Readings:
    """Read a study's answers by the newest reader too, and return what that changes, most frequent first.

    Raises UsageError for a study without a plan, BusyError when another process writes to the lake.
    """
    with store.lock("reread"):
        session = Session.begin(store, providers)
        versions.planned_version(session.lake_state, study)
        readers = session.lake_state.readers
        if readers[study] < READER:
            session.rules = Rules(store, {**readers, study: READER})
            attempts = [a for a in session.lake_state.attempts.values() if a.phase in READ_PHASES and a.downloads]
            read_what_is_unread(session, attempts)
        refresh.refresh(store)
    rows = query(store, _CHANGES, study=study, name=f"-r{READER}")
    changes = tuple(Change(**row) for row in rows)
    return Readings(study, readers[study], READER, session.counts.n_read_again, changes, tuple(session.notes))


def reread(store: Store, study: str) -> None:
    """Say that a study is read by the newest reader from now on."""
    with store.lock("reread"):
        log = EventLog(store)
        version = versions.planned_version(fold(log.events), study)
        log.append(Planned(study=study, study_version=version, reader=READER))
        refresh.refresh(store)
