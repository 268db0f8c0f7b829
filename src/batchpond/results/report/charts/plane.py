"""Charts with two axes of numbers: curves with bands, running totals over time, calibration."""

from __future__ import annotations

from datetime import UTC
from typing import Any, Final

import altair as alt

from batchpond.results.report.charts import looks
from batchpond.results.report.charts.looks import Layout
from batchpond.results.report.palette import REFERENCE
from batchpond.results.report.parts import Figure
from batchpond.results.report.reading import Panel, Reading

_AXIS_PX, _HEIGHT_PX, _SQUARE_PX = 80, 260, 290
_BANDS_MAX: Final = 3
_TIMES: Final = {
    "milliseconds": "%H:%M:%S.%L",
    "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M", "date": "%d %b", "month": "%b", "year": "%Y",
}  # fmt: skip


def curves(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return a line with a band per group, or with bars where so many bands would hide each other."""
    x_values = reading.numbers("x")
    edge = 0.04 * (max(x_values, default=1) - min(x_values, default=0)) or 0.5
    domain = (min(x_values, default=0) - edge, max(x_values, default=1) + edge)
    is_whole = all(value == int(value) for value in x_values)
    x: dict[str, Any] = {"type": "quantitative", "scale": looks.scale(domain)}
    x["axis"] = alt.Axis(
        title=looks.title(figure, "x", _width(reading, layout)), tickCount=6, tickMinStep=1 if is_whole else 0,
    )  # fmt: skip
    y = _y(figure, reading)
    has_bands = len(reading.groups) <= _BANDS_MAX
    shift = 0 if has_bands else edge * 0.4
    aside = {name: shift * (n - len(reading.groups) / 2) for n, name in enumerate(reading.groups)}

    def drawn(panel: Panel) -> list[Any]:
        chart = looks.data(
            [{**row, "x": row["x"] + aside.get(row.get("group", ""), 0)} for row in panel.rows if row["x"] is not None]
        )
        apart = looks.told_apart(reading.groups, layout, "color")
        spread = chart.transform_filter("isValid(datum.low) && isValid(datum.high)")
        spread = spread.mark_area(opacity=0.14, line=False) if has_bands else spread.mark_rule(strokeWidth=2)
        layers = [spread.encode(x=alt.X("x", **x), y=alt.Y("low", **y), y2=alt.Y2("high"), **apart)]
        if reading.numbers("reference"):
            layers.append(looks.rule(chart).encode(y=alt.Y("reference", aggregate="mean", **y)))
        return [*layers, *_line(chart, x, y, reading, layout)]

    return _assembled(reading, layout, drawn)


def timeline(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return running totals as steps over time (UTC)."""
    moments = sorted(_epoch_ms(row["x"]) for row in reading.rows if row["x"] is not None) or [0]
    first = min((row["x"] for row in reading.rows if row["x"] is not None), default=None)
    title = looks.title(figure, "x", _width(reading, layout)) or ["Time (UTC)"]
    title[-1] += f", from {first:%d %B %Y}" if first else ""
    domain = [moments[0], max(moments[-1], moments[0] + 1_000)]
    n_ticks = max(2, int(_width(reading, layout) / 95))
    x: dict[str, Any] = {"type": "temporal", "scale": alt.Scale(type="utc", domain=domain, nice=False)}
    x["axis"] = alt.Axis(title=title, format=_TIMES, tickCount=n_ticks)
    y = _y(figure, reading, 0.0)

    def drawn(panel: Panel) -> list[Any]:
        rows = [{**row, "x": _epoch_ms(row["x"])} for row in panel.rows if row["x"] is not None]
        last = {row.get("group"): {**row, "x": domain[1], "is_end": True} for row in rows if row["value"] is not None}
        return _line(looks.data([*rows, *last.values()]), x, y, reading, layout, interpolate="step-after")

    return _assembled(reading, layout, drawn)


def calibration(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return accuracy against stated confidence, with the diagonal that a calibrated judge would follow."""
    side = min(_width(reading, layout), _SQUARE_PX)
    x, y = (_share_axis(figure, role, side) for role in ("x", "value"))
    diagonal = looks.data([{"x": 0, "value": 0}, {"x": 1, "value": 1}])
    line = diagonal.mark_line(color=REFERENCE.light, strokeWidth=1.2, strokeDash=[4, 3])
    n_max = max((row["n"] for row in reading.rows if row.get("n")), default=1)
    size = alt.Size("n", type="quantitative", legend=None, scale=alt.Scale(domain=[0, n_max], range=[30, 330]))
    alone = looks.told_apart((), layout, "color", "shape")

    def drawn(panel: Panel) -> list[Any]:
        chart = looks.data([{**row, "n": row.get("n") or 0} for row in panel.rows])
        bars = chart.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_rule(strokeWidth=2)
        dots = looks.points(chart, None).encode(x=alt.X("x", **x), y=alt.Y("value", **y), size=size, **alone)
        return [
            line.encode(x=alt.X("x", **x), y=alt.Y("value", **y)),
            bars.encode(x=alt.X("x", **x), y=alt.Y("low", **y), y2=alt.Y2("high"), color=alone["color"]),
            dots,
        ]

    return _assembled(reading, layout, drawn, side)


def _line(
    chart: alt.Chart, x: dict[str, Any], y: dict[str, Any], reading: Reading, layout: Layout, **mark: Any
) -> list[Any]:
    """Return a line per group, and a dot per row."""
    places: dict[str, Any] = {"x": alt.X("x", **x), "y": alt.Y("value", **y)}
    known = chart.transform_filter("isValid(datum.value)")
    apart = looks.told_apart(reading.groups, layout, "color", "shape", "strokeDash")
    shape = apart.pop("shape")
    line = known.mark_line(strokeWidth=2, **mark).encode(**places, **apart)
    dots = looks.points(known.transform_filter("!datum.is_end")).encode(**places, color=apart["color"], shape=shape)
    return [line, dots]


def _y(figure: Figure, reading: Reading, *also: float) -> dict[str, Any]:
    domain = looks.ends(figure, [*also, *reading.numbers("value", "low", "high", "reference")])
    axis = looks.axis(figure, title=looks.title(figure, "value", _HEIGHT_PX))
    return {"type": "quantitative", "scale": looks.scale(domain), "axis": axis}


def _share_axis(figure: Figure, role: str, side: float) -> dict[str, Any]:
    axis = looks.axis(figure, title=looks.title(figure, role, side))
    return {"type": "quantitative", "scale": looks.scale((0.0, 1.0)), "axis": axis}


def _n_abreast(reading: Reading, layout: Layout) -> int:
    return min(2 if layout is Layout.WIDE else 1, len(reading.panels))


def _width(reading: Reading, layout: Layout) -> float:
    """Return the width of a panel: two abreast on a page, one on a phone."""
    n_abreast = _n_abreast(reading, layout)
    return layout.width_px / n_abreast - _AXIS_PX


def _assembled(reading: Reading, layout: Layout, drawn: Any, side: float | None = None) -> Any:
    """Return the panels on equal pairs of axes."""
    plots = []
    for panel in reading.panels:
        plot = alt.layer(*drawn(panel))
        plot.width = side or _width(reading, layout)
        plot.height = side or min(_HEIGHT_PX, plot.width)
        plots.append(plot)
    return looks.assembled(plots, reading, _n_abreast(reading, layout))


def _epoch_ms(moment: Any) -> int:
    """Return a moment in milliseconds since 1970; one without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
