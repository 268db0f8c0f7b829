"""What became of requests that were asked, and which of those that failed may be asked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from batchpond.lake import tables
from batchpond.lake.attempts import Attempt, LakeState, Phase
from batchpond.lake.store import Store
from batchpond.model import BatchState, ErrorClass
from batchpond.plan.planned import Again
from batchpond.providers import registry
from batchpond.providers.http.errors import ApiError, classify

OVER_PHASES: Final = frozenset({Phase.VERIFIED, Phase.MISMATCH, Phase.LOST})

FAILED_SQL: Final = """
settled as (
  select unnest($attempt_ids) as attempt_id, unnest($shard_ids) as shard_id, unnest($rowless) as rowless,
         unnest(range(len($attempt_ids))) as place
), tried as (
  select r.request_id, s.place, a.status, coalesce(a.error_class, s.rowless) as error_class
  from settled s
  join shard_requests r using (shard_id)
  left join responses a on a.attempt_id = s.attempt_id and a.request_id = r.request_id and a.match = 'matched'
), failed as (
  select request_id, count(*) as n_attempts, arg_max(error_class, place) as error_class
  from tried group by request_id
  having not bool_or(status is not distinct from 'succeeded')
)
"""
_COUNT = f"""
with {FAILED_SQL}, planned as (
  select distinct request_id from plan where study = $study and study_version = $version
)
select r.provider, r.request_model, failed.error_class, count(*),
       count(*) filter (where list_contains($classes, failed.error_class)),
       count(*) filter (where list_contains($classes, failed.error_class) and failed.n_attempts < $max_attempts)
from failed
join planned using (request_id)
join requests r using (request_id)
group by all order by all
"""


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How many requests of a model failed in one way; `n_due` of the `n_chosen` may be asked once more."""

    provider: str
    request_model: str
    error_class: str
    n_requests: int
    n_chosen: int
    n_due: int


def is_over(attempt: Attempt) -> bool:
    """Whether nothing more can come of the attempt's requests unless they are asked again."""
    return attempt.phase in OVER_PHASES and not is_requeued(attempt)


def is_requeued(attempt: Attempt) -> bool:
    """Whether the attempt's batch failed unbilled for want of room, so that its shard is sent again as it is."""
    if attempt.phase is not Phase.VERIFIED or attempt.failure_code is None or attempt.n_answered or attempt.is_adopted:
        return False
    return attempt.failure_code in registry.module(attempt.provider).DESCRIPTOR.requeue_codes


def parameters(lake_state: LakeState, again: Again) -> dict[str, Any]:
    """Return the parameters of `FAILED_SQL`, and what is chosen of it."""
    settled = [attempt for attempt in lake_state.attempts.values() if is_over(attempt)]
    return {
        "attempt_ids": [attempt.attempt_id for attempt in settled],
        "shard_ids": [attempt.shard_id for attempt in settled],
        "rowless": [_class_without_row(attempt) for attempt in settled],
        "classes": [str(name) for name in again.classes or ()],
        "max_attempts": again.max_attempts,
    }


def _class_without_row(attempt: Attempt) -> ErrorClass:
    """Return how a request of the attempt failed that no result row answers."""
    if attempt.phase is Phase.LOST:
        return ErrorClass.LOST
    match attempt.state:
        case BatchState.FAILED:
            message = attempt.status.detail or "" if attempt.status else ""
            return classify(None, ApiError(message, attempt.failure_code))
        case BatchState.EXPIRED:
            return ErrorClass.EXPIRED
        case BatchState.CANCELLED:
            return ErrorClass.CANCELLED
        case _:
            return ErrorClass.MISSING


def count(store: Store, lake_state: LakeState, study: str, version: str, again: Again) -> list[FailureCount]:
    """Return how the requests of a planned study failed that nothing has answered yet."""
    values = {"study": study, "version": version, **parameters(lake_state, again)}
    if not values["attempt_ids"]:
        return []
    with tables.connect(store, ["plan", "requests", "shard_requests", "responses"]) as connection:
        rows = connection.execute(_COUNT, values).fetchall()
    return [FailureCount(*row) for row in rows]
