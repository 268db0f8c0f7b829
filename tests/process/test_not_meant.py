"""Nothing is sent that was not meant: what a model would read or refuse by a slip of the pen is an error at `plan`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.fake_openai import fake_openai
from tests.rigs.program import STUDY, STUDY_TOML, Program

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


MODEL = """
[[models]]
provider = "anthropic"
model = "{model}"
max_output_tokens = 200
{more}
"""


def with_model(program: Program, model: str, more: str = "") -> None:
    """Write the small study with a model of another provider beside its own."""
    program.write()
    (program.folder / "study.toml").write_text(
        STUDY_TOML.format(max_requests=1_000) + MODEL.format(model=model, more=more)
    )


def test_a_setting_that_a_model_is_not_known_to_take_is_no_note_among_thirty(program: Program) -> None:
    """Defect D7 of mission: a temperature that was left out is an error, unless the study says to leave it out."""
    with_model(program, "claude-3-7-sonnet-20250219", "temperature = 0.0")
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert "claude-3-7-sonnet-20250219" in done.stderr
    assert "temperature left out" in done.stderr
    assert 'unsupported = "drop"' in done.stderr


def test_what_holds_for_a_provider_is_said_once_in_a_lake(program: Program) -> None:
    """Defect D9 of mission, 13 of people: general facts stand after what is about this study, and once."""
    with_model(program, "claude-sonnet-4-5")
    first, again = program.run("plan", "study.toml"), program.run("plan", "study.toml")
    asked = program.run("submit", STUDY, "--dry-run")
    general, own = "Anthropic keeps results for 29 days", "is announced to be served until"
    for said in (again, asked):
        assert said.returncode == 0, said.stderr
        assert general not in said.stdout + said.stderr
        assert own in said.stdout + said.stderr
    assert first.stdout.index(own) < first.stdout.index(general)


def test_a_misspelt_parameter_is_an_error_before_it_is_an_errored_row(program: Program) -> None:
    """Defect 6.5 of wires: `parameters` are held against the provider's schema, with the nearest name."""
    program.write()
    study = STUDY_TOML.format(max_requests=1_000) + "parameters = { presence_penality = 0.5 }\n"
    (program.folder / "study.toml").write_text(study)
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert "presence_penality is no parameter of openai" in done.stderr
    assert "presence_penalty" in done.stderr


def test_settings_of_live_calls_are_no_error_to_commands_that_make_none(program: Program) -> None:
    """Defect 4.1: `[live]` in the lake's config.toml, as the README writes it: a submit goes through."""
    program.prepare()
    (program.folder / "lake" / "config.toml").write_text("[live]\nconcurrency = 4\n")
    with fake_openai() as account:
        program.base_url = account.url
        done = program.submit()
        assert (done.returncode, len(account.batches)) == (0, 1), done.stderr
