"""The simulator is an Anthropic message batch API as far as the official SDK and the documented facts can tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types.messages import MessageBatch

from batchpond_sim.anthropic.answers import FAMILIES
from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.anthropic import BATCHES, HAIKU, NEW, OLD, Messages, params, requests
from tests.rigs.simulator import FIRST, api


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0)), tmp_path / "sim") as run:
        yield run


@pytest.fixture
def client(sim: Running) -> Iterator[anthropic.Anthropic]:
    base_url = sim.base_url_of("anthropic")
    with anthropic.Anthropic(api_key="sk-ant-test", base_url=base_url, max_retries=0, timeout=20) as sdk:
        yield sdk


@pytest.fixture
def messages(tmp_path: Path) -> Iterator[Messages]:
    with api(tmp_path) as sim:
        yield Messages(sim)


# -- the whole life ----------------------------------------------------------------------------


def test_the_official_sdk_drives_a_batch_through_its_whole_life(sim: Running, client: anthropic.Anthropic) -> None:
    bad: Any = [{"custom_id": "shard1-bad", "params": params(temperature=1.0)}]
    batch = client.messages.batches.create(requests=requests(30) + bad)
    assert batch.processing_status == "in_progress"
    assert batch.request_counts.to_dict() == {
        "processing": 31,
        "succeeded": 0,
        "errored": 0,
        "canceled": 0,
        "expired": 0,
    }
    assert batch.expires_at - batch.created_at == timedelta(hours=24)
    assert (batch.results_url, batch.ended_at, batch.archived_at) == (None, None, None)
    seen = []
    for seconds in (0, 11, 40, 40, 10):
        sim.world.advance(seconds)
        batch = client.messages.batches.retrieve(batch.id)
        seen.append((batch.processing_status, batch.request_counts.succeeded))
    assert [status for status, _ in seen] == ["in_progress"] * 4 + ["ended"]
    n_succeeded = [n for _, n in seen]
    assert n_succeeded == sorted(n_succeeded)
    assert 0 < n_succeeded[2] < 30
    assert batch.request_counts.to_dict() == {
        "processing": 0,
        "succeeded": 30,
        "errored": 1,
        "canceled": 0,
        "expired": 0,
    }
    rows = list(client.messages.batches.results(batch.id))
    wanted = [f"shard1-{i:04d}" for i in range(30)] + ["shard1-bad"]
    assert sorted(row.custom_id for row in rows) == wanted
    assert [row.custom_id for row in rows] != wanted
    tokens = 0
    for row in rows:
        if row.result.type == "succeeded":
            (block,) = row.result.message.content
            assert block.type == "text"
            assert FIRST in block.text
            assert row.result.message.model == "claude-haiku-4-5-20251001"
            assert row.result.message.usage.service_tier == "batch"
            tokens += row.result.message.usage.input_tokens
        else:
            assert row.result.type == "errored"
            assert row.result.error.error.message == "temperature: Extra inputs are not permitted"
    (bill,) = sim.world.ledger.bills.values()
    assert (bill.provider, bill.n_requests, bill.input_tokens) == ("anthropic", 30, tokens)


def test_the_ledger_tells_whose_shard_every_batch_is(sim: Running, client: anthropic.Anthropic) -> None:
    mine = client.messages.batches.create(requests=requests(3))
    other: Any = [{"custom_id": f"someone-{i}", "params": params()} for i in range(3)]
    foreign = client.messages.batches.create(requests=other)
    shards = {entry.batch_id: entry.first_custom_id for entry in sim.world.ledger.batches.values()}
    assert shards == {mine.id: "shard1-0000", foreign.id: "someone-0"}
    assert {batch.id for batch in client.messages.batches.list()} == set(shards)
    assert mine.request_counts == foreign.request_counts


def test_lists_page_newest_first_in_both_directions(sim: Running, client: anthropic.Anthropic) -> None:
    made = []
    for _ in range(23):
        made.append(client.messages.batches.create(requests=requests(1)).id)
        sim.world.advance(1)
    newest_first = made[::-1]
    assert [batch.id for batch in client.messages.batches.list(limit=10)] == newest_first
    page = client.messages.batches.list()
    assert [batch.id for batch in page.data] == newest_first[:20]
    assert (page.has_more, page.first_id, page.last_id) == (True, newest_first[0], newest_first[19])
    assert page.data[0] == client.messages.batches.retrieve(made[-1])
    newer = client.messages.batches.list(before_id=newest_first[15], limit=5)
    assert [batch.id for batch in newer.data] == newest_first[10:15]
    assert newer.has_more
    assert client.messages.batches.list(before_id=newest_first[0]).data == []
    assert len(client.messages.batches.list(limit=1000).data) == 23
    for limit, says in ((0, "greater than or equal to 1"), (1001, "less than or equal to 1000")):
        with pytest.raises(anthropic.BadRequestError, match=f"limit: Input should be {says}"):
            client.messages.batches.list(limit=limit)
    with pytest.raises(anthropic.BadRequestError, match="after_id"):
        client.messages.batches.list(after_id="msgbatch_none")


def test_cancel_keeps_what_was_finished_and_gives_every_request_a_row(
    sim: Running, client: anthropic.Anthropic
) -> None:
    batch = client.messages.batches.create(requests=requests(20))
    sim.world.advance(50)
    for _ in range(2):
        batch = client.messages.batches.cancel(batch.id)
        assert batch.processing_status == "canceling"
    assert batch.cancel_initiated_at is not None
    with pytest.raises(anthropic.BadRequestError, match="In progress batches cannot be deleted"):
        client.messages.batches.delete(batch.id)
    sim.world.advance(1)
    batch = client.messages.batches.retrieve(batch.id)
    counts = batch.request_counts
    assert batch.processing_status == "ended"
    assert (counts.succeeded + counts.canceled, counts.processing) == (20, 0)
    assert 5 < counts.succeeded < 15
    types = [row.result.type for row in client.messages.batches.results(batch.id)]
    assert (types.count("succeeded"), types.count("canceled")) == (counts.succeeded, counts.canceled)
    assert sim.world.ledger.bills[batch.id].n_requests == counts.succeeded
    with pytest.raises(anthropic.BadRequestError, match="has ended"):
        client.messages.batches.cancel(batch.id)


def test_a_batch_canceled_before_it_began_has_a_row_for_every_request(messages: Messages) -> None:
    batch_id = messages.create(requests(5))
    messages.call("POST", f"/{batch_id}/cancel")
    messages.sim.clock.advance(1)
    assert messages.get(batch_id)["request_counts"]["canceled"] == 5
    assert [row["result"] for row in messages.rows(batch_id)] == [{"type": "canceled"}] * 5


def test_only_ended_batches_are_deleted_and_then_they_are_gone(sim: Running, client: anthropic.Anthropic) -> None:
    batch = client.messages.batches.create(requests=requests(2))
    sim.world.advance(100)
    deleted = client.messages.batches.delete(batch.id)
    assert deleted.to_dict() == {"id": batch.id, "type": "message_batch_deleted"}
    with pytest.raises(anthropic.NotFoundError, match=f"Message Batch {batch.id} not found."):
        client.messages.batches.retrieve(batch.id)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.delete(batch.id)
    assert client.messages.batches.list().data == []
    assert list(sim.world.folder("anthropic", "blobs").iterdir()) == []
    assert batch.id in sim.world.ledger.batches


def test_results_are_404_until_the_end_and_after_29_days(messages: Messages) -> None:
    batch_id = messages.create(requests(2))
    early = messages.call("GET", f"/{batch_id}/results")
    assert early.status_code == 404
    assert early.json()["error"]["message"] == f"Message Batch {batch_id} has no available results."
    messages.sim.clock.advance(100)
    batch = messages.get(batch_id)
    assert batch["results_url"].endswith(f"{BATCHES}/{batch_id}/results")
    results = messages.sim.http.get(batch["results_url"])
    assert results.headers["content-type"] == "application/x-jsonl"
    messages.sim.clock.advance(29 * 86_400)
    batch = messages.get(batch_id)
    assert batch["archived_at"] is not None
    assert batch["results_url"] is None
    assert messages.call("GET", f"/{batch_id}/results").status_code == 404
    assert [shown["id"] for shown in messages.call("GET").json()["data"]] == [batch_id]


def test_a_batch_slower_than_its_window_expires_with_what_it_has(tmp_path: Path) -> None:
    with api(tmp_path, latency_s=(172_800.0, 172_800.0)) as sim:
        messages = Messages(sim)
        batch_id = messages.create(requests(20))
        sim.clock.advance(86_399)
        almost = messages.get(batch_id)
        sim.clock.advance(1)
        batch = messages.get(batch_id)
        assert (almost["processing_status"], batch["processing_status"]) == ("in_progress", "ended")
        assert batch["ended_at"] == batch["expires_at"]
        counts = batch["request_counts"]
        assert almost["request_counts"]["succeeded"] <= counts["succeeded"]
        assert 5 < counts["succeeded"] < 15
        types = [row["result"]["type"] for row in messages.rows(batch_id)]
        assert types.count("expired") == counts["expired"] == 20 - counts["succeeded"]
        assert sim.world.ledger.bills[batch_id].n_requests == counts["succeeded"]


def test_live_calls_answer_like_batch_rows(sim: Running, client: anthropic.Anthropic) -> None:
    said = client.messages.create(**params())
    assert said.content[0].type == "text"
    assert FIRST in said.content[0].text
    assert said.usage.service_tier == "standard"
    assert said == client.messages.create(**params())
    with pytest.raises(anthropic.BadRequestError, match="temperature: Extra inputs are not permitted"):
        client.messages.create(**params(extra_body={"temperature": 1}))
    with pytest.raises(anthropic.NotFoundError, match="model: claude-nope"):
        client.messages.create(**params(model="claude-nope"))
    assert client.messages.create(**params(max_tokens=0)).stop_reason == "max_tokens"
    assert sim.world.ledger.live.n_billed == 3


def test_models_are_listed_and_found(client: anthropic.Anthropic) -> None:
    assert [model.id for model in client.models.list(limit=7)] == [family.name for family in FAMILIES]
    assert client.models.retrieve("claude-opus-4-5").display_name == "Claude Opus 4.5"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("claude-1")


# -- the door ----------------------------------------------------------------------------------


def test_a_version_must_be_given_and_known(messages: Messages) -> None:
    http = messages.sim.http
    del http.headers["anthropic-version"]
    for version, says in ((None, "anthropic-version: header is required"), ("2024-01-01", "is not a valid version")):
        if version is not None:
            http.headers["anthropic-version"] = version
        answer = messages.call("GET")
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert says in answer.json()["error"]["message"]
    for version in (OLD, NEW):
        http.headers["anthropic-version"] = version
        assert messages.call("GET").status_code == 200


def test_keys_open_workspaces_that_see_nothing_of_each_other(tmp_path: Path) -> None:
    with api(tmp_path, keys={"sk-canary-0123456789": "wrkspc_a", "sk-b": "wrkspc_b"}) as sim:
        messages = Messages(sim)
        batch_id = messages.create(requests(1))
        answer = messages.call("GET", f"/{batch_id}")
        assert answer.headers["anthropic-workspace-id"] == "wrkspc_a"
        assert answer.headers["anthropic-organization-id"]
        assert answer.headers["request-id"].startswith("req_")
        assert answer.headers["retry-after"] == "10"
        both = messages.call("GET", f"/{batch_id}", headers={"x-api-key": "sk-b"})
        assert (both.status_code, both.headers["anthropic-workspace-id"]) == (404, "wrkspc_b")
        assert both.json()["request_id"] == both.headers["request-id"]
        assert messages.call("GET", headers={"x-api-key": "sk-b"}).json()["data"] == []
        wrong = messages.call("GET", headers={"x-api-key": "sk-wrong"})
        assert (wrong.status_code, wrong.json()["error"]["message"]) == (401, "API key is invalid.")
        del sim.http.headers["authorization"]
        assert messages.call("GET").json()["error"]["type"] == "authentication_error"
        assert messages.call("GET", headers={"x-api-key": "sk-canary-0123456789"}).json()["data"]
        sim.clock.advance(100)
        ended = messages.call("GET", f"/{batch_id}", headers={"x-api-key": "sk-canary-0123456789"})
        assert "retry-after" not in ended.headers
        assert b"sk-" not in (tmp_path / "ledger.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"requests": []}, "requests: List should have at least 1 item after validation, not 0"),
        ({}, "requests: Field required"),
        ({"requests": {}}, "requests: Input should be a valid list"),
        ({"requests": [{"params": {}}]}, "requests.0.custom_id: Field required"),
        ({"requests": [*requests(1), {"custom_id": "x"}]}, "requests.1.params: Field required"),
        (
            {"requests": [{"custom_id": "dup", "params": {}}, {"custom_id": "dup", "params": {}}]},
            "requests: custom_id's must be unique within a batch. Duplicate custom_id found: dup",
        ),
        (
            {"requests": [{"custom_id": "a" * 65, "params": {}}]},
            "requests.0.custom_id: String should have at most 64 characters",
        ),
        *(
            (
                {"requests": [{"custom_id": name, "params": {}}]},
                "requests.0.custom_id: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
            )
            for name in ("", "a b", "a.b", "ab\n", "é")
        ),
        ({"requests": requests(1), "metadata": {}}, "metadata: Extra inputs are not permitted"),
    ],
)
def test_ids_and_shape_are_checked_at_once_and_nothing_is_created(
    messages: Messages, body: dict[str, Any], says: str
) -> None:
    answer = messages.call("POST", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == {"type": "invalid_request_error", "message": says}
    assert not messages.sim.world.ledger.batches


def test_what_is_no_json_is_refused_at_once(messages: Messages) -> None:
    for content in (b"", b"{", b'{"requests":[{}', b"[]", b'{"requests":[]} x', b'{"requests":[{"custom_id":"a"},]}'):
        answer = messages.call("POST", content=content)
        assert answer.status_code == 400, content
        assert "requests" in answer.json()["error"]["message"] or "not valid JSON" in answer.json()["error"]["message"]
    assert not messages.sim.world.ledger.batches


# -- parameters are looked at when they are run --------------------------------------------------

_USER = {"role": "user", "content": "Hi"}
_THINK = {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("version", "more", "says"),
    [
        (NEW, {"temperature": 1.0}, "temperature: Extra inputs are not permitted"),
        (NEW, {"top_k": 5, "model": "claude-sonnet-4-6"}, "top_k: Extra inputs are not permitted"),
        (NEW, {"colour": "red"}, "colour: Extra inputs are not permitted"),
        (OLD, {"temperature": 0.5, "model": "claude-opus-4-7"}, "`temperature` is deprecated for this model."),
        (OLD, {"temperature": 1.5}, "temperature: range: 0..1"),
        (
            OLD,
            {"temperature": 0.5, "thinking": _THINK, "max_tokens": 2000},
            "`temperature` may only be set to 1 when thinking is enabled.",
        ),
        (NEW, {"max_tokens": None}, "max_tokens: Field required"),
        (NEW, {"max_tokens": 0}, "max_tokens: must be greater than or equal to 1"),
        (
            NEW,
            {"max_tokens": 9_999_999},
            f"max_tokens: 9999999 > 64000, which is the maximum allowed number of output tokens for {HAIKU}",
        ),
        (NEW, {"messages": None}, "messages: Field required"),
        (NEW, {"messages": []}, "messages: at least one message is required"),
        (NEW, {"stream": True}, '"stream=True" is not supported in the Message Batches API'),
        (NEW, {"speed": "fast"}, "speed: Extra inputs are not permitted"),
        (
            NEW,
            {"model": "claude-opus-4-7", "thinking": _THINK, "max_tokens": 2000},
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.',
        ),
        (NEW, {"thinking": {"type": "adaptive"}}, "adaptive thinking is not supported on this model"),
        (NEW, {"thinking": _THINK, "max_tokens": 1024}, "`max_tokens` must be greater than `thinking.budget_tokens`."),
        (
            NEW,
            {"thinking": {"type": "enabled", "budget_tokens": 5}},
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (NEW, {"output_config": {"effort": "low"}}, "This model does not support the effort parameter."),
        (
            NEW,
            {"model": "claude-sonnet-5", "messages": [_USER, {"role": "assistant", "content": "It"}]},
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ),
        (
            NEW,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "citations": [{}]}]}]},
            "messages.0.content.0.citations: Extra inputs are not permitted",
        ),
    ],
)
def test_what_a_model_refuses_becomes_an_errored_row(
    messages: Messages, version: str, more: dict[str, Any], says: str
) -> None:
    result = messages.only(version, **more)
    details = {"error_visibility": "user_facing"}
    error = {"type": "invalid_request_error", "message": says, "details": details}
    assert result == {"type": "errored", "error": {"type": "error", "error": error, "request_id": None}}
    assert not any(bill.n_requests for bill in messages.sim.world.ledger.bills.values())


def test_the_old_version_still_samples_on_old_models(messages: Messages) -> None:
    for more in ({"temperature": 0.3}, {"temperature": 1, "thinking": _THINK, "max_tokens": 2000}, {"top_k": 5}):
        assert messages.only(OLD, **more)["type"] == "succeeded"


def test_models_may_differ_and_an_all_refused_batch_has_ended_like_any_other(messages: Messages) -> None:
    wanted = requests(2)
    wanted[1]["params"]["model"] = "claude-sonnet-5"
    assert messages.ended(wanted)["request_counts"]["succeeded"] == 2
    batch = messages.ended(requests(3, model="claude-nope"))
    assert (batch["processing_status"], batch["request_counts"]["errored"]) == ("ended", 3)
    errors = [row["result"]["error"]["error"] for row in messages.rows(batch["id"])]
    assert {(error["type"], error["message"]) for error in errors} == {("not_found_error", "model: claude-nope")}


# -- answers -----------------------------------------------------------------------------------


def _kinds(result: dict[str, Any]) -> list[str]:
    return [block["type"] for block in result["message"]["content"]]


def test_families_think_as_documented(messages: Messages) -> None:
    """Older models think when given a budget, 4.6 to 4.8 when asked, newer ones unasked, some always."""
    assert _kinds(messages.only()) == ["text"]
    old = messages.only(thinking={"type": "enabled", "budget_tokens": 1500}, max_tokens=4000)
    assert _kinds(old)[-2:] == ["thinking", "text"]
    assert old["message"]["content"][-2]["thinking"]
    assert _kinds(messages.only(model="claude-opus-4-8")) == ["text"]
    asked = messages.only(model="claude-opus-4-8", thinking={"type": "adaptive"}, max_tokens=9000)
    assert asked["message"]["content"][0]["thinking"] == ""
    assert asked["message"]["content"][0]["signature"]
    shown = messages.only(
        model="claude-opus-5", thinking={"type": "adaptive", "display": "summarized"}, max_tokens=9000
    )
    assert shown["message"]["content"][0]["thinking"]
    usage = shown["message"]["usage"]
    assert 0 < usage["output_tokens_details"]["thinking_tokens"] < usage["output_tokens"]
    low = messages.only(model="claude-opus-5", output_config={"effort": "low"}, max_tokens=9000)
    assert low["message"]["usage"]["output_tokens"] < usage["output_tokens"]
    off = {"type": "disabled"}
    assert _kinds(messages.only(model="claude-sonnet-5", thinking=off)) == ["text"]
    assert _kinds(messages.only(model="claude-sonnet-5-5", thinking={"type": "between_tools"})) == ["text"]
    assert messages.only(model="claude-opus-5", thinking=off, output_config={"effort": "max"})["type"] == "errored"
    for model in ("claude-mythos-5-2", "claude-fable-5-2"):
        assert messages.only(model=model, thinking=off)["type"] == "errored"
        assert _kinds(messages.only(model=model, max_tokens=9000)) == ["thinking", "text"]


def test_thinking_eats_a_small_limit_on_models_that_think_unasked(messages: Messages) -> None:
    message = messages.only(model="claude-sonnet-5", max_tokens=5)["message"]
    assert [block["type"] for block in message["content"]] == ["thinking"]
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 5)
    assert message["usage"]["output_tokens_details"]["thinking_tokens"] == 5


def test_some_thoughts_come_redacted(messages: Messages) -> None:
    batch = messages.ended(requests(100, thinking=_THINK, max_tokens=4000))
    kinds = [tuple(_kinds(row["result"])) for row in messages.rows(batch["id"])]
    assert set(kinds) == {("thinking", "text"), ("redacted_thinking", "thinking", "text")}


def test_marked_prefixes_are_written_once_and_read_afterwards(messages: Messages) -> None:
    system = [{"type": "text", "text": "rubric " * 1000, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    batch = messages.ended(requests(5, system=system))
    usages = [row["result"]["message"]["usage"] for row in messages.rows(batch["id"])]
    written = [usage["cache_creation_input_tokens"] for usage in usages]
    read = [usage["cache_read_input_tokens"] for usage in usages]
    assert sorted(written) == [0, 0, 0, 0, 1750]
    assert sorted(read) == [0, 1750, 1750, 1750, 1750]
    assert sum(usage["cache_creation"]["ephemeral_1h_input_tokens"] for usage in usages) == 1750
    total = sum(usage["input_tokens"] for usage in usages) + 5 * 1750
    assert messages.sim.world.ledger.bills[batch["id"]].input_tokens == total
    short = [{"type": "text", "text": "rubric", "cache_control": {"type": "ephemeral"}}]
    assert messages.only(system=short)["message"]["usage"]["cache_creation_input_tokens"] == 0


@pytest.mark.parametrize("rate", ["refusal_rate", "filtered_rate", "empty_rate", "error_rate"])
def test_judges_refuse_fall_silent_and_fail(tmp_path: Path, rate: str) -> None:
    with api(tmp_path, judges=(f"*:{rate}=1",)) as sim:
        result = Messages(sim).only()
        if rate == "error_rate":
            assert result["error"]["error"]["type"] in ("overloaded_error", "api_error")
            assert result["error"]["request_id"].startswith("workerreq_")
            return
        message = result["message"]
        assert message["content"] == []
        if rate == "empty_rate":
            assert (message["stop_reason"], message["stop_details"]) == ("end_turn", None)
        else:
            assert message["stop_reason"] == "refusal"
            assert message["stop_details"]["type"] == "refusal"
            assert message["stop_details"]["category"] == "general_harms" or rate == "filtered_rate"
            assert message["usage"]["output_tokens"] > 0


def test_stop_sequences_stop(messages: Messages) -> None:
    message = messages.only(stop_sequences=["</BETTER_SAMPLE>"])["message"]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "</BETTER_SAMPLE>")
    assert message["content"][0]["text"].endswith("SAMPLE_1")


def test_the_same_request_gets_the_same_answer_in_any_batch(messages: Messages) -> None:
    wanted = requests(3)
    again = [{**request, "custom_id": request["custom_id"].replace("shard1", "shard2")} for request in wanted]
    first, second = (
        {row["custom_id"][-4:]: row["result"]["message"]["id"] for row in messages.rows(messages.ended(batch)["id"])}
        for batch in (wanted, again)
    )
    assert first == second


# -- a restart ---------------------------------------------------------------------------------


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    rows = []
    for name, restarts in (("through", False), ("restarted", True)):
        with api(tmp_path / name, seed=3) as sim:
            messages = Messages(sim)
            batch_id = messages.create(requests(20))
            for seconds in (30, 50, 30):
                if restarts:
                    sim.transport.restart()
                sim.clock.advance(seconds)
                messages.get(batch_id)
            bill = sim.world.ledger.bills[batch_id]
            rows.append((messages.get(batch_id), messages.rows(batch_id), bill))
    assert rows[0] == rows[1]


def test_a_ledger_that_missed_a_batch_is_made_good(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        messages = Messages(sim)
        batch_id = messages.ended(requests(2))["id"]
        bill = sim.world.ledger.bills[batch_id]
    ledger = tmp_path / "ledger.jsonl"
    kept = [row for row in ledger.read_bytes().splitlines(True) if b'"created"' not in row and b'"billed"' not in row]
    ledger.write_bytes(b"".join(kept))
    with api(tmp_path) as sim:
        assert sim.world.ledger.batches[batch_id].first_custom_id == "shard1-0000"
        assert sim.world.ledger.bills[batch_id] == bill


def test_times_are_rfc_3339_with_microseconds(messages: Messages) -> None:
    batch = messages.ended(requests(1))
    assert MessageBatch.model_validate(batch).created_at == datetime(2026, 11, 21, tzinfo=UTC)
    assert batch["created_at"] == "2026-11-21T00:00:00.000000+00:00"
