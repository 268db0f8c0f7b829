"""The views of batches: one fold with the controller, an audit that adds up, and the reports upon them."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchpond.lake.attempts import SETTLED_PHASES, LakeState, Phase, fold
from batchpond.lake.events import event_id, read
from batchpond.lake.records import (
    Absent,
    Adopted,
    CancelAsked,
    Created,
    Downloaded,
    Event,
    Intent,
    Listed,
    Lost,
    Mismatch,
    MissingRemote,
    NotFound,
    Planned,
    Rejected,
    Resolved,
    Sent,
    Status,
    Unknown,
    Uploaded,
    Verified,
)
from batchpond.lake.schemas import DOUBTS, EVENTS, RAW
from batchpond.providers import registry
from batchpond.run.due import is_requeued
from tests.rigs.events import fact
from tests.rigs.lakes import BAD, OK, LakeBuilder


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    """An empty lake."""
    return LakeBuilder(tmp_path / "lake")


# --- attempts: one fold, twice ---------------------------------------------------------------------

ATTEMPT_KINDS = [
    Uploaded, Sent, Sent, Rejected, Unknown, Listed, Absent, Created,
    Adopted, Status, Status, Status, NotFound, MissingRemote, Downloaded,
    Verified, Mismatch, Lost, CancelAsked, Resolved, Resolved,
]  # fmt: skip
NO_STEP = {Unknown, Listed, Status, NotFound, Downloaded, CancelAsked, Resolved}
STATES = ["queued", "running", "cancelling", "completed", "failed", "expired", "cancelled"]


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> LakeBuilder:
    """Attempts with random histories that the controller could write, each event in the lake twice."""
    lake = LakeBuilder(tmp_path_factory.mktemp("wild") / "lake")
    random.seed(7)
    attempts = [f"a{number:04d}" for number in range(400)]
    intent = {"shard_kind": "first", "study": "demo", "provider": "openai", "request_model": "m1", "n_requests": 10}
    kinds = ("first", "duplicate")
    lake.log.append(
        *(fact(Intent, attempt_id=a, shard_id=f"s{n % 300}", **intent | {"shard_kind": kinds[n % 7 == 0]})
          for n, a in enumerate(attempts))
    )  # fmt: skip
    lake_state = fold(lake.log.events)
    for round_no in range(14):
        lake.clock.advance(60)
        active = attempts[: len(attempts) - 25 * round_no]
        lake.log.append(*(_possible_event(lake, lake_state, attempt, round_no) for attempt in active))
    tables = [pq.read_table(path, partitioning=None) for path in lake.store.files("events")]
    lake.store.publish(EVENTS, "c-merged", pa.concat_tables(tables).replace_schema_metadata(None))
    return lake


def _possible_event(lake: LakeBuilder, lake_state: LakeState, attempt: str, round_no: int) -> Event:
    """Return a random event that moves the attempt, or one that may come at any time and moves nothing."""
    while True:
        event = _random_event(lake, attempt, round_no)
        before = lake_state.attempts[attempt]
        if not event.is_occurrence and event_id(event) in lake.log._known:
            continue  # no news
        if isinstance(event, Status) and before.batch_id is None:
            continue
        lake_state.add(event)
        if lake_state.attempts[attempt] != before or type(event) in NO_STEP:
            return event


def _random_event(lake: LakeBuilder, attempt: str, round_no: int) -> Event:
    kind = random.choice(ATTEMPT_KINDS)
    columns: dict[str, Any] = {}
    if kind is Uploaded:
        columns |= {"file_id": f"f{random.randrange(3)}", "size_bytes": round_no}
    elif kind in {Sent, Rejected, Unknown}:
        columns["ordinal"] = round_no
    elif kind is Downloaded:
        columns["n_lines"] = round_no
    elif kind is Resolved:
        columns["resolution"] = random.choice(["found", "refetch", "absent", "adopt", "take_second", "known"])
    elif kind in {Created, Adopted, Status}:
        columns["batch_id"] = f"b-{attempt}-{random.randrange(3) if kind is not Status else 0}"
        columns["state"] = random.choice(STATES)
        columns["provider_status"] = random.choice(["validating", "in_progress", "done"])
        columns["n_completed"] = random.choice([None, 3, 5])
        columns["expires_at"] = random.choice([None, lake.clock.now()])
        columns["n_requests"] = round_no
        columns["error_code"] = random.choice([None, "token_limit_exceeded"])
    return fact(kind, attempt_id=attempt, **columns)


def test_the_view_and_the_controller_fold_events_to_the_same_state(wild: LakeBuilder) -> None:
    """attempts.sql and attempts.py agree on every history, with every event twice in the lake."""
    lake_state = fold(read(wild.store))
    rows = wild.query(
        "SELECT attempt_id, attempt_state, batch_id, batch_state, provider_status, n_completed, expires_at,"
        " input_file_id, n_sends, n_rejections, is_settled, needs_attention, is_terminal, is_requeued"
        " FROM attempts ORDER BY 1"
    )
    seen = Counter(row["attempt_state"] for row in rows)
    assert set(seen) == set(Phase), f"the histories do not reach every state: {seen}"
    for row in rows:
        a = lake_state.attempts[row["attempt_id"]]
        status = a.status
        assert tuple(row.values())[1:12] == (
            a.phase, a.batch_id, a.state, status.provider_status if status else None,
            status.n_completed if status else None, a.expires_at, a.file_id, a.n_sends, a.n_rejections,
            a.phase in SETTLED_PHASES, a.needs_attention,
        ), row["attempt_id"]  # fmt: skip
        assert row["is_terminal"] == (a.state is not None and a.state.is_terminal)
        assert row["is_requeued"] == is_requeued(a)


def test_the_view_knows_every_code_that_sends_a_batch_again() -> None:
    """attempts.sql has the providers' `requeue_codes`, and no other."""
    sql = (Path(__file__).parents[3] / "sql/1_core/attempts.sql").read_text("utf-8")
    listed = set(re.findall(r"'(\w+ \w+)'", sql.partition("folded.provider || ' ' ||")[2]))
    known = {f"{found.name} {code}" for found in registry.descriptors() for code in found.requeue_codes}
    assert listed == known


def test_studies_current_is_the_version_planned_last(lake: LakeBuilder) -> None:
    """Planning an older version again makes it current again."""
    for version in ("v1", "v2", "v1"):
        lake.event(Planned, study="demo", study_version=version)
    assert [row["study_version"] for row in lake.query("SELECT study_version FROM studies_current")] == ["v1"]


# --- audit -----------------------------------------------------------------------------------------


def test_audit_adds_up_and_says_so_only_when_settled(lake: LakeBuilder) -> None:
    """sent = succeeded + errored + expired + cancelled + missing; before the end the rest is outstanding."""
    statuses = {"a": "succeeded", "b": "errored", "c": "expired", "d": "cancelled"}
    lake.sent("A1", "S1", [*statuses, "e"])
    lake.lines("A1", [{"request_id": r, "status": s} for r, s in statuses.items()])
    columns = "n_sent, n_succeeded, n_errored, n_expired, n_cancelled, n_missing, n_outstanding, is_balanced"
    (row,) = lake.query(f"SELECT {columns} FROM audit")
    assert tuple(row.values()) == (5, 1, 1, 1, 1, 0, 1, None)
    lake.ended("A1", "expired", n_completed=2, n_failed=3)
    (row,) = lake.query(f"SELECT {columns}, is_provider_equal FROM audit")
    assert tuple(row.values()) == (5, 1, 1, 1, 1, 1, 0, True, False)


@pytest.mark.parametrize(
    "lines",
    [
        [{"request_id": "r1"}, {"request_id": "r1"}],
        [{"request_id": "r1"}, {"request_id": "stranger"}],
        [{"request_id": "r1"}, {"match": "unmatched"}],
    ],
    ids=["a request matched twice", "a request that was not sent", "a line of nobody"],
)
def test_audit_does_not_balance_when_sides_disagree(lake: LakeBuilder, lines: list[dict[str, Any]]) -> None:
    """The two sides of the equation are counted apart, so a wrong match shows."""
    lake.sent("A1", "S1", ["r1", "r2"])
    lake.lines("A1", lines)
    lake.ended("A1")
    assert [row["is_balanced"] for row in lake.query("SELECT is_balanced FROM audit")] == [False]


def test_audit_reads_the_fullest_download_of_a_file_and_counts_the_others_apart(lake: LakeBuilder) -> None:
    """A first download that was cut stays in raw; it neither unbalances the audit nor disappears."""
    lake.sent("A1", "S1", ["r1", "r2"])
    lake.lines("A1", [{"request_id": "r1"} | OK, {"request_id": "r2"} | OK])
    cut = {"provider": "openai", "batch_id": "batch-A1", "attempt_id": "A1", "file_id": "out-A1"}
    lake.rows(RAW, [cut | {"file_sha256": "1" * 64, "line_number": 1, "line": "{}"}])
    lake.ended("A1")
    (row,) = lake.query("SELECT n_lines, n_raw_lines, n_raw_lines_superseded, is_balanced FROM audit")
    assert tuple(row.values()) == (2, 2, 1, True)


def test_audit_counts_the_calls_that_may_have_been_paid_unseen(lake: LakeBuilder) -> None:
    """Each row of `doubts` counts with its attempt; whether the attempt is balanced does not hang on it."""
    for number in (1, 2):
        lake.sent(f"A{number}", f"S{number}", [f"r{number}"])
        lake.lines(f"A{number}", [{"request_id": f"r{number}"} | OK])
        lake.ended(f"A{number}")
    doubt = {"provider": "openai", "attempt_id": "A1", "custom_id": "c", "request_id": "r1", "reason": "cut"}
    lake.rows(DOUBTS, [doubt, doubt, doubt])
    found = lake.query("SELECT n_in_doubt, n_succeeded, is_balanced FROM audit ORDER BY attempt_id")
    assert [tuple(row.values()) for row in found] == [(3, 1, True), (0, 1, True)]


def test_audit_of_a_batch_that_was_never_sent_is_empty(lake: LakeBuilder) -> None:
    """An intent is not a batch: nothing sent, nothing missing."""
    lake.shard("S1", ["r1"])
    lake.intent("A1", "S1", 1)
    (row,) = lake.query("SELECT n_sent, n_missing, n_outstanding, is_balanced FROM audit")
    assert tuple(row.values()) == (0, 0, 0, None)


# --- reports ---------------------------------------------------------------------------------------


def test_report_status_counts_every_state_once(lake: LakeBuilder) -> None:
    """The counts add up to the plan, beside cost and the oldest open batch."""
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(4)])
    lake.sent("A1", "S1", ["r0"])
    lake.lines("A1", [{"request_id": "r0"} | OK])
    lake.ended("A1")
    lake.sent("A2", "S2", ["r1", "r2"])
    (row,) = lake.query("SELECT * FROM report_status")
    states = ("n_planned", "n_unsent", "n_outstanding", "n_answered", "n_failed", "n_missing", "n_unknown")
    assert tuple(row[name] for name in states) == (4, 1, 2, 1, 0, 0, 0)
    assert (row["n_batches_open"], row["n_batches_settled"], row["cost_usd"]) == (1, 1, 0.01)
    assert row["oldest_open_at"].year == 2026
    assert row["oldest_open_age_s"] > 0


def test_report_errors_names_what_goes_wrong_with_an_example(lake: LakeBuilder) -> None:
    """Requests by class and code, batches that failed as a whole beside them."""
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(3)])
    lake.sent("A1", "S1", ["r0", "r1", "r2"])
    unparsed = {"outcome": "unparsed", "text": "well ..."}
    lake.lines("A1", [{"request_id": "r0"} | BAD | {"error_message": "boom"}, {"request_id": "r1"} | unparsed])
    lake.ended("A1", "failed", error_code="invalid_request")
    rows = lake.query("SELECT level, outcome, error_code, n, example_message FROM report_errors ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [
        ("batch", "failed", "invalid_request", 1, "invalid_request"),
        ("request", "error", "500", 1, "boom"),
        ("request", "missing", None, 1, None),
        ("request", "unparsed", None, 1, "well ..."),
    ]


def test_report_balance_tells_how_positions_fell(lake: LakeBuilder) -> None:
    """Pairs in both orders, and the share with the lower item first."""
    orders = [("a", "b", "forward"), ("b", "a", "reverse"), ("c", "a", "forward")]
    lake.plan(
        [
            {"slot": n, "request_id": f"r{n}", "item_first": first, "item_second": second, "direction": direction}
            for n, (first, second, direction) in enumerate(orders)
        ]
    )
    (row,) = lake.query("SELECT * FROM report_balance")
    names = ("n_items", "n_pairs", "n_pairs_both_orders", "n_planned", "n_forward", "n_reverse", "n_lo_first")
    assert tuple(row[name] for name in names) == (3, 2, 1, 3, 2, 1, 1)
    assert (row["item_share_first_min"], row["item_share_first_max"]) == (pytest.approx(1 / 3), 1.0)
