"""The simulator is a Gemini batch API as far as the official SDK and the documented facts can tell."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types

from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.gemini import KEY, MODEL, gemini, line, payload, request
from tests.rigs.simulator import FIRST

HOUR = 3600


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Running]:
    with running(Settings(latency_s=(100.0, 100.0), cancel_s=1.0), tmp_path / "sim") as run:
        yield run


@pytest.fixture(params=["v1beta", "v1"])
def client(sim: Running, request: pytest.FixtureRequest) -> Iterator[genai.Client]:
    options = types.HttpOptions(base_url=f"{sim.root_url}/gemini", api_version=request.param, timeout=20_000)
    with genai.Client(api_key="AIza-test", http_options=options) as sdk:
        yield sdk


def _uploaded(client: genai.Client, data: bytes, name: str = "tok-1") -> types.File:
    config = types.UploadFileConfig(name=name, display_name=name, mime_type="jsonl")
    return client.files.upload(file=io.BytesIO(data), config=config)


def _created(client: genai.Client, data: bytes, name: str = "tok-1") -> str:
    file = _uploaded(client, data, name)
    made = client.batches.create(model=MODEL, src=str(file.name), config={"display_name": name})
    return str(made.name)


def test_the_official_sdk_drives_a_batch_through_its_whole_life(sim: Running, client: genai.Client) -> None:
    bad = line("attempt-bad", thinkingConfig={"thinkingLevel": "LOW"})
    data = payload(30) + bad.encode() + b"\n"
    file = _uploaded(client, data)
    assert (file.name, file.display_name, file.size_bytes) == ("files/tok-1", "tok-1", len(data))
    assert file.state is types.FileState.ACTIVE
    assert file.expiration_time is not None
    assert file.create_time is not None
    assert (file.expiration_time - file.create_time).total_seconds() == 48 * HOUR
    batch = client.batches.create(model=MODEL, src="files/tok-1", config={"display_name": "tok-1"})
    assert (batch.state, batch.display_name) == (types.JobState.JOB_STATE_PENDING, "tok-1")
    assert batch.model == f"models/{MODEL}"
    seen = []
    for seconds in (0, 11, 40, 50):
        sim.world.advance(seconds)
        batch = client.batches.get(name=str(batch.name))
        seen.append(str(batch.state).rpartition("_")[2])
    assert seen == ["PENDING", "RUNNING", "RUNNING", "SUCCEEDED"]
    assert batch.dest is not None
    assert str(batch.dest.file_name) == f"files/batch-{str(batch.name).removeprefix('batches/')}"
    rows = [json.loads(row) for row in client.files.download(file=str(batch.dest.file_name)).splitlines()]
    assert [row["key"] for row in rows] == [*(f"attempt-{i:04d}" for i in range(30)), "attempt-bad"]
    assert rows[-1]["error"]["code"] == 400
    assert "not supported" in rows[-1]["error"]["message"]
    answers = [types.GenerateContentResponse.model_validate(row["response"]) for row in rows[:-1]]
    assert all(FIRST in str(answer.text) for answer in answers)
    assert [file.name for file in client.files.list()] == ["files/tok-1"]
    client.batches.delete(name=str(batch.name))
    client.files.delete(name="files/tok-1")
    with pytest.raises(errors.ClientError, match="404"):
        client.batches.get(name=str(batch.name))
    (entry,) = sim.world.snapshot()["batches"]
    assert (entry["metadata"], entry["input_file_id"]) == ({"displayName": "tok-1"}, "files/tok-1")
    (bill,) = sim.world.snapshot()["bills"]
    usages = [answer.usage_metadata for answer in answers if answer.usage_metadata is not None]
    assert bill["input_tokens"] == sum(usage.prompt_token_count or 0 for usage in usages)
    spoken = sum((usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0) for usage in usages)
    assert (bill["n_requests"], bill["output_tokens"]) == (30, spoken)


def test_the_official_sdk_cancels_and_lists(sim: Running, client: genai.Client) -> None:
    names = []
    for i in range(12):
        names.append(_created(client, payload(1), f"tok-{i}"))
        sim.world.advance(0.01)
    assert [batch.name for batch in client.batches.list(config={"page_size": 5})] == names[::-1]
    client.batches.cancel(name=names[0])
    assert client.batches.get(name=names[0]).state is types.JobState.JOB_STATE_PENDING
    sim.world.advance(2)
    assert client.batches.get(name=names[0]).state is types.JobState.JOB_STATE_CANCELLED
    with pytest.raises(errors.ClientError, match="400"):
        client.batches.cancel(name=names[0])


def test_requests_sent_along_are_answered_inline(sim: Running, client: genai.Client) -> None:
    thinking = types.ThinkingConfig(include_thoughts=True, thinking_budget=64)
    config = types.GenerateContentConfig(
        system_instruction="Be brief.", temperature=0.5, max_output_tokens=900, thinking_config=thinking
    )
    asked = [
        types.InlinedRequest(contents=f"Question {i}", config=config, metadata={"key": f"q-{i}"}) for i in range(3)
    ]
    batch = client.batches.create(model=MODEL, src=asked, config={"display_name": "inline"})
    sim.world.advance(100)
    batch = client.batches.get(name=str(batch.name))
    assert batch.dest is not None
    answers = batch.dest.inlined_responses or []
    assert [answer.metadata for answer in answers] == [{"key": f"q-{i}"} for i in range(3)]
    for answer in answers:
        assert answer.response is not None
        assert answer.response.text
        assert answer.response.usage_metadata is not None
        assert 0 < (answer.response.usage_metadata.thoughts_token_count or 0) <= 64
    (listed,) = client.batches.list()
    assert listed.dest is None
    assert sim.world.snapshot()["batches"][0]["input_file_id"] == ""


def test_live_calls_models_and_chunked_uploads_work_with_the_official_sdk(sim: Running, client: genai.Client) -> None:
    answer = client.models.generate_content(model="gemini-3.8-flash", contents="Hello")
    assert answer.text
    assert client.models.generate_content(model="gemini-3.8-flash", contents="Hello").text == answer.text
    assert MODEL in {str(model.name).removeprefix("models/") for model in client.models.list()}
    with pytest.raises(errors.ClientError, match="404"):
        client.models.generate_content(model="gpt-5.4", contents="Hello")
    data = b"x" * ((8 << 20) + 5)
    file = _uploaded(client, data, "large")
    assert file.size_bytes == len(data)
    assert sim.world.snapshot()["calls"]["gemini.files.upload"] == 2


# -- the wire, fact by fact ----------------------------------------------------------------------


def test_an_operation_has_string_counts_and_leaves_zeros_and_false_out(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        name = sim.create(payload(4))
        made = sim.get(name)
        assert "done" not in made
        assert "response" not in made
        assert made["metadata"]["batchStats"] == {"requestCount": "4", "pendingRequestCount": "4"}
        assert made["metadata"]["state"] == "BATCH_STATE_PENDING"
        assert made["metadata"]["inputConfig"]["fileName"].startswith("files/")
        assert "endTime" not in made["metadata"]
        sim.clock.advance(60)
        stats = sim.get(name)["metadata"]["batchStats"]
        assert stats == {"requestCount": "4", "successfulRequestCount": "2", "pendingRequestCount": "2"}
        sim.clock.advance(40)
        ended = sim.get(name)
        assert ended["done"] is True
        assert ended["metadata"]["batchStats"] == {"requestCount": "4", "successfulRequestCount": "4"}
        assert ended["metadata"]["output"] == {"responsesFile": ended["response"]["responsesFile"]}
        assert ended["metadata"]["createTime"] == "2026-11-21T00:00:00Z"
        assert ended["metadata"]["name"] == ended["name"] == name


def test_keys_decide_who_one_is(tmp_path: Path) -> None:
    with (
        gemini(tmp_path, keys={"one": "p1", "two": "p2"}) as sim,
        httpx.Client(transport=sim.transport, base_url="http://127.0.0.1:1/gemini") as bare,
    ):
        missing = bare.get("/v1beta/batches")
        assert (missing.status_code, missing.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
        wrong = bare.get("/v1beta/batches", headers=KEY)
        assert (wrong.status_code, wrong.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert wrong.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"
        sim.http.headers["x-goog-api-key"] = "one"
        name = sim.create(payload(1))
        assert bare.get(f"/v1beta/{name}?key=one").status_code == 200
        assert bare.get(f"/v1beta/{name}", headers={"x-goog-api-key": "two"}).status_code == 404
        assert bare.get("/v1beta/batches?key=two").json() == {}
    recorded = (tmp_path / "ledger.jsonl").read_text()
    assert '"key":"one"' not in recorded.replace(" ", "")
    assert KEY["x-goog-api-key"] not in recorded


def test_an_empty_listing_is_an_empty_object(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        assert sim.call("GET", "/batches").json() == {}
        assert sim.call("GET", "/files?pageSize=3").json() == {}


def test_listings_have_pages_of_at_most_a_hundred(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        for i in range(12):
            sim.create(payload(1), displayName=f"tok-{i}")
            sim.clock.advance(1)
        first = sim.call("GET", "/batches").json()
        assert [row["metadata"]["displayName"] for row in first["operations"]] == [f"tok-{i}" for i in range(11, 1, -1)]
        rest = sim.call("GET", "/batches", params={"pageToken": first["nextPageToken"]}).json()
        assert (len(rest["operations"]), "nextPageToken" in rest) == (2, False)
        assert len(sim.call("GET", "/files?pageSize=1000").json()["files"]) == 12
        for query in ("pageSize=-1", "pageToken=nonsense"):
            assert sim.call("GET", f"/batches?{query}").status_code == 400


@pytest.mark.parametrize(
    "bad",
    [
        "not json",
        "[]",
        '{"key": "k"}',
        '{"key": "k", "request": {"contents": []}}',
        '{"key": "k", "request": {"contents": [{"parts": []}]}}',
        '{"custom_id": "k", "request": {"contents": [{"parts": [{"text": "a"}]}]}}',
        '{"key": "k", "request": {"contents": [{"parts": [{"text": "a"}]}], "temperature": 1}}',
        '{"key": "k", "request": {"contents": [{"parts": [{"text": "a"}]}], "generationConfig": {"topP": "a"}}}',
        line("k", thinkingConfig={"thinkingLevel": "ENORMOUS"}),
    ],
)
def test_one_malformed_line_refuses_the_whole_create(tmp_path: Path, bad: str) -> None:
    with gemini(tmp_path) as sim:
        answer = sim.post_batch({"fileName": sim.upload(payload(3) + bad.encode())})
        assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert sim.world.snapshot()["batches"] == []
        assert sim.call("GET", "/batches").json() == {}


@pytest.mark.parametrize(
    ("batch", "status"),
    [
        ({"inputConfig": {}}, 400),
        ({"inputConfig": {"fileName": "files/none"}}, 403),
        ({"inputConfig": {"requests": {"requests": []}}}, 400),
        ({"inputConfig": {"requests": {"requests": [{"metadata": {"key": "k"}}]}}}, 400),
        ({"inputConfig": {"fileName": "files/in"}, "colour": "red"}, 400),
        ({"inputConfig": {"fileName": "files/in"}, "priority": "high"}, 400),
        ({"inputConfig": {"fileName": "files/in"}, "priority": "-3"}, 200),
        ({"input_config": {"file_name": "files/in"}, "display_name": "snake"}, 200),
    ],
)
def test_create_takes_or_refuses(tmp_path: Path, batch: dict[str, Any], status: int) -> None:
    with gemini(tmp_path) as sim:
        sim.upload(payload(1), name="files/in")
        answer = sim.call("POST", f"/models/{MODEL}:batchGenerateContent", json={"batch": batch})
        assert answer.status_code == status, answer.text
        assert len(sim.world.snapshot()["batches"]) == (status == 200)


def test_an_unknown_model_is_not_found(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        answer = sim.post_batch({"fileName": sim.upload(payload(1))}, "gpt-5.4")
        assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_a_full_queue_is_a_429_with_retry_info_and_creates_nothing(tmp_path: Path) -> None:
    with gemini(tmp_path, enqueued_limits={"gemini-2.5-*": 60}) as sim:
        first = sim.create(payload(1))
        answer = sim.post_batch({"fileName": sim.upload(payload(1))})
        assert (answer.status_code, answer.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert answer.json()["error"]["details"][-1]["retryDelay"] == "34s"
        assert "retry-after" not in answer.headers
        assert len(sim.world.snapshot()["batches"]) == 1
        assert sim.post_batch({"fileName": sim.upload(payload(1))}, "gemini-3.8-flash").status_code == 200
        sim.call("DELETE", f"/{first}")  # deleting does not cancel, and so frees nothing
        assert sim.post_batch({"fileName": sim.upload(payload(1))}).status_code == 429
        sim.clock.advance(100)
        assert sim.post_batch({"fileName": sim.upload(payload(1))}).status_code == 200


def test_at_most_a_hundred_batches_are_open(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        name = sim.upload(payload(1))
        statuses = [sim.post_batch({"fileName": name}).status_code for _ in range(101)]
        assert statuses == [200] * 100 + [429]


def test_deleting_is_not_cancelling_and_takes_the_output_away(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        running_batch, ended = sim.create(payload(2)), sim.create(payload(2))
        assert sim.call("DELETE", f"/{running_batch}").json() == {}
        assert [sim.call(verb, f"/{running_batch}").status_code for verb in ("GET", "DELETE")] == [404, 404]
        sim.clock.advance(100)
        file = sim.get(ended)["response"]["responsesFile"]
        assert len(sim.world.snapshot()["bills"]) == 2
        assert sim.call("GET", f"/{file}").json()["source"] == "GENERATED"
        assert sim.call("DELETE", f"/{file}").status_code == 400
        assert sim.http.get(f"/download/v1beta/{file}:download?alt=media").status_code == 200
        sim.call("DELETE", f"/{ended}")
        assert sim.call("GET", f"/{file}").status_code == 404
        assert sim.http.get(f"/download/v1beta/{file}:download?alt=media").status_code == 404


def test_a_batch_keeps_its_requests_when_its_file_goes(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        file = sim.upload(payload(3))
        name = sim.post_batch({"fileName": file}).json()["name"]
        sim.call("DELETE", f"/{file}")
        sim.clock.advance(100)
        assert len(sim.rows(sim.get(name))) == 3


def test_a_slow_batch_expires_after_48_hours_with_nothing(tmp_path: Path) -> None:
    with gemini(tmp_path, latency_s=(60.0 * HOUR, 60.0 * HOUR)) as sim:
        name = sim.create(payload(5))
        sim.clock.advance(47.9 * HOUR)
        assert sim.state(name) == "BATCH_STATE_RUNNING"
        sim.clock.advance(0.2 * HOUR)
        ended = sim.get(name)
        assert ended["metadata"]["state"] == "BATCH_STATE_EXPIRED"
        assert (ended["done"], ended["error"]["code"]) == (True, 4)
        assert "output" not in ended["metadata"]
        assert "response" not in ended
        assert sim.world.snapshot()["bills"] == []


def test_a_cancelled_batch_has_error_13_and_nothing_else(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        name = sim.create(payload(10))
        sim.clock.advance(60)
        assert sim.call("POST", f"/{name}:cancel", json={}).json() == {}
        assert sim.call("POST", f"/{name}:cancel").status_code == 200
        assert sim.state(name) == "BATCH_STATE_RUNNING"
        sim.clock.advance(1)
        ended = sim.get(name)
        assert (ended["metadata"]["state"], ended["error"]["code"]) == ("BATCH_STATE_CANCELLED", 13)
        assert "response" not in ended


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        url = sim.start(4, name="files/half").headers["x-goog-upload-url"]
        name = sim.create(payload(3))
        sim.clock.advance(50)
        assert sim.state(name) == "BATCH_STATE_RUNNING"
        sim.transport.restart()
        assert sim.state(name) == "BATCH_STATE_RUNNING"
        sim.clock.advance(50)
        before = sim.content(sim.get(name))
        sim.transport.restart()
        assert sim.content(sim.get(name)) == before
        assert sim.send(url, "upload, finalize", b"abcd", 0).json()["file"]["name"] == "files/half"
        assert len(sim.world.snapshot()["batches"]) == len(sim.world.snapshot()["bills"]) == 1


def test_a_refused_live_call_has_the_error_of_its_kind(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        path = "/models/gemini-2.5-pro:generateContent"
        off = request(thinkingConfig={"thinkingBudget": 0})
        assert sim.call("POST", path, json=off).json()["error"]["status"] == "INVALID_ARGUMENT"
        assert sim.call("POST", path, content=b"{").status_code == 400
        assert sim.call("POST", "/models/gemini-2.5-pro:countTokens", json=request()).status_code == 404
        assert sim.call("GET", "/models/gemini-2.5-pro").json()["name"] == "models/gemini-2.5-pro"
