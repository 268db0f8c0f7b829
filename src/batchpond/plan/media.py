"""Pictures and documents of items: read once, known by their bytes, on their way into the lake's `blobs`.

A column that a template shows `as media` holds a path, from the folder of the items' file on, or bytes (also as
`{bytes, path}`, as data sets of Hugging Face have them), or an https address, which goes to the provider as it is:
nothing is fetched. What an item's metadata keeps of it is all that later rounds need.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from batchpond.errors import StudyError
from batchpond.lake.schemas import BLOBS
from batchpond.lake.store import Store
from batchpond.lake.tables import connect
from batchpond.model import Media
from batchpond.plan.items import Row
from batchpond.plan.write import Spool, publish_new
from batchpond.study.spec import ItemsFrom, ItemsSpec

BYTES_MAX: Final = 50_000_000
_FILE_ROWS: Final = 128
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_NO_SIZE: Final = frozenset({0xC4, 0xC8, 0xCC})  # of the markers of JPEG from C0 to CF


class MediaSpool(Spool):
    """What the items of a study show, each once; `found` has all of it by digest or address."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, BLOBS, _FILE_ROWS)
        self.found: dict[str, Media] = {}

    def take(self, spec: ItemsSpec, columns: Iterable[str], base_path: Path, row: Row) -> Row:
        """Return a row with what its `columns` hold read in, and a text; raises StudyError for what is neither."""
        where, found = row[0], {**row[1], spec.text_column: row[1].get(spec.text_column) or ""}
        folder = base_path if spec.source is ItemsFrom.SQL else (base_path / spec.location).parent
        for name in columns:
            value = found.get(name)
            if isinstance(value, dict):
                value = value.get("bytes") or value.get("path")
            try:
                found[name] = self._known(value, folder) if value else None
            except (OSError, ValueError, TypeError, IndexError, struct.error) as error:
                why = getattr(error, "strerror", None) or error
                shown = value[:200] if isinstance(value, str) else type(value).__name__
                raise StudyError(
                    f"{spec.location}: {where}: {name} {shown!r} cannot be shown: {why}",
                    hint="a column shown `as media` holds paths from the items' file on, bytes, or https addresses",
                ) from None
        return where, found

    def _known(self, value: Any, folder: Path) -> dict[str, Any]:
        if isinstance(value, str) and value.lower().startswith(("http://", "https://")):
            found = self.found[value] = Media("image/*", url=value)
        else:
            content = _read(folder / value) if isinstance(value, str) else bytes(memoryview(value))
            found = told(content)
            if found.sha256 not in self.found:
                self.found[found.sha256] = found
                row = [found.sha256], [found.media_type], [found.size_bytes], [content]
                self.add(pa.table(list(row), schema=BLOBS.schema))
        return {name: value for name, value in asdict(found).items() if value}

    def publish(self, store: Store) -> None:
        """Publish what the lake lacks, before the requests that name it."""
        with connect(store, [BLOBS.name]) as connection:
            publish_new(store, connection, self)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(BYTES_MAX + 1)


def told(content: bytes) -> Media:
    """Return what the first bytes of a picture say, or a document's; raises an error for what is neither, or is cut.

    The pages of a PDF are its page objects, where they are not compressed.
    """
    if len(content) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX:,} bytes")
    known = hashlib.sha256(content).hexdigest(), len(content)
    if content.startswith(b"%PDF-"):
        return Media("application/pdf", *known, n_pages=len(_PAGE.findall(content)) or None)
    media_type, width, height = _picture(content)
    if not (width and height):
        raise ValueError("it has no width or no height")
    return Media(media_type, *known, width, height)


def _picture(content: bytes) -> tuple[str, int, int]:
    read = struct.unpack_from
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", *read(">II", content, 16)
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", *read("<HH", content, 6)
    if content.startswith(b"\xff\xd8\xff"):
        at = 2
        while not 0xC0 <= content[at + 1] <= 0xCF or content[at + 1] in _NO_SIZE:
            at += 2 + int.from_bytes(content[at + 2 : at + 4]) if content[at + 1] != 0xFF else 1
        return "image/jpeg", *reversed(read(">HH", content, at + 5))
    match content[:4] + content[8:16]:
        case b"RIFFWEBPVP8 ":
            return "image/webp", *(side & 0x3FFF for side in read("<HH", content, 26))
        case b"RIFFWEBPVP8L":
            (bits,) = read("<I", content, 21)
            return "image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"RIFFWEBPVP8X":
            (width,), (height,) = read("<I", content, 24), read("<I", content, 26)
            return "image/webp", (width & 0xFFFFFF) + 1, (height >> 8) + 1
    raise ValueError("it is no PNG, JPEG, WebP, GIF or PDF, by its first bytes")
