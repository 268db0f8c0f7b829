"""Events: facts once, occurrences each time, order by sequence and not by the wall clock."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from batchpond.errors import LakeError
from batchpond.lake import events
from batchpond.lake.disk import read_rows
from batchpond.lake.events import MEMO, EventLog, read
from batchpond.lake.records import Approval, Planned, Sent, Status, Unknown
from batchpond.lake.store import Store
from tests.rigs.clock import ManualClock
from tests.rigs.events import fact

START = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Store:
    return Store.init(tmp_path / "lake", clock)


def test_a_fact_seen_again_adds_nothing(store: Store, clock: ManualClock) -> None:
    status = fact(Status, attempt_id="a", state="running", n_completed=1)
    log = EventLog(store)
    assert len(log.append(status)) == 1
    clock.advance(3600)
    assert EventLog(store).append(status) == []
    assert len(store.files("events")) == 1


def test_an_occurrence_counts_each_time(store: Store) -> None:
    planned = fact(Planned, study="s", study_version="v1")
    log = EventLog(store)
    log.append(planned)
    log.append(fact(Planned, study="s", study_version="v2"))
    log.append(planned)
    assert [event.study_version for event in read(store)] == ["v1", "v2", "v1"]


def test_order_survives_a_clock_that_goes_back(tmp_path: Path) -> None:
    late = Store.init(tmp_path / "lake", ManualClock(START.replace(year=2030)))
    EventLog(late).append(fact(Planned, study="first"))
    early = Store.open(tmp_path / "lake", ManualClock(START))
    EventLog(early).append(fact(Planned, study="second"))
    assert [event.study for event in read(early)] == ["first", "second"]


def test_one_process_wins_the_right_to_send(store: Store) -> None:
    sent = fact(Sent, attempt_id="a", ordinal=1)
    first, second = EventLog(store), EventLog(store)
    assert first.append_as("sent-a-1", sent) is True
    assert second.append_as("sent-a-1", sent) is False
    assert len(read(store)) == 1
    assert second.events == []


def test_what_is_not_urgent_is_on_record_with_the_next_that_is(store: Store) -> None:
    """Known to its log at once, in one file with the next, an elected one too; a fact that waits is not taken twice."""
    log = EventLog(store)
    for study in ("a", "b"):
        log.append(fact(Planned, study=study), is_urgent=False)
    assert (len(log.recent), read(store)) == (2, [])
    log.append(fact(Planned, study="c"))
    assert [event.study for event in read(store)] == ["a", "b", "c"]
    seen = fact(Status, attempt_id="a", batch_id="b")
    assert len(log.append(seen, is_urgent=False)) == 1
    assert log.append(seen, is_urgent=False) == []
    log.append_as("sent-a-1", fact(Sent, attempt_id="a", ordinal=1))
    assert [event.kind for event in read(store)][3:] == ["status", "sent"]
    assert len(store.files("events")) == 2
    log.append(fact(Planned, study="d"), is_urgent=False)
    log.compact(lambda: None)
    assert read(store) == log.events


def test_an_unreadable_event_file_stops_everything_and_is_named(store: Store) -> None:
    """Going on without a fact could buy a batch twice."""
    EventLog(store).append(fact(Planned, study="s"))
    store.files("events")[0].write_bytes(b"PAR1 not really")
    with pytest.raises(LakeError, match=r"e-.*\.parquet cannot be read"):
        read(store)


def test_compaction_keeps_every_event_and_drops_its_copies_once_readers_are_shown_the_merged_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event stands once by plain glob, and no listing of `Store.files` has one twice."""
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", 5)
    log = EventLog(store)
    for number in range(8):
        log.append(fact(Planned, study=f"s{number}"))
    before = read(store)
    old = set(store.files("events"))

    def show() -> None:
        assert set(map(str, old)) < set(store.published("events"))
        assert old.isdisjoint(store.files("events"))

    assert log.compact(show) is True
    (merged,) = store.published("events")
    assert read(store) == before
    assert log.compact(lambda: None) is False
    log = EventLog(store)
    log.append(fact(Planned, study="after"))
    assert read(store)[-1].study == "after"
    assert merged in store.published("events")


@pytest.mark.parametrize("n_unlinked", [0, 3])
def test_the_next_writer_drops_the_copies_that_a_killed_one_left(
    store: Store, monkeypatch: pytest.MonkeyPatch, n_unlinked: int
) -> None:
    """However far it came."""
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", 5)
    log = EventLog(store)
    for number in range(8):
        log.append(fact(Planned, study=f"s{number}"))
    before = read(store)

    def die() -> None:
        for path in sorted(set(store.published("events")) - set(map(str, store.files("events"))))[:n_unlinked]:
            os.unlink(path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        log.compact(die)
    assert read(store) == before
    shown: list[bool] = []
    assert EventLog(store).compact(lambda: shown.append(True)) is True
    assert (shown, len(store.published("events"))) == ([True], 1)
    assert read(store) == before


@pytest.mark.parametrize("kept", ["as it was kept", "cut short", "of other files", "a changed letter", "no digest"])
def test_what_is_kept_of_the_events_is_what_the_files_say(store: Store, kept: str) -> None:
    """Whatever is wrong with the memo, the files are read; and what it says is every column of every event."""
    log = EventLog(store)
    log.append(fact(Planned, study="s"), fact(Approval, cost_max_usd=0.1, expires_at=START))
    log.append(fact(Unknown, attempt_id="a", monotonic_s=12.000000001, reason="\u2028 \U0001f300"))
    log.keep()
    memo = store.path / MEMO
    match kept:
        case "cut short":
            memo.write_bytes(memo.read_bytes()[:-9])
        case "of other files":
            log.append(fact(Planned, study="t"))
        case "a changed letter":
            memo.write_bytes(memo.read_bytes().replace(b'"planned"', b'"rejects"'))
        case "no digest":
            memo.write_bytes(b"{}")
    assert EventLog(store).events == read(store)
    assert (EventLog(store)._is_kept) is (kept == "as it was kept")


def test_a_file_that_changed_is_read_whatever_was_kept(store: Store) -> None:
    log = EventLog(store)
    log.append(fact(Planned, study="s"))
    log.keep()
    store.files("events")[0].write_bytes(b"PAR1 not really")
    with pytest.raises(LakeError, match=r"e-.*\.parquet cannot be read"):
        EventLog(store)


def test_what_another_process_published_meanwhile_is_not_kept_unread(store: Store) -> None:
    ours, theirs = EventLog(store), EventLog(store)
    theirs.append(fact(Planned, study="theirs"))
    ours.append(fact(Planned, study="ours"))
    ours.keep()
    assert {event.study for event in EventLog(store).events} == {"theirs", "ours"}


def test_what_was_published_since_is_all_that_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and each once; a merged file takes the place of what was kept."""
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", 5)
    log = EventLog(store)
    for number in range(4):
        log.append(fact(Planned, study=f"s{number}"))
    log.keep()
    opened: list[Path] = []

    def counted(path: Path) -> Any:
        opened.append(path)
        return read_rows(path)

    monkeypatch.setattr(events, "read_rows", counted)
    EventLog(store).append(fact(Planned, study="new"))
    following = EventLog(store)
    assert len(opened) == 1
    assert following.events == read(store)
    other = EventLog(store)
    other.append(fact(Planned, study="newer"))
    assert other.compact(lambda: None) is True
    opened.clear()
    assert EventLog(store).events == other.events
    assert len(opened) == 1


def test_a_pass_that_compacted_leaves_the_next_nothing_to_keep(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a file get lost that another process published just before."""
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", 5)
    log, other = EventLog(store), EventLog(store)
    for number in range(8):
        log.append(fact(Planned, study=f"s{number}"))
    other.append(fact(Planned, study="other"))
    assert log.compact(lambda: None) is True
    log.keep()
    following = EventLog(store)
    assert (following._is_kept, len(following.events), len(read(store))) == (True, 9, 9)
    assert following.compact(lambda: None) is False
