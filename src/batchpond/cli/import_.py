"""`import`: judgments made elsewhere, into the same metrics."""

from __future__ import annotations

from pathlib import Path

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, json_option, pass_invocation, pond_command
from batchpond.cli.text import plural


@click.group("import", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Bring in judgments that were made elsewhere; they stay marked as imported."""


@pond_command(
    "judgments",
    "batchpond import judgments judgments.csv",
    "batchpond import judgments answers.parquet --study pilot",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--study", help="The study to file them under, where the file has no such column.")
@json_option
@pass_invocation
def judgments(invocation: Invocation, file: Path, study: str | None, is_json: bool) -> None:
    """Import pairwise judgments from a CSV or Parquet FILE.

    Columns: item_first, item_second and verdict (first, second, tie, or why there is none);
    template_id, rubric_id, provider, model, thinking, unit_id and repeat_no if the file has
    them. Importing a row again is a no-op; a contradicting one is an error, and then nothing
    at all is imported.
    """
    from batchpond.import_judgments import import_judgments
    from batchpond.lake.store import Store

    report = import_judgments(Store.init(invocation.lake_path), file, study=study)
    if is_json:
        output.document(report)
    known = f"; {report.n_known:,} were in the lake before" if report.n_known else ""
    repeated = f"; {report.n_repeated:,} stood in the file more than once" if report.n_repeated else ""
    invocation.diagnostics.note(
        f"imported {plural(report.n_new, 'judgment')}{known}{repeated}",
        hint="`batchpond query metric_consistency` shows what they say",
    )


command.add_command(judgments)
