"""Pictures of any size that are cheap to make, those that other programs wrote, and what a line shows."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "pictures" / "pictures.json"
_DATA = re.compile(r"(?:data:([\w/]+);base64,)?([A-Za-z0-9+/]{40,}={0,2})")


def golden() -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Return pictures and documents of other programs by name, with what those programs say of them."""
    rows: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_bytes())
    return {name: (base64.b64decode(row.pop("base64")), row) for name, row in rows.items()}


def png(width: int, height: int, seed: int = 0) -> bytes:
    """Return a PNG of noise, which nothing compresses: about three bytes a pixel."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(3 * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def shown(value: Any) -> Iterator[bytes]:
    """Yield the bytes of all that a body shows, wherever it stands in it, in order."""
    match value:
        case dict():
            for inner in value.values():
                yield from shown(inner)
        case list():
            for inner in value:
                yield from shown(inner)
        case str() if found := _DATA.fullmatch(value):
            yield base64.b64decode(found[2], validate=True)
