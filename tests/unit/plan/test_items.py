"""Items from every kind of source: the same items, and every problem told with its line."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.plan.items import Item, SqlRows, read_pairs
from batchpond.study.file import parse_study
from batchpond.study.spec import ItemsFrom, ItemsSpec, Study

SPEC = ItemsSpec(ItemsFrom.SQL, "", "id", "text")
ROWS = [("b", 'Two, with "quotes"\nand a line feed'), ("a", "Eins \u2028 \U0001f600"), ("ø", " kept spaces ")]
Lines = list[tuple[str, str]]


def study(folder: Path, items: str, templates: str = '["plain"]') -> Study:
    """Return a study over a source."""
    text = f'study = "s"\nrubrics = ["organization"]\ntemplates = {templates}\nitems = {{ {items} }}\n'
    return parse_study((text + '[[models]]\nprovider = "toy"\nmodel = "m"\n').encode(), "study.toml", folder)


def read_items(found: Study, run_sql: SqlRows | None = None) -> list[Item]:
    """Return a study's items."""
    items = found.stages[0].rows.items
    assert items is not None
    return read_pairs(items, found.base_path, run_sql)


def write_csv(path: Path, rows: Lines) -> None:
    """Write rows as CSV with CR LF and a byte order mark, as spreadsheets do."""
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *rows])


def write_jsonl(path: Path, rows: Lines) -> None:
    """Write rows as JSON lines, U+2028 unescaped."""
    path.write_text("\n".join(json.dumps({"id": i, "text": t}, ensure_ascii=False) for i, t in rows), "utf-8")


def write_parquet(path: Path, rows: Lines) -> None:
    """Write rows as Parquet."""
    pq.write_table(pa.table({"id": [i for i, _ in rows], "text": [t for _, t in rows]}), path)


@pytest.mark.parametrize(
    ("name", "write"), [("s.csv", write_csv), ("s.jsonl", write_jsonl), ("s.parquet", write_parquet)]
)
def test_every_format_gives_the_same_items(tmp_path: Path, name: str, write: Callable[[Path, Lines], None]) -> None:
    """Texts arrive character for character, in id order whatever the order of rows."""
    write(tmp_path / name, ROWS)
    items = read_items(study(tmp_path, f'path = "{name}"'))
    assert [(item.item_id, item.text) for item in items] == sorted(ROWS)
    write(tmp_path / name, ROWS[::-1])
    assert read_items(study(tmp_path, f'path = "{name}"')) == items


def test_a_folder_gives_one_item_per_text_file(tmp_path: Path) -> None:
    """The id is the file's stem; other files are left alone."""
    for item_id, text in ROWS:
        (tmp_path / f"{item_id}.txt").write_bytes(text.encode())
    (tmp_path / "notes.md").write_bytes(b"\xff")
    items = read_items(study(tmp_path, 'folder = "."'))
    assert [(item.item_id, item.text) for item in items] == sorted(ROWS)


def test_sql_runs_on_the_lake_that_is_given(tmp_path: Path) -> None:
    """The query reaches the callable; without a lake it is an error that says so."""
    found = study(tmp_path, 'sql = "select 1", id = "i", text = "t"')
    asked: list[str] = []

    def run(sql: str) -> list[dict[str, object]]:
        asked.append(sql)
        return [{"i": 2, "t": "x"}, {"i": 10, "t": "y"}]

    assert [item.item_id for item in read_items(found, run)] == ["10", "2"]
    assert asked == ["select 1"]
    with pytest.raises(StudyError, match="needs a lake"):
        read_items(found)


def test_other_columns_become_metadata(tmp_path: Path) -> None:
    """They are kept as canonical JSON; empty ones are left out."""
    (tmp_path / "s.jsonl").write_text('{"text":"x","id":1,"z":[1],"a":null}\n\n{"id":2,"text":"y"}\n')
    items = read_items(study(tmp_path, 'path = "s.jsonl"'))
    assert [(item.item_id, item.metadata) for item in items] == [("1", '{"z":[1]}'), ("2", None)]
    assert items[0].item_hash != Item("1", "x").item_hash


def test_all_unusable_rows_are_in_one_error(tmp_path: Path) -> None:
    """Duplicates, empty ids and empty texts, each with the line it starts on."""
    rows = [("a", "x\ny"), ("a", "again"), ("", "no id"), ("b", ""), ("c", "  "), ("d", "fine")]
    write_csv(tmp_path / "s.csv", rows)
    with pytest.raises(StudyError) as caught:
        read_items(study(tmp_path, 'path = "s.csv"'))
    assert caught.value.message.split("\n") == [
        "s.csv: 4 unusable items:",
        "  line 4: id 'a' stands in line 2 already",
        "  line 5: no id, or not a text or whole number",
        "  line 6: id 'b' has an empty text",
        "  line 7: id 'c' has an empty text",
    ]


def test_the_list_of_problems_is_bounded() -> None:
    """A file of nothing but mistakes gives a short error with the full count."""
    with pytest.raises(StudyError) as caught:
        read_pairs(SPEC, Path(), lambda _: ({"id": "", "text": "x"} for n in range(1000)))
    assert caught.value.message.startswith("items.sql: 1,000 unusable items:")
    assert caught.value.message.endswith("and 980 more")
    assert len(caught.value.message.split("\n")) == 22


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("s.csv", b"id,text\na,ok\nb,\xff\n", r"s\.csv:3: not valid UTF-8"),
        ("s.csv", b"id,txt\na,x\n", r"s\.csv: line 2 has no column 'text'; it has 'id', 'txt'"),
        ("s.csv", b"id,text\na,x,y\n", r"s\.csv: line 2 has 3 fields, the header has 2"),
        ("s.csv", b'id,text\na,"x\n', r"s\.csv: the record that starts on line 2 is not CSV: unexpected end of data"),
        ("s.csv", b'id,text\na,b\nc,"open\nd,"shut"\n', r"record that starts on line 3 is not CSV: .* \(line 4\)"),
        ("s.csv", b"Kennung;Der Text\na;x\n", r"s\.csv: line 2 has no column 'id'; it has 'Kennung', 'Der Text'"),
        ("s.csv", b"id,id\na,b\n", r"column 'id' stands in the header more than once"),
        ("s.csv", b"", r"is empty"),
        ("s.csv", b"id,text\na,x\n", r"s\.csv: has 1 usable items; pairs need at least 2"),
        ("s.jsonl", b'{"id":"a","text":"x"}\n{"id":', r"s\.jsonl: line 2 is not JSON"),
        ("s.jsonl", b'{"id":"a","text":"x"}\n{"id":"b","text":"\xff"}\n', r"s\.jsonl:2: not valid UTF-8"),
        ("s.jsonl", b'\xef\xbb\xbf\n \n{"id":"a","text":"x"}\n', r"s\.jsonl: has 1 usable items"),
        ("s.jsonl", b'{"id":"a","text":"\\ud800"}\n', r"s\.jsonl: line 1 is not JSON: .*surrogate"),
        ("s.jsonl", b'{"id":"a","text":NaN}\n', r"s\.jsonl: line 1 is not JSON"),
        ("s.jsonl", b"[1]\n", r"s\.jsonl: line 1 is not a JSON object"),
        ("s.jsonl", b'{"id":true,"text":"x"}\n{"id":1.0,"text":"x"}\n', r"2 unusable items:\n  line 1: no id"),
        ("s.jsonl", b'{"id":"a","text":3}\n', r"line 1: id 'a' has a text that is not a string"),
        ("s.parquet", b"PAR1", r"s\.parquet: cannot be read as Parquet"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    """File and line of the first thing that makes a file unreadable."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StudyError, match=message):
        read_items(study(tmp_path, f'path = "{name}"'))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("s.csv", 'id;text\na;x, y\nb;"u; v"\n'),
        ("s.csv", '\ufeffid;text\r\na;x, y\r\nb;"u; v"\r\n'),
        ("s.csv", '"id"\t"text"\na\tx, y\nb\tu; v\n'),
        ("s.tsv", "id\ttext\na\tx, y\nb\tu; v\n"),
        ("s.tsv", 'id,text\na,"x, y"\nb,u; v\n'),
        ("s.csv", 'id,text\na,"x, y"\nb,u; v\n'),
        ("s.csv", "id|text\na|x, y\nb|u; v\n"),
    ],
)
def test_what_stands_between_columns_is_read_from_the_header(tmp_path: Path, name: str, data: str) -> None:
    """Spreadsheets write commas, semicolons or tabs, by the language of whoever saves."""
    (tmp_path / name).write_bytes(data.encode())
    items = read_items(study(tmp_path, f'path = "{name}"'))
    assert [(item.item_id, item.text) for item in items] == [("a", "x, y"), ("b", "u; v")]


def test_a_folder_without_texts_is_said_to_hold_none(tmp_path: Path) -> None:
    """Files of other kinds are not what the study asks about."""
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(StudyError, match=r"holds no \.txt file"):
        read_items(study(tmp_path, 'folder = "."'))


def test_missing_files_and_bad_text_files_are_named(tmp_path: Path) -> None:
    """A path that is not there, and the one file of a folder that is not UTF-8."""
    with pytest.raises(StudyError, match=r"absent\.csv: No such file"):
        read_items(study(tmp_path, 'path = "absent.csv"'))
    with pytest.raises(StudyError, match="No such file") as caught:
        read_items(study(tmp_path, r'path = "C:\texts\new.csv"'))  # which has a tab and a line end in it
    assert "write paths with /" in str(caught.value.hint)
    (tmp_path / "bad.txt").write_bytes(b"a\nb\xff")
    with pytest.raises(StudyError, match=r"bad\.txt:2: not valid UTF-8"):
        read_items(study(tmp_path, 'folder = "."'))


def test_a_lone_surrogate_is_named() -> None:
    """A text that UTF-8 cannot say never reaches the lake."""
    with pytest.raises(StudyError, match="id 'a' holds a lone surrogate"):
        read_pairs(SPEC, Path(), lambda _: [{"id": "a", "text": "\ud800"}])


def test_an_id_is_of_one_unicode_form_and_without_nul(tmp_path: Path) -> None:
    """Two forms of one name look alike everywhere and are joined nowhere; a NUL ends a text in many tools."""
    (tmp_path / "s.jsonl").write_text("".join(
        json.dumps({"id": item_id, "text": "t"}) + "\n" for item_id in ("caf\u00e9", "cafe\u0301", "a\0b", "caf\u00e8")
    ))  # fmt: skip
    with pytest.raises(StudyError) as caught:
        read_items(study(tmp_path, 'path = "s.jsonl"'))
    assert caught.value.message.split("\n")[1:] == [
        "  line 2: id 'cafe\u0301' stands in line 1 already, in another Unicode form",
        "  line 3: id 'a\\x00b' holds a NUL, at which many tools end a text",
    ]


def test_long_fields_are_read(tmp_path: Path) -> None:
    """A sample longer than the csv module's default limit arrives, and the limit is put back."""
    limit = csv.field_size_limit()
    write_csv(tmp_path / "s.csv", [("a", "x" * 200_000), ("b", "y")])
    assert len(read_items(study(tmp_path, 'path = "s.csv"'))[0].text) == 200_000
    assert csv.field_size_limit() == limit


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(str.strip),
        st.text().filter(str.strip),
        min_size=2,
        max_size=8,
    )
)
def test_any_unicode_survives(rows: dict[str, str]) -> None:
    """Ids and texts come out as they went in."""
    assume(len({unicodedata.normalize("NFC", item_id) for item_id in rows}) == len(rows))
    items = read_pairs(SPEC, Path(), lambda _: [{"id": item_id, "text": text} for item_id, text in rows.items()])
    assert {item.item_id: item.text for item in items} == rows
    assert len({item.item_hash for item in items}) == len(rows)


def test_template_files_are_read_and_checked(tmp_path: Path) -> None:
    """A template file is taken as it stands; one that lacks a placeholder names the file."""
    (tmp_path / "mine.txt").write_text("{TRAIT_NAME}{TRAIT_DESCRIPTION}{SAMPLE_1}{SAMPLE_2}\n")
    written = '["plain", {file = "mine.txt"}, {file = "mine.txt", id = "other"}]'
    templates = study(tmp_path, 'folder = "."', written).stages[0].templates
    assert [template.template_id for template in templates] == ["plain", "mine", "other"]
    assert templates[1].text.endswith("{SAMPLE_2}\n")
    (tmp_path / "mine.txt").write_text("{TRAIT_NAME}")
    with pytest.raises(StudyError, match=r"mine\.txt: the template lacks"):
        study(tmp_path, 'folder = "."', written)
