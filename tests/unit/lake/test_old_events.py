"""Events of earlier versions read to the same state, keep their ids, and lie in one table with those of today."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchpond.lake import events
from batchpond.lake.attempts import Attempt, LakeState, fold
from batchpond.lake.disk import relative
from batchpond.lake.events import MEMO, EventLog, read
from batchpond.lake.records import AdoptedShard, Asked, Intent, Rejected, Rounds, Sharded
from batchpond.lake.schemas import EVENTS
from batchpond.lake.store import Memo, Store, keep_memo
from batchpond.model import ErrorClass, ShardKind
from batchpond.run.dispatch import Trigger, readiness
from tests.rigs.clock import ManualClock
from tests.rigs.events import fact
from tests.rigs.sql import views_over

OLD = Path(__file__).parents[2] / "golden/events_cc06c86"
STATES: dict[str, dict[str, Any]] = json.loads((OLD / "state.json").read_text())
START = datetime(2026, 11, 21, tzinfo=UTC)
WAITS_S = (0, 1, 29, 30, 31, 59, 60, 61, 119, 120, 121, 239, 240, 241, 3599, 3600, 3601)


@pytest.fixture(params=["flow", "kinds"])
def recorded(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(tmp_path: Path, recorded: str) -> Store:
    """A lake with old events."""
    found = Store.init(tmp_path / "lake", ManualClock(START + timedelta(days=1)))
    shutil.copytree(OLD / recorded, found.path / EVENTS.name, dirs_exist_ok=True)
    return found


def _when(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _asked(asked: Asked) -> list[Any]:
    return [asked.cost_expected_usd, asked.cost_max_usd, asked.cells]


def told(lake_state: LakeState) -> dict[str, Any]:
    """Return the state as the code of then wrote it down."""
    return {
        "attempts": {a.attempt_id: _attempt(a) for a in lake_state.attempts.values()},
        "shards": {name: _shard(shard) for name, shard in lake_state.shards.items()},
        "approvals": {
            study: [a.ord, a.approval_id, a.study_version, a.n_requests, _when(a.expires_at), a.n_limit,
                    a.cost_expected_usd, a.cost_max_usd]
            for study, a in lake_state.approvals.items()
        },
        "rounds": {
            version: [r.ord, r.study, r.round_no, r.n_requests, r.progress, r.looked, r.stage, r.n_new]
            for version, r in lake_state.rounds.items()
        },
        "current_versions": lake_state.current_versions,
        "by_shard": lake_state.by_shard,
        "batch_ids": sorted(lake_state.batch_ids),
        "voided": sorted(lake_state.voided),
    }  # fmt: skip


def _shard(s: Sharded) -> list[Any]:
    batch = [s.batch_id, s.host, s.origin] if isinstance(s, AdoptedShard) else [None, None, None]
    return [
        s.ord, s.study, s.study_version, s.shard_kind, s.provider, s.mode, s.endpoint, s.request_model, s.n_requests,
        s.size_bytes, s.input_tokens, *_asked(s), s.tier, *batch,
    ]  # fmt: skip


def _attempt(a: Attempt) -> dict[str, Any]:
    i, s, r, up, sent, listed = a.intent, a.status, a.rejection, a.uploaded, a.sent, a.first_listed
    since = r.occurred_at if r else (s.occurred_at if s else START)
    return {
        "intent": [
            i.ord, i.shard_id, i.shard_kind, i.ordinal, i.token, i.approval_id, i.study, i.study_version, i.provider,
            i.host, i.endpoint, i.request_model, i.origin, i.n_requests, i.size_bytes, i.sha256, i.input_tokens,
            *_asked(i), i.scope, _when(i.newest_batch_at),
        ],
        "phase": a.phase, "mode": a.mode, "wire": a.client_name, "file_id": a.file_id,
        "uploaded": up and [up.ord, up.size_bytes, _when(a.uploaded_at)],
        "n_sends": a.n_sends,
        "sent": sent and [sent.ord, sent.ordinal, sent.file_id, sent.boot_id, sent.monotonic_s],
        "observed": [[o.ord, o.ordinal, o.boot_id, o.monotonic_s, o.reason] for o in a.observed],
        "first_listed": listed and [listed.ord, listed.evidence],
        "is_settled": a.is_settled, "candidates": list(a.candidates), "foreign": list(a.foreign),
        "rejection": r and [r.ord, r.ordinal, r.error_class, r.error_code, r.message, _wait_s(r)],
        "n_rejections": a.n_rejections, "batch_id": a.batch_id, "scope": a.scope, "state": a.state,
        "status": s and [s.ord, s.provider, s.provider_status, s.n_requests, s.n_completed, s.n_failed, s.error_code,
                         s.detail],
        "failure_code": a.failure_code, "created_at": _when(a.created_at), "expires_at": _when(a.expires_at),
        "downloads": [
            [d.event_id, d.batch_id, d.file_id, d.file_role, d.size_bytes, d.sha256, d.n_lines] for d in a.downloads
        ],
        "n_mismatches": a.n_mismatches, "n_answered": a.n_answered, "not_found": [n.ord for n in a.not_found],
        "duplicates": [[d.ord, d.batch_id, d.cost_max_usd, _when(d.provider_created_at)] for d in a.duplicates],
        "readiness": [
            [readiness(a, Trigger(by_a_person, since + timedelta(seconds=wait_s))) for wait_s in WAITS_S]
            for by_a_person in (False, True)
        ],
    }  # fmt: skip


def _wait_s(rejection: Rejected) -> float | None:
    return None if rejection.retry_at is None else (rejection.retry_at - rejection.occurred_at).total_seconds()


def test_old_events_fold_to_the_state_that_they_had(store: Store, recorded: str) -> None:
    """Refusals with their class and wait, doubts, batches, shards, approvals and rounds: all that was acted on."""
    expected = {name: part for name, part in STATES[recorded].items() if name not in {"n_events", "facts"}}
    # One was about to be taken in, and no attempt says that it was: `recover` may yet find it.
    expected["batch_ids"] = [name for name in expected["batch_ids"] if name != "batch_14"]
    assert told(fold(read(store))) == expected
    assert told(fold(EventLog(store).events)) == expected


def test_old_events_keep_their_ids_and_are_no_news_when_seen_again(store: Store, recorded: str) -> None:
    found = read(store)
    assert {event.event_id: event.kind for event in found} == STATES[recorded]["facts"]
    for event in found:
        # Another tool's batch was once intended in no mode at all; such an intent is never recorded twice.
        is_modeless = isinstance(event, Intent) and event.shard_kind is ShardKind.ADOPTED
        if not event.is_occurrence and not is_modeless:
            assert events.event_id(event) == event.event_id, event
    facts = [event for event in found if not event.is_occurrence and events.event_id(event) == event.event_id]
    assert EventLog(store).append(*facts) == []


def test_what_an_earlier_version_remembered_of_its_events_reads_the_same(store: Store, recorded: str) -> None:
    """The memo beside the files has their columns as they were."""
    fresh = EventLog(store)
    rows = events._rows_of(store.files(EVENTS.name))
    old = {name: rows.column(name).to_pylist() for name in EVENTS.schema.names}
    for name in events._TIMES:
        old[name] = [None if at is None else int(at.timestamp() * 1_000_000) for at in old[name]]
    content = {"columns": {name: values for name, values in old.items() if any(v is not None for v in values)}}
    held = relative(store.path, fresh._held)
    names = relative(store.path, fresh._paths)
    keep_memo(store, MEMO, Memo(events._LAYOUT, held, names, content | {"n_events": len(rows)}))
    remembered = EventLog(store)
    assert (remembered._is_kept, remembered.events) == (True, fresh.events)
    assert len(fresh.events) == STATES[recorded]["n_events"]


def _refused(store: Store) -> Rejected:
    """Append a refusal as it is recorded today."""
    retry_at = store.clock.now() + timedelta(seconds=37.5)
    said = fact(Rejected, error_class=ErrorClass.TRANSIENT, error_code="slow_down", message="wait", retry_at=retry_at)
    (event,) = EventLog(store).append(said)
    assert isinstance(event, Rejected)
    return event


def test_old_and_new_events_are_merged_to_the_letter(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction moves no value of an old row to another column, and loses none."""
    _refused(store)
    EventLog(store).append(fact(Rounds, study="late", study_version="x", stage="two", n_new=3))
    before = {row["event_id"]: row for path in store.files(EVENTS.name) for row in pq.read_table(path).to_pylist()}
    found = read(store)
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", 1)
    assert EventLog(store).compact(lambda: None) is True
    files = store.files(EVENTS.name)
    assert all(events.is_merged(os.fspath(path)) for path in files)
    assert {row["event_id"]: row for path in files for row in pq.read_table(path).to_pylist()} == before
    after = pq.read_table(max(files, key=lambda path: path.stat().st_mtime_ns))
    assert after.schema.remove_metadata() == EVENTS.schema
    assert after.column("ord").to_pylist() == sorted(after.column("ord").to_pylist())
    assert read(store) == found == EventLog(store).events


def test_plain_engines_see_one_table_and_a_wait_is_no_clock(store: Store) -> None:
    """No column means two things: what today records of a refusal leaves the clock and the provider's status alone."""
    event = _refused(store)
    old_columns = {str(pq.read_schema(path).remove_metadata()) for path in store.files(EVENTS.name)}
    assert old_columns == {str(EVENTS.schema)}
    glob = f"{store.path}/{EVENTS.name}/**/*.parquet"
    found = duckdb.sql(
        "select kind, state, reason, detail, expires_at, monotonic_s, provider_status, n_limit"
        f" from '{glob}' where event_id = '{event.event_id}'"
    ).to_arrow_table()
    assert found.to_pylist() == [
        {
            "kind": "rejected", "state": "transient", "reason": "slow_down", "detail": "wait",
            "expires_at": event.retry_at, "monotonic_s": None, "provider_status": None, "n_limit": None,
        }
    ]  # fmt: skip
    assert event.retry_at == event.occurred_at + timedelta(seconds=37.5)


def test_the_view_and_the_fold_agree_on_old_events(store: Store) -> None:
    tables = [pq.read_table(path).replace_schema_metadata(None) for path in store.files(EVENTS.name)]
    with views_over({"events": pa.concat_tables(tables)}) as connection:
        rows = connection.execute(
            "select attempt_id, attempt_state, batch_id, batch_state, n_sends, reason, message from attempts"
        ).fetchall()
    lake_state = fold(read(store))
    assert {row[0]: row[1:5] for row in rows} == {
        a.attempt_id: (a.phase, a.batch_id, a.state, a.n_sends) for a in lake_state.attempts.values()
    }
    refused = {a.attempt_id: a.rejection for a in lake_state.attempts.values() if a.phase == "rejected" and a.rejection}
    assert {row[0]: row[5:] for row in rows if row[1] == "rejected"} == {
        name: (r.error_code, r.message) for name, r in refused.items()
    }
