"""The verb `adopt`: take a batch that the lake does not know into it.

A batch of this lake that was never acknowledged is given to its attempt. Any other batch needs a map from its
custom_ids to planned requests; from then on it is polled, collected and audited as if it had been sent from here.

A shard of the kind `adopted` names its batch and, line by line, the custom_ids that were given to its
requests elsewhere. It is never sent. The attempt and its batch appear in one event file, whole or not
at all, so that any later pass can finish what a process began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batchpond import ids
from batchpond.errors import AttentionError, UsageError
from batchpond.files import RowFile
from batchpond.lake import tables
from batchpond.lake.attempts import UNCLEAR_PHASES, Attempt, LakeState, Phase, fold, seen_as
from batchpond.lake.events import read
from batchpond.lake.records import Adopted, AdoptedShard, Intent, Resolution, Sharded
from batchpond.lake.store import CONFIG, Store
from batchpond.model import BatchState, RemoteBatch, ShardKind, named_client
from batchpond.plan import versions
from batchpond.providers.base import BatchProvider
from batchpond.run import due
from batchpond.run.batch_map import COLUMNS, BatchMap, MapReader, Target
from batchpond.run.find import Proof, check_host, first_custom_ids, prove
from batchpond.run.resolve import resolve
from batchpond.run.send import origin_of
from batchpond.run.session import Providers, Session
from batchpond.run.unknown import Ownership, ownership_of
from batchpond.study.prices import Prices
from batchpond.text import Shown
from batchpond.views.refresh import refresh


def adopted_shards(lake_state: LakeState) -> dict[str, AdoptedShard]:
    """Return the shards whose batches other tools made, by id."""
    return {shard_id: shard for shard_id, shard in lake_state.shards.items() if isinstance(shard, AdoptedShard)}


def resume(session: Session, shard: AdoptedShard) -> None:
    """Finish an adoption that a process did not live to finish; the lock is held."""
    _give_up_waiting(session, shard)
    provider = session.providers.get(shard.client_name)
    check_host(Attempt(_intent(session, shard)), provider)
    batch = provider.get(shard.batch_id)
    if batch is not None:
        finish(session, shard, batch)
        return
    text = f"{shard.provider} says 404 for batch {shard.batch_id}, which is being adopted"
    session.alert(text, hint="`batchpond sync` asks again; 404s come and go")


def finish(session: Session, shard: AdoptedShard, batch: RemoteBatch) -> Attempt:
    """Record an adopted shard's attempt and its batch as one fact, and return the attempt."""
    _give_up_waiting(session, shard)
    intent = _intent(session, shard)
    session.record(intent, Adopted(**seen_as(Attempt(intent), batch)))
    session.counts.n_adopted += 1
    return session.attempt(intent.attempt_id)


def take_in(
    session: Session, provider: BatchProvider, batch: RemoteBatch, mapped: BatchMap, study: str, version: str
) -> Attempt:
    """Take a batch in as the requests of a map that holds; the lock is held.

    The fact of its shard comes before the file: it is real once its file stands.
    """
    new = shard_of(session.store, provider, batch, mapped, study, version)
    if new.event.shard_id not in session.lake_state.shards:
        session.record(new.event)
    due.publish_shard(session.store, new)
    return finish(session, adopted_shards(session.lake_state)[new.event.shard_id], batch)


def shard_of(
    store: Store, provider: BatchProvider, batch: RemoteBatch, mapped: BatchMap, study: str, version: str
) -> due.NewShard:
    """Return the shard that a batch was of, as if it had been made here."""
    book = Prices.of_lake(store.path / CONFIG, batch.created_at or store.clock.now())
    pairs = zip(mapped.custom_ids, mapped.lines["request_id"].to_pylist(), strict=True)
    names = (part for pair in pairs for part in pair)
    said = due.shard_event(
        study, version, mapped.lines, ShardKind.ADOPTED, due.estimated(book, mapped.lines, {}, {}, {}), 0
    ).asked()
    shard_id = ids.digest("adopted shard", provider.descriptor.name, batch.batch_id, *names)
    fact = AdoptedShard(
        **said | {"shard_id": shard_id},
        batch_id=batch.batch_id,
        host=provider.host,
        origin=origin_of(said["mode"], provider),
    )
    return due.NewShard(fact, mapped.lines, mapped.custom_ids)


def _give_up_waiting(session: Session, shard: AdoptedShard) -> None:
    """Void the shards without a batch that hold any of the same requests; the rest of them is due anew."""
    for other in _waiting_with_the_same(session, shard.shard_id):
        due.give_up(session, other.study, other.shard_id)
        if other.shard_id in session.open_state.kept:
            text = (
                f"batch {shard.batch_id} holds requests that {other.provider} refused, or made a batch of all the same"
            )
            raise AttentionError(text, hint="`batchpond sync` looks whether it did, and then takes this one in")


def _waiting_with_the_same(session: Session, shard_id: str) -> list[Sharded]:
    if not any(due.is_voidable(session.lake_state, other) for other in session.lake_state.shards):
        return []
    rows = tables.rows(session.store, ["shard_requests"], tables.query(__package__, "sharing"), [shard_id])
    shards = session.lake_state.shards
    return [shards[other] for (other,) in rows if other in shards and due.is_voidable(session.lake_state, other)]


def _intent(session: Session, shard: AdoptedShard) -> Intent:
    attempt_id = ids.attempt_id(session.store.lake_id, shard.shard_id, 1)
    return Intent(**shard.asked(), attempt_id=attempt_id, ordinal=1, host=shard.host, origin=shard.origin)


_MAP_HINT = (
    "if another lake made it, `--study STUDY` finds which planned requests it holds; if another tool did, and you know,"
    " give `--study STUDY --map FILE`"
)
_WHOSE = {
    Ownership.THIS_LAKE: "carries a token of this lake, but no attempt on record has it: is the lake an old copy?",
    Ownership.OTHER_LAKE: "carries the token of another lake",
}
_NOBODYS = "carries no token of this lake, and no result that names an attempt of it"


@dataclass(frozen=True, slots=True)
class Adoption(Shown):
    """An adopted batch's attempt; `is_new` is false when the lake had it before."""

    attempt: Attempt
    is_new: bool


@dataclass(frozen=True, slots=True)
class MapOrder:
    """A wish to take in a batch by a map; `is_forced` even if its requests were asked before."""

    batch_id: str
    provider: str
    study: str
    path: Path
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class AdoptPreview:
    """What would be taken in: a batch, as how many requests of the study, and one row of the map in words."""

    order: MapOrder
    batch: RemoteBatch
    n_requests: int
    example: str


def adopt_mapped(
    store: Store, order: MapOrder, *, providers: Providers, confirm: Callable[[AdoptPreview], bool]
) -> Adoption | None:
    """Take a batch in by a map of its custom_ids; None when `confirm`, asked without the lock, says no.

    The map is believed: nothing shows that a prompt was the planned one. Raises UsageError, before
    anything is recorded, for a map or a batch that cannot be; doing it again is a no-op.
    """
    provider = providers.get(order.provider)
    batch = found(provider, order.batch_id)
    mapped, version, known = _propose(store, fold(read(store)), provider, batch, order)
    if known is not None:
        return Adoption(known, is_new=False)
    if not confirm(AdoptPreview(order, batch, len(mapped.lines), mapped.example)):
        return None
    with store.lock(f"adopt {order.batch_id}"):
        session = Session.begin(store, providers)
        mapped, version, _ = _propose(store, session.lake_state, provider, batch, order)
        attempt = take_in(session, provider, batch, mapped, order.study, version)
        refresh(store)
    return Adoption(attempt, is_new=True)


def found(provider: BatchProvider, batch_id: str) -> RemoteBatch:
    """Return a batch; raises UsageError where the provider knows none of that id."""
    batch = provider.get(batch_id)
    if batch is None:
        raise UsageError(
            f"{provider.descriptor.name} knows no batch {batch_id}",
            hint="check the id and the key's project; `batchpond adopt --list` shows the account's batches",
        )
    return batch


def _propose(
    store: Store, lake_state: LakeState, provider: BatchProvider, batch: RemoteBatch, order: MapOrder
) -> tuple[BatchMap, str, Attempt | None]:
    """Check everything that can be checked; reads only.

    Returns the map, the version that it is of, and the attempt if it was taken in already.
    """
    check_strange(store, lake_state, provider, batch)
    version = versions.planned_version(lake_state, order.study)
    target = Target(order.study, version, *named_client(order.provider))
    with tables.connect(store, due.ASKED_TABLES) as connection:
        reader = MapReader(connection, RowFile(order.path, COLUMNS), target)
        mapped = reader.read()
        _check_fit(batch, mapped, order)
        shard_id = shard_of(store, provider, batch, mapped, order.study, version).event.shard_id
        known = lake_state.latest_attempt(shard_id)
        _check_same_map(store, lake_state, (batch.batch_id, provider.descriptor.name), shard_id)
        if known is None and not order.is_forced:
            reader.check_unasked(_live(lake_state, shard_id))
    return mapped, version, known


def check_strange(store: Store, lake_state: LakeState, provider: BatchProvider, batch: RemoteBatch) -> None:
    """Raise if the batch is, or may yet prove to be, one that this lake sent: a map must not hide that."""
    owner = _owner(lake_state, provider, batch.batch_id)
    if owner is not None and owner.intent.shard_kind is not ShardKind.ADOPTED:
        raise UsageError(
            f"batch {batch.batch_id} is in this lake already: attempt {owner.attempt_id} sent it ({owner.phase})",
            hint="`batchpond sync` collects it; nothing was recorded",
        )
    ownership, attempt, mine = _sender(store, lake_state, provider, batch)
    if mine is not None:
        raise UsageError(
            f"batch {batch.batch_id} was sent by this lake, as attempt {mine.attempt_id}: it needs no map",
            hint=f"run `batchpond adopt {batch.batch_id}`; nothing was recorded",
        )
    _check_decided(provider, batch, ownership, attempt)
    if batch.state is BatchState.FAILED:
        raise UsageError(
            f"batch {batch.batch_id} failed as a whole: it has no answers", hint="`batchpond submit` asks its requests"
        )


def _owner(lake_state: LakeState, provider: BatchProvider, batch_id: str) -> Attempt | None:
    name = provider.descriptor.name
    found = (a for a in lake_state.attempts.values() if a.batch_id == batch_id and a.provider == name)
    return next(found, None)


def _sender(
    store: Store, lake_state: LakeState, provider: BatchProvider, batch: RemoteBatch
) -> tuple[Ownership, Attempt | None, Attempt | None]:
    """Return whose a batch seems to be, the attempt that points to, and the one that sent it if its results say so."""
    ownership, attempt = ownership_of(lake_state, store.lake_id, provider.descriptor.name, batch)
    if ownership in {Ownership.IN_DOUBT, Ownership.THIS_LAKE}:
        return ownership, attempt, attempt
    return ownership, attempt, _owner_by_results(lake_state, provider, batch)


def _owner_by_results(lake_state: LakeState, provider: BatchProvider, batch: RemoteBatch) -> Attempt | None:
    """Return the attempt of this lake that the first custom_ids of an ended batch's results name."""
    name = provider.descriptor.name
    sent = [attempt for attempt in lake_state.attempts.values() if attempt.provider == name and attempt.n_sends]
    prefixes = {ids.custom_id_prefix(attempt.attempt_id): attempt for attempt in sent}
    if not prefixes:
        return None
    length = ids.ATTEMPT_PREFIX_LENGTH + 1
    return next((prefixes[c[:length]] for c in first_custom_ids(provider, batch) if c[:length] in prefixes), None)


def _check_decided(provider: BatchProvider, batch: RemoteBatch, ownership: Ownership, attempt: Attempt | None) -> None:
    """Raise while the batch may be an attempt's: without token and input file, only results speak against it."""
    if ownership is not Ownership.MAYBE or attempt is None or not provider.descriptor.is_opaque:
        return
    if prove(provider, attempt, batch) is not Proof.FOREIGN:
        raise AttentionError(
            f"batch {batch.batch_id} may be attempt {attempt.attempt_id}, which was never acknowledged: as many"
            f" requests, and only its results will tell; it is {batch.state}",
            hint=f"wait until they can be read; if you know that it is, `batchpond resolve {attempt.attempt_id} --adopt"
            f" {batch.batch_id}`; nothing was recorded",
        )


def _check_fit(batch: RemoteBatch, mapped: BatchMap, order: MapOrder) -> None:
    models, endpoints = (sorted(mapped.lines[name].unique().to_pylist()) for name in ("request_model", "endpoint"))
    if len(models) > 1 or len(endpoints) > 1:
        raise UsageError(
            f"{order.path} maps batch {batch.batch_id} to requests of {', '.join(models)} at {', '.join(endpoints)}",
            hint="a batch in the lake is of one model and endpoint; nothing was recorded",
        )
    if batch.endpoint is not None and batch.endpoint != endpoints[0]:
        raise UsageError(
            f"batch {batch.batch_id} is of {batch.endpoint}, the requests that {order.path} names are of"
            f" {endpoints[0]}",
            hint="set `endpoint` of the model in study.toml and plan again; nothing was recorded",
        )
    if batch.n_total and batch.n_total != len(mapped.lines):
        raise UsageError(
            f"batch {batch.batch_id} has {batch.n_total:,} requests, {order.path} maps {len(mapped.lines):,}",
            hint="each of them needs a row, so that every line can be accounted for; nothing was recorded",
        )


def _check_same_map(store: Store, lake_state: LakeState, batch: tuple[str, str], shard_id: str) -> None:
    for other_id, other in adopted_shards(lake_state).items():
        is_another = (other.batch_id, other.provider) == batch and other_id != shard_id
        if is_another and due.is_real(store, lake_state, other):
            raise UsageError(
                f"batch {other.batch_id} was adopted into study {other.study} by another map",
                hint="what is recorded is never changed; nothing was recorded now",
            )


def _live(lake_state: LakeState, own_shard_id: str) -> dict[str, str]:
    """Return where each shard stands whose requests are on their way; one that only waits is given up for the batch."""
    found = {}
    adopted = adopted_shards(lake_state)
    for shard_id, latest in due.pending_shards(lake_state).items():
        if shard_id == own_shard_id or due.is_voidable(lake_state, shard_id):
            continue
        if latest is None:
            found[shard_id] = f"is in batch {adopted[shard_id].batch_id}, which is being adopted"
        else:
            what = f"batch {latest.batch_id}" if latest.batch_id else f"attempt {latest.attempt_id}"
            found[shard_id] = f"is in {what}, which is {latest.phase}"
    return found


def adopt_own(store: Store, batch_id: str, *, provider_name: str, providers: Providers) -> Adoption:
    """Give a batch that this lake sent, by its token or its results, to the attempt that lost it.

    Raises UsageError for a batch of anybody else, AttentionError for one that cannot be told yet.
    """
    provider = providers.get(provider_name)
    batch = found(provider, batch_id)
    lake_state = fold(read(store))
    owner = _owner(lake_state, provider, batch_id)
    if owner is not None:
        return Adoption(owner, is_new=False)
    ownership, attempt, mine = _sender(store, lake_state, provider, batch)
    if mine is None:
        _check_decided(provider, batch, ownership, attempt)
        raise UsageError(f"batch {batch.batch_id} {_WHOSE.get(ownership, _NOBODYS)}", hint=_MAP_HINT)
    if mine.phase not in UNCLEAR_PHASES | {Phase.ABSENT, Phase.REJECTED}:
        raise UsageError(
            f"batch {batch_id} is a second one for attempt {mine.attempt_id}, which is {mine.phase}"
            + (f" with batch {mine.batch_id}" if mine.batch_id else ""),
            hint=f"if it still runs, cancel it in {provider_name}'s console; its requests have an answer without it",
        )
    settled = resolve(store, mine.attempt_id, Resolution.ADOPT, providers=providers, batch_id=batch_id)
    return Adoption(settled, is_new=True)
