"""The log of events: one file per step, read in order, appended to under the lake's lock, compacted when they are many.

Facts (a status seen, an id acknowledged) are named by their content, so recording one again is
a no-op; occurrences (a plan, an approval, a negative listing) are named by their place in the
order as well. `ord` grows strictly whatever the wall clock does.

Facts of all kinds share the table's columns, so each column says one thing of whatever kind stands there: `state` what
it has come to in batchpond's words, `provider_status` the provider's own word, `reason` why, `detail` more of it in
words, `ordinal` the number in its series, `expires_at` when what it says ends by itself, be it an approval, a batch or
a provider's refusal, `boot_id` and `monotonic_s` a clock.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake import manifest
from batchpond.lake.attempts import Archive, parted
from batchpond.lake.disk import MERGED_KEY, MERGED_PREFIX, is_merged, read_rows, read_through, relative, standing
from batchpond.lake.records import KINDS, AdoptedShard, Event, Intent, OfAttempt, Rejected, Rounds, Seen, Sharded
from batchpond.lake.schemas import EVENTS
from batchpond.lake.store import Memo, Store, keep_memo, recall_memo
from batchpond.model import EPOCH, ShardKind

if TYPE_CHECKING:
    import pyarrow as pa

NAMES: Final = tuple(name for name, _ in EVENTS.columns)
# What neither tells one fact from another nor may change its id: clocks, and texts that come with it.
_CONTENT: Final = tuple(
    name for name in NAMES if name not in {"event_id", "ord", "occurred_at", "boot_id", "monotonic_s", "detail"}
)


def _row(event: Event) -> dict[str, Any]:
    """Return a fact by the table's columns, but for those that its kind does not have."""
    said: dict[str, Any] = msgspec.to_builtins(event, builtin_types=(datetime,))
    return said


def event_id(event: Event) -> str:
    """Return the id of a fact's content; an occurrence's place in the order is part of it."""
    row = _row(event)
    parts = [f"{name}={row[name]}" for name in _CONTENT if row.get(name) is not None]
    if event.is_occurrence:
        parts.append(f"ord={event.ord}")
    return ids.digest("event", *parts)


def to_columns(events: Sequence[Event]) -> dict[str, list[Any]]:
    """Return facts as the table's columns."""
    columns: dict[str, list[Any]] = {name: [None] * len(events) for name in NAMES}
    for at, event in enumerate(events):
        for name, value in _row(event).items():
            columns[name][at] = value
    return columns


def to_events(columns: dict[str, list[Any]]) -> list[Event]:
    """Return the table's columns as facts; raises LakeError for one that is not whole."""
    _move_old(columns)
    rows = zip(*(columns[name] for name in NAMES), strict=True)
    return [_event({name: value for name, value in zip(NAMES, row, strict=True) if value is not None}) for row in rows]


def _event(row: dict[str, Any]) -> Event:
    kind = row["kind"]
    if kind not in KINDS:
        raise LakeError(f"the lake holds events of the kind {kind!r}, which this version does not know")
    is_adopted = KINDS[kind] is Sharded and row.get("shard_kind") == ShardKind.ADOPTED
    record = AdoptedShard if is_adopted else KINDS[kind]
    try:
        return msgspec.convert(row, record)
    except msgspec.ValidationError as error:
        for field in msgspec.structs.fields(record):
            if field.required and field.encode_name not in row:
                text = f"an event of the kind {kind!r} in the lake lacks its {field.encode_name}"
                raise LakeError(text) from None
        column = str(error).rpartition("$.")[2].rstrip("`")
        text = f"the lake holds events whose {column} is {row[column]!r}, unknown to this version"
        raise LakeError(text) from None


def _move_old(columns: dict[str, list[Any]]) -> None:
    """Put what earlier versions kept under another column where it belongs, for as long as there are such files.

    They kept a refusal's class under `provider_status` and the seconds to wait after it under `monotonic_s`, and how
    many rows a round adds under `n_limit`.
    """
    state, expires_at, n_lines = columns["state"], columns["expires_at"], columns["n_lines"]
    for at, record in enumerate(map(KINDS.get, columns["kind"])):
        if record is Rejected and state[at] is None:
            state[at] = columns["provider_status"][at]
            if (wait_s := columns["monotonic_s"][at]) is not None:
                expires_at[at] = columns["occurred_at"][at] + timedelta(seconds=wait_s)
        elif record is Rounds and n_lines[at] is None:
            n_lines[at] = columns["n_limit"][at]


def in_order(ords: list[int], event_ids: list[str]) -> list[int]:
    """Return the places of rows in the order of their facts, each fact once."""
    first: dict[str, int] = {}
    for _, name, at in sorted(zip(ords, event_ids, range(len(ords)), strict=True)):
        first.setdefault(name, at)
    return list(first.values())


COMPACT_ABOVE_FILES = 64
_WON: Final = "sent-"
WON_KEPT_S: Final = 86_400
MEMO = ".events"
_MICROSECOND = timedelta(microseconds=1)
_TIMES: Final = frozenset(name for name, kind in EVENTS.columns if kind == "timestamp")
_LAYOUT: Final = hashlib.sha256(repr((Archive.__dataclass_fields__.keys(), EVENTS.columns)).encode()).hexdigest()


def won_name(attempt_id: str, n_sends: int) -> str:
    """Return the name that one process alone can win: to send an attempt for the n-th time, or to give that up."""
    return f"{_WON}{attempt_id}-{n_sends}"


class EventLog:
    """The lake's events in order, and the way to add to them. Hold the lake's lock to append.

    `recent` are those of all that is not archived, and `archive` is what is told of the others, until somebody asks
    for all `events`; `last_ord` is the place of the last.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.last_ord = 0
        self.archive = Archive()
        self._written: dict[str, Sequence[Event]] = {}
        self._waiting: list[Event] = []
        self._paths = store.published(EVENTS.name)
        kept = recall_memo(store, MEMO, _LAYOUT)
        new = [] if kept is None else sorted({*self._paths} - {f"{store.path}/{name}" for name in kept.names})
        if new or kept is None:
            manifest.require(store, [EVENTS.name])
        if kept is None or any(map(is_merged, new)):
            self._held, self._is_kept = standing(self._paths), False
            self._take(_read([Path(path) for path in self._held]))
        else:
            self._held = [*(f"{store.path}/{name}" for name in kept.held), *new]
            self.archive = msgspec.convert(kept.content.get("archive") or {}, Archive)
            remembered = _recalled(kept.content["columns"], kept.content["n_events"])
            self._take(_put_together(remembered, _read([Path(path) for path in new])) if new else remembered)
            self._is_kept = not new
            self._read_all_for(event for event in self.recent if isinstance(event, OfAttempt))

    @property
    def is_whole(self) -> bool:
        """Whether `recent` are all events."""
        return not self.archive.n_attempts

    @property
    def events(self) -> list[Event]:
        """All events; reads those that are archived."""
        self.read_all()
        return self.recent

    def read_all(self) -> None:
        """Read the events that are archived, if any are."""
        if not self.is_whole:
            self._take(_put_together(read(self._store), self.recent))
            self.archive = Archive()

    def _read_all_for(self, events: Iterable[Event]) -> None:
        """Read all events where one of these is about an archived attempt, or may be among the archived ones."""
        for event in events:
            is_foreign = isinstance(event, OfAttempt) and event.attempt_id not in self._attempt_ids
            if is_foreign or isinstance(event, Sharded | Intent):
                return self.read_all()

    def keep(self) -> None:
        """Keep the events as they are now for the next pass to read in one go; the lake's lock is held.

        Only of the files that this log read or wrote: what another process published meanwhile is read anew.
        """
        if self._is_kept:
            return
        unique = list({event.event_id: event for event in self.recent}.values())
        recent, archive = parted(unique, dataclasses.replace(self.archive, last_ord=self.last_ord))
        told = msgspec.to_builtins(archive, order="sorted")
        content = {"columns": _remembered(recent), "n_events": len(recent), "archive": told}
        held = relative(self._store.path, self._held)
        keep_memo(self._store, MEMO, Memo(_LAYOUT, held, relative(self._store.path, self._paths), content))
        self._is_kept = True

    def append(self, *events: Event, is_urgent: bool = True) -> list[Event]:
        """Record the events that are new, as one file; return those.

        What is not urgent is on record with the next that is: until then a process that dies takes it along.
        """
        self._read_all_for(events)
        stamped = [event for event in map(self._stamp, events) if event.event_id not in self._known]
        self._know(stamped)
        self._waiting += stamped
        if self._waiting and is_urgent:
            name = "e-" + ids.digest("event file", *sorted(event.event_id for event in self._waiting))
            self._publish(name, self._waiting)
            self._waiting = []
        return stamped

    def append_as(self, name: str, event: Event) -> bool:
        """Record one event, and what waits, under a name that only one process can win; False when it was taken."""
        stamped = self._stamp(event)
        if not self._publish(name, [*self._waiting, stamped]):
            return False
        self._know([stamped])
        self._waiting = []
        return True

    def _stamp(self, event: Event) -> Event:
        clock, now = self._store.clock, self._store.clock.now()
        self.last_ord = max(self.last_ord + 1, int(now.timestamp() * 1_000_000))
        stamped = replace(event, ord=self.last_ord, occurred_at=now)
        if isinstance(stamped, Seen):
            stamped = replace(stamped, boot_id=clock.boot_id(), monotonic_s=clock.monotonic_s())
        return replace(stamped, event_id=event_id(stamped))

    def _publish(self, name: str, events: Sequence[Event]) -> bool:
        is_new = self._store.publish(EVENTS, name, _rows(events))
        if is_new:
            path = os.fspath(self._store.final_path(EVENTS, name))
            self._paths.append(path)
            self._held.append(path)
            self._written[path] = events
            self._is_kept = False
        return is_new

    def compact(self, show: Callable[[], object]) -> bool:
        """Merge many small files into one and drop what it holds, a killed pass's too; returns whether it dropped any.

        In between, `show` has readers see the merged file in the place of the others: each row stands once, but for
        that moment.
        """
        self.append()
        if sum(map(self._is_small, self._held)) > COMPACT_ABOVE_FILES:
            self._merge()
        covered = sorted({*self._paths} - {*self._held})
        if not covered:
            return False
        show()
        for path in filter(is_merged, self._held):
            read_through(Path(path))  # it is about to be the only copy
        for path in covered:
            self._store.drop(Path(path))
        self._paths, self._is_kept = sorted(self._held), False
        return True

    def _merge(self) -> None:
        """Merge what is published by now, and nothing that is published later: the merged file names what it holds.

        An earlier merged file is merged again only once as much has come since: a row is written again as often as
        the log has doubled. Rows are those of the files, to the letter: what an earlier version wrote stays so.
        """
        published = self._store.published(EVENTS.name)
        stood = standing(published)
        parts = list(filter(self._is_small, stood))
        size = sum(map(os.path.getsize, parts))
        for path in sorted(filter(is_merged, stood), key=os.path.getsize):
            if os.path.getsize(path) <= size:
                parts.append(path)
                size += os.path.getsize(path)
        own = [event for path in parts for event in self._written.get(path, ())]
        rows = _rows_of([Path(path) for path in parts if path not in self._written], _rows(own))
        unread = [Path(path) for path in sorted({*stood} - {*self._held})]
        if unread:
            found = _read(unread)
            self._take(_put_together(self.recent, found))
            self._read_all_for(event for event in found if isinstance(event, OfAttempt))
        name = MERGED_PREFIX + ids.digest("event file", *sorted(rows.column("event_id").to_pylist()))
        final = os.fspath(self._store.final_path(EVENTS, name))
        self._held = sorted(({*stood} - {*parts}) | {final})
        names = [os.path.basename(path) for path in published if path not in self._held]
        self._store.publish(EVENTS, name, rows, {MERGED_KEY: json.dumps(names)})
        self._paths, self._is_kept = sorted({*published, final}), False

    def _is_small(self, path: str) -> bool:
        """Whether a file is to be merged; where machines share no lock not yet one whose name was won within a day.

        A machine that slept might win it again.
        """
        if is_merged(path) or not (self._store.mirror and os.path.basename(path).startswith(_WON)):
            return not is_merged(path)
        return self._store.clock.now().timestamp() - os.path.getmtime(path) > WON_KEPT_S

    def _take(self, found: list[Event]) -> None:
        self.recent: list[Event] = []
        self._known: set[str] = set()
        self._attempt_ids: set[str] = set()
        self._know(found)
        self.last_ord = max([self.archive.last_ord, *(event.ord for event in found)])

    def _know(self, events: Collection[Event]) -> None:
        self.recent.extend(events)
        self._known.update(event.event_id for event in events)
        self._attempt_ids.update(event.attempt_id for event in events if isinstance(event, Intent))


def _put_together(*parts: Iterable[Event]) -> list[Event]:
    found = [event for part in parts for event in part]
    return [found[at] for at in in_order([event.ord for event in found], [event.event_id for event in found])]


def _rows(events: Sequence[Event]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pydict(to_columns(events), EVENTS.schema)


def read(store: Store) -> list[Event]:
    """Return all events in order, each once; raises LakeError that names an unreadable file."""
    paths = store.files(EVENTS.name)
    try:
        return _read(paths)
    except LakeError:
        if all(path.exists() for path in paths):
            raise
        return _read(store.files(EVENTS.name))  # a writer merged them just now


def _read(paths: Sequence[Path]) -> list[Event]:
    rows = _rows_of(paths) if paths else None
    return [] if rows is None else to_events({name: _values(rows.column(name)) for name in NAMES})


def _rows_of(paths: Iterable[Path], *tables: pa.Table) -> pa.Table:
    import pyarrow as pa

    found = list(tables)
    for path in paths:
        try:
            found.append(EVENTS.completed(read_rows(path)))
        except (LakeError, OSError) as error:
            raise LakeError(
                f"{path} cannot be read: {str(error).removeprefix(f'{path}: ')}",
                hint="restore the file from a backup; until then nothing is sent or downloaded",
            ) from None
    rows = pa.concat_tables(found)
    order = in_order(rows.column("ord").to_pylist(), rows.column("event_id").to_pylist())
    return rows if order == list(range(len(rows))) else rows.take(order)


def _remembered(events: Sequence[Event]) -> dict[str, list[Any]]:
    """Return the columns of events that have any value, times as microseconds."""
    found = {name: values for name, values in to_columns(events).items() if set(values) != {None}}
    for name in _TIMES & found.keys():
        found[name] = [None if moment is None else (moment - EPOCH) // _MICROSECOND for moment in found[name]]
    return found


def _recalled(kept: dict[str, list[Any]], n_events: int) -> list[Event]:
    whole = {name: kept.get(name) or [None] * n_events for name in NAMES}
    return to_events(whole | {name: _moments(whole[name]) for name in _TIMES})


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; times by way of their microseconds, or pyarrow would import pandas for them."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    return _moments([us for chunk in column.chunks for us in chunk.view(pa.int64()).to_pylist()])


def _moments(microseconds: Iterable[int | None]) -> list[datetime | None]:
    return [None if us is None else EPOCH + timedelta(microseconds=us) for us in microseconds]
