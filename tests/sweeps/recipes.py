"""The recipes of measured defects against an older version: `python -m tests.sweeps.recipes [--commit cc06c86]`.

Each recipe is a test of the program and HTTP alone, with its defect's number in its first line. The wheel of the commit
goes into an environment of its own, and the recipes are run with that program. Prints which of them fail there, as each
must that is about a defect of that commit; exits 1 when one passes, or when a plain study fails there too.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.rigs import older

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "process"
RIG = "tests.rigs.program"
MARK = "Defect "
CONTROL = "tests/process/test_downloads.py::test_a_plain_study_is_sent_and_read"


def recipes() -> dict[str, str]:
    """Return the recipes by their names for pytest, with the first line of each."""
    return {name: line for path in sorted(FOLDER.glob("test_*.py")) for name, line in _in(path)}


def _in(path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text("utf-8")
    if f"from {RIG} import" not in text:
        return
    for node in ast.parse(text).body:
        first = (ast.get_docstring(node) or "").partition("\n")[0] if isinstance(node, ast.FunctionDef) else ""
        if first.startswith(MARK):
            yield f"{path.relative_to(ROOT)}::{node.name}", first


def _failed(names: list[str], python: Path, folder: Path) -> set[str]:
    """Return which of the tests fail, in any of their cases, with that Python's program."""
    report = folder / "report.xml"
    arguments = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", *names]
    subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT, env=os.environ | {"BATCHPOND_TEST_PYTHON": str(python)}, check=False, capture_output=True,
    )  # fmt: skip
    failed = set()
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}")
    return failed


def main() -> int:
    """Run the recipes and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default="cc06c86")
    asked = parser.parse_args()
    found = recipes()
    with tempfile.TemporaryDirectory() as scratch:
        python = older.install(asked.commit, Path(scratch))
        failed = _failed([*found, CONTROL], python, Path(scratch))
    if CONTROL in failed:
        sys.stdout.write(f"the program of {asked.commit} does not even pass {CONTROL}: its failures say nothing\n")
        return 1
    for name, line in found.items():
        sys.stdout.write(f"{'fails ' if name in failed else 'PASSES'}  {name}\n        {line}\n")
    sys.stdout.write(f"{len(found)} recipes, {len(failed)} of them fail at {asked.commit}\n")
    return 0 if failed == set(found) else 1


if __name__ == "__main__":
    sys.exit(main())
