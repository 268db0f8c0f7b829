"""A study's report from its lake: every section that the study has data for, in reading order."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from batchpond.results.report import sections
from batchpond.results.report.parts import Report, Section
from batchpond.results.report.sections import facts
from batchpond.results.report.source import Source, opened
from batchpond.text import escape


def build(lake_path: Path, study: str | None = None) -> Report:
    """Return the report on a study; the same facts make the same report.

    Raises UsageError when the lake has no such study, or several and none is named, and LakeError when a file
    cannot be read.
    """
    with opened(lake_path, study) as source:
        about = facts.study(source)
        found = [_section(name, source) for name in sections.SECTIONS]
        return Report(
            study=escape(source.study),
            title=escape(f"{source.study}: report"),
            summary=about.summary,
            sections=(about.section, *(section for section in found if section is not None)),
            fingerprint=about.fingerprint,
        )


def _section(name: str, source: Source) -> Section | None:
    made: Section | None = import_module(f"{sections.__name__}.{name}").section(source)
    return made
