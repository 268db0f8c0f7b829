"""Pictures of any size that are cheap to make, those that other programs wrote, and what a line shows."""

from __future__ import annotations

import base64
import itertools
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


def compressed_pdf(n_pages: int) -> bytes:
    """Return a PDF 1.5 as LaTeX and Word write it: all its page objects stand in one compressed object stream."""
    kids = b" ".join(b"%d 0 R" % number for number in range(3, 3 + n_pages))
    pages = [b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>"] * n_pages
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count %d/Kids[%s]>>" % (n_pages, kids), *pages]
    starts = itertools.accumulate((len(one) + 1 for one in objects), initial=0)
    head = b" ".join(b"%d %d" % both for both in zip(range(1, 1 + len(objects)), starts, strict=False)) + b" "
    of_stream = b"/Type/ObjStm/N %d/First %d" % (len(objects), len(head))
    found, number = b"%PDF-1.5\n", len(objects) + 1
    at_stream = len(found)
    found += _stream(number, of_stream, head + b" ".join(objects))
    places = [(2, number, place) for place in range(len(objects))]
    rows = [(0, 0, 0), *places, (1, at_stream, 0), (1, len(found), 0)]
    table = b"".join(struct.pack(">BIH", *row) for row in rows)
    at_table = len(found)
    found += _stream(number + 1, b"/Type/XRef/Size %d/W[1 4 2]/Root 1 0 R" % len(rows), table)
    return found + b"startxref\n%d\n%%%%EOF\n" % at_table


def _stream(number: int, about: bytes, content: bytes) -> bytes:
    data = zlib.compress(content)
    head = b"%d 0 obj\n<<%s/Filter/FlateDecode/Length %d>>\nstream\n" % (number, about, len(data))
    return head + data + b"\nendstream\nendobj\n"
