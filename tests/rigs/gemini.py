"""Small tools for tests that talk to the simulated Gemini API: lines, payloads, an in-process client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from batchpond_sim.world.world import Settings, World
from tests.rigs.clock import ManualClock
from tests.rigs.sim_transport import SimulatorTransport, world_at
from tests.rigs.simulator import START, prompt

MODEL = "gemini-2.5-flash"
KEY = {"x-goog-api-key": "AIza-canary-0123456789"}


def request(text: str = "", **config: Any) -> dict[str, Any]:
    """Return a GenerateContentRequest."""
    said = text or prompt("[[quality=0.9]] one", "[[quality=0.1]] other")
    more = {"generationConfig": config} if config else {}
    return {"contents": [{"role": "user", "parts": [{"text": said}]}], **more}


def line(key: str, **config: Any) -> str:
    return json.dumps({"key": key, "request": request(**config)})


def payload(n: int) -> bytes:
    return "".join(line(f"attempt-{i:04d}") + "\n" for i in range(n)).encode()


class Gemini:
    """The API of one in-process world, called with plain httpx."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world = world
        self.clock = clock
        self.transport = SimulatorTransport(world, clock)
        self.http = httpx.Client(
            transport=self.transport, base_url="http://127.0.0.1:1/gemini", headers=KEY, timeout=60
        )

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.http.request(method, path if path.startswith("http") else f"/v1beta{path}", **more)

    def start(self, size: int | None, **file: str) -> httpx.Response:
        headers = {"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start"}
        headers["X-Goog-Upload-Header-Content-Type"] = "application/jsonl"
        if size is not None:
            headers["X-Goog-Upload-Header-Content-Length"] = str(size)
        return self.http.post("/upload/v1beta/files", json={"file": file}, headers=headers)

    def send(self, url: str, command: str, data: bytes = b"", offset: int | None = None) -> httpx.Response:
        headers = {"X-Goog-Upload-Command": command}
        if offset is not None:
            headers["X-Goog-Upload-Offset"] = str(offset)
        # The URL itself lets the bytes in, as the official SDK has it: no key.
        with httpx.Client(transport=self.transport, timeout=60) as bare:
            return bare.post(url, content=data, headers=headers)

    def upload(self, data: bytes, **file: str) -> str:
        url = self.start(len(data), **file).headers["x-goog-upload-url"]
        answer = self.send(url, "upload, finalize", data, 0)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["file"]["name"])

    def post_batch(self, input_config: dict[str, Any], model: str = MODEL, **batch: Any) -> httpx.Response:
        body = {"batch": {"displayName": "tok-1", "inputConfig": input_config, **batch}}
        return self.call("POST", f"/models/{model}:batchGenerateContent", json=body)

    def create(self, data: bytes, model: str = MODEL, **batch: Any) -> str:
        answer = self.post_batch({"fileName": self.upload(data)}, model, **batch)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["name"])

    def get(self, name: str) -> dict[str, Any]:
        answer = self.call("GET", f"/{name}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def state(self, name: str) -> str:
        return str(self.get(name)["metadata"]["state"])

    def finished(self, data: bytes, model: str = MODEL) -> dict[str, Any]:
        name = self.create(data, model)
        self.clock.advance(100)
        return self.get(name)

    def content(self, operation: dict[str, Any]) -> bytes:
        name = operation["response"]["responsesFile"]
        answer = self.http.get(f"/download/v1beta/{name}:download?alt=media")
        assert answer.status_code == 200, answer.text
        return answer.content

    def rows(self, operation: dict[str, Any]) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.content(operation).split(b"\n") if row.strip()]


@contextmanager
def gemini(path: Path, *faults: str, **settings: Any) -> Iterator[Gemini]:
    """Open a world for the length of a with block; its batches take 100 s: 10 pending, 90 running."""
    clock = ManualClock(START)
    settings.setdefault("latency_s", (100.0, 100.0))
    with world_at(path, Settings(faults=faults, **settings), clock) as world:
        simulator = Gemini(world, clock)
        with simulator.http:
            yield simulator
