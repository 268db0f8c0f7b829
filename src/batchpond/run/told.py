"""What went wrong, what may, and what waits: failures and what to do, late batches, perishing results, folders.

All of it is read from the lake, so that a pass says what it brought in and `status` says it until it is settled. A
folder is the account of mode `files`: somebody answers the requests in it, and what lies there may be read by nobody.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from batchpond.errors import AccessError, ExitCode
from batchpond.lake import tables
from batchpond.lake.attempts import UNDER_WAY_PHASES, Attempt, LakeState, Phase, fallen_short, seconds_of
from batchpond.lake.records import Forget, Listed, PutOff, Sharded, Status
from batchpond.lake.store import Store
from batchpond.model import BatchState, ErrorClass, Mode, ShardKind
from batchpond.plan import versions
from batchpond.providers import registry
from batchpond.providers.http.keys import listing
from batchpond.providers.shared.files import RECENT
from batchpond.providers.shared.folder import Folder, of_host
from batchpond.run import dispatch, due
from batchpond.run.dispatch import Obstacle
from batchpond.run.find import given_up
from batchpond.run.session import Note, Providers, Session, Severity, answered
from batchpond.study.prices import load_config
from batchpond.text import plural

HISTORY_MIN: Final = 20
QUANTILE: Final = 0.95
GRACE: Final = timedelta(hours=1)
COUNTDOWN_SHARE: Final = 1 / 3
_MESSAGE_CHARS: Final = 200
_UNCOLLECTED_PHASES: Final = frozenset({Phase.ENDED, Phase.MISMATCH})
_A_PASS: Final = "a pass: `batchpond sync` sends them"
_NO_MATTER: Final = (Status, Listed, PutOff)  # what tells nothing of who has failed
_NO_PAST: Final[Mapping[str, Sequence[float]]] = MappingProxyType({})

# What helps against each kind of failure; STUDY stands for the study.
ADVICE: Final[Mapping[str, str]] = orjson.loads(Path(__file__).with_name("advice.json").read_bytes())
# What settles each state that waits for a person; ATTEMPT stands for the attempt.
WAYS_OUT: Final[Mapping[str, str]] = orjson.loads(Path(__file__).with_name("ways_out.json").read_bytes())

_FAILED: Final = tables.query(__package__, "failures_told", failed=due.FAILED_SQL)


@dataclass(frozen=True, slots=True)
class Failure:
    """How many requests of a study failed in one way at a provider, with the code and message that most have."""

    study: str
    provider: str
    error_class: str
    code: str | None
    message: str | None
    n_requests: int

    @property
    def text(self) -> str:
        """What happened, in words."""
        named = f"{self.error_class}, {self.code}" if self.code else self.error_class
        said = f": {' '.join(self.message.split())[:_MESSAGE_CHARS]}" if self.message else ""
        return f"{plural(self.n_requests, 'request')} of study {self.study} failed at {self.provider} ({named}){said}"

    @property
    def hint(self) -> str:
        """What can be done about it."""
        return ADVICE[self.error_class].replace("STUDY", self.study)


def failures(
    store: Store, lake_state: LakeState, attempts: Collection[Attempt], archived: Mapping[str, str] = due.NONE
) -> list[Failure]:
    """Return how the requests failed of those attempts that nothing more can come of, and that wait for no other.

    `archived` has the shards of others that were verified long ago, by attempt.
    """
    values = due.of_settled(attempts, archived)
    if not values["attempt_ids"]:
        return []
    values["pending"] = [*due.pending_shards(lake_state)]
    values["versions"] = list(lake_state.current_versions.values())
    return [Failure(*row) for row in tables.rows(store, ("plan", "shard_requests", "responses"), _FAILED, values)]


def tell_failures(session: Session) -> None:
    """Say how requests failed that the facts of this pass show to have ended."""
    short = [session.attempt(name) for name in sorted(fallen_short(session.log.recent, session.began_ord))]
    for failure in failures(session.store, session.open_state, [one for one in short if not _is_for_nothing(one)]):
        is_for_a_person = failure.error_class == ErrorClass.UNREADABLE  # paid, here, and nothing is made of it
        exit_code = ExitCode.ATTENTION if is_for_a_person else ExitCode.DONE
        session.note(Severity.WARNING, failure.text, hint=failure.hint, exit_code=exit_code)


def _is_for_nothing(attempt: Attempt) -> bool:
    is_meant = attempt.state is BatchState.CANCELLED or attempt.intent.shard_kind is ShardKind.RETRY  # by a person
    return attempt.phase is Phase.VERIFIED and not attempt.n_succeeded and not is_meant


def for_nothing(store: Store, lake_state: LakeState, study: str | None = None) -> Iterator[Note]:
    """Yield how whole batches failed of which nobody asks anything again: no pass brings an answer to any of it."""
    for one in failures(store, lake_state, [one for one in lake_state.attempts.values() if _is_for_nothing(one)]):
        if study in {None, one.study}:
            yield _for_a_person(f"no answer in whole batches: {one.text}", one.hint)


def count_failed(session: Session) -> Mapping[str, int]:
    """Return how many requests of each study have failed, now or long ago, and no attempt answered or is about to."""
    recent, archived = fallen_short(session.log.recent), session.log.archive.short
    is_any_forgotten = any(isinstance(event, Forget) for event in session.log.recent)
    if not recent and not archived and not is_any_forgotten:
        return {}
    short = [session.attempt(name) for name in sorted(recent)]
    told = (event.ord for event in session.log.recent if not isinstance(event, _NO_MATTER))
    last = max((*told, *session.log.archive.settled.values()), default=0)

    def count() -> Counter[str]:
        forgotten = answered(session.lake_state) if is_any_forgotten else []  # they fell short of nothing then
        found = failures(session.store, session.open_state, [*forgotten, *short], archived)
        return sum((Counter({one.study: one.n_requests}) for one in found), Counter[str]())

    return session.remembered(".failed", last, count)


def _for_a_person(text: str, hint: str) -> Note:
    return Note(Severity.WARNING, text, hint, ExitCode.ATTENTION)


def tell_concerns(session: Session) -> None:
    """Say which batches are late and which results perish; each needs a person."""
    found = concerns(session.open_state, session.store.clock.now(), session.log.archive.took_s)
    for concern in (*found, *for_nothing(session.store, session.open_state)):
        session.alert(concern.message, hint=concern.hint)
    for begun in session.open_state.forgetting.values():
        text = f"forgetting {begun.n_requests:,} requests was begun and did not end"
        session.alert(text, hint="`batchpond forget` ends it")


def concerns(
    lake_state: LakeState,
    now: datetime,
    archived_s: Mapping[str, Sequence[float]] = _NO_PAST,
    study: str | None = None,
) -> list[Note]:
    """Return which batches of a study are late, and whose results do not come or will soon be deleted; pure.

    `archived_s` has, by provider, how long the batches ran that the state lacks.
    """
    remote = [a for a in lake_state.attempts.values() if a.mode is Mode.BATCH and a.created_at is not None]
    waiting = {attempt.provider for attempt in remote if attempt.phase is Phase.OPEN}
    usual = {name: _usual([a for a in remote if a.provider == name], archived_s.get(name, ())) for name in waiting}
    mine = [attempt for attempt in remote if study in {None, attempt.intent.study}]
    late = (_late(attempt, usual[attempt.provider], now) for attempt in mine if attempt.phase is Phase.OPEN)
    perishing = (_perishing(attempt, now) for attempt in mine if attempt.phase in _UNCOLLECTED_PHASES)
    return [concern for concern in (*late, *perishing) if concern is not None]


def _usual(attempts: Collection[Attempt], archived_s: Sequence[float]) -> timedelta | None:
    """Return within which time nearly all of a provider's batches completed; None while there are too few."""
    took_s = sorted([*archived_s, *(seconds for seconds in map(seconds_of, attempts) if seconds is not None)])
    return timedelta(seconds=took_s[math.ceil(QUANTILE * len(took_s)) - 1]) if len(took_s) >= HISTORY_MIN else None


def _late(attempt: Attempt, usual: timedelta | None, now: datetime) -> Note | None:
    """Say that an open batch is past its window or takes longer than others did; some grace is for clocks."""
    if attempt.created_at is None:
        return None
    took = now - attempt.created_at
    if attempt.expires_at is not None and now > attempt.expires_at + GRACE:
        why = f"should have ended by {attempt.expires_at:%Y-%m-%d %H:%M} UTC"
    elif usual is not None and took > max(usual, GRACE):
        share = f"{QUANTILE:.0%} of this lake's {attempt.provider} batches ended within {_span(usual)}"
        why = f"has run for {_span(took)}: {share}"
    else:
        return None
    return _for_a_person(
        f"{attempt.provider} batch {attempt.batch_id} of study {attempt.intent.study} {why}",
        f"wait for it; or `batchpond cancel {attempt.batch_id}`: what it has answered is collected, and the rest can"
        f" be asked again with `batchpond retry {attempt.intent.study} --only cancelled`",
    )


def _perishing(attempt: Attempt, now: datetime) -> Note | None:
    """Count the days down until the results are deleted, from when they may have been there; none of them is here."""
    descriptor = registry.module(attempt.provider).DESCRIPTOR
    kept = timedelta(days=descriptor.results_retention_days)
    if attempt.created_at is None or not kept:
        return None
    until = attempt.created_at + kept
    left, seen = until - now, attempt.status
    about = (
        f"the results of {attempt.provider} batch {attempt.batch_id} of study {attempt.intent.study} are not all here"
    )
    if left > kept * COUNTDOWN_SHARE:
        if seen is None or attempt.phase is not Phase.ENDED or now - seen.occurred_at <= GRACE:
            return None
        text = f"{about}, though it had ended by {seen.occurred_at:%Y-%m-%d %H:%M} UTC"
        return _for_a_person(text, "`batchpond sync` fetches them, and says what keeps them away")
    source = "" if descriptor.has_known_retention else "; how long they are kept is not documented, so this is caution"
    is_past = left <= timedelta(0)
    due_at = "by now" if is_past else f"in {_span(left)}, on {until:%Y-%m-%d %H:%M} UTC"
    again = f"`batchpond resolve {attempt.batch_id} --refetch` fetches again what does not add up"
    hint = f"`batchpond sync` fetches them; {given_up(attempt) if is_past else again}"
    return _for_a_person(f"{about}, and may be deleted {due_at}{source}", hint)


def _span(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return plural(seconds // size, unit)
    return f"{seconds} s"


def looking(store: Store, providers: Providers) -> Session:
    """Return a pass that only looks: it knows who wants no call and for whom there is no key, and asks nobody."""
    session = Session.begin(store, providers)
    session.keep_away()
    for name, event in session.open_state.denied.items():
        providers.out.setdefault(name, AccessError(event.message or name))
    environ = os.environ | load_config(store.path).variables
    names = {shard.provider for shard in session.lake_state.shards.values() if shard.mode is Mode.BATCH}
    asked = [registry.module(name).DESCRIPTOR for name in sorted(names)]
    for key in listing((one for one in asked if not one.credentials_env), environ):  # those may be found elsewhere
        if not key.is_found and key.provider not in providers.out:
            providers.out[key.provider] = AccessError(key.problem or f"{key.key_env} is not set")
    return session


def waits(session: Session, study: str) -> list[dict[str, Any]]:
    """Return what a study's unsent requests wait for, as far as the lake and the keys here tell, as rows."""
    version = versions.planned_version(session.lake_state, study)
    state, now = session.open_state, session.store.clock.now()
    approval, lack = state.approvals.get(study), dispatch.lacking_approval(state, study, now)
    held: dict[tuple[str, ExitCode], list[Sharded]] = {}
    live = list(due.begun(state, study))
    if approval is not None and approval.study_version == version:
        trigger = dispatch.Trigger(is_explicit=False, now=now)
        held = dispatch.send_study(session, study, approval, trigger, lambda *_: Obstacle(lack or _A_PASS))
        mine = dispatch.candidates(session.store, state, study)
        new = [one for one, latest in mine if one.mode is Mode.LIVE and latest is None]
        budget = dispatch.Budget.of(session, approval) if new and lack is None else dispatch.Budget([])
        for one in new:
            (live if budget.allows(one) else held.setdefault((dispatch.MONEY, ExitCode.DONE), [])).append(one)
    held |= {(lack or f"`batchpond live {study}`", ExitCode.DONE): live} if live else {}
    is_part = approval is not None and approval.n_limit
    reason = lack or (f"an approval of more than was approved: `batchpond submit {study}`" if is_part else _A_PASS)
    n_unformed = due.unformed(session.store, state, [version]).get(study, 0)
    found = [
        (why, sum(one.n_requests for one in mine), exit_code, dispatch.wait_text(study, why, mine))
        for (why, exit_code), mine in held.items()
    ]
    if n_unformed:
        found.append((reason, n_unformed, ExitCode.DONE, f"{n_unformed:,} requests of study {study} wait for {reason}"))
    return [
        {"study": study, "reason": why, "n_requests": n, "needs_attention": code is not ExitCode.DONE, "text": text}
        for why, n, code, text in found
    ]


def following(session: Session, studies: Iterable[str]) -> Iterator[Note]:
    """Yield those of these studies that were planned anew and ask nothing yet: what follows waits for an approval."""
    state, store = session.lake_state, session.store
    for study in studies:
        version, approval = state.current_versions.get(study), state.approvals.get(study)
        last = state.rounds.get(version or "")
        if version is None or approval is None or approval.study_version == version or last is None or last.is_final:
            continue
        if versions.later_cost(store, version, versions.later_shares(store, version)) != (0.0, 0.0):
            lack = dispatch.lacking_approval(state, study, store.clock.now())
            yield Note(Severity.INFO, f"what follows from the answers of study {study} waits for {lack}")


def tell_refused(session: Session) -> None:
    """Say what keeps live calls from being made, as the last that were made know: a pass makes none."""
    for one in refused(session.open_state, is_live=True) if session.open_state.denied else ():
        session.note(one.severity, one.message, hint=one.hint, exit_code=one.exit_code)


def refused(lake_state: LakeState, study: str | None = None, *, is_live: bool = False) -> Iterator[Note]:
    """Yield what providers refused for want of a key, rights or money while a study waits for it, or live calls do.

    And what keeps a study from being sent until a person has seen to it.
    """
    pending = ((lake_state.shards.get(shard_id), latest) for shard_id, latest in due.pending_shards(lake_state).items())
    mine = [(shard, latest) for shard, latest in pending if shard is not None and study in {None, shard.study}]
    live = [(shard, latest) for shard, latest in mine if shard.mode is Mode.LIVE]
    mine = live if is_live else mine
    for name in sorted({f"{shard.provider}/{shard.request_model}" for shard, _ in live} & lake_state.denied.keys()):
        event = lake_state.denied[name]
        text = f"live calls to {name} stopped at {event.occurred_at:%Y-%m-%d %H:%M} UTC: {event.message}"
        yield Note(Severity.ERROR, text, "mend that, then `batchpond live`", ExitCode.ATTENTION)
    for name in sorted({shard.client_name for shard, _ in mine} & lake_state.denied.keys()):
        event = lake_state.denied[name]
        text = f"nothing goes on at {name} since {event.occurred_at:%Y-%m-%d %H:%M} UTC: {event.message}"
        hint = "mend that, then `batchpond sync`; `batchpond keys --check` tries every key that is set here"
        yield Note(Severity.ERROR, text, hint, ExitCode.ACCESS)
    # Whoever sends has just said it.
    sent = set() if is_live else {f"{of} {shard.study}" for shard, _ in mine for of in (shard.client_name, "")}
    for name in sorted(sent & lake_state.denied.keys()):
        event, of = lake_state.denied[name], name.rpartition(" ")[2]
        text = f"study {of} is not sent on since {event.occurred_at:%Y-%m-%d %H:%M} UTC: {event.message}"
        yield Note(Severity.ERROR, text, "`batchpond sync` asks again, and says what helps", ExitCode.ATTENTION)
    n_requests = Counter[tuple[str, str, str]]()
    for shard, latest in mine:
        if found := dispatch.refusal(latest, ErrorClass.ACCESS):
            n_requests[shard.client_name, shard.study, " ".join(found.message.split())[:_MESSAGE_CHARS]] += (
                shard.n_requests
            )
    for (name, of, said), n in n_requests.items():
        text = f"{name} refused {plural(n, 'request')} of study {of} for want of rights: {said}"
        hint = "mend the key's rights, and `batchpond sync` asks again; it does so ever more rarely"
        yield Note(Severity.ERROR, text, hint, ExitCode.ACCESS)


def stuck(attempts: Iterable[Attempt]) -> Iterator[Note]:
    """Yield which attempts need a person's decision, with the ways out."""
    for one in attempts:
        if one.needs_attention:
            text = f"attempt {one.attempt_id} at {one.provider} is {'a second batch, ' if one.is_duplicate else ''}"
            hint = WAYS_OUT.get(one.phase, WAYS_OUT["duplicate"]).replace("ATTEMPT", one.attempt_id[:10])
            yield _for_a_person(text + one.phase, hint)
        elif one.phase is Phase.OPEN and one.status is not None and one.status.error_code:
            text = f"attempt {one.attempt_id} at {one.provider} cannot go on: {one.status.detail}"
            yield _for_a_person(text, WAYS_OUT[one.phase].replace("ATTEMPT", one.attempt_id[:10]))


STRAYS_SHOWN_MAX: Final = 5
NEXT_STEP: Final = (
    "answer each .jsonl there into a file of the same name in inbox/ (its manifest says how), then `batchpond sync`;"
    " `batchpond cancel` ends one with what it has, `batchpond resolve ATTEMPT --lost` one that is gone"
)

STRAYS_HINT: Final = "a result's name begins with that of the requests it answers; what comes late stays unread"


def tell_waiting(session: Session) -> None:
    """Say where the requests are that somebody must answer, if this pass put any there, and what will be read soon."""
    attempts = session.open_state.attempts.values()
    n_recent = sum(a.status is not None and a.status.provider_status == RECENT for a in _waiting(attempts))
    if n_recent:
        text = f"results were written to just now and may still grow (batches: {n_recent:,})"
        session.note(Severity.INFO, text, hint="`batchpond sync` takes them once they have come to rest")
    for text in waiting(attempts, session.store) if session.counts.n_created else ():
        session.note(Severity.INFO, text, hint=NEXT_STEP)


def waiting(attempts: Iterable[Attempt], store: Store) -> Iterator[str]:
    """Yield sentences for each folder with requests that wait for somebody to answer them, or were taken from there."""
    for folder, mine in _by_folder(_waiting(attempts), store):
        noun = "file of requests waits" if len(mine) == 1 else "files of requests wait"
        n_requests = sum(attempt.intent.n_requests for attempt in mine)
        at = f"{folder.far or folder.path}/outbox"
        yield f"{len(mine):,} {noun} to be answered in {at} ({n_requests:,} requests)"
        n_gone = sum(not (folder.outbox / f"{one.token}.jsonl").exists() for one in mine)
        if n_gone and not folder.far and folder.outbox.is_dir():
            yield f"{n_gone:,} of them cannot be answered, as somebody has taken the requests from {at}"


def tell_strays(session: Session) -> None:
    """Say which result files nobody will read: named after no batch, or come after theirs was settled."""
    with session.isolated("", "looking for results that nobody will read"):
        for text in strays(session.open_state.attempts.values(), session.store):
            session.note(Severity.WARNING, text, hint=STRAYS_HINT)


def strays(attempts: Iterable[Attempt], store: Store) -> Iterator[str]:
    """Yield a sentence for each folder with result files that nobody will read."""
    for folder, mine in _by_folder(_attempts(attempts), store):
        known = {
            attempt.batch_id or attempt.token: None
            if attempt.phase in UNDER_WAY_PHASES
            else frozenset(event.file_id for event in attempt.downloads)
            for attempt in mine
        }
        found = folder.strays(known)
        if found:
            names = ", ".join(found[:STRAYS_SHOWN_MAX])
            more = f" and {len(found) - STRAYS_SHOWN_MAX:,} more" if len(found) > STRAYS_SHOWN_MAX else ""
            yield f"in {folder.far or folder.path}/inbox, {names}{more} answers no batch that is open"


def absent(attempts: Iterable[Attempt], store: Store) -> Iterator[str]:
    """Yield a sentence for each folder that is not there though its batches are still to be answered."""
    waiting = [attempt for attempt in _attempts(attempts) if attempt.phase in UNDER_WAY_PHASES]
    for folder, mine in _by_folder(waiting, store):
        if not os.path.isdir(folder.outbox):
            yield f"{folder.path} is not there; batches that wait to be answered in it: {len(mine):,}"


def _waiting(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in _attempts(attempts) if attempt.phase is Phase.OPEN]


def _attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.mode is Mode.FILES]


def _by_folder(attempts: Iterable[Attempt], store: Store) -> Iterator[tuple[Folder, list[Attempt]]]:
    by_host: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_host.setdefault(attempt.intent.host, []).append(attempt)
    for host, mine in by_host.items():
        folder = of_host(host, store.path)
        if folder is not None:
            yield folder, mine
