"""One lake of each earlier format, left with an open batch: it is finished by this version, or refused with what to do.

Commits deb4f4c2, 70f1c5d, 1ca394d, c869075, 2def5bb, 7b2494b and 6ddc426 made them with their own `simulate`, `plan`
and `submit`; `test_old_lakes` has cc06c86.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from batchpond import ids
from batchpond.cli import frame
from batchpond.errors import ExitCode, LakeError
from batchpond.lake import disk, manifest, store, tables
from batchpond.lake.schemas import FORMAT_VERSION, TABLES
from batchpond.lake.store import MARKER, Store
from batchpond.views import database
from tests.golden import doors
from tests.golden.bought.record import table
from tests.golden.lakes import desk
from tests.rigs.swept import every

TAKEN_ON = {
    "of_7b2494b": (1, 28_476), "of_2def5bb": (2, 28_477), "of_c869075": (3, 28_478), "of_1ca394d": (4, 28_479),
    "of_70f1c5d": (5, 28_480), "of_deb4f4c2": (6, 28_481),
}  # fmt: skip
"""The formats of lakes that this version takes on, and the ports of their simulators."""
WITH_ALL_COLUMNS = 7
"""From this format on no table gained columns: there is nothing to write anew but the marker."""
FIRST = "of_6ddc426"


def _format(lake: Path) -> int:
    return int(json.loads((lake / MARKER).read_bytes())["format"])


@pytest.mark.parametrize("name", every(2, TAKEN_ON))
def test_a_lake_with_an_open_batch_is_taken_on_and_finished(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked twice, every request has its answer, its files are listed, and it has the present format."""
    number, port = TAKEN_ON[name]
    monkeypatch.setitem(desk.PORTS, name, port)
    desk.unpack(name, tmp_path)
    facts = {path: pq.read_table(path) for path in _fact_files(tmp_path / "lake")}
    with desk.desk_at(tmp_path, name) as found:
        assert _format(found.lake.path) == number
        found.settle()
        planned = set(table(found.lake.path, "plan")["request_id"])
        results = found.lake.results().select("request_id", "batch_id", "outcome").collect()
        assert set(results["request_id"]) == planned
        assert not set(results["outcome"]) & {"missing", None}
        assert found.sent() == Counter(dict.fromkeys((request[:20] for request in planned), 1))
        assert found.ledger()["billed"]["n_requests"] == len(planned)
    assert _format(tmp_path / "lake") == FORMAT_VERSION
    for path, rows in facts.items():
        assert pq.read_table(path).select(rows.column_names).equals(rows)
    _check_same_columns(tmp_path / "lake")
    assert manifest.missing(tmp_path / "lake") == []
    with database.connect(tmp_path / "lake") as connection:
        counted = "SELECT origin, count(*) FROM pair_judgments GROUP BY origin ORDER BY origin"
        imported = [("imported", 3)] if (tmp_path / "judgments.csv").exists() else []
        assert connection.execute(counted).fetchall() == [*imported, ("simulated", len(planned))]
    _check_each_row_once(tmp_path / "lake")
    for command in ("audit", "doctor"):
        ended = doors.run("--lake", str(tmp_path / "lake"), command)
        assert ended.returncode == 0, ended.stderr


def _fact_files(lake: Path) -> list[Path]:
    return [path for name in TABLES if not TABLES[name].is_derived for path in (lake / name).rglob("*.parquet")]


def _check_same_columns(lake: Path) -> None:
    """Assert that no table has files of two schemas: a plain glob would drop what only some of them have."""
    for name, wanted in TABLES.items():
        for path in (lake / name).rglob("*.parquet"):
            assert pq.read_schema(path).names == wanted.schema.names, path


def _take_on(lake: Path) -> None:
    with Store.open(lake).lock("test"):
        pass


@pytest.mark.parametrize("name", [name for name, (number, _) in TAKEN_ON.items() if number < WITH_ALL_COLUMNS])
def test_a_migration_that_dies_anywhere_is_finished_by_the_next_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is the old or the new one, the marker is raised last, and a reader sees all rows in between."""
    desk.unpack(name, tmp_path)
    lake, replace = tmp_path / "lake", disk.replace
    before = {path: pq.read_table(path) for path in _fact_files(lake)}
    n_left = 0

    def dying(staged: Path, final: Path) -> None:
        nonlocal n_left
        if n_left == 0:
            raise KeyboardInterrupt
        n_left -= 1
        replace(staged, final)

    for n_alive in range(100):
        n_left = n_alive
        with monkeypatch.context() as patched:
            patched.setattr(disk, "replace", dying)
            try:
                _take_on(lake)
            except KeyboardInterrupt:
                assert _format(lake) < FORMAT_VERSION
                opened = Store.open(lake)
                with tables.connect(opened, ["plan"]) as connection:
                    n_rows = sum(rows.num_rows for path, rows in before.items() if "/plan/" in str(path))
                    assert connection.execute("SELECT count(*), count(tier) FROM plan").fetchall() == [(n_rows, 0)]
                continue
        break
    assert n_alive > 1
    assert _format(lake) == FORMAT_VERSION
    _check_same_columns(lake)
    for path, rows in before.items():
        assert pq.read_table(path).select(rows.column_names).equals(rows)
    assert manifest.missing(lake) == []


def _check_each_row_once(lake: Path) -> None:
    """Assert that a plain glob over each table's files shows each row of its grain once."""
    seen = []
    for view in database.views():
        if view.stage == "lake" and list((lake / view.name).rglob("*.parquet")):
            grain = ", ".join(f'"{column}"' for column in view.grain_columns)
            rows = f"FROM read_parquet('{lake}/{view.name}/**/*.parquet', hive_partitioning = false)"
            n_rows, n_different = duckdb.sql(f"SELECT count(*), count(DISTINCT ({grain})) {rows}").fetchall()[0]
            assert n_rows == n_different, view.name
            seen.append(view.name)
    assert len(seen) >= 10


@pytest.mark.parametrize("command", [["sync"], ["status"], ["submit", "old", "--yes"], ["query", "select 1"]])
def test_a_lake_of_6ddc426_is_refused_with_what_to_do_and_left_as_it_is(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By whoever reads or writes: a batch of it that is out cannot be matched by this version."""
    desk.unpack(FIRST, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(LakeError, match="shard_requests lacks custom_id"):
        Store.open(tmp_path / "lake")
    assert frame.run(["--lake", str(tmp_path / "lake"), *command]) == ExitCode.LAKE
    told = capsys.readouterr().err
    assert "adopt" in told
    assert "unexpected" not in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_derived_files_that_lack_columns_are_made_again(tmp_path: Path) -> None:
    """Once, by the first writer; facts stay."""
    desk.unpack(FIRST, tmp_path)
    lake = tmp_path / "lake"
    for path in (lake / "shard_requests").rglob("*.parquet"):
        path.unlink()
    derived = lake / "judgments" / "old.parquet"
    derived.parent.mkdir()
    derived.write_bytes(next((lake / "plan").rglob("*.parquet")).read_bytes())
    opened = Store.open(lake)
    n_plan = len(opened.files("plan"))
    with opened.lock("test"):
        assert _format(lake) == FORMAT_VERSION
    assert (derived.exists(), len(opened.files("plan"))) == (False, n_plan)
    assert Store.open(lake).lake_id == opened.lake_id


COLUMNS_OF = {7: "xefv7p4eq2jq"}
"""By format, what its tables' columns are digested to."""


def test_a_change_of_columns_is_another_format() -> None:
    """Whoever changes a table's columns raises the number, says so in FORMATS.md, and adds a lake of before here."""
    columns = repr([(name, table.columns) for name, table in TABLES.items()])
    assert {FORMAT_VERSION: ids.digest("columns", columns)[:12]} == COLUMNS_OF
    formats = (Path(store.__file__).parent / "FORMATS.md").read_text("utf-8")
    assert f"| {FORMAT_VERSION} | " in formats
    assert {number for number, _ in TAKEN_ON.values()} == set(range(1, FORMAT_VERSION))
