"""Nothing is sent that was not meant: settings, models and parameters are held to what is known of them by `plan`."""

from __future__ import annotations

import subprocess
from contextlib import chdir
from pathlib import Path

import pytest

from batchpond.cli import main
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from tests.golden.doors import environment
from tests.rigs.program import Program

CLOSED = "http://127.0.0.1:9/v1"


class Desk(Program):
    """A user's folder, whose commands run in this process."""

    output: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command."""
        with chdir(self.folder), environment(self.environment):
            code = main(list(arguments))
        return subprocess.CompletedProcess(arguments, code, *self.output.readouterr())


@pytest.fixture
def program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Desk:
    desk = Desk(tmp_path, CLOSED)
    desk.output = capfd
    return desk


MODEL = """
study = "small"
[items]
path = "samples.csv"
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
{grid}
[[models]]
provider = "{provider}"
model = "{model}"
max_output_tokens = 200
{more}
"""
CONFIG = """
[live]
concurrency = 4
[live.openai]
requests_per_minute = 60
[limits.openai]
open_batches = 9
[prices."openai/gpt-99"]
input = 1
output = 2
[files]
folder = "outbox"
[providers.vertex]
project = "mine"
"""


def of_model(program: Desk, model: str, more: str = "", *, provider: str = "openai", grid: str = "") -> None:
    program.write()
    text = MODEL.format(provider=provider, model=model, more=more, grid=grid)
    (program.folder / "study.toml").write_text(text)


def told(program: Desk, *arguments: str) -> list[str]:
    """Return what a command says in remarks, in order."""
    done = program.run(*arguments)
    assert done.returncode == 0, done.stderr
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("- ")]


def test_a_setting_that_a_model_does_not_take_is_refused_or_told_first(program: Desk) -> None:
    """Defect D7 of mission: `temperature = 0.0` was left out, said in the last of thirty lines."""
    of_model(program, "gpt-5", "temperature = 0.0")
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert "openai/gpt-5 does not take temperature: left out" in done.stderr
    of_model(program, "gpt-5", "temperature = 0.0", grid='[grid]\nunsupported = "drop"')
    first = "- openai/gpt-5 does not take temperature: left out"
    assert told(program, "plan", "study.toml")[0] == first
    assert told(program, "submit", "small", "--dry-run")[0] == first
    (row,) = program.rows("select count(*) as n from requests where body like '%temperature%'")
    assert row["n"] == 0


def test_a_tier_with_prices_of_its_own_is_told_before_it_is_bought(program: Desk) -> None:
    """Costs are counted at the usual price, which whoever asks for another tier has to know."""
    of_model(program, "gpt-5", 'parameters = {service_tier = "priority"}')
    first = "- openai/gpt-5: what a token costs may depend on service_tier: costs and budgets take the usual one"
    assert told(program, "plan", "study.toml")[0].startswith(first)
    assert told(program, "submit", "small", "--dry-run")[0].startswith(first)
    of_model(program, "gpt-5", 'parameters = {service_tier = "default"}')
    assert not any("what a token costs" in line for line in told(program, "plan", "study.toml"))


def test_a_model_that_nobody_knows_is_said_first_and_its_settings_are_not_guessed(program: Desk) -> None:
    """Defect of people and D7: `gpt-99` was planned without a word about it."""
    first = "- openai/gpt-99 is not among the models of openai that batchpond knows: did you mean "
    of_model(program, "gpt-99")
    assert told(program, "plan", "study.toml")[0].startswith(first + "gpt-")
    assert told(program, "submit", "small", "--dry-run")[0].startswith(first)
    of_model(program, "gpt-4o", provider="anthropic")
    assert told(program, "plan", "study.toml")[0].endswith("of anthropic that batchpond knows: it is one of openai's")
    for more, name in (("temperature = 0.0", "temperature"), ('thinking = ["low"]', "thinking")):
        of_model(program, "gpt-99", more)
        done = program.run("plan", "study.toml")
        assert done.returncode == 2
        assert f"is not a known model, so nobody knows whether it takes {name}: sent as written" in done.stderr


@pytest.mark.parametrize(("written", "meant"), [("gpt-5.4-mimi", "gpt-5.4-mini"), ("gpt-4.1-minni", "gpt-4.1-mini")])
def test_a_misspelt_model_that_fits_a_family_is_questioned(program: Desk, written: str, meant: str) -> None:
    """Anything may follow a family's prefix; what nobody has a price for is asked about, until a price is set."""
    question = f"- openai/{written} is not among the models of openai whose price is known: did you mean {meant}?"
    of_model(program, written)
    assert told(program, "plan", "study.toml")[0] == question
    assert told(program, "submit", "small", "--dry-run")[0] == question
    (program.folder / "lake" / "config.toml").write_text(f'[prices."openai/{written}"]\ninput = 1\noutput = 2\n')
    assert question not in told(program, "plan", "study.toml")


def test_a_model_that_has_ended_is_refused_by_its_day(program: Desk) -> None:
    """D7 of mission: `plan` foresaw nothing; at an address of one's own any model goes."""
    program.base_url = ""
    of_model(program, "gpt-4.1-nano")
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert "openai/gpt-4.1-nano is no longer served since 2026-10-23" in done.stderr
    program.base_url = CLOSED
    assert program.run("plan", "study.toml").returncode == 0
    program.base_url = ""
    assert program.run("plan", "study.toml").returncode == 0, "what this lake has asked stays planned"


def test_a_study_that_was_bought_is_recovered_whatever_became_of_its_models(program: Desk, tmp_path: Path) -> None:
    """A lake that is lost after a model has ended is made again all the same; nothing is sent for it."""
    program.base_url = ""
    of_model(program, "o4-mini", "temperature = 0.0")
    assert program.run("plan", "study.toml").returncode == 2
    planned = plan_study(Store.init(tmp_path / "again"), load(tmp_path / "study.toml"), is_bought=True)
    assert planned.n_requests == 12


def test_facts_about_a_provider_are_said_once_in_a_lake_and_shown_when_asked_for(program: Desk) -> None:
    """Defects D9 of mission and 13 of people: ten general lines at every plan and submit."""
    fact = "OpenAI deletes result files 30 days after a batch ends"
    of_model(program, "gpt-5.4-mini")
    assert fact in program.run("plan", "study.toml").stdout
    assert fact not in program.run("plan", "study.toml").stdout
    of_model(program, "gpt-5.4")
    assert fact not in program.run("plan", "study.toml").stdout
    shown = program.run("submit", "small", "--dry-run")
    assert fact not in shown.stdout + shown.stderr
    about = program.run("keys", "openai").stdout
    assert fact in about
    assert "gpt-4.1-nano: no longer served since 2026-10-23" in about
    assert "did you mean 'openai'" in program.run("keys", "opnai").stderr


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        ("gpt-4.1-mini", "parameters = { top_pp = 0.5 }", "parameters.top_pp is no parameter of openai"),
        ("gpt-4.1-mini", 'parameters = { seed = "7" }', "parameters.seed is '7', not a whole number"),
        ("gpt-4.1-mini", 'parameters = { instructions = "Be brief." }', "does not take the parameter instructions"),
    ],
)
def test_a_parameter_that_the_provider_does_not_have_is_an_error_of_plan(
    program: Desk, model: str, more: str, said: str
) -> None:
    """Wires, section 3: a wrong name was found by the provider, row by row, after the upload."""
    of_model(program, model, more)
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert said in done.stderr
    of_model(program, model, f"{more}\nparameters_unchecked = true")
    assert program.run("plan", "study.toml").returncode == 0


def test_every_command_reads_the_whole_configuration_of_a_lake(program: Desk) -> None:
    """`[live]` in config.toml broke `submit`: one reader knows all sections."""
    of_model(program, "gpt-4.1-mini")
    (program.folder / "lake").mkdir()
    assert program.run("plan", "study.toml").returncode == 0
    (program.folder / "lake" / "outbox").mkdir()
    (program.folder / "lake" / "config.toml").write_text(CONFIG)
    for arguments in (("plan", "study.toml"), ("submit", "small", "--dry-run"), ("status",), ("doctor",)):
        done = program.run(*arguments)
        assert done.returncode == 0, (arguments, done.stderr)
