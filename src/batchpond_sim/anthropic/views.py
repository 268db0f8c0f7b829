"""How a simulated Anthropic refuses: error bodies in its words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from batchpond_sim.anthropic.answers import CREDIT_TEXT
from batchpond_sim.host.wire import Reply, json_reply
from batchpond_sim.world.limits import Quota, Scarce

STATUS_OF: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TEXTS: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request could not be understood."),
    401: ("authentication_error", "API key is invalid."),
    402: ("billing_error", CREDIT_TEXT),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "The requested resource could not be found."),
    409: ("conflict_error", "The request conflicts with another one."),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit. Please try again later."),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}
_HEAD = b'{"type":"error",'


def error_reply(kind: str, message: str, error_code: str | None = None) -> Reply:
    """Return an API error of a type, with `details` where it has a code."""
    return _error(STATUS_OF[kind], kind, message, error_code)


def _error(status: int, kind: str, message: str, error_code: str | None = None) -> Reply:
    error: dict[str, Any] = {"type": kind, "message": message}
    if error_code is not None:
        error["details"] = {"error_code": error_code}
    return json_reply(status, {"type": "error", "error": error})


def stamped(reply: Reply, request_id: str) -> Reply:
    """Return an answer with its request id in the body, if it is an error."""
    if isinstance(reply.body, bytes) and reply.body.startswith(_HEAD):
        return replace(reply, body=reply.body[:-1] + b',"request_id":"%b"}' % request_id.encode("ascii"))
    return reply


def fault_reply(status: int, kind: str) -> Reply:
    """Return the API error that a fault of `kind` asks for."""
    if kind == "billing" and status == 400:
        return error_reply("invalid_request_error", CREDIT_TEXT)
    if kind == "billing" and status == 429:
        text = "Your organization has reached its spend limit for this month."
        return error_reply("rate_limit_error", text, "enforced_spend_limit_reached")
    return _error(status, *_TEXTS.get(status, ("api_error", "Internal server error")))


def no_batch(batch_id: str) -> Reply:
    """Return the answer about a batch that is not there."""
    return error_reply("not_found_error", f"Message Batch {batch_id} not found.")


def no_results(batch_id: str) -> Reply:
    """Return the answer about results that are not there yet, or no longer."""
    return error_reply("not_found_error", f"Message Batch {batch_id} has no available results.")


def limited_reply(quota: Quota) -> Reply:
    """Return the 429 of a live call that is beyond a limit."""
    what = {Scarce.TOKENS: "input tokens per minute", Scarce.CONCURRENT: "concurrent connections"}
    about = what.get(quota.scarce, "requests per minute") if quota.scarce else "requests per minute"
    text = f"This request would exceed your organization's rate limit of {about} (model: {quota.model})."
    return error_reply("rate_limit_error", text)


def limit_headers(quota: Quota, now_s: float) -> tuple[tuple[str, str], ...]:
    """Return how a call stands with its limits; the kinds of tokens share one bucket here."""
    found: list[tuple[str, str]] = []
    windows = {"requests": quota.requests, "tokens": quota.tokens, "input-tokens": quota.tokens}
    for name, window in windows.items():
        if window is not None:
            reset = datetime.fromtimestamp(math.ceil(now_s + window.reset_s), UTC)
            found += [
                (f"anthropic-ratelimit-{name}-limit", str(window.per_minute)),
                (f"anthropic-ratelimit-{name}-remaining", str(int(window.remaining))),
                (f"anthropic-ratelimit-{name}-reset", reset.strftime("%Y-%m-%dT%H:%M:%SZ")),
            ]
    if quota.scarce is not None:
        found.append(("retry-after", str(max(1, math.ceil(quota.retry_s)))))
    return tuple(found)
