"""What all charts share: marks, fonts and colours, how groups are told apart, axes, and panels side by side.

A chart is a Vega-Lite specification as a dictionary; nothing is held against its schema here: the tests do that.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond_report import palette
from batchpond_report.numbers import MINUS
from batchpond_report.parts import Figure
from batchpond_report.reading import Reading, Row, short

FONT_PX, SMALL_PX = 12, 11
LETTER_PX: Final = 6.3  # about; what is longer than its room is cut by the renderer, which measures
TITLE_LETTERS: Final = 120
DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 2), (10, 4))
NAMES_PX: Final = 240
KNOWN_BAR: Final = "isValid(datum.low) && isValid(datum.high)"

Spec = dict[str, Any]


def _coloured(config: Spec) -> Spec:
    """Return a chart's settings with the colours whose roles they name."""
    roles = {name: palette.ROLES[config[name]].light for name in config if name.lower().endswith(("color", "ground"))}
    return {name: _coloured(value) if isinstance(value, dict) else value for name, value in config.items()} | roles


# Liberation Sans is built into the renderer and as wide as Arial and Helvetica: what was measured there fits here. The
# padding is wide at the right edge, where text must not be cut: readers' fonts may be a little wider than that.
_CONFIG: Final = _coloured(orjson.loads(Path(__file__).with_name("looks.json").read_bytes()))
FONT: Final = str(_CONFIG["font"])


class Layout(StrEnum):
    """Who looks: a page or a paper, or a phone held upright."""

    WIDE = "wide"
    NARROW = "narrow"

    @property
    def width_px(self) -> int:
        """How wide a drawing is."""
        return 720 if self is Layout.WIDE else 340


def data(rows: Sequence[Row]) -> Spec:
    """Return rows as the data of a plot, or of a layer that has its own."""
    return {"data": {"values": list(rows)}}


def plot(rows: Sequence[Row], layers: Sequence[Spec], size: tuple[float, float]) -> Spec:
    """Return layers of marks over each other; those without data of their own stand for `rows`."""
    return {**data(rows), "width": size[0], "height": size[1], "layer": list(layers)}


def layer(mark: str, encoding: Mapping[str, Spec], where: str = "", **style: Any) -> Spec:
    """Return marks, one for each row that passes the filter `where`."""
    chosen = {"transform": [{"filter": where}]} if where else {}
    return {**chosen, "mark": {"type": mark, **style}, "encoding": dict(encoding)}


def nominal(column: str, **more: Any) -> Spec:
    """Return the channel of a column of names."""
    return {"field": column, "type": "nominal", **more}


def room_px(texts: Sequence[str], limit_px: float = NAMES_PX) -> float:
    """Return about how much room texts beside a plot take."""
    return min(limit_px, max((len(text) for text in texts), default=0) * LETTER_PX) + 14


def title(figure: Figure, role: str, width_px: float) -> list[str] | None:
    """Return what an axis is called, in lines that fit a width."""
    text = figure.titles.get(role)
    return textwrap.wrap(short(text, TITLE_LETTERS), max(12, int(width_px / LETTER_PX))) if text else None


def ends(figure: Figure, values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the axis of `value`: those of shares within and of kappa, else round numbers around all."""
    if figure.is_bounded or (figure.is_share and all(0 <= value <= 1 for value in values)):
        return -1.0 if min(values, default=0.0) < 0 else 0.0, 1.0
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high == low:
        most = 1.0 if figure.is_share and abs(low) <= 1 else math.inf  # of a difference of shares
        return max(low - 0.5, -most), min(high + 0.5, most)
    step = 10 ** math.floor(math.log10((high - low) / 2)) / 2
    return math.floor(low / step) * step, math.ceil(high / step) * step


def scale(domain: tuple[float, float]) -> Spec:
    """Return the scale of an axis of numbers; nothing is drawn beyond its ends."""
    return {"domain": list(domain), "nice": False, "zero": False, "clamp": True}


def percent(*, is_share: bool) -> Spec:
    """Return the format of an axis of shares, and none for other numbers."""
    return {"format": ".0%"} if is_share else {}


def numbers(figure: Figure, domain: tuple[float, float], title: list[str] | None, **more: Any) -> Spec:
    """Return the channel of `value`, or of what is measured as that is, with its axis."""
    axis = {"tickCount": 5, **percent(is_share=figure.is_share), "title": title, **more}
    return {"type": "quantitative", "scale": scale(domain), "axis": axis}


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


def told_apart(groups: Sequence[str], layout: Layout, *roles: str) -> dict[str, Spec]:
    """Return the channels that tell groups apart, of `color`, `shape` and `strokeDash`, with one legend for all."""
    ranges: dict[str, list[Any]] = {
        "color": [tone.light for tone in palette.SERIES],
        "shape": list(palette.SHAPES),
        "strokeDash": [list(dash) for dash in DASHES],
    }
    if not groups:
        return {role: {"value": ranges[role][0]} for role in roles}
    n_abreast = max(1, min(len(groups), int(layout.width_px / (room_px(groups, NAMES_PX) + 30))))
    legend = {"orient": "top", "title": None, "columns": n_abreast, "labelLimit": NAMES_PX, "symbolOpacity": 1}
    return {
        role: nominal(
            "group",
            scale={"domain": list(groups), "range": ranges[role][: len(groups)]},
            legend=None if role == "strokeDash" else legend,
        )
        for role in roles
    }


def points(encoding: Mapping[str, Spec], where: str = "", **style: Any) -> Spec:
    """Return filled dots with a fine edge in the page's colour."""
    looks = {"filled": True, "opacity": 1, "stroke": palette.PAPER.light, "strokeWidth": 0.8}
    return layer("point", encoding, where, **looks, **style)


def reference(mark: str, encoding: Mapping[str, Spec]) -> Spec:
    """Return the dashed line that values are held against."""
    return layer(mark, encoding, color=palette.REFERENCE.light, strokeWidth=1.2, strokeDash=[4, 3])


def assembled(plots: Sequence[Spec], reading: Reading, n_abreast: int = 1) -> Spec:
    """Return the plots of all panels, each under its title."""
    titled = [
        {**plot, "title": {"text": panel.title, "frame": "group", "anchor": "start", "limit": max(200, plot["width"])}}
        if panel.title
        else plot
        for plot, panel in zip(plots, reading.panels, strict=True)
    ]
    return titled[0] if len(titled) == 1 else {"concat": titled, "columns": n_abreast, "spacing": 14}


def finished(chart: Spec) -> Spec:
    """Return a chart in the looks that all figures share."""
    return {**chart, "config": _CONFIG}
