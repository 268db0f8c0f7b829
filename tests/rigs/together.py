"""Small tools for tests that talk to the simulated Together API, or to a scripted one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from batchpond.model import CreateSpec
from batchpond.providers import registry
from batchpond_sim.world.world import Settings, World
from tests.rigs import wire_script
from tests.rigs.clock import ManualClock
from tests.rigs.sim_transport import SimulatorTransport, world_at
from tests.rigs.simulator import AUTH, CHAT, START, prompt
from tests.rigs.wire_script import Answer

MODEL = "meta-llama/Llama-3.3-70B-Instruct-Turbo"
KEY = "tgp_canary_wire_0123456789"
SPEC = CreateSpec("token-1", CHAT, MODEL, "file-1", Path("unused"), 2, (("batchpond", "token-1"),))


def line(custom_id: str, model: str | None = MODEL, **body: Any) -> str:
    said = prompt(f"[[quality=0.9]] {custom_id}", "[[quality=0.1]] other")
    named = {} if model is None else {"model": model}
    return json.dumps(
        {"custom_id": custom_id, "body": named | {"messages": [{"role": "user", "content": said}]} | body}
    )


def payload(n: int) -> bytes:
    return "".join(line(f"attempt-{i:04d}") + "\n" for i in range(n)).encode()


def job(**more: Any) -> dict[str, Any]:
    """Return a job as it was recorded: nothing that is not there yet has a member."""
    return {
        "id": "7c1e0000-0000-4000-8000-000000000001",
        "user_id": "u",
        "project_id": "proj-1",
        "organization_id": "org-1",
        "input_file_id": "file-1",
        "file_size_bytes": 1234,
        "status": "VALIDATING",
        "job_deadline": "2026-11-22T10:00:00Z",
        "created_at": "2026-11-21T10:00:00Z",
        "endpoint": CHAT,
        "progress": 0,
    } | more


class Script(wire_script.Script):
    """A scripted Together."""

    def __init__(self, *answers: Answer | Callable[[httpx.Request], Answer], **environ: str) -> None:
        super().__init__(*answers)
        environ = {"TOGETHER_API_KEY": KEY} | environ
        self.wire = registry.connect("together", self.clock, transport=self.transport, environ=environ)


class Api:
    """The API of one in-process world, called with plain httpx."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world = world
        self.clock = clock
        self.transport = SimulatorTransport(world, clock)
        url = "http://127.0.0.1:1/together"
        self.http = httpx.Client(transport=self.transport, base_url=url, headers=AUTH, timeout=60)

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.http.request(method, f"/v1{path}", **more)

    def upload(self, data: bytes, name: str = "in.jsonl") -> httpx.Response:
        form = {"purpose": "batch-api", "file_name": name}
        return self.call("POST", "/files/upload", files={"file": (name, data)}, data=form)

    def post_batch(self, file_id: str, **more: Any) -> httpx.Response:
        return self.call("POST", "/batches", json={"input_file_id": file_id, "endpoint": CHAT, **more})

    def create(self, data: bytes) -> str:
        answer = self.post_batch(self.upload(data).json()["id"])
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job"]["id"])

    def get(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/batches/{batch_id}").json()
        return found

    def finished(self, data: bytes) -> dict[str, Any]:
        batch_id = self.create(data)
        self.clock.advance(100)
        return self.get(batch_id)

    def rows(self, file_id: str) -> list[dict[str, Any]]:
        answer = self.call("GET", f"/files/{file_id}/content")
        assert answer.status_code == 200, answer.text
        return [json.loads(row) for row in answer.content.split(b"\n") if row]


@contextmanager
def together(path: Path, *faults: str, **settings: Any) -> Iterator[Api]:
    """Open a world for the length of a with block; its batches take 100 s: 10 validating, 90 running."""
    clock = ManualClock(START)
    settings.setdefault("latency_s", (100.0, 100.0))
    with world_at(path, Settings(faults=faults, **settings), clock) as world:
        simulator = Api(world, clock)
        with simulator.http:
            yield simulator
