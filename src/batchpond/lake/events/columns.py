"""Which column of the events table holds which field of a fact, and the id that a fact's content gives it.

Facts of all kinds share the columns, so each column says one thing of whatever kind stands there: `state` what it has
come to in batchpond's words, `provider_status` the provider's own word, `reason` why, `detail` more of it in words,
`ordinal` the number in its series, `expires_at` when what it says ends by itself, be it an approval, a batch or a
provider's refusal, `boot_id` and `monotonic_s` a clock.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake.events import records
from batchpond.lake.events.records import KINDS, AdoptedShard, Event, Rejected, Resolution, Rounds
from batchpond.lake.schemas import EVENTS
from batchpond.model import BatchState, ErrorClass, FileRole, Mode, Origin, ShardKind

NAMES: Final = tuple(name for name, _ in EVENTS.columns)
_RENAMED: Final[Mapping[type[Event], Mapping[str, str]]] = {
    Rounds: {"round_no": "ordinal", "progress": "state", "looked": "detail", "stage": "reason", "n_new": "n_lines"},
    records.Asked: {"cells": "detail"},
    records.Intent: {"newest_batch_at": "provider_created_at"},
    Rejected: {"error_class": "state", "error_code": "reason", "message": "detail", "retry_at": "expires_at"},
    records.Listed: {"evidence": "detail"},
    records.Absent: {"evidence": "detail"},
    records.Seen: {"error_code": "reason"},
    records.Resolved: {"resolution": "reason"},
}
_WORDS: Final[Mapping[str, type[StrEnum]]] = {
    "shard_kind": ShardKind, "mode": Mode, "origin": Origin, "file_role": FileRole, "state": BatchState,
    "error_class": ErrorClass, "resolution": Resolution,
}  # fmt: skip
# What neither tells one fact from another nor may change its id: clocks, and texts that come with it.
_CONTENT: Final = tuple(
    name for name in NAMES if name not in {"event_id", "ord", "occurred_at", "boot_id", "monotonic_s", "detail"}
)


class _Field(NamedTuple):
    """A field of a kind: where it is kept, how it is set, and what an empty cell stands for."""

    name: str
    column: str
    fill: Callable[[Event, Any], None]
    default: Any
    words: Mapping[str, StrEnum] | None


def _layout(record: type[Event]) -> tuple[_Field, ...]:
    renamed = {name: column for base in record.__mro__ for name, column in _RENAMED.get(base, {}).items()}
    return tuple(
        _Field(
            field.name,
            renamed.get(field.name, field.name),
            getattr(record, field.name).__set__,
            field.default,
            {str(word): word for word in _WORDS[field.name]} if field.name in _WORDS else None,
        )
        for field in dataclasses.fields(record)
    )


_FIELDS: Final = {record: _layout(record) for record in (*KINDS.values(), AdoptedShard)}


def event_id(event: Event) -> str:
    """Return the id of a fact's content; an occurrence's place in the order is part of it."""
    row = {field.column: getattr(event, field.name) for field in _FIELDS[type(event)]} | {"kind": event.kind}
    parts = [f"{name}={row[name]}" for name in _CONTENT if row.get(name) is not None]
    if event.is_occurrence:
        parts.append(f"ord={event.ord}")
    return ids.digest("event", *parts)


def to_columns(events: Sequence[Event]) -> dict[str, list[Any]]:
    """Return facts as the table's columns."""
    columns: dict[str, list[Any]] = {name: [None] * len(events) for name in NAMES}
    for at, event in enumerate(events):
        columns["kind"][at] = event.kind
        for field in _FIELDS[type(event)]:
            columns[field.column][at] = getattr(event, field.name)
    return columns


def to_events(columns: dict[str, list[Any]]) -> list[Event]:
    """Return the table's columns as facts; raises LakeError for one that is not whole."""
    _move_old(columns)
    places: dict[type[Event], list[int]] = {}
    for at, (kind, shard_kind) in enumerate(zip(columns["kind"], columns["shard_kind"], strict=True)):
        places.setdefault(_record(kind, shard_kind), []).append(at)
    found = dict[int, Event]()
    for record, rows in places.items():
        found.update(zip(rows, _filled(record, columns, rows), strict=True))
    return [found[at] for at in range(len(found))]


def _record(kind: str, shard_kind: str | None) -> type[Event]:
    if kind not in KINDS:
        raise LakeError(f"the lake holds events of the kind {kind!r}, which this version does not know")
    return AdoptedShard if (kind, shard_kind) == (AdoptedShard.kind, ShardKind.ADOPTED) else KINDS[kind]


def _filled(record: type[Event], columns: Mapping[str, list[Any]], rows: list[int]) -> list[Event]:
    """Return the facts of one kind that stand in these rows.

    Filled field by field through the slots: calling the class row by row takes ten times as long, and every pass
    reads all events.
    """
    facts = [object.__new__(record) for _ in rows]
    for field in _FIELDS[record]:
        values = [columns[field.column][at] for at in rows]
        if field.default is dataclasses.MISSING and None in values:
            raise LakeError(f"an event of the kind {record.kind!r} in the lake lacks its {field.column}")
        deque(map(field.fill, facts, _told(field, values)), maxlen=0)
    return facts


def _told(field: _Field, values: list[Any]) -> list[Any]:
    """Return a field's values from a column's, each word as what it means and the default where there is none."""
    words, default = field.words, field.default
    try:
        return [default if value is None else words[value] if words else value for value in values]
    except KeyError as error:
        raise LakeError(f"the lake holds events whose {field.column} is {error}, unknown to this version") from None


def _move_old(columns: dict[str, list[Any]]) -> None:
    """Put what earlier versions kept under another column where it belongs, for as long as there are such files.

    They kept a refusal's class under `provider_status` and the seconds to wait after it under `monotonic_s`, and how
    many rows a round adds under `n_limit`.
    """
    state, expires_at, n_lines = columns["state"], columns["expires_at"], columns["n_lines"]
    for at, kind in enumerate(columns["kind"]):
        if kind == Rejected.kind and state[at] is None:
            state[at] = columns["provider_status"][at]
            expires_at[at] = _after(columns["occurred_at"][at], columns["monotonic_s"][at])
        elif kind == Rounds.kind and n_lines[at] is None:
            n_lines[at] = columns["n_limit"][at]


def _after(moment: datetime, wait_s: float | None) -> datetime | None:
    return None if wait_s is None else moment + timedelta(seconds=wait_s)


def in_order(ords: list[int], event_ids: list[str]) -> list[int]:
    """Return the places of rows in the order of their facts, each fact once."""
    first: dict[str, int] = {}
    for _, name, at in sorted(zip(ords, event_ids, range(len(ords)), strict=True)):
        first.setdefault(name, at)
    return list(first.values())
