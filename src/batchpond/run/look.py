"""A new lake looks before it buys: whoever lost a lake submits the study again, and would pay for all of it twice.

Before a lake's first attempt of a study at a provider, one listing, which the pass makes anyway, shows whether batches
hold its requests that this lake does not know. What a copy of this lake sent is not looked for here: it is
taken in when its shard is sent.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from batchpond import ids
from batchpond.errors import AttentionError, ForbiddenError
from batchpond.lake.records import Fresh, Sharded
from batchpond.lake.store import Store
from batchpond.model import RemoteBatch
from batchpond.plan import versions
from batchpond.providers.base import BatchProvider
from batchpond.run import due, strangers
from batchpond.run.account import folder_of
from batchpond.run.find import WINDOW
from batchpond.run.send import listed, planned_since
from batchpond.run.session import Providers, Session, Severity
from batchpond.run.strangers import Lines, Stranger

PEEKED_MAX: Final = 50
_SHOWN_MAX: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def waive(store: Store, study: str) -> None:
    """Record that a study is to be bought whether or not another lake has bought it."""
    with store.lock(f"submit {study} --fresh"):
        Session.begin(store, Providers.of_environment(store.clock, store.path)).record(Fresh(study=study))


def before_first(session: Session, study: str, only: str | None = None) -> None:
    """Raise AttentionError if providers have batches of a study at which this lake has never sent anything of it.

    They are those of the plan, or `only` the one of that client name. One that cannot be asked is told, and holds
    nothing up. The lake's lock is held.
    """
    known = {attempt.client_name for attempt in session.lake_state.attempts.values() if attempt.intent.study == study}
    if only in known or any(isinstance(event, Fresh) and event.study == study for event in session.log.events):
        return
    version = versions.planned_version(session.lake_state, study)
    candidates = [
        one
        for name, endpoints in strangers.endpoints_by_client(session.store, study, version).items()
        if name not in known and only in {None, name}
        for one in _candidates(session, study, name, endpoints)
    ]
    found = _of_study(session, study, version, candidates) if candidates else []
    if found:
        shown = ", ".join(f"{one.client_name} {one.batch.batch_id}" for one in found[:_SHOWN_MAX])
        more = f" and {len(found) - _SHOWN_MAX:,} more" if len(found) > _SHOWN_MAX else ""
        noun = "batch that this lake does not know holds" if len(found) == 1 else "batches that it does not know hold"
        raise AttentionError(
            f"study {study} was asked before, though not from this lake: {len(found):,} {noun} requests of it"
            f" ({shown}{more}); nothing was sent",
            hint=f"`batchpond adopt --all --study {study}` takes them in, with what they answered;"
            f" `batchpond submit {study} --fresh` buys all of it anew",
        )


def _candidates(session: Session, study: str, name: str, endpoints: Collection[str]) -> list[Stranger]:
    """Return the listed batches that may hold requests of the study, and that no copy of this lake made."""
    if session.providers.is_out(name):
        return []
    own = f"{ids.TOKEN_PREFIX}-{session.store.lake_id}-"
    found: list[Stranger] = []
    with session.isolated(name, f"looking for batches of study {study} at {name}"):
        provider = session.providers.get(name)
        unknown = strangers.unknown(session.lake_state, name, _listed(session, study, name, provider))
        found = [one for one in unknown if strangers.may_hold(one, provider.descriptor, endpoints, study)]
    return [one for one in found if not (one.batch.token or "").startswith(own)]


def _listed(session: Session, study: str, name: str, provider: BatchProvider) -> tuple[RemoteBatch, ...]:
    """Return what a provider lists of the time that it keeps results for."""
    folder = folder_of(provider.host, session.store.path)
    if folder is not None and not os.path.isdir(folder.outbox):
        return ()
    kept = timedelta(days=provider.descriptor.results_retention_days)
    since = min(planned_since(session, study), max(session.store.clock.now() - kept, _EPOCH + WINDOW) - WINDOW)
    try:
        return listed(session, provider, (name, study), since)
    except ForbiddenError as error:
        session.listed[name, study] = (since, ())
        text = f"{error.message}: whether study {study} was asked there before is not known"
        session.note(Severity.WARNING, text, hint="if it may have been, give a key that may list batches")
        return ()


def _of_study(session: Session, study: str, version: str, candidates: Sequence[Stranger]) -> list[Stranger]:
    """Return the batches that hold requests of the study: by their token, or by the first lines of the likeliest."""
    shards = [shard for shard in session.lake_state.shards.values() if shard.study == study]
    shards += [new.event for new in due.new_shards(session.store, session.lake_state, study, version, None)]
    named, lake_ids = strangers.by_attempt(candidates)
    places = {
        (shard.client_name, attempt_id)
        for shard in shards
        for attempt_id in strangers.attempt_ids(lake_ids, shard.shard_id)
    }
    found = [one for place, one in named.items() if place in places]
    sizes = {(shard.client_name, shard.n_requests) for shard in shards}
    rest = sorted(
        (one for one in candidates if one not in found),
        key=lambda one: ((one.client_name, one.batch.n_total) not in sizes, -one.age_key[0].timestamp()),
    )
    lines = Lines(session)
    for name in sorted({one.client_name for one in rest}):
        likeliest = [one for one in rest if one.client_name == name][:PEEKED_MAX]
        by_lines = lines.of_study(study, likeliest)
        if not any(_is_own(session, shards, lines.head(one)) for one in by_lines):
            found += by_lines  # else a copy is at work, whose other batches are cut otherwise
    return [one for one in found if not strangers.is_gone(session.providers.get(one.client_name), one.batch)]


def _is_own(session: Session, shards: Sequence[Sharded], custom_ids: Sequence[str]) -> bool:
    """Whether a copy of this lake made a batch of one of its shards."""
    own = (session.store.lake_id,)
    made = (found for shard in shards for found in strangers.attempt_ids(own, shard.shard_id))
    prefixes = {ids.custom_id_prefix(attempt_id) for attempt_id in made}
    return any(custom_id[: ids.ATTEMPT_PREFIX_LENGTH + 1] in prefixes for custom_id in custom_ids)
