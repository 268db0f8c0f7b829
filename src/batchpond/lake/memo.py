"""What a pass read of the lake's small tables, kept beside them so that the next one reads it in one go.

A pass with nothing new would otherwise spend most of its time on loading Arrow and opening many small files. A memo
is derived: it counts only while every file of its table stands as it did (name, size, time of change), what it says
is checked by a digest, and whatever is wrong with it means that the Parquet files are read. It may be deleted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batchpond.lake import disk
from batchpond.lake.store import Store

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Memo:
    """What was read of a table, and the files that hold it, relative to the lake; `layout` says what `content` is."""

    layout: str
    held: Sequence[str]
    content: dict[str, Any]


def recall(store: Store, name: str, paths: Collection[str], layout: str) -> Memo | None:
    """Return what was kept of the table whose files are `paths`, or None where it cannot be relied on."""
    try:
        digest, _, body = (store.path / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    if digest != _digest(body):
        return None
    kept = orjson.loads(body)
    if kept.get("format") != _FORMAT or kept["layout"] != layout:
        return None
    if kept["names"] != _names(store, paths) or kept["stands"] != _stands(store, kept["held"]):
        return None
    return Memo(layout, kept["held"], kept["content"])


def keep(store: Store, name: str, paths: Collection[str], memo: Memo) -> None:
    """Keep what was read of the table whose files are `paths`; the lake's lock is held."""
    stands = _stands(store, memo.held)
    if stands is None:
        return
    body = orjson.dumps(
        {
            "format": _FORMAT,
            "layout": memo.layout,
            "names": _names(store, paths),
            "held": memo.held,
            "stands": stands,
            "content": memo.content,
        }
    )
    staged = store.scratch(name)
    disk.write_private(staged, _digest(body) + b"\n" + body)
    disk.replace(staged, store.path / name)


def relative(store: Store, paths: Collection[str]) -> list[str]:
    """Return paths of the lake as a memo names them."""
    prefix = f"{store.path}/"
    return [path.removeprefix(prefix) for path in paths]


def _names(store: Store, paths: Collection[str]) -> str:
    return hashlib.sha256("\n".join(sorted(relative(store, paths))).encode()).hexdigest()


def _stands(store: Store, held: Collection[str]) -> str | None:
    """Return a digest of how the files stand on disk, None where one is gone."""
    seen = hashlib.sha256()
    try:
        for name in held:
            found = os.stat(f"{store.path}/{name}")
            seen.update(f"{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return seen.hexdigest()


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=32).hexdigest().encode()
