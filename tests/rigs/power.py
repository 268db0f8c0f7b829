"""What a folder holds once the power failed, worked out from the system calls of whoever wrote in it.

POSIX promises of a file only what it held at its last fsync, and of a folder only the names it had at its own. A run
under strace is replayed call by call into what is there and what is durable; `cut` then lays the folder out as it may
be found when the machine starts again: with nothing that was not flushed (the strict case), or, with a seed, with some
of it, torn as it may be.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_CALLS = (
    "open,openat,creat,mkdir,mkdirat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
    "write,pwrite64,writev,pwritev,truncate,ftruncate,fallocate,copy_file_range,fsync,fdatasync"
)
_LINE = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)", re.DOTALL)
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<rest>.*)", re.DOTALL)
_UNFINISHED = "<unfinished ...>"
_DESCRIPTOR = re.compile(r"(?:\d+|AT_FDCWD)<(?P<path>[^>]*)>")
_PATH = re.compile(r'(?:(?:\d+|AT_FDCWD)<(?P<folder>[^>]*)>, )?"(?P<path>(?:[^"\\]|\\.)*)"')
_WRITES = frozenset({"write", "pwrite64", "writev", "pwritev", "truncate", "ftruncate", "fallocate", "copy_file_range"})


def traced(log: Path, program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs a program and writes its calls to a log."""
    return (
        "strace",
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        f"trace={_CALLS}",
        "-e",
        "signal=none",
        "-o",
        os.fspath(log),
        *program,
    )


@dataclass
class _File:
    """One inode: how often it was written, and how often it had been at its last fsync."""

    n_writes: int = 0
    n_durable: int = 0

    @property
    def is_durable(self) -> bool:
        return self.n_writes == self.n_durable


@dataclass
class Power:
    """A folder, and which of its names and bytes a machine that stops right now would still have.

    What is there when this is made counts as durable; a copy of it is kept, for what is deleted and not yet forgotten.
    """

    root: Path
    backup: Path
    names: dict[str, _File | None] = field(default_factory=dict)  # None is a folder
    durable: dict[str, _File | None] = field(default_factory=dict)
    _first: dict[int, str] = field(default_factory=dict)
    _pending: dict[str, tuple[str, str]] = field(default_factory=dict)
    _flushing: dict[str, tuple[_File, int] | dict[str, _File | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, backup: Path) -> Power:
        """Look at a folder before anybody writes in it."""
        shutil.copytree(root, backup)
        power = cls(root, backup)
        for folder, folders, files in os.walk(root):
            power.names |= {os.path.join(folder, name): None for name in folders}
            power.names |= {os.path.join(folder, name): _File() for name in files}
        power.durable = dict(power.names)
        power._first = {id(file): path for path, file in power.names.items() if file is not None}
        return power

    # -- the calls ---------------------------------------------------------------------------------

    def replay(self, log: Path) -> None:
        """Take in all calls of a log; raises ValueError for one that changes the folder and is not understood."""
        for line in log.read_text(errors="surrogateescape").splitlines():
            if found := _RESUMED.fullmatch(line):
                call, begun = self._pending.pop(found["pid"], ("", ""))
                self._ended(found["pid"], call, begun + found["rest"])
            elif found := _LINE.fullmatch(line):
                if found["rest"].endswith(_UNFINISHED):
                    begun = found["rest"].removesuffix(_UNFINISHED)
                    self._pending[found["pid"]] = (found["call"], begun)
                    self._begun(found["pid"], found["call"], begun)
                else:
                    self._begun(found["pid"], found["call"], found["rest"])
                    self._ended(found["pid"], found["call"], found["rest"])

    def _begun(self, pid: str, call: str, rest: str) -> None:
        """Note what a flush is of: it keeps what was there when it began."""
        if call not in {"fsync", "fdatasync"} or (path := self._descriptor(rest)) is None:
            return
        file = self.names.get(path)
        if file is not None:
            self._flushing[pid] = (file, file.n_writes)
        else:
            self._flushing[pid] = {name: file for name, file in self.names.items() if os.path.dirname(name) == path}

    def _ended(self, pid: str, call: str, rest: str) -> None:
        flushed = self._flushing.pop(pid, None)
        arguments, _, result = rest.rpartition(" = ")
        if not call or result.startswith(("-1", "?")):
            return
        if call in {"fsync", "fdatasync"}:
            self._flushed(self._descriptor(rest), flushed)
        elif call in _WRITES:
            path = self._descriptor(rest) or next(self._paths(arguments), None)
            if isinstance(file := self.names.get(path or ""), _File):
                file.n_writes += 1
        else:
            self._named(call, arguments, list(self._paths(arguments)))

    def _flushed(self, path: str | None, flushed: tuple[_File, int] | dict[str, _File | None] | None) -> None:
        if isinstance(flushed, tuple):
            file, n_writes = flushed
            file.n_durable = max(file.n_durable, n_writes)
        elif flushed is not None and path is not None:
            gone = [name for name in self.durable if os.path.dirname(name) == path and name not in flushed]
            for name in gone:
                del self.durable[name]
            self.durable |= flushed

    def _named(self, call: str, arguments: str, paths: list[str]) -> None:
        inside = [path for path in paths if self._is_inside(path)]
        if not inside:
            return
        match call:
            case "open" | "openat" | "creat":
                if ("O_CREAT" in arguments or call == "creat") and paths[0] not in self.names:
                    self.names[paths[0]] = _File(n_writes=1)
                elif "O_TRUNC" in arguments and isinstance(file := self.names.get(paths[0]), _File):
                    file.n_writes += 1
            case "mkdir" | "mkdirat":
                self.names[paths[0]] = None
            case "link" | "linkat":
                self.names[paths[1]] = self.names[paths[0]]
            case "rename" | "renameat" | "renameat2":
                for name in [name for name in self.names if f"{name}/".startswith(f"{paths[0]}/")]:
                    self.names[paths[1] + name.removeprefix(paths[0])] = self.names.pop(name)
            case "unlink" | "unlinkat" | "rmdir":
                self.names.pop(paths[0], None)
            case _:
                raise ValueError(f"{call} is not understood: {arguments}")

    def _is_inside(self, path: str) -> bool:
        return path.startswith(f"{self.root}/")

    def _descriptor(self, rest: str) -> str | None:
        found = _DESCRIPTOR.match(rest)
        return found["path"] if found and (self._is_inside(found["path"]) or found["path"] == str(self.root)) else None

    def _paths(self, arguments: str) -> Iterator[str]:
        for found in _PATH.finditer(arguments):
            yield os.path.normpath(os.path.join(found["folder"] or os.getcwd(), found["path"]))

    # -- the power -----------------------------------------------------------------------------------

    def cut(self, seed: int | None = None) -> list[str]:
        """Lay the folder out anew as the disk may hold it, and return what was lost, one line each."""
        rng = None if seed is None else random.Random(seed)
        kept = dict(self.durable)
        for name in sorted(self.names.keys() ^ self.durable.keys() | self._renamed()):
            if rng and rng.random() < 0.5:
                kept.pop(name, None)
                if name in self.names:
                    kept[name] = self.names[name]
        contents = {id(file): path for path, file in self.names.items() if file is not None}
        lost = sorted(f"name {self._short(name)}" for name in self.names.keys() - kept.keys())
        found: dict[str, bytes | None] = {}
        for name, file in kept.items():
            if file is None:
                found[name] = None
                continue
            data = self._bytes(file, contents)
            if data is None:
                continue  # made and deleted in between: whatever the name would lead to, nobody knew it
            if not file.is_durable:
                lost.append(f"bytes of {self._short(name)}")
                data = _torn(data, rng)
            found[name] = data
        self._lay_out(found)
        return lost

    def _renamed(self) -> set[str]:
        return {name for name, file in self.names.items() if self.durable.get(name, file) is not file}

    def _bytes(self, file: _File, contents: dict[int, str]) -> bytes | None:
        if (path := contents.get(id(file))) is not None and os.path.exists(path):
            return Path(path).read_bytes()
        if (path := self._first.get(id(file))) is not None and file.n_writes == 0:
            return (self.backup / os.path.relpath(path, self.root)).read_bytes()
        return None

    def _short(self, name: str) -> str:
        return os.path.relpath(name, self.root)

    def _lay_out(self, found: dict[str, bytes | None]) -> None:
        shutil.rmtree(self.root)
        self.root.mkdir(mode=0o700)
        folders = {str(self.root)}
        for name in sorted(found):
            if os.path.dirname(name) not in folders:
                continue  # the folder itself was lost
            data = found[name]
            if data is None:
                os.mkdir(name, 0o700)
                folders.add(name)
            else:
                Path(name).write_bytes(data)
                os.chmod(name, 0o600)


def _torn(data: bytes, rng: random.Random | None) -> bytes:
    """Return what may be left of bytes that nobody flushed: nothing, a part, zeros, or all."""
    if rng is None:
        return b""
    return rng.choice([b"", data[: len(data) // 2], bytes(len(data)), data])
