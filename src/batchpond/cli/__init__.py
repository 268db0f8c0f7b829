"""The command line: one file per command; `output` owns stdout, `diagnostics` owns stderr."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    from batchpond.cli.frame import run

    return run(arguments)
