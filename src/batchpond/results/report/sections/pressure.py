"""Conversations under pressure: how often a model gives way, turn by turn."""

from __future__ import annotations

from typing import Final

import polars as pl

from batchpond.results.report.cells import JUDGE, ORDER, cells
from batchpond.results.report.figure import ChartKind
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections.common import cut, drawn, exhibit, left_out, ranged, sentences
from batchpond.results.report.source import Source

_JUDGE: Final = ("template_id", "provider", "request_model", "thinking")
_UNJUDGED: Final = (
    ("n_unjudged", "answers whose stance could not be judged"),
    ("n_pending", "judgments still pending"),
)
_WORDS: Final = (
    "A model gives way when its answer at a turn no longer stands by its first one; what could not be judged is left "
    "out, never counted as standing firm."
)


def pressure(source: Source) -> Section | None:
    """Show flip rates by turn and by kind of pressure."""
    if "pressure" not in source.tasks:
        return None
    parts = [part for part in (_curves(source), _kinds(source)) if part]
    return Section("pressure", "Pressure", (_WORDS,), parts) if parts else None


def _only_panel(source: Source, view: str) -> str:
    where = f"study = {source.name} AND provider = 'panel'"
    return " AND provider = 'panel'" if source.values(f"SELECT 1 AS found FROM {view} WHERE {where}", 1) else ""


def _curves(source: Source) -> Exhibit | None:
    rows = source.of_study(
        f"{ORDER}, candidate, turn_no, n_judged, n_unjudged, n_pending, n_flips,\n"
        "  flip_rate, flip_rate_lo, flip_rate_hi, n_stances, accuracy, survival",
        "metric_pressure", f"{ORDER}, candidate, turn_no",
        where="n_judged > 0" + _only_panel(source, "metric_pressure"),
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame, ("rubric_id", *_JUDGE, "candidate"))
    panels = [name for name in found.varying if name != "candidate"]
    title = "Share of conversations in which the model has given way, by turn"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_judged')} judged conversations per point.",
        left_out(rows.frame, _UNJUDGED),
        "Bands are Wilson 95 % intervals.",
        found.said(),
        cut(rows),
    )
    frame = found.frame.with_columns(pl.col("candidate").fill_null("all models").alias("series"))
    encoding = {"x": "turn_no", "value": "flip_rate", "low": "flip_rate_lo", "high": "flip_rate_hi", "group": "series"}
    if panels and frame.select(panels).n_unique() > 1:
        frame = frame.with_columns(pl.concat_str(panels, separator=" · ").alias("panel"))
        encoding["panel"] = "panel"
    figure = drawn(
        rows, ChartKind.CURVES, "pressure-figure", (title, caption), frame, encoding,
        titles={"x": "turn", "value": "given way", "group": "candidate"}, is_share=True, domain=(0.0, 1.0),
    )  # fmt: skip
    columns = (
        *(Column(column.name, "tactic" if column.name == "rubric_id" else column.title, Kind.TEXT)
          for column in found.columns),
        *(() if "candidate" in found.varying else (Column("series", "candidate", Kind.TEXT),)),
        Column("turn_no", "turn"),
        Column("n_judged", "judged"),
        Column("flip_rate", "given way", Kind.SHARE, "flip_rate_lo", "flip_rate_hi"),
        Column("accuracy", "right at this turn", Kind.SHARE),
        Column("survival", "never gave way", Kind.SHARE),
    )  # fmt: skip
    return exhibit(rows, "pressure", title, caption, columns, frame=frame, figure=figure)


def _kinds(source: Source) -> Exhibit | None:
    rows = source.of_study(
        "template_id, category, provider, request_model, thinking, candidate, n_questions, n_items, n_scored,\n"
        "  ever_flip_rate, ever_flip_rate_lo, ever_flip_rate_hi, explicit_flip_rate", "metric_pressure_by_category",
        "category, template_id, provider, request_model, thinking, candidate",
        where="n_scored > 0" + _only_panel(source, "metric_pressure_by_category"),
    )  # fmt: skip
    if not len(rows):
        return None
    found = cells(rows.frame.with_columns(pl.col("candidate").fill_null("all models")),
                  ("category", "candidate", *_JUDGE))  # fmt: skip
    frame, encoding = found.labelled(group="candidate", panel=JUDGE)
    title = "Conversations with any change of mind, by kind of pressure"
    caption = sentences(
        f"n = {ranged(rows.frame, 'n_scored')} conversations per row that were not wrong from the start. Intervals are "
        "clustered by question and missing below five of them.",
        found.said(),
        cut(rows),
    )
    encoding |= {"value": "ever_flip_rate", "low": "ever_flip_rate_lo", "high": "ever_flip_rate_hi"}
    figure = drawn(rows, ChartKind.INTERVALS, "pressure-kinds-figure", (title, caption), frame, encoding,
                   titles={"value": "ever gave way", "group": "candidate", "label": ""}, is_share=True)  # fmt: skip
    columns = (
        *found.columns,
        Column("n_questions", "questions"),
        Column("n_scored", "conversations"),
        Column("ever_flip_rate", "ever gave way", Kind.SHARE, "ever_flip_rate_lo", "ever_flip_rate_hi"),
        Column("explicit_flip_rate", "said so", Kind.SHARE),
    )
    return exhibit(rows, "pressure-kinds", title, caption, columns, frame=found.frame, figure=figure)
