"""Batches that ended: their files to disk, their lines to the lake, their counts proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

from batchpond import ids
from batchpond.answers import derive
from batchpond.clock import Work
from batchpond.lake import failpoints, jsonl
from batchpond.lake.attempts import Attempt, Phase
from batchpond.lake.records import Downloaded, Mismatch, Verified
from batchpond.lake.schemas import JUDGMENTS, RESPONSES
from batchpond.lake.store import CONFIG, TMP
from batchpond.model import BatchState, Download, FileRole, Mode, RemoteBatch
from batchpond.providers.base import BatchProvider
from batchpond.run.find import check_host, given_up
from batchpond.run.session import LARGE, TAKE_HINT, Session, Severity, answered, beside
from batchpond.study import prices
from batchpond.views import database

AT_ONCE: Final = 4
"""How many batches' files travel at once; as many wait on disk, and no more."""
DOWNLOADS_MAX = 3
FILE_WAIT_MAX_S = 86_400
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)


def collect_ended(session: Session, seen: Mapping[str, RemoteBatch]) -> None:
    """Bring in what ended batches have, most perishable first; one that fails stops no other."""
    remote = (attempt for attempt in session.open_state.attempts.values() if attempt.mode is not Mode.LIVE)
    ended = [attempt for attempt in remote if attempt.phase is Phase.ENDED]
    perishable_first = sorted(ended, key=lambda a: (a.created_at or _NEVER, a.attempt_id))
    proven: list[Verified | Mismatch] = []
    try:
        for found in _collected(session, perishable_first, seen):
            proven += found
            if sum(fact.n_requests for fact in proven) >= LARGE:
                _settle(session, proven)
                proven = []
    except Exception:
        _settle(session, proven)
        raise
    finally:
        if session.folder is not None and not session.arrivals:
            rmtree(session.folder, ignore_errors=True)
            session.folder = None
    _settle(session, proven)


def _collected(
    session: Session, ended: Sequence[Attempt], seen: Mapping[str, RemoteBatch]
) -> Iterator[list[Verified | Mismatch]]:
    """Yield what each batch comes to, in their order, while files of the next ones are on their way to a folder."""
    # What came for a batch that another process settled meanwhile, or whose provider is out by now, came for nothing.
    begun, come = list[_Arrival](), session.arrivals
    session.arrivals = {}
    with Work("collecting", "batches", len(ended)) as work:
        for attempt in (*ended, *[None] * (AT_ONCE - 1)):
            if attempt is not None and attempt.client_name not in session.providers.out:
                with session.isolated(attempt.client_name, f"batch {attempt.batch_id}"):
                    held = come.get(attempt.attempt_id)
                    begun += _arriving(session, attempt, seen.get(attempt.attempt_id), held, len(begun))
            if begun and (attempt is None or len(begun) == AT_ONCE):
                first = begun.pop(0)
                if not session.is_here(first.way):
                    session.arrivals[first.attempt.attempt_id] = first
                    session.tried.discard(first.attempt.attempt_id)
                    continue
                with session.isolated(first.attempt.client_name, f"batch {first.attempt.batch_id}"):
                    yield _collect(session, first)
                work.add()


@dataclass(slots=True)
class _Arrival:
    """A batch that ended and what it has: its files come one after the other to a folder, and are `brought` then.

    `way` ends with the last of them, or with what failed. A file that comes when its folder is gone is nowhere.
    """

    provider: BatchProvider
    attempt: Attempt
    batch: RemoteBatch | None
    files: tuple[tuple[FileRole, str], ...]
    folder: Path
    brought: dict[str, tuple[Path, Download | None]] = field(default_factory=dict)
    way: Future[None] = field(default_factory=Future)

    def bring(self, *file_ids: str) -> None:
        for file_id in file_ids:
            path = self.folder / ids.digest("file", self.attempt.attempt_id, file_id)
            self.brought[file_id] = path, self.provider.download(file_id, path)

    def take(self, session: Session, file_id: str) -> tuple[Path, Download | None]:
        """Return where a result file is and what it is, asked for now if it was not brought; raises what failed."""
        if file_id not in self.brought:
            self.way.result()
            session.providers.get(self.attempt.client_name)  # raises what put it out meanwhile
            self.bring(file_id)
        return self.brought.pop(file_id)


def _arriving(
    session: Session, attempt: Attempt, batch: RemoteBatch | None, held: _Arrival | None, n_begun: int
) -> list[_Arrival]:
    """Ask how a batch stands, unless that was seen, and begin to bring the files of one that none was taken from.

    Returns nothing where it had its turn in this pass, or has to wait until others have come, or where another process
    brings it.
    """
    if held is None and (attempt.attempt_id in session.tried or n_begun + len(session.arrivals) >= AT_ONCE):
        return []
    session.tried.add(attempt.attempt_id)
    if held is not None:
        held.attempt = attempt
        return [held]
    provider = session.providers.get(attempt.client_name)
    check_host(attempt, provider)
    batch = batch or provider.get(attempt.known_batch_id)
    # A stale replica names no files yet; believing it would call every answer missing.
    files = provider.result_files(batch) if batch is not None and batch.state.is_terminal else ()
    if session.folder is None:  # it goes with the pass, however that ends
        session.folder = Path(mkdtemp(dir=session.store.path / TMP))
        finalize(session, rmtree, session.folder, ignore_errors=True)
    arrival = _Arrival(provider, attempt, batch, files, session.folder)
    wanted = () if attempt.downloads else [file_id for _, file_id in files]
    way = beside("download", partial(arrival.bring, *wanted), session.store.payload_path(attempt.attempt_id))
    if way is None:
        return []
    arrival.way = way
    return [arrival]


def _collect(session: Session, arrival: _Arrival) -> list[Verified | Mismatch]:
    """Bring in what one batch has; return what its answers come to, nothing while some may still come."""
    provider, attempt, files = arrival.provider, arrival.attempt, arrival.files
    if arrival.way.exception() and attempt.client_name in session.providers.out:
        return []  # it was said of the first
    if arrival.batch is None:
        _note_unavailable(session, provider, attempt, "the batch")
    if arrival.batch is None or not arrival.batch.state.is_terminal:
        return []
    tally = _fetch_whole(session, arrival)
    attempt = session.attempt(attempt.attempt_id)
    recorded = {event.file_id for event in attempt.downloads}
    absent = [pair for pair in files if pair[1] not in recorded]
    if absent and not (recorded and _waited_s(session, attempt) >= FILE_WAIT_MAX_S):
        for role, file_id in absent:
            _note_unavailable(session, provider, attempt, f"the {role} file {file_id}")
    elif _is_whole(attempt, tally) or _waited_s(session, attempt) >= session.settle_s(provider):
        return [_proof(session, attempt, tally, len(absent))]
    else:
        session.note(
            Severity.WARNING,
            f"batch {attempt.batch_id} is {attempt.state}, but its files answer {tally.n_matched} of"
            f" {attempt.intent.n_requests} requests so far",
            hint="`batchpond sync` looks again for a while before it calls the rest missing",
        )
    return []


def _fetch_whole(session: Session, arrival: _Arrival) -> derive.Tally:
    """Download what is lacking until every request that is due is answered, or nothing new comes; return what is there.

    A body cut at a line border with a correct end looks complete to every HTTP client, and one of something else
    altogether may have as many lines: only what they answer shows it.
    """
    attempt = arrival.attempt
    tally = read(session, attempt) if attempt.downloads else derive.Tally()
    is_asked_for = bool(attempt.n_mismatches) and attempt.take is None
    for _ in range(DOWNLOADS_MAX):
        recorded = {event.file_id for event in attempt.downloads}
        is_all = is_asked_for or (bool(recorded) and not _is_whole(attempt, tally))
        wanted = [pair for pair in arrival.files if is_all or pair[1] not in recorded]
        n_here = sum(_fetch(session, arrival, role, file_id) for role, file_id in wanted)
        n_recorded, attempt = len(attempt.downloads), session.attempt(attempt.attempt_id)
        if len(attempt.downloads) > n_recorded:
            tally = read(session, attempt)
        if not wanted or n_here < len(wanted) or (recorded and len(attempt.downloads) == n_recorded):
            break
        if _is_whole(attempt, tally):
            break
    return tally


def _is_whole(attempt: Attempt, tally: derive.Tally) -> bool:
    """Whether nothing more can be expected of a batch.

    One that owes no line of what it did not run is whole when it has as many answers as the provider counts: lines that
    say an error are none.
    """
    if tally.n_matched + tally.n_set_aside >= attempt.intent.n_requests:
        return True
    if attempt.state is BatchState.COMPLETED:  # it owes a line per request
        return False
    n_counted = _n_counted(attempt)
    if attempt.n_mismatches or (attempt.state is BatchState.FAILED and not n_counted):
        return True
    return bool(attempt.downloads) and n_counted is not None and not _lacks_answers(tally, n_counted)


def _n_counted(attempt: Attempt) -> int | None:
    """Return how many requests the provider counts as answered, None where it counts none."""
    n_completed = attempt.status.n_completed if attempt.status else None
    return None if n_completed is None else min(n_completed, attempt.intent.n_requests)


def _lacks_answers(tally: derive.Tally, n_counted: int | None) -> bool:
    return tally.n_succeeded + tally.n_set_aside < (n_counted or 0)


def _waited_s(session: Session, attempt: Attempt) -> float:
    """Return seconds since the batch was seen to have ended, within one boot by a clock that cannot be set.

    Over two boots the wall has to do: what it dates in time to come was not seen just now either.
    """
    clock, seen = session.store.clock, attempt.status
    if seen is None:
        return float("inf")
    if seen.monotonic_s is not None and seen.boot_id == clock.boot_id():
        return clock.monotonic_s() - seen.monotonic_s
    return abs((clock.now() - seen.occurred_at).total_seconds())


def _fetch(session: Session, arrival: _Arrival, role: FileRole, file_id: str) -> bool:
    """Bring a result file into the lake, whatever it holds; whether it is there.

    Raw first: every byte is in the lake before anything tries to read it.
    """
    attempt = arrival.attempt
    path, download = arrival.take(session, file_id)
    try:
        failpoints.reach("Y4")
        if download is None:
            return False
        file = jsonl.RawFile.of(attempt, role, file_id, download.sha256)
        failpoints.reach("Y5")
        n_lines = jsonl.publish_raw(session.store, file, path)
        failpoints.reach("Y6")
        is_large = attempt.intent.n_requests >= LARGE
        if record_download(session, file, download.size_bytes, n_lines, is_urgent=is_large):
            session.counts.n_files_downloaded += 1
            session.counts.n_lines += n_lines
        failpoints.reach("Y7")
        return True
    finally:
        path.unlink(missing_ok=True)


def _note_unavailable(session: Session, provider: BatchProvider, attempt: Attempt, what: str) -> None:
    days = provider.descriptor.results_retention_days
    session.alert(
        f"{attempt.provider} says 404 for {what} of batch {attempt.batch_id}; results are kept about {days} days",
        hint=f"`batchpond sync` asks again; 404s come and go; {given_up(attempt)}",
    )


def record_download(
    session: Session, file: jsonl.RawFile, size_bytes: int, n_lines: int, *, is_urgent: bool = True
) -> int:
    """Record that a result file is in the lake; 1 where these bytes of it are new."""
    fact = Downloaded(
        attempt_id=file.attempt_id,
        provider=file.provider,
        batch_id=file.batch_id,
        file_id=file.file_id,
        file_role=file.role,
        size_bytes=size_bytes,
        sha256=file.sha256,
        n_lines=n_lines,
    )
    return session.record(fact, is_urgent=is_urgent)


def source_of(attempt: Attempt) -> derive.Source:
    """Return what answers of an attempt are read from."""
    return derive.Source(
        attempt.shard_id,
        attempt.attempt_id,
        attempt.sender_id,
        attempt.provider,
        attempt.intent.origin,
        jsonl.files_of(attempt),
        attempt.take,
    )


def price_of(session: Session, attempt: Attempt) -> derive.PriceRow:
    """Return the price of a response of this attempt's model, None where no price is known."""
    book = prices.Prices.of_lake(session.store.path / CONFIG, attempt.created_at or session.store.clock.now())
    return lambda said: book.cost(attempt.intent.priced, said)


def rules_for(session: Session, attempt: Attempt) -> dict[str, dict[str, Any]]:
    """Return the answer rules that any study has for an attempt's requests, by parser id."""
    return session.rules.of([attempt.intent])[attempt.shard_id]


def read(session: Session, attempt: Attempt) -> derive.Tally:
    """Derive what the raw lines of an attempt say, and return how they answer its requests."""
    source = source_of(attempt)
    _drop_unrecorded(session, source.files)
    tally = derive.derive(session.store, source, rules_for(session, attempt), price_of(session, attempt))
    failpoints.reach("Y8")
    return tally


def _drop_unrecorded(session: Session, files: Sequence[jsonl.RawFile]) -> None:
    """Drop what was made of downloads that a process did not live to record.

    A file that came otherwise since would have its answers beside those: each request would have two.
    """
    if session.read_parts is None:
        session.read_parts = {}
        for path in map(Path, session.store.published(RESPONSES.name)):
            session.read_parts.setdefault(jsonl.whose(path.stem), []).append(path)
    recorded = {file.stem for file in files}
    for file in files:
        for path in session.read_parts.get(jsonl.whose(file.stem), ()):
            if path.stem.rpartition("-")[0] not in recorded:
                for made in (path, *(session.store.path / JUDGMENTS.name).glob(f"*/{path.name}")):
                    session.store.drop(made)


def finish(session: Session, attempt: Attempt, tally: derive.Tally) -> None:
    """Prove that every request is accounted for."""
    _settle(session, [_proof(session, attempt, tally, 0)])


def _settle(session: Session, proven: Sequence[Verified | Mismatch]) -> None:
    """Record together what batches come to, and what came of small ones: who dies before that asks for it again."""
    session.record(*proven)
    for fact in proven:
        failpoints.reach("Y10")
        jsonl.discard_payload(session.store, fact.attempt_id)
        failpoints.reach("Y11")


def _proof(session: Session, attempt: Attempt, tally: derive.Tally, n_files_absent: int) -> Verified | Mismatch:
    """Return the fact that every request is accounted for, or that some are not."""
    n_sent = attempt.intent.n_requests
    n_missing = n_sent - tally.n_matched - tally.n_set_aside
    faults = []
    if n_missing and attempt.state is BatchState.COMPLETED:
        faults.append(f"{n_missing} of {n_sent} requests are in no file")
    elif n_missing and _lacks_answers(tally, _n_counted(attempt)):
        faults.append(f"the provider counts {_n_counted(attempt)} answers, its files hold {tally.n_succeeded}")
    if n_files_absent:
        faults.append(f"{n_files_absent} of the batch's files cannot be downloaded")
    if tally.n_conflict:
        faults.append(f"{tally.n_conflict} lines answer a request otherwise than an earlier one did")
    if tally.n_unmatched:
        faults.append(f"{tally.n_unmatched} lines belong to no request")
    failpoints.reach("Y9")
    counts: dict[str, Any] = {
        "attempt_id": attempt.attempt_id,
        "batch_id": attempt.batch_id,
        "n_requests": n_sent,
        "n_completed": tally.n_succeeded,
        "n_failed": tally.n_matched - tally.n_succeeded,
    }
    if not faults:
        session.counts.n_verified += 1
        return Verified(**counts)
    session.counts.n_mismatched += 1
    session.alert(
        f"batch {attempt.batch_id} does not add up: {'; '.join(faults)}",
        hint=TAKE_HINT
        if tally.n_conflict
        else f"`batchpond resolve {attempt.attempt_id} --refetch` downloads it again",
        severity=Severity.ERROR,
    )
    return Mismatch(**counts, reason="; ".join(faults), n_conflicts=tally.n_conflict or None)


def read_what_is_unread(session: Session, attempts: Sequence[Attempt]) -> None:
    """Derive what settled attempts lack: their responses, or the judgments of a rule of their requests.

    The archived ones are looked at too where more than what came since may lack something.
    """
    rules, store = session.rules, session.store
    unread = rules.unread(attempts)
    if unread is None:
        for bad in database.drop_damaged(store.path):
            text = f"{bad.name}: {bad.problem}; it is made again of the lines that came"
            session.note(Severity.WARNING, text)
        unread = attempts = answered(session.lake_state)
    used = rules.of(attempt.intent for attempt in unread)
    published = {*rules.published()}
    n_left = 0
    for attempt in unread:
        wanted, source, price = used[attempt.shard_id], source_of(attempt), price_of(session, attempt)
        unjudged = derive.unjudged(published, source, wanted)
        is_unread = derive.is_unread(published, source)
        if not unjudged and not is_unread and not (rules.is_priced_anew and not derive.is_costed(store, source, price)):
            continue
        n_left += 1
        with session.isolated(attempt.client_name, f"reading batch {attempt.batch_id} again"):
            chosen = {rule: wanted[rule] for rule in unjudged}
            derive.derive(store, source, chosen, price)
            session.counts.n_read_again += 1
            n_left -= 1
    rules.keep(attempts, is_all_read=not n_left)
