"""The lake tells the truth about itself: to the program, to plain DuckDB, and wherever it was moved to."""

from __future__ import annotations

import csv
import io
import shutil
import tarfile
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.rigs.fake_openai import FIRST, FakeOpenAI, error, fake_openai
from tests.rigs.program import STUDY, N, Program
from tests.rigs.small_disk import make_read_only, mounted

LAKES = Path(__file__).parents[1] / "golden" / "lakes"
FORMULA = "=HYPERLINK(1) "
DISK_BYTES = 16 << 20
CLOSED = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def planned_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of which nothing is sent yet."""
    folder = tmp_path_factory.mktemp("planned")
    Program(folder, CLOSED).prepare()
    return folder


@pytest.fixture
def planned(account: FakeOpenAI, planned_study: Path, tmp_path: Path) -> Program:
    """A copy of the planned study, and a provider for it."""
    shutil.copytree(planned_study, tmp_path / "copy")
    return Program(tmp_path / "copy", account.url)


@pytest.fixture(scope="module")
def finished_study(planned_study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose answers are all there, in the words of a model that writes formulas."""
    folder = tmp_path_factory.mktemp("finished") / "study"
    shutil.copytree(planned_study, folder)
    with fake_openai() as account:
        account.text = FORMULA + FIRST
        program = Program(folder, account.url)
        assert program.submit().returncode == 0
        assert program.sync().returncode == 0
    return folder


@pytest.fixture
def finished(finished_study: Path, tmp_path: Path) -> Program:
    """A copy of the finished study, whose provider is gone."""
    shutil.copytree(finished_study, tmp_path / "copy")
    return Program(tmp_path / "copy", CLOSED)


def file_of(program: Program, pattern: str) -> Path:
    (found,) = (program.folder / "lake").glob(pattern)
    return found


def test_days_and_hours_are_those_of_utc_wherever_the_lake_is_read(finished: Program) -> None:
    """Sums by day, and rows that SQL of a stage chooses, are the same on every machine, and through daylight saving."""
    finished.more["TZ"] = "America/New_York"
    sql = "SELECT DISTINCT hour(TIMESTAMPTZ '2026-07-01 02:00:00+00') AS h FROM batches"
    assert finished.run("query", sql, "--format", "csv").stdout.split() == ["h", "2"]


# -- bytes that changed ----------------------------------------------------------------------------


def test_a_flipped_bit_is_found_by_who_looks_at_every_byte(finished: Program) -> None:
    """Defect 2.5: one bit of a page of raw lines: `doctor --deep` names the file, and how to get it again."""
    path = file_of(finished, "raw/**/*.parquet")
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    told = finished.run("doctor", "--deep")
    assert told.returncode == 5
    (row,) = (row for row in told.stdout.splitlines() if path.name in row)
    assert "--refetch" in row


def test_a_deleted_event_is_noticed(finished: Program) -> None:
    """Defect 2.5: the record that a batch was sent is gone: a pass sends nothing and says which file is not there."""
    path = file_of(finished, "events/sent-*.parquet")
    path.unlink()
    for command in ("sync", "doctor"):
        told = finished.run(command)
        assert told.returncode == 5
        assert path.name in told.stdout + told.stderr


def test_an_intent_that_says_something_else_is_the_lakes_damage(finished: Program, account: FakeOpenAI) -> None:
    """Defect 4.8: one bit of its text: its file is named, no defect of ours is, and nothing is sent for want of it."""
    events = (finished.folder / "lake" / "events").glob("*.parquet")
    (path,) = (path for path in events if pq.read_table(path)["kind"].to_pylist() == ["intent"])
    row_group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [row_group.column(n) for n in range(row_group.num_columns)]
    (kind,) = (column for column in columns if column.path_in_schema == "kind")
    data = bytearray(path.read_bytes())
    data[kind.data_page_offset - 3] ^= 1  # what stands before is the dictionary, which ends with the word
    path.write_bytes(data)
    for command in (("sync",), ("submit", STUDY, "--yes")):
        told = finished.run(*command)
        assert told.returncode == 5, told.stderr
        assert path.name in told.stderr, told.stderr
        assert "unexpected" not in told.stderr
    assert account.batches == []


def test_doctor_looks_at_a_lake_that_it_may_not_write_to(finished: Program, tmp_path: Path) -> None:
    """Defect 4.7: on a read-only disk every check is made but who writes, which cannot be told there."""
    with mounted(tmp_path / "disk", DISK_BYTES) as disk:
        shutil.copytree(finished.folder / "lake", disk / "lake")
        make_read_only(disk)
        finished.lake = str(disk / "lake")
        told = finished.run("doctor")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "none of 1 needs a decision" in told.stdout
    assert "cannot be told from here" in told.stdout


def test_a_lake_of_the_first_days_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Defect 2.6: its columns are others: each command says so, and no line is the program's own failure."""
    with tarfile.open(LAKES / "of_6ddc426.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    program = Program(tmp_path, CLOSED)
    for command in (("sync",), ("status",)):
        told = program.run(*command)
        assert told.returncode == 5, told.stderr
        assert "unexpected" not in told.stderr
        assert "hint: " in told.stderr


# -- readers of every kind -------------------------------------------------------------------------


def test_each_event_stands_once_under_a_plain_glob(account: FakeOpenAI, tmp_path: Path) -> None:
    """Defect D3 of mission: compacted events do not stand beside the files that they were made of."""
    program = Program(tmp_path, account.url)
    program.prepare(n_items=8, max_requests=1)
    assert program.submit().returncode == 0
    assert program.sync().returncode == 0
    assert list((tmp_path / "lake" / "events").glob("c-*")), "there was nothing to compact"
    glob = f"{tmp_path}/lake/events/**/*.parquet"
    ((n, n_different),) = duckdb.execute(f"select count(*), count(distinct event_id) from '{glob}'").fetchall()
    assert n == n_different


def test_a_copied_lake_reads_its_own_files(finished: Program, finished_study: Path) -> None:
    """Defect D4 of mission: plain DuckDB reads the copy's files from anywhere, never the original's beside it."""

    def answered() -> int:
        with duckdb.connect(finished.folder / "lake" / "batchpond.duckdb", read_only=True) as connection:
            ((n,),) = connection.execute("select count(*) from results where outcome = 'decided'").fetchall()
        return int(n)

    assert answered() == N
    shutil.rmtree(finished.folder / "lake" / "responses")
    assert list((finished_study / "lake" / "responses").rglob("*.parquet"))
    with pytest.raises(duckdb.IOException, match="No files found"):
        answered()


def test_what_a_spreadsheet_opens_holds_no_formula(finished: Program) -> None:
    """Defect 4.3: what models answered, and what a query puts together, come out as CSV that nothing runs."""
    results = finished.run("results", "--format", "csv")
    asked = finished.run("query", "select '@sum(1)' as a, text from results", "--format", "csv")
    for done in (results, asked):
        assert done.returncode == 0
        assert FORMULA in done.stdout
        cells = [cell for row in csv.reader(io.StringIO(done.stdout)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "\t"))]


# -- figures ---------------------------------------------------------------------------------------


def test_an_attempt_that_was_proven_absent_is_not_open(account: FakeOpenAI, planned: Program) -> None:
    """Defect 2.7: `audit` counts it neither as settled nor as open; the batch that came after it is in balance."""
    account.refusals = [error(500)]
    planned.submit()
    planned.sync()
    assert planned.sync().returncode == 0
    assert "1 settled batch in balance, 0 still open" in planned.run("audit").stderr


def test_no_batch_is_of_a_negative_age(account: FakeOpenAI, planned: Program) -> None:
    """Defect D11 of wires: a provider whose clock is two days ahead makes no batch younger than nothing."""
    account.is_held, account.age_s = True, -176_400
    assert planned.submit().returncode == 0
    (row,) = planned.rows("select oldest_open_age_s from report_status")
    assert row["oldest_open_age_s"] == 0
