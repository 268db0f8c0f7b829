"""The files in `sql/`, and the lens that is kept in step with them and with the lake.

What each file defines is read from it, and so is the order they run in: a file comes after every file whose view or
macro it names. The lens is rewritten only when the digest of what it was written from changes; which of the lake's
files it can show is judged by their footers, each once for as long as it stands as it did.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

from batchpond.errors import LakeError
from batchpond.lake import disk, manifest
from batchpond.lake.disk import standing
from batchpond.lake.manifest import Damage
from batchpond.lake.schemas import LARGE, TABLES
from batchpond.lake.store import LENS, Store

FUNCTIONS: Final = "0_functions"
_DEFINES = re.compile(
    r'CREATE\s+(?:OR\s+REPLACE\s+)?(?P<kind>VIEW|MACRO|FUNCTION)\s+"?(?P<name>[A-Za-z_]\w*)"?', re.IGNORECASE
)
_READS = re.compile(r'\b(?:FROM|JOIN)\s+"?([A-Za-z_]\w*)"?', re.IGNORECASE)
_CALLS = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_HEADER = re.compile(r"-- ([a-z]+):\s*(.*)")
_HEADER_MORE = re.compile(r"--\s{2,}(\S.*)")
_NOT_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Script:
    """One file of `sql/`; `name` is the file's, `views` and `macros` what it defines."""

    name: str
    stage: str
    text: str
    header: Mapping[str, str]
    views: tuple[str, ...]
    macros: tuple[str, ...]
    needs: frozenset[str]

    @property
    def select(self) -> str:
        """What a view's file makes it of."""
        return self.text.partition(f"VIEW {self.name} AS")[2].strip("; \n")


def sql_folder() -> Path:
    """Return the folder of the views: inside the installed package, or beside `src` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "sql", package.parents[1] / "sql"):
        if folder.is_dir():
            return folder
    raise LakeError(f"no folder of SQL views beside {package}", hint="install batchpond again; it ships with them")


@cache
def scripts() -> tuple[Script, ...]:
    """Return the product's SQL files, each after those it needs."""
    return load(sql_folder())


@cache
def script(name: str) -> Script:
    """Return the product's SQL file of a view, alone: to read all of them takes longer than a small verb's work."""
    (path,) = sql_folder().glob(f"*/{name}.sql")
    return parse(name, path.parent.name, path.read_text("utf-8"))


@cache
def macros() -> frozenset[str]:
    """Return the names of all macros."""
    paths = (sql_folder() / FUNCTIONS).glob("*.sql")
    return frozenset(name for path in paths for name in parse(path.stem, FUNCTIONS, path.read_text("utf-8")).macros)


@cache
def view_names() -> frozenset[str]:
    """Return the names of all views by the names of their files, which is quicker than to read those."""
    return frozenset(path.stem for path in _paths(sql_folder()) if path.parent.name != FUNCTIONS)


@cache
def digest() -> str:
    """Return what changes whenever any SQL file does."""
    content = hashlib.sha256()
    for path in _paths(sql_folder()):
        content.update(f"{path.parent.name}/{path.stem}\0{path.read_text('utf-8')}\0".encode())
    return content.hexdigest()


def load(folder: Path) -> tuple[Script, ...]:
    """Read a folder of SQL files, in running order; raises LakeError when they form a circle."""
    paths = _paths(folder)
    return tuple(_ordered([parse(path.stem, path.parent.name, path.read_text("utf-8")) for path in paths]))


def reached(names: Iterable[str], script_of: Callable[[str], Script | None]) -> dict[str, Script]:
    """Return by name the files that define some views and macros, and those that these read in their turn."""
    found: dict[str, Script] = {}
    pending = [*names]
    while pending:
        script = script_of(pending.pop())
        if script is not None and script.name not in found:
            found[script.name] = script
            pending += script.needs
    return found


def reads(sql: str) -> frozenset[str]:
    """Return what a query is seen to name, and what the views among that read in their turn."""
    definer = {name: script for script in scripts() for name in script.views}
    named = parse("", "", sql).needs
    return named.union(*(script.needs for script in reached(named, definer.get).values()))


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.sql"))


def parse(name: str, stage: str, text: str) -> Script:
    """Read one SQL file: its header, what it defines, and what it refers to."""
    code = _NOT_CODE.sub(" ", text)
    defined = [(match["kind"].upper(), match["name"].lower()) for match in _DEFINES.finditer(code)]
    names = {name for _, name in defined}
    refers = {found.lower() for found in (*_READS.findall(code), *_CALLS.findall(code))}
    return Script(
        name=name,
        stage=stage,
        text=text.strip() + "\n",
        header=_header(text),
        views=tuple(name for kind, name in defined if kind == "VIEW"),
        macros=tuple(dict.fromkeys(name for kind, name in defined if kind != "VIEW")),
        needs=frozenset(refers - names),
    )


def _header(text: str) -> dict[str, str]:
    """Return the leading comment's fields; a line indented further continues the field above, `- ` starts a line."""
    fields: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if match := _HEADER.fullmatch(line.strip()):
            current = match[1]
            fields[current] = match[2].strip()
        elif current and (more := _HEADER_MORE.fullmatch(line)):
            fields[current] += ("\n" if more[1].startswith("- ") else " ") + more[1].strip()
        else:
            current = ""
    return {name: text.strip() for name, text in fields.items()}


def _ordered(found: Sequence[Script]) -> list[Script]:
    definer = _definers(found)
    graph = {
        script.name: sorted({definer[name].name for name in script.needs if name in definer} - {script.name})
        for script in found
    }
    by_name = {script.name: script for script in found}
    try:
        return [by_name[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise LakeError(
            f"SQL files need each other in a circle: {' -> '.join(error.args[1])}",
            hint="a view can only read what is defined before it",
        ) from None


def _definers(found: Sequence[Script]) -> Mapping[str, Script]:
    definer: dict[str, Script] = {}
    files: set[str] = set()
    for script in found:
        for name in (*script.views, *script.macros):
            if name in definer:
                raise LakeError(f"{name} is defined in sql/ by both {definer[name].name}.sql and {script.name}.sql")
            definer[name] = script
        if script.name in files:
            raise LakeError(f"two files in sql/ are called {script.name}.sql")
        files.add(script.name)
    return definer


Files = Mapping[str, Sequence[str] | Sequence[Path]]
Named = Mapping[str, Iterable[str]]  # by table its files' paths in the lake, in order

_LAYOUT = 8


def fingerprint(files: Named) -> str:
    """Return what changes whenever the lens must be written again; where the lake stands is no part of it."""
    content = hashlib.sha256(f"{views_digest()}\0".encode())
    for name, paths in files.items():
        content.update(f"\0{name}\0".encode())
        content.update("\0".join(paths).encode())
    return content.hexdigest()


def named(lake_path: Path, files: Files) -> dict[str, list[str]]:
    """Return the files of tables as the lens has them; a table that is not named is not shown."""
    return {name: names(lake_path, files[name]) for name in TABLES if name in files}


def names(lake_path: Path, paths: Iterable[str | Path]) -> list[str]:
    """Return the files of a lake as the lens has them, in order: by their paths inside the lake."""
    root = f"{os.path.abspath(lake_path)}/"
    found = [os.fspath(path) for path in paths]
    return sorted([(path if path.startswith(root) else os.path.abspath(path)).removeprefix(root) for path in found])


@cache
def views_digest() -> str:
    """Return what changes with anything in a lens but its lists of files."""
    schemas = "\0".join(f"{name}\0{table.columns}" for name, table in TABLES.items())
    return hashlib.sha256(f"{_LAYOUT}\0{schemas}\0{digest()}".encode()).hexdigest()


STAMP = ".lens"


def refresh(store: Store, *, is_for_us: bool = False) -> bool:
    """List what was published and rebuild the lens if the lake's files are others; returns whether it was rebuilt.

    Where a file is gone or damaged it warns, and so does every pass until it is back. What `is_for_us` may be shown to
    this process alone, in `database.connect_at_hand`: writing it takes as long as reading it, and is left to the end of
    a pass.
    """
    published = named(store.path, {name: store.published(name) for name in TABLES})
    listed = fingerprint(published)
    if _read(store.path) == _stamp(store.path, listed):
        return False
    from batchpond.views.database import build, is_current

    damaged = manifest.take_up(store, {name for table in manifest.GUARDED for name in published[table]})
    files = {name: standing([f"{store.path}/{path}" for path in paths]) for name, paths in published.items()}
    changed = not is_current(store.path, files)
    if changed:
        gone = [found.name for found in damaged if found.problem == manifest.GONE]
        damaged += build(store.path, files, gone, is_for_us=is_for_us)
    for found in dict.fromkeys(damaged):
        found.warn()
    if damaged or is_for_us:
        return changed
    staged = store.scratch(".stamp")
    disk.write_private(staged, _stamp(store.path, listed).encode())
    disk.replace(staged, store.path / STAMP)
    return changed


def _stamp(lake_path: Path, listed: str) -> str:
    """Return what says, without opening it, that the lens file on disk is the one written from these files.

    By all that are published: which of them a merged file covers takes reading it, and changes with that list only.
    """
    if (lens := disk.stands(f"{lake_path}/{LENS}")) is None:
        return "no lens"
    return hashlib.sha256(f"{listed} {lens[0]} {lens[1]}".encode()).hexdigest()


def _read(lake_path: Path) -> str | None:
    try:
        return (lake_path / STAMP).read_text("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


class Sound(NamedTuple):
    """How a file stood on disk when it was found readable; `is_older` says that it lacks columns that came later."""

    size_bytes: int
    changed_ns: int
    is_older: bool


Good = Mapping[str, Mapping[str, Sound]]  # by table and the file's path in the lake, in order


def check_file(table: str, path: Path) -> str | None:
    """Return why a table's file cannot be read, judged by its footer; None when it can."""
    found = _examined(table, path, None)
    return found if isinstance(found, str) else None


def _examined(table: str, path: Path, known: Sound | None) -> Sound | str:
    """Return how a file stands, or what is wrong with it; `known` is how it stood when it was read last."""
    try:
        seen = os.stat(path)
        if known is not None and table not in LARGE:  # what was published never changes, but what is derived
            disk.read_through(path)
        with disk.intact(path) as file:
            schema = file.schema_arrow.remove_metadata()
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except LakeError as error:
        return error.message.partition(": ")[2]
    import pyarrow as pa  # takes longer than all else that a reader does who finds its lens in place

    wanted, written = TABLES[table], schema
    kept = [field for field in wanted.schema if field.name in written.names or field.name not in wanted.later]
    if not written.equals(pa.schema(kept)):
        return f"its columns are not those of table {table}"
    return Sound(seen.st_size, seen.st_mtime_ns, not wanted.later.issubset(written.names))


def sorted_out(
    lake_path: Path, files: Named, known: Mapping[str, Sound], gone: Iterable[str] | None = None
) -> tuple[dict[str, dict[str, Sound]], list[Damage]]:
    """Return the files that can be shown and how they stand, and those that cannot be; `known` need not be read again.

    `gone` are the listed files that are not there, for who knows them.
    """
    good: dict[str, dict[str, Sound]] = {name: {} for name in files}
    gone = manifest.missing(Path(os.path.abspath(lake_path))) if gone is None else gone
    bad = [Damage(name, manifest.GONE) for name in gone]
    for table, its_names in files.items():
        for name in its_names:
            found: Sound | str | None = known.get(name)
            if found is None or disk.stands(f"{lake_path}/{name}") != found[:2]:
                found = "its name has more than one line" if "\n" in name else None
                found = found or _examined(table, lake_path / name, known.get(name))
            if isinstance(found, str):
                bad.append(Damage(name, found))
            else:
                good[table][name] = found
    return good, bad


def first_line(error: object) -> str:
    """Return what an error says first."""
    return str(error).split("\n", 1)[0]
