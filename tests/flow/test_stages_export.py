"""A study of stages in the layouts of other tools: what its rounds asked and answered stands where they look for it."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from batchpond.interop.layouts import Layout, export_layout
from tests.rigs.stage_study import CANDIDATES, STATEMENTS, StageRig, models, spec_study, stage, use

N_INPUTS = 8
REMOTE = "https://api.openai.com/openai/v1"
TACTICS = ("false_research", "direct_compliance")
TALK = (
    'study = "demo"\n'
    + stage("talk", "conversation", 'path = "questions.csv"',
            f"turns = 2\ntactics = {orjson.dumps(TACTICS).decode()}\n---{models(CANDIDATES[0])}")
    + stage("labels", "pressure", 'stage = "talk"', f"---{use('pressure_label')}{models('gpt-5.4-mini')}")
)  # fmt: skip
PAIRWISE = '[[stages.rubrics]]\nuse = "overall_quality"\n' + use("plain")
SCREENED = (
    'study = "demo"\n'
    + stage("screen", "pairwise", 'path = "questions.csv"', f"---{PAIRWISE}{models('gpt-5.4-nano')}")
    + stage("again", "pairwise", 'stage = "screen"\nwhere = "verdict = \'first\'"',
            f"---{PAIRWISE}{models('gpt-5.4-mini')}")
)  # fmt: skip


def exported(path: Path, toml: str, layout: Layout, n_inputs: int) -> tuple[StageRig, Path]:
    """Return a study brought to its end, and the folder it is exported to."""
    # Answers of an address that is no simulator's: those would be left out.
    rig = StageRig(path / "rig", toml=toml, n_inputs=n_inputs, base_urls={"openai": REMOTE})
    rig.plan()
    rig.submit()
    rig.finish()
    report = export_layout(rig.lake, path / "out", layout, study="demo")
    assert not report.left_out
    return rig, path / "out"


def documents(folder: Path) -> list[Any]:
    """Return all JSON files below a folder."""
    return [orjson.loads(path.read_bytes()) for path in sorted(folder.rglob("*.json"))]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> tuple[StageRig, Path]:
    """Answers, rankings and verdicts, as a SpecEval tree."""
    return exported(tmp_path_factory.mktemp("spec"), spec_study(), Layout.SPECEVAL, N_INPUTS)


def test_a_speceval_tree_has_every_statement_input_and_output(spec: tuple[StageRig, Path]) -> None:
    rig, folder = spec
    lines = [orjson.loads(line) for line in (folder / "spec.jsonl").read_bytes().splitlines()]
    assert {line["id"] for line in lines} == set(STATEMENTS)
    assert sum(len(found["inputs"]) for found in documents(folder / "inputs")) == N_INPUTS
    outputs = Counter(
        (row["input_text"], row["output_text"]) for rows in documents(folder / "generations") for row in rows
    )
    rows = rig.ask(
        "select items.text as input, results.text as output from results"
        " join items on items.item_hash = results.item_first_hash where stage = 'answers'"
    )
    assert outputs == Counter((row["input"], row["output"]) for row in rows)
    assert len(rows) == N_INPUTS * len(CANDIDATES)


def test_a_speceval_tree_has_every_verdict_beside_the_outputs_it_is_about(spec: tuple[StageRig, Path]) -> None:
    rig, folder = spec
    words = {"first": 1, "second": -1, "tie": 0}
    ranked = Counter(
        (row["input"], row["output_a"], row["output_b"], row["rank"])
        for found in documents(folder / "rankings") for row in found["rankings"]
    )  # fmt: skip
    rows = rig.ask(
        "select asked.text as input, one.text as a, two.text as b, verdict from results"
        " join items as asked on asked.item_id = results.unit_id"
        " join items as one on one.item_hash = item_first_hash join items as two on two.item_hash = item_second_hash"
        " where stage = 'ranking'"
    )
    assert ranked == Counter((row["input"], row["a"], row["b"], words[row["verdict"]]) for row in rows)
    assert len(rows) == N_INPUTS * len(CANDIDATES) * (len(CANDIDATES) - 1)
    judged = Counter(
        (row["output"], row["compliant"], row["confidence"])
        for found in documents(folder / "compliance") for row in found["results"]
    )  # fmt: skip
    rows = rig.ask(
        "select items.text, verdict, confidence from results join items on items.item_hash = item_first_hash"
        " where stage = 'compliance'"
    )
    assert judged == Counter((row["text"], row["verdict"] == "true", row["confidence"]) for row in rows)


def test_sycobench_conversations_are_whole_and_apart_by_tactic(tmp_path: Path) -> None:
    rig, folder = exported(tmp_path, TALK, Layout.SYCOBENCH, 3)
    (plain,) = documents(folder / "conversations")
    (scored,) = documents(folder / "scoring")
    for found in (plain, scored):
        assert {(talk["question"], talk["pressure_type"]) for talk in found["conversations"]} == {
            (f"Is claim number {n} true?", tactic) for n in range(3) for tactic in TACTICS
        }
    said = {
        (talk["question"], talk["pressure_type"], turn): text
        for talk in scored["conversations"]
        for turn, text in enumerate(
            [talk["initial_response"]["response"], *(turn["response"] for turn in talk["pressure_rounds"])]
        )
    }
    rows = rig.ask(
        "select items.text as question, rubric_id, turn_no, results.text from results"
        " join items on items.item_hash = item_first_hash where stage = 'talk'"
    )
    assert said == {(row["question"], row["rubric_id"], row["turn_no"]): row["text"] for row in rows}
    labels = Counter(
        turn["flip_type"]
        for talk in scored["conversations"]
        for turn in (talk["initial_response"], *talk["pressure_rounds"])
    )
    written = {"initially_wrong": "initially_unsafe"}
    rows = rig.ask("select label from results where stage = 'labels'")
    assert labels == Counter(written.get(row["label"], row["label"]) for row in rows)


def test_pairwisellm_gets_the_comparisons_of_every_stage(tmp_path: Path) -> None:
    rig, folder = exported(tmp_path, SCREENED, Layout.PAIRWISELLM, 4)
    with (folder / "combined_results.csv").open(newline="", encoding="utf-8") as lines:
        found = Counter((row["ID1"], row["ID2"], row["model"], row["better_id"]) for row in csv.DictReader(lines))
    rows = rig.ask("select item_first, item_second, request_model, better_item, stage from results")
    assert found == Counter(
        (row["item_first"], row["item_second"], row["request_model"], row["better_item"] or "") for row in rows
    )
    assert {row["stage"] for row in rows} == {"screen", "again"}
