"""Attempts whose create may or may not have happened: find the batch, or prove that there is none.

Where a provider carries no token, only the results of a batch tell whose it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from batchpond import ids
from batchpond.errors import AccessError, AttentionError
from batchpond.lake import failpoints, records, tables
from batchpond.lake.attempts import BEFORE_SENT_PHASES, UNCLEAR_PHASES, Attempt, LakeState, Phase, seen_as
from batchpond.lake.records import Intent, Listed, Possible
from batchpond.model import EPOCH, BatchPage, RemoteBatch, ShardKind
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.run.session import Listing, Session, Severity

if TYPE_CHECKING:  # it brings the HTTP library, which a pass with nothing to ask does not need
    from batchpond.providers.shared.live import LiveClient

PEEK_BYTES = 1 << 20
# As far back as the listing goes: a provider was made to date one batch hours before its neighbours.
CLOCK_SLACK = timedelta(days=1)


class Proof(StrEnum):
    """What a candidate's results say about whose it is."""

    OURS = "ours"
    FOREIGN = "foreign"
    OPEN = "open"


def look_for(
    session: Session, provider: BatchProvider, attempt: Attempt, listed: Sequence[RemoteBatch]
) -> tuple[list[RemoteBatch], int]:
    """Return the listed batches of an attempt, the oldest first, or else how many may be it all the same.

    Where no batch carries a token, every candidate is looked into, and what is learnt of each is recorded.
    """
    found, n_undecided = matches(session, provider, attempt, listed), 0
    if found or not provider.descriptor.is_opaque:
        return found, 0
    for batch in listed:
        if not _is_candidate(session, session.attempt(attempt.attempt_id), batch):
            continue
        if batch.batch_id not in session.attempt(attempt.attempt_id).candidates:
            session.record(_fact(records.Candidate, attempt, batch))
        match prove(provider, attempt, batch):
            case Proof.OURS:
                return [batch], 0
            case Proof.FOREIGN:
                session.record(_fact(records.Foreign, attempt, batch))
            case Proof.OPEN:
                n_undecided += 1
                _tell_of_a_candidate(session, attempt, batch)
    return [], n_undecided


def _is_candidate(session: Session, attempt: Attempt, batch: RemoteBatch) -> bool:
    if batch.batch_id in attempt.foreign or batch.batch_id in session.lake_state.batch_ids:
        return False
    if attempt.is_settled or batch.batch_id in attempt.candidates:
        # What the listing after the settle time did not hold is too young to be the attempt's.
        return batch.batch_id in attempt.candidates
    floor = attempt.intent.newest_batch_at
    is_old = floor is not None and batch.created_at is not None and batch.created_at < floor - CLOCK_SLACK
    return not is_old and batch.n_total in {None, attempt.intent.n_requests}


def prove(provider: BatchProvider, attempt: Attempt, batch: RemoteBatch) -> Proof:
    """Return whose a batch is, by the custom_ids of its first result lines; OPEN before it has any."""
    mine = ids.custom_id_prefix(attempt.attempt_id)
    proof = Proof.OPEN
    for custom_id in first_custom_ids(provider, batch):
        if custom_id.startswith(mine):
            return Proof.OURS
        proof = Proof.FOREIGN
    return proof


def first_custom_ids(provider: BatchProvider, batch: RemoteBatch) -> Iterator[str]:
    """Yield the custom_ids at the beginning of each result file; none before the batch has ended."""
    for _, file_id in provider.result_files(batch) if batch.state.is_terminal else ():
        yield from ids_at_head(provider, file_id)


def ids_at_head(provider: BatchProvider, file_id: str) -> Iterator[str]:
    """Yield the custom_ids at the beginning of a file of lines."""
    head = provider.peek(file_id, PEEK_BYTES) or b""
    lines = head.split(b"\n")
    if len(head) >= PEEK_BYTES:
        lines.pop()
    yield from ids_of(provider, lines)


def ids_of(provider: BatchProvider, lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the custom_ids of lines, where they have any."""
    read_line = registry.module(provider.descriptor.name).read_line
    found = (read_line(line).custom_id for line in lines if line.strip())
    yield from (custom_id for custom_id in found if custom_id is not None)


def _fact(record: type[Possible], attempt: Attempt, batch: RemoteBatch) -> Possible:
    return record(
        attempt_id=attempt.attempt_id,
        provider=attempt.provider,
        batch_id=batch.batch_id,
        provider_created_at=batch.created_at,
        n_requests=batch.n_total,
    )


def _tell_of_a_candidate(session: Session, attempt: Attempt, batch: RemoteBatch) -> None:
    ended = "it ended and shows no results so far, and only they or you can tell"
    session.alert(
        f"{attempt.provider} batch {batch.batch_id} may be attempt {attempt.attempt_id}: as many requests, and made"
        f" since; {ended if batch.state.is_terminal else 'its first results will tell'}",
        hint=f"if you know, decide now: `batchpond resolve {attempt.attempt_id} --adopt {batch.batch_id}`",
    )


PAGES_MAX = 10_000
_WINDOW = timedelta(days=1)


def day_before(moment: datetime) -> datetime:
    """Return when a listing begins that is to show what was made since a moment, though clocks differ."""
    return max(moment, EPOCH + _WINDOW) - _WINDOW


def pages(provider: BatchProvider) -> Iterator[BatchPage]:
    """Yield the pages of an account's listing; a repeated cursor ends it."""
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = provider.list_page(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None or cursor in cursors:
            return
        cursors.add(cursor)


def list_since(provider: BatchProvider, since: datetime) -> Listing:
    """Page through the account's batches back to `since`; a repeated cursor ends it incomplete.

    `since` is by the provider's clock. Paging stops there only while what was listed is dated and
    newest first: otherwise an older page says nothing about those after it.
    """
    batches: list[RemoteBatch] = []
    scope: str | None = None
    for page in pages(provider):
        batches += page.batches
        scope = scope or page.scope
        if page.next_cursor is None or (page.batches and _is_past(batches, len(page.batches), since)):
            return Listing(tuple(batches), is_complete=True, scope=scope)
        if not page.batches:
            break
    return Listing(tuple(batches), is_complete=False, scope=scope)


def _is_past(batches: list[RemoteBatch], n_last: int, since: datetime) -> bool:
    dates = [batch.created_at for batch in batches if batch.created_at is not None]
    if len(dates) < len(batches) or any(later > earlier for earlier, later in itertools.pairwise(dates)):
        return False
    return dates[-n_last] < since


def check_host(attempt: Attempt, provider: BatchProvider | LiveClient) -> None:
    """Raise AccessError when the base URL is not the one that the attempt was sent to."""
    found = provider.descriptor
    if provider.host != attempt.intent.host:
        raise AccessError(
            f"batches of this lake live at {attempt.intent.host}, but {attempt.provider} now points at {provider.host}",
            hint=f"unset or restore {' and '.join((found.base_url_env, *(name for _, name in found.settings)))}"
            + f"; `batchpond resolve {attempt.attempt_id} --absent` gives up what is there" * (not attempt.batch_id),
        )


def resolve_unknowns(session: Session, only: Iterable[str] | None = None) -> None:
    """Look for every attempt in doubt, or for those named."""
    wanted = set(only) if only is not None else None
    doubtful: dict[str, list[Attempt]] = {}
    for attempt in session.open_state.attempts.values():
        if attempt.phase in UNCLEAR_PHASES and (wanted is None or attempt.attempt_id in wanted):
            doubtful.setdefault(attempt.client_name, []).append(attempt)
    for name, attempts in doubtful.items():
        with session.isolated(name, f"looking for {len(attempts)} unacknowledged batches at {name}"):
            provider = session.providers.get(name)
            _resolve(session, provider, attempts)
    for attempt in itertools.chain.from_iterable(doubtful.values()):
        if session.attempt(attempt.attempt_id).phase in UNCLEAR_PHASES:
            session.alert(
                f"attempt {attempt.attempt_id} was sent to {attempt.provider} but never acknowledged;"
                f" it may exist and cost {_worst_cost(attempt)}",
                hint="`batchpond sync` goes on looking and will not send it again unless it is proven absent",
            )


def _worst_cost(attempt: Attempt) -> str:
    cost_usd = attempt.intent.cost_max_usd
    if cost_usd is None:
        return "an unknown cost"
    return f"up to ${cost_usd:.2f}" if cost_usd >= 0.01 else "less than $0.01"


def _resolve(session: Session, provider: BatchProvider, attempts: list[Attempt]) -> None:
    for attempt in attempts:
        check_host(attempt, provider)
    attempts = [attempt for attempt in attempts if not _is_found_by_token(session, provider, attempt)]
    if not attempts:
        return
    elapsed_s = {attempt.attempt_id: _elapsed_s(session, attempt) for attempt in attempts}
    # Only the provider's own clock dates its batches; all are listed without a date, or where an earlier one is proof.
    gone = any(is_file_gone(session, provider, attempt) for attempt in attempts)
    oldest = min(attempt.uploaded_at or attempt.intent.newest_batch_at or EPOCH for attempt in attempts)
    listing = list_since(provider, EPOCH if gone else day_before(oldest))
    failpoints.reach("Y1")
    for attempt in attempts:
        found, n_undecided = look_for(session, provider, attempt, listing.batches)
        if not adopt(session, attempt, found):
            _not_seen(session, provider, attempt, listing, elapsed_s[attempt.attempt_id], n_undecided)


def is_file_gone(session: Session, provider: BatchProvider, attempt: Attempt, margin_s: float = 0.0) -> bool:
    """Whether the provider has deleted the attempt's input file by now, as it does with all."""
    kept_s = provider.descriptor.input_retention_s
    if kept_s is None or attempt.uploaded is None:
        return False
    return (session.store.clock.now() - attempt.uploaded.occurred_at).total_seconds() > kept_s - margin_s


def _is_found_by_token(session: Session, provider: BatchProvider, attempt: Attempt) -> bool:
    """Adopt what the provider's own look-up finds; that it finds nothing proves nothing, so that a listing follows."""
    found = matches(session, provider, attempt, provider.find_batches(attempt.token))
    if found:
        failpoints.reach("Y1")
        adopt(session, attempt, found)
    return bool(found)


def matches(
    session: Session, provider: BatchProvider, attempt: Attempt, listed: Iterable[RemoteBatch]
) -> list[RemoteBatch]:
    """Return the listed batches of an attempt, the oldest first: those that carry its mark and can be of it.

    The token can be read by whoever uses the account: a batch of another endpoint, number of requests or input file
    carries it without being ours. A copy of this lake has a file of its own, of the same name and size.
    """
    named = {batch.batch_id: batch for batch in listed if attempt.is_named_by(batch)}
    alike = (batch for batch in named.values() if batch.endpoint in {None, attempt.intent.endpoint})
    fitting = [batch for batch in alike if (batch.n_total or None) in {None, attempt.intent.n_requests}]
    own_file = attempt.sent.file_id if attempt.sent else None
    if own_file is not None and any(batch.input_file_id not in {None, own_file} for batch in fitting):
        name, since = f"{attempt.token}.jsonl", day_before(attempt.uploaded_at or EPOCH)
        uploads = (file for file in provider.find_uploads(name, since) if file.size_bytes == attempt.intent.size_bytes)
        known = {None, own_file, *(file.file_id for file in uploads)}
        fitting = [batch for batch in fitting if batch.input_file_id in known]
    for batch in named.values():
        if batch not in fitting:
            text = f"{attempt.provider} batch {batch.batch_id} carries the token of attempt {attempt.attempt_id}"
            session.alert(
                f"{text}, but was made of other requests: it is not taken for its batch",
                hint="somebody made it from what this account shows; `batchpond adopt --list` shows it",
            )
    return sorted(fitting, key=lambda batch: batch.age_key)


def adopt(session: Session, attempt: Attempt, found: list[RemoteBatch]) -> bool:
    """Take the first of the batches found for an attempt, if any, as its own; any other is a duplicate."""
    if not found:
        return False
    batch, *duplicates = found
    session.record(records.Adopted(**seen_as(attempt, batch)))
    session.counts.n_adopted += 1
    for duplicate in duplicates:
        note_duplicate(session, attempt, duplicate)
    return True


def note_duplicate(session: Session, attempt: Attempt, batch: RemoteBatch) -> None:
    """Record a second batch that was made for an attempt: the one thing that must not be.

    It becomes an attempt of its own: from then on it is polled, collected, audited and paid for like any other.
    """
    duplicate = records.DuplicateRemote(
        attempt_id=attempt.attempt_id,
        provider=attempt.provider,
        batch_id=batch.batch_id,
        cost_max_usd=attempt.intent.cost_max_usd,
        provider_created_at=batch.created_at,
    )
    second = _second(session, duplicate)
    session.record(duplicate, second, records.Adopted(**seen_as(Attempt(second), batch)))


def _second(session: Session, duplicate: records.DuplicateRemote) -> Intent:
    """Return the intent that a second batch of an attempt has: it was never the newest, and sends nothing."""
    first = session.attempt(duplicate.attempt_id).intent
    return replace(
        first,
        event_id="",
        attempt_id=ids.digest("duplicate", first.attempt_id, duplicate.batch_id),
        ordinal=0,
        shard_kind=ShardKind.DUPLICATE,
    )


def take_in_duplicates(session: Session) -> None:
    """Make second batches that an earlier version only told of attempts of their own."""
    for event in list(session.log.recent):
        if isinstance(event, records.DuplicateRemote):
            second = _second(session, event)
            if second.attempt_id not in session.open_state.attempts:
                seen = records.Adopted(
                    attempt_id=second.attempt_id,
                    provider=event.provider,
                    batch_id=event.batch_id,
                    provider_status="unseen",
                    provider_created_at=event.provider_created_at,
                )
                session.record(second, seen)


def _unseen(lake_state: LakeState) -> list[Attempt]:
    return [one for one in lake_state.attempts.values() if one.is_duplicate and not one.is_known]


def tell_duplicates(session: Session) -> None:
    """Say of every second batch, until somebody says that it is known, what it may cost and what can be done."""
    for attempt in _unseen(session.open_state):
        first = session.attempt(attempt.sender_id)
        known_ones = [one for one in (first, attempt) if one.batch_id is not None]
        running = [one for one in known_ones if one.state is None or not one.state.is_terminal]
        known = f"`batchpond resolve {attempt.batch_id} --known` settles it"
        if running:
            later = max(running, key=lambda one: (one.created_at or EPOCH, one.known_batch_id))
            hint = f"`batchpond cancel {later.batch_id}` stops the later one that still runs; then {known}"
        else:
            hint = f"both have ended: nothing can be stopped; {known}"
        session.alert(
            f"{attempt.provider} batch {attempt.batch_id} is a second one for attempt {first.attempt_id},"
            f" and may cost {_worst_cost(attempt)} more; a late answer or a copy of this lake may have made it",
            hint=f"{hint}; keep one copy of a lake to send from",
            severity=Severity.ERROR,
        )


def owners(lake_state: LakeState, client_name: str) -> dict[str, str]:
    """Return which attempts may have been sent under which token, and with which input file, from here or a copy.

    What was given up unsent is sent by copies alone.
    """
    mine = (a for a in lake_state.attempts.values() if a.client_name == client_name and not a.is_duplicate)
    sent = [a for a in mine if a.n_sends or a.batch_id or a.shard_id in lake_state.voided]
    marks = ((mark, a.attempt_id) for a in sent for mark in (a.intent.token, a.sent.file_id if a.sent else a.file_id))
    return {mark: attempt_id for mark, attempt_id in marks if mark}


def place(session: Session, client_name: str, batch: RemoteBatch, known: Mapping[str, str]) -> bool:
    """Give a listed batch to the one of the `known` attempts that it was made for; returns whether there is one.

    Its token says so or, where batches carry none, the file that it was made of. It is the attempt's own where that
    was called absent or refused and nothing was sent instead; else its requests were bought twice.
    """
    if batch.batch_id in session.open_state.batch_ids or batch.batch_id in session.log.archive.marks:
        return True
    mark = batch.token or batch.input_file_id
    if mark in session.log.archive.marks:
        known = owners(session.lake_state, client_name)
    if mark is None or mark not in known:
        return False
    attempt = session.attempt(known[mark])
    if attempt.phase in UNCLEAR_PHASES or attempt.batch_id == batch.batch_id:
        return True
    if matches(session, session.providers.get(client_name), attempt, [batch]):
        if session.lake_state.is_late(attempt):
            adopt(session, attempt, [batch])
        else:
            note_duplicate(session, attempt, batch)
    return True


def check_unsold(session: Session, attempt: Attempt, listed: Iterable[RemoteBatch]) -> None:
    """Give listed batches to the attempts they were made for; raises AttentionError where one has what is sent next."""
    known = owners(session.lake_state, attempt.client_name)
    for batch in listed:
        place(session, attempt.client_name, batch, known)
    check_settled(session, attempt.intent.study)
    _check_answered(session, attempt)


def given_up(attempt: Attempt) -> str:
    """Return what to do about a batch whose results the provider has deleted."""
    lost = f"`batchpond resolve {attempt.batch_id} --lost` gives up what is gone for good"
    return f"{lost}, and `batchpond retry {attempt.intent.study} --only lost` asks it again"


def is_waived(session: Session, study: str) -> bool:
    """Whether somebody said that a study is to be bought whether or not another lake, or a copy, has bought it."""
    return any(isinstance(event, records.Fresh) and event.study == study for event in session.log.events)


def _check_answered(session: Session, attempt: Attempt) -> None:
    """Raise AttentionError if results that were looked into, of a batch that is not on record, answer what is sent."""
    study = attempt.intent.study
    heads = ((head and ids.request_key_of(head), batch_id) for batch_id, head in session.heads.items())
    found = {key: batch_id for key, batch_id in heads if key and batch_id not in session.lake_state.batch_ids}
    if not found or is_waived(session, study):
        return
    sql = "SELECT left(request_id, $1) AS key FROM shard_requests WHERE shard_id = $2 AND list_contains($3, key)"
    values = [ids.REQUEST_KEY_LENGTH, attempt.shard_id, list(found)]
    for (key,) in tables.rows(session.store, ["shard_requests"], sql, values)[:1]:
        raise AttentionError(
            f"{attempt.provider} batch {found[key]} answered requests that study {study} is about to send, and is not"
            " on record: a copy of this lake sends too, it was restored from an older one, or another lake asks the"
            " same; they are not sent, they might be bought twice",
            hint=f"`batchpond adopt {found[key]} --study {study}` takes it in;"
            f" `batchpond submit {study} --fresh` buys them all the same",
        )


def is_of_plan(session: Session, study: str, shard_id: str) -> bool:
    """Whether a study plans any request of a shard, in any version."""
    sql = "SELECT 1 FROM plan JOIN shard_requests USING (request_id) WHERE study = $1 AND shard_id = $2 LIMIT 1"
    return bool(tables.rows(session.store, ["plan", "shard_requests"], sql, [study, shard_id]))


def check_settled(session: Session, study: str) -> None:
    """Raise AttentionError while a batch came of an attempt that was given up, and nobody has seen to it.

    What is sent next holds the same requests, or may, whichever study asked them first; or such as are half forgotten.
    """
    state = session.open_state
    if state.forgetting:
        raise AttentionError("something is half forgotten: nothing is sent", hint="`batchpond forget` ends it")
    for attempt in _unseen(state):
        latest = state.latest_attempt(attempt.shard_id)
        is_to_be_sent = latest is not None and latest.phase in BEFORE_SENT_PHASES | {Phase.ABSENT}
        is_given_up = attempt.shard_id in state.voided or is_to_be_sent
        if is_given_up and is_of_plan(session, study, attempt.shard_id):
            raise AttentionError(
                f"{attempt.provider} batch {attempt.batch_id} was made of requests of study {study} that were given up"
                " as never asked; nothing of the study is sent, it might be bought twice",
                hint=f"`batchpond resolve {attempt.batch_id} --known` goes on all the same, once you have seen to it",
            )


def _not_seen(
    session: Session,
    provider: BatchProvider,
    attempt: Attempt,
    listing: Listing,
    elapsed_s: float | None,
    n_undecided: int,
) -> None:
    if elapsed_s is None:
        record_doubt(session, attempt, "the sending process ended before an answer was recorded")
    if not listing.is_complete or not _control(session, provider, attempt, listing):
        return
    current = session.attempt(attempt.attempt_id)
    settled = elapsed_s is not None and elapsed_s >= session.settle_s(provider)
    # A candidate that hides is no foreign one.
    hidden = set(current.candidates) - set(current.foreign) - {batch.batch_id for batch in listing.batches}
    if current.first_listed is None:
        session.record(Listed(attempt_id=attempt.attempt_id, evidence=listing.evidence()))
    elif settled and (n_undecided or hidden):
        if not current.is_settled:
            evidence = listing.evidence()
            session.record(Listed(attempt_id=attempt.attempt_id, reason=records.SETTLED, evidence=evidence))
    elif settled:
        session.record(records.Absent(attempt_id=attempt.attempt_id, evidence=listing.evidence()))
        session.counts.n_absent += 1


def record_doubt(session: Session, attempt: Attempt, reason: str) -> None:
    """Start the absence clock: nothing more is sent from here, and who else might, on another machine, gives up."""
    clock = session.store.clock
    session.record(
        records.Unknown(
            attempt_id=attempt.attempt_id,
            ordinal=session.attempt(attempt.attempt_id).n_sends,
            boot_id=clock.boot_id(),
            monotonic_s=clock.monotonic_s(),
            reason=reason,
        )
    )


def _control(session: Session, provider: BatchProvider, attempt: Attempt, listing: Listing) -> bool:
    """Return whether this credential provably sees objects of the account that was sent to.

    The attempt's own input file is the proof: no other account could have made a batch of it.
    Other batches of this lake may be of another project, and count only where no file was uploaded, or where it is
    gone: then the one that was sent last before shows that the key sees the account, and as far back as it must.
    """
    if attempt.file_id is None:
        if attempt.intent.scope and "-" not in attempt.intent.scope.split("/"):
            return attempt.intent.scope == session.scope(provider)
        return any(batch.batch_id in session.lake_state.batch_ids for batch in listing.batches)
    since = day_before(attempt.uploaded_at or EPOCH)
    uploads = provider.find_uploads(f"{attempt.intent.token}.jsonl", since)
    if any(file.file_id == attempt.file_id for file in uploads):
        return True
    file, hint = f"the file that attempt {attempt.attempt_id} was sent with", "use the key it was sent with"
    text = f"this key does not see {file}; it may belong to another project, so a missing batch proves nothing"
    if is_file_gone(session, provider, attempt):
        mine = [a for a in session.lake_state.attempts.values() if a.client_name == attempt.client_name and a.batch_id]
        earlier = [(a.sent.ord, a.batch_id) for a in mine if a.sent and attempt.sent and a.sent.ord < attempt.sent.ord]
        if earlier and any(batch.batch_id == max(earlier)[1] for batch in listing.batches):
            return True
        text = f"{attempt.provider} has deleted {file}, as it does with all, and lists no batch that was sent from here"
        text, hint = f"{text} before: a missing batch proves nothing", f"look in its console for {attempt.token}"
    hint = f"{hint}, or decide with `batchpond resolve {attempt.attempt_id}`"
    session.alert(text, hint=hint)
    return False


def _elapsed_s(session: Session, attempt: Attempt) -> float | None:
    """Return seconds since the doubt was observed in this boot, by a clock that cannot be set; None before that.

    Another boot, or another machine that the lake was moved to, observes anew: no clock spans both.
    """
    clock = session.store.clock
    if attempt.phase is not Phase.UNKNOWN:
        return None
    begun = [first.monotonic_s for first in attempt.observed if first.boot_id == clock.boot_id()]
    return None if not begun or begun[0] is None else clock.monotonic_s() - begun[0]


PEEKS_MAX: Final = 200


def by_results(
    session: Session, provider: BatchProvider, attempt: Attempt, unknown: list[RemoteBatch]
) -> list[RemoteBatch]:
    """Return the batches of the right size whose results name the attempt; those without results are told.

    For a provider whose batches carry no token.
    """
    mine, found = ids.custom_id_prefix(attempt.attempt_id), []
    for batch in unknown:
        if batch.n_total not in {None, attempt.intent.n_requests}:
            continue
        if batch.batch_id not in session.heads and len(session.heads) < PEEKS_MAX:
            session.heads[batch.batch_id] = next(first_custom_ids(provider, batch), None)
        head = session.heads.get(batch.batch_id)
        if head is not None and head.startswith(mine):
            found.append(batch)
        elif head is None:
            session.note(
                Severity.WARNING,
                f"{attempt.provider} batch {batch.batch_id} is not of this lake's record, has as many requests as one"
                " that is sent now, and no results yet: if another copy of this lake sent it, these requests are bought"
                " twice",
                hint="send from one copy of a lake only; `batchpond adopt --list` shows what else is in the account",
            )
    return sorted(found, key=lambda batch: batch.age_key)
