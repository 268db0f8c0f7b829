"""Who beats whom: candidates per judge, or items where they are few."""

from __future__ import annotations

from functools import partial
from typing import Final

import polars as pl

from batchpond.results.report.cells import JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.numbers import PPI, total
from batchpond.results.report.parts import ChartKind, Exhibit, count, p_value, share, text
from batchpond.results.report.source import Source

MATRIX_ITEMS_MAX: Final = 25
MATRIX_CELLS_MAX: Final = 1_600
_CELL: Final = ", ".join(JUDGED_BY)
_BOTH_SIDES: Final = f"""(
  SELECT
    study, {_CELL}, candidate_a, candidate_b, n_both, n_wins_a, n_wins_b,
    win_rate_half, win_rate_half_lo, win_rate_half_hi, q_bh, n_missing
  FROM metric_win_matrix
  UNION ALL
  SELECT
    study, {_CELL}, candidate_b, candidate_a, n_both, n_wins_b, n_wins_a,
    1 - win_rate_half, 1 - win_rate_half_hi, 1 - win_rate_half_lo, q_bh, n_missing
  FROM metric_win_matrix
) AS sides"""


def _ordered(frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """Return the cells with rows and columns from the strongest to the weakest."""
    row, column = f"{what}_a", f"{what}_b"
    strength = frame.group_by(row).agg(pl.col("win_rate_half").mean().alias("strength")).sort(
        "strength", row, descending=[True, False], nulls_last=True
    )  # fmt: skip
    order = {name: place for place, name in enumerate(strength[row].to_list())}
    sort = [pl.col(name).replace_strict(order, default=len(order)) for name in (row, column)]
    panel = [pl.col("rest")] if "rest" in frame.columns else []
    return frame.sort(*panel, *sort, maintain_order=True)


_matrix = partial(
    Declared,
    key="matrix",
    title="Share of wins of the row over the column",
    limit=MATRIX_CELLS_MAX,
    seen=2,
    has_lone_cell=False,
    says=lambda frame: {"comparisons": f"{total(frame, 'n_both') // 2:,}"},
)
_CAPTION: Final = (
    "n = {{comparisons}} comparisons with a majority in both orders, {{n_both}} per cell. {} A win must hold in both "
    "orders; a tie or an inconsistent pair counts half for each."
)
_CANDIDATES: Final = _matrix(
    caption=_CAPTION.format("Models by the judges named above each matrix.") + " {left_out}",
    view=_BOTH_SIDES,
    cells=JUDGED_BY,
    order=f"{_CELL}, candidate_a, candidate_b",
    columns=(
        text("candidate_a", "row", role="row", axis="candidate"),
        text("candidate_b", "column", role="column", axis="candidate"),
        count("n_both", "compared", role="n"),
        count("n_wins_a", "row wins"),
        count("n_wins_b", "column wins"),
        count("n_half", "half each", sql="n_both - n_wins_a - n_wins_b"),
        share("win_rate_half", "share", has_ends=True, role="value", axis="share of wins"),
        p_value("q_bh", "q"),
    ),
    left_out=(("n_missing", "pairs with an order missing"),),
    figure=Drawn(kind=ChartKind.WIN_MATRIX, rows=partial(_ordered, what="candidate")),
)
_ITEMS: Final = _matrix(
    caption=_CAPTION.format("All templates and judges together."),
    view="report_item_matrix",
    cells=("rubric_id",),
    where="n_both > 0",
    order="rubric_id, item_a, item_b",
    columns=(
        text("item_a", "row", role="row", axis="item"),
        text("item_b", "column", role="column", axis="item"),
        count("n_both", "compared", role="n"),
        count("n_wins_a", "row wins"),
        count("n_wins_b", "column wins"),
        count("n_half", "half each"),
        share("win_rate_half", "share", role="value", axis="share of wins"),
    ),
    figure=Drawn(kind=ChartKind.WIN_MATRIX, rows=partial(_ordered, what="item")),
)
_CORRECTED: Final = Declared(
    key="matrix-corrected",
    title="Win rates corrected by people's labels",
    caption=(
        "n = {n_both} comparisons per pair of candidates and judge, {n_labelled} of them labelled by people. " + PPI
    ),
    view="metric_win_matrix_corrected",
    cells=JUDGED_BY,
    has_lone_cell=False,
    where="n_labelled > 0",
    order=f"{_CELL}, candidate_a, candidate_b",
    columns=(
        text("candidate_a", "a"),
        text("candidate_b", "b"),
        count("n_both", "compared"),
        count("n_labelled", "labelled"),
        share("win_rate_half", "a wins, by the judge"),
        share("people_win_rate", "by people"),
        share("ppi_win_rate", "PPI++", has_ends=True),
    ),
    also="ppi_weight",
)


def _wins(source: Source) -> Exhibit | None:
    found = _CANDIDATES(source) if source.has_candidates else None
    if found is not None:
        return found
    facts = source.values(f"SELECT n_items FROM report_facts WHERE study = {source.name}", limit=1)
    return _ITEMS(source) if facts and facts[0]["n_items"] <= MATRIX_ITEMS_MAX else None


def _corrected(source: Source) -> Exhibit | None:
    return _CORRECTED(source) if source.has_candidates else None


section = Chapter(key="matrix", title="Win matrix", needs=lambda source: source.has_pairs, parts=(_wins, _corrected))
