"""The verb `cancel`: ask a provider to stop a batch; whatever it finished is still collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchpond.errors import ExitCode, UsageError
from batchpond.lake.events import Event, Kind
from batchpond.lake.store import Store
from batchpond.lens.refresh import refresh
from batchpond.resolve import find_attempt
from batchpond.session import Note, Providers, Session, Severity
from batchpond.unknowns import check_host


@dataclass(frozen=True, slots=True)
class CancelReport:
    """Which batches were asked to stop, and what the provider said of the others."""

    asked: tuple[str, ...]
    notes: tuple[Note, ...]
    exit_code: ExitCode


def cancel(store: Store, wanted: Sequence[str], *, providers: Providers) -> CancelReport:
    """Ask for the cancellation of batches named by batch or attempt id.

    The final state comes from the next `sync`: a batch may complete first. Raises UsageError for
    an id that the lake does not know, before anything is asked.
    """
    with store.lock("cancel"):
        session = Session.begin(store, providers)
        targets = [_target(session, name) for name in dict.fromkeys(wanted)]
        asked = []
        for attempt_id, provider_name, batch_id in targets:
            with session.isolated(provider_name, f"cancelling batch {batch_id}"):
                provider = session.providers.get(provider_name)
                check_host(session.attempt(attempt_id), provider)
                session.record(Event(kind=Kind.CANCEL_ASKED, attempt_id=attempt_id, batch_id=batch_id))
                if provider.cancel(batch_id) is None:
                    session.note(
                        Severity.WARNING,
                        f"{provider_name} will not cancel batch {batch_id}: it has ended or is not known",
                        hint="`batchpond sync` shows its state",
                    )
                else:
                    asked.append(batch_id)
        refresh(store)
    return CancelReport(tuple(asked), tuple(session.notes), session.worst_exit_code())


def _target(session: Session, wanted: str) -> tuple[str, str, str]:
    for event in session.log.events:
        if event.kind is Kind.DUPLICATE_REMOTE and event.batch_id == wanted:
            return event.attempt_id or "", event.provider or "", wanted
    attempt = find_attempt(session.picture, wanted)
    if attempt.batch_id is None:
        raise UsageError(
            f"attempt {attempt.attempt_id} has no known batch to cancel (it is {attempt.phase})",
            hint="`batchpond sync` looks for it",
        )
    return attempt.attempt_id, attempt.provider, attempt.batch_id
