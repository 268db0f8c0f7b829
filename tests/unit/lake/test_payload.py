"""A payload is its shard's lines, and costs no more reading than the row groups that hold them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake import jsonl
from batchpond.lake.schemas import REQUESTS
from batchpond.lake.store import Store

N_GROUPS, N_EACH = 5, 40
REQUEST_IDS = [[ids.digest("request", group, row) for row in range(N_EACH)] for group in range(N_GROUPS)]


def written(folder: Path) -> Path:
    """Write a file of requests in several row groups."""
    store = Store.init(folder / "lake")
    empty = dict.fromkeys(REQUESTS.schema.names)
    with store.staging(REQUESTS) as staged:
        for group in REQUEST_IDS:
            staged.write([empty | {"request_id": name, "body": f"body of {name}"} for name in group])
    store.publish_file(REQUESTS, "one", staged.path)
    return store.final_path(REQUESTS, "one")


def spoil(path: Path, group: int, *columns: str) -> None:
    """Write over some columns of a row group: whoever reads them cannot."""
    metadata = pq.read_metadata(path).row_group(group)
    data = bytearray(path.read_bytes())
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        if column.path_in_schema in columns:
            start = column.data_page_offset
            data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.chmod(0o600)
    path.write_bytes(data)


def read(path: Path, request_ids: list[str]) -> list[tuple[str, bytes]]:
    """Return a shard's lines."""
    return list(jsonl.bodies(jsonl.ShardLines(request_ids, [path], [None] * len(request_ids))))


@pytest.mark.parametrize("hit", [(0,), (2,), (1, 3), (4,), (0, 4)], ids=str)
def test_bodies_are_read_of_the_row_groups_that_are_hit_and_of_no_other(tmp_path: Path, hit: tuple[int, ...]) -> None:
    """Of the others not one body is read, nor anything of those that come after the last request was found."""
    path = written(tmp_path)
    for group in range(N_GROUPS):
        if group not in hit:
            spoil(path, group, "body", *(["request_id"] if group > max(hit) else []))
    request_ids = [REQUEST_IDS[group][row] for row in (7, 3, 39) for group in reversed(hit)]
    assert read(path, request_ids) == [(name, f"body of {name}".encode()) for name in request_ids]
    with pytest.raises(LakeError, match="not those that were written"):
        read(path, [REQUEST_IDS[next(group for group in range(N_GROUPS) if group not in hit)][0]])


def test_a_request_that_is_in_no_row_group_is_named(tmp_path: Path) -> None:
    """Nothing is sent without it."""
    with pytest.raises(LakeError, match="request zzz of a shard is not in the lake"):
        read(written(tmp_path), [REQUEST_IDS[0][0], "zzz", REQUEST_IDS[1][0]])
