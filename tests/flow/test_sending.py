"""When a shard may be sent: readiness, back-off and money, for any attempt and any moment."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batchpond.errors import ExitCode, LakeError
from batchpond.lake import failpoints
from batchpond.lake.attempts import Attempt, Phase
from batchpond.lake.events import read
from batchpond.lake.records import Intent, Rejected, Sharded, Status, Verified
from batchpond.model import BatchState, ErrorClass
from batchpond.run.dispatch import BACKOFF_MAX, REQUEUES_MAX, Budget, Readiness, Trigger, readiness, send_due
from batchpond.run.session import Session
from batchpond.run.submit import preview
from tests.rigs.events import fact
from tests.rigs.sim_study import STUDY, Rig

MODELS = ("gpt-4.1-mini", "gpt-5.4-mini")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
CODES = frozenset({"token_limit_exceeded"})
INTENT = fact(Intent, attempt_id="a", shard_id="s", ordinal=1, provider="openai")

moments = st.integers(0, 10**7).map(lambda seconds: NOW + timedelta(seconds=seconds))
triggers = st.builds(Trigger, st.booleans(), moments)
rejections = st.builds(
    fact,
    st.just(Rejected),
    error_class=st.sampled_from(list(ErrorClass)),
    retry_at=st.none() | st.integers(0, 900).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    occurred_at=st.just(NOW),
)
statuses = st.builds(
    fact,
    st.just(Status),
    error_code=st.none() | st.sampled_from(["token_limit_exceeded", "invalid_request"]),
    occurred_at=st.just(NOW),
)
attempts = st.builds(
    Attempt,
    intent=st.integers(1, 12).map(lambda n: replace(INTENT, ordinal=n)),
    phase=st.sampled_from(list(Phase)),
    rejection=rejections,
    n_rejections=st.integers(1, 30),
    state=st.sampled_from([None, *BatchState]),
    status=statuses,
    n_answered=st.integers(0, 3),
)
MAY_HOLD_A_BATCH = {
    Phase.SENT,
    Phase.UNKNOWN,
    Phase.OPEN,
    Phase.ENDED,
    Phase.MISSING_REMOTE,
    Phase.MISMATCH,
    Phase.LOST,
}


@given(attempts, triggers)
def test_nothing_is_sent_while_a_batch_may_hold_the_requests(attempt: Attempt, trigger: Trigger) -> None:
    """Ready only from a proven no: never sent, refused, absent, or failed whole without one answer."""
    if readiness(attempt, trigger) is not Readiness.READY:
        return
    assert attempt.phase not in MAY_HOLD_A_BATCH
    if attempt.phase is Phase.VERIFIED:
        assert (attempt.state, attempt.n_answered) == (BatchState.FAILED, 0)
        assert attempt.failure_code in CODES


@given(attempts, triggers)
def test_what_waits_for_time_is_ready_in_the_end_and_stays_ready(attempt: Attempt, trigger: Trigger) -> None:
    found = readiness(attempt, trigger)
    later = dataclasses.replace(trigger, now=trigger.now + BACKOFF_MAX * 24)
    if attempt.phase not in MAY_HOLD_A_BATCH and found is Readiness.WAITING:
        assert readiness(attempt, later) is Readiness.READY
    if found is Readiness.READY:
        assert readiness(attempt, later) is Readiness.READY


@given(attempts, moments)
def test_a_person_may_send_whatever_a_pass_may(attempt: Attempt, now: datetime) -> None:
    by_itself = readiness(attempt, Trigger(False, now))
    asked = readiness(attempt, Trigger(True, now))
    assert asked is by_itself or (by_itself, asked) in {
        (Readiness.HELD, Readiness.READY),
        (Readiness.HELD, Readiness.WAITING),
    }


def test_a_queue_that_stays_full_is_not_filled_for_ever() -> None:
    failed = Attempt(
        replace(INTENT, ordinal=REQUEUES_MAX + 1),
        phase=Phase.VERIFIED, state=BatchState.FAILED,
        status=fact(Status, error_code="token_limit_exceeded", occurred_at=NOW),
    )  # fmt: skip
    assert readiness(failed, Trigger(False, NOW + timedelta(days=30))) is Readiness.HELD


@given(st.floats(0, 100), st.lists(st.none() | st.floats(0, 10), max_size=30))
def test_a_cap_is_never_passed_at_worst(limit_usd: float, costs: list[float | None]) -> None:
    budget = Budget([(limit_usd, 0.0)])
    spent_usd = 0.0
    for cost in costs:
        shard = fact(Sharded, cost_max_usd=cost)
        if budget.allows(shard):
            assert cost is not None, "an unknown cost never fits a cap"
            budget.reserve(shard)
            spent_usd += cost
    assert spent_usd <= limit_usd * (1 + 1e-9) + 1e-12


def test_an_approval_pays_for_attempts_that_it_sends_though_an_earlier_one_made_them(tmp_path: Path) -> None:
    rig = Rig(tmp_path, with_lens=False)
    rig.plan()
    rig.world.add_fault("batches.create@*:billing")
    rig.submit()
    rig.world.clear_faults()
    rig.clock.advance(1_000)  # a 429 has the settle time to turn out to have made a batch
    rig.submit()
    with rig.store().lock("test"):
        session = Session.begin(rig.store(), rig.providers())
        (cap,) = Budget.of(session, session.lake_state.approvals[STUDY]).caps
        worst = [shard.cost_max_usd or 0.0 for shard in session.lake_state.shards.values()]
    assert cap.taken_usd > sum(worst) - max(worst), "all that was sent under it counts against it"


def test_what_waits_is_shown_and_bounded_at_the_price_of_now(tmp_path: Path) -> None:
    """A price that is set or raised while shards wait counts for what they may cost; the last submission did before."""
    rig = Rig(tmp_path, models=("gpt-of-nobody",), with_lens=False)
    config = rig.lake / "config.toml"
    rig.plan()
    room, price = "[limits.openai]\nopen_batches = 1\n", '[prices."openai/gpt-of-nobody"]\ninput = {0}\noutput = {0}\n'
    config.write_text(room)
    assert rig.submit().preview.cost_max_usd is None  # of three shards two wait

    def shown() -> tuple[int, float]:
        found = preview(rig.store(), rig.lake_state(), STUDY, None)
        return found.n_requests, found.cost_max_usd or 0.0

    costs = []
    for usd in (1, 50):
        config.write_text(room + price.format(usd))
        costs.append(shown())
    assert [n for n, _ in costs] == [7, 7]
    assert costs[1][1] > 49 * costs[0][1] > 0
    config.write_text(room + price.format(1))
    rig.submit()
    config.write_text(price.format(50))
    assert rig.sync().n_unsent == 7  # more than was approved
    assert shown() == costs[1]
    config.write_text(price.format(1))
    rig.settle(is_begun=True)
    assert rig.violations() == []
    assert (rig.billed()[0], len(rig.answers())) == (12, 12)


def test_who_slept_while_a_shard_was_given_up_cannot_send_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where machines share no lock: it has looked, wakes about to send, and another has planned anew and sent all."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), with_lens=False)
    rig.plan()
    config = rig.lake / "config.toml"
    config.write_text("[limits.openai]\nopen_batches = 1\n")
    rig.submit()
    config.unlink()
    others = [rig.change, rig.submit]

    def reach(name: str) -> None:
        while name == "S6" and others:
            others.pop(0)()

    monkeypatch.setattr(failpoints, "reach", reach)
    with pytest.raises(LakeError, match="was sent by another process"):
        send_due(Session.begin(rig.store(), rig.providers()), only_study=STUDY, is_explicit=True)
    assert len(rig.lake_state().voided) == 2
    rig.settle()
    assert rig.violations() == []
    n_planned = rig.rows("select count(distinct request_id) from plan", "plan")[0][0]
    assert rig.billed()[0] == len(rig.answers()) == n_planned


def test_one_study_that_cannot_go_on_does_not_stop_the_pass(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.plan()
    rig.submit()
    (rig.lake / "config.toml").write_text("[limits.openai]\nenqueued_tokens = 1\n")
    rig.clock.advance(1_000)
    report = rig.sync()
    assert report.exit_code in {ExitCode.DONE, ExitCode.USAGE}
    assert report.counts.n_verified == 6
    assert sum(isinstance(event, Verified) for event in read(rig.store())) == 6


def test_requests_that_begin_alike_are_sent_one_after_another(tmp_path: Path) -> None:
    """A cache has what a prompt begins with for minutes: of three templates none is left before it is done."""
    rig = Rig(tmp_path, models=("gpt-5.4-mini",), max_requests=100, with_lens=False)
    head, mark, rest = rig.study_path.read_text().partition('[[templates]]\nuse = "plain"\n')
    assert mark
    more = '[[templates]]\nuse = "concise"\n[[templates]]\nuse = "step_by_step"\n'
    rig.study_path.write_text(f"{head}{mark}{more}{rest}")
    rig.plan()
    rig.submit()
    (payload,) = (rig.lake / "_payloads").iterdir()
    bodies = [json.loads(line)["body"] for line in payload.read_bytes().splitlines()]
    begins = [json.dumps(body["messages"])[:60] for body in bodies]
    assert len(begins) == 3 * 12
    assert len([None for _ in itertools.groupby(begins)]) == len({*begins}) == 3


def test_a_model_that_is_refused_takes_no_more_in_the_pass_and_others_go_on(tmp_path: Path) -> None:
    """One refusal is said and counted once; what else waits for that model is not offered until the next pass."""
    with closing_rig(tmp_path, "batches.create@1:status=429") as rig:
        counts = rig.submit().counts
        assert counts is not None
        refused = [one for one in rig.attempts() if one.phase is Phase.REJECTED]
        (model,) = {one.intent.request_model for one in refused}
        sent = {one.intent.request_model for one in rig.attempts() if one.phase is Phase.OPEN}
        assert (len(refused), counts.n_rejected, sent) == (1, 1, set(MODELS) - {model})
        rig.settle(is_begun=True)
        assert not rig.violations()


def test_an_account_without_credit_is_offered_nothing_more_in_the_pass(tmp_path: Path) -> None:
    """Of any model: no other batch of the provider would be taken."""
    with closing_rig(tmp_path, "batches.create@1:billing") as rig:
        counts = rig.submit().counts
        assert counts is not None
        assert (counts.n_rejected, rig.wire.n_create_posts) == (1, 1)
        rig.world.clear_faults()
        rig.settle(is_begun=True)
        assert not rig.violations()


@contextmanager
def closing_rig(path: Path, fault: str) -> Iterator[Rig]:
    """Lend a planned study of two models in several batches each, whose provider has a fault."""
    rig = Rig(path / "rig", models=MODELS, max_requests=5, with_lens=False)
    rig.plan()
    rig.world.add_fault(fault)
    try:
        yield rig
    finally:
        rig.world.close()


def test_a_batch_is_unclear_as_long_as_it_is_not_found_and_no_longer(tmp_path: Path) -> None:
    """Whose creation got no answer: the pass that finds it says so, and every pass until then that it is unclear."""
    with closing_rig(tmp_path, "batches.create@1:reset_after") as rig:
        rig.world.add_fault("batches.list@*:stale_list=300")
        made = rig.submit()
        counts = made.counts
        assert counts is not None
        assert (counts.n_unknown, counts.n_existing, made.n_unclear) == (1, len(rig.attempts()) - 1, 1)
        assert [rig.sync().n_unclear for _ in range(2)] == [1, 1]
        rig.clock.advance(400.0)
        found = rig.sync()
        assert (found.n_unclear, found.counts.n_adopted) == (0, 1)
        rig.settle(is_begun=True)
        assert not rig.violations()


def test_a_batch_that_its_own_pass_finds_is_not_unclear(tmp_path: Path) -> None:
    """A creation that got no answer is counted as one, and what is left to be settled is nothing."""
    with closing_rig(tmp_path, "files.create@*:status=500") as rig:
        rig.submit()
        rig.world.clear_faults()
        rig.world.add_fault("batches.create@1:reset_after")
        rig.clock.advance(1_000.0)
        found = rig.sync()
        assert (found.counts.n_unknown, found.counts.n_adopted, found.n_unclear) == (1, 1, 0)
