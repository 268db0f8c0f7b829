"""From the spool to the lake: a closed segment's answers become raw lines, its doubts rows, then it is dropped.

Names are functions of what the segment holds, so a process may die on any line here and the next one
does the same again without a trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchpond import fields
from batchpond.answers import derive
from batchpond.lake import disk, failpoints, jsonl
from batchpond.lake.attempts import Attempt
from batchpond.lake.jsonl import shard_lines
from batchpond.lake.schemas import DOUBTS
from batchpond.model import FileRole
from batchpond.run.collect import file_of, parsers_of, price_of, record_download
from batchpond.run.live import spool
from batchpond.run.session import Session

_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Content:
    """A segment's answers, in a file of their own, and its doubts."""

    path: Path
    size_bytes: int
    sha256: str
    n_lines: int
    doubts: Sequence[dict[str, Any]]


def seal(session: Session, attempt: Attempt, segments: Sequence[Path]) -> int:
    """Bring closed segments into the lake, the oldest first; returns how many answers they held.

    The lake's lock is held.
    """
    n_lines = 0
    for segment in segments:
        n_lines += _seal_one(session, attempt, segment)
        segment.unlink()
        failpoints.reach("L6")
    return n_lines


def _seal_one(session: Session, attempt: Attempt, segment: Path) -> int:
    scratch = session.store.scratch(".jsonl")
    try:
        content = _split(segment, scratch, session.store.clock.boot_id())
        file = file_of(attempt, FileRole.LIVE, segment.stem, content.sha256)
        if content.doubts:
            _publish_doubts(session, attempt, file, content.doubts)
        if content.n_lines:
            _publish_answers(session, attempt, file, content)
    finally:
        with suppress(FileNotFoundError):
            scratch.unlink()
    return content.n_lines


def _split(segment: Path, scratch: Path, boot_id: str) -> _Content:
    digest, size_bytes, n_lines = hashlib.sha256(), 0, 0
    doubts: list[dict[str, Any]] = []
    disk.write_private(scratch, b"")
    with scratch.open("r+b", buffering=_BUFFER_BYTES) as out:
        for record, line in spool.records(segment, boot_id):
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
    source = derive.Source(attempt.shard_id, attempt.attempt_id, attempt.provider, attempt.intent.origin, (file,))
    derive.derive(session.store, source, parsers_of(session, attempt), price_of(session, attempt))


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
