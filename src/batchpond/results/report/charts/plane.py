"""Charts with two axes of numbers: curves with bands, running totals over time, calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, Final

from batchpond.results.report.charts import looks
from batchpond.results.report.charts.looks import Layout, Spec
from batchpond.results.report.parts import Figure
from batchpond.results.report.reading import Panel, Reading, Row

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
