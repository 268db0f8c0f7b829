"""The verb `sync`: one idempotent pass that brings lake and providers together.

It looks at what is and does what is missing, each step safe to repeat: find unacknowledged
batches, read what changed, bring in what ended, send what is due. With nothing open it makes
no HTTP call, and with nothing new it writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchpond import adoptions, failpoints, payload
from batchpond.attempts import ATTENTION_PHASES, SETTLED_PHASES, Phase, Picture
from batchpond.collect import collect_ended
from batchpond.errors import ExitCode
from batchpond.lake.events import compact
from batchpond.lake.store import Store
from batchpond.lens.refresh import refresh
from batchpond.poll import poll_open
from batchpond.reread import read_what_is_unread
from batchpond.sending import send_due
from batchpond.session import Counts, Note, Providers, Session
from batchpond.unknowns import resolve_unknowns

PENDING_PHASES = frozenset({Phase.SENT, Phase.UNKNOWN, Phase.OPEN, Phase.ENDED, Phase.INTENT, Phase.UPLOADED})


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a pass did and what is left; `n_pending` counts batches that will still change or be sent."""

    counts: Counts
    n_pending: int
    n_attention: int
    notes: tuple[Note, ...]
    exit_code: ExitCode


def sync_once(
    store: Store,
    *,
    providers: Providers,
    submit_due: bool = True,
    on_note: Callable[[Note], None] | None = None,
) -> SyncReport:
    """Make one pass; raises BusyError when another writer holds the lake.

    A batch or provider that fails is noted and stops no other. `submit_due=False` holds back
    every POST that would create a batch.
    """
    with store.lock("sync"):
        session = Session.begin(store, providers, on_note)
        failpoints.reach("Y0")
        resolve_unknowns(session)
        adoptions.finish_all(session)
        seen = poll_open(session)
        collect_ended(session, seen)
        read_what_is_unread(session)
        if submit_due:
            send_due(session)
            resolve_unknowns(session, _just_sent(session.picture))
        payload.sweep(store, _settled(session.picture))
        compact(store)
        refresh(store)
    return SyncReport(
        counts=session.counts,
        n_pending=_count(session.picture, PENDING_PHASES) + session.n_waiting,
        n_attention=_count(session.picture, ATTENTION_PHASES),
        notes=tuple(session.notes),
        exit_code=session.worst_exit_code(),
    )


def _settled(picture: Picture) -> set[str]:
    return {a.attempt_id for a in picture.attempts.values() if a.phase in SETTLED_PHASES}


def _just_sent(picture: Picture) -> list[str]:
    """Return the attempts that became unclear in this pass: none of them was listed yet."""
    return [a.attempt_id for a in picture.attempts.values() if a.phase is Phase.UNKNOWN and a.first_listed is None]


def _count(picture: Picture, phases: frozenset[Phase]) -> int:
    return sum(attempt.phase in phases for attempt in picture.attempts.values())
