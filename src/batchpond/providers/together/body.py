"""Building Together request bodies and input lines: pure.

Parameters: together 3.1 `types/chat/completion_create_params.py`. Together checks them when a line runs, so what
a model refuses comes back as an errored row.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.shared import known
from batchpond.providers.shared.lines import chat_body, check_endpoint, on_one_line, refused_thinking

CHAT: Final = "/v1/chat/completions"
LINE_BYTES_MAX: Final = 10_000_000
DISCOUNTS: Final = known.table("together", "discounts")

_EFFORTS: Final = ("low", "medium", "high")
_SWITCH: Final = {"none": False, "enabled": True}
_ALWAYS_REASONS: Final = re.compile(r"(?i)openai/gpt-oss-")
_RESERVED: Final = known.table("together", "reserved")


def accepted_thinking(model: str) -> tuple[str, ...]:
    """Return the thinking words that can be sent to a model: an effort, or a switch where it can be turned off."""
    return _EFFORTS if _ALWAYS_REASONS.match(model) else (*_SWITCH, *_EFFORTS)


def caveats(model: str) -> tuple[str, ...]:
    """Return what a person should know about a model before money is spent on it."""
    return () if model in DISCOUNTS else (f"{model}: Together charges its standard price in batches too",)


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the request body for a prompt: `max_tokens`, `temperature`, `reasoning_effort` or `reasoning.enabled`.

    Thoughts come back in any case. Raises UsageError for another endpoint or an unknown thinking word.
    """
    check_endpoint(settings, CHAT)
    return chat_body(prompt, settings, _reasoning(settings), _RESERVED)


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG001  # the endpoint is the batch's
    """Return one line of a batch input file, without its line feed; `body` is used as it is.

    Raises UsageError for a line that Together would not read.
    """
    line = b'{"custom_id":%b,"body":%b}' % (orjson.dumps(custom_id), on_one_line(custom_id, body))
    if len(line) > LINE_BYTES_MAX:
        raise UsageError(
            f"request {custom_id}: its line has {len(line):,} bytes, and Together reads up to {LINE_BYTES_MAX:,}",
            hint="shorten the item's text",
        )
    return line


def _reasoning(settings: ModelSettings) -> dict[str, Any]:
    word = settings.thinking
    if word is None:
        return {}
    accepted = accepted_thinking(settings.request_model)
    if word not in accepted:
        raise refused_thinking(settings, ", ".join(accepted))
    return {"reasoning_effort": word} if word in _EFFORTS else {"reasoning": {"enabled": _SWITCH[word]}}
