"""The command line: a file per command, or for two of a kind; `output` owns stdout, `diagnostics` owns stderr."""

from __future__ import annotations

from collections.abc import Sequence

from batchpond.cli import _startup
from batchpond.errors import ExitCode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    try:
        from batchpond.cli.frame import run

        return run(arguments)
    except KeyboardInterrupt:  # before the command line listens for it, or when it has just left off
        return ExitCode.INTERRUPTED


def program() -> int:
    """Run the command that this process was started for."""
    _startup.spare()
    try:
        return main()
    finally:
        _startup.spare_exit()
