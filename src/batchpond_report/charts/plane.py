"""Charts with two sides: curves with bands, totals over time, calibration; matrices, with the numbers in the cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, Final

from batchpond_report import palette
from batchpond_report.charts import looks
from batchpond_report.charts.looks import Layout, Spec
from batchpond_report.numbers import UNKNOWN, number
from batchpond_report.parts import ChartKind, Figure
from batchpond_report.reading import Panel, Reading, Row, short

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
