"""The simulator is Groq's batch API as far as the official SDK can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import groq
import pytest
from groq.types.chat import ChatCompletion

from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import CHAT, SECOND, prompt

MODEL = "openai/gpt-oss-20b"


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0)), tmp_path / "sim") as run:
        yield run


@pytest.fixture
def client(sim: Running) -> Iterator[groq.Groq]:
    url = sim.base_url_of("groq").removesuffix("/openai/v1")
    with groq.Groq(api_key="gsk_test", base_url=url, max_retries=0, timeout=20) as sdk:
        yield sdk


def payload(n: int) -> bytes:
    said = prompt("[[quality=0.9]] a", "[[quality=0.1]] b")
    rows = [
        {"custom_id": f"a-{i}", "method": "POST", "url": CHAT,
         "body": {"model": MODEL, "messages": [{"role": "user", "content": said}]}}
        for i in range(n)
    ]  # fmt: skip
    rows[-1]["body"] |= {"reasoning_effort": "none"}  # type: ignore[operator]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_the_official_sdk_drives_a_batch_through_its_whole_life(sim: Running, client: groq.Groq) -> None:
    """Metadata comes back in the list, which has no pages; a refused row stands in the error file."""
    file = client.files.create(file=("shard.jsonl", payload(12)), purpose="batch")
    assert [(found.id, found.filename) for found in client.files.list().data] == [(file.id, "shard.jsonl")]
    assert file.id is not None
    made = client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="7d", metadata={"batchpond": "t"}
    )
    assert (made.status, made.completion_window) == ("validating", "7d")
    sim.world.advance(150)
    (listed,) = client.batches.list().data
    assert (listed.id, listed.status, listed.metadata) == (made.id, "completed", {"batchpond": "t"})
    assert listed.request_counts is not None
    assert (listed.request_counts.completed, listed.request_counts.failed) == (11, 1)
    assert listed.output_file_id is not None
    assert listed.error_file_id is not None
    rows = [json.loads(row) for row in client.files.content(listed.output_file_id).read().splitlines()]
    said = [ChatCompletion.model_validate(row["response"]["body"]) for row in rows]
    assert all(one.choices[0].message.reasoning and one.usage and one.usage.queue_time for one in said)
    (refused,) = [json.loads(row) for row in client.files.content(listed.error_file_id).read().splitlines()]
    assert (refused["custom_id"], refused["response"]["status_code"]) == ("a-11", 400)


def test_live_calls_answer_like_batch_rows(client: groq.Groq) -> None:
    text = prompt("[[quality=0]] a", "[[quality=1]] b")
    chat = client.chat.completions.create(model="qwen/qwen3-32b", messages=[{"role": "user", "content": text}])
    assert SECOND in (chat.choices[0].message.content or "")
    with pytest.raises(groq.BadRequestError, match="does not support response format"):
        client.chat.completions.create(
            model="qwen/qwen3-32b", messages=[{"role": "user", "content": text}],
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        )  # fmt: skip


def test_unknown_ids_and_keys_get_errors_of_openais_form(sim: Running, client: groq.Groq) -> None:
    with pytest.raises(groq.NotFoundError, match="No batch found"):
        client.batches.retrieve("batch_x")
    with pytest.raises(groq.NotFoundError, match="No such File object"):
        client.files.content("file-x")
    with pytest.raises(groq.AuthenticationError):
        client.with_options(default_headers={"Authorization": "Basic eA=="}).batches.list()
