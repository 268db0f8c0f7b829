"""The attempts of live shards: opened, taken up again after a crash, sealed, and brought to their end.

A live attempt is written down like a batch: `intent` and `created` when it is opened, a `downloaded` per
sealed segment, a final `status`, `verified`. Its calls are the business of `calls`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow.parquet as pq

from batchpond import ids
from batchpond.lake import failpoints, jsonl
from batchpond.lake.attempts import Attempt, LakeState, Phase
from batchpond.lake.jsonl import bodies, shard_lines
from batchpond.lake.records import Approval, Created, Intent, Sharded, Status
from batchpond.lake.schemas import DOUBTS
from batchpond.lake.store import Store, read_rows
from batchpond.model import BatchState, Mode, Origin
from batchpond.providers.base import LiveProvider, LiveStart
from batchpond.run import collect
from batchpond.run.live import spool
from batchpond.run.live.calls import Item
from batchpond.run.live.seal import seal
from batchpond.run.session import Session

# A token of English is about four bytes; an answer's tokens are bounded by the pace's own bucket.
BYTES_PER_TOKEN: Final = 4
ANSWER_TOKENS: Final = 200
_ID_STARTS: Final = len('{"custom_id":"')


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to ask of an attempt: the answered are out, those in doubt counted."""

    answered: frozenset[str]
    doubts: Counter[str]


def open_attempt(session: Session, shard: Sharded, approval: Approval, wire: LiveProvider, start: LiveStart) -> Attempt:
    """Record that a shard's requests are about to be asked, or take up the attempt that does so already.

    The lake's lock is held.
    """
    latest = session.lake_state.latest_attempt(shard.shard_id)
    if latest is not None and latest.phase is Phase.OPEN:
        return latest
    ordinal = 1 if latest is None else latest.intent.ordinal + 1
    attempt_id = ids.attempt_id(session.store.lake_id, shard.shard_id, ordinal)
    intent = Intent(
        **shard.asked(),
        attempt_id=attempt_id,
        ordinal=ordinal,
        approval_id=approval.approval_id,
        host=wire.host,
        origin=Origin.SIMULATED if start.is_simulated else Origin.LIVE,
    )
    created = Created(
        attempt_id=attempt_id,
        provider=shard.provider,
        batch_id=f"live-{attempt_id}",
        scope=start.scope,
        state=BatchState.RUNNING,
        provider_status=str(Mode.LIVE),
        provider_created_at=session.store.clock.now(),
        n_requests=shard.n_requests,
    )
    session.record(intent, created)
    failpoints.reach("L1")
    return session.attempt(attempt_id)


def recover(session: Session, attempt: Attempt) -> int:
    """Bring in what a process that ended left in the spool; returns how many requests are in doubt by that.

    The lake's lock and the live lock are held, so that nothing writes to the spool now.
    """
    folder = spool.folder_of(session.store, attempt.attempt_id)
    paths = spool.segments(folder)
    clock = session.store.clock
    in_doubt = spool.standing(paths, clock.boot_id()).in_doubt
    if in_doubt:
        now = clock.now()
        written = spool.Spool(folder, clock)
        try:
            written.doubt([spool.Doubt(name, at, now, "the process ended") for name, at in in_doubt.items()])
        finally:
            written.close()
        failpoints.reach("L7")
    seal(session, attempt, spool.segments(folder))
    spool.drop(folder)
    return len(in_doubt)


def left_of(store: Store, attempt: Attempt) -> Left:
    """Return what the lake holds of an attempt's answers and doubts."""
    answered = frozenset(_answered(store, attempt))
    prefix = f"{attempt.attempt_id}."
    paths = [path for path in store.files(DOUBTS.name) if path.name.startswith(prefix)]
    names = (name for path in paths for name in read_rows(path, ["custom_id"]).column(0).to_pylist())
    return Left(answered, Counter(name for name in names if name not in answered))


def _answered(store: Store, attempt: Attempt) -> Iterator[str]:
    for event in attempt.downloads:
        for part in jsonl.part_paths(store, collect.raw_file(attempt, event)):
            with pq.ParquetFile(part) as lines:
                for batch in lines.iter_batches(columns=["line"]):
                    yield from map(_custom_id, batch.column(0).to_pylist())


def _custom_id(line: str) -> str:
    return line[_ID_STARTS : line.index('"', _ID_STARTS)]


def items(store: Store, attempt: Attempt, left: Left, *, is_held: bool) -> Iterator[Item]:
    """Yield the requests that are still to be asked; with `is_held`, without those in doubt."""
    lines = shard_lines(store, attempt.provider, attempt.shard_id)
    for request_id, body in bodies(lines):
        custom_id = ids.custom_id(attempt.attempt_id, request_id)
        n_doubts = left.doubts[custom_id]
        if custom_id in left.answered or (is_held and n_doubts):
            continue
        yield Item(custom_id, body, len(body) / BYTES_PER_TOKEN + ANSWER_TOKENS, n_doubts=n_doubts)


def unsettled(lake_state: LakeState) -> list[Attempt]:
    """Return the live attempts that have all their answers, and are not brought to their end."""
    return [
        attempt
        for attempt in lake_state.attempts.values()
        if attempt.mode is Mode.LIVE
        and (attempt.phase is Phase.ENDED or (attempt.phase is Phase.OPEN and _is_whole(attempt)))
    ]


def _is_whole(attempt: Attempt) -> bool:
    return sum(event.n_lines for event in collect.accepted_downloads(attempt)) >= attempt.intent.n_requests


def settle(session: Session) -> None:
    """Bring live attempts that have all their answers to their end; the lake's and the live lock are held."""
    for attempt in unsettled(session.lake_state):
        if attempt.phase is Phase.OPEN:
            end(session, attempt, BatchState.COMPLETED)
        else:
            collect.finish(session, attempt)


def end(session: Session, attempt: Attempt, state: BatchState) -> None:
    """Record that nothing more is asked of an attempt, and prove that every request is accounted for."""
    session.record(
        Status(
            attempt_id=attempt.attempt_id,
            provider=attempt.provider,
            batch_id=attempt.known_batch_id,
            state=state,
            provider_status=str(state),
            n_requests=attempt.intent.n_requests,
        )
    )
    failpoints.reach("L8")
    collect.finish(session, session.attempt(attempt.attempt_id))
