"""The submission protocol for one shard: intent before effect, one POST per durable `sent`.

Steps S2 to S9. Dying between any two lines leaves either nothing at the provider or a record
from which the next pass finds the batch again. Only the upload may be repeated freely.

Shards, attempts and tokens are named by what they are, so a copy of a lake, or this one before it was restored, makes
the very same attempt for the same shard. Before an attempt is sent for the first time, one listing a pass and account
shows whether its batch is there already: by its token, by the input file that its token names, or, where a
provider carries neither, by the custom_ids of its results. A batch of this lake and study that no shard
on record explains was cut otherwise, and may hold some of the same requests: then nothing is sent.
"""

from __future__ import annotations

from concurrent.futures import Future
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from batchpond import fields, ids, model
from batchpond.errors import (
    AccessError,
    AttentionError,
    ExitCode,
    LakeError,
    OvertakenError,
    ProviderError,
    UnreachableError,
)
from batchpond.lake import failpoints, jsonl, tables
from batchpond.lake.attempts import BEFORE_SENT_PHASES, Attempt, Phase, seen_as
from batchpond.lake.events import won_name
from batchpond.lake.records import Approval, Created, Intent, Planned, Rejected, Sent, Sharded, Uploaded
from batchpond.model import CreateSpec, ErrorClass, Mode, Origin, RemoteBatch, RemoteFile, Unclear
from batchpond.plan import versions
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.providers.http.errors import HttpError
from batchpond.run import find
from batchpond.run.find import adopt, check_host, day_before, is_waived, list_since, look_for, matches, record_doubt
from batchpond.run.session import LARGE, Listing, Session, Severity, beside

SEND_LEASE_S = 60.0
UPLOADS_MAX: Final = 3
"""How many input files travel beside the one whose batch is created."""
_NO_LISTING: Final = frozenset({404, 405, 501})
LOOK_EVERY_S = 5.0
# Statuses that something between the provider and us gives of its own.
_SAID_BY_OTHERS = frozenset({"413", "429", "529"})
FILE_MARGIN_S = 7_200.0


class Sending(StrEnum):
    """How sending a shard ended."""

    CREATED = "created"
    TAKEN_IN = "taken_in"
    WAITING = "waiting"
    TRAVELLING = "travelling"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


def _start(session: Session, provider: BatchProvider, shard: Sharded | Intent) -> dict[str, Any]:
    """Return where an attempt starts from: an address and, by the provider's word, its account and newest batch's time.

    Only an opaque provider needs the latter: what is older cannot be the attempt's batch, and a key of another account
    proves nothing about it. The listing that a copy of the lake is looked for in says both: an older time is only a
    lower floor.
    """
    start = {"host": provider.host, "origin": origin_of(shard.mode, provider), "scope": None, "newest_batch_at": None}
    if not provider.descriptor.is_opaque:
        return start
    shown = listed(session, provider, (shard.client_name, shard.study), planned_since(session, shard.study))
    newest = max((batch.created_at for batch in shown if batch.created_at is not None), default=None)
    return start | {"scope": session.scope(provider), "newest_batch_at": newest}


def send_shard(session: Session, shard: Sharded, approval: Approval) -> Sending:
    """Bring a shard's batch into being, or find out that it may not be; the lock is held.

    Goes on where an earlier process stopped. The caller has made sure that the shard's latest
    attempt, if any, is unsent, rejected, absent, or ended in a failure that may be sent again.
    Raises ProviderError or AccessError when the upload fails: nothing was created then.
    """
    provider = session.providers.get(shard.client_name)
    if _has_its_turn_later(session, provider, shard):
        return Sending.TRAVELLING
    if _came_late(session, provider, shard):
        return Sending.TAKEN_IN
    attempt = _attempt_to_send(session, shard, approval, provider)
    # Where no batch carries a token, its input file names it.
    is_known_by_file = provider.descriptor.takes_files and not provider.descriptor.has_token
    is_shared = attempt.mode is Mode.BATCH
    if is_shared and (looked := _look_before(session, provider, attempt, is_known_by_file=is_known_by_file)):
        return looked
    file_id = None
    if provider.descriptor.takes_files:
        file_id = _usable_file(session, attempt, provider) or _upload(session, attempt, provider)
        if file_id is None:
            return Sending.TRAVELLING if attempt.attempt_id in session.uploads else Sending.WAITING
    attempt = session.attempt(attempt.attempt_id)
    is_taken_in = is_known_by_file and not attempt.n_sends and is_shared and take_in(session, provider, attempt)
    if is_taken_in or (is_shared and _is_there_by_now(session, provider, attempt)):
        return Sending.TAKEN_IN
    return _create(session, attempt, file_id, provider)


def _has_its_turn_later(session: Session, provider: BatchProvider, shard: Sharded) -> bool:
    """Whether as many input files travel as may, and a shard's is none of them."""
    if not provider.descriptor.takes_files or len(session.uploads) <= UPLOADS_MAX:
        return False
    latest = session.open_state.latest_attempt(shard.shard_id)
    return latest is None or latest.attempt_id not in session.uploads


def _look_before(
    session: Session, provider: BatchProvider, attempt: Attempt, *, is_known_by_file: bool
) -> Sending | None:
    """Look for the batch of an attempt as far as its input file is not needed for that; None where there is none."""
    if attempt.n_sends:
        return _look_again(session, provider, attempt)
    return Sending.TAKEN_IN if not is_known_by_file and take_in(session, provider, attempt) else None


def _came_late(session: Session, provider: BatchProvider, shard: Sharded) -> bool:
    """Whether the batch of the attempt called absent last is listed after all: nothing is sent in its place then."""
    absent = session.lake_state.latest_attempt(shard.shard_id)
    if absent is None or absent.phase is not Phase.ABSENT or absent.mode is not Mode.BATCH:
        return False
    _, found = _unknown_and_found(session, provider, absent)
    return adopt(session, absent, found)


def _look_again(session: Session, provider: BatchProvider, attempt: Attempt) -> Sending | None:
    """Look for the batch of a create that was refused before it is asked for again; None where there is none.

    A refusal may follow execution: something between may say no though the provider said yes. Where it may come from
    such a thing, the batch has the settle time to appear. Raises ProviderError where no complete listing is to be had.
    """
    refusal = attempt.rejection
    if refusal is not None and refusal.provider_status in _SAID_BY_OTHERS:
        ready_at = refusal.occurred_at + timedelta(seconds=session.settle_s(provider))
        if refusal.occurred_at <= session.store.clock.now() < ready_at:  # else a clock that was ahead has dated it
            text = f"a batch that {attempt.provider} refused is asked for again after {ready_at:%H:%M} UTC"
            session.note(Severity.INFO, text, hint="until then it might still come to be; `batchpond sync` goes on")
            return Sending.WAITING
    listing = _listed_whole(session, provider, attempt)
    found, n_undecided = look_for(session, provider, attempt, listing.batches)
    if n_undecided:
        return _in_doubt(session, attempt, "it was refused, and a batch may be of it all the same")
    if not adopt(session, attempt, found):
        find.check_unsold(session, attempt, listing.batches)
        return None
    session.note(
        Severity.WARNING,
        f"{attempt.provider} refused a batch of {attempt.intent.n_requests} requests and made it all the same:"
        f" {found[0].batch_id}; it was taken in and nothing was sent again",
        hint="`batchpond sync` collects it",
    )
    return Sending.TAKEN_IN


def was_never_made(session: Session, shard_id: str) -> bool:
    """Whether no batch was made of a shard that is to be given up: one that was refused is looked for first.

    One that is found is its attempt's from then on. Where it is not known yet, the shard is kept for this pass.
    """
    attempt = session.open_state.latest_attempt(shard_id)
    if attempt is None or attempt.phase is not Phase.REJECTED or attempt.mode is not Mode.BATCH:
        return True
    found: Sending | None = Sending.WAITING
    with session.isolated(attempt.client_name, f"looking for a batch that {attempt.provider} refused"):
        provider = session.providers.get(attempt.client_name)
        check_host(attempt, provider)
        found = _look_again(session, provider, attempt)
    if found is Sending.WAITING:
        session.open_state.kept.add(shard_id)
    return found is None


def _listed_whole(session: Session, provider: BatchProvider, attempt: Attempt) -> Listing:
    """Return a complete listing of the account since the attempt's study was planned; ProviderError without one.

    It is made once a pass, and again for a study that was planned before the first that needed it.
    """
    since = planned_since(session, attempt.intent.study)
    held = session.listings.get(attempt.client_name)
    if held is None or since < held[0]:
        held = session.listings[attempt.client_name] = (since, list_since(provider, since))
        session.looked_at_s[attempt.client_name] = session.store.clock.monotonic_s()
    return _to_the_end(attempt.client_name, held[1])


def _to_the_end(name: str, listing: Listing) -> Listing:
    """Return a listing that is complete; raises ProviderError for any other: it may hide the very batch."""
    if not listing.is_complete:
        raise ProviderError(
            f"{name} did not list its batches to the end: whether one was made of the same requests is not known",
            hint="`batchpond sync` looks again before it sends anything of it",
        )
    return listing


def _is_there_by_now(session: Session, provider: BatchProvider, attempt: Attempt) -> bool:
    """Whether a batch of the attempt has come to be since the last look, if that was long enough ago.

    One page: what another copy of the lake, or an earlier create, brought into being just now is the newest there.
    """
    now_s = session.store.clock.monotonic_s()
    if provider.descriptor.is_opaque or now_s - session.looked_at_s.get(attempt.client_name, now_s) <= LOOK_EVERY_S:
        return False
    session.looked_at_s[attempt.client_name] = now_s
    try:
        page = provider.list_page(None)
    except ProviderError as error:
        if attempt.n_sends or not (_has_no_listing(error) or is_waived(session, attempt.intent.study)):
            raise
        return False  # this guards against copies of a lake
    return adopt(session, attempt, matches(session, provider, attempt, page.batches))


def _usable_file(session: Session, attempt: Attempt, provider: BatchProvider) -> str | None:
    """Return the attempt's uploaded file, unless the batch may have been refused because of it, or it is gone."""
    if find.is_file_gone(session, provider, attempt, FILE_MARGIN_S):
        return None
    refused = attempt.rejection is not None and attempt.rejection.error_class is ErrorClass.PERMANENT
    return None if refused else attempt.file_id


def _attempt_to_send(session: Session, shard: Sharded, approval: Approval, provider: BatchProvider) -> Attempt:
    latest = session.lake_state.latest_attempt(shard.shard_id)
    if latest is not None and latest.phase in BEFORE_SENT_PHASES:
        if latest.n_sends:
            # Its file and its token are at that host: a batch made elsewhere would never be looked for there.
            check_host(latest, provider)
        elif provider.host != latest.intent.host:
            # What was uploaded elsewhere is of no use here.
            session.record(replace(latest.intent, **_start(session, provider, latest.intent)))
            latest = session.attempt(latest.attempt_id)
        if latest.attempt_id not in session.uploads:
            _rebuild_payload(session, latest)
        return latest
    ordinal = 1 if latest is None else latest.intent.ordinal + 1
    return _record_intent(session, shard, approval, provider, ordinal)


def _record_intent(
    session: Session, shard: Sharded, approval: Approval, provider: BatchProvider, ordinal: int
) -> Attempt:
    """S2 to S4: payload on disk, then the durable intent that carries the token."""
    store = session.store
    start = _start(session, provider, shard)
    attempt_id = ids.attempt_id(store.lake_id, shard.shard_id, ordinal)
    marked = versions.marked(store, shard)
    built = jsonl.build_payload(store, registry.module(shard.provider), shard, attempt_id, marked)
    session.record(
        Intent(
            **shard.asked() | start | {"size_bytes": built.size_bytes},
            attempt_id=attempt_id,
            ordinal=ordinal,
            token=ids.token(store.lake_id, attempt_id, store.secret, built.sha256),
            approval_id=approval.approval_id,
            sha256=built.sha256,
        )
    )
    failpoints.reach("S4")
    return session.attempt(attempt_id)


def origin_of(mode: Mode, provider: BatchProvider) -> Origin:
    """Return where answers of this mode come from."""
    if mode is Mode.FILES:
        return Origin.FILES
    return Origin.SIMULATED if provider.is_loopback else Origin.BATCH


def _rebuild_payload(session: Session, attempt: Attempt) -> None:
    intent, store, module = attempt.intent, session.store, registry.module(attempt.provider)
    built = jsonl.build_payload(store, module, intent, attempt.attempt_id, versions.marked(store, intent))
    if built.sha256 != intent.sha256:
        raise LakeError(
            f"{built.path} is not the payload that attempt {attempt.attempt_id} announced",
            hint="delete that file and run the command again: it is built anew from the lake",
        )


def upload_ahead(session: Session, shard: Sharded, approval: Approval) -> None:
    """S2 to S5 for a shard that was never meant before: its file travels while others are sent. The lock is held."""
    provider = session.providers.get(shard.client_name)
    is_new = session.lake_state.latest_attempt(shard.shard_id) is None
    if is_new and shard.mode is Mode.BATCH and provider.descriptor.takes_files:
        _begin_upload(session, _record_intent(session, shard, approval, provider, 1), provider)


def _begin_upload(session: Session, attempt: Attempt, provider: BatchProvider) -> Future[RemoteFile] | None:
    """Have an attempt's input file travel; None where another process has it travel now."""
    path = session.store.payload_path(attempt.attempt_id)
    way = beside("upload", partial(provider.upload, path, f"{attempt.token}.jsonl"), path, is_told=not session.uploads)
    if way is not None:
        session.uploads[attempt.attempt_id] = way
    return way


def end_uploads(session: Session) -> None:
    """Record the files that are there of attempts that were kept from being sent."""
    for attempt_id in [attempt_id for attempt_id, way in session.uploads.items() if session.is_here(way)]:
        upload = session.uploads.pop(attempt_id)
        if upload.exception() is None:
            _uploaded(session, session.attempt(attempt_id).intent, upload.result(), is_urgent=True)


def _upload(session: Session, attempt: Attempt, provider: BatchProvider) -> str | None:
    """S5 and S6: the file is at the provider, whole, and its id is on record; None while it travels."""
    intent = attempt.intent
    name = f"{intent.token}.jsonl"
    failpoints.reach("S5.before")
    # What this pass means for the first time nobody has uploaded but a copy of the lake, whose batch has its token.
    is_new = intent.ord > session.began_ord and provider.descriptor.has_token
    way, remote = session.uploads.get(attempt.attempt_id), None
    if way is None:
        remote = None if is_new else _uploaded_before(session, provider, name, intent)
    if remote is None:
        way = way or _begin_upload(session, attempt, provider)
        if way is None or not session.is_here(way):
            return None
        remote = session.uploads.pop(attempt.attempt_id).result()
    failpoints.reach("S5")
    if remote.size_bytes is not None and remote.size_bytes != intent.size_bytes:
        raise ProviderError(
            f"{attempt.provider} stored {remote.size_bytes} of {intent.size_bytes} bytes of {name}; no batch exists",
            hint="run `batchpond sync` to upload it again",
        )
    _uploaded(session, intent, remote, is_urgent=intent.n_requests >= LARGE or not provider.descriptor.has_token)
    failpoints.reach("S6")
    return remote.file_id


def _uploaded(session: Session, intent: Intent, file: RemoteFile, *, is_urgent: bool) -> None:
    fact = Uploaded(
        attempt_id=intent.attempt_id,
        file_id=file.file_id,
        size_bytes=intent.size_bytes,
        provider_created_at=file.created_at,
    )
    session.record(fact, is_urgent=is_urgent)


def _uploaded_before(session: Session, provider: BatchProvider, name: str, intent: Intent) -> RemoteFile | None:
    """Return the file if it is there: a process that died left it or, where files name batches, a copy of the lake."""
    is_named = provider.descriptor.has_token
    try:
        found = provider.find_uploads(name, intent.occurred_at if is_named else planned_since(session, intent.study))
    except ProviderError as error:
        if not is_named or isinstance(error, UnreachableError):
            raise
        return None  # a server that lists no files takes them: the batch itself is known by its token
    return next((file for file in found if file.size_bytes == intent.size_bytes), None)


def _create(session: Session, attempt: Attempt, file_id: str | None, provider: BatchProvider) -> Sending:
    """S7 to S9: a durable `sent`, one POST, and what its answer means."""
    clock = session.store.clock
    ordinal = attempt.n_sends + 1
    sent = Sent(
        attempt_id=attempt.attempt_id,
        ordinal=ordinal,
        file_id=file_id,
        boot_id=clock.boot_id(),
        monotonic_s=clock.monotonic_s(),
    )
    if not session.elect(won_name(attempt.attempt_id, ordinal), sent):
        overtaken = OvertakenError if session.store.mirror else LakeError
        raise overtaken(
            f"attempt {attempt.attempt_id} was sent by another process",
            hint="run `batchpond sync`; if this comes back, the lake stands on a file system without locks",
        )
    failpoints.reach("S7")
    failpoints.reach("S8.before")
    if clock.monotonic_s() - sent.monotonic_s > SEND_LEASE_S:
        asleep = model.Rejected(ErrorClass.TRANSIENT, "lease_expired", "the process was asleep", 0)
        return _rejected(session, attempt, asleep)
    answer = provider.create(_create_spec(session, attempt, file_id))
    failpoints.reach("S8.after")
    match answer:
        case model.Created():
            return _created(session, attempt, answer)
        case model.Rejected():
            return _rejected(session, attempt, answer)
        case Unclear():
            return _in_doubt(session, attempt, answer.reason)


def _create_spec(session: Session, attempt: Attempt, file_id: str | None) -> CreateSpec:
    intent = attempt.intent
    metadata = [("batchpond", attempt.token), ("study", intent.study), ("shard", attempt.shard_id)]
    if intent.cells:
        metadata.append(("cells", intent.cells))
    return CreateSpec(
        token=attempt.token,
        endpoint=intent.endpoint,
        request_model=intent.request_model,
        input_file_id=file_id,
        payload_path=session.store.payload_path(attempt.attempt_id),
        n_requests=intent.n_requests,
        metadata=tuple(metadata),
    )


def _created(session: Session, attempt: Attempt, answer: model.Created) -> Sending:
    batch = answer.batch
    try:
        session.record(Created(**seen_as(attempt, batch), scope=answer.scope))
    except LakeError as error:
        raise type(error)(
            f"batch {batch.batch_id} was created at {attempt.provider} but could not be recorded: {error.message}",
            hint="mend what is wrong, then run `batchpond sync`: it finds the batch and does not send it again",
        ) from error
    failpoints.reach("S9")
    session.counts.n_created += 1
    return Sending.CREATED


def _rejected(session: Session, attempt: Attempt, answer: model.Rejected) -> Sending:
    wait_s = answer.retry_after_s
    session.record(
        Rejected(
            attempt_id=attempt.attempt_id,
            ordinal=session.attempt(attempt.attempt_id).n_sends,
            error_class=answer.error_class,
            error_code=answer.code,
            message=answer.message,
            provider_status=str(answer.status_code),
            retry_at=None if wait_s is None else session.store.clock.now() + timedelta(seconds=wait_s),
        )
    )
    session.counts.n_rejected += 1
    session.paused.add((attempt.client_name, attempt.intent.request_model))
    message = f"{attempt.provider} refused a batch of {attempt.intent.n_requests} requests: {answer.message}"
    match answer.error_class:
        case ErrorClass.ACCESS:
            hint = "mend the key, then run `batchpond sync`; no batch was created"
            session.providers.out[attempt.client_name] = AccessError(message, hint=hint)
            session.note(Severity.ERROR, message, exit_code=ExitCode.ACCESS)
        case ErrorClass.BILLING:
            session.paused.add((attempt.client_name, ""))
            hint = f"no waiting helps: add credit there, then `batchpond submit {attempt.intent.study}`"
            session.alert(message, hint=hint, severity=Severity.ERROR)
        case ErrorClass.TRANSIENT:
            session.note(Severity.WARNING, message, hint="`batchpond sync` asks again, once it has looked for it")
        case _:
            hint = "mend the cause, then run `batchpond submit` again; nothing is sent again by itself"
            session.note(Severity.ERROR, message, hint=hint, exit_code=ExitCode.FAILED)
    return Sending.REJECTED


def _in_doubt(session: Session, attempt: Attempt, reason: str) -> Sending:
    """Our request has ended on our side, so the absence clock may start now."""
    record_doubt(session, attempt, reason)
    session.counts.n_unknown += 1
    return Sending.UNKNOWN


AHEAD_MAX: Final = 8


def planned_since(session: Session, study: str) -> datetime:
    """Return from when on a copy may have sent a study's requests: a day before it was first planned."""
    planned = (event for event in session.log.events if isinstance(event, Planned) and event.study == study)
    return day_before(min((event.occurred_at for event in planned), default=model.EPOCH))


def take_in(session: Session, provider: BatchProvider, attempt: Attempt) -> bool:
    """Give an attempt that was never sent from here the batch that it has already; returns whether it has one.

    A server without any listing shows nothing, which is told: this guards against a copy, and that a batch sent from
    here is absent is never read from it. Raises ProviderError where the listing did not come, or not to its end, and
    AttentionError when a batch of the study is not on record.
    """
    if attempt.n_sends:
        return False
    unknown, found = _unknown_and_found(session, provider, attempt)
    if not found:
        find.check_unsold(session, attempt, unknown)
        _check_explained(session, attempt, unknown)
        return False
    adopt(session, attempt, found)
    session.alert(
        f"{attempt.provider} has batch {found[0].batch_id} of these {attempt.intent.n_requests} requests already:"
        " a copy of this lake sent it, or this lake was restored from an older one;"
        " it was taken in and nothing was sent again",
        hint="`batchpond sync` collects it; send from one copy of a lake only",
    )
    return True


def _unknown_and_found(
    session: Session, provider: BatchProvider, attempt: Attempt
) -> tuple[list[RemoteBatch], list[RemoteBatch]]:
    """Return the listed batches that are not on record, and which of them are an attempt's."""
    study = attempt.intent.study
    shown = listed(session, provider, (attempt.client_name, study), planned_since(session, study))
    unknown = [batch for batch in shown if batch.batch_id not in session.lake_state.batch_ids]
    made = find.by_results if provider.descriptor.is_opaque else matches
    return unknown, made(session, provider, attempt, unknown)


def listed(
    session: Session, provider: BatchProvider, key: tuple[str, str], wanted: datetime
) -> tuple[RemoteBatch, ...]:
    """Return the batches that a client, the first part of `key`, lists since then for a study; asked once a pass."""
    if key not in session.listed:
        name = key[0]
        wide_enough = (
            held for (held_name, _), held in session.listed.items() if held_name == name and held[0] <= wanted
        )
        session.looked_at_s[name] = session.store.clock.monotonic_s()
        session.listed[key] = next(wide_enough, None) or (wanted, _batches(session, provider, key, wanted))
    return session.listed[key][1]


def _batches(
    session: Session, provider: BatchProvider, key: tuple[str, str], wanted: datetime
) -> tuple[RemoteBatch, ...]:
    name, study = key
    try:
        listing = _to_the_end(name, list_since(provider, wanted))
    except UnreachableError:
        raise
    except ProviderError as error:
        if provider.descriptor.is_opaque or not (_has_no_listing(error) or is_waived(session, study)):
            blind = ProviderError(
                f"{error.message}; a copy of this lake may have sent the same, so nothing is sent blindly",
                hint="`batchpond sync` asks again first; where it never gets a listing, and there is no copy,"
                f" `batchpond submit {study} --fresh` sends without one",
            )
            blind.retry_after_s = error.retry_after_s
            raise blind from error
        # A lake that was never copied has nothing to look for.
        session.note(
            Severity.WARNING,
            f"{error.message}: whether a copy of this lake has sent the same is not known",
            hint="send from one copy of a lake only",
        )
        return ()
    if listing.scope is not None:
        session.scopes[provider.descriptor.name] = listing.scope
    return listing.batches


def _has_no_listing(error: ProviderError) -> bool:
    """Whether a server says that it lists nothing, as some do; any other failure may hide what a copy sent."""
    return isinstance(error, HttpError) and error.status_code in _NO_LISTING


_ALIKE: Final = "SELECT DISTINCT study FROM plan WHERE request_id IN (SELECT request_id FROM plan WHERE study = $1)"


def _check_explained(session: Session, attempt: Attempt, unknown: list[RemoteBatch]) -> None:
    """Raise AttentionError if a batch carries a token of this lake for a shard of such a study that it does not know.

    That is the attempt's, or one that plans some of the same requests; the token alone does not tell which of them it
    holds. Where batches do not say their study, none is held against another: it may be of any.
    """
    mark = f"{ids.TOKEN_PREFIX}-{session.store.lake_id}-"
    own = [
        (batch.token.removeprefix(mark).partition("-")[0], batch.batch_id, fields.mapping(batch.seen.get("metadata")))
        for batch in unknown
        if batch.token is not None and batch.token.startswith(mark)
    ]
    if not own:
        return
    # Beyond the attempts on record stand those that the shards on record may come to.
    state, lake_id = session.lake_state, session.store.lake_id
    reached = ((shard_id, len(state.by_shard.get(shard_id, ())) + AHEAD_MAX) for shard_id in state.shards)
    to_come = (ids.attempt_id(lake_id, shard_id, at + 1) for shard_id, last in reached for at in range(last))
    known = {*state.attempts, *to_come}
    alike = {study for (study,) in tables.rows(session.store, ["plan"], _ALIKE, [attempt.intent.study])}
    named = ((batch_id, said.get("study")) for attempt_id, batch_id, said in own if attempt_id not in known)
    if strange := [(batch_id, study) for batch_id, study in named if study in alike]:
        batch_id, study = strange[0]
        raise AttentionError(
            f"batch {batch_id}{f' and {len(strange) - 1} more' if len(strange) > 1 else ''} of study {study} was made"
            " by this lake, which does not know of it: a copy of it sends too, or this one was restored from an older"
            f" one; nothing of study {attempt.intent.study} is sent, it might be bought twice",
            hint=f"go on from the newest copy of the lake; or submit {study} here in the steps of then (the same"
            " `--limit`), so that its shards are cut alike and taken in; or"
            f" `batchpond adopt {batch_id} --study {study}`",
        )
