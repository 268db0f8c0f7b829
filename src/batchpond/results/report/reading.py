"""A figure's rows as its drawing needs them: by role, bounded, in panels and groups, with texts made harmless."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond.results.report import labels, palette
from batchpond.results.report.figure import PANELS_MAX, ChartKind, Figure

MARKS_MAX: Final = 200
CELLS_MAX: Final = 1_600
SIDE_MAX: Final = 40
GROUPS_MAX: Final = len(palette.SERIES)
_SIZES: Final = {"panel": 60, "group": 40, "label": 120, "row": 60, "column": 60}  # characters
_NUMBERS: Final = ("value", "low", "high", "reference")
_MATRICES: Final = frozenset({ChartKind.WIN_MATRIX, ChartKind.HEAT})

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """The rows of one small drawing, by role; `title` is empty where a figure has no panels."""

    title: str
    rows: Sequence[Row]

    def names(self, role: str) -> list[str]:
        """Return the names that play a role, in order of first row."""
        return list(dict.fromkeys(row[role] for row in self.rows))


@dataclass(frozen=True, slots=True)
class Reading:
    """What is drawn of a figure: its panels, its groups as they are shown, and how many rows were left out."""

    panels: Sequence[Panel]
    groups: Sequence[str]
    n_undrawn: int

    @property
    def rows(self) -> list[Row]:
        """Every drawn row."""
        return [row for panel in self.panels for row in panel.rows]

    def numbers(self, *roles: str) -> list[float]:
        """Return every number that is known in some roles."""
        return [row[role] for row in self.rows for role in roles if row.get(role) is not None]


def undrawn_rows(figure: Figure) -> int:
    """Return how many rows of a figure are in its table but not in its drawing, whose size is bounded."""
    return read(figure).n_undrawn


def read(figure: Figure) -> Reading:
    """Return a figure's rows by role, in their order: at most PANELS_MAX panels, GROUPS_MAX groups and MARKS_MAX marks.

    Intervals of more groups than that have the group's name in the label; dots of calibration, which would hide each
    other, stand in a panel per group. A matrix keeps SIDE_MAX names on each side and CELLS_MAX cells. What is no
    finite number is None.
    """
    names = figure.encoding.items()
    found: list[Row] = [{role: row[column] for role, column in names} for row in figure.frame.iter_rows(named=True)]
    groups = [] if figure.kind is ChartKind.RANKING else _distinct(found, "group")
    if figure.kind is ChartKind.CALIBRATION:
        found, groups = [_folded(row, "panel") for row in found], []
    elif figure.kind is ChartKind.INTERVALS and len(groups) > GROUPS_MAX:
        found, groups = [_folded(row, "label") for row in found], []
    kept = _bounded(found, "group", groups[:GROUPS_MAX]) if groups else found
    panels = _distinct(kept, "panel")[:PANELS_MAX]
    kept = _bounded(kept, "panel", panels) if panels else kept
    kept = _bounded_sides(kept)[:CELLS_MAX] if figure.kind in _MATRICES else kept[:MARKS_MAX]
    shown = {role: labels.distinct(_distinct(kept, role), size) for role, size in _SIZES.items()}
    drawn = [_shown(row, shown) for row in kept]
    split = [Panel(title, [row for row in drawn if row["panel"] == title]) for title in shown["panel"].values()]
    return Reading(split or [Panel("", drawn)], list(shown["group"].values()) if groups else [], len(found) - len(kept))


def _shown(row: Row, names: dict[str, dict[Any, str]]) -> Row:
    texts = {role: names[role][value] for role, value in row.items() if role in names}
    return {**row, **texts, **{role: _finite(row.get(role)) for role in _NUMBERS}}


def _finite(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _distinct(rows: Sequence[Row], role: str) -> list[Any]:
    return list(dict.fromkeys(row[role] for row in rows if role in row))


def _bounded(rows: Sequence[Row], role: str, allowed: Sequence[Any]) -> list[Row]:
    kept = set(allowed)
    return [row for row in rows if row[role] in kept]


def _bounded_sides(rows: Sequence[Row]) -> list[Row]:
    """Return the cells of a matrix's first names; where columns are names of rows, the same names on both sides."""
    sides = {role: _distinct(rows, role) for role in ("row", "column")}
    if set(sides["column"]) <= set(sides["row"]):
        sides["column"] = sides["row"]
    kept = _bounded(rows, "row", sides["row"][:SIDE_MAX])
    return _bounded(kept, "column", sides["column"][:SIDE_MAX])


def _folded(row: Row, role: str) -> Row:
    """Return a row whose group is part of another name."""
    rest = {name: value for name, value in row.items() if name != "group"}
    names = [str(row[name]) for name in (role, "group") if name in row]
    return {**rest, role: " · ".join(names)} if names else rest
