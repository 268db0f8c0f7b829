"""`rank`: what is better than what, and how sure one may be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from batchpond.cli import linear_algebra, output
from batchpond.cli.formats import Figure, Format, short_cell
from batchpond.cli.frame import Invocation, pond_command
from batchpond.model import CELL_COLUMNS

# What matters first, since a terminal may not have room for the rest; every other form has all columns.
TERMINAL_COLUMNS = ("item", "rank [lo, hi]", "theta [lo, hi]", "tied_group", "n_comparisons", "win_rate", "flags")
SUMMARY_COLUMNS = ("component_id", "n_items", "n_comparisons", "reliability", "eta", "eta_p", "n_cyclic")


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
        from batchpond.results.rank.verb import What

    if shown in {"judges", "units"}:
        found = rank.jury(invocation.store().path, study)[shown]
        return invocation.note_left_out(output.table(found, form, has_color=invocation.color_stdout()))
    options = rank.options(ties=ties, position=position, extras=extras, seed=seed, is_full=shown == "summary")
    request = rank.Request(study=study, by=by or CELL_COLUMNS, what=What(what), options=options)
    report = rank.rank(invocation.store().path, request)
    table = report.rankings if shown else report.items
    if form is Format.TABLE:
        rows = table.to_pylist()
        names = (*_apart(rows), *(SUMMARY_COLUMNS if shown else TERMINAL_COLUMNS))
        cells = [[_cell(row, name) for name in names] for row in rows]
        invocation.diagnostics.note(f"`--format csv` has all {table.num_columns} columns")
        invocation.note_left_out(output.records(names, cells, form, has_color=invocation.color_stdout()))
    else:
        invocation.note_left_out(output.table(table, form, has_color=invocation.color_stdout()))
    for note in report.notes:
        invocation.diagnostics.note(note)


def _apart(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Yield what tells the rankings apart; provider and thinking only where the rest of the cell does not."""
    kept = [name for name in ("study", *CELL_COLUMNS) if len({row[name] for row in rows}) > 1]
    for name in ("provider", "thinking"):
        rest = [other for other in kept if other != name]
        n_apart, n_without = (len({tuple(row[one] for one in names) for row in rows}) for names in (kept, rest))
        kept = rest if n_apart == n_without else kept
    return kept


def _cell(row: dict[str, Any], name: str) -> Any:
    """Return a figure to three digits, or one with the ends of its interval, which an open one lacks."""
    name, *with_ends = name.split(maxsplit=1)
    if not with_ends or row[name] is None:
        return float(f"{row[name]:.3g}") if isinstance(row[name], float) else row[name]
    ends = (row[f"{name}{end}"] for end in ("", "_lo", "_hi"))
    spelt = (f"{one:.2f}" if isinstance(one, float) else short_cell(one) for one in ends)
    return Figure("{} [{}, {}]".format(*spelt))
