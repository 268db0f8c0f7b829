"""`rank`: what is better than what, and how sure one may be."""

from __future__ import annotations

import os

import click

from batchpond.cli import linear_algebra, output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pond_command
from batchpond.model import CELL_COLUMNS

TERMINAL_COLUMNS = ("item", "rank", "rank_lo", "rank_hi", "tied_group", "theta", "theta_lo", "theta_hi",
                    "n_comparisons", "win_rate", "flags")  # fmt: skip
JURY = ("judges", "units")


@pond_command("rank")
@click.argument("study", required=False)
@click.option("--by", multiple=True, type=click.Choice(("study", *CELL_COLUMNS, "majority", "weighted", "dawid-skene")),
              help="One ranking per value of this, other cells pooled; may be repeated. A ranking per cell otherwise. "
              "majority, weighted, dawid-skene: by what all judges together hold of each pair.")  # fmt: skip
@click.option("--ties", type=click.Choice(["half", "davidson", "drop"]), default="half", show_default=True,
              help="A tie is half a win for each, modelled by Davidson, or left out.")  # fmt: skip
@click.option("--position", is_flag=True, help="Estimate what being shown first adds, and take it out.")
@click.option("--what", type=click.Choice(["auto", "items", "candidates"]), default="auto", show_default=True,
              help="Rank items, or the models that wrote them.")  # fmt: skip
@click.option("--with", "extras", multiple=True, type=click.Choice(["ml", "elo", "elochoice", "trueskill"]),
              help="Add other tools' estimates; may be repeated.")  # fmt: skip
@click.option("--summary", "shown", flag_value="summary", help="Print a row per ranking instead: connectedness, "
              "position effect, ties, reliability, circles.")  # fmt: skip
@click.option("--judges", "shown", flag_value="judges", help="Print instead how judges confuse words, by the model of "
              "Dawid and Skene.")  # fmt: skip
@click.option("--units", "shown", flag_value="units", help="Print instead how likely a word is of each pair or item, "
              "by that model.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the drawn rank intervals.")
@format_option
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

    if shown in JURY:
        found = rank.jury(invocation.store().path, study)[JURY.index(shown)]
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
