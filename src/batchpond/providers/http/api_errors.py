"""What a provider's error means: one classification for HTTP answers and for result lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from batchpond import fields
from batchpond.model import ErrorClass

MESSAGE_LIMIT: Final = 4_000
_DETAILS_MAX: Final = 100

# Codes and types seen in the providers' documentation, SDKs and recorded traffic.
_BILLING: Final = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
        "linked_organization_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "insufficient_funds",
        "payment_required",
        "access_terminated",
    }
)
_BILLING_TEXT: Final = re.compile(
    r"(?i)credit balance is too low|exceeded your current quota|billing hard limit"
    r"|reached your specified (?:workspace )?api usage limits|enable billing|billing must be enabled"
    r"|insufficient (?:balance|credits?|funds)|out of credits|(?:any|no) credits (?:yet|left)"
)
# Google answers 429 RESOURCE_EXHAUSTED with "exceeded your current quota" for rates that pass by themselves.
_GOOGLE_RATE: Final = "resource_exhausted"
_GOOGLE_BILLING_TEXT: Final = re.compile(r"(?i)prepayment credits|spend(?:ing)? cap")
_MODEL_GONE: Final = frozenset(
    {"model_not_found", "model_deprecated", "model_not_available", "model_retired", "deprecated_model"}
)
_MODEL_GONE_TEXT: Final = re.compile(r"(?i)\bmodels/\S+ is (?:not found|no longer available)")
_MAYBE_GONE_TEXT: Final = re.compile(r"(?i)or it may not exist")
_ACCESS: Final = frozenset(
    {
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "permission_denied",
        "invalid_organization",
        "mismatched_organization",
        "account_deactivated",
        "organization_on_hold",
        "unsupported_country_region_territory",
        "api_key_invalid",
        "api_key_service_blocked",
        "consumer_suspended",
        "service_disabled",
        "unauthenticated",
    }
)
_ACCESS_TEXT: Final = re.compile(
    r"(?i)api key not valid|api key expired|incorrect api key|invalid api key|user location is not supported"
)
_TRANSIENT: Final = frozenset(
    {
        "rate_limit_exceeded",
        "resource_exhausted",
        "rate_limit_error",
        "request_timeout",
        "timeout",
        "timeout_error",
        "server_error",
        "internal",
        "internal_error",
        "internal_server_error",
        "api_error",
        "overloaded",
        "overloaded_error",
        "engine_overloaded",
        "slow_down",
        "service_unavailable",
        "unavailable",
        "token_limit_exceeded",
        "resource_unavailable",
    }
)
_TRANSIENT_TEXT: Final = re.compile(
    r"(?i)an error occurred while processing your request|temporarily unavailable|please try again"
)
_TRANSIENT_STATUS: Final = frozenset({0, 408, 409, 425, 429, 499})
_NOT_RUN: Final = {
    "batch_expired": ErrorClass.EXPIRED,
    "batch_cancelled": ErrorClass.CANCELLED,
    "batch_canceled": ErrorClass.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class ApiError:
    """A provider's error in its own words; `code` falls back on `details.error_code`, then on `type`.

    Google's has its word in `status`, which is the `code` here; its reason is the `kind`, and
    `retry_delay` the time it asks to wait ("34s").
    """

    message: str
    code: str | None = None
    kind: str | None = None
    retry_delay: str | None = None


def read_envelope(body: object) -> ApiError | None:
    """Return the error of a `{"error": {"message": ...}}` body, else None.

    Only this shape counts as the provider's own words; `{"detail": ...}` and plain text do not.
    """
    error = fields.mapping(body).get("error")
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return read_error(error)


def read_any(body: object) -> ApiError | None:
    """Return the error of a body in any shape that servers send, None for what is no error.

    Besides `read_envelope`'s: `{"error": "text", "code": ...}` (xAI, Ollama, Together), `{"detail": "text"}` or a
    list of `{msg, loc}` (FastAPI, Mistral), `{"object": "error", "message": ...}` and `{"message": ...}`.
    """
    found = fields.mapping(body)
    error, detail = found.get("error"), found.get("detail")
    if isinstance(error, dict):
        return read_error(error)
    if isinstance(error, str) and error:
        return ApiError(error[:MESSAGE_LIMIT], fields.word(found.get("code")), fields.word(found.get("type")))
    if isinstance(detail, dict):
        return read_any(detail) or read_error(detail)
    if isinstance(detail, str) and detail:
        return ApiError(detail[:MESSAGE_LIMIT])
    if isinstance(detail, list):
        said = [fields.text(fields.mapping(row).get("msg")) or "" for row in detail[:_DETAILS_MAX]]
        return ApiError("; ".join(filter(None, said))[:MESSAGE_LIMIT] or "the request is not valid")
    return read_error(found) if isinstance(found.get("message"), str) else None


def read_error(error: dict[str, object]) -> ApiError:
    """Return an error object made uniform, whatever its members hold."""
    message = (fields.text(error.get("message")) or "")[:MESSAGE_LIMIT]
    kind = fields.word(error.get("type"))
    if isinstance(error.get("status"), str) and not isinstance(error.get("code"), str):
        return _read_google(error, message, kind)
    detail = fields.word(fields.mapping(error.get("details")).get("error_code"))
    return ApiError(message, fields.word(error.get("code")) or detail or kind, kind)


def _read_google(error: dict[str, object], message: str, kind: str | None) -> ApiError:
    """Read a google.rpc.Status as JSON, with the ErrorInfo and RetryInfo among its details."""
    details = [fields.mapping(detail) for detail in fields.sequence(error.get("details"), _DETAILS_MAX)]
    reason = next((word for detail in details if (word := fields.word(detail.get("reason")))), kind)
    delay = next((word for detail in details if (word := fields.word(detail.get("retryDelay")))), None)
    return ApiError(message, fields.word(error.get("status")) or fields.word(error.get("code")), reason, delay)


def says_maybe_gone(status_code: int | None, error: ApiError) -> bool:
    """Return whether this is Google's 403 for what may be gone: it does not tell that from forbidden."""
    return status_code == 403 and _MAYBE_GONE_TEXT.search(error.message) is not None


def classify(status_code: int | None, error: ApiError) -> ErrorClass:
    """Return what kind of failure this is; what is not known to pass is PERMANENT.

    Codes are looked at before the status: a 403 for a retired model and a 429 for an empty
    account are neither access nor rate limits.
    """
    words = {error.code.lower() if error.code else "", error.kind.lower() if error.kind else ""}
    if error.code is not None and (not_run := _NOT_RUN.get(error.code.lower())):
        return not_run
    if words & _BILLING or status_code == 402 or _is_about_money(words, error.message):
        return ErrorClass.BILLING
    if words & _MODEL_GONE or (status_code == 404 and _MODEL_GONE_TEXT.search(error.message)):
        return ErrorClass.MODEL_GONE
    if status_code is None and error.code is not None and error.code.isascii() and error.code.isdigit():
        status_code = int(error.code[:4])  # some servers put the HTTP status there
    is_access = status_code in (401, 403) or words & _ACCESS or _ACCESS_TEXT.search(error.message)
    if is_access and not says_maybe_gone(status_code, error):
        return ErrorClass.ACCESS
    is_transient_status = status_code is not None and (status_code in _TRANSIENT_STATUS or status_code >= 500)
    if is_transient_status or words & _TRANSIENT or _TRANSIENT_TEXT.search(error.message):
        return ErrorClass.TRANSIENT
    return ErrorClass.PERMANENT


def _is_about_money(words: set[str], message: str) -> bool:
    text = _GOOGLE_BILLING_TEXT if _GOOGLE_RATE in words else _BILLING_TEXT
    return text.search(message) is not None
