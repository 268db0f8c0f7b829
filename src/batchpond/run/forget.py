"""The verb `forget`: what was asked and answered leaves the lake to the last byte, and its files at the providers.

What stays says what was done and what it cost, and nothing of what was said: events but for plans, the ids of a shard's
lines, and of each raw line its ids and figures, with every text in it empty. The providers come first, and one that
fails stops it: nothing is half forgotten then. What a killed process left half done is finished by the next `forget`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from batchpond.answers import derive
from batchpond.errors import UsageError
from batchpond.lake import events, failpoints, rewrite, schemas, tables
from batchpond.lake.attempts import BEFORE_SENT_PHASES, SETTLED_PHASES, UNSENT_PHASES, Attempt, LakeState
from batchpond.lake.jsonl import part_paths, shard_lines
from batchpond.lake.records import Forget, Forgotten, Tidied, Uploaded
from batchpond.lake.schemas import Table
from batchpond.lake.store import LABELS, LENS, SPOOL, Store
from batchpond.model import Mode, Response
from batchpond.plan import versions
from batchpond.run import due
from batchpond.run.collect import read_what_is_unread, source_of
from batchpond.run.find import check_host
from batchpond.run.session import RULES_MEMO, Note, Providers, Report, Rules, Session, answered
from batchpond.text import did_you_mean
from batchpond.views.refresh import STAMP, refresh

REQUESTS_MAX: Final = 100_000
_ITEM: Final = "$item IN (unit_id, item_first, item_second)"
_OWN: Final = "SELECT request_id FROM plan GROUP BY request_id HAVING bool_and(study = $study)"
_NAMED: Final = f"SELECT DISTINCT request_id FROM plan WHERE request_id = $request OR {_ITEM}"
_INPUTS: Final = {
    schemas.ITEMS: ("item_hash", "item_first_hash", "item_second_hash"),
    schemas.RUBRICS: ("rubric_hash", "rubric_hash"),
    schemas.TEMPLATES: ("template_hash", "template_hash"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be forgotten: a study, one request, or all that was asked about an item; one of them is given."""

    study: str | None = None
    request_id: str | None = None
    item: str | None = None

    @property
    def name(self) -> str:
        """What it is, in words."""
        if self.study is not None:
            return f"study {self.study}"
        return f"request {self.request_id}" if self.item is None else f"item {self.item}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What there is of a target: its own requests, the attempts that asked any of them, and its shards never sent."""

    target: Target
    request_ids: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    unsent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForgetReport(Report):
    """How many requests and raw lines were emptied, how many files were deleted at providers, and what hindered it."""

    n_requests: int
    n_lines: int
    n_deleted: int
    notes: tuple[Note, ...]


def look(store: Store, lake_state: LakeState, target: Target) -> Scope:
    """Return what there is to forget; reads only.

    Raises UsageError for what the lake does not know, for batches that are not over, for part of a study whose later
    rounds would ask for it again, and while labels wait that may speak of it.
    """
    given = store.path / LABELS
    if given.exists() and given.stat().st_size:
        raise UsageError(
            f"{given} holds labels that are not handed in, and they may speak of {target.name}",
            hint="hand them in with `batchpond browse`, or delete that file",
        )
    named = _NAMED, {"request": target.request_id, "item": target.item or None}
    sql, values = named if target.study is None else (_OWN, {"study": target.study})
    with tables.connect(store, ["plan", "shard_requests", "imported_judgments"]) as connection:
        request_ids = tuple(row[0] for row in connection.execute(sql, values).fetchall())
        _check_known(connection, lake_state, target, request_ids)
        _check_whole(connection, lake_state, target, request_ids)
        shards = _shards_of(connection, request_ids)
    mine = tuple(
        one for one in lake_state.attempts.values() if one.shard_id in shards or one.intent.study == target.study
    )
    latest = {one.shard_id: lake_state.latest_attempt(one.shard_id) for one in lake_state.shards_of(target.study or "")}
    unsent = tuple(name for name, one in latest.items() if one is None or one.phase in UNSENT_PHASES)
    given_up = lake_state.voided.union(unsent)
    waiting = shards.intersection(lake_state.shards) - {one.shard_id for one in mine} - given_up
    asked = (one for one in mine if one.shard_id not in given_up or one.phase not in BEFORE_SENT_PHASES)
    still = [
        f"batch {one.batch_id or one.attempt_id} is {one.phase}" for one in asked if one.phase not in SETTLED_PHASES
    ]
    still += [f"shard {shard_id} waits to be sent" for shard_id in sorted(waiting)]
    if still:
        raise UsageError(
            f"{target.name} is still being asked: {still[0]}" + (f" (and {len(still) - 1:,} more)" * (len(still) > 1)),
            hint="let `batchpond sync` end it, or `batchpond cancel` its batches first",
        )
    return Scope(target, request_ids, mine, unsent)


def _ids(request_ids: Iterable[str]) -> pa.Table:
    return pa.table({"request_id": pa.array(sorted(request_ids), pa.string())})


def _shards_of(connection: Any, request_ids: Iterable[str]) -> set[str]:
    """Return the shards that hold any of the requests."""
    connection.register("own", _ids(request_ids))
    rows = connection.execute("SELECT DISTINCT shard_id FROM shard_requests JOIN own USING (request_id)").fetchall()
    connection.unregister("own")
    return {shard_id for (shard_id,) in rows}


def _check_known(connection: Any, lake_state: LakeState, target: Target, request_ids: tuple[str, ...]) -> None:
    if target.study is not None:
        imported = connection.execute("SELECT DISTINCT study FROM imported_judgments").fetchall()
        if (target.study,) not in imported:
            versions.planned_version(lake_state, target.study)
    elif not request_ids and not _is_imported(connection, target):
        known = [row[0] for row in connection.execute("SELECT DISTINCT item_first FROM plan").fetchall() if row[0]]
        found = did_you_mean(target.item, known, "`batchpond query` finds ids in plan_current") if target.item else None
        raise UsageError(f"no plan in this lake names {target.name}", hint=found)
    elif len(request_ids) > REQUESTS_MAX:
        raise UsageError(f"{target.name} has {len(request_ids):,} requests; forget the study that asks them")


def _is_imported(connection: Any, target: Target) -> bool:
    found = connection.execute(f"SELECT count(*) FROM imported_judgments WHERE {_ITEM}", {"item": target.item or None})
    return bool(found.fetchall()[0][0])


def _check_whole(connection: Any, lake_state: LakeState, target: Target, request_ids: tuple[str, ...]) -> None:
    if target.study is not None:
        return
    values = [list(request_ids)]
    sql = "SELECT DISTINCT study, study_version FROM plan WHERE list_contains($1, request_id) ORDER BY ALL"
    for study, version in connection.execute(sql, values).fetchall():
        if version in lake_state.rounds and not lake_state.rounds[version].is_final:
            raise UsageError(
                f"{target.name} is asked by study {study}, whose later rounds follow from what was asked before",
                hint=f"`batchpond forget --study {study}` forgets it as a whole",
            )


def forget(store: Store, target: Target | None, *, providers: Providers, is_local: bool = False) -> ForgetReport:
    """Forget a target, and whatever a killed process left half forgotten; without one only that.

    What waits is given up first, then files at the providers are deleted, unless it `is_local`. Raises as `look` does.
    """
    n_lines = n_requests = n_deleted = 0
    with store.lock("forget"):
        session = Session.begin(store, providers)
        unfinished = {event.study for event in session.lake_state.forgetting.values() if event.study is not None}
        if target is not None and target.study not in unfinished:
            scope = look(store, session.lake_state, target)
            n_requests = len(scope.request_ids)
            _give_up(session, scope)
            n_deleted = 0 if is_local else _delete_remote(session, scope)
            what = {} if target.study is not None else {"requests": sorted(scope.request_ids), "item": target.item}
            begun = Forget(study=target.study, n_requests=n_requests, what=orjson.dumps(what).decode())
            if not session.notes:
                session.record(begun)
        for event in list(session.lake_state.forgetting.values()):
            failpoints.reach("F0")
            n_lines += _Forgetting(session, event).run()
            session.record(Forgotten(forget_id=event.event_id))
        refresh(store)
    return ForgetReport(n_requests, n_lines, n_deleted, tuple(session.notes))


def _give_up(session: Session, scope: Scope) -> None:
    """Have nobody send what waits, before its files are deleted; what is given up is cut anew if that fails."""
    for shard_id in scope.unsent:
        due.give_up(session, scope.target.study or "", shard_id)
        if shard_id in session.open_state.kept:
            raise UsageError(
                f"{scope.target.name} is being sent by another process",
                hint="let `batchpond sync` end it, or `batchpond cancel` its batches first",
            )


def _answers(custom_ids: set[str], read: Callable[[bytes], Response], line: bytes) -> bool:
    return read(line).custom_id in custom_ids


def _one_of(column: str, values: pa.Array) -> Callable[[pa.Table], pa.ChunkedArray]:
    return lambda rows: pc.is_in(rows.column(column), value_set=values)


def _delete_remote(session: Session, scope: Scope) -> int:
    """Delete what the attempts uploaded and what the providers made of it; each is on record, and asked for once."""
    uploads: dict[str, list[str]] = {}
    for event in session.log.events:
        if isinstance(event, Uploaded):
            uploads.setdefault(event.attempt_id, []).append(event.file_id)
    n_deleted = 0
    for attempt in scope.attempts:
        if attempt.mode is not Mode.BATCH:
            continue
        files = [*uploads.get(attempt.attempt_id, ()), *(download.file_id for download in attempt.downloads)]
        with session.isolated(attempt.client_name, f"deleting the files of batch {attempt.batch_id}"):
            provider = session.providers.get(attempt.client_name)
            check_host(attempt, provider)
            for file_id in dict.fromkeys(name for name in files if name not in attempt.tidied):
                n_deleted += provider.drop_upload(file_id)
                session.record(Tidied(attempt_id=attempt.attempt_id, file_id=file_id))
    return n_deleted


class _Forgetting:
    """One `forget`, from its event alone, so that whoever finishes it does the same."""

    def __init__(self, session: Session, event: Forget) -> None:
        what = orjson.loads(event.what)
        self._session = session
        self._store = session.store
        self._study = event.study
        self._item = what.get("item")
        self._requests: frozenset[str] = frozenset(what.get("requests", ()))

    def run(self) -> int:
        """Empty the raw lines, drop what was made of them, and take the rows out; return how many lines there were.

        The plan comes last: what is left to do follows from it.
        """
        store = self._store
        if self._study is not None:
            rows = tables.rows(store, ["plan"], _OWN, {"study": self._study})
            self._requests = frozenset(row[0] for row in rows)
        orphans = dict(self._orphans())
        n_lines = sum(self._empty(attempt) for attempt in self._attempts())
        failpoints.reach("F1")
        own = _one_of("request_id", pa.array(sorted(self._requests), pa.string()))
        rewrite.take_out(store, schemas.REQUESTS, own)
        for table, hashes in orphans.items():
            rewrite.take_out(store, table, _one_of(_INPUTS[table][0], hashes))
        if store.files(schemas.BLOBS.name):  # those that neither a request nor an item names any more
            found = tables.rows(store, ["blobs", "requests", "items"], tables.query(__package__, "unnamed"))
            rewrite.take_out(
                store, schemas.BLOBS, _one_of("sha256", pa.array([name for (name,) in found], pa.string()))
            )
        rewrite.take_out(store, schemas.IMPORTED_JUDGMENTS, self._is_imported)
        rewrite.take_out(store, schemas.EVENTS, self._is_relabelled)
        if self._study is not None:
            rewrite.take_out(store, schemas.STUDIES, self._is_of_study)
            planned = _one_of("kind", pa.array(["planned"]))  # which says what a report tells, such as who made it
            rewrite.take_out(store, schemas.EVENTS, lambda rows: pc.and_kleene(planned(rows), self._is_of_study(rows)))
        failpoints.reach("F2")
        rewrite.take_out(store, schemas.PLAN, own if self._study is None else self._is_of_study)
        self._make_anew()
        return n_lines

    def _attempts(self) -> list[Attempt]:
        with tables.connect(self._store, ["shard_requests"]) as connection:
            shards = _shards_of(connection, self._requests)
        return [one for one in self._session.lake_state.attempts.values() if one.shard_id in shards]

    def _orphans(self) -> Iterator[tuple[Table, pa.Array]]:
        with tables.connect(self._store, ["plan"]) as connection:
            connection.register("own", _ids(self._requests))
            goes = "coalesce(study = $study, request_id IN (SELECT request_id FROM own))"
            for table, (_, *columns) in _INPUTS.items():
                of = " UNION ALL ".join(f"SELECT {column} AS hash, {goes} AS goes FROM plan" for column in columns)
                sql = f"SELECT hash FROM ({of}) WHERE hash IS NOT NULL GROUP BY hash HAVING bool_and(goes)"
                rows = connection.execute(sql, {"study": self._study}).fetchall()
                yield table, pa.array([row[0] for row in rows], pa.string())
            connection.unregister("own")

    def _is_of_study(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.equal(rows.column("study"), self._study)

    def _is_imported(self, rows: pa.Table) -> pa.ChunkedArray:
        if self._study is not None:
            return self._is_of_study(rows)
        item = pa.array([self._item], pa.string()) if self._item is not None else pa.array([], pa.string())
        return reduce(pc.or_, (_one_of(name, item)(rows) for name in ("unit_id", "item_first", "item_second")))

    def _is_relabelled(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which events hold a label that is not to stay: the row of it is in their detail."""
        columns = (rows.column(name).to_pylist() for name in ("kind", "detail"))
        said = [orjson.loads(detail) if kind == "relabelled" else {} for kind, detail in zip(*columns, strict=True)]
        names = ("study", "unit_id", "item_first", "item_second")
        labels = pa.table({name: pa.array([row.get(name) for row in said], pa.string()) for name in names})
        return pc.fill_null(self._is_imported(labels), fill_value=False)

    def _empty(self, attempt: Attempt) -> int:
        """Empty an attempt's raw lines about the requests; drop what is made of them, the payload and the spool."""
        store, source = self._store, source_of(attempt)
        store.payload_path(attempt.attempt_id).unlink(missing_ok=True)
        shutil.rmtree(store.path / SPOOL / attempt.attempt_id, ignore_errors=True)
        lines = shard_lines(store, source.provider, source.shard_id)
        asked = dict(zip(lines.custom_ids_of(source.sender_id), lines.request_ids, strict=True))
        kept = {custom_id for custom_id, request_id in asked.items() if request_id not in self._requests}
        n_lines = 0
        for file in source.files:
            read = derive.line_reader(source.provider, file.role)
            is_kept = partial(_answers, kept, read)
            n_lines += sum(rewrite.empty_lines(store, path, is_kept) for path in part_paths(store, file))
            for table in (schemas.RESPONSES, schemas.JUDGMENTS):
                for path in (store.path / table.name).glob(f"*/{file.stem}-*.parquet"):
                    store.drop(path)
        return n_lines

    def _make_anew(self) -> None:
        """Read the emptied lines, and make the lens and what passes keep of plans without what was forgotten."""
        store = self._store
        kept = [path for name in tables.FOLDED for path in store.path.glob(f".{name}.*")]
        for path in (*kept, *(store.path / name for name in (LENS, STAMP, RULES_MEMO, events.MEMO, versions.MEMO))):
            path.unlink(missing_ok=True)
        self._session.rules = Rules(store, self._session.lake_state.readers)
        read_what_is_unread(self._session, answered(self._session.lake_state))
