"""`query`: one SELECT over the lake, in a sandbox."""

from __future__ import annotations

import sys

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pass_invocation, pond_command
from batchpond.errors import UsageError

SQL_BYTES_MAX = 1_000_000


@pond_command(
    "query",
    'batchpond query "select outcome, count(*) as n from results group by all order by n desc"',
    "batchpond query metric_position_bias --format csv > bias.csv",
    "batchpond query - --json < my.sql",
)
@click.argument("sql")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=60.0, metavar="SECONDS",
              show_default=True, help="Give up after this long.")  # fmt: skip
@format_option
@pass_invocation
def command(invocation: Invocation, sql: str, timeout_s: float, form: Format) -> None:
    """Run one SELECT over the lake's views and print its rows.

    SQL is a query, the bare name of a view, or - for standard input. Files, the network,
    extensions and settings are out of reach, and nothing can be written.
    """
    from batchpond import views

    store = invocation.store()
    if sql == "-":
        sql = _standard_input()
    if sql in {view.name for view in views.views()}:
        sql = f'select * from "{sql}"'  # a name from our own list
    n_left_out = output.table(
        views.run_query(store.path, sql, timeout_s=timeout_s), form, has_color=invocation.color_stdout()
    )
    invocation.note_left_out(n_left_out)


def _standard_input() -> str:
    text = sys.stdin.read(SQL_BYTES_MAX + 1)
    if len(text) > SQL_BYTES_MAX:
        raise UsageError(f"the query on standard input is longer than {SQL_BYTES_MAX:,} characters")
    return text
