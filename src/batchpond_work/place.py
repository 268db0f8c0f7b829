"""Where requests lie and answers belong, whatever holds the files: batches, their parts, what is answered.

A part is a range of lines of `outbox/NAME.jsonl`, `part_requests` of them. The inbox is the only checkpoint: a request
whose custom_id a whole row of any file there names is answered.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

PROTOCOL: Final = 2
PART_REQUESTS: Final = 1_000
OUTBOX, INBOX, CLAIMS = "outbox", "inbox", "claims"
MANIFEST: Final = ".manifest.json"
NO_OUTBOX: Final = 'it is made by `batchpond submit` of a study with `mode = "files"`; `lake/files` without settings'
_FIRST_ID: Final = re.compile(rb'\{"custom_id":\s?"([^"\\]+)"')


class NotWholeError(Exception):
    """A batch that cannot be worked on as it lies there, with the reason."""


@dataclass(frozen=True, slots=True)
class Part:
    """So many lines of a batch's requests, by the place of their first byte."""

    name: str
    requests: Path
    offset: int
    custom_ids: tuple[str, ...]

    def lines(self) -> dict[str, bytes]:
        """Return its request lines, without their ends, by custom_id."""
        with self.requests.open("rb") as file:
            file.seek(self.offset)
            return {custom_id: file.readline().rstrip(b"\n") for custom_id in self.custom_ids}


@dataclass(frozen=True, slots=True)
class Claim:
    """A part that this worker holds; `after` says who let it lie, None where nobody had it."""

    part: str
    generation: int
    after: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one batch, cut into parts."""

    name: str
    model: str
    first_line: bytes
    parts: tuple[Part, ...]


class Mark(NamedTuple):
    """A file as it is listed; `tag` and size change with its bytes, `changed_s` is by the clock that dates it."""

    size_bytes: int
    tag: str
    changed_s: float


def unquoted(tag: str | None) -> str:
    """Return an object's tag: Azure quotes it in answers and not in listings."""
    return (tag or "").strip('"')


class Place(ABC):
    """Files by name, as a folder and an object store both have them; `str` of it says where it is.

    What is written appears whole and durable, or not at all. `by` is the worker that writes.
    """

    look_s: ClassVar[float] = 2.0
    """How long apart looks are at what others do."""
    is_joining: ClassVar[bool] = False
    """Whether a part that is answered becomes one file."""

    @abstractmethod
    def listed(self, side: str, start: str = "") -> dict[str, Mark]:
        """Return the files of one side whose names begin so, in name order."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a small file's bytes, None where there is none."""

    @abstractmethod
    def requests(self, batch: str) -> Path | None:
        """Return a batch's requests as a file of this machine that stays, None where there are none."""

    @abstractmethod
    def answered(self, names: Collection[str]) -> list[frozenset[str]]:
        """Return which custom_ids whole rows of these files of the inbox name; FileNotFoundError where one is gone."""

    @abstractmethod
    def standing(self, name: str) -> tuple[float, bytes] | None:
        """Return when a claim was last renewed, and its bytes; None where there is none."""

    @abstractmethod
    def now_s(self, by: str) -> float:
        """Return the time by the clock that dates the claims."""

    @abstractmethod
    def make(self, name: str, data: bytes, by: str) -> bool:
        """Let a claim appear under a name that nobody has; whether this call did that."""

    @abstractmethod
    def renew(self, name: str, data: bytes, *, is_free: bool) -> bool:
        """Date a claim that was made here to now, or let it have lapsed; whether it is still there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Take a claim away, if there is one."""

    @abstractmethod
    def replace(self, name: str, data: bytes, by: str) -> None:
        """Put a file in the place of another, if any."""

    @abstractmethod
    def fence(self, part: str, generation: int) -> None:
        """See to it that nobody who held a part, or a batch's parts, before adds to the inbox from here on."""

    @abstractmethod
    def write(self, claim: Claim, number: int, data: bytes, by: str, is_held: Callable[[], bool]) -> bool:
        """Let the next file of a part's rows appear, as long as its claim is the last; whether it did."""

    def generation(self, part: str) -> int:  # noqa: ARG002 - where names of files tell
        """Return the last claim to a part that files of the inbox tell of."""
        return 0

    def join(self, names: Collection[str], write: Callable[[bytes], bool]) -> None:  # noqa: B027
        """Replace files of the inbox by one, which is written so, where that is done."""

    def names(self) -> list[str]:
        """Return the names of all batches, in order."""
        found = (name for name in self.listed(OUTBOX) if name.endswith(MANIFEST) and not name.startswith("."))
        return [name.removesuffix(MANIFEST) for name in found]

    def is_closed(self, name: str) -> bool:
        """Whether somebody said of a batch that no more should come."""
        return any(self.read(word) is not None for word in (f"{OUTBOX}/{name}.cancelled", f"{INBOX}/{name}.done"))

    def manifest(self, name: str) -> Mapping[str, Any]:
        """Return a batch's manifest; raises NotWholeError for none that could be one."""
        path = f"{OUTBOX}/{name}{MANIFEST}"
        manifest = parsed(self.read(path) or b"")
        if manifest is None or manifest.get("batch") != name:
            raise NotWholeError(f"{self}/{path} is no manifest of that batch")
        if manifest.get("protocol") not in (None, PROTOCOL):
            raise NotWholeError(f"{self}/{path} is of a later protocol than {PROTOCOL}")
        return manifest

    def batch(self, manifest: Mapping[str, Any]) -> Batch:
        """Return a batch with its parts; raises NotWholeError where its requests are not those of the manifest."""
        name = str(manifest["batch"])
        where, size = f"{self}/{OUTBOX}/{name}.jsonl", manifest.get("part_requests")
        n_part = size if isinstance(size, int) and size > 0 else PART_REQUESTS
        path = self.requests(name)
        if path is None:
            raise NotWholeError(f"{where} is not there")
        digest, place, offsets, ids, first = hashlib.sha256(), 0, list[int](), list[str](), b""
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                if number % n_part == 0:
                    offsets.append(place)
                first = first or line
                digest.update(line)
                place += len(line)
                ids.append(_asked_as(line, where, number))
        if digest.hexdigest() != manifest.get("sha256") or len(set(ids)) != len(ids):
            raise NotWholeError(f"{where} is not, or not yet, the file that its manifest describes")
        parts = (
            Part(f"{name}-p{number:04d}", path, offset, tuple(ids[number * n_part : (number + 1) * n_part]))
            for number, offset in enumerate(offsets)
        )
        return Batch(name, str(manifest.get("model") or ""), first, tuple(parts))


def ids_of(path: Path) -> frozenset[str]:
    """Return the custom_ids of a file's whole rows."""
    return frozenset(_ids(path))


def _ids(path: Path) -> Iterator[str]:
    """Yield the custom_ids of a file's whole rows; one that is cut or damaged has those before that place."""
    damages = (EOFError, gzip.BadGzipFile, zlib.error)
    with contextlib.suppress(*damages), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            row = parsed(line)
            if row is not None and isinstance(row.get("custom_id"), str):
                yield row["custom_id"]


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's JSON object, None where it is none that every reader takes."""
    try:
        row = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _asked_as(line: bytes, path: str, number: int) -> str:
    found = _FIRST_ID.match(line)
    if found is not None:
        return found[1].decode()
    custom_id = (parsed(line) or {}).get("custom_id")
    if not isinstance(custom_id, str):
        raise NotWholeError(f"line {number + 1} of {path} has no custom_id")
    return custom_id
