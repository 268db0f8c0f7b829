"""The lens: complete, current, replaced in one step, and readable by any DuckDB."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import duckdb
import orjson
import pyarrow.parquet as pq
import pytest

from batchpond.errors import LakeWarning
from batchpond.lake import disk, events, tables
from batchpond.lake.schemas import EVENTS, FORMAT_VERSION, IMPORTED_JUDGMENTS, ITEMS, TABLES
from batchpond.lake.store import LENS, MARKER, Store
from batchpond.views import database, draft, read
from batchpond.views.refresh import refresh, scripts
from tests.rigs.lakes import LakeBuilder
from tests.rigs.sql import columns_of_all, views_over
from tests.rigs.swept import every, some

OTHER_PYTHON = "BATCHPOND_OTHER_PYTHON"  # an interpreter with another line of DuckDB


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    """A lake with one sent request, at a path that needs quoting."""
    lake = LakeBuilder(tmp_path / "it's a [lake] * ?" / "lake")
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.sent("A1", "S1", ["r1"])
    return lake


def _states(path: Path) -> list[tuple[str]]:
    with database.connect(path) as connection:
        return connection.execute("SELECT request_state FROM results").fetchall()


# --- what is in it ---------------------------------------------------------------------------------


def test_every_view_binds_and_is_empty_on_a_lake_without_files(tmp_path: Path) -> None:
    """A lake that was just made answers every question; that each view binds without rows, its own test tries."""
    lake = LakeBuilder(tmp_path / "lake")
    with lake.connect() as connection:
        for view in every(8, database.views()):
            assert connection.execute(f"SELECT * FROM {view.name}").fetchall() == [], view.name


def test_table_views_have_exactly_the_columns_of_the_schemas(lake: LakeBuilder) -> None:
    """With and without files, in order and in type."""
    with views_over({}) as empty, lake.connect() as full:
        for name, table in TABLES.items():
            for connection in (empty, full):
                assert connection.sql(f"SELECT * FROM {name}").to_arrow_table().schema.names == table.schema.names
            described = [c.execute(f"DESCRIBE {name}").fetchall() for c in (empty, full)]
            assert described[0] == described[1]


def test_the_file_opens_read_only_under_any_name_beside_other_readers(lake: LakeBuilder) -> None:
    """As `duckdb -readonly`, attached under another name, and twice in one process."""
    lake.build()
    path = os.fspath(lake.path / LENS)
    with duckdb.connect(path, read_only=True) as first, duckdb.connect() as second:
        second.execute(f"ATTACH '{path.replace(chr(39), chr(39) * 2)}' AS other (READ_ONLY)")
        second.execute(f"SET VARIABLE lake = {tables.literal(os.fspath(lake.path))}")
        assert first.execute("SELECT request_state FROM results").fetchall() == [("outstanding",)]
        assert second.execute("SELECT request_state FROM other.results").fetchall() == [("outstanding",)]
        assert _states(lake.path) == [("outstanding",)]


def test_the_other_line_of_duckdb_reads_the_file(lake: LakeBuilder) -> None:
    """What one line of DuckDB wrote the other opens, either way: it binds every view, and reads each fifth."""
    other = os.environ.get(OTHER_PYTHON)
    if not other:
        pytest.skip(f"{OTHER_PYTHON} names no interpreter with another line of DuckDB: cross-version NOT tested")
    lake.build()
    program = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True)\n"
        "c.execute('SET enable_progress_bar = FALSE')\n"
        "[c.execute(f'DESCRIBE FROM {n}') for n in sys.argv[2:]]\n"
        "[c.execute(f'CREATE OR REPLACE TEMP TABLE answer AS FROM {n}') for n in sys.argv[2::5]]\n"
        "print(duckdb.__version__, c.execute('SELECT request_state FROM results').fetchall())"
    )
    names = [view.name for view in database.views()]
    done = subprocess.run(
        [other, "-c", program, os.fspath(lake.path / LENS), *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    version, states = done.stdout.split(" ", 1)
    assert version != duckdb.__version__
    assert states.strip() == "[('outstanding',)]"
    (lake.path / LENS).unlink()
    subprocess.run([other, "-m", "batchpond", "--lake", lake.path, "doctor", "--fix"], capture_output=True, check=True)
    with duckdb.connect(os.fspath(lake.path / LENS), read_only=True) as own:
        assert own.execute("SELECT duckdb_version FROM lens_info").fetchall() == [(version,)]
        for name in names:
            own.execute(f"DESCRIBE FROM {name}")
        for name in names[::5]:
            own.execute(f"CREATE OR REPLACE TEMP TABLE answer AS FROM {name}")
        assert own.execute("SELECT request_state FROM results").fetchall() == [("outstanding",)]


def test_no_reader_waits_for_what_an_optimiser_does_in_vain(lake: LakeBuilder) -> None:
    """Two of those of DuckDB 2.0; a line that has them not opens the lake as well."""
    with database.connect(lake.path) as connection:
        sql = "SELECT current_setting('disabled_optimizers'), list(name) FROM duckdb_optimizers()"
        ((off, known),) = connection.execute(sql).fetchall()
    assert {*off.split(",")} - {""} == {"partial_aggregate_pushdown", "projection_pullup"}.intersection(known)


def test_no_engine_of_ours_draws_on_stdout(lake: LakeBuilder) -> None:
    """A command that is given to Python is interactive to DuckDB, which then shows how far a long query is."""
    lake.build()
    program = (
        "import sys; from pathlib import Path; from batchpond.lake import tables\n"
        "from batchpond.lake.store import Store\n"
        "from batchpond.views import database; path = Path(sys.argv[1])\n"
        "ask = \"SELECT current_setting('enable_progress_bar')\"\n"
        "with tables.connect(Store.open(path), ['plan']) as own, database.connect(path) as lens:\n"
        "    print(own.execute(ask).fetchall(), lens.execute(ask).fetchall())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, os.fspath(lake.path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[(False,)] [(False,)]\n", 0), done.stderr


def test_the_lens_is_private_and_leaves_nothing_else_behind(lake: LakeBuilder) -> None:
    """Mode 0600, no log, no staged file."""
    lake.build()
    assert stat.S_IMODE((lake.path / LENS).stat().st_mode) == 0o600
    assert sorted(path.name for path in lake.path.glob(f"{LENS}*")) == [LENS]
    assert list((lake.path / "_tmp").iterdir()) == []


# --- views that are tables in it ------------------------------------------------------------------


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    return sorted(map(repr, connection.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist()))


def test_the_ddl_in_plain_duckdb_says_what_the_lens_has_as_tables_after_each_change(lake: LakeBuilder) -> None:
    """One script, no Python, of the whole DDL: the lens keeps rows where that has a SELECT, and both say the same.

    Whatever is published in between.
    """
    first_view = scripts()[0].text
    with duckdb.connect() as plain:
        plain.execute("SET TimeZone = 'UTC'")
        _, views = database.ddl(lake.path, database.listed(lake.path)).split(first_view)
        for number in range(3):
            lake.sent(f"B{number}", f"T{number}", [f"q{number}"])
            lake.plan([{"slot": number, "request_id": f"q{number}"}])
            lake.build()
            # Only the lists of files differ from one script to the next: the views need making once.
            lists, *same = database.ddl(lake.path, database.listed(lake.path)).split(first_view)
            assert same == [views]
            plain.execute(lists if number else lists + first_view + views)
            with database.connect(lake.path) as connection:
                for name in draft.AS_TABLES:
                    ((kind,),) = connection.execute(
                        "SELECT table_type FROM information_schema.tables WHERE table_name = ?", [name]
                    ).fetchall()
                    assert kind == "BASE TABLE"
                    assert _rows(connection, name) == _rows(plain, name)
                    described = [c.execute(f"DESCRIBE {name}").fetchall() for c in (connection, plain)]
                    assert described[0] == described[1]
                assert len(_rows(connection, "attempts")) == number + 2
            states = plain.execute("SELECT DISTINCT request_state FROM results").fetchall()
            assert states == [("outstanding",)]


def test_only_what_has_a_row_per_study_attempt_or_shard_is_a_table() -> None:
    """A lens is copied whenever something is published: it holds nothing that has a row per request."""
    grains = {view.grain for view in database.views() if view.name in draft.AS_TABLES}
    assert grains == {"study", "attempt_id", "shard_id"}


def test_a_reader_beside_a_writer_never_sees_attempts_of_another_moment_than_their_events(lake: LakeBuilder) -> None:
    """Tables and lists of files are replaced in one step."""
    lake.build()
    sql = "SELECT (SELECT count(*) FROM attempts), (SELECT count(DISTINCT attempt_id) FROM events)"
    stop = threading.Event()
    seen: list[tuple[int, int]] = []

    def read() -> None:
        while not stop.is_set():
            with database.connect(lake.path) as connection:
                seen.extend(connection.execute(sql).fetchall())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(6):
            lake.sent(f"B{number}", f"T{number}", [f"q{number}"])
            lake.build()
            n_seen = len(seen)
            while len(seen) == n_seen and thread.is_alive():
                time.sleep(0.001)
    finally:
        stop.set()
        thread.join()
    assert [row for row in seen if row[0] != row[1]] == []
    assert len(set(seen)) > 1


def test_an_event_file_whose_rows_are_damaged_stops_no_build_and_no_reader_of_other_tables(lake: LakeBuilder) -> None:
    """Its footer is sound: one that is new is listed, and what reads it fails; one that changed since is left out."""
    lake.build()
    known = lake.store.files("events")
    lake.sent("A2", "S2", ["r2"])
    for path in lake.store.files("events"):
        content = path.read_bytes()
        rows_end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        path.write_bytes(content[:4] + b"\xff" * (rows_end - 4) + content[rows_end:])
    assert [lake.path / bad.name for bad in lake.build()] == known
    with pytest.warns(LakeWarning):
        connection = database.connect(lake.path)
    with connection:
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT max(attempt_state) FROM attempts").fetchall()
        assert connection.execute("SELECT count(*) FROM plan").fetchall() == [(1,)]


# --- when it is written -----------------------------------------------------------------------------


def test_it_is_current_until_a_file_is_published(lake: LakeBuilder) -> None:
    """The fingerprint covers the list of files and nothing that changes by itself."""
    assert not database.is_current(lake.path, database.listed(lake.path))
    lake.build()
    assert database.is_current(lake.path, database.listed(lake.path))
    lake.sent("A2", "S2", ["r2"])
    assert not database.is_current(lake.path, database.listed(lake.path))
    lake.build()
    assert database.is_current(lake.path, database.listed(lake.path))


def _items(path: Path, *pythons: str, folder: Path) -> list[str]:
    """Return the items that plain DuckDB shows from a lens, opened from `folder` by a name relative to it."""
    program = (
        "import duckdb, sys\n"
        "c = duckdb.connect(sys.argv[1], read_only=True)\n"
        "print(*sorted(h for (h,) in c.execute('SELECT item_hash FROM items').fetchall()))"
    )
    shown = set()
    for python in pythons or (sys.executable, *filter(None, [os.environ.get(OTHER_PYTHON)])):
        name = os.path.relpath(path / LENS, folder)
        command = [python, "-c", program, name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shown.add(done.stdout.strip())
    (only,) = shown
    return only.split()


@pytest.mark.parametrize("original", ["changed", "deleted"])
def test_a_copied_lake_opens_anywhere_and_never_reads_the_original(
    lake: LakeBuilder, tmp_path: Path, original: str
) -> None:
    """With plain DuckDB, from any working directory, whether the original is there, says otherwise, or is gone."""
    lake.rows(ITEMS, [{"item_hash": "h1", "item_id": "i", "text": "t"}])
    lake.build()
    copy = tmp_path / "copy" / "lake"
    shutil.copytree(lake.path, copy)
    if original == "changed":
        for path in lake.store.files("items"):
            path.write_bytes(b"never read")
    else:
        shutil.rmtree(lake.path)
    for folder in (tmp_path, copy, copy / "items", Path("/")):
        assert _items(copy, folder=folder) == ["h1"]
    assert database.is_current(copy, database.listed(copy))
    assert _states(copy) == [("outstanding",)]
    (copy / "items").rename(copy / "elsewhere")
    with (
        duckdb.connect(os.fspath(copy / LENS), read_only=True) as connection,
        pytest.raises(duckdb.IOException, match="copy/lake/items"),
    ):
        connection.execute("SELECT * FROM items").fetchall()


def test_a_lake_that_was_moved_is_not_written_anew(lake: LakeBuilder, tmp_path: Path) -> None:
    """Where it stands is no part of what its lens was written from."""
    lake.rows(ITEMS, [{"item_hash": "h1", "item_id": "i", "text": "t"}])
    lake.build()
    moved = tmp_path / "moved"
    lake.path.rename(moved)
    assert _states(moved) == [("outstanding",)]
    assert _items(moved, folder=tmp_path) == ["h1"]
    assert not refresh(Store.open(moved))
    assert database.is_current(moved, database.listed(moved))


def test_an_attached_lens_reads_the_lake_that_a_variable_names_and_nothing_without_it(
    lake: LakeBuilder, tmp_path: Path
) -> None:
    """A session that has a database of its own says where the lake is; none is guessed."""
    lake.rows(ITEMS, [{"item_hash": "h1", "item_id": "i", "text": "t"}])
    lake.build()
    own = os.fspath(tmp_path / "own.duckdb")
    with duckdb.connect(own) as connection:
        connection.execute(f"ATTACH {tables.literal(os.fspath(lake.path / LENS))} AS pond (READ_ONLY)")
        with pytest.raises(duckdb.IOException):
            connection.execute("SELECT * FROM pond.items").fetchall()
        connection.execute(f"SET VARIABLE lake = {tables.literal(os.fspath(lake.path))}")
        assert connection.execute("SELECT item_hash FROM pond.items").fetchall() == [("h1",)]
        assert connection.execute("SELECT request_state FROM pond.results").fetchall() == [("outstanding",)]


def test_the_ddl_says_where_the_lake_is_in_its_first_statement(lake: LakeBuilder) -> None:
    """Who moves the lake changes one line of it."""
    script = database.ddl(lake.path, database.listed(lake.path))
    statements = [line for line in script.splitlines() if line and not line.startswith("--")]
    assert statements[0] == f"SET VARIABLE lake = {tables.literal(os.fspath(lake.path))};"
    assert os.fspath(lake.path.parent.parent) not in "".join(statements[1:])


@pytest.mark.parametrize("damage", some("garbage", "directory", swept=["missing", "truncated", "other"]))
def test_a_lens_that_is_damaged_or_gone_does_not_stop_a_reader(lake: LakeBuilder, damage: str) -> None:
    """Views are made in memory then, and the next build mends the file."""
    lake.build()
    path = lake.path / LENS
    size = path.stat().st_size
    path.unlink()
    if damage == "garbage":
        path.write_bytes(b"not a database" * 1000)
    elif damage == "truncated":
        lake.build()
        os.truncate(path, size // 2)
    elif damage == "other":
        duckdb.connect(os.fspath(path)).close()
    elif damage == "directory":
        path.mkdir()
        assert _states(lake.path) == [("outstanding",)]
        path.rmdir()
    assert _states(lake.path) == [("outstanding",)]
    assert not database.is_current(lake.path, database.listed(lake.path))
    lake.build()
    assert database.is_current(lake.path, database.listed(lake.path))
    assert _states(lake.path) == [("outstanding",)]


def test_a_log_that_another_program_left_behind_is_removed(lake: LakeBuilder) -> None:
    """A foreign write-ahead log would make the new file unopenable."""
    lake.build()
    (lake.path / f"{LENS}.wal").write_bytes(b"stale" * 100)
    lake.sent("A2", "S2", ["r2"])
    lake.build()
    assert not (lake.path / f"{LENS}.wal").exists()
    assert _states(lake.path) == [("outstanding",)]


def test_building_again_and_again_does_not_grow_the_file(lake: LakeBuilder) -> None:
    """Each lens is made from the one before; freed space is used again."""
    sizes = []
    for number in range(8):
        lake.rows(ITEMS, [{"item_hash": f"h{number}", "item_id": "i", "text": "t"}])
        lake.build()
        sizes.append((lake.path / LENS).stat().st_size)
    assert max(sizes[4:]) <= max(sizes[:4])


def test_five_hundred_files_are_one_table(lake: LakeBuilder) -> None:
    """Files under other names with the same rows add nothing to where an attempt stands."""
    lake.build()
    template = lake.store.files("events")[0]
    for number in range(500):
        lake.store.final_path(EVENTS, f"copy-{number:04d}").hardlink_to(template)
    lake.build()
    assert database.is_current(lake.path, database.listed(lake.path))
    assert _states(lake.path) == [("outstanding",)]


def test_readers_never_fail_while_the_lens_is_replaced(lake: LakeBuilder) -> None:
    """A reader sees the old list or the new one, whole."""
    lake.build()
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            with database.connect(lake.path) as connection:
                seen.append(connection.execute("SELECT count(*) FROM items").fetchall()[0][0])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(5):
            lake.rows(ITEMS, [{"item_hash": f"h{number}", "item_id": "i", "text": "t"}])
            lake.build()
        while len(seen) < 3 and thread.is_alive():  # however busy the machine is
            time.sleep(0.01)
    finally:
        stop.set()
        thread.join()
    assert seen == sorted(seen)
    assert len(seen) > 2


def test_a_reader_whose_events_are_merged_meanwhile_opens_the_lens_once_more(
    lake: LakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its opening and its question; a plain one is told loudly."""
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", 1)
    lake.build()
    plain = duckdb.connect(os.fspath(lake.path / LENS), read_only=True)
    asked: list[int] = []

    def ask(connection: duckdb.DuckDBPyConnection) -> list[tuple[int]]:
        asked.append(1)
        if len(asked) == 1:
            with lake.store.lock("test"):
                assert events.EventLog(lake.store).compact(lambda: refresh(lake.store))
        return connection.execute("SELECT count(DISTINCT event_id) FROM events").fetchall()

    with read.asked(lake.path, ask) as found:
        assert found == [(len(events.read(lake.store)),)]
    assert len(asked) == 2
    with plain, pytest.raises(duckdb.IOException):
        plain.execute("SELECT count(*) FROM events").fetchall()
    assert len(lake.store.published("events")) == 1


# --- files that cannot be read ---------------------------------------------------------------------


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _foreign(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS x) TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")


@pytest.mark.parametrize("damage", [_truncate, _empty, _foreign])
def test_one_unreadable_file_costs_its_own_rows_and_is_named(lake: LakeBuilder, damage: object) -> None:
    """The build names it, every reader says it, and every other row is there."""
    lake.rows(ITEMS, [{"item_hash": "h1", "item_id": "i", "text": "t"}])
    lake.rows(ITEMS, [{"item_hash": "h2", "item_id": "i", "text": "t"}])
    path = lake.store.files("items")[0]
    assert callable(damage)
    damage(path)
    (bad,) = lake.build()
    assert lake.path / bad.name == path
    assert bad.problem
    with pytest.warns(LakeWarning, match=path.name):
        connection = database.connect(lake.path)
    with connection:
        assert connection.execute("SELECT item_hash FROM items").fetchall() == [("h2",)]


# --- what is listed -----------------------------------------------------------------------------


def test_every_table_is_described() -> None:
    """`views` lists the tables too, each with its grain, whose columns exist."""
    columns = columns_of_all()
    views = database.views()
    assert [view.name for view in views[: len(TABLES)]] == list(TABLES)
    for view in views:
        assert view.question.endswith("?"), view.name
        assert set(view.grain_columns) <= set(columns[view.name]), view.name


def test_importing_the_lens_leaves_the_terminal_alone() -> None:
    """Nothing is printed or opened by importing."""
    done = subprocess.run(
        [sys.executable, "-c", "import batchpond.views.database"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_files_from_before_a_column_was_added_are_read_with_that_column_null(tmp_path: Path) -> None:
    """Beside newer files or alone, in the views and for the program's own SQL; no other column may lack."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.imported([{"item_first": "a", "item_second": "b", "verdict": "first", "outcome": "decided"}])
    newer = lake.store.files(IMPORTED_JUDGMENTS.name)[0]
    rows = pq.ParquetFile(newer).read()
    older = newer.with_name("older.parquet")
    pq.write_table(rows.drop_columns(sorted(IMPORTED_JUDGMENTS.later)), older)
    asked = "select count(*) as n, count(task) as n_with_task, count(distinct item_first) as n_items"
    marker = lake.store.path / MARKER
    marker.write_bytes(orjson.dumps(orjson.loads(marker.read_bytes()) | {"format": FORMAT_VERSION - 1}))
    for n_files in (2, 1):
        found = lake.query(f"{asked} from imported_judgments")
        assert found == [{"n": n_files, "n_with_task": n_files - 1, "n_items": 1}]
        assert lake.query("select count(*) as n from pair_judgments") == [{"n": n_files}]
        with tables.connect(Store.open(lake.store.path), [IMPORTED_JUDGMENTS.name]) as connection:
            assert connection.execute(f"{asked} from imported_judgments").fetchall() == [(n_files, n_files - 1, 1)]
        newer.unlink(missing_ok=True)
    pq.write_table(rows.drop_columns(["verdict"]), older)
    assert [bad.name.rpartition("/")[2] for bad in lake.build()] == ["older.parquet"]


def test_an_empty_lens_is_kept_for_the_next_lake_and_a_damaged_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept file is private, is what the next lens is made from, and neither damage nor its absence matters."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    LakeBuilder(tmp_path / "one").build()
    (file,) = (tmp_path / "cache" / "batchpond").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = file.read_bytes()
    for damage in (b"not a database", made[: len(made) // 2]):
        file.write_bytes(damage)
        lake = LakeBuilder(tmp_path / f"after {len(damage)}")
        assert lake.query("select count(*) as n from results") == [{"n": 0}]
        assert file.read_bytes() != damage
    file.chmod(0o666)  # somebody else could have written it
    assert disk.cached("lens", file.name.removeprefix("lens-")) is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert LakeBuilder(tmp_path / "without").query("select count(*) as n from results") == [{"n": 0}]


def test_a_lens_is_made_anew_without_opening_what_it_showed_before(
    lake: LakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file's footer is read once, and again where the file is another by now."""
    for number in range(5):
        lake.rows(ITEMS, [{"item_hash": f"h{number}", "item_id": "i", "text": "t"}])
    lake.build()
    opened: list[Path] = []
    examine = disk.intact

    def counted(path: Path) -> AbstractContextManager[pq.ParquetFile]:
        opened.append(path)
        return examine(path)

    monkeypatch.setattr(disk, "intact", counted)
    lake.rows(ITEMS, [{"item_hash": "new", "item_id": "i", "text": "t"}])
    touched, new = lake.store.files("items")[0], {*lake.store.files("items")}
    with database.connect(lake.path) as connection:
        shown = {lake.path / name for (name,) in connection.execute("SELECT path FROM lens_files").fetchall()}
    opened.clear()
    touched.write_bytes(b"PAR1 not really")
    assert [lake.path / bad.name for bad in lake.build()] == [touched]
    assert {*opened} == (new - shown) | {touched}
