"""Small tools for tests that talk to the simulated Anthropic: requests, and its batch API over plain httpx."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.rigs.simulator import Api, prompt

HAIKU = "claude-haiku-4-5"
BATCHES = "/anthropic/v1/messages/batches"
OLD = "2023-06-01"
NEW = "2026-10-21"


def params(**more: Any) -> dict[str, Any]:
    text = prompt("[[quality=0.9]] one", "[[quality=0.1]] other")
    return {"model": HAIKU, "max_tokens": 500, "messages": [{"role": "user", "content": text}], **more}


def requests(n: int, **more: Any) -> list[Any]:
    return [{"custom_id": f"shard1-{i:04d}", "params": params(**more)} for i in range(n)]


class Messages:
    """The message batch API of one in-process world, called with plain httpx."""

    def __init__(self, sim: Api, version: str = NEW) -> None:
        self.sim = sim
        sim.http.headers["anthropic-version"] = version

    def call(self, method: str, path: str = "", **more: Any) -> httpx.Response:
        return self.sim.http.request(method, f"{BATCHES}{path}", **more)

    def create(self, wanted: list[Any]) -> str:
        answer = self.call("POST", json={"requests": wanted})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    def get(self, batch_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/{batch_id}").json()
        return found

    def ended(self, wanted: list[Any]) -> dict[str, Any]:
        batch_id = self.create(wanted)
        self.sim.clock.advance(100)
        return self.get(batch_id)

    def rows(self, batch_id: str) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.call("GET", f"/{batch_id}/results").content.split(b"\n") if row]

    def only(self, version: str = NEW, **more: Any) -> dict[str, Any]:
        """Return the result of a batch of one request."""
        self.sim.http.headers["anthropic-version"] = version
        (row,) = self.rows(self.ended(requests(1, **more))["id"])
        result: dict[str, Any] = row["result"]
        return result
