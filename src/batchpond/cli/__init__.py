"""The command line: a file per command, or for two of a kind; `output` owns stdout and stderr.

Here is how its process starts and ends, and what it is spared then. `python -m tests.bench.startup` measures the CPU
time of a pass with nothing new without each: of 324 ms, searching for cycles at exit takes 56 more and searching while
modules load 19; httpx's command line, pandas and threads of linear algebra take none there, since such a pass loads
neither HTTP nor Arrow, and threads spin only where cores are free: they are for the commands that load those.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from batchpond.errors import ExitCode

_COLLECT_ABOVE: Final = 100_000
_THREADS: Final = "OPENBLAS_NUM_THREADS"


class _Absent:
    """Lets a package that nothing here asks for be as if it were not installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        """Refuse the one package, and leave others to who finds them; raises ModuleNotFoundError."""
        if fullname == self.name:
            raise ModuleNotFoundError(f"no command needs {fullname}", name=fullname)


def spare() -> None:
    """Leave out what no command needs: searches for cycles while modules load, httpx's command line, and pandas.

    Arrow loads pandas, where there is one, as soon as it is given a list: longer than most commands take. Prices are
    those that were installed: what would fetch later ones, and an HTTP library for that, is an empty module.
    """
    gc.set_threshold(_COLLECT_ABOVE)
    sys.meta_path.insert(0, _Absent("pandas"))
    sys.modules["httpx._main"] = None  # type: ignore[assignment] # so it is left out, as without its packages
    fetching = sys.modules["genai_prices.update_prices"] = ModuleType("genai_prices.update_prices")
    fetching.__getattr__ = lambda _: None  # type: ignore[method-assign]


def unspare(name: str) -> None:
    """Let a package be found after all, for a command that needs it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not (isinstance(finder, _Absent) and finder.name == name)]


def spare_exit() -> None:
    """Leave out the search of all objects for cycles at exit."""
    if "duckdb" not in sys.modules:  # its binding takes what is not searched for a leak, and says so
        gc.freeze()


@contextmanager
def linear_algebra(threads: int) -> Iterator[None]:
    """Let numpy load with so many threads of linear algebra: it reads their number only then.

    Threads that nothing uses spin longer than a pass with nothing new takes.
    """
    asked = os.environ.get(_THREADS)
    os.environ[_THREADS] = str(threads)
    try:
        yield
    finally:
        del os.environ[_THREADS]
        if asked is not None:
            os.environ[_THREADS] = asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises."""
    try:
        from batchpond.cli.frame import run

        return run(arguments)
    except KeyboardInterrupt:  # before the command line listens for it, or when it has just left off
        return ExitCode.INTERRUPTED


def program() -> int:
    """Run the command that this process was started for."""
    spare()
    try:
        return main()
    finally:
        spare_exit()
