"""Result files that somebody else writes: which are there, whether they have come to rest, what they answer.

Nothing says when such a file is whole. So a line without its end does not count, a file that was written
to a moment ago may still grow, and all of a batch's files are final only when each of its requests has a
line, or when somebody said that no more will come.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from batchpond.errors import ProviderError
from batchpond.model import Download, FileRole, Response, ResponseStatus

QUIET_S: Final = 5.0
_SUFFIX: Final = re.compile(r"(?:[^A-Za-z0-9].*)?\.jsonl(?:\.gz)?")
_BLOCK_BYTES: Final = 1 << 20
_MADE_BYTES: Final = 1 << 36
_PARTS_MAX: Final = 10_000

ReadLine = Callable[[bytes, FileRole], Response]


@dataclass(frozen=True, slots=True)
class Part:
    """One result file; `mtime_s` is by the clock of its file system."""

    path: Path
    size_bytes: int
    mtime_ns: int

    @property
    def mtime_s(self) -> float:
        """When it was last written to, in unix seconds."""
        return self.mtime_ns / 1e9

    @property
    def is_zipped(self) -> bool:
        """Whether its lines are inside a gzip stream."""
        return self.path.suffix == ".gz"


@dataclass(frozen=True, slots=True)
class Answers:
    """How many of a batch's requests have a whole line, by whether its first one says success."""

    n_succeeded: int
    n_failed: int


def parts(inbox: Path, token: str) -> list[Part]:
    """Return the files that are named after a batch, in name order.

    Raises ProviderError for one that is no ordinary file: its bytes could change, or never end, unseen.
    """
    found = []
    for name in os.listdir(inbox):
        if not is_named(name, token):
            continue
        path = inbox / name
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise ProviderError(f"{path} is no ordinary file", hint="put a copy of the file there, not a link to it")
        found.append(Part(path, status.st_size, status.st_mtime_ns))
    if len(found) > _PARTS_MAX:
        raise ProviderError(f"{inbox} has {len(found):,} files of {token}", hint="join them to fewer")
    return sorted(found, key=lambda part: part.path.name)


def is_named(name: str, token: str) -> bool:
    """Whether a file name is one for results of a batch: its token, anything after a mark, and an ending."""
    return name.startswith(token) and _SUFFIX.fullmatch(name[len(token) :]) is not None


def count_lines(found: list[Part]) -> int:
    """Return how many lines end, empty ones included: never fewer than there are answers, but for the last."""
    n_lines = 0
    for part in found:
        last = b"\n"
        with opened(part) as file:
            while block := file.read(_BLOCK_BYTES):
                n_lines += block.count(b"\n")
                last = block[-1:]
        n_lines += last != b"\n"
    return n_lines


def read_answers(found: list[Part], read_line: ReadLine, prefix: str) -> Answers:
    """Return how many requests whose custom_id begins so have a line that can be read, each counted once."""
    succeeded: dict[str, bool] = {}
    for part in found:
        with opened(part) as lines:
            for line in lines:
                response = read_line(line.removesuffix(b"\n"), FileRole.OUTPUT) if line.strip() else None
                if response is not None and response.custom_id is not None and response.custom_id.startswith(prefix):
                    succeeded.setdefault(response.custom_id, response.status is ResponseStatus.SUCCEEDED)
    n_succeeded = sum(succeeded.values())
    return Answers(n_succeeded, len(succeeded) - n_succeeded)


def is_at_rest(found: list[Part], now_s: float, done_s: float | None) -> bool:
    """Whether nobody has written to the files lately, or since somebody said that they are whole.

    That word (`done_s`) is by the files' own clock, so it holds whatever this machine's clock says.
    """
    newest_s = max((part.mtime_s for part in found), default=0.0)
    if done_s is not None and newest_s <= done_s:
        return True
    return now_s - newest_s >= QUIET_S


def copy(part: Part, target: Path) -> Download:
    """Copy a file's lines, inflated if need be; raises ProviderError when it changed meanwhile."""
    digest = hashlib.sha256()
    size_bytes = 0
    with opened(part) as source, target.open("wb") as out:
        while block := source.read(_BLOCK_BYTES):
            out.write(block)
            digest.update(block)
            size_bytes += len(block)
            if size_bytes > _MADE_BYTES:
                raise ProviderError(f"{part.path} holds more than {_MADE_BYTES:,} bytes", hint="cut it into parts")
    return Download(size_bytes, digest.hexdigest())


@contextmanager
def opened(part: Part) -> Iterator[IO[bytes]]:
    """Open a file for reading; raises ProviderError when it is another, was written to, or is damaged."""
    descriptor = os.open(part.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as plain:
        _check_same(part, plain)
        try:
            if part.is_zipped:
                with gzip.GzipFile(fileobj=plain) as inflated:
                    yield cast(IO[bytes], inflated)
            else:
                yield plain
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ProviderError(
                f"{part.path} cannot be inflated: {error}", hint="if it is not still being written, write it again"
            ) from None
        _check_same(part, plain)


def _check_same(part: Part, file: IO[bytes]) -> None:
    status = os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != (part.size_bytes, part.mtime_ns):
        raise ProviderError(f"{part.path} changed while it was read", hint="the next `batchpond sync` reads it again")
