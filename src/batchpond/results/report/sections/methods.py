"""What a report says of itself: whose it is, how it was made, what its figures estimate, and how to cite it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from batchpond import __version__
from batchpond.lake.tables import query
from batchpond.results.report import markdown
from batchpond.results.report.declared import exhibits, written
from batchpond.results.report.parts import Case, Cases, Exhibit, Facts, Part, Passage, Section
from batchpond.results.report.source import Source
from batchpond.views import refresh

_WRITTEN: Final = written("methods")


def told(source: Source) -> dict[str, Any]:
    """Return what is known of a study beside its data, in the words that head, methods and citation have for it."""
    return source.rows(query(__package__, "told", study=source.name), 1).frame.row(0, named=True)


def ending(source: Source, made: Sequence[Section], told: dict[str, Any], fingerprint: str) -> list[Section]:
    """Return what a report of these sections ends with: its methods, and how to cite it and the tool."""
    printed = [part for one in made for part in one.parts if isinstance(part, Exhibit)]
    read = [*(f"task {task}" for task in source.tasks), *(f"{one.sql} {one.command} {one.caption}" for one in printed)]
    words = [one["text"] for one in _WRITTEN["terms"] if re.search(one["pattern"], "\n".join(read), re.MULTILINE)]
    parts: list[Part] = [part for one in exhibits("methods").values() if (part := one(source)) is not None]
    sql = query(__package__, "prompts", study=source.name)
    if texts := [Passage(**row) for row in source.rows(sql).frame.to_dicts()]:
        parts.append(Cases("prompts", "Prompts", _WRITTEN["prompts"], sql, [Case("As written", (), texts)]))
    estimators = Facts(_WRITTEN["estimators"], [*_estimators(printed)], is_folded=True)
    said = told | {"fingerprint": fingerprint[:16], "batchpond": __version__}
    title, sentence, bibtex = (one.format_map(said) for one in _WRITTEN["cite"].values())
    methods = Section("methods", _WRITTEN["title"], words, [*parts, estimators])
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
