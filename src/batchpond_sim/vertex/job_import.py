"""The import of a job's input: every line a row of one table, or the whole job fails.

What a table's column may be is BigQuery's: one type, no null, no empty record, a plain name, 15 levels at most.
"""

from __future__ import annotations

import re
from typing import Any

from batchpond_sim.shared.life import RowsError

FAILED_TEXT = (
    "Failed to import data. Please check 'Prepare input' section in"
    " https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/batch-prediction-gemini for the data format."
)
_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_DEPTH_MAX = 15
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class ImportFailure(RowsError):
    """Why a job's input cannot be loaded."""


class Columns:
    """The type of every key, by its path in lower case."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}

    def load(self, row: Any) -> None:
        """Take in one row; raises ImportFailure."""
        for path, name in _typed(row, "", 0):
            if self._types.setdefault(path.lower(), name) != name:
                raise ImportFailure(f"{path}: {name} and {self._types[path.lower()]}")


def _typed(value: Any, path: str, depth: int) -> list[tuple[str, str]]:
    """Return the types of a value and of all that is in it."""
    if value is None or value == {}:
        raise ImportFailure(f"{path}: null or an empty record")
    if isinstance(value, dict):
        if depth == _DEPTH_MAX:
            raise ImportFailure(f"{path}: nested too deeply")
        found = [(path, "RECORD")]
        for name, item in value.items():
            if not _NAME.fullmatch(name):
                raise ImportFailure(f"invalid field name {name!r}")
            found += _typed(item, f"{path}/{name}", depth + 1)
        return found
    if isinstance(value, list):
        return _repeated(value, path, depth)
    names = {bool: "BOOLEAN", int: "INTEGER", float: "FLOAT", str: "STRING"}
    return [(path, names[type(value)])]


def _repeated(items: list[Any], path: str, depth: int) -> list[tuple[str, str]]:
    found = []
    for item in items:
        if isinstance(item, list):
            raise ImportFailure(f"{path}: an array of arrays")
        (own, name), *below = _typed(item, path, depth)
        found += [(own, f"REPEATED {name}"), *below]
    return found


def reserialised(value: Any) -> Any:
    """Return a value beside the request as it comes back: text that looks like a number is one."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value
