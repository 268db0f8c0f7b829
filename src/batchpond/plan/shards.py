"""How requests are cut into shards: in their order, within every limit, and as few as filling them up gives.

What is cut are tables of Arrow, a row per request, with its `request_id`, `size_bytes` of the body,
`estimated_input_tokens`, and `group`: the text that all rows of a shard share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchpond.errors import UsageError
from batchpond.model import Mode
from batchpond.providers.base import Descriptor

# {"custom_id":"...31...","method":"POST","url":"/v1/chat/completions","body":} and a line feed, with room.
LINE_OVERHEAD_BYTES: Final = 256
OWN_REQUESTS_MAX: Final = 50_000
OWN_BYTES_MAX: Final = 1 << 30


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


def split(rows: pa.Table, limits: Limits) -> Iterator[pa.Table]:
    """Yield shards, each as full as the limits allow, in the order of the rows.

    Raises UsageError for a single row that no shard can hold.
    """
    sizes, tokens = (np.asarray(rows[name], np.int64) for name in ("size_bytes", "estimated_input_tokens"))
    totals = [(np.cumsum(sizes + limits.line_overhead_bytes), limits.max_bytes)]
    totals += [] if limits.max_tokens is None else [(np.cumsum(tokens), limits.max_tokens)]
    start = 0
    while start < len(rows):
        ends = [int(total.searchsorted(most + (total[start - 1] if start else 0), "right")) for total, most in totals]
        stop = min(start + limits.max_requests, len(rows), *ends)
        if stop == start:
            check_line(rows["request_id"][start].as_py(), int(sizes[start]), int(tokens[start]), limits)
        yield rows.slice(start, stop - start)
        start = stop


def check_line(request_id: str, size_bytes: int, estimated_input_tokens: int, limits: Limits) -> None:
    """Raise UsageError when no shard can hold a request."""
    line_bytes = size_bytes + limits.line_overhead_bytes
    if line_bytes > limits.max_bytes:
        raise UsageError(
            f"request {request_id} takes {line_bytes:,} bytes; one batch holds {limits.max_bytes:,}",
            hint="shorten the longest items",
        )
    if limits.max_tokens is not None and estimated_input_tokens > limits.max_tokens:
        raise UsageError(
            f"request {request_id} takes about {estimated_input_tokens:,} input tokens; "
            f"the provider's queue holds {limits.max_tokens:,}",
            hint="shorten the longest items, or correct the limit in the lake's config.toml",
        )


def segment_sizes(n_lines: int, n_segments: int) -> list[int]:
    """Return the sizes of equal segments, the remainder first: 5 in 3 gives 2, 2, 1."""
    size, rest = divmod(n_lines, n_segments)
    return [size + 1] * rest + [size] * (n_segments - rest if size else 0)


def split_segments(rows: pa.Table, n_segments: int, limits: Limits) -> Iterator[pa.Table]:
    """Yield `n_segments` shards of equal size; one that breaks a limit is split further."""
    start = 0
    for size in segment_sizes(len(rows), n_segments):
        yield from split(rows.slice(start, size), limits)
        start += size


def cut(
    parts: Iterable[pa.Table], limits: Callable[[pa.Table], Limits], n_segments: int | None = None
) -> Iterator[pa.Table]:
    """Yield the shards of rows that come in parts, group by group; no shard spans two groups.

    `limits` gives those of a group by rows of it. No more is held than a part and a shard or, for segments, a group.
    Raises ValueError when a group comes back.
    """
    done, held, own, last = set[str](), list[pa.Table](), Limits(0, 0), None
    for rows in (run for part in parts for run in _runs(part)):
        group = rows["group"][0].as_py()
        if group != last:
            yield from _rest(held, own, n_segments)
            if group in done:
                raise ValueError(f"rows are not sorted by group: {group!r} comes back")
            done.add(group)
            held, own, last = [], limits(rows), group
        held.append(rows)
        if n_segments is None:  # all but the last shard are full
            shards = split(pa.concat_tables(held), own)
            held = [next(shards)]
            for shard in shards:
                yield held.pop()
                held.append(shard)
    yield from _rest(held, own, n_segments)


def _rest(held: list[pa.Table], limits: Limits, n_segments: int | None) -> Iterable[pa.Table]:
    return held if n_segments is None or not held else split_segments(pa.concat_tables(held), n_segments, limits)


def _runs(part: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each group of a part."""
    start = 0
    for stop in pc.run_end_encode(part["group"].combine_chunks()).run_ends.to_pylist() if len(part) else ():
        yield part.slice(start, stop - start)
        start = stop
