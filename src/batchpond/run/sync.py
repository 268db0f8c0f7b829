"""The verb `sync`: one idempotent pass that brings lake and providers together.

It looks at what is and does what is missing, each step safe to repeat: find unacknowledged
batches, read what changed, bring in what ended, send what is due. With nothing open it makes
no HTTP call, and with nothing new it writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchpond.errors import ExitCode
from batchpond.lake import failpoints, jsonl
from batchpond.lake.attempts import ATTENTION_PHASES, READ_PHASES, SETTLED_PHASES, LakeState, Phase
from batchpond.lake.store import Store
from batchpond.model import Mode, RemoteBatch
from batchpond.plan import planned
from batchpond.run import exchange
from batchpond.run.adopt import adoptions
from batchpond.run.find.poll import poll_open
from batchpond.run.find.unknowns import resolve_unknowns
from batchpond.run.sending import send_due
from batchpond.run.session import Counts, Note, Providers, Session
from batchpond.views.refresh import refresh

PENDING_PHASES = frozenset({Phase.SENT, Phase.UNKNOWN, Phase.OPEN, Phase.ENDED, Phase.INTENT, Phase.UPLOADED})


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a pass did and what is left; `n_pending` counts batches that will still change or be sent.

    `n_live` requests wait for `batchpond live`.
    """

    counts: Counts
    n_pending: int
    n_attention: int
    n_live: int
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
        _take_in_live(session)
        _bring_in(session, poll_open(session))
        if submit_due:
            send_due(session)
            resolve_unknowns(session, _just_sent(session.lake_state))
        exchange.tell_waiting(session)
        exchange.tell_strays(session)
        jsonl.sweep_payloads(store, _settled(session.lake_state))
        session.log.compact()
        session.log.keep()
        planned.keep(store)
        refresh(store)
    return SyncReport(
        counts=session.counts,
        n_pending=_count_remote(session.lake_state, PENDING_PHASES) + session.n_waiting,
        n_attention=_count(session.lake_state, ATTENTION_PHASES),
        n_live=session.n_live,
        notes=tuple(session.notes),
        exit_code=session.worst_exit_code(),
    )


def _bring_in(session: Session, seen: Mapping[str, RemoteBatch]) -> None:
    """Collect what ended and read what is unread; without either, nothing of what reads answers is loaded."""
    if _count(session.lake_state, frozenset({Phase.ENDED})):
        from batchpond.run.collect import collect_ended

        collect_ended(session, seen)
    if _count(session.lake_state, READ_PHASES):
        from batchpond.run.collect import read_what_is_unread

        read_what_is_unread(session)


def _take_in_live(session: Session) -> None:
    """Bring in what live calls left behind; what makes them is loaded only where there were any."""
    if any(attempt.mode is Mode.LIVE for attempt in session.lake_state.attempts.values()):
        from batchpond.run.live.recovery import recover_all

        recover_all(session)


def _settled(lake_state: LakeState) -> set[str]:
    return {a.attempt_id for a in lake_state.attempts.values() if a.phase in SETTLED_PHASES}


def _just_sent(lake_state: LakeState) -> list[str]:
    """Return the attempts that became unclear in this pass: none of them was listed yet."""
    return [a.attempt_id for a in lake_state.attempts.values() if a.phase is Phase.UNKNOWN and a.first_listed is None]


def _count(lake_state: LakeState, phases: frozenset[Phase]) -> int:
    return sum(attempt.phase in phases for attempt in lake_state.attempts.values())


def _count_remote(lake_state: LakeState, phases: frozenset[Phase]) -> int:
    """Count without live attempts: waiting does not bring them forward."""
    return sum(attempt.phase in phases and attempt.mode is not Mode.LIVE for attempt in lake_state.attempts.values())
