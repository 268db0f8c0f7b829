"""What a study file says, checked: frozen records, each named after its part of `study.toml`.

The annotations of those that are tables of the file are its schema, as those of `tables` are. A stage asks one task
about rows: of a file, of SQL on the lake, or of what an earlier stage came to. Everything that a later round needs is
kept with the plan in the lake, so that `sync` opens it on any machine.

Nothing here reads a file; `file` parses and loads, `items` reads what a study names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import orjson

from batchpond.errors import LakeError
from batchpond.model import ErrorClass, Mode, PricedModel
from batchpond.study.typed import Table, about, at_most, between, entries, form, of_plain
from batchpond.tasks import registry
from batchpond.tasks.base import About, Gives, Rule
from batchpond.tasks.pressure import Tactic
from batchpond.tasks.templates import ANSWERS, PAIR_SIDES, PAIRWISE, Rubric, Template

THINKING_DEFAULT = "default"
HALF = 0.5
TOKENS_MAX = 10_000_000


class ItemsFrom(StrEnum):
    """Where a study's items are read from."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    LINES = "lines"
    FOLDER = "folder"
    SQL = "sql"


class Select(StrEnum):
    """How the pairs that are asked are chosen: all at once, or in rounds by what was judged before."""

    RANDOM = "random"
    ADAPTIVE = "adaptive"


class Order(StrEnum):
    """Which item of a pair is shown first in the forward direction."""

    RANDOM = "random"
    FIXED = "fixed"
    ALTERNATE = "alternate"


class Unsupported(StrEnum):
    """What to do with a combination that a model does not accept."""

    REFUSE = "refuse"
    DROP = "drop"


Text = Annotated[str, at_most(10_000)]
Share = Annotated[float, between(0, 1)]


CANDIDATE: Final = "candidate"
UNIT: Final = "unit"
"""The columns of items that stand several in a row: whose output it is, and unless there is one the id of the row."""


@dataclass(frozen=True, slots=True)
class ItemsSpec:
    """Where the items are; `location` is a path as written, or the SQL text.

    No side of a picture among them is shown with more than `media_max_px` pixels. With `candidates` each row is an item
    for each of these columns, which are in the place of the text: the output of whom the column is named after.
    """

    source: ItemsFrom
    location: str
    id_column: str = "id"
    text_column: str = "text"
    media_max_px: int | None = None
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdaptiveSpec:
    """How pairs are chosen in rounds by what was judged before.

    Each item is in `first_per_item` pairs of round 1 and in about `per_item` of each later one; beside those, a share
    `holdout` is asked at random and kept from all choices. `top_k` looks only for the best so many. A cell stops
    early when the median gap of neighbours is `stop_gap_z` standard errors and the median rank interval
    `stop_rank_width` places (of what is given, all), or with `stop_stale` when held-out pairs are foretold no better.
    """

    rounds: Annotated[int, between(1, 50, "adaptive: at most so many rounds")] = 6
    first_per_item: Annotated[int, between(1, 100, "adaptive: pairs of each item in round 1")] = 4
    per_item: Annotated[int, between(1, 100, "adaptive: about so many pairs of each item in a later round")] = 3
    holdout: Annotated[float, between(0, HALF, "adaptive: share asked at random that no choice looks at")] = 0.1
    top_k: Annotated[int, between(1, 10**6, "adaptive: look only for the best so many")] | None = None
    stop_gap_z: Annotated[float, between(0, 1e6, "adaptive: stop at a gap of so many standard errors")] | None = None
    stop_rank_width: Annotated[float, between(1, 1e6, "adaptive: stop at so narrow rank intervals")] | None = None
    stop_stale: Annotated[bool, about("adaptive: stop when held-out pairs are foretold no better")] = True


@dataclass(frozen=True, slots=True)
class PairsSpec:
    """Which pairs are asked and in which order; at most one of `share` and `count` is set.

    They are chosen of those that `given` names, by the two ids in its columns, or of items with the same value of the
    column `block`. With `is_exact` shares are met exactly, else by a draw of each pair; `n_reverse` is in `reverse`'s
    place.
    Of lists, `count`, `reverse` and `is_exact` are set alone, and their size is the answer rule's; of a ranking
    `baseline` alone, the candidate with whom all others are compared.
    With `adaptive`, `count` is the most judgments of a cell and `reverse` the share that is asked in the other order.
    """

    share: float | None = None
    count: int | None = None
    order: Order = Order.RANDOM
    reverse: float = 1.0
    repeats: int = 1
    adaptive: AdaptiveSpec | None = None
    given: ItemsSpec | None = None
    block: str | None = None
    n_reverse: int | None = None
    is_exact: bool = False
    baseline: str | None = None


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """A template by id: built in (`text` and `file` are None), given as text, or in a file.

    The words of `literal` stand in braces and are meant as text.
    """

    template_id: str
    text: str | None = None
    file: str | None = None
    literal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model with the thinking levels it is asked at; `endpoint` None leaves it to the provider."""

    provider: Annotated[str, form("[a-z][a-z0-9_-]{0,31}", "who is asked")]
    model: Annotated[str, form(r"[^\s\x00-\x1f\x7f]{1,200}", "the provider's name of it")]
    thinking: Annotated[
        tuple[Text, ...], entries(1_000, "levels, each a cell; a number is tokens", uniqueItems=True)
    ] = (THINKING_DEFAULT,)
    include_thoughts: Annotated[bool, about("keep reasoning summaries, where the endpoint has them")] = False
    max_output_tokens: Annotated[int, between(1, TOKENS_MAX, "the estimate's worst case has as many")] | None = None
    temperature: Annotated[float, between(0, 2)] | None = None
    endpoint: Annotated[str, at_most(200, "left out, what the model and its thoughts need")] | None = None
    mode: Annotated[Mode, about("by batches, one call per request, or files")] = Mode.BATCH
    parameters: Annotated[dict[str, Any], about("passed through as they are")] = field(default_factory=dict)
    parameters_unchecked: Annotated[bool, about("also those that batchpond does not know of")] = False
    cache: Annotated[str, at_most(9, "how long the system prompt is marked to be kept, as 5m or 1h")] | None = None

    @property
    def priced(self) -> PricedModel:
        """What its prices depend on."""
        return PricedModel(self.provider, self.model, self.mode)


@dataclass(frozen=True, slots=True)
class ShardsSpec:
    """How requests are cut into batches, within the provider's own limits."""

    max_requests: Annotated[int, between(1, TOKENS_MAX, "at most so many in a batch")] | None = None
    segments: Annotated[int, between(1, 100_000, "or so many batches of equal size")] | None = None
    per_cell: Annotated[bool, about("never two cells in one batch")] = False


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Which failures may be asked again, and in how many batches a request may be in all."""

    max_attempts: Annotated[int, between(1, 20, "batches that a request may be in, in all")] = 3
    classes: Annotated[tuple[ErrorClass, ...], entries(100, "kinds of failures", uniqueItems=True)] = (
        ErrorClass.TRANSIENT,
        ErrorClass.EXPIRED,
    )


@dataclass(frozen=True, slots=True)
class RetrySpec(RetryRules):
    """The same; `is_automatic` lets `sync` ask again by itself, within what was approved."""

    is_automatic: bool = False


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """What the study may cost; None leaves it to the approval."""

    max_cost_usd: Annotated[float, between(0, 1e9, "`submit` refuses to go beyond")] | None = None


CLAIMABLE: Final = (
    "position", "consistency by template", "consistency by judge", "win matrix", "length", "compliance", "points",
)  # fmt: skip
"""The tests of a report, as its table of all tests names them."""
_Claim = Annotated[str, about("a test of the report", enum=[*CLAIMABLE])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a study is to show, written down before anything is sent; the report marks what was and what was not."""

    primary: _Claim
    secondary: Annotated[tuple[_Claim, ...], entries(len(CLAIMABLE), "what else is claimed", count_min=0)] = ()
    hypothesis: Annotated[Text, about("what is expected, in words")] | None = None
    effect: Annotated[float, between(0, 1, "the smallest effect worth finding, as a difference of shares")] | None = (
        None
    )
    stop: Annotated[Text, about("when no more is asked")] = "everything that was planned is answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a report says of its study beside the data; nothing of it is asked, so a change of it is no new version."""

    title: Annotated[str, at_most(300, "what the report is called; left out, as the study")] | None = None
    authors: Annotated[tuple[Annotated[str, at_most(200)], ...], entries(200, "who made the study, in order")] = ()
    notes: Annotated[Text, about("what readers are to know first; an empty line ends a paragraph")] | None = None


MAIN_STAGE = "main"
CONVERSATION = "conversation"
"""The task of stages that ask on, turn by turn; what is said in them is read as an output is."""
_ANSWER: Final = re.compile(rf"(?:(?:{'|'.join(PAIR_SIDES)})\.)?{ANSWERS}\.([^.]*)(?:\.(.*))?")
TIER_MAX = 1_000


def pairs_config(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the plain values of pairs without what came later and is not said: so their study keeps its version."""
    later = ("adaptive", "given", "block", "n_reverse", "is_exact", "baseline")
    return {name: value for name, value in plain.items() if name not in later or value not in (None, False)}


def without_checks(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a study's or stage's plain values without what only told `plan` what not to check, or came later."""
    for model in plain["models"]:
        del model["parameters_unchecked"]
        if model["cache"] is None:
            del model["cache"]
    for template in plain["templates"]:
        template.pop("literal", None)
    items = plain["items"] if "items" in plain else plain["rows"]["items"]
    for name in ("media_max_px", "candidates") if items is not None else ():
        if not items[name]:
            del items[name]
    return plain


@dataclass(frozen=True, slots=True)
class Kept:
    """Which of the questions that were made by rounds, and rated, are kept: of the `inputs` stage `name` of a file.

    Those of the stages `questions` whose mean rating by the stages `ratings`, one of each a round, is below `below`:
    at most `per_statement` of each statement, and with `is_uniform` of every statement as many as of the one that has
    fewest. A further round goes into the share `promising` of a statement's scenarios. The forecast of the cost
    assumes that `expected_share` of all questions are rated low enough.
    """

    name: str
    questions: tuple[str, ...]
    ratings: tuple[str, ...]
    below: float
    per_statement: int
    is_uniform: bool
    promising: float
    expected_share: float


@dataclass(frozen=True, slots=True)
class RowsSpec:
    """Where a stage's rows come from: `items`, `stage`, `sql` or `kept`; where none is set, they are its own rubrics.

    `where` is an SQL condition on what the stage `stage` came to; with `lacking`, its rows are asked about only as
    far as their statements lack questions by then. The columns are those of files and SQL that say which rubric,
    unit (prompt) and candidate (model) a row belongs to, where there are any; of a stage's answers, the one of its
    questions that says by which rubrics they are judged.
    """

    items: ItemsSpec | None = None
    stage: str | None = None
    sql: str | None = None
    where: str | None = None
    after: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    kept: Kept | None = None
    lacking: Kept | None = None

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The stages whose answers are needed before the rows can be read."""
        rated = self.kept or self.lacking
        names = ((self.stage,) if self.stage else ()) + self.after + (rated.ratings if rated else ())
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class StageSpec:
    """One part of a study: what is asked, of whom, about which rows.

    A conversation goes on for `turns` levels of pressure after the first answer, once per tactic. The forecast of
    the cost assumes that a choice (`rows.where`, SQL) takes `expected_share` of the rows, and that an answer has
    `expected_output_tokens` (None: the usual). `keeps` is what the chain of stages keeps that this one ends.
    Rows without a tier of their own are of the stage's `tier`; the smallest is sent first.
    """

    name: str
    task: str
    rows: RowsSpec
    rule: Rule
    templates: tuple[Template, ...]
    models: tuple[ModelSpec, ...]
    rubrics: tuple[Rubric, ...] = ()
    pairs: PairsSpec = field(default_factory=PairsSpec)
    repeats: int = 1
    tactics: tuple[Tactic, ...] = ()
    turns: int = 0
    is_cold_start: bool = False
    expected_share: float = 1.0
    expected_output_tokens: int | None = None
    keeps: Kept | None = None
    tier: int | None = None
    is_structured: bool = False

    @property
    def about(self) -> About:
        """What one of its questions is about."""
        return About.TALK if self.task == CONVERSATION else self.rule.ABOUT

    @property
    def gives(self) -> Gives:
        """What its answers are to later stages."""
        return self.rule.GIVES

    @property
    def answers_once(self) -> bool:
        """Whether each of its rows has an output, which later stages judge, and no talk about it."""
        return self.about is About.ROW and self.gives is Gives.OUTPUT

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema that answers are held to, where the study wants that."""
        return self.rule.output_schema() if self.is_structured else None

    @property
    def wants(self) -> dict[str, Any]:
        """What its rule wants of every answer, as settings of its models: a schema, log probabilities."""
        is_expected = any(one.allowed for one in (self.rule, *self.rule.parts.values()))
        return {"output_schema": self.output_schema, "logprobs": is_expected}

    @property
    def schema_bytes(self) -> int:
        """How much of a request the schema is; providers count it as input."""
        return len(json.dumps(self.output_schema)) if self.is_structured else 0

    @property
    def columns(self) -> frozenset[str]:
        """The columns that its templates show or ask for, as they stand in braces."""
        return frozenset(name for template in self.templates for name in template.columns)

    @property
    def answers(self) -> dict[str, tuple[str, str]]:
        """Stage and column of each answer of an earlier stage that its templates show, by the word in braces."""
        found = ((name, _ANSWER.fullmatch(name)) for name in sorted(self.columns))
        return {name: (match[1], match[2] or "") for name, match in found if match}

    @property
    def waits(self) -> bool:
        """Whether its rows depend on answers of other stages."""
        return bool(self.rows.waits_for)

    @cached_property
    def rubric_places(self) -> dict[str, int]:
        """Where each rubric stands among them, by id: a row names its own."""
        return {rubric.rubric_id: place for place, rubric in enumerate(self.rubrics)}

    def shared_rubrics(self, source: StageSpec) -> frozenset[str]:
        """Return the rubrics by which it asks again about what an earlier stage chose; with none, all of its own do."""
        own, others = ({rubric.rubric_id for rubric in stage.rubrics} for stage in (self, source))
        return frozenset(own & others)

    @property
    def goes_on(self) -> bool:
        """Whether its own answers lead to further rounds of it."""
        return self.about is About.TALK or self.pairs.adaptive is not None

    @property
    def n_later_rounds(self) -> int:
        """How many rounds its own answers can lead to at most."""
        return self.turns if self.pairs.adaptive is None else self.pairs.adaptive.rounds - 1


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study; relative paths in it start at `base_path`.

    Pairs that are asked all at once have `templates` as their file says them: a lake keeps such a study without stages.
    """

    name: str
    stages: tuple[StageSpec, ...]
    seed: int = 1
    unsupported: Unsupported = Unsupported.REFUSE
    shards: ShardsSpec = field(default_factory=ShardsSpec)
    retry: RetrySpec = field(default_factory=RetrySpec)
    budget: BudgetSpec = field(default_factory=BudgetSpec)
    claims: Claims | None = None
    words: Words = field(default_factory=Words)
    source: str = "study.toml"
    base_path: Path = Path()
    templates: tuple[TemplateSpec, ...] = ()

    @property
    def has_rounds(self) -> bool:
        """Whether the lake keeps it as stages, which `sync` looks at for further rounds."""
        return not self.templates

    @property
    def is_pairs_alone(self) -> bool:
        """Whether it is nothing but pairs of a file's items, so that its items and cells need no stage to be told."""
        if len(self.stages) != 1:
            return False
        (stage,) = self.stages
        is_of_items = stage.rows.items is not None and set(stage.rows.columns) <= {"tier"}
        return (stage.name, stage.task) == (MAIN_STAGE, PAIRWISE) and is_of_items

    @property
    def media(self) -> frozenset[str]:
        """The columns of items that any template shows as pictures and documents."""
        return frozenset().union(*(template.media for stage in self.stages for template in stage.templates))

    def has_alike(self, stage: StageSpec) -> bool:
        """Whether another stage asks in the same words and the same models, so that both may have a request."""
        others = [one for one in self.stages if one.task == stage.task and one.name != stage.name]
        texts, names = ({*found} for found in _asked(stage))
        return any(texts & {*of_other} and names & {*by} for of_other, by in map(_asked, others))

    def stage(self, name: str) -> StageSpec:
        """Return the stage of a name; raises StopIteration where there is none, which `study` rules out."""
        return next(stage for stage in self.stages if stage.name == name)

    def place_of(self, stage: StageSpec) -> str:
        """Return what an error about a stage begins with: the study's file and, where there are several, its name."""
        return self.source if self.is_pairs_alone else f"{self.source}: stage {stage.name}"


def _asked(stage: StageSpec) -> tuple[list[str], list[tuple[str, str]]]:
    return [one.template_hash for one in stage.templates], [(one.provider, one.model) for one in stage.models]


def models_of(table: Table, name: str, written: tuple[ModelSpec, ...] | None) -> tuple[ModelSpec, ...]:
    """Return models that can be told apart."""
    if written is None:
        table.fail(name, "is missing")
    table.refuse_twice(name, [f"{m.provider}/{m.model} with thinking {t!r}" for m in written for t in m.thinking])
    return written


def with_answers(table: Table, stage: StageSpec, earlier: Sequence[StageSpec]) -> StageSpec:
    """Return a stage that waits for those whose answers its templates show; raises StudyError for one not to be had."""
    stages = {one.name: one for one in earlier}
    shown = [one for one in earlier if one.about is not About.TALK and one.gives is not Gives.ROWS]
    known = {one.name: dict.fromkeys((*one.rule.says, *one.rule.parts)) for one in shown}
    for name, (asked, column) in stage.answers.items():
        if column not in known.get(asked, ()):
            words = [f"{{{ANSWERS}.{one}.{said}}}" for one, says in known.items() for said in says]
            why = "which no earlier stage answers (conversations and made questions cannot be shown)"
            hint = f"there are: {', '.join(words) or 'none'}"
            if any(one.name == asked and one.about is About.TALK for one in earlier):
                hint = f'`stage = "{asked}"` shows {{OUTPUT}}, {{item.conversation}}, {{item.first_output}}; {hint}'
            table.fail("templates", f"show {{{name}}}, {why}", hint)
        if not stage.waits:
            hint = f'take those that it was asked about: `stage = "{asked}"`; or `sql` with `after = ["{asked}"]`'
            table.fail("items", f"are read when the study is planned, before {asked} has answered", hint)
        if other := _other_than(name, stage, stages[asked], stages):
            hint = "what was said of the same items in the same order, or of their unit, can be shown"
            if stage.about.is_of_two and not stages[asked].about.is_of_two:
                hint = f"of each of two: {{{stage.rule.placeholders.sides[0]}.{name}}}; {hint}"
            table.fail("templates", f"show {{{name}}}, which {asked} says {other}: nothing would be asked", hint)
    named = dict.fromkeys(asked for asked, _ in stage.answers.values() if asked not in stage.rows.waits_for)
    return replace(stage, rows=replace(stage.rows, after=(*stage.rows.after, *named)))


def _other_than(name: str, stage: StageSpec, asked: StageSpec, stages: Mapping[str, StageSpec]) -> str | None:
    """Return of what `asked` says an answer where that is nothing that a stage asks about, None where it can be."""
    is_of_two = stage.about.is_of_two and name.startswith(ANSWERS)
    own, of = stage.pairs, asked.pairs
    if asked.about.is_of_two:
        is_alike = own.order is of.order is not Order.ALTERNATE and not (of.given or of.is_exact or own.adaptive)
        is_in_order = not of.adaptive and (of.reverse == 1 or (is_alike and own.reverse <= of.reverse))
        is_part = all(f"{{#{name}}}" in template.text for template in stage.templates)
        if is_of_two:
            return None if is_in_order or is_part else "in fewer orders than this stage asks in"
        return "of two items at once"
    of_row, of_asked = (made_by(one, stages) for one in (stage, asked))
    is_of_unit = of_row.gives is Gives.OUTPUT and (of_asked is asked or of_asked.gives is not Gives.OUTPUT)
    is_alone = not (is_of_two or stage.rule.size > 1)
    return None if is_alone or is_of_unit or "unit" in of_row.rows.columns else "of each item by itself"


def label_of(provider: str, model: str, thinking: str, template_id: str, *, n_templates: int) -> str:
    """Return what tells one way to ask from the others of a stage; a model's own outputs go on under that name."""
    label = f"{provider}/{model}" if thinking == THINKING_DEFAULT else f"{provider}/{model}@{thinking}"
    return label if n_templates == 1 else f"{label}#{template_id}"


def candidates_of(stage: StageSpec) -> list[str]:
    """Return under which names the outputs of a stage go on."""
    ways = [(one.provider, one.model, level) for one in stage.models for level in one.thinking]
    n = len(stage.templates)
    return [label_of(*way, template.template_id, n_templates=n) for way in ways for template in stage.templates]


def made_by(stage: StageSpec, stages: Mapping[str, StageSpec]) -> StageSpec:
    """Return the stage whose answers a stage's rows are, or where they are items the stage that they are read for."""
    source = stages.get(stage.rows.kept.questions[0] if stage.rows.kept else stage.rows.stage or "")
    if source is None or source.gives is not Gives.JUDGMENT:
        return source or stage
    return made_by(source, stages)


_SETTINGS: Final = ("name", "seed", "unsupported", "shards", "retry", "budget")
_OF_RUBRIC: Final = fields(Rubric)  # `asdict` would copy each text of thousands
_STAGE: Final = {key.name for key in fields(StageSpec)} - {"keeps", "tier", "is_structured"}
"""What every stage in a lake has; the others came later."""


def to_config(study: Study) -> dict[str, Any]:
    """Return a study as `studies.config` keeps it: plain values, without where on this machine it was read from.

    They are enough to open every later round from the lake alone.
    """
    plain = asdict(replace(study, stages=()))
    del plain["source"], plain["base_path"], plain["templates"], plain["words"]
    if study.claims is None:  # they came later: a study without them keeps its version
        del plain["claims"]
    return {**plain, "stages": [_stage_config(stage) for stage in study.stages]}


def to_json(study: Study) -> str:
    """Return `to_config` as text, the same for the same study."""
    return orjson.dumps(to_config(study), option=orjson.OPT_SORT_KEYS).decode("utf-8")


def _stage_config(stage: StageSpec) -> dict[str, Any]:
    plain = without_checks(asdict(replace(stage, rubrics=())))
    plain["rubrics"] = tuple({key.name: getattr(one, key.name) for key in _OF_RUBRIC} for one in stage.rubrics)
    plain["rule"] = dict(stage.rule.to_spec())
    plain["pairs"] = pairs_config(plain["pairs"])
    # Columns came later: a template without them is kept as ever, so that its study keeps its version.
    plain["templates"] = [[t.template_id, t.text, *([t.columns] if t.columns else [])] for t in stage.templates]
    return plain


def from_config(config: Mapping[str, Any]) -> Study:
    """Return the study that `to_config` wrote; raises LakeError when it is damaged."""
    try:
        stages = [_with_named_texts(entry) for entry in config["stages"]]
        known = {name: config[name] for name in _SETTINGS}
        plain = {**known, "claims": config.get("claims"), "stages": stages, "source": f"study {config['name']}"}
        return of_plain(plain, Study, lambda _, rule: registry.rule_of(rule))
    except (KeyError, TypeError, ValueError) as error:
        raise LakeError(
            f"a study's settings in the lake are damaged: {type(error).__name__}: {error}",
            hint="plan the study again: `batchpond plan FILE`",
        ) from None


def spec_of_plain(model: Mapping[str, Any]) -> ModelSpec:
    """Return one model of a study's settings in the lake; raises LakeError when it is damaged."""
    try:
        return of_plain(dict(model), ModelSpec, lambda kind, value: kind(value))
    except (TypeError, ValueError) as error:
        raise LakeError(f"a study's model in the lake is damaged: {error}") from None


def _with_named_texts(entry: Mapping[str, Any]) -> dict[str, Any]:
    if lacking := sorted(_STAGE - entry.keys()):
        raise KeyError(lacking[0])
    named = [dict(zip(("template_id", "text", "columns"), one, strict=False)) for one in entry["templates"]]
    return {**entry, "templates": named}
