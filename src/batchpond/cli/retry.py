"""`retry`: show how requests failed and what asking them again may cost, ask, send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import formats, output, submit
from batchpond.cli.formats import plural, usd
from batchpond.cli.frame import Invocation, json_option, pass_invocation, pond_command
from batchpond.cli.passes import providers, show_note
from batchpond.errors import ExitCode, UsageError
from batchpond.model import ErrorClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchpond.run.due import FailureCount
    from batchpond.run.submit import RetryReport, SubmitPreview

COLUMNS = ("provider", "model", "failure", "requests", "asked again", "out of attempts")


@pond_command(
    "retry",
    "batchpond retry my-study --dry-run",
    "batchpond retry my-study --only expired --only transient --yes",
    "batchpond retry my-study --only billing --max-cost 5",
)
@click.argument("study")
@click.option(
    "--only",
    "classes",
    multiple=True,
    type=click.Choice([str(name) for name in ErrorClass]),
    metavar="CLASS",
    help=f"Only what failed so; may be repeated. One of: {', '.join(ErrorClass)}.",
)
@click.option("--max-attempts", type=click.IntRange(min=1, max=100), metavar="N",
              help="Leave alone what was in N batches already.  [default: the study's, or 3]")  # fmt: skip
@click.option("-y", "--yes", "is_yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be asked again and its cost; send nothing.")
@click.option("--max-cost", "max_cost_usd", type=click.FloatRange(min=0), metavar="USD",
              help="Refuse above this expected cost, and never spend more than it.")  # fmt: skip
@json_option
@pass_invocation
def command(
    invocation: Invocation,
    study: str,
    classes: Sequence[str],
    max_attempts: int | None,
    is_yes: bool,
    dry_run: bool,
    max_cost_usd: float | None,
    is_json: bool,
) -> ExitCode:
    """Ask the failed requests of a submitted STUDY once more.

    Without --only these are the classes of the study's [retry], or else transient errors and expired and
    missing answers. Billing errors, retired models and requests that the provider calls wrong are asked
    again only when you name them. What has an answer is never asked again.
    """
    from batchpond.run.submit import retry

    diagnostics = invocation.diagnostics

    def confirm(preview: SubmitPreview, failures: tuple[FailureCount, ...]) -> bool:
        if not is_json:
            diagnostics.say(_shown(preview, failures))
        return is_yes or diagnostics.confirm(
            f"Send {plural(preview.n_requests, 'request')} for at most {usd(preview.cost_max_usd)}?", flag="--yes"
        )

    store = invocation.store()
    with providers(store) as connected:
        report = retry(
            store,
            study,
            classes=[ErrorClass(name) for name in classes],
            max_attempts=max_attempts,
            max_cost_usd=max_cost_usd,
            confirm=None if dry_run else confirm,
            providers=connected,
            on_note=lambda note: show_note(diagnostics, note),
        )
    submitted = report.submitted
    if submitted.counts is None and submitted.preview.n_requests and not dry_run:
        raise UsageError("not confirmed; nothing was sent", hint=f"`batchpond retry {study}` asks again")
    if is_json:
        output.document(document(report))
    elif dry_run or not submitted.preview.n_requests:
        output.text(_shown(submitted.preview, report.failures))
    if dry_run:
        diagnostics.note("dry run: nothing was sent", hint=f"`batchpond retry {study}` sends it")
    elif submitted.counts is not None:
        diagnostics.note(
            f"{plural(submitted.counts.n_created, 'batch')} created",
            hint="`batchpond sync` collects the answers and sends what waits",
        )
    return submitted.exit_code


_KEYS = ("provider", "request_model", "error_class", "n_requests", "n_due", "n_out_of_attempts")


def _values(failure: FailureCount) -> tuple[str, str, str, int, int, int]:
    n_out = failure.n_chosen - failure.n_due
    return failure.provider, failure.request_model, failure.error_class, failure.n_requests, failure.n_due, n_out


def document(report: RetryReport) -> dict[str, Any]:
    """Return the JSON shape of a retry."""
    rows = [dict(zip(_KEYS, _values(failure), strict=True)) for failure in report.failures]
    return {**submit.document(report.submitted), "failures": rows}


def _shown(preview: SubmitPreview, failures: Sequence[FailureCount]) -> str:
    if not failures:
        return f"nothing of {preview.study} has failed that was asked"
    rows = [tuple(f"{v:,}" if isinstance(v, int) else v for v in _values(failure)) for failure in failures]
    table = "\n".join(formats.aligned(COLUMNS, rows, n_text_columns=3))
    return f"{table}\n\n{submit.preview_text(preview)}" if preview.n_requests else table
