"""A lake that is used every day: a study a day at three providers, passes from cron, faults, days of outage.

A person looks once a week, as people do. What grows is measured beside what may grow: files, events, and the work of a
pass that has nothing to do.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batchpond.lake.attempts import Phase
from batchpond.lake.events import COMPACT_ABOVE_FILES, EventLog
from batchpond.lake.schemas import TABLES
from tests.rigs.schedules import HARMLESS
from tests.rigs.sim_inputs import write_study
from tests.rigs.sim_providers import one_model_each
from tests.rigs.sim_study import STUDY, Rig

PROVIDERS = ("openai", "anthropic", "gemini")
N_A_DAY = 2 * len(PROVIDERS)
PASSES_A_DAY = 4
PASSES_TO_SETTLE = 20
HOURS_6_S = 6 * 3_600.0
FAULTY_SHARE, OUTAGE_SHARE = 0.4, 0.02
OUTAGE = "*@*:status=503"
# Faults that hold back a day's batches until a person says what they were, or that move the clocks of others.
LEFT_OUT = ("clock_skew", "status=401", "billing", "hang", "delay_exec")
FAULTS = tuple(fault for fault in HARMLESS if not any(word in fault for word in LEFT_OUT))

MERGED_FILES_MAX = 16
EVENTS_A_BATCH_MAX = 30
RECENT_EVENTS_MAX = 3_000
FILES_A_BATCH_MAX = 2.0
CALLS_A_PASS_MAX = 150
IDLE_CPU_RATIO_MAX = 3.0


@dataclass(frozen=True, slots=True)
class Week:
    """What stood at the end of a week, and what a pass with nothing to do cost."""

    n_days: int
    n_files: dict[str, int]
    n_events: int
    n_recent: int
    n_batches: int
    idle_calls: int
    idle_cpu_s: float


@dataclass
class Year:
    """What came of it."""

    n_days: int = 0
    weeks: list[Week] = field(default_factory=list)
    n_passes: int = 0
    n_faults: int = 0
    n_outages: int = 0
    calls_max: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        first, last = self.weeks[0], self.weeks[-1]
        return (
            f"{self.n_days} days, {self.n_passes:,} passes, {self.n_faults} faults, {self.n_outages} days of outage:"
            f" {last.n_batches:,} batches, {sum(last.n_files.values()):,} files, {last.n_files['events']} of them of"
            f" {last.n_events:,} events ({last.n_recent:,} held); at most {self.calls_max} calls a pass; one with"
            f" nothing to do {first.idle_cpu_s:.2f} CPU s after a week, {last.idle_cpu_s:.2f} at the end;"
            f" {len(self.problems)} broken bounds or promises"
        )


def play(
    path: Path, n_days: int, *, seed: int = 0, with_lens: bool = False, told: Callable[[Week], object] = bool
) -> Year:
    """Play so many days and judge them; each week is `told` when it is over."""
    draw = random.Random(seed)
    rig = Rig(path, models=one_model_each(PROVIDERS), max_requests=50, with_lens=with_lens, lake_seed=seed)
    year = Year(n_days)
    for day in range(n_days):
        _begin(rig, day)
        _misfortune(rig, year, draw)
        for _ in range(PASSES_A_DAY):
            rig.clock.advance(HOURS_6_S)
            _pass(rig, year)
        if day % 7 == 6:
            _look(rig, year, day + 1)
            told(year.weeks[-1])
    _look(rig, year, n_days)
    year.problems += [*rig.violations(), *_unfinished(rig, n_days), *outgrown(year)]
    rig.world.close()
    return year


def _begin(rig: Rig, day: int) -> None:
    """Plan and submit the study of a day, whose texts no other day has."""
    name = f"{STUDY}-{day:03}"
    rig.study_path = write_study(rig.path / "study", max_requests=50, n_items=2, models=rig.models)
    rig.study_path.write_text(rig.study_path.read_text().replace(f'study = "{STUDY}"', f'study = "{name}"'))
    items = rig.study_path.parent / "items.csv"
    items.write_text(items.read_text().replace("text number", f"text of day {day} number"))
    rig.plan()
    rig.submit(study=name)


def _misfortune(rig: Rig, year: Year, draw: random.Random) -> None:
    rig.world.clear_faults()
    share = draw.random()
    if share < OUTAGE_SHARE:
        rig.world.add_fault(OUTAGE)
        year.n_outages += 1
    elif share < OUTAGE_SHARE + FAULTY_SHARE:
        for fault in draw.sample(FAULTS, 2):
            rig.world.add_fault(fault)
            year.n_faults += 1


def _pass(rig: Rig, year: Year) -> None:
    before = sum(rig.wire.calls.values())
    rig.sync()
    year.n_passes += 1
    year.calls_max = max(year.calls_max, sum(rig.wire.calls.values()) - before)


def _look(rig: Rig, year: Year, n_days: int) -> None:
    """Let a person settle what waits for one, and write down what the lake has come to."""
    rig.world.clear_faults()
    for n in range(PASSES_TO_SETTLE):
        rig.clock.advance(2_000)
        report = rig.sync()
        if n == PASSES_TO_SETTLE // 2:
            rig.decide_what_stays_open()
            for study in {a.intent.study for a in rig.attempts() if a.phase is Phase.REJECTED}:
                rig.submit(study=study)
        if not report.n_pending and not report.n_unsent:
            if all(attempt.phase is not Phase.MISMATCH for attempt in rig.attempts()):
                break
            rig.refetch_mismatched()
    tree, calls, began_s = rig.tree(), sum(rig.wire.calls.values()), time.process_time()
    rig.sync()
    idle_cpu_s = time.process_time() - began_s
    if rig.tree() != tree:
        year.problems.append(f"after {n_days} days: a pass with nothing new wrote something")
    store = rig.store()
    log = EventLog(store)
    n_recent = len(log.recent)  # before all of them are asked for
    year.weeks.append(
        Week(
            n_days, dict(Counter({name: len(store.published(name)) for name in TABLES})), len(log.events),
            n_recent, len(rig.world.ledger.batches), sum(rig.wire.calls.values()) - calls, idle_cpu_s,
        )
    )  # fmt: skip


def _unfinished(rig: Rig, n_days: int) -> Sequence[str]:
    n_answers, n_billed = len(rig.answers()), rig.billed()[0]
    wanted = n_days * N_A_DAY
    return [] if (n_answers, n_billed) == (wanted, wanted) else [f"{n_answers} answers, {n_billed} billed of {wanted}"]


def outgrown(year: Year) -> Sequence[str]:
    """Return each bound that was passed."""
    found = []
    for week in year.weeks:
        at = f"after {week.n_days} days"
        n_own = {name: n for name, n in week.n_files.items() if name in ("raw", "responses", "judgments")}
        bounds = {
            "files of events": (week.n_files["events"], COMPACT_ABOVE_FILES + MERGED_FILES_MAX),
            "events": (week.n_events, EVENTS_A_BATCH_MAX * week.n_batches),
            "events held": (week.n_recent, RECENT_EVENTS_MAX),
            "files of answers": (max(n_own.values()), FILES_A_BATCH_MAX * week.n_batches),
            "calls of a pass with nothing to do": (week.idle_calls, 0),
        }
        found += [f"{at}: {n} {what}, at most {most}" for what, (n, most) in bounds.items() if n > most]
    if year.calls_max > CALLS_A_PASS_MAX:
        found.append(f"a pass made {year.calls_max} calls")
    first, last = year.weeks[0].idle_cpu_s, year.weeks[-1].idle_cpu_s
    if last > IDLE_CPU_RATIO_MAX * first + 0.2:
        found.append(f"a pass with nothing to do took {first:.2f} CPU s after a week and {last:.2f} at the end")
    return found
