"""What was published is listed: a file that is gone or another is noticed by whoever writes, reads or looks."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from batchpond.cli import frame
from batchpond.doctor import Finding, Level, examine
from batchpond.errors import ExitCode, LakeError, LakeWarning
from batchpond.lake import manifest
from batchpond.lake.events import EventLog
from batchpond.lake.schemas import EVENTS, ITEMS, RAW, RESPONSES
from batchpond.views import database
from batchpond.views.refresh import refresh
from tests.rigs.lakes import LakeBuilder


def publish(lake: LakeBuilder) -> None:
    """End a pass: what it published is listed and shown."""
    with lake.store.lock("test"):
        refresh(lake.store)


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    """A lake of two passes: a plan, a sent request, a raw line, an item."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.sent("A1", "S1", ["r1"])
    publish(lake)
    lake.rows(RAW, [{"provider": "openai", "batch_id": "b", "line": "{}"}])
    lake.rows(ITEMS, [{"item_hash": "h1", "item_id": "i", "text": "t"}])
    publish(lake)
    return lake


def listed(lake: LakeBuilder) -> set[str]:
    return set(manifest.load(lake.path).entries)


def published(lake: LakeBuilder) -> set[str]:
    files = [path for table in manifest.GUARDED for path in lake.store.files(table)]
    return {os.fspath(path.relative_to(lake.path)) for path in files}


def tree(lake: LakeBuilder) -> dict[str, tuple[int, bytes]]:
    found = [path for path in lake.path.rglob("*") if path.is_file()]
    return {os.fspath(path): (path.stat().st_ino, path.read_bytes()) for path in found}


def damage(lake: LakeBuilder, *, is_deep: bool = False) -> list[Finding]:
    return [found for found in examine(lake.store, is_deep=is_deep) if found.level is Level.ERROR]


def test_each_pass_lists_what_it_published_in_one_file(lake: LakeBuilder) -> None:
    """By name, size and digest, in lines that anything reads; names never collide."""
    files = sorted((lake.path / manifest.FOLDER).iterdir())
    assert [path.name[:17] for path in files] == ["00000001-00000001", "00000002-00000002"]
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert {row["name"] for row in rows if "name" in row} == published(lake) == listed(lake)
    assert damage(lake, is_deep=True) == []


def test_an_idle_pass_writes_nothing(lake: LakeBuilder) -> None:
    """No byte of any file, and puts none in the place of another."""
    before = tree(lake)
    publish(lake)
    assert tree(lake) == before


def test_a_lake_without_lists_gets_one_and_a_pass_that_died_before_its_list_is_taken_up(lake: LakeBuilder) -> None:
    """Whoever publishes next lists what nobody listed."""
    for path in (lake.path / manifest.FOLDER).iterdir():
        path.unlink()
    lake.rows(ITEMS, [{"item_hash": "h2", "item_id": "i", "text": "t"}])
    publish(lake)
    assert listed(lake) == published(lake)
    assert len(list((lake.path / manifest.FOLDER).iterdir())) == 1


def test_many_lists_become_one(lake: LakeBuilder) -> None:
    """Which says the same, and stands before the others go."""
    for number in range(manifest.FILES_MAX + 2):
        lake.rows(ITEMS, [{"item_hash": f"n{number}", "item_id": "i", "text": "t"}])
        with lake.store.lock("test"):
            manifest.take_up(lake.store)
    assert len(list((lake.path / manifest.FOLDER).iterdir())) < 10
    assert listed(lake) == published(lake)
    assert manifest.load(lake.path).problems == ()


@pytest.mark.parametrize("table", [RAW, ITEMS], ids=lambda table: table.name)
def test_a_deleted_file_is_said_by_every_pass_reader_and_look_until_it_is_back(
    lake: LakeBuilder, table: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with exit code 5, and a hint of what to do; a backup heals it."""
    name = "raw" if table is RAW else "items"
    (path,) = lake.store.files(name)
    kept = path.read_bytes()
    path.unlink()
    for _ in range(2):
        with pytest.warns(LakeWarning, match=path.name):
            publish(lake)
    (found,) = [finding for finding in damage(lake) if finding.check == "files"]
    assert path.name in found.message
    assert "backup" in str(found.hint)
    assert ("--refetch" in str(found.hint)) is (name == "raw")
    for command in (["query", "select 1 as one"], ["results"], ["status"]):
        assert frame.run(["--lake", str(lake.path), *command]) == ExitCode.LAKE
        assert path.name in capsys.readouterr().err
    path.write_bytes(kept)
    publish(lake)
    assert damage(lake, is_deep=True) == []
    assert frame.run(["--lake", str(lake.path), "query", "select 1 as one"]) == ExitCode.DONE
    assert capsys.readouterr().err == ""


def test_a_missing_event_stops_whoever_would_send(lake: LakeBuilder) -> None:
    """Without it a batch would look as if it had never been sent."""
    path = lake.store.files("events")[0]
    path.unlink()
    with lake.store.lock("test"), pytest.raises(LakeError, match=path.name):
        EventLog(lake.store)


def test_a_look_compares_sizes_and_a_deep_one_all_bytes(lake: LakeBuilder) -> None:
    """Also where a whole file of the same columns stands in the place of another."""
    (path,) = lake.store.files("items")
    lake.rows(ITEMS, [{"item_hash": "h7", "item_id": "i", "text": "t"}])
    publish(lake)
    first, second = lake.store.files("items")
    assert first == path
    assert first.stat().st_size == second.stat().st_size
    first.write_bytes(second.read_bytes())
    assert damage(lake) == []
    assert [first.name in finding.message for finding in damage(lake, is_deep=True)] == [True]
    lake.rows(ITEMS, [{"item_hash": "h8" * 50, "item_id": "i", "text": "t"}])
    first.write_bytes(lake.store.files("items")[-1].read_bytes())
    assert [first.name in finding.message for finding in damage(lake)] == [True]


def test_passes_that_publish_come_to_read_every_old_byte_again(lake: LakeBuilder) -> None:
    """As many as they publish, drawn anew each time."""
    (path,) = lake.store.files("raw")
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    seen: list[manifest.Damage] = []
    for number in range(8 * len(listed(lake))):
        lake.rows(ITEMS, [{"item_hash": f"n{number}", "item_id": "i", "text": "t"}])
        with lake.store.lock("test"):
            seen += manifest.take_up(lake.store)
    assert {found.name for found in seen} == {os.fspath(path.relative_to(lake.path))}


def test_lists_that_are_gone_or_damaged_are_said_and_written_anew(lake: LakeBuilder) -> None:
    """What they said is not believed."""
    first, second = sorted((lake.path / manifest.FOLDER).iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes() + b"\n")
    assert sum(manifest.FOLDER in finding.message for finding in damage(lake)) == 2
    lake.rows(ITEMS, [{"item_hash": "h2", "item_id": "i", "text": "t"}])
    with pytest.warns(LakeWarning, match=manifest.FOLDER):
        publish(lake)
    assert listed(lake) == published(lake)
    assert damage(lake, is_deep=True) == []


def test_a_damaged_derived_file_is_dropped_so_that_a_pass_makes_it_again(lake: LakeBuilder) -> None:
    """It is in no list, and no hint sends anybody to a backup for it."""
    lake.rows(RESPONSES, [{"provider": "openai", "batch_id": "b"}])
    publish(lake)
    assert not any(name.startswith("responses") for name in listed(lake))
    (path,) = lake.store.files("responses")
    os.truncate(path, 10)
    (found,) = [finding for finding in damage(lake) if finding.check == "files"]
    assert "backup" not in str(found.hint)
    database.build(lake.path, database.listed(lake.path))
    assert lake.store.files("responses") == []


def test_events_that_were_merged_are_struck_from_the_list_and_not_missed(lake: LakeBuilder) -> None:
    """Their copies go; the file that holds them is guarded in their place."""
    for number in range(70):
        lake.sent(f"B{number}", f"T{number}", [f"q{number}"])
    publish(lake)
    log = EventLog(lake.store)
    with lake.store.lock("test"):
        assert log.compact(lambda: refresh(lake.store))
    assert {name for name in listed(lake) if name.startswith(EVENTS.name)} == {
        os.fspath(path.relative_to(lake.path)) for path in lake.store.files("events")
    }
    assert manifest.missing(lake.path) == []


COPIES = (
    "{} (conflicted copy 2026-11-30)",
    "{}.sync-conflict-20261130-101010-ABCDEFG",
    "{}.variant-1f3c",
    "{}-DESKTOP-4T2K9QX",
    "._{}",
)


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_a_tool_made_of_a_file_counts_for_nothing(lake: LakeBuilder, name: str) -> None:
    """Whatever synchronises the folder: no request is asked twice and no answer counts twice; `doctor` names it.

    One that an earlier version took for a file of the lake is not missed.
    """
    before, listed_before = {table: lake.store.files(table) for table in manifest.GUARDED}, listed(lake)
    for path in [path for paths in before.values() for path in paths]:
        shutil.copy(path, path.with_name(f"{name.format(path.stem)}.parquet"))
    publish(lake)
    assert ({table: lake.store.files(table) for table in before}, listed(lake)) == (before, listed_before)
    told = [found for found in examine(lake.store) if found.level is Level.WARNING]
    assert ["left out" in found.message for found in told] == [True] * sum(map(len, before.values()))
    with lake.store.lock("test"):
        row = {"name": f"events/{name.format('e-1')}.parquet", "size_bytes": 1, "sha256": ""}
        manifest._write(lake.store, manifest.load(lake.path), [row])
    assert manifest.missing(lake.path) == []


def test_a_link_in_the_place_of_a_file_is_missed_and_said(lake: LakeBuilder, tmp_path: Path) -> None:
    """As git-annex leaves them: nothing is read through it."""
    (path,) = lake.store.files("items")
    path.symlink_to(path.rename(tmp_path / "away.parquet"))
    assert {found.level for found in examine(lake.store) if path.name in found.message} == {Level.ERROR, Level.WARNING}
