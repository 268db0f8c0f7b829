"""What a report is made of: sections, and in them exhibits, which are a table and often a figure of one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from html import escape
from typing import Any, Final

import polars as pl

from batchpond_report.numbers import Kind

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
    is_bounded: bool = False  # values up to 1, from 0 or -1 on, as kappa has; the axis ends there
    n_undrawn: int = 0  # rows of the table that are not in `frame`


class When(StrEnum):
    """Which tables have a column."""

    ALWAYS = "always"
    KNOWN = "known"  # where any row has a value
    VARYING = "varying"  # where rows differ in it


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an exhibit: what the view calls it, its head in the table, and its part in the figure.

    `has_ends`: NAME_lo and NAME_hi are the ends of its 95 % interval, with `target` after them where that is not in
    general. `sql` is the expression where NAME is not a column of the view. `role` is one of ChartKind's, and `axis`
    what its axis is called where that is more than the head. `to` narrows the judgments behind a row to those behind
    this number, by the filters that `browse` has, and `list` names another of its lists.
    """

    name: str
    title: str
    kind: Kind = Kind.COUNT
    has_ends: bool = False
    target: str = ""
    sql: str = ""
    when: When = When.ALWAYS
    role: str = ""
    axis: str = ""
    to: Mapping[str, str] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[str, ...]:
        """The names of the ends of its interval, none where it has no interval."""
        return (f"{self.name}_lo{self.target}", f"{self.name}_hi{self.target}") if self.has_ends else ()


count = Column
text = partial(Column, kind=Kind.TEXT)
share = partial(Column, kind=Kind.SHARE)


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A table of one query, and the figure that shows it.

    `key` is unique in a report and safe as an HTML id. `caption` says what is shown, n and what was left out.
    `frame` holds what `columns` print, `data` what the query gave. `is_cut`: the query gives more rows than these.
    `command` prints all rows where that is not the query.
    """

    key: str
    title: str
    caption: str
    sql: str
    frame: pl.DataFrame
    columns: Sequence[Column]
    data: pl.DataFrame
    is_cut: bool = False
    figure: Figure | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are, without a query of their own."""

    title: str
    rows: Sequence[tuple[str, str]]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that somebody or something wrote, cut to a bounded length, and `data:` addresses of pictures by name."""

    title: str
    text: str
    n_left_out: int = 0
    pictures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """Passages to be read side by side, and below them what they speak of."""

    title: str
    sides: Sequence[Passage]
    background: Sequence[Passage] = ()


@dataclass(frozen=True, slots=True)
class Cases:
    """A bounded choice of cases, with the query that chose them."""

    key: str
    title: str
    caption: str
    sql: str
    cases: Sequence[Case]


Part = Exhibit | Facts | Cases


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of what was found, the key of the exhibit that shows its number, and the row that it was made of."""

    text: str
    key: str
    row: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter of the report: a heading, sentences, parts, and a text to copy; what it found stands at the top."""

    key: str
    title: str
    paragraphs: Sequence[str]
    parts: Sequence[Part]
    findings: Sequence[Finding] = ()
    listing: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it, the same bytes for the same facts."""

    study: str
    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    fingerprint: str

    def exhibits(self) -> list[Exhibit]:
        """Return the exhibits in order."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Exhibit)]

    def findings(self) -> list[tuple[Finding, Section]]:
        """Return what was found, in order, each with the section that shows it; what could not be found is last."""
        found = [(finding, section) for section in self.sections for finding in section.findings]
        return sorted(found, key=lambda each: each[0].key == "power")

    def figures(self) -> list[Figure]:
        """Return the figures in order."""
        return [exhibit.figure for exhibit in self.exhibits() if exhibit.figure is not None]

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(finding.text)}</li>" for finding, _ in self.findings())
        return f"<p>{escape(self.title)}</p><ul>{said}</ul>"
