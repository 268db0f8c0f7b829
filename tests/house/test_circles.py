"""No two modules import each other, by whatever way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def test_imports_run_in_no_circle() -> None:
    """Imports at the top of modules can be put in an order, lazy ones and those for types left out."""
    modules = {dotted(path): path for path in SOURCES.rglob("*.py")}
    graph = {name: set(imported(path, modules)) - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of ours that a module needs before it runs."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else str(node.module)
