"""The verbs `submit` and `retry`: show what it would cost, take the user's approval, send what may go now.

`retry` asks requests that failed once more, within a limit of attempts and of money.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta

from batchpond import ids
from batchpond.errors import UsageError
from batchpond.lake import failpoints
from batchpond.lake.attempts import UNCLEAR_PHASES, LakeState, fold
from batchpond.lake.events import read
from batchpond.lake.records import Approval, Sharded
from batchpond.lake.store import CONFIG, Store
from batchpond.model import ErrorClass, Mode, PricedModel
from batchpond.plan import versions
from batchpond.plan.cells import make_model_configs, model_notes
from batchpond.plan.versions import Again
from batchpond.providers import registry
from batchpond.run import dispatch, due
from batchpond.run.due import FailureCount
from batchpond.run.find import resolve_unknowns
from batchpond.run.session import Counts, Note, Providers, Report, Session
from batchpond.run.sync import read_unread
from batchpond.run.told import tell_waiting
from batchpond.study.prices import Prices
from batchpond.study.spec import Order, Unsupported, from_config, spec_of_plain
from batchpond.text import Shown, usd
from batchpond.views.refresh import refresh

APPROVAL_LASTS = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What one model's share of a submission would cost, in USD; None is unknown."""

    provider: str
    request_model: str
    mode: Mode
    n_requests: int
    n_shards: int
    input_tokens: int
    cost_expected_usd: float | None
    cost_max_usd: float | None


@dataclass(frozen=True, slots=True)
class SubmitPreview(Shown):
    """What `submit` would send, shown before anything is; `later_*` is the forecast of rounds that wait for answers.

    `caveats` are about the models that are asked, as this study sets them.
    """

    study: str
    study_version: str
    models: tuple[ModelCost, ...]
    caveats: tuple[str, ...]
    largest_shard_usd: float = 0.0
    later_expected_usd: float | None = 0.0
    later_max_usd: float | None = 0.0

    @property
    def n_requests(self) -> int:
        """How many requests would be sent."""
        return sum(model.n_requests for model in self.models)

    @property
    def is_due(self) -> bool:
        """Whether there is anything to agree to: requests, or what follows from the answers to those that are out."""
        return self.n_requests > 0 or self.later_max_usd != 0.0

    @property
    def n_shards(self) -> int:
        """How many provider batches that makes."""
        return sum(model.n_shards for model in self.models)

    @property
    def cost_expected_usd(self) -> float | None:
        """The expected cost, later rounds included; None when any model's price is unknown."""
        return _total([*(model.cost_expected_usd for model in self.models), self.later_expected_usd])

    @property
    def cost_max_usd(self) -> float | None:
        """The worst cost, later rounds included; None when any model's price is unknown."""
        return _total([*(model.cost_max_usd for model in self.models), self.later_max_usd])


@dataclass(frozen=True, slots=True)
class SubmitReport(Report):
    """What `submit` did; `counts` is None when nothing was approved, `n_live` requests wait for `live`.

    Of the study, `n_unsent` requests that are approved are in no batch yet, and `n_unclear` batches may exist.
    """

    preview: SubmitPreview
    is_approved: bool
    counts: Counts | None
    n_live: int
    notes: tuple[Note, ...]
    n_unsent: int = 0
    n_unclear: int = 0


def _total(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def preview(
    store: Store, lake_state: LakeState, study: str, limit: int | None, *, again: Again | None = None
) -> SubmitPreview:
    """Return what `submit` would send now; reads only. Raises UsageError for a study without a plan."""
    version = versions.planned_version(lake_state, study)
    # What no batch holds or may hold, and what waits for its turn, or for leave to be asked on.
    shards = [shard for shard, latest in dispatch.candidates(store, lake_state, study) if due.is_free(latest)]
    follows = False
    if dispatch.lacking_approval(lake_state, study, store.clock.now()) is not None:
        shards += due.begun(lake_state, study)
        last = lake_state.rounds.get(version)
        follows = last is not None and not last.is_final
    shards += [new.event for new in due.new_shards(store, lake_state, study, version, limit, None)]
    repeated = [new.event for new in due.new_shards(store, lake_state, study, version, limit, again)] if again else []
    shards += repeated
    groups: dict[PricedModel, list[Sharded]] = {}
    for shard in shards:
        groups.setdefault(shard.priced, []).append(shard)
    models = tuple(_model_cost(key, group) for key, group in sorted(groups.items()))
    largest_usd = max((shard.cost_max_usd or 0.0 for shard in shards), default=0.0)
    n_again = sum(shard.n_requests for shard in repeated)
    shares = versions.later_shares(store, version, n_again, limit) if shards or follows else {}
    later = versions.later_cost(store, version, shares)
    return SubmitPreview(study, version, models, _notes(store, version, groups), largest_usd, *later)


def _notes(store: Store, version: str, asked: Collection[PricedModel]) -> tuple[str, ...]:
    settings = versions.study_settings(store, version)
    specs = [
        spec
        for stage in settings.get("stages") or [settings]
        for spec in (spec_of_plain(model) for model in stage.get("models", ()))
        if spec.priced in asked
    ]
    configs, _ = make_model_configs(specs, registry.module, Unsupported.DROP, version) if specs else ([], [])
    return model_notes(configs, Prices.of_lake(store.path / CONFIG, store.clock.now()))


def _model_cost(asked: PricedModel, shards: list[Sharded]) -> ModelCost:
    return ModelCost(
        *asked,
        n_requests=sum(shard.n_requests for shard in shards),
        n_shards=len(shards),
        input_tokens=sum(shard.input_tokens for shard in shards),
        cost_expected_usd=_total([shard.cost_expected_usd for shard in shards]),
        cost_max_usd=_total([shard.cost_max_usd for shard in shards]),
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most so much money, by the estimate, and so many requests; None bounds nothing."""

    max_cost_usd: float | None = None
    limit: int | None = None


def submit(
    store: Store,
    study: str,
    bounds: Bounds = Bounds(),
    *,
    confirm: Callable[[SubmitPreview], bool] | None,
    providers: Providers,
    on_note: Callable[[Note], None] | None = None,
    again: Again | None = None,
    is_shown: bool = True,
) -> SubmitReport:
    """Send a study's due requests, once `confirm` agrees to their cost; the rest is left to `sync`.

    Without `confirm` it is a dry run. `again` asks what was asked before once more, all of it or what failed; `results`
    keeps the first success, `result_attempts` has all of them. Without `is_shown` the lens is left to the pass that
    follows at once.
    The lock is not held while asking. Raises UsageError when there is no plan or the estimate is
    above its bound or the study's budget; what is sent before a failure stays on record and is never sent twice.
    """
    lake_state, limit = fold(read(store)), bounds.limit
    caveats = _check_part(store, lake_state, study) if limit is not None else ()
    shown = preview(store, lake_state, study, limit, again=again)
    shown = replace(shown, caveats=shown.caveats + caveats)
    limits_usd = [bounds.max_cost_usd, versions.study_budget_usd(store, shown.study_version)]
    max_cost_usd = min((usd for usd in limits_usd if usd is not None), default=None)
    _check_money(shown, max_cost_usd)
    if confirm is None or not shown.is_due or not confirm(shown):
        return SubmitReport(shown, is_approved=False, counts=None, n_live=0, notes=())
    purpose = f"submit {study}"
    with ExitStack() as held:
        held.enter_context(store.lock(purpose))
        session = Session.begin(store, providers, on_note, lets_go=True)
        failpoints.reach("S0")
        session.keep_away()
        dispatch.finish_adoptions(session)
        read_unread(session)
        dispatch.look_before(session, study)
        _approve(session, shown, max_cost_usd, limit)
        if again:
            due.form_shards(session, study, session.lake_state.approvals[study], again)
        dispatch.send_due(session, only_study=study, is_explicit=True)
        while not session.is_over:
            session.let_files_come(held, purpose)
            dispatch.send_due(session, only_study=study, is_explicit=True)
        resolve_unknowns(session)
        tell_waiting(session)
        session.keep_access()
        session.log.compact(lambda: refresh(store))
        if is_shown:
            refresh(store)
    attempts = session.open_state.attempts.values()
    n_unclear = sum(one.phase in UNCLEAR_PHASES for one in attempts if one.intent.study == study)
    n_unsent, n_live = dispatch.count_unsent(session, study)
    return SubmitReport(shown, True, session.counts, n_live, tuple(session.notes), n_unsent, n_unclear)


def _check_part(store: Store, lake_state: LakeState, study: str) -> tuple[str, ...]:
    """Return the stages in which a part of the answers may lead to other questions than all do, each as a caveat.

    Raises UsageError where it would.
    """
    version = lake_state.current_versions.get(study, "")
    if version not in lake_state.rounds:
        return ()
    stages = from_config(versions.study_settings(store, version, is_whole=True)).stages
    for stage in stages:
        spec = stage.pairs
        is_of_all = spec.adaptive or spec.count or spec.is_exact or spec.n_reverse or spec.order is Order.ALTERNATE
        if stage.waits and (is_of_all or stage.rows.kept is not None or stage.rows.lacking is not None):
            raise UsageError(
                f"study {study} cannot be sent in part: stage {stage.name} chooses among all answers it waits for",
                hint="leave out --limit; to try a study, plan it with fewer items under another name",
            )
    return tuple(
        f"stage {stage.name}: what its SQL makes of the answers to a part stays, whatever it makes of all of them"
        for stage in stages
        if stage.rows.sql is not None and stage.waits
    )


def _check_money(shown: SubmitPreview, max_cost_usd: float | None) -> None:
    if max_cost_usd is None or not shown.is_due:
        return
    unknown = [f"{m.provider}/{m.request_model}" for m in shown.models if m.cost_max_usd is None]
    if unknown:
        raise UsageError(
            f"a cost limit cannot be kept: the worst cost is unknown for {', '.join(unknown)}",
            hint="set max_output_tokens in the study, or a price in the lake's config.toml, or give no limit",
        )
    if (shown.cost_expected_usd or 0.0) > max_cost_usd:
        raise UsageError(
            f"the expected cost {usd(shown.cost_expected_usd)} exceeds the limit {usd(max_cost_usd)}: not sent",
            hint="raise the limit, or send a part with `--limit N`",
        )
    if shown.largest_shard_usd > max_cost_usd:
        raise UsageError(
            f"one batch may cost {usd(shown.largest_shard_usd)} at worst, above the limit {usd(max_cost_usd)}",
            hint="raise the limit, lower max_output_tokens, set [shards] max_requests, or `--limit N`",
        )


def _approve(session: Session, shown: SubmitPreview, max_cost_usd: float | None, limit: int | None) -> None:
    """Record what was agreed to; raises UsageError for a study that was planned anew while somebody was asked."""
    if versions.planned_version(session.lake_state, shown.study) != shown.study_version:
        raise UsageError(
            f"study {shown.study} was planned anew since its cost was shown; nothing was approved or sent",
            hint="run the command again: it shows what the new plan costs",
        )
    now = session.store.clock.now()
    cap = max_cost_usd if max_cost_usd is not None else shown.cost_max_usd
    session.record(
        Approval(
            approval_id=ids.digest("approval", shown.study, shown.study_version, len(session.log.events)),
            study=shown.study,
            study_version=shown.study_version,
            cost_expected_usd=shown.cost_expected_usd,
            cost_max_usd=cap,
            n_limit=limit,
            n_requests=shown.n_requests,
            expires_at=now + APPROVAL_LASTS,
        )
    )


USUAL_CLASSES = frozenset({ErrorClass.TRANSIENT, ErrorClass.EXPIRED, ErrorClass.MISSING, ErrorClass.FORGOTTEN})
USUAL_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class RetryReport(Shown):
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

    Without `classes`, the study's `[retry]` decides, or else `USUAL_CLASSES`; a request that was in `max_attempts`
    batches is left alone. What has an answer is never asked again here. Raises UsageError where something else is due
    that was never submitted, and like `submit` for money.
    """
    lake_state = fold(read(store))
    version = versions.planned_version(lake_state, study)
    usual = versions.automatic_again(store, version) or Again(USUAL_CLASSES, USUAL_ATTEMPTS)
    again = Again(frozenset(classes) or usual.classes, max_attempts or usual.max_attempts)
    due.require_read(store, lake_state)
    counts = tuple(due.count_failures(store, lake_state, study, version, again))
    approval = lake_state.approvals.get(study)
    is_approved = approval is not None and approval.study_version == version
    # What another study asked, or what is forgotten, fails without one; what is due besides, nobody has agreed to.
    if not is_approved and (not counts or preview(store, lake_state, study, None).n_requests):
        raise UsageError(f"the plan of study {study!r} was never submitted", hint=f"`batchpond submit {study}` does it")
    agreed = confirm
    report = submit(
        store,
        study,
        Bounds(max_cost_usd, versions.sample_of(lake_state, study)),
        confirm=None if agreed is None else lambda preview: agreed(preview, counts),
        providers=providers,
        on_note=on_note,
        again=again,
    )
    return RetryReport(counts, report)
