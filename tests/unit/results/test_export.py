"""Exports: the same rows in every format, nothing overwritten, nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import LakeError, UsageError
from batchpond.results.export import ExportFormat, export
from tests.rigs.lakes import LakeBuilder
from tests.rigs.swept import examples

FORMULAS = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\rx", "\n=1", " =1", "\u200b=cmd", "\ufeff=1", "\u00a0\u200d+1",
    "\uff1d1", "\u2060@x", "-",
]  # fmt: skip
PLAIN = ["better: SAMPLE_1", "a=b", "1-2", "'=x", "x\n=1", "ünï", ""]


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    """Two batches, a request without one, and answers that look like formulas."""
    lake = LakeBuilder(tmp_path / "lake")
    texts = FORMULAS + PLAIN
    lake.plan([{"slot": n, "request_id": f"r{n:02d}"} for n in range(len(texts) + 1)])
    half = len(texts) // 2
    for attempt, start, stop in (("A1", 0, half), ("A2", half, len(texts))):
        requests = [f"r{n:02d}" for n in range(start, stop)]
        lake.sent(attempt, f"S-{attempt}", requests)
        lake.lines(
            attempt,
            [
                {"request_id": request, "text": text, "outcome": "unparsed", "input_tokens": 5, "cost_usd": -0.5}
                for request, text in zip(requests, texts[start:stop], strict=True)
            ],
        )
    lake.build()
    return lake


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_every_format_holds_the_same_rows_in_the_order_of_the_grain(lake: LakeBuilder, tmp_path: Path) -> None:
    """Parquet, JSON lines and CSV agree on slots and states; Parquet and JSON keep the text as it is."""
    paths = {form: export(lake.path, tmp_path / f"out.{form}", format=form)[0] for form in ExportFormat}
    table = pq.read_table(paths[ExportFormat.PARQUET])
    lines = [json.loads(line) for line in paths[ExportFormat.JSONL].read_text("utf-8").splitlines()]
    cells = _csv(paths[ExportFormat.CSV])
    slots = list(range(len(FORMULAS + PLAIN) + 1))
    assert table.column("slot").to_pylist() == slots
    assert [line["slot"] for line in lines] == slots
    assert [int(row["slot"]) for row in cells] == slots
    assert table.column("text").to_pylist() == [*FORMULAS, *PLAIN, None]
    assert [line["text"] for line in lines] == [*FORMULAS, *PLAIN, None]
    assert [row["request_state"] for row in cells] == table.column("request_state").to_pylist()


def test_csv_defuses_formulas_in_text_and_leaves_numbers_alone(lake: LakeBuilder, tmp_path: Path) -> None:
    """What a spreadsheet would run gets a quote before it, whatever invisible characters hide it."""
    (path,) = export(lake.path, tmp_path / "out.csv", format=ExportFormat.CSV)
    rows = _csv(path)
    assert [row["text"] for row in rows][: len(FORMULAS)] == [f"'{text}" for text in FORMULAS]
    assert [row["text"] for row in rows][len(FORMULAS) : -1] == PLAIN
    assert rows[0]["cost_usd"] == "-0.5"


def test_defusing_can_be_turned_off(lake: LakeBuilder, tmp_path: Path) -> None:
    """For programs that are not spreadsheets."""
    (path,) = export(lake.path, tmp_path / "out.csv", format=ExportFormat.CSV, defuse_formulas=False)
    assert [row["text"] for row in _csv(path)][: len(FORMULAS)] == FORMULAS


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
formulas = st.tuples(st.sampled_from(["=", "+", "-", "@", " =", "\t+", "\n-", "\u3000@"]), words).map("".join)


@settings(max_examples=examples(8), deadline=None)
@given(st.lists(words | formulas, min_size=40, max_size=60))
def test_no_text_starts_a_formula_in_csv(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """Round trip: a cell is the text or the text behind a quote, and never begins like a formula."""
    folder = tmp_path_factory.mktemp("texts")
    lake = LakeBuilder(folder / "lake")
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(len(texts))])
    lake.sent("A1", "S1", [f"r{n}" for n in range(len(texts))])
    lake.lines("A1", [{"request_id": f"r{n}", "text": text} for n, text in enumerate(texts)])
    lake.build()
    (path,) = export(lake.path, folder / "out.csv", format=ExportFormat.CSV)
    for text, row in zip(texts, _csv(path), strict=True):
        assert row["text"] in {text, f"'{text}"}
        assert not row["text"].lstrip().startswith(tuple("=+-@"))


def test_per_batch_writes_one_file_per_batch_and_leaves_out_what_has_none(lake: LakeBuilder, tmp_path: Path) -> None:
    """Every row of a batch is in its file and in no other."""
    paths = export(lake.path, tmp_path / "batches", format=ExportFormat.PARQUET, per_batch=True)
    assert [path.name for path in paths] == ["batch-A1-A1.parquet", "batch-A2-A2.parquet"]
    rows = [pq.read_table(path).select(["attempt_id", "slot"]).to_pylist() for path in paths]
    assert [{row["attempt_id"] for row in part} for part in rows] == [{"A1"}, {"A2"}]
    assert sorted(row["slot"] for part in rows for row in part) == list(range(len(FORMULAS + PLAIN)))


def test_a_provider_s_batch_id_never_becomes_a_path(tmp_path: Path) -> None:
    """Separators, dots and quotes in ids do not leave the folder or break the SQL."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}])
    for attempt, request in (("a/../../x", "r1"), ("o'brien", "r2")):
        lake.sent(attempt, f"S{request}", [request])
    lake.build()
    paths = export(lake.path, tmp_path / "out", format=ExportFormat.CSV, per_batch=True)
    assert {path.parent for path in paths} == {tmp_path / "out"}
    assert sorted(path.name for path in paths) == ["batch-a_______x-a_______x.csv", "batch-o_brien-o_brien.csv"]
    assert [len(_csv(path)) for path in paths] == [1, 1]


@pytest.mark.parametrize("per_batch", [False, True])
def test_an_existing_file_is_only_replaced_when_told_to(lake: LakeBuilder, tmp_path: Path, per_batch: bool) -> None:
    """The file keeps its bytes, nothing else is left behind, and --force replaces it."""
    target = tmp_path / ("out" if per_batch else "out.csv")
    first = export(lake.path, target, format=ExportFormat.CSV, per_batch=per_batch)[0]
    first.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        export(lake.path, target, format=ExportFormat.CSV, per_batch=per_batch)
    assert first.read_text() == "mine"
    export(lake.path, target, format=ExportFormat.CSV, per_batch=per_batch, force=True)
    assert first.read_text() != "mine"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert not list(tmp_path.rglob("*.part"))


def test_wrong_calls_say_what_to_do(lake: LakeBuilder, tmp_path: Path) -> None:
    """Unknown view, a view without batches, a folder that does not exist."""
    with pytest.raises(UsageError, match="no view"):
        export(lake.path, tmp_path / "x.csv", format=ExportFormat.CSV, view='results"; drop view results; --')
    with pytest.raises(UsageError, match="which batch"):
        export(lake.path, tmp_path / "x", format=ExportFormat.CSV, per_batch=True, view="coverage")
    with pytest.raises(UsageError, match="does not exist"):
        export(lake.path, tmp_path / "nowhere" / "x.csv", format=ExportFormat.CSV)


def test_a_failed_export_leaves_nothing_behind(lake: LakeBuilder, tmp_path: Path) -> None:
    """A lake file that vanished ends the export with an error and no file that lacks its rows."""
    next(iter(lake.store.files("responses"))).unlink()
    with pytest.raises(LakeError, match=r"responses/.*it was published and is not there"):
        export(lake.path, tmp_path / "x.csv", format=ExportFormat.CSV)
    assert list(tmp_path.glob("*x.csv*")) == []
