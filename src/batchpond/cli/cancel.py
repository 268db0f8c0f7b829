"""`cancel` and `resolve`: what a person decides about batches: that they stop, and what became of an attempt."""

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
    from batchpond.lake.attempts import Attempt
    from batchpond.run.resolve import CancelReport


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
    from batchpond.run.resolve import cancel

    diagnostics, store = invocation.diagnostics, invocation.store()
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


RISKS = {
    "absent": "If the batch exists after all, its requests are paid for twice. Say that it does not exist?",
    "lost": "Its answers will be given up and counted as missing. Go on?",
}


@pond_command(
    "resolve",
    "batchpond resolve k3vq7d --adopt batch_6920a1",
    "batchpond resolve k3vq7d --absent --yes",
    "batchpond resolve k3vq7d --refetch",
)
@click.argument("attempt")
@click.option("--adopt", "batch_id", metavar="BATCH", help="This provider batch is the attempt's (checked).")
@click.option("--absent", "is_absent", is_flag=True, help="The provider has no batch: it may be sent again.")
@click.option("--lost", "is_lost", is_flag=True, help="Its answers will never come.")
@click.option("--refetch", "is_refetch", is_flag=True, help="Download the files of a mismatched batch again.")
@yes_option
@json_option
@pass_invocation
def resolve(
    invocation: Invocation,
    attempt: str,
    batch_id: str | None,
    is_absent: bool,
    is_lost: bool,
    is_refetch: bool,
    is_yes: bool,
    is_json: bool,
) -> None:
    """Say what became of an ATTEMPT that `status` shows as unknown, mismatched or missing.

    Look at the provider's console first: every batch carries the study, the shard and
    batchpond's token. The decision is recorded, and `batchpond sync` goes on from it.
    """
    from batchpond.lake.records import Resolution
    from batchpond.run.resolve import resolve

    asked = {
        Resolution.ADOPT: batch_id is not None,
        Resolution.ABSENT: is_absent,
        Resolution.LOST: is_lost,
        Resolution.REFETCH: is_refetch,
    }
    chosen = [resolution for resolution, is_asked in asked.items() if is_asked]
    if len(chosen) != 1:
        raise UsageError("say exactly one of --adopt BATCH, --absent, --lost, --refetch")
    store = invocation.store()
    risk = RISKS.get(chosen[0])
    if risk and not is_yes and not invocation.diagnostics.confirm(risk, flag="--yes"):
        raise UsageError("not confirmed; nothing was recorded")
    with providers(store) as connected:
        settled = resolve(store, attempt, chosen[0], providers=connected, batch_id=batch_id)
    if is_json:
        output.document(resolve_document(settled))
    invocation.diagnostics.note(
        f"attempt {settled.attempt_id} is now {settled.phase}", hint="`batchpond sync` goes on from here"
    )


def resolve_document(settled: Attempt) -> dict[str, Any]:
    """Return the JSON shape of a decision."""
    return {"attempt_id": settled.attempt_id, "phase": settled.phase, "batch_id": settled.batch_id}
