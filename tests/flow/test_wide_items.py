"""Rows that have each candidate's output in a column of its own are asked about as a row for each output would be."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from batchpond import Lake
from batchpond import Study as Objects
from batchpond.errors import StudyError
from tests.rigs.stage_study import StageRig, models, use

HELPFUL = '[[rubrics]]\nid = "helpful"\nname = "Helpful"\ndescription = "It helps who asked."\n'
WIDE = 'path = "wide.{}"\ncandidates = ["low", "mid", "top"]\ninput = "question"\n'
LONG = 'path = "long.csv"\nunit = "asked"\ncandidate = "model"\ninput = "question"\n'
NAMES = ("low", "mid", "top")
ROWS = [{"id": f"q{n}", "question": f"Question {n}?", "reference": f"Reference {n}.",
         **{name: f"Answer {n} of {name}." for name in NAMES}} for n in range(3)]  # fmt: skip


def study(items: str, task: str = "ranking", template: str = "ranking_reference") -> str:
    """Return a study of outputs."""
    ways = (use(template) + models("gpt-5.4-mini")).replace("stages.", "")
    return f'study = "demo"\ntask = "{task}"\n[items]\n{items}{HELPFUL}{ways}'


def rig_of(path: Path, toml: str) -> StageRig:
    """Return a rig with the outputs in both forms, and as Parquet and JSON lines."""
    rig = StageRig(path / "rig", toml=toml)
    folder, wide = rig.study_path.parent, pl.DataFrame(ROWS)
    wide.write_csv(folder / "wide.csv")
    wide.write_parquet(folder / "wide.parquet")
    wide.write_ndjson(folder / "wide.jsonl")
    pl.DataFrame(
        {"id": f"{row['id']}/{name}", "text": row[name], "asked": row["id"], "model": name,
         "question": row["question"], "reference": row["reference"]}
        for row in ROWS for name in NAMES
    ).write_csv(folder / "long.csv")  # fmt: skip
    return rig


ASKED = "SELECT request_id, unit_id, item_first, candidate_first, direction FROM plan_current ORDER BY ALL"


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize(
    ("task", "template"), [("ranking", "ranking_reference"), ("compliance", "compliance_reference")]
)
def test_both_forms_are_the_same_requests(tmp_path: Path, suffix: str, task: str, template: str) -> None:
    """Of the same units, items and candidates, other columns shown; and no item knows another one's output."""
    rig = rig_of(tmp_path, study(LONG, task, template))
    rig.planned()
    before = rig.ask(ASKED)
    rig.write(study(WIDE.format(suffix), task, template))
    assert rig.planned().n_new == 0
    assert rig.ask(ASKED) == before
    assert len(before) == (18 if task == "ranking" else 9)
    rows = rig.ask("SELECT * FROM items WHERE metadata LIKE '%Answer%'")
    assert rows == []


def test_frames_have_columns_of_candidates_too(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, study(WIDE.format("csv")))
    rig.planned()
    lake = Lake(tmp_path / "other")
    rubric = {"id": "helpful", "name": "Helpful", "description": "It helps who asked."}
    model = {"provider": "openai", "model": "gpt-5.4-mini", "max_output_tokens": 300}
    items = {"path": pl.DataFrame(ROWS), "candidates": list(NAMES), "input": "question"}
    of_frame = Objects("demo", task="ranking", items=items, rubrics=[rubric], models=[model],
                       templates=[{"use": "ranking_reference"}])  # fmt: skip
    lake.plan(of_frame)
    ids = lake.view("requests").select("request_id").collect()["request_id"].to_list()
    assert sorted(ids) == [row["request_id"] for row in rig.ask("SELECT request_id FROM requests ORDER BY ALL")]


def test_messages_of_a_chat_are_shown_as_json(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, study(WIDE.format("jsonl")))
    rows = [{**row, "question": [{"role": "user", "content": row["question"]}]} for row in ROWS]
    pl.DataFrame(rows).write_ndjson(rig.study_path.parent / "wide.jsonl")
    rig.planned()
    shown = rig.ask("SELECT body ->> '$.messages[0].content' AS text FROM requests")
    assert all('[{"content":"Question ' in row["text"] and '?","role":"user"}]' in row["text"] for row in shown)


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (WIDE.format("csv").replace('"top"', '"tops"'), "wide.csv: line 2 has no column 'tops'; it has 'id'"),
        (WIDE.format("csv") + 'text = "low"\n', "items.text cannot be given together with candidates"),
        (WIDE.format("csv") + 'candidate = "low"\n', "items.candidate cannot be given together with candidates"),
        (WIDE.format("csv") + 'id = "low"\n', "items.candidates names 'low', the column of the ids"),
        (WIDE.format("txt"), "items.candidates are columns, and there are none"),
        ('path = "bare.csv"\ncandidates = ["a", "b"]\n', "line 3, b: id 'q2/b' has an empty text"),
        ('path = "named.csv"\ncandidates = ["a", "b"]\n', "named.csv: line 2 has a column 'candidate'"),
    ],
)
def test_columns_that_could_not_be_meant_are_refused(tmp_path: Path, items: str, says: str) -> None:
    rig = rig_of(tmp_path, study(items, template="ranking_plain"))
    folder = rig.study_path.parent
    (folder / "wide.txt").write_text("One?\n")
    (folder / "bare.csv").write_text("id,a,b\nq1,One.,Two.\nq2,Three.,\n")
    (folder / "named.csv").write_text("id,a,b,candidate\nq1,One.,Two.,me\n")
    with pytest.raises(StudyError) as caught:
        rig.planned()
    assert says in caught.value.message
    assert caught.value.hint
