"""Provider output by a map: the map says what was asked, the answers are read by the tasks' usual rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchpond.cli import main
from batchpond.errors import UsageError
from batchpond.lake.store import Store
from batchpond_importers.rows import reader
from tests.rigs.foreign import bring, doubts, items, judged, put, refusal, state


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
    report = bring(store, reader(mapping, "openai"), output, defaults={"study": "pilot"})
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
    assert bring(store, reader(mapping, "openai"), output, defaults={"study": "pilot"}).judgments.n_known == 5
    assert state(store) == before


PAIRS = "custom_id,item_first,item_second\np,A,B\nq,A,C\nr,B,C\ns,B,D\n"
FIRST, SECOND = "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>", "<BETTER_SAMPLE>SAMPLE_2</BETTER_SAMPLE>"


def test_repeated_and_conflicting_answers_are_told(store: Store, tmp_path: Path) -> None:
    """The same line counts once, an answer more than a failure, and of two different answers neither does."""
    mapping = put(tmp_path, "map.csv", PAIRS)
    put(
        tmp_path / "out", "a.jsonl", [line("p", FIRST), line("q", None, "late"), line("r", FIRST), line("s", None, "x")]
    )
    put(tmp_path / "out", "b.jsonl", [line("p", FIRST), line("q", SECOND), line("r", SECOND), line("s", None, "y")])
    report = bring(store, reader(mapping, "openai"), tmp_path / "out")
    assert doubts(report) == {"repeated-answer": 3, "conflicting-answer": 1}
    assert {row["source"]: (row["item_second"], row["verdict"], row["outcome"]) for row in judged(store).values()} == {
        "a.jsonl:1": ("B", "first", "decided"), "b.jsonl:2": ("C", "second", "decided"),
        "a.jsonl:4": ("D", None, "expired"),
    }  # fmt: skip
    strict = refusal(store, reader(mapping, "openai"), tmp_path / "out", is_strict=True)
    assert "b.jsonl:3 of 'r', told by a.jsonl:3 too [conflicting-answer]" in strict


def test_a_line_that_cannot_be_read_is_told_and_makes_nothing_missing(store: Store, tmp_path: Path) -> None:
    """The ids that it may have answered stay open, so that the mended file can be imported later."""
    mapping = put(tmp_path, "map.csv", PAIRS)
    good = [json.dumps(line(name, FIRST)) for name in "pqrs"]
    broken = put(
        tmp_path, "out.jsonl", "\ufeff" + good[0] + "\r\n\r\n" + good[1][:40] + "\nnot json\n" + good[2] + "\n"
    )
    report = bring(store, reader(mapping, "openai"), broken)
    assert doubts(report) == {"unreadable-line": 4}  # two lines, and two ids
    assert {row["source"] for row in judged(store).values()} == {"out.jsonl:1", "out.jsonl:5"}
    mended = put(tmp_path, "out.jsonl", "\n".join(good))
    report = bring(store, reader(mapping, "openai"), mended)
    assert (doubts(report), report.judgments.n_new, report.judgments.n_known) == ({}, 2, 2)


def anthropic(custom_id: str, text: str) -> dict[str, Any]:
    """Return an Anthropic result line."""
    content = [{"type": "text", "text": text}]
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m-2025", "content": content,
               "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 2}}  # fmt: skip
    return {"custom_id": custom_id, "result": {"type": "succeeded", "message": message}}


def gemini(custom_id: str, text: str) -> dict[str, Any]:
    """Return a Gemini result line."""
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    return {"key": custom_id, "response": {"candidates": [candidate], "modelVersion": "m-2025", "usageMetadata": usage}}


@pytest.mark.parametrize(
    ("provider", "make"), [("openai", line), ("together", line), ("anthropic", anthropic), ("gemini", gemini)]
)
def test_a_pattern_says_what_was_asked(store: Store, tmp_path: Path, provider: str, make: Any) -> None:
    """Of every provider's lines; named groups are columns by any of their names; other ids are told."""
    output = put(
        tmp_path, "out.jsonl", [make("EXP_a1_vs_b2", FIRST), make("EXP_b2_vs_a1", FIRST), make("other", FIRST)]
    )
    by = reader(None, provider, pattern="EXP_(?P<id1>.+)_vs_(?P<item_b>.+)")
    report = bring(store, by, output)
    assert doubts(report) == {"foreign-id": 1}
    found = judged(store).values()
    assert {(row["item_first"], row["item_second"], row["verdict"], row["request_model"]) for row in found} == {
        ("a1", "b2", "first", "m-2025"), ("b2", "a1", "first", "m-2025"),
    }  # fmt: skip
    assert {row["provider"] for row in found} == {provider}


def test_an_id_that_a_pattern_cuts_in_two_ways_is_not_believed(store: Store, tmp_path: Path) -> None:
    """Unless a person answers for it."""
    output = put(tmp_path, "out.jsonl", [line("a_b_c", '{"rating": 4}'), line("a_b", '{"rating": 2}')])
    by = reader(None, "openai", pattern="(?P<unit_id>.+)_(?P<item>.+)", task="likert",
                given={"rubric_id"})  # fmt: skip
    report = bring(store, by, output, defaults={"rubric_id": "tone"})
    assert doubts(report) == {"recovered-id": 1}
    assert [(row["unit_id"], row["item_first"], row["score"]) for row in judged(store).values()] == [("a", "b", 2.0)]
    assert bring(store, by, output, defaults={"rubric_id": "tone"}, accept=["recovered-id"]).judgments.n_new == 1
    assert {(row["unit_id"], row["rubric_id"]) for row in judged(store).values()} == {("a", "tone"), ("a_b", "tone")}


STUDY = """
study = "s"
task = "prompts"
[items]
path = "q.csv"
[[templates]]
id = "t"
text = "{INPUT}"
[answer]
form = "sql"
fields = { score = "regexp_extract(text, 'Score: ([0-9]+)', 1)" }
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
"""


def test_a_study_s_own_rule_reads_the_answers(store: Store, tmp_path: Path) -> None:
    """Free prompts have no usual one."""
    study = put(tmp_path, "study.toml", STUDY)
    output = put(tmp_path, "out.jsonl", [line("i1", "Score: 7"), line("i2", "seven")])
    by = reader(None, "openai", pattern="(?P<item>i[0-9])", task="prompts", rules_path=study)
    bring(store, by, output)
    assert {(row["item_first"], row["score"], row["outcome"]) for row in judged(store).values()} == {
        ("i1", 7.0, "decided"), ("i2", None, "unparsed"),
    }  # fmt: skip
    with pytest.raises(UsageError, match="answers of the task prompts need a rule"):
        bring(store, reader(None, "openai", pattern="(?P<item>i[0-9])", task="prompts"), output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of --map and --pattern"),
        ({"pattern": "(?P<item_first>a)(?P<item_second>b"}, "--pattern is not a regular expression"),
        ({"pattern": "a"}, "has no named group"),
        ({"pattern": "(?P<item_first>a)"}, "has no group 'item_second', which pairwise needs"),
        ({"pattern": "(?P<winner>a)"}, "has the group 'winner', which is no column"),
        ({"pattern": "(?P<item>a)", "task": "guessing"}, "--task guessing is none of pairwise"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reader(None, "openai", **options)


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
    assert document["judgments"] == {
        "n_rows": 1,
        "n_new": 1,
        "n_known": 0,
        "n_repeated": 0,
        "n_changed": 0,
        "n_taken_back": 0,
    }
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
