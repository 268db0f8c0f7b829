"""The verb `tidy`: the input files of batches that are read are deleted at their providers, which keep what was sent.

Each deletion is on record, so that no later one asks again; who dies in between finds the file gone, and records that.
Results, and the batches themselves, stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batchpond.lake import failpoints
from batchpond.lake.attempts import READ_PHASES, Attempt, LakeState, fold
from batchpond.lake.events import read
from batchpond.lake.records import Tidied, Uploaded
from batchpond.lake.store import Store
from batchpond.model import Mode
from batchpond.plan import versions
from batchpond.run.find import check_host
from batchpond.run.session import Note, Providers, Report, Session


@dataclass(frozen=True, slots=True)
class TidyReport(Report):
    """How many input files were deleted, how many were gone already, and what hindered the rest."""

    n_deleted: int
    n_gone: int
    notes: tuple[Note, ...]


def count(store: Store, study: str | None) -> int:
    """Return how many input files there are to delete; reads only. Raises UsageError for a study without a plan."""
    events = list(read(store))
    lake_state = fold(events)
    if study is not None:
        versions.planned_version(lake_state, study)
    return len(_due(lake_state, (event for event in events if isinstance(event, Uploaded)), study))


def tidy(store: Store, study: str | None, *, providers: Providers) -> TidyReport:
    """Delete the input files of a study's batches that are read, or of all; one that fails stops no other."""
    n_deleted = n_gone = 0
    with store.lock("tidy"):
        session = Session.begin(store, providers)
        uploads = (event for event in list(session.log.events) if isinstance(event, Uploaded))
        for attempt, file_id in _due(session.lake_state, uploads, study):
            with session.isolated(attempt.client_name, f"deleting file {file_id} at {attempt.provider}"):
                provider = session.providers.get(attempt.client_name)
                check_host(attempt, provider)
                is_deleted = provider.drop_upload(file_id)
                failpoints.reach("T0")
                session.record(Tidied(attempt_id=attempt.attempt_id, file_id=file_id))
                failpoints.reach("T1")
                n_deleted += is_deleted
                n_gone += not is_deleted
    return TidyReport(n_deleted, n_gone, tuple(session.notes))


def _due(lake_state: LakeState, uploads: Iterator[Uploaded], study: str | None) -> list[tuple[Attempt, str]]:
    """Return the input files to delete, with their attempts: a second batch of one must be read as well."""
    unread = {a.intent.token for a in lake_state.attempts.values() if a.phase not in READ_PHASES}
    due: dict[tuple[str, str], tuple[Attempt, str]] = {}
    for event in uploads:
        attempt = lake_state.attempts[event.attempt_id]
        is_over = attempt.phase in READ_PHASES and attempt.intent.token not in unread
        is_wanted = study in {None, attempt.intent.study} and attempt.mode is Mode.BATCH
        if is_over and is_wanted and event.file_id not in attempt.tidied:
            due[attempt.attempt_id, event.file_id] = attempt, event.file_id
    return list(due.values())
