"""What a person does for models of mode `files`: which folder has requests to answer, and what lies there unread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from batchpond.lake.attempts import UNCLEAR_PHASES, Attempt, Phase
from batchpond.lake.store import Store
from batchpond.model import Mode
from batchpond.providers.shared.files import RECENT
from batchpond.providers.shared.folder import HOST_MARK, Folder
from batchpond.run.session import Session, Severity

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
    mine = [a for a in _attempts(session.lake_state.attempts.values()) if a.phase is Phase.OPEN]
    n_recent = sum(a.status is not None and a.status.provider_status == RECENT for a in mine)
    if n_recent:
        text = f"the results of {n_recent:,} batches were written to just now and may still grow"
        session.note(Severity.INFO, text, hint="`batchpond sync` takes them once they have come to rest")
    if not session.counts.n_created:
        return
    for folder, attempts in _by_folder(mine, session.store):
        n_requests = sum(attempt.intent.n_requests for attempt in attempts)
        session.note(Severity.INFO, waiting_text(len(attempts), n_requests, folder), hint=NEXT_STEP)


def tell_strays(session: Session) -> None:
    """Say which result files nobody will read: named after no batch, or come after theirs was settled."""
    for text in strays(session.lake_state.attempts.values(), session.store):
        session.note(Severity.WARNING, text, hint=STRAYS_HINT)


def strays(attempts: Iterable[Attempt], store: Store) -> Iterator[str]:
    """Yield a sentence for each folder with result files that nobody will read."""
    for folder, mine in _by_folder(_attempts(attempts), store):
        known = {attempt.token: _read_files(attempt) for attempt in mine}
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
            yield f"{folder.path} is not there, and {len(mine):,} batches wait to be answered in it"


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
