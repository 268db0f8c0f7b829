"""What a lens was written from, as one digest; needs no database to compute."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from batchpond.lake.schemas import TABLES
from batchpond.views import scripts

Files = Mapping[str, Sequence[Path]]

_LAYOUT = 1


def fingerprint(lake_path: Path, files: Mapping[str, Sequence[str] | Sequence[Path]]) -> str:
    """Return what changes whenever the lens must be written again."""
    content = hashlib.sha256(f"{os.path.abspath(lake_path)}\0{views_digest()}\0".encode())
    for name in TABLES:
        content.update(f"\0{name}\0".encode())
        content.update("\0".join(sorted(map(os.fspath, files.get(name, ())))).encode())
    return content.hexdigest()


@cache
def views_digest() -> str:
    """Return what changes with anything in a lens but its lists of files."""
    schemas = "\0".join(f"{name}\0{table.columns}" for name, table in TABLES.items())
    return hashlib.sha256(f"{_LAYOUT}\0{schemas}\0{scripts.digest()}".encode()).hexdigest()
