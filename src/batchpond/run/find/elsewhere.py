"""Batches that were made for a shard by another copy of this lake, or by this one before it was restored.

Shards, attempts and tokens are named by what they are, so a copy of a lake makes the very same attempt
for the same shard. Before an attempt is sent for the first time, one listing a pass and account shows
whether its batch is there already: by its token, by the input file that its token names, or, where a
provider carries neither, by the custom_ids of its results. A batch of this lake and study that no shard
on record explains was cut otherwise, and may hold some of the same requests: then nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from batchpond import fields, ids
from batchpond.errors import AttentionError, ExitCode, ProviderError
from batchpond.lake.attempts import Attempt
from batchpond.lake.records import Planned
from batchpond.model import RemoteBatch
from batchpond.providers.base import BatchProvider
from batchpond.run.find import unknowns
from batchpond.run.find.unknowns import WINDOW, adopt, list_since
from batchpond.run.session import Session, Severity

PEEKS_MAX: Final = 200
AHEAD_MAX: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def since(session: Session, study: str) -> datetime:
    """Return from when on a copy may have sent a study's requests: a day before it was first planned."""
    planned = (event for event in session.log.events if isinstance(event, Planned) and event.study == study)
    first = min((event.occurred_at for event in planned), default=_EPOCH)
    return max(first, _EPOCH + WINDOW) - WINDOW


def take_in(session: Session, provider: BatchProvider, attempt: Attempt) -> bool:
    """Give an attempt that was never sent from here the batch that it has already; returns whether it has one.

    A listing that ends early shows what it shows, and one that fails shows nothing, which is told: this guards
    against a copy, and that a batch sent from here is absent is never read from it. Raises AttentionError when a
    batch of the study is not on record.
    """
    if attempt.n_sends:
        return False
    unknown = [
        batch for batch in _listed(session, provider, attempt) if batch.batch_id not in session.lake_state.batch_ids
    ]
    found = _made(session, provider, attempt, unknown)
    if not found:
        _check_explained(session, attempt, unknown)
        return False
    adopt(session, attempt, found)
    session.note(
        Severity.WARNING,
        f"{attempt.provider} has batch {found[0].batch_id} of these {attempt.intent.n_requests} requests already:"
        " a copy of this lake sent it, or this lake was restored from an older one;"
        " it was taken in and nothing was sent again",
        hint="`batchpond sync` collects it; send from one copy of a lake only",
        exit_code=ExitCode.ATTENTION,
    )
    return True


def _made(session: Session, provider: BatchProvider, attempt: Attempt, unknown: list[RemoteBatch]) -> list[RemoteBatch]:
    if provider.descriptor.is_opaque:
        return _by_results(session, provider, attempt, unknown)
    marks = {attempt.intent.token, attempt.file_id} - {None}
    made = {batch.batch_id: batch for batch in unknown if marks & {batch.token, batch.input_file_id}}
    return sorted(made.values(), key=lambda batch: (batch.created_at or _EPOCH, batch.batch_id))


def _listed(session: Session, provider: BatchProvider, attempt: Attempt) -> tuple[RemoteBatch, ...]:
    """Return the account's batches since the study was planned, listed once a pass."""
    key = (attempt.wire, attempt.intent.study)
    if key not in session.listed:
        wanted = since(session, attempt.intent.study)
        wide_enough = (held for (wire, _), held in session.listed.items() if wire == attempt.wire and held[0] <= wanted)
        session.listed[key] = next(wide_enough, None) or (wanted, _batches(session, provider, wanted))
    return session.listed[key][1]


def _batches(session: Session, provider: BatchProvider, wanted: datetime) -> tuple[RemoteBatch, ...]:
    try:
        return list_since(provider, wanted).batches
    except ProviderError as error:
        # Some servers list nothing at all; a lake that was never copied has nothing to look for.
        session.note(
            Severity.WARNING,
            f"{error.message}: whether a copy of this lake has sent the same is not known",
            hint="send from one copy of a lake only",
        )
        return ()


def _check_explained(session: Session, attempt: Attempt, unknown: list[RemoteBatch]) -> None:
    """Raise AttentionError if a batch of the same study carries a token of this lake for a shard that it does not know.

    The token alone does not tell which requests it holds. Where batches do not say their study, none is held against
    another: it may be of any.
    """
    mark = f"{ids.TOKEN_PREFIX}-{session.store.lake_id}-"
    own = [
        (batch, batch.token.removeprefix(mark).partition("-")[0])
        for batch in unknown
        if batch.token is not None and batch.token.startswith(mark)
    ]
    if not own:
        return
    known = {*session.lake_state.attempts, *_next_attempts(session)}
    strange = [
        batch.batch_id
        for batch, attempt_id in own
        if attempt_id not in known and fields.mapping(batch.seen.get("metadata")).get("study") == attempt.intent.study
    ]
    if strange:
        raise AttentionError(
            f"batch {strange[0]}{f' and {len(strange) - 1} more' if len(strange) > 1 else ''} of study"
            f" {attempt.intent.study} was made by this lake, which does not know of it: a copy of it sends too, or"
            " this one was restored from an older one; nothing of the study is sent, it might be bought twice",
            hint="go on from the newest copy of the lake; or submit here in the steps of then (the same `--limit`), so"
            f" that its shards are cut alike and taken in; or `batchpond adopt {strange[0]} --study"
            f" {attempt.intent.study} --map FILE`",
        )


def _next_attempts(session: Session) -> Iterator[str]:
    """Yield the attempts that the shards on record may come to, beyond those that they came to here."""
    for shard_id in session.lake_state.shards:
        n_known = len(session.lake_state.by_shard.get(shard_id, ()))
        for ordinal in range(1, n_known + AHEAD_MAX + 1):
            yield ids.attempt_id(session.store.lake_id, shard_id, ordinal)


def _by_results(
    session: Session, provider: BatchProvider, attempt: Attempt, unknown: list[RemoteBatch]
) -> list[RemoteBatch]:
    """Return the batches of the right size whose results name the attempt; those without results are told."""
    mine, found = ids.custom_id_prefix(attempt.attempt_id), []
    for batch in unknown:
        if batch.n_total not in {None, attempt.intent.n_requests}:
            continue
        if batch.batch_id not in session.heads and len(session.heads) < PEEKS_MAX:
            session.heads[batch.batch_id] = next(unknowns.first_custom_ids(provider, batch), None)
        head = session.heads.get(batch.batch_id)
        if head is not None and head.startswith(mine):
            found.append(batch)
        elif head is None:
            _tell(session, attempt, batch)
    return sorted(found, key=lambda batch: (batch.created_at or _EPOCH, batch.batch_id))


def _tell(session: Session, attempt: Attempt, batch: RemoteBatch) -> None:
    session.note(
        Severity.WARNING,
        f"{attempt.provider} batch {batch.batch_id} is not of this lake's record, has as many requests as one that is"
        " sent now, and no results yet: if another copy of this lake sent it, these requests are bought twice",
        hint="send from one copy of a lake only; `batchpond adopt --list` shows what else is in the account",
    )
