"""What the study is and what the report rests on; how it was made, what its figures estimate, and how to cite it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond import __version__
from batchpond.lake.tables import query
from batchpond.text import escape, plural
from batchpond.views import refresh
from batchpond_report import markdown
from batchpond_report.declared import chapter, exhibits, written
from batchpond_report.numbers import UNKNOWN, moment
from batchpond_report.parts import Case, Cases, Exhibit, Facts, Part, Passage, Section
from batchpond_report.source import Source

_WRITTEN: Final = chapter("facts")
_METHODS: Final = written("methods")
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
    found = [finding for said in _WRITTEN.findings for finding in said(source, {"judges", "answers"})]
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
        n_came = facts["n_answered"] - facts["n_failed"]
        failed = f"; {facts['n_failed']:,} failed for good" if facts["n_failed"] else ""
        were, was = ("was" if n == 1 else "were" for n in (facts["n_expected"], n_came))
        by_whom = " and ".join(plural(facts[f"n_{noun}s"], noun) for noun in ("judge", "rater") if facts[f"n_{noun}s"])
        told.append(
            f"{plural(facts['n_expected'], 'judgment')} by {by_whom} {were} {come}; "
            f"{n_came:,} {was} answered, {facts['n_valid']:,} of them with a verdict{failed}."
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


def told(source: Source) -> dict[str, Any]:
    """Return what is known of a study beside its data, in the words that head, methods and citation have for it."""
    return source.rows(query(__package__, "told", study=source.name), 1).frame.row(0, named=True)


def ending(source: Source, made: Sequence[Section], told: dict[str, Any], fingerprint: str) -> list[Section]:
    """Return what a report of these sections ends with: its methods, and how to cite it and the tool."""
    printed = [part for one in made for part in one.parts if isinstance(part, Exhibit)]
    read = [*(f"task {task}" for task in source.tasks), *(f"{one.sql} {one.command} {one.caption}" for one in printed)]
    words = [one["text"] for one in _METHODS["terms"] if re.search(one["pattern"], "\n".join(read), re.MULTILINE)]
    parts: list[Part] = [part for one in exhibits("methods").values() if (part := one(source)) is not None]
    sql = query(__package__, "prompts", study=source.name)
    if texts := [Passage(**row) for row in source.rows(sql).frame.to_dicts()]:
        parts.append(Cases("prompts", "Prompts", _METHODS["prompts"], sql, [Case("As written", (), texts)]))
    estimators = Facts(_METHODS["estimators"], [*_estimators(printed)], is_folded=True)
    said = told | {"fingerprint": fingerprint[:16], "batchpond": __version__}
    title, sentence, bibtex = (one.format_map(said) for one in _METHODS["cite"].values())
    methods = Section("methods", _METHODS["title"], words, [*parts, estimators])
    return [methods, Section("cite", title, (sentence,), (), listing=bibtex)]


def _estimators(printed: Sequence[Exhibit]) -> Iterator[tuple[str, str]]:
    """Yield what defines each estimator that is printed, by the head that it stands under, and what that cites."""
    found: dict[str, dict[str, None]] = {}
    for part in (one for one in printed if one.sql):
        heads = {name: markdown.INTERVAL_TITLE for one in part.columns for name in one.ends}
        heads |= {one.name: one.title for one in part.columns}
        for script in (one for one in markdown.used([part])[1] if one.views):
            for line in filter(re.compile("- ").match, markdown.about(script, heads.keys())):
                names, _, means = line[2:].partition(":")
                shown = dict.fromkeys(heads[name] for name in re.findall(r"\w+", names) if name in heads)
                found.setdefault(script.name, {})[f"{', '.join(shown)}:{means}"] = None
    cites = {one.name: one.header.get("reference", "").rstrip(".") for one in refresh.scripts()}
    cited = {word for name in found for word in re.findall(r"\w+", cites[name])}
    for script in sorted(refresh.scripts(), key=lambda one: not one.views):
        if script.name in found or (script.macros and cited & {script.name, *script.macros}):
            said = ("; ".join(found.get(script.name, ())), cites[script.name] and f"Reference: {cites[script.name]}")
            yield script.name, " ".join((script.header["question"], *(f"{part}." for part in said if part)))
