"""`python -m batchpond_work FOLDER --engine ENGINE`: the worker, without batchpond."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from batchpond_work import WorkError
from batchpond_work.settings import OPTIONS, Settings
from batchpond_work.work import stopped_by_signals, work


def main(arguments: Sequence[str] | None = None) -> int:
    """Work as the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser("batchpond_work", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="the folder with outbox and inbox, or its address: s3://, gs://, az://"
    )
    for option in OPTIONS:
        says, metavar = option.metadata["help"], option.metadata["metavar"]
        name = f"--{option.name.replace('_', '-')}"
        if isinstance(option.default, bool):
            parser.add_argument(name, action="store_true", help=says)
        else:
            parser.add_argument(name, type=type(option.default), default=option.default, help=says, metavar=metavar)
    asked = vars(parser.parse_args(arguments))
    try:
        with stopped_by_signals() as stop:
            tally = work(asked.pop("folder"), Settings(**asked), _say, stop)
    except WorkError as error:
        _say(f"error: {error.message}" + (f" ({error.hint})" if error.hint else ""))
        return error.exit_code
    _say(tally.text)
    return tally.exit_code


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
