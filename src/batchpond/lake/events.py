"""The events table: one fact per row about an attempt, a batch, an approval or a study.

Facts (a status seen, an id acknowledged) are named by their content, so recording one again is
a no-op; occurrences (a plan, an approval, a negative listing) are named by their place in the
order as well. `ord` grows strictly whatever the wall clock does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake.schemas import EVENTS
from batchpond.lake.store import Store

COMPACT_ABOVE_FILES = 1_000
COMPACT_GRACE = timedelta(days=1)


class Kind(StrEnum):
    """What an event says happened."""

    PLANNED = "planned"
    APPROVAL = "approval"
    SHARDED = "sharded"
    VOIDED = "voided"
    INTENT = "intent"
    UPLOADED = "uploaded"
    SENT = "sent"
    REJECTED = "rejected"
    CREATED = "created"
    UNKNOWN = "unknown"
    LISTED = "listed"
    CANDIDATE = "candidate"
    FOREIGN = "foreign"
    ADOPTED = "adopted"
    ABSENT = "absent"
    STATUS = "status"
    NOT_FOUND = "not_found"
    DOWNLOADED = "downloaded"
    VERIFIED = "verified"
    MISMATCH = "mismatch"
    MISSING_REMOTE = "missing_remote"
    DUPLICATE_REMOTE = "duplicate_remote"
    LOST = "lost"
    CANCEL_ASKED = "cancel_asked"
    RESOLVED = "resolved"


_OCCURRENCES = frozenset(
    {Kind.PLANNED, Kind.APPROVAL, Kind.LISTED, Kind.UNKNOWN, Kind.REJECTED, Kind.NOT_FOUND, Kind.MISMATCH,
     Kind.MISSING_REMOTE, Kind.CANCEL_ASKED, Kind.RESOLVED}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of the events table; only the columns its kind needs are set."""

    kind: Kind
    event_id: str = ""
    ord: int = 0
    occurred_at: datetime | None = None
    study: str | None = None
    study_version: str | None = None
    approval_id: str | None = None
    shard_id: str | None = None
    shard_kind: str | None = None
    attempt_id: str | None = None
    ordinal: int | None = None
    token: str | None = None
    provider: str | None = None
    host: str | None = None
    scope: str | None = None
    endpoint: str | None = None
    request_model: str | None = None
    origin: str | None = None
    batch_id: str | None = None
    file_id: str | None = None
    file_role: str | None = None
    state: str | None = None
    provider_status: str | None = None
    provider_created_at: datetime | None = None
    expires_at: datetime | None = None
    n_requests: int | None = None
    n_completed: int | None = None
    n_failed: int | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    n_lines: int | None = None
    input_tokens: int | None = None
    cost_expected_usd: float | None = None
    cost_max_usd: float | None = None
    n_limit: int | None = None
    boot_id: str | None = None
    monotonic_s: float | None = None
    reason: str | None = None
    detail: str | None = None


_CONTENT = tuple(
    f.name
    for f in dataclasses.fields(Event)
    if f.name not in {"event_id", "ord", "occurred_at", "boot_id", "monotonic_s", "detail"}
)


def _event_id(event: Event) -> str:
    parts = [f"{name}={getattr(event, name)}" for name in _CONTENT if getattr(event, name) is not None]
    if event.kind in _OCCURRENCES:
        parts.append(f"ord={event.ord}")
    return ids.digest("event", *parts)


class EventLog:
    """The lake's events in order, and the way to add to them. Hold the lake's lock to append."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.events: list[Event] = read(store)
        self._known = {event.event_id for event in self.events}
        self._last_ord = max((event.ord for event in self.events), default=0)

    def append(self, *events: Event) -> list[Event]:
        """Record the events that are new, as one file; return those."""
        stamped = [event for event in map(self._stamp, events) if event.event_id not in self._known]
        if stamped:
            name = "e-" + ids.digest("event file", *sorted(event.event_id for event in stamped))
            self._publish(name, stamped)
        return stamped

    def append_as(self, name: str, event: Event) -> bool:
        """Record one event under a name that only one process can win; False when it was taken."""
        return self._publish(name, [self._stamp(event)])

    def _stamp(self, event: Event) -> Event:
        now = self._store.clock.now()
        self._last_ord = max(self._last_ord + 1, int(now.timestamp() * 1_000_000))
        stamped = dataclasses.replace(event, ord=self._last_ord, occurred_at=now)
        return dataclasses.replace(stamped, event_id=_event_id(stamped))

    def _publish(self, name: str, events: Sequence[Event]) -> bool:
        is_new = self._store.publish(EVENTS, name, _rows(events))
        if is_new:
            self.events.extend(events)
            self._known.update(event.event_id for event in events)
        return is_new


def _rows(events: Iterable[Event]) -> pa.Table:
    return pa.Table.from_pylist([dataclasses.asdict(event) for event in events], schema=EVENTS.schema)


def read(store: Store) -> list[Event]:
    """Return all events in order, each once; raises LakeError that names an unreadable file."""
    tables = []
    for path in store.files(EVENTS.name):
        try:
            tables.append(pq.read_table(path, schema=EVENTS.schema, partitioning=None, use_threads=False))
        except (pa.ArrowException, OSError) as error:
            raise LakeError(
                f"{path} cannot be read: {error}",
                hint="restore the file from a backup; until then nothing is sent or downloaded",
            ) from None
    if not tables:
        return []
    unique: dict[str, Event] = {}
    for row in pa.concat_tables(tables).sort_by([("ord", "ascending"), ("event_id", "ascending")]).to_pylist():
        row["kind"] = Kind(row["kind"])
        unique.setdefault(row["event_id"], Event(**row))
    return list(unique.values())


def append(store: Store, events: Sequence[Event]) -> list[Event]:
    """Record events outside a longer pass; the caller holds the lock."""
    return EventLog(store).append(*events)


def compact(store: Store) -> bool:
    """Merge many small event files into one, and drop merged ones a day later.

    Readers that listed the old files keep them for that day; a query that sees both sees
    duplicates, which event views tolerate. The caller holds the lock. Returns whether anything
    changed.
    """
    files = store.files(EVENTS.name)
    merged = [path for path in files if path.name.startswith("c-")]
    changed = _drop_merged(store, merged)
    files = [path for path in files if path.exists()]
    covered = {name for path in merged if path.exists() for name in _merged_names(path)}
    loose = [path for path in files if path.name not in covered]
    if len(loose) <= COMPACT_ABOVE_FILES:
        return changed
    events = read(store)
    name = "c-" + ids.digest("event file", *sorted(event.event_id for event in events))
    names = [path.name for path in files if path.name != f"{name}.parquet"]
    return store.publish(EVENTS, name, _rows(events), {"merged": json.dumps(names)}) or changed


def _merged_names(path: Path) -> list[str]:
    metadata = pq.read_schema(path).metadata or {}
    names: list[str] = json.loads(metadata.get(b"merged", b"[]"))
    return names


def _drop_merged(store: Store, merged: Iterable[Path]) -> bool:
    dropped = False
    for path in merged:
        if not path.exists():  # itself merged into a later one that was just looked at
            continue
        age_s = store.clock.now().timestamp() - path.stat().st_mtime
        if age_s < COMPACT_GRACE.total_seconds():
            continue
        for name in _merged_names(path):
            old = path.with_name(name)
            if old.exists():
                old.unlink()
                dropped = True
    return dropped
