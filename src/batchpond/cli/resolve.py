"""What a person decides and batchpond may not: `resolve`, `reread`, `cancel`, `tidy`, `forget`.

What became of a batch, by which rules answers are read, which batches to stop, what to delete at the providers of what
was uploaded for them, and what to take out of the lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchpond.cli import formats, output
from batchpond.cli.frame import Invocation, picked, pond_command, providers
from batchpond.errors import ExitCode, UsageError
from batchpond.text import plural

if TYPE_CHECKING:
    from batchpond.run.resolve import Readings
    from batchpond.run.session import Report

DECISION = ("attempt_id", "phase", "batch_id")
READINGS = ("study", "reader_before", "reader", "n_read_again", "changes")
RISKS = {
    "absent": "If the batch exists after all, its requests are paid for twice. Say that it does not exist?",
    "lost": "Its answers will be given up and counted as missing. Go on?",
}


@pond_command("resolve")
def command(
    invocation: Invocation,
    attempt: str,
    batch_id: str | None,
    is_absent: bool,
    is_lost: bool,
    is_refetch: bool,
    is_known: bool,
    take: str | None,
    is_yes: bool,
    is_json: bool,
) -> None:
    """Say what became of an ATTEMPT that `status` shows as unknown, mismatched or missing."""
    from batchpond.lake.records import Resolution
    from batchpond.run.resolve import named, resolve

    asked = {
        Resolution.ADOPT: batch_id is not None,
        Resolution.ABSENT: is_absent,
        Resolution.LOST: is_lost,
        Resolution.REFETCH: is_refetch,
        Resolution.KNOWN: is_known,
        **{taken: taken.take == take for taken in Resolution if taken.take},
    }
    chosen = [resolution for resolution, is_asked in asked.items() if is_asked]
    if len(chosen) != 1:
        raise UsageError("say exactly one of --adopt BATCH, --absent, --lost, --refetch, --known, --take ANSWER")
    store = invocation.store()
    named(store, [attempt])
    risk = RISKS.get(chosen[0])
    if risk:
        invocation.diagnostics.insist(risk, is_yes=is_yes, otherwise="nothing was recorded")
    with providers(store) as connected:
        settled = resolve(store, attempt, chosen[0], providers=connected, batch_id=batch_id)
    if is_json:
        output.document(picked(settled, *DECISION))
    invocation.diagnostics.note(
        f"attempt {settled.attempt_id} is now {settled.phase}", hint="`batchpond sync` goes on from here"
    )


@pond_command("reread")
def reread(invocation: Invocation, study: str, is_dry_run: bool, is_yes: bool, is_json: bool) -> None:
    """Read the answers of a STUDY by this version's rules, after showing what that changes."""
    from batchpond.run import resolve as verb

    diagnostics, store = invocation.diagnostics, invocation.store()
    with providers(store) as connected:
        found = verb.read_beside(store, study, providers=connected)
    invocation.tell(found.notes)
    if not is_json:
        diagnostics.say(readings_text(found))
    if not is_dry_run and found.reader_before < found.reader:
        question = f"Read it by reader {found.reader} from now on?"
        diagnostics.insist(question, is_yes=is_yes, otherwise="the study is read as before")
        verb.reread(store, study)
        diagnostics.note(f"study {study} is read by reader {found.reader}")
    if is_json:
        output.document(picked(found, *READINGS))


def readings_text(found: Readings) -> str:
    """Return what would change, or that nothing would, as a person decides upon it."""
    if found.reader_before == found.reader:
        return f"study {found.study} is read by the newest reader, {found.reader}"
    rows = [(one.task, one.before, one.after, f"{one.n_answers:,}") for one in found.changes if one.before != one.after]
    names = ("task", f"reader {found.reader_before}", f"reader {found.reader}", "answers")
    lines = formats.aligned(names, rows, n_text_columns=3) if rows else ["none is read otherwise"]
    return "\n".join([f"study {found.study}, {sum(one.n_answers for one in found.changes):,} answers:", *lines])


@pond_command("cancel")
def cancel(
    invocation: Invocation, batches: tuple[str, ...], study: str | None, is_yes: bool, is_json: bool
) -> ExitCode:
    """Ask the provider to stop each BATCH (its id, an attempt's, or how that begins), or a whole study."""
    from batchpond.run.resolve import cancel, named

    if bool(batches) is (study is not None):
        raise UsageError("say which: each BATCH, or `--study STUDY` for all that runs of one")
    diagnostics, store = invocation.diagnostics, invocation.store()
    found = named(store, batches, study)
    n_done = sum((one.status and one.status.n_completed) or sum(got.n_lines for got in one.downloads) for one in found)
    requests, what = plural(sum(one.intent.n_requests for one in found), "request"), plural(len(found), "batch")
    diagnostics.note(f"{what}: {requests}, of which {n_done:,} are known to be answered; what is, is billed")
    more = f" of study {study}, and send nothing more of it" if study is not None else ""
    diagnostics.insist(f"Cancel {what}{more}?", is_yes=is_yes, otherwise="nothing was cancelled")
    with providers(store) as connected:
        report = cancel(store, batches, providers=connected, study=study)
    text = f"asked to cancel {plural(len(report.asked), 'batch')}"
    return _concluded(invocation, report, is_json, text, "`batchpond sync` collects what they finished")


@pond_command("tidy")
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
    text = f"{plural(report.n_deleted, 'uploaded file')} deleted, {report.n_gone:,} gone already"
    return _concluded(invocation, report, is_json, text)


@pond_command("forget")
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
    text = (
        f"{plural(report.n_requests, 'request')} forgotten; {plural(report.n_lines, 'answer line')} emptied, "
        f"{plural(report.n_deleted, 'file')} deleted at providers"
    )
    return _concluded(invocation, report, is_json, text)


def _concluded(invocation: Invocation, report: Report, is_json: bool, text: str, hint: str | None = None) -> ExitCode:
    """Say what came of it, to a script as a document, and return what that is to one."""
    invocation.tell(report.notes)
    if is_json:
        output.document(picked(report))
    invocation.diagnostics.note(text, hint=hint)
    return report.exit_code
