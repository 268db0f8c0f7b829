"""What live runs and Together runs of SpecEval left behind: other files, the same rules of what is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchpond.lake.store import Store
from batchpond_importers.speceval import read, unit_of
from tests.rigs.foreign import bring, doubts, items, judged, put, refusal, rows_of, state

E, A, B = "gpt-4o", "Qwen/Qwen3-8x7b", "claude-3x"
A_FOLDER = "Qwen-Qwen3-8x7b"
JUDGE = {"provider": "anthropic", "model_name": "claude-j"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files of the other tool stand."""
    return tmp_path / "data"


def told(model: str, **more: Any) -> dict[str, Any]:
    """Return the metadata of a live cache."""
    return {"candidate_model": {"provider": "p", "model_name": model}, "evaluator_model": {"model_name": E},
            "timestamp": "2025-04-01T12:00:00", "statement_id": "s1", **more}  # fmt: skip


def generated(folder: Path, model: str, **outputs: Any) -> None:
    """Write the cache of what a model answered in a live run."""
    rows = [{"input": asked, "output": text} for asked, text in outputs.items()]
    name = f"generations/{E}x{model.replace('/', '-')}/s1.json"
    put(folder, name, {"metadata": told(model), "generations": rows})


def both_generated(folder: Path) -> None:
    """Write what both models answered to three inputs."""
    for model in (A, B):
        generated(folder, model, **{asked: f"{model} on {asked}" for asked in "qrs"})


def ranked(folder: Path, *rows: tuple[str, int, str, str], first: str = A_FOLDER, second: str = B) -> None:
    """Write a live ranking; its rows are input, rank, and the two outputs."""
    metadata = {"evaluator_model": E, "model_a": first, "model_b": second, "ranking_model": JUDGE, "statement_id": "s1",
                "timestamp": "2025-04-01T12:00:00"}  # fmt: skip
    found = [{"input": asked, "output_a": x, "output_b": y, "rank": rank} for asked, rank, x, y in rows]
    name = f"rankings/ranker_{JUDGE['model_name']}/{E}/{first}VS{second}/s1.json"
    put(folder, name, {"metadata": metadata, "rankings": found})


def test_live_rankings_come_in_where_generations_prove_them(store: Store, folder: Path) -> None:
    """Winners are believed; rank 0 without a judge's text is not a tie; an output under the wrong name stays out."""
    both_generated(folder)
    ranked(
        folder,
        ("q", 1, f"{A} on q", f"{B} on q"),
        ("r", 0, f"{A} on r", f"{B} on r"),
        ("s", -1, f"{B} on s", f"{A} on s"),
    )
    report = bring(store, read, folder, defaults={"study": "live"})
    assert doubts(report) == {"zero-rank": 1, "misattributed": 1}
    found = {row["unit_id"]: row for row in judged(store).values()}
    assert {unit: (row["verdict"], row["outcome"]) for unit, row in found.items()} == {
        unit_of("s1", "q"): ("first", "decided"), unit_of("s1", "r"): (None, "unparsed"),
    }  # fmt: skip
    row = found[unit_of("s1", "q")]
    assert (row["study"], row["task"], row["provider"], row["request_model"]) == (
        "live", "ranking", "anthropic", "claude-j",
    )  # fmt: skip
    texts = items(store)
    assert (row["candidate_first"], texts[row["item_first"]]["text"]) == (A_FOLDER, f"{A} on q")
    assert texts[row["item_first"]]["metadata"]["model_name"] == A
    before = state(store)
    bring(store, read, folder, defaults={"study": "live"})
    assert state(store) == before


def test_live_rankings_alone_prove_nothing(store: Store, folder: Path) -> None:
    """The folders that their names came from are split at the first `x`; `3x` would have been cut in two."""
    generated(folder, A, q="one")
    generated(folder, B, q="two")
    ranked(folder, ("q", 1, "one", "two"), first=A_FOLDER, second="claude-3")
    assert doubts(bring(store, read, folder)) == {"unproven-candidates": 1}
    assert judged(store) == {}


def test_the_judge_of_a_live_ranking_is_its_folder_where_the_file_names_none(store: Store, folder: Path) -> None:
    both_generated(folder)
    name = f"rankings/ranker_j-2/{E}/{A_FOLDER}VS{B}/s1.json"
    rows = [{"input": "q", "output_a": f"{A} on q", "output_b": f"{B} on q", "rank": 1}]
    put(folder, name, {"metadata": {"model_a": A_FOLDER, "model_b": B}, "rankings": rows})
    bring(store, read, folder)
    assert [row["request_model"] for row in judged(store).values()] == ["j-2"]


def test_live_caches_of_judgments_are_compliance(store: Store, folder: Path) -> None:
    """With the judge and the candidate that the file names; a failure recorded as 0.5 is unknown."""
    rows = [
        {"input": "q", "output": "fine", "compliant": True, "confidence": 0.9, "explanation": "because"},
        {"input": "r", "output": "hm", "compliant": None, "confidence": 0.5, "explanation": "ERROR: x"},
    ]
    found = {"metadata": told(A, judge_model=JUDGE), "judgements": rows}
    put(folder, f"judgements/JUDGE_ANTHROPIC/{E}x{A_FOLDER}/s1.json", found)
    report = bring(store, read, folder)
    assert doubts(report) == {"error-as-verdict": 1}
    assert {
        (row["candidate_first"], row["request_model"], row["verdict"], row["outcome"], row["confidence"])
        for row in judged(store).values()
    } == {(A_FOLDER, "claude-j", "true", "decided", 0.9), (A_FOLDER, "claude-j", None, "error", None)}


def together(*rows: Any) -> dict[str, Any]:
    """Return the one file of a Together run."""
    return {"metadata": {"model_name": A, "total_prompts": len(rows), "run_timestamp": "20250401_120000"},
            "results": list(rows)}  # fmt: skip


def answer(statement: str, asked: str, text: Any, n: int = 0) -> dict[str, Any]:
    """Return a row of a Together run."""
    return {"statement_id": statement, "original_index": n, "input_text": asked, "output_text": text}


def test_a_together_run_is_one_file_of_many_statements(store: Store, folder: Path) -> None:
    """Its model is named as its folder and its rankings name it; errors in the place of answers stay out."""
    rows = [answer("s1", "q", "one"), answer("s2", "q", "two", 1), answer("s2", "r", "ERROR: Result missing", 2)]
    put(folder, f"together/openai/{A_FOLDER}/20250401_120000/results.json", together(*rows))
    report = bring(store, read, folder)
    assert doubts(report) == {"failed-answer": 1}
    outputs = [row for row in items(store).values() if row["metadata"]["kind"] == "output"]
    assert {(row["text"], row["metadata"]["rubric_id"], row["metadata"]["candidate"]) for row in outputs} == {
        ("one", "s1", A_FOLDER), ("two", "s2", A_FOLDER),
    }  # fmt: skip
    assert {row["metadata"]["unit_id"] for row in outputs} == {unit_of("s1", "q"), unit_of("s2", "q")}
    batch = [{"original_index": 0, "input_text": "q", "output_text": "one", "batch_id": "b"}]
    put(folder, f"converted/{A_FOLDER}/20250401_120000/results/s1.json", batch)
    assert bring(store, read, folder).items.n_new == 0  # the same answer from the other layout is the same item


def test_specs_of_all_forms_are_rubrics(store: Store, folder: Path) -> None:
    """YAML and Markdown beside JSON lines; settings in YAML and prose in Markdown are no specs."""
    put(folder, "specs/a.yaml", "id: s1\ntext: Be kind.\ntype: PROHIBITION\n")
    put(folder, "specs/b.md", "# Part\n## Be brief {#s2 authority=user}\nSay little.\n")
    put(folder, "specs/c.jsonl", [{"id": "s3", "text": "Be true."}])
    put(folder, "README.md", "# About\nprose\n")
    put(folder, "config.yml", "spec_name: openai\nbatch_size: 100\n")
    report = bring(store, read, folder)
    assert (report.rubrics.n_new, report.n_skipped) == (3, 2)
    assert {row["rubric_id"]: row["description"] for row in rows_of(store, "rubrics")} == {
        "s1": "Be kind.", "s2": "Say little.", "s3": "Be true.",
    }  # fmt: skip
    assert items(store)["statement/s2"]["metadata"]["authority_level"] == "user"


METADATA = {"model_a": "a", "model_b": "b"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.json", {"metadata": {}, "generations": []}, "has candidate_model None, which names no model"),
        ("g.json", {"metadata": told(A), "generations": {}}, "g.json#/generations is not a list"),
        ("g.json", {"metadata": told(A), "generations": [{"output": "x"}]}, "g.json#/generations/0 has no input"),
        ("g.json", {"metadata": told(A), "generations": [{"input": "x"}]}, "#/generations/0 has output None"),
        ("j.json", {"metadata": told(A), "judgements": [{"input": "q", "output": "o"}]}, "neither compliant"),
        ("j.json", {"metadata": told(A), "judgements": 3}, "j.json#/judgements is not a list"),
        ("results.json", together(answer("s1", "q", 3)), "#/results/0 has output_text 3"),
        ("results.json", together({"input_text": "q", "output_text": "x"}), "#/results/0 has no statement_id"),
        ("results.json", together("x"), "#/results/0 is not an object"),
        ("results.json", together() | {"metadata": {"model_name": " "}}, "has a blank model_name"),
        ("s.yaml", "- id: a\n", "s.yaml:1 has no text"),
        ("s.yaml", "id: [\n", "s.yaml:2 is not YAML"),
        ("s.md", "# A {#a}\nx\n# B {#a}\ny\n", "s.md:3 repeats the id 'a' of s.md:1"),
        ("s.jsonl", '{"id": "a", "text": "x", "examples": 1}\n', "s.jsonl:1 cannot be used: statement 'a' has"),
    ],
)  # fmt: skip
def test_broken_files_are_refused_with_their_places(
    store: Store, folder: Path, name: str, content: Any, message: str
) -> None:
    """Nothing of a broken tree comes in, not even its good files."""
    both_generated(folder)
    put(folder, name, content)
    assert message in refusal(store, read, folder)
