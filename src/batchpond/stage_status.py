"""Where each stage of a study stands, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from batchpond import planned
from batchpond.attempts import Picture
from batchpond.lake.store import Store
from batchpond.rounds import Look, standings_of
from batchpond.stage_config import from_config
from batchpond.stage_spec import StageSpec


class StageState(StrEnum):
    """What a stage is doing."""

    ASKING = "asking"
    WAITING = "waiting"
    DUE = "due"
    DONE = "done"
    EMPTY = "nothing to ask"
    FAILED = "no usable answer"


@dataclass(frozen=True, slots=True)
class StageStatus:
    """One stage; `waits_for` are the stages that have not ended, or of EMPTY those that gave it nothing."""

    study: str
    stage: str
    task: str
    state: StageState
    waits_for: tuple[str, ...]
    round_no: int | None
    n_planned: int
    n_open: int
    n_usable: int


def stages(store: Store, picture: Picture, study: str | None = None) -> list[StageStatus]:
    """Return the stages of all studies that have any, or of one; the lens is read as it is."""
    found = []
    for name, version in sorted(picture.current_versions.items()):
        last = picture.rounds.get(version)
        if last is None or study not in {None, name}:
            continue
        staged = from_config(planned.study_settings(store, version))
        look = Look.at(store, staged, last)
        look.standings = standings_of(store, name)
        found += [_status(look, stage) for stage in staged.stages]
    return found


def _status(look: Look, stage: StageSpec) -> StageStatus:
    own = look.standing(stage.name)
    unfinished = tuple(name for name in stage.rows.waits_for if not look.is_done(look.staged.stage(name)))
    state, waits_for = _state(look, stage, unfinished)
    return StageStatus(
        look.staged.name, stage.name, stage.task, state, waits_for, own.round_no, own.n_rows, own.n_open, own.n_good
    )


def _state(look: Look, stage: StageSpec, unfinished: tuple[str, ...]) -> tuple[StageState, tuple[str, ...]]:
    own = look.standing(stage.name)
    if own.n_open:
        return StageState.ASKING, ()
    if unfinished:
        return StageState.WAITING, unfinished
    if not look.is_done(stage):
        return StageState.DUE, ()
    if not own.n_rows:
        return StageState.EMPTY, stage.rows.waits_for
    return (StageState.DONE if own.n_good else StageState.FAILED), ()


def remarks(found: list[StageStatus]) -> Iterator[str]:
    """Yield what a person should know: stages that got nothing, and why what follows them will not begin."""
    for status in found:
        match status.state:
            case StageState.FAILED:
                yield f"stage {status.stage} of study {status.study} has no usable answer: nothing follows from it"
            case StageState.EMPTY:
                sources = ", ".join(status.waits_for)
                yield f"stage {status.stage} of study {status.study} has nothing to ask about: {sources} gave it no row"
            case _:
                pass
