"""A study's views worked out one by one say what the lens says of that study."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from batchpond.views import database
from batchpond.views.worked import Worked
from tests.rigs import report
from tests.rigs.sql import differs, result

METRIC = next(view for view in database.views() if view.name == "metric_consistency")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two studies, one with every task."""
    return report.build(tmp_path_factory.mktemp("worked") / "lake")


@pytest.mark.parametrize(("study", "rows_max"), [("every", 100_000), ("hostile", 0)])
def test_every_view_has_the_rows_of_the_study_that_the_lens_has(lake: Path, study: str, rows_max: int) -> None:
    """Of a small study all are tables, of a large one those that have no row per request."""
    shown = [view for view in database.views() if view.grain_columns[0] == "study" and view.stage != "lake"]
    shown = shown if rows_max else [view for view in shown if view.stage != "2_metrics"] + [METRIC]
    with closing(database.connect(lake)) as lens, closing(database.connect(lake)) as own:
        worked = Worked(own, study, rows_max)
        n_rows = 0
        for view in shown:
            order = ", ".join(f'"{column}" NULLS FIRST' for column in view.grain_columns)
            sql = f"SELECT * FROM {view.name} WHERE study = '{study}' ORDER BY {order}"
            worked.make(sql)
            wanted, got = result(lens, sql), result(own, sql)
            assert len(got) == len(wanted), view.name
            for one, other in zip(got, wanted, strict=True):
                assert {name for name in one if differs(one[name], other[name])} == set(), view.name
            n_rows += len(got)
        tables = {name for (name,) in own.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert n_rows > 50
    assert ("results" in tables) is (rows_max > 0)
    assert "metric_consistency" in tables


def test_only_what_a_query_names_is_made(lake: Path) -> None:
    """And what that reads."""
    with closing(database.connect(lake)) as own:
        Worked(own, "every").make("SELECT 1 FROM metric_ratings")
        sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory'"
        made = {name for (name,) in own.execute(sql).fetchall()}
    assert "metric_ratings" in made
    assert not {name for name in made if name.startswith("report_") or "pressure" in name}
