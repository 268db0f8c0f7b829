"""Matrices: who wins against whom, and heat maps, with the numbers in the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from batchpond.results.report import palette
from batchpond.results.report.charts import looks
from batchpond.results.report.charts.looks import Layout, Spec
from batchpond.results.report.numbers import UNKNOWN, number
from batchpond.results.report.parts import ChartKind, Figure
from batchpond.results.report.reading import Panel, Reading, Row, short

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
