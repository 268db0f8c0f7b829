"""The verbs `resolve`, `cancel`, `tidy` and `reread`: what a person decides, and batchpond may not.

`cancel` asks a provider to stop a batch; whatever it finished is still collected. `tidy` has the input files of
batches that are read deleted at their providers, which keep what was sent. `reread` has a study's answers read by the
newest reader, which is a matter of readings, never of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from batchpond.errors import UsageError
from batchpond.lake import events, failpoints, records, tables
from batchpond.lake.attempts import (
    LOSABLE_PHASES,
    READ_PHASES,
    UNCLEAR_PHASES,
    Attempt,
    LakeState,
    Phase,
    fold,
    seen_as,
)
from batchpond.lake.events import EventLog
from batchpond.lake.records import Event, Resolution
from batchpond.lake.store import Store
from batchpond.model import BatchState, Mode, RemoteBatch
from batchpond.plan import versions
from batchpond.plan.rounds.inputs import query
from batchpond.run import collect
from batchpond.run.find import Proof, check_host, prove
from batchpond.run.session import Note, Providers, Report, Rules, Session, Severity, answered
from batchpond.tasks.base import READER
from batchpond.text import did_you_mean
from batchpond.views.refresh import refresh

_ID_PREFIX_MIN = 6
_STATUS_HINT = "`batchpond status` shows where each attempt stands"
_BY_A_PERSON = "a person's word"


_ALLOWED = {
    Resolution.ADOPT: UNCLEAR_PHASES,
    Resolution.ABSENT: UNCLEAR_PHASES | {Phase.REJECTED},
    Resolution.LOST: LOSABLE_PHASES,
    Resolution.REFETCH: frozenset({Phase.MISMATCH}),
    Resolution.KNOWN: frozenset(Phase),
    **{taken: frozenset({Phase.MISMATCH}) for taken in Resolution if taken.take},
}


def resolve(
    store: Store, attempt_id: str, resolution: Resolution, *, providers: Providers, batch_id: str | None = None
) -> Attempt:
    """Record a person's decision and return the attempt as it then stands.

    `adopt` takes the provider's `batch_id` for the attempt, in doubt, refused or called absent, after checking that it
    can be its batch; `absent` lets the shard be sent again, which may pay twice; `lost` gives the answers up, of live
    calls those that their machine has not handed in; `refetch` downloads a mismatched batch's files again; `take_...`
    says which of two answers to a request that differ counts; `known` that a second batch has been seen to. Raises
    UsageError when the attempt is in no state for it, and BusyError while this machine makes the live calls.
    """
    with store.lock(f"resolve {attempt_id}"):
        session = Session.begin(store, providers)
        attempt = find_attempt(session.lake_state, attempt_id)
        is_late_batch = resolution is Resolution.ADOPT and session.lake_state.is_late(attempt)
        if resolution is Resolution.KNOWN and not attempt.is_duplicate:
            raise UsageError(f"attempt {attempt.attempt_id} is no second batch of another", hint=_STATUS_HINT)
        if attempt.phase not in _ALLOWED[resolution] and not is_late_batch:
            allowed = ", ".join(sorted(_ALLOWED[resolution]))
            raise UsageError(
                f"attempt {attempt.attempt_id} is {attempt.phase}; --{resolution} is for one that is {allowed}",
                hint=_STATUS_HINT,
            )
        if resolution is Resolution.LOST and attempt.mode is Mode.LIVE and attempt.phase is Phase.OPEN:
            _cancel_live(session, attempt, is_host_gone=True)
        else:
            session.record(*_events(session, attempt, resolution, batch_id))
        if resolution.take:
            taken = session.attempt(attempt.attempt_id)
            collect.finish(session, taken, collect.read(session, taken))
        refresh(store)
        return session.attempt(attempt.attempt_id)


def find_attempt(lake_state: LakeState, wanted: str) -> Attempt:
    """Return the attempt of that id, unique beginning of an id, or batch id; raises UsageError."""
    found = [
        attempt
        for attempt in lake_state.attempts.values()
        if attempt.batch_id == wanted or (len(wanted) >= _ID_PREFIX_MIN and attempt.attempt_id.startswith(wanted))
    ]
    if len(found) == 1:
        return found[0]
    problem = "no attempt or batch" if not found else f"{len(found)} attempts"
    names = [
        name for attempt in lake_state.attempts.values() for name in (attempt.attempt_id, attempt.batch_id) if name
    ]
    shown = "`batchpond status --batches` lists attempts and batches"
    hint = f"{did_you_mean(wanted, names, '')} {shown}".lstrip()
    raise UsageError(f"{problem} {wanted!r} in this lake", hint=hint)


def _events(session: Session, attempt: Attempt, resolution: Resolution, batch_id: str | None) -> list[Event]:
    attempt_id = attempt.attempt_id
    resolved = records.Resolved(attempt_id=attempt_id, batch_id=batch_id, resolution=resolution)
    match resolution:
        case Resolution.ADOPT:
            return [resolved, records.Adopted(**seen_as(attempt, _adoptable(session, attempt, batch_id)))]
        case Resolution.ABSENT:
            doubt = records.Unknown(attempt_id=attempt_id, ordinal=attempt.n_sends, reason=_BY_A_PERSON)
            absent = records.Absent(attempt_id=attempt_id, evidence=_BY_A_PERSON)
            return [resolved, doubt, absent] if attempt.phase is not Phase.UNKNOWN else [resolved, absent]
        case Resolution.LOST:
            return [resolved, records.Lost(attempt_id=attempt_id, reason=_BY_A_PERSON)]
        case _:
            return [records.Resolved(attempt_id=attempt_id, resolution=resolution)]


def _adoptable(session: Session, attempt: Attempt, batch_id: str | None) -> RemoteBatch:
    """Return the provider's batch if it can be the attempt's; raises UsageError with the difference."""
    if batch_id is None:
        raise UsageError("--adopt needs the provider's batch id")
    if batch_id in session.lake_state.batch_ids:
        raise UsageError(f"batch {batch_id} belongs to another attempt of this lake already")
    provider = session.providers.get(attempt.client_name)
    check_host(attempt, provider)
    batch = provider.get(batch_id)
    if batch is None:
        raise UsageError(f"{attempt.provider} knows no batch {batch_id}", hint="check the id and the key's project")
    expected = {
        "endpoint": attempt.intent.endpoint,
        "token": attempt.intent.token,
        "number of requests": attempt.intent.n_requests,
    }
    found = {"endpoint": batch.endpoint, "token": batch.token, "number of requests": batch.n_total or None}
    for what, value in found.items():
        if value is not None and value != expected[what]:
            raise UsageError(f"batch {batch_id} is not this attempt's: its {what} is {value}, not {expected[what]}")
    sent_file = attempt.sent.file_id if attempt.sent else None
    is_of_another_file = sent_file is not None and batch.input_file_id not in {None, sent_file}
    if is_of_another_file and batch.token is None and prove(provider, attempt, batch) is not Proof.OURS:
        raise UsageError(
            f"batch {batch_id} was made of file {batch.input_file_id}, not of this attempt's {sent_file},"
            " and no results of it name the attempt",
            hint="if it is a copy of the attempt's payload, adopt it once it has ended",
        )
    return batch


@dataclass(frozen=True, slots=True)
class CancelReport(Report):
    """Which batches were asked to stop, and what the provider said of the others."""

    asked: tuple[str, ...]
    notes: tuple[Note, ...]


def named(store: Store, wanted: Sequence[str], study: str | None = None) -> list[Attempt]:
    """Return the attempts of these batches or attempts, or those of a study that run and were not asked to stop yet.

    Live calls stand last; reads only. Raises UsageError for what the lake does not know, and a study without a plan.
    """
    lake_state = fold(events.read(store))
    if study is None:
        return [find_attempt(lake_state, name) for name in dict.fromkeys(wanted)]
    versions.planned_version(lake_state, study)
    open_ones = (one for one in lake_state.attempts.values() if one.phase is Phase.OPEN and one.intent.study == study)
    found = [one for one in open_ones if one.state is not BatchState.CANCELLING]
    return sorted(found, key=lambda one: one.mode is Mode.LIVE)


def _withdraw(session: Session, study: str) -> None:
    """End a study's approval, so that no pass sends more of it; say which batches may exist and cannot be stopped."""
    approval, now = session.lake_state.approvals.get(study), session.store.clock.now()
    if approval is not None and now < approval.expires_at:
        session.record(replace(approval, expires_at=now))
    for one in session.lake_state.attempts.values():
        if one.intent.study == study and one.phase in UNCLEAR_PHASES:
            text = f"whether there is a batch of attempt {one.attempt_id} is not known yet: it was not stopped"
            session.alert(text, hint="`batchpond sync` looks for it; cancel it then")


def cancel(store: Store, wanted: Sequence[str], *, providers: Providers, study: str | None = None) -> CancelReport:
    """Ask for the cancellation of batches named by batch or attempt id, or of all of a study, whose approval ends.

    The final state comes from the next `sync`: a batch may complete first. Raises UsageError for an id that the lake
    does not know, before anything is asked, and BusyError while live calls that are to be cancelled are being made.
    """
    with store.lock("cancel"):
        session = Session.begin(store, providers)
        targets = [(one, _to_stop(one)) for one in named(store, wanted, study)]
        if study is not None:
            _withdraw(session, study)
        asked: list[str] = []
        for attempt, batch_id in targets:
            if attempt.mode is Mode.LIVE:
                if _cancel_live(session, attempt):
                    asked.append(attempt.known_batch_id)
                else:
                    session.note(Severity.WARNING, f"the live calls of attempt {attempt.attempt_id} have ended already")
                continue
            with session.isolated(attempt.client_name, f"cancelling batch {batch_id}"):
                provider = session.providers.get(attempt.client_name)
                check_host(attempt, provider)
                session.record(records.CancelAsked(attempt_id=attempt.attempt_id, batch_id=batch_id))
                if provider.cancel(batch_id) is None:
                    session.note(
                        Severity.WARNING,
                        f"{attempt.provider} will not cancel batch {batch_id}: it has ended or is not known",
                        hint="`batchpond sync` shows its state",
                    )
                else:
                    asked.append(batch_id)
        refresh(store)
    return CancelReport(tuple(asked), tuple(session.notes))


def _cancel_live(session: Session, attempt: Attempt, *, is_host_gone: bool = False) -> bool:
    from batchpond.run.live import seal  # only where there are live calls

    return seal.cancel(session, attempt, is_host_gone=is_host_gone)


def _to_stop(attempt: Attempt) -> str:
    """Return the id of an attempt's batch; raises UsageError while none is known."""
    if attempt.batch_id is None:
        raise UsageError(
            f"attempt {attempt.attempt_id} has no known batch to cancel (it is {attempt.phase})",
            hint="`batchpond sync` looks for it",
        )
    return attempt.batch_id


@dataclass(frozen=True, slots=True)
class TidyReport(Report):
    """How many input files were deleted, how many were gone already, and what hindered the rest."""

    n_deleted: int
    n_gone: int
    notes: tuple[Note, ...]


def count_uploads(store: Store, study: str | None) -> int:
    """Return how many input files there are to delete; reads only. Raises UsageError for a study without a plan."""
    recorded = list(events.read(store))
    lake_state = fold(recorded)
    if study is not None:
        versions.planned_version(lake_state, study)
    return len(_unneeded(lake_state, (event for event in recorded if isinstance(event, records.Uploaded)), study))


def tidy(store: Store, study: str | None, *, providers: Providers) -> TidyReport:
    """Delete the input files of a study's batches that are read, or of all; one that fails stops no other.

    Each deletion is on record, so that no later one asks again; who dies in between finds the file gone, and records
    that. Results, and the batches themselves, stay where they are.
    """
    n_deleted = n_gone = 0
    with store.lock("tidy"):
        session = Session.begin(store, providers)
        uploads = (event for event in list(session.log.events) if isinstance(event, records.Uploaded))
        for attempt, file_id in _unneeded(session.lake_state, uploads, study):
            with session.isolated(attempt.client_name, f"deleting file {file_id} at {attempt.provider}"):
                provider = session.providers.get(attempt.client_name)
                check_host(attempt, provider)
                is_deleted = provider.drop_upload(file_id)
                failpoints.reach("T0")
                session.record(records.Tidied(attempt_id=attempt.attempt_id, file_id=file_id))
                failpoints.reach("T1")
                n_deleted += is_deleted
                n_gone += not is_deleted
    return TidyReport(n_deleted, n_gone, tuple(session.notes))


def _unneeded(
    lake_state: LakeState, uploads: Iterator[records.Uploaded], study: str | None
) -> list[tuple[Attempt, str]]:
    """Return the input files to delete, with their attempts: a second batch of one must be read as well."""
    over = {a.attempt_id for a in lake_state.attempts.values() if _is_over(lake_state, a)}
    unread = {a.intent.token for a in lake_state.attempts.values() if a.attempt_id not in over}
    due: dict[tuple[str, str], tuple[Attempt, str]] = {}
    for event in uploads:
        attempt = lake_state.attempts[event.attempt_id]
        is_over = attempt.attempt_id in over and attempt.intent.token not in unread
        is_wanted = study in {None, attempt.intent.study} and attempt.mode is Mode.BATCH
        if is_over and is_wanted and event.file_id not in attempt.tidied:
            due[attempt.attempt_id, event.file_id] = attempt, event.file_id
    return list(due.values())


def _is_over(lake_state: LakeState, attempt: Attempt) -> bool:
    """Whether nothing more can come of what an attempt uploaded: it is read or lost, or absent and sent anew since."""
    is_replaced = attempt.phase is Phase.ABSENT and not lake_state.is_late(attempt)
    return is_replaced or attempt.phase in READ_PHASES | {Phase.LOST}


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
            collect.read_what_is_unread(session, answered(session.lake_state))
        refresh(store)
    rows = query(store, _CHANGES, study=study, name=f"-r{READER}")
    changes = tuple(Change(**row) for row in rows)
    return Readings(study, readers[study], READER, session.counts.n_read_again, changes, tuple(session.notes))


def reread(store: Store, study: str) -> None:
    """Say that a study is read by the newest reader from now on."""
    with store.lock("reread"):
        log = EventLog(store)
        lake_state = fold(log.events)
        version, words = versions.planned_version(lake_state, study), lake_state.words[study]
        log.append(records.Planned(study=study, study_version=version, reader=READER, words=words))
        refresh(store)
