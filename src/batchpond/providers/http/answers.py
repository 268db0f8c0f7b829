"""An HTTP answer, and whether an answer to a create call is a clear yes, a clear no, or neither."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.model import Unclear
from batchpond.providers.http.api_errors import ApiError, read_any, read_envelope, says_maybe_gone
from batchpond.providers.http.retry import retry_after_s
from batchpond.text import redact

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
        """Return the provider's own error envelope, None for any other body."""
        return read_envelope(self.json)

    @property
    def error_text(self) -> str | None:
        """Return the error that a provider gives as bare text, None for any other body."""
        return fields.identifier(fields.mapping(self.json).get("error"))

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
        error = self.error
        text = error.message if error else self.body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace")
        return " ".join(redact(text).split())[:_EXCERPT_CHARS]


@dataclass(frozen=True, slots=True)
class AckRule:
    """How a provider's own answers are told from a proxy's.

    Where the envelope's `code` repeats the HTTP status beside a `status` word, as Google's does
    (`repeats_status`), that takes the place of a request-id header, for every status. `within` names the
    member that may hold the new object. Where errors may be bare text (`has_text_errors`), a `request_id`
    beside it does as well as a header.
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


def judge_create(answer: Answer, rule: AckRule) -> Answer | Unclear:
    """Return the answer if it is a clear yes or a clear no, else why it is neither.

    Yes: 2xx with JSON that has an id. No: a 4xx that cannot follow execution, in the provider's
    own error envelope and with its request-id header (429 and 529: the envelope is enough).
    A 413 is a no whoever says it: what was too large to take in has not been executed.
    Everything else may come from something between, or follow a batch that was created.
    """
    if answer.is_success:
        if fields.identifier(_created(answer, rule).get(rule.id_field)) is not None:
            return answer
        return Unclear(f"HTTP {answer.status_code} without a JSON {rule.id_field}: {answer.excerpt()}")
    has_envelope = answer.error is not None or (rule.has_text_errors and answer.error_text is not None)
    if rule.repeats_status:
        is_own = _repeats_status(answer)
        has_envelope = has_envelope and is_own
    else:
        is_own = any(answer.headers.get(name) for name in rule.request_id_headers)
        is_own = is_own or (rule.has_text_errors and _names_request(answer))
    if has_envelope and answer.status_code in _DEFINITE_BY_ENVELOPE:
        return answer
    if answer.status_code == _TOO_LARGE or (has_envelope and is_own and answer.status_code in _DEFINITE):
        return answer
    return Unclear(f"HTTP {answer.status_code} is no definite answer: {answer.excerpt()}")


def _created(answer: Answer, rule: AckRule) -> dict[str, Any]:
    found = fields.mapping(answer.json)
    return fields.mapping(found.get(rule.within)) or found if rule.within else found


def _names_request(answer: Answer) -> bool:
    return fields.identifier(fields.mapping(answer.json).get("request_id")) is not None


def _repeats_status(answer: Answer) -> bool:
    error = fields.mapping(fields.mapping(answer.json).get("error"))
    return fields.count(error.get("code")) == answer.status_code and isinstance(error.get("status"), str)
