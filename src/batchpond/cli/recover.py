"""`recover`: make a lost lake again of what the providers still have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchpond.cli import output, plan
from batchpond.cli.formats import usd
from batchpond.cli.frame import Invocation, json_option, picked, pond_command, providers
from batchpond.errors import ExitCode
from batchpond.text import plural

if TYPE_CHECKING:
    from batchpond.run.recover import RecoverReport


@pond_command(
    "recover",
    "batchpond recover study.toml",
    "batchpond recover study.toml --limit 200 --lake new-lake",
    "batchpond recover study.toml --json",
)
@click.argument("study", type=click.Path(dir_okay=False, path_type=Path), default=Path("study.toml"))
@plan.limit_option
@json_option
def command(invocation: Invocation, study: Path, limit: int | None, is_json: bool) -> ExitCode:
    """Make a lost lake again of the STUDY file and of what its providers still have.

    The study is planned, and its batches are looked for in the accounts: by the requests that they hold, never by
    name. They are taken in and collected; what their answers make possible is planned and looked for in turn. Nothing
    is bought. What is gone, of another version of the study, or not to be told yet is said, and the command
    may be run again at any time.

    Give the --limit that the study was submitted with, if any. Live calls leave nothing at a provider. Keep what
    `lake/config.toml` said: a queue limit there decides how requests are cut into batches.
    """
    from batchpond.lake.store import Store
    from batchpond.plan.verb import plan_study
    from batchpond.study import file as study_files

    store = Store.init(invocation.lake_path)
    planned = plan_study(store, study_files.load(study), is_bought=True)
    return run(invocation, planned.study, limit=limit, is_json=is_json)


def run(invocation: Invocation, study: str, *, limit: int | None, is_json: bool) -> ExitCode:
    """Take in all that the providers have of a planned study, and say what it came to."""
    from batchpond.run.recover import recover

    store, diagnostics = invocation.store(), invocation.diagnostics
    with providers(store) as connected:
        report = recover(store, study, providers=connected, sample=limit, on_note=diagnostics.told)
    if is_json:
        output.document(document(report))
    diagnostics.note(summary(report), hint=_next(report))
    return report.exit_code


def summary(report: RecoverReport) -> str:
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


def _next(report: RecoverReport) -> str:
    if report.n_held > report.n_answered:
        return "`batchpond sync` collects what still runs; then run it again, if the study has further stages"
    if report.n_held < report.n_requests:
        return f"`batchpond submit {report.study} --dry-run` shows what asking the rest would cost"
    return f"`batchpond status` shows where it stands; `batchpond submit {report.study}` lets `sync` go on with it"


def document(report: RecoverReport) -> dict[str, Any]:
    """Return the JSON shape of a recovery."""
    batches = [
        {"provider": found.client_name, **picked(found.batch, "batch_id", "state")}
        | picked(found, "fate", "n_requests", "why")
        for found in report.batches
    ]
    return picked(report) | {"batches": batches}
