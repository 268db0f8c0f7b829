"""Nothing is sent that was not meant: what a model would read or refuse by a slip of the pen is an error at `plan`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.program import Program

CLOSED = "http://127.0.0.1:9/v1"
GRADED = """
study = "graded"
task = "prompts"
[items]
path = "ref.csv"
id = "ID"
[answer]
pattern = "(?P<score>[0-9])"
[[templates]]
id = "mine"
text = '''Q: {INPUT}
Reference: {REFERENCE}
Grade:'''
{literal}
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 200
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, CLOSED)


def graded(program: Program, literal: str = "") -> None:
    (program.folder / "ref.csv").write_text("ID,text,REFERENCE\nq1,what is 2+2,4\n")
    (program.folder / "study.toml").write_text(GRADED.replace("{literal}", literal))


def test_a_placeholder_that_is_none_is_an_error_before_it_is_text(program: Program) -> None:
    """Defect D1 of mission: `{REFERENCE}` went to the paid model as it stands, without a word."""
    graded(program)
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert "study.toml:11: templates[1].text: line 2: {REFERENCE} is no placeholder here" in done.stderr
    assert "placeholders here: {INPUT}, {INPUT_ID}, {OUTPUT}" in done.stderr
    assert not list((program.folder / "lake").rglob("*.parquet"))
    graded(program, 'literal = ["REFERENCE"]')
    assert program.run("plan", "study.toml").returncode == 0
    (row,) = program.rows("select body from requests")
    assert r"Q: what is 2+2\nReference: {REFERENCE}\nGrade:" in row["body"]
