"""What the study is, and what the report rests on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import polars as pl

from batchpond import __version__
from batchpond.results.report.numbers import UNKNOWN, Kind, moment
from batchpond.results.report.parts import Column, Exhibit, Facts, Section
from batchpond.results.report.sections.common import cut, exhibit, sentences
from batchpond.results.report.source import Source
from batchpond.text import escape

_SIMULATED = "All answers in this report are simulated: no model was asked."


@dataclass(frozen=True, slots=True)
class Study:
    """What is said of the study at the top: its section, sentences that sum it up, and the fingerprint."""

    section: Section
    summary: tuple[str, ...]
    fingerprint: str


def study(source: Source) -> Study:
    """Read the study's facts; the fingerprint is a hash of them, the study's version and batchpond's."""
    (facts,) = source.rows(f"SELECT * FROM report_facts WHERE study = {source.name}").dicts() or [{}]
    versions = source.rows(
        f"SELECT study_version, planned_at, n_items, n_pairs FROM studies_current WHERE study = {source.name}"
    ).dicts()
    version = versions[0] if versions else {}
    (counted,) = source.rows(f"SELECT * FROM report_fingerprint WHERE study = {source.name}").dicts() or [{}]
    known = (source.study, version.get("study_version"), __version__, counted.get("facts_xor"),
             counted.get("n_planned"), counted.get("n_imported"))  # fmt: skip
    fingerprint = hashlib.sha256("\x1f".join(map(str, known)).encode()).hexdigest()
    rows = (
        ("Study", escape(source.study)),
        ("Version", str(version.get("study_version") or "no plan; judgments were imported")),
        ("Planned", moment(version["planned_at"]) if version.get("planned_at") else UNKNOWN),
        ("Tasks", str(facts.get("tasks") or UNKNOWN)),
        ("Judges", _count(facts, "n_judges")),
        ("Templates", _count(facts, "n_templates")),
        ("Rubrics", _count(facts, "n_rubrics")),
        ("Items", _count(facts, "n_items")),
        ("Judgments planned", _count(counted, "n_planned")),
        ("Judgments imported", _count(counted, "n_imported")),
        ("Origin of the answers", str(facts.get("origins") or "no answer yet")),
        ("Data fingerprint", fingerprint),
        ("Made by", f"batchpond {__version__}"),
    )
    parts: tuple[Facts | Exhibit, ...] = (Facts("The study", rows), *_judges(source))
    return Study(Section("study", "Study", (_WHAT,), parts), tuple(_summary(facts)), fingerprint)


_WHAT = (
    "The data fingerprint is a SHA-256 over every planned request with what it came to, every imported judgment, the "
    "study's version and batchpond's: two reports with the same one rest on the same facts."
)


def _count(facts: dict[str, Any], name: str) -> str:
    return f"{facts.get(name) or 0:,}"


def _summary(facts: dict[str, Any]) -> list[str]:
    if not facts:
        return ["Nothing has been planned or imported."]
    n_expected, n_answered, n_valid = facts["n_expected"], facts["n_answered"], facts["n_valid"]
    judges = f"{facts['n_judges']:,} judge{'s' if facts['n_judges'] != 1 else ''}"
    told = (
        f"{n_expected:,} judgments by {judges} were expected; {n_answered:,} were answered, {n_valid:,} of them with a "
        "verdict."
    )
    if n_pending := n_expected - n_answered:
        told += f" {n_pending:,} are still pending, so all numbers may change."
    return [told, *([_SIMULATED] if facts["origins"] == "simulated" else []), *_mixed(facts["origins"])]


def _mixed(origins: str | None) -> list[str]:
    found = (origins or "").split(", ")
    if "simulated" in found and len(found) > 1:
        return ["Some answers in this report are simulated; the tables say which cells hold such answers."]
    return []


def _judges(source: Source) -> tuple[Exhibit, ...]:
    select = (
        "provider, request_model, thinking, string_agg(DISTINCT origin, ', ' ORDER BY origin) AS origin,\n"
        "  count(*) AS n_cells, CAST(sum(n_planned) AS BIGINT) AS n_expected, "
        "CAST(sum(n_answered) AS BIGINT) AS n_answered"
    )
    rows = source.rows(
        f"SELECT {select}\nFROM metric_completion\nWHERE study = {source.name}\n"
        "GROUP BY provider, request_model, thinking\nORDER BY provider, request_model, thinking"
    )
    columns = (
        Column("provider", "provider", Kind.TEXT), Column("request_model", "model", Kind.TEXT),
        Column("thinking", "thinking", Kind.TEXT), Column("origin", "origin", Kind.TEXT),
        Column("n_cells", "cells"), Column("n_expected", "expected"), Column("n_answered", "answered"),
    )  # fmt: skip
    frame = rows.frame.with_columns(pl.col("origin").fill_null("no answer yet"))
    caption = sentences("A cell is one template, rubric, provider, model and level of thinking.", cut(rows))
    return (exhibit(rows, "judges", "Judges", caption, columns, frame=frame),) if len(rows) else ()
