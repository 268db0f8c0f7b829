"""Every view does what its case says, in rows in and rows out, and keeps the grain that it states.

A file `cases/<view>.yaml` holds:

    view: metric_consistency
    cases:
      - description: what the case shows
        input:                      # a table or view -> its rows, as a CSV block or a list of maps
          pair_judgments: |
            item_first,item_second,verdict
            A,B,first
        expect:                     # all rows, in order of the grain; only the columns named are compared
          - {n_pairs: 1, consistency_decided: null}

An empty CSV field is NULL. Rows of `pair_judgments` may leave out what `judged` fills in, and rows of
`item_judgments` what `judged_items` does.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import yaml

from batchpond.views import database
from batchpond.views.refresh import parse, sql_folder
from tests.rigs.sql import (
    TESTS,
    Row,
    columns_of_all,
    differs,
    judged,
    judged_items,
    read_csv,
    result,
    table,
    views_over,
)

CASES = TESTS / "cases"
MUST_HAVE_A_CASE = {view.name for view in database.views() if view.stage == "2_metrics"} | {"pair_status"}
VIEWS = {view.name: view for view in database.views() if view.stage != "lake"}
FLOAT_TYPES = {"DOUBLE", "FLOAT"}


def documents() -> list[dict[str, Any]]:
    """Read all case files; a file is named after its view."""
    found = []
    for path in sorted(CASES.glob("*.yaml")):
        document = yaml.safe_load(path.read_text("utf-8"))
        assert document["view"] == path.stem, path
        found.append(document)
    return found


EACH_CASE = [
    pytest.param(document["view"], case, id=f"{document['view']}: {case['description']}")
    for document in documents()
    for case in document["cases"]
]


def rows_of(name: str, given: str | list[Row]) -> list[Row]:
    """Return the rows that a case gives for a table or view."""
    rows = read_csv(given) if isinstance(given, str) else given
    completed = {"pair_judgments": judged, "item_judgments": judged_items}.get(name)
    return completed(rows) if completed else rows


def half_known(row: Row) -> list[str]:
    """Return the intervals of which one end is there alone; log-odds without an end have one at infinity."""
    ends = {lo: re.sub(r"_lo(?=_|$)", "_hi", lo) for lo in row if "logodds" not in lo}
    return [lo for lo, hi in ends.items() if hi in row and (row[lo] is None) != (row[hi] is None)]


@pytest.mark.parametrize(("view", "case"), EACH_CASE)
def test_case(view: str, case: dict[str, Any]) -> None:
    """Rows in, rows out."""
    info = VIEWS[view]
    read = {name: rows_of(name, rows) for name, rows in case["input"].items()}
    given = {name: table(rows, () if rows else ["study"]) for name, rows in read.items()}
    with views_over(given) as connection:
        order = ", ".join(f'"{column}" NULLS FIRST' for column in info.grain_columns)
        got = result(connection, f"SELECT * FROM {view} ORDER BY {order}")
    seen = Counter(tuple(row[column] for column in info.grain_columns) for row in got)
    assert [key for key, n in seen.items() if n > 1] == [], "the stated grain is not unique"
    problems = [
        f"row {number}: {name} is {row[name]!r} instead of {value!r}"
        for number, (row, expected) in enumerate(zip(got, case["expect"], strict=False), 1)
        for name, value in expected.items()
        if differs(row[name], value)
    ]
    assert not problems
    assert len(got) == len(case["expect"])
    if info.stage == "2_metrics":
        assert [column for row in got for column in half_known(row)] == []


def test_every_metric_has_a_case() -> None:
    """A view of sql/2_metrics without a case file fails here."""
    assert {document["view"] for document in documents()} >= MUST_HAVE_A_CASE


def test_every_case_belongs_to_a_view() -> None:
    """A case file whose view is gone fails here."""
    assert {document["view"] for document in documents()} <= set(VIEWS)


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_view_binds_on_an_empty_lake_and_states_its_grain(name: str) -> None:
    """Every view can be read before the first file exists, gives no row, and names its grain and its question."""
    info = VIEWS[name]
    with views_over({}) as connection:
        assert connection.execute(f"FROM {name}").fetchall() == []
        columns = {column[0] for column in connection.description}
    assert info.grain_columns
    assert set(info.grain_columns) <= columns
    assert info.question.endswith("?")


@pytest.mark.parametrize("name", sorted(MUST_HAVE_A_CASE))
def test_a_metrics_columns_have_plain_types_and_names(name: str) -> None:
    """Counts are integers, rates and intervals are doubles, nothing is JSON, a struct or a decimal."""
    columns = columns_of_all()[name]
    assert set(columns.values()) <= {"VARCHAR", "BIGINT", "BOOLEAN", *FLOAT_TYPES}
    assert {kind for column, kind in columns.items() if column.startswith("n_")} <= {"BIGINT"}
    numbers = {column for column, kind in columns.items() if kind in FLOAT_TYPES}
    for column in columns:
        stem, _, suffix = column.rpartition("_")
        if suffix in {"lo", "hi"} and stem in columns:
            assert {stem, f"{stem}_lo", f"{stem}_hi"} <= numbers
        if suffix == "se":
            assert {stem, column} <= numbers


def test_sql_files_define_one_view_of_their_own_name() -> None:
    """A file outside the macros' folder defines exactly the view that it is named after."""
    for path in sql_folder().glob("*/*.sql"):
        if path.parent.name == "0_functions":
            continue
        script = parse(path.stem, path.parent.name, path.read_text("utf-8"))
        assert script.views == (path.stem,)
        assert script.macros == ()
