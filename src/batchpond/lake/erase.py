"""The one place where what is published changes: rows are taken out of files, and texts out of raw lines.

A file that changes is listed no longer before it does, and anew by the next pass that publishes: who dies in between
leaves nothing amiss, and doing it again finds nothing left to change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from batchpond.lake import disk, manifest
from batchpond.lake.schemas import RAW, Table
from batchpond.lake.store import Store, relative

_TELLING: Final = frozenset(
    {"custom_id", "key", "id", "object", "type", "role", "model", "modelVersion", "status", "code", "request_id",
     "responseId", "finish_reason", "finishReason", "stop_reason", "asked_at", "answered_at", "reason"}
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/+-]{1,128}")


def take_out(store: Store, table: Table, goes: Callable[[pa.Table], pa.ChunkedArray]) -> None:
    """Take the rows that `goes` marks out of a table; the lake's lock is held."""
    for path in store.files(table.name):
        _rewrite(store, table, path, lambda rows: rows.filter(pc.invert(goes(rows))))


def empty_lines(store: Store, path: Path, is_kept: Callable[[bytes], bool]) -> int:
    """Take the texts out of the lines of a raw file, but those that are kept; return how many lines it was done to."""
    n_emptied = 0

    def emptied(rows: pa.Table) -> pa.Table:
        nonlocal n_emptied
        texts, odds = rows.column("line").to_pylist(), rows.column("line_bytes").to_pylist()
        for at, (text, odd) in enumerate(zip(texts, odds, strict=True)):
            line = text.encode("utf-8") if text is not None else odd or b""
            if not is_kept(line):
                texts[at], odds[at] = without_texts(line), None
                n_emptied += texts[at] != text
        columns = {"line": pa.array(texts, pa.string()), "line_bytes": pa.array(odds, pa.binary())}
        return pa.Table.from_pydict({name: columns.get(name, rows.column(name)) for name in RAW.schema.names})

    _rewrite(store, RAW, path, emptied)
    return n_emptied


def without_texts(line: bytes) -> str:
    """Return a result line with its ids, states and figures, and every other text in it empty; total."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    return orjson.dumps(_without("", found)).decode() if isinstance(found, dict) else ""


def _without(key: str, value: Any) -> Any:
    match value:
        case dict():
            return {name: _without(name, inner) for name, inner in value.items()}
        case list():
            return [_without(key, inner) for inner in value]
        case str() if key == "body":  # of a live call: the answer's bytes as text
            return without_texts(value.encode("utf-8", "replace"))
        case str():
            return value if key in _TELLING and _WORD.fullmatch(value) else ""
        case _:
            return value


def _rewrite(store: Store, table: Table, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Put a file of what is left in a file's place, where anything changes; nothing in the place of an empty one."""
    is_same = True
    with disk.intact(path) as file:
        written = file.schema_arrow.metadata or {}
        metadata = {name.decode(): value.decode() for name, value in written.items() if name != b"ARROW:schema"}
        with store.staging(table, metadata) as staged:
            for number in range(file.num_row_groups):
                before = table.completed(file.read_row_group(number))
                after = change(before)
                is_same = is_same and after.equals(before)
                staged.write(after)
    if is_same:
        disk.drop(staged.path)
        return
    manifest.strike(store, relative(store, [os.fspath(path)]))
    if staged.n_rows:
        disk.replace(staged.path, path)
    else:
        disk.drop(staged.path)
        path.unlink()
