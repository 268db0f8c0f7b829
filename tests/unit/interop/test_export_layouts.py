"""Exports in the layouts of other tools: what comes back is what went out, and no failure is dressed up."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from batchpond.cli import main
from batchpond.errors import UsageError
from batchpond.interop.layouts import Layout, export_layout
from batchpond.lake.schemas import IMPORTED_JUDGMENTS, ITEMS
from batchpond.lake.store import Store
from batchpond_importers import pairwisellm as import_pairwisellm
from batchpond_importers import speceval as import_speceval
from batchpond_importers import sycobench as import_sycobench
from tests.rigs.foreign import bring, doubts, items, judged, put, rows_of
from tests.rigs.lakes import BAD, LakeBuilder
from tests.unit.interop.test_import_speceval import A, B, both_generated, checked, compared, ranked
from tests.unit.interop.test_import_sycobench import MODEL, conversation, tactic_row, tactic_rows

IDENTITY = (
    "study", "task", "template_id", "rubric_id", "provider", "request_model", "unit_id", "item_first", "item_second",
    "candidate_first", "candidate_second", "turn_no", "repeat_no", "verdict", "outcome", "label", "score",
    "confidence", "explanation",
)  # fmt: skip


def facts(store: Store) -> set[tuple[Any, ...]]:
    """Return all imported judgments without where they stood."""
    return {tuple(row[name] for name in IDENTITY) for row in judged(store).values()}


def texts(store: Store) -> dict[str, str]:
    """Return all items' texts by id."""
    return {item_id: row["text"] for item_id, row in items(store).items()}


def table(path: Path) -> list[dict[str, str]]:
    """Return a CSV's rows."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    """Two batches of one pairwise study: decided both ways, ambiguous, failed; and one answer of a simulator."""
    lake = LakeBuilder(tmp_path / "lake")
    pairs = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"), ("b", "c")]
    lake.plan([{"slot": n, "request_id": f"r{n}", "item_first": x, "item_second": y} for n, (x, y) in enumerate(pairs)])
    real = {"origin": "batch", "input_tokens": 9, "output_tokens": 2}
    lake.sent("A1", "S1", ["r0", "r1", "r2"])
    lake.lines("A1", [
        real | {"request_id": "r0", "outcome": "decided", "verdict": "first", "text": "one, or\ntwo"},
        real | {"request_id": "r1", "outcome": "decided", "verdict": "second", "text": "=2"},
        real | {"request_id": "r2", "outcome": "ambiguous", "text": "both"},
    ])  # fmt: skip
    lake.sent("A2", "S2", ["r3", "r4"])
    lake.lines("A2", [
        BAD | {"request_id": "r3", "origin": "batch"},
        {"request_id": "r4", "outcome": "decided", "verdict": "first", "text": "x"},
    ])  # fmt: skip
    lake.build()
    return lake


def test_pairwisellm_gets_its_folder_and_gives_it_back(lake: LakeBuilder, tmp_path: Path) -> None:
    """A results CSV per batch, a registry, and the same verdicts on the way back; simulated ones stay simulated."""
    report = export_layout(lake.path, tmp_path / "out", Layout.PAIRWISELLM)
    assert [path.name for path in report.files] == [
        "batch_01_results.csv", "batch_02_results.csv", "combined_results.csv", "jobs_registry.csv",
    ]  # fmt: skip
    rows = table(tmp_path / "out" / "combined_results.csv")
    assert [(row["ID1"], row["ID2"], row["better_id"], row["winner_pos"]) for row in rows if row["ID1"] == "a"] == [
        ("a", "b", "a", "1"), ("a", "c", "NA", "NA"),
    ]  # fmt: skip
    registry = table(tmp_path / "out" / "jobs_registry.csv")
    assert [(row["batch_id"], row["csv_path"]) for row in registry] == [
        ("batch-A1", "batch_01_results.csv"), ("batch-A2", "batch_02_results.csv"),
    ]  # fmt: skip
    other = Store.init(tmp_path / "other")
    back = bring(other, import_pairwisellm.read, tmp_path / "out")
    assert not doubts(back)
    assert {row["origin"] for row in judged(other).values()} == {None, "simulated"}
    found = {
        (row["item_first"], row["item_second"]): (row["verdict"], row["outcome"]) for row in judged(other).values()
    }
    assert found == {
        ("a", "b"): ("first", "decided"), ("b", "a"): ("second", "decided"), ("a", "c"): (None, "ambiguous"),
        ("c", "a"): (None, "error"), ("b", "c"): ("first", "decided"),
    }  # fmt: skip
    (study,) = {row["study"] for row in judged(other).values()}
    assert study == "demo"


def test_imported_pairs_and_samples_go_round(tmp_path: Path) -> None:
    """What came from pairwiseLLM goes back to it whole, ties and repeats included."""
    first = Store.init(tmp_path / "first")
    put(tmp_path / "in", "samples.csv", "ID,text\nA,one\nB,two\n")
    put(
        tmp_path / "in",
        "r.csv",
        "ID1,ID2,better_id,outcome\nA,B,A,decided\nA,B,B,decided\nB,A,NA,tie\nA,C,NA,refused\n",
    )
    bring(
        first, import_pairwisellm.read, tmp_path / "in", defaults={"study": "s", "provider": "p", "request_model": "m"}
    )
    export_layout(first.path, tmp_path / "out", Layout.PAIRWISELLM, study="s")
    second = Store.init(tmp_path / "second")
    report = bring(second, import_pairwisellm.read, tmp_path / "out")
    assert (report.judgments.n_new, doubts(report)) == (4, {})
    assert facts(second) == facts(first)
    assert texts(second) == texts(first)


def test_which_run_was_main_and_what_was_simulated_go_round(tmp_path: Path) -> None:
    """Without them the package's figures on the way back are others, and a simulated answer looks real."""
    first = Store.init(tmp_path / "first")
    told = {"study": "s", "provider": "p", "request_model": "m"}
    for direction, rows in (
        ("forward", "B,A,B,decided,simulated\nA,C,A,decided,\n"), ("reverse", "A,B,B,decided,\nC,A,C,decided,\n"),
    ):  # fmt: skip
        put(tmp_path / direction, "r.csv", f"ID1,ID2,better_id,outcome,origin\n{rows}")
        bring(first, import_pairwisellm.read, tmp_path / direction, defaults=told | {"direction": direction})

    def kept(store: Store) -> set[tuple[str, ...]]:
        names = ("item_first", "item_second", "verdict", "direction", "origin")
        return {tuple(str(row[name]) for name in names) for row in rows_of(store, "imported_judgments")}

    before, store = kept(first), first
    assert ("B", "A", "first", "forward", "simulated") in before
    for folder in (tmp_path / "out", tmp_path / "again"):
        export_layout(store.path, folder, Layout.PAIRWISELLM, study="s")
        store = Store.init(folder.with_suffix(".lake"))
        bring(store, import_pairwisellm.read, folder)
        assert kept(store) == before


SPEC = (
    "# Manners\n## Be kind {#s1 authority=user type=requirement}\nBe kind.\n\n**Example**: a greeting\n\n"
    "~~~xml\n<user>\nHi\n</user>\n<comparison>\n<assistant> <!-- BAD -->\nNo.\n</assistant>\n"
    "<assistant> <!-- GOOD -->\nHello!\n</assistant>\n</comparison>\n~~~\n"
)


def test_speceval_trees_go_round(tmp_path: Path) -> None:
    """Statements with examples, inputs, generations, rankings, compliance and ratings come back, failures as such."""
    folder = tmp_path / "in"
    put(folder, "openai.md", SPEC)
    both_generated(folder, "q", "r", "t")
    ranked(folder, [compared("q", 1, "Model: A"), compared("r", 0, "Model: equal"), compared("t", 0, "prose")])
    ranked(folder, [compared("q", 0, "Model: N/A", f"{B} on q", f"{A} on q")], B, A)
    checked(folder, [
        {"input": "q", "output": f"{A} on q", "compliant": False, "confidence": 0.9, "explanation": "rude"},
        {"input": "r", "output": f"{A} on r", "compliant": None, "confidence": 0.5, "explanation": "hm"},
    ])  # fmt: skip
    checked(folder, [
        {"input": asked, "output": f"{B} on {asked}", "rating": rating, "explanation": "so"}
        for asked, rating in (("q", 4), ("r", 0))
    ], B)  # fmt: skip
    first = Store.init(tmp_path / "first")
    bring(first, import_speceval.read, folder)
    assert len(facts(first)) == 8
    report = export_layout(first.path, tmp_path / "out", Layout.SPECEVAL)
    names = {path.relative_to(tmp_path / "out").as_posix() for path in report.files}
    assert f"rankings/spec_openai/judge_j-1/{A}x{B}/results/s1.json" in names
    assert f"generations/{B}/00000000_000000/results/s1.json" in names
    assert {"spec.jsonl", "inputs/s1.json"} <= names
    ranks = json.loads((tmp_path / "out" / f"rankings/spec_openai/judge_j-1/{A}x{B}/results/s1.json").read_text())
    assert {row["input"]: row["rank"] for row in ranks["rankings"]} == {"q": 1, "r": 0, "t": None}
    second = Store.init(tmp_path / "second")
    back = bring(second, import_speceval.read, tmp_path / "out", is_strict=True)
    assert doubts(back) == {}
    assert facts(second) == facts(first)
    assert texts(second) == texts(first)
    assert [row["rubric_hash"] for row in rows_of(second, "rubrics")] == [
        row["rubric_hash"] for row in rows_of(first, "rubrics")
    ]


def test_sycobench_conversations_go_round(tmp_path: Path) -> None:
    """Conversations, tactics and each judge's labels come back; a judge's failure stays one."""
    folder = tmp_path / "in"
    put(folder, "scored.json", conversation(
        {"flip_type": "soft_flip", "reasoning": "weaker", "confidence": 0.8},
        {"flip_type": "no_flip", "reasoning": "Parsing error: x"}, {}, scorer="flash",
    ))  # fmt: skip
    flip = {"flip_type": "explicit_flip", "explanation": "gave in"}
    put(folder, "rows.json", tactic_rows(tactic_row(1, flip), tactic_row(2, flip)))
    first = Store.init(tmp_path / "first")
    bring(first, import_sycobench.read, folder, defaults={"study": "syco"})
    report = export_layout(first.path, tmp_path / "out", Layout.SYCOBENCH, study="syco")
    assert {path.relative_to(tmp_path / "out").as_posix() for path in report.files} == {
        f"conversations/{MODEL}.json", f"scoring/{MODEL}_scored_by_flash.json",
        f"scoring/{MODEL}_scored_by_keywords.json", f"scoring/{MODEL}_scored_by_unspecified.json",
    }  # fmt: skip
    second = Store.init(tmp_path / "second")
    back = bring(second, import_sycobench.read, tmp_path / "out", defaults={"study": "syco"})
    assert doubts(back) == {}
    assert facts(second) == facts(first)
    assert texts(second) == texts(first)


def test_judges_and_studies_of_one_name_have_a_folder_each(tmp_path: Path) -> None:
    """Two providers' models of one name, and two studies of one spec, are not mixed up; a name is a safe path."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.rows(ITEMS, [
        {"item_hash": f"h{name}", "item_id": name, "text": f"{name} é", "metadata": None} for name in ("u", "o")
    ])  # fmt: skip
    told = {
        "task": "compliance", "template_id": "t", "rubric_id": "../s 1", "request_model": "org/m", "unit_id": "u",
        "item_first": "o", "candidate_first": "c", "repeat_no": 1, "verdict": "true", "outcome": "decided",
        "source": "spec_one/x", "thinking": "default",
    }  # fmt: skip
    lake.rows(IMPORTED_JUDGMENTS, [
        told | {"import_key": f"{study}{provider}", "study": study, "provider": provider}
        for study, provider in (("a", "p"), ("a", "q"), ("b", "p"))
    ])  # fmt: skip
    lake.build()
    report = export_layout(lake.path, tmp_path / "out", Layout.SPECEVAL)
    found = {path.relative_to(tmp_path / "out").as_posix(): json.loads(path.read_text()) for path in report.files}
    assert {name: document["metadata"]["study"] for name, document in found.items() if name.startswith("comp")} == {
        "compliance/spec_one/judge_org-m/c/results/-s-1.json": "a",
        "compliance/spec_one/judge_q-org-m/c/results/-s-1.json": "a",
        "compliance/spec_b/judge_org-m/c/results/-s-1.json": "b",
    }
    assert [row["output"] for row in found["compliance/spec_b/judge_org-m/c/results/-s-1.json"]["results"]] == ["o é"]


def test_each_way_of_a_judge_has_a_file_and_what_has_no_place_is_told(tmp_path: Path) -> None:
    """Labels by two templates, with thinking or of two studies are no second turn; repeats and lost texts are told."""
    lake = LakeBuilder(tmp_path / "lake")
    talk = {"unit_id": "u", "candidate": "c", "tactic": "push", "origin": "imported"}
    lake.rows(ITEMS, [
        {"item_hash": "hu", "item_id": "u", "text": "asked", "metadata": None},
        *({"item_hash": f"h{n}", "item_id": f"o{n}", "text": f"said {n}", "metadata": json.dumps(talk | {"turn_no": n})}
          for n in range(2)),
    ])  # fmt: skip
    told = {
        "task": "pressure", "rubric_id": "push", "provider": "p", "request_model": "org/m", "unit_id": "u",
        "candidate_first": "c", "outcome": "decided", "source": "x", "verdict": None,
    }  # fmt: skip
    ways = [("a", "t", "off", "no_flip"), ("a", "other", "off", "soft_flip"), ("a", "t", "high", "explicit_flip"),
            ("b", "t", "off", "no_flip"), ("b", "t?", "off", "no_flip"), ("b", "t!", "off", "soft_flip")]  # fmt: skip
    rows = [(study, template, thinking, label, f"o{turn}", turn, 1) for study, template, thinking, label in ways
            for turn in range(2)]  # fmt: skip
    rows += [("a", "t", "off", "soft_flip", "o1", 1, 2), ("a", "t", "off", "soft_flip", "gone", 2, 1)]
    lake.rows(IMPORTED_JUDGMENTS, [
        told | {
            "import_key": str(number), "study": study, "template_id": template, "thinking": thinking, "label": label,
            "item_first": item, "turn_no": turn, "repeat_no": repeat,
        }
        for number, (study, template, thinking, label, item, turn, repeat) in enumerate(rows)
    ])  # fmt: skip
    lake.build()
    report = export_layout(lake.path, tmp_path / "out", Layout.SYCOBENCH)
    found = {path.name: json.loads(path.read_text()) for path in report.files}
    turns = {name: document["conversations"][0]["pressure_rounds"] for name, document in found.items()}
    assert {name: [(turn["level"], turn.get("flip_type")) for turn in said] for name, said in turns.items()} == {
        "c.json": [(1, None)],
        "c_scored_by_org-m-a-t-off.json": [(1, "no_flip")],
        "c_scored_by_org-m-a-other-off.json": [(1, "soft_flip")],
        "c_scored_by_org-m-a-t-high.json": [(1, "explicit_flip")],
        "c_scored_by_org-m-b-t-off.json": [(1, "no_flip")],
        "c_scored_by_org-m-b-t--off.json": [(1, "soft_flip")],
        "c_scored_by_org-m-b-t--off-2.json": [(1, "no_flip")],
    }
    assert list(report.left_out.values()) == [1, 1]
    assert [why.split(":")[0] for why in report.left_out] == [
        "judgments that are repeats", "judgments of answers whose text, or question, is not in the lake",
    ]  # fmt: skip


def test_what_a_simulator_wrote_stays_out(tmp_path: Path) -> None:
    """Neither its answers nor its judgments look real in another tool's files; how many is told."""
    lake = LakeBuilder(tmp_path / "lake")
    about = {"rubric_id": "s1", "unit_id": "u", "pair_id": None, "item_second": None, "candidate_first": "m"}
    lake.plan([
        {"slot": n, "request_id": f"r{n}", "task": task, "item_first": "o", "item_first_hash": "ho"} | about
        for n, task in enumerate(("generation", "compliance"))
    ])  # fmt: skip
    where = json.dumps({"unit_id": "u", "rubric_id": "s1", "candidate": "m"})
    lake.rows(ITEMS, [
        {"item_hash": "ho", "item_id": "o", "text": "made up", "metadata": where},
        {"item_hash": "hu", "item_id": "u", "text": "asked", "metadata": None},
    ])  # fmt: skip
    lake.sent("A1", "S1", ["r0", "r1"])
    lake.lines("A1", [
        {"request_id": "r0", "outcome": "decided", "text": "made up"},
        {"request_id": "r1", "outcome": "decided", "verdict": "true", "text": "{}"},
    ])  # fmt: skip
    lake.build()
    report = export_layout(lake.path, tmp_path / "out", Layout.SPECEVAL)
    assert [path.name for path in report.files] == ["s1.json"]
    assert json.loads(report.files[0].read_text()) == {"inputs": ["asked"]}
    assert report.left_out == {"simulated judgments, which must not look like real ones": 1}


def test_nothing_is_overwritten_or_invented(lake: LakeBuilder, tmp_path: Path) -> None:
    """A folder that holds something, an unknown study and an empty layout are plain errors."""
    put(tmp_path / "full", "notes.txt", "mine")
    for folder, layout, study, message in (
        (tmp_path / "full", Layout.PAIRWISELLM, None, "exists already"),
        (tmp_path / "new", Layout.PAIRWISELLM, "none", "the lake holds no study 'none'"),
        (tmp_path / "new", Layout.SPECEVAL, None, "nothing in the lake has a place in the layout of speceval"),
    ):
        with pytest.raises(UsageError, match=message):
            export_layout(lake.path, folder, layout, study=study)
    assert not (tmp_path / "new").exists()
    assert len(export_layout(lake.path, tmp_path / "full", Layout.PAIRWISELLM, force=True).files) == 4


def test_the_command_line(lake: LakeBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files on stdout with --json; options of views do not go with a layout, nor --study with a view."""
    command = ["export", str(tmp_path / "out"), "--lake", str(lake.path)]
    assert main([*command, "--layout", "pairwisellm", "--view", "results"]) == 2
    assert main([*command, "--study", "demo", "--format", "csv"]) == 2
    capsys.readouterr()
    assert main([*command, "--layout", "pairwisellm", "--study", "demo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["layout"], len(document["files"]), document["left_out"]) == ("pairwisellm", 4, {})
