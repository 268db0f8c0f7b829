"""How live calls are made, as config.toml says it: the narrower wins, the command line wins over all."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.errors import UsageError
from batchpond.run.live.calls import CallRules, OnDoubt, PaceSettings
from batchpond.run.live.run import LiveSettings, load

WRITTEN = """
[live]
concurrency = 8
qps = 3.0
on_doubt = "hold"

[live.openai]
requests_per_minute = 500
tokens_per_minute = 200_000

[live."ollama/llama3.2"]
concurrency = 1
qps = 0.5
gap_s = 2.0
deadline_s = 900
max_doubts = 0
"""


def written(folder: Path, text: str = WRITTEN) -> LiveSettings:
    (folder / "config.toml").write_text(text)
    return load(folder)


def test_without_a_word_a_model_is_asked_as_is_usual_with_its_provider(tmp_path: Path) -> None:
    assert load(tmp_path).of_model("openai", "gpt-5", 24) == (PaceSettings(24), CallRules())


def test_what_is_written_for_a_model_wins_over_its_providers_and_that_over_all(tmp_path: Path) -> None:
    found = written(tmp_path)
    held = CallRules(on_doubt=OnDoubt.HOLD)
    assert found.of_model("anthropic", "claude", 16) == (PaceSettings(8, 180.0), held)
    assert found.of_model("openai", "gpt-5", 16) == (PaceSettings(8, 500, 200_000), held)
    assert found.of_model("ollama", "llama3.2", 1) == (
        PaceSettings(1, 30.0, None, 2.0),
        CallRules(900, OnDoubt.HOLD, 0),
    )


def test_the_command_line_wins_over_all_and_what_it_leaves_out_stays(tmp_path: Path) -> None:
    forced = written(tmp_path).over(concurrency=2, qps=1.0, on_doubt=None)
    assert forced.of_model("openai", "gpt-5", 16) == (
        PaceSettings(2, 60.0, 200_000), CallRules(on_doubt=OnDoubt.HOLD)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[live]\nconcurrency = 0", "concurrency"),
        ("[live]\nconcurrency = 1000", "concurrency"),
        ("[live]\nqps = 1\nrequests_per_minute = 3", "requests_per_minute"),
        ('[live]\non_doubt = "perhaps"', "on_doubt"),
        ("[live.openai]\ndeadline = 3", "deadline"),
        ("[live]\nspeed = 3", "speed"),
        ("[live]\nqps = nan", "qps"),
        ("live = 3", "live"),
        ("[live", "config.toml"),
    ],
)
def test_nonsense_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        written(tmp_path, text)
    assert said in caught.value.message
    assert "config.toml" in caught.value.message
