"""The simulator is Mistral's batch API as far as the official SDK and the recorded facts can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mistralai.client import Mistral
from mistralai.client.errors import SDKError
from mistralai.client.models import ChatCompletionResponse

from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import CHAT, SECOND, prompt

MODEL = "mistral-small-2603"


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0)), tmp_path / "sim") as run:
        yield run


@pytest.fixture
def client(sim: Running) -> Iterator[Mistral]:
    with Mistral(api_key="test", server_url=sim.base_url_of("mistral").removesuffix("/v1")) as sdk:
        yield sdk


def line(custom_id: str, **more: Any) -> bytes:
    said = prompt("[[quality=0.9]] a", "[[quality=0.1]] b")
    body = {"messages": [{"role": "user", "content": said}], "max_tokens": 200} | more
    return json.dumps({"custom_id": custom_id, "body": body}).encode() + b"\n"


def upload(client: Mistral, *lines: bytes) -> str:
    file = {"file_name": "shard.jsonl", "content": b"".join(lines)}
    return client.files.upload(file=file, purpose="batch").id  # type: ignore[arg-type]


def test_the_official_sdk_drives_a_job_through_its_whole_life(sim: Running, client: Mistral) -> None:
    """Counts are zero at first; metadata filter the list; a failed row's body is JSON in a text."""
    good = [line(f"a-{i}", **({"reasoning_effort": "low"} if i else {})) for i in range(11)]
    file_id = upload(client, *good, line("a-11", reasoning_effort="much"))
    assert [(found.id, found.filename) for found in client.files.list(purpose="batch").data] == [
        (file_id, "shard.jsonl")
    ]
    made = client.batch.jobs.create(
        input_files=[file_id], endpoint=CHAT, model=MODEL, metadata={"batchpond": "t"}, timeout_hours=24
    )
    assert (made.status, made.total_requests, made.metadata) == ("QUEUED", 0, {"batchpond": "t"})
    sim.world.advance(50)
    assert client.batch.jobs.get(job_id=made.id).status == "RUNNING"
    sim.world.advance(100)
    listed = client.batch.jobs.list(metadata={"batchpond": "t"})
    assert (listed.total, client.batch.jobs.list(metadata={"batchpond": "u"}).total) == (1, 0)
    assert listed.data is not None
    (job,) = listed.data
    assert (job.status, job.succeeded_requests, job.failed_requests, job.total_requests) == ("SUCCESS", 11, 1, 12)
    rows = {
        row["custom_id"]: row["response"]
        for name in (job.output_file, job.error_file)
        for row in map(json.loads, client.files.download(file_id=str(name)).read().splitlines())
    }
    assert len(rows) == 12
    said = [ChatCompletionResponse.model_validate(row["body"]) for row in rows.values() if row["status_code"] == 200]
    assert sum(isinstance(one.choices[0].message.content, list) for one in said if one.choices[0].message) == 10
    assert json.loads(rows["a-11"]["body"])["message"].startswith("reasoning_effort must be one of")


def test_pages_are_numbers_newest_first(sim: Running, client: Mistral) -> None:
    file_id = upload(client, line("a-0"))
    names = []
    for _ in range(3):
        names.append(client.batch.jobs.create(input_files=[file_id], endpoint=CHAT, model=MODEL).id)
        sim.world.advance(1)
    pages = [client.batch.jobs.list(page=number, page_size=2) for number in range(3)]
    assert [[job.id for job in page.data or ()] for page in pages] == [names[:0:-1], names[:1], []]
    assert {page.total for page in pages} == {3}


def test_cancelling_is_asked_for_and_happens(sim: Running, client: Mistral) -> None:
    made = client.batch.jobs.create(input_files=[upload(client, line("a-0"))], endpoint=CHAT, model=MODEL)
    assert client.batch.jobs.cancel(job_id=made.id).status == "CANCELLATION_REQUESTED"
    sim.world.advance(100)
    assert client.batch.jobs.get(job_id=made.id).status == "CANCELLED"


def test_what_is_wrong_is_said_as_the_api_was_seen_to_say_it(sim: Running, client: Mistral) -> None:
    with pytest.raises(SDKError, match="Invalid file format"):
        upload(client, line("a-0"), b"{no json\n")
    with pytest.raises(SDKError, match="UUID"):
        client.batch.jobs.create(input_files=["no-uuid"], endpoint=CHAT, model=MODEL)
    with pytest.raises(SDKError):
        client.batch.jobs.get(job_id="00000000-0000-4000-8000-000000000000")
    answer = httpx.get(f"{sim.base_url_of('mistral')}/batch/jobs")
    assert (answer.status_code, answer.json()) == (401, {"detail": "Invalid API Key"})


def test_live_calls_answer_like_rows(client: Mistral) -> None:
    text = prompt("[[quality=0]] a", "[[quality=1]] b")
    chat = client.chat.complete(model=MODEL, messages=[{"role": "user", "content": text}])
    assert SECOND in str(chat.choices[0].message.content)  # type: ignore[union-attr]
