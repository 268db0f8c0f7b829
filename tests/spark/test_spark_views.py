"""Every view that `views --dialect spark` prints gives on an engine what it gives in DuckDB, value by value, to 1e-9.

The rows are those of `tests/cases`, of the golden sets of judgments, and of lakes that were bought once. What an engine
cannot run stands in `errors.toml` with its very error: once it can, the test that expects the error fails.
"""

from __future__ import annotations

import csv
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchpond.cli import main
from batchpond.errors import ExitCode
from batchpond.lake.store import Store
from batchpond.views import database, refresh
from tests.rigs.metrics import CELL_VIEWS, OUTCOMES
from tests.rigs.sql import CELL, TESTS, columns_of_all, judged, read_csv, table, views_over
from tests.spark import engines
from tests.unit.views.test_sql_cases import VIEWS, documents, rows_of

pytestmark = pytest.mark.filterwarnings("ignore")

SCRIPTS = {script.name: script for script in refresh.scripts() if script.views}
CASES = {document["view"]: document["cases"] for document in documents()}
GOLDEN = sorted(path for path in (TESTS / "golden").glob("*/judgments.csv") if "_bt_" not in path.parent.name)
LAKES = ("finished", "pressure", "staged")
UNSIGNED = "UBIGINT"  # of an item's hash, which Arrow's users in Java do not have


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with engines.session() as session:
        yield session


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """What the engine says of the views that it cannot run."""
    known = tomllib.loads(Path(__file__).with_name("errors.toml").read_text("utf-8"))
    engine = engines.name()
    found: dict[str, str] = known["sail" if engine == "sail" else "spark"]
    return found


def rows(connection: Any, name: str) -> pa.Table:
    """Return a view's rows as DuckDB has them, a hash as a decimal."""
    kinds = {column: kind.replace(UNSIGNED, "DECIMAL(20,0)") for column, kind in columns_of_all()[name].items()}
    chosen = ", ".join(f'CAST("{column}" AS {kind}) AS "{column}"' for column, kind in kinds.items())
    return connection.sql(f"SELECT {chosen} FROM {name}").to_arrow_table()


def found(spark: Any, connection: Any, view: str) -> list[str]:
    """Return what the engine says otherwise of one view over the rows that DuckDB has for what it reads."""
    from batchpond_spark import dialect

    wanted = rows(connection, view)
    for name in SCRIPTS[view].needs & (SCRIPTS.keys() | dialect.TABLES.keys()):
        engines.give(spark, name, rows(connection, name))
    return engines.differences(wanted, engines.ask(spark, dialect.select(SCRIPTS[view])), VIEWS[view].grain_columns)


@pytest.mark.parametrize("view", sorted(CASES))
def test_a_view_says_of_its_cases_what_duckdb_says(spark: Any, errors: dict[str, str], view: str) -> None:
    """Rows in, rows out; or the error that is known."""
    for case in CASES[view]:
        given = {
            name: table(rows_of(name, those), ["study"] if "study" in columns_of_all()[name] else [])
            for name, those in case["input"].items()
        }
        with views_over(given) as connection:
            if view in errors:
                with pytest.raises(Exception, match=errors[view]):
                    found(spark, connection, view)
            else:
                assert found(spark, connection, view) == [], case["description"]


@pytest.mark.parametrize("view", [*CELL_VIEWS, OUTCOMES])
def test_a_view_says_of_the_golden_sets_what_duckdb_says(spark: Any, errors: dict[str, str], view: str) -> None:
    """Judgments of which scipy and statsmodels said the same."""
    if view in errors:
        pytest.skip(f"{view} does not run here: its cases hold the error")
    for path in GOLDEN:
        with views_over({"pair_judgments": table(judged(read_csv(path.read_text("utf-8"))), CELL)}) as connection:
            assert found(spark, connection, view) == [], path.parent.name


@pytest.mark.parametrize("lake", LAKES)
def test_the_script_says_of_a_lake_what_duckdb_says(
    spark: Any, errors: dict[str, str], lake: str, tmp_path: Path
) -> None:
    """As it is printed, from the lake's files on; each view is then the table that the next ones read."""
    from batchpond_spark import dialect

    with tarfile.open(TESTS / f"golden/lakes/{lake}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    (path,) = (marker.parent for marker in tmp_path.rglob("batchpond.json"))
    script = dialect.script(path, database.listed(Store.open(path).path))
    problems = []
    with database.connect(path) as connection:
        for statement in script.split(";\n"):
            name = statement.partition("VIEW ")[2].partition(" AS")[0]
            if not name:
                continue
            wanted = rows(connection, name)
            if name not in errors:
                spark.sql(statement)
                got = engines.ask(spark, f"SELECT * FROM {name}")
                grain = VIEWS[name].grain_columns if name in VIEWS else tuple(wanted.column_names)
                problems += [f"{name}: {problem}" for problem in engines.differences(wanted, got, grain)]
            engines.give(spark, name, wanted)
    assert problems == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's lake, of three judges, with labels of a person on a hundred of its pairs."""
    engines.name()
    folder = tmp_path_factory.mktemp("demo")
    lake, sheet = folder / "lake", folder / "sheet.csv"
    assert main(["--lake", str(lake), "demo"]) == ExitCode.DONE
    assert main(["--lake", str(lake), "label", "demo", "-o", str(sheet)]) == ExitCode.DONE
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(row | {"label": "12"[number % 3 == 0]} for number, row in enumerate(rows))
    assert main(["--lake", str(lake), "import", "labels", str(sheet), "--rater", "one"]) == ExitCode.DONE
    return lake


@pytest.mark.parametrize("view", sorted(SCRIPTS))
def test_a_view_says_of_the_demo_what_duckdb_says(spark: Any, errors: dict[str, str], demo: Path, view: str) -> None:
    """Of thousands of judgments, by judges who agree in part, and with people: cases begin above votes and patterns."""
    if view in errors:
        pytest.skip(f"{view} does not run here: its cases hold the error")
    with database.connect(demo) as connection:
        assert found(spark, connection, view) == []


@pytest.mark.parametrize("lake", LAKES)
def test_what_an_engine_makes_and_duckdb_counts_is_what_duckdb_says_of_the_lake(tmp_path: Path, lake: str) -> None:
    """`query --engine` and `results --engine`: every view above a row per judgment, and all results, in one go."""
    named = engines.name()
    from batchpond.views import read
    from batchpond_spark import engine

    with tarfile.open(TESTS / f"golden/lakes/{lake}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    (path,) = (marker.parent for marker in tmp_path.rglob("batchpond.json"))
    views = ["results", *(name for name, script in SCRIPTS.items() if script.stage != "1_core")]
    asked = " JOIN ".join(views)
    problems = []
    with (
        engine.levels(Store.open(path), f"FROM {asked}", "spark" if named == "local" else named) as connect,
        connect(path, memory_limit="1GB") as made,
        database.connect(path) as connection,
    ):
        for view in views:
            wanted, got = rows(connection, view), rows(made, view)
            told = engines.differences(wanted, got, VIEWS[view].grain_columns)
            problems += [f"{view}: {problem}" for problem in told]
        with read.shown_query(path, "FROM results", is_arrow=True, connect=connect) as shown:  # in the sandbox too
            assert not isinstance(shown, read.Rows)
            assert shown.read_all().num_rows > 0
    assert problems == []
    assert list(path.glob("_tmp/*.levels")) == []
