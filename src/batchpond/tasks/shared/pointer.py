"""JSON pointers (RFC 6901) into what `common_json` found, whose keys have no case."""

from __future__ import annotations

from typing import Any

from batchpond.tasks.shared.json import fold


def pointed(value: Any, pointer: str) -> Any:
    """Return what a pointer leads to, or None where it leads nowhere."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        match value:
            case dict():
                value = value.get(fold(name))
            case list() if name.isascii() and name.isdigit() and len(name) <= 9:
                value = value[int(name)] if int(name) < len(value) else None
            case _:
                return None
    return value
