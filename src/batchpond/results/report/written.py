"""Sections as they are written: `sections/NAME.toml` declares exhibits, and code adds what only code can say."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.declared import JUDGED_BY, Chapter, Declared, Drawn, Said
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import ChartKind, Column, Exhibit, When
from batchpond.results.report.source import Source

FOLDER: Final = Path(__file__).parent / "sections"
# What stands for several names in `cells`.
_SEVERAL: Final = {"*cell": CELL_COLUMNS, "*judge": JUDGED_BY}
_KINDS: Final = frozenset(Kind)
_FIELDS: Final = frozenset({"key", "title", "words", "needs", "tasks", "exhibits", "findings"})

Made = Callable[[Source], Exhibit | None]


def chapter(
    name: str, *, says: Callable[[Sequence[Any]], Sequence[str]] = lambda _: (), **made: Callable[[Declared], Made]
) -> Chapter:
    """Return the section NAME; `made` says, by its key, how an exhibit that needs code is made of what is written.

    Raises KeyError for a key that no exhibit has, and TypeError or ValueError for a word that no field has.
    """
    known = _read(name)
    if strange := known.keys() - _FIELDS:
        raise ValueError(f"sections/{name}.toml has {min(strange)!r}, which no section has")
    found = exhibits(name)
    parts = {key: made[key](found[key]) for key in made}
    return Chapter(
        key=known["key"],
        title=known["title"],
        words=(known["words"],) if "words" in known else (),
        needs=_needed(known.get("needs"), frozenset(known.get("tasks", ()))),
        says=says,
        findings=[Said(**entry) for entry in known.get("findings", ())],
        parts=[parts.get(key, exhibit) for key, exhibit in found.items()],
    )


def exhibits(name: str) -> dict[str, Declared]:
    """Return the exhibits of the section NAME by their keys, in reading order, none where nothing is written."""
    return {entry["key"]: _exhibit(entry) for entry in _read(name).get("exhibits", ())}


def _read(name: str) -> dict[str, Any]:
    file = FOLDER / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}


def _needed(attribute: str | None, tasks: frozenset[str]) -> Callable[[Source], bool]:
    def is_met(source: Source) -> bool:
        has_task = not tasks or bool(tasks & source.tasks)
        return has_task and (attribute is None or bool(getattr(source, attribute)))

    return is_met


def _exhibit(entry: Mapping[str, Any]) -> Declared:
    figure = entry.get("figure")
    read = {
        "columns": [_column(column) for column in entry["columns"]],
        "cells": [one for name in entry.get("cells", ()) for one in _SEVERAL.get(name, (name,))],
        "left_out": tuple(entry.get("left_out", {}).items()),
        "figure": None if figure is None else Drawn(**{**figure, "kind": ChartKind(figure["kind"])}),
    }
    return Declared(**{**entry, **read})


def _column(entry: Mapping[str, Any]) -> Column:
    (kind,) = _KINDS & entry.keys()
    more = {key: value for key, value in entry.items() if key != kind}
    return Column(entry[kind], kind=Kind(kind), **{**more, "when": When(entry.get("when", When.ALWAYS))})
