"""The lake on disk: whole files or none, idempotent names, private modes, one writer."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchpond import Lake
from batchpond.cli import frame
from batchpond.errors import BusyError, ExitCode, LakeError, UsageError
from batchpond.lake.schemas import RUBRICS, TABLES, TEMPLATES
from batchpond.lake.store import MARKER, SECRET, Store

ROW = {"rubric_hash": "h", "rubric_id": "r", "name": "n", "description": "d"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.init(tmp_path / "lake")


def test_init_is_idempotent_and_keeps_the_lake_id(store: Store) -> None:
    again = Store.init(store.path)
    assert (again.lake_id, again.secret) == (store.lake_id, store.secret)


def test_opening_what_is_no_lake_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a lake"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "damaged"), ('{"lake_id": "x"}', "damaged"), ('{"format": 99, "lake_id": "x"}', "lake format 99")],
)
def test_a_damaged_or_newer_marker_is_refused(store: Store, content: str, message: str) -> None:
    (store.path / MARKER).write_text(content)
    with pytest.raises(LakeError, match=message):
        Store.open(store.path)


@pytest.mark.parametrize("address", ["https://host/lake", "ftp://host/lake", "s4://b/l"])
def test_an_address_of_another_kind_is_refused_and_nothing_is_made_of_it(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the command line, the environment or the Python door is given it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text('study = "s"\n')
    for make in (Store.init, Store.open, lambda path: Lake(path).sync()):
        with pytest.raises(UsageError, match="a lake is a folder on this machine"):
            make(Path(address))
    for arguments in (["init"], ["sync"], ["query", "select 1"]):
        assert frame.run(["--lake", address, *arguments]) == ExitCode.USAGE
        monkeypatch.setenv("BATCHPOND_LAKE", address)
        assert frame.run(arguments) == ExitCode.USAGE
        monkeypatch.delenv("BATCHPOND_LAKE")
        assert capsys.readouterr().err.count("a lake is a folder on this machine") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def test_an_address_without_what_speaks_to_buckets_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    for name in ("bucket", "mirror", "lease"):
        monkeypatch.delitem(sys.modules, f"batchpond_remote.{name}", raising=False)
    with pytest.raises(UsageError, match="`--lake ADDRESS` needs obstore") as caught:
        Store.open(Path("s3://bucket/lake"))
    assert caught.value.hint == "pip install 'batchpond[cluster]'"


def test_a_lost_secret_is_an_error_not_a_new_secret(store: Store) -> None:
    """A new secret would make every batch in flight unrecognisable."""
    (store.path / SECRET).unlink()
    with pytest.raises(LakeError, match="missing"):
        Store.open(store.path)


def test_publishing_twice_changes_nothing(store: Store) -> None:
    assert store.publish(RUBRICS, "a/b", [ROW]) is True
    before = store.files("rubrics")[0].read_bytes()
    assert store.publish(RUBRICS, "a/b", [{**ROW, "name": "other"}]) is False
    assert [path.read_bytes() for path in store.files("rubrics")] == [before]


def test_a_file_of_another_shape_is_refused_and_nothing_appears(store: Store) -> None:
    with store.staging(RUBRICS) as staged:
        staged.write([ROW])
    with pytest.raises(LakeError, match="not the columns of table templates"):
        store.publish_file(TEMPLATES, "x", staged.path)
    assert store.files("templates") == []


def test_a_failed_staging_leaves_nothing_behind(store: Store) -> None:
    def stage_and_fail() -> None:
        with store.staging(RUBRICS) as staged:
            staged.write([ROW])
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stage_and_fail()
    assert list((store.path / "_tmp").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../b", "", "a//b", "a b", ".hidden", "a\nb", "a/.b"])
def test_a_name_never_leaves_its_table(store: Store, name: str) -> None:
    with pytest.raises(LakeError, match="unsafe"):
        store.publish(RUBRICS, name, [ROW])


def test_everything_in_the_lake_is_private(store: Store) -> None:
    old = os.umask(0)
    try:
        store.publish(RUBRICS, "a/b", [ROW])
        with store.lock("test"):
            pass
    finally:
        os.umask(old)
    for path in [store.path, *store.path.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_files_ignores_links_and_foreign_names(store: Store, tmp_path: Path) -> None:
    store.publish(RUBRICS, "good", [ROW])
    folder = store.path / "rubrics"
    (folder / "linked.parquet").symlink_to(folder / "good.parquet")
    (folder / "notes.txt").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.parquet").write_bytes(b"")
    (folder / "linked_folder").symlink_to(tmp_path / "elsewhere")
    assert [path.name for path in store.files("rubrics")] == ["good.parquet"]


def test_plain_parquet_readers_see_the_published_rows(store: Store) -> None:
    """Nothing of batchpond is needed to read a table."""
    store.publish(RUBRICS, "p_x=1/a", [ROW])
    assert pq.read_table(store.files("rubrics")[0], partitioning=None).to_pylist() == [ROW | {"points": None}]


def test_the_lock_names_its_holder_and_is_freed_by_the_kernel(store: Store) -> None:
    """A killed holder leaves no stale lock, whatever the lock file says."""
    code = (
        "import sys, time; from pathlib import Path; from batchpond.lake.store import Store\n"
        "with Store.open(Path(sys.argv[1])).lock('holding'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=rf"holding \(process {holder.pid}"), store.lock("second"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with store.lock("second"):
        assert json.loads((store.path / ".lock").read_bytes())["purpose"] == "second"
    assert (store.path / ".lock").read_bytes() == b""


def _race(path: Path, barrier: threading.Barrier, results: list[bool]) -> None:
    store = Store.open(path)
    barrier.wait()
    results.append(store.publish(RUBRICS, "elected", [ROW]))


def test_one_of_many_racing_writers_wins_a_name(store: Store) -> None:
    barrier = threading.Barrier(8)
    results: list[bool] = []
    threads = [threading.Thread(target=_race, args=(store.path, barrier, results)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]
    assert len(store.files("rubrics")) == 1


def _write_forever(path: str) -> None:
    store = Store.open(Path(path))
    for number in range(1_000_000):
        store.publish(RUBRICS, f"f{number}", [ROW] * 5_000)


def test_a_writer_killed_at_any_moment_leaves_no_unreadable_file(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_write_forever, args=(str(store.path),))
    writer.start()
    while len(store.files("rubrics")) < 3:
        assert writer.is_alive()
    writer.kill()
    writer.join()
    for path in store.files("rubrics"):
        assert pq.read_table(path, partitioning=None).num_rows == 5_000


def test_a_full_disk_is_a_lake_error_that_names_the_lake(store: Store) -> None:
    store.path.joinpath("rubrics").write_text("a file where a folder must be")
    with pytest.raises(LakeError, match="lake"):
        store.publish(RUBRICS, "a", [ROW])


def test_every_table_has_a_key_column_and_no_nested_type() -> None:
    """Any engine that reads Parquet must read the lake."""
    for table in TABLES.values():
        for column in table.schema:
            assert str(column.type) in {"string", "int64", "int32", "double", "bool", "binary", "timestamp[us, tz=UTC]"}
