"""Pictures and documents of prompts: each stands once in the lake, and bodies name it.

A kept body has a mark where the bytes go, inside a JSON string: `/blob/SHA256.SIZE` with its slashes escaped. It is
JSON, and no text of a study can forge it, since texts are written without that needless escape. What is sent has base64
there, made while a line is on its way, so that no more than a line is ever held.
"""

from __future__ import annotations

import base64
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from batchpond.errors import LakeError
from batchpond.lake.disk import intact
from batchpond.lake.schemas import BLOBS
from batchpond.lake.store import Store
from batchpond.model import Media

HEAD: Final = rb"\/blob\/"
_MARK: Final = re.compile(rb"(?<!\\)\\/blob\\/([0-9a-f]{64})\.([0-9]+)")
_KEPT_MAX: Final = 8


class Embedded(str):
    """A text of a body, such as the beginning of a `data:` URL, that ends in the bytes of a blob in base64."""

    __slots__ = ("mark",)
    mark: bytes

    def __new__(cls, head: str, media: Media) -> Embedded:
        """Return the text `head` with what stands for the blob in a kept body."""
        found = super().__new__(cls, head)
        found.mark = b"%b%b.%d" % (HEAD, media.sha256.encode(), media.size_bytes)
        return found


def sent_bytes(body: bytes) -> int:
    """Return how large a kept body is once it is sent."""
    marks = _MARK.finditer(body) if HEAD in body else ()
    return len(body) + sum(-(-int(mark[2]) // 3) * 4 - len(mark[0]) for mark in marks)


class Blobs:
    """A lake's blobs, for any number of threads; the few that were asked for last are kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._base64 = lru_cache(_KEPT_MAX)(self._read)

    def expanded(self, body: bytes) -> bytes:
        """Return a kept body as it is sent; raises LakeError for a blob that is not there, or damaged."""
        return _MARK.sub(lambda mark: self._base64(mark[1].decode()), body) if HEAD in body else body

    @cached_property
    def _places(self) -> dict[str, tuple[Path, int]]:
        found: dict[str, tuple[Path, int]] = {}
        for path in self._store.files(BLOBS.name):
            with intact(path) as file:  # a row group has one row
                names = file.read(columns=["sha256"], use_threads=False).column(0).to_pylist()
            found |= {name: (path, number) for number, name in enumerate(names)}
        return found

    def _read(self, sha256: str) -> bytes:
        if sha256 not in self._places:
            raise LakeError(f"a request shows {sha256}, which is not in the lake's blobs", hint="nothing was sent")
        path, number = self._places[sha256]
        with intact(path) as file:
            return base64.b64encode(file.read_row_group(number, ["content"], use_threads=False).column(0)[0].as_py())
