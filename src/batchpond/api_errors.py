"""What a provider's error means: one classification for HTTP answers and for result lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from batchpond import fields
from batchpond.model import ErrorClass

MESSAGE_LIMIT: Final = 4_000

# Codes and types seen in OpenAI's documentation, SDK and recorded traffic.
_BILLING: Final = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "enforced_spend_limit_reached",
        "insufficient_funds",
        "payment_required",
        "access_terminated",
    }
)
_BILLING_TEXT: Final = re.compile(r"(?i)credit balance is too low|exceeded your current quota|billing hard limit")
_MODEL_GONE: Final = frozenset(
    {"model_not_found", "model_deprecated", "model_not_available", "model_retired", "deprecated_model"}
)
_ACCESS: Final = frozenset(
    {
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "permission_denied",
        "invalid_organization",
        "mismatched_organization",
        "account_deactivated",
        "unsupported_country_region_territory",
    }
)
_TRANSIENT: Final = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "request_timeout",
        "timeout",
        "server_error",
        "internal_error",
        "internal_server_error",
        "api_error",
        "overloaded",
        "overloaded_error",
        "engine_overloaded",
        "slow_down",
        "service_unavailable",
        "token_limit_exceeded",
        "resource_unavailable",
    }
)
_TRANSIENT_TEXT: Final = re.compile(
    r"(?i)an error occurred while processing your request|temporarily unavailable|please try again"
)
_TRANSIENT_STATUS: Final = frozenset({0, 408, 409, 425, 429})
_NOT_RUN: Final = {
    "batch_expired": ErrorClass.EXPIRED,
    "batch_cancelled": ErrorClass.CANCELLED,
    "batch_canceled": ErrorClass.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class ApiError:
    """A provider's error in its own words; `code` falls back on `type`."""

    message: str
    code: str | None = None
    kind: str | None = None


def read_envelope(body: object) -> ApiError | None:
    """Return the error of a `{"error": {"message": ...}}` body, else None.

    Only this shape counts as the provider's own words; `{"detail": ...}` and plain text do not.
    """
    error = fields.mapping(body).get("error")
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return read_error(error)


def read_error(error: dict[str, object]) -> ApiError:
    """Return an error object made uniform, whatever its members hold."""
    message = fields.text(error.get("message")) or ""
    kind = fields.word(error.get("type"))
    return ApiError(message[:MESSAGE_LIMIT], fields.word(error.get("code")) or kind, kind)


def classify(status_code: int | None, error: ApiError) -> ErrorClass:
    """Return what kind of failure this is; what is not known to pass is PERMANENT.

    Codes are looked at before the status: a 403 for a retired model and a 429 for an empty
    account are neither access nor rate limits.
    """
    words = {error.code.lower() if error.code else "", error.kind.lower() if error.kind else ""}
    if error.code is not None and (not_run := _NOT_RUN.get(error.code.lower())):
        return not_run
    if words & _BILLING or status_code == 402 or _BILLING_TEXT.search(error.message):
        return ErrorClass.BILLING
    if words & _MODEL_GONE:
        return ErrorClass.MODEL_GONE
    if status_code is None and error.code is not None and error.code.isascii() and error.code.isdigit():
        status_code = int(error.code[:4])  # some servers put the HTTP status there
    if status_code in (401, 403) or words & _ACCESS:
        return ErrorClass.ACCESS
    is_transient_status = status_code is not None and (status_code in _TRANSIENT_STATUS or status_code >= 500)
    if is_transient_status or words & _TRANSIENT or _TRANSIENT_TEXT.search(error.message):
        return ErrorClass.TRANSIENT
    return ErrorClass.PERMANENT
