"""`status` and `audit`: where everything stands, and does every request and every line have its place?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from batchpond.cli import output
from batchpond.cli.formats import Format, age, summed
from batchpond.cli.frame import Invocation, picked, pond_command, providers
from batchpond.errors import ExitCode, UsageError
from batchpond.model import Origin
from batchpond.text import plural

if TYPE_CHECKING:
    from batchpond.lake.store import Store
    from batchpond.run.session import Note
    from batchpond.run.stages import StageStatus

ID_SHOWN = 10
MODEL_HEADS = ("study", "model", "all", "unsent", "waiting", "answered", "failed", "cost")
STAGE_HEADS = ("study", "stage", "task", "round", "state", "waits for", "planned", "open", "usable")
STAGE_COLUMNS = ("study", "stage", "task", "round_no", "state", "waits_for", "n_planned", "n_open", "n_usable")
BATCH_HEADS = ("study", "model", "batch", "state", "done", "of", "age", "ends in")


@pond_command("status")
def command(
    invocation: Invocation, study: str | None, is_batches: bool, is_stages: bool, is_exit_code: bool, form: Format
) -> ExitCode:
    """Show how far each study is, and every batch that is open or needs attention."""
    from batchpond.views.read import Ask, rows_of_all

    if is_batches and is_stages:
        raise UsageError("--batches and --stages each ask for other rows", hint="give one of them")
    store = invocation.store()
    shown = "" if is_batches else "is_in_flight OR needs_attention"  # what is settled may be without number
    asks = [
        Ask("report_status", ("study", "provider", "request_model")),
        Ask("batches", ("study", "intended_at", "attempt_id"), shown),
        Ask("events", ("ord",), "kind = 'round'"),
        Ask("studies_current", ("study",), "n_plan_rows > n_requests"),
    ]
    models, batches, rounds, shared = rows_of_all(store.path, asks, study)
    live = [b for b in batches if b["is_in_flight"] or b["needs_attention"]]
    n_failed = sum(m["n_failed"] + m["n_missing"] for m in models)
    n_unsent = sum(m["n_unsent"] for m in models)
    failed = plural(n_failed, "planned row" if shared else "request") if n_failed else ""
    is_more = bool(live or rounds or n_failed or n_unsent)
    notes, waiting, found = _looked(store, models, study, failed) if is_more else ([], [], [])
    refused = [note for note in notes if note.exit_code is ExitCode.ACCESS]
    color = invocation.color_stdout()
    if is_batches:
        names = list(batches[0]) if batches else ["attempt_id"]
        output.records(names, [tuple(b.values()) for b in batches], form, has_color=color)
    elif is_stages:
        output.records(*_stage_rows(found), form, has_color=color)
    elif form is Format.JSON:
        told = [picked(note, "message", "hint") for note in refused]
        output.document({"models": models, "batches": live, "stages": found, "waits": waiting, "refused": told})
    elif form is Format.TABLE:
        _show(models, live, has_color=color, now_s=store.clock.now().timestamp())
        _show_stages(found, has_color=color)
    else:
        names = list(models[0]) if models else ["study"]
        output.records(names, [tuple(m.values()) for m in models], form)
    if not models:
        invocation.diagnostics.note("no study is planned here", hint="`batchpond plan study.toml` plans one")
    invocation.tell(notes)
    if store.mirror:
        invocation.diagnostics.note(store.mirror.told())
    for one in shared:
        text = (
            f"study {one['study']} was planned as {one['n_plan_rows']:,} rows that share {one['n_requests']:,} requests"
        )
        invocation.diagnostics.note(f"{text}; rows are counted here, each request is sent and paid once")
    for wait in waiting:
        invocation.diagnostics.note(wait["text"])
    _remark_stages(invocation, found)
    if refused:
        return ExitCode.ACCESS
    is_for_a_person = any(note.exit_code for note in notes) or any(wait["needs_attention"] for wait in waiting)
    return ExitCode.ATTENTION if is_for_a_person else _exit_code(models, live, is_exit_code=is_exit_code)


def show_models(invocation: Invocation, study: str) -> None:
    """Print how far each model of a study is."""
    from batchpond.views.read import rows

    models = rows(invocation.store().path, "report_status", order=("provider", "request_model"), study=study)
    output.records(MODEL_HEADS, map(_model_row, models), Format.TABLE, has_color=invocation.color_stdout())


def _show(models: list[dict[str, Any]], live: list[dict[str, Any]], *, has_color: bool, now_s: float) -> None:
    output.records(MODEL_HEADS, map(_model_row, models), Format.TABLE, has_color=has_color)
    if live:
        n_studies = len({m["study"] for m in models} | {b["study"] for b in live})
        skipped = 0 if n_studies > 1 else 1
        batches = [_batch_row(b, now_s)[skipped:] for b in live]
        output.text("")
        output.records(BATCH_HEADS[skipped:], batches, Format.TABLE, has_color=has_color)


def _looked(
    store: Store, models: list[dict[str, Any]], study: str | None, failed: str
) -> tuple[list[Note], list[dict[str, Any]], list[StageStatus]]:
    """Return what a person is to know, what waits, and how far stages are; loaded where the views do not say it."""
    from batchpond.run import told
    from batchpond.run.session import Note, Severity

    looked = told.looking(store, providers(store))
    unsent = sorted({model["study"] for model in models if model["n_unsent"]})
    waiting = [row for name in unsent for row in told.waits(looked, name)]
    others = {model["study"] for model in models}.difference(unsent)
    state, now = looked.lake_state, store.clock.now()
    mine = [one for one in state.attempts.values() if study in {None, one.intent.study}]
    notes = [*told.refused(state, study), *told.stuck(mine), *told.concerns(state, now, study=study)]
    notes += told.following(looked, sorted(others))
    notes += [Note(Severity.INFO, text, told.NEXT_STEP) for text in told.waiting(mine, store)]
    if failed:
        notes.append(Note(Severity.INFO, f"{failed} failed or missing", "`batchpond query report_errors` says why"))
        of_models = {model["study"] for model in models}
        failures = told.failures(store, state, state.attempts.values())
        notes += told.for_nothing(store, state, study)
        said = "".join(note.message for note in notes)
        told_of = [one for one in failures if one.study in of_models and one.text not in said]
        notes += [Note(Severity.INFO, one.text, one.hint) for one in told_of]
    if not state.rounds:
        return notes, waiting, []
    from batchpond.run.stages import stages

    return notes, waiting, stages(store, state, study)


def _stage_rows(found: list[StageStatus]) -> tuple[list[str], list[tuple[Any, ...]]]:
    names = [field.name for field in dataclasses.fields(found[0])] if found else ["stage"]
    values = [tuple(getattr(stage, name) for name in names) for stage in found]
    return names, [tuple(", ".join(v) if isinstance(v, tuple) else v for v in row) for row in values]


def _show_stages(found: list[StageStatus], *, has_color: bool) -> None:
    if found:
        names, rows = _stage_rows(found)
        places = [names.index(name) for name in STAGE_COLUMNS]
        shown = [tuple(row[at] for at in places) for row in rows]
        output.text("")
        output.records(STAGE_HEADS, shown, Format.TABLE, has_color=has_color)


def _remark_stages(invocation: Invocation, found: list[StageStatus]) -> None:
    if found:
        from batchpond.run.stages import remarks

        invocation.tell([*remarks(found)])
        for stage in found:
            if stage.stopped:
                text = f"cells of stage {stage.stage} of study {stage.study} are asked no further: {stage.stopped}"
                invocation.diagnostics.note(text)


def _model_row(model: dict[str, Any]) -> tuple[Any, ...]:
    return (
        model["study"],
        model["request_model"],
        model["n_planned"],
        model["n_unsent"],
        model["n_outstanding"] + model["n_unknown"],
        model["n_answered"],
        model["n_failed"] + model["n_missing"],
        _cost(model),
    )


def _cost(model: dict[str, Any]) -> str | None:
    if not model["n_answered"] and model["cost_usd"] is None:
        return None
    unknown = [None] * bool(model["n_cost_unknown"])
    return "simulated" if model["origin"] == Origin.SIMULATED else summed([model["cost_usd"], *unknown])


def _batch_row(batch: dict[str, Any], now_s: float) -> tuple[Any, ...]:
    since = batch["created_at"] or batch["sent_at"] or batch["intended_at"]
    ends = batch["expires_at"]
    return (
        batch["study"],
        batch["request_model"],
        batch["batch_id"] or f"attempt {batch['attempt_id'][:ID_SHOWN]}",
        batch["batch_state"] or batch["attempt_state"],
        batch["n_completed"],
        batch["n_requests"],
        age(now_s - since.timestamp() if since else None),
        age(ends.timestamp() - now_s if ends else None),
    )


def _exit_code(models: list[dict[str, Any]], live: list[dict[str, Any]], *, is_exit_code: bool) -> ExitCode:
    if any(batch["needs_attention"] for batch in live):
        return ExitCode.ATTENTION
    if not is_exit_code:
        return ExitCode.DONE
    if any(m["n_outstanding"] + m["n_unsent"] + m["n_unknown"] for m in models) or live:
        return ExitCode.PENDING
    return ExitCode.ATTENTION if any(m["n_failed"] + m["n_missing"] for m in models) else ExitCode.DONE


AUDIT_HEADS = ("attempt", "sent", "ok", "errored", "expired", "cancelled", "missing", "waiting", "in doubt", "balanced")
AUDIT_COLUMNS = (
    "attempt_id", "attempt_state", "n_sent", "n_succeeded", "n_errored", "n_expired", "n_cancelled", "n_missing",
    "n_outstanding", "n_in_doubt", "is_balanced",
)  # fmt: skip


@pond_command("audit")
def audit(invocation: Invocation, study: str | None, form: Format) -> ExitCode:
    """Show for each batch: sent = succeeded + errored + expired + cancelled + missing."""
    from batchpond.views.read import rows

    found = rows(invocation.store().path, "audit", order=("study", "attempt_id"), study=study)
    if form is Format.TABLE:
        shown = [(row["attempt_id"][:ID_SHOWN], *(row[name] for name in AUDIT_COLUMNS[2:])) for row in found]
        output.records(AUDIT_HEADS, shown, form, has_color=invocation.color_stdout())
    else:
        names = list(found[0]) if found else AUDIT_COLUMNS
        output.records(names, [tuple(row.values()) for row in found], form)
    off = [row for row in found if row["is_balanced"] is False]
    n_open = sum(row["is_balanced"] is None and row["n_sent"] > 0 for row in found)
    n_settled = sum(row["is_balanced"] is True for row in found)
    for row in off:
        name = row["attempt_id"][:ID_SHOWN]
        differ = f"`batchpond resolve {name} --take first|second|none` says which of two answers that differ counts"
        again = f"`batchpond resolve {name} --refetch` downloads its files again"
        hint = differ if row["n_conflict"] else again
        invocation.diagnostics.warning(f"attempt {name} is out of balance", hint=hint)
    if not off:
        invocation.diagnostics.note(f"{plural(n_settled, 'settled batch')} in balance, {n_open:,} still open")
    return ExitCode.ATTENTION if off else ExitCode.DONE
