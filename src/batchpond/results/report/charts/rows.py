"""Charts with a line per row: intervals, rankings and bars, the names on the left, or above on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import altair as alt

from batchpond.results.report import canvas, labels, palette
from batchpond.results.report.canvas import STYLES, TOTAL_PX, Layout, Scale
from batchpond.results.report.figure import ChartKind, Figure
from batchpond.results.report.reading import Reading, Row

_LABEL_COLUMNS: Final = 38
_HEADER_PX, _MARK_PX, _LABEL_PX, _GAP_PX = 26, 15, 17, 6
_BAR_PX: Final = 13
_GUTTER_PX, _PHONE_EDGES_PX = 10, 38


@dataclass(frozen=True, slots=True)
class _Block:
    """The marks of one label: where its text stands, where its marks stand, and its upper and lower edge."""

    label: str
    rows: Sequence[Row]
    top: float
    label_y: float
    marks_y: Sequence[float]
    bottom: float


@dataclass(frozen=True, slots=True)
class _Page:
    """Blocks beneath each other, with the panels' titles between them, and the widths of the three columns."""

    blocks: Sequence[_Block]
    headers: Sequence[Row]
    height: float
    label_px: float
    plot_px: float
    notes_px: float


def intervals(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return dots with bars; a ranking's tied groups stand on alternating shades."""
    values = [v for row in reading.rows for role in ("value", "low", "high", "reference")
              if (v := canvas.finite(row.get(role))) is not None]  # fmt: skip
    axis = canvas.scale(values, (), domain=figure.domain, is_share=figure.is_share)
    estimates = [_estimate(row, axis, figure.is_share) for row in reading.rows]
    page = _page(reading, layout, notes=estimates, is_stacked=False)
    axis = replace(axis, title=_title(figure, page))
    layers = [] if figure.kind is not ChartKind.RANKING else _shades(page)
    layers += [*_grid(axis), *_reference(figure, reading, axis, page), *_names(page)]
    for number, style in enumerate(STYLES[: max(1, len(reading.groups))]):
        placed = [(row, y) for block in page.blocks for row, y in zip(block.rows, block.marks_y, strict=True)
                  if row.get("group", 0) == number or figure.kind is ChartKind.RANKING]  # fmt: skip
        layers += _dots(placed, axis, page, style)
    if _has_notes(reading, layout):
        layers += _notes(
            [(_estimate(row, axis, figure.is_share), y) for row, y in _note_places(page, layout)], page, layout
        )
    return _with_legend(layers, reading, page, is_block=False)


def bars(figure: Figure, reading: Reading, layout: Layout) -> Any:
    """Return horizontal bars, their parts stacked in the order of the groups, with the sum at the end."""
    page = _page(reading, layout, notes=[canvas.number(_sum(reading.rows), figure.is_share)], is_stacked=True)
    sums = [_sum(block.rows) for block in page.blocks]
    domain = figure.domain or ((0.0, 1.0) if figure.is_share else None)
    axis = canvas.scale([0.0, *sums], _title(figure, page), domain=domain, is_share=figure.is_share)
    parts = [part for block in page.blocks for part in _parts(block, axis)]
    layers = [*_grid(axis), *_names(page)]
    for number, style in enumerate(STYLES[: max(1, len(reading.groups))]):
        own = [part for part in parts if part["group"] == number]
        layers += [
            canvas.rows(own)
            .mark_rect(color=style.tone.light, stroke=palette.PAPER.light, strokeWidth=1)
            .encode(x=canvas.x_axis(axis), x2="x2:Q", y=canvas.y_pixels(page.height), y2="y2:Q")
        ] * bool(own)
    layers += _part_texts(parts, axis, page, figure.is_share)
    places = [(block.label_y if layout is Layout.NARROW else block.marks_y[0]) for block in page.blocks]
    totals = [canvas.number(total, figure.is_share) for total in sums]
    layers += _notes(list(zip(totals, places, strict=True)), page, layout)
    return _with_legend(layers, reading, page, is_block=True)


def _page(reading: Reading, layout: Layout, *, notes: Sequence[str], is_stacked: bool) -> _Page:
    notes_px = max((canvas.text_px(note, canvas.SMALL_PX) for note in notes), default=0) + _GUTTER_PX
    columns = _LABEL_COLUMNS
    if layout is Layout.NARROW:
        columns = int(
            (TOTAL_PX[layout] - _PHONE_EDGES_PX - notes_px * (is_stacked or _has_notes(reading, layout)))
            / canvas.text_px("n")
        )
    blocks, headers, y = [], [], 0.0
    for panel in reading.panels:
        if panel.title:
            headers.append({"y": y + _HEADER_PX / 2, "text": panel.title})
            y += _HEADER_PX
        for label, rows in _labelled(panel.rows).items():
            text = labels.short(label, columns)
            blocks.append(_block(text, rows, y, layout, 1 if is_stacked else len(rows)))
            y = blocks[-1].bottom
    if layout is Layout.NARROW:
        return _Page(blocks, headers, y, 0, TOTAL_PX[layout] - _PHONE_EDGES_PX, 0)
    label_px = max((canvas.text_px(block.label) for block in blocks), default=0) + _GUTTER_PX
    return _Page(blocks, headers, y, label_px, TOTAL_PX[layout] - label_px - notes_px - 16, notes_px)


def _block(label: str, rows: Sequence[Row], top: float, layout: Layout, n_marks: int) -> _Block:
    above = _LABEL_PX if layout is Layout.NARROW else 0
    first = top + _GAP_PX / 2 + above + _MARK_PX / 2
    marks = [first + number * _MARK_PX for number in range(n_marks)]
    label_y = top + _GAP_PX / 2 + _LABEL_PX / 2 if above else (marks[0] + marks[-1]) / 2
    return _Block(label, rows, top, label_y, marks, marks[-1] + _MARK_PX / 2 + _GAP_PX / 2)


def _labelled(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row["label"], []).append(row)
    return found


def _grid(axis: Scale) -> list[alt.Chart]:
    """Return the grid with the axis beneath it."""
    ticks = [{"x": tick} for tick in canvas.ticks(axis)]
    grid = canvas.rows(ticks).mark_rule(color=palette.GRID.light, strokeWidth=1)
    return [grid.encode(x=canvas.x_axis(axis))]


def _names(page: _Page) -> list[alt.Chart]:
    """Return the labels, the panels' titles and fine lines between blocks of several marks."""
    y = canvas.y_pixels(page.height)
    layers = []
    names = [{"y": block.label_y, "text": block.label} for block in page.blocks]
    if page.label_px:
        layers.append(canvas.texts(names, alt.value(-_GUTTER_PX), y, align="right"))
    else:
        layers.append(canvas.texts(names, alt.value(0), y))
    if page.headers:
        layers += _headers(page)
    edges = [{"y": block.bottom} for block in page.blocks[:-1] if len(block.marks_y) > 1]
    if edges:
        line = canvas.rows(edges).mark_rule(color=palette.GRID.light, strokeWidth=1)
        layers.append(line.encode(y=y, x=alt.value(-page.label_px), x2=alt.value(page.plot_px)))
    return layers


def _headers(page: _Page) -> list[alt.Chart]:
    """Return the panels' titles on plain ground, which no line crosses."""
    left, right = -page.label_px, page.plot_px + page.notes_px
    columns = int((right - left) / canvas.text_px("n"))
    written = [{**header, "text": labels.short(header["text"], columns)} for header in page.headers]
    edges = [{"y": header["y"] - _HEADER_PX / 2, "y2": header["y"] + _HEADER_PX / 2} for header in page.headers]
    y = canvas.y_pixels(page.height)
    ground = canvas.rows(edges).mark_rect(color=palette.PAPER.light)
    return [
        ground.encode(y=y, y2="y2:Q", x=alt.value(left), x2=alt.value(right)),
        canvas.texts(written, alt.value(left), y, color=palette.MUTED.light),
    ]


def _dots(placed: Sequence[tuple[Row, float]], axis: Scale, page: _Page, style: canvas.Style) -> list[alt.Chart]:
    y, x = canvas.y_pixels(page.height), canvas.x_axis(axis)
    lines, dots, ends = [], [], []
    for row, at in placed:
        value, low, high = (canvas.finite(row.get(role)) for role in ("value", "low", "high"))
        if value is not None:
            dots.append({"x": axis.clamp(value), "y": at})
        if low is None and high is None:
            continue
        lines.append({"x": _end(low, axis.low, axis), "x2": _end(high, axis.high, axis), "y": at})
        ends += [{"x": axis.low, "y": at, "angle": 270}] * (low is None) + [{"x": axis.high, "y": at, "angle": 90}] * (
            high is None
        )
    layers = []
    if lines:
        bar = canvas.rows(lines).mark_rule(color=style.tone.light, strokeWidth=2)
        layers.append(bar.encode(x=x, x2="x2:Q", y=y))
    if ends:
        arrow = canvas.rows(ends).mark_point(filled=True, opacity=1, color=style.tone.light, shape="triangle", size=45)
        layers.append(arrow.encode(x=x, y=y, angle=alt.Angle("angle:Q", scale=None)))
    return [*layers, canvas.points(dots, x, y, style)] if dots else layers


def _end(value: float | None, edge: float, axis: Scale) -> float:
    return edge if value is None else axis.clamp(value)


def _reference(figure: Figure, reading: Reading, axis: Scale, page: _Page) -> list[alt.Chart]:
    """Return the line that rows are held against: vertical, dashed, named on top where the figure names it."""
    value = next((v for row in reading.rows if (v := canvas.finite(row.get("reference"))) is not None), None)
    if value is None:
        return []
    mark = canvas.rows([{"x": value}]).mark_rule(color=palette.REFERENCE.light, strokeWidth=1.2, strokeDash=[4, 3])
    layers = [mark.encode(x=canvas.x_axis(axis))]
    if name := figure.titles.get("reference"):
        row = [{"x": value, "y": -6, "text": labels.short(name, 30)}]
        text = canvas.texts(row, canvas.x_axis(axis), canvas.y_pixels(page.height), align="center",
                            fontSize=canvas.SMALL_PX, color=palette.MUTED.light)  # fmt: skip
        layers.append(text)
    return layers


def _shades(page: _Page) -> list[alt.Chart]:
    """Return a shade behind every second run of rows of one tied group."""
    shaded, is_shaded = [], True
    previous: Any = object()
    for block in page.blocks:
        group = block.rows[0].get("group")
        is_shaded = is_shaded if group == previous else not is_shaded
        previous = group
        if is_shaded:
            shaded.append({"y": block.top, "y2": block.bottom})
    if not shaded:
        return []
    rect = canvas.rows(shaded).mark_rect(color=palette.BAND.light)
    left, right = alt.value(-page.label_px), alt.value(page.plot_px + page.notes_px)
    return [rect.encode(y=canvas.y_pixels(page.height), y2="y2:Q", x=left, x2=right)]


def _estimate(row: Row, axis: Scale, is_share: bool) -> str:
    value, low, high = (canvas.finite(row.get(role)) for role in ("value", "low", "high"))
    if value is None:
        return "no value"
    decimals = 1 if is_share else canvas.decimals(axis)
    text = canvas.number(value, is_share, decimals)
    if low is not None and high is not None:
        ends = [canvas.number(end, is_share, decimals).removesuffix("%") for end in (low, high)]
        text += f" [{ends[0]}, {ends[1]}]"
    n = row.get("n")
    return text if n is None else f"{text}, n = {n:,}"


def _has_notes(reading: Reading, layout: Layout) -> bool:
    """Say whether the numbers have room: a phone shows them for one mark a label only."""
    return layout is Layout.WIDE or len(reading.groups) < 2


def _title(figure: Figure, page: _Page) -> tuple[str, ...]:
    return tuple(canvas.wrapped(figure.titles.get("value", ""), page.plot_px)) if figure.titles.get("value") else ()


def _note_places(page: _Page, layout: Layout) -> Iterator[tuple[Row, float]]:
    for block in page.blocks:
        places = [block.label_y] * len(block.rows) if layout is Layout.NARROW else block.marks_y
        yield from zip(block.rows, places, strict=True)


def _notes(notes: Sequence[tuple[str, float]], page: _Page, layout: Layout) -> list[alt.Chart]:
    """Return the numbers at the right: beside the marks, or at the end of the label's line on a phone."""
    right = page.plot_px + page.notes_px
    written = [{"y": y, "text": text} for text, y in notes]
    align = "right" if layout is Layout.NARROW else "left"
    x = right if layout is Layout.NARROW else page.plot_px + _GUTTER_PX
    style = {"align": align, "fontSize": canvas.SMALL_PX, "color": palette.MUTED.light}
    return [canvas.texts(written, alt.value(x), canvas.y_pixels(page.height), **style)] if written else []


def _sum(rows: Sequence[Row]) -> float:
    return sum(canvas.finite(row.get("value")) or 0.0 for row in rows)


def _parts(block: _Block, axis: Scale) -> Iterator[dict[str, Any]]:
    start, y = 0.0, block.marks_y[0]
    for row in sorted(block.rows, key=lambda row: row.get("group", 0)):
        value = canvas.finite(row.get("value")) or 0.0
        if value > 0:
            edges = {"x": axis.clamp(start), "x2": axis.clamp(start + value)}
            yield {**edges, "y": y - _BAR_PX / 2, "y2": y + _BAR_PX / 2, "value": value, "group": row.get("group", 0)}
        start += value


def _part_texts(parts: Sequence[Row], axis: Scale, page: _Page, is_share: bool) -> list[alt.Chart]:
    """Return the size of each part that has room for it; of undivided bars the sum says it already."""
    per_px = (axis.high - axis.low) / page.plot_px
    written = []
    for part in parts:
        text = canvas.number(part["value"], is_share)
        if (part["x2"] - part["x"]) / per_px > canvas.text_px(text, 10) + 6:
            written.append({"x": (part["x"] + part["x2"]) / 2, "y": (part["y"] + part["y2"]) / 2 + 0.5, "text": text})
    if len({part["group"] for part in parts}) < 2 or not written:
        return []
    style = {"align": "center", "fontSize": 10, "color": palette.CELL_INK_STRONG.light}
    return [canvas.texts(written, canvas.x_axis(axis), canvas.y_pixels(page.height), **style)]


def _with_legend(layers: Sequence[alt.Chart], reading: Reading, page: _Page, *, is_block: bool) -> Any:
    plot = canvas.plot(layers, (page.plot_px, page.height))
    if not reading.groups:
        return plot
    legend = canvas.legend(reading.groups, page.plot_px + page.notes_px, has_lines=False, is_block=is_block)
    return alt.vconcat(legend, plot, spacing=6)
