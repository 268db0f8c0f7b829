"""The batches in the providers' accounts that the lake does not know, and whose they seem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import orjson

from batchpond import fields, ids
from batchpond.errors import BatchpondError, ExitCode
from batchpond.lake.attempts import UNCLEAR_PHASES, Attempt, LakeState, fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond.model import RemoteBatch
from batchpond.providers import registry
from batchpond.providers.http import keys
from batchpond.run.find import list_since
from batchpond.run.session import Note, Providers, Report, Severity

_NAMES: Final = ("display_name", "displayName")
_NAME_CHARS: Final = 200


class Ownership(StrEnum):
    """Whose a batch seems to be."""

    IN_DOUBT = "in_doubt"
    MAYBE = "maybe"
    THIS_LAKE = "this_lake"
    OTHER_LAKE = "other_lake"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class UnknownBatch:
    """A batch in an account that no attempt of the lake has; `attempt_id` is the one it may belong to.

    `name` is what its maker called it: a display name, or its metadata.
    """

    provider: str
    batch: RemoteBatch
    name: str | None
    ownership: Ownership
    attempt_id: str | None


@dataclass(frozen=True, slots=True)
class AccountReport(Report):
    """What the accounts hold that the lake does not know, newest first, and what went wrong with others."""

    unknown_batches: tuple[UnknownBatch, ...]
    notes: tuple[Note, ...]


def providers_with_keys(environ: Mapping[str, str]) -> list[str]:
    """Return the providers whose key or base URL is set."""
    return [
        found.name
        for found in registry.descriptors()
        if any(name in environ for name in (*found.key_env, *found.credentials_env))
        or keys.setting(environ, found.base_url_env)
    ]


def unknown_batches(store: Store, names: Sequence[str], since: datetime, *, providers: Providers) -> AccountReport:
    """List the batches made since then, by the providers' clocks, that the lake does not know; reads only.

    A provider that cannot be asked is noted and stops no other; the only one raises its error.
    """
    lake_state = fold(read(store))
    found: list[UnknownBatch] = []
    notes: list[Note] = []
    for name in names:
        try:
            found += _of_provider(store, lake_state, name, since, providers, notes)
        except BatchpondError as error:
            if len(names) == 1:
                raise
            notes.append(Note(Severity.ERROR, f"{name}: {error.message}", error.hint, error.exit_code))
    return AccountReport(tuple(found), tuple(notes))


def _of_provider(
    store: Store, lake_state: LakeState, name: str, since: datetime, providers: Providers, notes: list[Note]
) -> Iterator[UnknownBatch]:
    provider = providers.get(name)
    listing = list_since(provider, since)
    if not listing.is_complete:
        text = f"{name} did not list its batches to the end: there may be more than are shown"
        notes.append(Note(Severity.WARNING, text, "run it again", ExitCode.ATTENTION))
    known = {attempt.batch_id for attempt in lake_state.attempts.values() if attempt.provider == name}
    fresh = {b.batch_id: b for b in listing.batches if b.batch_id not in known and (b.created_at or since) >= since}
    for batch in sorted(fresh.values(), key=lambda b: b.age_key[0], reverse=True):
        ownership, attempt = ownership_of(lake_state, store.lake_id, name, batch)
        yield UnknownBatch(name, batch, _name(batch), ownership, attempt.attempt_id if attempt else None)


def ownership_of(
    lake_state: LakeState, lake_id: str, provider: str, batch: RemoteBatch
) -> tuple[Ownership, Attempt | None]:
    """Return whose a batch seems to be, without looking into its results, and the attempt that points to."""
    mine = [attempt for attempt in lake_state.attempts.values() if attempt.provider == provider]
    owner = next((attempt for attempt in mine if attempt.is_named_by(batch)), None)
    if owner is not None:
        return (Ownership.IN_DOUBT if owner.phase in UNCLEAR_PHASES else Ownership.THIS_LAKE), owner
    if batch.token is not None:
        is_mine = batch.token.startswith(f"{ids.TOKEN_PREFIX}-{lake_id}-")
        return (Ownership.THIS_LAKE if is_mine else Ownership.OTHER_LAKE), None
    doubtful = (a for a in mine if a.phase in UNCLEAR_PHASES and batch.batch_id not in a.foreign)
    same_size = next((a for a in doubtful if (batch.n_total or None) in {None, a.intent.n_requests}), None)
    return (Ownership.FOREIGN if same_size is None else Ownership.MAYBE), same_size


def _name(batch: RemoteBatch) -> str | None:
    try:
        found = batch.seen
    except orjson.JSONDecodeError:
        return None
    metadata = fields.mapping(found.get("metadata"))
    for place in (found, metadata):
        named = next((place[name] for name in _NAMES if fields.identifier(place.get(name))), None)
        if named is not None:
            return str(named)[:_NAME_CHARS]
    pairs = (f"{key}={value}" for key, value in metadata.items() if isinstance(value, str | int | float))
    return ", ".join(pairs)[:_NAME_CHARS] or None
