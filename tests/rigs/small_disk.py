"""A disk that is full for real: a small tmpfs, which only root may mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE_BYTES = 4_096


@contextmanager
def mounted(point: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a tmpfs of so many bytes for the length of a with block; skips where that is not possible."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    point.mkdir()
    if mount is None or umount is None:
        pytest.skip("NOT CHECKED on a full disk: there is no mount here")
    options = ["-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "batchpond-test", os.fspath(point)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("NOT CHECKED on a full disk: mounting a tmpfs needs root")
    yield point
    subprocess.run([umount, "-l", os.fspath(point)], check=True)


def make_read_only(point: Path, *, is_so: bool = True) -> None:
    """Let nothing more be written to a mounted disk, or let it be again."""
    mount = shutil.which("mount") or "mount"
    subprocess.run([mount, "-o", f"remount,{'ro' if is_so else 'rw'}", os.fspath(point)], check=True)


def fill(disk: Path, n_pages_free: int) -> Path:
    """Leave so many pages free; returns the file that takes the rest."""
    n_free = os.statvfs(disk).f_bavail
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, n_free - n_pages_free) * PAGE_BYTES))
    return filler
