"""A study's report from its lake: every chapter that the study has data for, in reading order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from batchpond.results.report.parts import Report, Section
from batchpond.results.report.sections import facts
from batchpond.results.report.sections.adaptive import adaptive
from batchpond.results.report.sections.agreement import agreement
from batchpond.results.report.sections.coverage import coverage
from batchpond.results.report.sections.disagreements import disagreements
from batchpond.results.report.sections.failures import failures
from batchpond.results.report.sections.items import calibration, compliance, ratings
from batchpond.results.report.sections.lengths import lengths
from batchpond.results.report.sections.money import money
from batchpond.results.report.sections.paired import paired
from batchpond.results.report.sections.pairs import consistency, position, repeats
from batchpond.results.report.sections.pressure import pressure
from batchpond.results.report.sections.ranks import matrix, ranking
from batchpond.results.report.source import Source, opened
from batchpond.text import escape

Chapter = Callable[[Source], Section | None]
CHAPTERS: Final[tuple[Chapter, ...]] = (
    coverage, consistency, position, repeats, paired, ranking, matrix, lengths, adaptive, agreement, compliance,
    ratings, calibration, pressure, disagreements, failures, money,
)  # fmt: skip


def build(lake_path: Path, study: str | None = None) -> Report:
    """Return the report on a study; the same facts make the same report.

    Raises UsageError when the lake has no such study, or several and none is named, and LakeError when a file
    cannot be read.
    """
    with opened(lake_path, study) as source:
        about = facts.study(source)
        chapters = [chapter(source) for chapter in CHAPTERS]
        return Report(
            study=escape(source.study),
            title=escape(f"{source.study}: report"),
            summary=about.summary,
            sections=(about.section, *(chapter for chapter in chapters if chapter is not None)),
            fingerprint=about.fingerprint,
        )
