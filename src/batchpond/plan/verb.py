"""The verb `plan`: a study is read in whole and checked, then becomes requests and plan rows, and a report.

Stages that wait for nothing become requests, the others a forecast. Talks to nobody, idempotent, safe to kill: requests
are published before the rows that refer to them, then the study's own row, and last the event that makes the version
the study's newest. A version whose row stands is complete and is not written again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import orjson

from batchpond import ids
from batchpond.clock import Clock
from batchpond.errors import StudyError
from batchpond.lake import tables
from batchpond.lake.attempts import fold
from batchpond.lake.events import EventLog
from batchpond.lake.records import FINAL, INCOMPLETE, Planned
from batchpond.lake.schemas import REQUESTS, STUDIES
from batchpond.lake.store import CONFIG, TMP, Store
from batchpond.model import Prompt
from batchpond.plan import cells as forms
from batchpond.plan import report, versions
from batchpond.plan.asks import NO_RUBRIC, Ask, n_asks
from batchpond.plan.blocks import Draft, Grid, StageDraft
from batchpond.plan.cells import Dropped, Modules, length_of
from batchpond.plan.forecast import Forecast, Known, forecast
from batchpond.plan.items import ItemColumns, Pairs, allowed_pairs, balance, choose_pairs, each, read_any, read_pairs
from batchpond.plan.media import MediaSpool
from batchpond.plan.prompts import BYTES_PER_TOKEN, check_prompts, prompt_of, size_bytes
from batchpond.plan.report import CellReport, Counted, PlanReport, StageReport
from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds.inputs import KINDS, OF_TALK, users
from batchpond.plan.rounds.rounds import check, open_rounds, round_event
from batchpond.plan.rows import Columns, SourceRow, SourceRows, SpilledRows, judged_by_of, placed, row_of_file, size_of
from batchpond.plan.write import FIRST_ROUND, publish_round
from batchpond.providers import registry
from batchpond.study import file as study_file
from batchpond.study.prices import Lengths, Prices, total
from batchpond.study.spec import (
    StageSpec,
    Study,
    Words,
)
from batchpond.tasks import inputs
from batchpond.tasks.base import READER, About, Gives
from batchpond.views import refresh

CELLS_MAX: Final = 100_000
_SAMPLE_ASKS: Final = 200


def draft_of(
    store: Store, study: Study, modules: Modules, media: MediaSpool | None, *, is_bought: bool = False
) -> Draft:
    """Return a study with all it names read in, `media` included; raises StudyError for what cannot be asked.

    One that `is_bought` was asked before, so that nothing is said against its models.
    """
    dropped: list[Dropped] = []
    stages: list[StageDraft] = []
    for stage in study.stages:
        found = _draft(store, study, stage, modules, dropped, media)
        stages.append(dataclasses.replace(found, n_listed=_n_listed(stage, stages)))
    if (n_cells := sum(draft.n_cells for draft in stages)) > CELLS_MAX:
        raise StudyError(f"{study.source}: makes {n_cells:,} cells; one study holds at most {CELLS_MAX:,}")
    shown = tuple(media.found.values()) if media else ()
    if not is_bought:
        for draft in stages:
            forms.check_meant(draft.configs, study.unsupported, study.place_of(draft.stage))
            if any(template.media for template in draft.stage.templates):
                forms.check_shown(draft.configs, shown, study.place_of(draft.stage))
        forms.check_served(store, (one for draft in stages for one in draft.configs), study.source)
    parts = [(draft.stage, draft.configs, draft.rows or ()) for draft in stages]
    given = [draft.pairs for draft in stages if draft.pairs is not None and draft.stage.pairs.given]
    said = [part.tobytes() for pairs in given for part in (pairs.lo, pairs.hi, pairs.lo_first)]
    own = forms.version(study, parts)
    return Draft(study, stages, dropped, ids.digest("given pairs", own, *said) if said else own, shown)


def _draft(
    store: Store, study: Study, stage: StageSpec, modules: Modules, dropped: list[Dropped], media: MediaSpool | None
) -> StageDraft:  # fmt: skip
    place = study.place_of(stage)
    configs, refused = forms.make_model_configs(stage.models, modules, study.unsupported, place, **stage.wants)
    dropped += refused
    draft = StageDraft(stage, configs, study.seed)
    if stage.waits:
        return draft
    rows = _rows(store, study, stage, media)
    pairs, choices = _pairs(store, study, stage, rows)
    draft = dataclasses.replace(draft, rows=rows, pairs=pairs, choices=choices)
    if pairs is not None and study.is_pairs_alone and stage.pairs.adaptive is None and not stage.columns:
        n_shown = len(pairs) + int(pairs.has_reverse.sum())
        return dataclasses.replace(draft, n_asks=n_shown * max(1, len(stage.rubrics)), is_grid=True)
    n_found = n_asks(stage, rows, pairs)
    if (first := next(chain.from_iterable(draft.asks()), None)) is not None:
        check_prompts(stage, first)
    if n_found is None:
        n_found = sum(map(len, draft.asks()))
    if not n_found:
        raise StudyError(f"{study.source}: stage {stage.name} has nothing to ask about")
    adaptive.check_size(stage.name, stage.pairs, len(rows), draft.n_cells)
    return dataclasses.replace(draft, n_asks=n_found)


def _n_listed(stage: StageSpec, earlier: Sequence[StageDraft]) -> float:
    """Return by how many rubrics an answer is judged where its question says by which, else 0; checks what they say."""
    column = stage.rows.columns.get("rubric")
    if column is None or stage.rows.stage is None:
        return 0.0
    questions = next(one.rows or () for one in earlier if one.stage.name == stage.rows.stage)
    n = 0
    for row in questions:
        found = judged_by_of(stage, row.item_id, row.more.get(column))
        if found is None:
            why = f"stage {stage.name}: {row.item_id!r} has no list of rubrics in {column!r}"
            raise StudyError(why, hint="each question says by which its answers are judged")
        n += len(found)
    return n / len(questions)


def _pairs(
    store: Store, study: Study, stage: StageSpec, rows: SourceRows
) -> tuple[Pairs | None, Sequence[adaptive.Choice]]:
    """Return the pairs that a stage compares in its first round, None for another task, and what is chosen of them."""
    if stage.about is not About.PAIR:
        return None, ()
    blocks = {row.item_id: row.more.get(stage.pairs.block or "") for row in rows}
    names = list(blocks)
    if stage.pairs.adaptive is None:
        allowed = allowed_pairs(stage.pairs, blocks, study.base_path, partial(users, store))
        return choose_pairs(names, stage.pairs, study.seed, allowed), ()
    choices = adaptive.first_round(names, stage.pairs, study.seed, stage.name)
    return adaptive.pairs_of(len(names), choices), choices


def check_later(store: Store, draft: Draft) -> None:
    """Raise StudyError for what would fail only once earlier stages are paid for: SQL, and lacking placeholders."""
    study = draft.study
    for stage in (one for one in study.stages if one.waits):
        check(store, stage)
        _check_answers(draft, stage)
        source = _source(study, stage)
        if stage.about is not About.TALK and source is not None and source.gives is not Gives.JUDGMENT:
            made = SourceRow("id", "text", "unit", None, "candidate", "input", more=_more(study, source))
            rows = _first_rows(draft, source) if stage.columns else (made,)
            for row in (made._replace(item_id=one.item_id, more={**one.more, **made.more}) for one in rows):
                other = row._replace(text="other") if stage.about.is_of_two else None
                check_prompts(stage, Ask((*stage.rubrics, NO_RUBRIC)[0], row, other, values=_foreseen(study, stage)))


def _source(study: Study, stage: StageSpec) -> StageSpec | None:
    kept = stage.rows.kept
    name = kept.questions[0] if kept else stage.rows.stage
    return study.stage(name) if name else None


def _check_answers(draft: Draft, stage: StageSpec) -> None:
    """Raise StudyError where a stage shows answers about none of its items: it would ask nothing."""
    for name, (asked, _) in stage.answers.items():
        own, other = (_first_rows(draft, one) for one in (stage, draft.study.stage(asked)))
        if own is not other and own and other and not _are_alike(own, other):
            text = f"{draft.study.place_of(stage)} shows {{{name}}}, and {asked} is asked about none of its items"
            raise StudyError(text, hint="items are the same by their ids, or by the `unit` that they belong to")


def _are_alike(own: SourceRows, other: SourceRows) -> bool:
    """Whether any of these rows is, or belongs to, what one of the others is or does; holds the ids of a part alone."""
    rows = iter(own)
    while part := list(islice(rows, _IDS_AT_ONCE)):
        known = {name for row in part for name in (row.item_id, row.unit_id) if name}
        if not known or any(row.item_id in known or row.unit_id in known for row in other):
            return True
    return False


def _first_rows(draft: Draft, stage: StageSpec) -> SourceRows:
    """Return the rows that a stage asks about, or that those are made of; none where only SQL will give them."""
    rows = {one.stage.name: one.rows for one in draft.stages}
    source: StageSpec | None = stage
    while source is not None and rows[source.name] is None:
        source = _source(draft.study, source)
    return () if source is None else rows[source.name] or ()


def _more(study: Study, source: StageSpec | None) -> dict[str, Any]:
    """Return what a stage's rows will have besides their texts, as placeholders in small letters."""
    names: tuple[str, ...] = OF_TALK if source is not None and source.about is About.TALK else ()
    while source is not None and isinstance(source.rule, inputs.InputsRule):
        names = (*names, KINDS[source.rule.step])
        source = _source(study, source)
    return dict.fromkeys(names, "text")


def _rows(store: Store, study: Study, stage: StageSpec, media: MediaSpool | None) -> SourceRows:
    if stage.rows.items is None:
        return [SourceRow(one.rubric_id, one.description, one.rubric_id, one.rubric_id) for one in stage.rubrics]
    items, base_path = stage.rows.items, study.base_path
    take = partial(media.take, items, study.media, base_path) if media else None
    source = (items, base_path, partial(users, store), take)
    if study.is_pairs_alone:
        return [row_of_file(item, stage) for item in read_pairs(*source)]
    rows = SpilledRows(store.path / TMP, _placed(stage, each(*source)))
    if not rows.is_in_order:
        read_any(*source)  # tells which ids, and in which lines
    return rows


def _placed(stage: StageSpec, found: Iterable[ItemColumns]) -> Iterator[Columns]:
    """Yield a file's items as rows; the columns that say where they belong are taken out of what more they say."""
    columns = [*stage.rows.columns.items()]
    for items in found:
        told = {name: [more.get(column) for more in items[-1]] for name, column in columns}
        for more, (_, column) in product(items[-1], columns):
            more.pop(column, None)
        yield placed(stage, items, told)


def _foreseen(study: Study, stage: StageSpec) -> dict[str, str]:
    """Return answers of earlier stages that a stage's prompts show, as long as they are expected to be."""
    found = {}
    for name, (asked, column) in stage.answers.items():
        source = study.stage(asked)
        n_ways = sum(len(model.thinking) for model in source.models) * len(source.templates) * source.repeats
        said = source.rule.parts[column].says if column in source.rule.parts else (column,)
        n_tokens = length_of(source).tokens if {*said} & {"text", "explanation"} else 1
        n_said = source.repeats if source.gives is Gives.OUTPUT else n_ways
        found[name] = "x" * (BYTES_PER_TOKEN * n_tokens * n_said)
    return found


def known_of(draft: Draft, one: StageDraft) -> Known:
    """Return what the forecast knows of a stage: of one that waits for nothing, what it asks."""
    stage, rows = one.stage, one.rows
    ask_bytes, *shown_bytes = _sizes(draft, one)
    if rows is None:
        return Known(stage, one.configs, ask_bytes=ask_bytes, shown_bytes=shown_bytes, n_listed=one.n_listed)
    if isinstance(rows, SpilledRows):
        n_bytes, has_own = rows.n_text_bytes, rows.is_chosen or rows.rubric_ids.keys() != {None}
    else:
        n_bytes, has_own = sum(size_of(row.text) for row in rows), any(row.rubric_id is not None for row in rows)
    parts = stage.rule.parts
    n_asks = one.n_asks // (max(1, len(parts)) * stage.rule.size)  # an answer's fields, or items, are one ask
    n_pairs = n_asks / (2 if has_own or parts else 2 * max(1, len(stage.rubrics)))  # a ranking's, in both orders
    n_pairs = n_pairs if one.pairs is None else len(one.pairs)
    # A row with a list of rubrics is as many rows as its list is long.
    n_rows = n_asks if isinstance(rows, SpilledRows) and rows.is_chosen else len(rows)
    return Known(stage, one.configs, n_rows, n_bytes / len(rows), n_asks, n_pairs, ask_bytes, has_own, shown_bytes)


def _sizes(draft: Draft, one: StageDraft) -> list[float]:
    """Return the mean size of a stage's prompts, and what pictures add for each of its models, if it shows any."""
    stage, prompts = one.stage, list[Prompt]()
    found = _foreseen_asks(draft, stage) if one.rows is None else chain.from_iterable(one.asks())
    asked = islice(found, _SAMPLE_ASKS)
    try:
        prompts = [prompt_of(stage, template, ask) for ask in asked for template in stage.templates]
    except StudyError:  # a template names columns that only the rows will have
        prompts = [template.text + "".join(_foreseen(draft.study, stage).values()) for template in stage.templates]
    is_seen = any(template.media for template in stage.templates)
    text, *whole = [fmean(size_bytes(one, way) for one in prompts) for way in (None, *(one.configs if is_seen else ()))]
    return [text + stage.schema_bytes, *(size - text for size in whole)]


def _foreseen_asks(draft: Draft, stage: StageSpec) -> Iterator[Ask]:
    """Yield what a stage that waits may ask, without the texts of its rows: as many as show what their columns hold."""
    empty = SourceRow("", "", "", None, "", "", more=dict.fromkeys((*OF_TALK, *KINDS.values()), ""))
    found = islice(_first_rows(draft, stage) if stage.columns else (), _SAMPLE_ASKS)
    rows = [empty._replace(more={**empty.more, **row.more}) for row in found] or [empty]
    rubrics, values = stage.rubrics[:_SAMPLE_ASKS] or (NO_RUBRIC,), _foreseen(draft.study, stage)
    for number in range(max(len(rows), len(rubrics))):
        row, other = (rows[place % len(rows)] for place in (number, number + 1))
        yield Ask(rubrics[number % len(rubrics)], row, other if stage.about.is_of_two else None, values=values)


_IDS_AT_ONCE: Final = 100_000
_TABLES: Final = ("requests", "plan", "responses", "shard_requests")


def is_as_planned(store: Store, study: Study) -> bool:
    """Whether a study and the files that it names say what its newest version in the lake says; True without one."""
    version = fold(EventLog(store).events).current_versions.get(study.name)
    with MediaSpool(store) if study.media else nullcontext() as media:
        return version is None or draft_of(store, study, registry.module, media).version == version


def plan_file(
    lake_path: Path, study_path: Path, *, clock: Clock | None = None, is_bought: bool = False, is_shown: bool = True
) -> PlanReport:
    """Plan a study file into a lake, which is made once the file is known to be good; as `plan_study`."""
    study = study_file.load(study_path)
    return plan_study(Store.init(lake_path, clock), study, is_bought=is_bought, is_shown=is_shown)


def plan_study(
    store: Store,
    study: Study,
    *,
    modules: Modules = registry.module,
    is_bought: bool = False,
    is_shown: bool = True,
) -> PlanReport:
    """Write what a study asks from the start into the lake and return what all of it would ask, at which rough cost.

    A study that `is_bought` was asked from another lake: what speaks against asking its models now, such as that they
    have ended, is no error. Without `is_shown` the lens is left to whoever goes on at once. Raises StudyError for what
    cannot be asked, BusyError when another process writes to the lake.
    """
    prices = Prices.of_lake(store.path / CONFIG, store.clock.now())
    with store.lock("plan"), MediaSpool(store) if study.media else nullcontext() as media:
        draft = draft_of(store, study, modules, media, is_bought=is_bought)
        is_known = any(one.stage.waits or one.stage.goes_on for one in draft.stages)
        foreseen = forecast([known_of(draft, one) for one in draft.stages], prices) if is_known else []
        study_row = f"p_study={study.name}/{draft.version}"
        n_before = _n_requests(store)
        is_planned = store.has(STUDIES, study_row)
        told = _told(store, draft, is_planned=is_planned)
        if not is_planned:
            check_later(store, draft)
            if media is not None:
                media.publish(store)
            _write(store, draft)
        counted = _counted(store, draft)
        if not is_planned:
            store.publish(STUDIES, study_row, [_study_row(draft, foreseen, counted.n_requests)])
        log = EventLog(store)
        is_new_version = _make_newest(store, log, draft)
        if is_shown:
            refresh.refresh(store)  # what is planned is shown, whatever its rounds come to
        if _open_rounds(store, log, draft):
            counted = _counted(store, draft)
        if is_shown:
            refresh.refresh(store)
        n_new = _n_requests(store) - n_before
    left = versions.later_shares(store, draft.version)
    foreseen = [replace(one, later=one.later.part(part)) for one in foreseen if (part := left.get(one.stage.name))]
    lengths = versions.lengths(store, draft.version)
    return _report(draft, counted, foreseen, prices, told, lengths, n_new=n_new, is_new_version=is_new_version)


def _told(store: Store, draft: Draft, *, is_planned: bool) -> set[tuple[str, str]]:
    """Return the providers, each with a mode, whose general facts an earlier plan of this lake has told."""
    if is_planned:
        return {(config.spec.provider, config.spec.mode.value) for config in draft.configs.values()}
    return set(tables.rows(store, ["plan"], "SELECT DISTINCT provider, mode FROM plan"))


def _n_requests(store: Store) -> int:
    return int(tables.rows(store, [REQUESTS.name], "SELECT count(*) FROM requests")[0][0])


def _write(store: Store, draft: Draft) -> None:
    for one in draft.stages:
        if one.rows is not None:
            asked = Grid(one.stage, one.rows, one.pairs) if one.is_grid and one.pairs is not None else one.asks()
            publish_round(
                store, draft.study, draft.version, FIRST_ROUND, one.stage, asked, configs=one.configs,
                is_only=not draft.study.has_rounds,
            )  # fmt: skip


def _counted(store: Store, draft: Draft) -> Counted:
    with tables.connect(store, _TABLES) as connection:
        return report.count(store, connection, draft.study.name, draft.version, draft.configs, draft.study.shards)


def _study_row(draft: Draft, foreseen: Sequence[Forecast], n_requests: int) -> dict[str, Any]:
    stages = draft.stages
    rules = [rule for one in stages for rule in one.stage.rule.parts.values() or (one.stage.rule,)]
    parsers = {rule.parser_id: dict(rule.to_spec()) for rule in rules}
    return {
        "study": draft.study.name,
        "study_version": draft.version,
        "config": forms.config_json(draft.study, {one.stage.name: one.later for one in foreseen}),
        "parsers": orjson.dumps(parsers, option=orjson.OPT_SORT_KEYS).decode("utf-8"),
        "n_items": sum(len(one.rows or ()) for one in stages),
        "n_pairs": _n_pairs(stages)[0],
        "n_cells": sum(one.n_cells for one in stages),
        "n_plan_rows": sum(one.n_plan_rows for one in stages),
        "n_requests": n_requests,
    }


def _n_pairs(stages: Sequence[StageDraft]) -> tuple[int, int] | tuple[None, None]:
    found = [one.pairs for one in stages if one.pairs is not None]
    return (sum(map(len, found)), sum(pairs.n_possible for pairs in found)) if found else (None, None)


def _make_newest(store: Store, log: EventLog, draft: Draft) -> bool:
    """Record that this version is the newest, or what its report says; return whether it is new, as its reader then."""
    study, version = draft.study.name, draft.version
    said = orjson.dumps(draft.study.words).decode("utf-8") if draft.study.words != Words() else None
    lake_state = fold(log.events)
    if draft.study.has_rounds and version not in lake_state.rounds:
        is_open = any(stage.waits or stage.goes_on for stage in draft.study.stages)
        log.append(round_event(store, study, version, INCOMPLETE if is_open else FINAL, {}))
    is_new_version = lake_state.current_versions.get(study) != version
    if is_new_version or lake_state.words.get(study) != said:
        reader = lake_state.readers.get(study, READER)
        log.append(Planned(study=study, study_version=version, reader=reader, words=said))
    return is_new_version


def _open_rounds(store: Store, log: EventLog, draft: Draft) -> bool:
    """Plan what answers that the lake has make possible; return whether that is anything."""
    if not draft.study.has_rounds:
        return False
    lake_state = fold(log.events)
    last, sample = lake_state.rounds[draft.version], versions.sample_of(lake_state, draft.study.name)
    if last.is_final:
        return False
    is_due = not last.is_complete or bool(lake_state.settled_since(last.ord))
    return is_due and bool(open_rounds(store, log.append, draft.study, last, sample=sample))


def _report(
    draft: Draft,
    counted: Counted,
    foreseen: Sequence[Forecast],
    prices: Prices,
    told: Collection[tuple[str, str]],
    lengths: Lengths,
    *,
    n_new: int,
    is_new_version: bool,
) -> PlanReport:
    stages = draft.stages
    cells = report.cell_reports(counted, draft.configs, lengths, prices)
    n_pairs, n_pairs_possible = _n_pairs(stages)
    compared = [([row.item_id for row in one.rows or ()], one.pairs) for one in stages if one.pairs is not None]
    stage_reports = _stage_reports(draft, cells, foreseen)
    return PlanReport(
        study=draft.study.name,
        study_version=draft.version,
        is_new_version=is_new_version,
        n_items=sum(len(one.rows or ()) for one in stages),
        n_pairs=n_pairs,
        n_pairs_possible=n_pairs_possible,
        n_cells=len(cells),
        n_plan_rows=counted.n_plan_rows,
        n_requests=counted.n_requests,
        n_shared=counted.n_plan_rows - counted.n_requests,
        n_new=n_new,
        n_answered_already=counted.n_answered,
        n_in_shards=counted.n_in_shards,
        n_to_ask=sum(cell.n_to_ask for cell in cells),
        n_shards=sum(counted.n_shards.values()),
        estimated_input_tokens=sum(cell.estimated_input_tokens for cell in cells),
        cost=total(stage.cost for stage in stage_reports),
        stages=tuple(stage_reports),
        cells=tuple(cells),
        models=tuple(report.model_reports(counted, cells)),
        dropped=tuple(draft.dropped),
        balance=balance(*compared[0]) if len(compared) == 1 else None,
        caveats=report.caveats(draft, told),
        notes=report.notes(draft, prices),
    )


def _stage_reports(draft: Draft, cells: Sequence[CellReport], foreseen: Sequence[Forecast]) -> list[StageReport]:
    later = {found.stage.name: found for found in foreseen if found.stage.waits or found.stage.goes_on}
    reports = []
    for stage in draft.study.stages:
        own = [cell for cell in cells if cell.stage == stage.name]
        n_requests = sum(cell.n_requests for cell in own)
        input_tokens = sum(cell.estimated_input_tokens for cell in own)
        cost = total(cell.cost for cell in own)
        if found := later.get(stage.name):
            n_requests, input_tokens, cost = found.n_requests, found.input_tokens, cost + found.later
        reports.append(
            StageReport(stage.name, stage.task, stage.rows.waits_for, found is not None, n_requests, input_tokens, cost)
        )
    return reports
