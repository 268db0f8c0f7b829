"""Studies of stages that change or fail on the way: what is asked once stays so, and what waits says for what."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from batchpond.errors import StudyError
from batchpond.lake.attempts import fold
from batchpond.lake.events import read
from batchpond.lake.schemas import PLAN
from batchpond.plan import write
from batchpond.run.stages import StageState, remarks, stages
from batchpond.run.told import following, looking
from tests.rigs.sim_inputs import STUDY
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

ONE = "gpt-4.1-mini"


def small_study(*, where: str = "", more: str = "", judges: tuple[str, ...] = ("gpt-5.4-mini",), head: str = "") -> str:
    """Return answers of one model, verdicts on them, and a second opinion on what `where` chooses."""
    judged = f"{RUBRICS}{use('compliance_brief')}{models(*judges)}"
    text = f'study = "demo"\n{head}' + stage(
        "answers",
        "generation",
        'path = "inputs.csv"\nrubric = "statement"',
        f"---{RUBRICS}{use('question')}{models(ONE)}",
    )
    text += stage("verdicts", "compliance", 'stage = "answers"', f"---{judged}")
    if where:
        text += stage("again", "compliance", f'stage = "verdicts"\nwhere = "{where}"', f"---{judged}")
    return text + more


def rig_of(path: Path, toml: str, *faults: str) -> StageRig:
    """Return a user with a study of four inputs."""
    rig = StageRig(path, toml=toml, n_inputs=4)
    for fault in faults:
        rig.world.add_fault(fault)
    return rig


def states(rig: StageRig) -> dict[str, tuple[StageState, tuple[str, ...]]]:
    """Return each stage's state and what it waits for."""
    store = rig.store()
    return {s.stage: (s.state, s.waits_for) for s in stages(store, fold(read(store)))}


def n_asked(rig: StageRig) -> int:
    """Return how many requests the provider has run."""
    return rig.billed()[0]


def test_a_second_version_reuses_every_answer_and_opens_its_rounds_when_planned(tmp_path: Path) -> None:
    rig = rig_of(tmp_path / "rig", small_study())
    rig.plan()
    rig.submit()
    rig.finish()
    assert n_asked(rig) == 8
    rig.write(small_study(more=stage(
        "ratings", "likert", 'stage = "answers"', f"---{RUBRICS}{use('likert_json')}{models('gpt-5.4-mini')}"
    )))  # fmt: skip
    report = rig.planned()
    assert report.is_new_version
    assert report.n_requests == 12
    preview = rig.submit().preview
    assert preview.n_requests == 4
    assert (preview.later_expected_usd, preview.later_max_usd) == (0.0, 0.0)
    rig.finish()
    assert n_asked(rig) == 12
    assert rig.ask("select stage, count(*) as n, count(score) as scored from results group by all order by all") == [
        {"stage": "answers", "n": 4, "scored": 0},
        {"stage": "ratings", "n": 4, "scored": 4},
        {"stage": "verdicts", "n": 4, "scored": 0},
    ]
    assert rig.violations() == []


def test_what_follows_from_batches_that_are_out_is_approved_before_they_are_answered(tmp_path: Path) -> None:
    """A study changed meanwhile has nothing to send now, and its later stages are agreed to all the same."""
    rig = rig_of(tmp_path / "rig", small_study())
    rig.plan()
    rig.submit()
    rig.write(small_study(judges=("gpt-5.4-mini", "gpt-5.4-nano")))
    assert rig.planned().n_to_ask == 0
    (note,) = following(looking(rig.store(), rig.providers()), [STUDY])
    assert note.message == "what follows from the answers of study demo waits for " + (
        "an approval of the new plan: `batchpond submit demo`"
    )
    submitted = rig.submit()
    assert not [*following(looking(rig.store(), rig.providers()), [STUDY])]
    preview = submitted.preview
    assert (preview.n_requests, submitted.is_approved) == (0, True)
    assert preview.later_max_usd is not None
    assert preview.later_max_usd > (preview.later_expected_usd or 0.0) > 0.0
    rig.finish()
    assert n_asked(rig) == 4 + 8
    assert not rig.submit().preview.is_due
    assert rig.violations() == []


def test_a_study_planned_anew_while_a_round_is_open_asks_nothing_twice(tmp_path: Path) -> None:
    rig = rig_of(tmp_path / "rig", small_study())
    rig.plan()
    rig.submit()
    rig.clock.advance(1_000.0)
    rig.sync()  # opens and sends the verdicts
    rig.write(small_study(judges=("gpt-5.4-mini", "gpt-5.4-nano")))
    rig.plan()
    rig.submit()
    rig.finish()
    assert n_asked(rig) == 4 + 4 + 4
    assert rig.ask("select count(*) as n from results where outcome = 'decided'") == [{"n": 12}]
    assert rig.violations() == []


def test_rounds_are_planned_without_an_approval_but_not_sent(tmp_path: Path) -> None:
    rig = rig_of(tmp_path / "rig", small_study())
    rig.plan()
    rig.submit()
    rig.write(small_study(judges=("gpt-5.4-nano",)))
    rig.plan()  # not approved
    rig.clock.advance(1_000.0)
    rig.sync()
    assert states(rig)["verdicts"][0] is StageState.ASKING
    assert n_asked(rig) == 4
    rig.submit()
    rig.finish()
    assert n_asked(rig) == 8


def test_a_stage_whose_source_failed_wholly_is_told_and_costs_no_further_look(tmp_path: Path) -> None:
    rig = rig_of(tmp_path / "rig", small_study(where="verdict = 'false'"), "lines@1:error_rows=4")
    rig.plan()
    assert states(rig)["verdicts"] == (StageState.WAITING, ("answers",))
    rig.submit()
    rig.finish()
    assert states(rig) == {
        "answers": (StageState.FAILED, ()),
        "verdicts": (StageState.EMPTY, ("answers",)),
        "again": (StageState.EMPTY, ("verdicts",)),
    }
    store = rig.store()
    assert len(list(remarks(stages(store, fold(read(store)))))) == 3
    before = rig.tree()
    rig.clock.advance(1_000.0)
    with patch(
        "batchpond.plan.rounds.rounds.open_rounds", side_effect=AssertionError("an idle pass has looked at the answers")
    ):
        rig.sync()
    assert rig.tree() == before
    rig.retry()
    rig.finish()
    assert states(rig)["verdicts"][0] is StageState.DONE


def test_late_answers_lead_to_a_round_of_what_is_new_only(tmp_path: Path) -> None:
    rig = rig_of(tmp_path / "rig", small_study(), "lines@1:error_rows=2")
    rig.plan()
    rig.submit()
    rig.finish()
    assert n_asked(rig) == 2 + 2
    rig.retry()
    rig.finish()
    assert n_asked(rig) == 4 + 4
    assert rig.ask("select stage, round_no, count(*) as n from results group by all order by all") == [
        {"stage": "answers", "round_no": 1, "n": 4},
        {"stage": "verdicts", "round_no": 2, "n": 2},
        {"stage": "verdicts", "round_no": 3, "n": 2},
    ]
    assert rig.violations() == []


def test_failures_that_are_asked_again_by_themselves_belong_to_the_same_round(tmp_path: Path) -> None:
    rig = rig_of(tmp_path / "rig", small_study(head="[retry]\nmax_attempts = 3\n"), "lines@1:error_rows=2")
    rig.plan()
    rig.submit()
    rig.finish()
    assert rig.ask("select round_no, count(*) as n from results where stage = 'verdicts' group by all") == [
        {"round_no": 2, "n": 4 - rig.ask("select count(*) as n from results where request_state = 'failed'")[0]["n"]}
    ]


def test_a_round_of_several_files_that_was_cut_between_them_is_completed(tmp_path: Path) -> None:
    def killed(rig: StageRig) -> StageRig:
        rig.plan()
        rig.submit()
        rig.clock.advance(1_000.0)
        return rig

    judges = ("gpt-5.4-mini", "gpt-5.4-nano")
    whole, cut = (killed(rig_of(tmp_path / name, small_study(judges=judges))) for name in ("whole", "cut"))
    published = 0
    real = write.publish_rows

    def dying(*args: object) -> None:
        nonlocal published
        if args[1] is PLAN:
            published += 1
            if published == 3:
                raise KeyboardInterrupt
        real(*args)  # type: ignore[arg-type]

    rows = patch.multiple("batchpond.plan.write", PLAN_FILE_ROWS=3, BLOCK_ROWS=3)
    group = patch("batchpond.plan.write.ROW_GROUP_NARROW", 3)
    narrow = patch("batchpond.lake.schemas.Table.row_group_rows", 3)
    with rows, group, narrow:
        with patch("batchpond.plan.write.publish_rows", dying), pytest.raises(KeyboardInterrupt):
            cut.sync()
        assert cut.rows("select count(*) from plan where round_no = 2", "plan") == [(6,)]
        cut.finish()
        whole.finish()
    table = "select stage, round_no, slot, request_model, item_first, request_id, verdict from results order by all"
    assert cut.ask(table) == whole.ask(table)
    assert len(cut.ask(table)) == 12


@pytest.mark.parametrize("where", ["verdcit = 'false'", "verdict = 'false'; drop table x", "text ="])
def test_a_choice_that_could_not_be_run_later_is_refused_before_anything_is_planned(tmp_path: Path, where: str) -> None:
    rig = rig_of(tmp_path / "rig", small_study(where=where))
    with pytest.raises(StudyError, match=r"stage again: items\.where cannot be run"):
        rig.plan()
    assert STUDY not in rig.lake_state().current_versions
    assert rig.rows("select count(*) from plan", "plan") == [(0,)]
