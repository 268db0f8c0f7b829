"""What the last answer of a call comes to: the answer, or the error that says what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from batchpond.errors import AccessError, ProviderError
from batchpond.model import ErrorClass
from batchpond.providers.http.answers import Answer
from batchpond.providers.http.api_errors import ApiError, classify
from batchpond.providers.http.retry import Again
from batchpond.text import redact

_ACCESS_HINT: Final = "check it with `batchpond keys --check`"
_LATER_HINT: Final = "run the same command again later; it goes on where this one stopped"
_PROXY_HINT: Final = "a proxy or login page may have answered; try the same address in a browser"


Shape = type[dict[str, Any]] | type[list[Any]]
"""What a successful answer must be: a JSON object, or an array."""


class HttpError(ProviderError):
    """A call that failed for good, with what the provider said about it."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        status_code: int | None = None,
        error_class: ErrorClass = ErrorClass.TRANSIENT,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status_code = status_code
        self.error_class = error_class
        self.code = code
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of the transport that asking again would not change."""

    detail: str


@dataclass(frozen=True, slots=True)
class Place:
    """Which call this is about, for messages."""

    call: str
    base_url: str
    key_name: str


def error_class_of(answer: Answer) -> ErrorClass:
    """Return the class of an answer that is not a success, from its envelope if it has one."""
    return classify(answer.status_code, answer.error or ApiError(""))


def final(result: object, place: Place, allow: frozenset[int], shape: Shape = dict) -> Answer:
    """Return a usable answer: 2xx with a JSON object (or array), or a status in `allow`; raise for all else.

    An answer that refuses the key is never allowed, whatever its status.
    """
    match result:
        case Answer(status_code=status_code) if status_code in allow and error_class_of(result) != ErrorClass.ACCESS:
            return result
        case Answer(is_success=True) if isinstance(result.json, shape):
            return result
        case Answer():
            raise _refusal(result, place, shape)
        case Again():
            message = f"{place.call} failed: {result.reason}: {redact(result.detail)}"
            raise HttpError(message, hint=_LATER_HINT, status_code=result.status_code, retry_after_s=result.after_s)
        case Fault():
            raise HttpError(f"{place.call} failed: {redact(result.detail)}", error_class=ErrorClass.PERMANENT)
        case _:
            raise TypeError(f"{place.call} came to {type(result).__name__}")


def _refusal(answer: Answer, place: Place, shape: Shape) -> AccessError | HttpError:
    status_code = answer.status_code
    if answer.is_success:
        wanted = "object" if shape is dict else "array"
        message = f"{place.call} answered {status_code} without a JSON {wanted}: {answer.excerpt()}"
        return HttpError(message, hint=_PROXY_HINT, status_code=status_code)
    if 300 <= status_code <= 399:
        host = redirect_host(place.base_url, answer.headers.get("location", ""))
        message = f"{place.call} answered {status_code}, a redirect to {host}, which is not followed"
        hint = f"if {place.key_name} may go to {host}, make that the base URL"
        return HttpError(message, hint=hint, status_code=status_code, error_class=ErrorClass.PERMANENT)
    error_class = error_class_of(answer)
    message = f"{place.call} answered {status_code}: {answer.excerpt()}"
    if error_class is ErrorClass.ACCESS:
        return AccessError(f"{place.key_name} was refused: {message}", hint=_ACCESS_HINT)
    advice = "add credit at the provider, then run the same command" if error_class is ErrorClass.BILLING else None
    code = answer.error.code if answer.error else None
    return HttpError(message, hint=advice, status_code=status_code, error_class=error_class, code=code)


def redirect_host(base_url: str, location: str) -> str:
    """Return the host that a redirect names, for a message."""
    try:
        return urlsplit(urljoin(base_url, location)).hostname or "nowhere"
    except ValueError:
        return "an unreadable address"
