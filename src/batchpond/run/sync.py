"""The verb `sync`: one idempotent pass that brings lake and providers together.

It looks at what is and does what is missing, each step safe to repeat: find unacknowledged batches, read what changed,
bring in what ended, send what is due. With nothing open it makes no HTTP call, and with nothing new it writes nothing.
What the providers say about the batches that are open comes from one listing, not a GET per batch.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta

from batchpond import ids
from batchpond.errors import AccessError, ExitCode
from batchpond.lake import failpoints, jsonl
from batchpond.lake.attempts import (
    BEFORE_SENT_PHASES,
    NOT_FOUND_AGE_MIN_S,
    NOT_FOUND_POLLS_MIN,
    SETTLED_PHASES,
    UNCLEAR_PHASES,
    Attempt,
    LakeState,
    Phase,
    seen_as,
)
from batchpond.lake.records import MissingRemote, NotFound, Resolution, Resolved, Status
from batchpond.lake.store import Store
from batchpond.model import EPOCH, BatchState, Mode, RemoteBatch
from batchpond.plan import versions
from batchpond.providers.base import BatchProvider
from batchpond.run import due, told
from batchpond.run.dispatch import count_unapproved, count_unsent, finish_adoptions, send_due
from batchpond.run.find import check_host, owners, pages, place, resolve_unknowns, take_in_duplicates, tell_duplicates
from batchpond.run.session import TAKE_HINT, Counts, Note, Providers, Report, Session, Severity, answered
from batchpond.views.refresh import refresh

PENDING_PHASES = frozenset({Phase.SENT, Phase.UNKNOWN, Phase.OPEN, Phase.ENDED, Phase.INTENT, Phase.UPLOADED})


@dataclass(frozen=True, slots=True)
class SyncReport(Report):
    """What a pass did and what is left; `n_pending` counts batches that will still change or be sent.

    Of them `n_waiting` are not sent yet, and `n_unclear` may exist or not. `n_failed` requests have failed, in this
    pass or before it, and nobody asks them again. `n_live` requests wait for `batchpond live`, `n_unsent` that are
    approved are in no batch yet, and `n_unapproved` of the plans wait for `batchpond submit`. It `is_stuck` where
    everything pending waits for another key or address, which no waiting brings. Of `study` all is, where it is named.
    """

    counts: Counts
    n_pending: int
    n_waiting: int
    n_unclear: int
    n_failed: int
    n_attention: int
    n_live: int
    n_unsent: int
    n_unapproved: int
    is_stuck: bool
    notes: tuple[Note, ...]


def sync_once(
    store: Store,
    *,
    providers: Providers,
    submit_due: bool = True,
    on_note: Callable[[Note], None] | None = None,
    study: str | None = None,
) -> SyncReport:
    """Make one pass, and say what is left of `study`, or of all; raises BusyError when another holds the lake.

    A batch or provider that fails is noted and stops no other. `submit_due=False` holds back
    every POST that would create a batch.
    """
    with ExitStack() as held:
        held.enter_context(store.lock("sync"))
        session = Session.begin(store, providers, on_note, lets_go=True)
        failpoints.reach("Y0")
        session.keep_away()
        conflicts = _conflicts(session.open_state)
        take_in_duplicates(session)
        resolve_unknowns(session)
        finish_adoptions(session)
        if any(attempt.mode is Mode.LIVE for attempt in session.open_state.attempts.values()):
            from batchpond.run.live.seal import recover_all

            recover_all(session)
        seen = poll_open(session)
        _exchange(session, seen, submit_due=submit_due)
        while not session.is_over:
            session.let_files_come(held, "sync")
            _exchange(session, seen, submit_due=submit_due)
        told.tell_waiting(session)
        told.tell_strays(session)
        _tell_conflicts(session, conflicts)
        tell_duplicates(session)
        told.tell_failures(session)
        told.tell_concerns(session)
        told.tell_refused(session)
        settled = (a for a in session.open_state.attempts.values() if a.phase in SETTLED_PHASES)
        jsonl.sweep_payloads(store, {a.attempt_id for a in settled})
        study = _scope(session, study)
        n_unsent, n_live = count_unsent(session, study)
        session.keep_access()
        session.log.compact(lambda: refresh(store))
        session.log.keep()
        versions.keep(store)
        refresh(store)
        unapproved, failed = count_unapproved(session), told.count_failed(session)
    pending = _pending(session.open_state, study)
    n_waiting, whys = _of(study, session.waiting), [session.providers.out.get(one.client_name) for one in pending]
    mine = (a for a in session.open_state.attempts.values() if study in {None, a.intent.study})
    return SyncReport(
        counts=session.counts,
        n_pending=len(pending) + n_waiting,
        n_waiting=sum(attempt.phase in BEFORE_SENT_PHASES for attempt in pending) + n_waiting,
        n_unclear=sum(attempt.phase in UNCLEAR_PHASES for attempt in pending),
        n_failed=_of(study, failed),
        n_attention=sum(attempt.needs_attention for attempt in mine),
        n_live=n_live,
        n_unsent=n_unsent,
        n_unapproved=_of(study, unapproved),
        is_stuck=bool(pending) and not n_waiting and all(isinstance(why, AccessError) for why in whys),
        notes=tuple(session.notes),
    )


def _exchange(session: Session, seen: Mapping[str, RemoteBatch], *, submit_due: bool) -> None:
    """Bring in what ended, and send what is due, as far as files have come."""
    bring_in(session, seen)
    if submit_due:
        send_due(session)
        unknown = (a for a in session.open_state.attempts.values() if a.phase is Phase.UNKNOWN)
        resolve_unknowns(session, [a.attempt_id for a in unknown if a.first_listed is None])


def _scope(session: Session, study: str | None) -> str | None:
    """Return the study where its answers come in batches of its own, else None: what is left of all may be its."""
    approval = session.open_state.approvals.get(study or "")
    return study if approval is not None and due.asks_all_itself(session, approval) else None


def _of(study: str | None, counted: Mapping[str, int]) -> int:
    return sum(counted.values()) if study is None else counted.get(study, 0)


def _conflicts(lake_state: LakeState) -> set[str]:
    return {a.attempt_id for a in lake_state.attempts.values() if a.phase is Phase.MISMATCH and a.n_conflicts}


def _tell_conflicts(session: Session, known: set[str]) -> None:
    """Say again, until somebody settles it, what an earlier pass found."""
    for attempt_id in sorted(known & _conflicts(session.open_state)):
        attempt = session.attempt(attempt_id)
        session.alert(
            f"{attempt.n_conflicts:,} lines of batch {attempt.batch_id} answer a request otherwise than an earlier one",
            hint=TAKE_HINT,
        )


def bring_in(session: Session, seen: Mapping[str, RemoteBatch]) -> None:
    """Collect what ended and read what is unread; without either, nothing of what reads answers is loaded."""
    if session.arrivals or any(one.phase is Phase.ENDED for one in session.open_state.attempts.values()):
        from batchpond.run.collect import collect_ended

        collect_ended(session, seen)
    read_unread(session)


def read_unread(session: Session) -> None:
    """Read the answers that are here and not read, or whose reading was taken away."""
    attempts = answered(session.open_state)
    if (attempts or session.log.archive.n_attempts) and not session.rules.is_all_read(attempts):
        from batchpond.run.collect import read_what_is_unread

        read_what_is_unread(session, attempts)


def _pending(lake_state: LakeState, study: str | None) -> list[Attempt]:
    mine = (a for a in lake_state.attempts.values() if study in {None, a.intent.study})
    found = [a for a in mine if a.phase in PENDING_PHASES and a.mode is not Mode.LIVE]
    return [a for a in found if a.phase not in BEFORE_SENT_PHASES or a.shard_id not in lake_state.voided]


COUNTS_EVERY = timedelta(hours=1)
NOT_FOUND_EVERY = timedelta(hours=1)
CLOCK_SKEW = timedelta(hours=1)
GETS_MAX = 500


def poll_open(session: Session) -> dict[str, RemoteBatch]:
    """Record what changed about the open batches; returns the batches seen, by attempt id.

    What counts as missing is asked about as well, until a person gives it up: a wrong key is mended some day.
    """
    seen: dict[str, RemoteBatch] = {}
    by_client: dict[str, list[Attempt]] = {}
    for attempt in session.open_state.attempts.values():
        if attempt.phase in {Phase.OPEN, Phase.MISSING_REMOTE} and attempt.mode is not Mode.LIVE:
            by_client.setdefault(attempt.client_name, []).append(attempt)
    for name, attempts in by_client.items():
        with session.isolated(name, f"asking {name} about {len(attempts)} open batches"):
            provider = session.providers.get(name)
            _poll(session, name, provider, attempts, seen)
    return seen


def _missing(session: Session, client_name: str) -> dict[str, Attempt]:
    found = session.open_state.attempts.values()
    return {a.known_batch_id: a for a in found if a.phase is Phase.MISSING_REMOTE and a.client_name == client_name}


def _poll(
    session: Session, client_name: str, provider: BatchProvider, attempts: list[Attempt], seen: dict[str, RemoteBatch]
) -> None:
    waiting = {attempt.known_batch_id: attempt for attempt in attempts if attempt.phase is Phase.OPEN}
    for attempt in waiting.values():
        check_host(attempt, provider)
    if not provider.descriptor.lists_state:
        provider.check()
    elif waiting:
        _poll_listed(session, client_name, provider, waiting, seen)
    gets_max = GETS_MAX if provider.descriptor.lists_state else len(waiting)
    missing = _missing(session, client_name)
    unseen = [pair for pair in missing.items() if pair[1].attempt_id not in seen and pair[0] not in waiting]
    for batch_id, attempt in [*_some(list(waiting.items()), gets_max), *_some(unseen, GETS_MAX)]:
        if client_name in session.providers.out:
            return
        with session.isolated(client_name, f"asking for batch {batch_id}"):
            check_host(attempt, provider)
            _ask(session, provider, attempt, seen)


def _some(asked: list[tuple[str, Attempt]], n_max: int) -> list[tuple[str, Attempt]]:
    """Return what a pass asks about: all, or so many that every one has its turn in a few passes."""
    return asked if len(asked) <= n_max else random.sample(asked, n_max)


def _poll_listed(
    session: Session,
    client_name: str,
    provider: BatchProvider,
    waiting: dict[str, Attempt],
    seen: dict[str, RemoteBatch],
) -> None:
    """Observe what the listing shows of the batches that are waited for, and take those out."""
    missing = _missing(session, client_name)
    known = owners(session.open_state, client_name)
    with session.isolated(client_name, f"listing the batches at {client_name}"):
        for batches in _listed(provider, waiting):
            found = [(waiting.pop(one.batch_id, None) or missing.get(one.batch_id), one) for one in batches]
            _observe(session, [(attempt, batch) for attempt, batch in found if attempt], seen)
            for batch in (batch for attempt, batch in found if attempt is None):
                _check_unknown(session, client_name, batch, known)


def _ask(session: Session, provider: BatchProvider, attempt: Attempt, seen: dict[str, RemoteBatch]) -> None:
    found = provider.get(attempt.known_batch_id)
    if found is not None:
        _observe(session, [(attempt, found)], seen)
    elif attempt.phase is Phase.OPEN:
        _not_found(session, provider, attempt)
    if session.attempt(attempt.attempt_id).phase is Phase.MISSING_REMOTE:
        session.alert(
            f"{attempt.provider} has not known batch {attempt.batch_id} of study {attempt.intent.study} for a day: it"
            " was deleted, or this key is of another account",
            hint=f"`batchpond resolve {attempt.attempt_id} --lost` gives its answers up; nothing is sent by itself",
            severity=Severity.ERROR,
        )


def _listed(provider: BatchProvider, waiting: dict[str, Attempt]) -> Iterator[tuple[RemoteBatch, ...]]:
    """Yield pages of listed batches until every waited-for one was seen or the list is past them all."""
    oldest = min(attempt.created_at or attempt.intent.occurred_at for attempt in waiting.values())
    for page in pages(provider):
        yield page.batches
        newest = max((batch.created_at or EPOCH for batch in page.batches), default=EPOCH)
        if not waiting or newest < oldest - CLOCK_SKEW:
            return


def _observe(session: Session, pairs: Sequence[tuple[Attempt, RemoteBatch]], seen: dict[str, RemoteBatch]) -> None:
    """Note how attempts' batches are now; what is news of them is recorded together."""
    found, news = list[Resolved](), list[Status]()
    for attempt, shown in pairs:
        batch = seen[attempt.attempt_id] = _settled(session, attempt, shown)
        failpoints.reach("Y2")
        if batch.errors and not batch.state.is_terminal:
            hint = told.WAYS_OUT[Phase.OPEN].replace("ATTEMPT", attempt.attempt_id[:10])
            session.alert(f"batch {batch.batch_id} cannot go on: {batch.errors[0].message}", hint=hint)
        if attempt.not_found:
            # A status seen before is no new fact, but that the batch is there again is one.
            there = Resolved(attempt_id=attempt.attempt_id, batch_id=attempt.batch_id, resolution=Resolution.FOUND)
            found.append(there)
        if _is_news(session, attempt, batch):
            news.append(Status(**seen_as(attempt, batch) | {"n_requests": batch.n_total}))
    session.record(*found)
    session.counts.n_status_changes += session.record(*news)
    if news:
        failpoints.reach("Y3")


def _settled(session: Session, attempt: Attempt, batch: RemoteBatch) -> RemoteBatch:
    """Return a batch as cancelling while its provider may take back what a cancelled one says."""
    kept_s = session.providers.get(attempt.client_name).descriptor.cancel_settle_s
    if batch.state is not BatchState.CANCELLED or not kept_s:
        return batch
    now, last = session.store.clock.now(), attempt.status
    since = last.occurred_at if last is not None and last.state is BatchState.CANCELLING else now
    is_settled = (now - since).total_seconds() >= kept_s
    return batch if is_settled else dataclasses.replace(batch, state=BatchState.CANCELLING, output_file_id=None)


def _is_news(session: Session, attempt: Attempt, batch: RemoteBatch) -> bool:
    last = attempt.status
    if last is None or last.state != batch.state or last.provider_status != batch.provider_status:
        return True
    if (last.n_completed, last.n_failed) == (batch.n_completed, batch.n_failed):
        return False
    return session.store.clock.now() - last.occurred_at >= COUNTS_EVERY


def _check_unknown(session: Session, client_name: str, batch: RemoteBatch, known: Mapping[str, str]) -> None:
    """Place a listed batch, and tell of one with a token of this lake for an attempt that it does not know.

    A copy of it sends too, or this is an old backup.
    """
    is_own = batch.token is not None and batch.token.startswith(f"{ids.TOKEN_PREFIX}-{session.store.lake_id}-")
    if place(session, client_name, batch, known) or not is_own:
        return
    session.alert(
        f"batch {batch.batch_id} was made by this lake, which does not know of it: a copy of the lake sends too,"
        " or the lake was restored from an older one; its requests may be bought twice",
        hint="send from one copy only; `batchpond adopt --list` shows what else is in the account",
        severity=Severity.ERROR,
    )


def _not_found(session: Session, provider: BatchProvider, attempt: Attempt) -> None:
    """A 404 is not a loss: providers answer it for living batches, just created and in mid-life, and to other keys."""
    scope = session.scope(provider)
    if attempt.scope not in {None, scope} and "-" not in f"{attempt.scope}/{scope}".split("/"):
        text = f"{attempt.provider} batches of {attempt.scope} are not seen by this key, which is of {scope}"
        session.note(Severity.ERROR, text, hint="give the key that they were made with", exit_code=ExitCode.ACCESS)
        session.denied.setdefault(attempt.client_name, text)
        return
    now = session.store.clock.now()
    last = attempt.not_found[-1] if attempt.not_found else None
    if last is None or now - last.occurred_at >= NOT_FOUND_EVERY:
        session.record(NotFound(attempt_id=attempt.attempt_id, batch_id=attempt.known_batch_id))
    misses = session.attempt(attempt.attempt_id).not_found
    age_s = (now - misses[0].occurred_at).total_seconds()
    if len(misses) < NOT_FOUND_POLLS_MIN or age_s < NOT_FOUND_AGE_MIN_S:
        return
    session.record(MissingRemote(attempt_id=attempt.attempt_id, batch_id=attempt.known_batch_id))
