"""Judgments of pairs and the lengths of the texts: does the longer one win?"""

from __future__ import annotations

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.cells import JUDGE, JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.parts import ChartKind, count, number, p_value, share, text

_LONGER = Declared(
    key="length",
    title="Share of wins by the longer text",
    caption=(
        "n = {n_pairs} pairs per cell whose winner is the same in both orders. {left_out} Wilson 95 % intervals. p: "
        "exact sign test. Detectable: the smallest share that so many pairs reveal with a power of 80 %. Correlation: "
        "of winning with the logarithm of the ratio of lengths."
    ),
    view="metric_length",
    cells=CELL_COLUMNS,
    where="n_longer_won + n_shorter_won > 0",
    columns=(
        count("n_longer_won", "longer won"),
        count("n_shorter_won", "shorter won"),
        share("longer_win_rate", "longer wins", has_ends=True, role="value", axis="wins by the longer text"),
        p_value("p_longer", "p"),
        share("longer_mde", "detectable share"),
        number("length_correlation", "correlation"),
    ),
    also="n_pairs",
    left_out=(("n_no_length", "pairs with a text of unknown length"), ("n_same_length", "pairs of equal length")),
    figure=Drawn(kind=ChartKind.INTERVALS, group=JUDGE, panel="rubric_id", reference=0.5),
)
_CANDIDATES = Declared(
    key="length-candidates",
    title="Wins of longer and shorter outputs",
    caption=(
        "n = {n_pairs} comparisons of a with b in both orders, apart for those where a wrote more and less; balanced "
        "is the mean of the two. A tie or an inconsistent pair counts half. Length ratio: of a to b, geometric mean. "
        "{left_out}"
    ),
    view="metric_length_candidates",
    cells=JUDGED_BY,
    has_lone_cell=False,
    where="n_pairs > 0",
    order=", ".join((*JUDGED_BY, "candidate_a", "candidate_b")),
    columns=(
        text("candidate_a", "a"),
        text("candidate_b", "b"),
        number("length_ratio", "length ratio"),
        count("n_longer", "a longer"),
        count("n_shorter", "a shorter"),
        share("win_rate_longer", "where longer", has_ends=True),
        share("win_rate_shorter", "where shorter", has_ends=True),
        share("win_rate_balanced", "balanced"),
    ),
    also="n_pairs win_rate_half",
    left_out=(("n_no_length", "comparisons with a text of unknown length"),),
)
section = Chapter(
    key="length",
    title="Length",
    words=(
        "Longer texts may be better texts: this shows what goes with winning, not what a judge looks at. Lengths are "
        "characters of what was judged.",
    ),
    needs=lambda source: source.has_pairs,
    parts=(_LONGER, _CANDIDATES),
)
