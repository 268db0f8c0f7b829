"""The fold of an attempt's events: total, sticky, and the same in Python and in SQL, whatever the history."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpond.lake import events as columns
from batchpond.lake.attempts import UNCLEAR_PHASES, Attempt, Phase, fold, seconds_of
from batchpond.lake.events import EventLog, read
from batchpond.lake.records import (
    Absent,
    Adopted,
    CancelAsked,
    Created,
    Downloaded,
    DuplicateRemote,
    Event,
    Intent,
    Listed,
    Lost,
    Mismatch,
    MissingRemote,
    NotFound,
    OfAttempt,
    Rejected,
    Resolution,
    Resolved,
    Seen,
    Sent,
    Status,
    Unknown,
    Uploaded,
    Verified,
)
from batchpond.lake.schemas import EVENTS
from batchpond.lake.store import Store
from batchpond.model import BatchState, ErrorClass
from tests.rigs.clock import ManualClock
from tests.rigs.events import fact
from tests.rigs.sql import views_over
from tests.rigs.swept import examples, some

START = datetime(2026, 11, 21, tzinfo=UTC)
INTENT = fact(Intent, attempt_id="a1", shard_id="s1", shard_kind="first", ordinal=1, token="t",
               provider="openai", host="h", n_requests=4, study="demo", study_version="v1")  # fmt: skip
ABOUT_ATTEMPTS: tuple[type[OfAttempt], ...] = (
    Uploaded, Sent, Rejected, Created, Adopted, Unknown, Listed, Absent,
    Status, NotFound, Downloaded, Verified, Mismatch, MissingRemote, Lost,
    DuplicateRemote, CancelAsked, Resolved,
)  # fmt: skip


def _event(record: type[OfAttempt], state: BatchState, resolution: Resolution, number: int) -> OfAttempt:
    said: dict[str, Any] = {}
    if issubclass(record, Seen):
        said = {"state": state, "provider_status": str(state)}
    elif issubclass(record, Uploaded | Downloaded):
        said = {"file_id": f"f{number}"}
    elif issubclass(record, Resolved):
        said = {"resolution": resolution}
    return fact(record, **said)


def _ordered(facts: Iterable[Event]) -> list[Event]:
    return [
        msgspec.structs.replace(event, ord=n, event_id=f"e{n}", occurred_at=START + timedelta(seconds=n))
        for n, event in enumerate(facts, 1)
    ]


facts = st.builds(
    _event,
    st.sampled_from(ABOUT_ATTEMPTS),
    st.sampled_from(list(BatchState)),
    st.sampled_from(list(Resolution)),
    st.integers(0, 9),
)
histories = st.lists(facts, max_size=14).map(lambda rest: _ordered([INTENT, *rest]))

# What may follow what while the lock is held: the ways a real attempt goes.
ALLOWED_MOVES = {
    Phase.INTENT: {Phase.UPLOADED, Phase.SENT, Phase.OPEN, Phase.ENDED},
    Phase.UPLOADED: {Phase.SENT, Phase.OPEN, Phase.ENDED},
    Phase.SENT: {Phase.REJECTED, Phase.UNKNOWN, Phase.OPEN, Phase.ENDED},
    Phase.REJECTED: {Phase.SENT, Phase.UNKNOWN, Phase.OPEN, Phase.ENDED},
    Phase.UNKNOWN: {Phase.SENT, Phase.ABSENT, Phase.OPEN, Phase.ENDED},
    Phase.ABSENT: {Phase.SENT, Phase.OPEN, Phase.ENDED},
    Phase.OPEN: {Phase.ENDED, Phase.MISSING_REMOTE, Phase.LOST},
    Phase.MISSING_REMOTE: {Phase.OPEN, Phase.ENDED, Phase.LOST},
    Phase.ENDED: {Phase.VERIFIED, Phase.MISMATCH, Phase.LOST},
    Phase.MISMATCH: {Phase.ENDED, Phase.LOST},
    Phase.VERIFIED: set(),
    Phase.LOST: set(),
}

# In which phases a writer that holds the lock can record a fact; all other facts come at any time.
NO_BATCH = {Phase.INTENT, Phase.UPLOADED, Phase.SENT, Phase.REJECTED, Phase.UNKNOWN, Phase.ABSENT}
RECORDED_IN = {
    Sent: NO_BATCH,
    Created: NO_BATCH,
    Adopted: NO_BATCH,
    Rejected: {Phase.SENT},
    Absent: {Phase.UNKNOWN},
    Status: set(Phase) - NO_BATCH,
    MissingRemote: {Phase.OPEN},
    Verified: {Phase.ENDED},
    Mismatch: {Phase.ENDED},
    Lost: {Phase.OPEN, Phase.ENDED, Phase.MISSING_REMOTE, Phase.MISMATCH},
}


def _attempt(history: list[Event]) -> Attempt:
    return fold(history).attempts["a1"]


@given(histories)
@settings(max_examples=examples(300))
def test_any_history_folds_and_moves_only_as_allowed(history: list[Event]) -> None:
    """Verified and lost are never left; absent only for a batch that turned up; a known batch is never unknown."""
    phase = Phase.INTENT
    for n in range(1, len(history) + 1):
        attempt = _attempt(history[:n])
        assert attempt.phase is phase or attempt.phase in ALLOWED_MOVES[phase], history[n - 1]
        phase = attempt.phase
        assert attempt.batch_id is None or attempt.phase not in UNCLEAR_PHASES


@given(histories)
@settings(max_examples=examples(200))
def test_a_terminal_state_and_the_first_batch_id_are_never_left(history: list[Event]) -> None:
    terminal = batch_id = None
    for n in range(1, len(history) + 1):
        attempt = _attempt(history[:n])
        assert terminal is None or attempt.state is terminal
        assert batch_id is None or attempt.batch_id == batch_id
        batch_id = attempt.batch_id
        terminal = attempt.state if attempt.state is not None and attempt.state.is_terminal else None


@given(histories)
@settings(max_examples=examples(200))
def test_a_send_is_never_forgotten(history: list[Event]) -> None:
    """Whatever came before, `sent` leaves doubt or a batch: never a state from which the shard is sent again."""
    attempt = _attempt(_ordered([*history, _event(Sent, BatchState.QUEUED, Resolution.ADOPT, 0)]))
    assert attempt.phase is Phase.SENT or attempt.batch_id is not None
    assert attempt.n_sends == 1 + sum(isinstance(event, Sent) for event in history)


@given(histories)
@settings(max_examples=examples(200))
def test_a_new_send_starts_the_proof_of_absence_anew(history: list[Event]) -> None:
    sent = _event(Sent, BatchState.QUEUED, Resolution.ADOPT, 0)
    listed = _event(Listed, BatchState.QUEUED, Resolution.ADOPT, 0)
    attempt = _attempt(_ordered([*history, sent]))
    if attempt.batch_id is None:
        assert attempt.first_listed is None
        assert _attempt(_ordered([*history, sent, listed])).first_listed is None, "no doubt was observed yet"


@given(histories, st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_events_stored_twice_count_once(
    tmp_path_factory: pytest.TempPathFactory, history: list[Event], data: st.DataObject
) -> None:
    """A reader may meet an event in its own file and in a merged one."""
    store = Store.init(tmp_path_factory.mktemp("lake") / "lake", ManualClock(START))
    for n, event in enumerate(history):
        store.publish(EVENTS, f"e-{n}", _rows([event]))
    twice = data.draw(st.lists(st.sampled_from(history), unique_by=lambda event: event.ord))
    store.publish(EVENTS, "c-merged", _rows(twice))
    assert fold(read(store)) == fold(history)


def _rows(history: Iterable[Event]) -> pa.Table:
    return pa.Table.from_pydict(columns.to_columns(list(history)), schema=EVENTS.schema)


@pytest.mark.parametrize("seed", some(0, swept=(1, 2)))
def test_sql_and_python_fold_alike(seed: int) -> None:
    """The view `attempts` says of every attempt what the controller acts on: 400 random histories a seed."""
    everything = _ordered(_interleaved(random.Random(seed), n_attempts=400))
    lake_state = fold(everything)
    with views_over({"events": _rows(everything)}) as connection:
        found = connection.execute(
            "select attempt_id, attempt_state, batch_id, batch_state, n_sends from attempts"
        ).fetchall()
    assert {row[0]: row[1:] for row in found} == {
        attempt.attempt_id: (attempt.phase, attempt.batch_id, attempt.state, attempt.n_sends)
        for attempt in lake_state.attempts.values()
    }


def _interleaved(draw: random.Random, n_attempts: int) -> list[Event]:
    """Return the events of many attempts, half of them in an order that the protocol makes likely."""
    likely = (Uploaded, Sent, Unknown, Created, Status, Verified)
    events: list[Event] = [
        msgspec.structs.replace(INTENT, attempt_id=f"a{n}", shard_id=f"s{n}") for n in range(n_attempts)
    ]
    lake_state = fold(events)
    started = dict.fromkeys(range(n_attempts), 0)
    for _ in range(n_attempts * 9):
        n = draw.randrange(n_attempts)
        kind = draw.choice(ABOUT_ATTEMPTS)
        if draw.random() < 0.6 and started[n] < len(likely):
            kind = likely[started[n]]
            started[n] += 1
        resolution = draw.choice((Resolution.REFETCH, Resolution.FOUND, Resolution.ADOPT))
        event = _event(kind, draw.choice(list(BatchState)), resolution, draw.randrange(9))
        event = msgspec.structs.replace(event, attempt_id=f"a{n}")
        if kind not in RECORDED_IN or lake_state.attempts[f"a{n}"].phase in RECORDED_IN[kind]:
            lake_state.add(event)
            events.append(event)
    return events


@given(histories)
@settings(max_examples=examples(100))
def test_an_attempt_that_was_handed_out_stays_as_it_was(history: list[Event]) -> None:
    """Adding events one by one folds as all at once do, and changes no attempt that someone holds."""
    lake_state = fold([])
    held: list[tuple[Attempt, Attempt]] = []
    for event in history:
        lake_state.add(event)
        attempt = lake_state.attempts["a1"]
        held.append((attempt, dataclasses.replace(attempt)))
    assert lake_state == fold(history)
    assert all(then == copy for then, copy in held)


def test_misses_are_forgotten_once_the_batch_is_seen_again() -> None:
    history = _ordered([
        INTENT, fact(Sent), fact(Created, state=BatchState.RUNNING),
        fact(NotFound), fact(MissingRemote),
        fact(Resolved, resolution=Resolution.FOUND),
    ])  # fmt: skip
    assert _attempt(history[:-1]).phase is Phase.MISSING_REMOTE
    assert (_attempt(history).phase, _attempt(history).not_found) == (Phase.OPEN, ())


def test_a_doubt_is_as_old_as_its_first_observation_in_each_boot() -> None:
    """One observed again does not begin anew, and one of another boot takes nothing from it."""
    boots = ("a", "a", "b", "a", "b")
    observed = [fact(Unknown, boot_id=boot, monotonic_s=float(n)) for n, boot in enumerate(boots)]
    attempt = _attempt(_ordered([INTENT, fact(Sent), *observed]))
    assert [(one.boot_id, one.monotonic_s) for one in attempt.observed] == [("a", 0.0), ("b", 2.0)]


def test_two_processes_that_race_to_send_elect_one(tmp_path: Path) -> None:
    """Even with a broken lock the `sent` record is won by one process."""
    store = Store.init(tmp_path / "lake", ManualClock(START))
    logs = [EventLog(store) for _ in range(3)]
    sent = fact(Sent, attempt_id="a1", ordinal=1)
    assert [log.append_as("sent-a1-1", sent) for log in logs] == [True, False, False]


def test_a_rejection_keeps_its_class() -> None:
    refused = fact(Rejected, error_class=ErrorClass.BILLING, error_code="insufficient_quota")
    sent = _event(Sent, BatchState.QUEUED, Resolution.ADOPT, 0)
    attempt = _attempt(_ordered([INTENT, sent, refused]))
    assert attempt.rejection is not None
    assert attempt.rejection.error_class is ErrorClass.BILLING


def test_a_second_batch_needs_a_person_until_somebody_says_that_it_is_known() -> None:
    """And nothing else about an attempt that went well does."""
    for shard_kind, needs in (("first", False), ("duplicate", True)):
        begun = fact(Intent, attempt_id="a1", shard_id="s1", shard_kind=shard_kind, n_requests=4)
        verified = fact(Verified, attempt_id="a1", n_requests=4, n_completed=4)
        (attempt,) = fold(_ordered([begun, verified])).attempts.values()
        assert attempt.needs_attention is needs
        known = fact(Resolved, attempt_id="a1", resolution="known")
        (attempt,) = fold(_ordered([begun, verified, known])).attempts.values()
        assert attempt.needs_attention is False


def test_what_a_person_gave_up_needs_nobody_any_more() -> None:
    """Else one lost batch would have every pass end with 3 for ever, and no later trouble would be seen."""
    begun = fact(Intent, attempt_id="a1", shard_id="s1", shard_kind="first", n_requests=4)
    created = fact(Created, attempt_id="a1", batch_id="b1", state=BatchState.QUEUED)
    facts = [begun, fact(Sent, attempt_id="a1"), created, fact(MissingRemote, attempt_id="a1", batch_id="b1")]
    (missing,) = fold(_ordered(facts)).attempts.values()
    (lost,) = fold(_ordered([*facts, fact(Lost, attempt_id="a1")])).attempts.values()
    assert [(one.phase, one.needs_attention) for one in (missing, lost)] == [
        (Phase.MISSING_REMOTE, True),
        (Phase.LOST, False),
    ]


@pytest.mark.parametrize("state", list(BatchState))
def test_only_a_completed_batch_says_how_long_one_runs(state: BatchState) -> None:
    """From when the provider says that it was made until it was seen to have completed."""
    created = fact(Created, attempt_id="a1", provider_created_at=START, state=BatchState.QUEUED)
    seen = fact(Status, attempt_id="a1", state=state)
    (attempt,) = fold(_ordered([INTENT, created, seen])).attempts.values()
    took_s = (attempt.status.occurred_at - START).total_seconds() if attempt.status else None
    assert seconds_of(attempt) == (took_s if state is BatchState.COMPLETED else None)
    (unacknowledged,) = fold(_ordered([INTENT])).attempts.values()
    assert seconds_of(unacknowledged) is None
