"""`plan`, `submit` and `retry`: what a study asks and costs; then ask, send, and ask once more what failed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from batchpond.cli import formats, output
from batchpond.cli.formats import priced_by, provider_text, summed
from batchpond.cli.frame import Invocation, picked, pond_command, providers
from batchpond.cli.output import Diagnostics
from batchpond.errors import BatchpondError, ExitCode, UsageError
from batchpond.model import ErrorClass, Mode
from batchpond.text import plural, usd

if TYPE_CHECKING:
    from batchpond.plan.report import CellReport, ModelReport, PlanReport, StageReport
    from batchpond.plan.versions import Again
    from batchpond.run.due import FailureCount
    from batchpond.run.session import Counts
    from batchpond.run.submit import ModelCost, RetryReport, SubmitPreview, SubmitReport
    from batchpond.study.prices import Estimate

_Report = TypeVar("_Report")
CELLS_SHOWN_MAX = 60
DROPPED_SHOWN_MAX = 20
COSTS = ("low", "expected", "worst")
MODEL_COLUMNS = ("provider", "model", "to ask", "batches", "tokens in", *COSTS)
STAGE_COLUMNS = ("stage", "task", "waits for", "requests", "tokens in", *COSTS)
CELL_COLUMNS = ("stage", "template", "rubric", "model", "thinking", "to ask", "expected")


@pond_command("plan")
def command(invocation: Invocation, study: Path, is_json: bool) -> None:
    """Work out what the STUDY file asks, store it in the lake, and show a rough cost."""
    from batchpond.plan.verb import plan_file

    report = plan_file(invocation.lake_path, study)
    if is_json:
        output.document(report)
    else:
        output.text("\n".join(report_lines(report)))
    if report.n_to_ask or any(stage.is_forecast for stage in report.stages):
        invocation.diagnostics.note(
            "nothing was sent", hint=f"`batchpond submit {report.study}` shows the cost and asks"
        )
    else:
        invocation.diagnostics.note(f"nothing of {report.study} is left to ask")


def report_lines(report: PlanReport) -> Iterator[str]:
    """Yield a plan as a person reads it."""
    newness = "new version" if report.is_new_version else "known version"
    yield f"study {report.study}, {newness} {report.study_version}"
    yield from _counts(report)
    has_forecast = any(stage.is_forecast for stage in report.stages)
    if has_forecast or len(report.stages) > 1:
        yield "what waits for answers is a forecast (~)" if has_forecast else ""
        yield from formats.aligned(
            STAGE_COLUMNS, [_stage_row(stage) for stage in report.stages], n_text_columns=3, width=output.room()
        )
    yield ""
    yield from formats.aligned(
        MODEL_COLUMNS, [_model_row(model) for model in report.models], n_text_columns=2, width=output.room()
    )
    yield ""
    yield from _cells(report)
    yield ""
    rest = " and of what follows from it" if has_forecast else ""
    prices = priced_by(model.mode for model in report.models)
    low, expected, worst = _costs(report.cost, "{} + unknown")
    yield f"cost of what is to ask{rest}, a rough estimate at {prices}:"
    yield f"low {low}, expected {expected}, worst {worst}"
    yield from _learned(report)
    yield from _remarks(report)


def _learned(report: PlanReport) -> Iterator[str]:
    """Yield what the study's own answers say of what is still to ask."""
    asked = [cell for cell in report.cells if cell.n_to_ask]
    if learned := [cell for cell in asked if cell.n_learned_from]:
        n_answers = sum(cell.n_learned_from for cell in learned)
        low, high = (usd(report.cost.low_usd), usd(report.cost.high_usd))
        ends = "" if report.cost.high_usd is None else f": nine of ten such costs are {low} to {high}"
        yield f"learned from {plural(n_answers, 'answer')} in {len(learned):,} of {plural(len(asked), 'cell')}{ends}"


def _costs(cost: Estimate, form: str = ">{}") -> Iterator[str]:
    """Yield low, expected and worst as they are printed; in that form, what is known where the whole is not."""
    for name in COSTS:
        whole = getattr(cost, f"{name}_usd")
        yield summed([whole] if whole is not None else [getattr(cost, f"known_{name}_usd"), None], form)


def _stage_row(stage: StageReport) -> tuple[str, ...]:
    about = "~" if stage.is_forecast else ""
    return (
        stage.name, stage.task, ", ".join(stage.waits_for) or "-", f"{about}{stage.n_requests:,}",
        f"~{stage.input_tokens:,}", *_costs(stage.cost),
    )  # fmt: skip


def _cells(report: PlanReport) -> Iterator[str]:
    """Yield the table of cells, over rubrics where there are many; the stage is told where there are several."""
    skipped, is_long = 0 if len(report.stages) > 1 else 1, len(report.cells) > CELLS_SHOWN_MAX
    shown: dict[tuple[str, ...], list[CellReport]] = {}
    for cell in report.cells:
        by = "" if is_long else cell.rubric_id
        way = cell.provider, cell.request_model, cell.thinking
        shown.setdefault((cell.stage, cell.template_id, by, *way), []).append(cell)
    rows = [
        (stage, template, cells[0].rubric_id if len(cells) == 1 else f"{len(cells):,} rubrics", model, thinking,
         f"{sum(cell.n_to_ask for cell in cells):,}", summed([cell.cost.expected_usd for cell in cells]))[skipped:]
        for (stage, template, _, _, model, thinking), cells in itertools.islice(shown.items(), CELLS_SHOWN_MAX)
    ]  # fmt: skip
    yield from formats.aligned(CELL_COLUMNS[skipped:], rows, n_text_columns=5 - skipped, width=output.room())
    if is_long:
        more = f"and {len(shown) - CELLS_SHOWN_MAX:,} more; " if len(shown) > CELLS_SHOWN_MAX else ""
        yield f"{more}`--json` lists all {len(report.cells):,} cells"


def _counts(report: PlanReport) -> Iterator[str]:
    pairs, balance = "", report.balance
    if report.n_pairs is not None and report.n_pairs_possible is not None:
        pairs = f", {report.n_pairs:,} of {plural(report.n_pairs_possible, 'pair')}"
    if balance is None:
        yield f"{plural(report.n_items, 'item')}{pairs}"
    else:
        yield (
            f"{plural(report.n_items, 'item')}{pairs} "
            f"({balance.n_forward:,} asked forward, {balance.n_reverse:,} in reverse)"
        )
        yield (
            f"position: the smaller id stands first in {balance.lo_first_share:.1%} of all; an item stands first "
            f"in {balance.first_share_min:.1%} to {balance.first_share_max:.1%} of its own"
        )
    shared = f", {report.n_shared:,} of them shared between rows" if report.n_shared else ""
    yield (
        f"{plural(report.n_cells, 'cell')}, {plural(report.n_plan_rows, 'row')}, "
        f"{plural(report.n_requests, 'request')}{shared}"
    )
    yield (
        f"to ask: {_to_ask(report)}; answered already: "
        f"{report.n_answered_already:,}; put into a batch before: {report.n_in_shards:,}"
    )


def _to_ask(report: PlanReport) -> str:
    batched = [model for model in report.models if model.mode is not Mode.LIVE]
    n_live = report.n_to_ask - sum(model.n_to_ask for model in batched)
    ways = [f"in {plural(sum(model.n_shards for model in batched), 'batch')}"] if batched else []
    ways += [f"{n_live:,} of them one by one" if batched else "one by one"] if n_live else []
    return f"{report.n_to_ask:,} {', '.join(ways)}".rstrip()


def _model_row(model: ModelReport) -> tuple[str, ...]:
    return (
        provider_text(model.provider, model.mode),
        model.request_model,
        f"{model.n_to_ask:,}",
        _batches(model),
        f"~{model.estimated_input_tokens:,}",
        *_costs(model.cost),
    )


def _batches(model: ModelReport | ModelCost) -> str:
    """Return how many batches a model is asked in; live calls are in none."""
    return "-" if model.mode is Mode.LIVE else f"{model.n_shards:,}"


def _remarks(report: PlanReport) -> Iterator[str]:
    dropped = report.dropped
    for drop in dropped[:DROPPED_SHOWN_MAX]:
        yield f"- dropped: {drop.provider}/{drop.model} at thinking {drop.thinking}: {drop.reason}"
    if len(dropped) > DROPPED_SHOWN_MAX:
        yield f"- dropped: {len(dropped) - DROPPED_SHOWN_MAX:,} more combinations; `--json` lists all"
    for note in report.notes:
        yield f"- {note}"
    if report.caveats:
        names = ", ".join(dict.fromkeys(caveat.partition(":")[0] for caveat in report.caveats))
        yield ""
        yield f"said once in this lake, about {names} (`batchpond keys NAME` shows it again):"
        yield from (f"- {caveat}" for caveat in report.caveats)


SENT_COLUMNS = ("provider", "model", "requests", "batches", "tokens in", "expected", "at worst")


_NEAR_MAX: Final = 10_000
_INPUTS: Final = frozenset({".toml", ".csv", ".tsv", ".jsonl", ".parquet", ".txt"})


@pond_command("submit")
def submit(
    invocation: Invocation,
    study: str,
    is_yes: bool,
    dry_run: bool,
    max_cost_usd: float | None,
    limit: int | None,
    again: bool,
    is_fresh: bool,
    is_json: bool,
) -> ExitCode:
    """Send what is due of a planned STUDY, after showing its cost and asking."""
    from batchpond.plan.versions import Again

    _note_changed(invocation, study)
    confirm = None if dry_run else asked(invocation, study, is_yes=is_yes, is_json=is_json, is_fresh=is_fresh)
    once_more = Again() if again else None
    report = sent(
        invocation, study, confirm, f"submit {study}", max_cost_usd=max_cost_usd, limit=limit, again=once_more
    )
    if is_json:
        output.document(document(report))
    elif dry_run:
        output.text(preview_text(report.preview))
    if report.preview.is_due:
        _conclude(invocation.diagnostics, report, f"submit {study}", dry_run=dry_run)
    else:
        invocation.diagnostics.note(
            f"nothing of {study} is due: what is to be sent is in batches, which may be open, in doubt or settled",
            hint="`batchpond status` shows where it stands",
        )
    return report.exit_code


def _note_changed(invocation: Invocation, study: str) -> None:
    """Say where the study's file in this folder, or one it names, says something else than is planned, and is sent.

    Reading it takes as long as all else that is done before sending: what stood there before the plan is not looked at.
    """
    from batchpond.plan.versions import written_ns

    planned_ns = written_ns(invocation.store(), study)
    near = (path for pattern in ("*", "*/*") for path in Path().glob(pattern) if path.suffix.lower() in _INPUTS)
    some = itertools.islice(near, _NEAR_MAX)  # a folder may hold anything
    if not any(max(at.st_mtime_ns, at.st_ctime_ns) > planned_ns for at in map(Path.stat, filter(Path.is_file, some))):
        return
    from batchpond.plan.verb import is_as_planned
    from batchpond.study.file import files_of, load

    same = dict[Path, bool]()
    for path in files_of(study, Path()):
        with suppress(BatchpondError, OSError):  # one that cannot be planned as it is
            same[path] = is_as_planned(invocation.store(), load(path))
    if same and not any(same.values()):
        text = f"{next(iter(same))}, or a file that it names, says something else than was planned of {study}"
        hint = f"what was planned is sent; `batchpond plan {next(iter(same))}` plans what it says"
        invocation.diagnostics.warning(text, hint=hint)


def sent(
    invocation: Invocation,
    study: str,
    confirm: Callable[[SubmitPreview], bool] | None,
    command: str,
    *,
    max_cost_usd: float | None,
    limit: int | None,
    again: Again | None = None,
) -> SubmitReport:
    """Send what is due of a study once `confirm` agrees; raises UsageError where it does not, for that command."""
    from batchpond.run.submit import Bounds, submit

    bounds, is_shown = Bounds(max_cost_usd, limit), command != "run"  # which shows it by its first pass
    report = _told(invocation, submit, study, bounds=bounds, confirm=confirm, again=again, is_shown=is_shown)
    if confirm is not None:
        _require_sent(report, command)
    return report


def _told(invocation: Invocation, verb: Callable[..., _Report], study: str, **wishes: Any) -> _Report:
    store = invocation.store()
    with providers(store) as connected:
        return verb(store, study, providers=connected, on_note=invocation.diagnostics.told, **wishes)


def _require_sent(report: SubmitReport, command: str) -> None:
    if report.counts is None and report.preview.is_due:
        raise UsageError("not confirmed; nothing was sent", hint=f"`batchpond {command}` asks again")


def asked(
    invocation: Invocation, study: str, *, is_yes: bool, is_json: bool, is_fresh: bool
) -> Callable[[SubmitPreview], bool]:
    """Return what asks whether a preview may be sent and, where it may be bought anew, records that."""

    def confirm(preview: SubmitPreview) -> bool:
        text = "" if is_json else preview_text(preview)
        is_agreed = is_confirmed(invocation.diagnostics, preview, text, is_yes=is_yes)
        if is_agreed and is_fresh:
            from batchpond.run.unknown import waive

            waive(invocation.store(), study)
        return is_agreed

    return confirm


def is_confirmed(diagnostics: Diagnostics, preview: SubmitPreview, text: str, *, is_yes: bool) -> bool:
    """Show what would be sent, where a text says it, and return whether it may be."""
    if text:
        diagnostics.say(text)
    costs = [*(model.cost_max_usd for model in preview.models), preview.later_max_usd]
    what = plural(preview.n_requests, "request") if preview.n_requests else "what follows from the answers"
    question = f"Send {what} for at most {summed(costs)}?"
    return diagnostics.confirm(question, is_yes=is_yes)


def preview_text(preview: SubmitPreview) -> str:
    """Return what would be sent, as a person decides upon it."""
    rows = [
        (provider_text(m.provider, m.mode), m.request_model, f"{m.n_requests:,}", _batches(m), f"~{m.input_tokens:,}",
         usd(m.cost_expected_usd), usd(m.cost_max_usd))
        for m in preview.models
    ]  # fmt: skip
    prices = priced_by(m.mode for m in preview.models)
    lines = [f"study {preview.study}, version {preview.study_version}; costs are rough estimates at {prices}", ""]
    if rows:
        lines += formats.aligned(SENT_COLUMNS, rows, n_text_columns=2, width=output.room())
    elif preview.is_due:
        lines.append("nothing is due until the batches that are out are answered")
    later = preview.later_expected_usd, preview.later_max_usd
    if has_later := preview.later_max_usd != 0.0:
        lines.append("later rounds, a forecast: expected {}, at worst {}".format(*map(usd, later)))
    if (has_later and rows) or len(rows) > 1:
        costs = [*((m.cost_expected_usd, m.cost_max_usd) for m in preview.models), later]
        expected, worst = map(summed, zip(*costs, strict=True))
        what = plural(preview.n_requests, "request") + " and what follows from the answers" * has_later
        lines.append(f"in all {what}: expected {expected}, at worst {worst}")
    if preview.caveats:
        lines += ["", *(f"- {caveat}" for caveat in preview.caveats)]
    return "\n".join(lines)


def document(report: SubmitReport) -> dict[str, Any]:
    """Return the JSON shape of a submission."""
    preview = report.preview
    models = [
        picked(m, "provider", "request_model", "mode", "n_requests")
        | {"n_batches": m.n_shards}
        | picked(m, "input_tokens", "cost_expected_usd", "cost_max_usd")
        for m in preview.models
    ]
    return {
        **picked(preview, "study", "study_version"),
        **picked(report, "is_approved"),
        **picked(preview, "n_requests"),
        "n_batches": preview.n_shards,
        **picked(preview, "cost_expected_usd", "cost_max_usd"),
        "models": models,
        "caveats": preview.caveats,
        "counts": None if report.counts is None else picked(report.counts),
        **picked(report, "n_live", "notes"),
    }


def _conclude(diagnostics: Diagnostics, report: SubmitReport, command: str, *, dry_run: bool) -> None:
    counts, n_live = report.counts, report.n_live
    if not report.preview.is_due:
        diagnostics.note("nothing is asked again", hint="`batchpond status` says what helps against what failed")
    elif dry_run:
        diagnostics.note("dry run: nothing was sent", hint=f"`batchpond {command}` sends it")
    elif counts is not None:
        if not report.preview.n_requests:
            diagnostics.note("what follows from the answers is approved", hint="`batchpond sync` sends it as they come")
        elif counts.n_existing or report.n_unsent or report.n_unclear or not n_live:
            hint = "`batchpond sync` collects the answers and sends what waits; run it as often as you like"
            if report.exit_code and not counts.n_existing:
                hint = "what keeps them is said above"
            diagnostics.note(created_text(report, counts), hint=hint)
        if n_live:
            hint = f"`batchpond live {report.preview.study}` asks them"
            diagnostics.note(f"{plural(n_live, 'live request')} approved", hint=hint)


def created_text(report: SubmitReport, counts: Counts) -> str:
    """Return how many batches came to be, found again ones included, how many may have, and what is not sent yet."""
    parts = ((counts.n_adopted, "of them found again"), (counts.n_rejected, "refused"), (report.n_unclear, "unclear"))
    said = [f"{plural(counts.n_existing, 'batch')} created", *(f"{n:,} {words}" for n, words in parts if n)]
    return ", ".join(said) + (f"; {plural(report.n_unsent, 'request')} not sent yet" if report.n_unsent else "")


FAILURE_COLUMNS = ("provider", "model", "failure", "requests", "asked again", "out of attempts")


@pond_command("retry")
def retry(
    invocation: Invocation,
    study: str,
    classes: Sequence[str],
    max_attempts: int | None,
    is_yes: bool,
    dry_run: bool,
    max_cost_usd: float | None,
    is_json: bool,
) -> ExitCode:
    """Ask the failed requests of a submitted STUDY once more."""
    from batchpond.run.submit import retry

    diagnostics = invocation.diagnostics

    def confirm(preview: SubmitPreview, failures: tuple[FailureCount, ...]) -> bool:
        return is_confirmed(diagnostics, preview, "" if is_json else _shown(preview, failures), is_yes=is_yes)

    report = _told(
        invocation, retry, study, classes=[ErrorClass(name) for name in classes], max_attempts=max_attempts,
        max_cost_usd=max_cost_usd, confirm=None if dry_run else confirm,
    )  # fmt: skip
    submitted = report.submitted
    if not dry_run:
        _require_sent(submitted, f"retry {study}")
    if is_json:
        output.document(retry_document(report))
    elif dry_run or not submitted.preview.n_requests:
        output.text(_shown(submitted.preview, report.failures))
    _conclude(diagnostics, submitted, f"retry {study}", dry_run=dry_run)
    return submitted.exit_code


_KEYS = ("provider", "request_model", "error_class", "n_requests", "n_due", "n_out_of_attempts")


def _values(failure: FailureCount) -> tuple[str, str, str, int, int, int]:
    n_out = failure.n_chosen - failure.n_due
    return failure.provider, failure.request_model, failure.error_class, failure.n_requests, failure.n_due, n_out


def retry_document(report: RetryReport) -> dict[str, Any]:
    """Return the JSON shape of a retry."""
    rows = [dict(zip(_KEYS, _values(failure), strict=True)) for failure in report.failures]
    return {**document(report.submitted), "failures": rows}


def _shown(preview: SubmitPreview, failures: Sequence[FailureCount]) -> str:
    if not failures:
        return f"nothing of {preview.study} has failed that was asked"
    rows = [tuple(f"{v:,}" if isinstance(v, int) else v for v in _values(failure)) for failure in failures]
    table = "\n".join(formats.aligned(FAILURE_COLUMNS, rows, n_text_columns=3, width=output.room()))
    return f"{table}\n\n{preview_text(preview)}" if preview.n_requests else table
