"""The verb `retry`: ask requests that failed once more, within a limit of attempts and of money."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from batchpond.errors import UsageError
from batchpond.lake.attempts import fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond.model import ErrorClass
from batchpond.plan.planned import Again, study_settings
from batchpond.run import failures
from batchpond.run.failures import FailureCount
from batchpond.run.session import Note, Providers
from batchpond.run.submit import SubmitPreview, SubmitReport, submit

USUAL_CLASSES = frozenset({ErrorClass.TRANSIENT, ErrorClass.EXPIRED, ErrorClass.MISSING})
USUAL_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class RetryReport:
    """How the study's requests failed, and what came of asking some of them again."""

    failures: tuple[FailureCount, ...]
    submitted: SubmitReport


def retry(
    store: Store,
    study: str,
    *,
    classes: Collection[ErrorClass] = (),
    max_attempts: int | None = None,
    max_cost_usd: float | None = None,
    confirm: Callable[[SubmitPreview, tuple[FailureCount, ...]], bool] | None,
    providers: Providers,
    on_note: Callable[[Note], None] | None = None,
) -> RetryReport:
    """Ask requests of a submitted study again that failed in one of `classes`; `confirm` None is a dry run.

    Without `classes`, the study's `[retry]` decides, or else transient errors, expired and missing answers; a
    request that was in `max_attempts` batches is left alone. What has an answer is never asked again here. Raises
    UsageError for a study that was never submitted, and like `submit` for money.
    """
    lake_state = fold(read(store))
    approval = lake_state.approvals.get(study)
    version = lake_state.current_versions.get(study)
    if approval is None or version is None:
        known = ", ".join(sorted(lake_state.approvals)) or "none"
        raise UsageError(
            f"study {study!r} was never submitted (submitted: {known})", hint=f"`batchpond submit {study}` does it"
        )
    again = _again(store, version, classes, max_attempts)
    counts = tuple(failures.count(store, lake_state, study, version, again))
    agreed = confirm
    report = submit(
        store,
        study,
        max_cost_usd=max_cost_usd,
        limit=approval.n_limit,
        confirm=None if agreed is None else lambda preview: agreed(preview, counts),
        providers=providers,
        on_note=on_note,
        again=again,
    )
    return RetryReport(counts, report)


def _again(store: Store, version: str, classes: Collection[ErrorClass], max_attempts: int | None) -> Again:
    wishes = study_settings(store, version).get("retry") or {}
    if not wishes.get("is_automatic"):
        wishes = {}
    chosen = frozenset(classes) or frozenset(ErrorClass(name) for name in wishes.get("classes", USUAL_CLASSES))
    return Again(chosen, max_attempts or wishes.get("max_attempts", USUAL_ATTEMPTS))
