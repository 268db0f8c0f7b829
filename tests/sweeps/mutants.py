"""Mutants: small faults put into the attempt fold, into sending and collecting; how many do the tests find?

    python -m tests.sweeps.mutants --sample 30 --jobs 2
    python -m tests.sweeps.mutants --root ../old --modules src/batchpond/attempts.py --tests tests/test_attempts.py

Each mutant is one change: a comparison turned, a condition negated, `and` for `or`, a number off by one, a truth for a
falsehood, a statement left out. The sample is drawn by `--seed`, so that two checkouts are compared alike. A mutant is
killed when a test fails, or nothing ends within the time that the unchanged tests take threefold.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Final

MODULES: Final = ("lake/attempts.py", "run/send.py", "run/collect.py")
TESTS: Final = (
    "tests/unit/lake/test_attempts.py", "tests/flow/test_sending.py", "tests/flow/test_reconcile_creating.py",
    "tests/flow/test_reconcile_watching.py", "tests/flow/test_reconcile_collecting.py", "tests/unit/run/test_union.py",
    "tests/flow/test_reread.py", "tests/flow/test_few_files.py", "tests/flow/test_rare_days.py",
    "tests/flow/test_cancel_taken_back.py", "tests/process/test_downloads_at_once.py",
)  # fmt: skip
_TURNED: Final = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module's text with one change, and where and what it is."""

    module: Path
    line: int
    what: str
    text: str


def mutants(module: Path, text: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse(text)
    for node in [*ast.walk(tree)]:
        for what, change in _changes(node):
            undo = copy.copy(node.__dict__)
            change()
            yield Mutant(module, getattr(node, "lineno", 0), what, ast.unparse(tree))
            node.__dict__.update(undo)


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _TURNED:
            turned = _TURNED[type(op)]
            yield f"{type(op).__name__} -> {turned.__name__}", lambda: setattr(node, "ops", [turned()])
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} -> {type(other).__name__}", lambda: setattr(node, "op", other)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() as value):
            yield f"{value} -> {value + 1}", lambda: setattr(node, "value", value + 1)
        case ast.FunctionDef(body=body) | ast.If(body=body) | ast.For(body=body):
            yield from _left_out(node, body)


def _left_out(node: ast.AST, body: list[ast.stmt]) -> Iterator[tuple[str, Callable[[], None]]]:
    for at, statement in enumerate(body):
        if isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign) and not _is_text(statement):
            without = [*body[:at], ast.Pass(), *body[at + 1 :]]
            what = f"without line {statement.lineno}"
            yield what, lambda without=without: setattr(node, "body", without)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def killed(root: Path, tree: Path, mutant: Mutant | None, tests: list[str], timeout_s: float) -> bool:
    """Run the tests on a copy of the source with a mutant in it; whether any fails."""
    place = tree / mutant.module.relative_to(root) if mutant else tree
    before = place.read_text() if mutant else ""
    if mutant:
        place.write_text(mutant.text)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    environment = os.environ | {"PYTHONPATH": os.fspath(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return True
    finally:
        if mutant:
            place.write_text(before)
    return done.returncode != 0


def main() -> None:
    """Draw mutants, run the tests on each, and print who lived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=Path.cwd())
    parser.add_argument("--modules", nargs="+", default=[f"src/batchpond/{name}" for name in MODULES])
    parser.add_argument("--tests", nargs="+", default=list(TESTS))
    parser.add_argument("--sample", type=int, default=30, help="how many mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    root = asked.root.resolve()
    with tempfile.TemporaryDirectory() as folder:
        trees: Queue[Path] = Queue()
        for number in range(asked.jobs):
            tree = Path(folder) / str(number)
            shutil.copytree(root / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copytree(root / "sql", tree / "sql")
            trees.put(tree)
        start_s = time.monotonic()
        if killed(root, Path(folder) / "0", None, asked.tests, 3_600):
            sys.exit("the tests fail without a mutant")
        timeout_s = 3 * (time.monotonic() - start_s) * asked.jobs + 30

        def run(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return killed(root, tree, mutant, asked.tests, timeout_s)
            finally:
                trees.put(tree)

        for name in asked.modules:
            found = list(mutants(root / name, (root / name).read_text()))
            drawn = random.Random(asked.seed).sample(found, min(asked.sample, len(found)))
            with ThreadPoolExecutor(asked.jobs) as pool:
                fates = list(pool.map(run, drawn))
            print(f"{name}: {sum(fates)} of {len(drawn)} killed ({len(found)} possible)", flush=True)
            for mutant, is_killed in zip(drawn, fates, strict=True):
                if not is_killed:
                    print(f"  lived: line {mutant.line}, {mutant.what}", flush=True)


if __name__ == "__main__":
    main()
