"""A sample of a study: what follows from it is asked, nobody else is, and the rest follows later, nothing twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from batchpond.errors import UsageError
from batchpond.run.stages import StageState, stages
from tests.flow.test_adaptive_rounds import TOML as ADAPTIVE
from tests.flow.test_stages_rounds import asked_by_request
from tests.rigs.adaptive_study import rig_of as adaptive_rig
from tests.rigs.stage_study import RUBRICS, StageRig, models, spec_study, stage, use

ONE = "gpt-4.1-mini"
TABLE = """
select stage, template_id, rubric_id, request_model, item_first, item_second, turn_no, direction, request_id, outcome,
       verdict
from results order by all
"""
COUNTS = "select stage, count(*) as n, count(outcome) as n_said from results group by stage order by stage"


def counts(rig: StageRig) -> dict[str, tuple[int, int]]:
    """Return how many rows each stage has, and how many of them have come to something."""
    return {row["stage"]: (row["n"], row["n_said"]) for row in rig.ask(COUNTS)}


def whole_of(path: Path, toml: str, n_inputs: int) -> StageRig:
    """Return the same study, sent at once and brought to its end."""
    rig = StageRig(path, toml=toml, n_inputs=n_inputs)
    rig.plan()
    rig.submit()
    rig.finish()
    return rig


def test_later_stages_ask_about_the_sample_and_then_about_the_rest(tmp_path: Path) -> None:
    rig = StageRig(tmp_path / "rig", toml=spec_study(), n_inputs=4)
    rig.plan()
    shown = rig.submit(limit=6).preview
    assert shown.n_requests == 6
    assert rig.submit(limit=6).preview.n_requests == 0
    rig.finish()
    assert counts(rig) == {"answers": (12, 6), "ranking": (12, 12), "compliance": (6, 6)}
    before = rig.tree()
    rig.sync()
    assert rig.tree() == before
    assert {s.stage: s.state for s in stages(rig.store(), rig.lake_state())} == dict.fromkeys(
        ("answers", "ranking", "compliance"), StageState.DONE
    )
    early = set(asked_by_request(rig))
    assert rig.submit(limit=9).preview.n_requests == 3
    rig.finish()
    assert counts(rig) == {"answers": (12, 9), "ranking": (18, 18), "compliance": (9, 9)}
    assert early < set(asked_by_request(rig))
    assert rig.submit().preview.n_requests == 3
    rig.finish()
    assert set(asked_by_request(rig).values()) == {1}
    assert rig.violations() == []
    assert rig.ask(TABLE) == whole_of(tmp_path / "whole", spec_study(), 4).ask(TABLE)


def test_a_sample_is_of_every_stage_that_waits_for_nothing(tmp_path: Path) -> None:
    """Each in turn, and what waits for two of them has something of both."""
    items = 'path = "inputs.csv"\nrubric = "statement"'
    toml = (
        'study = "demo"\n'
        + stage("a", "generation", items, f"---{RUBRICS}{use('question')}{models(ONE)}")
        + stage("b", "compliance", items, f"---{RUBRICS}{use('compliance_brief')}{models(ONE)}")
        + stage("c", "compliance", 'stage = "a"\nafter = ["b"]', f"---{RUBRICS}{use('compliance_brief')}{models(ONE)}")
    )
    rig = StageRig(tmp_path / "rig", toml=toml, n_inputs=4)
    rig.plan()
    rig.submit(limit=5)
    rig.finish()
    assert counts(rig) == {"a": (4, 3), "b": (4, 2), "c": (3, 3)}
    rig.submit()
    rig.finish()
    assert counts(rig) == {"a": (4, 4), "b": (4, 4), "c": (4, 4)}
    assert set(asked_by_request(rig).values()) == {1}


def test_conversations_of_a_sample_are_led_to_their_end(tmp_path: Path) -> None:
    toml = (
        'study = "demo"\n'
        + stage("talk", "conversation", 'path = "questions.csv"', f"turns = 2\n---{models(ONE)}")
        + stage("labels", "pressure", 'stage = "talk"', f"---{use('pressure_first_answer')}{models(ONE)}")
    )
    rig = StageRig(tmp_path / "rig", toml=toml, n_inputs=4)
    rig.plan()
    rig.submit(limit=2)
    rig.finish()
    assert counts(rig)["talk"] == (4 + 2 * 2, 2 * 3)
    assert counts(rig)["labels"][0] == counts(rig)["labels"][1] > 0
    rig.submit()
    rig.finish()
    assert counts(rig)["talk"] == (4 * 3, 4 * 3)
    assert set(asked_by_request(rig).values()) == {1}
    assert rig.ask(TABLE) == whole_of(tmp_path / "whole", toml, 4).ask(TABLE)


def test_adaptive_rounds_wait_for_the_whole_first_round(tmp_path: Path) -> None:
    """A part of it would choose other pairs: it is asked, and its cells go on when the rest is there."""
    theta = np.random.default_rng(0).normal(0, 3, 8)
    rig, whole = (adaptive_rig(tmp_path / name, theta, ADAPTIVE) for name in ("rig", "whole"))
    rig.plan()
    assert rig.submit(limit=4).preview.n_requests == 4
    for _ in range(3):
        rig.clock.advance(1_000.0)
        rig.sync()
    ((n_rows, n_said),) = counts(rig).values()
    assert n_said == 4
    assert rig.ask("select max(round_no) as n from results") == [{"n": 1}]
    assert rig.submit().preview.n_requests == n_rows - 4
    rig.finish()
    whole.plan()
    whole.submit()
    whole.finish()
    assert rig.ask("select max(round_no) as n from results") == [{"n": 2}]
    assert rig.ask(TABLE) == whole.ask(TABLE)
    assert set(asked_by_request(rig).values()) == {1}


def test_a_study_whose_later_choice_is_among_all_answers_cannot_be_sent_in_part(tmp_path: Path) -> None:
    judged = f'rubrics = ["overall_quality"]\ntemplates = ["plain"]\n---[stages.pairs]\ncount = 3\n{models(ONE)}'
    toml = (
        'study = "demo"\n'
        + stage("a", "generation", 'path = "questions.csv"', f"---{use('question')}{models(ONE)}")
        + stage("b", "pairwise", 'stage = "a"', judged)
    )
    rig = StageRig(tmp_path / "rig", toml=toml, n_inputs=4)
    rig.plan()
    with pytest.raises(UsageError, match="cannot be sent in part: stage b chooses among all"):
        rig.submit(limit=2)
