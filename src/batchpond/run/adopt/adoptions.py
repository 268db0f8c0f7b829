"""Batches that another tool made, on their way into the lake: recorded so that any later pass can finish.

A shard of the kind `adopted` names its batch and, line by line, the custom_ids that were given to its
requests elsewhere. It is never sent. The attempt and its batch appear in one event file, whole or not
at all; from then on the batch is polled, collected and audited like any other.
"""

from __future__ import annotations

from batchpond import ids
from batchpond.errors import ExitCode
from batchpond.lake import tables
from batchpond.lake.attempts import Attempt, LakeState, seen_as
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.records import Adopted, AdoptedShard, Intent, Sharded, Voided
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.model import RemoteBatch
from batchpond.run import due
from batchpond.run.find.unknowns import check_host
from batchpond.run.session import Session, Severity


def begin(session: Session, new: due.NewShard) -> None:
    """Record an adopted shard, the fact before the file: it is real once its file stands."""
    if new.event.shard_id not in session.lake_state.shards:
        session.record(new.event)
    due.publish_shard(session.store, new)


def finish_all(session: Session) -> None:
    """Finish the adoptions that a process did not live to finish; the lock is held.

    Comes before anything is sent: a waiting shard may hold requests that the batch has answered.
    """
    for shard in adopted(session.lake_state).values():
        if is_begun(session.store, session.lake_state, shard):
            with session.isolated(shard.provider, f"adopting batch {shard.batch_id}"):
                _resume(session, shard)


def adopted(lake_state: LakeState) -> dict[str, AdoptedShard]:
    """Return the shards whose batches other tools made, by id."""
    return {shard_id: shard for shard_id, shard in lake_state.shards.items() if isinstance(shard, AdoptedShard)}


def is_begun(store: Store, lake_state: LakeState, shard: AdoptedShard) -> bool:
    """Whether a shard's file stands, and its attempt is not on record yet."""
    is_finished = lake_state.latest_attempt(shard.shard_id) is not None
    return not is_finished and store.has(SHARD_REQUESTS, shard_file_name(shard.provider, shard.shard_id))


def _resume(session: Session, shard: AdoptedShard) -> None:
    _give_up_waiting(session, shard)
    provider = session.providers.get(shard.provider)
    check_host(Attempt(_intent(session, shard)), provider)
    batch = provider.get(shard.batch_id)
    if batch is not None:
        finish(session, shard, batch)
        return
    session.note(
        Severity.WARNING,
        f"{shard.provider} says 404 for batch {shard.batch_id}, which is being adopted",
        hint="`batchpond sync` asks again; 404s come and go",
        exit_code=ExitCode.ATTENTION,
    )


def finish(session: Session, shard: AdoptedShard, batch: RemoteBatch) -> Attempt:
    """Record an adopted shard's attempt and its batch as one fact, and return the attempt."""
    _give_up_waiting(session, shard)
    intent = _intent(session, shard)
    session.record(intent, Adopted(**seen_as(Attempt(intent), batch)))
    session.counts.n_adopted += 1
    return session.attempt(intent.attempt_id)


def _give_up_waiting(session: Session, shard: AdoptedShard) -> None:
    """Void the shards without a batch that hold any of the same requests; the rest of them is due anew."""
    for other in _waiting_with_the_same(session, shard.shard_id):
        session.record(Voided(study=other.study, shard_id=other.shard_id))


def _waiting_with_the_same(session: Session, shard_id: str) -> list[Sharded]:
    with tables.connect(session.store, [SHARD_REQUESTS.name]) as connection:
        rows = connection.execute(
            "select distinct shard_id from shard_requests where shard_id <> $1 and request_id in"
            " (select request_id from shard_requests where shard_id = $1) order by shard_id",
            [shard_id],
        ).fetchall()
    shards = session.lake_state.shards
    return [shards[other] for (other,) in rows if other in shards and due.is_voidable(session.lake_state, other)]


def _intent(session: Session, shard: AdoptedShard) -> Intent:
    attempt_id = ids.attempt_id(session.store.lake_id, shard.shard_id, 1)
    return Intent(**shard.asked(), attempt_id=attempt_id, ordinal=1, host=shard.host, origin=shard.origin)
