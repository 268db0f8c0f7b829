"""A study's views worked out one by one say what the lens says of that study."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from batchpond.views import database
from batchpond.views.draft import Worked
from tests.rigs import report
from tests.rigs.sql import differs, result
from tests.rigs.swept import every

METRIC = next(view for view in database.views() if view.name == "metric_consistency")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two studies, one with every task."""
    return report.build(tmp_path_factory.mktemp("worked") / "lake")


@pytest.mark.parametrize(("study", "rows_max"), [("every", 100_000), ("hostile", 0)])
def test_every_view_has_the_rows_of_the_study_that_the_lens_has(lake: Path, study: str, rows_max: int) -> None:
    """Of a small study all are tables, of a large one those that have no row per request.

    The suite looks at every third, each of which is made of others; what takes long is to plan it whole in the lens.
    """
    shown = [view for view in database.views() if view.grain_columns[0] == "study" and view.stage != "lake"]
    shown = every(3, shown)
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
    assert n_rows > 10
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


TYPES = """
SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND table_name = ? ORDER BY column_index
"""


def test_a_view_of_tables_without_rows_is_made_and_not_planned(lake: Path) -> None:
    """Of a study without candidates: a macro that no plan can use is in the way of other metrics, not of theirs."""
    with closing(database.connect(lake)) as own:
        worked = Worked(own, "hostile")
        worked.make("FROM pair_clusters, candidate_pairs")
        own.execute("CREATE MACRO mean_size(alone) AS alone")
        with pytest.raises(duckdb.BinderException, match="mean_size"):
            worked.make("FROM metric_consistency")
        worked.make("FROM metric_win_matrix")
        assert own.execute("FROM memory.metric_win_matrix").fetchall() == []
        made, shown = (own.execute(TYPES, [where, "metric_win_matrix"]).fetchall() for where in ("memory", "batchpond"))
    assert made == shown != []


def test_tables_have_the_types_of_the_views_that_they_stand_for(lake: Path) -> None:
    """However they were made."""
    with closing(database.connect(lake)) as own:
        worked = Worked(own, "every")
        for view in database.views():
            worked.make(f"FROM {view.name}")
        tables = own.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory'").fetchall()
        types = {
            where: [own.execute(TYPES, [where, *name]).fetchall() for name in tables]
            for where in ("memory", "batchpond")
        }
    assert len(tables) > 50
    assert types["memory"] == types["batchpond"]
