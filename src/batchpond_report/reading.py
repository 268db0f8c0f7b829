"""A figure's rows as its drawing needs them: by role, bounded, in panels and groups, with texts made harmless.

A text is one line, of a bounded length, with nothing in it that acts on its surroundings.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from batchpond_report import palette
from batchpond_report.parts import PANELS_MAX, ChartKind, Figure

NAMELESS: Final = "(empty)"
_ELLIPSIS: Final = "…"
_READ_MAX: Final = 2_000
_MARKS_MAX: Final = 2
_JOINER: Final = "\u200d"


def short(text: object, size: int) -> str:
    """Return a text in at most `size` characters, with an ellipsis where it was cut.

    Line ends and spaces become one space; control characters, bidirectional controls and what XML cannot carry become
    U+FFFD, so that a name cannot turn its neighbours around; marks piled on one letter are cut after two.
    """
    clean = _one_line("" if text is None else str(text)[:_READ_MAX])
    if len(clean) > size:
        return clean[: size - 1].rstrip(" " + _JOINER) + _ELLIPSIS
    return clean or NAMELESS


def distinct(texts: Iterable[Any], size: int) -> dict[Any, str]:
    """Return each text as it is shown: two that look alike once they are cut get a number."""
    shown: dict[Any, str] = {}
    for text in dict.fromkeys(texts):
        taken = set(shown.values())
        numbered = (short(text, size) if n == 1 else f"{short(text, size - 6)} ({n})" for n in count(1))
        shown[text] = next(name for name in numbered if name not in taken)
    return shown


def _one_line(text: str) -> str:
    plain, marks = [], 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if character.isspace():
            plain.append(" ")
        elif character == _JOINER:
            plain.append(character)
        elif category in {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}:
            plain.append("\ufffd")
        elif marks <= _MARKS_MAX:
            plain.append(character)
    return " ".join("".join(plain).split())


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
    return figure.n_undrawn + read(figure).n_undrawn


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
    shown = {role: distinct(_distinct(kept, role), size) for role, size in _SIZES.items()}
    drawn = [_shown(row, shown) for row in kept]
    split = [Panel(title, [row for row in drawn if row["panel"] == title]) for title in shown["panel"].values()]
    # By name, so that a judge has one colour wherever the same judges are compared; what is stacked keeps its order.
    sort = sorted if figure.kind is ChartKind.INTERVALS else list
    return Reading(split or [Panel("", drawn)], sort(shown["group"].values()) if groups else [], len(found) - len(kept))


def _shown(row: Row, names: dict[str, dict[Any, str]]) -> Row:
    texts = {role: names[role][value] for role, value in row.items() if role in names}
    known = {role: float(value) for role in _NUMBERS if (value := row.get(role)) is not None and math.isfinite(value)}
    return {**row, **texts, **dict.fromkeys(_NUMBERS), **known}


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
