"""`rank`: what is better than what, and how sure one may be."""

from __future__ import annotations

import os

from batchpond.cli import linear_algebra, output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, pond_command
from batchpond.model import CELL_COLUMNS

TERMINAL_COLUMNS = ("item", "rank", "rank_lo", "rank_hi", "tied_group", "theta", "theta_lo", "theta_hi",
                    "n_comparisons", "win_rate", "flags")  # fmt: skip


@pond_command("rank")
def command(
    invocation: Invocation,
    study: str | None,
    by: tuple[str, ...],
    ties: str,
    position: bool,
    what: str,
    extras: tuple[str, ...],
    shown: str | None,
    seed: int,
    form: Format,
) -> None:
    """Rank items, or models, by pair judgments, with intervals and tied groups."""
    # Before the store, which holds linear algebra to one thread. Half the CPUs: the two of a core gain nothing over
    # one, and on a busy machine threads that wait for each other take several times as long as one alone.
    with linear_algebra(threads=max(1, (os.cpu_count() or 1) // 2)):
        from batchpond.results.rank import verb as rank
        from batchpond.results.rank.counts import SCOPE, What

    if shown in {"judges", "units"}:
        found = rank.jury(invocation.store().path, study)[shown]
        return invocation.note_left_out(output.table(found, form, has_color=invocation.color_stdout()))
    options = rank.options(ties=ties, position=position, extras=extras, seed=seed, is_full=shown == "summary")
    request = rank.Request(study=study, by=by or CELL_COLUMNS, what=What(what), options=options)
    report = rank.rank(invocation.store().path, request)
    table = report.rankings if shown else report.items
    if not shown and form is Format.TABLE:
        varied = [name for name in SCOPE if len(table[name].unique()) > 1]
        table = table.select([*varied, *TERMINAL_COLUMNS])
    invocation.note_left_out(output.table(table, form, has_color=invocation.color_stdout()))
    for note in report.notes:
        invocation.diagnostics.note(note)
