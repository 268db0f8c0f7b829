"""The core views: what they count, that their grain is unique, and that they agree with the controller."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchpond import lens
from batchpond.attempts import ATTENTION_PHASES, SETTLED_PHASES, Phase, Picture, fold
from batchpond.lake.events import Event, Kind, read
from batchpond.lake.schemas import EVENTS, RAW
from lakes import LakeBuilder

VIEWS = [view for view in lens.views() if view.stage in {"1_core", "3_report"}]
OK: dict[str, Any] = {"outcome": "decided", "verdict": "first", "text": "yes", "cost_usd": 0.01}
BAD: dict[str, Any] = {"status": "errored", "outcome": "error", "error_class": "transient", "error_code": "500"}


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    """An empty lake."""
    return LakeBuilder(tmp_path / "lake")


def _by_request(lake: LakeBuilder, columns: str) -> dict[str, dict[str, Any]]:
    return {row["request_id"]: row for row in lake.query(f"SELECT request_id, {columns} FROM results")}


# --- results -----------------------------------------------------------------------------------


def test_results_has_a_row_per_planned_request_and_says_where_each_stands(lake: LakeBuilder) -> None:
    """planned, outstanding, answered, failed, missing and unknown are told apart, with their outcomes."""
    names = ["never", "waiting", "good", "bad", "gone", "unclear", "refused"]
    lake.plan([{"slot": n, "request_id": name} for n, name in enumerate(names)])
    lake.sent("A1", "S1", ["good", "bad", "gone"])
    lake.lines("A1", [{"request_id": "good"} | OK, {"request_id": "bad"} | BAD])
    lake.ended("A1", "expired")
    lake.sent("A2", "S2", ["waiting"])
    lake.shard("S3", ["unclear"])
    lake.intent("A3", "S3", 1)
    lake.event(Kind.SENT, attempt_id="A3", ordinal=1)
    lake.event(Kind.UNKNOWN, attempt_id="A3", reason="timeout")
    lake.shard("S4", ["refused"])
    lake.intent("A4", "S4", 1)
    lake.event(Kind.SENT, attempt_id="A4", ordinal=1)
    lake.event(Kind.REJECTED, attempt_id="A4", reason="billing")

    rows = _by_request(lake, "request_state, outcome, verdict, attempt_id, custom_id, batch_id, better_item, origin")

    states = {name: (row["request_state"], row["outcome"], row["verdict"]) for name, row in rows.items()}
    assert states == {
        "never": ("planned", None, None),
        "waiting": ("outstanding", None, None),
        "good": ("answered", "decided", "first"),
        "bad": ("failed", "error", None),
        "gone": ("missing", "missing", None),
        "unclear": ("unknown", None, None),
        "refused": ("planned", None, None),
    }
    assert rows["good"]["better_item"] == "a"
    assert (rows["gone"]["attempt_id"], rows["gone"]["custom_id"]) == ("A1", "A1-gone")
    assert rows["never"]["attempt_id"] is None
    assert rows["waiting"]["batch_id"] == "batch-A2"
    assert rows["waiting"]["origin"] == "simulated"


def test_the_first_success_in_sending_order_counts_and_a_later_one_never_replaces_it(lake: LakeBuilder) -> None:
    """Retries fill what failed; where two attempts succeeded, the one sent first stays."""
    lake.plan([{"slot": n, "request_id": name} for n, name in enumerate(["twice", "mended", "hopeless"])])
    lake.sent("A1", "S1", ["twice", "mended", "hopeless"])
    lake.sent("A2", "R1", ["twice", "mended", "hopeless"], shard_kind="retry")
    lake.lines("A2", [{"request_id": name} | OK | {"text": "second"} for name in ("twice", "mended")])
    lake.lines("A1", [{"request_id": "twice"} | OK | {"text": "first"}, {"request_id": "mended"} | BAD])
    lake.ended("A1", "expired")
    lake.ended("A2", "expired")

    rows = _by_request(lake, "text, attempt_id, request_state, error_code")

    assert (rows["twice"]["text"], rows["twice"]["attempt_id"]) == ("first", "A1")
    assert (rows["mended"]["text"], rows["mended"]["error_code"]) == ("second", None)
    assert rows["hopeless"]["request_state"] == "missing"
    attempts = lake.query("SELECT request_id, attempt_id, is_accepted FROM result_attempts ORDER BY ALL")
    assert [tuple(row.values()) for row in attempts] == [
        ("mended", "A1", False), ("mended", "A2", True), ("twice", "A1", True), ("twice", "A2", False),
    ]  # fmt: skip


def test_a_failure_that_is_being_retried_is_outstanding_and_of_two_failures_the_last_shows(lake: LakeBuilder) -> None:
    """outcome is NULL again while a retry is in flight; the last error is kept to read."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1"} | BAD | {"error_code": "old"}])
    lake.ended("A1")
    lake.sent("A2", "R1", ["r1"], shard_kind="retry")
    (row,) = lake.query("SELECT request_state, outcome, attempt_id, error_code FROM results")
    assert tuple(row.values()) == ("outstanding", None, "A2", "old")
    lake.lines("A2", [{"request_id": "r1"} | BAD | {"error_code": "new"}])
    lake.ended("A2")
    (row,) = lake.query("SELECT request_state, outcome, attempt_id, error_code FROM results")
    assert tuple(row.values()) == ("failed", "error", "A2", "new")


def test_a_shard_accepted_twice_shows_each_request_once(lake: LakeBuilder) -> None:
    """An attempt taken for absent whose batch turns up after all does not double a row."""
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}])
    lake.shard("S1", ["r1", "r2"])
    lake.intent("A1", "S1", 2)
    lake.event(Kind.SENT, attempt_id="A1", ordinal=1)
    lake.event(Kind.UNKNOWN, attempt_id="A1")
    lake.event(Kind.ABSENT, attempt_id="A1")
    lake.again("A2", "S1", 2, ordinal=2)
    lake.lines("A2", [{"request_id": "r1"} | OK, {"request_id": "r2"} | OK])
    lake.ended("A2")
    lake.event(Kind.ADOPTED, attempt_id="A1", batch_id="batch-A1", state="completed")
    lake.lines("A1", [{"request_id": "r1"} | OK])
    lake.ended("A1")
    rows = lake.query("SELECT request_id, attempt_id FROM results ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [("r1", "A1"), ("r2", "A2")]


def test_only_the_newest_version_of_a_study_shows_and_answers_are_reused(lake: LakeBuilder) -> None:
    """A changed study is a new version; what both versions ask keeps its answer, by request_id."""
    lake.plan([{"slot": 1, "request_id": "kept"}, {"slot": 2, "request_id": "dropped"}], version="v1")
    lake.sent("A1", "S1", ["kept", "dropped"])
    lake.lines("A1", [{"request_id": "kept"} | OK, {"request_id": "dropped"} | OK])
    lake.ended("A1")
    lake.plan([{"slot": 1, "request_id": "kept"}, {"slot": 2, "request_id": "added"}], version="v2")
    rows = _by_request(lake, "study_version, request_state")
    assert {name: tuple(row.values())[1:] for name, row in rows.items()} == {
        "kept": ("v2", "answered"),
        "added": ("v2", "planned"),
    }


def test_duplicate_conflicting_and_foreign_lines_never_reach_results(lake: LakeBuilder) -> None:
    """Only the matched line counts; the others are beside it in result_attempts, coverage and audit."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.sent("A1", "S1", ["r1"])
    lake.lines(
        "A1",
        [
            {"request_id": "r1"} | OK,
            {"request_id": "r1", "match": "duplicate", "text": "yes"},
            {"request_id": "r1", "match": "conflict", "text": "no"},
            {"custom_id": "stranger", "match": "unmatched"},
            {"match": "blank", "status": "unreadable"},
        ],
    )
    lake.ended("A1", kind=Kind.MISMATCH)
    assert [row["text"] for row in lake.query("SELECT text FROM results")] == ["yes"]
    (cover,) = lake.query("SELECT n_planned, n_answered, n_extra, n_duplicate, n_conflict, is_complete FROM coverage")
    assert tuple(cover.values()) == (1, 1, 0, 1, 1, True)
    (audit,) = lake.query(
        "SELECT n_sent, n_succeeded, n_missing, n_duplicate, n_conflict, n_unmatched, n_blank, n_lines, n_raw_lines,"
        " is_balanced FROM audit"
    )
    assert tuple(audit.values()) == (1, 1, 0, 1, 1, 1, 1, 5, 5, False)
    assert len(lake.query("SELECT 1 FROM result_attempts")) == 3


def test_cells_with_one_body_share_the_answer_and_the_cost_counts_once(lake: LakeBuilder) -> None:
    """The same request in two cells is two results with one response; `costs` adds it once."""
    cells = [{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r1", "template_id": "t2", "cell_id": "c2"}]
    lake.plan(cells)
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1"} | OK | {"input_tokens": 10, "output_tokens": 5}])
    lake.ended("A1")
    assert [row["cost_usd"] for row in lake.query("SELECT cost_usd FROM results")] == [0.01, 0.01]
    (cost,) = lake.query(
        "SELECT cost_usd, n_responses, input_tokens, cost_expected_usd, cost_max_usd, origin FROM costs"
    )
    assert tuple(cost.values()) == (0.01, 1, 10, 0.5, 1.0, "simulated")


def test_an_unknown_price_is_null_and_counted_never_zero(lake: LakeBuilder) -> None:
    """No price, no number."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.sent("A1", "S1", ["r1"], cost_expected_usd=None, cost_max_usd=None)
    lake.lines("A1", [{"request_id": "r1"} | OK | {"cost_usd": None}])
    (cost,) = lake.query("SELECT cost_usd, cost_expected_usd, n_cost_unknown FROM costs")
    assert tuple(cost.values()) == (None, None, 1)
    (batch,) = lake.query("SELECT cost_usd, n_cost_unknown FROM batches")
    assert tuple(batch.values()) == (None, 1)


def test_an_answer_is_read_by_the_plan_s_own_parser(lake: LakeBuilder) -> None:
    """Another study's parser over the same line does not double or change a row."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.plan([{"slot": 1, "request_id": "r1", "parser_id": "other"}], study="second")
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1"} | OK])
    lake.ended("A1")
    rows = lake.query("SELECT study, verdict, outcome, request_state FROM results ORDER BY study")
    assert [tuple(row.values()) for row in rows] == [
        ("demo", "first", "decided", "answered"), ("second", None, None, "answered"),
    ]  # fmt: skip


# --- the base of the metrics, and the compatible columns ------------------------------------------


PAIR_COLUMNS = (
    "study template_id rubric_id provider request_model thinking unit_id pair_id item_first item_second item_lo item_hi"
    " is_lo_first direction repeat_no verdict outcome confidence input_tokens output_tokens cost_usd origin"
)


def test_pair_judgments_has_exactly_the_columns_that_metrics_read() -> None:
    """The contract with sql/2_metrics."""
    with lens.empty() as connection:
        assert [c[0] for c in connection.execute("DESCRIBE pair_judgments").fetchall()] == PAIR_COLUMNS.split()


def test_pair_judgments_joins_planned_and_imported_judgments(lake: LakeBuilder) -> None:
    """Imported ones are marked; items are ordered by their bytes; an unanswered request has no outcome."""
    lake.plan(
        [
            {"slot": 1, "request_id": "r1", "item_first": "b", "item_second": "a", "direction": "reverse"},
            {"slot": 2, "request_id": "r2"},
            {"slot": 3, "request_id": "r3", "task": "rating"},
        ]
    )
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1"} | OK])
    lake.ended("A1")
    lake.imported(
        [
            {"item_first": "a", "item_second": "B", "verdict": "second", "outcome": "decided", "confidence": 0.5},
            {"item_first": "x", "item_second": "y", "verdict": None, "outcome": "refused"},
        ]
    )
    rows = lake.query(
        "SELECT origin, item_lo, item_hi, is_lo_first, direction, verdict, outcome, confidence FROM pair_judgments"
        " ORDER BY origin NULLS FIRST, item_lo"
    )
    assert [tuple(row.values()) for row in rows] == [
        (None, "a", "b", True, "forward", None, None, None),
        ("imported", "B", "a", False, None, "second", "decided", 0.5),
        ("imported", "x", "y", True, None, None, "refused", None),
        ("simulated", "a", "b", False, "reverse", "first", "decided", None),
    ]


def test_results_pairwisellm_speaks_the_columns_its_users_know(lake: LakeBuilder) -> None:
    """Names, keys, winners and token sums as pairwiseLLM has them; ids may hold any character."""
    pair = {"item_first": "s_2", "item_second": "s_10", "pair_id": "p"}
    swapped = {"item_first": "s_10", "item_second": "s_2", "pair_id": "p", "direction": "reverse"}
    lake.plan([{"slot": 1, "request_id": "r1"} | pair, {"slot": 2, "request_id": "r2"} | swapped])
    lake.sent("A1", "S1", ["r1", "r2"])
    usage = {"input_tokens": 7, "output_tokens": 3, "reasoning_tokens": 2, "cached_tokens": 1, "thoughts": "hm"}
    lake.lines("A1", [{"request_id": "r1", "status_code": 200} | OK | usage, {"request_id": "r2"} | BAD])
    lake.ended("A1")
    known = (
        'custom_id, "ID1", "ID2", model, status_code, thoughts, content, better_sample, better_id, prompt_tokens,'
        ' completion_tokens, total_tokens, prompt_cached_tokens, reasoning_tokens, "A_id", "B_id", unordered_key,'
        " ordered_key, pair_uid, winner_pos, backend"
    )
    good, bad = lake.query(f"SELECT {known} FROM results_pairwisellm ORDER BY pair_uid")
    assert tuple(good.values()) == (
        "A1-r1", "s_2", "s_10", "m1", 200, "hm", "yes", "SAMPLE_1", "s_2", 7, 3, 10, 1, 2, "s_2", "s_10", "s_10:s_2",
        "s_2:s_10", "s_10:s_2#1", 1, "openai",
    )  # fmt: skip
    assert (bad["better_id"], bad["winner_pos"], bad["pair_uid"]) == (None, None, "s_10:s_2#2")


# --- attempts: one fold, twice ---------------------------------------------------------------------

ATTEMPT_KINDS = [
    Kind.UPLOADED, Kind.SENT, Kind.SENT, Kind.REJECTED, Kind.UNKNOWN, Kind.LISTED, Kind.ABSENT, Kind.CREATED,
    Kind.ADOPTED, Kind.STATUS, Kind.STATUS, Kind.STATUS, Kind.NOT_FOUND, Kind.MISSING_REMOTE, Kind.DOWNLOADED,
    Kind.VERIFIED, Kind.MISMATCH, Kind.LOST, Kind.CANCEL_ASKED, Kind.RESOLVED, Kind.RESOLVED,
]  # fmt: skip
NO_STEP = {Kind.UNKNOWN, Kind.LISTED, Kind.STATUS, Kind.NOT_FOUND, Kind.DOWNLOADED, Kind.CANCEL_ASKED, Kind.RESOLVED}
STATES = ["queued", "running", "cancelling", "completed", "failed", "expired", "cancelled", None]


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> LakeBuilder:
    """Attempts with random histories that the controller could write, each event in the lake twice."""
    lake = LakeBuilder(tmp_path_factory.mktemp("wild") / "lake")
    random.seed(7)
    attempts = [f"a{number:04d}" for number in range(400)]
    intent = {"shard_kind": "first", "study": "demo", "provider": "openai", "request_model": "m1", "n_requests": 10}
    lake.log.append(
        *(Event(kind=Kind.INTENT, attempt_id=a, shard_id=f"s{n % 300}", **intent) for n, a in enumerate(attempts))
    )
    picture = fold(lake.log.events)
    for round_no in range(14):
        lake.clock.advance(60)
        active = attempts[: len(attempts) - 25 * round_no]
        lake.log.append(*(_possible_event(lake, picture, attempt, round_no) for attempt in active))
    tables = [pq.read_table(path, partitioning=None) for path in lake.store.files("events")]
    lake.store.publish(EVENTS, "c-merged", pa.concat_tables(tables).replace_schema_metadata(None))
    return lake


def _possible_event(lake: LakeBuilder, picture: Picture, attempt: str, round_no: int) -> Event:
    """Return a random event that moves the attempt, or one that may come at any time and moves nothing."""
    while True:
        event = _random_event(lake, attempt, round_no)
        before = picture.attempts[attempt]
        if event.kind is Kind.STATUS and before.batch_id is None:
            continue
        picture.add(event)
        if picture.attempts[attempt] != before or event.kind in NO_STEP:
            return event


def _random_event(lake: LakeBuilder, attempt: str, round_no: int) -> Event:
    kind = random.choice(ATTEMPT_KINDS)
    columns: dict[str, Any] = {"ordinal": round_no}  # what tells repeated facts apart
    if kind is Kind.UPLOADED:
        columns["file_id"] = f"f{random.randrange(3)}"
    elif kind is Kind.RESOLVED:
        columns["reason"] = random.choice(["found", "refetch", "absent", "adopt"])
    elif kind in {Kind.CREATED, Kind.ADOPTED, Kind.STATUS}:
        columns["batch_id"] = f"b-{attempt}-{random.randrange(3) if kind is not Kind.STATUS else 0}"
        columns["state"] = random.choice(STATES)
        columns["provider_status"] = random.choice(["validating", "in_progress", "done"])
        columns["n_completed"] = random.choice([None, 3, 5])
        columns["expires_at"] = random.choice([None, lake.clock.now()])
        columns["reason"] = random.choice([None, "token_limit_exceeded"])
    return Event(kind=kind, attempt_id=attempt, **columns)


def test_the_view_and_the_controller_fold_events_to_the_same_state(wild: LakeBuilder) -> None:
    """attempts.sql and attempts.py agree on every history, with every event twice in the lake."""
    picture = fold(read(wild.store))
    rows = wild.query(
        "SELECT attempt_id, attempt_state, batch_id, batch_state, provider_status, n_completed, expires_at,"
        " input_file_id, n_sends, n_rejections, is_settled, needs_attention, is_terminal FROM attempts ORDER BY 1"
    )
    seen = Counter(row["attempt_state"] for row in rows)
    assert set(seen) == set(Phase), f"the histories do not reach every state: {seen}"
    for row in rows:
        a = picture.attempts[row["attempt_id"]]
        status = a.status
        assert tuple(row.values())[1:12] == (
            a.phase, a.batch_id, a.state, status.provider_status if status else None,
            status.n_completed if status else None, a.expires_at, a.file_id, a.n_sends, a.n_rejections,
            a.phase in SETTLED_PHASES, a.phase in ATTENTION_PHASES,
        ), row["attempt_id"]  # fmt: skip
        assert row["is_terminal"] == (a.state is not None and a.state.is_terminal)


def test_a_voided_shard_gives_its_requests_back(lake: LakeBuilder) -> None:
    """A shard of an earlier plan that never became a batch does not hold, or double, its requests."""
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}])
    lake.shard("S1", ["r1", "r2"])
    lake.intent("A1", "S1", 2)
    lake.event(Kind.VOIDED, study="demo", shard_id="S1")
    rows = _by_request(lake, "request_state, attempt_id")
    assert {tuple(row.values())[1:] for row in rows.values()} == {("planned", None)}
    lake.sent("A2", "S2", ["r2", "r1"])
    rows = _by_request(lake, "request_state, attempt_id")
    assert {tuple(row.values())[1:] for row in rows.values()} == {("outstanding", "A2")}
    assert len(rows) == 2


def test_studies_current_is_the_version_planned_last(lake: LakeBuilder) -> None:
    """Planning an older version again makes it current again."""
    for version in ("v1", "v2", "v1"):
        lake.event(Kind.PLANNED, study="demo", study_version=version)
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
    lake.ended("A1", "failed", reason="token_limit_exceeded")
    rows = lake.query("SELECT level, outcome, error_code, n, example_message FROM report_errors ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [
        ("batch", "failed", "token_limit_exceeded", 1, "token_limit_exceeded"),
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


# --- every view: binds, grain, portability --------------------------------------------------------


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A random lake with two studies, shared requests, retries, errors, duplicates and open batches."""
    lake = LakeBuilder(tmp_path_factory.mktemp("busy") / "lake")
    random.seed(11)
    for study in ("demo", "other"):
        _busy_plan(lake, study)
    requests = [f"r{n:03d}" for n in range(120)]
    for number in range(6):
        part = requests[number * 20 : number * 20 + 20]
        lake.sent(f"A{number}", f"S{number}", part)
        _busy_lines(lake, f"A{number}", part)
        if number < 5:
            lake.ended(f"A{number}", random.choice(["completed", "expired"]))
    for number in range(6, 9):
        part = random.sample(requests, 15)
        lake.sent(f"A{number}", f"R{number}", part, shard_kind="retry")
        _busy_lines(lake, f"A{number}", part)
        if number < 8:
            lake.ended(f"A{number}")
    lake.sent("A9", "S9", [f"r{n}" for n in range(120, 130)])
    items = [f"s{n}" for n in range(6)]
    lake.imported([{"item_first": f, "item_second": s, "verdict": "first", "outcome": "decided"}
                   for f in items for s in items if f != s])  # fmt: skip
    with lake.connect() as connection:
        yield connection


def _busy_plan(lake: LakeBuilder, study: str) -> None:
    items = [f"s{n}" for n in range(6)]
    pairs = [(a, b) for a in items for b in items if a != b]
    rows = []
    for template in ("t1", "t2"):
        for model in ("m1", "m2"):
            for first, second in pairs:
                request = f"r{random.randrange(140):03d}"
                rows.append(
                    {"slot": len(rows), "request_id": request, "template_id": template, "request_model": model}
                    | {"item_first": first, "item_second": second, "pair_id": "|".join(sorted((first, second)))}
                    | {"direction": "forward" if first < second else "reverse"}
                )
    lake.plan(rows, study)


def _busy_lines(lake: LakeBuilder, attempt: str, requests: list[str]) -> None:
    lines: list[dict[str, Any]] = []
    for request in requests:
        chance = random.random()
        if chance < 0.6:
            lines.append({"request_id": request} | OK | {"verdict": random.choice(["first", "second"])})
        elif chance < 0.8:
            lines.append({"request_id": request} | BAD)
        if chance < 0.1:
            lines.append({"request_id": request, "match": random.choice(["duplicate", "conflict"])})
    lake.lines(attempt, lines)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_the_grain_in_a_view_s_header_names_each_row_once(busy: duckdb.DuckDBPyConnection, view: lens.ViewInfo) -> None:
    """No two rows of a random lake share the grain, and the view is not empty there."""
    grain = ", ".join(view.grain_columns)
    ((n_rows, n_grains),) = busy.execute(
        f"SELECT (SELECT count(*) FROM {view.name}), (SELECT count(*) FROM (SELECT DISTINCT {grain} FROM {view.name}))"
    ).fetchall()
    assert n_rows == n_grains
    assert n_rows > 0


def test_results_and_the_plan_have_the_same_rows(busy: duckdb.DuckDBPyConnection) -> None:
    """No join loses or doubles a planned request, and pair_judgments adds only the imported ones."""
    ((plan, results, pairs, imported),) = busy.execute(
        "SELECT (SELECT count(*) FROM plan_current), (SELECT count(*) FROM results),"
        " (SELECT count(*) FROM pair_judgments), (SELECT count(*) FROM imported_judgments)"
    ).fetchall()
    assert (results, pairs) == (plan, plan + imported)
    busy_states = busy.execute("SELECT DISTINCT request_state FROM results ORDER BY 1").fetchall()
    assert [state for (state,) in busy_states] == ["answered", "failed", "missing", "outstanding", "planned"]


def test_coverage_adds_up_in_every_cell(busy: duckdb.DuckDBPyConnection) -> None:
    """planned = answered + failed + missing + outstanding + unknown + unsent."""
    wrong = busy.execute(
        "SELECT * FROM coverage"
        " WHERE n_planned <> n_answered + n_failed + n_missing + n_outstanding + n_unknown + n_unsent"
    ).fetchall()
    assert wrong == []


def test_coverage_counts_further_answers_as_result_attempts_lists_them(busy: duckdb.DuckDBPyConnection) -> None:
    """n_extra, n_duplicate and n_conflict of each cell are the rows of result_attempts that do not count."""
    cell = "study, template_id, rubric_id, provider, request_model, thinking"
    counted = busy.execute(
        f"SELECT {cell}, n_extra, n_duplicate, n_conflict FROM coverage"
        " WHERE n_extra + n_duplicate + n_conflict > 0 ORDER BY ALL"
    ).fetchall()
    listed = busy.execute(
        f"SELECT {cell}, count(*) FILTER (match = 'matched'), count(*) FILTER (match = 'duplicate'),"
        f" count(*) FILTER (match = 'conflict') FROM result_attempts WHERE NOT is_accepted GROUP BY {cell} ORDER BY ALL"
    ).fetchall()
    assert counted == listed
    assert len(counted) > 4
