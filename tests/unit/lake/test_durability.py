"""What stands on disk when: bytes before names, names before anything is built on them; names and locks that hold."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from batchpond.doctor import NETWORK_FILE_SYSTEMS, file_system
from batchpond.lake import disk, jsonl
from batchpond.lake.schemas import RUBRICS
from batchpond.lake.store import Store
from batchpond.model import FileRole, ResponseStatus
from batchpond.providers import registry
from tests.rigs.sim_study import Rig

ROW = {"rubric_hash": "h", "rubric_id": "r", "name": "n", "description": "d"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.init(tmp_path / "lake")


@pytest.fixture
def done(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is flushed and named below the lake, in order; each is carried out all the same."""
    seen: list[tuple[str, str]] = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def noting_fsync(descriptor: int) -> None:
        seen.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noting_link(source: Any, target: Any, **more: Any) -> None:
        seen.append(("link", f"{source} {target}"))
        link(source, target, **more)

    def noting_replace(source: Any, target: Any, **more: Any) -> None:
        seen.append(("replace", f"{source} {target}"))
        replace(source, target, **more)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "link", noting_link)
    monkeypatch.setattr(os, "replace", noting_replace)
    return seen


# --- what is flushed before what ------------------------------------------------------------------


def test_a_file_is_flushed_before_it_has_its_name_and_its_folder_after(
    store: Store, done: list[tuple[str, str]]
) -> None:
    """And a new folder in the one above it, before the file is named in it."""
    store.publish(RUBRICS, "a/b", [ROW])
    final = store.final_path(RUBRICS, "a/b")
    (at,) = [n for n, (act, path) in enumerate(done) if act == "link" and path.endswith(f" {final}")]
    staged = done[at][1].split()[0]
    assert ("fsync", staged) in done[:at]
    assert ("fsync", str(final.parent.parent)) in done[:at]
    assert ("fsync", str(final.parent)) in done[at:]


def test_a_file_that_replaces_another_is_named_durably(store: Store, done: list[tuple[str, str]]) -> None:
    staged, final = store.path / "_tmp" / "x", store.path / "y"
    final.write_bytes(b"old")
    disk.write_private(staged, b"new")
    disk.replace(staged, final)
    assert done[-3:] == [("fsync", str(staged)), ("replace", f"{staged} {final}"), ("fsync", str(store.path))]
    assert final.read_bytes() == b"new"


# --- names and locks ------------------------------------------------------------------------------


def test_no_two_names_in_a_lake_differ_by_their_case_alone(tmp_path: Path) -> None:
    """Nor by how a letter is written: a lake can be copied to any file system."""
    rig = Rig(tmp_path)
    rig.plan()
    rig.submit()
    rig.clock.advance(1_000)
    rig.sync()
    names = [str(path.relative_to(rig.lake)) for path in rig.lake.rglob("*")]
    assert len(names) > 20
    assert all(name.isascii() for name in names)
    assert len({name.casefold() for name in names}) == len(names)
    rig.world.close()


def test_a_child_that_outlives_the_holder_does_not_keep_the_lock(store: Store) -> None:
    """Its descriptor does not pass to programs that are started meanwhile."""
    code = (
        "import subprocess, sys, time; from pathlib import Path; from batchpond.lake.store import Store\n"
        "with Store.open(Path(sys.argv[1])).lock('holding'):\n"
        "    child = subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL)\n"
        "    print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        holder.kill()
        holder.wait()
        try:
            os.kill(child, 0)
            with store.lock("second"):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(("mounted", "kind"), [("/", "ext4"), ("/home/a b", "nfs4"), ("/home", "cifs")])
def test_a_file_system_is_that_of_the_longest_mount_above(tmp_path: Path, mounted: str, kind: str) -> None:
    """As the kernel lists them, blanks written as it writes them."""
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\nserver:/x /home/a\\040b nfs4 rw 0 0\n//server/y /home cifs rw 0 0\nbroken\n"
    )
    assert file_system(Path(mounted, "lake"), mounts) == kind
    assert (kind in NETWORK_FILE_SYSTEMS) is (kind != "ext4")
    assert file_system(Path("/"), tmp_path / "absent") is None


# --- odd result files -----------------------------------------------------------------------------


def _published(store: Store, data: bytes, path: Path) -> list[bytes]:
    path.write_bytes(data)
    file = jsonl.RawFile(
        "openai", "batch_1", "a", "file-1", FileRole.OUTPUT, hashlib.sha256(data).hexdigest(),
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
    )  # fmt: skip
    jsonl.publish_raw(store, file, path)
    rows = [row for part in jsonl.part_paths(store, file) for row in pq.read_table(part, partitioning=None).to_pylist()]
    return [row["line"].encode() if row["line"] is not None else row["line_bytes"] for row in rows]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_another_encoding_is_kept_and_answers_nothing(store: Store, tmp_path: Path, encoding: str) -> None:
    """Every byte is there, and no line of it is taken for an answer or for anybody's."""
    text = '{"custom_id": "a-1", "response": {"status_code": 200, "body": {}}}\n{"custom_id": "a-2"}\n'
    data = text.encode(encoding)
    lines = _published(store, data, tmp_path / "download")
    assert b"\n".join(lines) in {data, data.removesuffix(b"\n")}
    for line in lines:
        read = registry.module("openai").read_line(line)
        assert (read.status, read.custom_id) == (ResponseStatus.UNREADABLE, None)


def test_a_line_of_many_megabytes_is_one_line_among_others(store: Store, tmp_path: Path) -> None:
    """Its neighbours and itself come back byte for byte, and it is read as any other."""
    long = b'{"custom_id": "a-2", "error": {"message": "' + b"x" * (20 << 20) + b'"}, "response": null}'
    lines = [b'{"custom_id": "a-1"}', long, b'{"custom_id": "a-3"}']
    assert _published(store, b"\n".join(lines) + b"\n", tmp_path / "download") == lines
    read = registry.module("openai").read_line(long)
    assert (read.custom_id, read.status) == ("a-2", ResponseStatus.ERRORED)
