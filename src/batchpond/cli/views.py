"""`views`: what can be queried, or the whole SQL script."""

from __future__ import annotations

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pass_invocation, pond_command

WIDE = 160


@pond_command(
    "views",
    "batchpond views",
    "batchpond views --ddl > batchpond.sql && duckdb -init batchpond.sql",
)
@click.option("--ddl", "is_ddl", is_flag=True, help="Print the script that makes them, for plain DuckDB.")
@format_option
@pass_invocation
def command(invocation: Invocation, is_ddl: bool, form: Format) -> None:
    """List the views that SQL can ask, in the order in which they build on each other.

    Every one is also in lake/batchpond.duckdb: `duckdb -readonly lake/batchpond.duckdb`.
    """
    from batchpond import views

    if is_ddl:
        store = invocation.store()
        output.script(views.ddl(store.path, store.all_files()))
        return
    names: tuple[str, ...] = ("view", "stage", "grain", "question")
    rows = [(view.name, view.stage, view.grain, view.question) for view in views.views()]
    if form is Format.TABLE and output.is_terminal() and output.width() < WIDE:
        names, rows = ("view", "question"), [(row[0], row[3]) for row in rows]  # type: ignore[misc]
    output.records(names, rows, form, has_color=invocation.color_stdout())
