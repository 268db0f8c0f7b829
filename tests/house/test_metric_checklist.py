"""The checklist in `sql/README.md` for adding a metric, carried out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.rigs import sql_readme

ROOT = Path(__file__).parents[2]


def test_the_checklist_for_a_metric_is_enough(tmp_path: Path) -> None:
    """A copy of the project, the page's two files written into it, the page's two commands: the metric is there."""
    steps = sql_readme.render().partition("## How to add a metric")[2].partition("\n## ")[0]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("sql", "tests/cases", "tests/rigs", "tests/unit/views"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("tests/__init__.py", "tests/unit/__init__.py", "tests/conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    written = re.findall(r"Write `(\S+)`.*?\n   ```\w+\n(.*?)   ```\n", steps, re.DOTALL)
    assert [path for path, _ in written] == ["sql/2_metrics/metric_ties.sql", "tests/cases/metric_ties.yaml"]
    for path, block in written:
        (tmp_path / path).write_text(re.sub(r"^   ", "", block, flags=re.MULTILINE), "utf-8")
    make, check = re.findall(r"`python (-m [^`]+)`", steps.partition("\n3. ")[2])
    _python(tmp_path, make)
    assert "](#metric_ties)" in (tmp_path / "sql" / "README.md").read_text("utf-8")
    assert "metric_ties" in _python(tmp_path, "-m batchpond views --format csv")
    chosen = "metric_ties or page or graph or (every and case)"
    # What simulates studies would be read, and left out.
    spared = ("--ignore-glob=*/test_metrics_*", "--ignore-glob=*/test_report_*", "--ignore-glob=*/test_core_*")
    told = _python(tmp_path, check, "-q", "-rA", "-p", "no:cacheprovider", "-k", chosen, *spared)
    assert "PASSED tests/unit/views/test_sql_cases.py::test_case[metric_ties: one verdict of four" in told
    for test in (
        "test_sql_cases.py::test_a_view_binds_on_an_empty_lake_and_states_its_grain[metric_ties]",
        "test_sql_cases.py::test_a_metrics_columns_have_plain_types_and_names[metric_ties]",
        "test_sql_files.py::test_a_view_file_holds_one_view_of_its_name_under_a_full_header[metric_ties]",
        "test_sql_files.py::test_a_header_has_the_keys_of_its_stage[metric_ties]",
        "test_sql_files.py::test_each_number_of_a_metric_has_an_estimator[metric_ties]",
        "test_sql_files.py::test_the_page_about_the_views_is_up_to_date",
    ):
        assert f"PASSED tests/unit/views/{test}" in told


def _python(folder: Path, command: str, *more: str) -> str:
    """Run a command of the page in a copy of the project and return what it printed."""
    path = os.pathsep.join(str(folder / part) for part in ("src", ""))
    done = subprocess.run(
        [sys.executable, *command.split(), *more],
        cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
