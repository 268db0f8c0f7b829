"""What a person decides and batchpond may not: `resolve`, `reread`, `cancel`, `tidy`, `forget`, `adopt`, `recover`.

What became of a batch, by which rules answers are read, which batches to stop, what to delete at the providers of what
was uploaded for them, and what to take out of the lake; what to take into it that it does not know, or has lost.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpond.cli import output
from batchpond.cli.formats import Format, aligned
from batchpond.cli.frame import Invocation, picked, pond_command, providers
from batchpond.errors import ExitCode, UsageError
from batchpond.text import plural, usd

if TYPE_CHECKING:
    from batchpond.lake.store import Store
    from batchpond.run.adopt import Adoption, AdoptPreview, MapOrder
    from batchpond.run.recover import RecoverReport
    from batchpond.run.resolve import Readings
    from batchpond.run.session import Report
    from batchpond.run.unknown import AccountBatch


DECISION = ("attempt_id", "phase", "batch_id")
READINGS = ("study", "reader_before", "reader", "n_read_again", "changes")
LISTED_DAYS = 30
LISTED = (
    "provider", "batch_id", "state", "created_at", "n_requests", "n_completed", "n_failed", "endpoint", "name",
    "ownership", "attempt_id",
)  # fmt: skip
LISTED_HEADS = (
    "provider", "batch", "state", "created", "of", "done", "failed", "endpoint", "name", "whose", "attempt"
)  # fmt: skip
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
    lines = aligned(names, rows, n_text_columns=3) if rows else ["none is read otherwise"]
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


@pond_command("adopt")
def adopt(
    invocation: Invocation,
    batch: str | None,
    wish: str | None,
    provider: str | None,
    since: datetime | None,
    study: str | None,
    map_path: Path | None,
    is_forced: bool,
    is_yes: bool,
    form: Format,
) -> ExitCode:
    """Take a BATCH that the lake does not know into it; `sync` then collects it."""
    store = invocation.store()
    _check_adopted(batch, wish, since, study, map_path, is_forced)
    if wish == "list":
        return _listed(invocation, store, provider, since, form)
    if wish == "all":
        return take_in(invocation, study or "", limit=None, is_json=form is Format.JSON)
    batch_id, name = batch or "", provider or _whose(store, batch or "")
    if map_path is not None:
        from batchpond.run.adopt import MapOrder

        order = MapOrder(batch_id, name, study or "", map_path, is_forced)
        adoption = _by_map(invocation, store, order, is_yes=is_yes)
    else:
        adoption = _by_itself(store, batch_id, name, study)
    if form is Format.JSON:
        output.document(adopted(adoption))
    attempt = adoption.attempt
    verb = "is now" if adoption.is_new else "was already"
    invocation.diagnostics.note(
        f"batch {attempt.batch_id} {verb} attempt {attempt.attempt_id} ({attempt.phase})",
        hint="`batchpond sync` collects it",
    )
    return ExitCode.DONE


def _check_adopted(
    batch: str | None, wish: str | None, since: datetime | None, study: str | None, map_path: Path | None,
    is_forced: bool,
) -> None:  # fmt: skip
    if (wish is None) == (batch is None):
        raise UsageError("say one of the three: a BATCH to adopt, --list, or --all with --study")
    if wish == "list" and (study or map_path or is_forced):
        raise UsageError("--study, --map and --force are for adopting a BATCH, not for --list")
    if since is not None and wish != "list":
        raise UsageError("--since is for --list")
    if study is None and (map_path is not None or wish == "all"):
        raise UsageError("--map and --all need --study: whose requests the batches hold")
    if wish == "all" and map_path is not None:
        raise UsageError("--map is for one BATCH")
    if is_forced and map_path is None:
        raise UsageError("--force is for --map")


def _whose(store: Store, batch_id: str) -> str:
    """Return whose batch of the lake it is; else the only provider that the id can be of, or whose key is set."""
    from batchpond.lake.attempts import fold
    from batchpond.lake.events import read
    from batchpond.providers.registry import providers_of_batch
    from batchpond.run.unknown import providers_with_keys

    known = {one.client_name for one in fold(read(store)).attempts.values() if one.batch_id == batch_id}
    named = [*known] or providers_of_batch(batch_id)
    if len(named) == 1:
        return named[0]
    names = [name for name in providers_with_keys(os.environ) if name in named or not named]
    if len(names) != 1:
        found = f"it may be of any of {', '.join(names)}" if names else "no key is set to ask a provider for it"
        hint = "`batchpond query batches` has this lake's; `--provider NAME` takes in what another lake or tool made"
        raise UsageError(f"no batch of this lake is called {batch_id}, and {found}", hint=hint)
    return names[0]


def _listed(
    invocation: Invocation, store: Store, provider: str | None, since: datetime | None, form: Format
) -> ExitCode:
    from batchpond.run.unknown import providers_with_keys, unknown_batches

    start = store.clock.now() - timedelta(days=LISTED_DAYS) if since is None else since.replace(tzinfo=UTC)
    names = [provider] if provider else providers_with_keys(os.environ)
    if not names:
        raise UsageError("no key is set, so there is no account to look into", hint="`batchpond keys` shows them")
    with providers(store) as connected:
        report = unknown_batches(store, names, start, providers=connected)
    rows = [_row(unknown) for unknown in report.unknown_batches]
    is_shown = form is Format.TABLE
    n_left_out = output.records(LISTED_HEADS if is_shown else LISTED, rows, form, has_color=invocation.color_stdout())
    invocation.note_left_out(n_left_out)
    invocation.tell(report.notes)
    invocation.diagnostics.note(
        f"{plural(len(rows), 'batch')} since {start:%Y-%m-%d} at {', '.join(names)} that this lake does not know",
        hint="`batchpond adopt BATCH` takes one in" if rows else None,
    )
    return report.exit_code


def _row(unknown: AccountBatch) -> tuple[object, ...]:
    batch = unknown.batch
    counts = batch.n_total, batch.n_completed, batch.n_failed
    whose = unknown.name, unknown.ownership, unknown.attempt_id
    return unknown.provider, batch.batch_id, batch.state, batch.created_at, *counts, batch.endpoint, *whose


def _by_itself(store: Store, batch_id: str, name: str, study: str | None) -> Adoption:
    """Take in a batch by what it says itself: whose it is or, for a study, which requests it holds."""
    from batchpond.run.adopt import adopt_own
    from batchpond.run.recover import adopt_by_lines

    with providers(store) as connected:
        if study is None:
            return adopt_own(store, batch_id, provider_name=name, providers=connected)
        return adopt_by_lines(store, batch_id, study, provider_name=name, providers=connected)


def _by_map(invocation: Invocation, store: Store, order: MapOrder, *, is_yes: bool) -> Adoption:
    from batchpond.run.adopt import adopt_mapped

    def confirm(preview: AdoptPreview) -> bool:
        invocation.diagnostics.say(map_text(preview))
        return invocation.diagnostics.confirm("Is the map right?", is_yes=is_yes)

    with providers(store) as connected:
        adoption = adopt_mapped(store, order, providers=connected, confirm=confirm)
    if adoption is None:
        raise UsageError("not confirmed; nothing was recorded")
    return adoption


def map_text(preview: AdoptPreview) -> str:
    """Return what would be taken in, for a person to compare with what they know."""
    batch, order = preview.batch, preview.order
    return (
        f"batch {batch.batch_id} ({batch.state}) becomes {plural(preview.n_requests, 'request')} of study"
        f" {order.study} at {order.provider}.\nFor one: {preview.example}\n"
        "The map is believed: no result shows its prompt, and what is taken in cannot be taken out again."
    )


def adopted(adoption: Adoption) -> dict[str, Any]:
    """Return the JSON shape of an adoption."""
    attempt = adoption.attempt
    asked = picked(attempt.intent, "study", "n_requests")
    return {**picked(attempt, "attempt_id", "phase", "batch_id"), **asked, "is_new": adoption.is_new}


@pond_command("recover")
def recover(invocation: Invocation, study: Path, limit: int | None, is_json: bool) -> ExitCode:
    """Make a lost lake again of the STUDY file and of what its providers still have."""
    from batchpond.plan.verb import plan_file

    planned = plan_file(invocation.lake_path, study, is_bought=True)
    return take_in(invocation, planned.study, limit=limit, is_json=is_json)


def take_in(invocation: Invocation, study: str, *, limit: int | None, is_json: bool) -> ExitCode:
    """Take in all that the providers have of a planned study, and say what it came to."""
    from batchpond.run import recover as recovering

    store, diagnostics = invocation.store(), invocation.diagnostics
    with providers(store) as connected:
        report = recovering.recover(store, study, providers=connected, sample=limit, on_note=diagnostics.told)
    if is_json:
        output.document(recovered(report))
    diagnostics.note(recovery_text(report), hint=_after_recovery(report))
    return report.exit_code


def recovery_text(report: RecoverReport) -> str:
    """Return what came of it, in a sentence or two."""
    from batchpond.run.recover import Fate

    taken = plural(report.count(Fate.TAKEN_IN), "batch")
    cost = usd(report.cost_usd) + (
        f" and the unknown cost of {report.n_cost_unknown:,} more" if report.n_cost_unknown else ""
    )
    live = f"; {report.n_live:,} are asked by live calls, which leave nothing to find" if report.n_live else ""
    return (
        f"{taken} of study {report.study} taken in; of {plural(report.n_requests, 'request')} planned so far"
        f" {report.n_held:,} are in batches and {report.n_answered:,} answered, for {cost}{live}"
    )


def _after_recovery(report: RecoverReport) -> str:
    if report.n_held > report.n_answered:
        return "`batchpond sync` collects what still runs; then run it again, if the study has further stages"
    if report.n_held < report.n_requests:
        return f"`batchpond submit {report.study} --dry-run` shows what asking the rest would cost"
    return f"`batchpond status` shows where it stands; `batchpond submit {report.study}` lets `sync` go on with it"


def recovered(report: RecoverReport) -> dict[str, Any]:
    """Return the JSON shape of a recovery."""
    batches = [
        {"provider": found.client_name, **picked(found.batch, "batch_id", "state")}
        | picked(found, "fate", "n_requests", "why")
        for found in report.batches
    ]
    return picked(report) | {"batches": batches}
