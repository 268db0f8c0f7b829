"""`results`: one row per planned request."""

from __future__ import annotations

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pass_invocation, pond_command

ORDER = ("study", "slot")
# What fits a terminal and answers "who won"; every other form prints all columns.
TERMINAL_COLUMNS = (
    "template_id",
    "rubric_id",
    "request_model",
    "thinking",
    "item_first",
    "item_second",
    "verdict",
    "outcome",
)
LEFT_OUT_BELOW = 100
LEFT_OUT = frozenset({"rubric_id", "thinking"})


@pond_command(
    "results",
    "batchpond results --study demo --limit 20",
    "batchpond results --format parquet > results.parquet",
    "batchpond results --json | jq '.[] | select(.outcome == \"refused\") | .text'",
)
@click.option("--study", help="Only this study; all of them otherwise.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most this many rows.")
@click.option("--all-columns", is_flag=True, help="On a terminal, all columns too.")
@format_option
@pass_invocation
def command(invocation: Invocation, study: str | None, limit: int | None, all_columns: bool, form: Format) -> None:
    """Print one row per planned request: who won, or why nobody did.

    Rows stream, so a study of any size fits. A request without an answer yet is a row too.
    """
    from batchpond.views.read import stream

    store = invocation.store()
    is_short = form is Format.TABLE and output.is_terminal() and not all_columns
    columns = _terminal_columns() if is_short else None
    with stream(store.path, "results", columns=columns, study=study, order=ORDER, limit=limit) as rows:
        n_left_out = output.table(rows, form, has_color=invocation.color_stdout())
    invocation.note_left_out(n_left_out)


def _terminal_columns() -> tuple[str, ...]:
    is_narrow = output.width() < LEFT_OUT_BELOW
    return tuple(name for name in TERMINAL_COLUMNS if not (is_narrow and name in LEFT_OUT))
