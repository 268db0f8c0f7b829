"""A figure of the report: rows that SQL made, and which column plays which part in the drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

FIGURE_ROWS_MAX: Final = 200
PANELS_MAX: Final = 12


class ChartKind(StrEnum):
    """How a figure is drawn, and the roles that its encoding gives columns.

    Every kind may have `panel`: a text column, one small drawing per value, in order of first row, all with
    the same axes. `group` is a text column told apart by colour, and by shape or dash too. Text columns are
    shown in order of first row, never sorted again. A number may be NULL wherever it is said so.

    - INTERVALS: a dot with a bar per row. `label` (text, one line each, unique per panel and group), `value`,
      `low`, `high` (both or either NULL: no bar, or open at that end); optional `group`, `reference` (a number,
      the same in all rows: a thin line).
    - RANKING: as INTERVALS, best first; optional `group` (text: the tied group, shown by alternating shades).
    - WIN_MATRIX: `row`, `column` (text), `value` (0 to 1, 0.5 is even; NULL: not compared, drawn empty),
      `n` (whole number, small beneath the value).
    - HEAT: `row`, `column` (text), `value` (NULL: drawn empty); optional `n`.
    - CURVES: `x` (number), `value`, `low`, `high` (NULL: no band there), `group`; optional `reference`.
    - BARS: `label` (text), `value` (not negative), `group` (parts of one stacked bar).
    - TIMELINE: `x` (time, UTC), `value` (running total: steps), `group`.
    - CALIBRATION: `x` (stated confidence, 0 to 1), `value` (accuracy, 0 to 1), `low`, `high`, `n` (size of the
      dot), `group`; the diagonal is drawn.
    """

    INTERVALS = "intervals"
    RANKING = "ranking"
    WIN_MATRIX = "win_matrix"
    HEAT = "heat"
    CURVES = "curves"
    BARS = "bars"
    TIMELINE = "timeline"
    CALIBRATION = "calibration"


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing: what it shows, where it comes from, and at most FIGURE_ROWS_MAX rows.

    `key` is unique in a report, safe as a file name and as an HTML id. `caption` states what is shown, n and
    what was left out. `encoding` maps roles, those of ChartKind, to columns of `frame`; `titles` maps roles to
    what axis or legend are called, units included. Texts in `frame` may be
    anything a provider sent, with control characters already made visible.
    """

    key: str
    title: str
    caption: str
    sql: str
    frame: pl.DataFrame
    kind: ChartKind
    encoding: Mapping[str, str]
    titles: Mapping[str, str] = field(default_factory=dict)
    is_share: bool = False  # values between 0 and 1, printed in per cent
