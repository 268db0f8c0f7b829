"""`plan`: what a study would ask, and what that would cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchpond.cli import formats, output
from batchpond.cli.formats import priced_by, provider_text, summed, usd
from batchpond.cli.frame import Invocation, json_option, pond_command
from batchpond.model import Mode
from batchpond.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchpond.plan.report import CellReport, ModelReport, PlanReport, StageReport
    from batchpond.study.prices import Estimate

CELLS_SHOWN_MAX = 60
DROPPED_SHOWN_MAX = 20
COSTS = ("low", "expected", "worst")
MODEL_COLUMNS = ("provider", "model", "to ask", "batches", "tokens in", *COSTS)
STAGE_COLUMNS = ("stage", "task", "waits for", "requests", "tokens in", *COSTS)
CELL_COLUMNS = ("template", "rubric", "model", "thinking", "to ask", "expected")


@pond_command("plan", "batchpond plan study.toml", "batchpond plan study.toml --json | jq .cost.expected_usd")
@click.argument("study", type=click.Path(dir_okay=False, path_type=Path), default=Path("study.toml"))
@json_option
def command(invocation: Invocation, study: Path, is_json: bool) -> None:
    """Work out what the STUDY file asks, store it in the lake, and show a rough cost.

    Talks to nobody and spends nothing. Planning the same file again changes nothing; a changed
    file is a new version, and what this lake has answered is not asked again.
    """
    from batchpond.lake.store import Store
    from batchpond.plan.verb import plan_study
    from batchpond.study import file as study_files

    loaded = study_files.load(study)
    report = plan_study(Store.init(invocation.lake_path), loaded)
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
    rest, prices = (
        " and of what follows from it" if has_forecast else "",
        priced_by(model.mode for model in report.models),
    )
    low, expected, worst = _costs(report.cost, "{} + unknown")
    yield f"cost of what is to ask{rest}, a rough estimate at {prices}:"
    yield f"low {low}, expected {expected}, worst {worst}"
    yield from _remarks(report)


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
    """Yield the table of cells; the stage is told where there are several."""
    has_stages = len(report.stages) > 1
    cells = [((cell.stage,) if has_stages else ()) + _cell_row(cell) for cell in report.cells[:CELLS_SHOWN_MAX]]
    columns = ("stage", *CELL_COLUMNS) if has_stages else CELL_COLUMNS
    yield from formats.aligned(columns, cells, n_text_columns=4 + has_stages, width=output.room())
    if len(report.cells) > CELLS_SHOWN_MAX:
        yield f"... and {len(report.cells) - CELLS_SHOWN_MAX:,} more cells; `--json` lists all"


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
        f"to ask: {_asked(report)}; answered already: "
        f"{report.n_answered_already:,}; put into a batch before: {report.n_in_shards:,}"
    )


def _asked(report: PlanReport) -> str:
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
        "-" if model.mode is Mode.LIVE else f"{model.n_shards:,}",
        f"~{model.estimated_input_tokens:,}",
        *_costs(model.cost),
    )


def _cell_row(cell: CellReport) -> tuple[str, ...]:
    return (
        cell.template_id,
        cell.rubric_id,
        cell.request_model,
        cell.thinking,
        f"{cell.n_to_ask:,}",
        usd(cell.cost.expected_usd),
    )


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
