"""The tables of `study.toml`: each key with its type, bounds, default and meaning, written here and nowhere else.

What can be read as it stands is a record of `spec` (models, shards, budget). `stages` makes the other
records of these tables, and checks what no single value can say; `batchpond init --schema` prints them for editors.

An `inputs` stage is carried out by stages of its own, which `chain` makes: questions made, and rated, in rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from batchpond.model import Role
from batchpond.study import spec
from batchpond.study.spec import (
    TIER_MAX,
    TOKENS_MAX,
    Kept,
    ModelSpec,
    Order,
    RowsSpec,
    Select,
    Share,
    StageSpec,
    Text,
    Unsupported,
    models_of,
)
from batchpond.study.typed import Table, about, at_most, between, entries, form
from batchpond.tasks import likert, listwise, registry, templates
from batchpond.tasks.base import About, Rule
from batchpond.tasks.generation import GenerationRule
from batchpond.tasks.inputs import InputsRule
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.templates import Rubric, builtin

ENTRIES_MAX: Final = 1_000
PART_NAME: Final = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
SCALE: Final = likert.LikertRule()

Name = Annotated[str, form("[a-z0-9][a-z0-9_-]{0,63}", "a name of your own: small letters, digits, - and _")]
PartName = Annotated[str, form(PART_NAME, "letters, digits, _ . and -; at most 64")]
LongText = Annotated[str, at_most(100_000)]
Models = Annotated[tuple[spec.ModelSpec, ...], entries(ENTRIES_MAX, "who is asked")]
Repeats = Annotated[int, between(1, 1_000, "how often each question is asked")]
Literal = Annotated[tuple[Text, ...], entries(100, "words in braces that are text and no placeholders")]
Many = Annotated[int, between(1, 1_000, "inputs: how many are asked for by statement, by category, by scenario")]


@dataclass(frozen=True, kw_only=True)
class Items:
    """What is judged: exactly one of `path`, `folder` and `sql`; paths start at the study file's folder."""

    path: Annotated[LongText, about("a .csv, .tsv, .jsonl, .parquet file, or .txt with a text per line")] | None = None
    folder: Annotated[LongText, about("a folder of .txt files, each named after its id")] | None = None
    sql: Annotated[LongText, about("a query on the lake")] | None = None
    id: Annotated[Text, about("the column with the ids, each one different")] = "id"
    text: Annotated[Text, about("the column with the texts")] = "text"
    media_max_px: Annotated[int, between(32, 16_384, "pictures whose longer side has more are made smaller")] | None = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class StageItems(Items):
    """What a stage asks about: as in any study, or what an earlier stage came to."""

    stage: Annotated[Text, about("an earlier stage; failed answers are not handed on")] | None = None
    where: Annotated[Text, about("with stage: a condition on the columns of the view `results`")] | None = None
    after: Annotated[tuple[Text, ...], entries(100, "stages that must have ended first", uniqueItems=True)] | None = (
        None
    )
    rubric: Annotated[Text, about("the column that says which statement a row belongs to")] | None = None
    unit: Annotated[Text, about("the column that says what belongs together")] | None = None
    candidate: Annotated[Text, about("the column that says whose output a text is")] | None = None
    candidates: (
        Annotated[
            tuple[Text, ...], entries(100, "columns with an output each, of whom each is named", uniqueItems=True)
        ]
        | None
    ) = None
    input: Annotated[Text, about("the column with what was asked, where the text is the answer to it")] | None = None
    tier: Annotated[Text, about("the column with each row's own tier, from 1 on")] | None = None


@dataclass(frozen=True, kw_only=True)
class Pairs(spec.AdaptiveSpec):
    """Which pairs are asked: all, unless `share`, `count` or `select` says otherwise."""

    select: Annotated[Select, about("adaptive: a ranking in rounds, each asking what says most")] = Select.RANDOM
    share: Annotated[Share, about("each pair is drawn with this probability")] | None = None
    count: Annotated[int, between(1, 10**9, "pairs with the smallest draws; adaptive: judgments of a cell")] | None = (
        None
    )
    path: Annotated[LongText, about("only those of a .csv, .tsv, .jsonl or .parquet file")] | None = None
    sql: Annotated[LongText, about("only those of a query on the lake")] | None = None
    item_1: Annotated[Text, about("with path or sql: the column with the id of one item")] = "item_1"
    item_2: Annotated[Text, about("with path or sql: the column with the id of the other")] = "item_2"
    block: Annotated[Text, about("only those of items with the same value of this column")] | None = None
    order: Annotated[Order, about("which item is first; alternate: each about half of the time")] = Order.RANDOM
    reverse: Annotated[bool, about("share also asked with the items swapped")] | Share | None = None
    n_reverse: Annotated[int, between(0, 10**9, "or so many of them")] | None = None
    exact: Annotated[bool, about("meet shares exactly; left out, with path, sql or block alone")] | None = None
    baseline: Annotated[Text, about("ranking: each candidate is compared with this one alone")] | None = None
    repeats: Repeats = 1


@dataclass(frozen=True, kw_only=True)
class Lists:
    """listwise: which items are shown together, each equally often, and as often at each place."""

    size: Annotated[int, between(2, listwise.SIZE_MAX, "how many a list shows")] = 4
    count: Annotated[int, between(1, 10**7, "at most so many, of each unit if there are any")] | None = None
    reverse: Annotated[bool, about("share also asked in the opposite order")] | Share = True
    exact: Annotated[bool, about("meet that share exactly")] = False

    @property
    def as_pairs(self) -> spec.PairsSpec:
        """How a stage keeps them, but for the size."""
        return spec.PairsSpec(count=self.count, reverse=float(self.reverse), is_exact=self.exact)

    def read_by(self, rule: Rule) -> Rule:
        """Return the rule that reads answers of this size, where it is one of lists."""
        return replace(rule, size=self.size) if isinstance(rule, listwise.OrderRule) else rule


def check_lists(table: Table, stage: spec.StageSpec, source: spec.StageSpec | None) -> None:
    """Raise StudyError for what a stage of lists cannot have; `source` is the one whose answers it lists."""
    if stage.about is not About.LIST:
        table.refuse(["lists"], f"has no meaning for the task {stage.task}", 'it belongs to `task = "listwise"`')
        return
    table.inside("answer").refuse(["size"], "stands in [lists], where lists are drawn")
    if "tier" in stage.rows.columns:
        table.inside("items").fail("tier", "cannot be given: a list has items of several", "give the stage a tier")
    if stage.waits and stage.pairs.is_exact:
        table.inside("lists").fail(
            "exact", "needs all lists at once, and those of answers come as these do", "leave it out"
        )
    if stage.waits and not (source.answers_once if source else "unit" in stage.rows.columns):
        why = "cannot wait for other stages: lists of items are drawn once, and a later answer would change them all"
        table.inside("items").fail((), why, "answers of a generation stage, and SQL with a unit, can")


@dataclass(frozen=True, kw_only=True)
class RubricTable:
    """What to judge by: a built-in rubric by `use`, or one's own."""

    use: Annotated[Text, about("overall_quality or organization")] | None = None
    id: PartName | None = None
    name: Text | None = None
    description: LongText | None = None
    points: Annotated[float | None, about("what an answer that meets it earns; below 0 for a fault")] = None


@dataclass(frozen=True, kw_only=True)
class RubricsFile:
    """Statements of a file or folder."""

    path: Annotated[Text, about(".jsonl, .yaml, a folder of those, or .md (headings with {#id})")]
    points: Annotated[Text | None, about("the key of a statement with the points that it gives")] = None


@dataclass(frozen=True, kw_only=True)
class MessageTable:
    """One turn of a template."""

    role: Annotated[Role, about("the system first, if at all; then user and assistant by turns, the user last")]
    text: Annotated[str, at_most(templates.SIZE_MAX_BYTES)]


@dataclass(frozen=True, kw_only=True)
class TemplateTable:
    """How to ask: exactly one of `use`, `file`, `text` and `messages`."""

    use: Annotated[Text, about("built in; `batchpond templates` shows them")] | None = None
    id: PartName | None = None
    file: Annotated[Text, about("a text with placeholders; lines [[system]], [[user]] cut it into turns")] | None = None
    text: Annotated[str, at_most(templates.SIZE_MAX_BYTES)] | None = None
    messages: Annotated[tuple[MessageTable, ...], entries(100, "a text by its turns")] | None = None
    literal: Literal = ()


@dataclass(frozen=True, kw_only=True)
class TacticTable:
    """A tactic of pressure: built in by `use`, or one's own."""

    use: Annotated[Text, about("false_research, social_proof, ...")] | None = None
    id: Name | None = None
    category: str = ""
    phrases: Annotated[tuple[str, ...], about("in order of escalation")] = ()
    opening: Annotated[str, about("the first message of a cold start, with {QUESTION}")] = ""
    literal: Literal = ()


Rubrics = Annotated[tuple[RubricTable | str, ...], entries(ENTRIES_MAX, "what to judge by")]
Templates = Annotated[tuple[TemplateTable | str, ...], entries(ENTRIES_MAX, "how to ask: see `batchpond templates`")]
Tactics = Annotated[tuple[TacticTable | str, ...], entries(ENTRIES_MAX, "conversation: how the model is pressed")]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What to do with combinations and settings that a model does not accept, or is not known to."""

    unsupported: Annotated[Unsupported, about("drop: leave out what is known, send the rest, list all")] = (
        Unsupported.REFUSE
    )


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """What every study file says."""

    study: Name
    seed: Annotated[int, between(0, 2**63 - 1, "decides sampling and order, the same on every machine")] = 1
    grid: Grid = field(default_factory=Grid)
    shards: spec.ShardsSpec = field(default_factory=spec.ShardsSpec)
    retry: spec.RetryRules | None = None
    budget: spec.BudgetSpec = field(default_factory=spec.BudgetSpec)
    claims: spec.Claims | None = None
    report: spec.Words = field(default_factory=spec.Words)


@dataclass(frozen=True, kw_only=True)
class PairwiseFile(StudyFile):
    """A pairwise judging study without stages."""

    task: Annotated[str, about("what is asked", enum=[templates.PAIRWISE])] = templates.PAIRWISE
    items: Items
    pairs: Pairs = field(default_factory=Pairs)
    rubrics: Rubrics
    templates: Templates
    answer: PairwiseRule = field(default_factory=PairwiseRule)
    models: Models


@dataclass(frozen=True, kw_only=True)
class StageKeys:
    """What a stage says beside its name; which keys have a meaning depends on its task."""

    task: Annotated[str, about("what is asked", enum=[*registry.NAMES, spec.CONVERSATION])] = "pairwise"
    items: StageItems | None = None
    pairs: Pairs = field(default_factory=Pairs)
    lists: Lists = field(default_factory=Lists)
    rubrics: Rubrics | RubricsFile | None = None
    templates: Templates | None = None
    answer: Annotated[dict[str, Any], about("how answers are read, by task")] = field(default_factory=dict)
    models: Models
    repeats: Repeats = 1
    tactics: Tactics | None = None
    turns: Annotated[int, between(0, 50, "conversation: levels of pressure after the first answer")] = 3
    cold_start: Annotated[bool, about("conversation: the pressure stands in the first message already")] = False
    tier: Annotated[int, between(1, TIER_MAX, "batches of a smaller tier are sent before all others")] | None = None
    structured: Annotated[bool, about("hold the judge to the JSON schema of its answer, where it can be")] = False
    expected_share: Annotated[Share, about("what the forecast assumes that a choice of rows takes")] | None = None
    expected_output_tokens: Annotated[int, between(1, TOKENS_MAX, "of one answer, for the forecast")] | None = None
    categories: Many = 5
    scenarios_per_category: Many = 3
    questions_per_scenario: Many = 3
    judges: Annotated[Models, about("inputs: who rates the questions")] | None = None
    candidates: Annotated[Models, about("inputs: whose answers are rated in place of the questions")] | None = None
    keep_below: Annotated[float, between(SCALE.minimum, SCALE.maximum + 1, "inputs: of the mean rating")] = 3.0
    per_statement: Annotated[int, between(1, 1_000_000, "inputs: how many are kept of each statement at most")] = 10
    uniform: Annotated[bool, about("inputs: false: a statement may keep more than another")] = True
    promising: Annotated[Share, about("inputs: share of the scenarios that a further round goes into")] = 1 / 3
    max_rounds: Annotated[int, between(1, 10, "inputs: rounds for statements that lack questions")] = 3


@dataclass(frozen=True, kw_only=True)
class Stage(StageKeys):
    """One stage of a study: a task asked about rows, after the stages that its items name."""

    name: Name


@dataclass(frozen=True, kw_only=True)
class OneStageFile(StudyFile, StageKeys):
    """A study of one stage that is not a plain pairwise one."""


@dataclass(frozen=True, kw_only=True)
class StagesFile(StudyFile):
    """A study of several stages."""

    stages: Annotated[tuple[Stage, ...], entries(100, "what is asked, each after those it waits for")]


CHAIN_KEYS: Final = (
    "categories", "scenarios_per_category", "questions_per_scenario", "judges", "candidates", "keep_below",
    "per_statement", "uniform", "promising", "max_rounds",
)  # fmt: skip
_CHAIN_OTHERS: Final = (
    "name", "study", "seed", "grid", "shards", "retry", "budget", "claims", "report", "task", "rubrics", "models",
    "tier", "structured", "expected_share", "expected_output_tokens", *CHAIN_KEYS,
)  # fmt: skip
_SEPARATOR: Final = "."


@dataclass(frozen=True, slots=True)
class _Chain:
    """What the stages of one `inputs` stage share."""

    kept: Kept
    rubrics: tuple[Rubric, ...]
    makers: tuple[ModelSpec, ...]
    judges: tuple[ModelSpec, ...]
    candidates: tuple[ModelSpec, ...]
    counts: tuple[int, int, int]
    expected_output_tokens: int | None

    def stage(
        self, step: str, number: int | None, rows: RowsSpec, rule: Rule, template: str, models: tuple[ModelSpec, ...]
    ) -> StageSpec:
        """Return one of them, which asks by a template that batchpond brings."""
        name, templates = _name(self.kept.name, step, number), (builtin(rule.TASK)[template],)
        return StageSpec(name, rule.TASK, rows, rule, templates, models, self.rubrics)

    def made(self, step: str, place: int, rows: RowsSpec, number: int | None = None) -> StageSpec:
        """Return a step that asks for lists; what is beyond the number asked for is not taken, as it would be paid."""
        rule = InputsRule(step=step, count=self.counts[place], count_max=self.counts[place])
        found = self.stage(step, number, rows, rule, f"inputs_{step}", self.makers)
        return replace(found, expected_output_tokens=self.expected_output_tokens)


def chain(name: str, table: Table, written: StageKeys, rubrics: tuple[Rubric, ...]) -> tuple[StageSpec, ...]:
    """Return the stages that an `inputs` stage is carried out by, in order: questions made, and rated, in rounds.

    Categories of requests are asked for by statement, scenarios by category, questions by scenario; judges rate the
    questions (or, where `candidates` are named, those models' answers to them). Statements that then lack questions
    rated below `keep_below` are asked further, in the scenarios whose questions were rated lowest, up to `max_rounds`
    times. Each step is a stage of its own, `NAME.categories` to `NAME.ratings-3`, so it is planned, sent, retried and
    counted like any other; what the whole keeps is asked about by stages whose items say `stage = "NAME"`. Raises
    StudyError.
    """
    others = (key for key in table.data if key not in _CHAIN_OTHERS)
    table.refuse(others, "has no meaning where questions are made in rounds", "with items it is one step by itself")
    if not rubrics:
        table.fail((), "has no rubrics", 'say which statements the questions are to test: `rubrics.path = "..."`')
    chain = _Chain(
        kept=_kept(name, table, written),
        rubrics=rubrics,
        makers=models_of(table, "models", written.models),
        judges=models_of(table, "judges", written.judges),
        candidates=models_of(table, "candidates", written.candidates or ()),
        counts=(written.categories, written.scenarios_per_category, written.questions_per_scenario),
        expected_output_tokens=written.expected_output_tokens,
    )
    found = [chain.made("categories", 0, RowsSpec())]
    found.append(chain.made("scenarios", 1, RowsSpec(stage=found[0].name)))
    for number in range(1, written.max_rounds + 1):
        found += _round(chain, number, found[1].name)
    found[-1] = replace(found[-1], keeps=chain.kept)
    return tuple(
        replace(stage, tier=written.tier, is_structured=written.structured and stage.rule.output_schema() is not None)
        for stage in found
    )


def _kept(name: str, table: Table, written: StageKeys) -> Kept:
    lowest, below = SCALE.minimum, written.keep_below
    if below <= lowest:
        table.fail("keep_below", f"is {below:g}, so no question could be kept: ratings begin with {lowest:g}")
    if not written.promising:
        table.fail("promising", "is 0, so no round would follow the first", "write `max_rounds = 1` for that")
    share = (below - lowest) / (SCALE.maximum + 1 - lowest)
    numbers = range(1, written.max_rounds + 1)
    return Kept(
        name=name,
        questions=tuple(_name(name, "questions", number) for number in numbers),
        ratings=tuple(_name(name, "ratings", number) for number in numbers),
        below=below,
        per_statement=written.per_statement,
        is_uniform=written.uniform,
        promising=written.promising,
        expected_share=share if written.expected_share is None else written.expected_share,
    )


def _name(name: str, step: str, number: int | None = None) -> str:
    return f"{name}{_SEPARATOR}{step}" + ("" if number is None else f"-{number}")


def _round(chain: _Chain, number: int, scenarios: str) -> list[StageSpec]:
    before = replace(chain.kept, questions=chain.kept.questions[: number - 1], ratings=chain.kept.ratings[: number - 1])
    rows = RowsSpec(stage=scenarios, lacking=before if number > 1 else None)
    found = [chain.made("questions", 2, rows, number)]
    if chain.candidates:
        asked = RowsSpec(stage=found[-1].name)
        found.append(chain.stage("answers", number, asked, GenerationRule(), "question", chain.candidates))
    template, rated = "likert_json" if chain.candidates else "likert_question", RowsSpec(stage=found[-1].name)
    return [*found, chain.stage("ratings", number, rated, SCALE, template, chain.judges)]
