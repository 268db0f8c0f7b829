"""What the README, the guides of commands and figures, and the map say is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from batchpond.cli.frame import COMMANDS
from batchpond.errors import ExitCode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
GUIDES = ROOT / "src" / "batchpond" / "guides"
COMMANDS_PAGE = (GUIDES / "commands.md").read_text("utf-8")
CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8")


def test_every_command_is_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", COMMANDS_PAGE.split("## Streams")[0], re.MULTILINE)
    named = {word.split()[0] for row in rows for word in re.findall(r"`([^`]+)`", row)}
    assert named == set(COMMANDS)


def test_exit_codes_are_those_of_the_program() -> None:
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", COMMANDS_PAGE, re.MULTILINE)]
    assert listed == sorted(int(code) for code in ExitCode)


def test_ci_runs_the_readmes_own_test_command() -> None:
    commands = [line for line in README.splitlines() if "-m pytest" in line]
    assert len(commands) == 1
    assert "grep -m1 -e '-m pytest' README.md" in (ROOT / ".ci" / "run").read_text()


def test_the_python_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert "Python 3.11 or newer" in README


def test_every_path_of_the_map_exists() -> None:
    block = CONTRIBUTING.split("## Map")[1].split("\n\n")[1]
    named = [line.split()[0] for line in block.splitlines() if not line.startswith(" " * 8)]
    assert named
    for name in named:
        assert (ROOT / name).exists(), name
    for path in re.findall(r"`((?:sql|lake|src)/[^`*]+\.md)`", CONTRIBUTING):
        assert (ROOT / path).exists(), path


def test_every_command_of_the_figures_is_there() -> None:
    """A module or a file of the checkout; the figures themselves are measured, not tested."""
    page = (GUIDES / "figures.md").read_text("utf-8")
    modules = re.findall(r"python -m (tests[\w.]+)", page)
    assert len(modules) >= 15
    for module in modules:
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
    for script in re.findall(r"`bash (\S+)", page):
        assert (ROOT / script).is_file(), script
