"""Live calls of every provider: one POST each, what its answer comes to, and what its headers say of rate limits.

Answered   a 2xx with a whole JSON object, and a 4xx that is about this request alone
Deferred   nothing was sent, or the provider says "not now": 408, 409, 425, 429, 498, 529, some 402, an own 500 or 503
Doubtful   whatever is not whole or not the provider's: a body cut short, a web page, 502, 504
raised     what every further call would meet too: a refused key, an empty account, a missing model, a redirect

Who sends which headers is data of each provider. Sources: [oai] OpenAI's rate-limit guide (durations such as `6m0s`,
`120ms`), Azure's integers and `-1`; [groq] console.groq.com/docs/rate-limits (requests are per day, tokens per
minute); [ant] Anthropic's rate-limit page (resets in RFC 3339); [tog] Together's rate-limit page (both per second);
[or] OpenRouter's error metadata (resets in unix milliseconds); [mis] Mistral, third-party captures that do not agree:
uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from batchpond import fields
from batchpond.clock import Clock
from batchpond.errors import AccessError, BatchpondError
from batchpond.model import ErrorClass
from batchpond.providers import base
from batchpond.providers.base import (
    NO_HINTS,
    Answered,
    Deferred,
    Descriptor,
    Doubtful,
    LiveAnswer,
    LiveStart,
    RateHints,
)
from batchpond.providers.http.client import HttpClient, HttpLimits, ProviderClient
from batchpond.providers.http.errors import (
    Again,
    Answer,
    ApiError,
    Fault,
    HttpError,
    RetryPolicy,
    RetryReason,
    Shape,
    classify,
    duration_s,
    http_date,
    is_of_request,
    number_of,
    own_error,
    read_any,
    redirect_host,
)
from batchpond.providers.shared.lines import load_answer
from batchpond.text import redact

_RESET_MAX_S: Final = 604_800.0
_UNIX_FROM: Final = 1e9  # a number of seconds that large is a date
_COUNT_MAX: Final = 2**53


class Per(StrEnum):
    """What a limit is per, where the headers themselves do not tell."""

    SECOND = "second"
    MINUTE = "minute"
    UNKNOWN = "unknown"


class Names(NamedTuple):
    """The headers of one limit, in lower case: the word `limit`, `remaining` or `reset` stands where `{}` is."""

    pattern: str
    per: Per = Per.MINUTE


@dataclass(frozen=True, slots=True)
class RateNames:
    """Where a provider tells its limits; of several rows the first that an answer has is read."""

    requests: tuple[Names, ...] = ()
    tokens: tuple[Names, ...] = ()


ANY_RATES: Final = msgspec.convert(base.table("shared", "rates"), RateNames)


def read_hints(headers: Mapping[str, str], names: RateNames, now: datetime) -> RateHints:
    """Return what an answer's headers (lower case) say; total: nonsense and `-1` say nothing.

    A reset is the time until the whole limit is there again. One that is a date counts from the answer's own
    `date` where it has one, else from `now`; that of a limit per second follows from the limit, since whole
    seconds say too little. A limit of an unknown window without a reset is left out.
    """
    requests, tokens = (_window(headers, rows, now) for rows in (names.requests, names.tokens))
    return RateHints(*requests, *tokens)


def _window(
    headers: Mapping[str, str], rows: tuple[Names, ...], now: datetime
) -> tuple[int | None, int | None, float | None]:
    for pattern, per in rows:
        limit, left, reset = (headers.get(pattern.format(word)) for word in ("limit", "remaining", "reset"))
        if limit is None and left is None:
            continue
        most, n_left, reset_s = _count(limit) or None, _count(left), _reset_s(reset or "", headers, now)
        if per is Per.SECOND:
            reset_s = None if most is None or n_left is None else max(most - n_left, 1) / most
        return (None if per is Per.UNKNOWN and reset_s is None else most), n_left, reset_s
    return None, None, None


def _count(value: str | None) -> int | None:
    number = number_of(value) if value and value.isascii() else None
    return int(number) if number is not None and 0 <= number <= _COUNT_MAX else None


def _reset_s(value: str, headers: Mapping[str, str], now: datetime) -> float | None:
    seconds = duration_s(value) if value.isascii() else None
    if seconds is None or seconds >= _UNIX_FROM:
        moment = fields.moment(value if seconds is None else seconds)
        if moment is None:
            return None
        seconds = max(0.0, (moment - (http_date(headers.get("date", "")) or now)).total_seconds())
    return min(_RESET_MAX_S, seconds) if seconds >= 0 else None


SIMULATOR_HEADER: Final = "x-batchpond-simulator"
_START_RETRIES: Final = RetryPolicy(attempts=3, total_s=60.0)
_NO_LISTING: Final = frozenset({400, 404, 405, 500, 501})  # 500: `transformers serve` with a model of one's own
_SHARED: Final = frozenset({402, 429, 503, 529})
_NOT_NOW: Final = frozenset({408, 409, 425, 429, 498, 529})  # 498: Groq's flex tier is full
_NOT_THERE: Final = frozenset({404, 405, 410, 501})
_ACCESS_HINT: Final = "check it with `batchpond keys --check`; what was answered is kept"
_BILLING_HINT: Final = "add credit at the provider, then run the same command: what was answered is kept"


Address = tuple[str, Mapping[str, str] | None]
"""The path of a call below the base URL, and headers that it needs."""


class LiveClient(ProviderClient):
    """The client of one provider's live calls; `ask` may be called by many threads at once."""

    def __init__(self, api: LiveApi, http: HttpClient, clock: Clock) -> None:
        super().__init__(http, clock)
        self.descriptor = api.descriptor
        self._api = api

    def start(self, request_model: str) -> LiveStart:  # noqa: ARG002  # few servers list all that they serve
        """List models, which is free, and return the scope; a server that has no such list is taken as it is.

        Raises AccessError when the key is refused, ProviderError when nothing answers.
        """
        api = self._api
        answer = self._http.request_json("GET", api.models_path, allow=_NO_LISTING, shape=api.models_shape)
        if not answer.is_success and _reason_to_stop(answer, read_any(answer.json)) is ErrorClass.ACCESS:
            raise self._stopped(answer, ErrorClass.ACCESS, f"GET {api.models_path}", "")
        return self.started(answer)

    def check(self) -> str:
        """Make one free call and return the scope that the key belongs to."""
        return LiveClient.start(self, "").scope

    def started(self, answer: Answer) -> LiveStart:
        """Return what the headers of a first answer say: the account, and whether a simulator speaks."""
        scope = self.scope_in(answer.headers, self.descriptor.scope_headers)
        return LiveStart(scope, answer.headers.get(SIMULATOR_HEADER) == "1")

    def ask(self, endpoint: str, request_model: str, body: bytes, deadline_s: float) -> LiveAnswer:
        """Send exactly one POST and classify what came back.

        Raises AccessError when the key is refused, and ProviderError for what every further call would
        meet too: no credit, no such model, no such address, an invalid certificate.
        """
        path, headers = self._api.address(endpoint, request_model)
        result = self._http.ask(path, body, deadline_s, headers)
        match result:
            case Again(reason=RetryReason.CONNECT | RetryReason.NO_TURN):
                return Deferred(result.text, is_shared=result.reason is RetryReason.CONNECT)
            case Again():
                return Doubtful(result.text)
            case Fault(is_of_answer=True):
                return Doubtful(result.detail)
            case Fault():
                raise HttpError(f"POST {path} at {self.host} failed: {redact(result.detail)}")
            case Answer():
                return self._judged(result, path, request_model)

    def _judged(self, answer: Answer, path: str, request_model: str) -> LiveAnswer:
        now = self._clock.now()
        found = judge(answer, now, read_hints(answer.headers, self._api.rates, now))
        if isinstance(found, ErrorClass):
            raise self._stopped(answer, found, f"POST {path}", request_model)
        if isinstance(found, Answered):
            request_id = next(filter(None, map(answer.headers.get, self._api.request_id_headers)), None)
            return replace(found, provider_request_id=request_id)
        return found

    def _stopped(self, answer: Answer, error_class: ErrorClass, call: str, request_model: str) -> BatchpondError:
        said = f"{call} at {self.host} answered {answer.status_code}: {answer.excerpt()}"
        match error_class:
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
        return HttpError(said, hint=hint, status_code=answer.status_code, error_class=error_class, code=code)


def below_version(endpoint: str, request_model: str) -> Address:  # noqa: ARG001
    """Return the path of an endpoint such as `/v1/chat/completions` below a base URL that ends in its version."""
    return endpoint.removeprefix("/v1"), None


@dataclass(frozen=True)
class LiveApi:
    """What tells one provider's live calls from another's, beside its descriptor; header names are lower case.

    `models_path` is what a first free call gets. `address` returns where a model is asked at an endpoint; `client` is
    what makes the calls.
    """

    descriptor: Descriptor
    models_path: str = "/models"
    models_shape: Shape = dict
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    address: Callable[[str, str], Address] = below_version
    client: type[LiveClient] = LiveClient

    @cached_property
    def rates(self) -> RateNames:
        """Where answers tell the account's limits: as the descriptor says it, else in any headers that are usual."""
        said = self.descriptor.rates
        return ANY_RATES if said is None else msgspec.convert(said, RateNames)

    def connect(self, clock: Clock, environ: Mapping[str, str], transport: Any, max_connections: int) -> LiveClient:
        """Return the client for the environment's key and base URL; raises what `HttpClient.connect` raises."""
        limits = HttpLimits(max_connections=max_connections)
        http = HttpClient.connect(self.descriptor, clock, environ, transport, limits=limits, retries=_START_RETRIES)
        return self.client(self, http, clock)


def judge(answer: Answer, now: datetime, hints: RateHints = NO_HINTS) -> LiveAnswer | ErrorClass:
    """Return what a whole HTTP answer to a live call comes to; see the table at the top of this module.

    An error class is of an answer after which no further call makes sense.
    """
    status_code = answer.status_code
    if answer.is_success:
        found = answer.json if isinstance(answer.json, dict) else load_answer(answer.body)
        if isinstance(found, dict):
            return Answered(status_code, answer.body, None, hints)
        return Doubtful(f"HTTP {status_code} without a whole JSON object: {found}: {answer.excerpt()}")
    error = read_any(answer.json)
    stop = _reason_to_stop(answer, error)
    if stop is not None:
        return stop
    if _is_not_now(answer, error):
        wait_s, reason = answer.retry_after_s(now), f"HTTP {status_code}: {answer.excerpt()}"
        return Deferred(reason, status_code, wait_s, is_shared=status_code in _SHARED, hints=hints)
    if 400 <= status_code <= 499:
        return Answered(status_code, answer.body, None, hints)
    return Doubtful(f"HTTP {status_code} is no definite answer: {answer.excerpt()}")


def _reason_to_stop(answer: Answer, error: ApiError | None) -> ErrorClass | None:
    status_code = answer.status_code
    if 300 <= status_code <= 399:
        return ErrorClass.PERMANENT
    # A 403 without an error is about the text and not the key.
    if _is_settling(answer) or (is_of_request(error) if error else status_code == 403):
        return None
    error_class = classify(status_code, error or ApiError(""))
    if error_class is ErrorClass.ACCESS:
        return error_class
    if error_class is not ErrorClass.BILLING and (status_code in _NOT_THERE or status_code == 403):
        return ErrorClass.MODEL_GONE
    return error_class if error_class in (ErrorClass.BILLING, ErrorClass.MODEL_GONE) else None


def _is_not_now(answer: Answer, error: ApiError | None) -> bool:
    status_code = answer.status_code
    if status_code in _NOT_NOW:
        return not (error and is_of_request(error))
    if status_code == 403:  # a firewall before the API: not a word of it is the provider's
        return error is None
    if (status_code == 503 and "retry-after" in answer.headers) or _is_settling(answer):
        return True
    return status_code in (500, 503) and own_error(answer.json) is not None


def _is_settling(answer: Answer) -> bool:
    """Return whether what calls under way may cost is held back for now (openrouter.ai/docs/api_reference/limits)."""
    limit = fields.inside(answer.json, "error.metadata.limit_source")
    return answer.status_code == 402 and limit == "openrouter_in_flight_budget"
