"""The page `tests/FAULTS.md`, made from `tests/faults.toml`: `python -m tests.rigs.faults_page`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
FAULTS: Final = TESTS / "faults.toml"
PAGE: Final = TESTS / "FAULTS.md"
# The areas, each by its last fault.
AREAS: Final = {
    "F047": "What providers do",
    "F078": "What results hold",
    "F087": "Processes that end",
    "F103": "Disks and files",
    "F112": "Several at once",
    "F118": "Clocks",
    "F130": "Settings, keys and money",
    "F156": "Hostile input, secrets and privacy",
    "F160": "Live calls",
    "F165": "Size and time",
}

_HEAD: Final = """\
# What can go wrong, and what proves that it does no harm

This page is made from `tests/faults.toml` by `python -m tests.rigs.faults_page`; do not edit it.

Of {n} faults {n_whole} are proven by tests, {n_partly} in part, and {n_open} are not covered, each with the reason.
`tests/house/test_faults.py` holds this list against the tests that there are.
"""


@dataclass(frozen=True)
class Fault:
    """One row of the catalogue: what goes wrong, and the tests that prove what happens then, or why none does."""

    fault_id: str
    name: str
    what: str
    tests: tuple[str, ...] = ()
    partly: str | None = None
    not_covered: str | None = None

    @property
    def area(self) -> str:
        """The title under which the fault stands."""
        return next(title for last, title in AREAS.items() if self.fault_id <= last)


def load(path: Path = FAULTS) -> list[Fault]:
    """Return the faults in the order of the file; raises TypeError for a key that is unknown or missing."""
    tables = tomllib.loads(path.read_text("utf-8"))
    return [Fault(name, **{**found, "tests": tuple(found.get("tests", ()))}) for name, found in tables.items()]


def render(faults: Sequence[Fault]) -> str:
    """Return the page."""
    n_open = sum(fault.not_covered is not None for fault in faults)
    n_partly = sum(fault.partly is not None for fault in faults)
    head = _HEAD.format(n=len(faults), n_whole=len(faults) - n_open - n_partly, n_partly=n_partly, n_open=n_open)
    parts = [head]
    for area, group in groupby(faults, key=lambda fault: fault.area):
        parts += [f"## {area}\n", "| id | fault | proven by, or why not |", "| --- | --- | --- |"]
        parts += [f"| {fault.fault_id} | `{fault.name}`: {_cell(fault.what)} | {_proof(fault)} |" for fault in group]
        parts.append("")
    return "\n".join(parts)


def _proof(fault: Fault) -> str:
    if fault.not_covered is not None:
        return f"**Not covered**: {_cell(fault.not_covered)}"
    named = "<br>".join(_link(test) for test in fault.tests)
    return named if fault.partly is None else f"{named}<br>**Not proven**: {_cell(fault.partly)}"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}]({path.removeprefix('tests/')})"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def write() -> Path:
    """Write the page beside the list and return its path."""
    PAGE.write_text(render(load()), encoding="utf-8")
    return PAGE


if __name__ == "__main__":
    write()
