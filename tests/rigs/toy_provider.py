"""A provider module of the smallest kind, for tests of what comes before any provider."""

from __future__ import annotations

from typing import Any

from batchpond.errors import UsageError
from batchpond.model import FileRole, Mode, Response, ResponseStatus
from batchpond.providers.base import Descriptor
from batchpond.providers.shared.dialect import BuiltBody, ModelSettings

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


class ToyModule:
    """Puts the prompt where chat APIs put it; refuses thinking "high" and leaves out a temperature.

    `is_odd` makes the body depend on the prompt's length, so that it cannot be spliced.
    """

    def __init__(self, *, is_odd: bool = False, max_requests: int = 50_000, max_bytes: int = 200_000_000) -> None:
        self.is_odd = is_odd
        self.DESCRIPTOR = Descriptor(
            name="toy",
            default_base_url="http://127.0.0.1:1",
            base_url_env="TOY_BASE_URL",
            key_env=("TOY_API_KEY",),
            endpoints=(CHAT, RESPONSES),
            max_requests=max_requests,
            max_bytes=max_bytes,
            list_page_size=100,
            create_deadline_s=1.0,
            settle_s=1.0,
            results_retention_days=30,
            has_token=True,
            caveats=("answers are toys",),
            modes=(Mode.BATCH, Mode.FILES),
        )

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG002
        """Return responses for thoughts and for pro models, chat otherwise."""
        return RESPONSES if include_thoughts or model.endswith("-pro") else CHAT

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return a caveat for one model."""
        return (f"{model} is a toy",) if model == "not-a-model" else ()

    def build_body(self, prompt: str, settings: ModelSettings) -> BuiltBody:
        """Return a chat body."""
        if settings.thinking == "high":
            raise UsageError(f"{settings.request_model} does not think that high")
        body: dict[str, Any] = {
            "model": settings.request_model,
            "messages": [{"role": "user", "content": prompt}],
            **(settings.parameters or {}),
        }
        if settings.thinking is not None:
            body["reasoning_effort"] = settings.thinking
        if settings.max_output_tokens is not None:
            body["max_completion_tokens"] = settings.max_output_tokens
        if self.is_odd:
            body["n_characters"] = len(prompt)
        return BuiltBody(body, ("temperature",) if settings.temperature is not None else ())

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return a batch line."""
        return b'{"custom_id":"%s","url":"%s","body":%s}' % (custom_id.encode(), endpoint.encode(), body)

    def read_line(self, line: bytes, role: FileRole) -> Response:
        """Return an unreadable response: no test here reads answers."""
        return Response(custom_id=None, status=ResponseStatus.UNREADABLE, error_message=f"{role}: {line!r}")


def modules(name: str) -> ToyModule:
    """Return the toy for any provider's name."""
    return ToyModule()
