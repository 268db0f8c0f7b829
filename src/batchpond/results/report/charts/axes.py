"""Charts with two axes of numbers: curves with bands, running totals over time, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import altair as alt

from batchpond.results.report import canvas, palette
from batchpond.results.report.canvas import STYLES, TOTAL_PX, Layout, Scale, Style
from batchpond.results.report.figure import Figure
from batchpond.results.report.reading import Panel, Reading, Row

_AXIS_PX, _SPACING_PX, _HEIGHT_PX, _SQUARE_PX = 70, 22, 230, 300
_PANELS_ABREAST: Final = {Layout.WIDE: 2, Layout.NARROW: 1}
_DOT_MIN, _DOT_MAX, _BANDS_MAX = 30, 330, 3
_SPANS: Final = (
    (timedelta(minutes=10), "%H:%M:%S"),
    (timedelta(days=1), "%H:%M"),
    (timedelta(days=4), "%d %b %H:%M"),
    (timedelta(days=300), "%d %b"),
)
Layers = list[alt.Chart]
_Size = tuple[float, float]  # width and height in pixels


@dataclass(frozen=True, slots=True)
class _Plane:
    """The channels of both axes, the lines of the grid, and the size of one panel."""

    x: alt.X
    y: alt.Y
    grid: Layers
    size: _Size


def curves(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return a line with a band per group, or with bars where so many bands would hide each other."""
    values = _numbers(reading, "value", "low", "high", "reference")
    size = _size(reading, layout)
    y = canvas.scale(values, _title(figure, "value", size[1]), domain=figure.domain, is_share=figure.is_share)
    x = _x_scale(_numbers(reading, "x"), _title(figure, "x", size[0]))
    plane = _plane(x, y, size)

    def drawn(panel: Panel) -> Layers:
        layers = _level(panel, plane)
        shift = 0.016 * (x.high - x.low) if len(reading.groups) > _BANDS_MAX else 0.0
        for number, (style, rows) in enumerate(_grouped(panel, reading)):
            aside = shift * (number - (len(reading.groups) - 1) / 2)
            placed = [{**place, "x": place["x"] + aside} for _, place in _places(rows)]
            layers += _curve(placed, y, plane, style, has_band=shift == 0)
        return layers

    return _assembled(reading, plane, layout, drawn)


def timeline(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return running totals as steps over time (UTC)."""
    size = _size(reading, layout)
    title = _title(figure, "value", size[1])
    y = canvas.scale([0.0, *_numbers(reading, "value")], title, domain=figure.domain, is_share=figure.is_share)
    moments = [_epoch_ms(row["x"]) for row in reading.rows if row["x"] is not None]
    start, end = min(moments, default=0), max(moments, default=0)
    plane = _time_plane((start, max(end, start + 1_000)), y, figure, size)

    def drawn(panel: Panel) -> Layers:
        return [layer for style, rows in _grouped(panel, reading) for layer in _steps(rows, end, plane, style)]

    return _assembled(reading, plane, layout, drawn)


def calibration(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return accuracy against stated confidence, with the diagonal that a calibrated judge would follow.

    Groups stand side by side, since their dots would hide each other.
    """
    reading = _side_by_side(reading)
    side = min(_size(reading, layout)[0], _SQUARE_PX)
    x, y = (Scale(0.0, 1.0, _title(figure, role, side), ".0%", 0.2) for role in ("x", "value"))
    plane = _plane(x, y, (side, side))
    diagonal = canvas.rows([{"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 1.0}])
    line = diagonal.mark_line(color=palette.REFERENCE.light, strokeWidth=1.2, strokeDash=[4, 3])
    n_max = max((row["n"] for row in reading.rows if row.get("n")), default=1)

    def drawn(panel: Panel) -> Layers:
        layers = [line.encode(x=plane.x, y=plane.y)]
        for style, rows in _grouped(panel, reading):
            placed = [{**place, "size": _DOT_MIN + (_DOT_MAX - _DOT_MIN) * (row.get("n") or 0) / n_max}
                      for row, place in _places(rows)]  # fmt: skip
            size = alt.Size("size:Q", scale=None, legend=None)
            layers += _bars(placed, x, plane, style)
            layers += [canvas.points(placed, plane.x, plane.y, style, size)] if placed else []
        return layers

    return _assembled(reading, plane, layout, drawn)


def _side_by_side(reading: Reading) -> Reading:
    """Return each group of each panel as a panel of its own."""
    if not reading.groups:
        return reading
    panels = []
    for panel in reading.panels:
        for name, (_, rows) in zip(reading.groups, _grouped(panel, reading), strict=True):
            title = f"{panel.title} · {name}" if panel.title else name
            panels += [Panel(title, [{**row, "group": 0} for row in rows])] * bool(rows)
    return replace(reading, panels=panels, groups=())


def _curve(rows: Sequence[Row], y: Scale, plane: _Plane, style: Style, *, has_band: bool) -> Layers:
    placed = [{**row, **{role: None if row[role] is None else y.clamp(row[role]) for role in ("y", "low", "high")}}
              for row in rows]  # fmt: skip
    if not placed:
        return []
    line = canvas.rows(placed).mark_line(color=style.tone.light, strokeWidth=2, strokeDash=list(style.dash))
    spread = _band(placed, plane, style) if has_band else _bars(placed, y, plane, style)
    return [*spread, line.encode(x=plane.x, y=plane.y), canvas.points(placed, plane.x, plane.y, style)]


def _band(placed: Sequence[Row], plane: _Plane, style: Style) -> Layers:
    """Return the area between low and high; it is open where either is missing."""
    edges = [{**row, "y": row["low"] if row["high"] is not None else None} for row in placed]
    area = canvas.rows(edges).mark_area(color=style.tone.light, opacity=0.14, line=False)
    has_any = any(row["y"] is not None for row in edges)
    return [area.encode(x=plane.x, y=plane.y, y2="high:Q")] if has_any else []


def _steps(rows: Sequence[Row], end_ms: int, plane: _Plane, style: Style) -> Layers:
    placed = [{"x": _epoch_ms(row["x"]), "y": value} for row in rows
              if row["x"] is not None and (value := canvas.finite(row["value"])) is not None]  # fmt: skip
    if not placed:
        return []
    drawn = [*placed, {"x": end_ms, "y": placed[-1]["y"]}] if placed[-1]["x"] < end_ms else placed
    line = canvas.rows(drawn).mark_line(
        color=style.tone.light, strokeWidth=2, strokeDash=list(style.dash), interpolate="step-after"
    )
    return [line.encode(x=plane.x, y=plane.y), canvas.points(placed, plane.x, plane.y, style, 34)]


def _bars(placed: Sequence[Row], x: Scale, plane: _Plane, style: Style) -> Layers:
    lines = [{"x": row["x"], "y": x.clamp(row["low"]), "y2": x.clamp(row["high"])} for row in placed
             if row["low"] is not None and row["high"] is not None]  # fmt: skip
    mark = canvas.rows(lines).mark_rule(color=style.tone.light, strokeWidth=2)
    return [mark.encode(x=plane.x, y=plane.y, y2="y2:Q")] if lines else []


def _level(panel: Panel, plane: _Plane) -> Layers:
    value = next((v for row in panel.rows if (v := canvas.finite(row.get("reference"))) is not None), None)
    if value is None:
        return []
    mark = canvas.rows([{"y": value}]).mark_rule(color=palette.REFERENCE.light, strokeWidth=1.2, strokeDash=[4, 3])
    return [mark.encode(y=plane.y)]


def _places(rows: Sequence[Row]) -> list[tuple[Row, dict[str, Any]]]:
    """Return each row that has an x and a value with its place, in order of x."""
    found: list[tuple[Row, dict[str, Any]]] = []
    for row in rows:
        x, value = canvas.finite(row["x"]), canvas.finite(row["value"])
        if x is not None and value is not None:
            ends = {role: canvas.finite(row.get(role)) for role in ("low", "high")}
            found.append((row, {"x": x, "y": value, **ends}))
    return sorted(found, key=_x_of)


def _x_of(pair: tuple[Row, dict[str, Any]]) -> float:
    x: float = pair[1]["x"]
    return x


def _grouped(panel: Panel, reading: Reading) -> list[tuple[Style, list[Row]]]:
    n_groups = max(1, len(reading.groups))
    split: list[list[Row]] = [[] for _ in range(n_groups)]
    for row in panel.rows:
        split[row["group"] if reading.groups else 0].append(row)
    return list(zip(STYLES, split, strict=False))


def _numbers(reading: Reading, *roles: str) -> list[float]:
    return [v for row in reading.rows for role in roles if (v := canvas.finite(row.get(role))) is not None]


def _title(figure: Figure, role: str, width_px: float) -> tuple[str, ...]:
    return tuple(canvas.wrapped(figure.titles[role], width_px)) if figure.titles.get(role) else ()


def _x_scale(values: Sequence[float], title: tuple[str, ...]) -> Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if all(value == int(value) for value in values) and high - low <= 12:
        return Scale(low - 0.25, high + 0.25, title, "d", 1.0)
    return canvas.scale(values, title, domain=None, is_share=False)


def _plane(x: Scale, y: Scale, size: _Size) -> _Plane:
    upright = canvas.rows([{"x": tick} for tick in canvas.ticks(x)]).mark_rule(color=palette.GRID.light)
    level = canvas.rows([{"y": tick} for tick in canvas.ticks(y)]).mark_rule(color=palette.GRID.light)
    across, up = canvas.x_axis(x), canvas.y_axis(y)
    return _Plane(across, up, [upright.encode(x=across), level.encode(y=up)], size)


def _time_plane(ends_ms: tuple[int, int], y: Scale, figure: Figure, size: _Size) -> _Plane:
    """Return a plane over time, labelled as finely as its span asks for."""
    span = timedelta(milliseconds=ends_ms[1] - ends_ms[0])
    form = next((form for longest, form in _SPANS if span <= longest), "%b %Y")
    title = list(_title(figure, "x", size[0])) or ["Time (UTC)"]
    if span <= timedelta(days=1):
        title[-1] += ", " + datetime.fromtimestamp(ends_ms[0] / 1000, UTC).strftime("%d %B %Y")
    axis = alt.Axis(
        title=title, format=form, tickCount=max(2, int(size[0] / 95)), grid=True, domain=False, ticks=False,
        labelPadding=5, titlePadding=8, labelOverlap="greedy",
    )  # fmt: skip
    x = alt.X("x:T", scale=alt.Scale(type="utc", domain=list(ends_ms), nice=False), axis=axis)
    up = canvas.y_axis(y)
    level = canvas.rows([{"y": tick} for tick in canvas.ticks(y)]).mark_rule(color=palette.GRID.light)
    return _Plane(x, up, [level.encode(y=up)], size)


def _size(reading: Reading, layout: Layout) -> _Size:
    """Return the size of a panel: two abreast on a page, one on a phone."""
    n_abreast = min(_PANELS_ABREAST[layout], len(reading.panels))
    width = (TOTAL_PX[layout] - 16 - (n_abreast - 1) * _SPACING_PX) / n_abreast - _AXIS_PX
    return width, min(_HEIGHT_PX + 50 * (n_abreast == 1 and layout is Layout.WIDE), width)


def _assembled(reading: Reading, plane: _Plane, layout: Layout, drawn: Callable[[Panel], Layers]) -> Any:
    """Return the panels on a common pair of axes, under the groups' names."""
    plots = [canvas.plot([*plane.grid, *drawn(panel)], plane.size, panel.title) for panel in reading.panels]
    body = plots[0] if len(plots) == 1 else alt.concat(*plots, columns=_PANELS_ABREAST[layout], spacing=_SPACING_PX)
    if not reading.groups:
        return body
    legend = canvas.legend(reading.groups, TOTAL_PX[layout] - _AXIS_PX - 16, has_lines=True)
    return alt.vconcat(legend, body, spacing=8)


def _epoch_ms(moment: Any) -> int:
    """Return a moment in milliseconds since 1970; one without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
