"""What all charts share: their fonts and colours, how groups are told apart, axes, and panels side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Final

import altair as alt
from altair.utils import schemapi

from batchpond.results.report import palette
from batchpond.results.report.numbers import MINUS
from batchpond.results.report.parts import Figure
from batchpond.results.report.reading import Reading, Row, short

# Liberation Sans is built into the renderer and as wide as Arial and Helvetica: what was measured there fits here.
FONT: Final = "Liberation Sans,Arial,Helvetica,sans-serif"
FONT_PX, SMALL_PX = 12, 11
LETTER_PX: Final = 6.3  # about; what is longer than its room is cut by the renderer, which measures
TITLE_LETTERS: Final = 120
DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 2), (10, 4))
NAMES_PX: Final = 240
# A fixed place. As classes: for a bare value or text, Altair looks through its whole schema for what it may be.
X_VALUE: Final[Any] = alt.XValue
X2_VALUE: Final[Any] = alt.X2Value
# Readers' fonts may be a little wider than the renderer's, and text at the right edge must not be cut.
_PADDING: Final = {"left": 4, "top": 4, "right": 10, "bottom": 4}


def unchecked() -> AbstractContextManager[None]:
    """Let charts be made without holding each part against Vega-Lite's schema: the tests do that, once and for all."""
    return schemapi.debug_mode(arg=False)


class Layout(StrEnum):
    """Who looks: a page or a paper, or a phone held upright."""

    WIDE = "wide"
    NARROW = "narrow"

    @property
    def width_px(self) -> int:
        """How wide a drawing is."""
        return 720 if self is Layout.WIDE else 340


def data(rows: Sequence[Row]) -> alt.Chart:
    """Return a chart of inline rows, to be given a mark."""
    # Altair copies lists and dictionaries whenever it lays charts over each other, and leaves a tuple alone.
    return alt.Chart(alt.InlineData(values=tuple(rows)))


def room_px(texts: Sequence[str], limit_px: float = NAMES_PX) -> float:
    """Return about how much room texts beside a plot take."""
    return min(limit_px, max((len(text) for text in texts), default=0) * LETTER_PX) + 14


def title(figure: Figure, role: str, width_px: float) -> list[str] | None:
    """Return what an axis is called, in lines that fit a width."""
    text = figure.titles.get(role)
    return textwrap.wrap(short(text, TITLE_LETTERS), max(12, int(width_px / LETTER_PX))) if text else None


def ends(figure: Figure, values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis of `value`: 0 to 1 for shares, round numbers otherwise."""
    if figure.is_share and all(-0.5 <= value <= 1.5 for value in values):
        return 0.0, 1.0
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high == low:
        return low - 0.5, high + 0.5
    step = 10 ** math.floor(math.log10((high - low) / 2)) / 2
    return math.floor(low / step) * step, math.ceil(high / step) * step


def scale(domain: tuple[float, float]) -> alt.Scale:
    """Return the scale of an axis of numbers; nothing is drawn beyond its ends."""
    return alt.Scale(domain=list(domain), nice=False, zero=False, clamp=True)


def percent(*, is_share: bool) -> dict[str, Any]:
    """Return the format of an axis of shares, and none for other numbers."""
    return {"format": ".0%"} if is_share else {}


def axis(figure: Figure, **more: Any) -> alt.Axis:
    """Return the axis of `value`."""
    return alt.Axis(tickCount=5, **percent(is_share=figure.is_share), **more)


def estimate(row: Row, ends: tuple[float, float], *, is_share: bool) -> str:
    """Return a row's value, interval and n, with as many decimals as tell values on its axis apart."""
    if row["value"] is None:
        return "no value"
    decimals = 1 if is_share else max(0, min(6, 2 - math.floor(math.log10(ends[1] - ends[0]))))
    value, low, high = (
        "" if row[role] is None else f"{round((100 if is_share else 1) * row[role], decimals) + 0.0:,.{decimals}f}"
        for role in ("value", "low", "high")
    )
    text = value + "%" * is_share + (f" [{low or '-∞'}, {high or '∞'}]" if low or high else "")
    return (text if row.get("n") is None else f"{text}, n = {row['n']:,}").replace("-", MINUS)


def told_apart(groups: Sequence[str], layout: Layout, *roles: str) -> dict[str, Any]:
    """Return the channels that tell groups apart, of `color`, `shape` and `strokeDash`, with one legend for all."""
    if not groups:
        alone = {"color": palette.SERIES[0].light, "shape": palette.SHAPES[0], "strokeDash": list(DASHES[0])}
        values = {"color": alt.ColorValue, "shape": alt.ShapeValue, "strokeDash": alt.StrokeDashValue}
        return {role: values[role](alone[role]) for role in roles}
    n_abreast = max(1, min(len(groups), int(layout.width_px / (room_px(groups, NAMES_PX) + 30))))
    legend = alt.Legend(orient="top", title=None, columns=n_abreast, labelLimit=NAMES_PX, symbolOpacity=1)
    tones = [tone.light for tone in palette.SERIES]
    ranges: dict[str, list[Any]] = {
        "color": tones,
        "shape": list(palette.SHAPES),
        "strokeDash": [list(dash) for dash in DASHES],
    }
    channels = {"color": alt.Color, "shape": alt.Shape, "strokeDash": alt.StrokeDash}
    scales = {role: alt.Scale(domain=groups, range=ranges[role][: len(groups)]) for role in roles}
    return {
        role: channels[role](
            "group", type="nominal", scale=scales[role], legend=None if role == "strokeDash" else legend
        )
        for role in roles
    }


def points(chart: alt.Chart, size: float | None = 50) -> Any:
    """Return filled dots with a fine edge in the page's colour."""
    mark: dict[str, Any] = {} if size is None else {"size": size}
    return chart.mark_point(filled=True, opacity=1, stroke=palette.PAPER.light, strokeWidth=0.8, **mark)


def rule(chart: alt.Chart) -> Any:
    """Return the dashed line that values are held against."""
    return chart.mark_rule(color=palette.REFERENCE.light, strokeWidth=1.2, strokeDash=[4, 3])


def assembled(plots: Sequence[Any], reading: Reading, n_abreast: int = 1) -> Any:
    """Return the plots of all panels, each under its title."""
    for plot, panel in zip(plots, reading.panels, strict=True):
        if panel.title:
            plot.title = alt.Title(panel.title, frame="group", anchor="start", limit=max(200, plot.width))
    return plots[0] if len(plots) == 1 else alt.concat(*plots, columns=n_abreast, spacing=14)


def finished(chart: Any) -> Any:
    """Return a chart in the looks that all figures share."""
    axes = {
        "labelFont": FONT, "titleFont": FONT, "labelFontSize": SMALL_PX, "titleFontSize": FONT_PX,
        "titleFontWeight": "normal", "labelColor": palette.MUTED.light, "titleColor": palette.INK.light,
        "gridColor": palette.GRID.light, "domain": False, "ticks": False, "labelPadding": 6, "titlePadding": 8,
        "labelFlush": False, "labelOverlap": "greedy",
    }  # fmt: skip
    legend = {
        "labelFont": FONT, "titleFont": FONT, "labelFontSize": FONT_PX, "titleFontSize": FONT_PX,
        "titleFontWeight": "normal", "labelColor": palette.INK.light, "titleColor": palette.INK.light, "offset": 10,
        "symbolSize": 70, "rowPadding": 4, "columnPadding": 16, "symbolStrokeWidth": 0,
        "gradientLength": 234, "gradientThickness": 12, "gradientStrokeColor": palette.GRID.light,
    }  # fmt: skip
    chart.config = alt.Config(
        font=FONT,
        background=palette.PAPER.light,
        padding=_PADDING,
        aria=False,
        view={"stroke": None},
        axis=axes,
        legend=legend,
        title={"font": FONT, "fontWeight": "normal", "fontSize": FONT_PX, "color": palette.MUTED.light, "offset": 6},
        text={"font": FONT, "fontSize": SMALL_PX, "color": palette.MUTED.light, "baseline": "middle"},
    )
    return chart
