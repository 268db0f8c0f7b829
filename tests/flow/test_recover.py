"""A lake that was lost is made again of what the providers have: nothing is bought, and what it says is the same."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import pytest

from batchpond.errors import AttentionError, ExitCode, UsageError
from batchpond.lake.attempts import Phase
from batchpond.plan.versions import Again
from batchpond.run.recover import Fate, RecoverReport, adopt_by_lines
from batchpond.run.submit import submit
from batchpond.run.unknown import waive
from batchpond.views.read import Limits, run_query
from batchpond_sim.world.world import Settings
from tests.rigs.files_study import FilesRig
from tests.rigs.foreign_tool import make_batch
from tests.rigs.sim_providers import SIMULATED, one_model_each, provider_of
from tests.rigs.sim_study import LATENCY_S, STUDY, Rig
from tests.rigs.stage_study import MODEL, RUBRICS, StageRig, stage, use
from tests.rigs.swept import every, some

ALL_BATCHES = "BATCHPOND_TEST_RECOVER"
EACH = one_model_each()
THREE = ("openai", "anthropic", "gemini")
SETTINGS = Settings(seed=1, latency_s=LATENCY_S)
RESULTS = "SELECT * EXCLUDE (attempt_id) FROM results ORDER BY ALL"
COSTS = "SELECT provider, request_model, round(sum(cost_usd), 12) AS cost_usd FROM costs GROUP BY ALL ORDER BY ALL"
UNBALANCED = "SELECT count(*) AS n FROM audit WHERE NOT is_balanced"
AnyRig = TypeVar("AnyRig", bound=Rig)


def rig_at(path: Path, *names: str, **more: Any) -> Rig:
    rig = Rig(path, SETTINGS, **({"max_requests": 4, "models": one_model_each(names), "with_lens": False} | more))
    rig.plan()
    return rig


def lose(rig: Rig) -> None:
    """Delete the lake; the next one has another id and another secret."""
    shutil.rmtree(rig.lake)
    rig.lake_seed += 1


def recovered(rig: Rig, **more: Any) -> RecoverReport:
    """Run `recover study.toml`."""
    rig.plan()
    return rig.recover(**more)


def picture(rig: Rig) -> dict[str, list[dict[str, Any]]]:
    """Return what the lake says, its views brought up to date."""
    rig.with_lens = True
    rig.sync(submit_due=False)
    rig.with_lens = False
    queries = {"results": RESULTS, "costs": COSTS, "unbalanced": UNBALANCED}
    return {name: run_query(rig.lake, sql, Limits(max_rows=100_000)).to_pylist() for name, sql in queries.items()}


def finish(rig: AnyRig, n_passes: int = 2) -> AnyRig:
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()
    return rig


def assert_made_again(rig: Rig, **more: Any) -> RecoverReport:
    """Lose the lake and recover it: no create, and results, costs and the audit are as they were."""
    before = picture(rig)
    n_posts, n_batches = rig.wire.n_create_posts, len(rig.world.ledger.batches)
    lose(rig)
    report = recovered(rig, **more)
    assert picture(rig) == before
    assert (rig.wire.n_create_posts, len(rig.world.ledger.batches)) == (n_posts, n_batches)
    assert {a.phase for a in rig.attempts()} == {Phase.VERIFIED}
    assert before["unbalanced"] == [{"n": 0}]
    assert report.cost_usd == pytest.approx(sum(row["cost_usd"] for row in before["costs"]))
    return report


def fates(report: RecoverReport) -> Counter[Fate]:
    return Counter(found.fate for found in report.batches)


def test_at_every_provider_results_and_costs_are_as_they_were(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, *SIMULATED)
    rig.submit()
    finish(rig)
    report = assert_made_again(rig)
    assert fates(report) == {Fate.TAKEN_IN: len(rig.world.ledger.batches)} == {Fate.TAKEN_IN: 3 * len(SIMULATED)}
    n_requests = 12 * len(SIMULATED)
    assert (report.n_requests, report.n_held, report.n_answered) == (n_requests, n_requests, n_requests)
    assert report.exit_code is ExitCode.DONE
    tree = rig.tree()
    assert recovered(rig).batches == ()
    assert rig.tree() == tree, "doing it again writes nothing"
    report_of_submit = rig.submit()
    assert report_of_submit.counts is None, "nothing is left to buy"
    rig.world.close()


@pytest.mark.parametrize("name", some("openai", "gemini", swept=["vertex", "together"]))
def test_batches_that_still_run_are_taken_in_and_collected_later(tmp_path: Path, name: str) -> None:
    """A token names the shard, or the file that a batch was made of its lines: no result is needed."""
    rig = rig_at(tmp_path, name)
    rig.submit()
    lose(rig)
    report = recovered(rig)
    assert (fates(report), report.n_held, report.n_answered) == ({Fate.TAKEN_IN: 3}, 12, 0)
    rig.submit()
    finish(rig)
    assert len(rig.answers()) == 12
    assert rig.wire.n_create_posts == 3
    rig.world.close()


def test_where_only_results_tell_a_batch_that_runs_is_told_and_waited_for(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "anthropic")
    rig.submit()
    lose(rig)
    report = recovered(rig)
    assert (fates(report), report.exit_code) == ({Fate.NOT_YET: 3}, ExitCode.ATTENTION)
    assert rig.attempts() == []
    rig.clock.advance(1_000)
    assert fates(recovered(rig)) == {Fate.TAKEN_IN: 3}
    assert len(rig.answers()) == 12
    rig.world.close()


def test_batches_that_were_cut_otherwise_are_known_by_their_lines(tmp_path: Path) -> None:
    """A sample was sent first, so that no shard of the new plan is one of theirs."""
    rig = rig_at(tmp_path, "openai", "anthropic", "gemini", max_requests=50)
    rig.submit(limit=5)
    rig.clock.advance(10)
    rig.submit()
    finish(rig)
    assert fates(assert_made_again(rig))[Fate.TAKEN_IN] == len(rig.world.ledger.batches) > 3
    rig.world.close()


@pytest.mark.parametrize("name", ["openai", "groq"])
def test_a_batch_that_runs_is_not_taken_in_by_a_part_of_what_it_was_made_of(tmp_path: Path, name: str) -> None:
    """A file that came cut shows some of its requests: the others would be bought again."""
    rig = rig_at(tmp_path, name, max_requests=50)
    rig.submit(limit=5)  # so that no shard of the new plan is the batch's, and only its lines tell
    lose(rig)
    rig.world.add_fault("files.content@*:truncate=0.5")
    report = recovered(rig)
    assert (fates(report), rig.attempts()) == ({Fate.SHORT: 1}, [])
    assert "its files do not show all of its requests" in report.batches[0].why
    rig.world.clear_faults()
    assert fates(recovered(rig)) == {Fate.TAKEN_IN: 1}
    rig.submit()
    finish(rig)
    assert len(rig.answers()) == 12
    assert rig.billed()[0] == 12
    rig.world.close()


def test_what_failed_and_was_asked_again_and_what_was_asked_twice_are_all_taken_in(tmp_path: Path) -> None:
    """Every batch that was paid counts, and of two answers to a request the first stands, as before."""
    rig = rig_at(tmp_path, "openai", "gemini", max_requests=50)
    rig.world.add_fault("lines@1:error_rows=3")
    rig.submit()
    finish(rig)
    rig.retry()
    finish(rig)
    with rig._points():
        submit(
            rig.store(), STUDY, confirm=lambda _: True, providers=rig.providers(),
            again=Again(),
        )  # fmt: skip
    finish(rig)
    assert fates(assert_made_again(rig)) == {Fate.TAKEN_IN: len(rig.world.ledger.batches)} == {Fate.TAKEN_IN: 5}
    rig.world.close()


def test_half_failed_and_cancelled_batches_give_what_they_have(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "openai", "anthropic", max_requests=6)
    rig.world.add_fault("batches.create@1:expire=0.5")
    rig.submit()
    rig.clock.advance(90)
    rig.cancel_open(1)
    finish(rig, 3)
    rig.clock.advance(100_000)
    finish(rig)
    assert_made_again(rig)
    rig.world.close()


def test_foreign_batches_in_the_account_are_left_alone(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "anthropic", max_requests=50)
    foreign = make_batch(rig, 12)
    rig.submit()
    finish(rig)
    assert [found.batch.batch_id for found in assert_made_again(rig).batches] == list(
        set(rig.world.ledger.batches) - {foreign}
    )
    rig.world.close()


def test_results_that_are_404_while_they_are_kept_are_waited_for(tmp_path: Path) -> None:
    """What was paid for is not called gone for a 404, which may pass: the next run takes it in."""
    rig = rig_at(tmp_path, "openai")
    rig.submit()
    finish(rig)
    lose(rig)
    rig.world.add_fault("files.content@1:status=404")
    report = recovered(rig)
    assert (fates(report), report.exit_code) == ({Fate.TAKEN_IN: 2, Fate.SILENT: 1}, ExitCode.ATTENTION)
    assert (report.n_held, report.n_answered) == (8, 8)
    assert any("says 404 for its results, which it still keeps" in note for note in rig.notes)
    assert (fates(rig.recover()), len(rig.answers())) == ({Fate.TAKEN_IN: 1}, 12)
    assert rig.submit().counts is None, "nothing is left to buy"
    rig.world.close()


@pytest.mark.parametrize("provider", some("together", swept=["openai", "gemini"]))
def test_a_new_lake_does_not_buy_again_what_is_a_404_for_now(tmp_path: Path, provider: str) -> None:
    """A look before the first purchase believes no 404 either, while the results are kept."""
    rig = rig_at(tmp_path, provider)
    rig.submit()
    finish(rig)
    lose(rig)
    rig.plan()
    rig.world.add_fault("files.content@1-30:status=404")
    n_bought = len(rig.world.ledger.batches)
    with pytest.raises(AttentionError, match="was asked before, though not from this lake"):
        rig.submit()
    assert len(rig.world.ledger.batches) == n_bought
    rig.world.close()


def test_a_batch_that_answered_nothing_stops_no_first_purchase(tmp_path: Path) -> None:
    """Another program's batch that expired whole shows no lines, and what it might hold of the study was not paid."""
    rig = rig_at(tmp_path, "anthropic")
    rig.world.add_fault("batches.create@1:expire_bare")
    make_batch(rig, 5)
    finish(rig)
    rig.submit()
    assert len(set(rig.world.ledger.batches) - rig.foreign) > 0
    rig.world.close()


def test_results_that_are_gone_are_told_and_their_requests_are_free_again(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "openai")
    rig.submit()
    finish(rig)
    lose(rig)
    rig.clock.advance(31 * 86_400)
    rig.world.add_fault("files.content@1-9:status=404")
    report = recovered(rig)
    assert (fates(report), report.exit_code) == ({Fate.GONE: 3}, ExitCode.ATTENTION)
    assert any("its results are gone" in note for note in rig.notes)
    rig.world.close()


def test_batches_of_another_version_are_told_and_taken_in_once_that_is_planned(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "openai", "anthropic", max_requests=50)
    rig.submit()
    finish(rig)
    answers = rig.answers()
    then = (items := rig.study_path.parent / "items.csv").read_text()
    lose(rig)
    items.write_text("\n".join(then.splitlines()[:-1]) + "\n")
    report = recovered(rig)
    assert fates(report) == {Fate.OTHER_VERSION: 2}
    assert all("6 rows do not name one" in found.why for found in report.batches)
    now = items.read_text()
    items.write_text(then)
    assert fates(recovered(rig)) == {Fate.TAKEN_IN: 2}
    items.write_text(now)
    rig.plan()
    assert rig.answers() == answers
    assert rig.submit().counts is None
    rig.world.close()


def two_stages(rig_path: Path, *names: str, n_inputs: int = 4) -> StageRig:
    """Return answers of some providers, each judged by all: later questions are made of earlier answers."""
    inputs = 'path = "inputs.csv"\nrubric = "statement"'
    each = "".join(MODEL.format(provider_of(model), model, "") for model in one_model_each(names))
    toml = (
        'study = "demo"\n[shards]\nmax_requests = 2\n'
        + stage("answers", "generation", inputs, f"---{RUBRICS}{use('question')}{each}")
        + stage("compliance", "compliance", 'stage = "answers"', f"---{RUBRICS}{use('compliance_json')}{each}")
    )
    rig = StageRig(rig_path, SETTINGS, toml=toml, n_inputs=n_inputs, with_lens=False)
    rig.plan()
    return rig


def test_a_study_of_stages_over_three_providers_is_made_again_stage_by_stage(tmp_path: Path) -> None:
    """What a later stage asks follows from the answers of the earlier one, and so do its request_ids."""
    n_inputs, n_batches = (9, 57) if ALL_BATCHES in os.environ else (3, 21)
    rig = two_stages(tmp_path, *THREE, n_inputs=n_inputs)
    rig.submit()
    rig.finish()
    report = assert_made_again(rig)
    assert fates(report) == {Fate.TAKEN_IN: len(rig.world.ledger.batches)} == {Fate.TAKEN_IN: n_batches}
    rig.submit()
    finish(rig)
    assert len(rig.world.ledger.batches) == n_batches, "the study goes on where it was, and buys nothing again"
    rig.world.close()


def test_a_sample_of_a_study_of_stages_is_made_again_with_its_limit(tmp_path: Path) -> None:
    rig = two_stages(tmp_path, "openai")
    rig.submit(limit=3)
    rig.finish()
    n_batches = len(rig.world.ledger.batches)
    assert fates(assert_made_again(rig, sample=3)) == {Fate.TAKEN_IN: n_batches}
    rig.world.close()


def test_files_in_a_folder_of_their_own_are_found_again(tmp_path: Path) -> None:
    (folder := tmp_path / "exchange").mkdir()
    rig = FilesRig(tmp_path, SETTINGS, max_requests=4, environment={"BATCHPOND_FILES": str(folder)})
    rig.plan()
    rig.submit()
    rig.work()
    finish(rig)
    before = picture(rig)
    lose(rig)
    assert fates(recovered(rig)) == {Fate.TAKEN_IN: 6}
    assert picture(rig) == before
    assert {a.phase for a in rig.attempts()} == {Phase.VERIFIED}
    rig.world.close()


@pytest.mark.parametrize("model", every(3, EACH))
def test_one_batch_is_adopted_by_its_lines(tmp_path: Path, model: str) -> None:
    """`adopt BATCH --study S`: without a map."""
    rig = rig_at(tmp_path, provider_of(model), max_requests=50)
    rig.submit()
    rig.clock.advance(1_000)
    (attempt,) = rig.attempts()
    lose(rig)
    rig.plan()

    def adopted(batch_id: str) -> Any:
        name = provider_of(model)
        with rig._points():
            return adopt_by_lines(rig.store(), batch_id, STUDY, provider_name=name, providers=rig.providers())

    adoption = adopted(attempt.known_batch_id)
    assert (adoption.is_new, adoption.attempt.batch_id) == (True, attempt.batch_id)
    assert not adopted(attempt.known_batch_id).is_new
    rig.sync()
    assert len(rig.answers()) == 12
    rig.world.close()


def test_a_batch_of_other_requests_is_not_adopted_by_its_lines(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "anthropic", max_requests=50)
    foreign = make_batch(rig, 3)
    rig.clock.advance(1_000)
    with pytest.raises(UsageError, match="no line of batch"):
        adopt_by_lines(rig.store(), foreign, STUDY, provider_name="anthropic", providers=rig.providers())
    assert rig.attempts() == []
    rig.world.close()


def test_a_kill_anywhere_is_mended_by_running_it_again(tmp_path: Path) -> None:
    """Every few steps of it: what was begun is finished, nothing is taken in twice, nothing is bought."""
    rig = rig_at(tmp_path, "openai", "anthropic", max_requests=12)
    rig.submit()
    finish(rig)
    answers = rig.answers()
    n_lived = 0
    for crash_in in some(5, 14, 28, 400, swept=(7, 19, 21, 36)):
        lose(rig)
        rig.plan()
        rig.crash_in = crash_in
        n_lived += rig.survive(lambda: recovered(rig))
        recovered(rig)
        assert rig.answers() == answers
        assert len(rig.attempts()) == len({a.batch_id for a in rig.attempts()}) == len(rig.world.ledger.batches)
    assert n_lived == 1
    assert rig.wire.n_create_posts == len(rig.world.ledger.batches)
    rig.world.close()


# -- a new lake looks before it buys ----------------------------------------------------------------------


def submitted(rig: Rig) -> str:
    """Return why `submit` stopped, empty where it did not."""
    try:
        rig.submit()
    except AttentionError as error:
        return f"{error.message}; {error.hint}"
    return ""


@pytest.mark.parametrize("name", some("anthropic", "gemini", swept=["openai", "together"]))
def test_a_new_lake_does_not_buy_what_the_account_has(tmp_path: Path, name: str) -> None:
    """It names the batches and the command that takes them in; `--fresh` is asked for once."""
    rig = rig_at(tmp_path, name)
    rig.submit()
    rig.clock.advance(1_000)
    lose(rig)
    rig.plan()
    before = rig.tree()
    problem = submitted(rig)
    assert "study demo was asked before, though not from this lake: 3 batches" in problem
    assert all(batch_id in problem for batch_id in map(str, rig.world.ledger.batches))
    assert "`batchpond adopt --all --study demo`" in problem
    assert (rig.tree(), rig.wire.n_create_posts) == (before, 3)
    waive(rig.store(), STUDY)
    assert submitted(rig) == ""
    assert rig.wire.n_create_posts == 6
    lose(rig)
    recovered(rig)
    assert submitted(rig) == "", "what was taken in is not asked about"
    rig.world.close()


def test_a_study_that_was_renamed_is_not_bought_again_by_a_new_lake(tmp_path: Path) -> None:
    """Its batches are known by their tokens, which name what they ask, and are taken in under the new name."""
    rig = rig_at(tmp_path, "openai")
    rig.submit()
    rig.clock.advance(1_000)
    lose(rig)
    rig.study_path.write_text(rig.study_path.read_text().replace(f'"{STUDY}"', '"renamed"', 1))
    rig.plan()
    with pytest.raises(AttentionError, match="study renamed was asked before, though not from this lake: 3 batches"):
        rig.submit(study="renamed")
    report = rig.recover(study="renamed")
    assert (fates(report), report.n_answered) == (Counter({Fate.TAKEN_IN: 3}), 12)
    rig.submit(study="renamed")
    assert rig.wire.n_create_posts == 3
    rig.world.close()


def test_a_name_alone_is_no_match(tmp_path: Path) -> None:
    """Another study of the same name in the same account, and batches of other tools, stop nobody."""
    rig = rig_at(tmp_path, "openai", "anthropic", max_requests=50)
    rig.submit()
    make_batch(rig, 12)
    rig.clock.advance(1_000)
    lose(rig)
    items = rig.study_path.parent / "items.csv"
    items.write_text(items.read_text().replace("text number", "quite another text"))
    rig.plan()
    assert submitted(rig) == ""
    rig.world.close()


def test_a_batch_that_was_cut_otherwise_is_known_by_the_file_that_it_was_made_of(tmp_path: Path) -> None:
    """Before it has any result, where the provider gives the file back."""
    rig = rig_at(tmp_path, "openai", max_requests=50)
    rig.submit(limit=5)
    lose(rig)
    rig.plan()
    assert "1 batch " in submitted(rig)
    rig.world.close()


@pytest.mark.parametrize("name", some("openai", swept=["anthropic", "gemini"]))
def test_the_look_costs_no_listing_of_its_own(tmp_path: Path, name: str) -> None:
    """A submit that looks makes the calls of one that does not."""
    looking, waived = rig_at(tmp_path / "looking", name), rig_at(tmp_path / "waived", name)
    waive(waived.store(), STUDY)
    for rig in (looking, waived):
        rig.submit()
        rig.world.close()
    assert sum(looking.wire.calls.values()) == sum(waived.wire.calls.values())
    assert Counter(call.split("batchpond1")[0] for call in looking.wire.calls if call.startswith("GET")) == Counter(
        call.split("batchpond1")[0] for call in waived.wire.calls if call.startswith("GET")
    )


def test_a_key_that_may_not_list_is_a_warning(tmp_path: Path) -> None:
    rig = rig_at(tmp_path, "openai", max_requests=50)
    rig.world.add_fault("batches.list@*:status=403")
    rig.submit()
    assert any("whether study demo was asked there before is not known" in note for note in rig.notes)
    assert rig.wire.n_create_posts == 1
    rig.world.close()


@pytest.mark.parametrize("name", every(3, SIMULATED))
def test_a_new_lake_does_not_buy_where_the_listing_does_not_come(tmp_path: Path, name: str) -> None:
    """A login page is no account without batches: nothing is sent before a listing says what was bought."""
    rig = rig_at(tmp_path, name)
    rig.submit()
    n_batches = len(rig.world.ledger.batches)
    lose(rig)
    rig.plan()
    rig.world.add_fault("batches.list@1-8:html=200")
    rig.submit()
    assert len(rig.world.ledger.batches) == n_batches
    rig.world.clear_faults()
    rig.clock.advance(1_000)
    with pytest.raises(AttentionError, match="was asked before"):
        rig.submit()
    assert len(rig.world.ledger.batches) == n_batches
    rig.world.close()
