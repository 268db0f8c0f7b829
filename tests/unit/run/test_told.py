"""What a person should look at before it goes wrong, for any history of batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from batchpond.lake.attempts import ATTENTION_PHASES, LakeState, fold
from batchpond.lake.records import Created, Event, Intent, Sent, Status, Verified
from batchpond.model import ErrorClass
from batchpond.run.told import ADVICE, HISTORY_MIN, WAYS_OUT, concerns
from tests.rigs.events import fact

NOW = datetime(2026, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def batch(name: str, made: datetime, took: timedelta | None, provider: str = "openai") -> list[Event]:
    """Return the facts of one batch; `took` None is one that is open."""
    same = {"attempt_id": name, "batch_id": f"b-{name}", "provider": provider}
    found: list[Event] = [
        fact(Intent, attempt_id=name, shard_id=name, provider=provider, token=f"bp-x-{name}"),
        fact(Sent, attempt_id=name),
        fact(Created, **same, provider_created_at=made, state="running", occurred_at=made),
    ]
    if took is not None:
        found.append(fact(Status, **same, state="completed", occurred_at=made + took))
        found.append(fact(Verified, attempt_id=name, batch_id=f"b-{name}", n_requests=4, n_completed=4))
    return found


def history(n: int, provider: str = "openai") -> list[Event]:
    """Return batches that took an hour, two hours and so on."""
    made = NOW - timedelta(days=9)
    return [event for k in range(n) for event in batch(f"{provider}-{k}", made, (k + 1) * HOUR, provider)]


def state(*events: list[Event]) -> LakeState:
    return fold(event for some in events for event in some)


@pytest.mark.parametrize(
    ("n", "hours", "is_late"), [(20, 18, False), (20, 20, True), (19, 200, False), (40, 37, False)]
)
def test_a_batch_is_late_that_takes_longer_than_nearly_all_before(n: int, hours: int, is_late: bool) -> None:
    """The 95th percentile of the lake's own history decides, once there is enough of it."""
    found = concerns(state(history(n), batch("now", NOW - hours * HOUR, None)), NOW)
    assert [one.message.split()[2] for one in found] == (["b-now"] if is_late else [])


def test_history_is_of_the_same_provider() -> None:
    """That one provider is fast makes no batch of another late."""
    assert concerns(state(history(HISTORY_MIN), batch("now", NOW - 48 * HOUR, None, "anthropic")), NOW) == []


def test_minutes_are_never_late() -> None:
    """Where batches end within minutes, a batch of half an hour is nothing that a person has to look at."""
    quick = [e for k in range(30) for e in batch(f"q-{k}", NOW - timedelta(days=2), timedelta(minutes=2))]
    assert concerns(state(quick, batch("now", NOW - HOUR / 2, None)), NOW) == []
    assert len(concerns(state(quick, batch("now", NOW - 2 * HOUR, None)), NOW)) == 1


@pytest.mark.parametrize(
    ("provider", "days", "words"),
    [("openai", 1 / 16, None), ("openai", 19, "had ended by"), ("openai", 21, "in 9 days"),
     ("anthropic", 28, "in 1 day"), ("openai", 31, "deleted by now"), ("gemini", 1.5, "not documented")],
)  # fmt: skip
def test_what_was_not_collected_counts_down(provider: str, days: float, words: str | None) -> None:
    """An hour after the end it is said; from a third of the retention on how long is left, or that nobody knows."""
    ended = batch("now", NOW - timedelta(days=days), HOUR, provider)[:-1]
    found = concerns(state(ended), NOW)
    assert [words in one.message for one in found] == ([True] if words else [])
    assert concerns(state(batch("now", NOW - timedelta(days=days), HOUR, provider)), NOW) == []


def test_every_state_that_waits_for_a_person_has_a_way_out() -> None:
    """And a second batch, whose state may be any other, and an open one that cannot go on, which can be stopped."""
    assert set(WAYS_OUT) == {*ATTENTION_PHASES, "duplicate", "open"}
    assert all("`batchpond resolve ATTEMPT --" in hint for name, hint in WAYS_OUT.items() if name != "open")


def test_every_kind_of_failure_has_an_advice() -> None:
    """A new kind is one that somebody has thought about."""
    assert set(ADVICE) == set(ErrorClass)
