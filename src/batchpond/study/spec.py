"""What a study file says, checked: frozen records, each named after its part of `study.toml`.

The annotations of those that are tables of the file are its schema, as those of `tables` are.

Nothing here reads a file; `study` parses and loads, `items` reads what a study names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from batchpond.model import ErrorClass, Mode
from batchpond.study.typed import about, at_most, between, entries, form
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.rubrics import Rubric

THINKING_DEFAULT = "default"
HALF = 0.5
TOKENS_MAX = 10_000_000


class ItemsFrom(StrEnum):
    """Where a study's items are read from."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
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
    answer: PairwiseRule = field(default_factory=PairwiseRule)
    unsupported: Unsupported = Unsupported.REFUSE
    shards: ShardsSpec = ShardsSpec()
    retry: RetrySpec = RetrySpec()
    budget: BudgetSpec = BudgetSpec()
    source: str = "study.toml"
    base_path: Path = Path()
