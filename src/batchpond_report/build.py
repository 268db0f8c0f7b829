"""A study's report from its lake: every section that the study has data for, in reading order, and where it ends.

A report is one file, whole or not at all, and the drawings of its figures in a folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from batchpond import ids
from batchpond.clock import each
from batchpond.errors import UsageError
from batchpond.lake.disk import destined, placed, refuse_existing
from batchpond.results.compare.verb import Compared, compare
from batchpond.results.export import translated
from batchpond.text import escape
from batchpond_report import markdown, sections
from batchpond_report.declared import chapter
from batchpond_report.numbers import Kind
from batchpond_report.parts import Column, Exhibit, Report, Section
from batchpond_report.sections import compared, facts
from batchpond_report.source import Source, opened


def build(lake_path: Path, study: str | None = None, beside: Sequence[str] = ()) -> Report:
    """Return the report on a study; the same facts make the same report.

    `beside` are sides of `compare` that are compared with the study. Raises UsageError when the lake has no such study,
    or several and none is named, and LakeError when a file cannot be read.
    """
    with opened(lake_path, study) as source:
        about, told = facts.study(source), facts.told(source)
        names = each(sections.SECTIONS, "reporting", "sections", len(sections.SECTIONS))
        made = [section for name in names if (section := _section(name, source)) is not None]
        if beside:
            sides = (source.study, *beside)
            made.insert(0, compared.section(compare(lake_path, *sides), *sides))
        made += facts.ending(source, made, told, about.fingerprint)
        return Report(
            study=escape(source.study),
            title=told["title"],
            summary=(*filter(None, told["head"].split("\n\n")), *about.summary),
            sections=(about.section, *(map(_open, made) if about.is_open else made)),
            fingerprint=about.fingerprint,
        )


def paired(found: Compared, *sides: str) -> Report:
    """Return what sides say of the same items as a report of its own."""
    title = escape(f"{', '.join(sides[:-1])} and {sides[-1]}: compared")
    section = compared.section(found, *sides)
    facts_of = [one.to_pylist() for one in (found.comparisons, found.differences, found.flips)]
    fingerprint = ids.digest("compared", json.dumps(facts_of, default=str), length=16)
    is_open = any(row["n_pending_a"] or row["n_pending_b"] for row in facts_of[0])
    return Report(title, title, (), (_open(section) if is_open else section,), fingerprint)


def _section(name: str, source: Source) -> Section | None:
    if find_spec(f"{sections.__name__}.{name}") is None:
        return chapter(name)(source)
    made: Section | None = import_module(f"{sections.__name__}.{name}").section(source)
    return made


def _open(section: Section) -> Section:
    """Return a section whose p values say that the study is still open, so that they may change."""

    def marked(column: Column) -> Column:
        return replace(column, title=f"{column.title} (open)") if column.kind is Kind.P else column

    parts = [
        replace(part, columns=[*map(marked, part.columns)]) if isinstance(part, Exhibit) else part
        for part in section.parts
    ]
    return replace(section, parts=parts)


_PACKAGES: Final = ("jinja2", "vl_convert")
_FORMS: Final = ("svg", "pdf", "png")


class ReportFormat(StrEnum):
    """What a report is written as."""

    HTML = "html"
    MARKDOWN = "md"


def missing_packages() -> list[str]:
    """Return the packages of the extra `report`, which draw figures and set the page, that are not installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def require_extra() -> None:
    """Raise UsageError where packages of the extra `report` are missing."""
    if missing := missing_packages():
        raise UsageError(
            f"the page and its figures need packages that are not installed: {', '.join(missing)}",
            hint="pip install 'batchpond[report]', or `batchpond report --format md`, which needs none of them",
        )


def form_of(path: Path) -> ReportFormat:
    """Return what a file of this name is to hold; a page needs the extra `report`, and UsageError says so."""
    if path.suffix.lower() == ".md":
        return ReportFormat.MARKDOWN
    require_extra()
    return ReportFormat.HTML


def text(report: Report, form: ReportFormat) -> str:
    """Return a report as one text; a page needs the extra `report`."""
    if form is ReportFormat.MARKDOWN:
        return markdown.render(report)
    from batchpond_report import page  # noqa: PLC0415 - Markdown does without the extra's packages

    return page.render(report)


def write(content: str, path: Path, *, force: bool) -> None:
    """Write a report to a file; raises UsageError when it is there and `force` is not set."""
    with translated(path), placed(path, force=force) as staged:
        staged.write_text(content, "utf-8", newline="\n")


def write_figures(report: Report, folder: Path, *, force: bool) -> list[Path]:
    """Write every figure as SVG, PDF and PNG; raises UsageError, before any is written, when one is there."""
    from batchpond_report import drawing  # noqa: PLC0415 - as above

    figures = report.figures()
    with destined(folder, force=force) as here:
        if not force:
            for figure in figures:
                for form in _FORMS:
                    refuse_existing(here / f"{figure.key}.{form}")
        return [folder / path.name for path in drawing.write_files(figures, here)]
