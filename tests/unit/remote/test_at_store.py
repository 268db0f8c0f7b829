"""A lake's large tables, read where they stand: DuckDB goes to the store itself, and nothing of them comes here."""

from __future__ import annotations

import json
import os
from contextlib import closing
from functools import partial
from pathlib import Path

import duckdb
import pytest

from batchpond.errors import UsageError
from batchpond.lake.schemas import RAW
from batchpond.lake.store import Store
from batchpond.views import database, read, refresh
from tests.rigs import s3
from tests.rigs.forked import run_text
from tests.unit.remote.conftest import URL, Machine, publish, say

COUNTED = "SELECT count(*) AS n FROM raw, (SELECT count(*) AS n_events FROM events) AS e WHERE e.n_events = 1"


def filled(store: Store) -> None:
    """Three raw lines, each in a file of its own, and an event."""
    say(store, "a")
    publish(store, RAW, "p/a", "p/b", "p/c")


def asked(store: Store) -> list[dict[str, object]]:
    with read.shown_query(store.path, COUNTED, is_arrow=True, connect=partial(database.at_store, store)) as rows:
        assert not isinstance(rows, read.Rows)
        return rows.read_all().to_pylist()


def tables_of(script: str) -> str:
    """Return where a script says that the lake stands, and its tables; views over those take seconds to make."""
    return script.partition(refresh.scripts()[0].text)[0]


def loads(extension: str) -> None:
    """Skip where DuckDB has no such extension of its very version: there are some for 1.5.5 among Python's packages."""
    with duckdb.connect() as connection:
        try:
            connection.execute(f"LOAD {extension}")
        except duckdb.Error as error:
            pytest.skip(f"NOT RUN: {str(error).splitlines()[0]} (the guide `remote` says what brings it)")


@pytest.fixture
def httpfs() -> None:
    loads("httpfs")


@pytest.fixture
def aws() -> None:
    loads("aws")


def test_what_stands_in_a_shared_folder_is_read_there(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    """By a query in the sandbox, and by a script in a plain DuckDB that knows nothing of the mirror."""
    url = f"file://{tmp_path}/it's shared"
    filled(machines[0].store(url, is_new=True))
    store = machines[1].store(url)
    done = run_text("--lake", url, "query", COUNTED, "--at-store", "--json", env=os.environ)
    assert (done.returncode, json.loads(done.stdout)) == (0, [{"n": 3}]), done.stderr
    with duckdb.connect() as connection:
        connection.execute(tables_of(database.ddl_at_store(store)))
        assert connection.execute(COUNTED).fetchall() == [(3,)]
        assert str(store.path) not in str(connection.execute("SELECT getvariable('lake')").fetchall())
    assert not (store.path / "raw").exists()


def test_what_stands_in_a_bucket_is_read_there(machines: tuple[Machine, Machine], shop: s3.Shop, httpfs: None) -> None:
    """No file of a large table comes here, the script holds no key, and a user's SELECT reaches nothing else there."""
    filled(machines[0].store())
    store = machines[1].store()
    assert asked(store) == [{"n": 3}]
    script = database.ddl_at_store(store)
    with duckdb.connect() as connection:
        connection.execute(tables_of(script))
        assert connection.execute(COUNTED).fetchall() == [(3,)]
    assert "LOAD httpfs;" in script
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in script.partition("VARIABLE")[0]
    assert not (store.path / "raw").exists()
    assert shop.fetched("/raw/")
    with closing(database.at_store(store, store.path)) as connection:
        read._lock_down(connection)
        connection.execute("FROM raw")
        with pytest.raises(duckdb.PermissionException):
            connection.execute(f"FROM read_text('{URL}/batchpond.json')")


def test_keys_that_are_none_of_the_environment_are_looked_for_by_amazons_own_chain(
    machines: tuple[Machine, Machine], shop: s3.Shop, aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in a file of profiles, by DuckDB's extension aws; at the same endpoint."""
    filled(machines[0].store())
    store = machines[1].store()
    (tmp_path / "profiles").write_text("[default]\naws_access_key_id = of-a-file\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "profiles"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    shop.signed.clear()
    assert asked(store) == [{"n": 3}]
    assert "of-a-file" in shop.signed
    assert "of-a-file" not in database.ddl_at_store(store)


def test_a_duckdb_without_httpfs_says_what_it_needs(
    machines: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words of its own, and of its version: an extension is of one."""
    filled(machines[0].store())
    store = machines[1].store()
    monkeypatch.setenv("HOME", str(tmp_path))  # where DuckDB keeps extensions
    with pytest.raises(UsageError, match=r"DuckDB cannot read s3://bucket-one/lakes/first itself: .*httpfs") as told:
        database.at_store(store, store.path)
    assert f"its extensions for {duckdb.__version__}" in (told.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("views", "--at-store"), "is no lake at an address"),
        (("query", "FROM raw", "--at-store"), "is no lake at an address"),
        (("query", "FROM raw", "--at-store", "--engine", "sail"), "an engine reads the lake's mirror"),
        (("views", "--dialect", "spark", "--at-store"), "reads the lake's mirror"),
    ],
)
def test_a_folder_has_no_store_to_go_to(tmp_path: Path, asked: tuple[str, ...], why: str) -> None:
    lake = str(tmp_path / "lake")
    Store.init(Path(lake))
    done = run_text("--lake", lake, *asked, env=os.environ)
    assert done.returncode == 2
    assert why in done.stderr
