"""The large tables of a lake at an address: nothing of them is on a machine that does not ask, then all of them is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from batchpond import Lake
from batchpond.doctor import Level, examine
from batchpond.errors import BusyError, LakeError
from batchpond.lake import disk, manifest
from batchpond.lake.schemas import RAW, REQUESTS
from batchpond.lake.store import LENS, Store
from batchpond.views import database, read
from tests.rigs import s3
from tests.unit.remote.conftest import Machine, publish, said, say

COUNTED = "SELECT count(*) FROM raw"


@pytest.fixture
def machines(machines: tuple[Machine, Machine]) -> tuple[Machine, Machine]:
    """The first has written three raw lines and two requests, each in a file of its own."""
    store = machines[0].store()
    say(store, "a")
    publish(store, RAW, "p/a", "p/b", "p/c")
    publish(store, REQUESTS, "r1", "r2")
    return machines


def answer(store: Store, sql: str) -> int:
    return int(read.run_query(store.path, sql).to_pylist()[0]["n"])


def test_who_only_looks_brings_neither_and_is_told_of_nothing_missing(
    machines: tuple[Machine, Machine], shop: s3.Shop
) -> None:
    """With the lists of files, which name them; `told` says how large they are."""
    store = machines[1].store()
    shop.log.clear()
    assert said(store) == ["a"]
    assert answer(store, "SELECT count(*) AS n FROM results") == 0
    assert answer(store, "SELECT count(*) AS n FROM events") > 0
    assert manifest.missing(store.path) == []
    assert shop.log == []
    assert not (store.path / "raw").exists()
    there = [len(data) for key, (data, _) in shop.objects.items() if "/raw/" in key]
    assert disk.aside(store.path)["raw"] == [3, sum(there)]
    assert store.mirror is not None
    assert "but for raw (3 files, 0.0 MB) and requests (2 files, 0.0 MB)" in store.mirror.told()


@pytest.mark.parametrize(
    ("sql", "n", "tables"),
    [
        ("SELECT count(*) AS n FROM raw", 3, {"raw"}),
        ("SELECT count(*) AS n FROM range(2), raw AS x", 6, {"raw"}),
        ("WITH them AS (FROM raw) SELECT count(*) AS n FROM range(2), them", 6, {"raw"}),
        ("SELECT (SELECT count(*) FROM requests) + count(*) AS n FROM raw", 5, {"raw", "requests"}),
        ("SELECT count(*) AS n FROM audit", 0, {"raw"}),
    ],
)
def test_a_query_brings_whole_what_it_reads_however_it_names_it(
    machines: tuple[Machine, Machine], shop: s3.Shop, sql: str, n: int, tables: set[str]
) -> None:
    store = machines[1].store()
    shop.log.clear()
    assert answer(store, sql) == n
    assert {name for name in ("raw", "requests") if shop.fetched(f"/{name}/")} == tables
    assert disk.aside(store.path).keys() == {"raw", "requests"} - tables
    shop.log.clear()
    assert answer(store, sql) == n
    assert shop.log == []


def scanned(store: Store) -> int:
    return len(Lake(store.path).scan("raw").collect())


def exported(store: Store) -> int:
    destination = store.path.parent / "raw.csv"
    Lake(store.path).export(destination, view="raw")
    return len(destination.read_text().splitlines()) - 1


def examined(store: Store) -> int:
    found = examine(store)
    assert {one.level for one in found if one.check in ("files", "views")} == {Level.OK}
    return len(store.published("raw"))


def listed(store: Store) -> int:
    return len(database.listed(store.path)["raw"])


def written(store: Store) -> int:
    with store.lock("test"):
        return len([*disk.parquet_files(store.path / "raw")])


@pytest.mark.parametrize("ask", [scanned, exported, examined, listed, written])
def test_whoever_needs_all_has_all(machines: tuple[Machine, Machine], ask: Callable[[Store], int]) -> None:
    """Polars, an export, `doctor`, the DDL of the views, and who writes."""
    assert ask(machines[1].store()) == 3


def test_plain_duckdb_sees_a_large_table_whole_or_not_at_all(machines: tuple[Machine, Machine]) -> None:
    """Through the lens it is told what brings it, by any view over it; by a glob there are no files."""
    store = machines[1].store()
    answer(store, "SELECT count(*) AS n FROM results")
    with duckdb.connect(str(store.path / LENS), read_only=True) as plain:
        for sql in ("SELECT 1 FROM raw", "FROM audit", "SELECT count(*) FROM raw"):
            with pytest.raises(duckdb.CatalogException, match="where `batchpond query raw` brings it"):
                plain.execute(sql)
        with pytest.raises(duckdb.IOException, match="No files found"):
            plain.execute(f"SELECT count(*) FROM '{store.path}/raw/**/*.parquet'")
    answer(store, "SELECT count(*) AS n FROM raw")
    with duckdb.connect(str(store.path / LENS), read_only=True) as plain:
        assert plain.execute(COUNTED).fetchall() == [(3,)]
        assert plain.execute(f"SELECT count(*) FROM '{store.path}/raw/**/*.parquet'").fetchall() == [(3,)]


def test_what_could_not_be_brought_whole_is_not_there_in_part(machines: tuple[Machine, Machine], shop: s3.Shop) -> None:
    """The query fails, others go on, and the next one brings what is left alone."""
    store = machines[1].store()
    shop.faults.append(("GET", "/raw/p/b", "denied"))
    shop.log.clear()
    with pytest.raises(LakeError, match="may not read raw/p/b"):
        answer(store, "SELECT count(*) AS n FROM raw")
    assert not (store.path / "raw").exists()
    store = machines[1].store()
    assert answer(store, "SELECT count(*) AS n FROM events") > 0
    came = len(shop.fetched("/raw/")) - 1
    assert answer(store, "SELECT count(*) AS n FROM raw") == 3
    assert came
    assert len(shop.fetched("/raw/")) == 3 + 1


def test_of_a_table_that_came_in_part_nothing_stays_that_was_forgotten_meanwhile(
    machines: tuple[Machine, Machine], shop: s3.Shop
) -> None:
    """Also where nobody on the machine asks for it again."""
    store = machines[1].store()
    shop.faults.append(("GET", "/raw/p/b", "denied"))
    with pytest.raises(LakeError, match="may not read raw/p/b"):
        store.files("raw")
    assert [path.stem for path in store.path.glob("_coming/raw/p/*")] != []
    forgetting = machines[0].store()
    with forgetting.lock("test"):
        for path in forgetting.files("raw"):
            forgetting.drop(path)
    machines[1].store()
    assert list(store.path.glob("_coming/raw/p/*")) == []


def test_what_is_new_of_a_table_that_came_comes_with_the_rest(machines: tuple[Machine, Machine]) -> None:
    first, second = machines
    answer(second.store(), "SELECT count(*) AS n FROM raw")
    publish(first.store(), RAW, "p/d")
    store = second.store()
    assert disk.aside(store.path).keys() == {"requests"}
    assert answer(store, "SELECT count(*) AS n FROM raw") == 4


def test_a_table_that_nobody_has_written_yet_is_empty_and_then_aside(
    machines: tuple[Machine, Machine], shop: s3.Shop
) -> None:
    """And empty again once all of it was dropped there: the views follow."""
    second = machines[1]
    raw = {key: shop.objects.pop(key) for key in list(shop.objects) if "/raw/" in key or "/_manifests/" in key}
    store = second.store()
    assert answer(store, "SELECT count(*) AS n FROM raw") == 0
    shop.objects.update(raw)
    store = second.store()
    with closing(database.connect(store.path)) as lens, pytest.raises(duckdb.CatalogException):
        lens.execute(COUNTED)
    for key in raw:
        del shop.objects[key]
    assert answer(second.store(), "SELECT count(*) AS n FROM raw") == 0


def test_who_asks_while_this_machine_writes_waits_for_what_the_writer_brings(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has all of it from its first moment; one that never gets there is told of."""
    second = machines[1]
    looking = second.store()
    writing = threading.Event()
    over = threading.Event()

    def write() -> None:
        with Store.open(looking.path, second.clock).lock("test"):
            writing.set()
            over.wait(30.0)

    thread = threading.Thread(target=write)
    thread.start()
    assert writing.wait(30.0)
    assert answer(looking, "SELECT count(*) AS n FROM raw") == 3
    (looking.path / disk.ASIDE).write_text('{"raw": [1, 1]}')  # as if it did not
    with pytest.raises(BusyError, match="another process brings what is new"):
        looking.files("raw")
    over.set()
    thread.join()
    assert len(looking.files("raw")) == 3


def test_a_lake_without_an_address_has_all_of_itself(tmp_path: Path) -> None:
    store = Store.init(tmp_path / "lake")
    publish(store, RAW, "p/a")
    assert answer(store, "SELECT count(*) AS n FROM raw") == 1
    assert store.mirror is None
