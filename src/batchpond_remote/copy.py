"""A lake of one machine copied to an address, from where several go on."""

from __future__ import annotations

from pathlib import Path

from batchpond.clock import Clock, Work
from batchpond.errors import LakeError, UsageError
from batchpond.lake import disk
from batchpond.lake.store import LABELS, MARKER, SPOOL
from batchpond_remote.mirror import Mirror, is_mirrored


def copy(lake_path: Path, address: Path, clock: Clock) -> int:
    """Copy a lake to an address, the marker that makes it one last, and read it there; return how many files it has.

    The lake's lock is held. Raises UsageError for a place that is no address or has a lake, and while something waits
    on this machine alone; LakeError for a file that came back otherwise.
    """
    folder = disk.local_folder(address)
    if folder == address:
        raise UsageError(f"{address} is no address of a bucket", hint="`cp -a` copies a lake to another folder")
    waiting = [path for path in (*(lake_path / SPOOL).rglob("*.*"), lake_path / LABELS) if path.is_file()]
    if waiting:
        raise UsageError(f"{waiting[0]} is of this machine alone", hint="`batchpond sync`, or `browse`, hands it in")
    mirror = Mirror(folder, clock)
    there = {*filter(is_mirrored, mirror.bucket.tags())}
    if MARKER in there:
        raise UsageError(f"there is a lake at {mirror.url}", hint="give another address")
    names = [name for name in disk.relative(lake_path, map(str, lake_path.rglob("*"))) if is_mirrored(name)]
    names.sort(key=lambda name: (name == MARKER, name))
    for name in there.difference(names):
        mirror.bucket.drop(name)  # of a copy that was not finished
    with Work(f"copying to {mirror.url}", "files", len(names)) as work:
        for name in names:
            mirror.bucket.put(name, (lake_path / name).read_bytes())
            work.add()
    mirror.look()
    for name in names:
        if disk.sha256(lake_path / name) != disk.sha256(folder / name):
            raise LakeError(
                f"{mirror.url}/{name} is not what was copied", hint="delete what is there, and copy it again"
            )
    return len(names)
