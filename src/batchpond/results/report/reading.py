"""A figure's rows as its drawing needs them: by role, bounded, in panels and groups, with texts made short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond.results.report import labels
from batchpond.results.report.canvas import GROUPS_MAX
from batchpond.results.report.figure import PANELS_MAX, ChartKind, Figure

MARKS_MAX: Final = 200
CELLS_MAX: Final = 1_600
SIDE_MAX: Final = 40
PANEL_COLUMNS: Final = 60
GROUP_COLUMNS: Final = 40
_MATRICES: Final = frozenset({ChartKind.WIN_MATRIX, ChartKind.HEAT})
_FOLDABLE: Final = frozenset({ChartKind.INTERVALS})

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """The rows of one small drawing, by role; `title` is empty where a figure has no panels."""

    title: str
    rows: Sequence[Row]


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


def undrawn_rows(figure: Figure) -> int:
    """Return how many rows of a figure are in its table but not in its drawing, whose size is bounded."""
    return read(figure).n_undrawn


def read(figure: Figure) -> Reading:
    """Return a figure's rows by role, in their order: at most PANELS_MAX panels, GROUPS_MAX groups and MARKS_MAX marks.

    Rows of intervals keep more groups than that, with the group's name in the label. A matrix keeps SIDE_MAX names on
    each side and CELLS_MAX cells. `group` becomes the group's position.
    """
    names = list(figure.encoding.items())
    found: list[Row] = [{role: row[column] for role, column in names} for row in figure.frame.iter_rows(named=True)]
    groups = [] if figure.kind is ChartKind.RANKING else _distinct(found, "group")
    if len(groups) > GROUPS_MAX and figure.kind in _FOLDABLE:
        found, groups = [_folded(row) for row in found], []
    kept = _bounded(found, "group", groups[:GROUPS_MAX]) if groups else found
    panels = _distinct(kept, "panel")[:PANELS_MAX]
    kept = _bounded(kept, "panel", panels) if panels else kept
    if figure.kind in _MATRICES:
        kept = _bounded_sides(kept)
    kept = kept[: CELLS_MAX if figure.kind in _MATRICES else MARKS_MAX]
    place = {group: number for number, group in enumerate(groups)}
    placed = [{**row, "group": place[row["group"]]} if groups else row for row in kept]
    return Reading(_panels(placed, panels), [labels.short(g, GROUP_COLUMNS) for g in groups[:GROUPS_MAX]],
                   len(found) - len(kept))  # fmt: skip


def _panels(rows: Sequence[Row], panels: Sequence[Any]) -> list[Panel]:
    if not panels:
        return [Panel("", rows)]
    split: dict[Any, list[Row]] = {panel: [] for panel in panels}
    for row in rows:
        split[row["panel"]].append(row)
    return [Panel(labels.short(panel, PANEL_COLUMNS), split[panel]) for panel in panels if split[panel]]


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


def _folded(row: Row) -> Row:
    return {
        **{role: value for role, value in row.items() if role != "group"},
        "label": f"{row['label']} · {row['group']}",
    }
