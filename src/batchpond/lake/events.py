"""The events table: one fact per row about an attempt, a batch, an approval or a study.

Facts (a status seen, an id acknowledged) are named by their content, so recording one again is
a no-op; occurrences (a plan, an approval, a negative listing) are named by their place in the
order as well. `ord` grows strictly whatever the wall clock does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake import memo
from batchpond.lake.schemas import EVENTS
from batchpond.lake.store import MERGED_KEY, MERGED_PREFIX, Store, is_merged, merged_paths, read_rows, uncovered

if TYPE_CHECKING:
    import pyarrow as pa

COMPACT_ABOVE_FILES = 64
MEMO = ".events"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
COMPACT_GRACE = timedelta(days=1)


class Kind(StrEnum):
    """What an event says happened."""

    PLANNED = "planned"
    ROUND = "round"
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
    {Kind.PLANNED, Kind.ROUND, Kind.APPROVAL, Kind.LISTED, Kind.UNKNOWN, Kind.REJECTED, Kind.NOT_FOUND, Kind.MISMATCH,
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
    mode: str | None = None
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
    tier: int | None = None


_CONTENT = tuple(
    f.name
    for f in dataclasses.fields(Event)
    if f.name not in {"event_id", "ord", "occurred_at", "boot_id", "monotonic_s", "detail"}
)


_TIMES: Final = frozenset(name for name, kind in EVENTS.columns if kind == "timestamp")
_LAYOUT: Final = hashlib.sha256(repr(EVENTS.columns).encode()).hexdigest()
_FILL = {f.name: getattr(Event, f.name).__set__ for f in dataclasses.fields(Event)}


def _event_id(event: Event) -> str:
    parts = [f"{name}={getattr(event, name)}" for name in _CONTENT if getattr(event, name) is not None]
    if event.kind in _OCCURRENCES:
        parts.append(f"ord={event.ord}")
    return ids.digest("event", *parts)


class EventLog:
    """The lake's events in order, and the way to add to them. Hold the lake's lock to append."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_ord = 0
        self._paths = store.published(EVENTS.name)
        self._merged = [path for path in self._paths if is_merged(path)]
        kept = memo.recall(store, MEMO, self._paths, _LAYOUT)
        if kept is None:
            self._held = [os.fspath(path) for path in uncovered(self._paths)]
            self._take(_read(map(Path, self._held)))
        else:
            self._held = [f"{store.path}/{name}" for name in kept.held]
            self._take(_remembered(**kept.content))
        self._is_kept = kept is not None

    def keep(self) -> None:
        """Keep the events as they are now for the next pass to read in one go; the lake's lock is held.

        Only of the files that this log read or wrote: what another process published meanwhile is read anew.
        """
        if self._is_kept:
            return
        unique = {event.event_id: event for event in self.events}
        content = {"columns": _columns(unique.values()), "n_events": len(unique)}
        held = memo.relative(self._store, self._held)
        memo.keep(self._store, MEMO, self._paths, memo.Memo(_LAYOUT, held, content))
        self._is_kept = True

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
            path = os.fspath(self._store.final_path(EVENTS, name))
            self._paths.append(path)
            self._held.append(path)
            self._is_kept = False
        return is_new

    def compact(self) -> bool:
        """Merge many small files into one, and drop merged ones a day later; returns whether anything changed.

        Readers that listed the old files keep them for that day; `Store.files` does not list them any more.
        """
        is_any_covered = len(self._held) < len(self._paths)
        dropped = {path for merged in self._merged if is_any_covered for path in _drop_covered(self._store, merged)}
        if dropped:
            self._paths = [path for path in self._paths if path not in dropped]
            self._is_kept = False
        n_loose = sum(not is_merged(path) for path in self._held)
        is_new = n_loose > COMPACT_ABOVE_FILES and self._merge()
        return is_new or bool(dropped)

    def _merge(self) -> bool:
        """Merge what is published by now, and nothing that is published later: the merged file names what it holds."""
        published = self._store.published(EVENTS.name)
        self._take(_read(uncovered(published)))
        name = MERGED_PREFIX + ids.digest("event file", *sorted(self._known))
        final = os.fspath(self._store.final_path(EVENTS, name))
        names = [os.path.basename(path) for path in published if path != final]
        is_new = self._store.publish(EVENTS, name, _rows(self.events), {MERGED_KEY: json.dumps(names)})
        self._merged.append(final)
        self._paths, self._held = sorted({*published, final}), [final]
        self._is_kept = False
        return is_new

    def _take(self, found: list[Event]) -> None:
        self.events = found
        self._known = {event.event_id for event in found}
        self._last_ord = max((event.ord for event in found), default=0)


def _rows(events: Iterable[Event]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist([dataclasses.asdict(event) for event in events], schema=EVENTS.schema)


def read(store: Store) -> list[Event]:
    """Return all events in order, each once; raises LakeError that names an unreadable file."""
    return _read(store.files(EVENTS.name))


def _read(paths: Iterable[Path]) -> list[Event]:
    import pyarrow as pa

    tables = []
    for path in paths:
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
    found = _events(rows)
    found.sort(key=attrgetter("ord", "event_id"))
    unique: dict[str, Event] = {}
    for event in found:
        unique.setdefault(event.event_id, event)
    return list(unique.values())


def _events(rows: pa.Table) -> list[Event]:
    """Return a table's rows as events.

    Filled column by column through the slots: calling the class row by row takes ten times as long,
    and every pass reads all events.
    """
    return _filled({name: _values(rows.column(name)) for name in _FILL}, len(rows))


def _filled(columns: dict[str, list[Any]], n_events: int) -> list[Event]:
    columns["kind"] = [_KINDS[kind] for kind in columns["kind"]]
    found = [object.__new__(Event) for _ in range(n_events)]
    for name, fill in _FILL.items():
        deque(map(fill, found, columns[name]), maxlen=0)
    return found


def _columns(events: Collection[Event]) -> dict[str, list[Any]]:
    """Return the columns of events that have any value, times as microseconds."""
    columns: dict[str, list[Any]] = {}
    for name in _FILL:
        values = [getattr(event, name) for event in events]
        if all(value is None for value in values):
            continue
        if name in _TIMES:
            values = [None if moment is None else (moment - _EPOCH) // _MICROSECOND for moment in values]
        columns[name] = values
    return columns


def _remembered(columns: dict[str, list[Any]], n_events: int) -> list[Event]:
    nothing = [None] * n_events
    whole = {name: columns.get(name, nothing) for name in _FILL}
    return _filled(whole | {name: _moments(whole[name]) for name in _TIMES}, n_events)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; times by way of their microseconds, or pyarrow would import pandas for them."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    return _moments([us for chunk in column.chunks for us in chunk.view(pa.int64()).to_pylist()])


def _moments(microseconds: Iterable[int | None]) -> list[datetime | None]:
    return [None if us is None else _EPOCH + timedelta(microseconds=us) for us in microseconds]


def _aligned(rows: pa.Table) -> pa.Table:
    """Return rows with all columns of today, those that an older file lacks as nulls."""
    import pyarrow as pa

    if rows.schema.names == EVENTS.schema.names:
        return rows.replace_schema_metadata(None)
    columns = [
        rows.column(f.name) if f.name in rows.schema.names else pa.nulls(len(rows), f.type) for f in EVENTS.schema
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS.schema)


def append(store: Store, events: Sequence[Event]) -> list[Event]:
    """Record events outside a longer pass; the caller holds the lock."""
    return EventLog(store).append(*events)


def _drop_covered(store: Store, merged: str) -> list[str]:
    """Drop the files that an old enough merged one covers; returns their paths."""
    now_s = store.clock.now().timestamp()
    if not os.path.exists(merged) or now_s - os.path.getmtime(merged) < COMPACT_GRACE.total_seconds():
        return []  # too young, or itself covered by one that was just looked at
    covered = [path for path in merged_paths(merged) if os.path.exists(path)]
    for path in covered:
        os.unlink(path)
    return covered
