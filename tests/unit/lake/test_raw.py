"""Raw lines: every byte kept, lines end at 0x0A only, parts named so that twice is once."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpond.lake import jsonl
from batchpond.lake.store import Store
from batchpond.model import FileRole

AWKWARD = [
    b'{"text": "line\xe2\x80\xa8separator"}', b"", b"\r", b'{"a": "\xff\xfe"}', b"\xef\xbb\xbf{}", b"NaN",
    b'{"a": "\\ud83d"}', b"x" * 70_000, b"\x00", b"\x0b\x0c\x1c\x85",
]  # fmt: skip


def _file(data: bytes, **changes: object) -> jsonl.RawFile:
    fields: dict[str, object] = {
        "provider": "openai", "batch_id": "batch_1", "attempt_id": "a", "file_id": "file-1",
        "role": FileRole.OUTPUT, "sha256": hashlib.sha256(data).hexdigest(),
        "created_at": datetime(2026, 11, 21, tzinfo=UTC),
    }  # fmt: skip
    return jsonl.RawFile(**{**fields, **changes})  # type: ignore[arg-type]


def _bytes_of(paths: list[Path]) -> list[bytes]:
    rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    assert [row["line_number"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["line"].encode() if row["line"] is not None else row["line_bytes"] for row in rows]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.one_of(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), st.sampled_from(AWKWARD))),
    ends_with_line_feed=st.booleans(),
)
def test_any_bytes_come_back_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends_with_line_feed: bool
) -> None:
    folder = tmp_path_factory.mktemp("raw")
    store = Store.init(folder / "lake")
    data = b"\n".join(lines) + (b"\n" if lines and ends_with_line_feed else b"")
    (folder / "download").write_bytes(data)
    file = _file(data)
    n_lines = jsonl.publish_raw(store, file, folder / "download")
    stored = _bytes_of(jsonl.part_paths(store, file))
    assert n_lines == len(stored)
    assert stored == data.split(b"\n")[: len(stored)]
    assert sum(map(len, stored)) + data.count(b"\n") == len(data), "no byte is lost"


def test_a_file_is_cut_into_parts_and_publishing_again_adds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "LINES_PER_FILE", 10)
    store = Store.init(tmp_path / "lake")
    data = b"".join(b'{"n": %d}\n' % n for n in range(25))
    (tmp_path / "download").write_bytes(data)
    assert jsonl.publish_raw(store, _file(data), tmp_path / "download") == 25
    parts = jsonl.part_paths(store, _file(data))
    before = {path: path.read_bytes() for path in parts}
    assert jsonl.publish_raw(store, _file(data), tmp_path / "download") == 25
    assert len(parts) == 3
    assert {path: path.read_bytes() for path in store.files("raw")} == before


def test_another_version_of_a_file_is_kept_beside_the_first(tmp_path: Path) -> None:
    store = Store.init(tmp_path / "lake")
    for data in (b"one\n", b"two\n"):
        (tmp_path / "download").write_bytes(data)
        jsonl.publish_raw(store, _file(data), tmp_path / "download")
    lines = pl.scan_parquet(store.files("raw"), hive_partitioning=False).select("line").collect()
    assert sorted(lines["line"]) == ["one", "two"]


@pytest.mark.parametrize("batch_id", ["../../evil", "a/b", "a" * 300, "", "a\nb", "CON:1", "ünicode"])
def test_a_providers_odd_id_never_becomes_a_path(tmp_path: Path, batch_id: str) -> None:
    store = Store.init(tmp_path / "lake")
    (tmp_path / "download").write_bytes(b"x\n")
    jsonl.publish_raw(store, _file(b"x\n", batch_id=batch_id), tmp_path / "download")
    (path,) = store.files("raw")
    assert path.parent == store.path / "raw" / "p_provider=openai" / "p_day=2026-11-21"
    assert pq.read_table(path, partitioning=None).column("batch_id").to_pylist() == [batch_id]
