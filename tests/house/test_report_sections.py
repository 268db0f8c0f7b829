"""A section of the report is added in the files that `results/report/README.md` names."""

from __future__ import annotations

import re
from pathlib import Path

import batchpond
from batchpond.results.report import build, sections

PACKAGE = Path(batchpond.__file__).parent
CHECKLIST = (PACKAGE / "results" / "report" / "README.md").read_text("utf-8")


def test_the_checklist_names_what_there_is() -> None:
    named = re.findall(r"^- \[ \] `(.+?)`", CHECKLIST, re.MULTILINE)
    assert named == [
        "results/report/sections/<name>.py",
        "results/report/build.py",
        "sql/3_report/",
        "tests/unit/results/test_report.py",
    ]


def test_every_file_of_the_folder_has_a_place_in_the_order() -> None:
    """No section is written and never shown; `facts` opens the page, `corrected` stands in `agreement`."""
    files = {path.stem for path in Path(sections.__file__).parent.glob("*.py")} - {
        "__init__",
        "common",
        "facts",
        "corrected",
    }
    assert {chapter.__module__.rpartition(".")[2] for chapter in build.CHAPTERS} == files
