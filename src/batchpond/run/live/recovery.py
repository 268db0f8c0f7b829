"""Who may make live calls, and what those who ended left behind: taken in, brought to an end, or cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from batchpond.errors import BusyError, LakeError
from batchpond.lake import disk
from batchpond.lake.attempts import Attempt, Phase
from batchpond.lake.records import CancelAsked
from batchpond.lake.store import SPOOL, Store
from batchpond.model import BatchState
from batchpond.run.live import attempts, spool
from batchpond.run.session import Session, Severity

LOCK: Final = ".live.lock"
LOCK_RETRY_S: Final = 0.1


@contextmanager
def live_lock(store: Store, purpose: str = "live", wait_s: float = 0.0) -> Iterator[None]:
    """Hold the right to make live calls; raises BusyError when another process has it longer than `wait_s`."""
    until_s = store.clock.monotonic_s() + wait_s
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(disk.exclusive(store.path / LOCK, purpose, store.clock))
                break
            except BusyError:
                if store.clock.monotonic_s() >= until_s:
                    raise
                store.clock.sleep(LOCK_RETRY_S)
        yield


def recover_all(session: Session) -> None:
    """Bring in what ended processes left in the spool, unless a process makes live calls now.

    The lake's lock is held. Where nothing is left, not even the lock is touched: whoever starts live calls
    at that moment finds it free.
    """
    if not spool.attempts_with_segments(session.store) and not attempts.unsettled(session.lake_state):
        return
    try:
        with live_lock(session.store, "sync"):
            recover(session)
    except BusyError:
        return


def recover(session: Session) -> None:
    """Bring in what ended processes left in the spool; the lake's and the live lock are held."""
    for attempt_id in spool.attempts_with_segments(session.store):
        attempt = session.lake_state.attempts.get(attempt_id)
        if attempt is None:
            raise LakeError(
                f"{SPOOL}/{attempt_id} holds answers of an attempt that the lake does not know",
                hint="was an older copy of the lake put back? move the folder away, or restore the newer copy",
            )
        n_in_doubt = attempts.recover(session, attempt)
        if n_in_doubt:
            session.note(
                Severity.WARNING,
                f"{n_in_doubt} live calls of study {attempt.intent.study} were under way when their"
                " process ended: they may have been answered and paid",
                hint="`doubts` lists them; `batchpond live` asks them again, or holds them if config.toml says so",
            )
    attempts.settle(session)


def cancel(session: Session, attempt: Attempt) -> bool:
    """Ask nothing more of a live attempt, and keep what was answered; whether it was still open.

    The lake's lock is held. Raises BusyError while a process makes live calls.
    """
    try:
        with live_lock(session.store, "cancel"):
            recover(session)
            latest = session.attempt(attempt.attempt_id)
            if latest.phase is Phase.OPEN:
                session.record(CancelAsked(attempt_id=attempt.attempt_id, batch_id=attempt.known_batch_id))
                attempts.end(session, session.attempt(attempt.attempt_id), BatchState.CANCELLED)
                return True
            return False
    except BusyError as error:
        raise BusyError(
            f"live calls are being made, so that none can be cancelled: {error.message}",
            hint="stop that `batchpond live` with Ctrl-C first; nothing was changed",
        ) from None
