"""`sync`: one pass that brings lake and providers together, or a loop; `live`: calls that are due; `run`: all of it."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpond.cli import output
from batchpond.cli.formats import age
from batchpond.cli.frame import Invocation, picked, pond_command, providers
from batchpond.cli.output import Diagnostics
from batchpond.errors import AwayError, BusyError, ExitCode, OvertakenError, UsageError
from batchpond.model import Origin
from batchpond.text import plural, usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from batchpond.lake.store import Store
    from batchpond.run.live.run import LaneProgress, LiveReport
    from batchpond.run.session import Counts, Note
    from batchpond.run.sync import SyncReport

ON_DONE_TIMEOUT_S = 60.0
WHAT = {
    "n_created": "created",
    "n_adopted": "found again",
    "n_absent": "proven never created",
    "n_rejected": "refused",
    "n_unknown": "sent without a clear answer",
    "n_status_changes": "status change(s)",
    "n_lines": "line(s) downloaded",
    "n_verified": "verified",
    "n_read_again": "read again",
    "n_mismatched": "mismatched",
}


@dataclass(frozen=True, slots=True)
class Watch:
    """How long to go on, how often to look, and for which study, or for all."""

    is_on: bool
    interval_s: float
    timeout_s: float
    submit_due: bool
    study: str | None = None


@pond_command("sync")
def command(
    invocation: Invocation,
    is_watch: bool,
    interval_s: float,
    timeout_s: float,
    on_done: str | None,
    no_submit: bool,
    is_exit_code: bool,
    is_json: bool,
) -> ExitCode:
    """Look at every open batch once: download what ended, record what changed, send what is due."""
    watch = Watch(is_watch, interval_s, timeout_s, submit_due=not no_submit)
    total, report = passes(invocation, watch)
    if is_json:
        output.document(document(total, report))
    conclude(invocation.diagnostics, total, report)
    if on_done and not report.n_pending and any(dataclasses.astuple(total)):
        _run_on_done(on_done, invocation, total, report)
    is_short = is_exit_code and bool(report.n_failed or report.n_unsent)  # as for want of money
    return exit_code(report, is_exit_code=is_exit_code) or (ExitCode.ATTENTION if is_short else ExitCode.DONE)


def passes(invocation: Invocation, watch: Watch) -> tuple[Counts, SyncReport]:
    """Make passes as `watch` says; return what all of them did, and the last one's report."""
    from batchpond.run.session import Counts, Note

    store, diagnostics = invocation.store(), invocation.diagnostics
    total, said = Counts(), list[Note]()
    deadline_s = time.monotonic() + watch.timeout_s

    def tell(note: Note) -> None:
        if note not in said:  # by the pass before
            diagnostics.told(note)

    while True:
        report = _one_pass(diagnostics, watch, deadline_s, store, tell)
        said[:] = report.notes
        total += report.counts
        left_s = deadline_s - time.monotonic()
        if not (watch.is_on and report.n_pending and left_s > 0) or report.is_stuck:
            diagnostics.end_progress()
            return total, report
        pending = f"{plural(report.n_pending, 'batch')} pending{_standing(store)}"
        _wait(diagnostics, f"{pending}, {total.n_lines:,} lines in", min(watch.interval_s, left_s))


def _standing(store: Store) -> str:
    """Return how far the batches are that are under way, by the providers' counts, and what answers have cost."""
    from batchpond.views.read import Ask, rows_of_all

    asks = [Ask("batches", ("attempt_id",), "is_in_flight"), Ask("costs", ("study",), "cost_usd IS NOT NULL")]
    batches, costs = rows_of_all(store.path, asks)
    n_completed, n_requests = (sum(row[name] or 0 for row in batches) for name in ("n_completed", "n_requests"))
    paid = [row["cost_usd"] - (row["cost_elsewhere_usd"] or 0) for row in costs if row["origin"] != Origin.SIMULATED]
    money = f", {usd(sum(paid))} {'so far' if paid else '(simulated)'}" if costs else ""
    return (f", {n_completed:,} of {n_requests:,} requests done" if n_requests else "") + money


def _wait(diagnostics: Diagnostics, text: str, wait_s: float) -> None:
    until_s = time.monotonic() + wait_s
    while (left_s := until_s - time.monotonic()) > 0:
        diagnostics.progress(f"next look in {age(left_s)}; {text}")
        time.sleep(min(1.0, left_s) if diagnostics.is_terminal else left_s)


def _one_pass(
    diagnostics: Diagnostics, watch: Watch, deadline_s: float, store: Store, tell: Callable[[Note], None]
) -> SyncReport:
    from batchpond.run.sync import sync_once

    while True:
        try:
            with providers(store) as connected:
                return sync_once(
                    store, providers=connected, submit_due=watch.submit_due, on_note=tell, study=watch.study
                )
        except (AwayError, BusyError, OvertakenError) as error:
            if not watch.is_on or time.monotonic() + watch.interval_s > deadline_s:
                raise
            diagnostics.progress(error.message)
            time.sleep(watch.interval_s)


def document(counts: Counts, report: SyncReport) -> dict[str, Any]:
    """Return the JSON shape of one or more passes."""
    left = ("n_pending", "n_unclear", "n_failed", "n_attention", "n_live", "n_unsent", "n_unapproved", "notes")
    return {"counts": picked(counts), **picked(report, *left)}


def exit_code(report: SyncReport, *, is_exit_code: bool) -> ExitCode:
    """Return what a pass means to a script."""
    if report.exit_code is not ExitCode.DONE:
        return report.exit_code
    if report.n_attention:
        return ExitCode.ATTENTION
    return ExitCode.PENDING if is_exit_code and report.n_pending else ExitCode.DONE


def conclude(diagnostics: Diagnostics, total: Counts, report: SyncReport) -> None:
    """Say what passes did and what is left."""
    counted = [(n, WHAT[name]) for name, n in dataclasses.asdict(total).items() if n and name in WHAT]
    done = ", ".join(f"{n:,} {words.replace('(s)', 's' * (n != 1))}" for n, words in counted)
    parts = (
        # what waits to be sent is said by its requests
        (report.n_pending - bool(report.n_unsent) * report.n_waiting, "batch", "pending", ""),
        (report.n_unclear, "batch", "unclear", ""),
        (report.n_unsent, "approved request", "not sent yet", ""),
        (report.n_failed, "request", "failed", "`batchpond status` says how they failed, and what helps"),
        (report.n_live, "live request", "due", "`batchpond live` asks what is live"),
        (report.n_unapproved, "planned request", "not approved", "`batchpond status` says what waits for `submit`"),
        (report.n_attention, "batch", "to be looked at", "`batchpond status` shows which"),
    )
    left = ", ".join(f"{plural(n, noun)} {words}" for n, noun, words, _ in parts if n) or "nothing pending"
    hints = "; ".join(hint for n, *_, hint in parts if n and hint)
    diagnostics.note(f"{done or 'nothing new'}; {left}", hint=hints or None)


def _run_on_done(on_done: str, invocation: Invocation, total: Counts, report: SyncReport) -> None:
    numbers = {**dataclasses.asdict(total), "n_pending": report.n_pending, "n_attention": report.n_attention}
    environment = {f"BATCHPOND_{name.upper()}": str(value) for name, value in numbers.items()}
    environment["BATCHPOND_LAKE"] = str(invocation.lake_path)
    try:
        # Its stdout joins our stderr: stdout is data only.
        done = subprocess.run(
            ["/bin/sh", "-c", on_done], env=os.environ | environment, stdout=2, timeout=ON_DONE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"--on-done ran longer than {ON_DONE_TIMEOUT_S:.0f} s; the pass itself is done") from None
    if done.returncode:
        invocation.diagnostics.warning(f"--on-done ended with exit code {done.returncode}; the pass itself is done")


@pond_command("run")
def run(
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
    from batchpond.cli import plan, status
    from batchpond.plan.verb import plan_file

    deadline_s = time.monotonic() + timeout_s
    with _shown(invocation):
        planned = plan_file(invocation.lake_path, study, is_shown=not is_yes)  # who is asked may look first
        if not is_json:
            invocation.diagnostics.say("\n".join(plan.report_lines(planned)))
        confirm = plan.asked(invocation, planned.study, is_yes=is_yes, is_json=is_json, is_fresh=is_fresh)
        submitted = plan.sent(invocation, planned.study, confirm, "run", max_cost_usd=max_cost_usd, limit=limit)
        total, report, code = _waited_for(invocation, planned.study, interval_s, deadline_s)
    conclude(invocation.diagnostics, total, report)
    if is_json:
        documents = {"plan": planned, "submit": plan.document(submitted), "sync": document(total, report)}
        output.document(documents)
    else:
        status.show_models(invocation, planned.study)
    return code


@contextmanager
def _shown(invocation: Invocation) -> Iterator[None]:
    """Have the lens show what was done where it ends early: whoever goes on leaves that to the first pass."""
    try:
        yield
    except BaseException:
        from batchpond.views.refresh import refresh

        # Where there is no lake there is nothing to show, and another writer leaves it as it should be.
        with suppress(UsageError, BusyError):
            store = invocation.store()
            with store.lock("run"):
                refresh(store)
        raise


def _waited_for(
    invocation: Invocation, study: str, interval_s: float, deadline_s: float
) -> tuple[Counts, SyncReport, ExitCode]:
    """Make passes, and live calls between them; returns what passes did, the last's report, and the exit code."""
    from batchpond.run.session import Counts

    total, asked, is_over = Counts(), ExitCode.PENDING, False
    while True:
        watch = Watch(True, interval_s, max(0.0, deadline_s - time.monotonic()), submit_due=True, study=study)
        counts, report = passes(invocation, watch)
        total += counts
        code = exit_code(report, is_exit_code=True)
        if not report.n_live:
            return total, report, code
        if is_over or time.monotonic() >= deadline_s:
            return total, report, code or asked
        lived = ask(invocation, [study], until_s=deadline_s)
        asked = lived.exit_code or (ExitCode.PENDING if lived.n_left else ExitCode.DONE)
        is_over = not any(lane.counts.n_answered for lane in lived.lanes)


LOG_EVERY_S = 60.0
SHOW_EVERY_S = 0.5


@pond_command("live")
def live(
    invocation: Invocation,
    studies: tuple[str, ...],
    concurrency: int | None,
    qps: float | None,
    on_doubt: str | None,
    is_json: bool,
) -> ExitCode:
    """Ask what is due of live models, in all approved studies or in those named."""
    report = ask(invocation, studies, concurrency=concurrency, qps=qps, on_doubt=on_doubt)
    if is_json:
        output.document(live_document(report))
    return report.exit_code


def ask(invocation: Invocation, studies: Sequence[str], *, until_s: float = math.inf, **forced: Any) -> LiveReport:
    """Make the live calls that are due, none from `until_s` on (`time.monotonic`); `forced` goes before the lake's."""
    from batchpond.providers import registry
    from batchpond.run.live import run
    from batchpond.run.live.calls import OnDoubt

    store, diagnostics = invocation.store(), invocation.diagnostics
    if forced.get("on_doubt") is not None:
        forced["on_doubt"] = OnDoubt(forced["on_doubt"])
    run.check_studies(store, studies)
    ticker = _Ticker(diagnostics)
    options = run.LiveOptions(
        studies=studies,
        settings=run.load(store.path).over(**forced),
        connect=lambda name, n_calls: registry.connect_live(name, store.clock, max_connections=n_calls),
        until_s=until_s,
        on_note=diagnostics.told,
        on_progress=ticker.show,
    )
    report = run.run(store, options)
    diagnostics.end_progress()
    _conclude_live(diagnostics, report)
    return report


class _Ticker:
    """Says where the calls stand: a living line on a terminal, a line a minute elsewhere."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._started_s = time.monotonic()
        self._shown_s = float("-inf")
        self._n_at_start: int | None = None

    def show(self, lanes: tuple[LaneProgress, ...]) -> None:
        """Show it, unless it was shown just now."""
        now_s = time.monotonic()
        n_answered = sum(lane.n_answered for lane in lanes)
        if self._n_at_start is None:
            self._n_at_start = n_answered
        every_s = SHOW_EVERY_S if self._diagnostics.is_terminal else LOG_EVERY_S
        if not lanes or now_s - self._shown_s < every_s:
            return
        self._shown_s = now_s
        per_s = (n_answered - self._n_at_start) / max(1e-9, now_s - self._started_s)
        self._diagnostics.progress(progress_text(lanes, per_s))


def progress_text(lanes: Sequence[LaneProgress], per_s: float) -> str:
    """Return one line on all lanes."""
    n_requests, n_answered = sum(lane.n_requests for lane in lanes), sum(lane.n_answered for lane in lanes)
    parts = [f"{n_answered:,} of {n_requests:,} answered", f"{sum(lane.n_in_flight for lane in lanes)} in flight"]
    parts.append(f"{per_s:.1f}/s" + (f", {age((n_requests - n_answered) / per_s)} left" if per_s > 0 else ""))
    for name, words in (("n_deferred", "put off"), ("n_doubts", "in doubt"), ("n_failed", "failed")):
        if n := sum(getattr(lane.counts, name) for lane in lanes):
            parts.append(f"{n:,} {words}")
    stalled = [lane.name for lane in lanes if lane.is_stalled]
    if stalled:
        parts.append(f"waiting for {', '.join(stalled)}")
    return ", ".join(parts)


def live_document(report: LiveReport) -> dict[str, Any]:
    """Return the JSON shape of a run."""
    models = [
        {"model": lane.name, **picked(lane, "n_requests", "n_answered"), "n_calls_answered": lane.counts.n_answered}
        | picked(lane.counts, "n_deferred", "n_doubts", "n_failed", "n_held")
        for lane in report.lanes
    ]
    return {"models": models, **picked(report, "n_left", "notes")}


def _conclude_live(diagnostics: Diagnostics, report: LiveReport) -> None:
    if not report.lanes:
        diagnostics.note("no live call is due", hint="`batchpond submit STUDY` approves a study with live models")
        return
    n_now = sum(lane.counts.n_answered for lane in report.lanes)
    n_failed = sum(lane.counts.n_failed for lane in report.lanes)
    failed = f", {n_failed:,} failed (`batchpond status` says how; `batchpond retry` asks again)" if n_failed else ""
    left = f"{plural(report.n_left, 'request')} left" if report.n_left else "nothing left to ask"
    hint = "`batchpond live` goes on where this stopped" if report.n_left else "`batchpond results` shows the answers"
    diagnostics.note(f"{n_now:,} answered{failed}; {left}", hint=hint)
