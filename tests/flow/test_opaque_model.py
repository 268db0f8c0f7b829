"""The rule for providers that carry no token, checked exhaustively beside a foreign tool in the same account.

One attempt; a provider that may execute a create late, list a batch late, and shows whose a batch
is only once it has ended; another tool that makes batches of the same size at any time. With all
rules no reachable state has two batches of the attempt, and none has adopted a foreign one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest


@dataclass(frozen=True)
class Rules:
    """What the protocol and the provider do; times in ticks."""

    execution_delay: int = 2
    list_lag: int = 1
    settle: int = 4
    run_time: int = 3
    n_foreign: int = 1
    n_crashes: int = 1
    last_tick: int = 11
    waits_for_candidates: bool = True
    adopts_by_proof: bool = True
    clock_starts_at_observation: bool = True
    freezes_candidates: bool = True


class Batch(NamedTuple):
    """One batch at the provider."""

    made: int
    is_ours: bool


class State(NamedTuple):
    """Everything there is; batches are known by their place in `batches`."""

    disk: str = "planned"
    process: str = ""
    clock_start: int = -1
    batches: tuple[Batch, ...] = ()
    in_flight: tuple[int, ...] = ()
    candidates: frozenset[int] = frozenset()
    foreign: frozenset[int] = frozenset()
    is_frozen: bool = False
    adopted: int = -1
    now: int = 0
    n_crashes_left: int = 0
    n_foreign_left: int = 0


def _world(state: State, rules: Rules) -> Iterator[State]:
    for index in range(len(state.in_flight)):
        rest = state.in_flight[:index] + state.in_flight[index + 1 :]
        yield state._replace(batches=(*state.batches, Batch(state.now, True)), in_flight=rest)
    if state.n_foreign_left:
        made = (*state.batches, Batch(state.now, False))
        yield state._replace(batches=made, n_foreign_left=state.n_foreign_left - 1)
    if state.now < rules.last_tick:
        alive = tuple(until for until in state.in_flight if until > state.now)
        yield state._replace(now=state.now + 1, in_flight=alive)


def _process(state: State, rules: Rules) -> Iterator[State]:
    if state.process == "":
        if state.disk == "planned":
            yield state._replace(process="send", disk="sent", clock_start=state.now)
        elif state.disk in {"sent", "unknown"}:
            yield from _resolve(state, rules)
        return
    if state.n_crashes_left:
        yield state._replace(process="", n_crashes_left=state.n_crashes_left - 1)
    made = state._replace(batches=(*state.batches, Batch(state.now, True)), process="")
    yield made._replace(disk="created", adopted=len(state.batches))
    yield made
    yield state._replace(process="", in_flight=(*state.in_flight, state.now + rules.execution_delay))
    yield state._replace(process="")


def _resolve(state: State, rules: Rules) -> Iterator[State]:
    shown = {i for i, batch in enumerate(state.batches) if batch.made + rules.list_lag <= state.now}
    for seen in {frozenset(shown), frozenset(range(len(state.batches)))}:
        yield _looked(state, rules, seen)


def _looked(state: State, rules: Rules, seen: frozenset[int]) -> State:
    if rules.clock_starts_at_observation and state.disk == "sent":
        state = state._replace(disk="unknown", clock_start=state.now)
    undecided: set[int] = set()
    for i in sorted(seen - state.foreign):
        if state.is_frozen and i not in state.candidates:
            continue
        state = state._replace(candidates=state.candidates | {i})
        has_ended = state.batches[i].made + rules.run_time <= state.now
        if not rules.adopts_by_proof or (has_ended and state.batches[i].is_ours):
            return state._replace(disk="created", adopted=i)
        if has_ended:
            state = state._replace(foreign=state.foreign | {i})
        else:
            undecided.add(i)
    undecided |= state.candidates - state.foreign - seen
    if state.now - state.clock_start < rules.settle:
        return state
    if undecided and rules.waits_for_candidates:
        return state._replace(is_frozen=rules.freezes_candidates)
    return state._replace(disk="planned", clock_start=-1, candidates=frozenset(), is_frozen=False)


def search(rules: Rules) -> tuple[set[str], int]:
    """Search all states; returns the promises found broken, and how many states there are."""
    start = State(n_crashes_left=rules.n_crashes, n_foreign_left=rules.n_foreign)
    seen, queue, broken = {start}, deque([start]), set()
    while queue:
        state = queue.popleft()
        if sum(batch.is_ours for batch in state.batches) > 1:
            broken.add("bought twice")
            continue
        if state.adopted >= 0 and not state.batches[state.adopted].is_ours:
            broken.add("foreign batch adopted")
            continue
        for following in (*_world(state, rules), *_process(state, rules)):
            if following not in seen:
                seen.add(following)
                queue.append(following)
    return broken, len(seen)


ALL_RULES = Rules()


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(ALL_RULES, id="all rules"),
        pytest.param(replace(ALL_RULES, settle=3), id="settle time equal to execution delay and list lag"),
        pytest.param(replace(ALL_RULES, run_time=6, last_tick=12), id="long runs"),
        pytest.param(replace(ALL_RULES, n_foreign=2, n_crashes=0, last_tick=9), id="two foreign batches"),
    ],
)
def test_no_interleaving_buys_twice_or_adopts_a_foreign_batch(rules: Rules) -> None:
    broken, n_states = search(rules)
    assert broken == set()
    assert n_states > 10_000, "the model has hardly been explored"


@pytest.mark.parametrize(
    ("rules", "promise"),
    [
        pytest.param(replace(ALL_RULES, settle=2), "bought twice", id="settle time too short"),
        pytest.param(
            replace(ALL_RULES, clock_starts_at_observation=False), "bought twice", id="clock starts at sending"
        ),
        pytest.param(replace(ALL_RULES, waits_for_candidates=False), "bought twice", id="undecided batch ignored"),
        pytest.param(
            replace(ALL_RULES, adopts_by_proof=False), "foreign batch adopted", id="adopted by size and time alone"
        ),
    ],
)
def test_each_rule_is_needed(rules: Rules, promise: str) -> None:
    assert promise in search(rules)[0], "the model cannot see what this rule prevents"


def test_a_foreign_tool_that_never_rests_cannot_keep_an_attempt_in_doubt_for_ever() -> None:
    def can_end_absent(rules: Rules) -> bool:
        # A foreign batch a tick, none of them ours, from the doubt on: every pass sees an undecided one.
        state = State(disk="sent")
        for now in range(rules.settle + rules.run_time + 3):
            state = state._replace(now=now, batches=(*state.batches, Batch(now, False)))
            state = _looked(state, rules, frozenset(range(len(state.batches))))
            if state.disk == "planned":
                return True
        return False

    assert can_end_absent(ALL_RULES)
    assert not can_end_absent(replace(ALL_RULES, freezes_candidates=False))
