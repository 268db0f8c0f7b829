"""The simulators' README says what is so: the folders, the files in each, and the list that a new one is added to."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batchpond.providers import registry
from batchpond_sim.host.server import PROVIDERS
from tests.rigs.sim_inputs import write_study

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src" / "batchpond_sim"
README = (HOUSE / "README.md").read_text("utf-8")
ROOMS = {"host", "world", "judges", "shared"}
WHOLE = {"compatible", "groq", "mistral", "ollama", "xai"}  # one file each
ANSWERS_ELSEWHERE = {"vertex", "together"} | WHOLE
PAGES = {room: ROOT / "src" / room / "README.md" for room in ("batchpond_sim", "batchpond/providers")}
TOY_FILE = re.compile(r"^`(toy/\w+\.py)`\n\n```python\n(.*?)```", re.MULTILINE | re.DOTALL)
ASKED = """
import os, subprocess, sys
from batchpond_sim.host import server
with server.running() as there:
    os.environ["TOY_BASE_URL"] = there.base_url_of("toy")
    subprocess.run([sys.executable, "-m", "batchpond", "run", sys.argv[1], "--yes"], check=True, timeout=120)
"""
MORE = {"vertex": {"storage"}}
MODULES_MAX = 32
LINES_MAX = 11_975


def test_the_folders_are_the_rooms_and_the_providers() -> None:
    folders = {path.parent.name for path in HOUSE.glob("*/__init__.py")}
    assert folders == ROOMS | set(PROVIDERS)
    assert set(PROVIDERS) == {*registry.NAMES, *registry.LIVE_ONLY, "compatible"}


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_providers_folder_has_the_files_of_the_checklist(name: str) -> None:
    expected = {"__init__", "api"} | MORE.get(name, set())
    expected |= set() if name in ANSWERS_ELSEWHERE else {"answers"}
    expected |= {"batches"} if name in registry.NAMES and name not in WHOLE else set()
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


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of both packages with the toys of their pages: files, and a line where each is registered."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "sql").symlink_to(ROOT / "sql")
    for room, page in PAGES.items():
        files = TOY_FILE.findall(page.read_text("utf-8"))
        assert len(files) == 3
        (root / "src" / room / "toy").mkdir()
        for name, content in files:
            (root / "src" / room / name).write_text(content, "utf-8")
    for path, old, new in (
        ("batchpond/providers/registry.py", "NAMES: Final = (", 'NAMES: Final = ("toy", '),
        ("batchpond_sim/host/server.py", "\n}\n", '\n    "toy": (toy.BASE_PATH, toy.ToySimulator),\n}\n'),
        ("batchpond_sim/host/server.py", "\nPROVIDERS", "\nfrom batchpond_sim.toy import api as toy\n\nPROVIDERS"),
    ):
        text = (root / "src" / path).read_text("utf-8")
        (root / "src" / path).write_text(text.replace(old, new, 1), "utf-8")
    return root


def test_the_smallest_simulator_answers_by_what_the_page_says_alone(tree: Path, tmp_path: Path) -> None:
    """A provider of its own asks it live: each request is answered once."""
    study = write_study(tmp_path / "study", max_requests=6)
    study.write_text(study.read_text().replace('provider = "openai"', 'provider = "toy"\nmode = "live"'))
    environment = os.environ | {
        "PYTHONPATH": os.fspath(tree / "src"), "BATCHPOND_LAKE": os.fspath(tmp_path / "lake"), "TOY_API_KEY": "toy-key",
    }  # fmt: skip
    command = [sys.executable, "-c", ASKED, os.fspath(study)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    sql = "select provider, status, count(*) as n, count(distinct request_id) as d from responses group by all"
    query = [sys.executable, "-m", "batchpond", "query", sql, "--format", "csv"]
    found = subprocess.run(query, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout
    rows = list(csv.DictReader(io.StringIO(found)))
    assert {row["provider"] for row in rows} == {"toy"}
    assert sum(int(row["n"]) for row in rows) == sum(int(row["d"]) for row in rows) == 24
    assert "succeeded" in {row["status"] for row in rows}
