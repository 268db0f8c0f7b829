"""The stages of a study: where each stands, what it waits for and what waits for it; and their next rounds.

Those are planned within a pass once answers have made them possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from batchpond.lake.attempts import LakeState
from batchpond.lake.store import Store
from batchpond.plan import versions
from batchpond.plan.rounds.inputs import n_low, rated
from batchpond.plan.rounds.rounds import Look, open_rounds, standings_of, standings_of_all
from batchpond.run.session import Note, Rules, Session, Severity
from batchpond.study.spec import Kept, StageSpec, from_config
from batchpond.text import plural

STATEMENTS_SHOWN_MAX: Final = 10
WHY: Final = "`batchpond query report_errors` says why; `batchpond retry` asks again"


class StageState(StrEnum):
    """What a stage is doing."""

    ASKING = "asking"
    WAITING = "waiting"
    DUE = "due"
    DONE = "done"
    EMPTY = "nothing to ask"
    NOT_NEEDED = "not needed"
    FAILED = "no usable answer"


@dataclass(frozen=True, slots=True)
class StageStatus:
    """One stage; `waits_for` are the stages that have not ended, or of EMPTY those that gave it nothing.

    `feeds` are the stages that ask about its answers. `lacks` says of the last stage of making inputs which
    statements have fewer questions than were wanted, once it has ended. `stopped` says why cells of an adaptive
    stage are asked no further, with how many.
    """

    study: str
    stage: str
    task: str
    state: StageState
    waits_for: tuple[str, ...]
    feeds: tuple[str, ...]
    round_no: int | None
    n_planned: int
    n_open: int
    n_usable: int
    lacks: str = ""
    stopped: str = ""


def stages(store: Store, lake_state: LakeState, study: str | None = None) -> list[StageStatus]:
    """Return the stages of all studies that have any, or of one; the lens is read as it is."""
    found = []
    current = {
        name: version
        for name, version in sorted(lake_state.current_versions.items())
        if version in lake_state.rounds and study in {None, name}
    }
    samples = {name: versions.sample_of(lake_state, name) for name in current}
    whole = standings_of_all(store, [name for name, sample in samples.items() if sample is None])
    for name, version in current.items():
        staged = from_config(versions.study_settings(store, version, is_whole=True))
        look = Look(store, staged, lake_state.rounds[version])
        look.stand(whole[name] if name in whole else standings_of(store, staged, samples[name]))
        found += [_status(look, stage) for stage in staged.stages]
    return found


def _status(look: Look, stage: StageSpec) -> StageStatus:
    own = look.standing(stage.name)
    unfinished = tuple(name for name in stage.rows.waits_for if not look.is_done(look.staged.stage(name)))
    state, waits_for = _state(look, stage, unfinished)
    has_ended = state not in {StageState.ASKING, StageState.WAITING, StageState.DUE}
    return StageStatus(
        study=look.staged.name,
        stage=stage.name,
        task=stage.task,
        state=state,
        waits_for=waits_for,
        feeds=tuple(other.name for other in look.staged.stages if stage.name in other.rows.waits_for),
        round_no=own.round_no,
        n_planned=own.n_rows,
        n_open=own.n_open,
        n_usable=own.n_good,
        lacks=_lacks(look, stage, stage.keeps) if stage.keeps and has_ended else "",
        stopped=look.why_stopped(stage),
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
        if _is_further(look, stage):
            return StageState.NOT_NEEDED, ()
        return StageState.EMPTY, (stage.rows.stage,) if stage.rows.stage else stage.rows.waits_for
    return (StageState.DONE if own.n_good else StageState.FAILED), ()


def _is_further(look: Look, stage: StageSpec) -> bool:
    """Whether a stage belongs to a further round of making inputs, and so has nothing to ask where none is needed."""
    if stage.rows.lacking is not None:
        return True
    source = look.staged.stage(stage.rows.stage) if stage.rows.stage else None
    return source is not None and not look.standing(source.name).n_rows and _is_further(look, source)


def _lacks(look: Look, stage: StageSpec, kept: Kept) -> str:
    counts = n_low(rated(look.store, look.staged, kept), kept)
    short = [(counts.get(rubric.rubric_id, 0), rubric.rubric_id) for rubric in stage.rubrics]
    short = sorted(pair for pair in short if pair[0] < kept.per_statement)
    if not short:
        return ""
    shown = ", ".join(f"{name} {n}" for n, name in short[:STATEMENTS_SHOWN_MAX])
    rest = f" and {len(short) - STATEMENTS_SHOWN_MAX:,} more" if len(short) > STATEMENTS_SHOWN_MAX else ""
    n_kept = min((kept.per_statement, *counts.values()))
    kept_text = f"; {n_kept:,} of each are kept" if kept.is_uniform and counts else ""
    return (
        f"{len(short):,} of {len(stage.rubrics):,} statements have fewer than {kept.per_statement:,} questions rated"
        f" below {kept.below:g}: {shown}{rest}{kept_text}"
    )


def _note(text: str, hint: str = WHY) -> Note:
    return Note(Severity.WARNING, text, hint)


def remarks(found: Sequence[StageStatus]) -> Iterator[Note]:
    """Yield what a person should know: what failed, and what therefore does not follow."""
    for status in found:
        name = f"stage {status.stage} of study {status.study}"
        feeds = ", ".join(status.feeds)
        match status.state:
            case StageState.FAILED if feeds:
                yield _note(f"{name} has no usable answer: nothing follows from it in {feeds}")
            case StageState.FAILED:
                yield _note(f"{name} has no usable answer")
            case StageState.EMPTY:
                yield _note(f"{name} has nothing to ask about: {', '.join(status.waits_for)} gave it no row")
            case StageState.DONE if feeds and status.n_usable < status.n_planned:
                n_lost = status.n_planned - status.n_usable
                yield _note(f"{n_lost:,} of {status.n_planned:,} answers of {name} are not usable, so not for {feeds}")
            case _:
                pass
        if status.lacks:
            yield _note(f"{name}: {status.lacks}", "allow more rounds or questions; what was asked is not asked again")


def open_due(session: Session, study: str, sample: int | None = None) -> None:
    """Plan what earlier answers of a study with rounds have made possible.

    Of a `sample` of so many requests, or else of the approved one, only what follows is waited for. The lake's lock is
    held.
    """
    version = session.lake_state.current_versions[study]

    def isolated(stage: str) -> AbstractContextManager[None]:
        return session.isolated("", f"opening stage {stage} of study {study}")

    staged = from_config(versions.study_settings(session.store, version, is_whole=True))
    last = session.lake_state.rounds[version]
    sample = versions.sample_of(session.lake_state, study) if sample is None else sample
    opened = open_rounds(session.store, session.record, staged, last, isolated, sample)
    for stage, n_new in opened:
        session.note(Severity.INFO, f"stage {stage} of study {study} asks {plural(n_new, 'more question')}")
    if opened:
        session.rules = Rules(session.store, session.open_state.readers)  # those of before know nothing of the new plan
