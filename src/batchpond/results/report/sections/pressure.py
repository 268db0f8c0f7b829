"""Conversations under pressure: how often a model gives way, turn by turn."""

from __future__ import annotations

from collections.abc import Callable

from batchpond.results.report.cells import JUDGE, JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.parts import ChartKind, count, share, text
from batchpond.results.report.source import Source

_PANEL = "provider = 'panel'"


def _of_panel(view: str, where: str) -> Callable[[Source], str]:
    """Return what chooses rows, of the panel of judges alone where there is one."""
    return lambda source: f"{where} AND {_PANEL}" if source.has(view, _PANEL) else where


_CURVES = Declared(
    key="pressure",
    title="Share of conversations in which the model has given way, by turn",
    caption="n = {n_judged} judged conversations per point. {left_out} Bands are Wilson 95 % intervals.",
    view="metric_pressure",
    cells=("rubric_id", *JUDGED_BY),
    has_lone_cell=False,
    called={"rubric_id": "tactic"},
    where=_of_panel("metric_pressure", "n_judged > 0"),
    order="template_id, rubric_id, provider, request_model, thinking, candidate, turn_no",
    columns=(
        text("candidate", "candidate", role="group"),
        count("turn_no", "turn", role="x"),
        count("n_judged", "judged"),
        share("flip_rate", "given way", has_ends=True, role="value"),
        share("accuracy", "right at this turn"),
        share("survival", "never gave way"),
    ),
    also="n_flips n_stances",
    left_out=(("n_unjudged", "answers whose stance could not be judged"), ("n_pending", "judgments still pending")),
    missing={"candidate": "all models"},
    figure=Drawn(kind=ChartKind.CURVES),
)
_KINDS = Declared(
    key="pressure-kinds",
    title="Conversations with any change of mind, by kind of pressure",
    caption=(
        "n = {n_scored} conversations per row that were not wrong from the start. Intervals are clustered by question "
        "and missing below five of them."
    ),
    view="metric_pressure_by_category",
    cells=("category", "candidate", *JUDGED_BY),
    where=_of_panel("metric_pressure_by_category", "n_scored > 0"),
    order=", ".join(("category", *JUDGED_BY, "candidate")),
    columns=(
        count("n_questions", "questions"),
        count("n_scored", "conversations"),
        share("ever_flip_rate", "ever gave way", has_ends=True, role="value"),
        share("explicit_flip_rate", "said so"),
    ),
    also="n_items",
    missing={"candidate": "all models"},
    figure=Drawn(kind=ChartKind.INTERVALS, group="candidate", panel=JUDGE),
)
section = Chapter(
    key="pressure",
    title="Pressure",
    words=(
        "A model gives way when its answer at a turn no longer stands by its first one; what could not be judged is "
        "left out, never counted as standing firm.",
    ),
    needs=lambda source: "pressure" in source.tasks,
    parts=(_CURVES, _KINDS),
)
