"""A folder on a file system: all that is written appears whole and durable under a name that nobody had, or not at all.

That is by `link`, which needs no lock and holds over NFS.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from batchpond_work import USAGE, WorkError
from batchpond_work.place import CLAIMS, INBOX, NO_OUTBOX, OUTBOX, Claim, Mark, Place, ids_of, parsed

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Folder(Place):
    """A folder; raises WorkError where there is none."""

    is_joining: ClassVar[bool] = True
    path: Path

    def __post_init__(self) -> None:
        if not self.outbox.is_dir():
            raise WorkError(f"{self.path} has no outbox", hint=NO_OUTBOX, exit_code=USAGE)
        for side in (self.inbox, self.claims):
            with contextlib.suppress(FileExistsError):
                side.mkdir()
                side.chmod(stat.S_IMODE(self.outbox.stat().st_mode))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def outbox(self) -> Path:
        """Where requests lie."""
        return self.path / OUTBOX

    @property
    def inbox(self) -> Path:
        """Where results belong."""
        return self.path / INBOX

    @property
    def claims(self) -> Path:
        """Where workers say what they work on."""
        return self.path / CLAIMS

    def listed(self, side: str, start: str = "") -> dict[str, Mark]:
        """Return the ordinary files of one side; what goes while they are listed was replaced by another."""
        folder = self.path / side
        if side == INBOX:
            # A directory that this machine has just written to is read anew, where NFS would show a remembered one.
            look = folder / f".{start}-look.part"
            look.touch()
            look.unlink(missing_ok=True)
        while True:
            names = sorted(name for name in os.listdir(folder) if name.startswith(start))
            with contextlib.suppress(FileNotFoundError):
                found = {name: (folder / name).lstat() for name in names}
                break
        plain = ((name, one) for name, one in found.items() if stat.S_ISREG(one.st_mode))
        return {name: Mark(one.st_size, str(one.st_mtime_ns), one.st_mtime) for name, one in plain}

    def read(self, name: str) -> bytes | None:
        """Return a small file's bytes."""
        with contextlib.suppress(FileNotFoundError):
            return (self.path / name).read_bytes()
        return None

    def requests(self, batch: str) -> Path | None:
        """Return a batch's requests where they lie."""
        path = self.outbox / f"{batch}.jsonl"
        return path if path.exists() else None

    def answered(self, names: Collection[str]) -> list[frozenset[str]]:
        """Return what files of the inbox answer."""
        return [ids_of(self.inbox / name) for name in names]

    def standing(self, name: str) -> tuple[float, bytes] | None:
        """Return a claim, opened: then NFS asks its server for the time."""
        with contextlib.suppress(FileNotFoundError), (self.path / name).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime, file.read()
        return None

    def now_s(self, by: str) -> float:
        """Return the time of a file that was touched just now."""
        path = self.claims / f".now-{by}"
        path.touch()
        os.utime(path)
        now_s = path.stat().st_mtime
        path.unlink(missing_ok=True)
        return now_s

    def make(self, name: str, data: bytes, by: str) -> bool:
        """Put a claim."""
        return self.put(self.path / name, data, by)

    def renew(self, name: str, data: bytes, *, is_free: bool) -> bool:  # noqa: ARG002 - what it says stays
        """Touch a claim, or date it to 1970."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.path / name, (0, 0) if is_free else None)
        return True

    def remove(self, name: str) -> None:
        """Unlink a claim."""
        (self.path / name).unlink(missing_ok=True)

    def replace(self, name: str, data: bytes, by: str) -> None:
        """Put a file once the other is gone."""
        self.remove(name)
        self.put(self.path / name, data, by)

    def fence(self, part: str, generation: int) -> None:  # noqa: ARG002 - whoever it was
        """Sweep away what former holders were about to add."""
        self.sweep(part)

    def write(self, claim: Claim, number: int, data: bytes, by: str, is_held: Callable[[], bool]) -> bool:
        """Put a file that nobody swept away."""
        return self.put(self.inbox / f"{claim.part}-{by}-{number:04d}.jsonl", data, by, is_held)

    def join(self, names: Collection[str], write: Callable[[bytes], bool]) -> None:
        """Replace files by one with all of their rows, identical ones once.

        The joined one stands before any other goes: whoever dies in between leaves rows that are there twice, byte
        for byte, until the next worker joins them, and whoever looks sees each at least once.
        """
        own = [self.inbox / name for name in names if name.endswith(".jsonl")]
        lines = [line for path in own for line in path.read_bytes().splitlines(keepends=True)]
        if len(own) > 1 and all(map(parsed, lines)):
            whole = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in dict.fromkeys(lines))
            if write(whole):
                for path in own:
                    path.unlink(missing_ok=True)
                sync_folder(self.inbox)

    def put(self, path: Path, data: bytes, by: str, is_allowed: Callable[[], bool] = lambda: True) -> bool:
        """Let a file appear, whole and durable, under a name that nobody has; whether this call did that.

        `is_allowed` is asked once the file stands under its passing name. Whoever takes the permission away sweeps
        passing names after that: so of what was forbidden nothing appears, however long this call slept in between.
        """
        passing = path.with_name(f".{path.name}.{by}.part")
        mode = 0o600 | stat.S_IMODE(path.parent.stat().st_mode) & 0o044
        try:
            with open(os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            is_done = is_allowed() and _linked(passing, path)
        finally:
            passing.unlink(missing_ok=True)
        sync_folder(path.parent)
        return is_done

    def sweep(self, name: str) -> None:
        """Take away what stands under passing names for a part or batch: whoever put it there holds it no more."""
        for passing in self.inbox.glob(f".{name}-*.part"):
            passing.unlink(missing_ok=True)


def _linked(passing: Path, path: Path) -> bool:
    """Give a file its name by the one call that elects; False where the name is taken or the file was swept away."""
    try:
        os.link(passing, path)
    except FileExistsError:
        # NFS may say so of a name that this very call made, when the answer to it was lost.
        return passing.stat().st_nlink == 2
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ESTALE}:
            return False
        raise
    return True


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def url_of(path: Path) -> str | None:
    """Return the address that a path was written as, of which it has one slash of two; None for a path."""
    found = _ADDRESS.fullmatch(str(path))
    return found and f"{found[1]}://{found[2]}"


@contextlib.contextmanager
def opened(path: Path, url: str | None) -> Iterator[Place]:
    """Yield the folder of that path, or of `file://`, or the place at an address."""
    if url is None or url.startswith("file:"):
        yield Folder(path if url is None else Path(f"/{url.removeprefix('file://')}"))
        return
    try:
        from batchpond_work.address import Address  # noqa: PLC0415 - a folder needs no object store
    except ModuleNotFoundError as error:
        hint = "pip install obstore, or 'batchpond[cluster]'"
        raise WorkError(f"{url} needs {error.name}", hint=hint, exit_code=USAGE) from None
    with tempfile.TemporaryDirectory(prefix="batchpond-work-") as scratch:
        yield Address(url, Path(scratch))
