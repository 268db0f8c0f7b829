"""The next rounds of a study of stages, planned within a pass once answers have made them possible."""

from __future__ import annotations

from contextlib import AbstractContextManager

from batchpond.plan import planned
from batchpond.plan.rounds.rounds import may_have_answers, open_rounds
from batchpond.run import due
from batchpond.run.session import Session, Severity
from batchpond.study.stages.config import from_config


def open_due(session: Session, study: str) -> bool:
    """Plan what earlier answers of a study of stages have made possible, and return whether there was a look at them.

    The lake's lock is held.
    """
    version = session.lake_state.current_versions.get(study, "")
    if not _may_go_on(session, study, version):
        return False

    def isolated(stage: str) -> AbstractContextManager[None]:
        return session.isolated("", f"opening stage {stage} of study {study}")

    staged = from_config(planned.study_settings(session.store, version))
    last, sample = session.lake_state.rounds[version], planned.sample_of(session.lake_state, study)
    opened = open_rounds(session.store, session.record, staged, last, isolated, sample)
    for stage, n_new in opened:
        session.note(Severity.INFO, f"stage {stage} of study {study} asks {n_new:,} more questions")
    return True


def _may_go_on(session: Session, study: str, version: str) -> bool:
    """Whether answers may have come since rounds were last looked at; saves an idle pass the look at them."""
    last = session.lake_state.rounds.get(version)
    if last is None or not may_have_answers(session.log.events, last):
        return False
    # What fails is asked again once all has ended, and belongs to the same round.
    is_asked_again = planned.automatic_again(session.store, version) is not None
    return not (is_asked_again and due.is_under_way(session.lake_state, study))
