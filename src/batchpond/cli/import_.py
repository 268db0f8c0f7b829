"""`import`: what was judged elsewhere, into the same metrics, and what was written elsewhere, to be judged."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import output
from batchpond.cli.frame import CONTEXT, IMPORTERS, Invocation, PondCommand, guide_line, pond_command
from batchpond.interop import READERS
from batchpond.text import plural

if TYPE_CHECKING:
    from batchpond.interop.foreign import Reader
    from batchpond.interop.imports import ForeignReport

SHOWN_PLACES = 3


class _Importers(click.Group):
    """The commands below, and one for each tool whose files an installed package can read."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, and the tools in the order of their names."""
        return [*super().list_commands(ctx), *sorted(entry_points(group=READERS).names)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or that of a tool."""
        found = super().get_command(ctx, cmd_name)
        return found or next((_of_tool(one) for one in entry_points(group=READERS, name=cmd_name)), None)


@click.group("import", cls=_Importers, context_settings=CONTEXT, epilog=guide_line("import"))
def command() -> None:
    """Bring in what was judged or written elsewhere; it stays marked as imported."""


@pond_command("judgments")
def judgments(invocation: Invocation, file: Path, study: str | None, is_json: bool) -> None:
    """Import judgments from a CSV, TSV or Parquet FILE, which `results` of another lake may have written."""
    from batchpond.interop.imports import import_judgments
    from batchpond.lake.store import Store

    report = import_judgments(Store.init(invocation.lake_path), file, study=study)
    if is_json:
        output.document(report)
    if not report.n_rows and not report.n_left_out:
        invocation.diagnostics.warning(f"{file} has no row: nothing was imported")
        return
    left_out = f"; {plural(report.n_left_out, 'row')} without a new judgment left out" if report.n_left_out else ""
    for what in report.left_behind:
        invocation.diagnostics.note(f"the file does not hold {what}")
    known = f"; {report.n_known:,} were in the lake before" if report.n_known else ""
    repeated = f"; {report.n_repeated:,} stood in the file more than once" if report.n_repeated else ""
    invocation.diagnostics.note(
        f"imported {plural(report.n_new, 'judgment')}{known}{repeated}{left_out}",
        hint="`batchpond query metric_consistency` shows what they say",
    )


@pond_command("labels")
def labels(
    invocation: Invocation, paths: tuple[Path, ...], rater: str | None, study: str | None, is_json: bool
) -> None:
    """Import what people wrote in sheets that `label` drew, or the labels of a data set."""
    from batchpond.interop.labels import RATER, TAKEN_BACK, import_labels

    report = import_labels(invocation.store(), paths, rater=rater, study=study)
    if is_json:
        output.document(report)
    _tell(invocation, report)
    if report.raters == [RATER] and rater is None:
        hint = (
            f"`--rater NAME` says who; with {TAKEN_BACK} as label, a sheet takes back what was said under a wrong name"
        )
        invocation.diagnostics.note(f"neither the sheet nor --rater names who labelled: it is {RATER!r}", hint=hint)


def _of_tool(reader: EntryPoint) -> PondCommand:
    """Return the command that imports what a tool left behind: what reads it is loaded when the command runs."""
    name, package = reader.name, reader.dist.name if reader.dist else reader.value

    @pond_command(name, "TOOL")
    def imported(invocation: Invocation, /, paths: tuple[Path, ...], is_json: bool, **given: Any) -> None:
        from batchpond.interop.foreign import reader_of

        _import(invocation, reader_of(name), paths, is_json=is_json, **given)

    imported.help = IMPORTERS.get(name, f"Import files of {name}, which the package {package} reads.")
    return imported


@pond_command("rows")
def rows(invocation: Invocation, /, paths: tuple[Path, ...], provider: str, is_json: bool, **given: Any) -> None:
    """Import a provider's output JSONL by a map, or a pattern, of its custom_ids."""
    from batchpond_importers.rows import reader

    columns = {entry.partition("=")[0] for entry in given["defaults"]}
    asked = {name: given.pop(name) for name in ("map_path", "pattern", "task", "rules_path")}
    found = reader(provider=provider, given=columns, **asked)
    _import(invocation, found, paths, is_json=is_json, **given)


def _import(
    invocation: Invocation,
    reader: Reader,
    paths: tuple[Path, ...],
    *,
    study: str | None,
    defaults: tuple[str, ...],
    accepted: tuple[str, ...],
    is_strict: bool,
    is_json: bool,
) -> None:
    from batchpond.interop.foreign import Defaults, acceptable
    from batchpond.interop.imports import import_foreign
    from batchpond.lake.store import Store

    known = Defaults.given(study, [(name, value) for name, _, value in (entry.partition("=") for entry in defaults)])
    doubts = acceptable(accepted)
    store = Store.init(invocation.lake_path)
    report = import_foreign(store, reader, paths, defaults=known, accepted=doubts, is_strict=is_strict)
    if is_json:
        output.document(report)
    _tell(invocation, report)


def _tell(invocation: Invocation, report: ForeignReport) -> None:
    from batchpond.files import listed

    diagnostics = invocation.diagnostics
    for doubt in report.doubts:
        diagnostics.warning(f"{doubt.n:,} {doubt.kind}: {doubt.meaning}:{listed(doubt.shown, doubt.n, SHOWN_PLACES)}")
    if report.n_skipped:
        skipped = listed(report.skipped, report.n_skipped, SHOWN_PLACES)
        diagnostics.note(f"{plural(report.n_skipped, 'file')} not read:{skipped}")
    if report.batches:
        first = report.batches[0]
        diagnostics.note(
            f"{plural(len(report.batches), 'batch')} named by tracking files, the first is {first.batch_id}",
            hint="`batchpond adopt BATCH --study STUDY --map FILE` takes answers that are still at the provider",
        )
    diagnostics.note("\n  ".join(_counts(report)), hint="`batchpond query metric_outcomes` shows what came of them")


def _counts(report: ForeignReport) -> Iterator[str]:
    parts = (("judgment", report.judgments), ("item", report.items), ("rubric", report.rubrics))
    known = {noun: f" ({tally.n_known:,} known)" if tally.n_known else "" for noun, tally in parts}
    by = f" by {' and '.join(report.raters[:SHOWN_PLACES])}" if report.raters else ""
    yield "imported " + ", ".join(f"{plural(tally.n_new, noun)}{known[noun]}" for noun, tally in parts) + by
    if n_changed := report.judgments.n_changed:
        yield f"{n_changed:,} of them in the place of what the same rater said before"
    if report.judgments.n_taken_back:
        yield f"{plural(report.judgments.n_taken_back, 'label')} taken back"
    for task, outcomes in report.outcomes.items():
        yield f"{task}: " + ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.items())


for _each in (judgments, labels, rows):
    command.add_command(_each)
