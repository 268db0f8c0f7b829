"""Which answer rules the requests of each shard have, and whether all that came was read by them.

A request has the rules of every study that plans it. What was found is kept for the next pass: only new shards and
new rows of plans are looked at, so that a pass costs what came since, not what the lake has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from batchpond import answers
from batchpond.lake import tables
from batchpond.lake.attempts import Attempt
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.records import Asked
from batchpond.lake.schemas import JUDGMENTS, PLAN, RAW, RESPONSES, SHARD_REQUESTS
from batchpond.lake.store import Memo, Store, keep_memo, recall_memo, relative

MEMO: Final = ".rules"
_LAYOUT: Final = "2"
_USED: Final = """
SELECT DISTINCT shard_id, study, parser_id
FROM read_parquet($plan, hive_partitioning = FALSE) JOIN read_parquet($shards, hive_partitioning = FALSE)
  USING (request_id)
"""


@dataclass(slots=True)
class _Found:
    """What is known: by which files of plans, each study's rules of each shard's file, and when all was read."""

    plan: set[str] = field(default_factory=set)
    used: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    read: str | None = None


class Rules:
    """The answer rules of the lake's shards, as of when they are first asked for in a pass; the lake's lock is held.

    `readers` says by which reader each study's answers are read.
    """

    def __init__(self, store: Store, readers: Mapping[str, int]) -> None:
        self._store = store
        self._readers = readers

    @cached_property
    def _plan(self) -> list[str]:
        return relative(self._store, self._store.published(PLAN.name))

    @cached_property
    def _found(self) -> _Found:
        kept = recall_memo(self._store, MEMO, (), _LAYOUT)
        if kept is None or not set(kept.content["plan"]) <= set(self._plan):
            return _Found()
        used = {name: [(study, rule) for study, rule in found] for name, found in kept.content["used"].items()}
        return _Found(set(kept.content["plan"]), used, kept.content["read"])

    @cached_property
    def _specs(self) -> dict[str, dict[str, Any]]:
        from batchpond.answers import derive  # loads Arrow, and an idle pass reads nothing

        return derive.parsers(self._store)

    def of(self, shards: Iterable[Asked]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the rules of the requests of each shard, by shard id and the name of the rule as it is read."""
        names = {shard.shard_id: shard_file_name(shard.provider, shard.shard_id) for shard in shards}
        if len(self._specs) <= 1 and len(set(self._readers.values())) <= 1:
            reader = max(self._readers.values(), default=1)
            read = dict(answers.read_by(rule, spec, reader) for rule, spec in self._specs.items())
            return dict.fromkeys(names, read)
        self._look([path for path in self._plan if path not in self._found.plan], self._found.used)
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
                values = {"plan": [f"{self._store.path}/{name}" for name in plan], "shards": paths}
                for shard_id, study, rule in connection.execute(_USED, values).fetchall():
                    rules[of_id[shard_id]].add((study, rule))
        self._found.used |= {name: sorted(found) for name, found in rules.items()}

    def is_all_read(self, attempts: Iterable[Attempt]) -> bool:
        """Whether nothing came, was planned or was taken away since all that these attempts brought was read."""
        return self._found.read == self._state(attempts)

    def published(self) -> list[str]:
        """Return the files of raw lines and of what is read from them, as `table/name.parquet`."""
        paths = (path for table in (RAW, RESPONSES, JUDGMENTS) for path in self._store.published(table.name))
        return relative(self._store, list(paths))

    def keep(self, attempts: Iterable[Attempt], *, is_all_read: bool) -> None:
        """Keep what was found for the next pass."""
        self._found.read = self._state(attempts) if is_all_read else None
        content = {"plan": sorted(self._found.plan), "used": self._found.used, "read": self._found.read}
        keep_memo(self._store, MEMO, (), Memo(_LAYOUT, (), content))

    def _state(self, attempts: Iterable[Attempt]) -> str:
        """Return a digest of all that reading depends on, and of all that it makes."""
        seen = hashlib.sha256("\n".join([str(answers.READER_VERSION), *self._plan]).encode())
        seen.update("".join(f"{study} {reader}\n" for study, reader in sorted(self._readers.items())).encode())
        for attempt in attempts:
            seen.update(f"{attempt.attempt_id} {len(attempt.downloads)} {attempt.take}\n".encode())
        seen.update("\n".join(self.published()).encode())
        return seen.hexdigest()
