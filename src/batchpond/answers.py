"""An HTTP answer, and whether an answer to a create call is a clear yes, a clear no, or neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.api_errors import ApiError, read_envelope
from batchpond.model import Unclear
from batchpond.redact import redact

_EXCERPT_CHARS: Final = 200
_DEFINITE: Final = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422})
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

    def excerpt(self) -> str:
        """Return the beginning of the body for a message: one line, without secrets."""
        error = self.error
        text = error.message if error else self.body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace")
        return " ".join(redact(text).split())[:_EXCERPT_CHARS]


@dataclass(frozen=True, slots=True)
class AckRule:
    """How a provider's own answers are told from a proxy's."""

    id_field: str = "id"
    request_id_headers: tuple[str, ...] = ("x-request-id",)


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
    Everything else may come from something between, or follow a batch that was created.
    """
    if answer.is_success:
        if fields.identifier(fields.mapping(answer.json).get(rule.id_field)) is not None:
            return answer
        return Unclear(f"HTTP {answer.status_code} without a JSON {rule.id_field}: {answer.excerpt()}")
    has_envelope = answer.error is not None
    has_request_id = any(answer.headers.get(name) for name in rule.request_id_headers)
    if has_envelope and answer.status_code in _DEFINITE_BY_ENVELOPE:
        return answer
    if has_envelope and has_request_id and answer.status_code in _DEFINITE:
        return answer
    return Unclear(f"HTTP {answer.status_code} is no definite answer: {answer.excerpt()}")
