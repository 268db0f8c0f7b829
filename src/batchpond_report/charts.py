"""The charts, one function per kind: with a line per label, with two sides, and matrices with numbers in the cells.

Names of lines stand on the left, or above them on a phone; curves have bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from itertools import groupby
from typing import Any, Final

from batchpond_report import looks, palette
from batchpond_report.looks import Layout, Spec
from batchpond_report.numbers import NARROW, UNKNOWN, Kind, number, shown
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


_AXIS_PX, _HEIGHT_PX, _SQUARE_PX = 80, 260, 290
_BANDS_MAX: Final = 3
_TIMES: Final = {
    "milliseconds": "%H:%M:%S.%L",
    "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M", "date": "%d %b", "month": "%b", "year": "%Y",
}  # fmt: skip


def curves(figure: Figure, reading: Reading, layout: Layout) -> Spec:
    """Return a line with a band per group, or with bars where so many bands would hide each other."""
    x_values = reading.numbers("x")
    edge = 0.04 * (max(x_values, default=1) - min(x_values, default=0)) or 0.5
    domain = (min(x_values, default=0) - edge, max(x_values, default=1) + edge)
    is_whole = all(value == int(value) for value in x_values)
    title = looks.title(figure, "x", _width(reading, layout))
    axis = {"title": title, "tickCount": 6, "tickMinStep": 1 if is_whole else 0}
    x: Spec = {"type": "quantitative", "scale": looks.scale(domain), "axis": axis}
    y = _y(figure, reading)
    has_bands = len(reading.groups) <= _BANDS_MAX
    shift = 0 if has_bands else edge * 0.4
    aside = {name: shift * (n - len(reading.groups) / 2) for n, name in enumerate(reading.groups)}

    apart = looks.told_apart(reading.groups, layout, "color")
    bar = {**_bar(x, y), **apart}
    spread = (
        looks.layer("area", bar, looks.KNOWN_BAR, opacity=0.14, line=False)
        if has_bands
        else looks.layer("rule", bar, looks.KNOWN_BAR, strokeWidth=2)
    )
    layers = [spread]
    if reading.numbers("reference"):
        layers.append(looks.reference("rule", {"y": {"field": "reference", "aggregate": "mean", **y}}))
    layers += _line(x, y, reading, layout)

    def rows(panel: Panel) -> list[Row]:
        return [
            {**row, "x": row["x"] + aside.get(row.get("group", ""), 0)} for row in panel.rows if row["x"] is not None
        ]

    return _assembled(reading, layout, layers, rows)


def timeline(figure: Figure, reading: Reading, layout: Layout) -> Spec:
    """Return running totals as steps over time (UTC)."""
    moments = sorted(_epoch_ms(row["x"]) for row in reading.rows if row["x"] is not None) or [0]
    first = min((row["x"] for row in reading.rows if row["x"] is not None), default=None)
    title = looks.title(figure, "x", _width(reading, layout)) or ["Time (UTC)"]
    title[-1] += f", from {first:%d %B %Y}" if first else ""
    domain = [moments[0], max(moments[-1], moments[0] + 1_000)]
    n_ticks = max(2, int(_width(reading, layout) / 95))
    axis = {"title": title, "format": _TIMES, "tickCount": n_ticks}
    x: Spec = {"type": "temporal", "scale": {"type": "utc", "domain": domain, "nice": False}, "axis": axis}
    layers = _line(x, _y(figure, reading, 0.0), reading, layout, interpolate="step-after")

    def rows(panel: Panel) -> list[Row]:
        found = [{**row, "x": _epoch_ms(row["x"])} for row in panel.rows if row["x"] is not None]
        last = {row.get("group"): {**row, "x": domain[1], "is_end": True} for row in found if row["value"] is not None}
        return [*found, *last.values()]

    return _assembled(reading, layout, layers, rows)


def calibration(figure: Figure, reading: Reading, layout: Layout) -> Spec:
    """Return accuracy against stated confidence, with the diagonal that a calibrated judge would follow."""
    side = min(_width(reading, layout), _SQUARE_PX)
    x, y = (looks.numbers(figure, (0.0, 1.0), looks.title(figure, role, side)) for role in ("x", "value"))
    places = {"x": {"field": "x", **x}, "y": {"field": "value", **y}}
    n_max = max((row["n"] for row in reading.rows if row.get("n")), default=1)
    size = {
        "field": "n", "type": "quantitative", "legend": None, "scale": {"domain": [0, n_max], "range": [30, 330]},
    }  # fmt: skip
    alone = looks.told_apart((), layout, "color", "shape")
    diagonal = looks.data([{"x": 0, "value": 0}, {"x": 1, "value": 1}])
    layers = [
        {**diagonal, **looks.reference("line", places)},
        looks.layer("rule", {**_bar(x, y), "color": alone["color"]}, looks.KNOWN_BAR, strokeWidth=2),
        looks.points({**places, "size": size, **alone}),
    ]

    def rows(panel: Panel) -> list[Row]:
        return [{**row, "n": row.get("n") or 0} for row in panel.rows]

    return _assembled(reading, layout, layers, rows, side)


def _bar(x: Spec, y: Spec) -> Spec:
    return {"x": {"field": "x", **x}, "y": {"field": "low", **y}, "y2": {"field": "high"}}


def _line(x: Spec, y: Spec, reading: Reading, layout: Layout, **style: Any) -> list[Spec]:
    places = {"x": {"field": "x", **x}, "y": {"field": "value", **y}}
    apart = looks.told_apart(reading.groups, layout, "color", "shape", "strokeDash")
    shape = apart.pop("shape")
    dots = {**places, "color": apart["color"], "shape": shape}
    return [
        looks.layer("line", {**places, **apart}, "isValid(datum.value)", strokeWidth=2, **style),
        looks.points(dots, "isValid(datum.value) && !datum.is_end", size=50),
    ]


def _y(figure: Figure, reading: Reading, *also: float) -> Spec:
    domain = looks.ends(figure, [*also, *reading.numbers("value", "low", "high", "reference")])
    return looks.numbers(figure, domain, looks.title(figure, "value", _HEIGHT_PX))


def _n_abreast(reading: Reading, layout: Layout) -> int:
    return min(2 if layout is Layout.WIDE else 1, len(reading.panels))


def _width(reading: Reading, layout: Layout) -> float:
    """Return the width of a panel: two abreast on a page, one on a phone."""
    n_abreast = _n_abreast(reading, layout)
    return layout.width_px / n_abreast - _AXIS_PX


def _assembled(
    reading: Reading,
    layout: Layout,
    layers: Sequence[Spec],
    rows: Callable[[Panel], list[Row]],
    side: float | None = None,
) -> Spec:
    """Return the panels, each with its rows, on equal pairs of axes."""
    width = side or _width(reading, layout)
    plots = [looks.plot(rows(panel), layers, (width, side or min(_HEIGHT_PX, width))) for panel in reading.panels]
    return looks.assembled(plots, reading, _n_abreast(reading, layout))


def _epoch_ms(moment: Any) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


_CELL_MAX_PX, _CELL_MIN_PX, _CELL_ROW_MAX_PX = 76, 14, 40
_TEXT_MIN_PX, _N_MIN_PX = 26, 32
_NAMES_PX: Final = {Layout.WIDE: 190, Layout.NARROW: 110}
_HEADS_PX: Final = {Layout.WIDE: 140, Layout.NARROW: 96}


def matrices(figure: Figure, reading: Reading, layout: Layout) -> Spec:
    """Return one matrix per panel, and the scale of colours beneath."""
    tones, low, high = _colours(figure, reading)
    is_share = figure.is_share or figure.kind is ChartKind.WIN_MATRIX
    key = {
        "orient": "bottom", "direction": "horizontal", "title": looks.title(figure, "value", layout.width_px / 2),
        "labelSeparation": 12, "labelOverlap": "greedy", "labelFontSize": looks.SMALL_PX,
        **looks.percent(is_share=is_share),
    }  # fmt: skip
    steps = {"type": "quantize", "domain": [low, high], "range": [tone.light for tone in tones]}
    fill = {"field": "value", "type": "quantitative", "scale": steps, "legend": key}
    plots = [
        _matrix(figure, panel, layout, fill, [_cell(row, tones, low, high, is_share=is_share) for row in panel.rows])
        for panel in reading.panels
    ]
    return looks.assembled(plots, reading)


def _colours(figure: Figure, reading: Reading) -> tuple[tuple[palette.Tone, ...], float, float]:
    """Return the steps of colour and the values at both of their ends."""
    if figure.kind is ChartKind.WIN_MATRIX:
        return palette.DIVERGING, 0.0, 1.0
    low, high = looks.ends(figure, reading.numbers("value"))
    if low < 0 < high:
        reach = max(-low, high)
        return palette.DIVERGING, -reach, reach
    return palette.SEQUENTIAL, low, high


def _cell(row: Row, tones: tuple[palette.Tone, ...], low: float, high: float, *, is_share: bool) -> Row:
    value = row["value"]
    tone = palette.NO_VALUE if value is None else palette.step(tones, (value - low) / (high - low))
    text = UNKNOWN if value is None else f"{100 * value:.0f}" if is_share else number(value)
    n = row.get("n")
    return {**row, "ink": palette.ink_on(tone).light, "text": text, "n": None if n is None else f"{n:,}"}


def _matrix(figure: Figure, panel: Panel, layout: Layout, fill: Spec, cells: Sequence[Row]) -> Spec:
    names, heads = panel.names("row"), panel.names("column")
    if set(heads) <= set(names):
        heads = [name for name in names if name in set(heads)]
    heads_px = looks.room_px(heads, _HEADS_PX[layout])
    room_px = layout.width_px - looks.room_px(names, _NAMES_PX[layout]) - 20
    is_level = heads_px <= min(_CELL_MAX_PX, room_px / len(heads))
    # Slanted names reach over the last column's edge by their length times the cosine of 45 degrees.
    room_px -= 0 if is_level else 0.71 * heads_px
    cell_px = min(_CELL_MAX_PX, max(_CELL_MIN_PX, int(room_px / len(heads))))
    row_px = min(cell_px, _CELL_ROW_MAX_PX)
    written: Spec = {
        "labelColor": palette.INK.light,
        "labelFontSize": looks.FONT_PX,
        "labelOverlap": False,
        "grid": False,
    }
    across = {"orient": "top", "labelLimit": _HEADS_PX[layout], "labelAngle": 0 if is_level else -45, **written}
    places = {
        "x": _side(figure, "column", heads, across),
        "y": _side(figure, "row", names, {"labelLimit": _NAMES_PX[layout], **written}),
    }
    square: Spec = {"stroke": palette.PAPER.light, "strokeWidth": 1.5}
    layers = [
        looks.layer("rect", places, "!isValid(datum.value)", color=palette.NO_VALUE.light, **square),
        looks.layer("rect", {**places, "color": fill}, "isValid(datum.value)", **square),
        *_numbers(places, cells, cell_px, row_px),
    ]
    return looks.plot(cells, layers, (cell_px * len(heads), row_px * len(names)))


def _side(figure: Figure, role: str, names: Sequence[str], axis: Spec) -> Spec:
    title = figure.titles.get(role)
    shown = {"title": short(title, 40) if title else None, **axis}
    return looks.nominal(role, scale={"domain": list(names), "padding": 0}, axis=shown)


def _numbers(places: Spec, cells: Sequence[Row], cell_px: float, row_px: float) -> list[Spec]:
    """Return what stands in the cells: the value, the n beneath, as far as there is room."""
    if cell_px < _TEXT_MIN_PX:
        return []
    has_n = row_px >= _N_MIN_PX and any(cell["n"] is not None for cell in cells)
    ink = looks.nominal("ink", scale=None)
    size = looks.FONT_PX if cell_px >= 34 else 10
    values, ns = ({**places, "text": looks.nominal(name), "fill": ink} for name in ("text", "n"))
    layers = [looks.layer("text", values, fontSize=size, dy=-5 if has_n else 0)]
    if has_n:
        layers.append(looks.layer("text", ns, "isValid(datum.n)", fontSize=9, dy=9))
    return layers
