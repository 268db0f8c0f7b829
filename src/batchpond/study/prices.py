"""What requests cost, and how many may wait: bundled prices and limits, and those of the lake's `config.toml`.

Costs are exact per answered row, and rough before anything is sent. Unit prices come from the bundled data of
genai-prices (no network) or from the lake, in USD per 1M tokens (guides: costs, providers). An unknown price is None,
never 0. genai-prices answers with the standard price where it knows no batch price, so a batch price equal to the
standard one counts as unknown, but where the provider itself says which models are cheaper in batches; and its batch
prices begin on 2026-10-14, so an earlier date is taken as that day.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from batchpond.errors import UsageError
from batchpond.lake import disk
from batchpond.lake.store import CONFIG
from batchpond.model import Mode, PricedModel, Response
from batchpond.providers import registry
from batchpond.providers.base import Descriptor
from batchpond.tasks.templates import table

if TYPE_CHECKING:
    from batchpond.study.typed import Table

_version: Final = functools.cache(metadata.version)  # which reads a file, and a pass asks for each batch
BATCH_PRICES_BEGIN: Final = datetime(2026, 10, 14, tzinfo=UTC)
PER_TOKENS: Final = 1_000_000

ANSWER_TOKENS_LOW: Final = 12
LENGTHS: Final = table("lengths")
THINKING_TOKENS: Final[Mapping[str, int]] = LENGTHS["thinking"]
ANSWERS_LEAST: Final = 10
"""So many answers of a way say more of the next ones than what models usually write."""
INPUT_FACTOR_LOW: Final = 0.8
INPUT_FACTOR_WORST: Final = 1.5
HOUR: Final = "1h"


@dataclass(frozen=True, slots=True)
class Tier:
    """Prices in USD per 1M tokens for requests with more than `above_tokens` input tokens."""

    above_tokens: int
    input_usd: float
    cached_usd: float
    output_usd: float
    cache_write_usd: float
    cache_hour_usd: float


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """A model's batch prices by length of the input, ascending; `source` says who says so."""

    tiers: tuple[Tier, ...]
    source: str

    def cost_usd(
        self, input_tokens: float, cached_tokens: float, output_tokens: float, cache_write_tokens: float = 0,
        cache_hour_tokens: float = 0,
    ) -> float:  # fmt: skip
        """Return what one request costs; `input_tokens` includes those read from and written to a cache.

        `cache_hour_tokens` of those are written to live for an hour, not for minutes.
        """
        tier = self.tiers[0]
        for higher in self.tiers[1:]:
            tier = higher if input_tokens > higher.above_tokens else tier
        fresh = max(0, input_tokens - cached_tokens - cache_write_tokens)
        total = fresh * tier.input_usd + cached_tokens * tier.cached_usd + output_tokens * tier.output_usd
        written = (cache_write_tokens - cache_hour_tokens) * tier.cache_write_usd
        return (total + written + cache_hour_tokens * tier.cache_hour_usd) / PER_TOKENS


@dataclass(frozen=True, slots=True)
class Estimate:
    """A rough cost in USD before sending; None is unknown, and `known_*` what is known of it all the same.

    Where it is learned from answers, nine of ten such costs lie between `low_usd` and `high_usd`; else that is None.
    """

    low_usd: float | None
    expected_usd: float | None
    worst_usd: float | None
    high_usd: float | None = None
    known_low_usd: float = 0.0
    known_expected_usd: float = 0.0
    known_worst_usd: float = 0.0

    def __add__(self, other: Estimate) -> Estimate:
        """Return the sum; a sum with an unknown part is unknown, but for what is known of it."""
        pairs = zip(self._figures, other._figures, strict=True)
        return _estimate(None if a is None or b is None else a + b for a, b in pairs)

    def part(self, share: float) -> Estimate:
        """Return the cost of so large a share."""
        return _estimate(None if usd is None else usd * share for usd in self._figures)

    @property
    def _figures(self) -> tuple[float | None, ...]:
        known = self.known_low_usd, self.known_expected_usd, self.known_worst_usd
        return self.low_usd, self.expected_usd, self.worst_usd, self.high_usd, *known


def _estimate(figures: Iterable[float | None]) -> Estimate:
    low, expected, worst, high, *known = figures
    return Estimate(low, expected, worst, high, *(usd or 0.0 for usd in known))


class Length(NamedTuple):
    """How many tokens an answer is expected to have: `is_whole` with its thoughts, which else come on top."""

    tokens: int
    is_whole: bool = False


Lengths: TypeAlias = Mapping[tuple[str, str], Length]  # by stage and template
USUAL: Final = Length(150)  # of what was planned before templates said how long their answers are


@dataclass(frozen=True, slots=True)
class Usage:
    """What `n` answers used: input tokens for each estimated one, the share that a cache had, and output tokens."""

    n: int
    input_share: float
    cached_share: float
    output_tokens: float
    output_sd: float

    def cost(self, unit: UnitPrices, n_requests: int, input_tokens: int, worst_usd: float | None) -> Estimate:
        """Return what requests with so many estimated tokens will cost; its interval holds nine of ten such sums.

        Of the next `n_requests` answers' mean, by Student's t in its first terms around the normal quantile.
        """
        mean = input_tokens / n_requests * self.input_share
        each = unit.cost_usd(mean, mean * self.cached_share, self.output_tokens)
        one_sd = unit.cost_usd(mean, mean * self.cached_share, self.output_tokens + self.output_sd) - each
        quantile = _NORMAL_95 + (_NORMAL_95**3 + _NORMAL_95) / (4 * (self.n - 1))
        expected, half = each * n_requests, quantile * one_sd * n_requests * math.sqrt(1 / n_requests + 1 / self.n)
        worst = None if worst_usd is None else max(worst_usd, expected)
        high = expected + half if worst is None else min(expected + half, worst)
        low = max(0.0, expected - half)
        return Estimate(low, expected, worst, high, low, expected, worst or 0.0)


_NORMAL_95: Final = 1.6449
Used: TypeAlias = Mapping[tuple[str, str, str, str, str], Usage]
"""By stage, template, provider, model and thinking."""
NOTHING: Final = Estimate(0.0, 0.0, 0.0, 0.0)
UNKNOWN: Final = Estimate(None, None, None)


def total(costs: Iterable[Estimate]) -> Estimate:
    """Return the sum of costs."""
    return sum(costs, NOTHING)


def output_tokens(effort: str, max_output_tokens: int | None, length: Length = USUAL) -> tuple[int, int]:
    """Return the rough output of one request, low and expected; `effort` is a level of thinking or a budget."""
    level = THINKING_TOKENS.get(effort, THINKING_TOKENS["default"])
    thoughts = min(int(effort) // 2, THINKING_TOKENS["high"]) if effort.isdecimal() else level
    expected = length.tokens + (0 if length.is_whole else thoughts)
    low = min(max(ANSWER_TOKENS_LOW, length.tokens // 4) + thoughts // 4, expected)
    if max_output_tokens is not None:
        low, expected = min(low, max_output_tokens), min(expected, max_output_tokens)
    return low, expected


class Prices:
    """Prices at one moment; looks each model up once."""

    def __init__(self, overrides: Mapping[str, UnitPrices] | None = None, now: datetime | None = None) -> None:
        self._overrides = dict(overrides or {})
        self._when = max(now or datetime.now(UTC), BATCH_PRICES_BEGIN)
        self._cache: dict[PricedModel, UnitPrices | None] = {}

    @classmethod
    def of_lake(cls, config_path: Path, now: datetime | None = None) -> Prices:
        """Return prices with the overrides of a lake's `config.toml`, which may be missing."""
        try:
            data = config_path.read_bytes()
        except FileNotFoundError:
            return cls(now=now)
        return cls(overrides(data, str(config_path)), now)

    def unit(self, asked: PricedModel) -> UnitPrices | None:
        """Return a model's prices, or None when they are not known."""
        if asked not in self._cache:
            self._cache[asked] = self._overrides.get(asked.override) or _bundled(asked, self._when)
        return self._cache[asked]

    def mark(self, asked: PricedModel) -> str:
        """Return a digest of a model's prices, known or not."""
        unit = self.unit(asked)
        return hashlib.sha256(repr(unit and unit.tiers).encode()).hexdigest()

    def cost(self, asked: PricedModel, said: Response) -> float | None:
        """Return what one answered request cost in USD, or None when prices or tokens are unknown.

        The model is the requested one, which is what overrides are written for.
        """
        if said.input_tokens is None or said.output_tokens is None or (unit := self.unit(asked)) is None:
            return None
        cached, written = said.cached_tokens or 0, said.cache_write_tokens or 0
        for_an_hour = min(said.cache_hour_tokens or 0, written)
        return unit.cost_usd(said.input_tokens, cached, said.output_tokens, written, for_an_hour)

    def estimate(
        self,
        asked: PricedModel,
        thinking: str,
        max_output_tokens: int | None,
        n_requests: int,
        input_tokens: int,
        length: Length = USUAL,
        used: Usage | None = None,
        cache: str | None = None,
    ) -> Estimate:
        """Return the rough cost of requests, by what was `used` before; at worst a `cache` is only written to."""
        if n_requests == 0:
            return NOTHING
        if (unit := self.unit(asked)) is None:
            return UNKNOWN
        effort = registry.module(asked.provider).effort(asked.model.rpartition("/")[2], thinking)
        low, expected = output_tokens(effort, max_output_tokens, length)
        mean, worst = input_tokens / n_requests, max_output_tokens
        low_usd = unit.cost_usd(int(mean * INPUT_FACTOR_LOW), 0, low) * n_requests
        expected_usd = unit.cost_usd(round(mean), 0, expected) * n_requests
        worst_usd = None
        if worst is not None:
            n_in = round(mean * INPUT_FACTOR_WORST)
            n_written = n_in if cache else 0
            worst_usd = unit.cost_usd(n_in, 0, worst, n_written, n_written if cache == HOUR else 0) * n_requests
        if used is not None:
            return used.cost(unit, n_requests, input_tokens, worst_usd)
        return Estimate(low_usd, expected_usd, worst_usd, None, low_usd, expected_usd, worst_usd or 0.0)


def known(provider: str) -> tuple[str, ...]:
    """Return the models of a provider that the price data know, whatever they know of them."""
    return tuple(sorted(model.id for found in _in_data(provider) for model in found.models))


def nearest(asked: PricedModel) -> str | None:
    """Return the model whose name is most like one that the price data do not know; None where none is, or they do."""
    if any(found.find_model(asked.model) for found in _in_data(asked.provider)):
        return None
    return next(iter(difflib.get_close_matches(asked.model, known(asked.provider), 1, 0.75)), None)


def remarks(asked: PricedModel) -> list[str]:
    """Return what the price data say of a model's prices: when they were looked up, and where."""
    models = [found.find_model(asked.model) for found in _in_data(asked.provider)]
    return [str(model.price_comments) for model in models if model is not None and model.price_comments]


def data_said() -> str:
    """Return which price data is asked and since when its newest price holds, which is all that it says of its age."""
    from genai_prices import data_snapshot  # slow to import

    models = (model for provider in data_snapshot.get_snapshot().providers for model in provider.models)
    prices = (price for model in models if isinstance(model.prices, list) for price in model.prices)
    days = {getattr(price.constraint, "start_date", date.max) for price in prices}
    newest = max(day for day in days if day <= datetime.now(UTC).date())
    return f"genai-prices {_version('genai-prices')}, whose newest price holds since {newest}"


def _in_data(provider: str) -> list[Any]:
    from genai_prices import data_snapshot  # slow to import

    name = registry.module(provider).DESCRIPTOR.price_name or provider
    return [found for found in data_snapshot.get_snapshot().providers if found.id == name]


def basis(config_path: Path) -> str:
    """Return which price data are asked, and what a lake sets: what a batch costs depends on nothing else of today."""
    return f"{_version('genai-prices')} {sorted(Prices.of_lake(config_path)._overrides.items())}"


def is_outdated(told: str | None, config_path: Path) -> bool:
    """Return whether what was costed on the `told` basis costs otherwise now.

    By older price data than those it never does: two machines on one lake would cost all answers in turn for ever.
    """
    own = basis(config_path)
    if told in {None, own}:
        return False
    (theirs, set_then), (ours, set_now) = ((told or "").split(" ", 1), own.split(" ", 1))
    return set_then != set_now or _numbers(theirs) < _numbers(ours)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def overrides(data: bytes, source: str = "config.toml") -> dict[str, UnitPrices]:
    """Return the prices that a lake's configuration sets; raises UsageError that names the key."""
    from batchpond.study import config_file  # an idle pass over a lake without settings needs no reader of them

    found = {}
    for name, written in config_file.prices(config_file.document(data, source)).items():
        cached, stored = (written.input if usd is None else usd for usd in (written.cached_input, written.cache_write))
        ((_, hour),) = _for_an_hour(name.partition("/")[0], [(0, written.input)], [(0, stored)])
        found[name] = UnitPrices((Tier(0, written.input, cached, written.output, stored, hour),), "config.toml")
    return found


def _bundled(asked: PricedModel, when: datetime) -> UnitPrices | None:
    try:
        descriptor: Descriptor | None = registry.module(asked.provider).DESCRIPTOR
    except UsageError:  # prices are also asked for what other tools asked elsewhere
        descriptor = None
    if descriptor is not None and descriptor.is_free:
        return UnitPrices((Tier(0, 0.0, 0.0, 0.0, 0.0, 0.0),), "a server of one's own")
    share = 1.0
    name = asked.provider if descriptor is None else descriptor.price_name or asked.provider
    match asked.mode:
        case Mode.BATCH if descriptor is not None and descriptor.batch_discounts is not None:
            found = _looked_up(asked, name, when, None)
            share -= descriptor.batch_discounts.get(asked.model, 0.0)
        case Mode.BATCH:
            batch, standard = (_looked_up(asked, name, when, context) for context in ({"processing": "batch"}, None))
            found = batch if batch and standard and batch[:2] != standard[:2] else None
        case Mode.LIVE:
            found = _looked_up(asked, name, when, None)
        case Mode.FILES:  # whoever answers the files sends the bill
            found = None
    if found is None or not found[0] or not found[1]:
        return None
    input_steps, output_steps, cached_steps, stored_steps = found
    stored = stored_steps or input_steps
    priced = (input_steps, cached_steps or input_steps, output_steps, stored, _for_an_hour(name, input_steps, stored))
    starts = sorted({start for steps in priced for start, _ in steps})
    tiers = (Tier(start, *(share * _at(steps, start) for steps in priced)) for start in starts)
    return UnitPrices(tuple(tiers), f"genai-prices {_version('genai-prices')}")


# USD per 1M tokens, each from so many input tokens on, the first one from 0; none where the price is not known.
_Steps: TypeAlias = list[tuple[int, float]]
# Of input, output, what is read from a cache, and what is written to one.
_Rates: TypeAlias = tuple[_Steps, _Steps, _Steps, _Steps]


def _for_an_hour(provider: str, input_steps: _Steps, stored_steps: _Steps) -> _Steps:
    """Return what writing for an hour costs: a provider's share of the input, or what any writing does."""
    marks = registry.module(provider).DESCRIPTOR.cache_marks if provider in registry.NAMES else {}
    return [(start, marks[HOUR] * usd) for start, usd in input_steps] if HOUR in marks else stored_steps


def _at(steps: _Steps, start: int) -> float:
    return [usd for begins, usd in steps if begins <= start][-1]


def _looked_up(asked: PricedModel, name: str, when: datetime, context: dict[str, str] | None) -> _Rates | None:
    """Return what the price data say, kept for the day: to load them takes longer than all else of a small command."""
    import msgspec

    version = _version("genai-prices")
    day, key = f"{version}-{when.astimezone(UTC).date()}.json", " ".join((name, asked.model, *(context or {}).values()))
    try:
        known = msgspec.json.decode(disk.cached("prices", day) or b"{}", type=dict[str, _Rates | None])
    except msgspec.DecodeError:  # what is damaged is looked up again
        known = {}
    if key in known:
        return known[key]
    found = _calculated(asked, name, when, context)
    prices = found.model.prices if found is not None else None
    if not isinstance(prices, list) or not any(hasattr(price.constraint, "start_time") for price in prices):  # by hour
        disk.cache("prices", day, msgspec.json.encode({**known, key: None if found is None else _rates(found)}))
    return None if found is None else _rates(found)


def _calculated(asked: PricedModel, name: str, when: datetime, context: dict[str, str] | None) -> Any:
    from genai_prices import Usage, calc_price

    try:
        return calc_price(
            Usage(input_tokens=0, output_tokens=0),
            asked.model.removeprefix("publishers/google/models/"),
            provider_id=name,
            genai_request_timestamp=when,
            price_context=context,
        )
    except LookupError:
        return None


def _rates(found: Any) -> _Rates:
    names = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
    one, two, three, four = (_steps(getattr(found.model_price, name)) for name in names)
    return one, two, three, four


def _steps(price: Any) -> _Steps:
    if price is None or isinstance(price, Decimal):
        return [] if price is None else [(0, float(price))]
    return [(0, float(price.base)), *((tier.start, float(tier.price)) for tier in price.tiers)]


_TIERS = Path(__file__).parent / "tiers.toml"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider lets an account have in its queue; None is no known limit."""

    enqueued_tokens: int | None = None
    enqueued_requests: int | None = None
    open_batches: int | None = None

    def over(self, other: Limits) -> Limits:
        """Return these limits, and the other's where these say nothing."""
        mine = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(other, **mine)


@dataclass(frozen=True, slots=True)
class Config:
    """A lake's settings: limits by `provider` or `provider/model`, and the tier of each account.

    `variables` are what the settings of a provider stand for, by the names of environment variables.
    """

    limits: Mapping[str, Limits] = field(default_factory=dict)
    tiers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def of_account(self, provider: str) -> Limits:
        """Return what all models of a provider share: open batches and requests that wait."""
        tier = self.tiers.get(provider, {})
        shipped = Limits(enqueued_requests=tier.get("enqueued_requests"), open_batches=tier.get("open_batches"))
        return dataclasses.replace(self.limits.get(provider, Limits()).over(shipped), enqueued_tokens=None)

    def of_model(self, provider: str, model: str) -> Limits:
        """Return the limits of one model: its own, the account's for any one model, or its tier's."""
        tier = self.tiers.get(provider, {})
        named = (tokens for pattern, tokens in tier.get("models", {}).items() if fnmatchcase(model, pattern))
        tokens = self.limits.get(provider, Limits()).enqueued_tokens or next(named, tier.get("enqueued_tokens"))
        return self.limits.get(f"{provider}/{model}", Limits()).over(Limits(enqueued_tokens=tokens))


def load_config(lake_path: Path) -> Config:
    """Read a lake's settings; raises UsageError that names the file and the key."""
    path = lake_path / CONFIG
    if not path.exists():
        return Config()
    from batchpond.study import config_file  # an idle pass over a lake without settings needs no reader of them

    root = config_file.document(path.read_bytes(), str(path))
    written = {name: dict(vars(one)) for name, one in config_file.limits(root).items()}
    tiers = {name: one.pop("tier", None) for name, one in written.items()}
    known = {
        name: _account_tier(root.inside("limits").inside(name), name, tier)
        for name, tier in tiers.items()
        if tier is not None
    }
    limits = {name: Limits(**one) for name, one in written.items()}
    return Config(limits, known, {**config_file.variables(root), **config_file.files(root, lake_path)})


def _account_tier(table: Table, provider: str, tier: str) -> Mapping[str, Any]:
    known: dict[str, Any] = tomllib.loads(_TIERS.read_text("utf-8")).get(provider, {})
    found = known.get(tier)
    if not isinstance(found, dict):
        hint = f"known tiers: {', '.join(known)}" if known else "write the limits themselves instead"
        table.fail("tier", f"is {tier!r}, which batchpond does not know", hint)
    return found
