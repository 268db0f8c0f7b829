"""The report of a newcomer's own study says what the study is, from `init` to the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs import forked

PROGRAM = [sys.executable, "-m", "batchpond"]


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, as in a pipe."""
    kept = {name: value for name, value in os.environ.items() if name != "BATCHPOND_LAKE"}
    return forked.run_text(*arguments, env=kept, cwd=cwd)


def reported(folder: Path, example: str, *more: str) -> str:
    """Return the report of an example that was asked of the simulator."""
    assert run("init", "--example", example, *more, str(folder)).returncode == 0
    program = [*PROGRAM, "--lake", "trial", "run", "--yes", "--timeout", "100"]
    ran = run("simulate", "--latency", "0.1", "0.3", "--", *program, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    printed = run("--lake", "trial", "report", "--format", "md", cwd=folder)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of `init --example stages`: two models answer, one judge."""
    return reported(tmp_path_factory.mktemp("stages"), "stages")


def table(report: str, title: str) -> list[list[str]]:
    """Return the cells of the first table after a title."""
    lines = report.split(title, 1)[1].splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| "))
    rows = [line for line in lines[start : lines.index("", start)] if "---" not in line]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_models_whose_answers_are_judged_are_no_judges(stages: str) -> None:
    """Defect 2a of people: 24 generated answers were counted as judgments, their models as judges."""
    assert "24 judgments by 1 judge were expected; 24 were answered, 24 of them with a verdict." in stages
    assert "2 models gave 24 of 24 answers, which are no judgments." in stages
    judges = table(stages, "**Table 1. Judges.**")
    assert [row[1] for row in judges[1:]] == ["gpt-5.4-mini"]
    answering = table(stages, "**Table 2. Models whose answers are judged.**")
    assert [row[1] for row in answering[1:]] == ["claude-haiku-4-5", "gpt-4.1-mini"]
    coverage = table(stages, "**Table 3. Expected and obtained judgments per cell.**")
    assert sum(int(row[coverage[0].index("expected")]) for row in coverage[1:]) == 24


def test_the_report_begins_with_what_was_found_and_shows_generated_answers(stages: str) -> None:
    """Defects 7 and 12 of people: no findings, and not one answer of a study of generated answers."""
    findings = stages.partition("## Findings")[2].partition("## Study")[0]
    assert r"48 simulated answers would have cost \$" in findings
    assert "in the eyes of gpt-5.4-mini" in findings
    answers = stages.partition("## Answers as they came")[2]
    for task in ("generation", "compliance"):
        assert f"**Answers to task {task}.**" in answers
    assert "A simulated answer of" in answers


def test_a_judge_that_was_asked_about_a_chosen_part_is_marked_and_never_leads(tmp_path: Path) -> None:
    """Defects 2b and 2c of people: rates on what another had flagged stood first, in the eyes of a majority of two."""
    report = reported(tmp_path, "stages", "--commented")
    findings = report.partition("## Findings")[2].partition("## Study")[0]
    compliance = table(report, "**Table 9. Compliance over all statements.**")
    judge, verdicts, against = (compliance[0].index(name) for name in ("judge", "verdicts", "judge against all"))
    n_chosen = sum(int(row[verdicts]) for row in compliance if row[judge] == "gpt-5.4-mini")
    assert 0 < n_chosen < 24
    assert f"gpt-5.4-mini was asked about {n_chosen} questions of 24, those that stage verdicts chose" in findings
    assert "complies most often of 2 candidates, in the eyes of gpt-5.4-nano" in findings
    assert f"of {n_chosen} units, chosen by earlier answers" in findings
    assert {row[against] for row in compliance[1:] if row[judge] != "gpt-5.4-nano"} == {"\u2013"}
    assert "Not all judges were asked about the same outputs" in report
