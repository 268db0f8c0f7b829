"""Provider output by a map: the map says what was asked, the answers are read by the tasks' usual rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchpond.cli import main
from batchpond.errors import UsageError
from batchpond.import_rows import reader
from batchpond.lake.store import Store
from foreign_support import bring, doubts, items, judged, put, refusal, state


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


def line(custom_id: str, text: str | None, error: str | None = None) -> dict[str, Any]:
    """Return an OpenAI batch result line."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "c", "object": "chat.completion", "model": "m-2025", "choices": choices}
    if error:
        return {"custom_id": custom_id, "response": None, "error": {"code": "batch_expired", "message": error}}
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}


MAP = [
    {"custom_id": "p", "item_first": "A", "item_second": "B"},
    {"custom_id": "r", "task": "ranking", "item_first": "oA", "item_second": "oB", "candidate_first": "a",
     "candidate_second": "b", "unit_id": "u", "rubric_id": "s1"},
    {"custom_id": "c", "task": "compliance", "item_first": "oA", "candidate_first": "a", "unit_id": "u",
     "rubric_id": "s1"},
    {"custom_id": "l", "task": "likert", "item_first": "oA", "unit_id": "u", "rubric_id": "s1", "repeat_no": "2.0"},
    {"custom_id": "g", "task": "generation", "unit_id": "u", "candidate_first": "a", "rubric_id": "s1"},
    {"custom_id": "h", "task": "generation", "unit_id": "u", "candidate_first": "b"},
    {"custom_id": "m", "item_first": "A", "item_second": "C"},
]  # fmt: skip
LINES = [
    line("l", '{"rating": 4}'), line("p", "<BETTER_SAMPLE>SAMPLE_2</BETTER_SAMPLE>"), line("r", "Model: N/A"),
    line("c", '{"compliant": false, "confidence": 0.7, "explanation": "why"}'), line("g", "an answer"),
    line("h", None, "too late"), line("x", "whose?"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_answers_are_read_by_the_map(store: Store, tmp_path: Path, kind: str) -> None:
    """Every task by its rule, in whatever order the lines come; what the map lacks or no line answers is told."""
    rows = [{name: value for name, value in row.items() if value != "NA"} for row in MAP]
    names = dict.fromkeys(name for row in rows for name in row)
    text = "\n".join([",".join(names), *(",".join(row.get(name, "") for name in names) for row in rows)])
    mapping = put(tmp_path, "map.csv", text + "\n") if kind == "csv" else put(tmp_path, "map.jsonl", rows)
    output = put(tmp_path, "out.jsonl", LINES)
    report = bring(store, reader(mapping, "openai"), output, said={"study": "pilot"})
    assert doubts(report) == {"foreign-id": 1, "failed-answer": 1}
    found = {row["task"] + str(row["item_second"] or ""): row for row in judged(store).values()}
    assert {key: (row["verdict"], row["outcome"], row["score"]) for key, row in found.items()} == {
        "pairwiseB": ("second", "decided", None), "pairwiseC": (None, "missing", None),
        "rankingoB": (None, "not_applicable", None), "compliance": ("false", "decided", None),
        "likert": (None, "decided", 4.0),
    }  # fmt: skip
    row = found["compliance"]
    assert (row["study"], row["provider"], row["request_model"], row["confidence"], row["explanation"]) == (
        "pilot", "openai", "m-2025", 0.7, "why",
    )  # fmt: skip
    assert (found["likert"]["repeat_no"], row["source"]) == (2, "out.jsonl:4")
    (item,) = items(store).values()
    assert (item["text"], item["metadata"]["candidate"], item["metadata"]["rubric_id"]) == ("an answer", "a", "s1")
    before = state(store)
    assert bring(store, reader(mapping, "openai"), output, said={"study": "pilot"}).judgments.n_known == 5
    assert state(store) == before


def test_an_id_that_is_answered_twice_is_refused(store: Store, tmp_path: Path) -> None:
    """Nothing says which of the two counts."""
    mapping = put(tmp_path, "map.csv", "custom_id,item_first,item_second\np,A,B\n")
    output = put(tmp_path, "out.jsonl", [line("p", "x"), line("p", "y")])
    assert "out.jsonl:2 answers 'p' as out.jsonl:1 does" in refusal(store, reader(mapping, "openai"), output)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("custom_id,item_first,item_second\n", "has no rows"),
        ("custom_id,item_first,item_second\np,A,\n", "line 2 has no item_second, which pairwise needs"),
        ("custom_id,item_first,item_second\np,A,A\n", "line 2 judges 'A' against itself"),
        ("custom_id,item_first,item_second\np,A,B\np,A,C\n", "line 3 repeats the custom_id of line 2"),
        ("custom_id,task\np,guessing\n", "line 2 has task 'guessing'"),
        ("custom_id,task,item_first,item_second,turn_no\np,pairwise,A,B,x\n", "has turn_no 'x'"),
        ("item_first,item_second\nA,B\n", "no column 'custom_id'"),
    ],
)
def test_a_map_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Before any output is read, with the lines of the map."""
    with pytest.raises(UsageError, match=message):
        reader(put(tmp_path, "map.csv", text), "openai")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts of each kind on stderr, one document on stdout; strict refuses with the usage exit code."""
    mapping = put(tmp_path, "map.csv", "custom_id,item_first,item_second\np,A,B\n")
    output = put(tmp_path, "out.jsonl", LINES)
    lake = ["--lake", str(tmp_path / "lake")]
    command = ["import", "rows", str(output), "--map", str(mapping), "--provider", "openai", *lake]
    assert main([*command, "--strict"]) == 2
    assert "cannot be believed" in capsys.readouterr().err
    assert main([*command, "--json", "--set", "rubric_id=trait"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["judgments"] == {"n_rows": 1, "n_new": 1, "n_known": 0, "n_repeated": 0}
    assert document["outcomes"] == {"pairwise": {"decided": 1}}
    assert [(doubt["kind"], doubt["n"]) for doubt in document["doubts"]] == [("foreign-id", 6)]
    assert "6 foreign-id" in captured.err
    assert "imported 1 judgment" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--accept", "everything"], "no kind that a person can answer for"),
        (["--accept", "misattributed"], "no kind that a person can answer for"),
        (["--set", "judge=x"], "is not COLUMN=VALUE"),
        (["--set", "provider"], "is not COLUMN=VALUE"),
        (["--study", "a", "--set", "study=b"], "is not COLUMN=VALUE"),
    ],
)
def test_wrong_options_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Before a lake is made."""
    path = put(tmp_path, "r.csv", "ID1,ID2,better_id\nA,B,A\n")
    assert main(["import", "pairwisellm", str(path), "--lake", str(tmp_path / "lake"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()
