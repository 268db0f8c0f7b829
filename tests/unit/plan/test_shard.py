"""Shards: every line once, in order, within every limit, and as few as filling them up gives."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import UsageError
from batchpond.plan.versions import Limits, cut, split, split_segments

sizes = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=60)
limits = st.builds(
    Limits, st.integers(1, 10), st.integers(60, 200), st.one_of(st.none(), st.integers(50, 200)), st.just(10)
)
groups = st.lists(st.tuples(st.sampled_from("abc"), sizes.filter(bool)), max_size=3, unique_by=lambda one: one[0])
Line = tuple[str, int, int]


def lines(pairs: list[tuple[int, int]], group: str = "a") -> pa.Table:
    """Return lines with the given sizes and tokens."""
    names, of_all = [f"{group}{number}" for number in range(len(pairs))], [group] * len(pairs)
    columns = {"request_id": pa.array(names, pa.string()), "group": pa.array(of_all, pa.string())}
    for place, name in enumerate(("size_bytes", "estimated_input_tokens")):
        columns[name] = pa.array([pair[place] for pair in pairs], pa.int32())
    return pa.table(columns)


def told(shard: pa.Table) -> list[Line]:
    """Return what cutting looks at of each line."""
    return [(row["request_id"], row["size_bytes"], row["estimated_input_tokens"]) for row in shard.to_pylist()]


def fits(shard: list[Line], limit: Limits) -> bool:
    """Return whether a shard keeps within its limits."""
    size_bytes = sum(line[1] + limit.line_overhead_bytes for line in shard)
    tokens = sum(line[2] for line in shard)
    return (
        len(shard) <= limit.max_requests
        and size_bytes <= limit.max_bytes
        and (limit.max_tokens is None or tokens <= limit.max_tokens)
    )


@given(sizes, limits)
def test_shards_are_full_and_within_limits(pairs: list[tuple[int, int]], limit: Limits) -> None:
    """Nothing is lost, reordered or empty, and no shard could have held the next line too."""
    given_lines = lines(pairs)
    shards = [told(shard) for shard in split(given_lines, limit)]
    assert [line for shard in shards for line in shard] == told(given_lines)
    assert all(shard and fits(shard, limit) for shard in shards)
    assert not any(fits([*shard, after[0]], limit) for shard, after in pairwise(shards))


@given(groups, limits, st.integers(1, 40), st.one_of(st.none(), st.integers(1, 8)))
def test_what_comes_in_parts_is_cut_as_if_it_came_at_once(
    found: list[tuple[str, list[tuple[int, int]]]], limit: Limits, n_rows: int, n_segments: int | None
) -> None:
    """Parts end where reading ends: a shard goes on through them, and ends with its group."""
    of_groups = [lines(pairs, group) for group, pairs in found]
    whole = pa.concat_tables([lines([]), *of_groups])
    parts = [whole.slice(start, n_rows) for start in range(0, len(whole), n_rows)]
    cuts = [split(one, limit) if n_segments is None else split_segments(one, n_segments, limit) for one in of_groups]
    wanted = [told(shard) for shards in cuts for shard in shards]
    assert [told(shard) for shard in cut(parts, lambda _: limit, n_segments)] == wanted


@given(sizes, limits, st.integers(1, 8))
def test_segments_are_equal_and_within_limits(pairs: list[tuple[int, int]], limit: Limits, n: int) -> None:
    """Segments keep order and limits; without binding limits there are n of them, remainder first."""
    given_lines = lines(pairs)
    shards = [told(shard) for shard in split_segments(given_lines, n, limit)]
    assert [line for shard in shards for line in shard] == told(given_lines)
    assert all(shard and fits(shard, limit) for shard in shards)
    wide = split_segments(given_lines, n, Limits(10**6, 10**9))
    assert [len(shard) for shard in wide] == [len(one) for one in np.array_split(range(len(pairs)), n) if len(one)]


@pytest.mark.parametrize(
    ("n_lines", "n", "expected"), [(5, 3, [2, 2, 1]), (5, 2, [3, 2]), (6, 3, [2, 2, 2]), (2, 3, [1, 1]), (0, 3, [])]
)
def test_the_remainder_comes_first(n_lines: int, n: int, expected: list[int]) -> None:
    """5 in 3 is 2, 2, 1; there are no empty segments."""
    shards = split_segments(lines([(1, 1)] * n_lines), n, Limits(10**6, 10**9))
    assert [len(shard) for shard in shards] == expected


def test_five_in_twos() -> None:
    """max_requests fills from the front: 2, 2, 1."""
    assert [len(shard) for shard in split(lines([(1, 1)] * 5), Limits(2, 10**6))] == [2, 2, 1]


def test_a_line_that_fits_nowhere_is_named() -> None:
    """Bytes with overhead, and tokens where the queue is limited; what stands before it is cut all the same."""
    with pytest.raises(UsageError, match="request a0 takes 101 bytes; one batch holds 100"):
        list(split(lines([(91, 0)]), Limits(10, 100, None, 10)))
    found = cut([lines([(1, 50), (1, 51)])], lambda _: Limits(10, 100, 50, 10))
    with pytest.raises(UsageError, match="request a1 takes about 51 input tokens"):
        list(found)


def test_groups_are_never_mixed() -> None:
    """One shard is one group, limits and segments are the group's own."""
    rows = pa.concat_tables([lines([(1, 1)] * 5, group) for group in "ab"])
    of_group = {"a": Limits(2, 10**6), "b": Limits(100, 10**6)}
    found = cut([rows], lambda rows: of_group[rows["group"][0].as_py()])
    assert [(shard["group"][0].as_py(), len(shard)) for shard in found] == [("a", 2), ("a", 2), ("a", 1), ("b", 5)]
    found = cut([rows.slice(0, 9)], lambda _: of_group["b"], 3)
    assert [(shard["group"].unique().to_pylist(), len(shard)) for shard in found] == [
        (["a"], 2), (["a"], 2), (["a"], 1), (["b"], 2), (["b"], 1), (["b"], 1),
    ]  # fmt: skip


def test_a_group_that_comes_back_is_a_defect() -> None:
    """Unsorted rows would give more shards than they should, so they are refused."""
    parts = [lines([(1, 1)], group) for group in "aba"]
    with pytest.raises(ValueError, match="not sorted by group"):
        list(cut(parts, lambda _: Limits(10, 10**6)))


def test_cutting_streams() -> None:
    """An endless stream of lines gives shards as they fill."""
    endless = (lines([(1, 1)]) for _ in iter(int, 1))
    assert [len(shard) for shard in islice(cut(endless, lambda _: Limits(3, 10**6)), 2)] == [3, 3]
