"""`label`: a sheet of what judges judged, for people to judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, force_option, json_option, pond_command
from batchpond.text import plural

if TYPE_CHECKING:
    from batchpond.interop.labels import Sheet


@pond_command("label")
@click.argument("study")
@click.option("--sample", "n", type=click.IntRange(1, 10_000), default=100, show_default=True, metavar="N",
              help="How many pairs or items.")  # fmt: skip
@click.option("--by", type=click.Choice(("strata", "random")), default="strata", show_default=True,
              help="In their true shares of agreement, flips and disagreement, or by lot alone.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the lot.")
@click.option("-o", "--output", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="A table (.csv), or a page for a browser (.html).  [default: STUDY-labels.csv]")  # fmt: skip
@force_option
@json_option
def command(
    invocation: Invocation,
    study: str,
    n: int,
    by: str,
    seed: int,
    path: Path | None,
    force: bool,
    is_json: bool,
) -> None:
    """Draw pairs or items that judges judged, for people to label."""
    from batchpond.interop import labels

    path = path or Path(f"{study.replace('/', '-')}-labels.csv")
    sheet = labels.draw(invocation.store().path, study, n, by=labels.By(by), seed=seed)
    labels.write(sheet, path, force=force)
    if is_json:
        output.document(document(sheet, path))
    shares = ", ".join(f"{count:,} {standing}" for standing, count in sheet.standings.items())
    labelled = f"; {sheet.n_labelled:,} are labelled already" if sheet.n_labelled else ""
    invocation.diagnostics.note(
        f"wrote {plural(len(sheet.questions), 'row')} of {sheet.n_units:,} to {path} ({shares}){labelled}",
        hint="fill in the column label, or the page, then `batchpond import labels FILE`; rater by rater: --rater NAME",
    )


def document(sheet: Sheet, path: Path) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "study": sheet.study, "path": path, "n_drawn": len(sheet.questions), "n_unlabelled": sheet.n_units,
        "n_labelled": sheet.n_labelled, "standings": sheet.standings,
    }  # fmt: skip
