"""What is at the providers that the lake does not know, batches in accounts and files in folders, and whose it seems.

A folder is the account of mode `files`: somebody answers the requests in it, and what lies there may be read by nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson

from batchpond import fields, ids
from batchpond.errors import BatchpondError, ExitCode
from batchpond.lake.attempts import UNCLEAR_PHASES, Attempt, LakeState, Phase, fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond.model import Mode, RemoteBatch
from batchpond.providers import registry
from batchpond.providers.http import keys
from batchpond.providers.shared.files import RECENT
from batchpond.providers.shared.folder import HOST_MARK, Folder
from batchpond.run.find import list_since
from batchpond.run.session import Note, Providers, Report, Session, Severity

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


STRAYS_SHOWN_MAX: Final = 5
_READING_PHASES: Final = UNCLEAR_PHASES | {Phase.OPEN, Phase.ENDED, Phase.MISSING_REMOTE}
NEXT_STEP: Final = (
    "answer each .jsonl there into a file of the same name in inbox/ (its manifest says how), then `batchpond sync`;"
    " `batchpond cancel` ends one with what it has"
)

STRAYS_HINT: Final = "a result's name begins with that of the requests it answers; what comes late stays unread"


def folder_of(host: str, lake: Path) -> Folder | None:
    """Return the folder that attempts remember by this name; None where it is no folder's."""
    if not host.startswith(HOST_MARK):
        return None
    return Folder.of(lake / host.removeprefix(HOST_MARK), lake)


def waiting_text(n_batches: int, n_requests: int, folder: Folder) -> str:
    """Return what waits for somebody to answer it, and where."""
    noun = "file of requests waits" if n_batches == 1 else "files of requests wait"
    return f"{n_batches:,} {noun} to be answered in {folder.outbox} ({n_requests:,} requests)"


def tell_waiting(session: Session) -> None:
    """Say where the requests are that somebody must answer, if this pass put any there, and what will be read soon."""
    mine = [a for a in _attempts(session.open_state.attempts.values()) if a.phase is Phase.OPEN]
    n_recent = sum(a.status is not None and a.status.provider_status == RECENT for a in mine)
    if n_recent:
        text = f"results were written to just now and may still grow (batches: {n_recent:,})"
        session.note(Severity.INFO, text, hint="`batchpond sync` takes them once they have come to rest")
    if not session.counts.n_created:
        return
    for folder, attempts in _by_folder(mine, session.store):
        n_requests = sum(attempt.intent.n_requests for attempt in attempts)
        session.note(Severity.INFO, waiting_text(len(attempts), n_requests, folder), hint=NEXT_STEP)


def tell_strays(session: Session) -> None:
    """Say which result files nobody will read: named after no batch, or come after theirs was settled."""
    for text in strays(session.open_state.attempts.values(), session.store):
        session.note(Severity.WARNING, text, hint=STRAYS_HINT)


def strays(attempts: Iterable[Attempt], store: Store) -> Iterator[str]:
    """Yield a sentence for each folder with result files that nobody will read."""
    for folder, mine in _by_folder(_attempts(attempts), store):
        known = {attempt.batch_id or attempt.token: _read_files(attempt) for attempt in mine}
        found = folder.strays(known)
        if found:
            names = ", ".join(found[:STRAYS_SHOWN_MAX])
            more = f" and {len(found) - STRAYS_SHOWN_MAX:,} more" if len(found) > STRAYS_SHOWN_MAX else ""
            yield f"in {folder.inbox}, {names}{more} answers no batch that is open"


def absent(attempts: Iterable[Attempt], store: Store) -> Iterator[str]:
    """Yield a sentence for each folder that is not there though its batches are still to be answered."""
    waiting = [attempt for attempt in _attempts(attempts) if attempt.phase in _READING_PHASES]
    for folder, mine in _by_folder(waiting, store):
        if not os.path.isdir(folder.outbox):
            yield f"{folder.path} is not there; batches that wait to be answered in it: {len(mine):,}"


def _read_files(attempt: Attempt) -> frozenset[str] | None:
    if attempt.phase in _READING_PHASES:
        return None
    return frozenset(event.file_id for event in attempt.downloads)


def _attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.mode is Mode.FILES]


def _by_folder(attempts: Iterable[Attempt], store: Store) -> Iterator[tuple[Folder, list[Attempt]]]:
    by_host: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_host.setdefault(attempt.intent.host, []).append(attempt)
    for host, mine in by_host.items():
        folder = folder_of(host, store.path)
        if folder is not None:
            yield folder, mine
