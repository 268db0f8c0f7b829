"""`cancel` and `tidy`: ask the provider to stop batches, and to delete what was uploaded for those that are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import output
from batchpond.cli.formats import plural
from batchpond.cli.frame import (
    Invocation,
    json_option,
    notes_documents,
    pass_invocation,
    pond_command,
    providers,
    show_note,
    yes_option,
)
from batchpond.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from batchpond.run.resolve import CancelReport
    from batchpond.run.tidy import TidyReport


@pond_command(
    "cancel",
    "batchpond cancel batch_6920a1",
    "batchpond cancel --yes k3vq7d mz2x4p",
)
@click.argument("batches", nargs=-1, required=True, metavar="BATCH...")
@yes_option
@json_option
@pass_invocation
def command(invocation: Invocation, batches: tuple[str, ...], is_yes: bool, is_json: bool) -> ExitCode:
    """Ask the provider to stop each BATCH (a batch id, an attempt id, or how that begins).

    What a batch finished before it stops is paid for, and `batchpond sync` collects it. Its
    other requests count as cancelled. For models of mode `files` this says that no more results
    will come.
    """
    from batchpond.run.resolve import cancel, check_names

    diagnostics, store = invocation.diagnostics, invocation.store()
    check_names(store, batches)
    if not is_yes and not diagnostics.confirm(f"Cancel {plural(len(batches), 'batch')}?", flag="--yes"):
        raise UsageError("not confirmed; nothing was cancelled")
    with providers(store) as connected:
        report = cancel(store, batches, providers=connected)
    for note in report.notes:
        show_note(diagnostics, note)
    if is_json:
        output.document(document(report))
    diagnostics.note(
        f"asked to cancel {plural(len(report.asked), 'batch')}",
        hint="`batchpond sync` collects what they finished",
    )
    return report.exit_code


def document(report: CancelReport) -> dict[str, Any]:
    """Return the JSON shape of a cancellation."""
    return {"asked": report.asked, "notes": notes_documents(report.notes)}


@pond_command(
    "tidy",
    "batchpond tidy",
    "batchpond tidy my-study --yes --json",
)
@click.argument("study", required=False)
@yes_option
@json_option
@pass_invocation
def tidy(invocation: Invocation, study: str | None, is_yes: bool, is_json: bool) -> ExitCode:
    """Delete the input files of batches that are collected, of a STUDY or of all, at their providers.

    Results are not touched, here or there, and what is open keeps its files. Run it as often as you like.
    """
    from batchpond.run.tidy import TidyReport, count, tidy

    diagnostics, store = invocation.diagnostics, invocation.store()
    n_files = count(store, study)
    if n_files and not is_yes:
        question = f"Delete {plural(n_files, 'uploaded file')} at the providers?"
        if not diagnostics.confirm(question, flag="--yes"):
            raise UsageError("not confirmed; nothing was deleted")
    report = TidyReport(0, 0, (), ExitCode.DONE)
    if n_files:
        with providers(store) as connected:
            report = tidy(store, study, providers=connected)
    for note in report.notes:
        show_note(diagnostics, note)
    if is_json:
        output.document(tidy_document(report))
    diagnostics.note(f"{plural(report.n_deleted, 'uploaded file')} deleted, {report.n_gone:,} gone already")
    return report.exit_code


def tidy_document(report: TidyReport) -> dict[str, Any]:
    """Return the JSON shape of a tidying."""
    return {"n_deleted": report.n_deleted, "n_gone": report.n_gone, "notes": notes_documents(report.notes)}
