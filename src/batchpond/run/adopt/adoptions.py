"""Batches that another tool made, on their way into the lake: recorded so that any later pass can finish.

A shard of the kind `adopted` names its batch and, line by line, the custom_ids that were given to its
requests elsewhere. It is never sent. The attempt and its batch appear in one event file, whole or not
at all; from then on the batch is polled, collected and audited like any other.
"""

from __future__ import annotations

from batchpond import ids
from batchpond.errors import ExitCode
from batchpond.lake import tables
from batchpond.lake.attempts import Attempt, Picture, seen_event
from batchpond.lake.events import Event, Kind
from batchpond.lake.payload import shard_file_name
from batchpond.lake.schemas import SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.model import RemoteBatch, ShardKind
from batchpond.run import due
from batchpond.run.find.unknowns import check_host
from batchpond.run.session import Session, Severity


def begin(session: Session, new: due.NewShard) -> None:
    """Record an adopted shard, the fact before the file: it is real once its file stands."""
    if (new.event.shard_id or "") not in session.picture.shards:
        session.record(new.event)
    due.publish_shard(session.store, new)


def finish_all(session: Session) -> None:
    """Finish the adoptions that a process did not live to finish; the lock is held.

    Comes before anything is sent: a waiting shard may hold requests that the batch has answered.
    """
    for shard in list(session.picture.shards.values()):
        if is_begun(session.store, session.picture, shard):
            with session.isolated(shard.provider or "", f"adopting batch {shard.batch_id}"):
                _resume(session, shard)


def is_begun(store: Store, picture: Picture, shard: Event) -> bool:
    """Whether a shard is an adopted one whose attempt is not on record yet."""
    if shard.shard_kind != ShardKind.ADOPTED or picture.latest_attempt(shard.shard_id or "") is not None:
        return False
    return store.has(SHARD_REQUESTS, shard_file_name(shard.provider or "", shard.shard_id or ""))


def _resume(session: Session, shard: Event) -> None:
    _give_up_waiting(session, shard)
    provider = session.providers.get(shard.provider or "")
    check_host(Attempt(_intent(session, shard)), provider)
    batch = provider.get(shard.batch_id or "")
    if batch is not None:
        finish(session, shard, batch)
        return
    session.note(
        Severity.WARNING,
        f"{shard.provider} says 404 for batch {shard.batch_id}, which is being adopted",
        hint="`batchpond sync` asks again; 404s come and go",
        exit_code=ExitCode.ATTENTION,
    )


def finish(session: Session, shard: Event, batch: RemoteBatch) -> Attempt:
    """Record an adopted shard's attempt and its batch as one fact, and return the attempt."""
    _give_up_waiting(session, shard)
    intent = _intent(session, shard)
    session.record(intent, seen_event(Kind.ADOPTED, Attempt(intent), batch))
    session.counts.n_adopted += 1
    return session.attempt(intent.attempt_id or "")


def _give_up_waiting(session: Session, shard: Event) -> None:
    """Void the shards without a batch that hold any of the same requests; the rest of them is due anew."""
    for other in _waiting_with_the_same(session, shard.shard_id or ""):
        session.record(Event(kind=Kind.VOIDED, study=other.study, shard_id=other.shard_id))


def _waiting_with_the_same(session: Session, shard_id: str) -> list[Event]:
    with tables.connect(session.store, [SHARD_REQUESTS.name]) as connection:
        rows = connection.execute(
            "select distinct shard_id from shard_requests where shard_id <> $1 and request_id in"
            " (select request_id from shard_requests where shard_id = $1) order by shard_id",
            [shard_id],
        ).fetchall()
    shards = session.picture.shards
    return [shards[other] for (other,) in rows if other in shards and due.is_voidable(session.picture, other)]


def _intent(session: Session, shard: Event) -> Event:
    return Event(
        kind=Kind.INTENT,
        attempt_id=ids.attempt_id(session.store.lake_id, shard.shard_id or "", 1),
        shard_id=shard.shard_id,
        shard_kind=shard.shard_kind,
        ordinal=1,
        study=shard.study,
        study_version=shard.study_version,
        provider=shard.provider,
        host=shard.host,
        endpoint=shard.endpoint,
        request_model=shard.request_model,
        origin=shard.origin,
        n_requests=shard.n_requests,
        size_bytes=shard.size_bytes,
        input_tokens=shard.input_tokens,
        cost_expected_usd=shard.cost_expected_usd,
        cost_max_usd=shard.cost_max_usd,
        detail=shard.detail,
    )
