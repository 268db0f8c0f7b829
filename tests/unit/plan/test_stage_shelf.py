"""Rows on disk while a stage is planned: they come back as they were, in id order, and memory does not hold them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.plan.asks import asks, n_asks
from batchpond.plan.items import each, pair_ids, read_any
from batchpond.plan.rows import SourceRow, SpilledRows, columns_of_rows
from batchpond.plan.write import PlannedAsks
from batchpond.study.spec import ItemsFrom, ItemsSpec, RowsSpec, StageSpec
from batchpond.tasks.compliance import ComplianceRule
from batchpond.tasks.templates import Rubric
from tests.rigs.item_columns import items_of
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
FOLDER = Path()
TEXT = "how water finds its level " * 1_000


@given(st.lists(NAMES, unique=True, max_size=40))
def test_rows_come_back_in_the_order_of_their_ids(names: list[str]) -> None:
    rows = [SourceRow(name, f"text of {name}", more={"n": number}) for number, name in enumerate(names)]
    spill = SpilledRows(FOLDER, columns_of_rows(rows))
    assert list(spill) == sorted(rows, key=lambda row: row.item_id)

    assert spill.is_in_order


def test_what_a_query_gives_comes_back_unchanged(tmp_path: Path) -> None:
    more = {"at": datetime(2026, 1, 2, tzinfo=UTC), "usd": Decimal("1.50"), "list": [1, None], "flag": True}
    row = SourceRow("a", "text", "unit", None, "model", "input", 3, more, ("be_honest",), 2)
    (found,) = SpilledRows(tmp_path, columns_of_rows([row]))
    assert found == row
    assert found.item() == row.item()
    assert list(tmp_path.iterdir()) == []


RUBRIC_IDS = st.sampled_from([None, "r1", "r2"])
BY = tuple(Rubric(f"r{number}", "name", "description") for number in (1, 2, 3))


@given(
    st.lists(st.tuples(RUBRIC_IDS, st.sampled_from([None, (), ("r1",)])), max_size=12),
    st.integers(0, len(BY)),
)
def test_the_number_of_asks_is_that_of_the_asks(told: list[tuple[str | None, tuple[str, ...] | None]], n: int) -> None:
    """Or is not told: where earlier answers chose the rubrics, or a row has one that the stage lacks."""
    rows = [SourceRow(f"{at}", "t", f"{at}", by, judged_by=chosen) for at, (by, chosen) in enumerate(told)]
    judged = StageSpec("s", "compliance", RowsSpec(), ComplianceRule(), (), (), BY[:n])
    spill = SpilledRows(FOLDER, columns_of_rows(rows))
    found = n_asks(judged, spill, None)
    if found is None:
        assert spill.is_chosen or not {by for by, _ in told} <= {None, *(rubric.rubric_id for rubric in BY[:n])}
    else:
        assert found == sum(map(len, asks(judged, spill, 1)))


@given(st.lists(st.tuples(NAMES, NAMES), max_size=40))
def test_ids_that_are_made_at_once_are_those_that_are_made_one_by_one(pairs: list[tuple[str, str]]) -> None:
    lo, hi = ([pair[place] for pair in pairs] for place in (0, 1))
    assert pair_ids(lo, hi).to_pylist() == [ids.digest("pair", *pair) for pair in pairs]


def test_an_id_that_stands_twice_is_noticed(tmp_path: Path) -> None:
    rows = [SourceRow("b", "1"), SourceRow("a", "2"), SourceRow("b", "3")]
    assert not SpilledRows(tmp_path, columns_of_rows(rows)).is_in_order
    assert len(SpilledRows(tmp_path, [])) == 0


def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    def rows(n: int) -> Iterator[SourceRow]:
        return (SourceRow(f"{number:06d}", f"{number} {TEXT}") for number in range(n))

    n = 4_000
    tracemalloc.start()
    spill = SpilledRows(tmp_path, columns_of_rows(rows(n)))
    n_bytes = sum(len(row.text) for row in spill)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_bytes > n * len(TEXT)
    assert peak_bytes < n_bytes / 5


@given(st.lists(st.integers(0, (1 << 128) - 1), max_size=30), st.integers(0, (1 << 128) - 1))
def test_planned_asks_are_known_by_all_of_their_digest(known: list[int], other: int) -> None:
    known += [value ^ 1 for value in known[:5]]  # alike but for the last bit
    planned = PlannedAsks(b"".join(value.to_bytes(16) for value in known))
    assert all(value.to_bytes(16) in planned for value in known)
    assert (other.to_bytes(16) in planned) == (other in known)
    assert all(((value ^ 2).to_bytes(16) in planned) == (value ^ 2 in known) for value in known)


@pytest.fixture
def sources(tmp_path: Path) -> dict[ItemsFrom, ItemsSpec]:
    """The same rows as CSV, JSONL and Parquet."""
    (tmp_path / "a.csv").write_bytes('\ufeffid,text,more\r\nb,"two\nlines",1\r\n\r\na,one,\r\n'.encode())
    (tmp_path / "a.jsonl").write_text('{"id":"b","text":"two\\nlines","more":"1"}\n\n{"id":"a","text":"one"}')
    pq.write_table(
        pa.table({"id": ["b", "a"], "text": ["two\nlines", "one"], "more": ["1", None]}), tmp_path / "a.parquet"
    )
    kinds = {ItemsFrom.CSV: "a.csv", ItemsFrom.JSONL: "a.jsonl", ItemsFrom.PARQUET: "a.parquet"}
    return {kind: ItemsSpec(kind, name) for kind, name in kinds.items()}


def test_items_one_by_one_are_those_that_are_read_at_once(tmp_path: Path, sources: dict[ItemsFrom, ItemsSpec]) -> None:
    for spec in sources.values():
        assert sorted(items_of(each(spec, tmp_path))) == read_any(spec, tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"id,text\na,one\nb,\nc,\n", "2 unusable items"),
        (b"id,txt\na,one\n", "no column 'text'"),
        (b"id,text\na,one\nb,\xff\n", "a.csv:3: not valid UTF-8"),
        (b"id,text\na,one,two\n", "3 fields"),
    ],
)
def test_what_is_wrong_with_items_is_told_as_when_they_are_read_at_once(
    tmp_path: Path, content: bytes, told: str
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    for read in (each, read_any):
        with pytest.raises(StudyError, match=told):
            list(read(ItemsSpec(ItemsFrom.CSV, "a.csv"), tmp_path))
    with pytest.raises(StudyError, match=r"absent\.csv"):
        list(each(ItemsSpec(ItemsFrom.CSV, "absent.csv"), tmp_path))


def test_a_plan_says_in_which_lines_an_id_stands_twice(tmp_path: Path) -> None:
    answers = stage(
        "answers", "generation", 'path = "inputs.csv"', f"---{RUBRICS}{use('question')}{models('gpt-4o-mini')}"
    )
    rig = StageRig(tmp_path / "rig", toml=f'study = "demo"\n{answers}', n_inputs=2)
    path = rig.study_path.parent / "inputs.csv"
    path.write_text(path.read_text() + "in0,again,be_honest\n")
    with pytest.raises(StudyError, match=r"line 4: id 'in0' stands in line 2 already"):
        rig.plan()
