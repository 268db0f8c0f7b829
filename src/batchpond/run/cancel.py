"""The verb `cancel`: ask a provider to stop a batch; whatever it finished is still collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchpond.errors import ExitCode, UsageError
from batchpond.lake.attempts import Attempt
from batchpond.lake.records import CancelAsked, DuplicateRemote
from batchpond.lake.store import Store
from batchpond.model import Mode
from batchpond.run.find.unknowns import check_host
from batchpond.run.resolve import find_attempt
from batchpond.run.session import Note, Providers, Session, Severity
from batchpond.views.refresh import refresh


@dataclass(frozen=True, slots=True)
class CancelReport:
    """Which batches were asked to stop, and what the provider said of the others."""

    asked: tuple[str, ...]
    notes: tuple[Note, ...]
    exit_code: ExitCode


def cancel(store: Store, wanted: Sequence[str], *, providers: Providers) -> CancelReport:
    """Ask for the cancellation of batches named by batch or attempt id.

    The final state comes from the next `sync`: a batch may complete first. Raises UsageError for
    an id that the lake does not know, before anything is asked, and BusyError while live calls that are
    to be cancelled are being made.
    """
    with store.lock("cancel"):
        session = Session.begin(store, providers)
        targets = [_target(session, name) for name in dict.fromkeys(wanted)]
        asked: list[str] = []
        for attempt_id, batch_id in targets:
            attempt = session.attempt(attempt_id)
            if attempt.mode is Mode.LIVE:
                _cancel_live(session, attempt, asked)
                continue
            with session.isolated(attempt.wire, f"cancelling batch {batch_id}"):
                provider = session.providers.get(attempt.wire)
                check_host(attempt, provider)
                session.record(CancelAsked(attempt_id=attempt_id, batch_id=batch_id))
                if provider.cancel(batch_id) is None:
                    session.note(
                        Severity.WARNING,
                        f"{attempt.provider} will not cancel batch {batch_id}: it has ended or is not known",
                        hint="`batchpond sync` shows its state",
                    )
                else:
                    asked.append(batch_id)
        refresh(store)
    return CancelReport(tuple(asked), tuple(session.notes), session.worst_exit_code())


def _cancel_live(session: Session, attempt: Attempt, asked: list[str]) -> None:
    from batchpond.run.live import recovery  # only where there are live calls

    if recovery.cancel(session, attempt):
        asked.append(attempt.known_batch_id)
    else:
        session.note(Severity.WARNING, f"the live calls of attempt {attempt.attempt_id} have ended already")


def _target(session: Session, wanted: str) -> tuple[str, str]:
    """Return the attempt that a name is about, and the batch meant: its own, or a second one."""
    for event in session.log.events:
        if isinstance(event, DuplicateRemote) and event.batch_id == wanted:
            return event.attempt_id, wanted
    attempt = find_attempt(session.lake_state, wanted)
    if attempt.batch_id is None:
        raise UsageError(
            f"attempt {attempt.attempt_id} has no known batch to cancel (it is {attempt.phase})",
            hint="`batchpond sync` looks for it",
        )
    return attempt.attempt_id, attempt.batch_id
