"""Pictures and documents of items: read once, known by their bytes, on their way into the lake's `blobs`.

A column that a template shows `as media` holds a path, from the folder of the items' file on, or bytes (also as
`{bytes, path}`, as data sets of Hugging Face have them), or an https address, which goes to the provider as it is:
nothing is fetched. What an item's metadata keeps of it is all that later rounds need.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import imagesize  # type: ignore[import-untyped]
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
_FIRST: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"GIF87a": "image/gif", b"GIF89a": "image/gif", b"\xff\xd8\xff": "image/jpeg",
    b"RIFF": "image/webp",
}  # fmt: skip


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
    media_type = next((kind for first, kind in _FIRST.items() if content.startswith(first)), None)
    if media_type is None or (media_type == "image/webp" and content[8:12] != b"WEBP"):
        raise ValueError("it is no PNG, JPEG, WebP, GIF or PDF, by its first bytes")
    width, height = imagesize.get(io.BytesIO(content))
    if not (width > 0 and height > 0):
        raise ValueError("it has no width or no height")
    return Media(media_type, *known, width, height)
