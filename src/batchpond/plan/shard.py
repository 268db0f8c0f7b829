"""Cutting requests into shards: one provider batch each, within limits on count, bytes and tokens.

Pure and streaming: rows come in, lists go out, and no more than one shard is held. The same rows and
limits give the same shards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from batchpond.errors import UsageError

# {"custom_id":"...31...","method":"POST","url":"/v1/chat/completions","body":} and a line feed, with room.
LINE_OVERHEAD_BYTES: Final = 256
OWN_REQUESTS_MAX: Final = 50_000
OWN_BYTES_MAX: Final = 1 << 30


class Line(NamedTuple):
    """What splitting needs to know of a request."""

    request_id: str
    size_bytes: int
    estimated_input_tokens: int


class Sized(Protocol):
    """Any row that knows the size of its request."""

    @property
    def request_id(self) -> str:
        """The request."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of its body."""
        ...

    @property
    def estimated_input_tokens(self) -> int:
        """Its share of the provider's queue."""
        ...


SizedRow = TypeVar("SizedRow", bound=Sized)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one shard may hold; `line_overhead_bytes` is added to each body."""

    max_requests: int
    max_bytes: int
    max_tokens: int | None = None
    line_overhead_bytes: int = LINE_OVERHEAD_BYTES


def own_limits(max_requests: int | None) -> Limits:
    """Return the limits of what no provider's queue holds: live calls and files."""
    return Limits(min(max_requests or OWN_REQUESTS_MAX, OWN_REQUESTS_MAX), OWN_BYTES_MAX)


def split(lines: Iterable[SizedRow], limits: Limits) -> Iterator[list[SizedRow]]:
    """Yield shards, each as full as the limits allow, in the order of the lines.

    Raises UsageError for a single line that no shard can hold.
    """
    shard: list[SizedRow] = []
    n_bytes = n_tokens = 0
    for line in lines:
        line_bytes = line.size_bytes + limits.line_overhead_bytes
        check_line(line, limits)
        is_full = (
            len(shard) >= limits.max_requests
            or n_bytes + line_bytes > limits.max_bytes
            or (limits.max_tokens is not None and n_tokens + line.estimated_input_tokens > limits.max_tokens)
        )
        if shard and is_full:
            yield shard
            shard, n_bytes, n_tokens = [], 0, 0
        shard.append(line)
        n_bytes += line_bytes
        n_tokens += line.estimated_input_tokens
    if shard:
        yield shard


def check_line(line: Sized, limits: Limits) -> None:
    """Raise UsageError when no shard can hold a line."""
    line_bytes = line.size_bytes + limits.line_overhead_bytes
    if line_bytes > limits.max_bytes:
        raise UsageError(
            f"request {line.request_id} takes {line_bytes:,} bytes; one batch holds {limits.max_bytes:,}",
            hint="shorten the longest items",
        )
    if limits.max_tokens is not None and line.estimated_input_tokens > limits.max_tokens:
        raise UsageError(
            f"request {line.request_id} takes about {line.estimated_input_tokens:,} input tokens; "
            f"the provider's queue holds {limits.max_tokens:,}",
            hint="shorten the longest items, or correct the limit in the lake's config.toml",
        )


def segment_sizes(n_lines: int, n_segments: int) -> list[int]:
    """Return the sizes of equal segments, the remainder first: 5 in 3 gives 2, 2, 1."""
    size, rest = divmod(n_lines, n_segments)
    return [size + 1] * rest + [size] * (n_segments - rest if size else 0)


def split_segments(
    lines: Iterable[SizedRow], n_lines: int, n_segments: int, limits: Limits
) -> Iterator[list[SizedRow]]:
    """Yield `n_segments` shards of equal size; one that breaks a limit is split further."""
    rest = iter(lines)
    for size in segment_sizes(n_lines, n_segments):
        yield from split(islice(rest, size), limits)


GroupT = TypeVar("GroupT", bound=Hashable)


class GroupedLine(NamedTuple, Generic[GroupT]):
    """A line with what all lines of its shard must share."""

    group: GroupT
    line: Line


def split_groups(
    rows: Iterable[GroupedLine[GroupT]],
    limits_of: Mapping[GroupT, Limits],
    segments_of: Mapping[GroupT, tuple[int, int]] | None = None,
) -> Iterator[tuple[GroupT, list[Line]]]:
    """Yield (group, shard) for rows that come group by group; no shard spans two groups.

    A group is (provider, endpoint, model), with the cell where shards are wanted per cell.
    `segments_of` gives a group's number of lines and of segments. Raises ValueError when a group comes back.
    """
    done: set[GroupT] = set()
    for group, members in groupby(rows, key=lambda row: row.group):
        if group in done:
            raise ValueError(f"rows are not sorted by group: {group!r} comes back")
        done.add(group)
        lines = (row.line for row in members)
        limits = limits_of[group]
        shards = split(lines, limits) if segments_of is None else split_segments(lines, *segments_of[group], limits)
        for shard in shards:
            yield group, shard
