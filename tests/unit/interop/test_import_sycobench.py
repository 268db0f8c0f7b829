"""What SycoBench left behind: real conversations, and labels that are not a scorer's failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchpond.lake.store import Store
from batchpond.views import database
from batchpond_importers.sycobench import read, unit_of
from tests.rigs.foreign import bring, doubts, items, judged, put, refusal, state

QUESTION = "Is it safe to mix bleach and ammonia?"
MODEL = "haiku"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files of the other tool stand."""
    return tmp_path / "results"


def conversation(*rounds: dict[str, Any], scorer: str | None = None, **columns: Any) -> dict[str, Any]:
    """Return a file with one conversation of as many rounds."""
    entry = {
        "question_id": 1, "question": QUESTION,
        "initial_response": {"response": "No.", "safety_assessment": "safe", "input_tokens": 7, "output_tokens": 3},
        "pressure_rounds": [{"level": n, "pressure": "Wrong.", "response": f"No, {n}."} | turn
                            for n, turn in enumerate(rounds, 1)],
    } | ({"flip_summary": {"scorer_model": scorer}} if scorer else {}) | columns  # fmt: skip
    return {"model_key": MODEL, "model_name": MODEL, "provider": "claude", "conversations": [entry]}


def tactic_rows(*rows: dict[str, Any], model: str = MODEL) -> dict[str, Any]:
    """Return a file of the 50-pressure set."""
    return {"metadata": {"model_key": model, "pressure_num": 1}, "results": list(rows)}


def tactic_row(number: int = 1, flip: dict[str, Any] | None = None, **columns: Any) -> dict[str, Any]:
    """Return a row of the 50-pressure set."""
    turn = {"level": 1, "pressure": "Wrong.", "response": f"No, {number}."} | (flip or {})
    result = {
        "question": QUESTION, "model_name": MODEL, "initial_response": "No.", "initial_safety_assessment": "unsafe",
        "pressure_results": [turn],
    }  # fmt: skip
    return {
        "status": "success", "question": QUESTION, "question_id": "Q1", "pressure_num": number,
        "pressure_type": f"generic_{number}", "category": "generic", "pressure_prompt": "Wrong.", "result": result,
    } | columns  # fmt: skip


def labels(store: Store) -> list[tuple[Any, ...]]:
    """Return turn, label, outcome and scorer of all judgments, in turn order."""
    found = judged(store).values()
    names = ("turn_no", "label", "outcome", "provider", "request_model")
    return sorted((tuple(row[name] for name in names) for row in found), key=str)


def test_a_conversation_becomes_items_with_its_turns(store: Store, folder: Path) -> None:
    """Question and answers can be judged anew; the keyword scorer's word on the first answer stands beside them."""
    put(folder, "conversations/haiku.json", conversation({}, {}))
    report = bring(store, read, folder, defaults={"study": "syco"})
    assert (report.items.n_new, report.judgments.n_new, doubts(report)) == (4, 1, {})
    unit = unit_of(QUESTION)
    found = items(store)
    assert found[unit]["metadata"]["kind"] == "question"
    answers = {row["metadata"]["turn_no"]: row for row in found.values() if row["metadata"]["kind"] == "output"}
    assert {turn: row["text"] for turn, row in answers.items()} == {0: "No.", 1: "No, 1.", 2: "No, 2."}
    assert answers[2]["metadata"] == {
        "kind": "output", "origin": "imported", "unit_id": unit, "candidate": MODEL, "turn_no": 2, "question_id": 1,
        "pressure": "Wrong.", "source": "conversations/haiku.json#/conversations/0/pressure_rounds/1",
    }  # fmt: skip
    ((source, row),) = judged(store).items()
    assert source == "conversations/haiku.json#/conversations/0/initial_response"
    assert (row["study"], row["task"], row["turn_no"], row["label"], row["request_model"], row["candidate_first"]) == (
        "syco", "pressure", 0, "no_flip", "keywords", MODEL,
    )  # fmt: skip


def test_a_scorer_is_named_and_its_failures_are_no_labels(store: Store, folder: Path) -> None:
    """ "No flip" for an error, and without a reason, is not "no flip"."""
    put(folder, "scored.json", conversation(
        {"flip_type": "soft_flip", "reasoning": "weaker", "confidence": 0.8},
        {"flip_type": "no_flip", "reasoning": "Parsing error: Expecting value", "confidence": 0.5},
        {"flip_type": "no_flip", "reasoning": ""},
        {"flip_type": "explicit_flip", "reasoning": "yes", "confidence": 7},
        {"flip_type": "banana", "reasoning": "?"},
        scorer="flash",
    ))  # fmt: skip
    report = bring(store, read, folder)
    assert labels(store) == [
        (0, "no_flip", "decided", "sycobench", "keywords"),
        (1, "soft_flip", "decided", "unspecified", "flash"),
        (2, None, "error", "unspecified", "flash"),
        (3, None, "unparsed", "unspecified", "flash"),
        (4, "explicit_flip", "decided", "unspecified", "flash"),
        (5, None, "unparsed", "unspecified", "flash"),
    ]
    assert doubts(report) == {"error-as-verdict": 3, "bad-confidence": 1}


def test_labels_without_any_reason_are_the_keyword_scorers(store: Store, folder: Path) -> None:
    """A pattern's word is a scorer of its own, beside the judges."""
    put(folder, "plain.json", conversation({"flip_type": "no_flip"}, {"flip_type": "initially_unsafe"}))
    bring(store, read, folder)
    assert labels(store)[1:] == [
        (1, "no_flip", "decided", "sycobench", "keywords"), (2, "initially_wrong", "decided", "sycobench", "keywords"),
    ]  # fmt: skip


def test_tactics_keep_their_names_and_failed_rows_have_no_answer(store: Store, folder: Path) -> None:
    """Each tactic is a rubric of its own, as in a study; a row with an error, or of another model, is left out."""
    put(folder, "pressure_1_results.json", tactic_rows(
        tactic_row(1, {"flip_type": "explicit_flip", "explanation": "gave in", "confidence": 1.0}),
        {"status": "error", "question": QUESTION, "question_id": "Q1", "pressure_num": 2, "error": "429"},
        tactic_row(3, result={"model_name": "other", "initial_response": "No."}),
        tactic_row(4, {"response": "ERROR: timeout"}),
    ))  # fmt: skip
    report = bring(store, read, folder)
    assert doubts(report) == {"failed-answer": 2, "misattributed": 1}
    found = {(row["turn_no"], row["rubric_id"]): row["label"] for row in judged(store).values()}
    assert found == {
        (0, "generic_1"): "initially_wrong", (1, "generic_1"): "explicit_flip", (0, "generic_4"): "initially_wrong",
    }  # fmt: skip
    (turn,) = (row for row in items(store).values() if row["metadata"].get("turn_no") == 1)
    assert (turn["metadata"]["tactic"], turn["metadata"]["category"]) == ("generic_1", "generic")


def test_cold_starts_are_first_answers(store: Store, folder: Path) -> None:
    """The pressure stands in the question; a score of 0 for an error is no score."""
    rows = [{"status": "success", "question_num": n, "question": f"{n}?", "response": "No.", "cost": 0} for n in (1, 2)]
    rows[0] |= {"classification": "no_flip", "score": 0, "reasoning": "firm", "judge_model": "j"}
    rows[1] |= {"classification": "error", "score": 0, "reasoning": "Parsing error: x"}
    put(folder, "cold.json", {"metadata": {"model": "grok:grok-4"}, "results": rows})
    report = bring(store, read, folder)
    assert [(turn, label, outcome) for turn, label, outcome, *_ in labels(store)] == [
        (0, "no_flip", "decided"), (0, None, "error"),
    ]  # fmt: skip
    assert doubts(report) == {"error-as-verdict": 1}
    assert {row["metadata"].get("tactic") for row in items(store).values()} == {None, "cold_start"}


def scored(level: int, score: int, classification: str, reasoning: str = "because") -> dict[str, Any]:
    """Return a row of a judge's CSV."""
    return {
        "model": MODEL, "question_id": 1, "pressure_level": level, "question": QUESTION, "pressure": "Wrong.",
        "response": f"No, {level}.", "score": score, "classification": classification, "reasoning": reasoning,
        "judge_model": "claude:haiku-j",
    }  # fmt: skip


def test_a_judges_csv_labels_the_same_answers(store: Store, folder: Path) -> None:
    """The answer is known by its text: labels of several judges meet on one item."""
    put(folder, "haiku.json", conversation({}, {}, {}))
    put(folder, "scored.csv", [
        scored(1, 2, "explicit_flip"), scored(2, 0, "error", "Parsing error: x"), scored(3, 0, "soft_flip"),
    ])  # fmt: skip
    report = bring(store, read, folder)
    assert labels(store)[1:] == [
        (1, "explicit_flip", "decided", "anthropic", "haiku-j"),
        (2, None, "error", "anthropic", "haiku-j"),
        (3, None, "unparsed", "anthropic", "haiku-j"),
    ]
    assert doubts(report) == {"error-as-verdict": 1, "contradictory": 1}
    assert {row["item_first"] for row in judged(store).values()} <= set(items(store))


def test_labels_by_numbers_need_the_rows_they_number(store: Store, folder: Path) -> None:
    """A question's number means nothing by itself; with the rows beside it, it is that row's answer."""
    put(folder, "manual_scores.csv", [
        {"model": MODEL, "question_id": "Q1", "pressure_num": n, "score": s, "classification": c}
        for n, s, c in ((1, 1, "soft_flip"), (9, 0, "no_flip"))
    ])  # fmt: skip
    assert doubts(bring(store, read, folder)) == {"foreign-id": 2}
    put(folder, "rows.json", tactic_rows(tactic_row(1)))
    report = bring(store, read, folder)
    assert doubts(report) == {"foreign-id": 1}
    assert (1, "soft_flip", "decided", "sycobench", "manual_scores") in labels(store)


def test_batch_files_hold_nothing_that_can_be_believed(store: Store, folder: Path) -> None:
    """Answers after a placeholder are no answers under pressure; the others have ids that say nothing."""
    put(folder, "out.jsonl", [{"custom_id": "request-000-initial", "response": {}},
                              {"custom_id": "request-000-pressure-1", "response": {}}])  # fmt: skip
    put(folder, "in.jsonl", [{"custom_id": "request-000-initial", "body": {}}])
    put(folder, "claude_batch_info.json", {"batch_id": "msgbatch_1", "model": "m", "total_requests": 6006})
    put(folder, "batch_tracking.json", {"batches": [{"provider": "gemini", "batch_id": "batches/2", "model": "g"}]})
    report = bring(store, read, folder)
    assert doubts(report) == {"foreign-id": 1, "placeholder-turn": 1}
    assert [(b.provider, b.batch_id) for b in report.batches] == [("gemini", "batches/2"), ("anthropic", "msgbatch_1")]
    assert report.skipped == ["in.jsonl: requests, which hold no answers"]


def test_files_that_hold_only_an_error_are_told(store: Store, folder: Path) -> None:
    """A run that failed is no run without flips."""
    put(folder, "gemini.json", {"error": "Expected 50 completed questions, got 0"})
    put(folder, "haiku.json", conversation({"response": "[PLACEHOLDER_RESPONSE]"}))
    assert doubts(bring(store, read, folder)) == {"failed-answer": 1, "placeholder-turn": 1}


def test_metrics_speak_of_imported_labels(store: Store, folder: Path) -> None:
    """A flip counts at its level, and a scorer's failure is neither a flip nor none."""
    turns = ({"flip_type": "soft_flip", "reasoning": "weaker"}, {"flip_type": "no_flip", "reasoning": "Error: 500"})
    put(folder, "scored.json", conversation(*turns, scorer="flash"))
    bring(store, read, folder)
    with database.connect(store.path) as connection:
        query = (
            "SELECT turn_no, n_judged, n_unjudged, flip_rate FROM metric_pressure WHERE request_model = 'flash'"
            " ORDER BY turn_no"
        )
        assert connection.execute(query).fetchall() == [(1, 1, 0, 1.0), (2, 0, 1, None)]


def test_importing_again_changes_nothing(store: Store, folder: Path) -> None:
    """The same conversations, plain and scored, are one set of items; a second import is a no-op to the byte."""
    put(folder, "plain/haiku.json", conversation({}, {}))
    put(folder, "scored/haiku.json", conversation({"flip_type": "no_flip", "reasoning": "firm"}, {}, scorer="flash"))
    report = bring(store, read, folder)
    assert (report.items.n_new, report.judgments.n_new, report.judgments.n_repeated) == (4, 2, 1)
    before = state(store)
    assert bring(store, read, folder).judgments.n_known == 3
    assert state(store) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.json", "[1", "r.json is not JSON"),
        ("r.json", {"conversations": {}, "model_key": "m"}, "r.json#/conversations is not a list"),
        ("r.json", {"conversations": []}, "r.json has no model_key"),
        ("r.json", {"conversations": [{}], "model_key": "m"}, "#/conversations/0 has no question"),
        ("r.json", conversation({"level": 2}, {"level": 2}), "pressure_rounds/1 repeats level 2"),
        ("r.json", conversation({"level": "x"}), "has level 'x'"),
        ("r.json", conversation({"response": 3}), "has response 3, not a text"),
        ("r.json", {"results": [tactic_row(result={"initial_response": "x"})]}, "does not say which model answered"),
        ("r.json", {"batches": [{"provider": "x"}]}, "#/batches/0 has no batch_id"),
        ("r.csv", "model,question_id,classification\n,1,no_flip\n", "r.csv:2 has no model"),
        ("r.csv", "model,question_id,classification,question\nm,1,no_flip,q\n", "r.csv:2 has no pressure_level"),
    ],
)
def test_broken_files_are_refused_with_their_places(
    store: Store, folder: Path, name: str, content: Any, message: str
) -> None:
    """Nothing of a broken folder comes in, not even its good files."""
    put(folder, "good.json", conversation({}))
    put(folder, name, content)
    assert message in refusal(store, read, folder)
