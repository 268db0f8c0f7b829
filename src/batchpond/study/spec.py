"""What a study file says, checked: frozen records, each named after its part of `study.toml`.

Nothing here reads a file; `study` parses and loads, `items` reads what a study names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from batchpond.model import ErrorClass, Mode
from batchpond.tasks.pairwise import AnswerRule
from batchpond.tasks.rubrics import Rubric

THINKING_DEFAULT = "default"


class ItemsFrom(StrEnum):
    """Where a study's items are read from."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    FOLDER = "folder"
    SQL = "sql"


class Order(StrEnum):
    """Which item of a pair is shown first in the forward direction."""

    RANDOM = "random"
    FIXED = "fixed"
    ALTERNATE = "alternate"


class Unsupported(StrEnum):
    """What to do with a combination that a model does not accept."""

    REFUSE = "refuse"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ItemsSpec:
    """Where the items are; `location` is a path as written, or the SQL text."""

    source: ItemsFrom
    location: str
    id_column: str = "id"
    text_column: str = "text"


@dataclass(frozen=True, slots=True)
class AdaptiveSpec:
    """How pairs are chosen in rounds by what was judged before.

    Each item is in `first_per_item` pairs of round 1 and in about `per_item` of each later one; beside those, a share
    `holdout` is asked at random and kept from all choices. `top_k` looks only for the best so many. A cell stops
    early when the median gap of neighbours is `stop_gap_z` standard errors and the median rank interval
    `stop_rank_width` places (of what is given, all), or with `stop_stale` when held-out pairs are foretold no better.
    """

    rounds: int = 6
    first_per_item: int = 4
    per_item: int = 3
    holdout: float = 0.1
    top_k: int | None = None
    stop_gap_z: float | None = None
    stop_rank_width: float | None = None
    stop_stale: bool = True


@dataclass(frozen=True, slots=True)
class PairsSpec:
    """Which pairs are asked and in which order; at most one of `share` and `count` is set.

    With `adaptive`, `count` is the most judgments of a cell and `reverse` the share that is asked in the other order.
    """

    share: float | None = None
    count: int | None = None
    order: Order = Order.RANDOM
    reverse: float = 1.0
    repeats: int = 1
    adaptive: AdaptiveSpec | None = None


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """A template by id: built in (`text` and `file` are None), given as text, or in a file."""

    template_id: str
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model with the thinking levels it is asked at; `endpoint` None leaves it to the provider."""

    provider: str
    model: str
    thinking: tuple[str, ...] = (THINKING_DEFAULT,)
    include_thoughts: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    endpoint: str | None = None
    mode: Mode = Mode.BATCH
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardsSpec:
    """How requests are cut into batches, within the provider's own limits."""

    max_requests: int | None = None
    segments: int | None = None
    per_cell: bool = False


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """Which failures may be asked again, and in how many batches a request may be in all.

    `is_automatic` lets `sync` do so by itself, within what was approved.
    """

    is_automatic: bool = False
    max_attempts: int = 3
    classes: tuple[ErrorClass, ...] = (ErrorClass.TRANSIENT, ErrorClass.EXPIRED)


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """What the study may cost; None leaves it to the approval."""

    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study file; relative paths in it start at `base_path`."""

    name: str
    items: ItemsSpec
    rubrics: tuple[Rubric, ...]
    templates: tuple[TemplateSpec, ...]
    models: tuple[ModelSpec, ...]
    seed: int = 1
    pairs: PairsSpec = PairsSpec()
    answer: AnswerRule = field(default_factory=AnswerRule)
    unsupported: Unsupported = Unsupported.REFUSE
    shards: ShardsSpec = ShardsSpec()
    retry: RetrySpec = RetrySpec()
    budget: BudgetSpec = BudgetSpec()
    source: str = "study.toml"
    base_path: Path = Path()
