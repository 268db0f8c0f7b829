"""The simulator is an OpenAI batch API as far as the official SDK and the documented facts can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Batch, FileObject
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import CHAT, FIRST, RESPONSES, SECOND, api, line, payload, prompt


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0)), tmp_path / "sim") as run:
        yield run


@pytest.fixture
def client(sim: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="sk-test", base_url=sim.base_url, max_retries=0, timeout=20) as sdk:
        yield sdk


def _create(client: openai.OpenAI, data: bytes, endpoint: Any = CHAT) -> Batch:
    file = client.files.create(file=("shard.jsonl", data), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"k": "v"})


def test_the_official_sdk_drives_a_batch_through_its_whole_life(sim: Running, client: openai.OpenAI) -> None:
    data = (
        payload(30)
        + line(
            "bad-1", {"model": "gpt-5.4-mini", "messages": [], "temperature": 0.3, "reasoning_effort": "low"}
        ).encode()
        + b"\n"
    )
    file = client.files.create(file=("shard-1.jsonl", data), purpose="batch")
    assert (file.filename, file.bytes, file.purpose) == ("shard-1.jsonl", len(data), "batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"token": "t-1"}
    )
    assert batch.status == "validating"
    assert batch.request_counts is not None
    assert batch.request_counts.total == 0
    assert batch.expires_at == batch.created_at + 86_400
    seen = []
    for seconds in (0, 11, 40, 40, 10):
        sim.world.advance(seconds)
        batch = client.batches.retrieve(batch.id)
        assert batch.request_counts is not None
        seen.append((batch.status, batch.request_counts.completed > 0))
    states = [("validating", False), ("in_progress", False), ("in_progress", True), ("finalizing", True)]
    assert seen == [*states, ("completed", True)]
    assert batch.metadata == {"token": "t-1"}
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    rows = [json.loads(row) for row in client.files.content(batch.output_file_id).read().splitlines()]
    assert sorted(row["custom_id"] for row in rows) == [f"attempt-{i:04d}" for i in range(30)]
    answers = [ChatCompletion.model_validate(row["response"]["body"]) for row in rows]
    assert batch.usage is not None
    usages = [answer.usage for answer in answers if answer.usage is not None]
    assert batch.usage.input_tokens == sum(usage.prompt_tokens for usage in usages)
    assert batch.usage.output_tokens == sum(usage.completion_tokens for usage in usages)
    (error,) = [json.loads(row) for row in client.files.content(batch.error_file_id).read().splitlines()]
    assert (error["custom_id"], error["error"], error["response"]["status_code"]) == ("bad-1", None, 400)
    assert error["response"]["body"]["error"]["code"] == "unsupported_value"
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (31, 30, 1)


def test_responses_bodies_validate_and_carry_reasoning_summaries(sim: Running, client: openai.OpenAI) -> None:
    body = {
        "model": "gpt-5.4",
        "temperature": 0.5,
        "input": prompt("[[quality=1]] a", "[[quality=0]] b"),
        "store": False,
    }
    thinking = {**body, "temperature": 1, "reasoning": {"effort": "high", "summary": "auto"}}
    short = {**thinking, "max_output_tokens": 16}
    lines = [line(f"r-{i}", body, RESPONSES) for i, body in enumerate((body, thinking, short))]
    batch = _create(client, "\n".join(lines).encode(), RESPONSES)
    sim.world.advance(200)
    batch = client.batches.retrieve(batch.id)
    assert batch.output_file_id is not None
    rows = [json.loads(row) for row in client.files.content(batch.output_file_id).read().splitlines()]
    said = {row["custom_id"]: Response.model_validate(row["response"]["body"]) for row in rows}
    assert FIRST in said["r-0"].output_text
    reasoning = said["r-1"].output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.summary[0].text
    assert said["r-2"].status == "incomplete"
    assert said["r-2"].incomplete_details is not None
    assert said["r-2"].incomplete_details.reason == "max_output_tokens"
    assert said["r-2"].output_text == ""
    assert [item.type for item in said["r-2"].output] == ["reasoning"]


def test_lists_page_newest_first_and_the_sdk_walks_them_all(sim: Running, client: openai.OpenAI) -> None:
    made = []
    for _ in range(23):
        made.append(_create(client, payload(1)).id)
        sim.world.advance(1)
    assert [batch.id for batch in client.batches.list(limit=10)] == made[::-1]
    page = client.batches.list()
    assert (len(page.data), page.has_more) == (20, True)
    assert page.data[0].metadata == {"k": "v"}
    files = list(client.files.list(purpose="batch", order="asc", limit=7))
    assert len(files) == 23
    assert all(isinstance(file, FileObject) for file in files)
    with pytest.raises(openai.BadRequestError):
        client.batches.list(limit=101)


def test_cancel_stops_a_batch_and_keeps_what_was_finished(sim: Running, client: openai.OpenAI) -> None:
    batch = _create(client, payload(20))
    sim.world.advance(50)
    assert client.batches.cancel(batch.id).status == "cancelling"
    assert client.batches.cancel(batch.id).status == "cancelling"
    sim.world.advance(10)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "cancelled"
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    done = client.files.content(batch.output_file_id).read().splitlines()
    stopped = [json.loads(row) for row in client.files.content(batch.error_file_id).read().splitlines()]
    assert (len(done), len(stopped)) == (10, 10)
    assert {row["error"]["code"] for row in stopped} == {"batch_cancelled"}
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(batch.id)


def test_files_can_be_read_and_deleted(client: openai.OpenAI) -> None:
    file = client.files.create(file=('odd "name" é.jsonl', b"x\r\n--y\n" * 1000), purpose="batch")
    assert client.files.retrieve(file.id).filename == 'odd "name" é.jsonl'
    assert client.files.content(file.id).read() == b"x\r\n--y\n" * 1000
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_unknown_ids_keys_and_paths_get_the_documented_errors(sim: Running, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="No batch found with id 'batch_x'"):
        client.batches.retrieve("batch_x")
    with pytest.raises(openai.NotFoundError, match="No such File object: file-x"):
        client.files.content("file-x")
    with pytest.raises(openai.BadRequestError):
        client.batches.create(input_file_id="f", endpoint="/v1/other", completion_window="24h")  # type: ignore[arg-type]
    with pytest.raises(openai.AuthenticationError):
        client.models.list(extra_headers={"Authorization": "Basic eA=="})
    answer = client.models.with_raw_response.list()
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.headers["openai-organization"] == "org-simulated"
    assert len(list(answer.parse())) > 0


def test_live_calls_answer_like_batch_rows(client: openai.OpenAI) -> None:
    text = prompt("[[quality=0]] a", "[[quality=1]] b")
    chat = client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": text}])
    assert SECOND in (chat.choices[0].message.content or "")
    said = client.responses.create(model="gpt-5.4", input=text)
    assert SECOND in said.output_text


@pytest.mark.parametrize(
    ("lines", "code", "at"),
    [
        ([line("a"), "{not json"], "invalid_json_line", 2),
        ([line("a"), line("b"), line("a")], "duplicate_custom_id", 3),
        ([json.dumps({"method": "POST", "url": CHAT, "body": {}})], "missing_required_parameter", 1),
        ([line("a"), line("b", {"model": "gpt-5.5", "messages": []})], "mismatched_model", 2),
        ([line("a", url=RESPONSES)], "invalid_url", 1),
        ([line("a", {"model": "unknown-9", "messages": []})], "model_not_found", 1),
        ([line("a", {"model": "gpt-5.4", "messages": [], "stream": True})], "streaming_unsupported", 1),
        ([line("a", {"messages": []})], "invalid_request", 1),
        ([], "empty_file", None),
    ],
)
def test_create_takes_garbage_and_the_batch_fails_later(
    tmp_path: Path, lines: list[str], code: str, at: int | None
) -> None:
    with api(tmp_path) as sim:
        answer = sim.post_batch(sim.upload("\n".join(lines).encode()))
        assert (answer.status_code, answer.json()["status"]) == (200, "validating")
        sim.clock.advance(20)
        batch = sim.get(answer.json()["id"])
        assert batch["status"] == "failed"
        assert [(error["code"], error["line"]) for error in batch["errors"]["data"]] == [(code, at)]
        assert batch["output_file_id"] is None
        assert sim.world.ledger.summary()["billed"]["input_tokens"] == 0


def test_a_missing_or_foreign_input_file_fails_the_batch_late(tmp_path: Path) -> None:
    with api(tmp_path, keys={"sk-canary-0123456789": "proj_a", "sk-b": "proj_b"}) as sim:
        file_id = sim.upload(payload(1))
        sim.http.headers["Authorization"] = "Bearer sk-b"
        ids = [sim.post_batch(name).json()["id"] for name in ("file-none", file_id)]
        sim.clock.advance(20)
        for batch_id in ids:
            batch = sim.get(batch_id)
            assert batch["status"] == "failed"
            assert "does not have access" in batch["errors"]["data"][0]["message"]
        sim.http.headers["Authorization"] = "Bearer sk-canary-0123456789"
        assert sim.call("GET", f"/batches/{ids[0]}").status_code == 404
        assert sim.call("GET", "/batches").json()["data"] == []
        sim.http.headers["Authorization"] = "Bearer sk-wrong"
        assert sim.call("GET", "/models").json()["error"]["code"] == "invalid_api_key"


def test_the_enqueued_token_limit_fails_batches_until_the_queue_frees(tmp_path: Path) -> None:
    with api(tmp_path, enqueued_limits={"gpt-5.4*": 1000}) as sim:
        first, second = (sim.create(payload(10)) for _ in range(2))
        sim.clock.advance(20)
        assert sim.get(first)["status"] == "in_progress"
        assert sim.get(second)["errors"]["data"][0]["code"] == "token_limit_exceeded"
        sim.clock.advance(100)
        third = sim.create(payload(10))
        sim.clock.advance(20)
        assert sim.get(third)["status"] == "in_progress"


def test_what_a_client_sees_does_not_depend_on_how_often_it_looks(tmp_path: Path) -> None:
    outputs = []
    for name, looks in (("often", 50), ("once", 1)):
        with api(tmp_path / name, seed=7) as sim:
            batch_id = sim.create(payload(40))
            for _ in range(looks):
                sim.clock.advance(200 / looks)
                sim.call("GET", "/files")
            batch = sim.get(batch_id)
            outputs.append((batch["output_file_id"] is not None, sorted(sim.content(batch["output_file_id"]).split())))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"temperature": 0.7}, "unsupported_value"),
        ({"temperature": 3}, "decimal_above_max_value"),
        ({"max_tokens": 50}, "unsupported_parameter"),
        ({"colour": "red"}, "unknown_parameter"),
        ({"reasoning_effort": "enormous"}, "invalid_value"),
        ({"reasoning_effort": "minimal"}, "unsupported_value"),
        ({"model": "gpt-5", "reasoning_effort": "none"}, "unsupported_value"),
        ({"model": "gpt-4.1", "reasoning_effort": "low"}, "unsupported_parameter"),
        ({"messages": None}, "missing_required_parameter"),
    ],
)
def test_bodies_that_the_model_refuses_become_rows_of_the_error_file(
    tmp_path: Path, more: dict[str, Any], code: str
) -> None:
    with api(tmp_path) as sim:
        body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": "Hi"}], **more}
        batch = sim.finished(line("x-1", body).encode())
        assert (batch["status"], batch["output_file_id"]) == ("completed", None)
        (row,) = sim.rows(batch["error_file_id"])
        assert row["response"]["body"]["error"]["code"] == code


def test_reasoning_eats_a_small_token_limit(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        message = [{"role": "user", "content": prompt("[[quality=1]] a", "[[quality=0]] b")}]
        body = {"model": "gpt-5.4", "messages": message, "reasoning_effort": "high", "max_completion_tokens": 20}
        batch = sim.finished(line("x-1", body).encode())
        (row,) = sim.rows(batch["output_file_id"])
        choice = row["response"]["body"]["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
        assert row["response"]["body"]["usage"]["completion_tokens"] == 20


def test_output_and_inputs_expire_as_files_do(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        batch_id = sim.create(payload(2), output_expires_after={"anchor": "created_at", "seconds": 3600})
        sim.clock.advance(200)
        output = sim.get(batch_id)["output_file_id"]
        assert sim.call("GET", f"/files/{output}").json()["expires_at"] is not None
        sim.clock.advance(3600)
        assert sim.call("GET", f"/files/{output}/content").status_code == 404


def test_a_batch_slower_than_its_window_expires_with_what_it_has(tmp_path: Path) -> None:
    with api(tmp_path, latency_s=(172_800.0, 172_800.0)) as sim:
        batch_id = sim.create(payload(20))
        sim.clock.advance(86_400)
        batch = sim.get(batch_id)
        assert batch["status"] == "expired"
        assert batch["expired_at"] == batch["expires_at"]
        done, left = sim.rows(batch["output_file_id"]), sim.rows(batch["error_file_id"])
        assert len(done) + len(left) == 20
        assert 5 < len(done) < 15
        assert {row["error"]["code"] for row in left} == {"batch_expired"}
        assert batch["request_counts"] == {"total": 20, "completed": len(done), "failed": 0}
