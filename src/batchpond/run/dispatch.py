"""Which shards may be sent now: approval, money, queue and back-off decide; then they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from batchpond.clock import each
from batchpond.errors import AccessError, ExitCode, PutOffError, UnreachableError
from batchpond.lake import disk, tables
from batchpond.lake.attempts import BEFORE_SENT_PHASES, UNCLEAR_PHASES, UNSENT_PHASES, Attempt, LakeState, Phase
from batchpond.lake.records import AdoptedShard, Approval, Intent, Rejected, Rounds, Sharded
from batchpond.lake.schemas import PLAN, SHARD_REQUESTS
from batchpond.lake.store import CONFIG, Store
from batchpond.model import ErrorClass, Mode, ShardKind
from batchpond.plan import versions
from batchpond.plan.versions import FIRST
from batchpond.providers import registry
from batchpond.run import due
from batchpond.run.send import UPLOADS_MAX, Sending, end_uploads, send_shard, upload_ahead
from batchpond.run.session import Session, Severity
from batchpond.study.prices import Config, Limits, Prices, load_config

BACKOFF_FIRST = timedelta(seconds=30)
BACKOFF_MAX = timedelta(hours=1)
QUEUE_BACKOFF_FIRST = timedelta(minutes=15)
QUEUE_BACKOFF_MAX = timedelta(hours=6)
REQUEUES_MAX = 8
_QUEUED_PHASES = frozenset({Phase.SENT, Phase.UNKNOWN, Phase.OPEN})
REJECTIONS_MAX = 12
DOUBTS_MAX = 6
LAST: Final = 1_000_000
ALL: Final = ""  # the scope of what all shards could take from each other: money
_DOUBLINGS_MAX = 16
_MESSAGE_CHARS = 120
MONEY: Final = "money: the approved cost is reserved or spent; `batchpond submit` approves more"


class Readiness(StrEnum):
    """Whether a shard may be sent."""

    READY = "ready"
    WAITING = "waiting"
    HELD = "held"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Trigger:
    """Who asks: a person by `submit`, or a pass by itself, which one last told to by the approval of that `ord`."""

    is_explicit: bool
    now: datetime
    approved_ord: int = 0


def readiness(attempt: Attempt | None, trigger: Trigger) -> Readiness:
    """Return whether the shard of this latest attempt may be sent; pure."""
    if attempt is None or attempt.phase in UNSENT_PHASES:
        return Readiness.READY
    if attempt.phase in {Phase.ABSENT, Phase.REJECTED} or due.is_requeued(attempt):
        return _again(attempt, trigger)
    return Readiness.DONE if attempt.phase in due.OVER_PHASES else Readiness.WAITING


def ready_at(attempt: Attempt, now: datetime) -> datetime | None:
    """Return when the back-off of a shard that was refused, not clearly answered or not run is over, None without one.

    Where the waits have been long enough it is the last of them that is over then; whether more is tried is another
    matter. What is dated in time to come was dated by a clock that was ahead: nothing waits for it. Pure.
    """
    since, at = _back_off(attempt) or (now, None)
    return at if since <= now else None


def _back_off(attempt: Attempt) -> tuple[datetime, datetime] | None:
    ordinal = attempt.intent.ordinal
    queue_wait = _doubled(QUEUE_BACKOFF_FIRST, ordinal, QUEUE_BACKOFF_MAX)
    if attempt.phase is Phase.REJECTED and attempt.rejection is not None:
        since = attempt.rejection.occurred_at
        wait = _doubled(BACKOFF_FIRST, attempt.n_rejections, BACKOFF_MAX)
        return since, max(since + wait, attempt.rejection.retry_at or since)
    if attempt.phase is Phase.ABSENT and ordinal > 1 and attempt.observed:
        return (since := attempt.observed[-1].occurred_at), since + queue_wait
    if due.is_requeued(attempt) and attempt.status is not None:
        return (since := attempt.status.occurred_at), since + queue_wait
    return None


def _doubled(first: timedelta, n: int, at_most: timedelta) -> timedelta:
    return min(first * 2.0 ** min(n - 1, _DOUBLINGS_MAX), at_most)


def _again(attempt: Attempt, trigger: Trigger) -> Readiness:
    """Whether what was refused, not clearly answered or not run is asked for again: ever more rarely, and then no more.

    What that leaves to a person is asked for once one has said so and there is room, as is what had no clear answer.
    """
    ordinal, refusal = attempt.intent.ordinal, attempt.rejection
    if attempt.phase is Phase.REJECTED:
        is_lasting = refusal is not None and refusal.error_class not in {ErrorClass.TRANSIENT, ErrorClass.ACCESS}
        is_enough, is_at_once = is_lasting or attempt.n_rejections > REJECTIONS_MAX, is_lasting
    elif attempt.phase is Phase.ABSENT:
        is_enough, is_at_once = ordinal > DOUBTS_MAX and bool(attempt.observed), True
    else:
        is_enough = is_at_once = ordinal > REQUEUES_MAX
    is_asked = refusal is not None and attempt.phase is Phase.REJECTED and refusal.ord < trigger.approved_ord
    if is_enough and not (trigger.is_explicit or is_asked):
        return Readiness.HELD
    at = None if is_at_once and (trigger.is_explicit or is_asked) else ready_at(attempt, trigger.now)
    return Readiness.READY if at is None or trigger.now >= at else Readiness.WAITING


def finish_adoptions(session: Session) -> None:
    """Finish the adoptions that a process did not live to finish; what does it is loaded only where one may wait.

    Comes before anything is sent: a waiting shard may hold requests that the batch has answered.
    """
    adopted = (shard for shard in session.open_state.shards.values() if isinstance(shard, AdoptedShard))
    for shard in [one for one in adopted if session.open_state.latest_attempt(one.shard_id) is None]:
        if due.is_real(session.store, session.open_state, shard):
            from batchpond.run.adopt import resume

            with session.isolated(shard.client_name, f"adopting batch {shard.batch_id}"):
                resume(session, shard)


def look_before(session: Session, study: str, client_name: str | None = None) -> None:
    """Look, before a lake's first attempt of a study at a provider, whether another lake has bought it there.

    What does it is loaded only where there is no attempt. Raises AttentionError if so.
    """
    known = {attempt.client_name for attempt in session.open_state.attempts.values() if attempt.intent.study == study}
    if client_name not in known:
        from batchpond.run.unknown import before_first

        before_first(session, study, client_name)


def send_due(session: Session, *, only_study: str | None = None, is_explicit: bool = False) -> None:
    """Send what approvals, budgets and queues allow, study by study; the lock is held."""
    trigger = Trigger(is_explicit, session.store.clock.now())
    staged = {event.study for event in session.open_state.rounds.values()}
    for study in sorted(staged | set(session.open_state.approvals)):
        if only_study not in {None, study}:
            continue
        approval = approval_of(session, study)
        session.uncut.add(study)
        with session.isolated("", f"sending what is due of study {study}", study):
            if approval is not None:
                due.form_shards(session, study, approval)
                again = versions.automatic_again(session.store, approval.study_version)
                # To wait for the end of all makes one further batch of what would otherwise be many small ones.
                if again is not None and not due.is_under_way(session.store, session.open_state, study):
                    due.form_shards(session, study, approval, again)
            is_new = study in staged and _open_rounds(session, study, is_explicit=is_explicit)
            if approval is not None and is_new:
                due.form_shards(session, study, approval)
            session.uncut.discard(study)
            if approval is not None:
                kept = session.open_state.kept & session.open_state.by_study.get(study, {}).keys()
                session.waiting[study] += len(kept)
                waiting = send_study(session, study, approval, trigger, _send)
                for (reason, exit_code), held in waiting.items() if session.is_over else ():
                    session.note(Severity.INFO, wait_text(study, reason, held), exit_code=exit_code)
    if session.uploads:
        end_uploads(session)


def _open_rounds(session: Session, study: str, *, is_explicit: bool) -> bool:
    """Plan what earlier answers of a study of stages have made possible; return whether there were any to look at.

    A pass without any does not load what does it.
    """
    last = session.open_state.rounds.get(session.open_state.current_versions.get(study, ""))
    if last is None or last.is_final or (last.is_complete and not _is_answered(session, last, is_explicit=is_explicit)):
        return False
    # What fails is asked again once all has ended, and belongs to the same round.
    is_asked_again = versions.automatic_again(session.store, last.study_version) is not None
    if is_asked_again and due.is_under_way(session.store, session.open_state, study):
        return False
    from batchpond.run.stages import open_due

    open_due(session, study)
    return True


def _is_answered(session: Session, last: Rounds, *, is_explicit: bool) -> bool:
    """Whether answers to a study's requests may have come since the last look at them.

    They come in batches of its own or, where it does not ask all its requests itself, in any; one that nobody has
    submitted waits for that.
    """
    settled = session.open_state.settled_since(last.ord)
    settled |= {study for study, at in session.log.archive.settled.items() if at > last.ord}
    approval = session.open_state.approvals.get(last.study)
    is_own = last.study in settled or is_explicit
    return bool(settled) and (is_own or (approval is not None and not due.asks_all_itself(session, approval)))


def count_unsent(session: Session, only_study: str | None = None) -> tuple[int, int]:
    """Return how many requests are approved and in no batch yet, whatever for, and how many are due live."""
    n_unsent = n_live = 0
    for study, approval in session.open_state.approvals.items():
        if only_study not in {None, study}:
            continue
        n_live += sum(shard.n_requests for shard in due.begun(session.open_state, study))
        if approval.study_version != session.open_state.current_versions.get(study):
            continue
        n_unsent += due.count_uncut(session, approval) if study in session.uncut else 0
        for shard, latest in candidates(session.store, session.open_state, study):
            n_live += shard.n_requests * (shard.mode is Mode.LIVE and latest is None)
            n_unsent += shard.n_requests * (due.is_free(latest) and shard.mode is not Mode.LIVE)
    return n_unsent, n_live


def count_unapproved(session: Session) -> Mapping[str, int]:
    """Return how many planned requests of each study nobody has approved; counted where plans or shards changed."""
    state, store = session.open_state, session.store
    whole = {one.study_version for one in state.approvals.values() if one.n_limit is None}
    partly = {study: version for study, version in state.current_versions.items() if version not in whole}
    if not partly:
        return {}
    plan, shards = (disk.relative(store.path, store.published(name)) for name in (PLAN.name, SHARD_REQUESTS.name))
    basis = (sorted(partly.items()), sorted(state.voided), sorted(due.void_shards(store, state)), plan, shards)
    return session.remembered(".unapproved", basis, lambda: due.unformed(store, state, partly.values()), plan)


def lacking_approval(lake_state: LakeState, study: str, now: datetime) -> str | None:
    """Return which approval of its present plan a study waits for, None where there is one."""
    approval = lake_state.approvals.get(study)
    if approval is not None and approval.study_version != lake_state.current_versions.get(study):
        return f"an approval of the new plan: `batchpond submit {study}`"
    if approval is not None and now >= approval.expires_at:
        return f"a new approval, the last ended on {approval.expires_at:%Y-%m-%d}: `batchpond submit {study}`"
    return None if approval is not None else f"an approval: `batchpond submit {study}`"


def approval_of(session: Session, study: str) -> Approval | None:
    """Return a study's approval if it holds, and say which it lacks where something of the study is unsent."""
    lack = lacking_approval(session.open_state, study, session.store.clock.now())
    if lack is None:
        return session.open_state.approvals[study]
    state, store = session.open_state, session.store
    if any(due.begun(state, study)) or any(due.is_free(latest) for _, latest in due.real_shards(store, state, study)):
        session.note(Severity.WARNING, f"what is left of study {study} waits for {lack}")
    return None


def tier_of(shard: Sharded) -> int:
    """Return a shard's tier, from 1 on; the smallest goes first."""
    return FIRST if shard.tier is None else shard.tier


@dataclass(slots=True)
class Precedence:
    """The tiers that wait in a pass, by the scope of what for: money, a provider's account, a provider's model."""

    _waiting: dict[str, int] = field(default_factory=dict)

    def hold(self, shard: Sharded, scope: str) -> None:
        """Note that a shard waits, so that no later tier takes what it waits for."""
        self._waiting[scope] = min(tier_of(shard), self._waiting.get(scope, LAST))

    def before(self, shard: Sharded) -> int | None:
        """Return the tier that a shard must let go first, if there is one."""
        scopes = (ALL, shard.provider, of_model(shard))
        first = min(self._waiting.get(scope, LAST) for scope in scopes)
        return first if first < tier_of(shard) else None

    def is_for_money(self, shard: Sharded) -> bool:
        """Whether what a shard must let go first waits for money, which waiting alone does not bring."""
        return self._waiting.get(ALL, LAST) < tier_of(shard)


def of_model(shard: Sharded) -> str:
    """Return the scope of a provider's model."""
    return f"{shard.provider}/{shard.request_model}"


def candidates(store: Store, lake_state: LakeState, study: str) -> Iterator[tuple[Sharded, Attempt | None]]:
    """Yield the study's shards of the current version that are not done, by tier, with their latest attempt."""
    version, book = lake_state.current_versions.get(study), Prices.of_lake(store.path / CONFIG, store.clock.now())
    for shard, latest in sorted(due.real_shards(store, lake_state, study), key=lambda found: tier_of(found[0])):
        is_done = latest is not None and latest.phase is Phase.VERIFIED and latest.failure_code is None
        is_done |= due.is_repriced(book, lake_state, shard)
        if shard.study_version == version and shard.shard_kind is not ShardKind.ADOPTED and not is_done:
            yield shard, latest


Due = tuple[Sharded, Attempt | None]
Send = Callable[[Session, Sharded, Approval, "Budget", Sequence[Due]], "Obstacle | None"]


def send_study(
    session: Session, study: str, approval: Approval, trigger: Trigger, send: Send
) -> dict[tuple[str, ExitCode], list[Sharded]]:
    """Send a study's shards whose turn it is by `send`, and return why the others wait, with what that says."""
    waiting: dict[tuple[str, ExitCode], list[Sharded]] = {}
    precedence = Precedence()
    budget: Budget | None = None
    settings = load_config(session.store.path)
    trigger = replace(trigger, approved_ord=approval.ord)
    due_now = list(candidates(session.store, session.open_state, study))
    for at, (shard, _) in enumerate(each(due_now, f"sending {study}", "batches", len(due_now)), 1):
        if shard.mode is Mode.LIVE:
            continue
        latest = session.open_state.latest_attempt(shard.shard_id)  # its batch may have been found for another shard
        obstacle: Obstacle | None
        state = readiness(latest, trigger)
        if (
            state is Readiness.HELD
            and refusal(latest, ErrorClass.BILLING)
            and not _lacks_credit(session, shard, trigger)
        ):
            state = Readiness.READY
        match state:
            case Readiness.DONE:
                continue
            case Readiness.WAITING:
                obstacle = back_off(shard, latest, trigger.now)
                if obstacle is None:
                    continue
            case Readiness.HELD:
                obstacle = held_by(shard, latest)
            case Readiness.READY:
                budget = budget or Budget.of(session, approval)
                obstacle = _obstacle(session, shard, settings, budget, precedence, trigger)
                if obstacle is None:
                    obstacle = send(session, shard, approval, budget, due_now[at : at + UPLOADS_MAX])
        if obstacle is not None:
            if obstacle.holds is not None:
                precedence.hold(shard, obstacle.holds)
            waiting.setdefault((obstacle.reason, obstacle.exit_code), []).append(shard)
            session.waiting[study] += obstacle.passes_by_itself
    return waiting


def _send(
    session: Session, shard: Sharded, approval: Approval, budget: Budget, following: Sequence[Due]
) -> Obstacle | None:
    """Send a shard; return until when it waits if it was refused and is asked for again by itself."""
    if shard.shard_id in session.tried:
        return None
    look_before(session, shard.study, shard.client_name)
    session.tried.add(shard.shard_id)
    what = f"sending {shard.n_requests} requests to {shard.client_name}"
    with session.isolated(shard.client_name, what, shard.study):
        _begin_following(session, shard, approval, budget, following)
        match send_shard(session, shard, approval):
            case Sending.WAITING:
                session.tried.discard(shard.shard_id)
                session.waiting[shard.study] += 1
                return None
            case Sending.TRAVELLING:
                session.tried.discard(shard.shard_id)
                budget.reserve(shard)
                return None
            case Sending.REJECTED:
                refused = session.lake_state.latest_attempt(shard.shard_id)
                by_itself = readiness(refused, Trigger(is_explicit=False, now=session.store.clock.now()))
                return back_off(shard, refused, session.store.clock.now()) if by_itself is Readiness.WAITING else None
            case _:
                budget.reserve(shard)
                return None
    return _refusal(session, shard) if isinstance(session.providers.out.get(shard.client_name), AccessError) else None


def _begin_following(
    session: Session, shard: Sharded, approval: Approval, budget: Budget, following: Sequence[Due]
) -> None:
    """Have the files of the next shards travel beside this one, as far as nothing would keep them from being sent.

    Not before a batch of this pass was created: what keeps the first is then known.
    """
    if not session.counts.n_created:
        return
    left, settings = Budget(budget.caps), load_config(session.store.path)
    left.reserve(shard)
    for other, latest in following:
        is_alike = (other.client_name, other.request_model) == (shard.client_name, shard.request_model)
        if latest is not None or not is_alike or not left.allows(other) or _full_queue(session, other, settings):
            return
        left.reserve(other)
        upload_ahead(session, other, approval)


def wait_text(study: str, reason: str, held: list[Sharded]) -> str:
    """Return what waits for a reason, in words."""
    n_requests = sum(shard.n_requests for shard in held)
    if all(shard.mode is Mode.LIVE for shard in held):
        return f"{n_requests:,} live requests of study {study} wait for {reason}"
    batches = "1 batch" if len(held) == 1 else f"{len(held):,} batches"
    return f"{n_requests:,} requests of study {study} ({batches}) wait for {reason}"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a shard is not sent now, whether waiting alone will help, and what that says of the pass.

    `holds` is what it waits for and no later tier may take, as a scope of `tiers`.
    """

    reason: str
    passes_by_itself: bool = True
    holds: str | None = None
    exit_code: ExitCode = ExitCode.DONE


def back_off(shard: Sharded, latest: Attempt | None, now: datetime) -> Obstacle | None:
    """Return until when a shard waits that will be sent again; None for one that is at the provider."""
    at = None if latest is None else ready_at(latest, now)
    if at is None:
        return None
    reason = f"{shard.client_name} to be asked again: back-off until {at:%Y-%m-%d %H:%M} UTC"
    exit_code = ExitCode.ACCESS if refusal(latest, ErrorClass.ACCESS) else ExitCode.DONE
    return Obstacle(reason, holds=of_model(shard), exit_code=exit_code)


def refusal(latest: Attempt | None, error_class: ErrorClass) -> Rejected | None:
    """Return how a provider refused a shard, if it did and for this: want of money, or of rights for a model."""
    found = latest.rejection if latest is not None and latest.phase is Phase.REJECTED else None
    return found if found is not None and found.error_class is error_class else None


def held_by(shard: Sharded, latest: Attempt | None) -> Obstacle:
    """Return what a person has to do about a shard that is not sent again by itself."""
    rejection = latest.rejection if latest is not None and latest.phase is Phase.REJECTED else None
    if refusal(latest, ErrorClass.BILLING):
        return no_credit(shard)
    why = f"{shard.client_name} never answered clearly" if rejection is None else f"{shard.client_name} refused them"
    said = f" ({' '.join(rejection.message.split())[:_MESSAGE_CHARS]})" if rejection is not None else ""
    reason = f"a person: {why}{said}; mend the cause, then `batchpond submit {shard.study}`"
    return Obstacle(reason, passes_by_itself=False, exit_code=ExitCode.ATTENTION)


def no_credit(shard: Sharded) -> Obstacle:
    """Return what a person has to do where the account is empty."""
    reason = f"credit at {shard.client_name}: add some there, then `batchpond submit {shard.study}`"
    return Obstacle(reason, passes_by_itself=False, exit_code=ExitCode.ATTENTION)


def _lacks_credit(session: Session, shard: Sharded, trigger: Trigger) -> bool:
    """Whether an account is out of money: it said so, and no batch was made there since, nor did a person submit.

    What was given up since is sent by nobody, so that no later answer would ever tell of money that came.
    """
    mine = [one for one in session.open_state.attempts.values() if one.client_name == shard.client_name]
    made = max((one.sent.ord for one in mine if one.sent is not None and one.batch_id is not None), default=0)
    wanted = (refusal(one, ErrorClass.BILLING) for one in mine if one.shard_id not in session.open_state.voided)
    return any(one is not None and one.ord > max(made, trigger.approved_ord) for one in wanted)


def _obstacle(
    session: Session, shard: Sharded, settings: Config, budget: Budget, precedence: Precedence, trigger: Trigger
) -> Obstacle | None:
    if not trigger.is_explicit and _lacks_credit(session, shard, trigger):
        return no_credit(shard)
    found = _refusal(session, shard) or _full_queue(session, shard, settings)
    if found is None and not budget.allows(shard):
        return Obstacle(MONEY, passes_by_itself=False, holds=ALL)
    before = precedence.before(shard)
    if found is None and before is not None:
        return Obstacle(f"tier {before} to be sent first", passes_by_itself=not precedence.is_for_money(shard))
    return found


def _refusal(session: Session, shard: Sharded) -> Obstacle | None:
    provider, model, client_name = shard.provider, shard.request_model, shard.client_name
    match out := session.providers.out.get(client_name):
        case PutOffError():
            reason = f"their turn: {out.message}"
        case UnreachableError():
            reason = f"{client_name} to be reached"
        case AccessError() if shard.mode is Mode.FILES:
            reason = "the folder that was used before"
        case _:
            reason = f"a key that {provider} accepts"
    if out is not None:
        exit_code = ExitCode.ACCESS if client_name in session.open_state.denied else ExitCode.DONE
        return Obstacle(reason, passes_by_itself=not isinstance(out, AccessError), exit_code=exit_code)
    if (client_name, "") in session.paused:
        return no_credit(shard)
    if (client_name, model) in session.paused:
        return Obstacle(f"{client_name} to take {model} batches again")
    is_opaque = shard.mode is not Mode.FILES and registry.module(provider).DESCRIPTOR.is_opaque
    mine = (a for a in session.open_state.attempts.values() if a.client_name == client_name)
    if is_opaque and any(a.phase in UNCLEAR_PHASES for a in mine):  # a second one could not be told from the first
        return Obstacle(f"an unacknowledged {provider} batch to be found or proven absent")
    return None


def _full_queue(session: Session, shard: Sharded, settings: Config) -> Obstacle | None:
    provider, model = shard.provider, shard.request_model
    if shard.mode is Mode.FILES:  # a folder has no queue
        return None
    waiting = [
        a.intent
        for a in session.open_state.attempts.values()
        if a.provider == provider and a.mode is Mode.BATCH and a.phase in _QUEUED_PHASES
    ]
    waiting_for_model = [intent for intent in waiting if intent.request_model == model]
    of_account = _over(settings.of_account(provider), provider, shard, waiting)
    if of_account is not None:
        return Obstacle(of_account, holds=shard.provider)
    found = _over(settings.of_model(provider, model), model, shard, waiting_for_model)
    return None if found is None else Obstacle(found, holds=of_model(shard))


def _over(limits: Limits, name: str, shard: Sharded, waiting: list[Intent]) -> str | None:
    """Return which limit a shard would pass beside what waits; alone it is always tried."""
    if limits.open_batches is not None and len(waiting) >= limits.open_batches:
        return f"room among the {limits.open_batches} open {name} batches"
    n_requests = sum(asked.n_requests for asked in (*waiting, shard))
    if limits.enqueued_requests is not None and waiting and n_requests > limits.enqueued_requests:
        return f"room in the queue of {limits.enqueued_requests:,} {name} requests"
    tokens = sum(asked.input_tokens for asked in (*waiting, shard))
    if limits.enqueued_tokens is not None and waiting and tokens > limits.enqueued_tokens:
        return f"room in the queue of {limits.enqueued_tokens:,} {name} tokens"
    return None


class Cap(NamedTuple):
    """An amount that may be spent, and what of it is spent or, at worst, outstanding."""

    limit_usd: float
    taken_usd: float


@dataclass(slots=True)
class Budget:
    """The caps that a study's shards must fit: the approval's, and the study's own over all approvals."""

    caps: list[Cap]

    @classmethod
    def of(cls, session: Session, approval: Approval) -> Budget:
        """Add up the study's attempts: by usage once verified, at worst before that."""
        limit_usd = versions.study_budget_usd(session.store, approval.study_version)
        if approval.cost_max_usd is None and limit_usd is None:
            return cls([])
        attempts = [a for a in session.lake_state.attempts.values() if a.intent.study == approval.study]
        rows = tables.rows(session.store, ["responses"], tables.query(__package__, "costs")) if attempts else []
        actual: dict[str, float | None] = dict(rows)
        is_live = any(a.mode is Mode.LIVE for a in attempts)
        doubts: dict[str, int] = dict(tables.rows(session.store, ["doubts"], _DOUBTS) if is_live else [])
        taken_usd = {a.attempt_id: _taken_usd(a, actual, doubts.get(a.attempt_id, 0)) for a in attempts}
        caps = []
        if approval.cost_max_usd is not None:
            # Made under it, or made under an earlier one and sent since.
            since = {a.attempt_id for a in attempts if a.sent is not None and a.sent.ord > approval.ord}
            mine = since.union(a.attempt_id for a in attempts if a.intent.approval_id == approval.approval_id)
            caps.append(Cap(approval.cost_max_usd, sum(taken_usd[one] for one in mine)))
        if limit_usd is not None:
            caps.append(Cap(limit_usd, sum(taken_usd.values())))
        return cls(caps)

    def allows(self, shard: Sharded) -> bool:
        """Whether the shard's worst cost fits every cap; an unknown one fits none."""
        worst_usd = shard.cost_max_usd
        fits = (worst_usd is not None and taken + worst_usd <= limit * (1 + 1e-9) for limit, taken in self.caps)
        return all(fits)

    def reserve(self, shard: Sharded) -> None:
        """Take a sent shard's worst cost."""
        more_usd = shard.cost_max_usd or 0.0
        self.caps = [Cap(limit_usd, taken_usd + more_usd) for limit_usd, taken_usd in self.caps]


# How many live calls of each attempt may have been paid though no answer came.
_DOUBTS: Final = "SELECT attempt_id, count(*) FROM doubts GROUP BY attempt_id"


def _taken_usd(attempt: Attempt, actual: dict[str, float | None], n_doubts: int) -> float:
    """Return what an attempt may have cost, and each live call whose answer never came."""
    worst_usd = attempt.intent.cost_max_usd or 0.0
    unseen_usd = n_doubts * worst_usd / (attempt.intent.n_requests or 1)
    if attempt.phase in BEFORE_SENT_PHASES | {Phase.ABSENT}:
        return unseen_usd
    known_usd = actual.get(attempt.attempt_id, 0.0) if attempt.phase is Phase.VERIFIED else None
    return unseen_usd + (worst_usd if known_usd is None else known_usd)
