"""Stages whose models answer live or through files: the next round opens just the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study import file as study
from batchpond.views.read import run_query
from tests.rigs.files_study import FilesRig
from tests.rigs.live_study import live_rig
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use, write_files

COUNTS = "select stage, mode, outcome, count(*) as n from results group by all order by all"


def study_of(answers: str, verdicts: str) -> str:
    """Return answers in one mode and verdicts on them in another."""
    return (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4.1-mini', more=mode_of(answers))}")
        + stage("verdicts", "compliance", 'stage = "answers"',
                f"---{RUBRICS}{use('compliance_brief')}{models('gpt-5.4-mini', more=mode_of(verdicts))}")
    )  # fmt: skip


def mode_of(mode: str) -> str:
    """Return the line that sets a model's mode."""
    return f'mode = "{mode}"\n'


@dataclasses.dataclass
class FilesStageRig(StageRig, FilesRig):
    """A user whose models are of mode `files`, with a study of stages."""

    providers = FilesRig.providers


def test_a_round_opens_when_the_results_of_the_files_before_it_are_there(tmp_path: Path) -> None:
    rig = FilesStageRig(tmp_path / "rig", toml=study_of("files", "files"), n_inputs=4)
    rig.plan()
    rig.submit()
    assert rig.work() == 1
    rig.sync()
    assert rig.ask(COUNTS)[1] == {"stage": "verdicts", "mode": "files", "outcome": None, "n": 4}
    rig.work()
    rig.sync()
    assert [row["outcome"] for row in rig.ask(COUNTS)] == ["decided", "unparsed"]  # the worker knows no JSON
    before = rig.tree()
    rig.sync()
    assert rig.tree() == before


def test_live_answers_open_a_round_of_live_judges(tmp_path: Path) -> None:
    write_files(tmp_path / "study", n_inputs=4)
    path = tmp_path / "study" / "study.toml"
    path.write_text(study_of("live", "live"))
    loaded = study.load(path)
    with live_rig(tmp_path) as rig:
        store = Store.init(rig.lake)
        plan_study(store, loaded)
        rig.submit("demo")
        assert rig.live().n_left == 0
        assert rig.sync().n_live == 4
        assert rig.live().n_left == 0
        rig.sync()
        assert run_query(rig.lake, COUNTS).to_pylist() == [
            {"stage": "answers", "mode": "live", "outcome": "decided", "n": 4},
            {"stage": "verdicts", "mode": "live", "outcome": "decided", "n": 4},
        ]
