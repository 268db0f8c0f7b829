"""The submission protocol, checked exhaustively: every interleaving of a small model, and each rule's necessity.

The model has one attempt, a disk, one or two processes that may crash, and a provider that may
execute a request late and list a batch late, in ticks. With all rules no reachable state has two
batches; without any one of them a duplicate is reached, which shows that the model can see it.

Hosts that share a lake in a bucket have no lock that holds: which of them sends an attempt is elected, and who sleeps
after that sends nothing any more once it looks at the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import pytest

Disk = Literal["planned", "sent", "unknown", "created"]


@dataclass(frozen=True)
class Rules:
    """What the protocol and the provider do; times in ticks."""

    execution_delay: int = 2
    list_lag: int = 1
    settle: int = 4
    n_crashes: int = 2
    last_tick: int = 12
    n_processes: int = 1
    n_client_retries: int = 0
    has_lock: bool = True
    records_sent: bool = True
    clock_starts_at: Literal["observation", "sending"] = "observation"
    has_control: bool = True
    elects: bool = False
    awake: int | None = None
    """Within how long after its election a sender's call leaves it, if it does: the one assumption about hosts."""


class State(NamedTuple):
    """Everything there is: the lake, the processes, the provider, the time."""

    disk: Disk = "planned"
    clock_start: int = -1
    processes: tuple[str, ...] = ("",)
    batches: tuple[int, ...] = ()
    in_flight: tuple[int, ...] = ()
    now: int = 0
    n_crashes_left: int = 0
    is_wrong_key: bool = False
    attempt: int = 0


class Step(NamedTuple):
    """A transition and what it is called."""

    label: str
    state: State


def _world(state: State, rules: Rules) -> Iterator[Step]:
    for index, _ in enumerate(state.in_flight):
        rest = state.in_flight[:index] + state.in_flight[index + 1 :]
        yield Step("late execution", state._replace(batches=(*state.batches, state.now), in_flight=rest))
    if state.now < rules.last_tick:
        alive = tuple(deadline for deadline in state.in_flight if deadline > state.now)
        yield Step("tick", state._replace(now=state.now + 1, in_flight=alive))
    if not rules.has_control and not any(state.processes):
        yield Step("another project's key", state._replace(is_wrong_key=not state.is_wrong_key))


def _process(state: State, rules: Rules, index: int) -> Iterator[Step]:
    at = state.processes[index]

    def goes(label: str, to: str, **changes: object) -> Step:
        processes = (*state.processes[:index], to, *state.processes[index + 1 :])
        return Step(f"process {index}: {label}", state._replace(processes=processes, **changes))

    if at == "":
        if not (rules.has_lock and any(state.processes)):
            if state.disk == "planned":
                yield goes("submit", f"begin {state.attempt}")
            elif state.disk in {"sent", "unknown"}:
                yield goes("sync", "resolve")
        return
    if state.n_crashes_left:
        yield goes("crash", "", n_crashes_left=state.n_crashes_left - 1)
    if at.startswith("begin"):
        yield _begin(state, rules, at, goes)
    elif at.startswith("send"):
        yield from _call(state, rules, at, goes)
    elif at == "acknowledged":
        yield goes("record id", "", disk="created")
    elif at == "unclear":
        yield goes("leave to sync", "", **({} if rules.records_sent else {"disk": "planned"}))
    elif at == "resolve":
        yield from _resolution(state, rules, goes)


def _begin(state: State, rules: Rules, at: str, goes: Callable[..., Step]) -> Step:
    if rules.elects and (state.disk, at) != ("planned", f"begin {state.attempt}"):
        return goes("the election is lost", "")
    recorded = {"disk": "sent", "clock_start": state.now} if rules.records_sent else {}
    return goes("record sent", f"send 0 {state.now}", **recorded)


def _call(state: State, rules: Rules, at: str, goes: Callable[..., Step]) -> Iterator[Step]:
    n_sent, since = map(int, at.split()[1:])
    if rules.awake is not None and state.now - since > rules.awake:
        yield goes("slept too long", "unclear")
        return
    after = f"send {n_sent + 1} {since}" if n_sent < rules.n_client_retries else "unclear"
    yield goes("created, acknowledged", "acknowledged", batches=(*state.batches, state.now))
    yield goes("created, answer lost", after, batches=(*state.batches, state.now))
    late = (*state.in_flight, state.now + rules.execution_delay)
    yield goes("timed out, still under way", after, in_flight=late)
    yield goes("never arrived", after)


def _resolution(state: State, rules: Rules, goes: Callable[..., Step]) -> Iterator[Step]:
    sees = not state.is_wrong_key
    if sees and state.batches:
        yield goes("found, adopted", "", disk="created")
    if sees and any(made + rules.list_lag <= state.now for made in state.batches):
        return
    is_old = state.now - state.clock_start >= rules.settle
    if rules.clock_starts_at == "observation" and state.disk == "sent":
        yield goes("not listed, doubt observed", "", disk="unknown", clock_start=state.now)
    elif is_old:
        following = state.attempt + rules.elects
        yield goes("not listed after settling, absent", "", disk="planned", clock_start=-1, attempt=following)
    else:
        yield goes("wait", "")


def find_duplicate(rules: Rules) -> tuple[list[str] | None, int]:
    """Search all states; returns the shortest way to a second batch if there is one, and how many states."""
    start = State(processes=("",) * rules.n_processes, n_crashes_left=rules.n_crashes)
    came_from: dict[State, Step | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if len(state.batches) > 1:
            return _way(state, came_from), len(came_from)
        steps = list(_world(state, rules))
        for index in range(rules.n_processes):
            steps += _process(state, rules, index)
        for label, following in steps:
            if following not in came_from:
                came_from[following] = Step(label, state)
                queue.append(following)
    return None, len(came_from)


def _way(state: State, came_from: dict[State, Step | None]) -> list[str]:
    labels = []
    step = came_from[state]
    while step is not None:
        labels.append(step.label)
        step = came_from[step.state]
    return labels[::-1]


ALL_RULES = Rules()
HOSTS = replace(ALL_RULES, n_processes=2, has_lock=False, elects=True, awake=1, settle=4, last_tick=8, n_crashes=1)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(ALL_RULES, id="all rules"),
        pytest.param(replace(ALL_RULES, settle=3), id="settle time equal to execution delay and list lag"),
        pytest.param(
            replace(ALL_RULES, execution_delay=4, list_lag=2, settle=7, last_tick=16), id="slow provider, long settle"
        ),
        pytest.param(replace(ALL_RULES, n_processes=2, last_tick=9), id="two processes, one lock"),
        pytest.param(HOSTS, id="two hosts, an election, a settle time longer by what a sender may sleep"),
    ],
)
def test_no_interleaving_buys_a_second_batch(rules: Rules) -> None:
    way, n_states = find_duplicate(rules)
    assert way is None
    assert n_states > 1_000, "the model has hardly been explored"


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(replace(ALL_RULES, settle=2), id="settle time too short"),
        pytest.param(replace(ALL_RULES, clock_starts_at="sending"), id="clock starts at sending"),
        pytest.param(replace(ALL_RULES, n_client_retries=2), id="the client retries"),
        pytest.param(replace(ALL_RULES, records_sent=False), id="nothing recorded before sending"),
        pytest.param(
            replace(ALL_RULES, n_processes=2, has_lock=False, last_tick=7, n_crashes=1), id="two processes, no lock"
        ),
        pytest.param(replace(ALL_RULES, has_control=False), id="no positive control: another project's key"),
        pytest.param(replace(HOSTS, elects=False), id="two hosts, no election"),
        pytest.param(replace(HOSTS, settle=3), id="two hosts, a settle time as on one"),
        pytest.param(replace(HOSTS, awake=None), id="two hosts, a sender that sleeps after its last look at the clock"),
    ],
)
def test_each_rule_is_needed(rules: Rules) -> None:
    way, _ = find_duplicate(rules)
    assert way is not None, "the model cannot see the duplicate that this rule prevents"


def test_the_shortest_duplicate_of_a_retrying_client_is_four_steps() -> None:
    way, _ = find_duplicate(replace(ALL_RULES, n_client_retries=2))
    assert way is not None
    assert len(way) == 4
