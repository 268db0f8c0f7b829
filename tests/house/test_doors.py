"""The pages that lead into the code say what is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import batchpond
from batchpond.lake import failpoints

ROOT = Path(__file__).parents[2]
PACKAGE = Path(batchpond.__file__).parent
HOUSE = (ROOT / "src" / "batchpond" / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8")


def test_the_floors_of_the_page_are_those_of_the_contract() -> None:
    """Floor by floor, every room and module that the contract names, and no other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (floors,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    drawn = HOUSE.split("flowchart TD")[1].split("```")[0]
    named = re.findall(r'\["(.+?)"\]', drawn)
    rooms = [[part.partition(":")[0].strip() for part in floor.split(" | ")] for floor in named[:-1]]
    assert [*rooms, named[-1].split()] == [re.split(r" [|:] ", floor) for floor in floors]


def test_every_room_is_on_a_floor() -> None:
    """What is added to the package's folder is added to the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (floors,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    known = {name for floor in floors for name in re.split(r" [|:] ", floor)}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")}
    assert rooms | modules == known


def test_the_protocol_of_the_page_is_that_of_the_code() -> None:
    """Every failpoint of submission and collection, in order, in the module that passes it."""
    rows = re.findall(r"^\| ([SY]\d+(?:\.\w+)?) \| .+? \| `(.+?)` \|$", HOUSE, re.MULTILINE)
    assert [name for name, _ in rows] == [name for name in failpoints.NAMES if name[0] in "SY"]
    for name, module in rows:
        assert f'reach("{name}")' in (PACKAGE / module).read_text("utf-8"), name


def test_every_page_that_the_house_names_is_there() -> None:
    for name in re.findall(r"`([\w./]+README\.md)`", HOUSE):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), name


def test_every_folder_that_contributors_are_sent_to_is_there() -> None:
    for name in re.findall(r"\btests/\w+", CONTRIBUTING):
        assert (ROOT / name).is_dir(), name
    rooms = {path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms - {"base", "browse", "remote", "report", "simulators", "spark", "work"} <= {
        path.parent.name for path in PACKAGE.glob("*/__init__.py")
    }
