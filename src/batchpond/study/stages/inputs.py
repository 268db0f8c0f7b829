"""An `inputs` stage of a study file as the stages that it is carried out by: questions made, and rated, in rounds.

Categories of requests are asked for by statement, scenarios by category, questions by scenario; judges rate the
questions (or, where `candidates` are named, those models' answers to them). Statements that then lack questions
rated below `keep_below` are asked further, in the scenarios whose questions were rated lowest, up to `max_rounds`
times. Each step is a stage of its own, `NAME.categories` to `NAME.ratings-3`, so it is planned, sent, retried and
counted like any other; what the whole keeps is asked about by stages whose items say `stage = "NAME"`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from batchpond.study import parts, tables
from batchpond.study.spec import ModelSpec
from batchpond.study.stages.spec import INPUTS, Kept, RowsSpec, StageSpec
from batchpond.study.toml import Table
from batchpond.tasks.generation import GenerationRule
from batchpond.tasks.inputs import InputsRule
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.templates import Template, builtin

KEYS: Final = ("categories", "scenarios_per_category", "questions_per_scenario", "judges", "candidates", "keep_below",
               "per_statement", "uniform", "promising", "max_rounds")  # fmt: skip
_OTHERS: Final = ("name", "study", "seed", "grid", "shards", "retry", "budget", "task", "rubrics", "models", "tier",
                  "structured", "expected_share", "expected_output_tokens", *KEYS)  # fmt: skip
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

    @property
    def name(self) -> str:
        """The name in the study file."""
        return self.kept.name


def is_chain(table: Table) -> bool:
    """Whether a stage of the task `inputs` stands for all its rounds: it names no items of its own."""
    return not table.has("items")


def stages(name: str, table: Table, written: tables.StageKeys, rubrics: tuple[Rubric, ...]) -> tuple[StageSpec, ...]:
    """Return the stages that an `inputs` stage is carried out by, in order; raises StudyError."""
    for key in table.data:
        if key not in _OTHERS:
            table.fail(key, "has no meaning where questions are made in rounds", "with items it is one step by itself")
    if not rubrics:
        table.fail((), "has no rubrics", 'say which statements the questions are to test: `rubrics.path = "..."`')
    chain = _Chain(
        kept=_kept(name, table, written),
        rubrics=rubrics,
        makers=parts.models(table, "models", written.models),
        judges=parts.models(table, "judges", written.judges),
        candidates=parts.models(table, "candidates", written.candidates or ()),
        counts=(written.categories, written.scenarios_per_category, written.questions_per_scenario),
        expected_output_tokens=written.expected_output_tokens,
    )
    found = [_made(chain, "categories", 0, RowsSpec())]
    found.append(_made(chain, "scenarios", 1, RowsSpec(stage=found[0].name)))
    for number in range(1, written.max_rounds + 1):
        found += _round(chain, number, found[1].name)
    found[-1] = replace(found[-1], keeps=chain.kept)
    return tuple(
        replace(
            stage,
            tier=written.tier,
            is_structured=written.structured and stage.rule.output_schema() is not None,
        )
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


def _made(chain: _Chain, step: str, place: int, rows: RowsSpec, number: int | None = None) -> StageSpec:
    """Return a step that asks for lists; what is beyond the number asked for is not taken, as it would be paid for."""
    count = chain.counts[place]
    return StageSpec(
        name=_name(chain.name, step, number),
        task=INPUTS,
        rows=rows,
        rule=InputsRule(step=step, count=count, count_max=count),
        templates=(_template(INPUTS, f"inputs_{step}"),),
        models=chain.makers,
        rubrics=chain.rubrics,
        expected_output_tokens=chain.expected_output_tokens,
    )


def _round(chain: _Chain, number: int, scenarios: str) -> list[StageSpec]:
    before = replace(chain.kept, questions=chain.kept.questions[: number - 1], ratings=chain.kept.ratings[: number - 1])
    rows = RowsSpec(stage=scenarios, lacking=before if number > 1 else None)
    found = [_made(chain, "questions", 2, rows, number)]
    if chain.candidates:
        found.append(_answers(chain, number, found[-1].name))
    template = "likert_json" if chain.candidates else "likert_question"
    ratings = StageSpec(
        name=_name(chain.name, "ratings", number),
        task="likert",
        rows=RowsSpec(stage=found[-1].name),
        rule=tables.SCALE,
        templates=(_template("likert", template),),
        models=chain.judges,
        rubrics=chain.rubrics,
    )
    return [*found, ratings]


def _answers(chain: _Chain, number: int, questions: str) -> StageSpec:
    return StageSpec(
        name=_name(chain.name, "answers", number),
        task="generation",
        rows=RowsSpec(stage=questions),
        rule=GenerationRule(),
        templates=(_template("generation", "question"),),
        models=chain.candidates,
        rubrics=chain.rubrics,
    )


def _template(task: str, name: str) -> Template:
    return builtin(task)[name]
