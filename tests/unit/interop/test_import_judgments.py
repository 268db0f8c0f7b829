"""Imported judgments: all or nothing, once, with true line numbers, and into the same metrics."""

from __future__ import annotations

import csv
import io
import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.cli.frame import Invocation, root
from batchpond.errors import BusyError, UsageError
from batchpond.interop.imports import WORDS, ImportReport, import_judgments
from batchpond.lake.schemas import IMPORTED_JUDGMENTS
from batchpond.lake.store import Store
from batchpond.model import Outcome
from batchpond.views import database
from tests.rigs.lakes import OK, LakeBuilder
from tests.rigs.swept import IS_ALL

HEADER = "item_first,item_second,verdict\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's input files stand."""
    return tmp_path


def write(folder: Path, text: str | bytes, name: str = "judgments.csv") -> Path:
    """Write an input file, bytes as given."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def imported(store: Store) -> list[dict[str, Any]]:
    """Return everything that the lake holds, from the files themselves."""
    files = store.files("imported_judgments")
    return pl.concat([pl.read_parquet(file) for file in files]).sort("import_key").to_dicts() if files else []


def state(store: Store) -> dict[str, bytes]:
    """Return every file of the lake but its lock."""
    return {
        str(path.relative_to(store.path)): path.read_bytes()
        for path in sorted(store.path.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refusal(store: Store, path: Path) -> UsageError:
    """Return the error of an import that must change nothing."""
    before = state(store)
    with pytest.raises(UsageError) as caught:
        import_judgments(store, path)
    assert state(store) == before
    return caught.value


def test_missing_columns_get_the_stated_defaults(store: Store, folder: Path) -> None:
    """The three needed columns are enough; the rest says that it was not said."""
    path = write(folder, HEADER + "A,B,first\n")
    assert import_judgments(store, path) == ImportReport(path, 1, 1, 0, 0)
    (row,) = imported(store)
    expected = {
        "study": "imported", "template_id": "unspecified", "rubric_id": "unspecified", "provider": "unspecified",
        "request_model": "unspecified", "thinking": "unspecified", "unit_id": "", "item_first": "A", "item_second": "B",
        "repeat_no": 1, "verdict": "first", "outcome": "decided", "confidence": None, "input_tokens": None,
        "output_tokens": None, "cost_usd": None, "source": "judgments.csv:2",
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_every_column_arrives(store: Store, folder: Path) -> None:
    """All columns of a CSV are kept, numbers as pandas and R write them included."""
    text = (
        "study,template_id,rubric_id,provider,model,thinking,unit_id,item_first,item_second,repeat_no,verdict,confidence,"
        "input_tokens,output_tokens,cost_usd\n"
        "s,t,r,p,m,low,u,A,B,2.0,tie,0.75,120.0,7,1.5e-3\n"
        ",,,,,,,A,B,,second,NA,NaN,,nan\n"
    )
    import_judgments(store, write(folder, text), study="pilot")
    one, two = sorted(imported(store), key=lambda row: str(row["study"]), reverse=True)
    assert (one["request_model"], one["repeat_no"], one["outcome"], one["verdict"]) == ("m", 2, "tie", "tie")
    assert (one["confidence"], one["input_tokens"], one["output_tokens"], one["cost_usd"]) == (0.75, 120, 7, 0.0015)
    assert (two["study"], two["thinking"], two["repeat_no"], two["confidence"]) == ("pilot", "unspecified", 1, None)
    assert (two["input_tokens"], two["cost_usd"]) == (None, None)


def test_tabs_separate_as_commas_do(store: Store, folder: Path) -> None:
    """A .tsv is the .csv of the same rows, and lines are named alike."""
    rows = HEADER + 'A,B,first\nC,"D, or E",tie\n'
    import_judgments(store, write(folder, rows))
    again = import_judgments(
        store, write(folder, HEADER.replace(",", "\t") + "A\tB\tfirst\nC\tD, or E\ttie\n", "j.tsv")
    )
    assert (again.n_rows, again.n_new, again.n_known) == (2, 0, 2)
    wrong = write(folder, HEADER.replace(",", "\t") + "A\tB\n", "wrong.tsv")
    assert "line 2 has 2 fields, the header has 3" in refusal(store, wrong).message


def test_every_outcome_word_is_understood(store: Store, folder: Path) -> None:
    """first, second and tie are verdicts; every other outcome is an answer without one."""
    import_judgments(store, write(folder, HEADER + "".join(f"A,B{n},{word}\n" for n, word in enumerate(WORDS))))
    got = {row["outcome"]: row["verdict"] for row in imported(store)}
    assert got.pop("decided") in {"first", "second"}
    assert got.pop("tie") == "tie"
    assert got == dict.fromkeys(set(Outcome) - {"decided", "tie"})


def test_a_tie_that_says_why_is_a_tie_with_that_label(store: Store, folder: Path) -> None:
    """By the verdict's own word, with the outcome beside it or not; of a single item there is none."""
    rows = "item_first,item_second,verdict,outcome\nA,B,both_bad,\nA,C,both_good,tie\nA,D,tie,\n"
    import_judgments(store, write(folder, rows))
    got = {(row["item_second"], row["verdict"], row["outcome"], row["label"]) for row in imported(store)}
    assert got == {("B", "tie", "tie", "both_bad"), ("C", "tie", "tie", "both_good"), ("D", "tie", "tie", None)}
    with pytest.raises(UsageError, match="both_bad"):
        import_judgments(store, write(folder, "item_first,verdict,task\nA,both_bad,compliance\n"))


def test_importing_again_changes_nothing(store: Store, folder: Path) -> None:
    """The same rows, in whatever file, order and number, are a no-op down to the bytes of the lake."""
    import_judgments(store, write(folder, HEADER + "A,B,first\nB,A,second\nA,C,unparsed\n"))
    before = state(store)
    again = import_judgments(store, write(folder, HEADER + "A,C,unparsed\nA,B,first\nB,A,second\nA,B,first\n", "b.csv"))
    assert (again.n_rows, again.n_new, again.n_known, again.n_repeated) == (4, 0, 4, 0)
    assert state(store) == before


def test_only_new_rows_are_added(store: Store, folder: Path) -> None:
    """An extended file adds its new rows, once each, and its first line counts."""
    import_judgments(store, write(folder, HEADER + "A,B,first\n"))
    path = write(folder, HEADER + "A,B,first\nA,C,tie\nA,C,tie\nA,D,second\n", "more.csv")
    report = import_judgments(store, path)
    assert (report.n_rows, report.n_new, report.n_known, report.n_repeated) == (4, 2, 1, 1)
    assert sorted(row["source"] for row in imported(store)) == ["judgments.csv:2", "more.csv:3", "more.csv:5"]


def test_the_file_name_is_a_function_of_the_content(folder: Path) -> None:
    """Two lakes that import the same rows from differently named files hold a file of the same name."""
    found = []
    for name, rows in (("a", "A,B,first\nC,D,tie\n"), ("b", "A,B,first\nC,D,tie\n"), ("c", "A,B,second\nC,D,tie\n")):
        lake = Store.init(folder / name)
        import_judgments(lake, write(folder, HEADER + rows, f"{name}.csv"))
        found += [file.name for file in lake.files("imported_judgments")]
    assert found[0] == found[1] != found[2]


def test_a_contradiction_in_the_file_names_both_lines(store: Store, folder: Path) -> None:
    """The same judgment with two verdicts: both line numbers, and nothing is imported."""
    error = refusal(store, write(folder, HEADER + "A,B,first\nA,C,first\nA,B,second\nA,C,unparsed\n"))
    assert "line 4 says second, line 2 says first" in error.message
    assert "line 5 says unparsed, line 3 says first" in error.message
    assert "repeat_no" in (error.hint or "")


def test_a_contradiction_with_the_lake_names_line_and_source(store: Store, folder: Path) -> None:
    """A verdict that the lake has otherwise: the line and where the lake's comes from; the good rows stay out too."""
    import_judgments(store, write(folder, HEADER + "X,Y,tie\nA,B,first\n", "early.csv"))
    error = refusal(store, write(folder, HEADER + "A,C,first\nA,B,error\n"))
    assert "line 3 says error, already in the lake from early.csv:3 as first" in error.message


def test_keys_do_not_run_together(store: Store, folder: Path) -> None:
    """("ab", "c") and ("a", "bc") are different judgments, and NULL, empty and default are one."""
    path = write(folder, "unit_id,thinking,item_first,item_second,verdict\nab,c,A,B,first\na,bc,A,B,second\n")
    assert import_judgments(store, path).n_new == 2
    path = write(folder, "thinking,item_first,item_second,verdict\nunspecified,A,B,tie\n,A,B,tie\n", "b.csv")
    assert import_judgments(store, path).n_repeated == 1


BAD_ROWS = [
    ("A,,first", "line 2 has no item_second"),
    ("  ,B,first", "line 2 has no item_first"),
    ("A,A,first", "line 2 judges 'A' against itself"),
    ("A,B,", "line 2 has no verdict"),
    ("A,B,First", "line 2 has verdict 'First'"),
    ("A,B,decided", "line 2 has verdict 'decided'"),
    ("A,B", "line 2 has 2 fields, the header has 3"),
    ("A,B,first,x", "line 2 has 4 fields, the header has 3"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_a_bad_row_is_named(store: Store, folder: Path, row: str, message: str) -> None:
    """Each kind of bad row is told with its line, and the good rows around it are not imported."""
    error = refusal(store, write(folder, HEADER + row + "\nC,D,first\n"))
    assert f"1 row cannot be imported:\n  {message}" in error.message
    assert error.exit_code == 2


def test_two_unicode_forms_of_an_id_are_told(store: Store, folder: Path) -> None:
    """They look alike, and would be two items with half the judgments each."""
    error = refusal(store, write(folder, HEADER + "caf\u00e9,B,first\ncafe\u0301,B,second\nC,cafe\u0300,first\n"))
    assert (
        "1 row cannot be imported:\n  line 3 has 'cafe\u0301', which stands in the file in another Unicode form"
        in error.message
    )


def test_a_nul_in_an_id_is_told(store: Store, folder: Path) -> None:
    path = folder / "nul.parquet"
    pl.DataFrame({"item_first": ["a\0b"], "item_second": ["c"], "verdict": ["first"]}).write_parquet(path)
    assert "holds a NUL" in refusal(store, path).message


def test_a_file_without_rows_is_said_to_have_none(folder: Path) -> None:
    path = write(folder, HEADER)
    result = CliRunner().invoke(
        root, ["--lake", str(folder / "lake"), "import", "judgments", str(path)], obj=Invocation()
    )
    assert result.exit_code == 0
    assert "has no row: nothing was imported" in result.stderr
    assert "metric_consistency" not in result.stderr


BAD_NUMBERS = [
    ("repeat_no", ["0", "-1", "1.5", "x", "1e3", "99999999999"]),
    ("confidence", ["1.01", "-0.1", "high", "inf"]),
    ("input_tokens", ["-5", "1.5", "many", "1e2"]),
    ("output_tokens", ["-5", "99999999999999999999"]),
    ("cost_usd", ["-0.1", "$1", "inf"]),
]


@pytest.mark.parametrize(("column", "value"), [(column, value) for column, values in BAD_NUMBERS for value in values])
def test_a_bad_number_is_named(store: Store, folder: Path, column: str, value: str) -> None:
    """A number that cannot be is an error, never NULL, 0 or rounded."""
    text = f"item_first,item_second,verdict,{column}\nA,B,first,\nA,C,first,{value}\n"
    assert f"line 3 has {column} '{value}'" in refusal(store, write(folder, text)).message


def test_many_bad_rows_are_counted_and_the_first_shown(store: Store, folder: Path) -> None:
    """The list is bounded, in line order, over both kinds of problems."""
    rows = "".join("A,B\n" if number % 2 else "A,A,first\n" for number in range(1000))
    error = refusal(store, write(folder, HEADER + rows))
    lines = error.message.splitlines()
    assert lines[0].endswith("1,000 rows cannot be imported:")
    assert [line.split()[1] for line in lines[1:21]] == [str(number) for number in range(2, 22)]
    assert lines[21:] == ["  and 980 more"]


@pytest.mark.parametrize(
    ("row", "named"),
    [("a,b,better", "verdict is one of"), ("a,a,first", None), ("a,b", None), ("a,b,", "verdict is one of")],
)
def test_the_hint_names_the_words_of_what_is_wrong_alone(
    store: Store, folder: Path, row: str, named: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        import_judgments(store, write(folder, f"{HEADER}{row}\n"))
    hint = caught.value.hint or ""
    assert hint.endswith("nothing was imported")
    assert (named in hint) if named else hint == "nothing was imported"


def test_line_numbers_are_those_of_the_file(store: Store, folder: Path) -> None:
    """Quoted newlines, blank lines, CRLF and a byte order mark do not shift the numbers."""
    text = '\ufeffitem_first,item_second,verdict\r\n"A\r\n2","B\n\n",first\r\n\r\nC,D,nonsense\r\n"E\n,",F,\n'
    lines = refusal(store, write(folder, text)).message.splitlines()
    assert lines[1:] == ["  line 7 has verdict 'nonsense'", "  line 8 has no verdict"]
    good = import_judgments(
        store, write(folder, text.replace("nonsense", "tie").replace("F,\n", "F,second\n"), "g.csv")
    )
    assert good.n_new == 3
    assert {row["item_first"] for row in imported(store)} == {"A\r\n2", "C", "E\n,"}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("item_first,item_secnd,verdict", "'item_secnd' (did you mean 'item_second'?)"),
        ("ID1,ID2,better_id", "'ID1' (did you mean 'item_first'?)"),
        ("item_first,item_second,verdict,trait", "(did you mean 'rubric_id'?)"),
        ("item_first,item_second,verdict,zzz", "unknown column 'zzz'"),
        ("item_second,verdict", "no column 'item_first'"),
        ("item_first,item_second,verdict,verdict", "'verdict' stands in the header more than once"),
        ("", "no column 'item_first'"),
    ],
)
def test_a_wrong_header_is_explained(store: Store, folder: Path, header: str, message: str) -> None:
    """Unknown, missing and repeated columns are errors that say what was meant."""
    assert message in refusal(store, write(folder, header + ("\nA,B,first\n" if header else ""))).message


def test_judgments_of_every_task_come_in(store: Store, folder: Path) -> None:
    """A task, a candidate, a turn, a label, a score and what was simulated are kept as they stand."""
    text = (
        "task,study,provider,request_model,rubric_id,unit_id,item_first,item_second,candidate_first,candidate_second,"
        "turn_no,verdict,outcome,label,score,direction,explanation,origin\n"
        "compliance,s,human,anna,honest,q1,o1,,m1,,,,decided,compliant,0.9,,because,\n"
        "compliance,s,human,anna,honest,q2,o2,,m1,,,,unsure,,,,,\n"
        "likert,s,p,m,kind,q1,o1,,m1,,,,,,4,,,simulated\n"
        "pressure,s,p,m,,q1,a1,,m1,,2,,,soft_flip,,,,live\n"
        "prompts,s,p,m,,,i1,,,,,true,decided,,,,,\n"
        "ranking,s,p,m,honest,q1,o1,o2,m1,m2,,tie,tie,,,,,\n"
        ",s,p,m,,,a,b,,,,second,,,,reverse,,batch\n"
    )
    report = import_judgments(store, write(folder, text))
    assert (report.n_rows, report.n_new, report.n_left_out) == (7, 7, 0)
    with database.connect(store.path) as connection:
        items = connection.sql(
            "SELECT task, item, candidate, turn_no, verdict, outcome, label, score, origin FROM item_judgments"
            " ORDER BY task, item"
        ).fetchall()
        pairs = connection.sql(
            "SELECT item_first, item_second, candidate_first, direction, verdict, outcome, origin FROM pair_judgments"
            " ORDER BY item_first"
        ).fetchall()
    assert items == [
        ("compliance", "o1", "m1", None, None, "decided", "compliant", 0.9, "imported"),
        ("compliance", "o2", "m1", None, None, "unsure", None, None, "imported"),
        ("likert", "o1", "m1", None, None, "decided", None, 4.0, "simulated"),
        ("pressure", "a1", "m1", 2, None, "decided", "soft_flip", None, "imported"),
        ("prompts", "i1", None, None, "true", "decided", None, None, "imported"),
    ]
    assert pairs == [
        ("a", "b", None, "reverse", "second", "decided", "imported"),
        ("o1", "o2", "m1", None, "tie", "tie", "imported"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("generation,a,,,,,,", "line 2 has task 'generation'"),
        ("likert,a,b,,,4,,", "line 2 has item_second, which likert does not judge"),
        ("likert,a,,,,,,", "line 2 has no verdict"),
        ("likert,a,,,,many,,", "line 2 has score 'many', not a number"),
        ("likert,a,,,,nan,,", "line 2 has no verdict"),
        ("likert,a,,,decided,,,", "line 2 has no verdict"),
        ("likert,a,,perhaps,,4,,", "line 2 has verdict 'perhaps'"),
        (",a,b,,decided,,,", "line 2 has verdict 'decided'"),
        (",a,b,first,refused,,,", "line 2 has a verdict and outcome 'refused'"),
        (",a,b,true,,,,", "line 2 has verdict 'true'"),
        (",a,b,first,,,backwards,", "line 2 has direction 'backwards'"),
        (",a,b,first,,,,dreamt", "line 2 has origin 'dreamt'"),
    ],
)
def test_what_a_task_cannot_say_is_named(store: Store, folder: Path, row: str, message: str) -> None:
    """A row that its task, or another of its columns, contradicts is an error with its line."""
    header = "task,item_first,item_second,verdict,outcome,score,direction,origin\n"
    assert message in refusal(store, write(folder, header + row + "\n")).message


def test_another_separator_is_recognised(store: Store, folder: Path) -> None:
    """A spreadsheet that separates by semicolons or tabs says the same as one that separates by commas."""
    for mark in (";", "\t", ","):
        rows = "item_first,item_second,verdict\nA,B,first\n".replace(",", mark)
        import_judgments(store, write(folder, rows))
    (row,) = imported(store)
    assert (row["item_first"], row["item_second"], row["verdict"]) == ("A", "B", "first")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"A,B,first\nA,\xff,first\n", "line 3 is not UTF-8"),
        (b'A,B,first\nA,"B,first\nC,D,tie\n', "the record that starts on line 3 is not CSV"),
        (b'A,B,first\nA,"B"x,first\n', "the record that starts on line 3 is not CSV"),
        (b"A,B,first\nA," + b"B" * 1_100_000 + b",first\n", "line 3 is longer than"),
    ],
)
def test_text_that_is_not_csv_is_refused(store: Store, folder: Path, data: bytes, message: str) -> None:
    """Bytes that cannot be read as CSV stop the import with the line."""
    assert message in refusal(store, write(folder, HEADER.encode() + data)).message


@pytest.mark.parametrize("name", ["judgments.txt", "judgments.json", "judgments"])
def test_other_formats_are_refused(store: Store, folder: Path, name: str) -> None:
    """Only .csv, .tsv and .parquet are read."""
    assert "neither a .csv, a .tsv nor a .parquet file" in refusal(store, write(folder, HEADER, name)).message


def test_unreadable_files_are_refused(store: Store, folder: Path) -> None:
    """A missing file, a folder and a broken Parquet file are plain errors."""
    assert "cannot be read" in refusal(store, folder / "none.csv").message
    (folder / "f.csv").mkdir()
    assert "cannot be read" in refusal(store, folder / "f.csv").message
    assert "not a readable Parquet file" in refusal(store, write(folder, "no", "bad.parquet")).message


def parquet(folder: Path, name: str = "judgments.parquet", **columns: Any) -> Path:
    """Write a Parquet file."""
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_is_read_with_its_types(store: Store, folder: Path) -> None:
    """Integers, floats with gaps, categories and NaN arrive as in a CSV, and rows are numbered from 1."""
    path = parquet(
        folder,
        item_first=[1, 2, 3],
        item_second=pa.array(["x", "y", "z"]).dictionary_encode(),
        verdict=["first", "tie", "error"],
        repeat_no=[1.0, 2.0, None],
        confidence=[0.1, float("nan"), None],
        input_tokens=pa.array([100, None, 7], pa.int32()),
        cost_usd=[1e-7, 0.25, None],
    )
    assert import_judgments(store, path).n_new == 3
    rows = sorted(imported(store), key=lambda row: str(row["item_first"]))
    assert [row["item_first"] for row in rows] == ["1", "2", "3"]
    assert [row["repeat_no"] for row in rows] == [1, 2, 1]
    assert [row["confidence"] for row in rows] == [0.1, None, None]
    assert [row["cost_usd"] for row in rows] == [1e-7, 0.25, None]
    assert [row["input_tokens"] for row in rows] == [100, None, 7]
    assert rows[2]["source"] == "judgments.parquet:3"


def test_parquet_problems_name_rows_and_columns(store: Store, folder: Path) -> None:
    """A bad value is told with its row, a column of a wrong type with its type."""
    bad = parquet(folder, item_first=["A", "A"], item_second=["B", "A"], verdict=["first", "first"])
    assert "row 2 judges 'A' against itself" in refusal(store, bad).message
    nested = parquet(folder, "n.parquet", item_first=["A"], item_second=[["B"]], verdict=["first"])
    assert "column 'item_second' has type list<" in refusal(store, nested).message
    unknown = parquet(folder, "u.parquet", item_first=["A"], item_second=["B"], verdikt=["first"])
    assert "(did you mean 'verdict'?)" in refusal(store, unknown).message


def test_csv_and_parquet_are_the_same_judgments(store: Store, folder: Path) -> None:
    """What came from a CSV is known when it comes from Parquet."""
    import_judgments(store, write(folder, "item_first,item_second,verdict,repeat_no\nA,B,first,1\nB,A,tie,2\n"))
    path = parquet(folder, item_first=["A", "B"], item_second=["B", "A"], verdict=["first", "tie"], repeat_no=[1, 2])
    assert import_judgments(store, path).n_known == 2


def test_an_empty_file_imports_nothing(store: Store, folder: Path) -> None:
    """A header without rows is fine and publishes no file."""
    assert import_judgments(store, write(folder, HEADER)).n_rows == 0
    assert store.files("imported_judgments") == []


def test_what_the_lake_asked_itself_does_not_count_twice(folder: Path) -> None:
    """Its own `results`, brought back by mistake, are told by batch and custom_id; another lake's come in."""
    asked = LakeBuilder(folder / "asked")
    asked.plan([{"slot": n, "request_id": f"r{n}", "item_second": f"b{n}"} for n in (1, 2)])
    asked.sent("A1", "S1", ["r1", "r2"])
    asked.lines("A1", [{"request_id": "r1"} | OK, {"request_id": "r2"} | OK])
    asked.ended("A1")
    results = folder / "results.csv"
    pl.DataFrame(asked.query("SELECT * FROM results")).write_csv(results)
    own = import_judgments(Store.open(asked.path), results)
    assert (own.n_new, own.n_left_out) == (0, 2)
    assert import_judgments(Store.init(folder / "other"), results).n_new == 2


def test_metrics_speak_of_imported_judgments(store: Store, folder: Path) -> None:
    """After an import the lens shows the file to every metric, marked as imported."""
    import_judgments(store, write(folder, HEADER + "A,B,first\nB,A,second\nA,C,first\nC,A,first\n"))
    with database.connect(store.path) as connection:
        query = "SELECT study, n_pairs, n_consistent_win, n_primacy, consistency_decided FROM metric_consistency"
        assert connection.execute(query).fetchall() == [("imported", 2, 1, 1, 0.5)]
        assert connection.execute("SELECT DISTINCT origin FROM pair_judgments").fetchall() == [("imported",)]


def test_a_busy_lake_is_left_alone(store: Store, folder: Path) -> None:
    """While another writer holds the lake the import says so and changes nothing."""
    path = write(folder, HEADER + "A,B,first\n")
    with store.lock("a test"):
        before = state(store)
        with pytest.raises(BusyError):
            import_judgments(store, path)
        assert state(store) == before


def test_blocks_do_not_matter(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of many blocks gives the rows, line numbers and repeats of one block."""
    monkeypatch.setattr("batchpond.files.BLOCK_ROWS", 7)
    rows = [f"A,B{number},first" for number in range(100)]
    report = import_judgments(store, write(folder, HEADER + "\n".join([*rows, *rows[:30]]) + "\n"))
    assert (report.n_new, report.n_repeated) == (100, 30)
    assert {row["source"] for row in imported(store)} == {f"judgments.csv:{number}" for number in range(2, 102)}


def _import_in_process(lake: Path, path: Path, results: Any) -> None:
    try:
        results.put(import_judgments(Store.open(lake), path).n_new)
    except BusyError:
        results.put("busy")


def test_racing_imports_add_each_judgment_once(store: Store, folder: Path) -> None:
    """Two processes that import the same file at once: each row is in the lake once."""
    path = write(folder, HEADER + "".join(f"A,B{number},first\n" for number in range(500)))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_import_in_process, args=(store.path, path, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    got = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    assert 500 in got
    assert set(got) <= {500, 0, "busy"}
    assert len(imported(store)) == len({row["import_key"] for row in imported(store)}) == 500


names = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1, max_size=6).filter(
    lambda text: bool(text.strip())
)
pairs = st.tuples(names, names, st.sampled_from(WORDS)).filter(lambda row: row[0] != row[1])


@settings(max_examples=12 if IS_ALL else 6, deadline=None)
@given(rows=st.lists(pairs, max_size=12, unique_by=lambda row: row[:2]))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, rows: Sequence[tuple[str, str, str]]) -> None:
    """Whatever a CSV writer writes comes back: commas, quotes, newlines, U+2028, any script."""
    folder = tmp_path_factory.mktemp("any")
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([("item_first", "item_second", "verdict"), *rows])
    lake = Store.init(folder / "lake")
    assert import_judgments(lake, write(folder, stream.getvalue())).n_new == len(rows)
    got = {(row["item_first"], row["item_second"], row["verdict"] or row["outcome"]) for row in imported(lake)}
    assert got == set(rows)


def test_files_have_exactly_the_tables_columns(store: Store, folder: Path) -> None:
    """The published file is one of the table's, readable by itself."""
    import_judgments(store, write(folder, HEADER + "A,B,first\n"))
    (file,) = store.files("imported_judgments")
    assert pq.read_schema(file).remove_metadata().equals(IMPORTED_JUDGMENTS.schema)


def test_a_field_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    """The reader's own limit is not the lake's; the process has it back afterwards."""
    path, limit = tmp_path / "long.csv", csv.field_size_limit()
    path.write_text("item_first,item_second,verdict,explanation\na,b,first," + "x" * 140_000 + "\n")
    lake = Store.init(tmp_path / "lake")
    assert import_judgments(lake, path, study="s").n_new == 1
    assert csv.field_size_limit() == limit
