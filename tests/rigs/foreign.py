"""Hand-made folders of other tools' files, and what an import of them left in the lake."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from batchpond.errors import UsageError
from batchpond.interop.foreign import Defaults, Doubt, Reader
from batchpond.interop.imports import ForeignReport, import_foreign
from batchpond.lake.store import Store


def put(folder: Path, name: str, content: Any) -> Path:
    """Write a file: bytes and text as they are, rows as CSV, anything else as JSON."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    match content:
        case bytes():
            path.write_bytes(content)
        case str():
            path.write_text(content, "utf-8", newline="")
        case _ if name.endswith(".csv"):
            path.write_text(table(content), "utf-8", newline="")
        case _ if name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(line) + "\n" for line in content), "utf-8")
        case _:
            path.write_text(json.dumps(content), "utf-8")
    return path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as R writes them: every name once, a missing value as NA."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, names, restval="NA", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def bring(store: Store, reader: Reader, *paths: Path, **options: Any) -> ForeignReport:
    """Import files and folders."""
    defaults = Defaults(**options.pop("defaults", {}))
    accepted = [Doubt(word) for word in options.pop("accept", ())]
    return import_foreign(store, reader, paths, defaults=defaults, accepted=accepted, **options)


def rows_of(store: Store, name: str) -> list[dict[str, Any]]:
    """Return all rows of one of the lake's tables, from the files themselves."""
    files = store.files(name)
    return pl.concat([pl.read_parquet(file) for file in files]).to_dicts() if files else []


def judged(store: Store) -> dict[str, dict[str, Any]]:
    """Return imported judgments by where they came from."""
    found = rows_of(store, "imported_judgments")
    assert len({row["source"] for row in found}) == len(found)
    return {row["source"]: row for row in found}


def items(store: Store) -> dict[str, dict[str, Any]]:
    """Return items by id, with their metadata read."""
    found = rows_of(store, "items")
    assert len({row["item_id"] for row in found}) == len(found)
    return {row["item_id"]: row | {"metadata": json.loads(row["metadata"])} for row in found}


def state(store: Store) -> dict[str, bytes]:
    """Return every file of the lake but its lock."""
    return {
        str(path.relative_to(store.path)): path.read_bytes()
        for path in sorted(store.path.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refusal(store: Store, reader: Reader, *paths: Path, **options: Any) -> str:
    """Return the message of an import that must change nothing."""
    before = state(store)
    with pytest.raises(UsageError) as caught:
        bring(store, reader, *paths, **options)
    assert state(store) == before
    return caught.value.message


def doubts(report: ForeignReport) -> dict[str, int]:
    """Return how often each kind of doubt was found."""
    return {str(doubt.kind): doubt.n for doubt in report.doubts}
