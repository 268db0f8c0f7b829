"""What must be there: name, size and digest of every published file, one manifest more for each pass that publishes.

Content is guarded by the page checksums inside each file; that the file is there at all, by these lists. They are
written last: a file that a killed pass left without an entry is taken up by the next pass that publishes. Derived
tables are in no list, for a pass makes their files again. A file that a merged one covers is struck by a line without a
size, before it is unlinked.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from batchpond.errors import LakeError, LakeWarning, UsageError
from batchpond.lake import disk
from batchpond.lake.disk import is_merged, is_strange, merged_paths, relative
from batchpond.lake.schemas import RAW, TABLES

if TYPE_CHECKING:
    from batchpond.lake.store import Store

FOLDER: Final = "_manifests"
FILES_MAX: Final = 64
GUARDED: Final = frozenset(name for name, table in TABLES.items() if not table.is_derived)
SHOWN_MAX: Final = 3
_SUFFIX = ".jsonl"
_DIGEST_LENGTH = 32


class Entry(NamedTuple):
    """A published file as it was when it was listed; `is_missing` once a pass did not find it."""

    size_bytes: int
    sha256: str
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """All lists of a lake as one: the files by their paths in the lake.

    `problems` says which of the lists themselves are missing or damaged.
    """

    entries: Mapping[str, Entry]
    files: tuple[Path, ...]
    last_number: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """A file, by its path in the lake, that is not as it was published."""

    name: str
    problem: str

    @property
    def hint(self) -> str:
        """What to do about it."""
        table = TABLES.get(_table(self.name))
        if table is None:
            return "`batchpond doctor` looks whether all files are there; the next pass that publishes lists them anew"
        if table.is_derived:
            return "it was made of raw lines: `batchpond doctor --fix` drops it and `batchpond sync` makes it again"
        restore = "restore it from a backup; other files are not affected"
        again = "while the provider keeps the answers, `batchpond resolve ATTEMPT --refetch` downloads them again"
        lost = f"if it is lost for good, `batchpond doctor --lost {self.name}` says so"
        return f"{restore}; {again}; {lost}" if table is RAW else restore

    def warn(self) -> None:
        """Say it to whoever called, in Python's way; the command line makes it a line on stderr and exit code 5."""
        warnings.warn(LakeWarning(f"{self.name}: {self.problem}", self.hint), stacklevel=3)


def load(lake_path: Path, tables: Collection[str] = GUARDED) -> Manifest:
    """Return what the lake's manifests say of these tables; a damaged one is named in `problems` and says nothing."""
    entries: dict[str, Entry] = {}
    files, problems, last = list[Path](), list[str](), 0
    folder = lake_path / FOLDER
    starts = tuple(b'{"name":"%s/' % table.encode() for table in tables)  # few lines are of some, and many of others
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if not name.endswith(_SUFFIX):
            continue
        files.append(folder / name)
        first, until = (int(number) for number in name.split("-")[:2])
        if first > last + 1:
            problems.append(f"number {last + 1} is missing")
        last = max(last, until)
        content = files[-1].read_bytes()
        if _digest(content) != name.removesuffix(_SUFFIX).rpartition("-")[2]:
            problems.append(f"{name} is damaged")
            continue
        lines = content.splitlines()
        wanted = lines if tables is GUARDED else (line for line in lines if line.startswith(starts))
        for row in orjson.loads(b"[%s]" % b",".join(wanted)):
            _enter(entries, row)
    return Manifest(entries, tuple(files), last, tuple(problems))


def _enter(entries: dict[str, Entry], row: Mapping[str, Any]) -> None:
    if row["size_bytes"] is None:
        entries.pop(row["name"], None)
    else:
        entries[row["name"]] = Entry(row["size_bytes"], row["sha256"], row.get("is_missing", False))


def missing(lake_path: Path, tables: Collection[str] = GUARDED) -> list[str]:
    """Return the listed files of these tables that are not there, by their paths in the lake."""
    if not tables:
        return []
    entries = load(lake_path, tables).entries  # before the folders: whatever is listed here stood there already
    tables = {*tables}.difference(disk.aside(lake_path))  # nor before this: a table that comes does so at once
    present = _present(lake_path, tables)
    # copies that tools make are left out, which earlier versions listed
    absent = {name for name in entries.keys() - present if _table(name) in tables and not is_strange(name)}
    return sorted(absent - _covered(lake_path, present)) if absent else []


def require(store: Store, tables: Collection[str]) -> None:
    """Raise LakeError where a file of these tables is gone: without it what was bought would be bought again."""
    for name in missing(store.path, {*tables} - store.whole):
        raise LakeError(
            f"{store.place}/{name}: {GONE}",
            hint=f"{Damage(name, GONE).hint}; until then nothing is sent",
        )
    store.whole.update(tables)


def take_up(store: Store, there: Collection[str] | None = None) -> list[Damage]:
    """List what is published and not listed yet, and read as many bytes of listed files again.

    Returns what was found damaged or missing. The lake's lock is held; `there` are the files of these tables that are
    published, for who looked before.
    """
    manifest = load(store.path)
    present = _present(store.path, GUARDED) if there is None else set(there)
    covered = _covered(store.path, present)
    present -= covered
    known = {name for name, entry in manifest.entries.items() if not entry.is_missing}
    new = {name: _seen(store.path / name) for name in sorted(present - known)}
    rows = [_row(name, entry) for name, entry in new.items()]
    rows += [{"name": name, "size_bytes": None} for name in sorted((manifest.entries.keys() & covered) - present)]
    lost = sorted(name for name in manifest.entries.keys() - present - covered if not is_strange(name))
    for name in known.intersection(lost):
        rows.append(_row(name, manifest.entries[name]) | {"is_missing": True})
    damaged = [Damage(FOLDER, problem) for problem in manifest.problems]
    damaged += [Damage(name, GONE) for name in lost]
    if rows or manifest.problems:
        listed = {name: manifest.entries[name] for name in sorted(present & known)}
        drawn = _drawn(listed, sum(entry.size_bytes for entry in new.values()), manifest.last_number)
        for name in drawn:
            if problem := differs(store.path / name, listed[name], is_deep=True):
                damaged.append(Damage(name, problem))
        _write(store, manifest, rows)
    return damaged


GONE: Final = "it was published and is not there; a link in its place counts for nothing"


def give_up(store: Store, name: str) -> None:
    """Miss a file of raw lines no longer, by its path in the lake: what was read from it stays. The lock is held.

    Raises UsageError for a file that is there or was never listed, and for any that numbers or purchases depend on.
    """
    listed = load(store.path).entries
    if name not in listed:
        missed = ", ".join(missing(store.path)[:SHOWN_MAX]) or "none is missed"
        raise UsageError(f"{name}: no file of that name was published", hint=f"`batchpond doctor` names them: {missed}")
    if (store.path / name).exists():
        raise UsageError(f"{name} is there; nothing is given up", hint="`batchpond doctor --deep` reads all its bytes")
    if _table(name) != RAW.name:
        hint = "restore it from a backup: without it other answers would be counted, or requests bought again"
        raise UsageError(f"{name} cannot be given up: only raw lines can, which were read already", hint=hint)
    strike(store, [name])


def strike(store: Store, names: Collection[str]) -> None:
    """List files no longer, by their paths in the lake: what stands there later is listed anew. The lock is held."""
    manifest = load(store.path)
    rows: list[dict[str, object]] = [
        {"name": name, "size_bytes": None} for name in sorted(manifest.entries.keys() & set(names))
    ]
    if rows:
        _write(store, manifest, rows)


def differs(path: Path, entry: Entry, *, is_deep: bool) -> str | None:
    """Return how a file differs from what was listed, by its size or by all its bytes; None when it does not."""
    size = path.stat().st_size
    if size != entry.size_bytes:
        return f"it has {size:,} bytes; {entry.size_bytes:,} were published"
    if is_deep and _seen(path).sha256 != entry.sha256:
        return "its bytes are not those that were published"
    return None


def _drawn(listed: Mapping[str, Entry], wanted_bytes: int, number: int) -> Iterator[str]:
    """Yield listed files, as many as have those bytes together, others each time.

    They are drawn: whoever goes through them in order never comes round where as much is added in front.
    """
    names = list(listed)
    while names and wanted_bytes > 0:
        drawn = hashlib.sha256(f"{number} {len(names)}".encode()).digest()
        at = int.from_bytes(drawn) % len(names)
        names[at], names[-1] = names[-1], names[at]
        wanted_bytes -= listed[names[-1]].size_bytes
        yield names.pop()


def _write(store: Store, manifest: Manifest, rows: list[dict[str, object]]) -> None:
    """Publish a manifest of these rows, or one of everything in the place of many."""
    is_whole = len(manifest.files) >= FILES_MAX or bool(manifest.problems)
    entries = dict(manifest.entries)
    for row in rows if is_whole else ():
        _enter(entries, row)
    lines = [_row(name, entry) for name, entry in sorted(entries.items())] if is_whole else rows
    content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    number = manifest.last_number + 1
    name = f"{1 if is_whole else number:08d}-{number:08d}-{_digest(content)}{_SUFFIX}"
    staged = store.scratch(_SUFFIX)
    disk.write_private(staged, content)
    store.link(staged, store.path / FOLDER / name)
    for path in manifest.files if is_whole else ():
        store.drop(path)


def _row(name: str, entry: Entry) -> dict[str, object]:
    row: dict[str, object] = {"name": name, "size_bytes": entry.size_bytes, "sha256": entry.sha256}
    return row | {"is_missing": True} if entry.is_missing else row


def _seen(path: Path) -> Entry:
    return Entry(path.stat().st_size, disk.sha256(path))


def _present(lake_path: Path, tables: Collection[str]) -> set[str]:
    return {name for table in tables for name in relative(lake_path, disk.parquet_files(lake_path / table))}


def _covered(lake_path: Path, present: Collection[str]) -> set[str]:
    """Return the files whose rows a merged file holds, whether they still stand or not."""
    paths = (path for name in present if is_merged(name) for path in merged_paths(f"{lake_path}/{name}"))
    return set(relative(lake_path, paths))


def _table(name: str) -> str:
    return name.partition("/")[0]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]
