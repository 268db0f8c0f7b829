"""What rate-limit headers say: every provider's names and forms, and any nonsense at all."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.model import Mode
from batchpond.providers import registry
from batchpond.providers.base import NO_HINTS, RateHints
from batchpond.providers.http.errors import RETRY_AFTER_MAX_S, Answer, answer_of, duration_s, retry_after_s
from batchpond.providers.shared.live import ANY_RATES, RateNames, read_hints

NOW = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)


def of(name: str) -> RateNames:
    """Return where a provider tells its limits."""
    rates: RateNames = registry.wire(name).LIVE.rates
    return rates


LIVE = [descriptor.name for descriptor in registry.all_descriptors() if Mode.LIVE in descriptor.modes]
ALL = list(dict.fromkeys((ANY_RATES, *map(of, LIVE))))
NAMED = sorted(
    {
        row.pattern.format(word)
        for names in ALL
        for row in (*names.requests, *names.tokens)
        for word in ("limit", "remaining", "reset")
    }
)


def openai(**values: str) -> dict[str, str]:
    return {f"x-ratelimit-{name.replace('_', '-')}": value for name, value in values.items()}


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("2m59.56s", 179.56),
        ("120ms", 0.12),
        ("6ms", 0.006),
        ("1h2m3s", 3723.0),
        ("1d", 86_400.0),
        ("7", 7.0),
        ("0.5", 0.5),
        (" 34s ", 34.0),
        ("500us", 0.0005),
        ("", None),
        ("s", None),
        ("soon", None),
        ("1x", None),
        ("nan", None),
        ("1s and more", None),
    ],
)
def test_spans_of_time(text: str, expected_s: float | None) -> None:
    """Go's durations and plain seconds; anything else is None."""
    assert duration_s(text) == (None if expected_s is None else pytest.approx(expected_s))


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["h", "m", "s", "ms"])), min_size=1, max_size=4))
def test_a_written_duration_is_read_as_its_sum(parts: list[tuple[int, str]]) -> None:
    """Writing and reading agree for every sequence of numbers and units."""
    unit_s = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert duration_s(text) == pytest.approx(sum(number * unit_s[unit] for number, unit in parts))


def test_openais_headers() -> None:
    """Requests and tokens apart, resets as durations."""
    headers = openai(
        limit_requests="5000", remaining_requests="4999", reset_requests="12ms",
        limit_tokens="500000", remaining_tokens="499000", reset_tokens="6m0s",
    )  # fmt: skip
    assert read_hints(headers, of("openai"), NOW) == RateHints(5000, 4999, 0.012, 500_000, 499_000, 360.0)


def test_azures_minus_one_says_nothing() -> None:
    """A server that does not count answers -1."""
    headers = openai(limit_requests="-1", remaining_requests="-1", reset_requests="-1")
    assert read_hints(headers, of("openai"), NOW) == NO_HINTS


def test_groqs_requests_are_per_day() -> None:
    """The limit of a day is told with its reset, and is nothing without it: it must not pass for a minute's."""
    headers = openai(limit_requests="14400", remaining_requests="14370", reset_requests="2m59.56s")
    hints = read_hints(headers, of("groq"), NOW)
    assert (hints.request_limit, hints.requests_left) == (14_400, 14_370)
    assert hints.requests_reset_s == pytest.approx(179.56)
    del headers["x-ratelimit-reset-requests"]
    assert read_hints(headers, of("groq"), NOW) == RateHints(None, 14_370, None)


@pytest.mark.parametrize(("date", "expected_s"), [(None, 30.0), ("Sat, 21 Nov 2026 09:59:50 GMT", 40.0), ("x", 30.0)])
def test_anthropics_resets_are_dates_by_its_own_clock(date: str | None, expected_s: float) -> None:
    """RFC 3339, counted from the answer's own date: this machine's clock may be wrong."""
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-21T10:00:30Z",
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "39000",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-21T10:00:30Z",
    } | ({"date": date} if date else {})
    hints = read_hints(headers, of("anthropic"), NOW)
    assert hints == RateHints(50, 49, expected_s, 40_000, 39_000, expected_s)


def test_anthropics_tokens_before_its_input_tokens() -> None:
    """`tokens` is the tightest limit in force."""
    headers = {
        "anthropic-ratelimit-tokens-limit": "80000",
        "anthropic-ratelimit-tokens-remaining": "1",
        "anthropic-ratelimit-input-tokens-limit": "40000",
    }
    assert read_hints(headers, of("anthropic"), NOW).token_limit == 80_000


def test_togethers_limits_are_per_second() -> None:
    """The time until all of it is there again follows from the limit, whatever the reset says."""
    headers = {
        "x-ratelimit-limit": "10", "x-ratelimit-remaining": "3", "x-ratelimit-reset": "1",
        "x-tokenlimit-limit": "3000", "x-tokenlimit-remaining": "3000",
    }  # fmt: skip
    hints = read_hints(headers, of("together"), NOW)
    assert (hints.request_limit, hints.requests_left, hints.token_limit, hints.tokens_left) == (10, 3, 3000, 3000)
    assert hints.requests_reset_s == pytest.approx(0.7)
    assert hints.tokens_reset_s == pytest.approx(1 / 3000)


def test_openrouters_reset_is_unix_milliseconds() -> None:
    """A number that large is a date."""
    reset_ms = int((NOW + timedelta(seconds=42)).timestamp() * 1000)
    headers = {"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": str(reset_ms)}
    assert read_hints(headers, ANY_RATES, NOW) == RateHints(20, 0, 42.0)


def test_silence_says_nothing() -> None:
    """No headers, no hints, for every provider."""
    assert all(read_hints({"date": "x", "x-other": "1"}, names, NOW) == NO_HINTS for names in ALL)


texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["inf", "-inf", "nan", "1e400", "-1", "0", "1e9", "99999999999999999999", "1s1s", "2026-11-21", "٣"]
    ),
    st.from_regex(r"[0-9]{1,20}(\.[0-9]+)?(ms|s|m|h|d)?", fullmatch=True),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
)


@given(st.sampled_from(ALL), st.dictionaries(st.sampled_from([*NAMED, "date"]), texts))
def test_any_headers_give_sane_hints(names: RateNames, headers: dict[str, str]) -> None:
    """No exception, no negative number, none that is not finite, and no wait longer than a week."""
    hints = read_hints(headers, names, NOW)
    counts = (hints.request_limit, hints.requests_left, hints.token_limit, hints.tokens_left)
    assert all(count is None or 0 <= count <= 2**53 for count in counts)
    assert hints.request_limit != 0
    assert hints.token_limit != 0
    waits = (hints.requests_reset_s, hints.tokens_reset_s)
    assert all(wait is None or (math.isfinite(wait) and 0 <= wait <= 604_800) for wait in waits)


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), texts), st.none() | texts)
def test_any_wish_to_wait_is_bounded(headers: dict[str, str], asked: str | None) -> None:
    """0 to 900 s or nothing, from any header and any text."""
    wait_s = retry_after_s(headers, NOW, asked)
    assert wait_s is None or 0 <= wait_s <= RETRY_AFTER_MAX_S


def answer(body: bytes, **headers: str) -> Answer:
    return answer_of(429, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.mark.parametrize(
    ("found", "expected_s"),
    [
        (answer(b'{"error":{"message":"Limit 15000, Used 11972. Please try again in 5.289s. Visit x"}}'), 5.289),
        (answer(b'{"error":{"message":"Please try again in 7m12.5s."}}'), 432.5),
        (answer(b'{"error":{"message":"Please try again in 120ms."}}'), 0.12),
        (answer(b'{"error":"Rate limit. Try again in 3s"}'), 3.0),
        (answer(b'{"error":{"message":"please try again in a while"}}'), None),
        (answer(b'{"error":{"message":"try again in 5s"}}', retry_after="2"), 2.0),
        (answer(b'{"error":{"message":"try again in 5s"}}', retry_after="2", retry_after_ms="100"), 0.1),
        (answer(b"try again in 5s"), None),
        (
            answer(
                b'{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m","details":'
                b'[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}'
            ),
            34.0,
        ),
    ],
)
def test_how_long_an_answer_asks_to_wait(found: Answer, expected_s: float | None) -> None:
    """Headers, then Google's RetryInfo, then the words of the message."""
    wait_s = found.retry_after_s(NOW)
    assert wait_s == (None if expected_s is None else pytest.approx(expected_s))
