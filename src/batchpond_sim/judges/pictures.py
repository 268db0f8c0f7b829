"""Whether what a request shows can be looked at: base64 that is none, or bytes of another kind than it says, cannot."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

_MAGIC = {
    "image/png": rb"\x89PNG\r\n\x1a\n", "image/jpeg": rb"\xff\xd8\xff", "image/gif": rb"GIF8[79]a",
    "image/webp": rb"(?s)RIFF....WEBP", "application/pdf": rb"%PDF-",
}  # fmt: skip
_DATA_URL = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.DOTALL)


def picture_problem(body: Any) -> str | None:
    """Return what is wrong with a picture or document in a body of any API, None where nothing is."""
    return next((found for kind, data in _shown(body) if (found := _problem(kind, data)) is not None), None)


def _shown(value: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield the media type and the base64 of all that is shown: data URLs, sources, inline data, bare images."""
    if isinstance(value, str) and (match := _DATA_URL.fullmatch(value)):
        yield match[1], match[2]
    elif isinstance(value, list):
        for inner in value:
            yield from _shown(inner)
    elif isinstance(value, dict):
        kind = value.get("media_type") or value.get("mimeType")
        if kind is not None and "data" in value:
            yield kind, value["data"]
        yield from ((None, data) for data in value.get("images") or ())
        for inner in (value[name] for name in value.keys() - {"text", "images"}):
            yield from _shown(inner)


def _problem(kind: str | None, data: Any) -> str | None:
    try:
        content = base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return "the image data is not valid base64"
    if kind is None:
        return None if any(re.match(magic, content) for magic in _MAGIC.values()) else "image: unknown format"
    if kind not in _MAGIC:
        return f"{kind} is not a supported media type"
    return None if re.match(_MAGIC[kind], content) else f"the image does not match the provided media type {kind}"
