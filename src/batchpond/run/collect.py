"""Batches that ended: their files to disk, their lines to the lake, their counts proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchpond.answers import derive
from batchpond.errors import ExitCode
from batchpond.lake import failpoints, jsonl, tables
from batchpond.lake.attempts import READ_PHASES, Attempt, Phase
from batchpond.lake.records import Downloaded, Mismatch, Verified
from batchpond.lake.store import CONFIG
from batchpond.model import BatchState, Download, FileRole, Mode, PricedModel, RemoteBatch, Response
from batchpond.providers.base import BatchProvider
from batchpond.run.due import parser_ids_of
from batchpond.run.find import check_host
from batchpond.run.session import Session, Severity
from batchpond.study import prices

DOWNLOADS_MAX = 3
FILE_WAIT_MAX_S = 86_400
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Fetched:
    role: FileRole
    file_id: str
    path: Path
    download: Download
    n_lines: int


def collect_ended(session: Session, seen: Mapping[str, RemoteBatch]) -> None:
    """Bring in what ended batches have, most perishable first; one that fails stops no other."""
    remote = (attempt for attempt in session.lake_state.attempts.values() if attempt.mode is not Mode.LIVE)
    ended = [attempt for attempt in remote if attempt.phase is Phase.ENDED]
    for attempt in sorted(ended, key=lambda a: (a.created_at or _NEVER, a.attempt_id)):
        if session.providers.is_refused(attempt.wire):
            continue
        with session.isolated(attempt.wire, f"batch {attempt.batch_id}"):
            provider = session.providers.get(attempt.wire)
            check_host(attempt, provider)
            _collect(session, provider, attempt, seen.get(attempt.attempt_id))


def _collect(session: Session, provider: BatchProvider, attempt: Attempt, batch: RemoteBatch | None) -> None:
    batch = batch or provider.get(attempt.known_batch_id)
    if batch is None:
        _note_unavailable(session, provider, attempt, "the batch")
        return
    if not batch.state.is_terminal:
        # A stale replica names no files yet; believing it would call every answer missing.
        return
    wanted = _wanted(attempt, provider, provider.result_files(batch))
    with ExitStack() as scratch:
        fetched = _fetch_whole(session, provider, attempt, wanted, scratch)
        for file in fetched:
            _publish(session, attempt, file)
    attempt = session.attempt(attempt.attempt_id)
    absent = [pair for pair in wanted if pair[1] not in {event.file_id for event in attempt.downloads}]
    if absent and not (attempt.downloads and _waited_s(session, attempt) >= FILE_WAIT_MAX_S):
        for role, file_id in absent:
            _note_unavailable(session, provider, attempt, f"the {role} file {file_id}")
    elif _is_whole(attempt, provider) or _waited_s(session, attempt) >= session.settle_s(provider):
        finish(session, attempt, n_files_absent=len(absent))
    else:
        session.note(
            Severity.WARNING,
            f"batch {attempt.batch_id} is {attempt.state}, but its files hold {_n_recorded(attempt)} of"
            f" {attempt.intent.n_requests} answers so far",
            hint="`batchpond sync` looks again for a while before it calls the rest missing",
        )


def _wanted(
    attempt: Attempt, provider: BatchProvider, files: tuple[tuple[FileRole, str], ...]
) -> list[tuple[FileRole, str]]:
    """Return the files to download: all while answers are lacking or by request, else those not yet here."""
    recorded = {event.file_id for event in attempt.downloads}
    is_all = bool(attempt.n_mismatches) or not _is_whole(attempt, provider)
    return [pair for pair in files if is_all or pair[1] not in recorded]


def _is_whole(attempt: Attempt, provider: BatchProvider) -> bool:
    """Whether nothing more can be expected of a batch."""
    if not _owes_all(attempt, provider):
        return attempt.state is BatchState.FAILED or bool(attempt.downloads) or attempt.n_mismatches > 0
    return _n_recorded(attempt) >= attempt.intent.n_requests


def _owes_all(attempt: Attempt, provider: BatchProvider) -> bool:
    """Whether a batch that ended owes a line per request: every completed one, and at some providers any."""
    if attempt.state is BatchState.FAILED:
        return False
    return attempt.state is BatchState.COMPLETED or provider.descriptor.has_row_per_request


def _n_recorded(attempt: Attempt) -> int:
    return sum(event.n_lines for event in accepted_downloads(attempt))


def _waited_s(session: Session, attempt: Attempt) -> float:
    ended = attempt.status.occurred_at if attempt.status else None
    return (session.store.clock.now() - ended).total_seconds() if ended else float("inf")


def accepted_downloads(attempt: Attempt) -> list[Downloaded]:
    """Return one download per file: the one with the most lines, then bytes; the first of equals."""
    best: dict[str, Downloaded] = {}
    for event in attempt.downloads:
        known = best.get(event.file_id)
        if known is None or _extent(event) > _extent(known):
            best[event.file_id] = event
    return list(best.values())


def _extent(event: Downloaded) -> tuple[int, int]:
    # A download that was cut inside its last line has as many lines as the whole file, and fewer bytes.
    return event.n_lines, event.size_bytes


def _fetch_whole(
    session: Session,
    provider: BatchProvider,
    attempt: Attempt,
    wanted: list[tuple[FileRole, str]],
    scratch: ExitStack,
) -> list[_Fetched]:
    """Download the files that are there until they hold every line that is due, or twice the same bytes.

    A body cut at a line border with a correct end looks complete to every HTTP client; only the
    count of lines shows it.
    """
    best: list[_Fetched] = []
    n_due = _n_due(attempt, provider) - sum(event.n_lines for event in _not_among(attempt, wanted))
    for _ in range(DOWNLOADS_MAX if wanted else 0):
        fetched = _fetch(session, provider, wanted, scratch)
        if best and _n_lines(fetched) <= _n_lines(best):
            same = [f.download.sha256 for f in fetched] == [f.download.sha256 for f in best]
            _drop(fetched)
            if same:
                break
            continue
        _drop(best)
        best = fetched
        if _n_lines(best) >= n_due or len(best) < len(wanted):
            break
    return best


def _n_due(attempt: Attempt, provider: BatchProvider) -> int:
    """Return how many lines an ended batch owes: all, or what it counted as answered."""
    if _owes_all(attempt, provider):
        return attempt.intent.n_requests
    return _n_counted(attempt)


def _n_counted(attempt: Attempt) -> int:
    n_completed = attempt.status.n_completed if attempt.status else None
    return min(n_completed or 0, attempt.intent.n_requests)


def _not_among(attempt: Attempt, wanted: list[tuple[FileRole, str]]) -> list[Downloaded]:
    ids_wanted = {file_id for _, file_id in wanted}
    return [event for event in accepted_downloads(attempt) if event.file_id not in ids_wanted]


def _n_lines(fetched: list[_Fetched]) -> int:
    return sum(file.n_lines for file in fetched)


def _drop(fetched: list[_Fetched]) -> None:
    for file in fetched:
        file.path.unlink(missing_ok=True)


def _fetch(
    session: Session, provider: BatchProvider, wanted: list[tuple[FileRole, str]], scratch: ExitStack
) -> list[_Fetched]:
    """Download each file that the provider does not answer 404 for."""
    fetched: list[_Fetched] = []
    for role, file_id in wanted:
        path = session.store.scratch(f".{role}")
        scratch.callback(path.unlink, missing_ok=True)
        download = provider.download(file_id, path)
        failpoints.reach("Y4")
        if download is None:
            continue
        fetched.append(_Fetched(role, file_id, path, download, _count_lines(path)))
    failpoints.reach("Y5")
    return fetched


def _count_lines(path: Path) -> int:
    """Return the number of whole lines that are not empty; a last one needs a line feed or an end."""
    n_lines, last = 0, b"\n"
    with path.open("rb") as lines:
        for line in lines:
            n_lines += bool(line.strip())
            last = line
    is_cut = not last.endswith(b"\n") and bool(last.strip()) and not last.rstrip().endswith(b"}")
    return n_lines - is_cut


def _note_unavailable(session: Session, provider: BatchProvider, attempt: Attempt, what: str) -> None:
    days = provider.descriptor.results_retention_days
    session.note(
        Severity.WARNING,
        f"{attempt.provider} says 404 for {what} of batch {attempt.batch_id}; results are kept about {days} days",
        hint="`batchpond sync` asks again; 404s come and go",
        exit_code=ExitCode.ATTENTION,
    )


def file_of(attempt: Attempt, role: FileRole, file_id: str, sha256: str) -> jsonl.RawFile:
    """Return where the raw lines of an attempt's result file are."""
    return jsonl.RawFile(
        provider=attempt.provider,
        batch_id=attempt.known_batch_id,
        attempt_id=attempt.attempt_id,
        file_id=file_id,
        role=role,
        sha256=sha256,
        created_at=attempt.created_at,
    )


def raw_file(attempt: Attempt, event: Downloaded) -> jsonl.RawFile:
    """Return where the raw lines of a download are."""
    return file_of(attempt, event.file_role, event.file_id, event.sha256)


def record_download(session: Session, file: jsonl.RawFile, size_bytes: int, n_lines: int) -> None:
    """Record that a result file is in the lake."""
    session.record(
        Downloaded(
            attempt_id=file.attempt_id,
            provider=file.provider,
            batch_id=file.batch_id,
            file_id=file.file_id,
            file_role=file.role,
            size_bytes=size_bytes,
            sha256=file.sha256,
            n_lines=n_lines,
        )
    )


def _publish(session: Session, attempt: Attempt, file: _Fetched) -> None:
    """Raw first: every byte is in the lake before anything tries to read it."""
    place = file_of(attempt, file.role, file.file_id, file.download.sha256)
    n_lines = jsonl.publish_raw(session.store, place, file.path)
    failpoints.reach("Y6")
    record_download(session, place, file.download.size_bytes, n_lines)
    failpoints.reach("Y7")
    file.path.unlink()
    session.counts.n_files_downloaded += 1
    session.counts.n_lines += n_lines


def source_of(attempt: Attempt) -> derive.Source:
    """Return an attempt's accepted files, output before error."""
    files = sorted(
        (raw_file(attempt, event) for event in accepted_downloads(attempt)),
        key=lambda f: f.role != FileRole.OUTPUT,
    )
    return derive.Source(attempt.shard_id, attempt.attempt_id, attempt.provider, attempt.intent.origin, tuple(files))


def price_of(session: Session, attempt: Attempt) -> derive.PriceRow:
    """Return the price of a response of this attempt's model, None where no price is known."""
    book = prices.Prices.of_lake(session.store.path / CONFIG, attempt.created_at or session.store.clock.now())
    asked = PricedModel(attempt.provider, attempt.intent.request_model, attempt.mode)

    def price(response: Response) -> float | None:
        return book.cost(
            asked,
            response.input_tokens,
            response.cached_tokens,
            response.output_tokens,
            response.cache_write_tokens,
        )

    return price


def parsers_of(session: Session, attempt: Attempt) -> dict[str, dict[str, Any]]:
    """Return the answer rules that any study has for an attempt's requests, by parser id."""
    specs = derive.parsers(session.store)
    if len(specs) <= 1:
        return specs
    with tables.connect(session.store, ["plan", "shard_requests"]) as connection:
        used = parser_ids_of(connection, [attempt.shard_id]).get(attempt.shard_id, set())
    return {parser_id: spec for parser_id, spec in specs.items() if parser_id in used}


def finish(session: Session, attempt: Attempt, *, n_files_absent: int = 0) -> None:
    """Derive what the raw lines say and prove that every request is accounted for."""
    specs = parsers_of(session, attempt)
    tally = derive.derive(session.store, source_of(attempt), specs, price_of(session, attempt))
    derive.withdraw(session.store, attempt.provider, _superseded(attempt), specs)
    failpoints.reach("Y8")
    _verify(session, attempt, tally, n_files_absent)
    failpoints.reach("Y10")
    jsonl.discard_payload(session.store, attempt.attempt_id)
    failpoints.reach("Y11")


def _superseded(attempt: Attempt) -> list[jsonl.RawFile]:
    """Return downloads that a later, fuller one of the same file replaced."""
    accepted = {event.event_id for event in accepted_downloads(attempt)}
    return [raw_file(attempt, event) for event in attempt.downloads if event.event_id not in accepted]


def _verify(session: Session, attempt: Attempt, tally: derive.Tally, n_files_absent: int) -> None:
    n_sent = attempt.intent.n_requests
    n_missing = n_sent - tally.n_matched
    faults = []
    if n_missing and attempt.state is BatchState.COMPLETED:
        faults.append(f"{n_missing} of {n_sent} requests are in no file")
    elif tally.n_matched < _n_counted(attempt):
        faults.append(f"the provider counts {_n_counted(attempt)} answers, its files hold {tally.n_matched}")
    if n_files_absent:
        faults.append(f"{n_files_absent} of the batch's files cannot be downloaded")
    if tally.n_conflict:
        faults.append(f"{tally.n_conflict} requests were answered twice, differently")
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
    session.record(Mismatch(**counts, reason="; ".join(faults)) if faults else Verified(**counts))
    if faults:
        session.counts.n_mismatched += 1
        session.note(
            Severity.ERROR,
            f"batch {attempt.batch_id} does not add up: {'; '.join(faults)}",
            hint="see `batchpond audit`; every line received is kept in the lake",
            exit_code=ExitCode.ATTENTION,
        )
    else:
        session.counts.n_verified += 1


def read_what_is_unread(session: Session) -> None:
    """Derive what settled attempts lack: their responses, or the judgments of a rule of their requests."""
    specs = derive.parsers(session.store)
    lacking: dict[str, derive.Lack] = {}
    for attempt in session.lake_state.attempts.values():
        if attempt.phase in READ_PHASES and attempt.downloads:
            lack = derive.lacking(session.store, source_of(attempt), specs)
            if lack.has_any:
                lacking[attempt.attempt_id] = lack
    if not lacking:
        return
    attempts = [session.attempt(attempt_id) for attempt_id in lacking]
    used = _used_rules(session, attempts, specs)
    for attempt in attempts:
        lack = lacking[attempt.attempt_id]
        rules = lack.parser_ids & used.get(attempt.shard_id, set())
        if not lack.is_unread and not rules:
            continue
        chosen = {parser_id: specs[parser_id] for parser_id in rules}
        with session.isolated(attempt.provider, f"reading batch {attempt.batch_id} again"):
            derive.derive(session.store, source_of(attempt), chosen, price_of(session, attempt))
            session.counts.n_read_again += 1


def _used_rules(
    session: Session, attempts: Sequence[Attempt], specs: Mapping[str, dict[str, Any]]
) -> dict[str, set[str]]:
    shard_ids = {attempt.shard_id for attempt in attempts}
    if len(specs) <= 1:
        return {shard_id: set(specs) for shard_id in shard_ids}
    with tables.connect(session.store, ["plan", "shard_requests"]) as connection:
        return parser_ids_of(connection, shard_ids)
