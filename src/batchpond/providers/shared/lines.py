"""What reading result lines shares among providers: JSON from any bytes, and the two bad ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.model import ErrorClass, Response, ResponseStatus
from batchpond.providers.http.errors import ApiError, classify, read_any

PARTS_MAX: Final = 10_000
_INT_DIGITS_MAX: Final = 300  # past the largest double, and past what int() reads by default
_BEFORE_ANSWER: Final = re.compile(rb"(?:[ \t\r\n]+|:[^\r\n]*(?=[\r\n]))+")
_EXCERPT_BYTES: Final = 4_000
_STATUS_OF_CLASS: Final = {
    ErrorClass.EXPIRED: ResponseStatus.EXPIRED,
    ErrorClass.CANCELLED: ResponseStatus.CANCELLED,
    ErrorClass.UNREADABLE: ResponseStatus.UNREADABLE,
}


def load_row(line: bytes, id_name: str = "custom_id") -> dict[str, Any] | str:
    """Return a line's JSON object, or why it is none; total over any bytes.

    Lone surrogates and invalid UTF-8 become U+FFFD, NaN and infinities become null; a line that
    names its id twice is refused. Two ids are looked for where the bytes of the quoted name appear
    more than once, which costs nothing on ordinary lines.
    """
    if line.count(b'"%b"' % id_name.encode()) > 1:
        return _load_slowly(line, id_name, "the line")
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _load_slowly(line, id_name, "the line")
    return row if isinstance(row, dict) else "the line is not a JSON object"


def load_answer(body: bytes) -> dict[str, Any] | str:
    """Return the JSON object of a live call's whole answer, or why it is none; total over any bytes.

    Blank lines and `: keep-alive` comments before it, which DeepSeek sends while a call waits, are skipped; odd
    text is mended as in `load_row`.
    """
    start = _BEFORE_ANSWER.match(body)
    content = body[start.end() :] if start else body
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return _load_slowly(content, None, "the answer")
    return found if isinstance(found, dict) else "the answer is not a JSON object"


def success_of(status_code: int, body: bytes) -> dict[str, Any] | Response:
    """Return the JSON object of a live call that went well, or the Response of one that did not; total."""
    found = load_answer(body)
    if 200 <= status_code <= 299:
        error = read_any(found) if isinstance(found, dict) and found.get("error") else None
        if error is not None:
            return failed(None, status_code, error, error_class=classify(None, error))
        return found if isinstance(found, dict) else unreadable(None, found, status_code)
    if isinstance(found, str):
        return failed(None, status_code, ApiError(body[:_EXCERPT_BYTES].decode("utf-8", "replace")))
    request_id = fields.identifier(found.get("request_id"))
    return failed(None, status_code, read_any(found) or ApiError("the provider gave no error text"), request_id)


class _Pairs(dict[str, Any]):
    """A JSON object that remembers whether it named its id twice."""

    names_two_ids = False


def _load_slowly(line: bytes, id_name: str | None, what: str) -> dict[str, Any] | str:
    text = line.decode("utf-8-sig", "replace")
    hook = _hook(id_name)
    try:
        row = json.loads(
            text, object_pairs_hook=hook, parse_constant=lambda _: None, parse_int=_integer, parse_float=_number
        )
    except RecursionError:  # not a ValueError
        return f"{what} is nested too deeply"
    except ValueError as error:
        return f"{what} is not JSON: {error}"
    if not isinstance(row, _Pairs):
        return f"{what} is not a JSON object"
    return f"{what} has more than one {id_name}" if row.names_two_ids else row


def _hook(id_name: str | None) -> Callable[[list[tuple[str, Any]]], _Pairs]:
    def pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
        row = _Pairs((key, _clean(value)) for key, value in pairs)
        row.names_two_ids = sum(key == id_name for key, _ in pairs) > 1
        return row

    return pairs


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_clean(item) if isinstance(item, str) else item for item in value]
    return value


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _INT_DIGITS_MAX else None


def _number(digits: str) -> float | None:
    number = float(digits)
    return number if abs(number) != float("inf") else None


def failed(
    custom_id: str | None,
    status_code: int | None,
    error: ApiError,
    request_id: str | None = None,
    *,
    error_class: ErrorClass | None = None,
) -> Response:
    """Return a row that failed; without an `error_class` it is what the error says."""
    error_class = error_class or classify(status_code, error)
    return Response(
        custom_id=custom_id,
        status=_STATUS_OF_CLASS.get(error_class, ResponseStatus.ERRORED),
        status_code=status_code,
        error_class=error_class,
        error_code=error.code,
        error_message=error.message,
        provider_request_id=request_id,
    )


def unreadable(custom_id: str | None, message: str, status_code: int | None = None) -> Response:
    """Return a line that nothing can be read from; it stays in the lake as it came."""
    return Response(
        custom_id=custom_id,
        status=ResponseStatus.UNREADABLE,
        status_code=status_code,
        error_class=ErrorClass.UNREADABLE,
        error_message=message,
    )
