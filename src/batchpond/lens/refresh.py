"""Keeping the lens in step with the lake: rewritten only when something was published."""

from __future__ import annotations

from batchpond.lake.store import Store
from batchpond.lens.database import build, is_current


def refresh(store: Store) -> bool:
    """Rebuild the lens if the lake's list of files changed; returns whether it did."""
    files = store.all_files()
    if is_current(store.path, files):
        return False
    build(store.path, files)
    return True
