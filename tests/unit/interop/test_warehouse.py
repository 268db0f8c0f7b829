"""The lake's tables as Delta's and Iceberg's, read by their own libraries: each row once, whatever came and went."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from batchpond.cli import main
from batchpond.errors import ExitCode, LakeError
from batchpond.interop.layouts import FILE, export_tables
from batchpond.lake import disk, manifest
from batchpond.lake.events import EventLog
from batchpond.lake.records import Fresh
from batchpond.lake.schemas import JUDGMENTS, RAW, TABLES
from batchpond.lake.store import Store
from tests.unit.remote.conftest import row

HOW = "NOT RUN: pip install '.[cluster]'"
Read = Callable[[str], pa.Table]


def delta(folder: Path) -> Read:
    library = pytest.importorskip("deltalake", reason=HOW)
    return lambda table: library.DeltaTable(f"{folder}/{table}").to_pyarrow_table()


def iceberg(folder: Path) -> Read:
    library = pytest.importorskip("pyiceberg.catalog", reason=HOW)
    return lambda table: library.load_catalog("batchpond").load_table((folder.name, table)).scan().to_arrow()


@pytest.fixture(params=[delta, iceberg])
def layout(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Read]:
    monkeypatch.setenv("PYICEBERG_CATALOG__BATCHPOND__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__BATCHPOND__WAREHOUSE", f"file://{tmp_path}/warehouse")
    return request.param.__name__, request.param(tmp_path / "out")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three raw lines in two files, a judgment of each, and what was said about a study."""
    store = Store.init(tmp_path / "lake")
    with store.lock("test"):
        for name, lines in (("p/a", (0, 1)), ("p/b", (2,))):
            made = [
                row(RAW, provider="p", batch_id=name, line_number=number, line_bytes=b"\x00\xff") for number in lines
            ]
            store.publish(RAW, name, made)
            made = [row(JUDGMENTS, provider="p", batch_id=name, line_number=number, score=0.5) for number in lines]
            store.publish(JUDGMENTS, name, made)
        EventLog(store).append(Fresh(study="s"))
    return store


def lacking(store: Store, read: Read) -> list[str]:
    """Return the tables there that are not what the lake's are."""
    found = []
    for table in TABLES.values():
        here = pa.concat_tables(
            [table.schema.empty_table(), *(table.completed(disk.read_rows(path)) for path in store.files(table.name))]
        )
        if here.num_rows:
            there = read(table.name).drop_columns([FILE]).select(table.schema.names).cast(table.schema)
            if sorted(map(str, here.to_pylist())) != sorted(map(str, there.to_pylist())):
                found.append(table.name)
    return found


@pytest.mark.parametrize(
    ("layout", "library", "said"),
    [("delta", "deltalake", "Connection refused"), ("iceberg", "pyiceberg", "unable to open database file")],
)
def test_what_the_libraries_fail_at_is_one_error_and_not_the_lakes(
    store: Store, layout: str, library: str, said: str, tmp_path: Path
) -> None:
    """A store that nobody answers at, a catalog that cannot be opened: exit 1, with what they said and no more."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(HOW)
    aws = {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "c"}
    environment = os.environ | {f"AWS_{name}": value for name, value in aws.items()}
    environment |= {"PYICEBERG_CATALOG__BATCHPOND__URI": f"sqlite:///{tmp_path}/not/there/catalog.db"}
    command = [sys.executable, "-m", "batchpond", "--lake", os.fspath(store.path), "export", "s3://bucket/out"]
    done = subprocess.run(
        [*command, "--layout", layout], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == ExitCode.FAILED
    assert f"error: {layout} table studies of s3://bucket/out: " in done.stderr
    assert said in done.stderr
    assert "the lake is as it was" in done.stderr
    assert not [word for word in ("unexpected", "defect", "free space", "\x1b") if word in done.stderr]


def test_each_row_of_the_lake_is_there_once_however_often_it_is_exported(
    store: Store, layout: tuple[str, Read], tmp_path: Path
) -> None:
    """What is new is added; what was there is not written again."""
    name, read = layout
    assert export_tables(store, tmp_path / "out", name) == 5
    assert lacking(store, read) == []
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert export_tables(store, tmp_path / "out", name) == 0
    with store.lock("test"):
        store.publish(RAW, "p/c", [row(RAW, provider="p", batch_id="p/c", line_number=0)])
    assert export_tables(store, tmp_path / "out", name) == 1
    assert lacking(store, read) == []
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_what_was_made_again_or_taken_away_is_so_there(store: Store, layout: tuple[str, Read], tmp_path: Path) -> None:
    name, read = layout
    export_tables(store, tmp_path / "out", name)
    with store.lock("test"):
        with store.staging(JUDGMENTS) as staged:
            staged.write([row(JUDGMENTS, provider="p", batch_id="p/a", line_number=0, score=0.75)])
        store.replace_file(JUDGMENTS, "p/a", staged.path)
        store.drop(store.final_path(JUDGMENTS, "p/b"))
    assert export_tables(store, tmp_path / "out", name) == 3
    assert read("judgments")["score"].to_pylist() == [0.75]
    with store.lock("test"):
        store.drop(store.final_path(JUDGMENTS, "p/a"))
    assert export_tables(store, tmp_path / "out", name) == 1
    assert read("judgments").num_rows == 0


def test_a_lake_that_lacks_files_is_not_exported(store: Store, layout: tuple[str, Read], tmp_path: Path) -> None:
    with store.lock("test"):
        manifest.take_up(store)
    store.files("raw")[0].unlink()
    with pytest.raises(LakeError, match="p/a"):
        export_tables(store, tmp_path / "out", layout[0])


def test_the_command_says_what_came(store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    delta(tmp_path)
    words = ["--lake", str(store.path), "export", "--layout", "delta", str(tmp_path / "out")]
    assert main([*words, "--json"]) == ExitCode.DONE
    assert json.loads(capfd.readouterr().out) == {"layout": "delta", "n_files": 5}
    assert main(words) == ExitCode.DONE
    assert "0 files came or went" in capfd.readouterr().err
    assert main([*words, "--force"]) == ExitCode.USAGE


def test_without_a_catalog_iceberg_is_an_error_that_says_what_to_set(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    iceberg(tmp_path)
    assert main(["--lake", str(store.path), "export", "--layout", "iceberg", "out"]) == ExitCode.USAGE
    assert "PYICEBERG_CATALOG__BATCHPOND__URI" in capfd.readouterr().err


def test_without_the_libraries_an_error_says_what_to_install(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert main(["--lake", str(store.path), "export", "--layout", "delta", str(tmp_path / "out")]) == ExitCode.USAGE
    assert "`export --layout delta` needs deltalake" in capfd.readouterr().err
