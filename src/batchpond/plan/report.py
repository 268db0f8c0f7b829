"""What a plan says of itself: counts, shards, tokens and a rough cost, and what an author should know before paying."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

import duckdb
import pyarrow as pa

from batchpond.lake import tables
from batchpond.lake.store import CONFIG, Store
from batchpond.model import Mode, Role
from batchpond.plan.asks import NO_RUBRIC
from batchpond.plan.cells import WISHES, Dropped, ModelConfig, model_notes, named
from batchpond.plan.items import Balance, Pairs
from batchpond.plan.prompts import BYTES_PER_TOKEN, OF_INPUT, forms_of, rubric_values
from batchpond.plan.versions import Limits, cut, limits_of, used
from batchpond.providers import registry
from batchpond.providers.shared.dialect import PAGES_UNKNOWN, PDF
from batchpond.study.prices import USUAL, Estimate, Lengths, Prices, Used, total
from batchpond.study.spec import Order, PairsSpec, ShardsSpec, StageSpec
from batchpond.tasks.base import About, Gives
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS
from batchpond.text import Shown, plural

if TYPE_CHECKING:
    from batchpond.plan.blocks import Draft, StageDraft

_FETCH_ROWS: Final = 10_000
_LACKING_MAX: Final = 5

ConfigOf = Mapping[tuple[str, str, str, str], ModelConfig]
"""The ways to ask of all stages, by stage, provider, model and thinking."""


@dataclass(frozen=True, slots=True)
class CellReport:
    """One cell; a request that cells share is counted in the first of them only.

    Its cost is learned from `n_learned_from` answers of the study; from none, it is rough.
    """

    cell_id: str
    stage: str
    template_id: str
    rubric_id: str
    provider: str
    request_model: str
    thinking: str
    n_plan_rows: int
    n_requests: int
    n_to_ask: int
    estimated_input_tokens: int
    cost: Estimate
    left_out: tuple[str, ...]
    n_learned_from: int = 0


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One provider, endpoint, model and mode; tokens, shards and cost are of what is still to be asked."""

    provider: str
    endpoint: str
    request_model: str
    mode: Mode
    n_requests: int
    n_to_ask: int
    n_shards: int
    estimated_input_tokens: int
    size_bytes: int
    cost: Estimate


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage; of one that waits for answers, others' or its own, all it will ask is a forecast (`is_forecast`).

    Tokens and cost are of what is still to be asked.
    """

    name: str
    task: str
    waits_for: tuple[str, ...]
    is_forecast: bool
    n_requests: int
    input_tokens: int
    cost: Estimate


@dataclass(frozen=True, slots=True)
class PlanReport(Shown):
    """What planning found and wrote.

    `n_requests` counts different requests that are planned by now; `n_shared` is how many plan rows reuse one of them;
    `n_new` requests were added to the lake by this run; `n_answered_already` have a successful answer; `n_in_shards`
    were put into a batch before, answered or not; `n_to_ask` is neither. `n_pairs`, `n_pairs_possible` and `balance`
    are of the stages that compare pairs of items from the start, and None where no stage does, `balance` where several
    do. `cost` is of what is to ask and of what is foreseen to follow from it. Costs are rough; None is unknown. `notes`
    are about this study; `caveats` are general facts about providers that the lake plans to ask for the first time.
    """

    study: str
    study_version: str
    is_new_version: bool
    n_items: int
    n_pairs: int | None
    n_pairs_possible: int | None
    n_cells: int
    n_plan_rows: int
    n_requests: int
    n_shared: int
    n_new: int
    n_answered_already: int
    n_in_shards: int
    n_to_ask: int
    n_shards: int
    estimated_input_tokens: int
    cost: Estimate
    stages: tuple[StageReport, ...]
    cells: tuple[CellReport, ...]
    models: tuple[ModelReport, ...]
    dropped: tuple[Dropped, ...]
    balance: Balance | None
    caveats: tuple[str, ...]
    notes: tuple[str, ...]


class Cell(NamedTuple):
    """What the lake says of one cell."""

    number: int
    cell_id: str
    stage: str
    template_id: str
    rubric_id: str
    provider: str
    endpoint: str
    request_model: str
    thinking: str
    mode: Mode
    n_plan_rows: int
    n_requests: int
    n_to_ask: int
    estimated_input_tokens: int
    size_bytes: int

    @property
    def config(self) -> tuple[str, str, str, str]:
        """What tells the way it is asked from all others of the study."""
        return self.stage, self.provider, self.request_model, self.thinking

    @property
    def model(self) -> tuple[str, str, str, Mode]:
        """Provider, endpoint, model and mode."""
        return self.provider, self.endpoint, self.request_model, self.mode


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts over a version's different requests, in all and by cell, and how many shards each model's make."""

    n_plan_rows: int
    n_requests: int
    n_answered: int
    n_in_shards: int
    cells: Sequence[Cell]
    n_shards: Mapping[tuple[str, str, str, Mode], int]
    used: Used


def count(
    store: Store, connection: duckdb.DuckDBPyConnection, study: str, version: str, configs: ConfigOf, spec: ShardsSpec
) -> Counted:
    """Return what is planned of a version.

    `connection` has views of the lake's tables. Raises UsageError for a request that no batch can hold.
    """
    values = {"study": study, "version": version}
    connection.execute(tables.query(__package__, "cells"), values)
    n_plan_rows = connection.execute("SELECT coalesce(sum(n_plan_rows), 0) FROM cells").fetchall()[0][0]
    connection.execute(tables.query(__package__, "none_asked"))
    for part in tables.parts(connection, n_plan_rows):
        connection.execute(tables.query(__package__, "asked"), values | part)
        if connection.execute(f"{_TOTALS} some_asked").fetchall()[0][2]:  # what is in no shard has no answer
            connection.execute(tables.query(__package__, "answered"))
        connection.execute("INSERT INTO asked SELECT * EXCLUDE (request_id) FROM some_asked")
    n_requests, n_answered, n_in_shards = connection.execute(f"{_TOTALS} asked").fetchall()[0]
    found = map(Cell._make, connection.execute(tables.query(__package__, "by_cell")).fetchall())
    cells = [cell._replace(mode=Mode(cell.mode)) for cell in found]
    connection.execute(tables.query(__package__, "groups"), {"per_cell": spec.per_cell})
    groups = {group: cells[number] for group, number in connection.execute(_A_CELL).fetchall()}

    def limits(rows: pa.Table) -> Limits:
        config = configs[groups[rows["group"][0].as_py()].config]
        return limits_of(config.module.DESCRIPTOR, config.spec.mode, spec.max_requests)

    to_ask = connection.sql(tables.query(__package__, "to_ask")).to_arrow_reader(_FETCH_ROWS)
    shards = cut(map(pa.Table.from_batches, ([part] for part in to_ask)), limits, spec.segments)
    n_shards = Counter(groups[rows["group"][0].as_py()].model for rows in shards)
    learned = used(store, connection, study, version)
    tables.give_back(connection)
    return Counted(n_plan_rows, n_requests, n_answered, n_in_shards, cells, n_shards, learned)


_TOTALS: Final = "SELECT count(*), count(*) FILTER (is_answered), count(*) FILTER (is_in_shard) FROM"
_A_CELL: Final = "SELECT CAST(group_number AS VARCHAR), any_value(cell_number) FROM groups GROUP BY ALL"


_OF_CELL: Final = [field.name for field in fields(CellReport) if field.name in Cell._fields]
_SUMMED: Final = ("n_requests", "n_to_ask", "estimated_input_tokens", "size_bytes")


def cell_reports(counted: Counted, configs: ConfigOf, lengths: Lengths, prices: Prices) -> list[CellReport]:
    """Return what is told of each cell."""
    found = []
    for cell in counted.cells:
        config, said = configs[cell.config], cell._asdict()
        learned = counted.used.get((cell.stage, cell.template_id, cell.provider, cell.request_model, cell.thinking))
        cost = prices.estimate(
            config.spec.priced, cell.thinking, config.settings.max_output_tokens, cell.n_to_ask,
            cell.estimated_input_tokens, lengths.get((cell.stage, cell.template_id), USUAL), learned, config.spec.cache,
        )  # fmt: skip
        own = {name: said[name] for name in _OF_CELL}
        n_learned_from = learned.n if learned and cell.n_to_ask else 0
        found.append(CellReport(**own, cost=cost, left_out=config.left_out, n_learned_from=n_learned_from))
    return found


def model_reports(counted: Counted, reports: Sequence[CellReport]) -> list[ModelReport]:
    """Return what is told of each provider, endpoint, model and mode, in the order of the study."""
    found = []
    for model in dict.fromkeys(cell.model for cell in counted.cells):
        members = [cell for cell in counted.cells if cell.model == model]
        sums = {name: sum(getattr(cell, name) for cell in members) for name in _SUMMED}
        cost = total(reports[cell.number].cost for cell in members)
        found.append(ModelReport(*model, n_shards=counted.n_shards.get(model, 0), cost=cost, **sums))
    return found


def caveats(draft: Draft, told: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Return what is to be known of the study's providers, whatever is asked, but of those and modes `told` of."""
    found = [
        f"{config.spec.provider}: {caveat}"
        for config in (config for stage in draft.stages for config in stage.configs)
        if (config.spec.provider, config.spec.mode) not in told
        for caveat in registry.caveats(config.module, config.spec.mode)
    ]
    return tuple(dict.fromkeys(found))


def notes(draft: Draft, prices: Prices) -> tuple[str, ...]:
    """Return what the study gives reason to say, each once: what makes its prompts wrong first."""
    found = [note for stage in draft.stages for note in _of_rows(stage.stage, draft)]
    found += model_notes([config for stage in draft.stages for config in stage.configs], prices)
    told = [(f"stage {one.stage.name}: " if len(draft.stages) > 1 else "", one) for one in draft.stages]
    for about, stage in told:
        found += [about + note for note in (*_of_answers(stage), *_of_statements(stage.stage), *_of_caches(stage))]
    found += _of_prices(draft.stages, prices)
    found += _of_media(draft)
    if (claims := draft.study.claims) is not None:
        claimed = ", ".join((claims.primary, *claims.secondary))
        found.append(
            f"claimed: {claimed}; kept with this plan, and the report says whether that was before anything was sent"
        )
    for about, stage in told:
        found += [about + note for note in (*_of_pairs(stage.stage.pairs, stage.pairs), *_of_configs(stage))]
    found += [
        f"stage {stage.stage.name} asks in up to {stage.stage.pairs.adaptive.rounds} rounds, each chosen by the answers"
        " before it, and stops earlier where more would not help"
        for stage in draft.stages
        if stage.stage.pairs.adaptive is not None
    ]
    return tuple(dict.fromkeys(found))


def _of_media(draft: Draft) -> Iterator[str]:
    """Yield for which models nobody says how many tokens of what is shown, so that a forecast counts it as large."""
    if unread := [one for one in draft.media if one.media_type == PDF and not (one.n_pages or one.url)]:
        text = f"{plural(len(unread), 'document')}: nobody can tell how many pages they have, so each counts as"
        yield f"{text} {PAGES_UNKNOWN}; if none is damaged, `pip install 'batchpond[images]'` brings what counts them"
    for config in draft.configs.values():
        counted = [config.module.sight.tokens(config.spec.model, one) for one in draft.media if one not in unread]
        if unknown := [n_tokens for n_tokens, is_known in counted if not is_known]:
            text = f"{named(config.spec)}: it is not documented how many tokens {len(unknown):,} of {len(counted):,}"
            yield f"{text} pictures and documents are: each is counted as {min(unknown):,} to {max(unknown):,}"


def _of_rows(stage: StageSpec, draft: Draft) -> Iterator[str]:
    yield from _of_inputs(stage)
    yield from _of_outputs(stage, draft)
    yield from _of_rubrics(stage, draft)
    yield from _of_lone(stage, draft)
    yield from _of_repeats(stage, draft)


def _of_inputs(stage: StageSpec) -> Iterator[str]:
    """Yield what is wrong where answers of a file are judged and none says what it is the answer to."""
    if "input" in stage.rows.columns or not (stage.rows.items or stage.rows.sql):
        return
    for template in stage.templates:
        asked = [name for name in sorted(OF_INPUT) if f"{{{name}}}" in template.text]
        if asked and "{OUTPUT" in template.text:
            yield (
                f"stage {stage.name}: template {template.template_id} shows each answer as its own {{{asked[0]}}}: say"
                " which column has what was asked, with `input = ...` beside `path` or `sql`"
            )


def _of_rubrics(stage: StageSpec, draft: Draft) -> Iterator[str]:
    """Yield which rubrics nothing is asked by: what an earlier stage chose is judged again by the same ones."""
    source = next((one.stage for one in draft.stages if one.stage.name == stage.rows.stage), None)
    if source is None or stage.rule.parts or not (shared := stage.shared_rubrics(source)):
        return
    if lacking := [one.rubric_id for one in stage.rubrics if one.rubric_id not in shared]:
        yield (
            f"stage {stage.name}: nothing is asked by {', '.join(lacking)}, as stage {source.name} chose nothing by"
            " that: a stage that has none of its rubrics judges all that it chose, by all of its own"
        )


def _of_lone(stage: StageSpec, draft: Draft) -> Iterator[str]:
    """Yield by which rubrics no row is judged, and on how many inputs a ranking has nothing to compare."""
    rows = next(one.rows for one in draft.stages if one.stage is stage)
    is_ranking, baseline = stage.about is About.CANDIDATES, stage.pairs.baseline
    if not rows or not (is_ranking or "rubric" in stage.rows.columns):
        return
    met: dict[tuple[str, str | None], set[str | None]] = {}
    for row in rows:
        for name in (row.judged_by if not is_ranking else None) or (row.rubric_id,):
            met.setdefault((row.unit_id if is_ranking else "", name), set()).add(row.candidate)
    fit = {one for one, has in met.items() if not is_ranking or (len(has) > 1 and baseline in {None, *has})}
    if n_lone := len(met) - len(fit):
        what = f"{baseline} and another" if baseline else "two candidates"
        of_all = f"{n_lone:,} of {plural(len(met), 'input')}"
        yield f"stage {stage.name}: nothing is compared on {of_all}: no answers of {what}"
    asked = {rubric_id for _, rubric_id in fit}
    if None not in asked and (lacking := [one.rubric_id for one in stage.rubrics if one.rubric_id not in asked]):
        shown = ", ".join([*lacking[:_LACKING_MAX], *(["..."] if len(lacking) > _LACKING_MAX else [])])
        yield f"stage {stage.name}: nothing is asked by {plural(len(lacking), 'rubric')}, {shown}"


_SHOWS_OUTPUT: Final = re.compile(r"\{#?(?:OUTPUT|SAMPLE|CONVERSATION|answers\.)")


def _of_outputs(stage: StageSpec, draft: Draft) -> Iterator[str]:
    """Yield which templates judge what an earlier stage answered and show nothing of it."""
    source = next((one.stage for one in draft.stages if one.stage.name == stage.rows.stage), None)
    if source is None or source.gives is not Gives.OUTPUT or stage.gives is Gives.OUTPUT:
        return
    for template in stage.templates:
        if not _SHOWS_OUTPUT.search(template.text):
            yield (
                f"stage {stage.name}: template {template.template_id} shows no answer of stage {source.name}, only what"
                f" was asked there: {{OUTPUT}} shows it, or {{answers.{source.name}.text}}"
            )


def _of_repeats(stage: StageSpec, draft: Draft) -> Iterator[str]:
    """Yield which answers of other stages stand in a prompt several times over, as these ask so often."""
    times = {one.stage.name: one.stage.repeats for one in draft.stages}
    for name, (source, _) in stage.answers.items():
        if (n := times[source]) > 1:
            text = f"stage {stage.name}: {{{name}}} shows all {n} answers, one after the other, as stage {source} asks"
            yield f"{text} each question {n} times; to show one, name a stage without repeats"


def _of_answers(draft: StageDraft) -> Iterator[str]:
    rule = draft.stage.rule
    if not isinstance(rule, PairwiseRule):
        return
    for template in draft.stage.templates:
        has_answers = all(f"{{{name}}}" in template.text for name in rule.values())
        if not has_answers and not all(answer in template.text for answer in rule.answers):
            *most, last = rule.answers
            number = ("two", "three", "four", "five")[len(most) - 1]
            yield (
                f"template {template.template_id} does not spell out the {number} answers; "
                f"a reply counts only if it holds exactly one of {', '.join(most)} and {last}"
            )


def _of_statements(stage: StageSpec) -> Iterator[str]:
    """Yield what templates say of statements that none of the stage's rubrics has, so that it stands empty."""
    for template in stage.templates if stage.rubrics else ():
        shown = [name for name in STATEMENT_PLACEHOLDERS if f"{{{name}}}" in template.text]
        if empty := [f"{{{name}}}" for name in shown if not any(rubric_values(one).get(name) for one in stage.rubrics)]:
            yield (
                f"template {template.template_id} shows {', '.join(empty)}, which no rubric here has: nothing stands"
                f" there in any prompt; `batchpond templates --task {stage.task}` has others"
            )


def _of_caches(draft: StageDraft) -> Iterator[str]:
    """Yield which texts providers would cache if they stood before what varies: they do what prompts begin with."""
    stage, known = draft.stage, {config.module.DESCRIPTOR.cache_min_tokens for config in draft.configs} - {0}
    values = rubric_values((*stage.rubrics, NO_RUBRIC)[0]) | stage.rule.values()
    marking = {one.spec.model: one.module.kept_from(one.spec.model) for one in draft.configs if one.spec.cache}
    for template in stage.templates if marking else ():
        if template.turns[0].role is not Role.SYSTEM:
            yield f"template {template.template_id} has no [[system]], so that nothing of it is marked for a cache"
            continue
        n_marked = forms_of(stage, template, values, ())[0].n_bytes // BYTES_PER_TOKEN
        for model, least in marking.items():
            if n_marked < least:
                yield (
                    f"template {template.template_id} has a [[system]] of about {n_marked:,} tokens, and {model} keeps"
                    f" nothing in a cache that is shorter than {least:,}: the mark does nothing there"
                )
    for template in stage.templates if known else ():
        forms, least = forms_of(stage, template, values, ()), min(known)
        texts = [(text.n_bytes, name) for form in forms for text, name in zip_longest(form.texts, form.names)]
        first = next((at for at, (_, name) in enumerate(texts) if name), len(texts) - 1)
        n_first, n_all = (sum(size for size, _ in some) // BYTES_PER_TOKEN for some in (texts[: first + 1], texts))
        if n_all - (n_first if n_first >= least else 0) >= least:
            name = (texts[first][1] or "").partition("}")[0]
            yield (
                f"template {template.template_id}: {{{name}}} varies and stands before {n_all - n_first:,} of about"
                f" {n_all:,} tokens that are the same in every request: placed first they could be read from a cache,"
                f" at a lower price, from {least:,} on"
            )


def _of_prices(drafts: Sequence[StageDraft], prices: Prices) -> Iterator[str]:
    specs = (spec for draft in drafts for spec in draft.stage.models)
    for asked in dict.fromkeys(spec.priced for spec in specs):
        if prices.unit(asked) is None:
            yield (
                f"no {asked.mode} price is known for {asked.provider}/{asked.model}, so its cost is unknown; "
                f'set it under [prices."{asked.override}"] in the lake\'s {CONFIG}'
            )
    if any(config.settings.max_output_tokens is None for draft in drafts for config in draft.configs):
        yield "without max_output_tokens the worst cost is unknown"


def _of_pairs(spec: PairsSpec, pairs: Pairs | None) -> Iterator[str]:
    if pairs is None:
        return
    is_adaptive = spec.adaptive is not None
    n_wanted, n_orders = spec.count or 0, 2 if is_adaptive else 1
    if n_wanted > pairs.n_possible * n_orders:
        end = "each is asked at most once in each order" if is_adaptive else "all are asked"
        yield f"pairs.count is {n_wanted:,}, but there are only {pairs.n_possible:,} pairs; {end}"
    if spec.order is Order.FIXED and spec.reverse < 1:
        yield "with a fixed order and not every pair reversed, position and item cannot be told apart"


def _of_configs(draft: StageDraft) -> Iterator[str]:
    for config in {config.fingerprint: config for config in draft.configs}.values():
        if names := ", ".join(name for name in config.left_out if name in WISHES):
            yield f"{named(config.spec)} at thinking {config.thinking} does not take {names}; left out"
