"""The plane that figures are drawn on: Altair layers whose y, and where wanted x, count pixels from the top left."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import altair as alt

from batchpond.results.report import labels, palette
from batchpond.results.report.palette import Tone

# Liberation Sans is built into the renderer and as wide as Arial and Helvetica: what was measured there fits here.
FONT: Final = "Liberation Sans,Arial,Helvetica,sans-serif"
FONT_PX: Final = 12
SMALL_PX: Final = 11
_COLUMN_PX: Final = 6.4
_TITLE_COLUMNS, _TITLE_LINES, _TITLE_MIN_PX = 120, 3, 200
_LEGEND_LINE_PX: Final = 19
GROUPS_MAX: Final = len(palette.SERIES)
DASHES: Final[tuple[tuple[int, ...], ...]] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 2), (10, 4))

_AXIS: Final[dict[str, Any]] = {
    "grid": False, "domain": False, "ticks": False, "labelPadding": 5, "titlePadding": 8, "labelFlush": False,
}  # fmt: skip

# Readers' fonts may be a little wider than the renderer's, and text at the right edge must not be cut.
_PADDING: Final = {"left": 4, "top": 4, "right": 10, "bottom": 4}

Row = Mapping[str, Any]


class Layout(StrEnum):
    """Who looks: a page or a paper, or a phone held upright."""

    WIDE = "wide"
    NARROW = "narrow"


TOTAL_PX: Final = {Layout.WIDE: 720, Layout.NARROW: 340}


@dataclass(frozen=True, slots=True)
class Style:
    """How a group is told apart: by colour, by shape, by dash."""

    tone: Tone
    shape: str
    dash: tuple[int, ...]


STYLES: Final = tuple(
    Style(tone, shape, dash) for tone, shape, dash in zip(palette.SERIES, palette.SHAPES, DASHES, strict=True)
)


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis of numbers: its ends, its title in lines, and its number format."""

    low: float
    high: float
    title: tuple[str, ...]
    format: str
    step: float | None = None

    def clamp(self, value: float) -> float:
        """Return a value within the ends, so that nothing is drawn beyond the plot."""
        return min(max(value, self.low), self.high)


def text_px(text: str, size_px: float = FONT_PX) -> float:
    """Return about how wide a text is, in pixels, rather too wide than too narrow."""
    return labels.width(text) * _COLUMN_PX * size_px / FONT_PX


def wrapped(text: str, width_px: float) -> list[str]:
    """Return a title in lines that fit a width, three at most."""
    lines = textwrap.wrap(labels.short(text, _TITLE_COLUMNS), max(8, int(width_px / _COLUMN_PX)))
    return lines if len(lines) <= _TITLE_LINES else [*lines[: _TITLE_LINES - 1], lines[_TITLE_LINES - 1] + "…"]


def finite(value: Any) -> float | None:
    """Return a number that can be drawn, None for NULL, NaN and infinity."""
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def number(value: float, is_share: bool, decimals: int | None = None) -> str:
    """Return a number as figures print it: in per cent, or with as many decimals as are asked for or its size needs."""
    if is_share:
        text = f"{100 * value:.{1 if decimals is None else decimals}f}%"
    elif decimals is None and value == int(value) and abs(value) < 1e15:
        text = f"{int(value):,}"
    else:
        size = abs(value)
        needed = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 0.1 or not value else 4
        text = f"{value:,.{needed if decimals is None else decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.%") else text.replace("-", "\u2212")


def decimals(axis: Scale) -> int:
    """Return how many decimals tell values on an axis apart."""
    return max(0, min(6, 2 - math.floor(math.log10(axis.high - axis.low))))


def scale(
    values: Sequence[float], title: Sequence[str], *, domain: tuple[float, float] | None, is_share: bool
) -> Scale:
    """Return an axis that holds the values: the domain that is asked for, 0 to 1 for shares, or round ends."""
    if domain is None and is_share and all(-0.5 <= value <= 1.5 for value in values):
        domain = (0.0, 1.0)
    low, high = domain or _round_ends(values)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    return Scale(low, high, tuple(title), ".0%" if is_share else _format(high - low))


def _round_ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high == low:
        return low - 0.5, high + 0.5
    step = _step(high - low)
    return math.floor(low / step) * step, math.ceil(high / step) * step


def _step(span: float) -> float:
    power: float = 10 ** math.floor(math.log10(span / 4))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if span / (power * factor) <= 5)


def ticks(axis: Scale) -> list[float]:
    """Return the round numbers on an axis, from its lower end up, six at most."""
    step = axis.step or _step(axis.high - axis.low)
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _format(span: float) -> str:
    return ",.0f" if span >= 20 else ",~g" if span >= 0.5 else "~g"


def x_axis(axis: Scale, field: str = "x") -> alt.X:
    """Return the x channel of a field on an axis of numbers, whose grid is drawn apart, under everything."""
    drawn = alt.Axis(
        **_AXIS, title=list(axis.title) or None, format=axis.format, values=ticks(axis), labelOverlap="greedy"
    )
    return alt.X(field, type="quantitative", scale=_linear(axis.low, axis.high), axis=drawn)


def y_axis(axis: Scale, field: str = "y") -> alt.Y:
    """Return the y channel of a field on an axis of numbers, upwards."""
    drawn = alt.Axis(**_AXIS, title=list(axis.title) or None, format=axis.format, values=ticks(axis))
    return alt.Y(field, type="quantitative", scale=_linear(axis.low, axis.high), axis=drawn)


def y_pixels(height: float, field: str = "y") -> alt.Y:
    """Return the y channel that counts pixels from the top of a plot."""
    return alt.Y(field, type="quantitative", scale=_linear(height, 0), axis=None)


def x_pixels(width: float, field: str = "x") -> alt.X:
    """Return the x channel that counts pixels from the left of a plot."""
    return alt.X(field, type="quantitative", scale=_linear(0, width), axis=None)


def _linear(start: float, end: float) -> alt.Scale:
    return alt.Scale(domain=[start, end], nice=False, zero=False)


def rows(values: Sequence[Row]) -> alt.Chart:
    """Return a chart of inline rows, to be given a mark."""
    return alt.Chart(alt.InlineData(values=tuple(dict(value) for value in values)))


def texts(values: Sequence[Row], x: Any, y: Any, **mark: Any) -> Any:
    """Return a layer that writes column `text` of each row."""
    style = {"fontSize": FONT_PX, "color": palette.INK.light, "baseline": "middle", "align": "left", **mark}
    return rows(values).mark_text(**style).encode(x=x, y=y, text=alt.Text("text", type="nominal"))


def points(values: Sequence[Row], x: alt.X, y: alt.Y, style: Style, size: float | alt.Size = 50) -> Any:
    """Return a layer of filled dots in a group's colour and shape, with a fine edge in the page's colour."""
    mark = rows(values).mark_point(
        filled=True, opacity=1, color=style.tone.light, shape=style.shape, stroke=palette.PAPER.light, strokeWidth=0.8
    )
    return mark.encode(x=x, y=y, size=alt.value(size) if isinstance(size, float | int) else size)


def legend(groups: Sequence[str], width: float, *, has_lines: bool, is_block: bool = False) -> Any:
    """Return the groups' names beside their marks, in as many lines as they need.

    `is_block` shows squares of colour, as for the parts of bars.
    """
    offset = 32 if has_lines else 16
    places: list[dict[str, Any]] = []
    x, y = 0.0, 9.0
    for group in groups:
        wanted = offset + text_px(group) + 18
        if x > 0 and x + wanted > width:
            x, y = 0.0, y + _LEGEND_LINE_PX
        places.append({"x": x, "y": y, "text": group})
        x += wanted
    height = y + 8
    layers: list[alt.Chart] = [texts([{**p, "x": p["x"] + offset} for p in places], x_pixels(width), y_pixels(height))]
    for place, style in zip(places, STYLES, strict=False):
        mark = [{**place, "x": place["x"] + (12 if has_lines else 5)}]
        if has_lines:
            line = [{**place, "x2": place["x"] + 25}]
            layers.append(
                rows(line)
                .mark_rule(color=style.tone.light, strokeWidth=2, strokeDash=list(style.dash))
                .encode(x=x_pixels(width), x2="x2:Q", y=y_pixels(height))
            )
        shown = Style(style.tone, "square", style.dash) if is_block else style
        layers.append(points(mark, x_pixels(width), y_pixels(height), shown, 150 if is_block else 50))
    return plot(layers, (width, height))


def plot(layers: Sequence[alt.Chart], size: tuple[float, float], title: str = "") -> Any:
    """Return layers on one plane of a width and height in pixels, under a title."""
    layered = alt.layer(*layers)
    layered.width, layered.height = size
    if title:
        layered.title = alt.Title(wrapped(title, max(size[0], _TITLE_MIN_PX)), frame="group", anchor="start")
    return layered


def finished(chart: Any) -> Any:
    """Return a chart with the looks that all figures share."""
    text = {"font": FONT, "fontWeight": "normal", "fontSize": FONT_PX, "color": palette.INK.light, "offset": 8}
    axis = {
        "labelFont": FONT, "titleFont": FONT, "labelFontSize": SMALL_PX, "titleFontSize": FONT_PX,
        "titleFontWeight": "normal", "labelColor": palette.MUTED.light, "titleColor": palette.INK.light,
        "gridColor": palette.GRID.light,
    }  # fmt: skip
    chart.config = alt.Config(
        font=FONT,
        background=palette.PAPER.light,
        padding=_PADDING,
        aria=False,
        view={"stroke": None},
        axis=axis,
        title=text,
    )
    return chart
