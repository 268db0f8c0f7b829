"""The stages that an `inputs` stage is carried out by: questions made, and rated, in rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from batchpond.study import tables
from batchpond.study.spec import Kept, ModelSpec, RowsSpec, StageSpec, models_of
from batchpond.study.typed import Table
from batchpond.tasks.base import Rule
from batchpond.tasks.generation import GenerationRule
from batchpond.tasks.inputs import InputsRule
from batchpond.tasks.templates import Rubric, builtin

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


def chain(name: str, table: Table, written: tables.StageKeys, rubrics: tuple[Rubric, ...]) -> tuple[StageSpec, ...]:
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


def _kept(name: str, table: Table, written: tables.StageKeys) -> Kept:
    lowest, below = tables.SCALE.minimum, written.keep_below
    if below <= lowest:
        table.fail("keep_below", f"is {below:g}, so no question could be kept: ratings begin with {lowest:g}")
    if not written.promising:
        table.fail("promising", "is 0, so no round would follow the first", "write `max_rounds = 1` for that")
    share = (below - lowest) / (tables.SCALE.maximum + 1 - lowest)
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
    return [*found, chain.stage("ratings", number, rated, tables.SCALE, template, chain.judges)]
