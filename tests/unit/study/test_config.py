"""What `lake/config.toml` says about an account's queues, with what is shipped about its tier."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from batchpond.errors import UsageError
from batchpond.lake.attempts import Phase
from batchpond.providers import registry
from batchpond.study import prices
from batchpond.study.prices import Config, Limits, load_config
from tests.rigs.sim_study import Rig

TIERS = tomllib.loads((Path(prices.__file__).parent / "tiers.toml").read_text("utf-8"))


def loaded(tmp_path: Path, text: str) -> Config:
    (tmp_path / "config.toml").write_text(text)
    return load_config(tmp_path)


def test_every_tier_names_a_provider_its_source_and_known_limits() -> None:
    assert set(TIERS) <= set(registry.NAMES)
    for tiers in TIERS.values():
        for tier in tiers.values():
            assert tier["source"]
            assert tier["checked"]
            assert set(tier) <= {"source", "checked", "enqueued_tokens", "enqueued_requests", "open_batches", "models"}
            assert all(tokens > 0 for tokens in tier.get("models", {}).values())


def test_a_tier_gives_limits_and_what_is_written_wins(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[limits.openai]\ntier = "tier-1"\nopen_batches = 7\n[limits."openai/gpt-5.5"]\nenqueued_tokens = 5\n'
        '[limits.gemini]\ntier = "tier-1"\n',
    )
    assert settings.of_model("openai", "gpt-5.4-mini") == Limits(enqueued_tokens=2_000_000)
    assert settings.of_model("openai", "gpt-4.1") == Limits(enqueued_tokens=900_000)
    assert settings.of_model("openai", "gpt-5.5") == Limits(enqueued_tokens=5)
    assert settings.of_account("openai") == Limits(open_batches=7)
    assert settings.of_account("gemini") == Limits(open_batches=100)
    assert settings.of_model("gemini", "gemini-2.5-pro") == Limits(enqueued_tokens=5_000_000)
    assert settings.of_model("anthropic", "claude-haiku-4-5") == Limits()


def test_what_is_written_of_live_calls_and_prices_is_nothing_unknown_to_the_limits(tmp_path: Path) -> None:
    text = '[live]\nconcurrency = 2\n[prices."openai/x"]\ninput = 1\noutput = 1\n[files]\nfolder = "out"\n'
    assert loaded(tmp_path, text).variables == {"BATCHPOND_FILES": str(tmp_path / "out")}


def test_without_a_word_nothing_is_limited(tmp_path: Path) -> None:
    assert load_config(tmp_path).of_account("openai") == Limits()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[limits.openai]\ntier = "gold"\n', "limits.openai.tier is 'gold'"),
        ('[limits.nobody]\ntier = "tier-1"\n', "limits.nobody.tier"),
        (
            '[limits."openai/gpt-5.5"]\ntier = "tier-1"\n',
            r'config\.toml:2: limits\."openai/gpt-5\.5"\.tier is not a known key',
        ),
        (
            "[limits.openai]\nopen_batches = 0\n",
            r"config\.toml:2: limits\.openai\.open_batches is 0, not between 1 and",
        ),
    ],
)
def test_what_is_not_understood_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("limit", "n_batches", "n_requests", "n_tokens"),
    [
        ("open_batches = 2", 2, 99, 99_999),
        ("enqueued_requests = 11", 99, 11, 99_999),
        ("enqueued_requests = 1", 1, 99, 99_999),  # a batch alone is always tried
        ("enqueued_tokens = 700", 99, 99, 1_400),  # of each of the two models
    ],
)
def test_waves_keep_to_the_limits_and_end_with_everything_sent_once(
    tmp_path: Path, limit: str, n_batches: int, n_requests: int, n_tokens: int
) -> None:
    rig = Rig(tmp_path, with_lens=False)
    rig.plan()
    (rig.lake / "config.toml").write_text(f"[limits.openai]\n{limit}\n")
    rig.submit()
    n_waves = 1
    while len(rig.answers()) < 24:
        waiting = [attempt.intent for attempt in rig.attempts() if attempt.phase is Phase.OPEN]
        assert 0 < len(waiting) <= n_batches
        assert sum(intent.n_requests or 0 for intent in waiting) <= max(n_requests, 5)
        assert sum(intent.input_tokens or 0 for intent in waiting) <= n_tokens
        rig.clock.advance(1_000)
        rig.sync()
        n_waves += 1
    assert n_waves > 2
    assert rig.violations() == []
    rig.world.close()
