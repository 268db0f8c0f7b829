"""Ratings of single items: their means, with intervals."""

from __future__ import annotations

from batchpond.results.report.cells import JUDGE, JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.parts import ChartKind, count, number

_RATINGS = Declared(
    key="ratings",
    title="Mean rating",
    caption="n = {n_rated} rated items per row. {left_out} t intervals (95 %) over items.",
    view="metric_ratings",
    cells=("rubric_id", "candidate", "task", *JUDGED_BY),
    where="n_rated > 0",
    order=", ".join(("task", "rubric_id", "candidate", *JUDGED_BY)),
    columns=(
        count("n_rated", "rated"),
        number("score", "mean", has_ends=True, role="value", axis="mean rating"),
        number("score_sd", "sd"),
        number("score_lowest", "lowest"),
        number("score_highest", "highest"),
    ),
    left_out=(("n_null", "answers without a rating"), ("n_pending", "judgments still pending")),
    figure=Drawn(kind=ChartKind.INTERVALS, group=JUDGE, panel="rubric_id"),
)
section = Chapter(
    key="ratings",
    title="Ratings",
    needs=lambda source: bool(source.tasks & {"likert", "prompts"}),
    parts=(_RATINGS,),
)
