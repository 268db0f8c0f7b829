"""A figure's drawing: one function per kind of chart, all in the same looks, for a page or for a phone."""

from __future__ import annotations

from typing import Any

from batchpond.results.report.charts import looks, matrix, plane, rows
from batchpond.results.report.charts.looks import Layout
from batchpond.results.report.figure import ChartKind, Figure
from batchpond.results.report.reading import read


def chart(figure: Figure, layout: Layout = Layout.WIDE) -> Any:
    """Return the Altair chart of a figure, 720 pixels wide, or 340 for a phone; wide matrices are as wide as need be.

    Its size is bounded whatever the frame holds (`reading.undrawn_rows` says what is not drawn), its texts are cut to
    one short line each, and it refers to nothing outside of itself.
    """
    reading = read(figure)
    if not reading.rows:
        nothing = looks.data([{"text": "no rows"}]).mark_text(align="left")
        return looks.finished(nothing.encode(text="text:N").properties(width=200, height=20))
    match figure.kind:
        case ChartKind.INTERVALS | ChartKind.RANKING:
            drawn = rows.intervals(figure, reading, layout)
        case ChartKind.BARS:
            drawn = rows.bars(figure, reading, layout)
        case ChartKind.WIN_MATRIX | ChartKind.HEAT:
            drawn = matrix.matrices(figure, reading, layout)
        case ChartKind.CURVES:
            drawn = plane.curves(figure, reading, layout)
        case ChartKind.TIMELINE:
            drawn = plane.timeline(figure, reading, layout)
        case ChartKind.CALIBRATION:
            drawn = plane.calibration(figure, reading, layout)
    return looks.finished(drawn)
