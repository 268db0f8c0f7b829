"""Pictures and documents of items: read once, known by their bytes, on their way into the lake's `blobs`.

A column that a template shows `as media` holds a path, from the folder of the items' file on, or bytes (also as
`{bytes, path}`, as data sets of Hugging Face have them), or an https address, of a document if its path ends with
`.pdf`, which goes to the provider as it is: nothing is fetched. What an item's metadata keeps of it is all that later
rounds need. Where a study wants pictures no larger than so many pixels, larger ones are made smaller once, and what was
made is what is shown from then on: another version of the library that makes them would make other bytes, and other
requests, of the same picture.
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import imagesize  # type: ignore[import-untyped]
import msgspec
import pyarrow as pa

from batchpond.errors import StudyError
from batchpond.lake import tables
from batchpond.lake.schemas import BLOBS, ITEMS
from batchpond.lake.store import Store
from batchpond.model import Media
from batchpond.plan.items import Row
from batchpond.plan.write import Spool, publish_new
from batchpond.study.spec import ItemsFrom, ItemsSpec
from batchpond.views.read import smaller

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
                found[name] = self._known(value, folder, spec.media_max_px) if value else None
            except (OSError, ValueError, TypeError, IndexError, struct.error) as error:
                why = getattr(error, "strerror", None) or error
                shown = value[:200] if isinstance(value, str) else type(value).__name__
                raise StudyError(
                    f"{spec.location}: {where}: {name} {shown!r} cannot be shown: {why}",
                    hint="a column shown `as media` holds paths from the items' file on, bytes, or https addresses",
                ) from None
        return where, found

    def _known(self, value: Any, folder: Path, max_px: int | None) -> dict[str, Any]:
        if isinstance(value, str) and value.lower().startswith(("http://", "https://")):
            is_document = urlsplit(value).path.lower().endswith(".pdf")
            found = self.found[value] = Media("application/pdf" if is_document else "image/*", url=value)
        else:
            is_path = isinstance(value, str)
            with (folder / value).open("rb") if is_path else io.BytesIO(memoryview(value)) as source:
                content = source.read(BYTES_MAX + 1)
            found = told(content, self.found)
            if max_px is not None and max(found.width or 0, found.height or 0) > max_px:
                found = self._smaller(content, f"{found.sha256}@{max_px}", max_px)
            else:
                self._keep(found, content)
            self.found[found.sha256] = found
        return {name: value for name, value in asdict(found).items() if value}

    def _keep(self, media: Media, content: bytes) -> None:
        if media.sha256 not in self.found:
            row = [media.sha256], [media.media_type], [media.size_bytes], [content]
            self.add(pa.table(list(row), schema=BLOBS.schema))

    def _smaller(self, content: bytes, made_of: str, max_px: int) -> Media:
        """Return what a picture was made into, here or for an earlier plan."""
        if made_of not in self._made:
            less = smaller(content, max_px)
            self._made[made_of] = replace(told(less), made_of=made_of)
            self._keep(self._made[made_of], less)
        return self._made[made_of]

    @cached_property
    def _made(self) -> dict[str, Media]:
        found = tables.rows(self._store, [ITEMS.name, BLOBS.name], tables.query(__package__, "made_smaller"))
        return {one.made_of: one for one in (msgspec.json.decode(row[0], type=Media) for row in found)}

    def publish(self, store: Store) -> None:
        """Publish what the lake lacks, before the requests that name it."""
        with tables.connect(store, [BLOBS.name]) as connection:
            publish_new(store, connection, self)


def told(content: bytes, seen: Mapping[str, Media] | None = None) -> Media:
    """Return what the first bytes of a picture say, or a document's; raises an error for what is neither, or is cut.

    The pages of a document that was `seen` before are known by its digest.
    """
    if len(content) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX:,} bytes")
    known = hashlib.sha256(content).hexdigest(), len(content)
    if content.startswith(b"%PDF-"):
        before = (seen or {}).get(known[0])
        return Media("application/pdf", *known, n_pages=before.n_pages if before else _n_pages(content))
    media_type = next((kind for first, kind in _FIRST.items() if content.startswith(first)), None)
    if media_type is None or (media_type == "image/webp" and content[8:12] != b"WEBP"):
        raise ValueError("it is no PNG, JPEG, WebP, GIF or PDF, by its first bytes")
    width, height = imagesize.get(io.BytesIO(content))
    if not (width > 0 and height > 0):
        raise ValueError("it has no width or no height")
    return Media(media_type, *known, width, height)


def _n_pages(content: bytes) -> int | None:
    """Return how many pages a PDF has, None where nobody can tell; raises ValueError for one with a password."""
    try:
        import pypdf
    except ModuleNotFoundError:
        return _n_page_objects(content)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it cannot read counts as unknown, and `plan` says so
    try:
        return pypdf.PdfReader(io.BytesIO(content)).get_num_pages() or None
    except pypdf.errors.FileNotDecryptedError:
        raise ValueError("it opens with a password, which no provider is given") from None
    except Exception:  # noqa: BLE001 - its guide: a broken file may cause any
        return _n_page_objects(content)


def _n_page_objects(content: bytes) -> int | None:
    """Return how many pages stand in plain bytes, None where some may be compressed (ISO 32000-1, 7.5.7)."""
    return None if b"/ObjStm" in content else len(_PAGE.findall(content)) or None
