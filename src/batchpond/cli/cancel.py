"""`cancel`, `tidy`, `forget`: stop batches, delete what was uploaded for them, take what was said out of the lake."""

from __future__ import annotations

import click

from batchpond.cli import output
from batchpond.cli.frame import Invocation, json_option, picked, pond_command, providers, yes_option
from batchpond.errors import ExitCode, UsageError
from batchpond.text import plural


@pond_command("cancel")
@click.argument("batches", nargs=-1, required=True, metavar="BATCH...")
@yes_option
@json_option
def command(invocation: Invocation, batches: tuple[str, ...], is_yes: bool, is_json: bool) -> ExitCode:
    """Ask the provider to stop each BATCH (a batch id, an attempt id, or how that begins)."""
    from batchpond.run.resolve import cancel, check_names

    diagnostics, store = invocation.diagnostics, invocation.store()
    check_names(store, batches)
    question = f"Cancel {plural(len(batches), 'batch')}?"
    diagnostics.insist(question, is_yes=is_yes, otherwise="nothing was cancelled")
    with providers(store) as connected:
        report = cancel(store, batches, providers=connected)
    invocation.tell(report.notes)
    if is_json:
        output.document(picked(report))
    diagnostics.note(
        f"asked to cancel {plural(len(report.asked), 'batch')}",
        hint="`batchpond sync` collects what they finished",
    )
    return report.exit_code


@pond_command("tidy")
@click.argument("study", required=False)
@yes_option
@json_option
def tidy(invocation: Invocation, study: str | None, is_yes: bool, is_json: bool) -> ExitCode:
    """Delete the input files of batches that are collected, of a STUDY or of all, at their providers."""
    from batchpond.run.resolve import TidyReport, count_uploads, tidy

    diagnostics, store = invocation.diagnostics, invocation.store()
    n_files = count_uploads(store, study)
    report = TidyReport(0, 0, ())
    if n_files:
        question = f"Delete {plural(n_files, 'uploaded file')} at the providers?"
        diagnostics.insist(question, is_yes=is_yes, otherwise="nothing was deleted")
        with providers(store) as connected:
            report = tidy(store, study, providers=connected)
    invocation.tell(report.notes)
    if is_json:
        output.document(picked(report))
    diagnostics.note(f"{plural(report.n_deleted, 'uploaded file')} deleted, {report.n_gone:,} gone already")
    return report.exit_code


@pond_command("forget")
@click.option("--study", metavar="STUDY", help="A whole study: its plan, prompts and answers.")
@click.option("--item", metavar="ITEM", help="All that was asked about an item, in any study without stages or rounds.")
@click.option("--request", metavar="REQUEST", help="One request, by its request_id.")
@click.option("--local", "is_local", is_flag=True, help="Leave the files at the providers.")
@yes_option
@json_option
def forget(
    invocation: Invocation,
    study: str | None,
    item: str | None,
    request: str | None,
    is_local: bool,
    is_yes: bool,
    is_json: bool,
) -> ExitCode:
    """Take texts and answers out of the lake for good, and delete their files at the providers."""
    from batchpond.lake.attempts import fold
    from batchpond.lake.events import read
    from batchpond.run import forget as verb

    diagnostics, store = invocation.diagnostics, invocation.store()
    given = [value for value in (study, item, request) if value is not None]
    if len(given) > 1:
        raise UsageError("say one of --study, --item, --request")
    target = verb.Target(study, request, item) if given else None
    lake_state = fold(read(store))
    is_begun = study is not None and any(event.study == study for event in lake_state.forgetting.values())
    if target is not None and not is_begun:
        scope = verb.look(store, lake_state, target)
        where = "in this lake" if is_local else "in this lake and at the providers"
        question = f"Forget {target.name}: {plural(len(scope.request_ids), 'request')}, {where}, for good?"
        diagnostics.insist(question, is_yes=is_yes, otherwise="nothing was forgotten")
    with providers(store) as connected:
        report = verb.forget(store, target, providers=connected, is_local=is_local)
    invocation.tell(report.notes)
    if is_json:
        output.document(picked(report))
    diagnostics.note(
        f"{plural(report.n_requests, 'request')} forgotten; {plural(report.n_lines, 'answer line')} emptied, "
        f"{plural(report.n_deleted, 'file')} deleted at providers"
    )
    return report.exit_code
