"""Judgments of single items: compliance with statements, ratings, and how sure judges say they are."""

from __future__ import annotations

from typing import Final

import polars as pl

from batchpond.model import CELL_COLUMNS
from batchpond.results.report.cells import JUDGE, ORDER, cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections import corrected
from batchpond.results.report.sections.common import cut, drawn, exhibit, left_out, ranged, sentences, total
from batchpond.results.report.source import Source

HEAT_CELLS_MAX: Final = 1_600
_JUDGE: Final = "template_id, provider, request_model, thinking"
_DIMENSIONS: Final = ("template_id", "provider", "request_model", "thinking")
_NO_VERDICT: Final = (("n_null", "answers without a verdict"), ("n_pending", "judgments still pending"))
_PANEL: Final = "provider = 'panel'"


def compliance(source: Source) -> Section | None:
    """Show how often each candidate complies, over all statements and per statement."""
    if "compliance" not in source.tasks:
        return None
    exhibits = (_overall, corrected.compliance, _statements, _paired, _judges)
    parts = [part for part in (made(source) for made in exhibits) if part]
    words = (
        "A candidate complies with a statement when its output, in a judge's eyes, does what the statement asks. The "
        "judge named majority is the majority of the model judges, where there are at least two."
    )
    return Section("compliance", "Compliance", (words,), parts) if parts else None


def _overall(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{_JUDGE}, candidate, n_rubrics, n_answered, n_valid, n_compliant, n_null, n_pending,\n"
        "  compliance, compliance_lo, compliance_hi, compliance_min, compliance_max, judge_delta",
        "metric_compliance_overall", f"candidate, {_JUDGE}", where="n_valid > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, ("candidate", *_DIMENSIONS))
    frame, encoding = found.labelled(group=JUDGE, panel="template_id")
    title = "Compliance over all statements"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_valid')} verdicts on {ranged(rows.frame, 'n_rubrics')} statements per candidate "
        "and judge.",
        left_out(rows.frame, _NO_VERDICT),
        "Intervals are clustered by statement and missing below five of them. At least, at most: all answers without a "
        "verdict counted against, or for, the candidate.",
        found.said(),
        cut(rows),
    )  # fmt: skip
    encoding |= {"value": "compliance", "low": "compliance_lo", "high": "compliance_hi"}
    figure = drawn(
        rows, ChartKind.INTERVALS, "compliance-figure", (title, caption), frame, encoding,
        titles={"value": "verdicts of compliance", "group": JUDGE, "label": ""}, is_share=True,
    )  # fmt: skip
    columns = (
        *found.columns,
        Column("n_rubrics", "statements"),
        Column("n_valid", "verdicts"),
        Column("compliance", "compliance", Kind.SHARE, "compliance_lo", "compliance_hi"),
        Column("compliance_min", "at least", Kind.SHARE),
        Column("compliance_max", "at most", Kind.SHARE),
        Column("judge_delta", "judge against all", Kind.SHARE),
    )
    return exhibit(rows, "compliance", title, caption, columns, frame=found.frame, figure=figure)


def _statements(source: Source) -> Exhibit | None:
    where = "n_valid > 0"
    if source.values(f"SELECT 1 AS found FROM metric_compliance WHERE study = {source.name} AND {_PANEL}", limit=1):
        where += f" AND {_PANEL}"
    rows = source.of_study(
        f"rubric_id, candidate, {_JUDGE}, n_valid, n_compliant, n_null, n_pending, compliance, compliance_lo,\n"
        "  compliance_hi", "metric_compliance", f"{_JUDGE}, rubric_id, candidate", where=where, limit=HEAT_CELLS_MAX,
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, ("rubric_id", "candidate", *_DIMENSIONS))
    judges = [name for name in found.varying if name not in {"rubric_id", "candidate"}]
    title = "Compliance per statement"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_valid')} verdicts per statement, candidate and judge.",
        left_out(rows.frame, _NO_VERDICT),
        found.said(),
        cut(rows),
    )
    encoding = {"row": "rubric_id", "column": "candidate", "value": "compliance", "n": "n_valid"}
    frame = found.frame.with_columns(pl.col("candidate").fill_null("all"))
    if judges:
        frame = frame.with_columns(pl.concat_str(judges, separator=" · ").alias("panel"))
        encoding["panel"] = "panel"
    figure = drawn(
        rows, ChartKind.HEAT, "statements-figure", (title, caption), frame, encoding,
        titles={"row": "statement", "column": "candidate", "value": "compliance"}, is_share=True, domain=(0.0, 1.0),
    )  # fmt: skip
    columns = (
        *(Column(name, JUDGE if name == JUDGE else name, Kind.TEXT) for name in judges),
        Column("rubric_id", "statement", Kind.TEXT),
        Column("candidate", "candidate", Kind.TEXT),
        Column("n_valid", "verdicts"),
        Column("compliance", "compliance", Kind.SHARE, "compliance_lo", "compliance_hi"),
    )
    return exhibit(rows, "statements", title, caption, columns, frame=frame, figure=figure)


def _paired(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{_JUDGE}, candidate_a, candidate_b, n, n_rubrics, rate_a, rate_b, diff, diff_lo, diff_hi, p_mcnemar",
        "metric_compliance_paired", f"{_JUDGE}, candidate_a, candidate_b", where="n > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, _DIMENSIONS)
    judges = found.columns if len(found.frame.select(found.varying).unique()) > 1 else ()
    caption = sentences(
        "Two candidates on the inputs where both have a verdict. The interval of the difference is clustered by "
        "statement; p is McNemar's exact test, for each pair by itself.",
        found.said(),
        cut(rows),
    )
    columns = (
        *judges,
        Column("candidate_a", "a", Kind.TEXT),
        Column("candidate_b", "b", Kind.TEXT),
        Column("n", "inputs"),
        Column("rate_a", "a complies", Kind.SHARE),
        Column("rate_b", "b complies", Kind.SHARE),
        Column("diff", "a minus b", Kind.SHARE, "diff_lo", "diff_hi"),
        Column("p_mcnemar", "p", Kind.P),
    )
    return exhibit(rows, "compliance-pairs", "Candidates on the same inputs", caption, columns, frame=found.frame)


def _judges(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{_JUDGE}, n_candidates, delta, delta_lo, delta_hi, delta_min, delta_max", "metric_judge_bias", _JUDGE,
        where="n_candidates > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, _DIMENSIONS)
    caption = sentences(
        "How much higher a judge's compliance is than the mean over the model judges, averaged over the candidates, "
        "with a t interval over them.",
        found.said(),
    )
    columns = (
        *found.columns,
        Column("n_candidates", "candidates"),
        Column("delta", "milder by", Kind.SHARE, "delta_lo", "delta_hi"),
        Column("delta_min", "least", Kind.SHARE),
        Column("delta_max", "most", Kind.SHARE),
    )
    return exhibit(rows, "judge-bias", "Milder and stricter judges", caption, columns, frame=found.frame)


def ratings(source: Source) -> Section | None:
    """Show mean ratings with their intervals."""
    if not source.tasks & {"likert", "prompts"}:
        return None
    rows = source.of_study(
        f"task, candidate, {ORDER}, n_rated, n_null, n_pending, score, score_lo, score_hi, score_sd,\n"
        "  score_lowest, score_highest", "metric_ratings", f"task, rubric_id, candidate, {_JUDGE}", where="n_rated > 0",
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, ("rubric_id", "candidate", "task", "template_id", *CELL_COLUMNS[2:]))
    frame, encoding = found.labelled(group=JUDGE, panel="rubric_id")
    title = "Mean rating"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_rated')} rated items per row.",
        left_out(rows.frame, (("n_null", "answers without a rating"), ("n_pending", "judgments still pending"))),
        "t intervals (95 %) over items.",
        found.said(),
        cut(rows),
    )
    encoding |= {"value": "score", "low": "score_lo", "high": "score_hi"}
    figure = drawn(rows, ChartKind.INTERVALS, "ratings-figure", (title, caption), frame, encoding,
                   titles={"value": "mean rating", "group": JUDGE, "label": ""})  # fmt: skip
    columns = (
        *found.columns,
        Column("n_rated", "rated"),
        Column("score", "mean", Kind.NUMBER, "score_lo", "score_hi"),
        Column("score_sd", "sd", Kind.NUMBER),
        Column("score_lowest", "lowest", Kind.NUMBER),
        Column("score_highest", "highest", Kind.NUMBER),
    )
    part = exhibit(rows, "ratings", title, caption, columns, frame=found.frame, figure=figure)
    return Section("ratings", "Ratings", (), (part,))


def calibration(source: Source) -> Section | None:
    """Show how often judges are right at each level of stated confidence."""
    if not source.has_people:
        return None
    rows = source.of_study(
        f"{_JUDGE}, bin, n, n_correct, confidence_mean, accuracy, accuracy_lo, accuracy_hi", "metric_calibration_bins",
        f"{_JUDGE}, bin",
    )  # fmt: skip
    if not len(rows):
        return None
    scores = source.of_study(
        f"{_JUDGE}, n, n_no_confidence, n_no_truth, accuracy, accuracy_lo, accuracy_hi, confidence_mean,\n"
        "  overconfidence, brier, ece10, auroc", "metric_calibration", _JUDGE, where="n > 0",
    )  # fmt: skip
    found, said = cells(rows.frame, _DIMENSIONS), cells(scores.frame, _DIMENSIONS)
    frame = found.frame.with_columns(pl.concat_str(found.varying, separator=" · ").alias("series"))
    title = "Accuracy at each level of stated confidence"
    caption = sentences(
        f"n = {total(rows.frame, 'n'):,} verdicts with a confidence and a human label, in tenths of confidence.",
        left_out(scores.frame, (("n_no_confidence", "verdicts without a confidence"),
                                ("n_no_truth", "verdicts without a human label"))),
        "Wilson 95 % intervals; on the diagonal a judge is as often right as it says.",
        found.said(),
    )  # fmt: skip
    encoding = {"x": "confidence_mean", "value": "accuracy", "low": "accuracy_lo", "high": "accuracy_hi", "n": "n",
                "group": "series"}  # fmt: skip
    figure = drawn(rows, ChartKind.CALIBRATION, "calibration-figure", (title, caption), frame, encoding,
                   titles={"x": "stated confidence", "value": "accuracy", "group": JUDGE}, is_share=True)  # fmt: skip
    bins = (*found.columns, Column("bin", "tenth"), Column("n", "verdicts"),
            Column("confidence_mean", "confidence", Kind.SHARE),
            Column("accuracy", "right", Kind.SHARE, "accuracy_lo", "accuracy_hi"))  # fmt: skip
    columns = (
        *said.columns,
        Column("n", "verdicts"),
        Column("accuracy", "right", Kind.SHARE, "accuracy_lo", "accuracy_hi"),
        Column("confidence_mean", "confidence", Kind.SHARE),
        Column("overconfidence", "overconfidence", Kind.SHARE),
        Column("brier", "Brier score", Kind.NUMBER),
        Column("ece10", "ECE", Kind.NUMBER),
        Column("auroc", "AUROC", Kind.NUMBER),
    )
    words = "ECE is the expected calibration error over tenths, biased upwards where n is small."
    return Section(
        "calibration", "Calibration", (),
        (exhibit(rows, "calibration", title, caption, bins, frame=frame, figure=figure),
         exhibit(scores, "calibration-scores", "Calibration scores", words, columns, frame=said.frame)),
    )  # fmt: skip
