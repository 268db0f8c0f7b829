"""Costs: exact from tokens, rough before sending, and unknown rather than wrong."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import UsageError
from batchpond.model import Mode, PricedModel, Response, ResponseStatus
from batchpond.study import prices
from batchpond.study.prices import (
    NOTHING,
    THINKING_TOKENS,
    UNKNOWN,
    Estimate,
    Length,
    Prices,
    known,
    output_tokens,
    overrides,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PRICES = Prices(now=NOW)
CONFIG = b'[prices."openai/gpt-5.4-mini"]\ninput = 1\noutput = 4.0\n[limits]\nx = 1\n'


def cost(
    book: Prices,
    asked: PricedModel,
    n_input: int | None,
    n_cached: int | None,
    n_output: int | None,
    n_written: int | None = None,
    n_hour: int | None = None,
) -> float | None:
    """Return what an answer of so many tokens cost by a book."""
    said = Response(
        None, ResponseStatus.SUCCEEDED, input_tokens=n_input, cached_tokens=n_cached, output_tokens=n_output,
        cache_write_tokens=n_written, cache_hour_tokens=n_hour,
    )  # fmt: skip
    return book.cost(asked, said)


@pytest.mark.parametrize(
    ("model", "input_usd", "cached_usd", "output_usd"),
    [
        ("gpt-5.4-mini", 0.375, 0.0375, 2.25),
        ("gpt-5.4-mini-2026-03-17", 0.375, 0.0375, 2.25),
        ("gpt-4.1", 1.0, 0.5, 4.0),
        ("gpt-6-luna", 0.05, 0.005, 0.25),
    ],
)
def test_batch_prices_are_half_of_the_standard_ones(
    model: str, input_usd: float, cached_usd: float, output_usd: float
) -> None:
    """USD per 1M tokens as the provider's price page had them on 2026-11-21."""
    assert cost(PRICES, PricedModel("openai", model), 100_000, 0, 0) == pytest.approx(input_usd / 10)
    assert cost(PRICES, PricedModel("openai", model), 100_000, 100_000, 0) == pytest.approx(cached_usd / 10)
    assert cost(PRICES, PricedModel("openai", model), 0, 0, 1_000_000) == pytest.approx(output_usd)


@pytest.mark.parametrize(
    ("model", "prices"),
    [
        ("claude-haiku-4-5-20251001", (0.5, 0.05, 2.5, 0.625)),
        ("claude-sonnet-4-6", (1.5, 0.15, 7.5, 1.875)),
        ("claude-opus-5-5", (2.0, 0.1, 10.0, 2.5)),
        ("claude-haiku-5-5", (0.05, 0.005, 0.25, 0.0625)),
    ],
)
def test_anthropic_prices_tell_reading_and_writing_a_cache_apart(model: str, prices: tuple[float, ...]) -> None:
    """Input, cache read, output, cache write; all prompt tokens are in `input_tokens`."""
    input_usd, cached_usd, output_usd, written_usd = prices
    usd = cost(PRICES, PricedModel("anthropic", model), 10_000, 4_000, 500, 3_000)
    assert usd == pytest.approx((3_000 * input_usd + 4_000 * cached_usd + 500 * output_usd + 3_000 * written_usd) / 1e6)
    hour = cost(PRICES, PricedModel("anthropic", model), 10_000, 4_000, 500, 3_000, 1_000)
    assert hour == pytest.approx(usd + 1_000 * (2 * input_usd - written_usd) / 1e6), "an hour costs twice the input"
    assert cost(PRICES, PricedModel("anthropic", model), 10_000, 4_000, 500, None) == cost(
        PRICES, PricedModel("anthropic", model), 10_000, 4_000, 500
    )


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.LIVE])
def test_prices_that_were_kept_are_those_of_the_data(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every model that the data know of four providers: looked up, kept, and as genai-prices has them itself.

    What changes within a day is not kept, nor is anything of another day, and damage is looked up again.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = [
        PricedModel(name, model, mode) for name in ("openai", "anthropic", "gemini", "xai") for model in known(name)
    ]
    assert len(asked) > 100
    first = {one: Prices(now=NOW).unit(one) for one in asked}
    (file,) = (tmp_path / "batchpond").iterdir()
    n_kept = len(json.loads(file.read_bytes()))
    assert n_kept >= len({(one.provider, one.model) for one in asked})
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "genai_prices", None)  # to load it is an error from here on
        assert {one: Prices(now=NOW).unit(one) for one in asked} == first
        with pytest.raises(ImportError):
            Prices(now=NOW + timedelta(days=1)).unit(asked[0])
    if mode is Mode.LIVE:
        for one in asked:
            unit = first[one]
            for n_in in (1_000, 300_000) if unit is not None else ():
                theirs = calc_price(
                    Usage(input_tokens=n_in, output_tokens=700), one.model,
                    provider_id={"gemini": "google", "xai": "x-ai"}.get(one.provider, one.provider),
                    genai_request_timestamp=NOW,
                )  # fmt: skip
                assert unit is None or unit.cost_usd(n_in, 0, 700) == pytest.approx(float(theirs.total_price))
    file.write_bytes(b'{"openai gpt')
    assert Prices(now=NOW).unit(asked[0]) == first[asked[0]]


def test_a_price_of_the_hour_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deepseek's at night is another one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = PricedModel("deepseek", "deepseek-chat", Mode.LIVE)
    night, day, again = (Prices(now=NOW.replace(hour=hour)).unit(asked) for hour in (0, 12, 0))
    assert night == again
    assert night != day
    assert not (tmp_path / "batchpond").exists()


def test_a_written_price_for_the_cache_is_used_and_otherwise_writing_costs_what_input_does() -> None:
    """`cache_write` is optional."""
    written = b'[prices."x/a"]\ninput = 1\noutput = 0\ncache_write = 10\n[prices."x/b"]\ninput = 1\noutput = 0\n'
    book = Prices(overrides(written), NOW)
    assert cost(book, PricedModel("x", "a"), 3_000_000, 0, 0, 1_000_000) == pytest.approx(12.0)
    assert cost(book, PricedModel("x", "b"), 3_000_000, 0, 0, 1_000_000) == pytest.approx(3.0)


def test_long_inputs_pay_the_higher_tier_on_all_tokens() -> None:
    """Above 272,000 input tokens every token of the request costs more, output included."""
    at, above = (cost(PRICES, PricedModel("openai", "gpt-5.4"), n, 1_000, 1_000) for n in (272_000, 272_001))
    assert at == pytest.approx((271_000 * 1.25 + 1_000 * 0.13 + 1_000 * 7.5) / 1e6)
    assert above == pytest.approx((271_001 * 2.5 + 1_000 * 0.25 + 1_000 * 11.25) / 1e6)


@pytest.mark.parametrize("day", [datetime(2024, 1, 1, tzinfo=UTC), datetime(2026, 10, 13, tzinfo=UTC), NOW])
def test_an_early_clock_does_not_double_the_price(day: datetime) -> None:
    """Bundled batch prices begin on 2026-10-14; before it the bundled answer would be the standard price."""
    assert cost(Prices(now=day), PricedModel("openai", "gpt-5.4-mini"), 1_000_000, 0, 0) == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "no-such-model"), ("no-such-provider", "gpt-5.4"), ("together", "openai/gpt-oss-20b"), ("openai", "")],
)
def test_an_unknown_batch_price_is_unknown(provider: str, model: str) -> None:
    """No price, or only a standard one, gives None everywhere and never 0."""
    assert PRICES.unit(PricedModel(provider, model)) is None
    assert cost(PRICES, PricedModel(provider, model), 10, 0, 10) is None
    assert PRICES.estimate(PricedModel(provider, model), "none", 100, 10, 1_000) == UNKNOWN
    assert NOTHING + UNKNOWN == UNKNOWN


def test_unknown_tokens_make_the_cost_unknown() -> None:
    """A row without usage has no cost; one without a cached count has none cached."""
    assert cost(PRICES, PricedModel("openai", "gpt-5.4"), None, 0, 1) is None
    assert cost(PRICES, PricedModel("openai", "gpt-5.4"), 1, 0, None) is None
    assert cost(PRICES, PricedModel("openai", "gpt-5.4"), 10, None, 1) == cost(
        PRICES, PricedModel("openai", "gpt-5.4"), 10, 0, 1
    )


@pytest.mark.parametrize(
    ("told", "is_outdated"),
    [(None, False), ("{ours}", False), ("0.0.9", True), ("0.0.10", True), ("9999.1", False), ("9999.1 other", True)],
)
def test_what_newer_price_data_costed_older_ones_do_not(tmp_path: Path, *, told: str | None, is_outdated: bool) -> None:
    """Two machines with different data on one lake would cost all answers in turn; what the lake sets is both's."""
    ours, _, overridden = prices.basis(tmp_path / "config.toml").partition(" ")
    data, _, other = (told or "").partition(" ")
    said = told and f"{data.format(ours=ours)} {other or overridden}"
    assert prices.is_outdated(said, tmp_path / "config.toml") is is_outdated


def test_the_lake_overrides_prices(tmp_path: Path) -> None:
    """config.toml wins over the bundled data, for models nobody else knows too; no file is no override."""
    path = tmp_path / "config.toml"
    assert cost(Prices.of_lake(path, NOW), PricedModel("openai", "gpt-5.4-mini"), 1_000_000, 0, 0) == pytest.approx(
        0.375
    )
    path.write_bytes(CONFIG + b'[prices."lab/mine"]\ninput = 0\noutput = 0\ncached_input = 0\n')
    prices = Prices.of_lake(path, NOW)
    assert cost(prices, PricedModel("openai", "gpt-5.4-mini"), 1_000_000, 500_000, 1_000_000) == pytest.approx(5.0)
    assert cost(prices, PricedModel("lab", "mine"), 5, 0, 5) == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[prices."openai/x"]\ninput = 1\n', r'config\.toml:1: prices\."openai/x"\.output is missing'),
        ('[prices."openai/x"]\ninput = 1\noutputs = 2\n', r"config\.toml:3: .*outputs is not a known key"),
        ('[prices."openai/x"]\ninput = -1\noutput = 2\n', r"input is -1, not between"),
        ("[prices.x]\ninput = 1\noutput = 2\n", r"its name must be"),
        ("prices = 3\n", r"prices must be a table"),
        ("[prices", r"not valid TOML"),
    ],
)
def test_wrong_overrides_are_named(text: str, message: str) -> None:
    """A price that cannot be used is an error, not a guess."""
    with pytest.raises(UsageError, match=message):
        overrides(text.encode())


@given(
    st.sampled_from([*THINKING_TOKENS, "2048", "unheard-of"]),
    st.one_of(st.none(), st.integers(1, 50_000)),
    st.integers(1, 1_000),
    st.integers(0, 10_000_000),
)
def test_low_is_at_most_expected_is_at_most_worst(thinking: str, limit: int | None, n: int, tokens: int) -> None:
    """Estimates are ordered, and the worst is unknown exactly when nothing bounds the output."""
    estimate = PRICES.estimate(PricedModel("openai", "gpt-5.4"), thinking, limit, n, tokens)
    assert estimate.low_usd is not None
    assert estimate.expected_usd is not None
    assert 0 <= estimate.low_usd <= estimate.expected_usd
    assert (estimate.worst_usd is None) == (limit is None)
    if estimate.worst_usd is not None:
        assert estimate.expected_usd <= estimate.worst_usd + 1e-12


def test_estimates_follow_the_documented_rule() -> None:
    """100 requests of 500 tokens: input at 0.8, 1 and 1.5; output 37, 150 and the limit; thinking on top.

    Of a budget half is used, but no more than a judgment is worth; what a study says of an answer has its thoughts.
    """
    assert output_tokens("none", 300) == (37, 150)
    assert output_tokens("low", None)[1] == 300
    assert output_tokens("1000", 200)[1] == 200
    assert output_tokens("1000", None, Length(40)) == (137, 540)
    assert output_tokens("32768", None)[1] == output_tokens("high", None)[1]
    assert output_tokens("high", None, Length(400, is_whole=True)) == (400, 400)
    assert output_tokens("none", None, Length(10)) == (10, 10)
    usd = PRICES.estimate(PricedModel("openai", "gpt-5.4-mini"), "none", 300, 100, 50_000)
    assert usd.low_usd == pytest.approx(100 * (400 * 0.375 + 37 * 2.25) / 1e6)
    assert usd.expected_usd == pytest.approx(100 * (500 * 0.375 + 150 * 2.25) / 1e6)
    assert usd.worst_usd == pytest.approx(100 * (750 * 0.375 + 300 * 2.25) / 1e6)
    assert PRICES.estimate(PricedModel("openai", "gpt-5.4-mini"), "none", None, 0, 0) == Estimate(0.0, 0.0, 0.0, 0.0)


def test_a_live_call_costs_the_standard_price_and_a_server_of_ones_own_nothing() -> None:
    """Batches cost half of what the same live call costs; an override of one is no override of the other."""
    batch, live = (PricedModel("openai", "gpt-5.4-mini", mode) for mode in (Mode.BATCH, Mode.LIVE))
    standard, half = (cost(PRICES, asked, 100_000, 0, 1_000) for asked in (live, batch))
    assert standard is not None
    assert half == pytest.approx(standard / 2)
    book = Prices(overrides(b'[prices."openai/gpt-5.4-mini@live"]\ninput = 8\noutput = 0\n'), NOW)
    assert cost(book, live, 1_000_000, 0, 0) == pytest.approx(8.0)
    assert cost(book, batch, 1_000_000, 0, 0) == pytest.approx(0.375)
    assert cost(PRICES, PricedModel("openai", "gpt-5.4-mini", Mode.FILES), 10, 0, 10) is None


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", (0.44, 0.44)),
        ("openai/gpt-oss-120b", (0.15, 0.6)),
        ("moonshotai/Kimi-K3", (3.0, 15.0)),
    ],
)
def test_where_few_models_are_cheaper_in_batches_the_others_cost_what_live_calls_do(
    model: str, usd: tuple[float, float]
) -> None:
    """Together's list of discounts; without it, an equal batch price would count as unknown."""
    input_usd, output_usd = usd
    assert cost(PRICES, PricedModel("together", model), 1_000_000, 0, 0) == pytest.approx(input_usd)
    assert cost(PRICES, PricedModel("together", model), 0, 0, 1_000_000) == pytest.approx(output_usd)
    assert cost(PRICES, PricedModel("together", "nobody/knows-this"), 1, 0, 1) is None


@pytest.mark.parametrize("sigma", [0.2, 0.6])
@pytest.mark.parametrize("n_requests", [40, 1_000])
def test_nine_of_ten_sums_lie_between_low_and_high(sigma: float, n_requests: int) -> None:
    """Answers whose length is log-normal, a pilot of 25 and what follows it, 2,000 times: .85 to .95 are inside."""
    random = np.random.default_rng(7)
    price = PRICES.unit(PricedModel("openai", "gpt-5.4-mini"))
    assert price is not None
    n_inside = 0
    for pilot, rest in zip(
        random.lognormal(5, sigma, (2_000, 25)), random.lognormal(5, sigma, (2_000, n_requests)), strict=True
    ):
        used = prices.Usage(25, 1.1, 0.0, float(pilot.mean()), float(pilot.std(ddof=1)))
        found = used.cost(price, n_requests, 300 * n_requests, None)
        actual = n_requests * price.cost_usd(330, 0, 0) + price.cost_usd(0, 0, float(rest.sum()))
        assert found.low_usd is not None
        assert found.high_usd is not None
        n_inside += found.low_usd <= actual <= found.high_usd
    assert 0.85 <= n_inside / 2_000 <= 0.95


@given(
    st.builds(
        prices.Usage,
        st.integers(10, 500),
        st.floats(0.1, 5),
        st.floats(0, 1),
        st.floats(0, 60_000),
        st.floats(0, 60_000),
    ),
    st.one_of(st.none(), st.integers(1, 50_000)),
    st.integers(1, 1_000),
    st.integers(0, 10_000_000),
)
def test_what_is_learned_is_in_order_too(used: prices.Usage, limit: int | None, n: int, tokens: int) -> None:
    """Low, expected, high, worst; and what is learned takes the place of what models usually write."""
    found = PRICES.estimate(PricedModel("openai", "gpt-5.4"), "none", limit, n, tokens, Length(150), used)
    assert found.low_usd is not None
    assert found.expected_usd is not None
    assert found.high_usd is not None
    assert 0 <= found.low_usd <= found.expected_usd <= found.high_usd
    assert (found.worst_usd is None) == (limit is None)
    assert found.worst_usd is None or found.high_usd <= found.worst_usd
