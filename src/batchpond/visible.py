"""Text that can neither move a cursor, reorder, hide nor recolour anything: what it holds is shown as escapes."""

from __future__ import annotations

import re
from typing import Final

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
