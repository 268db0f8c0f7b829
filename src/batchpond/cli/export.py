"""`export`: copies of a view for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, json_option, pass_invocation, pond_command
from batchpond.cli.text import plural
from batchpond.errors import UsageError

KINDS = ("parquet", "csv", "jsonl")


@pond_command(
    "export",
    "batchpond export results.parquet",
    "batchpond export bias.csv --view metric_position_bias",
    "batchpond export by-batch --per-batch --format jsonl",
)
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(KINDS), help="Taken from the file's ending otherwise.")
@click.option("--view", default="results", show_default=True, metavar="NAME", help="What to export.")
@click.option("--per-batch", is_flag=True, help="DESTINATION is a folder: one file per batch.")
@click.option("--keep-formulas", is_flag=True,
              help="In csv, leave text that a spreadsheet would run as it is.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that are there.")
@json_option
@pass_invocation
def command(
    invocation: Invocation,
    destination: Path,
    kind: str | None,
    view: str,
    per_batch: bool,
    keep_formulas: bool,
    force: bool,
    is_json: bool,
) -> None:
    """Write a view to DESTINATION as parquet, csv or jsonl; any size, one file or one per batch.

    In csv, text that a spreadsheet would take for a formula gets a ' before it.
    """
    from batchpond.export import ExportFormat, export

    written = export(
        invocation.store().path,
        destination,
        format=ExportFormat(kind or _kind_of(destination, is_folder=per_batch)),
        per_batch=per_batch,
        view=view,
        defuse_formulas=not keep_formulas,
        force=force,
    )
    if is_json:
        output.document({"view": view, "files": written})
    invocation.diagnostics.note(f"wrote {plural(len(written), 'file')}: {destination}")


def _kind_of(destination: Path, *, is_folder: bool) -> str:
    kind = destination.suffix.removeprefix(".").lower()
    if is_folder or kind not in KINDS:
        raise UsageError(f"{destination} does not say in which format", hint="add `--format parquet`, csv or jsonl")
    return kind
