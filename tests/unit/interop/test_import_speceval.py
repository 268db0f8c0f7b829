"""What SpecEval left behind: statements, inputs and outputs as items, rankings only where generations prove them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchpond.lake.store import Store
from batchpond.views import database
from batchpond_importers.speceval import read, unit_of
from tests.rigs.foreign import bring, doubts, items, judged, put, refusal, rows_of, state

GENERATIONS = "generations/openai"
RANKINGS = "rankings/spec_openai/judge_j-1"
COMPLIANCE = "compliance/spec_openai/judge_j-1"
STAMP = "20250401_120000"
A, B = "gpt-4o", "mixtral-8x7b"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files of the other tool stand."""
    return tmp_path / "data"


def generated(folder: Path, model: str, **outputs: Any) -> None:
    """Write what a model answered to inputs of statement s1."""
    rows = [
        {"original_index": n, "input_text": asked, "output_text": text, "batch_id": "batch_1"}
        for n, (asked, text) in enumerate(outputs.items())
    ]
    put(folder, f"{GENERATIONS}/{model}/{STAMP}/results/s1.json", rows)


def compared(asked: str, rank: int | None, raw: Any = None, first: str = "", second: str = "") -> dict[str, Any]:
    """Return a row of a ranking; without a judge's text if `raw` is None."""
    row = {
        "input": asked,
        "output_a": first or f"{A} on {asked}",
        "output_b": second or f"{B} on {asked}",
        "rank": rank,
    }
    return row | ({"raw_judge_response": raw, "judge_custom_id_task": "md5"} if raw is not None else {})


def ranked(folder: Path, rows: Any, first: str = A, second: str = B) -> None:
    """Write a ranking result of two models."""
    metadata = {
        "ranking_judge_model_info": {"provider": "openai", "model_name": "j-1"}, "model_a": first, "model_b": second,
        "org_spec_name": "openai", "statement_id": "s1", "batch_id": "b", "timestamp": STAMP,
    }  # fmt: skip
    put(folder, f"{RANKINGS}/{first}x{second}/results/s1.json", {"metadata": metadata, "rankings": rows})


def both_generated(folder: Path, *inputs: str) -> None:
    """Write what both models answered to the same inputs."""
    for model in (A, B):
        generated(folder, model, **{asked: f"{model} on {asked}" for asked in inputs})


def checked(folder: Path, rows: Any, model: str = A) -> None:
    """Write a compliance result."""
    found = {"metadata": {"model": model, "statement_id": "s1", "batch_ids": ["b"]}, "results": rows}
    put(folder, f"{COMPLIANCE}/{model}/results/s1.json", found)


def test_a_spec_becomes_rubrics_and_inputs_and_outputs_become_items(store: Store, folder: Path) -> None:
    """Everything that a later stage needs to judge is there: text, candidate, unit, rubric and source."""
    put(folder, "openai.jsonl", [{"id": "s1", "text": "Be kind.", "type": "guideline", "metadata": {"examples": []}}])
    put(folder, "inputs/s1.json", {"inputs": ["hi", "bye"]})
    generated(folder, B, hi="hello")
    report = bring(store, read, folder)
    assert (report.rubrics.n_new, report.items.n_new, report.items.n_repeated, doubts(report)) == (1, 4, 1, {})
    (rubric,) = rows_of(store, "rubrics")
    assert (rubric["rubric_id"], rubric["description"]) == ("s1", "Be kind.")
    found = items(store)
    unit = unit_of("s1", "hi")
    assert found["statement/s1"]["metadata"]["type"] == "guideline"
    assert (found[unit]["text"], found[unit]["metadata"]["kind"]) == ("hi", "input")
    (output,) = (row for row in found.values() if row["metadata"]["kind"] == "output")
    source = f"{GENERATIONS}/{B}/{STAMP}/results/s1.json#/0"
    assert output["text"] == "hello"
    assert output["metadata"] == {
        "kind": "output", "origin": "imported", "source": source, "unit_id": unit, "rubric_id": "s1", "candidate": B,
        "batch_id": "batch_1", "original_index": 0,
    }  # fmt: skip


def test_error_strings_are_no_answers(store: Store, folder: Path) -> None:
    """What a provider's failure left in the place of an answer is counted and left out."""
    generated(
        folder, A, a="ERROR: 500: x", b="EXPIRED", c="UNKNOWN_STATUS: x", d=None, e=" ", f="Error handling is fun"
    )
    report = bring(store, read, folder)
    assert doubts(report) == {"failed-answer": 5}
    assert [row["text"] for row in items(store).values() if row["metadata"]["kind"] == "output"] == [
        "Error handling is fun"
    ]


RANKED = [
    ("first", 1, "Model: A", "first", "decided", None),
    ("second", -1, "Model: B", "second", "decided", None),
    ("tie", 0, "Model: equal", "tie", "tie", None),
    ("n/a", 0, "Model: N/A", None, "not_applicable", None),
    ("unsure", 0, "Model: unsure", None, "unsure", None),
    ("prose", 0, "I think Model: A", None, "unparsed", "error-as-verdict"),
    ("bold", 0, "**Model: A**", None, "unparsed", "contradictory"),
    ("failed", 0, "ERROR: 500: no", None, "error", "error-as-verdict"),
    ("two", 1, "Model: A\nModel: B", None, "ambiguous", "contradictory"),
    ("bare", 0, None, None, "unparsed", "zero-rank"),
    ("none", None, None, None, "unparsed", "zero-rank"),
    ("won", -1, None, "second", "decided", None),
    ("lied", -1, "Model: A", None, "unparsed", "contradictory"),
]


@pytest.mark.parametrize(("name", "rank", "raw", "verdict", "outcome", "doubt"), RANKED, ids=[row[0] for row in RANKED])
def test_rank_0_is_read_again(
    store: Store, folder: Path, name: str, rank: int | None, raw: Any, verdict: str | None, outcome: str, doubt: Any
) -> None:
    """A tie, N/A, unsure and every failure were stored as 0; the judge's text tells them apart."""
    both_generated(folder, "q")
    ranked(folder, [compared("q", rank, raw)])
    report = bring(store, read, folder)
    (row,) = judged(store).values()
    found = (row["verdict"], row["outcome"])
    if name == "bold":  # the strict rule reads through markup, the tool did not: 0 is not what the text says
        assert found == ("first", "decided")
        return
    assert found == (verdict, outcome)
    assert doubts(report) == ({doubt: 1} if doubt else {})


def test_a_ranking_names_its_candidates_its_judge_and_its_items(store: Store, folder: Path) -> None:
    """The file says who was compared: a folder like `gpt-4oxmixtral-8x7b` is never taken apart."""
    both_generated(folder, "q")
    ranked(folder, [compared("q", 1, "Model: A")])
    ranked(folder, [compared("q", -1, "Model: B", f"{B} on q", f"{A} on q")], B, A)
    bring(store, read, folder)
    found = list(judged(store).values())
    assert {(row["candidate_first"], row["candidate_second"], row["verdict"]) for row in found} == {
        (A, B, "first"), (B, A, "second"),
    }  # fmt: skip
    texts = items(store)
    for row in found:
        assert (row["task"], row["study"], row["provider"], row["request_model"], row["rubric_id"]) == (
            "ranking", "speceval-openai", "openai", "j-1", "s1",
        )  # fmt: skip
        assert texts[row["unit_id"]]["text"] == "q"
        assert texts[row["item_first"]]["metadata"]["candidate"] == row["candidate_first"]
        assert texts[row["item_second"]]["text"] == f"{row['candidate_second']} on q"


def test_outputs_under_the_wrong_name_stay_out(store: Store, folder: Path) -> None:
    """Sorted names were zipped with unsorted folders: the generations show whose output it really is."""
    both_generated(folder, "q", "r")
    ranked(folder, [compared("q", 1, "Model: A", f"{B} on q", f"{A} on q"), compared("r", 1, "Model: A")])
    report = bring(store, read, folder)
    assert doubts(report) == {"misattributed": 1}
    assert [row["unit_id"] for row in judged(store).values()] == [unit_of("s1", "r")]


def test_rankings_without_generations_prove_nothing(store: Store, folder: Path) -> None:
    """They stay out until generations are in the lake, or a person answers for them."""
    ranked(folder, [compared("q", 1, "Model: A"), compared("r", 0, "Model: equal")])
    report = bring(store, read, folder / "rankings")
    assert (report.judgments.n_new, doubts(report)) == (0, {"unproven-candidates": 2})
    both_generated(folder, "q")
    bring(store, read, folder / "generations")
    report = bring(store, read, folder / "rankings")
    assert (report.judgments.n_new, doubts(report)) == (1, {"unproven-candidates": 1})
    assert bring(store, read, folder / "rankings", accept=["unproven-candidates"]).judgments.n_new == 1


def test_a_judged_error_message_gives_no_verdict(store: Store, folder: Path) -> None:
    """Neither a comparison with it nor its compliance says anything of the candidate."""
    both_generated(folder, "q")
    ranked(folder, [compared("q", 1, "Model: A", second="ERROR: Result missing in batch output.")])
    checked(folder, [{"input": "q", "output": "ERROR: 429: slow", "compliant": True, "confidence": 1.0}])
    report = bring(store, read, folder)
    assert doubts(report) == {"error-text": 2}
    assert {(row["task"], row["verdict"], row["outcome"]) for row in judged(store).values()} == {
        ("ranking", None, "error"), ("compliance", None, "error"),
    }  # fmt: skip


CHECKED = [
    ({"compliant": True, "confidence": 0.9}, "true", "decided", 0.9, None),
    ({"compliant": False, "confidence": 0.5}, "false", "decided", 0.5, None),
    ({"compliant": "False", "confidence": None}, "false", "decided", None, None),
    ({"compliant": True, "confidence": 1.4}, "true", "decided", None, "bad-confidence"),
    ({"compliant": True, "confidence": "high"}, "true", "decided", None, "bad-confidence"),
    ({"compliant": None, "confidence": 0.5, "explanation": "I cannot say"}, None, "unparsed", None, "error-as-verdict"),
    ({"compliant": None, "confidence": 0.5, "explanation": "ERROR: x"}, None, "error", None, "error-as-verdict"),
    ({"compliant": None, "confidence": 0.5, "explanation": '{{"compliant": true}}'}, "true", "decided", None,
     "error-as-verdict"),
    ({"compliant": "maybe", "confidence": 0.5}, None, "unparsed", None, "error-as-verdict"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "verdict", "outcome", "confidence", "doubt"), CHECKED)
def test_unknown_compliance_is_neither_yes_nor_no(
    store: Store, folder: Path, columns: dict[str, Any], verdict: Any, outcome: str, confidence: Any, doubt: Any
) -> None:
    """A parse failure stored with confidence 0.5 is unknown; confidences out of range are unknown."""
    checked(folder, [{"input": "q", "output": "o", "explanation": "why"} | columns])
    report = bring(store, read, folder)
    (row,) = judged(store).values()
    assert (row["task"], row["candidate_first"], row["request_model"]) == ("compliance", A, "j-1")
    assert (row["verdict"], row["outcome"], row["confidence"]) == (verdict, outcome, confidence)
    assert doubts(report) == ({doubt: 1} if doubt else {})


def test_rating_0_is_a_failure(store: Store, folder: Path) -> None:
    """The scale begins at 1."""
    checked(folder, [{"input": asked, "output": "o", "rating": n} for asked, n in (("q", 4), ("r", 0))])
    report = bring(store, read, folder)
    assert [(row["task"], row["score"], row["outcome"]) for row in judged(store).values()] == [
        ("likert", 4.0, "decided"), ("likert", None, "unparsed"),
    ]  # fmt: skip
    assert doubts(report) == {"error-as-verdict": 1}


def test_metrics_speak_of_imported_rankings_and_compliance(store: Store, folder: Path) -> None:
    """A failure stored as rank 0 or as None is no tie and not "not compliant"."""
    both_generated(folder, "q", "r")
    ranked(folder, [compared("q", 1, "Model: A"), compared("r", 0, "ERROR: 500: x")])
    checked(folder, [
        {"input": asked, "output": f"{A} on {asked}", "compliant": said, "confidence": 0.5, "explanation": "hm"}
        for asked, said in (("q", True), ("r", None))
    ])  # fmt: skip
    bring(store, read, folder)
    with database.connect(store.path) as connection:
        pairs = connection.execute("SELECT verdict, outcome, origin FROM pair_judgments ORDER BY ALL").fetchall()
        singles = connection.execute("SELECT verdict, outcome, candidate FROM item_judgments ORDER BY ALL").fetchall()
    assert pairs == [("first", "decided", "imported"), (None, "error", "imported")]
    assert singles == [("true", "decided", A), (None, "unparsed", A)]


def test_importing_again_changes_nothing(store: Store, folder: Path) -> None:
    """The whole tree a second time, from another place, is a no-op to the byte."""
    both_generated(folder, "q", "r")
    ranked(folder, [compared("q", 1, "Model: A"), compared("r", 0, "Model: equal")])
    checked(folder, [{"input": "q", "output": f"{A} on q", "compliant": True, "confidence": 1}])
    put(folder, "openai.jsonl", [{"id": "s1", "text": "Be kind."}])
    bring(store, read, folder)
    before = state(store)
    folder.rename(folder.with_name("moved"))
    report = bring(store, read, folder.with_name("moved"))
    assert (report.judgments.n_new, report.items.n_new, report.rubrics.n_new) == (0, 0, 0)
    assert state(store) == before


def test_metadata_names_the_batches(store: Store, folder: Path) -> None:
    """Tracking files are no results, but their batches are told; what is not read is told too."""
    put(folder, f"{GENERATIONS}/{A}/{STAMP}/metadata/batch_9.json", {"batch_id": "batch_9", "provider": "openai"})
    put(folder, f"{GENERATIONS}/{A}/{STAMP}/preprocessed/in.jsonl", [{"custom_id": "s1_0"}])
    put(folder, "notes.txt", "x")
    report = bring(store, read, folder)
    assert [(batch.provider, batch.batch_id) for batch in report.batches] == [("openai", "batch_9")]
    assert report.n_skipped == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.json", "{", "r.json is not JSON"),
        ("r.json", b"\xff", "r.json is not UTF-8"),
        ("r.json", '{"inputs": ["a"], "inputs": ["b"]}', "the key 'inputs' stands twice"),
        ("r.json", {"inputs": "a"}, "r.json#/inputs is not a list"),
        ("r.json", {"inputs": ["a", 3]}, "r.json#/inputs/1 is 3, not a text"),
        ("r.json", {"rankings": []}, "r.json#/metadata is not an object"),
        ("r.json", {"rankings": [], "metadata": {"model_a": "a"}}, "has no model_b"),
        ("r.json", {"rankings": [{}], "metadata": {"model_a": "a", "model_b": "b"}}, "#/rankings/0 has no input"),
        ("r.json", {"rankings": [compared("q", 2)], "metadata": {"model_a": "a", "model_b": "b"}}, "has rank 2"),
        ("r.json", {"rankings": [7], "metadata": {"model_a": "a", "model_b": "b"}}, "/rankings/0 is not an object"),
        ("r.json", {"results": [{"input": "q", "output": "o"}], "metadata": {}}, "neither compliant nor rating"),
        ("r.json", {"results": [{"input": "q", "output": 1, "compliant": True}], "metadata": {}}, "has output 1"),
        ("r.json", [{"input_text": "q", "output_text": ["o"]}], "r.json#/0 has output_text ['o']"),
        ("r.json", '[{"input_text": "q", "output_text": "\\ud800"}]', "holds a lone surrogate"),
        ("s.jsonl", '{"id": "s1", "text": "x"}\n{"id": "s1", "text": "y"}\n', "s.jsonl:2 repeats the id 's1'"),
        ("s.jsonl", '{"id": "s1"}\n', "s.jsonl:1 has no text"),
        ("s.jsonl", '{"id": "s1", "text": "x"}\nnot json\n', "s.jsonl:2 is not JSON"),
        ("s.jsonl", "[]\n", "s.jsonl:1 is not a JSON object"),
    ],
)
def test_broken_files_are_refused_with_their_places(
    store: Store, folder: Path, name: str, content: Any, message: str
) -> None:
    """Nothing of a broken tree comes in, not even its good files."""
    both_generated(folder, "q")
    put(folder, name, content)
    assert message in refusal(store, read, folder)


def test_marks_nan_and_line_ends_do_not_matter(store: Store, folder: Path) -> None:
    """A byte order mark, CRLF and Python's NaN are read as meant."""
    put(folder, "s.jsonl", '\ufeff{"id": "s1", "text": "x"}\r\n\r\n{"id": "s2", "text": "y"}\r\n')
    row = {"input": "q", "output": "o", "compliant": True, "confidence": float("nan")}
    text = json.dumps({"metadata": {"model": A, "statement_id": "s1"}, "results": [row]})
    put(folder, "c/s1.json", "\ufeff" + text)
    assert bring(store, read, folder).rubrics.n_new == 2
    (judgment,) = judged(store).values()
    assert (judgment["verdict"], judgment["confidence"]) == ("true", None)


def test_strict_refuses_what_is_doubtful(store: Store, folder: Path) -> None:
    """Every doubt is listed with its kind, and nothing comes in."""
    generated(folder, A, q="ERROR: 500: x")
    message = refusal(store, read, folder, is_strict=True)
    assert "1 place cannot be believed" in message
    assert "[failed-answer]" in message
