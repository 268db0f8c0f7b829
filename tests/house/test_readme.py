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


def test_the_readme_is_one_screen_with_its_pictures_and_its_diagram() -> None:
    """At most 110 lines; two pictures that are there, each with words that say what is on it; five boxes in a row."""
    assert len(README.splitlines()) <= 110
    pictures = re.findall(r"^!\[(.+)\]\((.+)\)$", README, re.MULTILINE)
    assert [Path(path).name for _, path in pictures] == ["report.png", "browse.png"]
    for words, path in pictures:
        assert len(words.split()) > 5
        assert (ROOT / path).read_bytes().startswith(b"\x89PNG\r\n")
    (diagram,) = re.findall(r"^```mermaid\n(.+?)^```$", README, re.MULTILINE | re.DOTALL)
    assert diagram.startswith("flowchart LR\n")
    boxes = dict(re.findall(r"(\w+)[\[(]+\"(.+?)\"", diagram))
    arrows = re.findall(r"^ *(\w+).* -- .+ --> (\w+)", diagram, re.MULTILINE)
    assert len(boxes) == 5
    assert [one for one, _ in arrows] + [arrows[-1][1]] == list(boxes)  # a chain: nothing hangs loose


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
