"""What Inspect and promptfoo left behind: answers become items, scorers and assertions judges, and failures no verdict.

`tests/golden/inspect` and `tests/golden/promptfoo` hold what the tools themselves wrote (Inspect 0.3.285 with its mock
models, the JSON without its events; promptfoo 0.123 with providers and a judge in JavaScript).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchpond import Lake
from batchpond.interop.foreign import Defaults, Findings, Record, SourceFile
from batchpond.lake.store import Store
from batchpond_importers.inspect import read as read_inspect
from batchpond_importers.promptfoo import read as read_promptfoo
from tests.rigs.foreign import bring, doubts, items, judged, put, refusal, rows_of

GOLDEN = Path(__file__).parents[2] / "golden"
LOG = GOLDEN / "inspect" / "sums.json"
ARCHIVE = GOLDEN / "inspect" / "sums.eval"
RESULTS = GOLDEN / "promptfoo" / "sums.json"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


def log(**sample: Any) -> dict[str, Any]:
    """Return a log of one sample."""
    whole = {"id": "a", "epoch": 1, "input": "What is 1 + 1?", "output": {"completion": "It is 2."}, **sample}
    return {"version": 2, "eval": {"task": "sums", "model": "openai/gpt-5-nano"}, "samples": [whole]}


def result(**more: Any) -> dict[str, Any]:
    """Return promptfoo's results of one test with one assertion; `part` changes what came of it."""
    part = {"pass": True, "score": 1, "reason": "fine", "assertion": {"type": "llm-rubric", "value": "is kind"}}
    part |= more.pop("part", {})
    row = {
        "provider": {"id": "openai:gpt-5-nano", "label": ""}, "prompt": {"raw": "Say hi", "label": "Say hi"},
        "promptIdx": 0, "testIdx": 0, "vars": {"q": "hi"}, "response": {"output": "Hi."},
        "gradingResult": {"componentResults": [part]}, **more,
    }  # fmt: skip
    return {"results": {"version": 3, "results": [row]}, "config": {"prompts": ["Say {{q}}"]}}


def test_rates_of_an_inspect_log_are_those_that_it_states_itself(store: Store) -> None:
    """By scorer: the share of right answers among all that were scored right or wrong, as the log's own accuracy."""
    bring(store, read_inspect, LOG)
    lake = Lake(store.path)
    rates = lake.sql("select rubric_id, n_answered, n_compliant from metric_compliance").to_dicts()
    ours = {row["rubric_id"]: row for row in rates}
    means = dict(lake.sql("select rubric_id, score from metric_ratings").rows())
    samples = json.loads(LOG.read_text())["samples"]
    stated = {score["name"]: score for score in json.loads(LOG.read_text())["results"]["scores"]}
    assert ours["includes"]["n_compliant"] / ours["includes"]["n_answered"] == pytest.approx(
        stated["includes"]["metrics"]["accuracy"]["value"]
    )
    letters = [sample["scores"]["model_graded_qa"]["value"] for sample in samples]
    assert ours["model_graded_qa"]["n_compliant"] == letters.count("C")
    assert means["words"] == pytest.approx(stated["words"]["metrics"]["mean"]["value"])
    by_key = {score["name"]: score["metrics"]["mean"]["value"] for score in stated.values() if score["scorer"] == "rub"}
    assert {name.removeprefix("rub/"): mean for name, mean in means.items() if "/" in name} == by_key


def test_both_forms_of_a_log_say_the_same(store: Store) -> None:
    """An archive packed by zstd is read as the document is: same questions and same judges, each score once."""
    bring(store, read_inspect, LOG, defaults={"study": "document"})
    bring(store, read_inspect, ARCHIVE, defaults={"study": "archive"})
    seen: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows_of(store, "imported_judgments"):
        kept = (row["unit_id"], row["template_id"], row["rubric_id"], row["provider"], row["request_model"])
        seen.setdefault(row["study"], []).append((*kept, row["task"], row["verdict"], row["score"]))
    assert len(seen["document"]) == len(seen["archive"]) == 30
    assert {row[:5] for row in seen["document"]} == {row[:5] for row in seen["archive"]}


def test_a_model_that_graded_is_the_judge_and_a_mock_is_marked_as_simulated(store: Store) -> None:
    """A graded score keeps the grader's conversation; a rule is a judge by its own name."""
    bring(store, read_inspect, LOG)
    found = rows_of(store, "imported_judgments")
    judges = {(row["template_id"], row["provider"], row["request_model"], row["origin"]) for row in found}
    assert ("model_graded_qa", "mockllm", "grader", "simulated") in judges
    assert ("includes", "inspect", "includes", None) in judges
    kept = [item for item in items(store).values() if item["metadata"]["kind"] == "output"]
    assert {item["metadata"]["candidate"] for item in kept} == {"mockllm/cand"}


@pytest.mark.parametrize(
    ("value", "task", "verdict", "outcome", "label", "score"),
    [
        ("C", "compliance", "true", "decided", None, None),
        ("I", "compliance", "false", "decided", None, None),
        ("P", "compliance", None, "unsure", None, None),
        ("N", "compliance", None, "unsure", None, None),
        (True, "compliance", "true", "decided", None, None),
        (0.25, "prompts", None, "decided", None, 0.25),
        (3, "prompts", None, "decided", None, 3.0),
        ("green", "prompts", None, "decided", "green", None),
        (None, "compliance", None, "unparsed", None, None),
        (float("nan"), "compliance", None, "unparsed", None, None),
        ({"nested": {}}, "compliance", None, "unparsed", None, None),
    ],
)
def test_a_value_of_inspect_is_what_it_says(
    store: Store, tmp_path: Path, value: Any, task: str, verdict: str | None, outcome: str, label: str | None,
    score: float | None,
) -> None:  # fmt: skip
    """A letter, a truth, a number or a word; partly right, not answered and not scored are no verdict."""
    path = put(tmp_path, "log.json", log(scores={"s": {"value": value}}))
    report = bring(store, read_inspect, path)
    (row,) = rows_of(store, "imported_judgments")
    assert (row["task"], row["verdict"], row["outcome"], row["label"], row["score"]) == (
        task, verdict, outcome, label, score,
    )  # fmt: skip
    assert doubts(report) == ({"unscored": 1} if outcome == "unparsed" else {})


def test_a_sample_that_failed_is_said_and_left_out(store: Store, tmp_path: Path) -> None:
    """So is one without an answer; what stands beside it comes in."""
    failed = put(tmp_path, "failed.json", log(error={"message": "timed out"}, scores={"s": {"value": "I"}}))
    empty = put(tmp_path, "empty.json", log(output={"completion": " "}, scores={"s": {"value": "I"}}))
    report = bring(store, read_inspect, failed, empty, LOG)
    assert doubts(report)["failed-answer"] == 2
    assert len(rows_of(store, "imported_judgments")) == 30


@pytest.mark.parametrize("cut", [1, 200, 4_000, 20_000])
def test_a_damaged_archive_is_one_error_and_imports_nothing(store: Store, tmp_path: Path, cut: int) -> None:
    """Cut short anywhere, or with bytes turned: never half of it."""
    whole = ARCHIVE.read_bytes()
    assert "cannot be read" in refusal(store, read_inspect, put(tmp_path, "cut.eval", whole[:-cut]))
    at = len(whole) // 3
    turned = whole[:at] + bytes(byte ^ 0xFF for byte in whole[at : at + 400]) + whole[at + 400 :]
    assert "cannot be read" in refusal(store, read_inspect, put(tmp_path, "turned.eval", turned))


def test_a_turned_byte_is_never_read_as_something_else(tmp_path: Path) -> None:
    """One byte of an archive's files turned: it cannot be read, or says what it said (a date, a flag)."""
    whole = ARCHIVE.read_bytes()
    said, _ = read_archive(tmp_path, whole)
    assert len(said) > 30
    found: set[str] = set()
    for at in range(0, whole.index(b"PK\x01\x02"), 97):
        turned = bytearray(whole)
        turned[at] ^= 0x10
        records, problems = read_archive(tmp_path, bytes(turned))
        assert problems or records == said, f"the byte at {at}"
        found |= {problem.split(" ")[-1] for problem in problems}
    assert "states" in found, "no byte showed what only a checksum shows"


def read_archive(folder: Path, data: bytes) -> tuple[list[Record], list[str]]:
    """Return what an archive of these bytes holds, and the problems with it."""
    path, findings = put(folder, "one.eval", data), Findings()
    records = list(read_inspect([SourceFile(path, path.name)], Defaults(study="s"), findings))
    return records, findings.problems.shown


def test_promptfoo_passes_and_fails_are_those_that_it_counts(store: Store) -> None:
    """Each assertion of each answer once, by its metric or its own words; what a provider failed at is left out."""
    report = bring(store, read_promptfoo, RESULTS)
    rows = [row for row in json.loads(RESULTS.read_text())["results"]["results"] if row["gradingResult"]]
    parts = [part for row in rows for part in row["gradingResult"]["componentResults"]]
    found = rows_of(store, "imported_judgments")
    assert len(found) == len(parts)
    assert sum(row["verdict"] == "true" for row in found) == sum(part["pass"] for part in parts)
    assert sorted(row["score"] for row in found) == pytest.approx(sorted(part["score"] for part in parts))
    assert doubts(report) == {"failed-answer": 2}
    assert {row["rubric_id"] for row in found if row["template_id"] == "llm-rubric"} == {
        "kindness", "llm-rubric: is brief",
    }  # fmt: skip
    assert {row["candidate_first"] for row in found} == {
        f"{name} / {prompt}" for name in ("echoer", "p2") for prompt in ("Say {{q}}", "Please say {{q}}")
    }
    answers = [json.loads(row["metadata"]) for row in rows_of(store, "items") if '"output"' in row["metadata"]]
    assert {answer["vars"]["q"] for answer in answers} == {row["vars"]["q"] for row in rows}
    assert all(answer["vars"]["q"] in answer["prompt"] for answer in answers)


@pytest.mark.parametrize(
    "reason",
    [
        "Could not extract JSON from llm-rubric response",
        "llm-rubric produced malformed response: SyntaxError",
        "No output",
    ],
)
def test_a_grader_that_could_not_be_read_is_no_failed_test(store: Store, tmp_path: Path, reason: str) -> None:
    """Promptfoo counts it as one; here it has no verdict, and the import says so."""
    path = put(tmp_path, "out.json", result(part={"pass": False, "score": 0, "reason": reason}))
    report = bring(store, read_promptfoo, path)
    (row,) = rows_of(store, "imported_judgments")
    assert (row["verdict"], row["outcome"], row["score"]) == (None, "unparsed", None)
    assert doubts(report) == {"error-as-verdict": 1}


def test_the_model_that_an_assertion_asks_is_the_judge(store: Store, tmp_path: Path) -> None:
    """By the assertion, or by the test's options; a rule has no model, whatever the options say."""
    named = {"type": "llm-rubric", "value": "is kind", "provider": {"id": "anthropic:claude-sonnet-5"}}
    options = {"options": {"provider": "openai:chat:gpt-5"}}
    put(tmp_path, "data/a.json", result(part={"assertion": named}, testCase=options))
    put(tmp_path, "data/b.json", result(testCase=options))
    put(tmp_path, "data/c.json", result(part={"assertion": {"type": "contains", "value": "Hi"}}, testCase=options))
    put(tmp_path, "data/d.json", result())
    bring(store, read_promptfoo, tmp_path / "data")
    assert {place[0]: (row["provider"], row["request_model"]) for place, row in judged(store).items()} == {
        "a": ("anthropic", "claude-sonnet-5"), "b": ("openai", "chat:gpt-5"), "c": ("promptfoo", "contains"),
        "d": ("promptfoo", "default grader"),
    }  # fmt: skip


TOY = '''
from batchpond.interop.foreign import ForeignJudgment
from batchpond.model import Outcome
from batchpond.tasks.base import Judgment


def read(files, defaults, findings):
    """Yield the votes of Toy, a word a line."""
    for file in files:
        for number, word in enumerate(file.path.read_text().split(), 1):
            found = Judgment(word, Outcome.DECIDED)
            yield ForeignJudgment(f"{file.shown}:{number}", "compliance", found, defaults, f"u{number}", f"i{number}")
'''


def test_an_installed_package_can_read_the_files_of_another_tool(tmp_path: Path) -> None:
    """An entry point of the group `batchpond.importers` is a command of `import`, loaded when somebody asks for it."""
    put(tmp_path, "site/toy_reader.py", TOY)
    put(tmp_path, "site/broken_reader.py", "import nothing_of_that_name\n")
    points = "[batchpond.importers]\ntoy = toy_reader:read\nbroken = broken_reader:read\n"
    put(tmp_path, "site/toy_reader-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-reader\nVersion: 1\n")
    put(tmp_path, "site/toy_reader-1.dist-info/entry_points.txt", points)
    put(tmp_path, "votes.txt", "true false true")

    def program(*words: str, is_well: bool = True) -> str:
        environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        command = [sys.executable, "-m", "batchpond", "--lake", str(tmp_path / "lake"), *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == (0 if is_well else 2), done.stderr
        return done.stdout + done.stderr

    assert program("import", "--help").count("which the package toy-reader") == 2
    told = program("import", "broken", "--help")  # which loads nothing of it
    assert "Import files of broken, which the package toy-reader reads." in told
    assert "--strict" in told
    votes = str(tmp_path / "votes.txt")
    told = program("import", "broken", votes, is_well=False)
    assert "the package toy-reader cannot read files of broken: No module named 'nothing_of_that_name'" in told
    told = program("import", "toy", votes, "--study", "toys", "--set", "request_model=t")
    assert "imported 3 judgments" in told
    found = program("query", "select request_model, n_compliant from metric_compliance_overall", "--format", "csv")
    assert found.split()[-1] == "t,2"
