"""A figure's drawing: one function per kind of chart, all in the same looks, for a page or for a phone."""

from __future__ import annotations

from typing import Any

import altair as alt

from batchpond.results.report import canvas
from batchpond.results.report.canvas import Layout
from batchpond.results.report.charts import axes as charts_axes
from batchpond.results.report.charts import grid as charts_grid
from batchpond.results.report.charts import rows as charts_rows
from batchpond.results.report.figure import ChartKind, Figure
from batchpond.results.report.reading import read


def chart(figure: Figure, layout: Layout = Layout.WIDE) -> Any:
    """Return the Altair chart of a figure, 720 pixels wide, or 340 for a phone; wide matrices are as wide as need be.

    Its size is bounded whatever the frame holds (`reading.undrawn_rows` says what is not drawn), its texts are cut to
    one short line each, and it refers to nothing outside of itself.
    """
    reading = read(figure)
    if not reading.rows:
        return canvas.finished(
            canvas.plot([canvas.texts([{"text": "no rows"}], alt.value(0), alt.value(10))], (200, 20))
        )
    match figure.kind:
        case ChartKind.INTERVALS | ChartKind.RANKING:
            drawn = charts_rows.intervals(figure, reading, layout)
        case ChartKind.BARS:
            drawn = charts_rows.bars(figure, reading, layout)
        case ChartKind.WIN_MATRIX | ChartKind.HEAT:
            drawn = charts_grid.matrices(figure, reading, layout)
        case ChartKind.CURVES:
            drawn = charts_axes.curves(figure, reading, layout)
        case ChartKind.TIMELINE:
            drawn = charts_axes.timeline(figure, reading, layout)
        case ChartKind.CALIBRATION:
            drawn = charts_axes.calibration(figure, reading, layout)
    return canvas.finished(drawn)
