"""What is due: planned requests that no shard holds yet, and those that failed and may be asked again.

They are cut into shards; set-based throughout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from batchpond import ids
from batchpond.errors import LakeError
from batchpond.lake import disk, failpoints, manifest, tables
from batchpond.lake.attempts import BEFORE_SENT_PHASES, Attempt, LakeState, Phase
from batchpond.lake.events import won_name
from batchpond.lake.jsonl import shard_file_name
from batchpond.lake.records import Approval, Sharded, Voided
from batchpond.lake.schemas import RAW, SHARD_REQUESTS
from batchpond.lake.store import CONFIG, Store
from batchpond.model import BatchState, ErrorClass, Mode, PricedModel, ShardKind
from batchpond.plan import versions
from batchpond.plan.versions import Again
from batchpond.providers import registry
from batchpond.providers.http.errors import ApiError, classify
from batchpond.run.find import check_settled, is_of_plan
from batchpond.run.send import was_never_made
from batchpond.run.session import Rules, Session, answered
from batchpond.study.prices import NOTHING, USUAL, Config, Estimate, Lengths, Prices, Used, basis, load_config

if TYPE_CHECKING:
    import pyarrow as pa

    from batchpond.study.spec import ShardsSpec

OVER_PHASES: Final = frozenset({Phase.VERIFIED, Phase.MISMATCH, Phase.LOST})

NONE: Final[Mapping[str, str]] = MappingProxyType({})
ASKED_TABLES: Final = ("plan", "requests", "shard_requests", "responses")
FAILED_SQL: Final = tables.query(__package__, "failed")
_COUNT: Final = tables.query(__package__, "failures_counted", failed=FAILED_SQL)


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
    is_adopted = attempt.intent.shard_kind is ShardKind.ADOPTED  # never sent from here
    if attempt.phase is not Phase.VERIFIED or attempt.failure_code is None or attempt.n_answered or is_adopted:
        return False
    return attempt.failure_code in registry.module(attempt.provider).DESCRIPTOR.requeue_codes


def parameters(lake_state: LakeState, again: Again) -> dict[str, Any]:
    """Return the parameters of `FAILED_SQL` about all attempts, and what is chosen of it."""
    chosen = {"classes": [str(name) for name in again.classes or ()], "max_attempts": again.max_attempts}
    return of_settled(lake_state.attempts.values()) | chosen


def of_settled(attempts: Iterable[Attempt], verified: Mapping[str, str] = NONE) -> dict[str, Any]:
    """Return the parameters of `FAILED_SQL`: those of the attempts that nothing more can come of.

    Before them stand those that were `verified` earlier, whose shards are given by attempt.
    """
    rows: list[tuple[str | None, ...]] = [(*names, ErrorClass.MISSING, None, None) for names in verified.items()]
    for one in filter(is_over, attempts):
        said = one.status.detail if one.failure_code and one.status else None
        rows.append((one.attempt_id, one.shard_id, _class_without_row(one), one.failure_code, said))
    names = ("attempt_ids", "shard_ids", "rowless", "codes", "messages")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _class_without_row(attempt: Attempt) -> ErrorClass:
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


def require_read(store: Store, lake_state: LakeState) -> None:
    """Raise LakeError where answers are not read that are here, or were: asked again, they would be bought again."""
    from batchpond.answers import derive  # load Arrow, and few passes ask anything again
    from batchpond.run.collect import source_of

    manifest.require(store, [RAW.name])
    published = {*Rules(store, {}).published()}
    unread = [one for one in answered(lake_state) if derive.is_unread(published, source_of(one))]
    if unread:
        raise LakeError(
            f"there are answers that are not read, of batch {unread[0].batch_id} first (batches: {len(unread):,});"
            " nothing is asked again for want of them",
            hint="`batchpond sync` reads them again",
        )


def count_failures(store: Store, lake_state: LakeState, study: str, version: str, again: Again) -> list[FailureCount]:
    """Return how the requests of a planned study failed that nothing has answered yet."""
    values = {"study": study, "version": version, **parameters(lake_state, again)}
    if not values["attempt_ids"]:
        return []
    return [FailureCount(*row) for row in tables.rows(store, ASKED_TABLES, _COUNT, values)]


CELLS_TEXT_MAX = 500
_FETCH_ROWS = 10_000
_EVERYTHING = 2**62

_DUE = tables.query(__package__, "due")
_CELLS = tables.query(__package__, "due_cells")
# Words of few kinds, a path among them, are numbers while a row of each request is joined and sorted.
_NUMBERED = {"filename": "requests", "mode": "plan", "stage": "plan"}
_WORDS = "CREATE OR REPLACE TEMP TYPE due_{0} AS ENUM (SELECT DISTINCT {0} FROM {1} WHERE {0} IS NOT NULL ORDER BY {0})"
_CHOSEN_FIRST = "chosen AS (SELECT CAST(NULL AS VARCHAR) AS request_id WHERE FALSE)"
_CHOSEN_ALL = "chosen AS (SELECT request_id FROM asked)"
_CHOSEN_FAILED = tables.query(__package__, "chosen_failed", failed=FAILED_SQL)


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard that is about to be recorded: its fact, its lines, and their custom_ids in an adopted batch.

    A line is a planned request that has not been asked, with what sharding needs of it, as `due.sql` gives them.
    """

    event: Sharded
    lines: pa.Table
    custom_ids: list[str] | None = None


def new_shards(
    store: Store, lake_state: LakeState, study: str, version: str, sample: int | None, again: Again | None = None
) -> Iterator[NewShard]:
    """Yield the shards that the study's due requests make, one at a time; reads only.

    Due are the requests that no shard holds; with `again`, those that it names and that are in no shard
    that is still on its way.

    `sample` keeps to so many of what is asked from the start, as `versions.sampled` says, and what follows from it.
    The shards of a preview are handed out once more where nothing that they follow from has changed since.
    """
    from batchpond.study.spec import ShardsSpec  # an idle pass cuts nothing

    rule = ShardsSpec(**(versions.study_settings(store, version).get("shards") or {}))
    chosen, values = _chosen(lake_state, again)
    values |= {
        "study": study,
        "version": version,
        "void": [*lake_state.voided, *void_shards(store, lake_state)],
        "live": [*pending_shards(lake_state)],
        "again": again is not None,
    }
    sql = _DUE.replace("{chosen}", chosen).replace("{sampled}", versions.sampled(sample))
    generation = len(lake_state.voided) + (0 if again is None else len(lake_state.shards))
    settings = load_config(store.path)
    files = [(path, disk.stands(path)) for name in ASKED_TABLES for path in store.published(name)]
    asked = sql, values, rule, generation, settings, files, basis(store.path / CONFIG)
    before, kept, n_rows = _SHOWN.pop(store, None), list[NewShard](), 0
    if before is not None and before[0] == asked:
        yield from before[1]
        return
    for new in _cut(store, sql, values, rule, generation, settings):
        n_rows += len(new.lines)
        kept = [*kept, new] if n_rows <= _SHOWN_ROWS_MAX else []
        yield new
    if n_rows <= _SHOWN_ROWS_MAX:
        _SHOWN[store] = asked, kept


_SHOWN_ROWS_MAX: Final = 100_000
_SHOWN: Final = WeakKeyDictionary[Store, tuple[object, list[NewShard]]]()


def _cut(
    store: Store, sql: str, values: Mapping[str, Any], rule: ShardsSpec, generation: int, settings: Config
) -> Iterator[NewShard]:
    study, version = values["study"], values["version"]
    book = Prices.of_lake(store.path / CONFIG, store.clock.now())
    lengths, caches = versions.lengths(store, version), versions.caches(store, version)
    kind = ShardKind.RETRY if values["again"] else ShardKind.FIRST
    with tables.connect(store, ASKED_TABLES) as connection:
        used = versions.used(store, connection, study, version)
        connection.execute(_CELLS, {"study": study, "version": version})
        for column, table in _NUMBERED.items():
            connection.execute(_WORDS.format(column, table))
        cells = connection.sql("FROM due_cells ORDER BY cell_no").to_arrow_table()
        connection.execute(sql, values)
        tables.give_back(connection)
        connection.execute(tables.query(__package__, "due_in_order"))
        tables.give_back(connection)
        found = connection.sql("FROM in_order").to_arrow_reader(_FETCH_ROWS)

        def limits(lines: pa.Table) -> versions.Limits:
            asked = _asked(lines)
            queue = settings.of_model(asked.provider, asked.model)
            descriptor = registry.module(asked.provider).DESCRIPTOR
            return versions.limits_of(descriptor, asked.mode, rule.max_requests, queue.enqueued_tokens)

        parts = (_with_cells(part, cells, is_per_cell=rule.per_cell) for part in found)
        for lines in versions.cut(parts, limits, rule.segments):
            cost = estimated(book, lines, lengths, used, caches)
            event = shard_event(study, version, lines, kind, cost, generation)
            yield NewShard(replace(event, prices=book.mark(event.priced)), lines)
        tables.give_back(connection)


def _with_cells(part: pa.RecordBatch, cells: pa.Table, *, is_per_cell: bool) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    of_cells = [column.dictionary_encode().take(part["cell_no"]) for column in cells.columns]
    rows = pa.table([*part.columns, *of_cells], [*part.schema.names, *cells.column_names])
    names = ["tier", "model_no", "mode", *["cell_id"] * is_per_cell]
    words = [rows[name].cast(pa.string()).fill_null("") for name in names]  # without one, models would share a shard
    return rows.append_column("group", pc.binary_join_element_wise(*words, " "))


def unformed(store: Store, lake_state: LakeState, plans: Collection[str]) -> dict[str, int]:
    """Return how many requests of each study's version are in no shard yet; reads ids alone, and makes no shard."""
    values = {"versions": [*plans], "void": [*lake_state.voided, *void_shards(store, lake_state)]}
    return dict(tables.rows(store, ["plan", "shard_requests"], tables.query(__package__, "unformed"), values))


def _chosen(lake_state: LakeState, again: Again | None) -> tuple[str, dict[str, Any]]:
    """Return the SQL of the requests that are asked once more, and its parameters."""
    if again is None:
        return _CHOSEN_FIRST, {}
    if again.classes is None:
        return _CHOSEN_ALL, {}
    return _CHOSEN_FAILED, parameters(lake_state, again)


def _asked(lines: pa.Table) -> PricedModel:
    """Return what lines of a shard are billed as."""
    provider, model, mode = (lines[name][0].as_py() for name in ("provider", "request_model", "mode"))
    return PricedModel(provider, model, Mode(mode))


def void_shards(store: Store, lake_state: LakeState) -> list[str]:
    """Return the shards, of all studies, of earlier plans or prices that never became a batch: others may ask it."""
    book, now = Prices.of_lake(store.path / CONFIG, store.clock.now()), lake_state.current_versions
    free = (one for one in lake_state.shards.values() if is_voidable(lake_state, one.shard_id))
    gone = (one for one in free if one.study_version != now.get(one.study) or is_repriced(book, lake_state, one))
    return [one.shard_id for one in gone]


def is_repriced(book: Prices, lake_state: LakeState, shard: Sharded) -> bool:
    """Whether nothing was done for a shard yet, and what it may cost was said by other prices: it is cut anew."""
    is_new = shard.shard_kind is ShardKind.FIRST and shard.shard_id not in lake_state.by_shard
    return is_new and shard.prices not in {None, book.mark(shard.priced)}


def is_under_way(store: Store, lake_state: LakeState, study: str) -> bool:
    """Whether anything asked of the study may still end by itself; what the provider refused does not."""
    latest = (latest for _, latest in real_shards(store, lake_state, study))
    return any(one is None or (one.phase is not Phase.REJECTED and not is_over(one)) for one in latest)


def is_voidable(lake_state: LakeState, shard_id: str) -> bool:
    """Whether no batch of a shard exists or is on its way; an adopted batch is one from the start."""
    is_waiting = shard_id not in lake_state.kept and is_free(lake_state.latest_attempt(shard_id))
    return is_waiting and lake_state.shards[shard_id].shard_kind is not ShardKind.ADOPTED


def give_up(session: Session, study: str, shard_id: str) -> None:
    """Void a shard for good, unless a batch was made of it or another machine is about to: then it is kept.

    The fact takes the name of the next `sent`, so that a machine that slept meanwhile cannot win that any more.
    """
    if not was_never_made(session, shard_id):
        return
    latest = session.open_state.latest_attempt(shard_id)
    if latest is not None and latest.phase in BEFORE_SENT_PHASES:
        name = won_name(latest.attempt_id, latest.n_sends + 1)
    else:
        ordinal = 1 if latest is None else latest.intent.ordinal + 1
        name = won_name(ids.attempt_id(session.store.lake_id, shard_id, ordinal), 1)
    if not session.elect(name, Voided(study=study, shard_id=shard_id)):
        session.open_state.kept.add(shard_id)


def is_free(latest: Attempt | None) -> bool:
    """Whether no batch of a shard is at the provider or on its way, or what failed unbilled for want of room."""
    return latest is None or latest.phase in BEFORE_SENT_PHASES | {Phase.ABSENT} or is_requeued(latest)


def pending_shards(lake_state: LakeState) -> dict[str, Attempt | None]:
    """Return the shards that are still to be sent or answered, each with the attempt that says so, if there is one.

    Those that are sent again by themselves are among them, and those of which a second batch runs on.
    """
    latest = {shard_id: lake_state.latest_attempt(shard_id) for shard_id in lake_state.shards}
    second = (one for one in lake_state.attempts.values() if one.is_duplicate and one.phase not in OVER_PHASES)
    first = {shard_id: one for shard_id, one in latest.items() if one is None or not is_over(one)}
    return {one.shard_id: one for one in second} | first


def shard_event(study: str, version: str, lines: pa.Table, kind: ShardKind, cost: Estimate, generation: int) -> Sharded:
    """Return the fact of a shard of these lines."""
    asked, endpoint, tier = _asked(lines), lines["endpoint"][0].as_py(), lines["tier"][0].as_py()
    return Sharded(
        study=study,
        study_version=version,
        shard_id=ids.shard_id(
            (asked.provider, endpoint, asked.model, asked.mode), generation, lines["request_id"].to_pylist()
        ),
        shard_kind=kind,
        mode=asked.mode,
        provider=asked.provider,
        endpoint=endpoint,
        request_model=asked.model,
        n_requests=len(lines),
        size_bytes=sum(lines["size_bytes"].to_pylist()),
        input_tokens=sum(lines["estimated_input_tokens"].to_pylist()),
        cost_expected_usd=cost.expected_usd,
        cost_max_usd=cost.worst_usd,
        cells=_cells_text(lines),
        tier=None if tier == versions.FIRST else tier,
    )


_ALIKE: Final = ("stage", "template_id", "thinking", "max_output_tokens")
"""What requests of one price and length of answers share."""


def estimated(
    book: Prices, lines: pa.Table, lengths: Lengths, used: Used, caches: Mapping[tuple[str, str], str]
) -> Estimate:
    """Return what a shard of these lines may cost, by what `versions` has of their study."""
    asked = _asked(lines)
    cache = caches.get((asked.provider, asked.model))
    tokens = lines.group_by(_ALIKE, use_threads=False).aggregate([("estimated_input_tokens", "sum"), ([], "count_all")])
    total = NOTHING
    for stage, template_id, thinking, max_output_tokens, n_tokens, n in zip(*tokens.to_pydict().values(), strict=True):
        total += book.estimate(
            asked, thinking, max_output_tokens, n, n_tokens, lengths.get((stage, template_id), USUAL),
            used.get((stage, template_id, asked.provider, asked.model, thinking)), cache,
        )  # fmt: skip
    return total


def _cells_text(lines: pa.Table) -> str:
    """Return what a shard asks, for people who read the provider's console."""
    parts = []
    for name in ("template_id", "rubric_id", "thinking"):
        values = sorted(lines[name].unique().to_pylist())
        parts.append(f"{name.removesuffix('_id')} {', '.join(values)}")
    return "; ".join(parts)[:CELLS_TEXT_MAX]


def form_shards(session: Session, study: str, approval: Approval, again: Again | None = None) -> None:
    """S1: record the shards that an approval's due requests make; the lock is held.

    The fact comes before the file: a shard is real once its file stands, and a fact without a
    file is harmless. A shard of an earlier plan of which no batch was made is voided first, for good: its requests
    would otherwise be in two shards that may both be sent. While it is not known whether one was, they wait in it.
    """
    version, is_all = approval.study_version, again is None and asks_all_itself(session, approval)
    check_settled(session, study)
    for shard_id in void_shards(session.store, session.open_state):
        owner = session.open_state.shards[shard_id].study
        is_wanted = owner == study or (not is_all and is_of_plan(session, study, shard_id))
        if is_wanted:
            give_up(session, owner, shard_id)
    if is_all and asks_all_itself(session, approval):  # also of what was given up
        return
    if again is not None:
        require_read(session.store, session.lake_state)
    for group in _grouped(new_shards(session.store, session.lake_state, study, version, approval.n_limit, again)):
        session.record(*(new.event for new in group))
        for new in group:
            publish_shard(session.store, new)
    _SHOWN.pop(session.store, None)  # what was formed is never shown again
    tables.fold(session.store)
    failpoints.reach("S1")


def _grouped(found: Iterable[NewShard]) -> Iterator[list[NewShard]]:
    """Yield shards in groups whose facts stand in one file: a large one alone, many small ones together."""
    group: list[NewShard] = []
    for new in found:
        group.append(new)
        if sum(len(one.lines) for one in group) >= _FETCH_ROWS:
            yield group
            group = []
    if group:
        yield group


def asks_all_itself(session: Session, approval: Approval) -> bool:
    """Whether the study's shards on record hold all that is approved; saves an idle pass the look at the plan."""
    version, n_sharded = approval.study_version, _count_sharded(session, approval)
    last_round = session.open_state.rounds.get(version)
    found = last_round.n_requests if last_round else versions.study_column(session.store, version, "n_requests")
    n_wanted = _EVERYTHING if found is None else int(found)
    if approval.n_limit is None:
        return n_sharded >= n_wanted
    # Which requests of later rounds follow from a sample only the plan says.
    return last_round is None and n_sharded >= min(n_wanted, approval.n_limit)


def _count_sharded(session: Session, approval: Approval) -> int:
    mine, found = approval.study_version, real_shards(session.store, session.open_state, approval.study)
    first = (one for one, _ in found if (one.study_version, one.shard_kind) == (mine, ShardKind.FIRST))
    return session.log.archive.asked.get(mine, 0) + sum(one.n_requests for one in first)


def count_uncut(session: Session, approval: Approval) -> int:
    """Return how many approved requests stand in no shard."""
    n_unformed = unformed(session.store, session.open_state, [approval.study_version]).get(approval.study, 0)
    n_left = _EVERYTHING if approval.n_limit is None else max(0, approval.n_limit - _count_sharded(session, approval))
    return min(n_unformed, n_left)


def real_shards(store: Store, lake_state: LakeState, study: str) -> Iterator[tuple[Sharded, Attempt | None]]:
    """Yield a study's shards, of all its versions, whose files stand, with their latest attempts."""
    for shard in lake_state.shards_of(study):
        if is_real(store, lake_state, shard):
            yield shard, lake_state.latest_attempt(shard.shard_id)


def begun(lake_state: LakeState, study: str) -> Iterator[Sharded]:
    """Yield what is left of shards whose live calls were begun, whatever the study's plan is by now."""
    for shard in lake_state.shards_of(study):
        latest = lake_state.latest_attempt(shard.shard_id)
        if shard.mode is Mode.LIVE and latest is not None and latest.phase is Phase.OPEN:
            yield shard.part(max(0, shard.n_requests - sum(one.n_lines for one in latest.downloads)))


def is_real(store: Store, lake_state: LakeState, shard: Sharded) -> bool:
    """Whether a shard's file stands, as it does before the first attempt at it."""
    is_tried = lake_state.latest_attempt(shard.shard_id) is not None
    return is_tried or store.has(SHARD_REQUESTS, shard_file_name(shard.provider, shard.shard_id))


def publish_shard(store: Store, new: NewShard) -> None:
    """Publish a shard's lines: from here on it is real."""
    store.publish(SHARD_REQUESTS, shard_file_name(new.event.provider, new.event.shard_id), _shard_rows(store, new))


def _shard_rows(store: Store, new: NewShard) -> pa.Table:
    import pyarrow as pa  # a pass that cuts no shard needs none of it
    import pyarrow.compute as pc

    n, request_ids = len(new.lines), new.lines["request_id"]
    paths = new.lines["filename"].cast(pa.string())
    files = pc.utf8_slice_codeunits(paths, len(f"{store.path}/requests/"), -len(".parquet"))
    columns = [
        pa.repeat(pa.scalar(new.event.shard_id, pa.string()), n),
        pa.array(range(1, n + 1), pa.int32()),
        request_ids,
        pc.utf8_slice_codeunits(request_ids, 0, ids.REQUEST_KEY_LENGTH),
        files,
        pa.nulls(n, pa.string()) if new.custom_ids is None else pa.array(new.custom_ids, pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SHARD_REQUESTS.schema)
