"""Which files of a lake with a past each verb opens, beside a lake without one; `strace` counts them.

    python -m tests.bench.opened [STUDIES BATCHES]        # default 20 finished studies, 200 settled batches

In both lakes a new study is planned, sent in two parts and collected, as whole processes. Printed are the Parquet files
that each opens, and of those the files of tables with a file per batch (a file that is opened twice counts twice).
Limit: of these at most 150 more than in the lake without a past, however many batches there are: what came since they
were put together last. Ends with 1 where it is passed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.bench.growth import PLAIN, Place, place

PER_BATCH = ("shard_requests", "raw", "responses", "judgments")
MORE_MAX = 150
STEPS = (
    ("plan", "{file}"), ("submit", "new", "--yes", "--limit", "5"), ("sync",), ("sync",),
    ("plan", "{file}"), ("submit", "new", "--yes"), ("sync",),
)  # fmt: skip


def opened(one: Place, *arguments: str) -> Counter[str]:
    """Run the program and return how many of the lake's files it opens, by table."""
    trace = one.folder / "trace"
    watched = ["strace", "-f", "-e", "trace=open,openat", "-o", str(trace)]
    command = [*watched, sys.executable, "-m", "batchpond", *arguments]
    subprocess.run(command, env=one.environ, check=True, capture_output=True)
    files = re.findall(rf'"{re.escape(str(one.folder))}/lake/([^"/]+)/[^"]*\.parquet"', trace.read_text("utf-8"))
    return Counter(files)


def steps(one: Place) -> list[Counter[str]]:
    """Return what each step opens, after a study that any lake has behind it."""
    one.run("plan", str(one.write(PLAIN, "first", 10, 5)))
    one.run("submit", "first", "--yes")
    one.run("sync")
    one.run("sync")
    file = str(one.write(PLAIN, "new", 10, 5))
    return [opened(one, *(word.format(file=file) for word in step)) for step in STEPS]


def main() -> None:
    """Count, print, and end with 1 where the limit is passed."""
    n_studies, n_batches = [int(word) for word in sys.argv[1:]] or [20, 200]
    with tempfile.TemporaryDirectory(prefix="batchpond-opened-") as name, ExitStack() as stack:
        empty = stack.enter_context(place(Path(name) / "empty", 0, 0))
        floor = steps(empty)
        full = stack.enter_context(place(Path(name) / "full", n_studies, n_batches))
        found = steps(full)
    is_over = False
    for step, old, new in zip(STEPS, floor, found, strict=True):
        before, after = (sum(seen[table] for table in PER_BATCH) for seen in (old, new))
        is_over = is_over or after - before > MORE_MAX
        sys.stdout.write(
            f"{' '.join(step).replace('{file}', 'new'):24} {after} files of batches with {n_studies} studies and"
            f" {n_batches} batches, {before} in an empty lake (limit {MORE_MAX} more); {new.total()} and {old.total()}"
            " files in all\n"
        )
    sys.exit(is_over)


if __name__ == "__main__":
    main()
