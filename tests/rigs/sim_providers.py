"""The simulated providers as tests see them: where they are, what their models are called, how a create looks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx

ROOT = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Simulated:
    """One provider on this machine."""

    name: str
    path: str
    url_env: str
    key_env: str
    models: tuple[str, str]
    create_ending: str
    has_files: bool
    has_token: bool

    @property
    def base_url(self) -> str:
        """Where its API is."""
        return f"{ROOT}{self.path}"

    def is_create(self, request: httpx.Request) -> bool:
        """Whether a request would make a batch."""
        return (
            request.method == "POST"
            and request.url.path.startswith(f"{self.path}/")
            and request.url.path.endswith(self.create_ending)
        )


SIMULATED: Mapping[str, Simulated] = {
    provider.name: provider
    for provider in (
        Simulated("openai", "/openai/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY", ("gpt-4.1-mini", "gpt-4o"),
                  "/batches", has_files=True, has_token=True),
        Simulated("anthropic", "/anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY",
                  ("claude-haiku-4-5", "claude-sonnet-4-6"), "/messages/batches", has_files=False, has_token=False),
        Simulated("gemini", "/gemini", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY",
                  ("gemini-2.5-flash-lite", "gemini-2.5-flash"), ":batchGenerateContent", has_files=True,
                  has_token=True),
        Simulated("vertex", "/vertex", "GOOGLE_VERTEX_BASE_URL", "GOOGLE_OAUTH_ACCESS_TOKEN",
                  ("publishers/google/models/gemini-2.5-flash-lite", "publishers/google/models/gemini-2.5-flash"),
                  "/batchPredictionJobs", has_files=True, has_token=True),
        Simulated("together", "/together", "TOGETHER_BASE_URL", "TOGETHER_API_KEY",
                  ("meta-llama/Llama-3.3-70B-Instruct-Turbo", "Qwen/Qwen3.5-9B"), "/batches", has_files=True,
                  has_token=False),
        Simulated("groq", "/groq/openai/v1", "GROQ_BASE_URL", "GROQ_API_KEY",
                  ("openai/gpt-oss-20b", "openai/gpt-oss-120b"), "/batches", has_files=True, has_token=True),
        Simulated("mistral", "/mistral/v1", "MISTRAL_BASE_URL", "MISTRAL_API_KEY",
                  ("mistral-small-2603", "ministral-8b-2512"), "/batch/jobs", has_files=True, has_token=True),
        Simulated("xai", "/xai/v1", "XAI_BASE_URL", "XAI_API_KEY", ("grok-4.3", "grok-4.20"), "/batches",
                  has_files=True, has_token=True),
    )
}  # fmt: skip


@dataclass(frozen=True)
class SimulatedLive:
    """One live endpoint on this machine: where it is, and a call to it without the question."""

    name: str
    path: str
    url_env: str
    key_env: str
    model: str
    ask_ending: str

    @property
    def base_url(self) -> str:
        """Where its API is."""
        return f"{ROOT}{self.path}"

    def is_ask(self, request: httpx.Request) -> bool:
        """Whether a request would be answered by a model."""
        path = request.url.path
        return request.method == "POST" and path.startswith(f"{self.path}/") and path.endswith(self.ask_ending)


LIVE: Mapping[str, SimulatedLive] = {
    endpoint.name: endpoint
    for endpoint in (
        *(
            SimulatedLive(name, batch.path, batch.url_env, batch.key_env, batch.models[0], ending)
            for name, ending in (
                ("openai", "/chat/completions"), ("anthropic", "/v1/messages"), ("gemini", ":generateContent"),
                ("together", "/v1/chat/completions"),
            )
            for batch in (SIMULATED[name],)
        ),
        SimulatedLive("ollama", "/ollama", "OLLAMA_HOST", "OLLAMA_API_KEY", "llama3.2", "/api/chat"),
        SimulatedLive("compatible", "/compatible/v1", "VLLM_BASE_URL", "VLLM_API_KEY", "tiny-random",
                      "/chat/completions"),
    )
}  # fmt: skip
"""Every endpoint with live calls; `SIMULATED` has those with batches."""


def environ(key: str, urls: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that points every provider at its simulator, but for the `urls` given by name."""
    found: dict[str, str] = {}
    for provider in SIMULATED.values():
        found[provider.key_env] = key
        found[provider.url_env] = (urls or {}).get(provider.name, provider.base_url)
    return found


def provider_of(model: str) -> str:
    """Return whose model it is."""
    beginnings = {
        "gpt": "openai",
        "claude": "anthropic",
        "gemini": "gemini",
        "mistral": "mistral",
        "ministral": "mistral",
        "grok": "xai",
    }
    if model.startswith("publishers/google/"):
        return "vertex"
    if model.startswith("openai/"):
        return "groq"
    return "together" if "/" in model else beginnings[model.split("-", maxsplit=1)[0]]


def acknowledged_id(answer: httpx.Response) -> str | None:
    """Return the batch id that an answer to a create acknowledges."""
    if answer.status_code not in (200, 201):
        return None
    try:
        body = json.loads(answer.read())
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    if isinstance(job := body.get("job"), dict):
        return str(job["id"])
    if "batch_id" in body or body.get("object") == "batch" or body.get("type") == "message_batch":
        return str(body.get("batch_id") or body["id"])
    is_google = str(body.get("name", "")).rpartition("/")[0].endswith(("batches", "/batchPredictionJobs"))
    return str(body["name"]) if is_google else None


def bare_id(batch_id: str | None) -> str:
    """Return a batch id as the simulators' ledger has it, without the collection that Google puts before it."""
    return (batch_id or "").rpartition("/")[2]


def one_model_each(names: Sequence[str] = tuple(SIMULATED)) -> tuple[str, ...]:
    """Return a model of each provider."""
    return tuple(SIMULATED[name].models[0] for name in names)
