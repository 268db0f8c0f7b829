"""What a study with stages says, checked: frozen records; nothing here reads a file.

A stage asks one task about rows: of a file, of SQL on the lake, or of what an earlier stage came to. Everything
that a later round needs is kept with the plan in the lake, so that `sync` opens it on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from batchpond.rubrics import Rubric
from batchpond.study_spec import BudgetSpec, ItemsSpec, ModelSpec, PairsSpec, RetrySpec, ShardsSpec, Unsupported
from batchpond.tasks.base import Rule
from batchpond.tasks.pressure_tactics import Tactic
from batchpond.templates import Template

MAIN_STAGE = "main"
CONVERSATION = "conversation"
OWN_OUTPUT_TASKS = frozenset({"generation", CONVERSATION})
"""The tasks whose answers are what later stages judge."""
PAIR_TASKS = frozenset({"pairwise", "ranking"})


@dataclass(frozen=True, slots=True)
class RowsSpec:
    """Where a stage's rows come from; just one of `items`, `stage` and `sql` is set.

    `where` is an SQL condition on what the stage `stage` came to. The columns are those of files and SQL
    that say which rubric, unit (prompt) and candidate (model) a row belongs to, where there are any.
    """

    items: ItemsSpec | None = None
    stage: str | None = None
    sql: str | None = None
    where: str | None = None
    after: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The stages whose answers are needed before the rows can be read."""
        return tuple(dict.fromkeys(((self.stage,) if self.stage else ()) + self.after))


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One part of a study: what is asked, of whom, about which rows.

    A conversation goes on for `turns` levels of pressure after the first answer, once per tactic. The forecast of
    the cost assumes that a choice (`rows.where`, SQL) takes `expected_share` of the rows, and that an answer has
    `expected_output_tokens` (None: the usual).
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

    @property
    def waits(self) -> bool:
        """Whether its rows depend on answers of other stages."""
        return bool(self.rows.waits_for)


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

    def stage(self, name: str) -> StageSpec:
        """Return the stage of a name; raises StopIteration where there is none, which `study` rules out."""
        return next(stage for stage in self.stages if stage.name == name)
