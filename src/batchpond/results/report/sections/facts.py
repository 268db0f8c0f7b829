"""What the study is, and what the report rests on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from batchpond import __version__
from batchpond.results.report.declared import chapter, exhibits
from batchpond.results.report.numbers import UNKNOWN, moment
from batchpond.results.report.parts import Facts, Part, Section
from batchpond.results.report.source import Source
from batchpond.text import escape, plural

_WRITTEN: Final = chapter("facts")
_SIMULATED = "All answers in this report are simulated: no model was asked."
_SOME_SIMULATED = "Some answers in this report are simulated; the tables say which cells hold such answers."


@dataclass(frozen=True, slots=True)
class Study:
    """What is said of the study at the top: its section, sentences that sum it up, and the fingerprint."""

    section: Section
    summary: tuple[str, ...]
    fingerprint: str
    is_open: bool


def study(source: Source) -> Study:
    """Read the study's facts; the fingerprint is a hash of them, the study's version and batchpond's."""
    (facts,) = source.rows(f"SELECT * FROM report_facts WHERE study = {source.name}").frame.to_dicts() or [{}]
    first = "SELECT min(occurred_at) FROM events WHERE kind = 'planned' AND study_version = known.study_version"
    planned = f"SELECT study_version, ({first}) AS planned_at FROM studies_current AS known WHERE study = {source.name}"
    (version,) = source.rows(planned).frame.to_dicts() or [{}]
    (hashed,) = source.rows(f"SELECT * FROM report_fingerprint WHERE study = {source.name}").frame.to_dicts() or [{}]
    known = (source.study, version.get("study_version"), __version__, hashed.get("facts_xor"),
             hashed.get("n_planned"), hashed.get("n_imported"))  # fmt: skip
    fingerprint = hashlib.sha256("\x1f".join(map(str, known)).encode()).hexdigest()
    n_calls = (facts.get("n_expected") or 0) + (facts.get("n_answers_expected") or 0)  # a list is one, of several rows
    rows = (
        ("Study", escape(source.study)),
        ("Version", str(version.get("study_version") or "no plan; judgments were imported")),
        ("Planned", moment(version["planned_at"]) if version.get("planned_at") else UNKNOWN),
        ("Tasks", str(facts.get("tasks") or UNKNOWN)),
        ("Judges", _count(facts, "n_judges")),
        ("Models whose answers are judged", _count(facts, "n_candidates_judged")),
        ("Templates", _count(facts, "n_templates")),
        ("Rubrics", _count(facts, "n_rubrics")),
        ("Items", _count(facts, "n_items")),
        ("Answers and judgments planned", f"{n_calls - (hashed.get('n_imported') or 0):,}"),
        ("Judgments imported", _count(hashed, "n_imported")),
        ("Origin of the answers", str(facts.get("origins") or "no answer yet")),
        ("Data fingerprint", fingerprint),
        ("Made by", f"batchpond {__version__}"),
    )
    parts: list[Part] = [Facts("The study", rows), *filter(None, (one(source) for one in exhibits("facts").values()))]
    found = [finding for said in _WRITTEN.findings for finding in said(source, {"judges"})]
    about = Section(_WRITTEN.key, _WRITTEN.title, _WRITTEN.words, parts, found)
    return Study(about, tuple(_summary(facts)), fingerprint, is_open=bool(facts.get("is_open")))


def _count(facts: dict[str, Any], name: str) -> str:
    return f"{facts.get(name) or 0:,}"


def _summary(facts: dict[str, Any]) -> list[str]:
    if not facts:
        return ["Nothing has been planned or imported."]
    told = []
    if facts["n_expected"]:
        come = "imported" if facts["origins"] == "imported" else "expected"
        were, was = ("was" if facts[name] == 1 else "were" for name in ("n_expected", "n_answered"))
        by_whom = " and ".join(plural(facts[f"n_{noun}s"], noun) for noun in ("judge", "rater") if facts[f"n_{noun}s"])
        told.append(
            f"{plural(facts['n_expected'], 'judgment')} by {by_whom} {were} {come}; "
            f"{facts['n_answered']:,} {was} answered, {facts['n_valid']:,} of them with a verdict."
        )
    if facts["n_answers_expected"]:
        told.append(
            f"{plural(facts['n_candidates'], 'model')} gave {facts['n_given']:,} of {facts['n_answers_expected']:,} "
            "answers, which are no judgments."
        )
    if facts["n_pending"]:
        told.append(f"{facts['n_pending']:,} are still pending, so all numbers may change.")
    elif facts["is_open"]:
        told.append("Questions that follow from answers are to come, so all numbers may change.")
    origins = (facts["origins"] or "").split(", ")
    return [" ".join(told), *[_SOME_SIMULATED if len(origins) > 1 else _SIMULATED] * ("simulated" in origins)]
