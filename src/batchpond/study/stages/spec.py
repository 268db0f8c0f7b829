"""What a study with stages says, checked: frozen records; nothing here reads a file.

A stage asks one task about rows: of a file, of SQL on the lake, or of what an earlier stage came to. Everything
that a later round needs is kept with the plan in the lake, so that `sync` opens it on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchpond.study.spec import BudgetSpec, ItemsSpec, ModelSpec, PairsSpec, RetrySpec, ShardsSpec, Unsupported
from batchpond.tasks.base import Rule
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.tactics import Tactic
from batchpond.tasks.templates import PAIRWISE, Template

MAIN_STAGE = "main"
CONVERSATION = "conversation"
OWN_OUTPUT_TASKS = frozenset({"generation", CONVERSATION})
"""The tasks whose answers are what later stages judge."""
PAIR_TASKS = frozenset({"pairwise", "ranking"})
TIER_MAX = 1_000
INPUTS = "inputs"
"""The task whose answers are lists: each entry of one is a row of the stage that follows."""


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
    unit (prompt) and candidate (model) a row belongs to, where there are any.
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


@dataclass(frozen=True, slots=True)
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
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema that answers are held to, where the study wants that."""
        return self.rule.output_schema() if self.is_structured else None

    @property
    def schema_bytes(self) -> int:
        """How much of a request the schema is; providers count it as input."""
        return len(json.dumps(self.output_schema)) if self.is_structured else 0

    @property
    def waits(self) -> bool:
        """Whether its rows depend on answers of other stages."""
        return bool(self.rows.waits_for)

    @property
    def goes_on(self) -> bool:
        """Whether its own answers lead to further rounds of it."""
        return self.task == CONVERSATION or self.pairs.adaptive is not None

    @property
    def n_later_rounds(self) -> int:
        """How many rounds its own answers can lead to at most."""
        return self.turns if self.pairs.adaptive is None else self.pairs.adaptive.rounds - 1


@dataclass(frozen=True, slots=True)
class StagedStudy:
    """A checked study of stages; relative paths in it start at `base_path`."""

    name: str
    stages: tuple[StageSpec, ...]
    seed: int = 1
    unsupported: Unsupported = Unsupported.REFUSE
    shards: ShardsSpec = field(default_factory=ShardsSpec)
    retry: RetrySpec = field(default_factory=RetrySpec)
    budget: BudgetSpec = field(default_factory=BudgetSpec)
    source: str = "study.toml"
    base_path: Path = Path()

    @property
    def is_pairs_alone(self) -> bool:
        """Whether it is nothing but pairs of a file's items, so that its items and cells need no stage to be told."""
        if len(self.stages) != 1:
            return False
        (stage,) = self.stages
        is_of_items = stage.rows.items is not None and set(stage.rows.columns) <= {"tier"}
        return (stage.name, stage.task) == (MAIN_STAGE, PAIRWISE) and is_of_items

    def stage(self, name: str) -> StageSpec:
        """Return the stage of a name; raises StopIteration where there is none, which `study` rules out."""
        return next(stage for stage in self.stages if stage.name == name)
