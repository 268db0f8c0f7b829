"""Nothing that comes from outside is run: no data as code, and no module by a name that a setting gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import batchpond
import batchpond_browse
import batchpond_importers
import batchpond_remote
import batchpond_report
import batchpond_sim
import batchpond_spark
import batchpond_work

SOURCES = [
    path
    for package in (
        batchpond,
        batchpond_browse,
        batchpond_importers,
        batchpond_remote,
        batchpond_report,
        batchpond_sim,
        batchpond_spark,
        batchpond_work,
    )
    for path in Path(package.__file__).parent.rglob("*.py")
]
# What runs, or builds objects of any kind from, the data that it is given.
RUNS = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "marshal.load", "marshal.loads",
    "shelve.open", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "dill.loads", "joblib.load",
    "torch.load", "os.system", "os.popen", "runpy.run_path", "runpy.run_module",
}  # fmt: skip
# Rows that this process wrote itself, into a file without a name.
OWN_ROWS = {("plan/rows.py", "pickle.loads")}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call by the name that it is written with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@cache
def called_in(text: str) -> list[tuple[str, ast.Call]]:
    """Return each call of a module."""
    return list(calls(ast.parse(text)))


def running(text: str) -> set[str]:
    """Return what a module calls that runs data, and a shell that it hands a text."""
    called = called_in(text)
    shells = {
        name for name, call in called
        if any(key.arg == "shell" and ast.unparse(key.value) != "False" for key in call.keywords)
    }  # fmt: skip
    return shells | {name for name, _ in called if name in RUNS}


def test_no_module_runs_what_it_reads() -> None:
    """Neither Python nor a shell, and no format that makes objects of any kind."""
    for path in SOURCES:
        own = {name for place, name in OWN_ROWS if path.as_posix().endswith(f"/batchpond/{place}")}
        assert running(path.read_text("utf-8")) <= own, path


def test_the_search_finds_what_it_looks_for() -> None:
    """The test above could fail."""
    assert running("import yaml\nyaml.load(x)") == {"yaml.load"}
    assert running("subprocess.run(x, shell=True)") == {"subprocess.run"}
    assert running("yaml.safe_load(x); re.compile(x); subprocess.run([x], shell=False)") == set()


def test_a_module_is_imported_by_a_name_of_this_package_or_a_fixed_one() -> None:
    """A study, a lake's settings or a provider's answer cannot name code: what is not fixed begins with the package."""
    n_found = 0
    for path in SOURCES:
        for name, call in called_in(path.read_text("utf-8")):
            if not name.endswith("import_module"):
                continue
            n_found += 1
            asked = call.args[0]
            begins = ast.unparse(asked.values[0]) if isinstance(asked, ast.JoinedStr) else ast.unparse(asked)
            assert isinstance(asked, (ast.Constant, ast.JoinedStr)) or begins.isupper(), f"{path}: {begins}"
            if isinstance(asked, ast.JoinedStr):
                assert "batchpond" in begins or "__name__" in begins, f"{path}: {begins}"
    assert n_found > 3


def test_entry_points_of_others_are_for_the_tools_that_somebody_imports_from() -> None:
    """Nothing that happens to be installed is run by being there: to import from a tool looks, and loads that one."""
    found = {path.name for path in SOURCES if "entry_points" in path.read_text("utf-8")}
    assert found == {"files.py", "import_.py"}
