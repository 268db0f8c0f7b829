"""What a machine lacks of a lake at an address is brought, and what was dropped there goes.

Names of facts never change, so what is missing is copied. What the mirror has and the store lacks was dropped there (it
was merged, forgotten or made again), unless the manifests still list it: then the store has lost it, and gets it back
from who may write.

The large tables, with all texts, are set aside until somebody asks for one: then all of it comes, at once, and from
then on what is new of it with the rest. So a folder of a table is whole or is not there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from batchpond.clock import Work, random_hex
from batchpond.errors import BusyError, LakeError
from batchpond.lake import disk, manifest
from batchpond.lake.schemas import LARGE, TABLES
from batchpond.lake.store import CONFIG, MARKER, SECRET, TMP
from batchpond_remote.bucket import Bucket, Object

_TAGS: Final = ".tags"
_COMING: Final = "_coming"
_LISTINGS_MAX: Final = 5
_AT_ONCE: Final = 8
_SINGLE: Final = frozenset({MARKER, SECRET, CONFIG})
_SAFE: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.=@+-]*/)+[A-Za-z0-9_][A-Za-z0-9_.=@+-]*")


class Pull:
    """Brings a folder to what is in a bucket, for who has it to itself; `tags` are those that its files have there."""

    def __init__(self, path: Path, bucket: Bucket) -> None:
        self.tags: dict[str, str] = {}
        self._path, self._bucket = path, bucket
        self._coming: frozenset[str] = frozenset()

    def run(self, wanted: Collection[str], *, may_write: bool) -> None:
        """Bring what is new, of large tables those that are `wanted` or came before, and drop what is gone.

        Raises BusyError where what is wanted goes on changing.
        """
        self._recall_tags()
        try:
            for _ in range(_LISTINGS_MAX):
                there = self._listed()
                aside = self._set_aside(there)
                if MARKER not in there:
                    return
                self._coming = aside.intersection(wanted)
                left = aside - self._coming
                if self._bring_all({name: found for name, found in there.items() if _table(name) not in left}):
                    self._arrive(there)
                    break  # else something was merged or dropped since it was listed: what replaces it is not here
            else:
                if self._coming:
                    raise busy(self._bucket.url)
            self._settle(there, may_write=may_write)
        finally:
            self._coming = frozenset()
            self.keep_tags()  # also of what came before a failure: it need not come again

    def _listed(self) -> dict[str, Object]:
        there = {name: found for name, found in self._bucket.objects().items() if is_part(name)}
        if MARKER not in there and self._stands(MARKER):
            raise LakeError(
                f"there is no lake at {self._bucket.url} any more",
                hint=f"its mirror is {self._path}: `batchpond --lake {self._path} export` writes what it holds",
            )
        return there

    def _set_aside(self, there: Mapping[str, Object]) -> frozenset[str]:
        """Say, and return, of which large tables nothing is here though something is there; before lists of it come."""
        lacking = {table for table in LARGE if not (self._path / table).exists()}
        found: dict[str, list[int]] = {}
        for name, one in there.items():
            if (table := _table(name)) in lacking:
                n_files, size_bytes = found.get(table, (0, 0))
                found[table] = [n_files + 1, size_bytes + one.size_bytes]
        if found != disk.aside(self._path):
            self._keep(disk.ASIDE, found)
        return frozenset(found)

    def _arrive(self, there: Mapping[str, Object]) -> None:
        """Give tables that came their names, each at once: a folder of one is never without a file of it."""
        for table in self._coming:
            disk.replace(self._path / _COMING / table, self._path / table)
        self._set_aside(there)

    def _bring_all(self, there: Mapping[str, Object]) -> bool:
        """Bring what is not here as it stands there, what makes it whole last; whether all of it was still there."""
        new = [name for name, one in there.items() if self.tags.get(name) != one.tag or not self._stands(name)]
        new.sort(key=lambda name: (name == MARKER, name.startswith(manifest.FOLDER), name))
        what = f"bringing what is new at {self._bucket.url}"
        with Work(what, "files", len(new)) as work, ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(self._bring, new, [there[name].tag for name in new]):
                work.add()
        return all(map(self._stands, new))

    def _bring(self, name: str, tag: str) -> None:
        staged = self._scratch()
        try:
            if not self._bucket.fetch(name, staged):
                return  # it was dropped since it was listed
            if name == MARKER and self._stands(name):
                self._check_marker(staged)
            os.chmod(staged, disk.FILE_MODE)
            disk.sync(staged)
            disk.replace(staged, Path(self._at(name)))
            self.tags[name] = tag
        finally:
            staged.unlink(missing_ok=True)

    def _check_marker(self, staged: Path) -> None:
        here, there = (orjson.loads(path.read_bytes())["lake_id"] for path in (self._path / MARKER, staged))
        if here != there:
            raise LakeError(
                f"{self._bucket.url} holds another lake than its mirror {self._path} is of",
                hint="move that folder away: what it holds of this machine alone is in _live and _labels.csv",
            )

    def _settle(self, there: Collection[str], *, may_write: bool) -> None:
        """Drop what is here alone, but for what the lists of files still name: the store has lost it.

        Who may write gives it back. Others may have listed while it was being forgotten.
        """
        for path in (self._path / manifest.FOLDER).glob("*.jsonl"):
            if path.relative_to(self._path).as_posix() not in there:
                disk.drop(path)
        for path in (self._path / _COMING).rglob("*.parquet"):  # what whoever died brought
            if path.relative_to(self._path / _COMING).as_posix() not in there:
                disk.drop(path)
        here = [path for table in TABLES for path in disk.parquet_files(self._path / table)]
        alone = {*disk.relative(self._path, here)} - {*there}
        if not alone:
            return
        covered = (covered for path in filter(disk.is_merged, here) for covered in disk.merged_paths(path))
        listed = manifest.load(self._path).entries.keys() - {*disk.relative(self._path, covered)}
        for name in sorted(alone):
            if name not in listed:
                disk.drop(self._path / name)
                self.tags.pop(name, None)
            elif may_write:
                self.tags[name] = self._bucket.put_new(name, (self._path / name).read_bytes())[1]

    def _at(self, name: str) -> str:
        """Where a file stands; of a table that comes, where it waits for the others."""
        return f"{self._path}/{_COMING}/{name}" if _table(name) in self._coming else f"{self._path}/{name}"

    def _stands(self, name: str) -> bool:
        return os.path.exists(self._at(name))

    def _scratch(self) -> Path:
        return self._path / TMP / f"{random_hex(12)}.mirror"

    def _recall_tags(self) -> None:
        self.tags = {}
        with suppress(OSError, ValueError):
            self.tags = orjson.loads((self._path / _TAGS).read_bytes())

    def keep_tags(self) -> None:
        """Keep the tags for the next process: what has them need not come again."""
        self._keep(_TAGS, self.tags)

    def _keep(self, name: str, content: object) -> None:
        staged = self._scratch()
        disk.write_private(staged, orjson.dumps(content))
        disk.replace(staged, self._path / name)


def busy(url: str) -> BusyError:
    """Return what is told to who cannot wait any longer."""
    return BusyError(f"another process brings what is new at {url}", hint="come back when it is done")


def _table(name: str) -> str:
    return name.partition("/")[0]


def is_part(name: str) -> bool:
    """Whether an object is part of a lake: whatever else stands in a bucket is nobody's business here."""
    if name in _SINGLE:
        return True
    first, _, rest = name.partition("/")
    suffix = ".jsonl" if first == manifest.FOLDER else ".parquet"
    is_named_so = first in {*TABLES, manifest.FOLDER} and name.endswith(suffix)
    return bool(rest) and is_named_so and _SAFE.fullmatch(name) is not None
