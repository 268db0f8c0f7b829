"""The bytes on stdout, per format, over one row of every awkward type."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from batchpond.cli import formats, output
from batchpond.cli.formats import Format
from batchpond.errors import UsageError

AWKWARD = pa.table(
    {
        "n": pa.array([1], pa.int64()),
        "flag": pa.array([True]),
        "x": pa.array([0.1], pa.float64()),
        "nan": pa.array([float("nan")], pa.float64()),
        "inf": pa.array([float("-inf")], pa.float64()),
        "money": pa.array([Decimal("12345678901234567890.10")], pa.decimal128(38, 2)),
        "blob": pa.array([b"\x00\xff"], pa.binary()),
        "list": pa.array([[1, None]], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 'q"', "b": None}], pa.struct([("a", pa.string()), ("b", pa.int32())])),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        "text": pa.array(['a,"b"|<c>\nd\te']),
        "wide": pa.array(["漢字 👩\u200d👧"]),
        "evil": pa.array(["\x1b[31mred\x07\u202eabc\x9b\U000e0041"]),
        "empty": pa.array([""]),
        "unknown": pa.array([None], pa.string()),
        "moment": pa.array([datetime(2026, 11, 21, 4, 5, 6, 789000, UTC)], pa.timestamp("ns", tz="Europe/Berlin")),
        "naive": pa.array([datetime(2026, 11, 21, 4, 5, 6)], pa.timestamp("us")),  # noqa: DTZ001
        "day": pa.array([date(2026, 11, 21)]),
        "clock": pa.array([time(4, 5, 6)], pa.time64("us")),
        "span": pa.array([timedelta(hours=1, milliseconds=5)], pa.duration("us")),
        "interval": pa.array([pa.MonthDayNano([1, 2, 3_500_000_000])], pa.month_day_nano_interval()),
    }
)

GOLDEN_OBJECT = (
    '{"n":1,"flag":true,"x":0.1,"nan":null,"inf":null,"money":12345678901234567890.10,"blob":"AP8=",'
    '"list":[1,null],"struct":{"a":"q\\"","b":null},"map":{"k":1},"text":"a,\\"b\\"|<c>\\nd\\te",'
    '"wide":"漢字 👩\u200d👧","evil":"\\u001b[31mred\\u0007\\u202eabc\\u009b\\udb40\\udc41","empty":"",'
    '"unknown":null,"moment":"2026-11-21T04:05:06.789000Z","naive":"2026-11-21T04:05:06",'
    '"day":"2026-11-21","clock":"04:05:06","span":"PT3600.005S","interval":"P1M2DT3.5S"}'
)
NAMES = ",".join(AWKWARD.column_names)
GOLDEN = {
    Format.JSON: f"[\n{GOLDEN_OBJECT}\n]\n",
    Format.JSONL: GOLDEN_OBJECT + "\n",
    Format.CSV: NAMES
    + '\n1,true,0.1,NaN,-Infinity,12345678901234567890.10,AP8=,"[1,null]","{""a"":""q\\"""",""b"":null}",'
    + '"{""k"":1}","a,""b""|<c>\nd\te",漢字 👩\u200d👧,\x1b[31mred\x07\u202eabc\x9b\U000e0041,"",,'
    + "2026-11-21T04:05:06.789000Z,2026-11-21T04:05:06,2026-11-21,04:05:06,PT3600.005S,P1M2DT3.5S\n",
    Format.TSV: NAMES.replace(",", "\t")
    + "\n1\ttrue\t0.1\tNaN\t-Infinity\t12345678901234567890.10\tAP8="
    + '\t[1,null]\t{"a":"q\\"","b":null}\t{"k":1}'
    + '\ta,"b"|<c>\\nd\\te\t漢字 👩\u200d👧\t\\x1b[31mred\\x07\\u202eabc\\x9b\\U000e0041\t\t'
    + "\t2026-11-21T04:05:06.789000Z\t2026-11-21T04:05:06"
    + "\t2026-11-21\t04:05:06\tPT3600.005S\tP1M2DT3.5S\n",
    Format.MARKDOWN: "| " + " | ".join(AWKWARD.column_names) + " |\n"
    + "|" + " --- |" * AWKWARD.num_columns + "\n"
    + "| 1 | true | 0.1 | NaN | -Infinity | 12345678901234567890.10 | AP8= "
    + '| [1,null] | {"a":"q\\\\"","b":null} '
    + '| {"k":1} | a,"b"\\|&lt;c><br>d\\te | 漢字 👩\u200d👧 | \\x1b[31mred\\x07\\u202eabc\\x9b\\U000e0041 |  |  '
    + "| 2026-11-21T04:05:06.789000Z | 2026-11-21T04:05:06 "
    + "| 2026-11-21 | 04:05:06 | PT3600.005S | P1M2DT3.5S |\n",
}  # fmt: skip


class Terminal(io.TextIOWrapper):
    """A stdout that says it is a terminal, and whose bytes can be read."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def bytes(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined]


Printed = pytest.CaptureFixture[bytes]


@pytest.mark.parametrize("form", GOLDEN, ids=str)
def test_awkward_row_has_golden_bytes(form: Format, capsysbinary: Printed) -> None:
    """Each text format spells every type in one fixed way."""
    output.table(AWKWARD, form)
    assert capsysbinary.readouterr().out.decode() == GOLDEN[form]


def test_json_forms_are_json() -> None:
    """The golden JSON is read back by the standard library."""
    assert json.loads(GOLDEN[Format.JSON]) == [json.loads(GOLDEN_OBJECT)]


def test_parquet_keeps_types(capsysbinary: Printed) -> None:
    """Parquet output is the table itself."""
    plain = AWKWARD.drop_columns(["interval"])
    output.table(plain, Format.PARQUET)
    back = pq.read_table(io.BytesIO(capsysbinary.readouterr().out))
    assert back.column_names == plain.column_names
    assert back["money"].to_pylist() == [Decimal("12345678901234567890.10")]
    assert back["evil"].to_pylist() == plain["evil"].to_pylist()


def test_parquet_says_what_it_cannot_hold(capsysbinary: Printed) -> None:
    """A type without a Parquet form is a usage error with a way out, and no bytes."""
    with pytest.raises(UsageError, match="cannot hold"):
        output.table(AWKWARD, Format.PARQUET)
    assert capsysbinary.readouterr().out == b""


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Format.JSON, "[]\n"),
        (Format.JSONL, ""),
        (Format.CSV, "a,b\n"),
        (Format.TSV, "a\tb\n"),
        (Format.TABLE, "a  b\n"),
    ],
)
def test_no_rows(form: Format, expected: str, capsysbinary: Printed) -> None:
    """No rows is an empty list, not nothing and not null."""
    output.table(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}), form)
    assert capsysbinary.readouterr().out.decode() == expected


def test_repeated_column_names_stay_apart(capsysbinary: Printed) -> None:
    """Two columns of one name are two keys."""
    output.table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), Format.JSONL)
    assert capsysbinary.readouterr().out == b'{"a":1,"a_2":2}\n'


def test_parquet_is_refused_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary never reaches a terminal."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(UsageError, match="terminal"):
        output.table(AWKWARD, Format.PARQUET)


@pytest.mark.parametrize("form", [Format.CSV, Format.TABLE, Format.MARKDOWN, Format.JSON], ids=str)
def test_terminal_never_sees_control_characters(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences, bidi overrides and C1 codes from data are shown, not obeyed."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    output.table(AWKWARD, form)
    shown = stream.bytes().decode()
    assert not set(shown) & set("\x1b\x07\u202e\x9b\U000e0041")


def test_rows_that_fail_midway_leave_stdout_empty(capsysbinary: Printed) -> None:
    """A stream that breaks after a million good rows has printed none of them."""

    def broken() -> Iterator[tuple[int]]:
        yield (1,)
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        output.records(["a"], broken(), Format.JSONL)
    assert capsysbinary.readouterr().out == b""


def test_timestamps_beyond_the_calendar_are_printed(capsysbinary: Printed) -> None:
    """An infinite or far-off timestamp is text, not a crash."""
    column = pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    output.table(pa.table({"t": column}), Format.JSONL)
    assert len(capsysbinary.readouterr().out.splitlines()) == 2


@given(st.text())
def test_escape_leaves_nothing_to_obey(raw: str) -> None:
    """Escaped text prints on one line, encodes as UTF-8, and escaping it again changes nothing."""
    safe = output.escape(raw)
    safe.encode()
    assert output.escape(safe) == safe
    assert all(ord(character) >= 0x20 for character in safe)


@given(st.dictionaries(st.text().filter(lambda s: s.isprintable()), st.text().filter(lambda s: s.isprintable())))
def test_json_text_says_the_same_thing(value: dict[str, str]) -> None:
    """Escaping inside JSON never changes what it means."""
    assert json.loads(formats.json_text(value)) == value


@given(st.lists(st.tuples(st.one_of(st.none(), st.text()), st.integers()), max_size=5))
def test_csv_keeps_null_and_empty_apart(rows: list[tuple[str | None, int]]) -> None:
    """A text survives the standard csv reader, made inert; null is bare, empty text is quoted."""
    lines = "".join(formats.csv_lines(["a", "b"], rows))
    back = list(csv.reader(io.StringIO(lines, newline=""), strict=True))
    assert [row[0] for row in back[1:]] == [formats.defused(row[0] or "") for row in rows]


@pytest.mark.parametrize(
    "value", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\u200b=1", "\uff1d1", "\ufeff@x", "\n=1", "\r"], ids=ascii
)
def test_csv_holds_no_formula(value: str) -> None:
    """F139: what `results` and `query` print as csv is as inert as what `export` writes; numbers stay numbers."""
    lines = "".join(formats.csv_lines(["a", "b"], [(value, -1)]))
    ((first, second),) = list(csv.reader(io.StringIO(lines, newline=""), strict=True))[1:]
    assert (first, second) == (f"'{value}", "-1")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_terminal_lines_fit(width: int) -> None:
    """No line of a table is wider than the terminal, wide characters included."""
    names = [f"column_{i}" for i in range(4)]
    rows = [("漢字" * 40, 1.0 / 3, None, "x" * 200), ("", 2.0, "b", "")]
    lines = list(formats.terminal_lines(names, rows, width, has_color=False))
    assert max(cell_len(line.rstrip("\n")) for line in lines) <= width


def test_many_columns_of_a_few_rows_become_blocks() -> None:
    """Columns that cannot fit are shown one per line rather than squeezed to nothing."""
    names = [f"column_{i}" for i in range(12)]
    lines = list(formats.terminal_lines(names, [tuple(range(12))], 60, has_color=False))
    assert lines[0] == "row 1\n"
    assert lines[-1] == "column_11  11\n"


def test_of_many_rows_the_columns_that_fit_are_shown_and_the_others_named() -> None:
    """What is the same in every row is said once, above; nothing is a block of lines a row any more."""
    names = ["study", *(f"column_{i}" for i in range(12))]
    rows = [("s", *(i * j for i in range(12))) for j in range(40)]
    text = "".join(formats.terminal_lines(names, rows, 60, has_color=False))
    head, table = text.split("\n\n")
    assert head.splitlines()[:2] == ["study: s", "column_0: 0"]
    assert "no room for 5 columns: column_7," in head
    lines = table.splitlines()
    assert lines[0].split() == [f"column_{i}" for i in range(1, 7)]
    assert len(lines) == 41
    assert max(map(len, text.splitlines())) <= 60
    assert "no room for 1 column: column_11\n" in "".join(formats.terminal_lines(names, rows, 108, has_color=False))


def test_a_few_rows_are_a_table_where_what_varies_fits() -> None:
    """A block a row is for what would not fit otherwise."""
    names = [f"column_{i}" for i in range(12)]
    rows = [tuple(i * j if i > 9 else i for i in range(12)) for j in range(1, 3)]
    head, table = "".join(formats.terminal_lines(names, rows, 60, has_color=False)).split("\n\n")
    assert head.splitlines() == [f"column_{i}: {i}" for i in range(10)]
    assert [line.split() for line in table.splitlines()] == [["column_10", "column_11"], ["10", "11"], ["20", "22"]]


@given(st.text("abc `-\n", max_size=200), st.integers(20, 80))
def test_a_folded_line_says_the_same_and_keeps_commands_whole(text: str, width: int) -> None:
    """To be copied; no other line is wider than its place, and a line that fits is as it was."""
    line = " ".join(text.split())
    folded = formats.folded(line, width)
    assert " ".join(folded) == line
    for command in re.findall(r"`[^`]*`", line):
        assert any(command in one for one in folded)
    assert all(len(one) <= width or len(re.sub(r"`[^`]*`", "`", one).split()) == 1 for one in folded)


@given(st.integers(1, 30), st.integers(0, 8), st.integers(40, 200), st.text(max_size=80))
def test_no_table_is_wider_than_its_place(n_columns: int, n_rows: int, width: int, text: str) -> None:
    names = [f"c{i}" for i in range(n_columns)]
    rows = [tuple(text if i % 2 else i * j for i in range(n_columns)) for j in range(n_rows)]
    lines = list(formats.terminal_lines(names, rows, width, has_color=False))
    assert max(cell_len(line.rstrip("\n")) for line in lines) <= width


@pytest.mark.parametrize(
    ("seconds", "expected"), [(None, "-"), (5, "5s"), (65, "1m 5s"), (3_700, "1h 1m"), (90_000, "1d 1h")]
)
def test_age(seconds: float | None, expected: str) -> None:
    """Ages show their two largest units."""
    assert formats.age(seconds) == expected


def test_unknown_cost_is_not_zero() -> None:
    """An unknown price says so, and the least that an answer costs is more than nothing."""
    shown = [formats.usd(value) for value in (None, 0.0, 0.1234, 1234.5, 0.00004)]
    assert shown == ["unknown", "$0.00", "$0.1234", "$1,234.50", "$0.0000400"]
