"""Judgments of single items: does a candidate's output do what a statement asks?"""

from __future__ import annotations

from batchpond.results.report.cells import JUDGE, JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared, Drawn
from batchpond.results.report.numbers import PPI
from batchpond.results.report.parts import ChartKind, count, p_value, share, text
from batchpond.results.report.source import Source

HEAT_CELLS_MAX = 1_600
_NO_VERDICT = (("n_null", "answers without a verdict"), ("n_pending", "judgments still pending"))
_PANEL = "provider = 'panel'"
_PER_JUDGE = Drawn(kind=ChartKind.INTERVALS, group=JUDGE, panel="template_id")


def _valid(source: Source) -> str:
    has_panel = source.has("metric_compliance", _PANEL)
    return f"n_valid > 0 AND {_PANEL}" if has_panel else "n_valid > 0"


_OVERALL = Declared(
    key="compliance",
    title="Compliance over all statements",
    caption=(
        "n = {n_valid} verdicts on {n_rubrics} statements per candidate and judge. {left_out} Intervals are clustered "
        "by statement and missing below five of them. At least, at most: all answers without a verdict counted "
        "against, or for, the candidate."
    ),
    view="metric_compliance_overall",
    cells=("candidate", *JUDGED_BY),
    where="n_valid > 0",
    columns=(
        count("n_rubrics", "statements"),
        count("n_valid", "verdicts"),
        share("compliance", "compliance", has_ends=True, role="value", axis="verdicts of compliance"),
        share("compliance_min", "at least"),
        share("compliance_max", "at most"),
        share("judge_delta", "judge against all"),
    ),
    also="n_answered n_compliant",
    left_out=_NO_VERDICT,
    figure=_PER_JUDGE,
)
_CORRECTED = Declared(
    key="compliance-corrected",
    title="Compliance corrected by people's labels",
    caption=(
        "n = {n_judged} outputs per candidate and judge, {n_labelled} of them labelled by people. " + PPI + " "
        "Rogan-Gladen corrects the judge's rate by its sensitivity and specificity, for labels collected elsewhere; "
        "these are in the data."
    ),
    view="metric_compliance_corrected",
    cells=("candidate", *JUDGED_BY),
    where="n_labelled > 0",
    columns=(
        count("n_judged", "judged"),
        count("n_labelled", "labelled"),
        share("compliance", "by the judge"),
        share("people_compliance", "by people"),
        share("ppi_compliance", "PPI++", has_ends=True, role="value", axis="compliance by PPI++"),
        share("rogan_gladen_compliance", "Rogan-Gladen", has_ends=True),
    ),
    also=(
        "n_label_true compliance_lo compliance_hi people_compliance_lo people_compliance_hi sensitivity specificity "
        "ppi_weight"
    ),
    figure=_PER_JUDGE,
)
_STATEMENTS = Declared(
    key="statements",
    title="Compliance per statement",
    caption="n = {n_valid} verdicts per statement, candidate and judge. {left_out}",
    view="metric_compliance",
    cells=JUDGED_BY,
    has_lone_cell=False,
    where=_valid,
    order=", ".join((*JUDGED_BY, "rubric_id", "candidate")),
    limit=HEAT_CELLS_MAX,
    columns=(
        text("rubric_id", "statement", role="row"),
        text("candidate", "candidate", role="column"),
        count("n_valid", "verdicts", role="n"),
        share("compliance", "compliance", has_ends=True, role="value"),
    ),
    also="n_compliant",
    left_out=_NO_VERDICT,
    missing={"candidate": "all"},
    figure=Drawn(kind=ChartKind.HEAT),
)
_PAIRED = Declared(
    key="compliance-pairs",
    title="Candidates on the same inputs",
    caption=(
        "Two candidates on the inputs where both have a verdict. The interval of the difference is clustered by "
        "statement; p is McNemar's exact test, for each pair by itself."
    ),
    view="metric_compliance_paired",
    cells=JUDGED_BY,
    has_lone_cell=False,
    where="n > 0",
    order=", ".join((*JUDGED_BY, "candidate_a", "candidate_b")),
    columns=(
        text("candidate_a", "a"),
        text("candidate_b", "b"),
        count("n", "inputs"),
        share("rate_a", "a complies"),
        share("rate_b", "b complies"),
        share("diff", "a minus b", has_ends=True),
        p_value("p_mcnemar", "p"),
    ),
    also="n_rubrics",
)
_JUDGES = Declared(
    key="judge-bias",
    title="Milder and stricter judges",
    caption=(
        "How much higher a judge's compliance is than the mean over the model judges, averaged over the candidates, "
        "with a t interval over them."
    ),
    view="metric_judge_bias",
    cells=JUDGED_BY,
    where="n_candidates > 0",
    columns=(
        count("n_candidates", "candidates"),
        share("delta", "milder by", has_ends=True),
        share("delta_min", "least"),
        share("delta_max", "most"),
    ),
)
section = Chapter(
    key="compliance",
    title="Compliance",
    words=(
        "A candidate complies with a statement when its output, in a judge's eyes, does what the statement asks. The "
        "judge named majority is the majority of the model judges, where there are at least two.",
    ),
    needs=lambda source: "compliance" in source.tasks,
    parts=(_OVERALL, _CORRECTED, _STATEMENTS, _PAIRED, _JUDGES),
)
