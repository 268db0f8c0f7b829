"""The views of requests and answers: where each request stands, what answered it, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchpond.lake.records import Absent, Adopted, Mismatch, Rejected, Sent, Unknown, Voided
from tests.rigs.lakes import BAD, OK, LakeBuilder
from tests.rigs.sql import views_over


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
    lake.event(Sent, attempt_id="A3", ordinal=1)
    lake.event(Unknown, attempt_id="A3", reason="timeout")
    lake.shard("S4", ["refused"])
    lake.intent("A4", "S4", 1)
    lake.event(Sent, attempt_id="A4", ordinal=1)
    lake.event(Rejected, attempt_id="A4", error_class="billing", error_code="billing")

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


def test_what_waits_to_be_asked_again_is_planned_until_it_is_sent_or_given_up(lake: LakeBuilder) -> None:
    """A failure whose retry has not gone is none; given up, it is one again; another study's stays."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.plan([{"slot": 1, "request_id": "r1"}], study="other", version="v9")
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1"} | BAD])
    lake.ended("A1")

    def states() -> list[tuple[Any, ...]]:
        rows = lake.query("SELECT study, request_state, outcome FROM results ORDER BY study")
        return [tuple(row.values()) for row in rows]

    failed = [("demo", "failed", "error"), ("other", "failed", "error")]
    assert states() == failed
    lake.retry("R1", ["r1"])
    assert states() == [("demo", "planned", None), ("other", "failed", "error")]
    lake.intent("A2", "R1", 1, shard_kind="retry")
    assert states()[0] == ("demo", "planned", None)
    lake.event(Voided, study="demo", shard_id="R1")
    assert states() == failed
    lake.retry("R2", ["r1"])
    lake.again("A3", "R2", 1, shard_kind="retry")
    assert [state for _, state, _ in states()] == ["outstanding", "outstanding"]


def test_a_shard_accepted_twice_shows_each_request_once(lake: LakeBuilder) -> None:
    """An attempt taken for absent whose batch turns up after all does not double a row."""
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}])
    lake.shard("S1", ["r1", "r2"])
    lake.intent("A1", "S1", 2)
    lake.event(Sent, attempt_id="A1", ordinal=1)
    lake.event(Unknown, attempt_id="A1")
    lake.event(Absent, attempt_id="A1")
    lake.again("A2", "S1", 2, ordinal=2)
    lake.lines("A2", [{"request_id": "r1"} | OK, {"request_id": "r2"} | OK])
    lake.ended("A2")
    lake.event(Adopted, attempt_id="A1", batch_id="batch-A1", state="completed")
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
    lake.ended("A1", record=Mismatch)
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


def test_what_an_earlier_version_asked_stays_paid(lake: LakeBuilder) -> None:
    """A model that the study no longer has keeps its row of costs, and of status; what was expected covers the same."""
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}])
    lake.sent("A1", "S1", ["r1", "r2"])
    lake.lines("A1", [{"request_id": "r1"} | OK, {"request_id": "r2"} | OK])
    lake.ended("A1")
    lake.plan([{"slot": 1, "request_id": "r2"}, {"slot": 2, "request_id": "r3", "request_model": "new"}], version="v2")
    (cost,) = lake.query("SELECT n_sent, n_responses, n_earlier, n_elsewhere, cost_usd, cost_expected_usd FROM costs")
    assert tuple(cost.values()) == (2, 2, 1, 0, 0.02, 0.5)
    lake.plan([{"slot": 1, "request_id": "r3", "request_model": "new"}], version="v3")
    rows = lake.query("SELECT request_model, n_planned, cost_usd FROM report_status ORDER BY n_planned")
    assert [tuple(row.values()) for row in rows] == [("m1", 0, 0.02), ("new", 1, None)]


def test_what_an_earlier_version_cost_is_money_or_not_as_then(lake: LakeBuilder) -> None:
    """A study that was tried on a simulator and then asked, or asked and then tried, says what was spent."""
    for n, (study, origins) in enumerate({"a": ("simulated", None), "b": ("batch", "simulated")}.items()):
        for version, origin in zip(("v1", "v2"), origins, strict=True):
            name = f"{study}{version}"
            lake.plan([{"slot": 1, "request_id": name}], study=study, version=name)
            if origin:
                lake.sent(f"A{name}", f"S{name}", [name], study=study, origin=origin)
                lake.lines(f"A{name}", [{"request_id": name} | OK | {"origin": origin, "cost_usd": 1.0 + n}])
                lake.ended(f"A{name}")
    rows = lake.query("SELECT study, cost_usd, origin FROM report_status ORDER BY study")
    assert [tuple(row.values()) for row in rows] == [("a", 1.0, "simulated"), ("b", 2.0, "mixed")]


def test_a_batch_that_waits_to_be_sent_again_is_expected_to_cost_nothing(lake: LakeBuilder) -> None:
    """One that failed whole and unbilled for want of room counts once it was sent again, and then once."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.sent("A1", "S1", ["r1"])
    lake.ended("A1", "failed", error_code="token_limit_exceeded")
    assert lake.query("SELECT 1 FROM costs") == []
    lake.again("A2", "S1", 1, ordinal=2)
    (cost,) = lake.query("SELECT n_batches, n_sent, cost_expected_usd FROM costs")
    assert tuple(cost.values()) == (1, 1, 0.5)


def test_answers_that_another_study_asked_for_are_counted_as_such(lake: LakeBuilder) -> None:
    """They are a part of what a study's answers cost, but not of what its own batches were expected to."""
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}], study="second")
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1"} | OK])
    lake.ended("A1")
    lake.sent("A2", "S2", ["r2"], study="second")
    lake.lines("A2", [{"request_id": "r2"} | OK])
    lake.ended("A2")
    rows = lake.query("SELECT study, n_sent, n_responses, n_elsewhere, cost_usd, cost_elsewhere_usd FROM costs")
    assert {row["study"]: tuple(row.values())[1:] for row in rows} == {
        "demo": (1, 1, 0, 0.01, None),
        "second": (1, 2, 1, 0.02, 0.01),
    }


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


def test_a_voided_shard_gives_its_requests_back(lake: LakeBuilder) -> None:
    """A shard of an earlier plan that never became a batch does not hold, or double, its requests."""
    lake.plan([{"slot": 1, "request_id": "r1"}, {"slot": 2, "request_id": "r2"}])
    lake.shard("S1", ["r1", "r2"])
    lake.intent("A1", "S1", 2)
    lake.event(Voided, study="demo", shard_id="S1")
    rows = _by_request(lake, "request_state, attempt_id")
    assert {tuple(row.values())[1:] for row in rows.values()} == {("planned", None)}
    lake.sent("A2", "S2", ["r2", "r1"])
    rows = _by_request(lake, "request_state, attempt_id")
    assert {tuple(row.values())[1:] for row in rows.values()} == {("outstanding", "A2")}
    assert len(rows) == 2


# --- the base of the metrics, and the compatible columns ------------------------------------------


PAIR_COLUMNS = (
    "study template_id rubric_id provider request_model thinking unit_id pair_id item_first item_second"
    " candidate_first candidate_second item_lo item_hi is_lo_first direction repeat_no purpose verdict outcome"
    " confidence input_tokens output_tokens cost_usd origin list_kind tie_kind has_tie_kinds"
)


def test_pair_judgments_has_exactly_the_columns_that_metrics_read() -> None:
    """The contract with sql/2_metrics."""
    with views_over({}) as connection:
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
