"""Keeping the lens in step with the lake: it is rewritten only when the digest of what it was written from changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from batchpond.lake import disk, manifest
from batchpond.lake.schemas import TABLES
from batchpond.lake.store import LENS, Store, uncovered
from batchpond.views import scripts

Files = Mapping[str, Sequence[Path]]

_LAYOUT = 3


def fingerprint(lake_path: Path, files: Mapping[str, Sequence[str] | Sequence[Path]]) -> str:
    """Return what changes whenever the lens must be written again; where the lake stands is no part of it."""
    content = hashlib.sha256(f"{views_digest()}\0".encode())
    for name in TABLES:
        content.update(f"\0{name}\0".encode())
        content.update("\0".join(names(lake_path, files.get(name, ()))).encode())
    return content.hexdigest()


def names(lake_path: Path, paths: Sequence[str] | Sequence[Path]) -> list[str]:
    """Return the files of a lake as the lens has them, in order: by their paths inside the lake."""
    root = f"{os.path.abspath(lake_path)}/"
    return sorted(os.path.abspath(path).removeprefix(root) for path in paths)


@cache
def views_digest() -> str:
    """Return what changes with anything in a lens but its lists of files."""
    schemas = "\0".join(f"{name}\0{table.columns}" for name, table in TABLES.items())
    return hashlib.sha256(f"{_LAYOUT}\0{schemas}\0{scripts.digest()}".encode()).hexdigest()


STAMP = ".lens"


def refresh(store: Store) -> bool:
    """List what was published and rebuild the lens if the lake's files are others; returns whether it was rebuilt.

    Where a file is gone or damaged it warns, and so does every pass until it is back.
    """
    published = {name: store.published(name) for name in TABLES}
    if _read(store.path) == _stamp(store.path, published):
        return False
    from batchpond.views.database import build, is_current

    damaged = manifest.take_up(store)
    files = {name: uncovered(paths) for name, paths in published.items()}
    changed = not is_current(store.path, files)
    if changed:
        damaged += [bad.damage(store.path) for bad in build(store.path, files)]
    for found in dict.fromkeys(damaged):
        found.warn()
    if damaged:
        return changed
    staged = store.scratch(".stamp")
    disk.write_private(staged, _stamp(store.path, published).encode())
    disk.replace(staged, store.path / STAMP)
    return changed


def _stamp(lake_path: Path, published: Mapping[str, Sequence[str]]) -> str:
    """Return what says, without opening it, that the lens file on disk is the one written from these files.

    By all that are published: which of them a merged file covers takes reading it, and changes with that list only.
    """
    try:
        lens = (lake_path / LENS).stat()
    except FileNotFoundError:
        return "no lens"
    seen = f"{fingerprint(lake_path, published)} {lens.st_size} {lens.st_mtime_ns}"
    return hashlib.sha256(seen.encode()).hexdigest()


def _read(lake_path: Path) -> str | None:
    try:
        return (lake_path / STAMP).read_text("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
