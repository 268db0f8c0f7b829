"""The command line: one file per command; `output` owns stdout, `diagnostics` owns stderr."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from batchpond.errors import ExitCode

_COLLECT_ABOVE = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    try:
        from batchpond.cli.frame import run

        return run(arguments)
    except KeyboardInterrupt:  # before the command line listens for it, or when it has just left off
        return ExitCode.INTERRUPTED


def program() -> int:
    """Run the command that this process was started for.

    Spared, since each takes as long as a good part of a pass with nothing new: searching all that was imported
    and read for cycles, now and then and once more at exit, and loading the command line that httpx has.
    """
    gc.set_threshold(_COLLECT_ABOVE)
    sys.modules["httpx._main"] = None  # type: ignore[assignment] # so it is left out, as without its packages
    try:
        return main()
    finally:
        if "duckdb" not in sys.modules:  # its binding takes what is not searched for a leak, and says so
            gc.freeze()
