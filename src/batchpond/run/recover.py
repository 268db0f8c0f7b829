"""The verb `recover`: a lake that was lost is made again of what the providers still have; nothing is bought.

The study is planned anew, so that its requests have the ids that they had. The batches that hold them are found in
the accounts, taken in, collected and read; what their answers make possible is planned, and looked for in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from batchpond.errors import UsageError
from batchpond.lake import tables
from batchpond.lake.attempts import Attempt
from batchpond.lake.store import Store
from batchpond.model import EPOCH, Mode, RemoteBatch
from batchpond.plan import versions
from batchpond.providers.base import Descriptor
from batchpond.run import adopt, unknown
from batchpond.run.batch_map import BatchMap
from batchpond.run.dispatch import finish_adoptions
from batchpond.run.find import list_since
from batchpond.run.session import Note, Providers, Report, Session
from batchpond.run.stages import open_due
from batchpond.run.sync import bring_in
from batchpond.run.unknown import Lines, UnknownBatch
from batchpond.views.refresh import refresh

_FIGURES: Final = tables.query(__package__, "recovered")
_COST: Final = tables.query(__package__, "recovered_cost")


class Fate(StrEnum):
    """What became of a batch that holds requests of the study, or may hold some."""

    TAKEN_IN = "taken_in"
    NOT_YET = "not_yet"
    SILENT = "silent"
    GONE = "gone"
    SHORT = "short"
    OTHER_VERSION = "other_version"


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """One of the study's batches in an account, or one that may be; `why` says it of those that were not taken in."""

    client_name: str
    batch: RemoteBatch
    fate: Fate
    n_requests: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecoverReport(Report):
    """What was found, and what the lake holds of the study by now.

    Of `n_requests` planned so far `n_held` are in batches and `n_answered` have an answer; `n_live` were asked by live
    calls, if at all, which leave nothing at a provider. `cost_usd` is of this study's batches, unknown where it is for
    `n_cost_unknown` answers.
    """

    study: str
    study_version: str
    batches: tuple[FoundBatch, ...]
    n_requests: int
    n_held: int
    n_answered: int
    n_live: int
    cost_usd: float
    n_cost_unknown: int
    notes: tuple[Note, ...]

    def count(self, fate: Fate) -> int:
        """Return how many batches came to this."""
        return sum(found.fate is fate for found in self.batches)


def recover(
    store: Store,
    study: str,
    *,
    providers: Providers,
    sample: int | None = None,
    on_note: Callable[[Note], None] | None = None,
) -> RecoverReport:
    """Take in every batch of a planned study that its providers have, stage by stage, with what it answered.

    `sample` is the `--limit` that the study was submitted with: a stage that waits for all answers then waits for
    those. Doing it again takes in what was not there before. Raises UsageError for a study without a plan.
    """
    with store.lock(f"recover {study}"):
        session = Session.begin(store, providers, on_note)
        version = versions.planned_version(session.lake_state, study)
        finish_adoptions(session)
        search = _Search(session, study, version)
        while True:
            search.take_in()
            bring_in(session, search.seen)
            n_before = _n_planned(session, version)
            if version in session.lake_state.rounds:
                open_due(session, study, sample)
            if _n_planned(session, version) == n_before:
                break
        search.settle()
        session.log.compact(lambda: refresh(store))
        refresh(store)
    return _report(search)


def adopt_by_lines(
    store: Store, batch_id: str, study: str, *, provider_name: str, providers: Providers
) -> adopt.Adoption:
    """Take in one batch that another lake made of a planned study's requests.

    Raises UsageError for a batch of other requests, or one that says nothing of its requests yet.
    """
    with store.lock(f"adopt {batch_id}"):
        session = Session.begin(store, providers)
        version = versions.planned_version(session.lake_state, study)
        known = next((a for a in session.lake_state.attempts.values() if a.batch_id == batch_id), None)
        if known is not None:
            return adopt.Adoption(known, is_new=False)
        provider = providers.get(provider_name)
        batch = adopt.found(provider, batch_id)
        adopt.check_strange(store, session.lake_state, provider, batch)
        search = _Search(session, study, version, {provider_name: [UnknownBatch(provider_name, batch)]})
        search.take_in()
        search.settle()
        refresh(store)
    for one in search.found:
        if one.fate is Fate.TAKEN_IN:
            return adopt.Adoption(search.attempts[batch_id], is_new=True)
        raise UsageError(one.why, hint=_HINTS[one.fate])
    raise UsageError(
        f"no line of batch {batch_id} names a request that study {study} plans",
        hint="if another tool made it, `--map FILE` says which planned request each of its custom_ids is",
    )


def _n_planned(session: Session, version: str) -> int | None:
    rounds = session.lake_state.rounds.get(version)
    return None if rounds is None else rounds.n_requests


class _Search:
    """The batches in the accounts that may be the study's, and what became of each; the lake's lock is held.

    Where some are `listed`, it is about those alone. `attempts` has those taken in, by batch id; `seen` their batches
    as they were listed, by attempt id, so that nobody asks for them again.
    """

    def __init__(
        self, session: Session, study: str, version: str, listed: dict[str, list[UnknownBatch]] | None = None
    ) -> None:
        self.session = session
        self.study = study
        self.version = version
        self.found: list[FoundBatch] = []
        self.attempts: dict[str, Attempt] = {}
        self.seen: dict[str, RemoteBatch] = {}
        self._lines = Lines(session)
        self._is_whole = listed is None
        self._listed = listed or {}
        self._endpoints: dict[str, frozenset[str]] = {}
        self._descriptors: dict[str, Descriptor] = {}

    def take_in(self) -> None:
        """Take in what holds requests that are planned by now; a batch or provider that fails stops no other."""
        if self._is_whole:
            self._list()
        left = self._left(is_of_any_name=True)
        for one, mapped in unknown.of_shards(self.session, self.study, self.version, left):
            self._take(one, mapped)
        for one in sorted(self._lines.of_study(self.study, self._left()), key=lambda one: one.batch.age_key):
            self._take_by_lines(one)

    def settle(self) -> None:
        """Say of what is left whether it may be the study's."""
        for one in self._left():
            state, is_named = one.batch.state, one.study == self.study
            with self.session.isolated(one.client_name, f"looking into batch {one.batch.batch_id}"):
                has_lines = bool(self._lines.head(one))
                if has_lines and is_named:
                    self._tell(one, Fate.OTHER_VERSION, "is named after the study, and no line of it is planned")
                elif not (has_lines or state.is_terminal):
                    self._tell(one, Fate.NOT_YET, f"is {state}, and may hold requests of study {self.study}")
                elif is_named:
                    self._tell_without_results(one, "named after the study and ")

    def _list(self) -> None:
        session = self.session
        self._endpoints = unknown.endpoints_by_client(session.store, self.study, self.version)
        for name in sorted(self._endpoints.keys() - self._listed.keys()):
            self._listed[name] = []
            with session.isolated(name, f"listing the batches at {name}"):
                provider = session.providers.get(name)
                listing = list_since(provider, EPOCH)
                if not listing.is_complete:
                    text = f"{name} did not list its batches to the end: there may be more than were found"
                    session.alert(text, hint="run it again")
                self._listed[name] = unknown.of_listing(session.lake_state, name, listing.batches)
                self._descriptors[name] = provider.descriptor

    def _left(self, *, is_of_any_name: bool = False) -> list[UnknownBatch]:
        """Return the batches of which nothing has been said, and that may hold requests planned by now."""
        said = {(one.client_name, one.batch.batch_id) for one in self.found}
        every = (one for name in self._listed for one in self._listed[name])
        left = [one for one in every if (one.client_name, one.batch.batch_id) not in said]
        if not self._is_whole:
            return left
        left = [one for one in left if is_of_any_name or one.study in {None, self.study}]
        known = ((one, self._descriptors[one.client_name], self._endpoints[one.client_name]) for one in left)
        return [one for one, descriptor, endpoints in known if unknown.may_hold(one, descriptor, endpoints)]

    def _take_by_lines(self, one: UnknownBatch) -> None:
        batch = one.batch
        with self.session.isolated(one.client_name, f"reading batch {batch.batch_id}"):
            try:
                mapped = self._lines.mapped(self.study, one)
            except UsageError as error:
                self._tell(one, Fate.OTHER_VERSION, error.message)
                return
            if mapped is None:
                self._tell(one, Fate.SHORT, f"is {one.batch.state}, and its files do not show all of its requests")
            else:
                self._take(one, mapped)

    def _take(self, one: UnknownBatch, mapped: BatchMap) -> None:
        session, batch = self.session, one.batch
        with session.isolated(one.client_name, f"taking in batch {batch.batch_id}"):
            provider = session.providers.get(one.client_name)
            if unknown.is_silent(provider, batch):
                self._tell_without_results(one)
                return
            attempt = adopt.take_in(session, provider, batch, mapped, self.study, self.version)
            self.attempts[batch.batch_id] = attempt
            self.seen[attempt.attempt_id] = batch
            self.found.append(FoundBatch(one.client_name, batch, Fate.TAKEN_IN, len(mapped.lines)))

    def _tell_without_results(self, one: UnknownBatch, how: str = "") -> None:
        """Say that a batch's results are gone, or that they are a 404 while they are kept, which may pass."""
        is_kept = unknown.is_kept(self.session, self.session.providers.get(one.client_name), one.batch)
        what = "says 404 for its results, which it still keeps" if is_kept else "its results are gone"
        self._tell(one, Fate.SILENT if is_kept else Fate.GONE, f"is {how}{one.batch.state}, and {what}")

    def _tell(self, one: UnknownBatch, fate: Fate, why: str) -> None:
        text = why if why.startswith("batch ") else f"batch {one.batch.batch_id} {why}"
        self.found.append(FoundBatch(one.client_name, one.batch, fate, one.batch.n_total, text))
        if self._is_whole:
            text = f"{one.client_name}: {text}"
            self.session.alert(text, hint=_HINTS[fate])


_HINTS: Final = {
    Fate.NOT_YET: "run it again once the batch has ended: only its results will tell; do not submit before that",
    Fate.SILENT: "404s come and go: run it again before you submit, which asks it all anew",
    Fate.GONE: "nothing brings them back; `submit` asks it anew, `submit --fresh` where no other batch was found",
    Fate.SHORT: "run it again later; what the files hold then counts",
    Fate.OTHER_VERSION: "`batchpond plan` the study file as it was then, run it again, and plan today's file after it",
    Fate.TAKEN_IN: None,
}


def _report(search: _Search) -> RecoverReport:
    session, study, version = search.session, search.study, search.version
    mine = [a.attempt_id for a in session.lake_state.attempts.values() if a.intent.study == study]
    values = {"study": study, "version": version, "live": Mode.LIVE, "void": list(session.lake_state.voided)}
    with tables.connect(session.store, ["plan", "shard_requests", "responses"]) as connection:
        ((n_requests, n_live, n_held, n_answered),) = connection.execute(_FIGURES, values).fetchall()
        ((cost_usd, n_unknown),) = connection.execute(_COST, [mine]).fetchall()
    return RecoverReport(
        study=study,
        study_version=version,
        batches=tuple(search.found),
        n_requests=n_requests,
        n_held=n_held,
        n_answered=n_answered,
        n_live=n_live,
        cost_usd=float(cost_usd or 0.0),
        n_cost_unknown=n_unknown,
        notes=tuple(session.notes),
    )
