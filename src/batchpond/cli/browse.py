"""`browse`: a page of this machine on which one looks at answers, and labels them."""

from __future__ import annotations

from pathlib import Path

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, json_option, pond_command
from batchpond.cli.simulate import stopped_by_signals
from batchpond.errors import UsageError
from batchpond.text import plural


@pond_command("browse")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, metavar="P", help="0 takes a free one.")
@click.option("--rater", default="", metavar="NAME", help="Under whose name labels are given; the page can change it.")
@click.option("--open", "is_shown", is_flag=True, help="Show the page in a browser.")
@click.option("--bundle", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write the pages as files for colleagues instead, and stop.")  # fmt: skip
@click.option("--study", help="Only this study; with --bundle.")
@click.option("--limit", "n_cases", type=click.IntRange(min=1), default=500, show_default=True, metavar="N",
              help="How many pairs and items; with --bundle.")  # fmt: skip
@json_option
def command(
    invocation: Invocation,
    port: int,
    rater: str,
    is_shown: bool,
    folder: Path | None,
    study: str | None,
    n_cases: int,
    is_json: bool,
) -> None:
    """Show a lake on a page of this machine: studies, pairs, texts, answers and why, until Ctrl-C."""
    lake_path = invocation.store().path
    try:
        from batchpond_browse import bundle, server
    except ImportError as error:
        raise UsageError(f"`browse` needs {error.name}", hint="pip install 'batchpond[browse]'") from None
    if folder is not None:
        n_files = bundle.write(lake_path, folder, study=study, n_cases=n_cases)
        if is_json:
            output.document({"path": folder, "n_files": n_files})
        return invocation.diagnostics.note(f"wrote {plural(n_files, 'file')}", hint=f"open {folder / 'index.html'}")
    if study is not None:
        raise UsageError("--study is for --bundle", hint="the page has all studies")

    def ready(address: str) -> None:
        if is_json:
            output.document({"address": address})
        invocation.diagnostics.note(f"looking at {lake_path}: {address}", hint="Ctrl-C stops it")
        if is_shown:
            click.launch(address)

    n_waiting = server.serve(lake_path, port=port, rater=rater, on_ready=ready, until=stopped_by_signals())
    if n_waiting:
        invocation.diagnostics.note(f"{plural(n_waiting, 'label')} not handed in", hint="the next `browse` does that")
