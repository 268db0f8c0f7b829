"""What a provider's answer means: its own error in one classification, a create's yes or no, a call's end, and when a
safe call is made again, and after how long: named reasons, bounded waits, one clock.

Creating a batch is never repeated: it is sent once."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import orjson

from batchpond import fields, ids
from batchpond.clock import Clock
from batchpond.errors import ProviderError
from batchpond.model import ErrorClass, Unclear
from batchpond.text import redact

if TYPE_CHECKING:
    import tenacity

RETRY_AFTER_MAX_S: Final = 86_400.0
_DURATION_PART: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ns|us|\u00b5s|ms|s|m|h|d)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)
_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 60.0
_CONNECTS_MAX: Final = 4

T = TypeVar("T")


class RetryReason(StrEnum):
    """Why a call may be made again."""

    CONNECT = "could not connect"
    CONNECTION_LOST = "connection lost"
    TIMEOUT = "timed out"
    SHORT_BODY = "body ended early"
    STATUS = "not now"
    NO_TURN = "no connection was free"


def retry_after_s(headers: Mapping[str, str], now: datetime, asked: str | None = None) -> float | None:
    """Return how long the server asks to wait, up to a day, or None when it does not say.

    Reads `retry-after-ms` before `retry-after` (seconds or an HTTP date) before `asked`, which a body said ("34s",
    "2m3.5s"); header names are lower case. A negative or past value is 0, nonsense is None.
    """
    milliseconds, value = number_of(headers.get("retry-after-ms")), headers.get("retry-after", "")
    said_s = number_of(value) if milliseconds is None else milliseconds / 1000
    if said_s is None and (moment := http_date(value)) is not None:
        said_s = (moment - now).total_seconds()
    if said_s is None and asked is not None:
        said_s = duration_s(asked)
    return None if said_s is None else min(RETRY_AFTER_MAX_S, max(0.0, said_s))


def duration_s(text: str) -> float | None:
    """Return a span of time in seconds, None for nonsense: "6m0s", "2m59.56s", "120ms", or a number of seconds."""
    text = text.strip()
    parts = _DURATION_PART.findall(text) if _DURATION.fullmatch(text) else []
    if not parts:
        return number_of(text.removesuffix("s"))
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


def http_date(text: str) -> datetime | None:
    """Return the time that a header says, None for nonsense."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def number_of(value: str | None) -> float | None:
    """Return a number that a header says, None for nonsense."""
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(number) else number


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and for how long in all, a safe call is repeated.

    A server that asks to wait longer than `wait_max_s` ends the call: nobody sleeps on that with the lake's lock held.
    """

    attempts: int = 6
    total_s: float = 1_200.0
    wait_max_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Again:
    """One try that may be repeated: why, and how long the server asked to wait."""

    reason: RetryReason
    detail: str
    after_s: float | None = None
    status_code: int | None = None

    @property
    def text(self) -> str:
        """Why, for messages."""
        why = f"HTTP {self.status_code}" if self.reason is RetryReason.STATUS else self.reason
        return f"{why}: {redact(self.detail)}"


def repeat(
    call: Callable[[], T | Again],
    policy: RetryPolicy,
    clock: Clock,
    name: str,
    on_wait: Callable[[Again, float], None],
) -> T | Again:
    """Call until it returns something other than `Again`; return the last `Again` at the end.

    Waits are the server's own or exponential with full jitter from 0.5 to 60 s, and are never begun when they would
    pass `policy.total_s`, or are the server's and longer than `policy.wait_max_s`. `name` seeds the jitter. An address
    that no connection comes about to is tried four times, over some seconds: the rest of the pass need not wait for it.
    """
    import tenacity  # noqa: PLC0415  # slow to import, and who reads an error repeats nothing

    deadline_s = clock.monotonic_s() + policy.total_s

    def wait(state: tenacity.RetryCallState) -> float:
        last = _last(state)
        backoff_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** min(state.attempt_number, 16))
        # Hashing the clock's reading spreads real processes and repeats simulated ones exactly.
        share = ids.unit_interval(state.attempt_number, name, repr(clock.monotonic_s()))
        jittered_s = backoff_s * (0.5 + 0.5 * share)
        return jittered_s if last.after_s is None else last.after_s + min(1.0, last.after_s) * share

    def stop(state: tenacity.RetryCallState) -> bool:
        is_long = (_last(state).after_s or 0.0) > policy.wait_max_s
        is_past = clock.monotonic_s() + state.upcoming_sleep > deadline_s
        attempts = _CONNECTS_MAX if _last(state).reason is RetryReason.CONNECT else policy.attempts
        return state.attempt_number >= min(attempts, policy.attempts) or is_long or is_past

    retrying = tenacity.Retrying(
        sleep=clock.sleep,
        wait=wait,
        stop=stop,
        retry=tenacity.retry_if_result(lambda result: isinstance(result, Again)),
        before_sleep=lambda state: on_wait(_last(state), state.upcoming_sleep),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    result: T | Again = retrying(call)
    return result


def _last(state: tenacity.RetryCallState) -> Again:
    outcome = state.outcome
    if outcome is None or not isinstance(last := outcome.result(), Again):
        raise TypeError("a wait was asked for a call that did not fail")
    return last


MESSAGE_LIMIT: Final = 4_000
_DETAILS_MAX: Final = 100

# Google answers 429 RESOURCE_EXHAUSTED with "exceeded your current quota" for rates that pass by themselves.
_GOOGLE_RATE: Final = "resource_exhausted"
_TRANSIENT_STATUS: Final = frozenset({0, 408, 409, 425, 429, 499})
_NOT_RUN: Final = frozenset({ErrorClass.EXPIRED, ErrorClass.CANCELLED})
_STATUS: Final = re.compile("[45][0-9]{2}")
_FILTER: Final = "content_filter"
_MODERATION: Final = frozenset({"flagged_input", "reasons"})  # OpenRouter's (openrouter.ai/docs/errors)


@cache
def _known() -> tuple[dict[str, ErrorClass], dict[str, re.Pattern[str]]]:
    """Return what each known code or type says, and what finds the texts of a kind; read when the first error comes."""
    data = tomllib.loads((resources.files(__package__) / "error_codes.toml").read_text("utf-8"))
    codes = {code: ErrorClass(name) for name, listed in data["codes"].items() for code in listed}
    return codes, {name: re.compile("|".join(texts), re.IGNORECASE) for name, texts in data["texts"].items()}


def _says(kind: str, message: str) -> bool:
    return _known()[1][kind].search(message) is not None


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


def read_any(body: object) -> ApiError | None:
    """Return the error of a body in any shape that servers send, None for what is no error.

    Besides `Answer.error`'s: `{"error": "text", "code": ...}` (xAI, Ollama, Together), `{"detail": "text"}` or a
    list of `{msg, loc}` (FastAPI, Mistral), `{"object": "error", "message": ...}` and `{"message": ...}`; any of them
    in an array (Google's OpenAI-compatible server: microsoft/vscode#258088).
    """
    found = _bare(body)
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


def own_error(body: object) -> ApiError | None:
    """Return the error of an API that has no envelope, None for what a gateway writes: a page, or a bare `message`."""
    found = _bare(body)
    is_own = bool(found.get("error") or found.get("detail")) or found.get("object") == "error"
    return read_any(body) if is_own else None


def _bare(body: object) -> dict[str, Any]:
    return fields.mapping(body[0] if isinstance(body, list) and body else body)


def read_error(error: dict[str, object]) -> ApiError:
    """Return an error object made uniform, whatever its members hold."""
    message = (fields.text(error.get("message")) or "")[:MESSAGE_LIMIT]
    is_moderation = not _MODERATION.isdisjoint(fields.mapping(error.get("metadata")))
    kind = _FILTER if is_moderation else fields.word(error.get("type"))
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
    return status_code == 403 and _says("maybe_gone", error.message)


def is_filtered(error: ApiError) -> bool:
    """Return whether a provider's filter withheld a prompt or an answer: asked again, it would do so again."""
    return _FILTER in {error.code, error.kind} or _says("filtered", error.message)


def is_of_request(error: ApiError) -> bool:
    """Return whether an error is about one request alone, and the same whenever that is asked, whatever its status."""
    return is_filtered(error) or _says("never_fits", error.message)


def classify(status_code: int | None, error: ApiError) -> ErrorClass:
    """Return what kind of failure this is; what is not known to pass is PERMANENT.

    Codes are looked at before the status: a 403 for a retired model and a 429 for an empty
    account are neither access nor rate limits.
    """
    if is_of_request(error):
        return ErrorClass.PERMANENT
    code = (error.code or "").lower()
    words = {code, (error.kind or "").lower()}
    codes, _ = _known()
    said = {codes.get(word) for word in words}
    of_code = codes.get(code)
    if of_code is not None and of_code in _NOT_RUN:
        return of_code
    if (status_code is None or 200 <= status_code <= 299) and _STATUS.fullmatch(code):
        status_code = int(code)  # some servers put it there, OpenRouter under a 200 too (openrouter.ai/docs/errors)
    if (
        ErrorClass.BILLING in said
        or status_code == 402
        or _says("google_billing" if _GOOGLE_RATE in words else "billing", error.message)
    ):
        return ErrorClass.BILLING
    if ErrorClass.MODEL_GONE in said or (status_code in (None, 0, 400, 404) and _says("model_gone", error.message)):
        return ErrorClass.MODEL_GONE
    is_access = status_code in (401, 403) or ErrorClass.ACCESS in said or _says("access", error.message)
    if is_access and not says_maybe_gone(status_code, error):
        return ErrorClass.ACCESS
    is_transient_status = status_code is not None and (status_code in _TRANSIENT_STATUS or status_code >= 500)
    is_passing = is_transient_status or ErrorClass.TRANSIENT in said or _says("transient", error.message)
    is_passing |= status_code is None and error.kind is None and _says("unstated", error.message)
    return ErrorClass.TRANSIENT if is_passing else ErrorClass.PERMANENT


_EXCERPT_CHARS: Final = 200
_WAIT_TEXT: Final = re.compile(r"(?i)\btry again in ((?:[\d.]{1,20}(?:ms|[smhd]))+)")
_GONE: Final = frozenset({404, 410})
_DEFINITE: Final = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422})
_TOO_LARGE: Final = 413
_DEFINITE_BY_ENVELOPE: Final = frozenset({429, 529})


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; header names are lower case, `json` is None when the body is not JSON."""

    status_code: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    json: Any = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status_code <= 299

    @property
    def error(self) -> ApiError | None:
        """Return the provider's own error envelope, `{"error": {"message": ...}}`, None for any other body."""
        error = fields.mapping(self.json).get("error")
        return read_error(error) if isinstance(error, dict) and isinstance(error.get("message"), str) else None

    @property
    def may_be_gone(self) -> bool:
        """Whether what was asked for may not exist: 404, 410, or a 403 that says so."""
        return self.status_code in _GONE or says_maybe_gone(self.status_code, self.error or ApiError(""))

    def retry_after_s(self, now: datetime) -> float | None:
        """Return how long the server asks to wait, in a header or in its error; None when it does not say."""
        error = read_any(self.json) or ApiError("")
        written = _WAIT_TEXT.search(error.message)
        return retry_after_s(self.headers, now, error.retry_delay or (written[1] if written else None))

    def excerpt(self) -> str:
        """Return the beginning of the body for a message: one line, without secrets."""
        error = read_any(self.json)
        text = error.message if error else self.body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace")
        return " ".join(redact(text).split())[:_EXCERPT_CHARS]


@dataclass(frozen=True, slots=True)
class AckRule:
    """How a provider's own answers are told from a proxy's.

    Where the envelope's `code` repeats the HTTP status beside a `status` word, as Google's does (`repeats_status`),
    that takes the place of a request-id header, for every status. `within` names the member that may hold the new
    object. Where errors may be bare text or a `detail` (`has_text_errors`), a `request_id` beside it does as well as
    a header.
    """

    id_field: str = "id"
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    repeats_status: bool = False
    within: str | None = None
    has_text_errors: bool = False


def answer_of(status_code: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Return an answer with its body parsed, if it is JSON."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    return Answer(status_code, {name.lower(): value for name, value in headers.items()}, body, parsed)


def judge_create(result: Answer | Again | Fault, rule: AckRule) -> Answer | Unclear:
    """Return the answer to a create if it is a clear yes or a clear no, else why it is neither.

    Yes: 2xx with JSON that has an id. No: a 4xx that cannot follow execution, in the provider's
    own error envelope and with its request-id header (429 and 529: the envelope is enough).
    A 413 is a no whoever says it: what was too large to take in has not been executed.
    Everything else may come from something between, or follow a batch that was created.
    """
    match result:
        case Again():
            return Unclear(result.text)
        case Fault():
            return Unclear(result.detail)
        case Answer() as answer:
            return _judged(answer, rule)


def _judged(answer: Answer, rule: AckRule) -> Answer | Unclear:
    if answer.is_success:
        found = fields.mapping(answer.json)
        created = fields.mapping(found.get(rule.within)) or found if rule.within else found
        if fields.identifier(created.get(rule.id_field)) is not None:
            return answer
        return Unclear(f"HTTP {answer.status_code} without a JSON {rule.id_field}: {answer.excerpt()}")
    has_envelope = (own_error(answer.json) if rule.has_text_errors else answer.error) is not None
    if rule.repeats_status:
        code, word = (fields.inside(answer.json, f"error.{name}") for name in ("code", "status"))
        is_own = fields.count(code) == answer.status_code and isinstance(word, str)
        has_envelope = has_envelope and is_own
    else:
        is_own = any(answer.headers.get(name) for name in rule.request_id_headers)
        request_id = fields.mapping(answer.json).get("request_id")
        is_own = is_own or (rule.has_text_errors and fields.identifier(request_id) is not None)
    if has_envelope and answer.status_code in _DEFINITE_BY_ENVELOPE:
        return answer
    if answer.status_code == _TOO_LARGE or (has_envelope and is_own and answer.status_code in _DEFINITE):
        return answer
    return Unclear(f"HTTP {answer.status_code} is no definite answer: {answer.excerpt()}")


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
    """A failure that asking again would not change: of the transport, or of an answer that came and cannot be taken."""

    detail: str
    is_of_answer: bool = False


def error_class_of(answer: Answer) -> ErrorClass:
    """Return the class of an answer that is not a success, by its error, if that is an API's own."""
    return classify(answer.status_code, answer.error or own_error(answer.json) or ApiError(""))


def redirect_host(base_url: str, location: str) -> str:
    """Return the host that a redirect names, for a message."""
    try:
        return urlsplit(urljoin(base_url, location)).hostname or "nowhere"
    except ValueError:
        return "an unreadable address"
