"""`audit`: does every request and every line have its place?"""

from __future__ import annotations

from typing import Any

import click

from batchpond.cli import output
from batchpond.cli.formats import Format, plural
from batchpond.cli.frame import Invocation, format_option, pass_invocation, pond_command
from batchpond.errors import ExitCode

HEADS = ("attempt", "sent", "ok", "errored", "expired", "cancelled", "missing", "waiting", "in doubt", "balanced")
COLUMNS = (
    "attempt_id", "attempt_state", "n_sent", "n_succeeded", "n_errored", "n_expired", "n_cancelled", "n_missing",
    "n_outstanding", "n_in_doubt", "is_balanced",
)  # fmt: skip
ID_SHOWN = 10


@pond_command("audit", "batchpond audit", "batchpond audit my-study --json")
@click.argument("study", required=False)
@format_option
@pass_invocation
def command(invocation: Invocation, study: str | None, form: Format) -> ExitCode:
    """Show for each batch: sent = succeeded + errored + expired + cancelled + missing.

    A batch is balanced when that holds and every line of its files belongs to one request. It
    is not judged while it is open. Exit code 3 when a batch is out of balance.
    """
    from batchpond.views.read import rows

    found = rows(invocation.store().path, "audit", order=("study", "attempt_id"), study=study)
    if form is Format.TABLE and output.is_terminal():
        output.records(HEADS, [_short(row) for row in found], form, has_color=invocation.color_stdout())
    else:
        names = list(found[0]) if found else COLUMNS
        output.records(names, [tuple(row.values()) for row in found], form)
    return _conclude(invocation, found)


def _short(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["attempt_id"][:ID_SHOWN], *(row[name] for name in COLUMNS[2:]))


def _conclude(invocation: Invocation, found: list[dict[str, Any]]) -> ExitCode:
    off = [row for row in found if row["is_balanced"] is False]
    n_open = sum(row["is_balanced"] is None for row in found)
    for row in off:
        invocation.diagnostics.warning(
            f"attempt {row['attempt_id'][:ID_SHOWN]} is out of balance",
            hint=f"`batchpond resolve {row['attempt_id'][:ID_SHOWN]} --refetch` downloads its files again",
        )
    if not off:
        invocation.diagnostics.note(f"{plural(len(found) - n_open, 'settled batch')} in balance, {n_open:,} still open")
    return ExitCode.ATTENTION if off else ExitCode.DONE
