"""Random histories of a study: verbs, time, faults and crashes in an order that a seed decides.

In some of them a copy of the lake sends for a while and is thrown away, or the lake is lost and made again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from batchpond.errors import BatchpondError
from batchpond.lake.store import MARKER
from batchpond.providers import registry
from batchpond.run.recover import Fate
from tests.rigs.foreign_tool import make_batch
from tests.rigs.sim_inputs import N_ITEMS
from tests.rigs.sim_providers import SIMULATED, one_model_each, provider_of
from tests.rigs.sim_study import Rig

STEPS = 10
ITEMS_MAX = N_ITEMS + 2
TWIN_SHARE = LOST_SHARE = 0.15
LATE_SHARE = 0.5
_SILENT_MAX = 4  # results are a 404 up to so often
LAGS_END_S = 3_000  # by then every listing shows what was made, and no create is under way
VERBS = ("submit", "sync", "advance", "fault", "plan", "limited", "retry", "cancel", "foreign", "change")
MIXES = (*(provider.models for provider in SIMULATED.values()), one_model_each())
CRASH_SHARE = 0.45

NO_ROOM = "batches.create@1:enqueued"

# Faults after which every answer still comes, once, unchanged: the bill must equal an undisturbed run's.
HARMLESS = (
    "batches.create@1:reset_after", "batches.create@1:reset_before", "batches.create@1-2:hang_after=700",
    "batches.create@1:hang_before=700", "batches.create@1-3:html_after=502", "batches.create@1:html=200",
    "batches.create@1:html_after=200", "batches.create@1:status_after=500", "batches.create@1:status=503",
    "batches.create@1-2:status=429", "batches.create@1:status_after=429", "batches.create@1:status_after=413",
    "batches.create@1:status_after=400", "batches.create@1:status_after=409", "batches.create@1:status_after=408",
    "batches.create@1:refuse", "batches.create@1:file_not_ready", "batches.create@1-2:billing",
    "batches.create@1-2:delay_exec=200", "batches.create@1:delay_exec=500", "batches.create@1-3:stale_list=300",
    NO_ROOM, "batches.create@1:notfound_after_create=3", "batches.create@1-2:results_404=2",
    "batches.create@1:redirect=http://127.0.0.1:9/elsewhere", "batches.create@1:status=401",
    "batches.create@1:clock_skew=-40000", "batches.create@1:clock_skew=40000",
    "files.create@1:reset_after", "files.create@1:reset_before", "files.create@1:store=0.5",
    "files.create@1:html=502", "files.create@1:status=500", "files.create@1:hang_after=9999",
    "files.create@1-2:stale_list=400", "files.list@1:status=500", "files.list@1:reset_after",
    "batches.list@1-3:stale_list=300", "batches.list@1:list_error_page=1", "batches.list@1-2:cursor_loop",
    "batches.list@1:has_more_lies=true", "batches.list@1:empty_page", "batches.list@1-2:status=500",
    "batches.list@1:html=200", "batches.list@1:html=502", "batches.list@1-2:regress", "batches.list@1:status=401",
    "batches.list@1:counts_wrong", "batches.list@1:counts_null", "batches.list@1:counts_text",
    "batches.list@1:status_word=archiving", "batches.list@1:error_file_empty_string", "batches.list@1:reset_before",
    "batches.get@1-2:regress", "batches.get@1-2:status=404", "batches.get@1:status=500", "batches.get@1:html=200",
    "batches.get@1:counts_text", "files.content@1:truncate_mid=0.5", "files.content@1:reset_at=300",
    "files.content@1-2:truncate=0.5", "files.content@1-9:truncate=0.3", "files.content@1-3:status=404",
    "files.content@1-2:status=503", "files.content@1:html=200", "files.content@1-4:html=200", "files.content@1:slow=2",
    "files.content@1:garbage", "files.content@2:garbage", "files.content@1-9:garbage",
    "files.content@1:retry_after=120", "*@1-4:status=500", "*@2:reset_after", "*@1-2:reset_before",
)  # fmt: skip

# Faults that change what is answered: still never two batches, never an answer lost or at a wrong request.
LOSSY = (
    "batches.create@1:empty_output", "batches.create@1:expire=0.5", "batches.create@1:expire_bare",
    "batches.create@1:fail=invalid_request", "batches.create@1:expire=0",
    "lines@1-2:drop=2", "lines@1:duplicate=2", "lines@1:duplicate_differs", "lines@1:malformed=2",
    "lines@1:unknown_id=2", "lines@1:missing_id", "lines@1:duplicate_key", "lines@1:both_files",
    "lines@1-3:bom", "lines@1-3:crlf", "lines@1-3:blank_lines=2", "lines@1-3:no_final_lf", "lines@1:u2028=2",
    "lines@1:lone_surrogate=2", "lines@1:nan=2", "lines@1:no_usage=2", "lines@1:status_code_0",
    "lines@1:status_in_output", "lines@1-2:error_rows=3", "lines@1:billing_rows=2", "lines@1:empty_text",
    "lines@1:truncated_text", "lines@1:refusal", "files.content@1:changed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one schedule came to."""

    seed: int
    is_lossy: bool
    history: tuple[str, ...]
    n_crashes: int
    n_passes: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}: {'; '.join(self.problems)}\n  " + "\n  ".join(self.history)


def _all_send_again(models: Sequence[str]) -> bool:
    """Whether every provider's batches that lacked room are sent again by themselves."""
    return all(registry.module(provider_of(model)).DESCRIPTOR.requeue_codes for model in models)


def _foreign(rig: Rig, draw: random.Random, history: list[str]) -> None:
    """Let another tool make a batch in the same Anthropic account, often of the size of the lake's own."""
    n_requests = draw.choice((1, 2, 5, 5))
    try:
        make_batch(rig, n_requests)
    except (httpx.HTTPError, ValueError) as error:  # its own answer may be lost or spoiled too
        history.append(f"foreign batch of {n_requests}: {type(error).__name__}")
    else:
        history.append(f"foreign batch of {n_requests}")


class Undisturbed:
    """Rigs whose study went through without any fault, one for each mix of models, made when first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rigs: dict[tuple[tuple[str, ...], int], Rig] = {}

    def of(self, models: tuple[str, ...], n_items: int = N_ITEMS) -> Rig:
        """Return the rig of these models and so many items."""
        if (models, n_items) not in self._rigs:
            rig = Rig(self._path / str(len(self._rigs)), models=models, n_items=n_items, with_lens=False)
            rig.plan()
            rig.submit()
            rig.settle()
            rig.world.close()
            self._rigs[models, n_items] = rig
        return self._rigs[models, n_items]


def run(
    seed: int,
    path: Path,
    others: Undisturbed,
    mixes: Sequence[tuple[str, ...]] = MIXES,
    look: Callable[[Rig], None] | None = None,
) -> Outcome:
    """Play the schedule of a seed and judge where it ends; `look`, where given, looks at the lens after every step."""
    draw = random.Random(seed)
    is_lossy = draw.random() < 0.35
    models = mixes[seed % len(mixes)]
    rig = Rig(path, models=models, with_lens=look is not None, lake_seed=seed)
    lateness = random.Random(f"late {seed}")
    rig.lateness = lateness if lateness.random() < LATE_SHARE else None
    history: list[str] = []
    n_crashes = 0
    misfortune, at_step = _misfortune(seed, models, is_lossy=is_lossy)
    for step in range(STEPS):
        if step == at_step and misfortune is not None:
            n_crashes += misfortune(rig, draw, history)
        name = draw.choices(VERBS, (3, 6, 4, 4, 1, 1, 1, 1, 1, 2))[0]
        if name in {"limited", "change"} and misfortune is _twin:
            continue  # shards that are cut otherwise may hold the same requests: a person decides then
        if name == "change" and rig.n_items == ITEMS_MAX:
            continue
        if name == "advance":
            seconds = draw.choice((1, 30, 120, 400, 901, 3_000))
            rig.clock.advance(seconds)
            history.append(f"advance {seconds}")
        elif name == "fault":
            spec = draw.choice((*HARMLESS, *LOSSY, *LOSSY) if is_lossy else HARMLESS)
            if spec == NO_ROOM and not is_lossy and not _all_send_again(models):
                continue  # what lacked room waits for a person there
            rig.world.add_fault(spec)
            history.append(f"fault {spec}")
        elif name == "foreign":
            _foreign(rig, draw, history)
        elif name == "cancel" and not is_lossy:
            continue  # what is cancelled is not answered
        else:
            died = _verb(rig, name, draw)
            n_crashes += died is not None
            history.append(name if died is None else f"{name}, killed at {died}")
        if look is not None:
            look(rig)
    undisturbed = others.of(models, rig.n_items)
    return _judged(seed, is_lossy, rig, undisturbed, [f"models {' '.join(models)}", *history], n_crashes)


def _misfortune(
    seed: int, models: Sequence[str], *, is_lossy: bool
) -> tuple[Callable[[Rig, random.Random, list[str]], int] | None, int]:
    """Return what befalls the lake as a whole, if anything, and before which step."""
    own = random.Random(f"misfortune {seed}")
    share, at_step = own.random(), own.randrange(2, STEPS)
    if share < LOST_SHARE and not is_lossy:  # what was answered badly is asked again of what is known no more
        return _lose, at_step
    is_opaque = any(model.startswith("claude") for model in models)
    if share < LOST_SHARE + TWIN_SHARE and not is_opaque:  # there only results tell, and a copy has none at first
        return _twin, at_step
    return None, STEPS


def _twin(rig: Rig, draw: random.Random, history: list[str]) -> int:
    """Let a copy of the lake send and collect for a while and throw it away; returns how often that died."""
    own, rig.lake = rig.lake, rig.path / "twin"
    if not (own / MARKER).exists():  # it has no name yet, and what is copied of it would get another
        rig.lake = own
        return 0
    shutil.copytree(own, rig.lake)
    n_sent, n_crashes = rig.n_sent(), 0
    for name in draw.choices(("submit", "sync"), k=3):
        died = _verb(rig, name, draw)
        n_crashes += died is not None
        history.append(f"twin: {name}" if died is None else f"twin: {name}, killed at {died}")
        rig.clock.advance(400)
    rig.n_sent_elsewhere += rig.n_sent() - n_sent
    shutil.rmtree(rig.lake)
    rig.lake = own
    rig.world.clear_faults()
    rig.clock.advance(LAGS_END_S)
    history.append("twin is gone")
    return n_crashes


def _lose(rig: Rig, draw: random.Random, history: list[str]) -> int:
    """Lose the lake and make it again of what the account has; returns how often that died."""
    if not rig.lake.exists():
        return 0
    shutil.rmtree(rig.lake)
    rig.is_made_again = True
    rig.clock.advance(LAGS_END_S)
    n_crashes = 0
    for _ in range(2):  # whatever befalls it; then undisturbed
        rig.crash_in = draw.choice((None, draw.randrange(80), draw.randrange(250)))
        n_crashes += not rig.survive(lambda: _recover(rig, history))
        rig.clock.advance(LAGS_END_S)
    rig.world.clear_faults()
    for _ in range(_SILENT_MAX):
        _recover(rig, history)
        if str(Fate.SILENT) not in history[-1]:
            break
    return n_crashes


def _recover(rig: Rig, history: list[str]) -> None:
    rig.plan()
    try:
        report = rig.recover()
    except BatchpondError as error:
        history.append(f"recover: {error.message}")
    else:
        history.append(f"recover: {', '.join(found.fate for found in report.batches) or 'nothing'}")


# What was intended in a lake that is lost is not known any more: the bill and the answers tell.
_OF_THE_LOST = ("batch", "shard", "acknowledged")


def _verb(rig: Rig, name: str, draw: random.Random) -> str | None:
    steps: dict[str, Callable[[], object]] = {
        "submit": rig.submit, "sync": rig.sync, "plan": rig.plan, "change": rig.change, "retry": rig.retry,
        "limited": lambda: rig.submit(limit=10), "cancel": lambda: rig.cancel_open(draw.randrange(4)),
    }  # fmt: skip
    if name not in {"plan", "change"} and not rig.lake_state().current_versions:
        rig.survive(rig.plan)
    if draw.random() < CRASH_SHARE:
        rig.crash_in = draw.choice((draw.randrange(12), draw.randrange(80), draw.randrange(250)))
    budget = rig.crash_in
    return None if rig.survive(steps[name]) else f"point {budget}"


def _judged(
    seed: int, is_lossy: bool, rig: Rig, undisturbed: Rig, history: list[str], n_crashes: int
) -> Outcome:  # fmt: skip
    n_passes, problems = settled(rig, undisturbed, is_lossy=is_lossy)
    if rig.is_made_again:
        problems = [problem for problem in problems if not problem.startswith(_OF_THE_LOST)]
    rig.world.close()
    history.append(f"{len(rig.late)} files late, {rig.n_elsewhere} passes elsewhere meanwhile")
    return Outcome(seed, is_lossy, tuple(history), n_crashes, n_passes, tuple(problems))


def settled(rig: Rig, undisturbed: Rig, *, is_lossy: bool, is_begun: bool = False) -> tuple[int, list[str]]:
    """Bring a rig to its end without further faults; returns the passes that took, and every promise broken."""
    n_passes = 0
    try:
        n_passes = rig.settle(n_max=60, step_s=2_000.0, is_begun=is_begun)
        problems = rig.violations()
    except (AssertionError, BatchpondError) as error:
        problems = [str(error), *rig.violations()]
    if not is_lossy:
        if rig.billed() != undisturbed.billed():
            problems.append(f"billed {rig.billed()}, undisturbed {undisturbed.billed()}")
        if rig.answers() != undisturbed.answers():
            problems.append("the answers differ from an undisturbed run's")
    if not problems:
        before = rig.tree(), sum(rig.wire.calls.values())
        rig.sync()
        if (rig.tree(), sum(rig.wire.calls.values())) != before:
            problems.append("a pass with nothing new wrote or asked something")
    return n_passes, problems
