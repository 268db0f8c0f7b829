"""The simulator is a Together batch API as far as the official SDK and the recorded facts can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import together
from together.types.chat import ChatCompletion

from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import FIRST, SECOND, prompt
from tests.rigs.together import MODEL, line, payload
from tests.rigs.together import together as in_process


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0)), tmp_path / "sim") as run:
        yield run


@pytest.fixture
def client(sim: Running) -> Iterator[together.Together]:
    url = sim.base_url_of("together")
    with together.Together(api_key="sk-test", base_url=url, max_retries=0, timeout=20) as sdk:
        yield sdk


def said_by(chat: ChatCompletion) -> dict[str, Any]:
    """Return the message of a completion."""
    assert chat.choices[0].message is not None
    return chat.choices[0].message.to_dict()


def test_the_official_sdk_drives_a_batch_through_its_whole_life(
    sim: Running, client: together.Together, tmp_path: Path
) -> None:
    """Its upload is announced, put to a signed address without the key, and finished."""
    path = tmp_path / "shard-1.jsonl"
    path.write_bytes(payload(30) + line("bad-1", stop=["a", "b", "c", "d", "e"]).encode() + b"\n")
    file = client.files.upload(path, purpose="batch-api", check=False)
    assert (file.filename, file.bytes, file.purpose) == ("shard-1.jsonl", path.stat().st_size, "batch-api")
    assert client.files.upload(path, purpose="batch-api", check=False).id == file.id, "the same content, the same file"
    assert [found.id for found in client.files.list().data] == [file.id]
    created = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h").job
    assert created is not None
    assert created.id is not None
    assert (created.status, created.input_file_id, created.file_size_bytes) == ("VALIDATING", file.id, file.bytes)
    seen = []
    for seconds in (0, 11, 40, 50):
        sim.world.advance(seconds)
        batch = client.batches.retrieve(created.id)
        seen.append((batch.status, (batch.progress or 0) > 0))
    assert seen == [("VALIDATING", False), ("IN_PROGRESS", True), ("IN_PROGRESS", True), ("COMPLETED", True)]
    assert [found.id for found in client.batches.list()] == [created.id]
    assert batch.output_file_id is not None
    assert batch.error_file_id is not None
    assert batch.error is None
    rows = [json.loads(row) for row in client.files.content(batch.output_file_id).read().splitlines()]
    assert sorted(row["custom_id"] for row in rows) == [f"attempt-{i:04d}" for i in range(30)]
    assert all(row.keys() == {"id", "custom_id", "response"} for row in rows)
    said = [ChatCompletion.model_validate(row["response"]["body"]) for row in rows]
    assert {answer.choices[0].finish_reason for answer in said} == {"eos"}
    (error,) = [json.loads(row) for row in client.files.content(batch.error_file_id).read().splitlines()]
    assert error.keys() == {"id", "custom_id", "error"}
    assert error["error"] == {"code": "batch_client_error", "message": "Maximum four stop sequences allowed"}


def test_live_calls_answer_like_batch_rows(sim: Running, client: together.Together) -> None:
    text = prompt("[[quality=0]] a", "[[quality=1]] b")
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}])
    assert SECOND in said_by(chat).get("content", "")
    model = "openai/gpt-oss-20b"
    said = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], max_tokens=8)
    assert (said.choices[0].finish_reason, said_by(said)["content"]) == ("length", "")
    assert said_by(said)["reasoning"]
    assert sim.world.ledger.summary()["billed"]["output_tokens"] > 8
    with pytest.raises(together.NotFoundError, match="Unable to access model"):
        client.chat.completions.create(model="nonexistent/x", messages=[{"role": "user", "content": text}])


def test_unknown_ids_keys_and_paths_get_the_recorded_errors(sim: Running, client: together.Together) -> None:
    """Text and a request id from the batch API, an object from the file API."""
    with pytest.raises(together.NotFoundError) as missing:
        client.batches.retrieve("00000000-0000-4000-8000-000000000000")
    assert missing.value.response.json().keys() == {"error", "request_id"}
    assert missing.value.response.json()["error"] == "Job not found"
    with pytest.raises(together.NotFoundError) as no_file:
        client.files.content("file-x")
    assert no_file.value.response.json()["error"] == {"message": "File file-x not found", "type": "not_found"}
    with pytest.raises(together.AuthenticationError):
        client.with_options(default_headers={"Authorization": "Basic eA=="}).batches.list()
    assert missing.value.response.headers["cf-ray"]


def test_create_takes_a_file_that_is_not_there_and_fails_later_without_any_file(tmp_path: Path) -> None:
    with in_process(tmp_path) as sim:
        answer = sim.post_batch("file-none")
        assert (answer.status_code, answer.json()["job"]["status"]) == (201, "VALIDATING")
        sim.clock.advance(20)
        batch = sim.get(answer.json()["job"]["id"])
        assert batch["status"] == "FAILED"
        assert "Failed to download input file" in batch["error"]
        assert not batch.keys() & {"output_file_id", "error_file_id"}


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([line("a"), "{not json"], "Line 2 (within chunk): Invalid JSON"),
        ([line("a"), json.dumps({"custom_id": "b"})], "a line needs a custom_id and a body"),
        ([line("a", "dedicated/model")], "Unable to access non-serverless model dedicated/model"),
        ([], "holds no requests"),
    ],
)
def test_a_whole_batch_fails_with_a_text_and_no_bill(tmp_path: Path, lines: list[str], error: str) -> None:
    with in_process(tmp_path) as sim:
        batch = sim.finished("\n".join(lines).encode())
        assert (batch["status"], error in batch["error"]) == ("FAILED", True)
        assert sim.world.ledger.summary()["billed"]["input_tokens"] == 0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line("x", None), "missing 'model' field in body or not a string"),
        (line("x", "nonexistent/m"), "Unable to access model nonexistent/m."),
        (line("x", reasoning_effort="enormous"), "Invalid reasoning_effort"),
        (line("x", temperature=3), "temperature must be"),
    ],
)
def test_a_bad_line_is_one_row_of_the_error_file_and_mixed_models_are_fine(
    tmp_path: Path, bad: str, message: str
) -> None:
    """Each file exists only if it has rows."""
    with in_process(tmp_path) as sim:
        alone = sim.finished(bad.encode())
        assert (alone["status"], "output_file_id" in alone) == ("COMPLETED", False)
        mixed = sim.finished("\n".join([line("a"), line("b", "Qwen/Qwen3.5-9B"), bad]).encode())
        assert {row["response"]["body"]["model"] for row in sim.rows(mixed["output_file_id"])} == {
            MODEL, "Qwen/Qwen3.5-9B",
        }  # fmt: skip
        (row,) = sim.rows(mixed["error_file_id"])
        assert row["error"]["message"].startswith(message)


def test_reasoning_is_apart_from_the_text_and_counted_flat(tmp_path: Path) -> None:
    with in_process(tmp_path) as sim:
        on = line("on", "moonshotai/Kimi-K3", reasoning={"enabled": True})
        off = line("off", "moonshotai/Kimi-K3", reasoning={"enabled": False})
        batch = sim.finished(f"{on}\n{off}".encode())
        said = {row["custom_id"]: row["response"]["body"] for row in sim.rows(batch["output_file_id"])}
    assert said["on"]["choices"][0]["message"]["reasoning"]
    assert said["on"]["usage"]["reasoning_tokens"] > 0
    assert "reasoning" not in said["off"]["choices"][0]["message"]
    assert said["off"]["usage"]["reasoning_tokens"] == 0
    assert FIRST in said["off"]["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("after_s", "n_rows"), [(5, 0), (50, 8)])
def test_cancel_goes_through_a_state_of_its_own_and_keeps_what_was_finished(
    tmp_path: Path, after_s: int, n_rows: int
) -> None:
    """Nothing while it validates; requests that were not run have no row anywhere."""
    with in_process(tmp_path) as sim:
        batch_id = sim.create(payload(16))
        sim.clock.advance(after_s)
        for _ in range(2):
            answer = sim.call("POST", f"/batches/{batch_id}/cancel")
            assert (answer.status_code, answer.json()["status"]) == (200, "CANCELING")
        sim.clock.advance(30)
        batch = sim.get(batch_id)
        assert batch["status"] == "CANCELLED"
        assert "error_file_id" not in batch
        assert (len(sim.rows(batch["output_file_id"])) if n_rows else 0) == n_rows
        assert ("output_file_id" in batch) == bool(n_rows)
        late = sim.call("POST", f"/batches/{batch_id}/cancel")
        assert late.status_code == 409
        assert late.json()["error"] == "Cannot cancel job - already in terminal state: CANCELLED"


def test_other_keys_see_nothing_and_the_list_is_a_bare_array(tmp_path: Path) -> None:
    with in_process(tmp_path, keys={"sk-canary-0123456789": "proj_a", "sk-b": "proj_b"}) as sim:
        made = {sim.create(payload(n)) for n in (1, 2, 3)}
        listed = sim.call("GET", "/batches").json()
        assert {each["id"] for each in listed} == made
        assert {each["project_id"] for each in listed} == {"proj_a"}
        sim.http.headers["Authorization"] = "Bearer sk-b"
        assert sim.call("GET", "/batches").json() == []
        assert sim.call("GET", f"/batches/{listed[0]['id']}").status_code == 404
        assert sim.upload(payload(1)).status_code == 200, "what another project has is no conflict"
        sim.http.headers["Authorization"] = "Bearer sk-wrong"
        assert sim.call("GET", "/batches").json()["error"]["code"] == "invalid_api_key"


def test_the_storage_takes_a_signed_address_and_no_key(tmp_path: Path) -> None:
    with in_process(tmp_path) as sim:
        form = {name: (None, value) for name, value in (("purpose", "batch-api"), ("file_name", "a.jsonl"))}
        there = sim.call("POST", "/files", files=form)
        address, file_id = there.headers["location"], there.headers["x-together-file-id"]
        assert there.status_code == 302
        assert sim.http.put(address, content=b"x").status_code == 400
        del sim.http.headers["Authorization"]
        assert sim.http.put(address.replace("signature=", "signature=0"), content=b"x").status_code == 403
        assert sim.http.put(address, content=b"abc").status_code == 200
        headers = {"Authorization": "Bearer k"}
        assert sim.call("POST", f"/files/{file_id}/preprocess", headers=headers).json()["bytes"] == 3
        assert sim.call("GET", f"/files/{file_id}/content", headers=headers).content == b"abc"
        assert sim.call("DELETE", f"/files/{file_id}", headers=headers).status_code == 200
        assert sim.call("GET", f"/files/{file_id}", headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "input_file_id"),
        ({"input_file_id": "f", "endpoint": "/v1/embeddings"}, "Invalid endpoint"),
        ([], "Invalid"),
    ],
)
def test_a_create_that_makes_no_sense_is_refused_at_once(tmp_path: Path, body: Any, error: str) -> None:
    with in_process(tmp_path) as sim:
        answer = sim.call("POST", "/batches", json=body)
        assert answer.status_code == 400
        assert error in answer.json()["error"]
