"""The settle time of a create in doubt cannot be shortened: not by wall clocks, reboots, or moving the lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.lake.attempts import Attempt, fold
from batchpond.lake.records import Event, Intent, Sent, Unknown
from batchpond.run.find import _elapsed_s
from tests.rigs.events import fact

START = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Machine:
    """A computer with a boot, an uptime, and a wall clock that may say anything."""

    name: str
    booted_at_s: float
    wall_error_s: float = 0.0
    n_boots: int = 0


@dataclass
class Story:
    """What truly happens to a lake with one attempt in doubt, and the clock as the machine in use shows it."""

    machines: tuple[Machine, ...] = (Machine("laptop", -60.0), Machine("server", -1e7))
    at: int = 0
    true_s: float = 0.0
    events: list[Event] = field(default_factory=list)
    sent_at_s: float = 0.0

    @property
    def machine(self) -> Machine:
        return self.machines[self.at]

    def now(self) -> datetime:
        return START + timedelta(seconds=self.true_s + self.machine.wall_error_s)

    def monotonic_s(self) -> float:
        return self.true_s - self.machine.booted_at_s

    def boot_id(self) -> str:
        return f"{self.machine.name}-{self.machine.n_boots}"

    def attempt(self) -> Attempt:
        return fold(self.events).attempts["a"]

    def record(self, record: type[Event], **more: Any) -> None:
        n = len(self.events) + 1
        stamp = {"event_id": f"e{n}", "ord": n, "occurred_at": self.now()}
        self.events.append(fact(record, attempt_id="a", **stamp, **more))

    def record_clock(self, record: type[Sent | Unknown]) -> None:
        self.record(record, boot_id=self.boot_id(), monotonic_s=self.monotonic_s())

    def send(self) -> None:
        self.record_clock(Sent)
        self.sent_at_s = self.true_s

    def look(self) -> float | None:
        """Be one pass: how long the doubt is known, by its own judgement; observing it if it is not."""
        session: Any = SimpleNamespace(store=SimpleNamespace(clock=self))
        elapsed_s = _elapsed_s(session, self.attempt())
        if elapsed_s is None:
            self.record_clock(Unknown)
        return elapsed_s


def told(steps: list[tuple[str, float]]) -> tuple[Story, list[float]]:
    """Tell a story; returns it, and by how much each pass underestimated the true time since the send."""
    story = Story(tuple(Machine(m.name, m.booted_at_s) for m in Story.machines))
    story.record(Intent, shard_id="s", provider="openai")
    story.send()
    slack: list[float] = []
    for name, amount in steps:
        match name:
            case "wait":
                story.true_s += abs(amount)
            case "set clock":
                story.machine.wall_error_s = amount
            case "reboot":
                story.machine.n_boots += 1
                story.machine.booted_at_s = story.true_s
            case "move":
                story.at = 1 - story.at
            case "send again":
                story.send()
        elapsed_s = story.look()
        if elapsed_s is not None:
            slack.append(story.true_s - story.sent_at_s - elapsed_s)
    return story, slack


steps = st.lists(
    st.tuples(
        st.sampled_from(["wait", "wait", "set clock", "reboot", "move", "send again"]), st.floats(-1e8, 1e8, width=32)
    ),
    max_size=12,
)


@given(steps)
@settings(deadline=None)
def test_no_pass_believes_that_more_time_has_gone_by_than_has(steps: list[tuple[str, float]]) -> None:
    """Whatever the wall clocks say, however often a machine restarts, and wherever the lake is moved."""
    _, slack = told(steps)
    assert all(by >= -1e-6 for by in slack)


@given(steps, st.floats(1, 1e6))
@settings(deadline=None)
def test_a_machine_that_stays_up_measures_all_of_the_time(steps: list[tuple[str, float]], wait_s: float) -> None:
    """It is not made to wait for ever either: neither by a clock set back nor by what other boots have seen."""
    story, _ = told(steps)
    before_s = story.look()
    story.true_s += wait_s
    after_s = story.look()
    assert after_s is not None
    assert abs(after_s - (before_s or 0.0) - wait_s) < 1e-3
