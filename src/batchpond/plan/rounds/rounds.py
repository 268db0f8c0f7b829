"""Rounds: requests that could be built only from earlier answers, planned once those answers are there.

A stage is asked further when the stages it waits for are done: nothing of them is on its way, and what their
answers make possible is planned. What it asks is computed anew from the lake then and compared with what is
planned, so that a process may die anywhere, an answer may come late by a retry, and nothing is planned twice.

Planning a round costs nothing, so it needs no approval; sending it does. The event `round` says how many
requests the version has by now and, in `detail`, for which answers each stage was looked at last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from msgspec.structs import replace

from batchpond.lake import failpoints, tables
from batchpond.lake.records import COMPLETE, INCOMPLETE, Event, Rounds
from batchpond.lake.store import Store
from batchpond.plan.rounds.inputs import GOOD, query, with_answers
from batchpond.plan.rounds.source import asks_by_now
from batchpond.plan.versions import sampled
from batchpond.plan.write import publish_round
from batchpond.study.spec import StageSpec, Study
from batchpond.views.refresh import refresh

_STANDINGS: Final = tables.query(__package__, "standings", good=GOOD)
_COUNTS: Final = tables.query(__package__, "counts")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a stage stands: how many rows, how many still without an outcome, how many answers that count."""

    n_rows: int = 0
    n_open: int = 0
    n_good: int = 0
    n_unread: int = 0
    round_no: int | None = None


def standings_of(store: Store, staged: Study, sample: int | None = None) -> dict[str, Standing]:
    """Return where each stage of a study's current version stands; the lens is up to date.

    Of a `sample` of so many requests, stages stand where it stands; but adaptive rounds wait for all of theirs.
    """
    if sample is None:
        return standings_of_all(store, [staged.name])[staged.name]
    whole = [stage.name for stage in staged.stages if stage.pairs.adaptive is not None]
    sql = tables.query(__package__, "sample", sampled=sampled(sample), standings=_STANDINGS)
    return standings_of_all(store, [staged.name], sql, whole=whole)[staged.name]


def standings_of_all(
    store: Store, studies: Sequence[str], sql: str = _STANDINGS, **values: Any
) -> dict[str, dict[str, Standing]]:
    """Return where each stage of these studies' current versions stands, by one query; the lens is up to date."""
    found: dict[str, dict[str, Standing]] = {name: {} for name in studies}
    for row in query(store, sql, studies=list(studies), **values) if studies else ():
        name, stage = row.pop("study"), row.pop("stage")
        found[name][stage] = Standing(**row)
    return found


@dataclass
class Look:
    """One look at all stages of a version, which goes on from what its latest `round` event knows.

    `looked` says for which answers each stage was asked further, and why cells of adaptive stages stopped.
    """

    store: Store
    staged: Study
    last: Rounds
    record: Callable[[Event], object] = lambda _: None
    looked: dict[str, str] = field(init=False)
    standings: dict[str, Standing] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    _done: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.looked = dict(orjson.loads(self.last.looked))

    def stand(self, standings: dict[str, Standing]) -> None:
        """Take where the stages stand, and for which answers they were looked at, by now."""
        self.standings = standings
        self._done = {}

    def standing(self, name: str) -> Standing:
        """Return where a stage stands; one without rows stands nowhere."""
        return self.standings.get(name, Standing())

    def basis(self, stage: StageSpec) -> str:
        """Return what the stage's asks depend on, as a text that changes when answers come."""
        names = [*stage.rows.waits_for, *([stage.name] if stage.goes_on else [])]
        found = [(name, self.standing(name)) for name in names]
        return " ".join(f"{name}:{standing.n_rows}:{standing.n_good}" for name, standing in found)

    def is_ready(self, stage: StageSpec) -> bool:
        """Whether all that the stage's next asks depend on has ended."""
        own = self.standing(stage.name)
        is_going_on = stage.goes_on and bool(own.n_open)
        return not is_going_on and all(self.is_done(self.staged.stage(name)) for name in stage.rows.waits_for)

    def is_due(self, stage: StageSpec) -> bool:
        """Whether a stage is to be asked further: it can be, and has not been since answers came."""
        basis = self.basis(stage)
        is_new = bool(basis) and self.looked.get(stage.name) != basis and self.is_ready(stage)
        # Where a process died after it planned files of an adaptive round and before it told of the round.
        round_no = self.standing(stage.name).round_no or 0
        is_half_planned = stage.pairs.adaptive is not None and round_no > self.last.round_no
        return stage.name not in self.failed and (is_new or is_half_planned)

    def is_done(self, stage: StageSpec) -> bool:
        """Whether a stage has ended: nothing on its way, nothing left to ask."""
        if stage.name not in self._done:
            own, basis = self.standing(stage.name), self.basis(stage)
            is_asked = self.looked.get(stage.name) == basis if basis else bool(own.n_rows)
            self._done[stage.name] = is_asked and not own.n_open and self.is_ready(stage)
        return self._done[stage.name]

    def why_stopped(self, stage: StageSpec) -> str:
        """Return why cells of an adaptive stage were asked no further, with how many; empty while none was."""
        return self.looked.get(_stopped(stage.name), "")

    def stop(self, stage: StageSpec, reasons: Mapping[str, int]) -> None:
        """Take why cells are asked no further by now; answers that came late may have made them go on."""
        if reasons:
            self.looked[_stopped(stage.name)] = "; ".join(f"{reason}: {n:,}" for reason, n in sorted(reasons.items()))
        else:
            self.looked.pop(_stopped(stage.name), None)

    def tell(self, state: str, stage: str | None = None, n_new: int | None = None) -> None:
        """Record how far the rounds are, unless that is on record."""
        self.last = round_event(self.store, self.staged.name, self.last.study_version, state, self.looked)
        self.last = replace(self.last, stage=stage, n_new=n_new)
        self.record(self.last)


def _stopped(stage: str) -> str:
    # Names of stages have no space, so that this is none.
    return f"{stage} stopped"


def round_event(store: Store, study: str, version: str, state: str, looked: Mapping[str, str]) -> Rounds:
    """Return the event that says how many requests and rounds a version has by now."""
    n_requests, round_no = counts_of(store, study, version)
    return Rounds(
        study=study,
        study_version=version,
        round_no=round_no,
        n_requests=n_requests,
        progress=state,
        looked=orjson.dumps(looked, option=orjson.OPT_SORT_KEYS).decode(),
    )


def open_rounds(
    store: Store,
    record: Callable[[Event], object],
    staged: Study,
    last: Rounds,
    isolated: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    sample: int | None = None,
) -> list[tuple[str, int]]:
    """Plan every round that is due of a study's current version; return the stages with how many rows each adds.

    `last` is the version's latest `round` event; with a `sample` nothing is waited for but that. A stage that fails
    inside `isolated` is tried again next time.
    """
    look = Look(store, staged, last, record)
    before = dict(look.looked)
    opened: list[tuple[str, int]] = []
    is_any = True
    while is_any:
        is_any = False
        refresh(store, is_for_us=True)
        look.stand(standings_of(store, staged, sample))
        for stage in staged.stages:
            n_new = 0
            if look.is_due(stage):
                look.failed.add(stage.name)
                with isolated(stage.name):
                    n_new = _open(look, stage)
                    look.failed.remove(stage.name)
            if n_new:
                opened.append((stage.name, n_new))
                is_any = True
                break
    is_unread = any(standing.n_unread for standing in look.standings.values())
    state = INCOMPLETE if look.failed or is_unread else COMPLETE
    if state == COMPLETE or before != look.looked:
        look.tell(state)
        failpoints.reach("R2")
    return opened


def _open(look: Look, stage: StageSpec) -> int:
    basis, is_begun = look.basis(stage), look.standing(stage.name).n_rows > 0
    stopped: Counter[str] = Counter()
    found = asks_by_now(look.store, look.staged, stage, look.last.round_no, stopped, is_begun=is_begun)
    asks = with_answers(look.store, look.staged, stage, found) if stage.answers else found
    version = look.last.study_version
    n_new = publish_round(look.store, look.staged, version, look.last.round_no + 1, stage, asks)
    failpoints.reach("R1")
    look.looked[stage.name] = basis
    look.stop(stage, stopped)
    look.stand(look.standings)
    _, round_no = counts_of(look.store, look.staged.name, version)
    if n_new or round_no != look.last.round_no:  # a process may have died before it told of its round
        look.tell(INCOMPLETE, stage.name, n_new)
    return n_new


def counts_of(store: Store, study: str, version: str) -> tuple[int, int]:
    """Return how many requests a version has by now, and the number of its last round."""
    ((n_requests, round_no),) = tables.rows(store, ["plan"], _COUNTS, {"study": study, "version": version})
    return n_requests, round_no
