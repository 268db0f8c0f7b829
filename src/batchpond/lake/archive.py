"""What a pass need not read again: the attempts that are settled for good, as a summary beside the events of the rest.

Only what nothing more can come of is archived: a batch whose every request is accounted for, the only one of its shard.
Whoever asks for more than the summary says reads all events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from batchpond.lake import records
from batchpond.lake.attempts import Attempt, LakeState, Phase, fold
from batchpond.lake.records import Event, Intent, OfAttempt, Sharded
from batchpond.model import BatchState, Mode, ShardKind

ARCHIVE_ABOVE: Final = 128
"""How many attempts are settled for good before they are archived: a small lake has no archive."""
HISTORY_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Archive:
    """What is told of archived attempts.

    `settled` has, by study, the place of the last fact that settled any; `asked`, by version, how many requests
    its first shards hold; `took_s`, by provider, how long the last of its batches ran; `marks` what a batch is known
    by: its id, its token, the file that it was made of. `last_ord` is the last place of all events.
    """

    last_ord: int = 0
    n_attempts: int = 0
    settled: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    took_s: dict[str, list[float]] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()

    @classmethod
    def of(cls, told: Mapping[str, Any] | None) -> Archive:
        """Return what `told` gave."""
        return cls(**{**told, "marks": frozenset(told["marks"])}) if told else NOTHING

    def told(self) -> dict[str, Any] | None:
        """Return it as JSON has it, None where nothing is archived."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "marks": sorted(self.marks)} if self.n_attempts else None

    def with_more(self, archived: Sequence[Attempt], lake_state: LakeState) -> Archive:
        """Return what is told once these attempts are archived too."""
        asked = dict(self.asked)
        took_s = {name: list(values) for name, values in self.took_s.items()}
        marks = set(self.marks)
        for one in archived:
            intent, sent = one.intent, one.sent
            if intent.shard_kind is ShardKind.FIRST:
                asked[intent.study_version] = asked.get(intent.study_version, 0) + intent.n_requests
            if (seconds := seconds_of(one)) is not None:
                took_s.setdefault(one.provider, []).append(seconds)
            found = (one.batch_id, intent.token, sent.file_id if sent else one.file_id)
            marks.update(mark for mark in found if mark)
        return Archive(
            self.last_ord,
            self.n_attempts + len(archived),
            self.settled | lake_state.settled,
            asked,
            {name: values[-HISTORY_MAX:] for name, values in took_s.items()},
            frozenset(marks),
        )


NOTHING: Final = Archive()


def seconds_of(attempt: Attempt) -> float | None:
    """Return how long a completed batch was under way, None for any other."""
    if attempt.state is not BatchState.COMPLETED or attempt.status is None or attempt.created_at is None:
        return None
    return (attempt.status.occurred_at - attempt.created_at).total_seconds()


def _is_over(attempt: Attempt, lake_state: LakeState) -> bool:
    """Whether nothing more can come of an attempt and its shard, and nobody has to be told anything of it."""
    return (
        attempt.phase is Phase.VERIFIED
        and attempt.mode is Mode.BATCH
        and attempt.failure_code is None
        and attempt.take is None
        and not attempt.duplicates
        and not attempt.needs_attention
        and attempt.intent.shard_kind in {ShardKind.FIRST, ShardKind.RETRY}
        and attempt.shard_id in lake_state.shards
        and lake_state.by_shard.get(attempt.shard_id) == [attempt.attempt_id]
    )


def parted(events: Sequence[Event], archive: Archive) -> tuple[list[Event], Archive]:
    """Return which of the events of what is not archived yet a pass still reads, and what is told of all others."""
    lake_state = fold(events)
    over = {one.attempt_id: one for one in lake_state.attempts.values() if _is_over(one, lake_state)}
    if len(over) <= ARCHIVE_ABOVE:
        return list(events), archive
    shards = {attempt.shard_id for attempt in over.values()}
    latest = {_subject(event): event.event_id for event in events}
    kept = [event for event in events if _is_kept(event, over.keys(), shards, latest)]
    return kept, archive.with_more(list(over.values()), lake_state)


def _subject(event: Event) -> tuple[str, str]:
    """Return what a fact replaces an earlier one about; for most kinds that is nothing else."""
    match event:
        case records.Planned() | records.Approval():
            return event.kind, event.study
        case records.Rounds():
            return event.kind, event.study_version
        case records.PutOff():
            return event.kind, event.provider
        case _:
            return event.kind, event.event_id


def _is_kept(event: Event, attempt_ids: Collection[str], shards: set[str], latest: dict[tuple[str, str], str]) -> bool:
    match event:
        case OfAttempt() | Intent():
            return event.attempt_id not in attempt_ids
        case Sharded():
            return event.shard_id not in shards
        case _:
            return latest[_subject(event)] == event.event_id
