"""Failed requests are asked again as often as allowed, what was answered never, and nothing twice at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from batchpond.errors import UsageError
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Resolution
from batchpond.model import ErrorClass
from batchpond.run.due import FailureCount
from batchpond.run.resolve import resolve
from batchpond.run.submit import RetryReport, SubmitPreview, retry
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import STUDY, Rig
from tests.rigs.swept import every, some

N = 12


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """One model, one shard of twelve requests, planned; no automatic retry."""
    rig = Rig(tmp_path, max_requests=50, models=("gpt-4.1-mini",), with_lens=False)
    rig.plan()
    yield rig
    rig.world.close()


def end(rig: Rig, n_passes: int = 1) -> None:
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()


def ask_again(
    rig: Rig,
    classes: Collection[ErrorClass] = (),
    *,
    max_attempts: int | None = None,
    max_cost_usd: float | None = None,
) -> RetryReport:
    def agreed(_preview: SubmitPreview, _failures: tuple[FailureCount, ...]) -> bool:
        return True

    return retry(
        rig.store(), STUDY, classes=classes, max_attempts=max_attempts, max_cost_usd=max_cost_usd, confirm=agreed,
        providers=rig.providers(),
    )  # fmt: skip


def automatic(rig: Rig, classes: str = '"transient", "expired"', max_attempts: int = 3) -> None:
    """Plan the study anew with a [retry] table."""
    text = rig.study_path.read_text()
    table = f"[retry]\nmax_attempts = {max_attempts}\nclasses = [{classes}]\n\n[[rubrics]]"
    rig.study_path.write_text(text.replace("[[rubrics]]", table))
    rig.plan()


def asked(rig: Rig) -> list[object]:
    """Return how many requests each batch at the provider had."""
    return [attempt.intent.n_requests for attempt in rig.attempts()]


def test_nothing_is_bought_by_it_that_nobody_agreed_to(rig: Rig) -> None:
    """What a new plan adds is submitted first, and what failed before is asked again after that."""
    rig.world.add_fault("lines@1:error_rows=1")
    rig.submit(limit=4)
    end(rig)
    rig.change()
    with pytest.raises(UsageError, match=r"the plan of study .* was never submitted"):
        ask_again(rig)
    assert asked(rig) == [4]
    n_due = rig.submit().preview.n_requests
    end(rig, 2)
    assert ask_again(rig).submitted.preview.n_requests == 1
    end(rig)
    assert sum(one.intent.n_requests for one in rig.attempts()) == 4 + n_due + 1


def test_only_what_failed_in_the_usual_ways_is_asked_again_and_only_that(rig: Rig) -> None:
    rig.world.add_fault("lines@1:error_rows=6")  # 429, 500, 400 in turn: four transient, two permanent
    rig.submit()
    end(rig)
    report = ask_again(rig)
    assert [(f.error_class, f.n_requests, f.n_due) for f in report.failures] == [
        ("permanent", 2, 0),
        ("transient", 4, 4),
    ]
    assert report.submitted.preview.n_requests == 4
    end(rig)
    assert asked(rig) == [N, 4]
    assert len(rig.answers()) == N - 2
    assert ask_again(rig).submitted.preview.n_requests == 0
    assert rig.violations() == []


def test_a_named_class_is_asked_again_alone(rig: Rig) -> None:
    rig.world.add_fault("lines@1:error_rows=6")
    rig.submit()
    end(rig)
    ask_again(rig, [ErrorClass.PERMANENT])
    end(rig)
    assert asked(rig) == [N, 2]


def test_what_is_on_its_way_is_not_asked_a_second_time(rig: Rig) -> None:
    rig.world.add_fault("lines@1:error_rows=6")
    rig.submit()
    end(rig)
    ask_again(rig)
    assert ask_again(rig).submitted.preview.n_requests == 0
    assert asked(rig) == [N, 4]


def test_attempts_are_counted(rig: Rig) -> None:
    rig.world.add_fault("lines@*:error_rows=1")
    rig.submit()
    end(rig)
    for n_batches in (2, 3):
        ask_again(rig)
        end(rig)
        assert len(asked(rig)) == n_batches
    report = ask_again(rig)
    assert (report.submitted.preview.n_requests, report.failures[0].n_chosen - report.failures[0].n_due) == (0, 1)
    assert ask_again(rig, max_attempts=4).submitted.preview.n_requests == 1


def test_rows_that_never_came_are_missing_and_may_be_asked_again(rig: Rig) -> None:
    rig.world.add_fault("lines@1:drop=5")
    rig.submit()
    end(rig, 2)
    assert rig.only().phase is Phase.MISMATCH
    assert [(f.error_class, f.n_due) for f in ask_again(rig).failures] == [("missing", 5)]
    end(rig)
    assert len(rig.answers()) == N


def test_an_expired_batch_without_files_is_asked_again_as_expired(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:expire_bare")
    rig.submit()
    end(rig, 2)
    assert [(f.error_class, f.n_due) for f in ask_again(rig).failures] == [("expired", N)]
    end(rig)
    assert len(rig.answers()) == N


def test_what_was_given_up_is_asked_again_only_by_name(rig: Rig) -> None:
    rig.world.add_fault("lines@1:drop=5")
    rig.submit()
    end(rig, 2)
    resolve(rig.store(), rig.only().attempt_id, Resolution.LOST, providers=rig.providers())
    assert ask_again(rig).submitted.preview.n_requests == 0
    assert ask_again(rig, [ErrorClass.LOST]).submitted.preview.n_requests == 5


@pytest.mark.parametrize(
    ("code", "error_class"),
    some(("billing_hard_limit_reached", "billing"), swept=[("model_not_found", "model_gone")]),
)
def test_billing_and_retired_models_are_never_asked_again_by_themselves(rig: Rig, code: str, error_class: str) -> None:
    automatic(rig, '"transient", "expired", "missing"')
    rig.world.add_fault(f"batches.create@1:fail={code}")
    rig.submit()
    end(rig, 2)
    assert len(asked(rig)) == 1
    report = ask_again(rig)
    assert [(f.error_class, f.n_requests, f.n_due) for f in report.failures] == [(error_class, N, 0)]
    assert ask_again(rig, [ErrorClass(error_class)]).submitted.preview.n_requests == N


def test_sync_asks_again_by_itself_where_the_study_says_so_until_attempts_run_out(rig: Rig) -> None:
    automatic(rig)
    rig.world.add_fault("lines@1-2:error_rows=2")
    rig.submit()
    end(rig, 4)
    assert asked(rig) == [N, 2, 2]
    assert len(rig.answers()) == N
    before = rig.tree()
    end(rig)
    assert rig.tree() == before
    assert rig.violations() == []


def test_without_a_retry_table_sync_leaves_failures_alone(rig: Rig) -> None:
    rig.world.add_fault("lines@1:error_rows=2")
    rig.submit()
    end(rig, 2)
    assert asked(rig) == [N]


def test_a_batch_that_found_the_queue_full_is_sent_again_as_it_is_and_not_retried_beside_it(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:enqueued")
    rig.submit()
    end(rig)
    assert ask_again(rig).failures == ()
    end(rig, 4)
    assert asked(rig) == [N, N]
    assert rig.billed()[0] == N


def test_a_retry_keeps_to_its_limit_of_money(rig: Rig) -> None:
    rig.world.add_fault("lines@1:error_rows=6")
    rig.submit()
    end(rig)
    with pytest.raises(UsageError, match="limit"):
        ask_again(rig, max_cost_usd=1e-9)
    assert asked(rig) == [N]


@pytest.mark.parametrize("crash_in", every(3, range(0, 40, 6)))
def test_a_crash_during_a_retry_buys_nothing_twice(rig: Rig, crash_in: int) -> None:
    automatic(rig)
    rig.world.add_fault("lines@1:error_rows=4")
    rig.submit()
    rig.clock.advance(1_000)
    rig.crash_in = crash_in
    rig.survive(rig.sync)
    rig.settle()
    end(rig, 2)
    assert rig.billed()[0] == N - 1, "three transient rows are asked again, the permanent one is not"
    assert rig.violations() == []


def test_a_retry_that_was_on_record_and_not_cut_when_its_process_died_keeps_no_later_one_from_being_asked(
    rig: Rig,
) -> None:
    """A shard without a file is none, so nothing of it may still end: what failed is asked again all the same."""
    automatic(rig)
    rig.world.add_fault("lines@1:error_rows=4")
    rig.submit()
    rig.clock.advance(1_000)
    rig.sync(submit_due=False)
    rig.die_between_shard_and_file(rig.sync)
    end(rig, 2)
    assert asked(rig) == [N, 3], "three of the four failed in a way that is asked again"
    assert rig.violations() == []


def test_nothing_is_retried_that_was_never_submitted(rig: Rig) -> None:
    with pytest.raises(UsageError, match="never submitted"):
        ask_again(rig)


def test_what_a_second_batch_may_still_answer_is_not_asked_again(tmp_path: Path) -> None:
    """A late create made a second batch of the shard: while that runs, nothing that failed in the first is bought."""
    rig = Rig(
        tmp_path, Settings(seed=1, latency_s=(900, 950)), max_requests=50, models=("gpt-4.1-mini",), with_lens=False
    )
    rig.plan()
    rig.world.add_fault("batches.create@1:delay_exec=1500")
    rig.world.add_fault("lines@*:error_rows=6")
    rig.submit()
    end(rig, 2)
    second = next(attempt for attempt in rig.attempts() if attempt.is_duplicate)
    assert second.phase is Phase.OPEN
    assert ask_again(rig).submitted.preview.n_requests == 0
    end(rig)
    assert ask_again(rig).submitted.preview.n_requests > 0
