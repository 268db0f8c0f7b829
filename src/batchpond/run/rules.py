"""Which answer rules the requests of each shard have, and whether all that came was read by them.

A request has the rules of every study that plans it. What was found is kept for the next pass: only new shards and
new rows of plans are looked at, so that a pass costs what came since, not what the lake has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final

from batchpond import answers
from batchpond.lake import disk, tables
from batchpond.lake.attempts import READ_PHASES, Attempt, LakeState
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.records import Asked
from batchpond.lake.schemas import JUDGMENTS, PLAN, RAW, RESPONSES, SHARD_REQUESTS
from batchpond.lake.store import Memo, Store, keep_memo, recall_memo, relative
from batchpond.plan import versions

MEMO: Final = ".rules"
_LAYOUT: Final = "3"
_USED: Final = tables.query(__package__, "rules_used")


_SHARED: Final = tables.query(__package__, "rules_shared")


@dataclass(frozen=True, slots=True)
class _Read:
    """When all that came was read: of which plans, by which readers, after which download, and a digest of all else."""

    plan: list[str]
    readers: dict[str, int]
    last_ord: int
    digest: str


@dataclass(slots=True)
class _Found:
    """What is known: by which files of plans, each study's rules of each shard's file, and when all was read."""

    plan: set[str] = field(default_factory=set)
    used: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    read: _Read | None = None


def answered(lake_state: LakeState) -> list[Attempt]:
    """Return the attempts whose answers are here, and counted."""
    return [one for one in lake_state.attempts.values() if one.phase in READ_PHASES and one.downloads]


class Rules:
    """The answer rules of the lake's shards, as of when they are first asked for in a pass; the lake's lock is held.

    `readers` says by which reader each study's answers are read.
    """

    def __init__(self, store: Store, readers: Mapping[str, int]) -> None:
        self._store = store
        self._readers = dict(readers)
        self._shared: dict[tuple[frozenset[str], frozenset[str]], bool] = {}

    @cached_property
    def _plan(self) -> list[str]:
        return relative(self._store, self._store.published(PLAN.name))

    @cached_property
    def _found(self) -> _Found:
        kept = recall_memo(self._store, MEMO, _LAYOUT)
        if kept is None or not set(kept.content["plan"]) <= set(self._plan):
            return _Found()
        used = {name: [(study, rule) for study, rule in found] for name, found in kept.content["used"].items()}
        read = kept.content["read"]
        return _Found(set(kept.content["plan"]), used, _Read(**read) if read else None)

    @cached_property
    def _specs(self) -> dict[str, dict[str, Any]]:
        return versions.parsers(self._store)

    def of(self, shards: Iterable[Asked]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the rules of the requests of each shard, by shard id and the name of the rule as it is read."""
        names = {shard.shard_id: shard_file_name(shard.provider, shard.shard_id) for shard in shards}
        if len(self._specs) <= 1 and len(set(self._readers.values())) <= 1:
            reader = max(self._readers.values(), default=1)
            read = dict(answers.read_by(rule, spec, reader) for rule, spec in self._specs.items())
            return dict.fromkeys(names, read)
        new = [path for path in self._plan if path not in self._found.plan]
        if self._has_shared(new, self._found.plan):
            self._look(new, self._found.used)
        self._found.plan.update(self._plan)
        self._look(self._plan, [name for name in names.values() if name not in self._found.used])
        return {
            shard_id: dict(
                answers.read_by(rule, self._specs[rule], self._readers.get(study, 1))
                for study, rule in self._found.used[name]
                if rule in self._specs
            )
            for shard_id, name in names.items()
        }

    def _look(self, plan: Sequence[str], shards: Iterable[str]) -> None:
        """Add the rules that files of plans have for the requests of shards, named as their files are."""
        rules: dict[str, set[tuple[str, str]]] = {name: set(self._found.used.get(name, ())) for name in shards}
        if rules and plan:
            paths = [os.fspath(self._store.final_path(SHARD_REQUESTS, name)) for name in rules]
            of_id = {name.rpartition("/")[2]: name for name in rules}
            with tables.connect(self._store, []) as connection:
                values = {"plan": self._paths(plan), "shards": paths}
                for shard_id, study, rule in connection.execute(_USED, values).fetchall():
                    rules[of_id[shard_id]].add((study, rule))
        self._found.used |= {name: sorted(found) for name, found in rules.items()}

    def _has_shared(self, new: Sequence[str], old: Collection[str]) -> bool:
        """Whether plans ask for requests that others ask for too: a shard's are all in one that is as old as it."""
        if not new or not old:
            return False
        asked = (frozenset(new), frozenset(old))
        if asked not in self._shared:
            values = {"new": self._paths(new), "old": self._paths(old)}
            with tables.connect(self._store, []) as connection:
                self._shared[asked] = bool(connection.execute(_SHARED, values).fetchall()[0][0])
        return self._shared[asked]

    def _paths(self, names: Iterable[str]) -> list[str]:
        return [f"{self._store.path}/{name}" for name in names]

    def is_all_read(self, attempts: Sequence[Attempt]) -> bool:
        """Whether nothing came, was planned or was taken away since all was read; the attempts are the open ones."""
        read = self._found.read
        return read is not None and read.plan == self._plan and self._came_since(attempts, read) == []

    def unread(self, attempts: Sequence[Attempt]) -> list[Attempt] | None:
        """Return which of the open attempts may lack something, None where those that are archived may too."""
        read = self._found.read
        if read is None or not set(read.plan) <= set(self._plan):
            return None
        if self._has_shared([name for name in self._plan if name not in set(read.plan)], read.plan):
            return None
        return self._came_since(attempts, read)

    def _came_since(self, attempts: Sequence[Attempt], read: _Read) -> list[Attempt] | None:
        """Return the attempts that were downloaded since, None where anything else is otherwise than it was."""
        if any(read.readers.get(study, reader) != reader for study, reader in self._readers.items()):
            return None
        new = [one for one in attempts if one.downloads[-1].ord > read.last_ord]
        return new if self._digest(attempts, new) == read.digest else None

    def published(self) -> list[str]:
        """Return the files of raw lines and of what is read from them, as `table/name.parquet`."""
        paths = (path for table in (RAW, RESPONSES, JUDGMENTS) for path in self._store.published(table.name))
        return relative(self._store, list(paths))

    def keep(self, attempts: Sequence[Attempt], *, is_all_read: bool) -> None:
        """Keep what was found for the next pass."""
        last_ord = max((one.downloads[-1].ord for one in attempts), default=0)
        read = _Read(self._plan, self._readers, last_ord, self._digest(attempts, ())) if is_all_read else None
        read_too = asdict(read) if read else None
        content = {"plan": sorted(self._found.plan), "used": self._found.used, "read": read_too}
        keep_memo(self._store, MEMO, Memo(_LAYOUT, (), (), content))

    def _digest(self, attempts: Iterable[Attempt], without: Iterable[Attempt]) -> str:
        """Return a digest of all but plans and readers that reading depends on, and of all that it makes.

        Some attempts are left out of it.
        """
        left_out = {one.attempt_id: one for one in without}
        names = self.published()
        if left_out:
            from batchpond.run.collect import source_of  # loads Arrow, and an idle pass reads nothing

            stems = {file.stem for one in left_out.values() for file in source_of(one).files}
            names = [name for name in names if name.rpartition("/")[2].rpartition("-")[0] not in stems]
        # How they stand, too: a derived file that was damaged is made again.
        names = [f"{name} {disk.stands(f'{self._store.path}/{name}')}" for name in names]
        taken = [f"{one.attempt_id} {one.take}" for one in attempts if one.take and one.attempt_id not in left_out]
        return hashlib.sha256("\n".join([str(answers.READER_VERSION), *taken, *names]).encode()).hexdigest()
