"""The engine behind batchpond's own questions: one per lake and process, with nothing left of what it spilled."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import duckdb
import polars as pl
import pytest

from batchpond import doctor
from batchpond.errors import ExitCode, LakeError
from batchpond.lake import tables
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.schemas import RUBRICS, SHARD_REQUESTS
from batchpond.lake.store import Store

ROWS = 200_000


def lake_of(path: Path, rubric_id: str) -> Store:
    store = Store.init(path)
    row = {"rubric_hash": rubric_id, "rubric_id": rubric_id, "name": "n", "description": "d"}
    store.publish(RUBRICS, "part", [row])
    return store


def rubrics_in(store: Store) -> list[str]:
    with tables.connect(store, ["rubrics"]) as connection:
        return [name for (name,) in connection.execute("SELECT rubric_id FROM rubrics").fetchall()]


def test_what_fails_while_rows_travel_to_polars_is_said_as_what_fails_before() -> None:
    """A page that is damaged far inside a file is found once its rows are read, by when polars asks for them."""
    late = duckdb.sql("SELECT CASE WHEN i = 900000 THEN error('damaged') ELSE i END FROM range(1000000) AS t (i)")
    with pytest.raises(LakeError, match=r"the rows could not be read: .*damaged"), tables.reading("the rows"):
        pl.DataFrame(late)


def test_what_needs_more_memory_than_there_is_is_called_no_damage() -> None:
    """Nobody looks for a damaged file where a study is large."""
    with duckdb.connect(config={"memory_limit": "20MB", "temp_directory": "", "threads": 1}) as connection:
        many = "SELECT count(*) FROM (SELECT DISTINCT hash(range)::VARCHAR AS text FROM range(3000000))"
        with (
            pytest.raises(LakeError, match=r"the rows could not be read: Out of Memory") as caught,
            tables.reading("the rows"),
        ):
            connection.execute(many)
    assert "nothing is damaged" in (caught.value.hint or "")


def spill(store: Store) -> None:
    """Sort more than the engine's memory holds."""
    with tables.connect(store, ["rubrics"]) as connection:
        connection.execute("SET memory_limit = '24MB'")
        connection.execute(
            f"CREATE TEMP TABLE much AS SELECT md5(i::VARCHAR) AS a, md5((i + 1)::VARCHAR) AS b FROM range({ROWS}) t(i)"
        )
        connection.execute("CREATE TEMP TABLE sorted AS SELECT * FROM much ORDER BY a, b")
        assert list(store.path.glob("_tmp/*.spill/*"))


def test_each_question_sees_its_own_lake_and_none_of_the_names_of_another(tmp_path: Path) -> None:
    """Two lakes asked in turns and within each other, and two connections that make the same names."""
    one, two = lake_of(tmp_path / "one", "a"), lake_of(tmp_path / "two", "b")
    assert [rubrics_in(one), rubrics_in(two), rubrics_in(one)] == [["a"], ["b"], ["a"]]
    with tables.connect(one, ["rubrics"]) as outer, tables.connect(one, ["rubrics"]) as inner:
        outer.execute("CREATE TEMP TABLE mine AS SELECT 1 AS n")
        inner.execute("CREATE TEMP TABLE mine AS SELECT 2 AS n")
        assert rubrics_in(two) == ["b"]
        assert outer.execute("SELECT n, rubric_id FROM mine, rubrics").fetchall() == [(1, "a")]
    with tables.connect(one, ["rubrics"]) as connection, pytest.raises(Exception, match="mine does not exist"):
        connection.execute("SELECT * FROM mine")


def test_files_that_appeared_since_are_seen(tmp_path: Path) -> None:
    store = lake_of(tmp_path / "lake", "a")
    assert rubrics_in(store) == ["a"]
    row = {"rubric_hash": "c", "rubric_id": "c", "name": "n", "description": "d"}
    store.publish(RUBRICS, "later", [row])
    assert sorted(rubrics_in(store)) == ["a", "c"]


def test_what_an_engine_spilled_leaves_with_its_last_question(tmp_path: Path) -> None:
    store = lake_of(tmp_path / "lake", "a")
    with tables.connect(store, ["rubrics"]):
        spill(store)
        assert list(store.path.glob("_tmp/*.spill"))
    assert not list(store.path.glob("_tmp/*"))
    assert rubrics_in(store) == ["a"]


def test_threads_ask_side_by_side(tmp_path: Path) -> None:
    stores = [lake_of(tmp_path / name, name) for name in ("a", "b")]
    wrong: list[object] = []

    def ask(store: Store) -> None:
        wrong.extend(found for _ in range(10) if (found := rubrics_in(store)) != [store.path.name])

    threads = [threading.Thread(target=ask, args=(stores[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_a_forked_child_asks_an_engine_of_its_own(tmp_path: Path) -> None:
    """The parent's engine has no threads there: a question to it would wait for ever."""
    store = lake_of(tmp_path / "lake", "a")
    assert rubrics_in(store) == ["a"]
    child = os.fork()
    if not child:
        os._exit(0 if rubrics_in(store) == ["a"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert rubrics_in(store) == ["a"]


N_SHARDS = 200


def add_shard(store: Store, number: int) -> None:
    request_id = f"{number:026}"
    row = {"shard_id": f"s{number}", "line_number": 1, "request_id": request_id, "request_key": request_id[:20]}
    row |= {"requests_file": "of.all", "custom_id": None}
    store.publish(SHARD_REQUESTS, shard_file_name("openai", f"s{number}"), [row])


def shards(store: Store) -> tuple[int, set[str]]:
    """Return how many files a question about shards opens, and which shards it finds; each must be there once."""
    with tables.connect(store, ["shard_requests"]) as connection:
        (((sql,),), rows) = (
            connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'shard_requests'").fetchall(),
            connection.execute("SELECT shard_id, count(*) FROM shard_requests GROUP BY ALL").fetchall(),
        )
    assert {n for _, n in rows} == {1}
    return sql.count(f"'{store.path}/"), {name for name, _ in rows}


def test_a_question_about_shards_opens_few_files_however_many_there_are(tmp_path: Path) -> None:
    """And finds each of them once: those that are folded, and those that came since."""
    store = Store.init(tmp_path / "lake")
    n_most = 0
    with store.lock("test"):
        for number in range(N_SHARDS):
            add_shard(store, number)
            tables.fold(store)
            n_files, found = shards(store)
            n_most = max(n_most, n_files)
            assert found == {f"s{n}" for n in range(number + 1)}
    assert n_most <= tables.FOLD_ABOVE + 1
    assert (store.path / ".shard_requests.a").stat().st_mode & 0o777 == 0o600
    assert list(store.path.glob("_tmp/*.parquet")) == []


def test_who_reads_while_rows_are_folded_again_finds_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lock, from what was folded when the question began: what is folded next stands elsewhere."""
    monkeypatch.setattr(tables, "FOLD_ABOVE", 2)
    store = Store.init(tmp_path / "lake")
    with store.lock("test"):
        for number in range(3):
            add_shard(store, number)
        tables.fold(store)
        with tables.connect(store, ["shard_requests"]) as connection:
            for number in range(3, 6):
                add_shard(store, number)
            tables.fold(store)
            found = connection.execute("SELECT shard_id FROM shard_requests ORDER BY ALL").fetchall()
        assert found == [("s0",), ("s1",), ("s2",)]
        assert shards(store) == (1, {f"s{number}" for number in range(6)})


@pytest.mark.parametrize("harm", ["gone", "torn", "a shard is gone", "a shard is another"])
def test_what_is_folded_counts_only_as_long_as_all_stands_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """A file that cannot be relied on is passed over: which requests were asked decides what is bought."""
    monkeypatch.setattr(tables, "FOLD_ABOVE", 2)
    store = Store.init(tmp_path / "lake")
    with store.lock("test"):
        for number in range(5):
            add_shard(store, number)
        tables.fold(store)
    assert shards(store) == (1, {"s0", "s1", "s2", "s3", "s4"})
    folded, shard = (
        store.path / ".shard_requests.a",
        store.final_path(SHARD_REQUESTS, shard_file_name("openai", "s3")),
    )
    match harm:
        case "gone":
            folded.unlink()
        case "torn":
            folded.write_bytes(folded.read_bytes()[:-40])
        case "a shard is gone":
            shard.unlink()
        case _:
            shard.write_bytes(store.final_path(SHARD_REQUESTS, shard_file_name("openai", "s2")).read_bytes())
            shard.with_name("s2.parquet").unlink()
    n_there = 5 - ("shard" in harm)
    n_files, found = shards(store)
    assert (n_files, len(found)) == (n_there, n_there)


def test_a_bit_that_turned_in_what_is_folded_is_found_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size and time tell nothing; which requests were asked is read of it, and so what is bought."""
    monkeypatch.setattr(tables, "FOLD_ABOVE", 2)
    store = Store.init(tmp_path / "lake")
    with store.lock("test"):
        for number in range(5):
            add_shard(store, number)
        tables.fold(store)
    folded = store.path / ".shard_requests.a"
    assert list(tables.misfolded(store)) == []
    stood, content = folded.stat(), bytearray(folded.read_bytes())
    content[len(content) // 3] ^= 1
    folded.write_bytes(content)
    os.utime(folded, ns=(stood.st_atime_ns, stood.st_mtime_ns))
    (found,) = [one for one in doctor.examine(store, is_deep=True) if ".shard_requests.a" in one.message]
    assert found.exit_code is ExitCode.LAKE
    doctor.rebuild_lens(store)
    assert not folded.exists()
    assert shards(store) == (5, {f"s{number}" for number in range(5)})
