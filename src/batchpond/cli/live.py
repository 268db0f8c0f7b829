"""`live`: make the live calls that are due, and go on where the last run stopped."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from batchpond.cli import output
from batchpond.cli.formats import age
from batchpond.cli.frame import Invocation, picked, pond_command
from batchpond.cli.output import Diagnostics
from batchpond.errors import ExitCode
from batchpond.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchpond.run.live.run import LaneProgress, LiveReport

LOG_EVERY_S = 60.0
SHOW_EVERY_S = 0.5


@pond_command("live")
def command(
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
        output.document(document(report))
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
    _conclude(diagnostics, report)
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
    for name, words in (("n_deferred", "put off"), ("n_doubts", "in doubt"), ("n_failed", "given up")):
        if n := sum(getattr(lane.counts, name) for lane in lanes):
            parts.append(f"{n:,} {words}")
    stalled = [lane.name for lane in lanes if lane.is_stalled]
    if stalled:
        parts.append(f"waiting for {', '.join(stalled)}")
    return ", ".join(parts)


def document(report: LiveReport) -> dict[str, Any]:
    """Return the JSON shape of a run."""
    models = [
        {"model": lane.name, **picked(lane, "n_requests", "n_answered"), "n_calls_answered": lane.counts.n_answered}
        | picked(lane.counts, "n_deferred", "n_doubts", "n_failed", "n_held")
        for lane in report.lanes
    ]
    return {"models": models, **picked(report, "n_left", "notes")}


def _conclude(diagnostics: Diagnostics, report: LiveReport) -> None:
    if not report.lanes:
        diagnostics.note("no live call is due", hint="`batchpond submit STUDY` approves a study with live models")
        return
    n_now = sum(lane.counts.n_answered for lane in report.lanes)
    n_failed = sum(lane.counts.n_failed for lane in report.lanes)
    given_up = f", {n_failed:,} given up (`batchpond retry` asks them again)" if n_failed else ""
    left = f"{plural(report.n_left, 'request')} left" if report.n_left else "nothing left to ask"
    hint = "`batchpond live` goes on where this stopped" if report.n_left else "`batchpond results` shows the answers"
    diagnostics.note(f"{n_now:,} answered{given_up}; {left}", hint=hint)
