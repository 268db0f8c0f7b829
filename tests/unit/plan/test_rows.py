"""Rows in columns are the rows that they were made of, whatever those lack, and however many are read at once."""

from __future__ import annotations

from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from batchpond.plan.asks import Asks, asks
from batchpond.plan.rows import Rows, SourceRow, SpilledRows, columns_of_rows, json_each
from batchpond.study.spec import RowsSpec, StageSpec
from batchpond.tasks.compliance import ComplianceRule
from batchpond.tasks.ranking import RankingRule
from batchpond.tasks.templates import Rubric

FOLDER = Path()
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
MAYBE = st.none() | TEXTS
MORE = st.dictionaries(TEXTS, st.none() | st.integers(0, 9) | st.lists(TEXTS, max_size=2), max_size=2)
FIELDS = st.tuples(
    TEXTS, TEXTS, MAYBE, MAYBE, MAYBE, st.none() | st.integers(0, 9), MORE, st.none() | st.just(("r1",)),
    st.none() | st.integers(1, 3),
)  # fmt: skip
ROWS = st.lists(FIELDS, min_size=1, max_size=12).map(
    lambda found: [SourceRow(f"{number:02}", *fields) for number, fields in enumerate(found)]
)
RUBRICS = (Rubric("r1", "n", "d"), Rubric("r2", "n", "d"))


def said(row: SourceRow) -> dict[str, object]:
    """Return what the metadata of a row say, worked out one by one."""
    own = dict(zip(("rubric_id", "candidate", "input", "turn_no"), row[3:7], strict=True))
    every = {"unit_id": row.unit_id or None, **own, "tier": row.tier, **row.more}
    return {name: value for name, value in every.items() if value is not None}


@given(ROWS)
def test_rows_in_columns_are_the_rows_again(rows: list[SourceRow]) -> None:
    spill = SpilledRows(FOLDER, columns_of_rows(rows))
    for found in (Rows.of(rows), *spill.some(), spill.take(range(len(rows)))):
        assert found.each == rows
        assert found.hashes == [row.item().item_hash for row in rows]
        for name in ("item_id", "text", "unit_id", "candidate"):
            assert found.arrow(name).to_pylist() == [getattr(row, name) for row in rows]


@given(ROWS)
def test_what_is_kept_of_rows_at_once_is_what_is_kept_of_each(rows: list[SourceRow]) -> None:
    """As JSON with sorted keys, which hashes are made of."""
    (found,) = SpilledRows(FOLDER, columns_of_rows(rows)).some()
    kept = [orjson.dumps(said(row), option=orjson.OPT_SORT_KEYS).decode() if said(row) else None for row in rows]
    assert found.column("metadata") == kept == [row.metadata for row in rows]


@given(ROWS, st.data())
def test_any_rows_are_read_in_any_order(rows: list[SourceRow], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True))
    for source in (Rows.of(rows), SpilledRows(FOLDER, columns_of_rows(rows))):
        assert source.take(places).each == [rows[place] for place in places]


@given(st.lists(TEXTS, max_size=5))
def test_texts_stand_in_json_as_they_are_written(texts: list[str]) -> None:
    assert [orjson.loads(b'"%b"' % one) for one in json_each(texts)] == texts


@given(ROWS, st.integers(1, 7), st.booleans())
def test_asks_in_parts_are_the_asks(rows: list[SourceRow], n: int, is_ranking: bool) -> None:
    rows = [row._replace(rubric_id=None, candidate=row.item_id, unit_id="u") for row in rows]
    rule = RankingRule() if is_ranking else ComplianceRule()
    stage = StageSpec("s", "ranking" if is_ranking else "compliance", RowsSpec(), rule, (), (), RUBRICS)
    whole: list[Asks] = [*asks(stage, SpilledRows(FOLDER, columns_of_rows(rows)), 1)]
    parts = [part for some in whole for part in some.parts(n)]
    assert [ask for part in parts for ask in part] == [ask for some in whole for ask in some]
    assert all(len(part.rows) <= n * 2 for part in parts)
