"""Judgments of pairs: are they the same when the two swap places?"""

from __future__ import annotations

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.cells import JUDGE
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.parts import ChartKind, count, share

_CONSISTENCY = Declared(
    key="consistency",
    title="Share of pairs with the same winner in both orders",
    caption=(
        "n = {n_decided} pairs with a winner in both orders per cell. {left_out} Pairs with a tie in an order are out "
        "of the first rate and in the second. 95 % intervals for items in general (Wilson, clustered by item). At least, "
        "at most: all pairs without a majority in both orders taken as flipped, or as the same winner."
    ),
    view="metric_consistency",
    cells=CELL_COLUMNS,
    where="n_both > 0",
    columns=(
        count("n_pairs", "pairs"),
        count("n_decided", "decided twice"),
        share("consistency_decided", "same winner", has_ends=True, role="value",
              axis="pairs with the same winner in both orders"),
        share("consistency_decided_min", "at least"),
        share("consistency_decided_max", "at most"),
        count("n_both", "majority twice"),
        share("consistency_all", "same verdict, ties too", has_ends=True),
        share("conflict_rate", "winner flips"),
    ),
    also=(
        "n_consistent_win n_consistent_tie consistency_all_min consistency_all_max conflict_rate_min conflict_rate_max"
    ),
    left_out=(
        ("n_undecided", "pairs without a majority in an order"),
        ("n_missing_reverse", "pairs judged in one order only"),
        ("n_pairs_pending", "pairs still pending"),
    ),
    figure=Drawn(kind=ChartKind.INTERVALS, group=JUDGE, panel="rubric_id"),
)  # fmt: skip
section = Chapter(
    key="consistency",
    title="Consistency",
    words=("A judge is consistent when it names the same winner whichever of the two is shown first.",),
    needs=lambda source: source.has_pairs,
    parts=(_CONSISTENCY,),
)
