"""`work`: answer what lies in a folder of mode `files`, beside any number of others that do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import BatchpondError, ExitCode
from batchpond_work import WorkError
from batchpond_work.settings import OPTIONS, Settings


@pond_command("work")
def command(invocation: Invocation, folder: Path, is_json: bool, **settings: Any) -> int:
    """Answer the requests in a folder of mode `files`, or at its address: as many as you like, anywhere."""
    from batchpond_work.work import stopped_by_signals, work

    try:
        with stopped_by_signals() as stop:
            tally = work(folder, Settings(**settings), invocation.diagnostics.note, stop)
    except WorkError as error:
        ended = BatchpondError(error.message, hint=error.hint)
        ended.exit_code = ExitCode(error.exit_code)
        raise ended from error
    if is_json:
        output.document(dataclasses.asdict(tally))
    invocation.diagnostics.note(tally.text)
    return tally.exit_code


command.params[1:1] = [
    click.Option(
        [f"--{option.name.replace('_', '-')}"],
        type=type(option.default),
        is_flag=isinstance(option.default, bool),
        default=option.default,
        show_default=bool(option.default),
        metavar=None if isinstance(option.default, bool) else option.metadata["metavar"],
        help=option.metadata["help"],
    )
    for option in OPTIONS
]
