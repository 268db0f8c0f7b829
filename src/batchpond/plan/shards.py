"""Cutting requests into shards: one provider batch each, within limits on count, bytes and tokens, by tier."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from batchpond.errors import UsageError
from batchpond.model import Mode
from batchpond.providers.base import Descriptor

FIRST: Final = 1  # the tier of what has none

# {"custom_id":"...31...","method":"POST","url":"/v1/chat/completions","body":} and a line feed, with room.
LINE_OVERHEAD_BYTES: Final = 256
OWN_REQUESTS_MAX: Final = 50_000
OWN_BYTES_MAX: Final = 1 << 30


class Line(NamedTuple):
    """What splitting needs to know of a request."""

    request_id: str
    size_bytes: int
    estimated_input_tokens: int
    group: Hashable = None
    n_in_group: int = 1


class Row(Protocol):
    """Any row that says as much as a `Line`: of which request, how large, and what all rows of its shard must share."""

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

    @property
    def group(self) -> Hashable:
        """Tier, provider, endpoint, model and mode, and the cell where shards are wanted per cell."""
        ...

    @property
    def n_in_group(self) -> int:
        """How many rows there are of its group."""
        ...


AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one shard may hold; `line_overhead_bytes` is added to each body."""

    max_requests: int
    max_bytes: int
    max_tokens: int | None = None
    line_overhead_bytes: int = LINE_OVERHEAD_BYTES


def limits_of(
    provider: Descriptor, mode: Mode, max_requests: int | None = None, max_tokens: int | None = None
) -> Limits:
    """Return the limits of a provider's shards, and the study's where it is stricter.

    No provider's queue holds live calls and files, so that only our own limits bind them.
    """
    if mode is not Mode.BATCH:
        return Limits(min(max_requests or OWN_REQUESTS_MAX, OWN_REQUESTS_MAX), OWN_BYTES_MAX)
    n_requests = min(max_requests or provider.max_requests, provider.max_requests)
    return Limits(n_requests, provider.max_bytes, max_tokens)


def split(lines: Iterable[AnyRow], limits: Limits) -> Iterator[list[AnyRow]]:
    """Yield shards, each as full as the limits allow, in the order of the lines.

    Raises UsageError for a single line that no shard can hold.
    """
    shard: list[AnyRow] = []
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


def check_line(line: Row, limits: Limits) -> None:
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


def split_segments(lines: Iterable[AnyRow], n_lines: int, n_segments: int, limits: Limits) -> Iterator[list[AnyRow]]:
    """Yield `n_segments` shards of equal size; one that breaks a limit is split further."""
    rest = iter(lines)
    for size in segment_sizes(n_lines, n_segments):
        yield from split(islice(rest, size), limits)


def cut(
    rows: Iterable[AnyRow], limits: Callable[[AnyRow], Limits], n_segments: int | None = None
) -> Iterator[list[AnyRow]]:
    """Yield the shards of rows that come group by group; no shard spans two groups.

    `limits` gives those of a group by its first row. Raises ValueError when a group comes back.
    """
    done: set[Hashable] = set()
    for group, members in groupby(rows, key=attrgetter("group")):
        if group in done:
            raise ValueError(f"rows are not sorted by group: {group!r} comes back")
        done.add(group)
        first = next(members)
        own, lines = limits(first), chain((first,), members)  # noqa: B031 (one pass over both)
        yield from split(lines, own) if n_segments is None else split_segments(lines, first.n_in_group, n_segments, own)
