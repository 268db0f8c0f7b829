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
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pyarrow as pa

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake.schemas import EVENTS
from batchpond.lake.store import MERGED_KEY, MERGED_PREFIX, Store, merged_names, read_rows

COMPACT_ABOVE_FILES = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


_KINDS = {str(kind): kind for kind in Kind}


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
            tables.append(_aligned(read_rows(path)))
        except (pa.ArrowException, OSError) as error:
            raise LakeError(
                f"{path} cannot be read: {error}",
                hint="restore the file from a backup; until then nothing is sent or downloaded",
            ) from None
    if not tables:
        return []
    rows = pa.concat_tables(tables)
    names = [name for name in rows.schema.names if rows.column(name).null_count < len(rows)]
    found: list[Event] = []
    for values in zip(*(_values(rows.column(name)) for name in names), strict=True):
        row = dict(zip(names, values, strict=True))
        row["kind"] = _KINDS[row["kind"]]
        found.append(Event(**row))
    found.sort(key=lambda event: (event.ord, event.event_id))
    unique: dict[str, Event] = {}
    for event in found:
        unique.setdefault(event.event_id, event)
    return list(unique.values())


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; times by way of their microseconds, or pyarrow would import pandas for them."""
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    moments = (us for chunk in column.chunks for us in chunk.view(pa.int64()).to_pylist())
    return [None if us is None else _EPOCH + timedelta(microseconds=us) for us in moments]


def _aligned(rows: pa.Table) -> pa.Table:
    """Return rows with all columns of today, those that an older file lacks as nulls."""
    if rows.schema.names == EVENTS.schema.names:
        return rows.replace_schema_metadata(None)
    columns = [
        rows.column(f.name) if f.name in rows.schema.names else pa.nulls(len(rows), f.type) for f in EVENTS.schema
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS.schema)


def append(store: Store, events: Sequence[Event]) -> list[Event]:
    """Record events outside a longer pass; the caller holds the lock."""
    return EventLog(store).append(*events)


def compact(store: Store) -> bool:
    """Merge many small event files into one, and drop merged ones a day later.

    Readers that listed the old files keep them for that day; `Store.files` does not list them any
    more. The caller holds the lock. Returns whether anything changed.
    """
    changed = _drop_merged(store)
    loose = [path for path in store.files(EVENTS.name) if not path.name.startswith(MERGED_PREFIX)]
    if len(loose) <= COMPACT_ABOVE_FILES:
        return changed
    events = read(store)
    name = MERGED_PREFIX + ids.digest("event file", *sorted(event.event_id for event in events))
    names = [path.name for path in store.published(EVENTS.name) if path.name != f"{name}.parquet"]
    return store.publish(EVENTS, name, _rows(events), {MERGED_KEY: json.dumps(names)}) or changed


def _drop_merged(store: Store) -> bool:
    dropped = False
    now_s = store.clock.now().timestamp()
    for path in (store.path / EVENTS.name).glob(f"{MERGED_PREFIX}*.parquet"):
        if not path.exists() or now_s - path.stat().st_mtime < COMPACT_GRACE.total_seconds():
            continue  # too young, or merged itself into one that was just looked at
        for old in map(path.with_name, merged_names(path)):
            if old.exists():
                old.unlink()
                dropped = True
    return dropped
