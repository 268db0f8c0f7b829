"""An HTTP answer, and whether an answer to a create call is a clear yes, a clear no, or neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.api_errors import ApiError, read_envelope, says_maybe_gone
from batchpond.model import Unclear
from batchpond.redact import redact
from batchpond.retry import retry_after_s

_EXCERPT_CHARS: Final = 200
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
    def may_be_gone(self) -> bool:
        """Whether what was asked for may not exist: 404, 410, or a 403 that says so."""
        return self.status_code in _GONE or says_maybe_gone(self.status_code, self.error or ApiError(""))

    def retry_after_s(self, now: datetime) -> float | None:
        """Return how long the server asks to wait, in a header or in its error; None when it does not say."""
        return retry_after_s(self.headers, now, self.error.retry_delay if self.error else None)

    def excerpt(self) -> str:
        """Return the beginning of the body for a message: one line, without secrets."""
        error = self.error
        text = error.message if error else self.body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace")
        return " ".join(redact(text).split())[:_EXCERPT_CHARS]


@dataclass(frozen=True, slots=True)
class AckRule:
    """How a provider's own answers are told from a proxy's.

    Where the envelope's `code` repeats the HTTP status beside a `status` word, as Google's does
    (`repeats_status`), that takes the place of a request-id header, for every status.
    """

    id_field: str = "id"
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    repeats_status: bool = False


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
        if fields.identifier(fields.mapping(answer.json).get(rule.id_field)) is not None:
            return answer
        return Unclear(f"HTTP {answer.status_code} without a JSON {rule.id_field}: {answer.excerpt()}")
    has_envelope = answer.error is not None
    if rule.repeats_status:
        is_own = _repeats_status(answer)
        has_envelope = has_envelope and is_own
    else:
        is_own = any(answer.headers.get(name) for name in rule.request_id_headers)
    if has_envelope and answer.status_code in _DEFINITE_BY_ENVELOPE:
        return answer
    if answer.status_code == _TOO_LARGE or (has_envelope and is_own and answer.status_code in _DEFINITE):
        return answer
    return Unclear(f"HTTP {answer.status_code} is no definite answer: {answer.excerpt()}")


def _repeats_status(answer: Answer) -> bool:
    error = fields.mapping(fields.mapping(answer.json).get("error"))
    return fields.count(error.get("code")) == answer.status_code and isinstance(error.get("status"), str)
