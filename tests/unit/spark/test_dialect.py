"""The views in Spark's SQL, without an engine: all of them or a reason, and none of what differs there in silence."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from batchpond.errors import ExitCode
from batchpond.lake.store import Store
from batchpond.views import database, refresh
from batchpond_spark import dialect
from tests.rigs import spark_page
from tests.rigs.swept import sweep

SCRIPTS = {script.name: script for script in refresh.scripts() if script.views}
MACROS = {name for script in refresh.scripts() for name in script.macros}
REFUSED = dialect.refused()
QUERIES = [*refresh.sql_folder().glob("*/*.sql"), *Path(refresh.__file__).parents[1].glob("*/**/*.sql")]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("folder") / "lake"
    return dialect.script(path, database.listed(Store.init(path).path))


def test_every_view_is_printed_or_refused_with_a_reason(script: str) -> None:
    """And what reads a refused one is refused too, so that the script runs from end to end."""
    printed = re.findall(r"^CREATE OR REPLACE TEMPORARY VIEW (\w+) AS$", script, re.MULTILINE)
    assert sorted(printed) == sorted({*SCRIPTS, *dialect.TABLES} - REFUSED.keys())
    for name, why in REFUSED.items():
        assert f"-- {name} is not here: {why}\n" in script
        assert len(why.split()) > 2
    for name in set(printed) & SCRIPTS.keys():
        assert not SCRIPTS[name].needs & REFUSED.keys()


@pytest.fixture
def deep() -> Iterator[None]:
    """Let the parser go as deep as macros are nested that are written out."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


@sweep
@pytest.mark.usefixtures("deep")
def test_the_script_is_spark_sql_in_which_no_macro_and_no_decimal_is_left(script: str) -> None:
    """Spark divides a decimal by a decimal at six digits, and says nothing."""
    for statement in script.split(";\n"):
        code = re.sub(r"--[^\n]*|'[^']*'|`[^`]*`", " ", statement)
        assert not re.search(r"(?<![\w.])\d+\.\d*(?![\dDEe])", code), statement[:80]
        assert not re.search(r"\bMATERIALIZED\b|\bLAMBDA\b|::|\bQUALIFY\b|\bEXCLUDE\b|\bGROUP BY ALL\b", code)
        called = {found.lower() for found in re.findall(r"(?<![\w.])(\w+)\(", code)}
        assert not called & MACROS, statement[:80]
        if code.strip():
            assert sqlglot.parse(statement, dialect="spark")


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_rows_are_numbered_in_an_order(path: Path) -> None:
    """Numbers of rows in no order, joined to themselves, differ each time on an engine that inlines what has a name."""
    code = re.sub(r"--[^\n]*", "", path.read_text("utf-8"))
    windows = re.findall(r"row_number\(\) OVER \(([^()]*)\)", code, re.IGNORECASE)
    assert all("ORDER BY" in window for window in windows)


def test_the_greatest_of_rows_has_a_value_there_as_here() -> None:
    """DuckDB's arg_max passes over rows without a value, Spark's max_by does not."""
    tree = sqlglot.parse_one("SELECT arg_max(a, b) FROM t", dialect="duckdb")
    sql = dialect._rewritten(tree).sql("spark")
    assert sql == "SELECT MAX_BY(a, CASE WHEN NOT a IS NULL THEN b END) FROM t"


def test_a_cell_of_fixed_words_is_of_the_type_of_one_that_is_read() -> None:
    """Sail knows that such words are never NULL, and unites no cell that may lack one with a cell that may not."""
    for name in ("item_status", "agreement_pairs"):
        found = re.findall(r"\('panel'\).*?AS STRUCT<.*?provider: STRING", dialect.select(SCRIPTS[name]))
        assert len(found) == dialect.select(SCRIPTS[name]).count("('panel')") > 0


def test_what_is_of_its_moment_is_asked_each_time() -> None:
    """A script is printed once and run for years: no clock and no draw in it may be the printer's."""
    told = [
        script for script in SCRIPTS.values() if re.search(r"current_timestamp|now\(\)", script.text, re.IGNORECASE)
    ]
    assert [script.name for script in told] == ["report_status"]
    sql = dialect.select(told[0])
    assert "CURRENT_TIMESTAMP()" in sql
    assert not re.search(r"\b1[6-9]\d{8}\b", sql), "a moment of the printer's is in the script"
    for asked in ("epoch(current_timestamp)", "epoch(now())", "normal_cdf(random())", "normal_cdf(epoch(today()))"):
        assert dialect._worth(dialect._parsed(asked)) is None
    assert dialect._worth(dialect._parsed("normal_cdf(0.0)")) is not None


def test_an_argument_that_is_used_twice_is_worked_out_once() -> None:
    """A macro of macros would else be as long as a power of their depth."""
    call = sqlglot.parse_one("SELECT wilson_lo(a + b, n) FROM t", dialect="duckdb")
    tree = dialect._rewritten(call)
    assert len(list(tree.find_all(exp.Add))) >= 1
    assert sum(add.sql() == "a + b" for add in tree.find_all(exp.Add)) == 1


def test_the_table_of_engines_is_up_to_date() -> None:
    """`python -m tests.rigs.spark_page` was run after the last change."""
    assert spark_page.PAGE.read_text("utf-8") == spark_page.page()


def test_without_sqlglot_one_error_says_what_to_install(tmp_path: Path) -> None:
    """In a process whose imports do not find it."""
    (tmp_path / "sqlglot.py").write_text("raise ModuleNotFoundError('no', name='sqlglot')")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from batchpond.cli import program; sys.exit(program())"
    command = [
        sys.executable,
        "-c",
        program,
        str(tmp_path),
        "--lake",
        str(tmp_path / "lake"),
        "views",
        "--dialect",
        "spark",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "sqlglot" in done.stderr
    assert "pip install 'batchpond[cluster]'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("sql", "levels"),
    [
        ("FROM results", {"results", *dialect.AS_TABLES}),
        ("SELECT 1 FROM metric_consistency", {"pair_clusters", *dialect.AS_TABLES}),
        ("FROM report_consistency JOIN plan", {"plan", "pair_judgments", "pair_clusters", *dialect.AS_TABLES}),
        ("FROM metric_agreement", {"agreement_pairs", *dialect.AS_TABLES}),
        ("FROM metric_power", {"criteria_points", "item_status", "paired_counts", "prompt_scores", *dialect.AS_TABLES}),
        ("SELECT 42", set[str]()),
    ],
)
def test_an_engine_makes_what_is_read_from_above_and_what_is_dear_to_plan(sql: str, levels: set[str]) -> None:
    """And each after what it is made of, so that the next may read what is written."""
    found = dialect.levels(sql)
    assert set(found) == levels
    made = [name for name, _ in dialect.statements(Path("lake"), {name: {} for name in dialect.TABLES}, found)]
    assert len(made) == len(set(made))
    for name in made:
        if name in SCRIPTS:
            assert SCRIPTS[name].needs & (SCRIPTS.keys() | dialect.TABLES.keys()) <= {*made[: made.index(name)]}


@pytest.mark.parametrize("command", [["results"], ["query", "FROM results"]])
def test_an_engine_that_is_not_there_is_one_clear_error(tmp_path: Path, command: list[str]) -> None:
    """Without the extra it is the extra that is named, with it the engines that there are; nothing is left behind."""
    lake = Store.init(tmp_path / "lake").path
    ran = subprocess.run(
        [sys.executable, "-m", "batchpond", *command, "--engine", "flink", "--lake", str(lake)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == ExitCode.USAGE
    has_extra = importlib.util.find_spec("pyspark") is not None
    assert ("no engine 'flink'" if has_extra else "pip install 'batchpond[cluster]'") in ran.stderr
    assert ran.stdout == ""
    assert list((lake / "_tmp").iterdir()) == []
