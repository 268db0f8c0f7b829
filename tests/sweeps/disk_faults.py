"""Every single write of a submit and of a sync fails in a run of its own: `python -m tests.sweeps.disk_faults`.

Prints how many runs that were; stops at the first that breaks a promise.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.process.test_disk_faults import FAULTS, make_starts, sweep


def main() -> None:
    """Sweep all writes of both verbs with both kinds of failure."""
    with tempfile.TemporaryDirectory(prefix="batchpond-sweep-") as folder:
        starts = make_starts(Path(folder) / "starts")
        for verb in starts:
            for fault in FAULTS:
                n_runs = sweep(verb, fault, starts, Path(folder) / f"{verb}-{fault}", 1)
                print(f"{verb}, {fault}: {n_runs} runs, each recovered from", flush=True)


if __name__ == "__main__":
    main()
