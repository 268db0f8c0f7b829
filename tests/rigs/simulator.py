"""Small tools for tests that talk to the simulator: prompts, payloads, an in-process client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from batchpond_sim.world.world import Settings, World
from tests.rigs.clock import ManualClock
from tests.rigs.sim_transport import SimulatorTransport, world_at

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
FIRST = "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"
SECOND = "<BETTER_SAMPLE>SAMPLE_2</BETTER_SAMPLE>"
AUTH = {"Authorization": "Bearer sk-canary-0123456789"}
START = datetime(2026, 11, 21, tzinfo=UTC)


def prompt(first: str, second: str) -> str:
    return f"Which is better?\n\nSAMPLE 1:\n{first}\n\nSAMPLE 2:\n{second}\n\nAnswer {FIRST} or {SECOND}."


def line(custom_id: str, body: dict[str, Any] | None = None, url: str = CHAT, **more: Any) -> str:
    text = prompt(f"[[quality=0.9]] {custom_id}", "[[quality=0.1]] other")
    body = body or {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": text}]}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more})


def payload(n: int) -> bytes:
    return "".join(line(f"attempt-{i:04d}") + "\n" for i in range(n)).encode()


class Api:
    """The API of one in-process world, called with plain httpx."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world = world
        self.clock = clock
        self.transport = SimulatorTransport(world, clock)
        self.http = httpx.Client(transport=self.transport, base_url="http://127.0.0.1:1", headers=AUTH, timeout=60)

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.http.request(method, f"/openai/v1{path}", **more)

    def upload(self, data: bytes, name: str = "in.jsonl") -> str:
        answer = self.call("POST", "/files", files={"file": (name, data)}, data={"purpose": "batch"})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def post_batch(self, file_id: str, endpoint: str = CHAT, **more: Any) -> httpx.Response:
        body = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h", **more}
        return self.call("POST", "/batches", json=body)

    def create(self, data: bytes, endpoint: str = CHAT, **more: Any) -> str:
        answer = self.post_batch(self.upload(data), endpoint, **more)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def get(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/batches/{batch_id}").json()
        return found

    def content(self, file_id: str) -> bytes:
        answer = self.call("GET", f"/files/{file_id}/content")
        assert answer.status_code == 200, answer.text
        return answer.content

    def finished(self, data: bytes, endpoint: str = CHAT) -> dict[str, Any]:
        batch_id = self.create(data, endpoint)
        self.clock.advance(100)
        return self.get(batch_id)

    def rows(self, file_id: str) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.content(file_id).split(b"\n") if row]


@contextmanager
def api(path: Path, *faults: str, **settings: Any) -> Iterator[Api]:
    clock = ManualClock(START)
    settings.setdefault("latency_s", (100.0, 100.0))
    with world_at(path, Settings(faults=faults, **settings), clock) as world:
        simulator = Api(world, clock)
        with simulator.http:
            yield simulator
