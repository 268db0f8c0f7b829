"""One lake of each earlier format, left with an open batch: it is finished by this version, or refused with what to do.

Commits 7b2494b and 6ddc426 made them with their own `simulate`, `plan` and `submit`; `test_old_lakes` has cc06c86.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from batchpond.cli import frame
from batchpond.errors import ExitCode, LakeError
from batchpond.lake import manifest
from batchpond.lake.schemas import FORMAT_VERSION
from batchpond.lake.store import MARKER, Store
from tests.golden import doors
from tests.golden.bought.record import table
from tests.golden.lakes import desk

EARLY, EARLY_PORT = "of_7b2494b", 28_476
FIRST = "of_6ddc426"


def _format(lake: Path) -> int:
    return int(json.loads((lake / MARKER).read_bytes())["format"])


def test_a_lake_of_7b2494b_with_an_open_batch_is_taken_on_and_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked twice, every request has its answer, its files are listed, and it has the present format."""
    monkeypatch.setitem(desk.PORTS, EARLY, EARLY_PORT)
    desk.unpack(EARLY, tmp_path)
    facts = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")}
    with desk.desk_at(tmp_path, EARLY) as found:
        assert _format(found.lake.path) == 1
        found.settle()
        planned = set(table(found.lake.path, "plan")["request_id"])
        results = found.lake.results().select("request_id", "batch_id", "outcome").collect()
        assert set(results["request_id"]) == planned
        assert not set(results["outcome"]) & {"missing", None}
        assert found.sent() == Counter(dict.fromkeys((request[:20] for request in planned), 1))
        assert found.ledger()["billed"]["n_requests"] == len(planned)
    assert _format(tmp_path / "lake") == FORMAT_VERSION
    assert {path: path.read_bytes() for path in facts} == facts
    assert manifest.missing(tmp_path / "lake") == []
    for command in ("audit", "doctor"):
        ended = doors.run("--lake", str(tmp_path / "lake"), command)
        assert ended.returncode == 0, ended.stderr


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
    store = Store.open(lake)
    n_plan = len(store.files("plan"))
    with store.lock("test"):
        assert _format(lake) == FORMAT_VERSION
    assert (derived.exists(), len(store.files("plan"))) == (False, n_plan)
    assert Store.open(lake).lake_id == store.lake_id
