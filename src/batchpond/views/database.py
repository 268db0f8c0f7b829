"""The lens: a small DuckDB file of views over an explicit list of the lake's Parquet files.

Views come into it bound one by one over stubs, and as tables where they are small and dear to plan: a view over views
over views is planned as one tree, each part as often as it is named. What has a row per study or attempt is therefore
kept as a table in the lens: made from the same files, in the same file, so that a reader sees both of one moment or
neither. Without Python the same SELECT is a view (`ddl`).

An empty one is kept beside the user's other caches: making all views takes seconds, copying them does not."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import duckdb
import orjson

from batchpond.clock import random_hex
from batchpond.errors import LakeError, UsageError
from batchpond.lake import disk
from batchpond.lake.disk import held
from batchpond.lake.manifest import GONE, Damage
from batchpond.lake.schemas import LARGE, TABLES, Table
from batchpond.lake.store import ADDRESS, LENS, TMP, Store, whole
from batchpond.lake.tables import QUIET, literal, query, quoted
from batchpond.model import CELL_COLUMNS
from batchpond.views import refresh
from batchpond.views.draft import AT_HAND, CATALOG, MEMORY_LIMIT, Draft, Seen, as_tables, config, seen
from batchpond.views.refresh import Files, Good, Sound, fingerprint, first_line, named, sorted_out, views_digest


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make every macro and view over the tables that are there.

    Making a view binds all that it reads. So each is made where what it reads are empty tables of its columns, which
    stand before the views of their names for as long as this takes. What no other view reads stays text, which DuckDB
    parses where somebody asks for it: of each view that is a tree, whoever opens the database makes all nodes, and
    whoever changes it writes them again.
    """
    scripts = refresh.scripts()
    read = {name for script in scripts for name in script.needs}
    ((current,),) = connection.execute("SELECT current_database()").fetchall()
    with connection.cursor() as own:
        own.execute(f"USE {quoted(current)}")
        for script in scripts:
            text = f"CREATE VIEW {quoted(script.name)} AS FROM query({literal(script.select)})"
            own.execute(text if script.views and script.name not in read else script.text)
            for name in read.intersection(script.views):
                _stand_in(own, name)


def _stand_in(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Make an empty temporary table of a view's columns: this connection finds it in the view's place."""
    ((columns,),) = connection.execute(query(__package__, "columns"), {"name": name}).fetchall()
    connection.execute(f"CREATE TEMP TABLE {quoted(name)} ({columns})")


_LISTS = "SELECT table_name, paths, stood FROM lens_lists"
# Where the lake's files are: what `SET VARIABLE lake` says, and without it the folder of the database that is open,
# which is its temp_directory's unless somebody set that. So a lens reads the lake that it lies in, wherever that is.
# (DuckDB makes that name by adding `.tmp` to the database's: at its end, or before a question mark in it.)
_STANDS = "coalesce(getvariable('lake'), parse_dirpath(replace(current_setting('temp_directory'), '.tmp?', '?')))"
# What the optimisers of some DuckDB lines do in vain: of small lakes a tenth of all planning, of large ones more.
_IN_VAIN = (
    "SELECT coalesce(string_agg(name, ','), '') FROM duckdb_optimizers()"
    " WHERE name IN ('partial_aggregate_pushdown', 'projection_pullup')"
)
_BAD = "SELECT path, problem FROM lens_bad ORDER BY path"


class Connect(Protocol):
    """What opens a lake's views, as `connect` does."""

    def __call__(self, lake_path: Path, /, *, memory_limit: str) -> duckdb.DuckDBPyConnection:
        """Open them; close the connection after use."""


class _Info(NamedTuple):
    """The row of `lens_info`: what a lens was written from, and by which engine."""

    fingerprint: str
    n_files: int
    views_digest: str
    duckdb_version: str


class _Kept(NamedTuple):
    """What a lens says of itself, and how the files stood that it shows, by their paths in the lake."""

    info: _Info
    sound: dict[str, Sound]


def is_current(lake_path: Path, files: Files) -> bool:
    """Whether the lens on disk shows exactly these files, as they stand, through the present views."""
    kept = _kept(lake_path)
    is_of_these = kept is not None and kept.info.fingerprint == fingerprint(named(lake_path, files))
    return is_of_these and not _changed(lake_path, _known_sound(lake_path))


def _changed(lake_path: Path, known: Mapping[str, Sound]) -> list[str]:
    """Return the files, by their paths in the lake, that stand otherwise than when they were found sound.

    None where all of them do: then the lake was copied.
    """
    found = [name for name, sound in known.items() if disk.stands(f"{lake_path}/{name}") != sound[:2]]
    return found if len(found) < len(known) else []


def build(lake_path: Path, files: Files, gone: Sequence[str] | None = None, *, is_for_us: bool = False) -> list[Damage]:
    """Write the lens anew; returns the files that it had to leave out.

    The caller holds the lake's lock, and asks `is_current` first where nothing may have changed; `gone` are the files
    that are missed, for who knows them. One unreadable file costs its own rows and nothing else; a derived one is
    dropped, for a pass makes it again. What `is_for_us` shows in `connect_at_hand` and is not written where a lens is.
    """
    good, bad = sorted_out(lake_path, named(lake_path, files), _known_sound(lake_path), gone)
    try:
        with AT_HAND.of(lake_path / LENS) as current:
            is_written = not is_for_us or current is None
            draft, content = _remade(_bases(lake_path, current), lake_path, good, bad, is_written=is_written)
            AT_HAND.keep(draft, None)
            if is_written:
                _put_in_place(lake_path, content)
            AT_HAND.keep(draft, seen(lake_path / LENS))
    except duckdb.OutOfMemoryException as error:
        raise MemoryError from error
    except (duckdb.Error, OSError) as error:
        raise LakeError(
            f"the views of {lake_path} could not be written: {first_line(error)}",
            hint="check free space; the Parquet files are intact and `batchpond doctor --fix` writes the views again",
        ) from error
    for file in bad:
        if _table(file.name).is_derived:
            disk.drop(lake_path / file.name)
    return bad


def drop_damaged(lake_path: Path) -> list[Damage]:
    """Drop the derived files that are not as they were made, for a pass to make them again; the lake's lock is held."""
    derived = {name: paths for name, paths in listed(lake_path).items() if TABLES[name].is_derived}
    bad = sorted_out(lake_path, named(lake_path, derived), _known_sound(lake_path), ())[1]
    for file in bad:
        disk.drop(lake_path / file.name)
    return bad


def _table(name: str) -> Table:
    """Return the table that a file is of, by its path in the lake."""
    return TABLES[name.partition("/")[0]]


def ddl(lake_path: Path, files: Files) -> str:
    """Return the whole lens as one SQL script that plain DuckDB runs."""
    return _script(_set_lake(lake_path), sorted_out(lake_path, named(lake_path, files), {})[0])


def ddl_at_store(store: Store) -> str:
    """Return such a script over what stands at a lake's address, for a DuckDB on any machine."""
    place, sql, good, _ = _far(store)
    return _script(f"{sql}SET VARIABLE lake = {literal(place)};\n", good)


def _script(stands: str, good: Good) -> str:
    head = "-- Views over a lake, which stands here: run in an empty DuckDB, or `.read` this file.\n"
    tables = (_table_view(name, good[name]) for name in TABLES)
    return "\n".join([head + stands, *tables, *(script.text for script in refresh.scripts())])


def at_store(store: Store, lake_path: Path, /, *, memory_limit: str = MEMORY_LIMIT) -> duckdb.DuckDBPyConnection:
    """Open all views, what a mirror has set aside read at the lake's address by DuckDB itself; close it after use."""
    aside = disk.aside(lake_path)
    place, sql, good, bad = _far(store)
    connection = duckdb.connect(":memory:", config=config(lake_path, memory_limit))
    try:
        connection.execute(sql + _set_lake(lake_path) + QUIET)
        _create(connection)
        for name, files in good.items():
            connection.execute(_table_view(name, files, literal(place) if name in aside else _STANDS))
        _record(connection, good, bad)
        may_read = ", ".join(literal(f"{place}/{name}/") for name in aside)  # whoever may read no other file
        connection.execute(f"SET allowed_directories = [{may_read}]")
    except duckdb.Error as error:
        connection.close()
        hint = f"it needs its extensions for {duckdb.__version__}, as the guide `remote` says; without --at-store none"
        raise UsageError(f"DuckDB cannot read {place} itself: {first_line(error)}", hint=hint) from error
    return _warned(connection)


def _far(store: Store) -> tuple[str, str, Good, list[Damage]]:
    """Return where DuckDB itself finds a lake at an address, by which SQL, and its files: here, or there alone."""
    if store.mirror is None:
        raise UsageError(f"{store.path} is no lake at an address", hint="its files are read where they are")
    good, bad = sorted_out(store.path, named(store.path, _here(store.path)), _known_sound(store.path))
    for name, paths in store.mirror.left().items():
        good[name] = dict.fromkeys(paths, Sound(0, 0, bool(TABLES[name].later)))
    return store.mirror.url.removeprefix("file://"), _opening(store.mirror.url), good, bad


def _opening(url: str) -> str:
    """Return the SQL with which DuckDB reads what is at an address of S3's kind; there is no key in it."""
    if not url.startswith("s3"):
        return ""
    has_keys = any(name in os.environ for name in ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE"))  # httpfs takes them up
    at = urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
    said = {"type": "s3", "scope": literal(url)} | ({} if has_keys else {"provider": "credential_chain"})
    if at.netloc:
        said |= {"endpoint": literal(at.netloc + at.path), "use_ssl": str(at.scheme == "https"), "url_style": "'path'"}
    loads = "LOAD httpfs;\n" if has_keys else "LOAD httpfs;\nLOAD aws;\n"
    return f"{loads}CREATE OR REPLACE SECRET batchpond ({', '.join(map(' '.join, said.items()))});\n"


def connect(
    lake_path: Path, *, memory_limit: str = MEMORY_LIMIT, must_be_whole: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open the lens to read, for our own SQL; close it after use.

    A lake whose lens is missing, damaged, or was written by another version is shown through one of the reader's own,
    so reading never depends on a writer. Warns of every file that it leaves out; with `must_be_whole` the first one is
    a LakeError, and a table that a mirror has set aside is brought.
    """
    whole(lake_path, TABLES if must_be_whole else ())
    return _warned(_opened(Path(os.path.abspath(lake_path)), memory_limit), must_be_whole=must_be_whole)


def connect_at_hand(lake_path: Path, *, memory_limit: str = MEMORY_LIMIT) -> duckdb.DuckDBPyConnection:
    """Open the lens that this process has at hand, which may be ahead of that on disk; as `connect` without one.

    For SQL of our own alone: it is where the lens is written, so what a user asks cannot be kept away from it.
    """
    lake_path = Path(os.path.abspath(lake_path))
    with AT_HAND.of(lake_path / LENS) as draft:
        if draft is None:
            return connect(lake_path, memory_limit=memory_limit)
        connection = draft.connection.cursor()
        connection.execute(_set_lake(lake_path) + QUIET)
        if _shows(connection, lake_path):
            return _warned(connection)
        connection.close()
    return connect(lake_path, memory_limit=memory_limit)


def _warned(connection: duckdb.DuckDBPyConnection, *, must_be_whole: bool = False) -> duckdb.DuckDBPyConnection:
    for damage in (Damage(*row) for row in connection.execute(_BAD).fetchall()):
        if must_be_whole:
            connection.close()
            raise LakeError(f"the lake is damaged: {damage.name}: {damage.problem}", hint=damage.hint)
        damage.warn()
    return connection


def _opened(lake_path: Path, memory_limit: str) -> duckdb.DuckDBPyConnection:
    if (lake_path / ADDRESS).exists() and not is_current(lake_path, files := _here(lake_path)):
        build(lake_path, files)  # what is brought to a mirror comes without a file of views
    connection = duckdb.connect(":memory:", config=config(lake_path, memory_limit))
    try:
        connection.execute(_set_lake(lake_path) + QUIET)
        connection.execute(f"SET disabled_optimizers = {literal(connection.execute(_IN_VAIN).fetchall()[0][0])}")
        if not _attach(connection, lake_path):
            _attach_own(connection, lake_path)
    except duckdb.Error as error:
        connection.close()
        raise LakeError(
            f"the views of {lake_path} could not be opened: {first_line(error)}", hint="run `batchpond doctor`"
        ) from error
    return connection


@contextmanager
def empty() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open all views over a lake without any file, in memory."""
    with duckdb.connect(":memory:") as connection:
        _create(connection)
        yield connection


def over(folder: Path, files: Mapping[str, Sequence[str]], memory_limit: str) -> duckdb.DuckDBPyConnection:
    """Open all views, some of them over files below a folder that hold their rows, made elsewhere; close it after use.

    The others stand on those, or have no rows. Such a file's columns may be of types that are as good as the view's.
    """
    connection = duckdb.connect(":memory:", config=config(folder, memory_limit))
    _create(connection)
    connection.execute(_set_lake(folder) + QUIET)
    for view, paths in files.items():
        described = connection.execute(f"DESCRIBE {quoted(view)}").fetchall()
        columns = ", ".join(
            # An engine without unsigned numbers makes larger ones of them, as of an item's hash.
            f"CAST({quoted(name)} AS {kind.replace('UBIGINT', 'HUGEINT')}) AS {quoted(name)}"
            for name, kind, *_ in described
        )
        listed = ", ".join(literal(f"{folder}/{path}") for path in paths)
        rows = f"SELECT {columns} FROM read_parquet([{listed}], hive_partitioning = false)"
        connection.execute(f"CREATE OR REPLACE VIEW {quoted(view)} AS {rows}")
        connection.execute("INSERT INTO lens_lists VALUES (?, ?, '[]')", [view, "\n".join(paths)])
    return connection


def _set_lake(lake_path: Path) -> str:
    return f"SET VARIABLE lake = {literal(os.path.abspath(lake_path))};\n"


def listed(lake_path: Path) -> dict[str, list[Path]]:
    """Return the published files of every table, in name order; what a mirror has set aside is brought."""
    whole(lake_path, TABLES)
    return _here(lake_path)


def _here(lake_path: Path) -> dict[str, list[Path]]:
    """Return the files of every table but those that are set aside, of which there is none here."""
    aside = disk.aside(lake_path)  # before the folders: a table that comes does so at once
    return {name: held(lake_path / name) for name in TABLES if name not in aside}


def has_come(lake_path: Path, error: duckdb.Error) -> bool:
    """Whether what a query lacked may be here by now: a table that was set aside, which is brought, or merged files."""
    lacking = _LACKING.search(str(error))
    whole(lake_path, lacking.groups() if lacking else ())
    return lacking is not None or isinstance(error, duckdb.IOException)


def _attach(connection: duckdb.DuckDBPyConnection, lake_path: Path) -> bool:
    path = lake_path / LENS
    if not path.is_file():
        return False
    try:
        connection.execute(f"ATTACH {literal(os.fspath(path))} AS {CATALOG} (READ_ONLY)")
    except duckdb.Error:
        return False
    if _shows(connection, lake_path):
        return True
    connection.execute("USE memory")
    connection.execute(f"DETACH DATABASE {CATALOG}")
    return False


def _shows(connection: duckdb.DuckDBPyConnection, lake_path: Path) -> bool:
    """Have a connection read the lens in it; returns whether that is of the present views, over files as they stand."""
    try:
        connection.execute(f"USE {CATALOG}")
        found = connection.execute("SELECT views_digest FROM lens_info").fetchall()
        sound = _sound_of(connection.execute(_LISTS).fetchall())
    except duckdb.Error:
        return False
    return found == [(views_digest(),)] and not _changed(lake_path, sound)


def _attach_own(connection: duckdb.DuckDBPyConnection, lake_path: Path) -> None:
    known = _known_sound(lake_path)
    good, bad = sorted_out(lake_path, named(lake_path, _here(lake_path)), known)
    for name in known:  # no list has derived files, but what showed them
        if _table(name).is_derived and not os.path.exists(f"{lake_path}/{name}"):
            bad.append(Damage(name, GONE))
    draft, content = _remade(_unfilled(), lake_path, good, bad, is_written=True)
    draft.close()
    # Not in the lake: DuckDB cannot open a database below a folder with a question mark in its name.
    with tempfile.TemporaryDirectory(prefix="batchpond-") as folder:
        path = Path(folder) / LENS
        path.write_bytes(content)
        # The engine holds the file open: it may lose its name at once.
        connection.execute(f"ATTACH {literal(os.fspath(path))} AS {CATALOG} (READ_ONLY)")
        connection.execute(f"USE {CATALOG}")


def _kept(lake_path: Path) -> _Kept | None:
    """Return what the lens on disk says of itself; None when there is none to read."""
    found = seen(lake_path / LENS)
    return found and _said(found)


def _known_sound(lake_path: Path) -> dict[str, Sound]:
    """Return how the files stood that the lens on disk shows, for a lens of the present views."""
    kept = _kept(lake_path)
    return kept.sound if kept is not None and kept.info.views_digest == views_digest() else {}


def _sound_of(lists: Sequence[tuple[Any, ...]]) -> dict[str, Sound]:
    found: dict[str, Sound] = {}
    for _, paths, stood in lists:
        found |= zip(paths.split("\n"), map(Sound._make, orjson.loads(stood)), strict=True)
    return found


@functools.lru_cache(maxsize=8)
def _said(lens: Seen) -> _Kept | None:
    # A lens is replaced, never changed, and a pass looks at the same one more than once.
    with AT_HAND.of(Path(lens[0])) as draft:
        if draft is None:
            return None
        try:
            (row,) = draft.connection.execute("SELECT * FROM lens_info").fetchall()
            return _Kept(_Info(*row), _sound_of(draft.connection.execute(_LISTS).fetchall()))
        except (duckdb.Error, ValueError, TypeError):
            return None


def _put_in_place(lake_path: Path, content: bytes) -> None:
    staged = lake_path / TMP / f"{random_hex(12)}.duckdb"
    try:
        disk.write_private(staged, content)
        disk.replace(staged, lake_path / LENS)
    finally:
        staged.unlink(missing_ok=True)
    # A write-ahead log that some other program left behind would make the new file unopenable.
    (lake_path / f"{LENS}.wal").unlink(missing_ok=True)


def _remade(
    bases: Iterator[Draft | bytes], lake_path: Path, good: Good, bad: Sequence[Damage], *, is_written: bool
) -> tuple[Draft, bytes]:
    """Return a lens made from the first base that is sound, and its content; raises what the last one failed with.

    From one with the same views, because making those costs most of a second.
    """
    failure: duckdb.Error | OSError = OSError("no base")
    for base in bases:
        try:
            draft = base if isinstance(base, Draft) else Draft.opened(base, lake_path)
            try:
                return draft, _filled(draft, lake_path, good, bad, is_written=is_written)
            except BaseException:
                draft.close()
                raise
        except (duckdb.Error, OSError) as error:
            failure = error
    raise failure


def _filled(draft: Draft, lake_path: Path, good: Good, bad: Sequence[Damage], *, is_written: bool) -> bytes:
    draft.connection.execute(_set_lake(lake_path))
    as_tables(draft.connection, _relisted(draft.connection, lake_path, good))
    _record(draft.connection, good, bad)
    if is_written:
        return draft.content()
    draft.connection.execute("UPDATE lens_info SET fingerprint = ''")  # no such lens is on disk
    return b""


def _relisted(connection: duckdb.DuckDBPyConnection, lake_path: Path, good: Good) -> dict[str, list[str] | None]:
    """Have the tables show these files; returns those that changed and what they gained, None for a loss."""
    shown = {name: paths.split("\n") for name, paths, _ in connection.execute(_LISTS).fetchall()}
    changed: dict[str, list[str] | None] = {}
    for name in TABLES:
        old = shown.get(name, [])
        if name not in good:
            _set_aside(connection, name)
        elif old != list(good[name]) or (name in LARGE and not old):  # it may have been set aside
            connection.execute(_table_view(name, good[name]))
            is_more = set(old) <= good[name].keys()
            changed[name] = [f"{lake_path}/{path}" for path in good[name].keys() - set(old)] if is_more else None
    return changed


_ASIDE: Final = "{table} on this machine, where `batchpond query {table}` brings it,"
_LACKING: Final = re.compile(_ASIDE.format(table="(\\w+)"))


def _set_aside(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Have whoever names a table, or a view of it, be told that it is not here: nothing may take it for empty.

    Its view reads a table whose name says so, and which is gone by then.
    """
    lacking = quoted(_ASIDE.format(table=name))
    connection.execute(f"CREATE TABLE {lacking} AS {TABLES[name].select(' WHERE FALSE', is_empty=True)}")
    connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS FROM {lacking}")
    connection.execute(f"DROP TABLE {lacking}")


def _bases(lake_path: Path, current: Draft | None) -> Iterator[Draft | bytes]:
    """Yield what a new lens can be made from: the present one if only its files differ, a kept one, a fresh one."""
    kept = _kept(lake_path)
    wanted = (views_digest(), duckdb.__version__)
    if current and kept and (kept.info.views_digest, kept.info.duckdb_version) == wanted:
        yield current
    yield from _unfilled()


def _unfilled() -> Iterator[bytes]:
    """Yield lenses over no files: one that was kept, then a fresh one, which is kept from then on."""
    name = f"{views_digest()[:32]}-{duckdb.__version__}.duckdb"
    if (found := disk.cached("lens", name)) is not None:
        yield found
    made = _template()
    disk.cache("lens", name, made)
    yield made


@functools.cache
def _template() -> bytes:
    with closing(Draft.opened(None, Path(tempfile.gettempdir()))) as draft:
        _create(draft.connection)
        as_tables(draft.connection, dict.fromkeys(TABLES))
        return draft.content()


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    for name in TABLES:
        connection.execute(_table_view(name, {}))
    create(connection)
    connection.execute(query(__package__, "info"))


def _record(connection: duckdb.DuckDBPyConnection, good: Good, bad: Sequence[Damage]) -> None:
    for table in ("lens_info", "lens_lists", "lens_bad"):
        connection.execute(f"DELETE FROM {table}")
    # A lens that leaves a file out is never current: the file may be made again, or put back, under its name.
    shown, n_files = "" if bad else fingerprint(good), sum(map(len, good.values()))
    info = _Info(shown, n_files, views_digest(), duckdb.__version__)
    connection.execute("INSERT INTO lens_info VALUES (?, ?, ?, ?)", list(info))
    lists = [
        (table, "\n".join(found), orjson.dumps([list(sound) for sound in found.values()]).decode())
        for table, found in good.items()
        if found
    ]
    if lists:
        sql = "INSERT INTO lens_lists SELECT unnest($1), unnest($2), unnest($3)"
        connection.execute(sql, [list(column) for column in zip(*lists, strict=True)])
    for file in bad:
        connection.execute("INSERT INTO lens_bad VALUES (?, ?, ?)", [_table(file.name).name, file.name, file.problem])


def _table_view(name: str, files: Mapping[str, Sound], stands: str = _STANDS) -> str:
    table = TABLES[name]
    head = f"CREATE OR REPLACE VIEW {quoted(name)} AS\n"
    nothing = table.select("\nWHERE FALSE", is_empty=True)
    if not files:
        return f"{head}{nothing};\n"
    # One text for all paths: a list of thousands of constants takes ten times as long to bind, each time.
    listing = literal("\n".join(files))
    paths = f"list_transform(string_split({listing}, chr(10)), lambda f: {stands} || '/' || f)"
    if any(sound.is_older for sound in files.values()):
        options = "hive_partitioning = FALSE, union_by_name = TRUE"
        return f"{head}{nothing}\nUNION ALL BY NAME\nFROM read_parquet({paths}, {options});\n"
    return f"{head}{table.select('')}\nFROM read_parquet({paths}, hive_partitioning = FALSE);\n"


TABLE_STAGE: Final = "lake"
# What a header's grain says in a word, and `sql/0_functions/cell.sql` in a value.
WORDS: Final = {"cell": CELL_COLUMNS, "judge": CELL_COLUMNS[2:]} | {
    f"judge_{side}": tuple(f"{column}_{side}" for column in CELL_COLUMNS[2:]) for side in "ab"
}


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A table or view that can be queried, and what its header says about it."""

    name: str
    stage: str
    grain: str
    question: str

    @property
    def grain_columns(self) -> tuple[str, ...]:
        """The columns that together name one row."""
        return tuple(column.strip() for column in self.grain.split(",") if column.strip())


def views() -> list[ViewInfo]:
    """Return the lake's tables, then every view, each after those it reads."""
    tables = [ViewInfo(table.name, TABLE_STAGE, table.grain, table.question) for table in TABLES.values()]
    return tables + [
        ViewInfo(name, script.stage, _spelled(script.header["grain"]), script.header["question"])
        for script in refresh.scripts()
        for name in script.views
    ]


def _spelled(grain: str) -> str:
    return re.sub(rf"\b({'|'.join(WORDS)})\b(?=,|$)", lambda match: ", ".join(WORDS[match[1]]), grain)


def is_view(name: str) -> bool:
    """Whether there is such a table or view; reads no SQL: a file of views is called as the one it makes."""
    return name in TABLES or name in refresh.view_names()
