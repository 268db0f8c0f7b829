"""Judgments of pairs that were asked again: how much of the inconsistency is noise?"""

from __future__ import annotations

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.declared import Chapter, Declared
from batchpond.results.report.parts import count, share

_REPEATS = Declared(
    key="repeats",
    title="Agreement of repeated requests",
    caption=(
        "n = {n_orders} orders asked at least twice per cell. Agreement of two valid votes on the same order, on "
        "opposite orders, and the difference: what swapping adds to mere noise. 95 % intervals."
    ),
    view="metric_repeat",
    cells=CELL_COLUMNS,
    where="n_orders > 0",
    columns=(
        count("n_orders", "orders"),
        share("repeat_agreement", "same order", has_ends=True),
        share("cross_order_agreement", "opposite orders", has_ends=True),
        share("position_excess_conflict", "excess conflict", has_ends=True),
    ),
    also="n_cross_order_pairs",
)
section = Chapter(key="repeats", title="Repeated requests", needs=lambda source: source.has_pairs, parts=(_REPEATS,))
