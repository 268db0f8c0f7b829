"""Adaptive rounds of a real study: opened by `sync` alone, whatever is killed, and told to who asks."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from batchpond.cli.plan import report_lines
from batchpond.errors import UsageError
from batchpond.interop.imports import import_judgments
from batchpond.lake import schemas
from batchpond.lake.store import Store
from batchpond.plan import versions
from batchpond.plan import write as stage_plan
from batchpond.plan.rounds.rounds import Look
from batchpond.results.export import ExportFormat, export
from batchpond.results.rank import verb as rank
from batchpond.run import submit
from batchpond.run.stages import StageState, stages
from batchpond.study.spec import AdaptiveSpec, PairsSpec, from_config
from batchpond_report import build
from batchpond_report import build as files
from batchpond_report.parts import Exhibit
from tests.flow.test_stages_rounds import Countdown, asked_by_request
from tests.rigs.adaptive_study import judge_of, play, replayed, rig_of, told
from tests.rigs.clock import ManualClock
from tests.rigs.stage_study import StageRig
from tests.rigs.swept import some

N_ITEMS = 16
MODELS = ("gpt-4.1-mini", "gpt-4o")
SPEC = PairsSpec(reverse=0.2, adaptive=AdaptiveSpec(rounds=2, holdout=0.2))
TOML = "rounds = 2\nholdout = 0.2\nreverse = 0.2"
N_ALL = 132
TABLE = """
select round_no, request_model, item_first, item_second, direction, purpose, gain, request_id, verdict, outcome
from results order by all
"""


def rig_at(path: Path, clock: ManualClock | None = None) -> StageRig:
    """Return the user of this file's study; some answers cannot be read."""
    theta = np.random.default_rng(0).normal(0, 3, N_ITEMS)
    return rig_of(path, theta, TOML, models=MODELS, clock=clock, rates={"unparsed_rate": 0.1})


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """A study whose first round has ended at the provider, and nobody knows it yet."""
    rig = rig_at(tmp_path_factory.mktemp("answered") / "rig")
    lines = list(report_lines(rig.planned()))
    assert any(f"~{N_ALL}" in line for line in lines), "the forecast holds all rounds"
    rig.submit()
    rig.clock.advance(1_000.0)
    return rig


def copy_of(rig: StageRig, path: Path) -> StageRig:
    """Return a user with a copy of another's lake and provider, at the same time of day."""
    shutil.copytree(rig.path, path)
    return rig_at(path, ManualClock(rig.clock.now()))


@pytest.fixture(scope="module")
def unkilled(answered: StageRig, tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """The same study, brought to its end by nothing but `sync`."""
    rig = copy_of(answered, tmp_path_factory.mktemp("unkilled") / "rig")
    assert rig.finish() <= 3
    return rig


def test_batches_ask_what_memory_chooses_and_plan_rows_say_why(unkilled: StageRig) -> None:
    """By the same answers, the pairs of every round are those of the function alone; each judge has its own."""
    chosen = []
    for model in MODELS:
        rows = told(unkilled, model)
        assert rows == replayed(N_ITEMS, SPEC, rows)
        assert {row[4] for row in rows} == {"first", "second", None}
        chosen.append({row[:2] for row in rows if row[3] == 2})
    assert chosen[0] != chosen[1]
    found = unkilled.ask(
        "select round_no, purpose, count(*) as n, count(gain) as n_gain, min(gain) > 0 as is_gain from results"
        " group by all order by all"
    )
    assert [tuple(row.values()) for row in found] == [
        (1, "start", 64, 0, None), (2, "gain", 48, 48, True), (2, "holdout", 10, 0, None), (2, "reverse", 10, 0, None),
    ]  # fmt: skip
    assert unkilled.violations() == []
    assert set(asked_by_request(unkilled).values()) == {1}


def test_an_idle_sync_writes_nothing_and_status_says_that_all_is_asked(unkilled: StageRig) -> None:
    """The rounds end by themselves; failures that nobody asked again open no more of them."""
    before = unkilled.tree()
    unkilled.clock.advance(1_000.0)
    unkilled.sync()
    assert unkilled.tree() == before
    (status,) = stages(unkilled.store(), unkilled.lake_state())
    assert (status.state, status.round_no, status.n_planned, status.n_open) == (StageState.DONE, 2, N_ALL, 0)
    assert status.stopped == "all rounds are asked: 2"


def test_a_plan_of_a_study_whose_rounds_are_all_asked_foresees_no_cost(unkilled: StageRig) -> None:
    report = unkilled.planned()
    assert not any(stage.is_forecast for stage in report.stages)
    assert (report.n_to_ask, report.cost.expected_usd, report.cost.worst_usd) == (0, 0.0, 0.0)


def test_what_is_foreseen_are_the_rounds_still_to_come_and_a_question_asked_again_brings_no_more(
    tmp_path: Path,
) -> None:
    """Of four rounds three follow the first, each of about one size; once all are planned, failures change none."""
    theta = np.random.default_rng(0).normal(0, 3, N_ITEMS)
    toml = TOML.replace("rounds = 2", "rounds = 4")
    rig = rig_of(tmp_path / "rig", theta, toml, models=MODELS[:1], rates={"error_rate": 0.1})
    rig.planned()
    rig.submit()
    left = [rig.planned().cost.expected_usd]
    while left[-1]:
        rig.clock.advance(1_000.0)
        rig.sync()
        left.append(rig.planned().cost.expected_usd)
    assert left[:-1] == pytest.approx([left[0] * share for share in (1, 2 / 3, 1 / 3)])
    rig.finish()
    again = submit.preview(rig.store(), rig.lake_state(), "demo", None, again=versions.Again())
    assert again.n_requests
    assert (again.later_expected_usd, again.later_max_usd) == (0.0, 0.0)


def test_cells_that_go_on_after_late_answers_are_no_longer_told_to_have_stopped(unkilled: StageRig) -> None:
    """Why a stage stopped is what its last look found, and nothing where that found none."""
    store, (version,) = unkilled.store(), unkilled.lake_state().current_versions.values()
    staged = from_config(versions.study_settings(store, version, is_whole=True))
    look = Look(store, staged, unkilled.lake_state().rounds[version])
    (stage,) = staged.stages
    assert look.why_stopped(stage) == "all rounds are asked: 2"
    look.stop(stage, {})
    assert look.why_stopped(stage) == ""
    assert stage.name in look.looked


def test_rank_says_what_the_held_out_judgments_do_and_that_reliability_does_not_hold(unkilled: StageRig) -> None:
    """A row per cell and one of all pooled: flagged, with the count and what was foretold."""
    options = rank.options(ties="half", position=False, extras=(), seed=0, is_full=True)
    report = rank.rank(unkilled.lake, rank.Request(options=options))
    assert report.rankings["is_reliability_valid"].to_pylist() == [False, False]
    for row in report.rankings.to_pylist():
        assert 0 < row["n_held_out"] <= 5
        assert 0 <= row["held_out_accuracy"] <= 1
        assert row["held_out_log_loss"] > 0
    (pooled,) = rank.rank(unkilled.lake, rank.Request(by=(), options=options)).rankings.to_pylist()
    assert pooled["n_held_out"] == sum(report.rankings["n_held_out"].to_pylist())
    assert any("held out at random" in note for note in report.notes)


def test_results_of_an_adaptive_study_come_back_with_why_their_pairs_were_asked(
    unkilled: StageRig, tmp_path: Path
) -> None:
    """As a CSV into another lake: its reliability is as little valid there, and the held-out pairs stand for it."""
    (path,) = export(unkilled.lake, tmp_path / "results.csv", format=ExportFormat.CSV, view="results")
    store = Store.init(tmp_path / "lake")
    import_judgments(store, path)
    options = rank.options(ties="half", position=False, extras=(), seed=0, is_full=True)
    wanted, found = (
        rank.rank(lake, rank.Request(options=options)).rankings.to_pylist() for lake in (unkilled.lake, store.path)
    )
    assert found == wanted
    assert {row["is_reliability_valid"] for row in found} == {False}
    path.write_text("item_first,item_second,verdict,purpose\na,b,first,fun\n")
    with pytest.raises(UsageError, match="has purpose 'fun'"):
        import_judgments(store, path)


def test_the_report_says_why_each_round_asked_and_what_the_held_out_judgments_do(unkilled: StageRig) -> None:
    """The chapter's counts are those of the plan, and the ranking's quality carries the held-out accuracy."""
    report = build.build(unkilled.lake)
    (chapter,) = (section for section in report.sections if section.key == "adaptive")
    (part,) = chapter.parts
    assert isinstance(part, Exhibit)
    assert [tuple(row) for row in part.frame.select("round_no", "purpose", "n_planned").rows()] == [
        (1, "start", 64), (2, "gain", 48), (2, "holdout", 10), (2, "reverse", 10),
    ]  # fmt: skip
    assert "held out, foretold" in files.text(report, files.ReportFormat.MARKDOWN)


FILES = "after link"


@pytest.mark.parametrize("kills", some([("R0", 1), ("R1", 1), ("R2", 1)], swept=[[(FILES, 2)]]), ids=str)
def test_kills_while_a_round_is_opened_leave_the_same_plan(
    answered: StageRig,
    unkilled: StageRig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kills: list[tuple[str, int]],
) -> None:
    """Even between two files of one round: it is completed as it was begun, and nothing is asked twice."""
    rig = copy_of(answered, tmp_path / "rig")
    for name, nth in kills:
        with monkeypatch.context() as patched:
            countdown = Countdown(rig, name, nth, patched)
            if name == FILES:
                patched.setattr(schemas, "ROW_GROUP_NARROW", 8)
                patched.setattr(stage_plan, "PLAN_FILE_ROWS", 8)
            assert not rig.survive(rig.sync)
            assert countdown.n_died == 1
    n_planned = rig.rows("select count(*) from plan where round_no = 2", "plan")
    assert n_planned == [(8 if kills[0][0] == FILES else N_ALL - 64,)]
    rig.finish()
    assert rig.ask(TABLE) == unkilled.ask(TABLE)
    assert rig.ask("select count(distinct slot) as n from results") == [{"n": N_ALL}]
    assert rig.violations() == []
    assert set(asked_by_request(rig).values()) == {1}


def test_the_seed_decides(tmp_path: Path) -> None:
    """Another seed asks other pairs first."""
    say = judge_of(np.zeros(N_ITEMS), np.random.default_rng(0))
    first = [{row[:2] for row in play(N_ITEMS, SPEC, seed, say)[0]} for seed in (1, 2)]
    assert first[0] != first[1]
