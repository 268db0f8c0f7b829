"""Shards: every line once, in order, within every limit, and as few as filling them up gives."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import UsageError
from batchpond.plan.versions import Limits, Line, cut, segment_sizes, split, split_segments

sizes = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60)
limits = st.builds(
    Limits, st.integers(1, 10), st.integers(60, 200), st.one_of(st.none(), st.integers(50, 200)), st.just(10)
)


def lines(pairs: list[tuple[int, int]]) -> list[Line]:
    """Return lines with the given sizes and tokens."""
    return [Line(f"r{number}", *pair) for number, pair in enumerate(pairs)]


def fits(shard: list[Line], limit: Limits) -> bool:
    """Return whether a shard keeps within its limits."""
    size_bytes = sum(line.size_bytes + limit.line_overhead_bytes for line in shard)
    tokens = sum(line.estimated_input_tokens for line in shard)
    return (
        len(shard) <= limit.max_requests
        and size_bytes <= limit.max_bytes
        and (limit.max_tokens is None or tokens <= limit.max_tokens)
    )


@given(sizes, limits)
def test_shards_are_full_and_within_limits(pairs: list[tuple[int, int]], limit: Limits) -> None:
    """Nothing is lost, reordered or empty, and no shard could have held the next line too."""
    given_lines = lines(pairs)
    shards = list(split(given_lines, limit))
    assert [line for shard in shards for line in shard] == given_lines
    assert all(shard and fits(shard, limit) for shard in shards)
    assert not any(fits([*shard, after[0]], limit) for shard, after in pairwise(shards))


@given(sizes, limits, st.integers(1, 8))
def test_segments_are_equal_and_within_limits(pairs: list[tuple[int, int]], limit: Limits, n: int) -> None:
    """Segments keep order and limits; without binding limits there are n of them, remainder first."""
    given_lines = lines(pairs)
    shards = list(split_segments(given_lines, len(given_lines), n, limit))
    assert [line for shard in shards for line in shard] == given_lines
    assert all(shard and fits(shard, limit) for shard in shards)
    wide = list(split_segments(given_lines, len(given_lines), n, Limits(10**6, 10**9)))
    assert [len(shard) for shard in wide] == segment_sizes(len(given_lines), n)


@pytest.mark.parametrize(
    ("n_lines", "n", "expected"), [(5, 3, [2, 2, 1]), (5, 2, [3, 2]), (6, 3, [2, 2, 2]), (2, 3, [1, 1]), (0, 3, [])]
)
def test_the_remainder_comes_first(n_lines: int, n: int, expected: list[int]) -> None:
    """5 in 3 is 2, 2, 1; there are no empty segments."""
    assert segment_sizes(n_lines, n) == expected


def test_five_in_twos() -> None:
    """max_requests fills from the front: 2, 2, 1."""
    assert [len(shard) for shard in split(lines([(1, 1)] * 5), Limits(2, 10**6))] == [2, 2, 1]


def test_a_line_that_fits_nowhere_is_named() -> None:
    """Bytes with overhead, and tokens where the queue is limited."""
    with pytest.raises(UsageError, match="request r0 takes 101 bytes; one batch holds 100"):
        list(split(lines([(91, 0)]), Limits(10, 100, None, 10)))
    with pytest.raises(UsageError, match="request r1 takes about 51 input tokens"):
        list(split(lines([(1, 50), (1, 51)]), Limits(10, 100, 50, 10)))


class Row(NamedTuple):
    """A line in a group."""

    group: str
    n_in_group: int = 5
    request_id: str = "r"
    size_bytes: int = 1
    estimated_input_tokens: int = 1


def test_groups_are_never_mixed() -> None:
    """One shard is one group, limits and segments are the group's own."""
    rows = [Row("ab"[number // 5]) for number in range(10)]
    small, large = Limits(2, 10**6), Limits(100, 10**6)
    found = [(shard[0].group, len(shard)) for shard in cut(rows, lambda row: {"a": small, "b": large}[row.group])]
    assert found == [("a", 2), ("a", 2), ("a", 1), ("b", 5)]
    rows = [row._replace(n_in_group=4) if row.group == "b" else row for row in rows[:9]]
    found = [(shard[0].group, len(shard)) for shard in cut(rows, lambda _: large, 3)]
    assert found == [("a", 2), ("a", 2), ("a", 1), ("b", 2), ("b", 1), ("b", 1)]
    assert all(len({row.group for row in shard}) == 1 for shard in cut(rows, lambda _: large, 3))


def test_a_group_that_comes_back_is_a_defect() -> None:
    """Unsorted rows would give more shards than they should, so they are refused."""
    rows = [Row(group) for group in "aba"]
    with pytest.raises(ValueError, match="not sorted by group"):
        list(cut(rows, lambda _: Limits(10, 10**6)))


def test_splitting_streams() -> None:
    """An endless stream of lines gives shards as they fill."""
    endless = (Line(f"r{number}", 1, 1) for number in iter(int, 1))
    assert [len(shard) for shard in islice(split(endless, Limits(3, 10**6)), 2)] == [3, 3]
