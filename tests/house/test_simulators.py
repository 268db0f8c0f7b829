"""The simulators' README says what is so: the folders, the files in each, and the list that a new one is added to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchpond.providers import registry
from batchpond_sim.host.server import PROVIDERS

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src" / "batchpond_sim"
README = (HOUSE / "README.md").read_text("utf-8")
ROOMS = {"host", "world", "judges", "shared"}
ANSWERS_ELSEWHERE = {"vertex", "compatible"}
MORE = {"gemini": {"files"}, "vertex": {"storage"}}
MODULES_MAX = 33
LINES_MAX = 10_840


def test_the_folders_are_the_rooms_and_the_providers() -> None:
    folders = {path.parent.name for path in HOUSE.glob("*/__init__.py")}
    assert folders == ROOMS | set(PROVIDERS)
    assert set(PROVIDERS) == {*registry.NAMES, *registry.LIVE_ONLY, "compatible"}


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_providers_folder_has_the_files_of_the_checklist(name: str) -> None:
    expected = {"__init__", "api"} | MORE.get(name, set())
    expected |= set() if name in ANSWERS_ELSEWHERE else {"answers"}
    expected |= {"batches"} if name in registry.NAMES else set()
    assert {path.stem for path in (HOUSE / name).glob("*.py")} == expected
    assert (ROOT / "tests" / "unit" / "simulators" / f"test_{name}.py").exists() or name == "compatible"


def test_the_checklist_names_files_that_are_there() -> None:
    """Every path of the README is one of the house, read for a provider that has all of it."""
    steps = re.findall(r"^\d\. `([^`]+)`", README, re.MULTILINE)
    assert len(steps) == 6
    assert all((ROOT / path.replace("<name>", "openai")).exists() for path in steps)
    beside = re.findall(r"`((?:host|shared|gemini|vertex)/\w+\.py)`", README)
    assert {f"{name}/{stem}.py" for name, stems in MORE.items() for stem in stems} <= set(beside)
    assert all((HOUSE / path).exists() for path in beside)
    assert set(re.findall(r"^    (\w+)/ ", README, re.MULTILINE)) >= ROOMS
    assert all(f"`{name}`" in README for name in ANSWERS_ELSEWHERE)


def test_the_house_stays_small() -> None:
    modules = [path for path in HOUSE.rglob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MODULES_MAX
    assert sum(len(path.read_text("utf-8").splitlines()) for path in HOUSE.rglob("*.py")) <= LINES_MAX
