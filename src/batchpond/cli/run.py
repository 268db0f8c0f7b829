"""`run`: a study from its file to its answers in one go."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from batchpond.cli import live, output, plan, status, sync
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import ExitCode

if TYPE_CHECKING:
    from batchpond.run.session import Counts
    from batchpond.run.sync import SyncReport


@pond_command("run")
def command(
    invocation: Invocation,
    study: Path,
    is_yes: bool,
    max_cost_usd: float | None,
    limit: int | None,
    is_fresh: bool,
    interval_s: float,
    timeout_s: float,
    is_json: bool,
) -> ExitCode:
    """Plan the STUDY file, show its cost, ask, send, and go on until every answer is in."""
    from batchpond.plan.verb import plan_file

    deadline_s = time.monotonic() + timeout_s
    planned = plan_file(invocation.lake_path, study)
    if not is_json:
        invocation.diagnostics.say("\n".join(plan.report_lines(planned)))
    confirm = plan.asked(invocation, planned.study, is_yes=is_yes, is_json=is_json, is_fresh=is_fresh)
    submitted = plan.sent(invocation, planned.study, confirm, "run", max_cost_usd=max_cost_usd, limit=limit)
    total, report, code = _waited_for(invocation, planned.study, interval_s, deadline_s)
    sync.conclude(invocation.diagnostics, total, report)
    if is_json:
        documents = {"plan": planned, "submit": plan.document(submitted), "sync": sync.document(total, report)}
        output.document(documents)
    else:
        status.show_models(invocation, planned.study)
    return code


def _waited_for(
    invocation: Invocation, study: str, interval_s: float, deadline_s: float
) -> tuple[Counts, SyncReport, ExitCode]:
    """Make passes, and live calls between them; returns what passes did, the last's report, and the exit code."""
    from batchpond.run.session import Counts

    total, asked, is_over = Counts(), ExitCode.PENDING, False
    while True:
        watch = sync.Watch(True, interval_s, max(0.0, deadline_s - time.monotonic()), submit_due=True, study=study)
        counts, report = sync.passes(invocation, watch)
        total += counts
        code = sync.exit_code(report, is_exit_code=True)
        if not report.n_live:
            return total, report, code
        if is_over or time.monotonic() >= deadline_s:
            return total, report, code or asked
        lived = live.ask(invocation, [study], until_s=deadline_s)
        asked = lived.exit_code or (ExitCode.PENDING if lived.n_left else ExitCode.DONE)
        is_over = not any(lane.counts.n_answered for lane in lived.lanes)
