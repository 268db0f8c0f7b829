"""Live calls of every provider: one POST each, and what its answer comes to.

Answered   a 2xx with a whole JSON object, and a 4xx that is about this request alone
Deferred   nothing was sent, or the provider says "not now": 408, 409, 425, 429, 498, 529, an own 500 or 503
Doubtful   whatever is not whole or not the provider's: a body cut short, a web page, 502, 504
raised     what every further call would meet too: a refused key, an empty account, a missing model, a redirect
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from batchpond import fields
from batchpond.clock import Clock
from batchpond.errors import AccessError, BatchpondError
from batchpond.model import ErrorClass
from batchpond.providers.base import (
    LIVE_CONNECTIONS,
    NO_HINTS,
    Answered,
    Deferred,
    Descriptor,
    Doubtful,
    LiveAnswer,
    LiveStart,
    RateHints,
)
from batchpond.providers.http import keys
from batchpond.providers.http.client import Broken, HttpClient, HttpLimits, Unsent
from batchpond.providers.http.errors import Answer, ApiError, Fault, HttpError, Shape, classify, read_any, redirect_host
from batchpond.providers.http.retry import RetryPolicy
from batchpond.providers.shared import wire as common
from batchpond.providers.shared.lines import load_answer
from batchpond.providers.shared.rates import RateNames, read_hints
from batchpond.text import redact

SIMULATOR_HEADER: Final = "x-batchpond-simulator"
_START_RETRIES: Final = RetryPolicy(attempts=3, total_s=60.0)
_NO_LISTING: Final = frozenset({400, 404, 405, 500, 501})  # 500: `transformers serve` with a model of one's own
_SHARED: Final = frozenset({429, 503, 529})
_NOT_NOW: Final = frozenset({408, 409, 425, 429, 498, 529})  # 498: Groq's flex tier is full
_NOT_THERE: Final = frozenset({404, 405, 410, 501})
# A request that is larger than the account's whole minute never gets through, though the status says "wait".
_NEVER_FITS: Final = re.compile(r"(?i)request too large|must be reduced in order to run")
_ACCESS_HINT: Final = "check it with `batchpond keys --check`; what was answered is kept"
_BILLING_HINT: Final = "add credit at the provider, then run the same command: what was answered is kept"


class LiveWire(common.Wire):
    """The wire of one provider's live calls; `ask` may be called by many threads at once.

    Here an endpoint such as `/v1/chat/completions` is a path below a base URL that ends in its version, as
    OpenAI's does; others override `address`.
    """

    def __init__(self, api: LiveApi, http: HttpClient, clock: Clock) -> None:
        super().__init__(http, clock)
        self.descriptor = api.descriptor
        self._api = api

    def address(self, endpoint: str, request_model: str) -> tuple[str, Mapping[str, str] | None]:  # noqa: ARG002
        """Return the path below the base URL of an endpoint, and headers that it needs."""
        return endpoint.removeprefix("/v1"), None

    def start(self, request_model: str) -> LiveStart:  # noqa: ARG002  # few servers list all that they serve
        """List models, which is free, and return the scope; a server that has no such list is taken as it is.

        Raises AccessError when the key is refused, ProviderError when nothing answers.
        """
        api = self._api
        answer = self._http.request_json("GET", api.models_path, allow=_NO_LISTING, shape=api.models_shape)
        if not answer.is_success and _reason_to_stop(answer, read_any(answer.json)) is ErrorClass.ACCESS:
            raise self._stopped(answer, Stop(ErrorClass.ACCESS), f"GET {api.models_path}", "")
        return self.started(answer)

    def check(self) -> str:
        """Make one free call and return the scope that the key belongs to."""
        return LiveWire.start(self, "").scope

    def started(self, answer: Answer) -> LiveStart:
        """Return what the headers of a first answer say: the account, and whether a simulator speaks."""
        scope = common.scope(self.descriptor.name, self.host, answer.headers, self.descriptor.scope_headers)
        return LiveStart(scope, answer.headers.get(SIMULATOR_HEADER) == "1")

    def ask(self, endpoint: str, request_model: str, body: bytes, deadline_s: float) -> LiveAnswer:
        """Send exactly one POST and classify what came back.

        Raises AccessError when the key is refused, and ProviderError for what every further call would
        meet too: no credit, no such model, no such address, an invalid certificate.
        """
        path, headers = self.address(endpoint, request_model)
        result = self._http.ask(path, body, deadline_s, headers)
        match result:
            case Unsent():
                return Deferred(result.detail, is_shared=not result.is_own)
            case Broken():
                return Doubtful(result.detail)
            case Fault():
                raise HttpError(f"POST {path} at {self.host} failed: {redact(result.detail)}")
            case Answer():
                return self._judged(result, path, request_model)

    def _judged(self, answer: Answer, path: str, request_model: str) -> LiveAnswer:
        now = self._clock.now()
        hints = read_hints(answer.headers, self._api.rates, now)
        found = judge(answer, now, hints)
        match found:
            case Stop():
                raise self._stopped(answer, found, f"POST {path}", request_model)
            case Answered():
                request_id = next(filter(None, map(answer.headers.get, self._api.request_id_headers)), None)
                return Answered(found.status_code, found.body, request_id, hints)
            case _:
                return found

    def _stopped(self, answer: Answer, stop: Stop, call: str, request_model: str) -> BatchpondError:
        said = f"{call} at {self.host} answered {answer.status_code}: {_excerpt(answer)}"
        match stop.error_class:
            case ErrorClass.ACCESS:
                return AccessError(f"{self._http.key_name} was refused: {said}", hint=_ACCESS_HINT)
            case ErrorClass.BILLING:
                hint = _BILLING_HINT
            case ErrorClass.MODEL_GONE:
                said = f"{self.host} does not serve {request_model!r}: {said}"
                hint = f"check the model's name, and {self.descriptor.base_url_env} if it is set"
            case _:
                location = answer.headers.get("location")
                said += f" (to {redirect_host(self._http.base_url, location)}, not followed)" if location else ""
                hint = f"check {self.descriptor.base_url_env}: the address of the API, not of a page before it"
        code = (read_any(answer.json) or ApiError("")).code
        return HttpError(said, hint=hint, status_code=answer.status_code, error_class=stop.error_class, code=code)


def _as_it_is(base_url: str, environ: Mapping[str, str]) -> str:  # noqa: ARG001
    return base_url


@dataclass(frozen=True, slots=True)
class LiveApi:
    """What tells one provider's live calls from another's, beside its descriptor; header names are lower case.

    `models_path` is what a first free call gets. `base_of` returns what endpoints are below, by the base URL that the
    user gave and the environment; `wire` is what makes the calls.
    """

    descriptor: Descriptor
    rates: RateNames
    models_path: str = "/models"
    models_shape: Shape = dict
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    base_of: Callable[[str, Mapping[str, str]], str] = _as_it_is
    wire: type[LiveWire] = LiveWire

    def connect(
        self,
        clock: Clock,
        *,
        transport: Any = None,
        environ: Mapping[str, str] = os.environ,
        base_url: str | None = None,
        max_connections: int = LIVE_CONNECTIONS,
    ) -> LiveWire:
        """Return the wire for the environment's key and base URL.

        Raises AccessError when a key is needed and there is none, UsageError when no variable says where
        the server is. `transport` replaces the network.
        """
        url, access = keys.resolve_live(self.descriptor, environ, base_url=base_url)
        http = HttpClient(
            self.base_of(url, environ),
            keys.headers(self.descriptor, access, environ),
            clock,
            transport,
            key_name=keys.name_of(self.descriptor, access),
            limits=HttpLimits(max_connections=max_connections),
            retries=_START_RETRIES,
        )
        return self.wire(self, http, clock)


@dataclass(frozen=True, slots=True)
class Stop:
    """An answer after which no further call makes sense."""

    error_class: ErrorClass


def judge(answer: Answer, now: datetime, hints: RateHints = NO_HINTS) -> LiveAnswer | Stop:
    """Return what a whole HTTP answer to a live call comes to; see the table at the top of this module."""
    status_code = answer.status_code
    if answer.is_success:
        found = answer.json if isinstance(answer.json, dict) else load_answer(answer.body)
        if isinstance(found, dict):
            return Answered(status_code, answer.body, None, hints)
        return Doubtful(f"HTTP {status_code} without a whole JSON object: {found}: {_excerpt(answer)}")
    error = read_any(answer.json)
    stop = _reason_to_stop(answer, error)
    if stop is not None:
        return Stop(stop)
    if _is_not_now(answer, error):
        wait_s = answer.retry_after_s(now)
        reason = f"HTTP {status_code}: {_excerpt(answer)}"
        return Deferred(reason, status_code, wait_s, is_shared=status_code in _SHARED, hints=hints)
    if 400 <= status_code <= 499:
        return Answered(status_code, answer.body, None, hints)
    return Doubtful(f"HTTP {status_code} is no definite answer: {_excerpt(answer)}")


def _reason_to_stop(answer: Answer, error: ApiError | None) -> ErrorClass | None:
    status_code = answer.status_code
    if 300 <= status_code <= 399:
        return ErrorClass.PERMANENT
    error_class = classify(status_code, error or ApiError(""))
    if error_class is ErrorClass.ACCESS:
        is_about_text = status_code == 403 and (error is None or _is_moderated(answer.json))
        return None if is_about_text else ErrorClass.ACCESS
    if status_code in _NOT_THERE or status_code == 403:
        return ErrorClass.MODEL_GONE
    return error_class if error_class in (ErrorClass.BILLING, ErrorClass.MODEL_GONE) else None


def _is_not_now(answer: Answer, error: ApiError | None) -> bool:
    status_code = answer.status_code
    if status_code in _NOT_NOW:
        return not (error and _NEVER_FITS.search(error.message))
    if status_code == 403:  # a firewall before the API: not a word of it is the provider's
        return error is None
    if status_code == 503 and "retry-after" in answer.headers:
        return True
    return status_code in (500, 503) and _is_own(answer.json)


def _is_moderated(body: object) -> bool:
    """Whether a 403 is about the text and not the key, as OpenRouter's moderation says it."""
    metadata = fields.mapping(fields.mapping(fields.mapping(body).get("error")).get("metadata"))
    return bool(metadata.keys() & {"flagged_input", "reasons"})


def _is_own(body: object) -> bool:
    """Whether an error is the API's own: gateways write pages, or a bare `message`."""
    found = fields.mapping(body)
    return bool(found.get("error") or found.get("detail")) or found.get("object") == "error"


def _excerpt(answer: Answer) -> str:
    error = read_any(answer.json)
    return " ".join(redact(error.message).split())[:200] if error else answer.excerpt()
