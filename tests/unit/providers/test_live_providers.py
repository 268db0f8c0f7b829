"""Live calls to each provider's simulator: the answer, whose account it is, and what is in the path and the headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import UsageError
from batchpond.model import Response, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.base import Answered
from batchpond.providers.shared.dialect import ModelSettings
from batchpond_sim.host.server import PROVIDERS, Running, running
from tests.rigs.clock import ManualClock
from tests.rigs.hostile_server import hostile, reply
from tests.rigs.http import CANARY, START
from tests.rigs.sim_transport import SimulatorTransport, world_at

BODY = b'{"model":"m","messages":[{"role":"user","content":"A or B?"}]}'
WAYS = {
    "openai": ("OPENAI_BASE_URL", "openai", "gpt-4.1-mini"),
    "anthropic": ("ANTHROPIC_BASE_URL", "anthropic", "claude-haiku-4-5"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "gemini", "gemini-2.5-flash-lite"),
    "together": ("TOGETHER_BASE_URL", "together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
    "ollama": ("OLLAMA_HOST", "ollama", "llama3.2"),
    "vllm": ("VLLM_BASE_URL", "compatible", "qwen3-8b-instruct"),
    "compatible-mine": ("MINE_BASE_URL", "compatible", "tiny-random"),
}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run the simulators once for this module."""
    folder: Path = tmp_path_factory.mktemp("simulator")
    with running(state_dir=folder) as sim:
        yield sim


def asked(simulator: Running, name: str) -> Response:
    """Ask a provider's simulator, as a run does, and read its answer."""
    variable, simulated, model = WAYS[name]
    module = registry.module(name)
    live = registry.connect_live(name, environ={variable: simulator.base_url_of(simulated)})
    endpoint = module.endpoint_for(model, False, None)
    body = module.build_body("Which is better, A or B?", ModelSettings(model, endpoint, max_output_tokens=512)).body
    start = live.start(model)
    assert start.is_simulated
    assert start.scope.startswith(f"{name}/127.0.0.1:")
    answer = live.ask(endpoint, model, json.dumps(body).encode(), 10.0)
    live.close()
    assert isinstance(answer, Answered)
    assert live.is_loopback
    return module.read_answer(answer.status_code, answer.body)


@pytest.mark.parametrize("name", WAYS)
def test_every_provider_answers(simulator: Running, name: str) -> None:
    """Build, ask and read, end to end over loopback HTTP."""
    response = asked(simulator, name)
    assert response.status is ResponseStatus.SUCCEEDED
    assert response.text
    assert response.custom_id is None
    assert response.status_code == 200
    assert response.output_tokens


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "together"])
def test_a_batch_and_its_live_calls_see_the_same_account(tmp_path: Path, name: str) -> None:
    """The scopes agree, so that a lake notices another account either way."""
    clock = ManualClock(START)
    environ = {WAYS[name][0]: f"http://127.0.0.1:1{PROVIDERS[WAYS[name][1]][0]}"}
    with world_at(tmp_path, clock=clock) as world:
        transport = SimulatorTransport(world, clock)
        live = registry.connect_live(name, clock, environ=environ, transport=transport)
        batches = registry.connect(name, clock, environ=environ, transport=transport)
        assert live.start(WAYS[name][2]).scope == batches.check()


def test_anthropics_version_is_that_of_the_endpoint() -> None:
    """One wire asks both versions, each with one version header."""
    good = {"type": "message", "content": [{"type": "text", "text": "A"}], "stop_reason": "end_turn"}
    with hostile(reply(good, request_id="req_9")) as server:
        environ = {"ANTHROPIC_BASE_URL": server.url.removesuffix("/v1"), "ANTHROPIC_API_KEY": CANARY}
        live = registry.connect_live("anthropic", environ=environ)
        for endpoint in ("/v1/messages", "/v1/messages@2023-06-01"):
            answer = live.ask(endpoint, "claude-x", BODY, 5.0)
            assert isinstance(answer, Answered)
            assert answer.provider_request_id == "req_9"
        with pytest.raises(UsageError):
            live.ask("/v1/messages@1999-01-01", "claude-x", BODY, 5.0)
        live.close()
    assert [seen.path for seen in server.requests] == ["/v1/messages", "/v1/messages"]
    assert [seen.headers["anthropic-version"] for seen in server.requests] == ["2026-10-21", "2023-06-01"]


@pytest.mark.parametrize("tail", ["", "/v1", "/v1beta"])
def test_geminis_model_is_in_the_path(tail: str) -> None:
    """And cannot lead anywhere else."""
    good = {"candidates": [{"content": {"parts": [{"text": "A"}]}, "finishReason": "STOP"}]}
    with hostile(reply(good)) as server:
        environ = {"GOOGLE_GEMINI_BASE_URL": server.url.removesuffix("/v1") + tail, "GOOGLE_API_KEY": CANARY}
        live = registry.connect_live("gemini", environ=environ)
        assert isinstance(live.ask("generateContent", "gemini-x/../y", BODY, 5.0), Answered)
        live.close()
    version = tail or "/v1beta"
    assert server.requests[0].path == f"{version}/models/gemini-x%2F..%2Fy:generateContent"
    assert server.requests[0].headers["x-goog-api-key"] == CANARY


def test_a_provider_without_live_calls_says_so() -> None:
    """With the names of those that have them."""
    with pytest.raises(UsageError) as caught:
        registry.connect_live("vertex", environ={})
    assert "ollama" in (caught.value.hint or "")
