"""Batches that may be an attempt's own where a provider carries no token: only their results tell.

A candidate is a batch that this lake does not know, of the right size, made since the attempt's
intent by the provider's own clock. It is adopted when the custom_ids of its first result lines are
the attempt's, and dropped when they are another's; until then nothing is sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from batchpond import ids
from batchpond.errors import ExitCode
from batchpond.lake.attempts import Attempt
from batchpond.lake.events.records import Candidate, Foreign, Possible
from batchpond.model import RemoteBatch
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.run.session import Session, Severity

PEEK_BYTES = 1 << 20
# As far back as the listing goes: a provider was made to date one batch hours before its neighbours.
CLOCK_SLACK = timedelta(days=1)


class Proof(StrEnum):
    """What a candidate's results say about whose it is."""

    OURS = "ours"
    FOREIGN = "foreign"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Search:
    """What looking into the candidates came to: the batch, if it was found, and how many are undecided."""

    found: RemoteBatch | None
    n_undecided: int


def search(session: Session, provider: BatchProvider, attempt: Attempt, listed: Iterable[RemoteBatch]) -> Search:
    """Look into every candidate among the listed batches and record what is learnt of each."""
    n_undecided = 0
    for batch in listed:
        if not _is_candidate(session, session.attempt(attempt.attempt_id), batch):
            continue
        if batch.batch_id not in session.attempt(attempt.attempt_id).candidates:
            session.record(_fact(Candidate, attempt, batch))
        match prove(provider, attempt, batch):
            case Proof.OURS:
                return Search(batch, 0)
            case Proof.FOREIGN:
                session.record(_fact(Foreign, attempt, batch))
            case Proof.OPEN:
                n_undecided += 1
                _tell(session, attempt, batch)
    return Search(None, n_undecided)


def _is_candidate(session: Session, attempt: Attempt, batch: RemoteBatch) -> bool:
    if batch.batch_id in attempt.foreign or batch.batch_id in session.picture.batch_ids:
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
    if not batch.state.is_terminal:
        return
    read_line = registry.module(provider.descriptor.name).read_line
    for role, file_id in provider.result_files(batch):
        head = provider.peek(file_id, PEEK_BYTES) or b""
        lines = head.split(b"\n")
        if len(head) >= PEEK_BYTES:
            lines.pop()
        found = (read_line(line, role).custom_id for line in lines if line.strip())
        yield from (custom_id for custom_id in found if custom_id is not None)


def _fact(record: type[Possible], attempt: Attempt, batch: RemoteBatch) -> Possible:
    return record(
        attempt_id=attempt.attempt_id,
        provider=attempt.provider,
        batch_id=batch.batch_id,
        provider_created_at=batch.created_at,
        n_requests=batch.n_total,
    )


def _tell(session: Session, attempt: Attempt, batch: RemoteBatch) -> None:
    ended = "it ended and shows no results so far, and only they or you can tell"
    session.note(
        Severity.WARNING,
        f"{attempt.provider} batch {batch.batch_id} may be attempt {attempt.attempt_id}: as many requests, and made"
        f" since; {ended if batch.state.is_terminal else 'its first results will tell'}",
        hint=f"if you know, decide now: `batchpond resolve {attempt.attempt_id} --adopt {batch.batch_id}`",
        exit_code=ExitCode.ATTENTION,
    )
