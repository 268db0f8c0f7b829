"""Ollama's native chat, on this machine, another one, or its cloud.

Shapes: ollama 0.6.3 `_client.py` (addresses, Authorization), `_types.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from batchpond import fields
from batchpond.errors import ProviderError
from batchpond.providers.base import LiveStart, live_descriptor
from batchpond.providers.ollama.body import CHAT, accepted_thinking, build_body, endpoint_for, payload_line
from batchpond.providers.ollama.lines import read_answer, read_line
from batchpond.providers.shared import rates
from batchpond.providers.shared.live import LiveApi, LiveWire

__all__ = [
    "DESCRIPTOR",
    "LIVE",
    "Ollama",
    "accepted_thinking",
    "build_body",
    "caveats",
    "endpoint_for",
    "payload_line",
    "read_answer",
    "read_line",
]

DESCRIPTOR: Final = live_descriptor(
    "ollama",
    "http://127.0.0.1:11434",
    "OLLAMA_HOST",
    ("OLLAMA_API_KEY",),
    CHAT,
    is_free=True,
    needs_key=False,
    live_concurrency=4,
    is_one_model_at_a_time=True,
    default_port=11_434,
    takes_schema=True,
    caveats=(
        "Ollama loads a model anew whenever the context (num_ctx) changes: it is 8,192 tokens or the next power of two"
        " that holds the prompt; give the parameter num_ctx to fix it",
        "Ollama before October 2025 cuts a prompt that is too long and says nothing; newer ones refuse it",
        "models that Ollama has in memory are unloaded before another one is asked",
    ),
    notes=(
        "addresses, key: ollama 0.6.3 _client.py; prices: one's own machine, or a subscription to the cloud",
        "truncate, shift: ollama#12888; cut prompts: ollama#17427, ollama#18399",
    ),
)

_NOT_THERE: Final = frozenset({400, 404})
_MODELS_MAX: Final = 10_000


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before it is asked."""
    if model.endswith("-cloud"):
        return (f"{model} runs in Ollama's cloud: prompts leave this machine, and the account's limits hold",)
    return ()


class Ollama(LiveWire):
    """The wire of Ollama's native chat; OLLAMA_HOST is read in all of its forms, as the SDK does."""

    def address(self, endpoint: str, request_model: str) -> tuple[str, None]:  # noqa: ARG002
        """Return the path of an endpoint, which is the endpoint."""
        return endpoint, None

    def start(self, request_model: str) -> LiveStart:
        """Check that the model is there, and unload all others, so that it gets the memory.

        Raises ProviderError when nothing answers, and for a model that was not pulled.
        """
        answer = self._http.request_json("GET", "/api/tags")
        wanted = _full(request_model)
        if wanted not in _names(answer.json) and not self._knows(request_model):
            raise ProviderError(
                f"Ollama at {self.host} has no model {request_model!r}", hint=f"run `ollama pull {request_model}`"
            )
        self._unload_all_but(wanted)
        return self.started(answer)

    def _knows(self, model: str) -> bool:
        """Whether a model is there though it is not listed, as those of the cloud are not."""
        return self._http.request_json("POST", "/api/show", payload={"model": model}, allow=_NOT_THERE).is_success

    def _unload_all_but(self, wanted: str) -> None:
        loaded = self._http.request_json("GET", "/api/ps", allow=_NOT_THERE)  # the cloud has no memory to show
        for name in _names(loaded.json):
            if name != wanted:
                self._http.request_json(
                    "POST", "/api/generate", payload={"model": name, "keep_alive": 0}, allow=_NOT_THERE
                )


LIVE: Final = LiveApi(DESCRIPTOR, rates.NONE, models_path="/api/tags", request_id_headers=(), wire=Ollama)


def _names(listing: object) -> set[str]:
    return set(_named(listing))


def _named(listing: object) -> Iterator[str]:
    for row in map(fields.mapping, fields.sequence(fields.mapping(listing).get("models"), _MODELS_MAX)):
        for member in ("name", "model"):
            if name := fields.identifier(row.get(member)):
                yield _full(name)


def _full(model: str) -> str:
    """Return a model's name with its tag, `latest` where it has none."""
    return model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"
