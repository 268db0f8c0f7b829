"""A local Groq, below `/groq/openai/v1`: OpenAI's paths and words, but for lists that have no pages.

Shapes: groq 1.7 `types/batch_list_response.py`, `types/file_list_response.py`, `types/batch_create_response.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchpond_sim.groq.batches import PROVIDER, GroqAccount
from batchpond_sim.host.messages import Answer, Reply, Request, json_reply
from batchpond_sim.openai.api import OpenAISimulator, error_reply
from batchpond_sim.openai.batches import BatchRecord
from batchpond_sim.shared.api import page_at
from batchpond_sim.world.faults import Call, Stage

BASE_PATH = "/groq/openai/v1"


class GroqSimulator(OpenAISimulator):
    """The API of one world."""

    provider = PROVIDER
    base_path = BASE_PATH
    windows = ("24h", *(f"{days}d" for days in range(1, 8)))
    models = ("openai/gpt-oss-20b", "openai/gpt-oss-120b", "qwen/qwen3-32b", "llama-3.3-70b-versatile")
    make_account = GroqAccount

    def _no_route(self, request: Request) -> Reply:
        return error_reply(404, f"Unknown request URL: {request.method} {request.path.removeprefix('/groq')}.")

    def _headers(self, request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("x-request-id", f"req_{request_id}"), ("cf-ray", f"{request_id[:16]}-SIM"))

    def _create_batch(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        if call.has(Stage.EFFECT, "enqueued"):  # no batch of Groq's is known to fail for that once it was created
            return self._fault_reply(429, "status")
        return super()._create_batch(request, call, project, argument)

    def _list_files(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            shown = [
                self._file_view(record) for record in self.account.listed_files(project, self.account.tick(), call)
            ]
            return _listed(shown, call)

    def _list_batches(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            return _listed([self._view(batch, now, call) for batch in self.account.listed(project, now, call)], call)

    def _view(self, batch: BatchRecord, now: float, call: Call) -> dict[str, Any]:
        seen = super()._view(batch, now, call)
        return {name: value for name, value in seen.items() if name not in ("model", "usage")}


def _listed(rows: list[dict[str, Any]], call: Call) -> Reply:
    """Return all rows; of the faults of paging the one that makes the only page fail means something here."""
    page_at((), 0, 1, call)
    return json_reply(200, {"object": "list", "data": rows})
