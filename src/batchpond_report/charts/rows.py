"""Charts with a line per label: intervals, rankings and bars; the names on the left, or above on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from batchpond_report import palette
from batchpond_report.charts import looks
from batchpond_report.charts.looks import Layout, Spec
from batchpond_report.numbers import NARROW, Kind, shown
from batchpond_report.parts import ChartKind, Figure
from batchpond_report.reading import Panel, Reading, Row, short

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
        bands = {"domain": names, "paddingInner": share, "paddingOuter": share / 2, "align": above}
        axis = {
            "title": None, "labels": self.is_wide, "labelLimit": looks.NAMES_PX, "labelOverlap": False, "grid": False,
            "labelColor": palette.INK.light, "labelFontSize": looks.FONT_PX,
        }  # fmt: skip
        self.y = looks.nominal("label", scale=bands, axis=axis)
        self.above_px = -(self.marks_px + _NAME_PX) / 2
        self._name_px = max(120, self.size[0] - self.notes_px - _GAP_PX)

    def names(self) -> list[Spec]:
        """Return the names above their marks, where they do not stand at the axis."""
        if self.is_wide:
            return []
        style: Spec = {"align": "left", "color": palette.INK.light, "fontSize": looks.FONT_PX}
        channels = {"x": {"value": 0}, "y": self.y, "text": looks.nominal("name", aggregate="min")}
        return [looks.layer("text", channels, dy=self.above_px, limit=self._name_px, **style)]

    def named(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows with the names that fit: the renderer cuts one by measuring ever shorter ones, for very long."""
        n_letters = int(self._name_px / looks.LETTER_PX)
        return [{**row, "name": short(row["label"], n_letters)} for row in rows]

    def notes(self, **channels: Spec) -> Spec:
        """Return the column `note` beside the marks, or at the end of the name's line."""
        style: Spec = {"align": "left", "dx": 10} if self.is_wide else {"align": "right", "dy": self.above_px}
        places = {"x": {"value": "width"}, "y": self.y, "text": looks.nominal("note"), **channels}
        return looks.layer("text", places, **style)


def intervals(figure: Figure, reading: Reading, layout: Layout) -> Spec:
    """Return dots with bars and their numbers; a ranking's tied groups stand on alternating shades."""
    ends = looks.ends(figure, reading.numbers("value", "low", "high", "reference"))
    plots = []
    for panel in reading.panels:
        is_last = panel is reading.panels[-1]
        rows = [_ended(row, ends, is_share=figure.is_share) for row in panel.rows]
        notes = [looks.estimate(row, ends, is_share=figure.is_share) for row in reading.rows]
        lines = _Lines(panel, reading, layout, notes, max(1, len(reading.groups)))
        title = looks.title(figure, "value", lines.size[0]) if is_last else None
        x = looks.numbers(figure, ends, title, labels=is_last)
        apart = looks.told_apart(reading.groups, layout, "color", "shape")
        offset = {"yOffset": looks.nominal("group", scale={"domain": list(reading.groups)})} if reading.groups else {}
        bar = {"x": {"field": "from", **x}, "x2": {"field": "to"}, "y": lines.y, "color": apart["color"], **offset}
        layers = _shades(rows, lines) if figure.kind is ChartKind.RANKING else []
        layers += [looks.layer("rule", bar, "isValid(datum.from)", strokeWidth=2)]
        if reading.numbers("reference"):
            layers += [looks.reference("rule", {"x": {"field": "reference", "aggregate": "mean", **x}})]
        layers += _arrows(bar, x)
        dot = {"x": {"field": "value", **x}, "y": lines.y, **apart, **offset}
        layers += [looks.points(dot, size=50), *lines.names()]
        if layout is Layout.WIDE or len(reading.groups) < 2:  # a phone has room for the numbers of one mark a label
            layers.append(lines.notes(**offset))
        plots.append(looks.plot(lines.named(rows), layers, lines.size))
    return looks.assembled(plots, reading)


def _ended(row: Row, ends: tuple[float, float], *, is_share: bool) -> Row:
    """Return a row with the bar that is drawn: where one end is open, to the end of the axis."""
    bar = dict(zip(("from", "to"), ends, strict=True)) | {
        name: row[role] for name, role in (("from", "low"), ("to", "high")) if row[role] is not None
    }
    has_bar = row["low"] is not None or row["high"] is not None
    open_end = "" if not has_bar else "low" if row["low"] is None else "high" if row["high"] is None else ""
    return {**row, **(bar if has_bar else {}), "open": open_end, "note": looks.estimate(row, ends, is_share=is_share)}


def _arrows(bar: Spec, x: Spec) -> list[Spec]:
    style: Spec = {"filled": True, "opacity": 1, "shape": "triangle", "size": 45}
    places = {role: channel for role, channel in bar.items() if role != "x2"}
    return [
        looks.layer("point", {**places, "x": {"field": end, **x}}, f"datum.open == '{side}'", **style, angle=angle)
        for side, end, angle in (("low", "from", 270), ("high", "to", 90))
    ]


def _shades(rows: Sequence[Row], lines: _Lines) -> list[Spec]:
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row.get("group"))]
    shaded = [{"label": row["label"]} for run in runs[::2] for row in run]
    style: Spec = {"color": palette.BAND.light, "height": {"band": 1 + lines.gap_px / lines.marks_px}}
    places = {"y": lines.y, "x": {"value": 0}, "x2": {"value": "width"}}
    bands = looks.layer("rect", places, yOffset=0 if lines.is_wide else -lines.gap_px / 2, **style)
    return [{**looks.data(shaded), **bands}] if len(runs) > 1 else []


def bars(figure: Figure, reading: Reading, layout: Layout) -> Spec:
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
    x = looks.numbers(figure, (0.0, high), looks.title(figure, "value", lines.size[0]))
    apart = looks.told_apart(reading.groups, layout, "color")
    blocks = {"x": {"field": "from", **x}, "x2": {"field": "to"}, "y": lines.y, **apart}
    numbers = {"x": {"field": "middle", **x}, "y": lines.y, "text": looks.nominal("note")}
    layers = [
        looks.layer("bar", blocks, stroke=palette.PAPER.light, strokeWidth=1),
        looks.layer("text", numbers, "datum.note", fontSize=10, color=palette.CELL_INK_STRONG.light),
        *({**looks.data(lines.named(totals)), **layer} for layer in (*lines.names(), lines.notes())),
    ]
    return looks.assembled([looks.plot(parts, layers, lines.size)], reading)


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
