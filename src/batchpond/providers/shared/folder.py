"""The folder of mode `files`: requests put into its outbox, durable, private and whole, and the result files that
somebody else writes: which are there, whether they have come to rest, what they answer."""

from __future__ import annotations

import filecmp
import gzip
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from batchpond import ids
from batchpond.errors import ProviderError, UsageError, needed
from batchpond.lake import disk, jsonl
from batchpond.lake.store import ADDRESS
from batchpond.model import Download, Response, ResponseStatus
from batchpond.text import address

if TYPE_CHECKING:
    from batchpond_remote.exchange import Exchange

QUIET_S: Final = 5.0
_SUFFIX: Final = re.compile(r"(?:[^A-Za-z0-9].*)?\.jsonl(?:\.gz)?")
_BLOCK_BYTES: Final = 1 << 20
_MADE_BYTES: Final = 1 << 36
_PARTS_MAX: Final = 10_000

ReadLine = Callable[[bytes], Response]


@dataclass(frozen=True, slots=True)
class Part:
    """One result file; `mtime_ns` is by the clock of its file system."""

    path: Path
    size_bytes: int
    mtime_ns: int


def parts(inbox: Path, token: str) -> list[Part]:
    """Return the files that are named after a batch, in name order; raises ProviderError as `part_of` does."""
    found = [part_of(inbox / name) for name in os.listdir(inbox) if is_named(name, token)]
    if len(found) > _PARTS_MAX:
        raise ProviderError(f"{inbox} has {len(found):,} files of {token}", hint="join them to fewer")
    return sorted(found, key=lambda part: part.path.name)


def part_of(path: Path) -> Part:
    """Return a result file; raises ProviderError for no ordinary one: its bytes could change, or never end, unseen."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ProviderError(f"{path} is no ordinary file", hint="put a copy of the file there, not a link to it")
    return Part(path, status.st_size, status.st_mtime_ns)


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


def read_answers(found: list[Part], read_line: ReadLine, prefix: str) -> tuple[int, int]:
    """Return how many requests whose custom_id begins so succeeded, and failed, by the first line that says so."""
    succeeded: dict[str, bool] = {}
    for part in found:
        with opened(part) as lines:
            for line in jsonl.whole_or_cut(lines):
                text = line.removesuffix(b"\n")
                response = read_line(text) if text.strip() else None
                custom_id = None if response is None else response.custom_id or jsonl.named_in(text)
                if response is not None and custom_id is not None and custom_id.startswith(prefix):
                    succeeded.setdefault(custom_id, response.status is ResponseStatus.SUCCEEDED)
    n_succeeded = sum(succeeded.values())
    return n_succeeded, len(succeeded) - n_succeeded


def is_at_rest(found: list[Part], now_s: float, done_s: float | None) -> bool:
    """Whether nobody has written to the files lately, or since somebody said that they are whole.

    That word (`done_s`) is by the files' own clock, whatever this machine's says. A time to come is not lately.
    """
    newest_s = max((part.mtime_ns for part in found), default=0) / 1e9
    if done_s is not None and newest_s <= done_s:
        return True
    return abs(now_s - newest_s) >= QUIET_S


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
        _check_same_request(part, plain)
        try:
            if part.path.suffix == ".gz":
                with gzip.GzipFile(fileobj=plain) as inflated:
                    yield cast(IO[bytes], inflated)
            else:
                yield plain
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ProviderError(
                f"{part.path} cannot be inflated: {error}", hint="if it is not still being written, write it again"
            ) from None
        _check_same_request(part, plain)


def _check_same_request(part: Part, file: IO[bytes]) -> None:
    status = os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != (part.size_bytes, part.mtime_ns):
        raise ProviderError(f"{part.path} changed while it was read", hint="the next `batchpond sync` reads it again")


FOLDER_ENV: Final = "BATCHPOND_FILES"
HOST_MARK: Final = "files:"
OUTBOX, INBOX = "outbox", "inbox"
TOKEN: Final = ids.TOKEN


@dataclass(frozen=True, slots=True)
class Folder:
    """Where files are exchanged; `host` is what attempts remember of it.

    A folder inside the lake is made when needed, and remembered by its place there, so that the lake can be
    moved. Any other must exist: making it where a disk is not mounted would hide files under the mount.
    Of one at an address, `path` is a copy on this machine, which `far` brings up to date before a look.
    """

    path: Path
    host: str
    is_in_lake: bool
    far: Exchange | None = None

    @classmethod
    def of(cls, path: Path, lake: Path | None = None) -> Folder:
        """Return the folder at a path or an address, which need not exist yet."""
        url = address(path) or ""
        if url and not url.startswith("file:"):
            with needed(f"files at {url}", "cluster"):
                from batchpond_remote.exchange import Exchange
            far = Exchange(url)
            return cls(far.copy, f"{HOST_MARK}{url}", is_in_lake=False, far=far)
        absolute = Path(os.path.abspath(url.removeprefix("file://") or path))
        if lake is not None and absolute.is_relative_to(base := os.path.abspath(lake)):
            return cls(absolute, f"{HOST_MARK}./{absolute.relative_to(base).as_posix()}", is_in_lake=True)
        return cls(absolute, f"{HOST_MARK}{absolute}", is_in_lake=False)

    @property
    def outbox(self) -> Path:
        """Where requests appear."""
        return self.path / OUTBOX

    @property
    def inbox(self) -> Path:
        """Where results belong."""
        return self.path / INBOX

    def strays(self, known: Mapping[str, frozenset[str] | None]) -> list[str]:
        """Return the result files in `inbox` that nobody will read, by name.

        `known` has the batches by token, each with the files that were read of it; None while it
        is open, since it reads whatever comes. At an address an empty file says that no more may be added.
        """
        if not (os.path.isdir(self.inbox) and os.access(self.inbox, os.R_OK | os.X_OK)):
            return []
        there = self.far.listed(INBOX, "") if self.far else dict.fromkeys(os.listdir(self.inbox), (1, 0))
        names = sorted(name for name, (size, _) in there.items() if size and not name.startswith("."))
        return [name for name in names if name.endswith((".jsonl", ".jsonl.gz")) and _is_stray(name, known)]


def _is_stray(name: str, known: Mapping[str, frozenset[str] | None]) -> bool:
    token = TOKEN.match(name)
    if token is None:
        return True
    if token.group() not in known:  # another lake may use the same folder
        return False
    read = known[token.group()]
    return (read is not None and name not in read) or not is_named(name, token.group())


def folder(environ: Mapping[str, str], lake: Path | None) -> Folder:
    """Return the folder that the environment names, else the lake's own.

    Raises UsageError for none, and for one in the mirror of a lake at an address: to another machine's `sync` the
    batches in it are not there.
    """
    named = environ.get(FOLDER_ENV, "").strip()
    if not named and lake is None:
        raise UsageError("no folder for request and result files", hint=f"set {FOLDER_ENV}")
    found = Folder.of(Path(named).expanduser() if named else Path(lake or "") / "files", lake)
    if lake is not None and found.is_in_lake and (lake / ADDRESS).exists():
        text = f"{found.path} is of this machine alone, and the lake at its address is of several"
        hint = f"`[files] folder` in config.toml or {FOLDER_ENV} names an address, s3://..., or a path that all have"
        raise UsageError(text, hint=hint)
    return found


@contextmanager
def published(final: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name once it is whole and durable; one that is there stays.

    It is as private as its folder: readable by whom that lets in.
    """
    part = final.with_name(f"{final.name}.part")
    disk.drop(part)
    mode = disk.FILE_MODE | stat.S_IMODE(final.parent.stat().st_mode) & 0o044
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(descriptor, mode)
            yield out
            out.flush()
            os.fsync(descriptor)
    except OSError:
        disk.drop(part)
        raise
    disk.link_into_place(part, final)


def show(hidden: Path, visible: Path) -> None:
    """Give a hidden file its visible name; raises ProviderError for one of that name with other content."""
    if visible.exists():
        check_same(visible, hidden)
    disk.link_into_place(hidden, visible)


def check_same(path: Path, wanted: Path) -> None:
    """Raise ProviderError for a file that has other content than is wanted."""
    if not filecmp.cmp(path, wanted, shallow=False):
        raise ProviderError(f"{path} is there with other content: move that file away")


def of_host(host: str, lake: Path) -> Folder | None:
    """Return the folder that attempts remember as this host; None where it is none."""
    if not host.startswith(HOST_MARK):
        return None
    named = Path(host.removeprefix(HOST_MARK))
    return Folder.of(named if address(named) else lake / named, lake)
