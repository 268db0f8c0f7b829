"""The queries of this room, as files."""

from __future__ import annotations

from importlib import resources


def query(name: str, **parts: str) -> str:
    """Return a query, its placeholders filled with parts of SQL."""
    return (resources.files(__package__) / f"{name}.sql").read_text("utf-8").format(**parts)
