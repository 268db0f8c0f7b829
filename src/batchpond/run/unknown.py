"""Batches in an account that the lake does not know: which requests of a study they hold, and whose they seem.

A name is no match. A token says which attempt of which lake a batch is; an attempt's id is made of the lake's and the
shard's, and a shard's of its requests: so a batch of a shard that this plan cuts as well is known before it has any
result, whatever its study is called. Any other is known by its custom_ids, in the file that it was made of, where the
provider gives that back, or else in its results.

A new lake looks before it buys, for whoever lost a lake submits the study again: before a lake's first attempt of a
study at a provider, one listing, which the pass makes anyway, shows whether batches hold its requests that this lake
does not know. What a copy of this lake sent is not looked for here: it is taken in when its shard is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from batchpond import fields, ids
from batchpond.errors import (
    AccessError,
    AttentionError,
    BatchpondError,
    ExitCode,
    ForbiddenError,
    ProviderError,
    UnreachableError,
)
from batchpond.lake import tables
from batchpond.lake.attempts import UNCLEAR_PHASES, Attempt, LakeState, fold
from batchpond.lake.events import read
from batchpond.lake.records import Fresh, Sharded
from batchpond.lake.store import Store
from batchpond.model import EPOCH, FILES_MARK, BatchState, Mode, RemoteBatch, client_name, named_client
from batchpond.plan import versions
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider, Descriptor
from batchpond.providers.http import keys
from batchpond.providers.shared.folder import of_host
from batchpond.run import due
from batchpond.run.batch_map import BatchMap, LineRows, MapReader, Target
from batchpond.run.find import day_before, ids_at_head, ids_of, is_waived, list_since
from batchpond.run.send import AHEAD_MAX, listed, planned_since
from batchpond.run.session import Note, Providers, Report, Session, Severity


@dataclass(frozen=True, slots=True)
class UnknownBatch:
    """A batch that is not on record, and the way to it."""

    client_name: str
    batch: RemoteBatch

    @property
    def study(self) -> str | None:
        """The study that its maker called it after, where it is known."""
        return fields.mapping(self.batch.seen.get("metadata")).get("study")


def endpoints_by_client(store: Store, study: str, version: str) -> dict[str, frozenset[str]]:
    """Return the endpoints that a study's version has planned so far, by the way to its batches; live calls have none.

    Those are the only ones at which its batches can be.
    """
    rows = tables.rows(store, ["plan"], tables.query(__package__, "endpoints"), [study, version, Mode.LIVE])
    return {client_name(provider, mode): frozenset(found) for provider, mode, found in rows}


def may_hold(one: UnknownBatch, descriptor: Descriptor, endpoints: Collection[str]) -> bool:
    """Whether a batch may hold requests of a study, whatever it is called, by what the listing says of it."""
    batch = one.batch
    is_of_a_lake = batch.token is not None or not descriptor.has_token
    is_alike = batch.endpoint is None or batch.endpoint in endpoints
    return is_of_a_lake and is_alike and batch.state is not BatchState.FAILED


def of_listing(lake_state: LakeState, name: str, batches: Iterable[RemoteBatch]) -> list[UnknownBatch]:
    """Return the listed batches that the lake does not know."""
    return [UnknownBatch(name, batch) for batch in batches if batch.batch_id not in lake_state.batch_ids]


ByAttempt = dict[tuple[str, str], UnknownBatch]
"""Batches by the way to them and the attempt that their token names."""


def by_attempt(batches: Iterable[UnknownBatch]) -> tuple[ByAttempt, frozenset[str]]:
    """Return the batches whose token names an attempt of a lake, and those lakes."""
    found: ByAttempt = {}
    lake_ids = set()
    for one in batches:
        named = ids.lake_and_attempt(one.batch.token)
        if named is not None:
            lake_ids.add(named[0])
            found[one.client_name, named[1]] = one
    return found, frozenset(lake_ids)


def attempt_ids(lake_ids: Iterable[str], shard_id: str) -> Iterator[str]:
    """Yield the attempts at a shard that those lakes may have come to."""
    for lake_id in lake_ids:
        for ordinal in range(1, AHEAD_MAX + 1):
            yield ids.attempt_id(lake_id, shard_id, ordinal)


def of_shards(
    session: Session, study: str, version: str, batches: Iterable[UnknownBatch]
) -> Iterator[tuple[UnknownBatch, BatchMap]]:
    """Yield the batches that other lakes made of the very shards that are due here, each with its lines."""
    named, lake_ids = by_attempt(batches)
    if not named:
        return
    for new in due.new_shards(session.store, session.lake_state, study, version, None):
        for attempt_id in attempt_ids(lake_ids, new.event.shard_id):
            found = named.get((new.event.client_name, attempt_id))
            if found is not None and found.batch.n_total in {None, 0, len(new.lines)}:
                custom_ids = [ids.custom_id(attempt_id, one) for one in new.lines["request_id"].to_pylist()]
                yield found, BatchMap(new.lines, custom_ids, f"{custom_ids[0]} = {new.event.cells}")


@dataclass(slots=True)
class Lines:
    """What the lines of batches say, each looked into once; `silent` are those whose results are a 404 for now."""

    session: Session
    silent: set[str] = field(default_factory=set)
    _heads: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def of_study(self, study: str, batches: Collection[UnknownBatch]) -> list[UnknownBatch]:
        """Return the batches whose first lines name a planned request of the study, of whatever version."""
        keys: dict[str, list[UnknownBatch]] = {}
        for one in batches:
            for key in filter(None, map(ids.request_key_of, self.head(one))):
                keys.setdefault(key, []).append(one)
        if not keys:
            return []
        sql = "SELECT DISTINCT left(request_id, $1) AS key FROM plan WHERE study = $2 AND list_contains($3, key)"
        planned = tables.rows(self.session.store, ["plan"], sql, [ids.REQUEST_KEY_LENGTH, study, list(keys)])
        found = {id(one) for (key,) in planned for one in keys[key]}
        return [one for one in batches if id(one) in found]

    def head(self, one: UnknownBatch) -> list[str]:
        """Return a batch's first custom_ids; none where it has no lines that a lake made, or they cannot be read."""
        place = (one.client_name, one.batch.batch_id)
        if place not in self._heads:
            self._heads[place] = []
            try:
                provider = self.session.providers.get(one.client_name)
                found = _first_said(provider, one.batch, partial(ids_at_head, provider))
            except (AccessError, ProviderError) as error:
                text = f"{one.client_name} batch {one.batch.batch_id} cannot be looked into: {error.message}"
                self.session.note(Severity.WARNING, text, hint=error.hint, exit_code=error.exit_code)
                return []
            if not found and one.batch.state.is_terminal and is_kept(self.session, provider, one.batch):
                self.silent.add(one.batch.batch_id)
                text = f"{one.client_name} batch {one.batch.batch_id} says 404 for its results, which it still keeps"
                self.session.alert(text, hint="that may pass: run it again")
            self._heads[place] = [custom_id for custom_id in found if ids.request_key_of(custom_id)]
        return self._heads[place]

    def mapped(self, study: str, one: UnknownBatch) -> BatchMap | None:
        """Return all lines of a batch as requests of the study; None where its files are not seen to hold all of them.

        Raises UsageError where a line is no planned request, and ProviderError where the files cannot be read.
        """
        provider = self.session.providers.get(one.client_name)
        custom_ids = _first_said(provider, one.batch, partial(_ids_in, self.session.store, provider, one.batch))
        n_total = one.batch.n_total or len(custom_ids)
        if not custom_ids or (len(custom_ids) < n_total and one.batch.state is BatchState.COMPLETED):
            return None
        rows = LineRows(f"batch {one.batch.batch_id}", custom_ids)
        target = Target(study, None, *named_client(one.client_name))
        with tables.connect(self.session.store, due.ASKED_TABLES) as connection:
            return MapReader(connection, rows, target).read()


def is_kept(session: Session, provider: BatchProvider, batch: RemoteBatch) -> bool:
    """Whether a batch answered anything by its counts, and its provider keeps that as yet: a 404 for it may pass."""
    ends_at = (batch.created_at or EPOCH) + timedelta(days=provider.descriptor.results_retention_days)
    has_none = bool(batch.n_total) and batch.n_completed == 0  # before a batch is counted all counts may be 0
    return not has_none and session.store.clock.now() < ends_at and bool(provider.result_files(batch))


def is_silent(provider: BatchProvider, batch: RemoteBatch) -> bool:
    """Whether a batch that ended shows no results: they are gone, were never there, or are a 404 for now."""
    return batch.state.is_terminal and not any(
        provider.peek(file_id, 1) is not None for _, file_id in provider.result_files(batch)
    )


def _files(provider: BatchProvider, batch: RemoteBatch) -> Iterator[list[str]]:
    """Yield what says which requests a batch holds: the file that it was made of, and its results once it has ended."""
    if batch.input_file_id is not None:
        yield [batch.input_file_id]
    if batch.state.is_terminal:
        yield [file_id for _, file_id in provider.result_files(batch)]


def _first_said(provider: BatchProvider, batch: RemoteBatch, read: Callable[[str], Iterable[str]]) -> list[str]:
    for files in _files(provider, batch):
        try:
            found = dict.fromkeys(custom_id for file_id in files for custom_id in read(file_id))
        except (AccessError, ProviderError):
            if batch.input_file_id not in files:
                raise
            continue  # many providers give nobody back what was uploaded
        if found:
            return list(found)
    return []


def _ids_in(store: Store, provider: BatchProvider, batch: RemoteBatch, file_id: str) -> list[str]:
    """Return the custom_ids of a file; none of what a batch was made of where it came cut.

    The requests that such a file does not show would be bought again.
    """
    path = store.scratch(".lines")
    try:
        download = provider.download(file_id, path)
        if download is None:
            return []
        with path.open("rb") as lines:
            found = list(ids_of(provider, lines))
    finally:
        path.unlink(missing_ok=True)
    size_bytes = provider.size_of(file_id) if file_id == batch.input_file_id else download.size_bytes
    is_whole = len(found) == batch.n_total if size_bytes is None else download.size_bytes == size_bytes
    return found if is_whole else []


PEEKED_MAX: Final = 50
_SHOWN_MAX: Final = 5


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
    if only in known or is_waived(session, study):
        return
    version = versions.planned_version(session.lake_state, study)
    candidates = [
        one
        for name, endpoints in endpoints_by_client(session.store, study, version).items()
        if name not in known and only in {None, name}
        for one in _candidates(session, study, name, endpoints)
    ]
    found = _of_study(session, study, version, candidates) if candidates else []
    if found:
        shown = ", ".join(f"{one.client_name} {one.batch.batch_id}" for one in found[:_SHOWN_MAX])
        more = f" and {len(found) - _SHOWN_MAX:,} more" if len(found) > _SHOWN_MAX else ""
        noun = (
            "batch that this lake does not know holds, or may hold,"
            if len(found) == 1
            else "batches that it does not know hold, or may hold,"
        )
        raise AttentionError(
            f"study {study} was asked before, though not from this lake: {len(found):,} {noun} requests of it"
            f" ({shown}{more}); nothing was sent",
            hint=f"`batchpond adopt --all --study {study}` takes them in, with what they answered;"
            f" `batchpond submit {study} --fresh` buys all of it anew",
        )


def _candidates(session: Session, study: str, name: str, endpoints: Collection[str]) -> list[UnknownBatch]:
    """Return the listed batches that may hold requests of the study, and that no copy of this lake made."""
    if name in session.providers.out:
        return []
    found: list[UnknownBatch] = []
    with session.isolated(name, f"looking for batches of study {study} at {name}"):
        provider = session.providers.get(name)
        not_ours = of_listing(session.lake_state, name, _listed_of_study(session, study, name, provider))
        found = [one for one in not_ours if may_hold(one, provider.descriptor, endpoints)]
    own = f"{ids.TOKEN_PREFIX}-{session.store.lake_id}-"
    return [one for one in found if one.batch.token is None or not one.batch.token.startswith(own)]


def _listed_of_study(session: Session, study: str, name: str, provider: BatchProvider) -> tuple[RemoteBatch, ...]:
    folder = of_host(provider.host, session.store.path) if name.endswith(FILES_MARK) else None
    if folder is not None and not folder.outbox.is_dir():
        return ()
    kept = timedelta(days=provider.descriptor.results_retention_days)
    since = min(planned_since(session, study), day_before(session.store.clock.now() - kept))
    try:
        return listed(session, provider, (name, study), since)
    except ForbiddenError as error:
        session.listed[name, study] = (since, ())
        text = f"{error.message}: whether study {study} was asked there before is not known"
        session.note(Severity.WARNING, text, hint="if it may have been, give a key that may list batches")
        return ()
    except ProviderError as error:
        text = f"a listing of its batches, which did not come: {error.message}"
        session.providers.out[name] = UnreachableError(text, hint=error.hint)
        raise


def _of_study(session: Session, study: str, version: str, candidates: Sequence[UnknownBatch]) -> list[UnknownBatch]:
    """Return the batches that hold requests of the study: by their token, or by the first lines of the likeliest."""
    shards = [shard for shard in session.lake_state.shards.values() if shard.study == study]
    shards += [new.event for new in due.new_shards(session.store, session.lake_state, study, version, None)]
    named, lake_ids = by_attempt(candidates)
    places = {
        (shard.client_name, attempt_id) for shard in shards for attempt_id in attempt_ids(lake_ids, shard.shard_id)
    }
    found = [one for place, one in named.items() if place in places]
    sizes = {(shard.client_name, shard.n_requests) for shard in shards}
    rest = sorted(
        (one for one in candidates if one not in found and one.study in {None, study}),
        key=lambda one: ((one.client_name, one.batch.n_total) not in sizes, -one.batch.age_key[0].timestamp()),
    )
    lines = Lines(session)
    for name in sorted({one.client_name for one in rest}):
        likeliest = [one for one in rest if one.client_name == name][:PEEKED_MAX]
        by_lines = lines.of_study(study, likeliest)
        if not any(_is_own(session, shards, lines.head(one)) for one in by_lines):
            found += by_lines  # else a copy is at work, whose other batches are cut otherwise
            found += [one for one in likeliest if one.batch.batch_id in lines.silent]
    asked = ((one, session.providers.get(one.client_name)) for one in found)
    return [one for one, at in asked if is_kept(session, at, one.batch) or not is_silent(at, one.batch)]


def _is_own(session: Session, shards: Sequence[Sharded], custom_ids: Sequence[str]) -> bool:
    """Whether a copy of this lake made a batch of one of its shards."""
    own = (session.store.lake_id,)
    made = (found for shard in shards for found in attempt_ids(own, shard.shard_id))
    prefixes = {ids.custom_id_prefix(attempt_id) for attempt_id in made}
    return any(custom_id[: ids.ATTEMPT_PREFIX_LENGTH + 1] in prefixes for custom_id in custom_ids)


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
class AccountBatch:
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

    unknown_batches: tuple[AccountBatch, ...]
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
    found: list[AccountBatch] = []
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
) -> Iterator[AccountBatch]:
    provider = providers.get(name)
    listing = list_since(provider, since)
    if not listing.is_complete:
        text = f"{name} did not list its batches to the end: there may be more than are shown"
        notes.append(Note(Severity.WARNING, text, "run it again", ExitCode.ATTENTION))
    known = {attempt.batch_id for attempt in lake_state.attempts.values() if attempt.provider == name}
    fresh = {b.batch_id: b for b in listing.batches if b.batch_id not in known and (b.created_at or since) >= since}
    for batch in sorted(fresh.values(), key=lambda b: b.age_key[0], reverse=True):
        ownership, attempt = ownership_of(lake_state, store.lake_id, name, batch)
        yield AccountBatch(name, batch, _name(batch), ownership, attempt.attempt_id if attempt else None)


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
    metadata = fields.mapping(batch.seen.get("metadata"))
    for place in (batch.seen, metadata):
        named = next((place[name] for name in _NAMES if fields.identifier(place.get(name))), None)
        if named is not None:
            return str(named)[:_NAME_CHARS]
    pairs = (f"{key}={value}" for key, value in metadata.items() if isinstance(value, str | int | float))
    return ", ".join(pairs)[:_NAME_CHARS] or None
