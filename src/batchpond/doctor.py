"""What `doctor` looks at: the lake's files, rights and file system, and work that needs a person.

Reads only. Nothing here repairs: what can be repaired by a command is named in the hint.
"""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import duckdb

from batchpond.errors import BatchpondError, BusyError, ExitCode, LakeError, LakeWarning, UsageError
from batchpond.lake import manifest, tables
from batchpond.lake.attempts import Attempt, LakeState, fold
from batchpond.lake.disk import drop, parquet_files, read_through, relative
from batchpond.lake.events import read
from batchpond.lake.schemas import TABLES
from batchpond.lake.store import CONFIG, LENS, SECRET, SPOOL, TMP, Store
from batchpond.lake.tables import quoted
from batchpond.run import told
from batchpond.run.live import spool
from batchpond.study.prices import Prices, load_config
from batchpond.views import database, refresh

FREE_BYTES_MIN = 1 << 30
FINDINGS_MAX = 50
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs",
     "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "virtiofs"}
)  # fmt: skip
REBUILD = "`batchpond doctor --fix` writes the views anew; the Parquet files are not touched"
_STRANGE = "move it out: whoever reads all Parquet files counts it; keep a lake out of folders that are synchronised"
MOUNTS = Path("/proc/self/mounts")


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    NONE = "-"  # neither well nor not: a key that nobody set
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's outcome, and what to do about it."""

    check: str
    level: Level
    message: str
    hint: str | None = None
    exit_code: ExitCode = ExitCode.DONE


def examine(store: Store, *, is_deep: bool = False) -> list[Finding]:
    """Return the findings on an open lake, in a fixed order of checks; a deep one reads every byte of its tables."""
    found = [_ok("lake", f"{store.place} is lake {store.lake_id}"), *_files(store, is_deep=is_deep)]
    for check in (_settings, _lens, _rights, _file_system, _space, _writer):
        found.extend(check(store))
    try:
        lake_state = fold(read(store))
    except LakeError as error:
        hint = error.hint or "restore the file from a backup"
        return [*found, _damage("attempts", error.message, hint), *_live(store)]
    attempts = list(lake_state.attempts.values())
    refused = [Finding("keys", Level.ERROR, one.message, one.hint, one.exit_code) for one in told.refused(lake_state)]
    return [*found, *refused, *_attempts(store, lake_state), *_live(store), *_exchange(store, attempts)]


def worst(findings: list[Finding]) -> ExitCode:
    """Return the exit code that findings add up to."""
    codes = {finding.exit_code for finding in findings}
    order = (ExitCode.LAKE, ExitCode.ACCESS, ExitCode.ATTENTION, ExitCode.USAGE)
    return next((code for code in order if code in codes), ExitCode.DONE)


def _ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def _warning(check: str, message: str, hint: str) -> Finding:
    return Finding(check, Level.WARNING, message, hint)


def _damage(check: str, message: str, hint: str) -> Finding:
    return Finding(check, Level.ERROR, message, hint, ExitCode.LAKE)


def _files(store: Store, *, is_deep: bool) -> Iterator[Finding]:
    """Hold the files against what was published: all are there, of their sizes, with their table's columns."""
    lists = manifest.load(store.path)
    listed = lists.entries
    found = [manifest.Damage(manifest.FOLDER, problem) for problem in lists.problems]
    files = {name: store.files(name) for name in TABLES}  # all of them, from wherever: then none is missed in vain
    found += [manifest.Damage(name, manifest.GONE) for name in manifest.missing(store.path)]
    n_files, n_rows = 0, 0
    for name, paths in files.items():
        for path in paths:
            n_files += 1
            known = os.fspath(path.relative_to(store.path))
            problem = refresh.check_file(name, path)
            if problem is None and is_deep:
                n_more, problem = _content(path)
                n_rows += n_more
            if problem is None and known in listed:
                problem = manifest.differs(path, listed[known], is_deep=is_deep)
            if problem is not None:
                found.append(manifest.Damage(known, problem))
    for damage in found[:FINDINGS_MAX]:
        yield _damage("files", f"{damage.name}: {damage.problem}", damage.hint)
    for name in tables.misfolded(store) if is_deep else ():
        problem = "its bytes are not those that were written; it holds copies of rows alone"
        yield _damage("files", f"{name}: {problem}", "`batchpond doctor --fix` drops it and a pass makes it again")
    strange: list[str] = []
    for table in TABLES:
        sum(1 for _ in parquet_files(store.path / table, strange=strange))
    for known in relative(store.path, sorted(strange)[:FINDINGS_MAX]):
        yield _warning("files", f"{known} is no file of this lake, by its name or as a link: it is left out", _STRANGE)
    if not found:
        read = f", and {n_rows:,} rows read as they were written" if is_deep else ""
        yield _ok("files", f"{n_files:,} published files have their table's columns{read}")


def _content(path: Path) -> tuple[int, str | None]:
    try:
        return read_through(path), None
    except LakeError as error:
        return 0, error.message.partition(": ")[2]


def _settings(store: Store) -> Iterator[Finding]:
    """Read all that the lake's settings say, which commands read in part, and end where they cannot."""
    try:
        load_config(store.path)
        Prices.of_lake(store.path / CONFIG)
    except UsageError as error:
        yield Finding("settings", Level.ERROR, error.message, error.hint, error.exit_code)


_SHOWN = "SELECT table_name FROM information_schema.tables"


def _lens(store: Store) -> Iterator[Finding]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LakeWarning)  # `files` names what the views leave out
            connection = database.connect(store.path)
        with connection:
            names = {view.name for view in database.views()}
            shown = {name for (name,) in connection.execute(_SHOWN).fetchall()}
            # All other views are today's, and were bound to these when they were made.
            for name in TABLES:
                connection.sql(f"SELECT * FROM {quoted(name)} LIMIT 0").to_arrow_table()
    except (BatchpondError, duckdb.Error) as error:
        yield _damage("views", f"{LENS}: {error}", REBUILD)
        return
    if names - shown:
        yield _damage("views", f"{LENS} lacks {', '.join(sorted(names - shown))}", REBUILD)
    elif database.is_current(store.path, database.listed(store.path)):
        yield _ok("views", f"all {len(names)} views answer")
    else:
        yield _warning("views", f"{LENS} does not show what is published", REBUILD)


def rebuild_lens(store: Store) -> None:
    """Drop damaged files of derived tables, every byte of which is read, and write the views anew; raises BusyError."""
    with store.lock("doctor"):
        derived = (path for name, table in TABLES.items() if table.is_derived for path in store.files(name))
        for path in derived:
            if _content(path)[1] is not None:
                drop(path)
        for name in [*tables.misfolded(store)]:
            drop(store.path / name)
        (store.path / LENS).unlink(missing_ok=True)
        database.build(store.path, database.listed(store.path))


def _rights(store: Store) -> Iterator[Finding]:
    loose = [
        path.name or str(path)
        for path in (store.path, store.path / SECRET)
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    if loose:
        yield _warning("rights", f"others on this machine can read {', '.join(loose)}", f"chmod -R go= {store.path}")
    elif not os.access(store.path / TMP, os.W_OK):
        text = f"{store.path} cannot be written from here: it can be read, and nothing can be sent or collected"
        yield _warning("rights", text, "run as the lake's owner, where its disk can be written")
    else:
        yield _ok("rights", "only you can read the lake")


def _file_system(store: Store) -> Iterator[Finding]:
    kind = file_system(store.path)
    if kind in NETWORK_FILE_SYSTEMS:
        yield _warning(
            "file system",
            f"the lake is on {kind}, where locks and durable renames may not hold",
            "keep the lake on a local disk, and copy it where others read it",
        )
    else:
        yield _ok("file system", kind or "unknown to this system")


def file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the type of the file system a path is on, where the system says."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    best, kind = -1, None
    for fields in (line.split() for line in lines):
        point = fields[1].encode().decode("unicode_escape") if len(fields) > 2 else ""
        if point and len(point) >= best and path.resolve().is_relative_to(point):
            best, kind = len(point), fields[2]
    return kind


def _space(store: Store) -> Iterator[Finding]:
    free = shutil.disk_usage(store.path).free
    if free < FREE_BYTES_MIN:
        yield _warning("space", f"{free / 1e9:.1f} GB free", "make room before downloading results")
    else:
        yield _ok("space", f"{free / 1e9:,.0f} GB free")


def _writer(store: Store) -> Iterator[Finding]:
    if not os.access(store.path / TMP, os.W_OK):
        yield _ok("writer", "whether somebody writes to the lake cannot be told from here")
        return
    try:
        with store.lock("doctor"):
            yield _ok("writer", "nobody is writing to the lake")
    except BusyError as error:
        yield _ok("writer", error.message)


def _live(store: Store) -> Iterator[Finding]:
    """Answers of live calls that only the spool has; while `live` runs that is as it should be."""
    waiting = spool.attempts_with_segments(store)
    if not waiting:
        yield _ok("live", "no answer waits outside the tables")
        return
    message = f"answers of {len(waiting)} live attempts wait in {SPOOL}, outside the tables: {', '.join(waiting[:3])}"
    yield _warning("live", message, "`batchpond sync` brings them in, unless `batchpond live` is at it now")


def _attempts(store: Store, lake_state: LakeState) -> Iterator[Finding]:
    stuck = [*told.stuck(lake_state.attempts.values()), *told.for_nothing(store, lake_state)]
    for note in stuck[:FINDINGS_MAX]:
        yield Finding("attempts", Level.WARNING, note.message, note.hint, note.exit_code)
    if not stuck:
        yield _ok("attempts", f"none of {len(lake_state.attempts):,} needs a decision")


def _exchange(store: Store, attempts: Sequence[Attempt]) -> Iterator[Finding]:
    for text in told.absent(attempts, store):
        yield _warning("files", text, "mount or restore it: what it holds cannot be made again")
    for text in told.strays(attempts, store):
        yield _warning("files", text, told.STRAYS_HINT)
