"""Charts with a line per label: intervals, rankings and bars; the names on the left, or above on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import altair as alt

from batchpond.results.report import palette
from batchpond.results.report.charts import looks
from batchpond.results.report.charts.looks import Layout
from batchpond.results.report.numbers import NARROW, Kind, shown
from batchpond.results.report.parts import ChartKind, Figure
from batchpond.results.report.reading import Panel, Reading, Row

_MARK_PX, _GAP_PX, _NAME_PX = 15, 8, 16
_ROOM_SHARE: Final = 0.08  # of the axis; a part of a bar that is smaller has no room for its number


class _Lines:
    """The bands of a panel's labels: their height, their names, and what is written at their right end."""

    def __init__(self, panel: Panel, reading: Reading, layout: Layout, notes: Sequence[str], n_marks: int) -> None:
        names = panel.names("label")
        self.is_wide = layout is Layout.WIDE
        self.marks_px = _MARK_PX * n_marks
        self.gap_px = gap_px = _GAP_PX if self.is_wide else _GAP_PX + _NAME_PX
        self.notes_px = looks.room_px(notes)
        taken_px = looks.room_px([row["label"] for row in reading.rows]) + self.notes_px if self.is_wide else 24
        self.size = (layout.width_px - taken_px, len(names) * (self.marks_px + gap_px))
        share = gap_px / (self.marks_px + gap_px)
        above = 0.5 if self.is_wide else 1  # all of the gap stands above the marks where it holds the name
        bands = alt.Scale(domain=names, paddingInner=share, paddingOuter=share / 2, align=above)
        axis = alt.Axis(
            title=None, labels=self.is_wide, labelLimit=looks.NAMES_PX, labelOverlap=False, grid=False,
            labelColor=palette.INK.light, labelFontSize=looks.FONT_PX,
        )  # fmt: skip
        self.y = alt.Y("label", type="nominal", scale=bands, axis=axis)

    def names(self, chart: alt.Chart) -> list[Any]:
        """Return the names above their marks, where they do not stand at the axis."""
        style: dict[str, Any] = {"align": "left", "color": palette.INK.light, "fontSize": looks.FONT_PX}
        limit = max(120, self.size[0] - self.notes_px - _GAP_PX)
        text = chart.mark_text(dy=-(self.marks_px + _NAME_PX) / 2, limit=limit, **style)
        return [] if self.is_wide else [text.encode(x=looks.X_VALUE(0), y=self.y, text=alt.Text("min(label):N"))]

    def notes(self, chart: alt.Chart, **channels: Any) -> Any:
        """Return the column `note` beside the marks, or at the end of the name's line."""
        above_px = -(self.marks_px + _NAME_PX) / 2
        text = chart.mark_text(align="left", dx=10) if self.is_wide else chart.mark_text(align="right", dy=above_px)
        return text.encode(x=looks.X_VALUE("width"), y=self.y, text=alt.Text("note:N"), **channels)


def intervals(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return dots with bars and their numbers; a ranking's tied groups stand on alternating shades."""
    ends = looks.ends(figure, reading.numbers("value", "low", "high", "reference"))
    plots = []
    for panel in reading.panels:
        is_last = panel is reading.panels[-1]
        rows = [_ended(row, ends, is_share=figure.is_share) for row in panel.rows]
        notes = [looks.estimate(row, ends, is_share=figure.is_share) for row in reading.rows]
        lines = _Lines(panel, reading, layout, notes, max(1, len(reading.groups)))
        title = looks.title(figure, "value", lines.size[0]) if is_last else None
        axis = looks.axis(figure, title=title, labels=is_last)
        x: dict[str, Any] = {"scale": looks.scale(ends), "axis": axis, "type": "quantitative"}
        chart, apart = looks.data(rows), looks.told_apart(reading.groups, layout, "color", "shape")
        within: dict[str, Any] = {"y": lines.y} | ({"yOffset": _offset(reading.groups)} if reading.groups else {})
        layers = _shades(rows, lines) if figure.kind is ChartKind.RANKING else []
        bars = chart.transform_filter("isValid(datum.from)").mark_rule(strokeWidth=2)
        layers += [bars.encode(x=alt.X("from", **x), x2=alt.X2("to"), color=apart["color"], **within)]
        layers += _reference(chart, x) if reading.numbers("reference") else []
        layers += [_arrows(chart, side, x).encode(color=apart["color"], **within) for side in ("low", "high")]
        layers += [looks.points(chart).encode(x=alt.X("value", **x), **apart, **within), *lines.names(chart)]
        layers += [lines.notes(chart, **{k: v for k, v in within.items() if k != "y"})] * _has_notes(reading, layout)
        plots.append(_plot(layers, lines))
    return looks.assembled(plots, reading)


def _plot(layers: Sequence[Any], lines: _Lines) -> Any:
    plot = alt.layer(*layers)
    plot.width, plot.height = lines.size
    return plot


def _offset(groups: Sequence[str]) -> alt.YOffset:
    return alt.YOffset("group", type="nominal", scale=alt.Scale(domain=groups))


def _has_notes(reading: Reading, layout: Layout) -> bool:
    """Say whether the numbers have room: a phone shows them for one mark a label only."""
    return layout is Layout.WIDE or len(reading.groups) < 2


def _ended(row: Row, ends: tuple[float, float], *, is_share: bool) -> Row:
    """Return a row with the bar that is drawn: where one end is open, to the end of the axis."""
    bar = dict(zip(("from", "to"), ends, strict=True)) | {
        name: row[role] for name, role in (("from", "low"), ("to", "high")) if row[role] is not None
    }
    has_bar = row["low"] is not None or row["high"] is not None
    open_end = "" if not has_bar else "low" if row["low"] is None else "high" if row["high"] is None else ""
    return {**row, **(bar if has_bar else {}), "open": open_end, "note": looks.estimate(row, ends, is_share=is_share)}


def _arrows(chart: alt.Chart, side: str, x: dict[str, Any]) -> Any:
    """Return an arrow at each end of a bar that nothing bounds."""
    mark = chart.transform_filter(f"datum.open == '{side}'").mark_point(
        filled=True, opacity=1, shape="triangle", size=45, angle=270 if side == "low" else 90
    )
    return mark.encode(x=alt.X("from" if side == "low" else "to", **x))


def _reference(chart: alt.Chart, x: dict[str, Any]) -> list[Any]:
    return [looks.rule(chart).encode(x=alt.X("reference", aggregate="mean", **x))]


def _shades(rows: Sequence[Row], lines: _Lines) -> list[Any]:
    """Return a shade behind every second run of rows of one tied group."""
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row.get("group"))]
    shaded = [{"label": row["label"]} for run in runs[::2] for row in run]
    size: dict[str, Any] = {"height": {"band": 1 + lines.gap_px / lines.marks_px}}
    bands = looks.data(shaded).mark_rect(
        color=palette.BAND.light, yOffset=0 if lines.is_wide else -lines.gap_px / 2, **size
    )
    return [bands.encode(y=lines.y, x=looks.X_VALUE(0), x2=looks.X2_VALUE("width"))] if len(runs) > 1 else []


def bars(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return horizontal bars, their parts stacked in the order of the groups, with the sum at the end."""
    (panel,) = reading.panels
    kind = Kind.SHARE if figure.is_share else Kind.COUNT
    sums = dict.fromkeys(panel.names("label"), 0.0)
    for row in panel.rows:
        sums[row["label"]] += row["value"] or 0.0
    totals = [{"label": name, "note": shown(total, kind).replace(NARROW, "")} for name, total in sums.items()]
    lines = _Lines(panel, reading, layout, [row["note"] for row in totals], 1)
    high = looks.ends(figure, [0.0, *sums.values()])[1]
    parts = _parts(panel.rows, reading.groups, high * _ROOM_SHARE, kind)
    axis = looks.axis(figure, title=looks.title(figure, "value", lines.size[0]))
    x: dict[str, Any] = {"scale": looks.scale((0.0, high)), "axis": axis, "type": "quantitative"}
    chart = looks.data(parts)
    blocks = chart.mark_bar(stroke=palette.PAPER.light, strokeWidth=1)
    numbers = chart.transform_filter("datum.note").mark_text(fontSize=10, color=palette.CELL_INK_STRONG.light)
    layers = [
        blocks.encode(
            x=alt.X("from", **x), x2=alt.X2("to"), y=lines.y, **looks.told_apart(reading.groups, layout, "color")
        ),
        numbers.encode(x=alt.X("middle", **x), y=lines.y, text=alt.Text("note:N")),
        *lines.names(looks.data(totals)),
        lines.notes(looks.data(totals)),
    ]
    return looks.assembled([_plot(layers, lines)], reading)


def _parts(rows: Sequence[Row], groups: Sequence[str], room: float, kind: Kind) -> list[Row]:
    """Return where each part of a bar begins and ends, and its number where it has room and company."""
    reached: dict[str, float] = {}
    parts = []
    for row in sorted(rows, key=lambda row: groups.index(row["group"]) if groups else 0):
        value, start = row["value"] or 0.0, reached.get(row["label"], 0.0)
        reached[row["label"]] = start + value
        note = shown(value, kind).replace(NARROW, "") if len(groups) > 1 and value > room else ""
        part = {"from": start, "to": start + value, "middle": start + value / 2, "note": note}
        parts += [{**row, **part}] * (value > 0)
    return parts
