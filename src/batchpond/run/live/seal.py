"""The attempts of live shards: opened, taken up again after a crash, sealed, and brought to their end.

A live attempt is written down like a batch: `intent` and `created` when it is opened, a `downloaded` per
sealed segment, a final `status`, `verified`. Its calls are the business of `calls`.

From the spool to the lake: a closed segment's answers become raw lines, its doubts rows, then it is dropped.
Names are functions of what the segment holds, so a process may die on any line here and the next one
does the same again without a trace.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields, ids
from batchpond.answers import derive
from batchpond.errors import BusyError, LakeError
from batchpond.lake import disk, failpoints, jsonl
from batchpond.lake.attempts import Attempt, LakeState, Phase
from batchpond.lake.disk import intact, read_rows
from batchpond.lake.jsonl import HEAD, Blobs, bodies, shard_lines
from batchpond.lake.records import Approval, CancelAsked, Created, Forget, Intent, Sharded, Status
from batchpond.lake.schemas import DOUBTS
from batchpond.lake.store import SPOOL, Store
from batchpond.model import BatchState, FileRole, Mode, Origin
from batchpond.plan import versions
from batchpond.providers.base import LiveStart
from batchpond.providers.shared.live import LiveClient
from batchpond.run import collect
from batchpond.run.collect import price_of, record_download, rules_for
from batchpond.run.live import spool
from batchpond.run.live.calls import Item
from batchpond.run.session import Session, Severity

_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Content:
    """A segment's answers, in a file of their own, and its doubts."""

    path: Path
    size_bytes: int
    sha256: str
    n_lines: int
    doubts: Sequence[dict[str, Any]]


def seal(session: Session, attempt: Attempt, segments: Sequence[Path], forgotten: frozenset[str] = frozenset()) -> int:
    """Bring closed segments into the lake, the oldest first; returns how many answers they held.

    The lake's lock is held. What answers a request that was `forgotten` stays out.
    """
    n_lines = 0
    for segment in segments:
        n_lines += _seal_one(session, attempt, segment, forgotten)
        segment.unlink()
        failpoints.reach("L6")
    return n_lines


def _seal_one(session: Session, attempt: Attempt, segment: Path, forgotten: frozenset[str]) -> int:
    scratch = session.store.scratch(".jsonl")
    try:
        content = _split(segment, scratch, session.store.clock.boot_id(), forgotten)
        file = jsonl.RawFile.of(attempt, FileRole.LIVE, segment.stem, content.sha256)
        if content.doubts:
            _publish_doubts(session, attempt, file, content.doubts)
        if content.n_lines:
            _publish_answers(session, attempt, file, content)
    finally:
        scratch.unlink(missing_ok=True)
    return content.n_lines


def _split(segment: Path, scratch: Path, boot_id: str, forgotten: frozenset[str]) -> _Content:
    digest, size_bytes, n_lines = hashlib.sha256(), 0, 0
    doubts: list[dict[str, Any]] = []
    disk.write_private(scratch, b"")
    with scratch.open("r+b", buffering=_BUFFER_BYTES) as out:
        for record, line in spool.records(segment, boot_id):
            if record.get("custom_id") in forgotten:
                continue
            if "custom_id" in record:
                out.write(line + b"\n")
                digest.update(line + b"\n")
                size_bytes += len(line) + 1
                n_lines += 1
            elif "doubt" in record:
                doubts.append(record)
    return _Content(scratch, size_bytes, digest.hexdigest(), n_lines, doubts)


def _publish_answers(session: Session, attempt: Attempt, file: jsonl.RawFile, content: _Content) -> None:
    jsonl.publish_raw(session.store, file, content.path)
    failpoints.reach("L4")
    record_download(session, file, content.size_bytes, content.n_lines)
    failpoints.reach("L5")
    source = dataclasses.replace(collect.source_of(attempt), files=(file,))
    derive.derive(session.store, source, rules_for(session, attempt), price_of(session, attempt))


def _publish_doubts(session: Session, attempt: Attempt, file: jsonl.RawFile, doubts: Sequence[dict[str, Any]]) -> None:
    lines = shard_lines(session.store, attempt.provider, attempt.shard_id)
    request_ids = dict(zip(lines.custom_ids_of(attempt.attempt_id), lines.request_ids, strict=True))
    rows = [
        {
            "provider": attempt.provider,
            "batch_id": attempt.batch_id,
            "attempt_id": attempt.attempt_id,
            "custom_id": doubt["doubt"],
            "request_id": request_ids.get(doubt["doubt"]),
            "asked_at": fields.moment(doubt.get("asked_at")),
            "found_at": fields.moment(doubt.get("at")),
            "reason": fields.text(doubt.get("reason")),
        }
        for doubt in doubts
    ]
    session.store.publish(DOUBTS, f"p_provider={attempt.provider}/{attempt.attempt_id}.{file.file_id}", rows)


# A token of English is about four bytes; an answer's tokens are bounded by the pace's own bucket.
BYTES_PER_TOKEN: Final = 4
ANSWER_TOKENS: Final = 200
PICTURE_TOKENS: Final = 1_500  # as far as a pace needs it
_ID_STARTS: Final = len('{"custom_id":"')


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to ask of an attempt: the answered are out, those in doubt counted."""

    answered: frozenset[str]
    doubts: Counter[str]


def begin_attempt(
    session: Session, shard: Sharded, approval: Approval, client: LiveClient, start: LiveStart
) -> Attempt:
    """Record that the requests of a shard without any attempt are about to be asked; the lake's lock is held."""
    attempt_id = ids.attempt_id(session.store.lake_id, shard.shard_id, 1)
    intent = Intent(
        **shard.asked(),
        attempt_id=attempt_id,
        ordinal=1,
        approval_id=approval.approval_id,
        host=client.host,
        origin=Origin.SIMULATED if start.is_simulated else Origin.LIVE,
    )
    created = Created(
        attempt_id=attempt_id,
        provider=shard.provider,
        batch_id=f"live-{attempt_id}",
        scope=start.scope,
        state=BatchState.RUNNING,
        provider_status=str(Mode.LIVE),
        provider_created_at=session.store.clock.now(),
        n_requests=shard.n_requests,
    )
    session.record(intent, created)
    failpoints.reach("L1")
    return session.attempt(attempt_id)


def _recover_attempt(session: Session, attempt: Attempt, since: Iterable[Forget]) -> int:
    """Bring in what a process that ended left in the spool; returns how many requests are in doubt by that.

    What was forgotten `since` stays out. The lake's and the live lock are held: nothing writes to the spool now.
    """
    folder = spool.folder_of(session.store, attempt.attempt_id)
    clock = session.store.clock
    found = spool.standing(spool.segments(folder), clock.boot_id())
    if in_doubt := found.in_doubt:
        now = clock.now()
        written = spool.Spool(folder, clock)
        try:
            written.doubt([spool.Doubt(name, at, now, "the process ended") for name, at in in_doubt.items()])
        finally:
            written.close()
        failpoints.reach("L7")
    asked = (orjson.loads(one.what).get("requests", ()) for one in since)
    forgotten = frozenset(ids.custom_id(attempt.attempt_id, name) for names in asked for name in names)
    seal(session, attempt, spool.segments(folder), forgotten)
    if n_deleted := len(found.answered & forgotten):
        session.note(Severity.WARNING, f"answers of requests that were forgotten are deleted: {n_deleted:,}")
    spool.drop(folder)
    return len(in_doubt)


def left_of(store: Store, attempt: Attempt) -> Left:
    """Return what the lake holds of an attempt's answers and doubts."""
    answered = frozenset(_answered(store, attempt))
    prefix = f"{attempt.attempt_id}."
    paths = [path for path in store.files(DOUBTS.name) if path.name.startswith(prefix)]
    names = (name for path in paths for name in read_rows(path, ["custom_id"]).column(0).to_pylist())
    return Left(answered, Counter(name for name in names if name not in answered))


def _answered(store: Store, attempt: Attempt) -> Iterator[str]:
    for file in collect.source_of(attempt).files:
        for part in jsonl.part_paths(store, file):
            with intact(part) as lines:
                for batch in lines.iter_batches(columns=["line"]):
                    texts = batch.column(0).to_pylist()
                    yield from (line[_ID_STARTS : line.index('"', _ID_STARTS)] for line in texts)


def items_left(store: Store, attempt: Attempt, left: Left, *, is_held: bool) -> Iterator[Item]:
    """Yield the requests that are still to be asked; with `is_held`, without those in doubt."""
    lines, blobs = shard_lines(store, attempt.provider, attempt.shard_id), Blobs(store)
    marked = versions.marked(store, attempt.intent)
    for request_id, body in bodies(lines):
        custom_id = ids.custom_id(attempt.attempt_id, request_id)
        n_doubts = left.doubts[custom_id]
        if custom_id in left.answered or (is_held and n_doubts):
            continue
        n_tokens = len(body) / BYTES_PER_TOKEN + body.count(HEAD) * PICTURE_TOKENS + ANSWER_TOKENS
        yield Item(custom_id, body, n_tokens, lambda kept: marked(blobs.expanded(kept)), n_doubts=n_doubts)


def unsettled(lake_state: LakeState) -> list[Attempt]:
    """Return the live attempts that have all their answers, and are not brought to their end."""
    return [
        attempt
        for attempt in lake_state.attempts.values()
        if attempt.mode is Mode.LIVE
        and attempt.phase in {Phase.OPEN, Phase.ENDED}
        and (attempt.phase is Phase.ENDED or sum(one.n_lines for one in attempt.downloads) >= attempt.intent.n_requests)
    ]


def settle(session: Session) -> None:
    """Bring live attempts that have all their answers to their end; the lake's and the live lock are held."""
    for attempt in unsettled(session.lake_state):
        if attempt.phase is Phase.OPEN:
            end(session, attempt, BatchState.COMPLETED)
        else:
            collect.finish(session, attempt, collect.read(session, attempt))


def end(session: Session, attempt: Attempt, state: BatchState) -> None:
    """Record that nothing more is asked of an attempt, so that it is no machine's; prove that all is accounted for."""
    session.record(
        Status(
            attempt_id=attempt.attempt_id,
            provider=attempt.provider,
            batch_id=attempt.known_batch_id,
            state=state,
            provider_status=str(state),
            n_requests=attempt.intent.n_requests,
        )
    )
    session.store.release(attempt.attempt_id, is_anyones=True)
    failpoints.reach("L8")
    ended = session.attempt(attempt.attempt_id)
    collect.finish(session, ended, collect.read(session, ended))


LOCK: Final = ".live.lock"


def live_lock(store: Store, purpose: str = "live", wait_s: float = 0.0) -> AbstractContextManager[None]:
    """Hold the right to make live calls; raises BusyError when another process has it longer than `wait_s`."""
    return disk.waited_for(lambda: disk.exclusive(store.path / LOCK, purpose, store.clock), store.clock, wait_s)


def recover_all(session: Session) -> None:
    """Bring in what ended processes left in the spool, unless a process makes live calls now.

    The lake's lock is held. Where nothing is left, not even the lock is touched: whoever starts live calls
    at that moment finds it free.
    """
    is_claimed = session.store.mirror is not None and any(_asked(session.open_state))
    if not (is_claimed or spool.attempts_with_segments(session.store) or unsettled(session.open_state)):
        return
    try:
        with live_lock(session.store, "sync"):
            recover(session)
    except BusyError:
        return


def recover(session: Session) -> None:
    """Bring in what ended processes left in the spool; the lake's and the live lock are held."""
    for attempt_id in spool.attempts_with_segments(session.store):
        attempt = session.lake_state.attempts.get(attempt_id)
        if attempt is None:
            raise LakeError(
                f"{SPOOL}/{attempt_id} holds answers of an attempt that the lake does not know",
                hint="was an older copy of the lake put back? move the folder away, or restore the newer copy",
            )
        since = [one for one in session.log.events if isinstance(one, Forget) and one.ord > attempt.intent.ord]
        if any(one.study == attempt.intent.study for one in since):
            spool.drop(spool.folder_of(session.store, attempt_id))
            text = f"answers of {SPOOL}/{attempt_id} are deleted: their study {attempt.intent.study} was forgotten"
            session.note(Severity.WARNING, text)
            continue
        n_in_doubt = _recover_attempt(session, attempt, since)
        if n_in_doubt:
            session.note(
                Severity.WARNING,
                f"{n_in_doubt} live calls of study {attempt.intent.study} were under way when their"
                " process ended: they may have been answered and paid",
                hint="`doubts` lists them; `batchpond live` asks them again, or holds them if config.toml says so",
            )
    for attempt in _asked(session.lake_state):
        session.store.release(attempt.attempt_id)
    settle(session)


def _asked(lake_state: LakeState) -> Iterator[Attempt]:
    """Yield the live attempts that have not come to their end."""
    return (one for one in lake_state.attempts.values() if one.mode is Mode.LIVE and one.phase is Phase.OPEN)


def elsewhere(attempt: Attempt) -> str:
    """Say what to do about live calls that another machine has."""
    return (
        "`batchpond sync` there brings in what it has when its calls have ended; where it is gone for good,"
        f" `batchpond resolve {attempt.attempt_id} --lost` gives that up, and `batchpond retry"
        f" {attempt.intent.study} --only cancelled` asks again"
    )


def cancel(session: Session, attempt: Attempt, *, is_host_gone: bool = False) -> bool:
    """Ask nothing more of a live attempt, and keep what was handed in of its answers; whether it was still open.

    The lake's lock is held. Raises BusyError while a process makes live calls, or another machine has those of the
    attempt. Should one that was said to be gone come back, its next `sync` hands in what it has.
    """
    store = session.store
    host = store.claim(attempt.attempt_id) if attempt.phase is Phase.OPEN else None
    if host and not is_host_gone:
        raise BusyError(f"{host} has the live calls of attempt {attempt.attempt_id}", hint=elsewhere(attempt))
    try:
        with live_lock(store, "cancel"):
            recover(session)
            latest = session.attempt(attempt.attempt_id)
            if latest.phase is Phase.OPEN:
                session.record(CancelAsked(attempt_id=attempt.attempt_id, batch_id=attempt.known_batch_id))
                end(session, session.attempt(attempt.attempt_id), BatchState.CANCELLED)
            return latest.phase is Phase.OPEN
    except BusyError as error:
        raise BusyError(
            f"live calls are being made, so that none can be cancelled: {error.message}",
            hint="stop that `batchpond live` with Ctrl-C first; nothing was changed",
        ) from None
