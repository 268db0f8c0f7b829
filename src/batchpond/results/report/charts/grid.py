"""Matrices: who wins against whom, and heat maps, with the numbers in the cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from batchpond.results.report import canvas, labels, palette
from batchpond.results.report.canvas import TOTAL_PX, Layout
from batchpond.results.report.figure import ChartKind, Figure
from batchpond.results.report.palette import Tone
from batchpond.results.report.reading import Panel, Reading, Row

_CELL_MAX_PX, _CELL_MIN_PX, _CELL_ROW_MAX_PX = 76, 14, 40
_LABEL_COLUMNS: Final = {Layout.WIDE: 26, Layout.NARROW: 16}
_HEAD_COLUMNS: Final = {Layout.WIDE: 20, Layout.NARROW: 14}
_TEXT_MIN_PX, _N_MIN_PX = 26, 32
_GUTTER_PX: Final = 8
_NONE: Final = "\u2013"
_SWATCH_PX: Final = {Layout.WIDE: 30, Layout.NARROW: 18}


@dataclass(frozen=True, slots=True)
class _Colours:
    """The steps of colour and the values at both of their ends."""

    tones: tuple[Tone, ...]
    low: float
    high: float

    def of(self, value: float | None) -> Tone:
        """Return a value's tone."""
        if value is None:
            return palette.NO_VALUE
        return palette.step(self.tones, (value - self.low) / (self.high - self.low))


def matrices(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return one matrix per panel, and the scale of colours beneath."""
    colours = _colours(figure, reading)
    drawn = [_matrix(figure, panel, colours, layout) for panel in reading.panels]
    return alt.vconcat(*drawn, _key(figure, colours, layout), spacing=14)


def _colours(figure: Figure, reading: Reading) -> _Colours:
    if figure.kind is ChartKind.WIN_MATRIX:
        return _Colours(palette.DIVERGING, 0.0, 1.0)
    values = [value for row in reading.rows if (value := canvas.finite(row["value"])) is not None]
    axis = canvas.scale(values, (), domain=figure.domain, is_share=figure.is_share)
    if axis.low < 0 < axis.high:
        reach = max(-axis.low, axis.high)
        return _Colours(palette.DIVERGING, -reach, reach)
    return _Colours(palette.SEQUENTIAL, axis.low, axis.high)


def _matrix(figure: Figure, panel: Panel, colours: _Colours, layout: Layout) -> Any:
    names = list(dict.fromkeys(row["row"] for row in panel.rows))
    heads = list(dict.fromkeys(row["column"] for row in panel.rows))
    if set(heads) <= set(names):
        heads = [name for name in names if name in set(heads)]
    sides = [labels.short(name, _LABEL_COLUMNS[layout]) for name in names]
    label_px = max((canvas.text_px(text) for text in sides), default=0) + _GUTTER_PX
    tops = [labels.short(head, _HEAD_COLUMNS[layout]) for head in heads]
    top_px = max((canvas.text_px(text) for text in tops), default=0)
    room_px = TOTAL_PX[layout] - label_px - 12
    is_level = top_px <= min(_CELL_MAX_PX, room_px / len(heads)) - 4
    # Slanted names reach over the last column's edge by their length times the cosine of 45 degrees.
    room_px -= 0 if is_level else max(0, 0.71 * top_px - _CELL_MIN_PX / 2)
    cell_px = min(_CELL_MAX_PX, max(_CELL_MIN_PX, int(room_px / len(heads))))
    row_px = min(cell_px, _CELL_ROW_MAX_PX)
    width, height = cell_px * len(heads), row_px * len(names)
    cells = [_cell(row, heads.index(row["column"]) * cell_px, names.index(row["row"]) * row_px, cell_px, row_px)
             for row in panel.rows]  # fmt: skip
    for cell in cells:
        tone = colours.of(cell["value"])
        cell.update(fill=tone.light, ink=palette.ink_on(tone).light)
    x, y = canvas.x_pixels(width), canvas.y_pixels(height)
    rect = canvas.rows(cells).mark_rect(stroke=palette.PAPER.light, strokeWidth=1.5)
    layers = [rect.encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=alt.Color("fill:N", scale=None))]
    layers += _numbers(cells, figure.is_share or figure.kind is ChartKind.WIN_MATRIX, cell_px, row_px, (width, height))
    left = [{"y": (number + 0.5) * row_px, "text": text} for number, text in enumerate(sides)]
    layers.append(canvas.texts(left, alt.value(-_GUTTER_PX), y, align="right"))
    layers.append(_heads(tops, cell_px, (width, height), is_level=is_level))
    return canvas.plot(layers, (width, height), panel.title or _axes_title(figure))


def _axes_title(figure: Figure) -> str:
    row, column = (labels.short(figure.titles[role], 40) if role in figure.titles else "" for role in ("row", "column"))
    return f"{row} (rows) against {column} (columns)" if row and column else ""


def _cell(row: Row, x: float, y: float, cell_px: float, row_px: float) -> dict[str, Any]:
    return {
        "x": x,
        "x2": x + cell_px,
        "y": y,
        "y2": y + row_px,
        "value": canvas.finite(row["value"]),
        "n": row.get("n"),
    }


def _heads(tops: Sequence[str], cell_px: float, size: tuple[float, float], *, is_level: bool) -> Any:
    """Return the columns' names: level where all have room, at an angle otherwise."""
    written = [{"x": (number + 0.5) * cell_px, "text": text} for number, text in enumerate(tops)]
    style = {"align": "center", "baseline": "bottom"} if is_level else {"align": "left", "angle": 315}
    layer = canvas.texts(written, canvas.x_pixels(size[0]), canvas.y_pixels(size[1]), **style)
    return layer.encode(y=alt.value(-6))


def _numbers(
    cells: Sequence[Row], is_share: bool, cell_px: float, row_px: float, size: tuple[float, float]
) -> list[alt.Chart]:
    """Return what stands in the cells: the value, the n beneath, as far as there is room."""
    if cell_px < _TEXT_MIN_PX:
        return []
    x, y = canvas.x_pixels(size[0]), canvas.y_pixels(size[1])
    has_n = row_px >= _N_MIN_PX and any(cell["n"] is not None for cell in cells)
    values, ns = [], []
    for cell in cells:
        middle = {"x": (cell["x"] + cell["x2"]) / 2, "ink": cell["ink"]}
        centre = (cell["y"] + cell["y2"]) / 2
        text = _NONE if cell["value"] is None else canvas.number(cell["value"], is_share, 0 if is_share else 2)
        raised = 5 if has_n and cell["n"] is not None else 0
        values.append({**middle, "y": centre - raised, "text": text.removesuffix("%")})
        if has_n and cell["n"] is not None:
            ns.append({**middle, "y": centre + 9, "text": f"{cell['n']:,}"})
    small = canvas.SMALL_PX if cell_px >= 34 else 10
    drawn = [(values, small + 1 if cell_px >= 34 else small), (ns, 9)]
    return [
        canvas.texts(written, x, y, align="center", fontSize=px).encode(color=alt.Color("ink:N", scale=None))
        for written, px in drawn
        if written
    ]


def _key(figure: Figure, colours: _Colours, layout: Layout) -> Any:
    """Return the scale of colours: a square per step, with the values at both ends and what is measured."""
    is_share = figure.is_share or figure.kind is ChartKind.WIN_MATRIX
    step_px = _SWATCH_PX[layout]
    width = float(step_px * len(colours.tones))
    title = canvas.wrapped(figure.titles["value"], TOTAL_PX[layout] / 2) if figure.titles.get("value") else []
    top, height = 16.0 * len(title), 16.0 * len(title) + 30
    x, y = canvas.x_pixels(width), canvas.y_pixels(height)
    swatches = [
        {"x": number * step_px, "x2": (number + 1) * step_px, "y": top, "y2": top + 12, "fill": tone.light}
        for number, tone in enumerate(colours.tones)
    ]
    ends = [(0.0, colours.low), (width / 2, (colours.low + colours.high) / 2), (width, colours.high)]
    marks = [
        {"x": at, "y": top + 21, "text": canvas.number(value, is_share, 0 if is_share else None)} for at, value in ends
    ]
    lines = [{"x": 0, "y": 16 * number + 6, "text": text} for number, text in enumerate(title)]
    rect = canvas.rows(swatches).mark_rect()
    layers = [
        rect.encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=alt.Color("fill:N", scale=None)),
        canvas.texts(marks, x, y, align="center", fontSize=canvas.SMALL_PX, color=palette.MUTED.light),
    ]
    layers += [canvas.texts(lines, x, y)] if lines else []
    return canvas.plot(layers, (width, height))
