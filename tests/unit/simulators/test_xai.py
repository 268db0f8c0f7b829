"""The simulator is xAI's batch API as far as xai-proto and the recorded facts can tell.

xAI's own SDK speaks gRPC; what OpenAI's speaks of it is tried with that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import CHAT, SECOND, prompt

MODEL = "grok-4.3"


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0), cancel_s=20.0), tmp_path / "sim") as run:
        yield run


@pytest.fixture
def http(sim: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sim.base_url_of("xai"), headers={"authorization": "Bearer k"}) as client:
        yield client


@pytest.fixture
def sdk(sim: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="k", base_url=sim.base_url_of("xai"), max_retries=0) as client:
        yield client


def line(custom_id: str, **more: Any) -> bytes:
    said = prompt("[[quality=0.9]] a", "[[quality=0.1]] b")
    body = {"model": MODEL, "messages": [{"role": "user", "content": said}]} | more
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}).encode() + b"\n"


def made_of(http: httpx.Client, sdk: openai.OpenAI, *lines: bytes) -> dict[str, Any]:
    file = sdk.files.create(file=("shard.jsonl", b"".join(lines)), purpose="batch")
    found: dict[str, Any] = http.post("/batches", json={"name": "t", "input_file_id": file.id}).json()
    return found


def seen(http: httpx.Client, batch: dict[str, Any]) -> dict[str, int]:
    state: dict[str, int] = http.get(f"/batches/{batch['batch_id']}").json()["state"]
    return {name.removeprefix("num_"): n for name, n in state.items() if n}


def test_a_batch_is_told_by_counters_and_results_can_be_read_on_the_way(
    sim: Running, http: httpx.Client, sdk: openai.OpenAI
) -> None:
    lines = [line(f"a-{i:02d}", reasoning_effort="low") for i in range(9)]
    batch = made_of(http, sdk, *lines, line("a-09", reasoning_effort="much"))
    assert (seen(http, batch), "status" in batch, len(batch["create_time"])) == ({}, False, 10)
    sim.world.advance(50)
    assert seen(http, batch) == {"requests": 10, "pending": 6, "success": 4}
    path = f"/batches/{batch['batch_id']}/results"
    assert len(http.get(path).json()["results"]) == 5
    sim.world.advance(60)
    assert seen(http, batch) == {"requests": 10, "success": 9, "error": 1}
    rows, token = [], ""
    while token is not None:
        page = http.get(path, params={"limit": 4} | ({"pagination_token": token} if token else {})).json()
        rows, token = rows + page["results"], page["pagination_token"]
    assert [row["batch_request_id"] for row in rows] == [f"a-{i:02d}" for i in range(10)]
    usage = rows[0]["batch_result"]["response"]["chat_get_completion"]["usage"]
    spent = usage["completion_tokens"] + usage["completion_tokens_details"]["reasoning_tokens"]
    assert usage["prompt_tokens"] + spent == usage["total_tokens"]
    assert rows[-1]["batch_result"] == {"error": "Argument not supported on this model: reasoning_effort = much"}


def test_counters_of_a_cancelled_batch_turn_back(sim: Running, http: httpx.Client, sdk: openai.OpenAI) -> None:
    """What was counted as cancelled was answered in the end."""
    sim.world.add_fault("batches.cancel@1:cancel_race=full")
    batch = made_of(http, sdk, *(line(f"a-{i}") for i in range(5)))
    sim.world.advance(50)
    http.post(f"/batches/{batch['batch_id']}:cancel")
    assert seen(http, batch) == {"requests": 5, "success": 2, "cancelled": 3}
    sim.world.advance(21)
    assert seen(http, batch) == {"requests": 5, "success": 5}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line("a"), b"{no json\n"], "line 2: invalid JSON"),
        ([line("a"), line("a")], "line 2: duplicate custom_id 'a'"),
        ([line("a", model="grok-4.5")], "Model grok-4.5 is not supported for batch processing."),
    ],
)
def test_a_bad_file_is_found_when_it_is_read(
    sim: Running, http: httpx.Client, sdk: openai.OpenAI, lines: list[bytes], message: str
) -> None:
    batch = made_of(http, sdk, *lines)
    sim.world.advance(150)
    found = http.get(f"/batches/{batch['batch_id']}").json()
    assert message in found["cancel_by_xai_message"]
    assert set(found["state"].values()) == {0}


def test_a_bad_key_is_a_400_of_two_texts(sim: Running) -> None:
    answer = httpx.get(f"{sim.base_url_of('xai')}/batches")
    assert (answer.status_code, answer.json().keys()) == (400, {"code", "error"})
    assert answer.json()["error"].startswith("Incorrect API key provided")


def test_live_calls_answer_like_results(sdk: openai.OpenAI) -> None:
    text = prompt("[[quality=0]] a", "[[quality=1]] b")
    chat = sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}])
    assert SECOND in (chat.choices[0].message.content or "")


# Of the messages in xai-proto's batch.proto, 2026-05.
MEMBERS = {
    "batch_id", "name", "create_time", "expire_time", "create_api_key_id", "cancel_time", "cancel_by_xai_message",
    "state", "cost_breakdown", "input_file_id",
}  # fmt: skip
COUNTERS = {"num_requests", "num_pending", "num_success", "num_error", "num_cancelled"}


def test_every_member_is_one_of_the_official_messages(http: httpx.Client, sdk: openai.OpenAI) -> None:
    batch = made_of(http, sdk, line("a"))
    assert (batch.keys(), batch["state"].keys()) == (MEMBERS, COUNTERS)
    assert http.get("/batches").json().keys() == {"batches", "pagination_token"}
    assert http.get(f"/batches/{batch['batch_id']}/results").json().keys() == {"results", "pagination_token"}
