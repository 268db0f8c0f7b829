"""Text that may be shown: without secrets, and without what a terminal or a page would obey."""

from __future__ import annotations

import difflib
import hmac
import logging
import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final, TypeVar

from batchpond.errors import UsageError

REDACTED: Final = "[redacted]"
_MIN_SECRET_LENGTH: Final = 6  # shorter values would blank out ordinary words
_known: deque[str] = deque(maxlen=256)
_SHAPES: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\b(?:sk|gsk|xai|rk)[-_][A-Za-z0-9_*-]{16,}"), REDACTED),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{10,}"), REDACTED),
    (re.compile(r"(?i)\b(api[-_]?key|key|token|x-goog-signature|sig|signature)=[^&\s\"'<>]+"), rf"\1={REDACTED}"),
)
BYTES: Final = "[bytes, which are no text]"
_LOGGERS: Final = (
    "httpx",
    "httpcore",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "httpcore.socks",
    "batchpond",
    "batchpond.http",
)


class Secret:
    """A key that only `reveal()` shows: its repr, str, format, copy and pickle do not."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value
        if len(value) >= _MIN_SECRET_LENGTH and value not in _known:
            _known.append(value)

    def reveal(self) -> str:
        """Return the value itself, for the one header that carries it."""
        return self.__value

    def __repr__(self) -> str:
        return f"Secret({REDACTED})"

    def __str__(self) -> str:
        return REDACTED

    def __format__(self, spec: str) -> str:
        return REDACTED

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (REDACTED,))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__value.encode(), other.__value.encode())

    __hash__ = None  # type: ignore[assignment]  # a hash would let the value be tested for


def plain(value: object) -> str:
    """Return what JSON keeps of a value that it has no form for; of bytes, that they are some."""
    return BYTES if isinstance(value, bytes) else str(value)


def redact(text: str) -> str:
    """Return `text` without any secret this process has loaded, nor anything shaped like one."""
    for value in tuple(_known):  # at once: another thread may load a secret meanwhile
        text = text.replace(value, REDACTED)
    for pattern, shown in _SHAPES:
        text = pattern.sub(shown, text)
    return text


class RedactingFilter(logging.Filter):
    """Rewrites a log record so that neither its text, its arguments nor its traceback show a secret."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record in place and let it pass."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # a record with wrong arguments is logged as it is written
            message = str(record.msg)
        record.msg, record.args = redact(message), None
        if record.exc_info:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
        return True


_FILTER: Final = RedactingFilter()


def guard_loggers() -> None:
    """Raise the HTTP libraries' loggers to WARNING and put the filter on them; safe to repeat."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if _FILTER not in logger.filters:
            logger.addFilter(_FILTER)
        if not name.startswith("batchpond"):
            logger.setLevel(max(logger.level, logging.WARNING))


# Control characters (C0, DEL, C1), characters that reorder or hide text, and lone surrogates.
# ZWJ and ZWNJ stay: emoji sequences and several scripts need them.
UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)
UNSAFE_BUT_NEWLINE: Final = re.compile(UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str, *, keep_newlines: bool = False) -> str:
    """Return text with everything that a terminal or a page would obey as an escape."""
    return (UNSAFE_BUT_NEWLINE if keep_newlines else UNSAFE).sub(_escape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can say a text, as it cannot say a lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def did_you_mean(wanted: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint that names the nearest of what there is, and else says something else."""
    near = difflib.get_close_matches(wanted, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else otherwise


_Word = TypeVar("_Word", bound=StrEnum)


def one_of(words: type[_Word], word: str, what: str) -> _Word:
    """Return the member of an enumeration that a person named; raises UsageError that lists them."""
    try:
        return words(word)
    except ValueError:
        raise UsageError(f"{word!r} is no {what}", hint=", ".join(words)) from None


_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_FORMULA: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")


def defused(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: one that would be has a ' before it.

    Spaces and invisible characters before the first visible one make no difference, nor do full-width forms.
    """
    if text[:1].isalnum():
        return text
    first = next((at for at, char in enumerate(text) if unicodedata.category(char)[0] not in "ZC"), len(text))
    is_formula = text[first : first + 1] in _FORMULA or any(char in "\t\r\n" for char in text[:first])
    return f"'{text}" if is_formula else text


def address(path: PurePath) -> str | None:
    """Return what a path says that was written as `s3://...` and the like; None for one on this machine."""
    found = _ADDRESS.fullmatch(str(path))
    return found and f"{found[1]}://{'/' * (found[1] == 'file')}{found[2]}"


def shown(path: PurePath) -> str:
    """Return a path, or an address, as people write it."""
    return address(path) or str(path)


def plural(count: int | str, noun: str) -> str:
    """Return a count, which may be printed already, with its noun, thousands separated."""
    one, ending = (noun[:-1], "ies") if re.search("[^aeou]y$", noun) else (noun, "es" if noun.endswith("ch") else "s")
    number = count if isinstance(count, str) else f"{count:,}"
    return f"{number} {noun if number == '1' else one + ending}"


def usd(value: float | Decimal | None) -> str:
    """Return money for people; an unknown price is said to be unknown, never shown as zero."""
    if value is None:
        return "unknown"
    amount = float(value)
    places = 2 if abs(amount) >= 1 or not amount else 4 if abs(amount) >= 0.001 else 7
    return f"${amount:,.{places}f}"


_SHOWN_MAX: Final = 50
_SHOWN_CHARS_MAX: Final = 500


class Shown:
    """A record that a notebook shows as an HTML table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _html(self)


def _html(value: Any) -> str:
    from html import escape as escaped  # noqa: PLC0415 - a notebook alone needs it

    if names := getattr(value, "__dataclass_fields__", None):
        return _table([f"<th>{escaped(name)}</th>", f"<td>{_html(getattr(value, name))}</td>"] for name in names)
    if not isinstance(value, tuple | list):
        said = "" if value is None else f"{value:,}" if type(value) is int else redact(str(value))
        return escaped(said if len(said) <= _SHOWN_CHARS_MAX else f"{said[:_SHOWN_CHARS_MAX]} ...")
    kinds = {type(one) for one in value}
    names = list(getattr(value[0], "__dataclass_fields__", ())) if len(kinds) == 1 else []
    rows = [[f"<th>{escaped(name)}</th>" for name in names]] if names else []
    rows += [
        [f"<td>{_html(getattr(one, name))}</td>" for name in names] or [f"<td>{_html(one)}</td>"]
        for one in value[:_SHOWN_MAX]
    ]
    left = len(value) - _SHOWN_MAX
    return _table([*rows, [f"<td>and {left:,} more</td>"]] if left > 0 else rows)


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "<table>" + "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows) + "</table>"
