"""The submission protocol for one shard: intent before effect, one POST per durable `sent`.

Steps S2 to S9. Dying between any two lines leaves either nothing at the provider or a record
from which the next pass finds the batch again. Only the upload may be repeated freely.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from batchpond import ids, model
from batchpond.errors import AccessError, ExitCode, LakeError, ProviderError
from batchpond.lake import failpoints, jsonl
from batchpond.lake.attempts import BEFORE_SENT_PHASES, Attempt, seen_as
from batchpond.lake.records import Approval, Created, Intent, Rejected, Sent, Sharded, Unknown, Uploaded
from batchpond.model import CreateSpec, ErrorClass, Mode, Origin, RemoteFile, Unclear
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.run.find import elsewhere
from batchpond.run.find.unknowns import check_host
from batchpond.run.session import Session, Severity

SEND_LEASE_S = 60.0
FILE_MARGIN_S = 7_200.0


class Sending(StrEnum):
    """How sending a shard ended."""

    CREATED = "created"
    TAKEN_IN = "taken_in"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Where an attempt starts from, by the provider's own word: its account, and its newest batch's time.

    Only an opaque provider needs it: what is older cannot be the attempt's batch, and
    a key of another account proves nothing about it.
    """

    scope: str | None = None
    newest: datetime | None = None

    @classmethod
    def take(cls, session: Session, provider: BatchProvider) -> Baseline:
        """Ask the provider where it is needed, once a pass: an older time is only a lower floor."""
        if not provider.descriptor.is_opaque:
            return cls()
        name = provider.descriptor.name
        if name not in session.newest:
            dates = (batch.created_at for batch in provider.list_page(None).batches)
            session.newest[name] = max((date for date in dates if date is not None), default=None)
        return cls(session.scope(provider), session.newest[name])


def send_shard(session: Session, shard: Sharded, approval: Approval) -> Sending:
    """Bring a shard's batch into being, or find out that it may not be; the lock is held.

    Goes on where an earlier process stopped. The caller has made sure that the shard's latest
    attempt, if any, is unsent, rejected, absent, or ended in a failure that may be sent again.
    Raises ProviderError or AccessError when the upload fails: nothing was created then.
    """
    provider = session.providers.get(shard.wire)
    attempt = _attempt_to_send(session, shard, approval, provider)
    # Where no batch carries a token, its input file names it.
    is_known_by_file = provider.descriptor.takes_files and not provider.descriptor.has_token
    is_shared = attempt.mode is Mode.BATCH
    if is_shared and not is_known_by_file and elsewhere.take_in(session, provider, attempt):
        return Sending.TAKEN_IN
    file_id = None
    if provider.descriptor.takes_files:
        file_id = _usable_file(session, attempt, provider) or _upload(session, attempt, provider)
    if is_shared and is_known_by_file:
        attempt = session.attempt(attempt.attempt_id)
        if elsewhere.take_in(session, provider, attempt):
            return Sending.TAKEN_IN
    return _create(session, session.attempt(attempt.attempt_id), file_id, provider)


def _usable_file(session: Session, attempt: Attempt, provider: BatchProvider) -> str | None:
    """Return the attempt's uploaded file, unless the batch may have been refused because of it, or it is gone."""
    kept_s = provider.descriptor.input_retention_s
    if kept_s is not None and attempt.uploaded is not None:
        age_s = (session.store.clock.now() - attempt.uploaded.occurred_at).total_seconds()
        if age_s > kept_s - FILE_MARGIN_S:
            return None
    refused = attempt.rejection is not None and attempt.rejection.error_class is ErrorClass.PERMANENT
    return None if refused else attempt.file_id


def _attempt_to_send(session: Session, shard: Sharded, approval: Approval, provider: BatchProvider) -> Attempt:
    latest = session.lake_state.latest_attempt(shard.shard_id)
    if latest is not None and latest.phase in BEFORE_SENT_PHASES:
        # Its file and its token are at that host: a batch made elsewhere would never be looked for there.
        check_host(latest, provider)
        _rebuild_payload(session, latest)
        return latest
    ordinal = 1 if latest is None else latest.intent.ordinal + 1
    return _record_intent(session, shard, approval, provider, ordinal)


def _record_intent(
    session: Session, shard: Sharded, approval: Approval, provider: BatchProvider, ordinal: int
) -> Attempt:
    """S2 to S4: payload on disk, then the durable intent that carries the token."""
    store = session.store
    baseline = Baseline.take(session, provider)
    attempt_id = ids.attempt_id(store.lake_id, shard.shard_id, ordinal)
    built = jsonl.build_payload(
        store,
        registry.module(shard.provider),
        provider=shard.provider,
        endpoint=shard.endpoint,
        shard_id=shard.shard_id,
        attempt_id=attempt_id,
    )
    said = shard.asked() | {"size_bytes": built.size_bytes}
    session.record(
        Intent(
            **said,
            attempt_id=attempt_id,
            ordinal=ordinal,
            token=ids.token(store.lake_id, attempt_id, store.secret, built.sha256),
            approval_id=approval.approval_id,
            host=provider.host,
            origin=_origin(shard, provider),
            sha256=built.sha256,
            scope=baseline.scope,
            newest_batch_at=baseline.newest,
        )
    )
    failpoints.reach("S4")
    return session.attempt(attempt_id)


def _origin(shard: Sharded, provider: BatchProvider) -> Origin:
    if shard.mode == Mode.FILES:
        return Origin.FILES
    return Origin.SIMULATED if provider.is_loopback else Origin.BATCH


def _rebuild_payload(session: Session, attempt: Attempt) -> None:
    intent = attempt.intent
    built = jsonl.build_payload(
        session.store,
        registry.module(attempt.provider),
        provider=attempt.provider,
        endpoint=intent.endpoint,
        shard_id=attempt.shard_id,
        attempt_id=attempt.attempt_id,
    )
    if built.sha256 != intent.sha256:
        raise LakeError(
            f"{built.path} is not the payload that attempt {attempt.attempt_id} announced",
            hint="delete that file and run the command again: it is built anew from the lake",
        )


def _upload(session: Session, attempt: Attempt, provider: BatchProvider) -> str:
    """S5 and S6: the file is at the provider, whole, and its id is on record."""
    intent = attempt.intent
    name = f"{intent.token}.jsonl"
    failpoints.reach("S5.before")
    remote = _uploaded_before(session, provider, name, intent)
    if remote is None:
        remote = provider.upload(session.store.payload_path(attempt.attempt_id), name)
    failpoints.reach("S5")
    if remote.size_bytes is not None and remote.size_bytes != intent.size_bytes:
        raise ProviderError(
            f"{attempt.provider} stored {remote.size_bytes} of {intent.size_bytes} bytes of {name}; no batch exists",
            hint="run `batchpond sync` to upload it again",
        )
    session.record(
        Uploaded(
            attempt_id=attempt.attempt_id,
            file_id=remote.file_id,
            size_bytes=intent.size_bytes,
            provider_created_at=remote.created_at,
        )
    )
    failpoints.reach("S6")
    return remote.file_id


def _uploaded_before(session: Session, provider: BatchProvider, name: str, intent: Intent) -> RemoteFile | None:
    """Return the file if it is there: a process that died left it or, where files name batches, a copy of the lake."""
    is_named = provider.descriptor.has_token
    found = provider.find_uploads(name, intent.occurred_at if is_named else elsewhere.since(session, intent.study))
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
    if not session.elect(f"sent-{attempt.attempt_id}-{ordinal}", sent):
        raise LakeError(
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
            return _unclear(session, attempt, answer)


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
        raise LakeError(
            f"batch {batch.batch_id} was created at {attempt.provider} but could not be recorded: {error.message}",
            hint="mend the disk, then run `batchpond sync`: it finds the batch by its token and does not send it again",
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
            retry_at=None if wait_s is None else session.store.clock.now() + timedelta(seconds=wait_s),
        )
    )
    session.counts.n_rejected += 1
    session.paused.add((attempt.wire, attempt.intent.request_model))
    message = f"{attempt.provider} refused a batch of {attempt.intent.n_requests} requests: {answer.message}"
    match answer.error_class:
        case ErrorClass.ACCESS:
            session.providers.refuse(
                attempt.wire,
                AccessError(message, hint="mend the key, then run `batchpond sync`; no batch was created"),
            )
            session.note(Severity.ERROR, message, exit_code=ExitCode.ACCESS)
        case ErrorClass.TRANSIENT:
            session.note(Severity.WARNING, message, hint="`batchpond sync` sends it again later; no batch was created")
        case _:
            hint = "mend the cause, then run `batchpond submit` again; nothing is sent again by itself"
            session.note(Severity.ERROR, message, hint=hint, exit_code=ExitCode.FAILED)
    return Sending.REJECTED


def _unclear(session: Session, attempt: Attempt, answer: Unclear) -> Sending:
    """Our request has ended on our side, so the absence clock may start now."""
    clock = session.store.clock
    session.record(
        Unknown(
            attempt_id=attempt.attempt_id,
            ordinal=session.attempt(attempt.attempt_id).n_sends,
            boot_id=clock.boot_id(),
            monotonic_s=clock.monotonic_s(),
            reason=answer.reason,
        )
    )
    session.counts.n_unknown += 1
    return Sending.UNKNOWN
