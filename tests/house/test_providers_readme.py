"""The checklist for a new provider: true of every folder, and enough, since the smallest one is carried out."""

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

from batchpond.model import Mode
from batchpond.providers import registry
from batchpond.providers.shared.dialect import Dialect
from batchpond_sim.host import server
from batchpond_sim.host.server import PROVIDERS
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "src" / "batchpond" / "providers"
README = (ROOM / "README.md").read_text("utf-8")
CHECKLIST = README.split("## Adding one")[1].split("## The smallest one")[0]
NOT_PROVIDERS = {"http", "shared"}  # rooms that providers stand on
FOLDERS = sorted(path.parent for path in ROOM.glob("*/__init__.py") if path.parent.name not in NOT_PROVIDERS)
FILES = re.findall(r"^`(toy/\w+\.py)`\n\n```python\n(.*?)```", README, re.MULTILINE | re.DOTALL)
NAMES_LINE = re.compile(r"^(NAMES: Final = \(.*)\)$", re.MULTILINE)


def test_every_path_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:src|tests|http|shared|compatible)/[\w/.]+)`", README)
    assert len(named) > 10
    missing = [name for name in named if "NAME" not in name and not ((ROOT / name).exists() or (ROOM / name).exists())]
    assert missing == []


def test_every_module_of_the_shared_rooms_is_in_the_table_or_below_one_that_is() -> None:
    """What a new provider may stand on can be found from the page."""
    table = README.split("## Adding one")[0]
    shared = {path.name for path in (ROOM / "shared").glob("*.py")} - {"__init__.py"}
    assert shared == {name for name in re.findall(r"`shared/(\w+\.py)`", table)}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_folder_satisfies_the_checklist(folder: Path) -> None:
    """The module that the registry imports, and in it what the checklist says."""
    names = {path.name for path in folder.glob("*.py")}
    entry = {"batch.py", "live.py"} & names
    assert len(entry) == 1
    assert "dialect.py" in names or entry == {"live.py"}
    provider = folder.name if folder.name != "compatible" else "compatible-lab"
    found = registry.module(provider)
    for name in (
        "DESCRIPTOR",
        *re.findall(r"`(\w+)`", CHECKLIST.split("that says what differs:")[1].split("\n- [ ]")[0]),
    ):
        assert hasattr(found, name), name
    assert isinstance(found, Dialect)
    calls = registry.wire(provider)
    assert hasattr(calls, "LIVE") == (Mode.LIVE in found.DESCRIPTOR.modes)
    assert hasattr(calls, "BATCH") == (Mode.BATCH in found.DESCRIPTOR.modes)
    assert (provider in registry.NAMES) == (entry == {"batch.py"})
    assert found.DESCRIPTOR.notes
    assert folder.name in PROVIDERS
    assert (ROOT / "src" / "batchpond_sim" / folder.name / "__init__.py").exists()
    assert list((ROOT / "tests" / "unit" / "providers").glob(f"test_{folder.name}*.py"))


def test_every_provider_of_the_registry_is_a_folder() -> None:
    assert {*registry.NAMES, *registry.LIVE_ONLY, "compatible"} == {folder.name for folder in FOLDERS}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's provider in it: its files, and one name in the registry."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(
        ROOT / "src" / "batchpond", root / "src" / "batchpond", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / "sql").symlink_to(ROOT / "sql")
    room = root / "src" / "batchpond" / "providers"
    (room / "toy").mkdir()
    for name, content in FILES:
        (room / name).write_text(content, "utf-8")
    registered = (room / "registry.py").read_text("utf-8")
    changed, n = NAMES_LINE.subn(r'\1, "toy")', registered)
    assert n == 1
    (room / "registry.py").write_text(changed, "utf-8")
    return root


def test_the_smallest_provider_works_by_what_the_page_says_alone(tree: Path, tmp_path: Path) -> None:
    """Planned, submitted, synced: each request answered once, over a server that speaks what it copies."""
    study = write_study(tmp_path / "study", max_requests=6)
    study.write_text(study.read_text().replace('provider = "openai"', 'provider = "toy"'))
    with server.running(Settings(seed=1, latency_s=(1.0, 2.0)), tmp_path / "world") as there:
        environment = os.environ | {
            "PYTHONPATH": os.fspath(tree / "src"),
            "BATCHPOND_LAKE": os.fspath(tmp_path / "lake"),
            "TOY_BASE_URL": there.base_url_of("openai"),
            "TOY_API_KEY": "toy-key",
        }

        def batchpond(*arguments: str) -> str:
            command = [sys.executable, "-m", "batchpond", *arguments]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
            return done.stdout

        assert "TOY_API_KEY" in batchpond("keys")
        batchpond("plan", os.fspath(study))
        batchpond("submit", STUDY, "--yes")
        there.world.advance(20.0)
        batchpond("sync")
        sql = (
            "select provider, match, status, count(*) as n, count(distinct request_id) as d from responses group by all"
        )
        rows = list(csv.DictReader(io.StringIO(batchpond("query", sql, "--format", "csv"))))
    assert {(row["provider"], row["match"]) for row in rows} == {("toy", "matched")}
    assert sum(int(row["n"]) for row in rows) == sum(int(row["d"]) for row in rows) == 24
    assert {row["status"] for row in rows} >= {"succeeded"}
